/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: calls to metad with a deadline, sent again after a failure on the way, with jittered backoff, until then.
 *
 * A call that changes something (`id` is set) carries a number of the session, under which it takes effect once, however
 * often it is sent. At most SESSION_WINDOW of them are unanswered; the others wait, in order. The session is opened by
 * the first of them, renewed every SESSION_RENEW_NS by name of what is open, and closed at the end. When metad does not
 * know it any more, all that is under way in it ends with ERR_SESSION_LOST: the outcome is unknown and nothing is tried
 * again; later calls open another one.
 *
 * Where metad is a group, who leads is asked: a refusal says who that is, and the next one is asked if one does not answer in ATTEMPT_NS.
 *
 * Calls without a number are sent again only if they are `repeatable`: they change nothing.
 */
#ifndef CLIENT_SESSION_H
#define CLIENT_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/rng.h"
#include "common/io/io.h"
#include "common/rpc/methods.h"
#include "common/rpc/replicas.h"
#include "proto/metad.pb-c.h"

enum { SESSION_WINDOW = 64 };                                 /* as metad keeps replies */
#define SESSION_RENEW_NS (10ull * 1000 * 1000 * 1000)         /* a sixth of the silence after which a session is ended */

struct session;

struct session_call {
	/* set by the caller */
	const struct rpc_method *method;
	const ProtobufCMessage *request;  /* stays valid until done */
	Craton__RequestId **id;           /* where the request has its id; set: a change */
	bool repeatable;
	uint64_t timeout_ns;              /* 0: the session's */
	/* Exactly once, never inside session_start. msg is valid during the call; NULL on transport failures. */
	void (*done)(struct session_call *call, int status, const ProtobufCMessage *msg);
	/* private */
	struct session *session;
	Craton__RequestId number;
	struct list link;                 /* in session->queue, while it waits for its number */
	struct rpc_call rpc;
	const struct rpc_peer *asked;
	struct io_op timer;               /* of the backoff; in the queue: the deadline */
	uint64_t deadline_ns;
	uint32_t attempt;
	int last_status;
	bool canceled, leaving;
	bool leaderless; /* one that was asked is there, and knows of no leader */
};

struct session {
	/* set by the owner */
	struct io *io;
	struct rng *rng;
	struct rpc_replicas *metads;
	uint64_t timeout_ns;
	const char *name;                 /* as metad's operators see it */
	/* What is open for reading: at most LIMIT_OPEN_FILES inodes; how many. NULL: never anything. */
	size_t (*list_open)(void *ctx, uint64_t *inodes);
	/* The session has nothing under way any more. */
	void (*idle)(void *ctx);
	void *ctx;
	/* readable */
	uint64_t waited_ns;               /* what the call that ended last was given: for session_explain in its done */
	char addr_text[RPC_ADDRS_TEXT_BYTES];
	/* private */
	uint64_t id, secret;              /* id 0: there is none */
	uint64_t next, low;               /* numbers: the next one; the lowest unanswered */
	uint64_t unanswered;              /* bit i: low + i */
	struct list queue;
	bool opening, closing, close_sent;
	struct session_call own;          /* opening, renewing, closing: one at a time */
	union {
		Craton__SessionOpenRequest open;
		Craton__SessionRenewRequest renew;
		Craton__SessionCloseRequest close;
	} request;
	uint64_t *open_inodes;
	struct io_op timer;               /* of the next renewal */
};

void session_init(struct session *session);  /* after the owner's fields */
void session_fini(struct session *session);
/* From now on it is renewed while list_open has something to say (also without a session of its own). */
void session_watch(struct session *session);
/* No calls are active any more: says goodbye, briefly. True: nothing is under way; else `idle` will be called. */
bool session_close(struct session *session);

void session_start(struct session *session, struct session_call *call);
/* `done` follows with ERR_CANCELED, or the result if that was already on its way. */
void session_cancel(struct session_call *call);
bool session_call_active(const struct session_call *call);
/* What to do about a store without room. */
#define SESSION_ROOM_HINT \
	"see `craton df`; add disks, or remove files, whose space comes back after a while (`craton config get gc.grace`)"
/* One line with cause and next step for a failed call. `what`: "open /a/b". Returns status. */
int session_explain(const struct session *session, struct err *err, int status, const char *what, const char *path);

#endif
