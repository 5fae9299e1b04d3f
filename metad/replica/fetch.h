/* SPDX-License-Identifier: Apache-2.0 */
/* fetch: the follower's side of a snapshot (fetch.c). */
#ifndef METAD_REPLICA_FETCH_H
#define METAD_REPLICA_FETCH_H

#include "common/base/rng.h"
#include "metad/replica/intake.h"

enum fetch_state { FETCH_NONE, FETCH_ASKING, FETCH_WORKING, FETCH_READY };
enum fetch_work { FETCH_TAKE, FETCH_CHECK, FETCH_FINISH };

struct fetch {
	enum fetch_state state;
	struct raft_message message;
	uint64_t snapshot, number; /* of the part that is wanted, or worked on */
	uint32_t attempts;         /* how often that part was asked for */
	uint64_t ask_at_ns; /* again; or, while it works, to say so */
	uint32_t failures;         /* of fetches since one went well */
	uint64_t not_before_ns;
	uint64_t given_up; /* a snapshot of which nothing is wanted any more */
	struct intake *intake;
	uint8_t *data; /* of the part that is worked on */
	size_t len;
	bool end, checked, refused;
	uint8_t digest[PART_DIGEST_BYTES];
	struct rng rng;
	/* FETCH_WORKING: the worker's */
	enum fetch_work work;
	struct io_op op;
	int code;
	struct err err;
};

#endif
