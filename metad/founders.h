/* SPDX-License-Identifier: Apache-2.0 */
/*
 * founders: a group is founded once, by all of its founders.
 *
 * A metad that lost its directory looks like one that never had any. Where it is told to found its group anew it must not take part: it has forgotten
 * what it voted and acknowledged, and with another one that did it would be a majority that knows nothing. So each directory of a founder has a
 * nonce, and the nonces of all are the roll of the group. A founder takes part when all of them have accepted the same roll, durably, and each accepts
 * one in its life:
 *
 *     nonce --all say theirs, or one has accepted a roll already--> accepted --all others have accepted it, or one takes part by it--> takes part
 *
 * Whoever comes with a new nonce is refused by the first of the group that answers. As long as none does it waits: others may have accepted a roll with its old nonce,
 * which is never complete again, and whether that one was complete before only those can say who took part. That nobody takes part who must not does not depend on how old an answer is: a nonce has no second roll, and a roll
 * stays accepted. That all do in the end does: who has accepted none and does not answer any more should be forgotten, for it may come back with another nonce. As long as one of those that took part has its directory, no roll that names it is ever complete but its own, for that one's nonce would have to be in it.
 *
 * Those are asked that the configuration names as founders, and they must name the same: a roll of another number is nobody's. Who founds a group alone has nobody to ask.
 *
 * Directories that older builds founded have no roll: who finds one of these takes part is refused.
 */
#ifndef METAD_FOUNDERS_H
#define METAD_FOUNDERS_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/base/limits.h"
#include "common/base/slice.h"

enum {
	FOUNDERS_NONCE_BYTES = 16,
	FOUNDERS_BYTES_MAX = 4 + 4 + 16 + 8 + FOUNDERS_NONCE_BYTES + 4 + LIMIT_METADS * FOUNDERS_NONCE_BYTES + 4,
};

/* By number, from 1; count 0: there is none. */
struct founders_roll {
	uint32_t count;
	uint8_t nonces[LIMIT_METADS][FOUNDERS_NONCE_BYTES];
};

/* What a founder says of itself. */
struct founders_said {
	bool heard;  /* false: nothing yet, and the rest is zeros */
	bool member; /* it takes part, or has */
	uint8_t nonce[FOUNDERS_NONCE_BYTES]; /* of its directory; zeros: it has none (a member of an older build's) */
	struct founders_roll roll;           /* accepted, durably */
};

struct founders {
	uint64_t self;   /* 1 .. count */
	uint32_t count;
	struct founders_said said[LIMIT_METADS]; /* by number less 1, with what is durable of `self` */
};

enum founders_step {
	FOUNDERS_WAIT,    /* who: has not said enough yet */
	FOUNDERS_ACCEPT,  /* the roll: durably, then decide again; who: the last that it is of */
	FOUNDERS_TAKE_PART,
	FOUNDERS_LOST,    /* who: takes part, in a group that knows another directory of this one */
	FOUNDERS_DIFFER,  /* as WAIT; who: one of them has lost its directory since the founding began, or they name different founders */
	FOUNDERS_UNSAID,  /* as WAIT; who: takes part, and cannot say by which roll */
};
enum founders_step founders_decide(const struct founders *f, struct founders_roll *ret_roll, uint64_t *ret_who);

bool founders_roll_equal(const struct founders_roll *a, const struct founders_roll *b);

/* ---- DIR/log/founders (docs/FORMATS.md): nonce and roll of `self`, where they are lost with the log ---- */

/* Returns how many bytes. */
size_t founders_encode(const struct uuid *cluster, uint64_t replica, const struct founders_said *said, uint8_t out[FOUNDERS_BYTES_MAX]);
/* ERR_CORRUPT, ERR_VERSION, ERR_INVAL (of another replica), ERR_WRONG_CLUSTER; `path` is for the text. */
int founders_decode(const char *path, struct slice data, const struct uuid *cluster, uint64_t replica, struct founders_said *ret_said, struct err *err);

#endif
