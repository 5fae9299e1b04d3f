/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: what makes a change that is sent again take effect once.
 *
 * A client numbers its changes 1, 2, 3 ... within a session, and says with each how far its answers have come (`low`:
 * the lowest number still unanswered). The session's row keeps the replies of the numbers from `low` on, at most
 * STATE_WINDOW of them. A number that has a reply gets that reply and changes nothing; one below `low` was answered
 * long ago and is refused; so a copy of a request that comes late can do no harm.
 *
 * Sessions lie decoded in memory beside the table, their rows are written once an entry. Ids are never used again. A
 * session ends by command only: its client closed it, or the leader had not heard of the client for LIMIT_SESSION_MS.
 */
#ifndef METAD_STATE_SESSION_H
#define METAD_STATE_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/slice.h"

struct state;
struct state_result;

enum {
	STATE_WINDOW = 64,
	STATE_REPLY_BYTES = 768, /* the longest: a commit of 56 blocks with news of each */
	STATE_SESSION_NAME_BYTES = 64,
	STATE_SESSION_ROW_BYTES = 128 + STATE_SESSION_NAME_BYTES + STATE_WINDOW * (3 + STATE_REPLY_BYTES),
	STATE_END_LEASES = 128, /* that one command gives up */
};
_Static_assert(STATE_WINDOW == 64, "a bit each");
_Static_assert((int)STATE_SESSION_ROW_BYTES <= (int)LIMIT_VALUE_BYTES, "a session fits a value");

/* Which session a command is from, and its number there; session 0: none, the command is run as it comes. */
struct state_request {
	uint64_t session, seq;
	uint8_t ahead; /* seq - low, less than STATE_WINDOW */
};

struct state_reply {
	uint64_t seq; /* 0: none */
	uint16_t len;
	uint8_t *bytes;
};

struct state_session {
	uint64_t id;
	uint64_t secret;    /* that the client was told: who does not know it does not speak for the session */
	uint64_t low;       /* lowest number that its client still waits for, as it said last */
	uint64_t opened_ms; /* state time */
	uint32_t lease_count;
	uint64_t lease_from; /* it holds no inode below this one; in memory only */
	bool ending; /* refused to its client; its leases are being given up */
	char name[STATE_SESSION_NAME_BYTES];
	struct state_reply replies[STATE_WINDOW]; /* by seq % STATE_WINDOW */
	uint64_t held;      /* bit by seq % STATE_WINDOW: which of them there are, mostly few */
	struct list dirty;
};

/* Which replies the session has, bit by seq - from: from this number on, and, wrapped around, those before it. */
static inline uint64_t state_session_held(const struct state_session *session, uint64_t from)
{
	unsigned shift = from % STATE_WINDOW;

	return session->held >> shift | session->held << (-shift % STATE_WINDOW);
}

/* NULL: there is none, or it is ending, or was lost by a restore. */
struct state_session *state_session_at(const struct state *s, uint64_t id);
/* Those of clients of now: what a restore has lost does not count against LIMIT_SESSIONS. */
uint32_t state_session_count(const struct state *s);
/* State time at which the oldest of those that there are was opened; UINT64_MAX: there is none. */
uint64_t state_session_oldest_ms(const struct state *s);

/* ---- inside the module ---- */

/* Reads sessions and their leases into memory. */
void state__sessions_load(struct state *s);
void state__sessions_free(struct state *s);
/* True: the command is to be run, and its result recorded if *ret_session is set. Else `res` is the answer. */
bool state__session_admit(struct state *s, const struct state_request *request, struct state_result *res,
	struct state_session **ret_session);
void state__session_record(
	struct state *s, struct state_session *session, uint64_t seq, const struct state_result *res);
/*
 * A row, and a reply in it. Encoders return the length; `out` of a row has STATE_SESSION_ROW_BYTES. Decoders fill what is all zeros: 0 or
 * ERR_CORRUPT, and even then what a row has put into `session` is given back by state__session_fini.
 */
size_t state__session_row_encode(const struct state_session *session, uint8_t *out);
int state__session_row_decode(struct slice value, struct state_session *session);
void state__session_fini(struct state_session *session);
size_t state__session_reply_encode(const struct state_result *res, uint8_t out[STATE_REPLY_BYTES]);
int state__session_reply_decode(struct slice bytes, struct state_result *res);
/* The rows of the sessions that changed. */
void state__sessions_write(struct state *s);

#endif
