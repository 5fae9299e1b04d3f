/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joiner: one more metad for a group, in the midst of the workload, and who asks the group to take it, as an operator would: again and again
 * until it is a member, and doing what the answers say. One that lost power before anything of the group was durable there is as empty as one
 * whose disk was lost: it is removed, and comes back under the number that is next. One that a leader began to feed, and that the group knows
 * nothing of, as that leader fell before anybody else had heard, begins again with nothing. One whose build the group has left behind is started
 * with the build of the others, over what it has, once the group is seen to have risen; if it only says so, the run does not end.
 *
 * Or one of the founders loses its directory, and is told to found the group that it has forgotten: it must not take part, and is refused by
 * the first of the others that it reaches. Then it comes back as the operator would bring it: removed, and under the number that is next.
 */
#ifndef TESTS_SIM_JOINER_H
#define TESTS_SIM_JOINER_H

#include "tests/sim/cluster.h"

struct joiner {
	struct cluster *cluster;
	enum { JOINER_NONE, JOINER_LOSE, JOINER_LOST, JOINER_ADD, JOINER_REMOVE, JOINER_EMPTY, JOINER_MEMBER } state;
	unsigned node;   /* of the metad */
	uint64_t number; /* of it, next */
	bool lost; /* a founder, told to found again; it is no member any more when nobody knows its number */
	unsigned unwanted; /* answers that it has taken part in a group already, one after the other */
	uint64_t next_ns; /* nothing is asked before */
	uint64_t blank_ns; /* since when the member is empty; 0: it is not, or is none */
	/* What is asked, and by which client in which of its lives; asking: the outcome is not known. */
	bool asking, answered;
	unsigned client;
	uint32_t client_starts;
	struct client_op op;
	struct cr_members members;
	char word[64];
};

/* Between two events, as often as is convenient, once there is a group. */
void joiner_begin(struct joiner *j, struct cluster *cluster);
/* The founder of that node loses what it has, as soon as it runs. */
void joiner_begin_lost(struct joiner *j, struct cluster *cluster, unsigned node);
void joiner_look(struct joiner *j);
/* There is none, or it is a member and has something. */
bool joiner_idle(const struct joiner *j);

#endif
