/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digests: are the rows here what they are at most members of the group? Pure: marks in, a verdict out.
 *
 * A mark is the digest of all changes (state_digest) after an entry whose index is a multiple of DIGEST_ENTRIES. It covers all entries before, and
 * what differed once differs for ever; so marks may be compared seldom, late, or after others, and nothing is missed by it. Who leads names its
 * newest mark; each member says its own of that index as soon as it has one:
 *
 *     leader: {index, crc} --> member: {index, its crc} --> leader: most have the same as it: settled --> member
 *     a member that has another one than a mark that is settled, or a leader than one in which most of the others agree: DIGESTS_DIFFER
 *
 * Only most of the voters decide, whoever leads. Of two that differ nobody knows which one is right: then that is shown, and a third decides.
 */
#ifndef METAD_DIGESTS_H
#define METAD_DIGESTS_H

#include <stdbool.h>
#include <stdint.h>
#include "metad/raft/raft.h"

enum {
	DIGEST_ENTRIES = 256, /* an idle group writes so many in three quarters of an hour, a busy one several times a second */
	DIGESTS_KEPT = 1024,  /* so far behind its leader a member may be, and still be compared at once */
	DIGESTS_ROUND_MS = 3000, /* a member that does not answer holds the others up for so long */
};

struct digests_mark {
	uint64_t index; /* 0: none */
	uint32_t crc;
	bool settled; /* as a letter says it: most voters have the same */
};

struct digests_member {
	uint64_t id; /* 0: none */
	uint64_t agreed; /* the last mark at which it had the same as this one; 0: none yet */
	uint64_t differs; /* the first at which it had not; 0: none, or it has since */
	struct digests_mark said; /* its last; index 0: none */
};

struct digests {
	struct digests_mark own[DIGESTS_KEPT]; /* by number of the mark */
	uint64_t last; /* of them; 0: none */
	struct digests_member members[RAFT_MEMBERS_MAX];
	struct digests_mark round; /* leader: that is being asked about; others: what the leader asks about. index 0: nothing */
	uint64_t leader, term, until_ms; /* of that round */
	uint64_t agreed; /* the last mark that most have as it is here */
};

/* Also when a snapshot takes the place of all rows: what was said of them is void. */
void digests_init(struct digests *d);
/* Entry `index`, a multiple of DIGEST_ENTRIES, is applied here. */
void digests_mark(struct digests *d, uint64_t index, uint32_t crc);
/* A member's letter said this. */
void digests_hear(struct digests *d, uint64_t from, uint64_t leader, const struct digests_mark *said);
/* What is known of the member; NULL: it has said nothing yet. */
const struct digests_member *digests_member(const struct digests *d, uint64_t id);

enum digests_verdict { DIGESTS_FINE, DIGESTS_DIFFER };
/*
 * From time to time. config: the group's. ret_say: what letters say from now on; index 0: nothing. DIGESTS_DIFFER: most have something else after entry
 * *ret_at, and had the same, as far as is known, after d->agreed.
 */
enum digests_verdict digests_step(struct digests *d, const struct raft_config *config, uint64_t id, uint64_t leader, uint64_t term,
	uint64_t now_ms, struct digests_mark *ret_say, uint64_t *ret_at);

#endif
