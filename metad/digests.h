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
 *
 * Who has its table from another one (a snapshot) has its mistakes, too, and is no witness for it. It is one against a member that had the same as it
 * had at a mark behind its table's beginning, for what went wrong came later then; and against all from the first mark on that is settled, or that all
 * voters have, as it has it. That it remembers as long as it runs.
 *
 * While voters differ and nobody knows who is right, there is a doubt: no table is given away, and nobody is added or promoted.
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
	uint64_t since; /* likewise: the table of who says it was another's up to there; 0: it is its own, or as good as that */
	uint64_t missed; /* likewise, with index 0: this mark it has not, and never will; 0: none is */
};

struct digests_member {
	uint64_t id; /* 0: none */
	uint64_t agreed; /* the last mark at which it had the same as this one; 0: none yet */
	uint64_t differs; /* the first at which it had not; 0: none, or it has since */
	uint64_t since, missed; /* the last that it said of them */
	struct digests_mark said; /* its last; index 0: none */
};

struct digests {
	struct digests_mark own[DIGESTS_KEPT]; /* by number of the mark */
	uint64_t last; /* of them; 0: none */
	struct digests_member members[RAFT_MEMBERS_MAX];
	struct digests_mark round; /* leader: that is being asked about; others: what the leader asks about. index 0: nothing */
	uint64_t leader, term, until_ms; /* of that round */
	uint64_t agreed; /* the last mark that most have as it is here */
	uint64_t since; /* the table here was another's up to there; 0: it was not, or most have had the same since */
	uint64_t begins; /* marks up to there were made elsewhere, or before the start */
};

/*
 * At the start, and when a snapshot takes the place of all rows: what was said of them is void. since: the entry up to which another made the table;
 * 0: it was made here. applied: the entry that it is as of.
 */
void digests_init(struct digests *d, uint64_t since, uint64_t applied);
/* Entry `index`, a multiple of DIGEST_ENTRIES, is applied here. */
void digests_mark(struct digests *d, uint64_t index, uint32_t crc);
/* A member's letter said this. */
void digests_hear(struct digests *d, uint64_t from, uint64_t leader, const struct digests_mark *said);
/* What is known of the member; NULL: it has said nothing yet. */
const struct digests_member *digests_member(const struct digests *d, uint64_t id);
/* Leader: the member has not yet said anything of the mark that it is asked about, or of one before. */
bool digests_owes(const struct digests *d, uint64_t id);
/* A voter has other rows than those here, and it is not known that most have those here. */
bool digests_doubts(const struct digests *d, const struct raft_config *config);

enum digests_verdict { DIGESTS_FINE, DIGESTS_DIFFER };
/*
 * From time to time. config: the group's. ret_say: what letters say from now on; index and missed 0: nothing. DIGESTS_DIFFER: most have something else after entry
 * *ret_at, and had the same, as far as is known, after d->agreed.
 */
enum digests_verdict digests_step(struct digests *d, const struct raft_config *config, uint64_t id, uint64_t leader, uint64_t term,
	uint64_t now_ms, struct digests_mark *ret_say, uint64_t *ret_at);

#endif
