/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore: all that can happen in a small world. Three replicas on the real core, with the driver and the laws of world.h; from the founded
 * group on every step that may come next is taken, from every state that is reached, until there is none that is new. A state is looked at
 * once: its 128-bit hash is remembered, by its 64 lower bits and its place in a table.
 *
 * The core remembers the last term of its log alone, and asks its driver for all others.
 *
 * What may happen, at any time and in any order:
 *   network   A letter that was sent may arrive never, once, or any number of times, however late: the letters are a set that only grows.
 *             This is loss, duplication and reordering without a bound.
 *   time      Every timeout may run out at any time: a replica campaigns, a leader finds that it heard no quorum, a transfer is given up. Before
 *             a vote is asked of a replica that is not a leader, it has heard nothing of one for long. No clock is compared with another.
 *   disk      A sync ends any time later, and covers the log as it was when it began. A crash leaves what was synced, or with it any part
 *             of what was written behind it; then the replica starts from that.
 *   driver    A message of several entries may be cut anywhere.
 *
 * Bounded are elections (terms), entries submitted, crashes of each replica, changes of members, transfers, reads, compactions.
 *
 * What makes it small, and why nothing is lost by it:
 *   1. Pre-votes change nothing in who is asked: a candidate is given them as it likes. Who only asks is like a follower that knows no leader.
 *   2. What a leader believes of where a member's log ends decides only what it sends; here any part of the log that it ever had in its term
 *      may arrive from it, with any commit index that it ever knew, and any acknowledgement up to what was acknowledged. So those beliefs
 *      are no part of the state. What it really sends is checked to be such a part. (Whether it sends enough is for histories to show.)
 *   3. A refusal only tells a term, or a candidate that it will not win: everybody may learn at any time of any term that another has
 *      reached, and a candidate may be one whose votes never arrive. So refusals are not kept, nor letters of a term that is below its
 *      receiver's, who would only refuse; nor what its receiver will ignore for ever, as terms only rise.
 *   4. A crash and the next start are one step: between them is a replica that does nothing, as any may.
 *   5. Replicas are the same but for their names: of worlds that differ in names only one stands for all. Names are given in the order of a
 *      hash of what names nobody; where two are equal in that, both ways, and the least hash of all counts.
 *   6. What a follower keeps of its time as a leader or candidate is not read before it is written; nor what is in flight, as its bounds
 *      are not met; times and the random generator of timeouts decide nothing here.
 *   7. A message whose step leaves the core as it was and says nothing new is no step of the world; of messages of one leader's that the core
 *      takes alike, with the same update, one is worked off. Each is stepped on a copy of the core to see that: it is not assumed.
 * 1, 2 and 3 add to what can happen and take nothing away: a law that holds here holds in the world that is modelled. That letters of
 * older terms are ignored (3), that a leader's beliefs are right (2), and that anything comes to an end, is not shown here: unit tests
 * and histories do.
 */
#ifndef TESTS_RAFT_EXPLORE_H
#define TESTS_RAFT_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>

struct explore_limits {
	uint32_t terms;   /* elections that may be won, one a term */
	uint32_t submits; /* entries of clients; each leader adds one of its own */
	uint32_t crashes; /* of each replica */
	uint32_t changes, transfers, reads, compactions;
	bool snapshots; /* a leader may send one, needed or not */
	bool learner;   /* the third replica is one at first */
	uint32_t split; /* largest number of entries in a message */
	uint64_t memory_bytes;
	uint64_t seconds; /* 0: no end */
};

/* What happened, in all that was explored. */
struct explore_counts {
	uint64_t states, steps, deepest, deliveries, syncs, crashes, torn, elections, commits, cuts, rollbacks, changes,
		transfers, reads, snapshots, asked;
};

/* Whole: all of it was seen; else only a part: `why`. False: a law was broken, and what led there is printed; `why` says which. */
bool explore(const struct explore_limits *limits, struct explore_counts *ret_counts, bool *ret_whole, char why[512]);

#endif
