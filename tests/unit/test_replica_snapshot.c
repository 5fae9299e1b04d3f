/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot on its way between replicas: liars, damage, slowness. (What test_replica_sim has is the way itself.) */
#include "tests/lib/replica_group.h"

/* The rows are right and the term is none that it can have: refused, and the next one, which is right, is taken. */
static void lie_about_term(struct group *g, struct raft_message *m)
{
	if (m->type == RAFT_SNAPSHOT && g->tampered++ < 5)
		m->snapshot.term = 1;
}

START_TEST(test_term_of_snapshot_is_a_lie)
{
	struct group *g = trimming_group(50, 0);
	struct node *away;

	isolate(g, elected(g), true); /* so that there are terms to lie about */
	run_for(g, 3000 * ms_ns);
	settle(g);
	away = leave_behind(g);
	settle(g);
	ck_assert_uint_gt(wal_meta(replica_log(away->r))->base_term, 1);
	away = leave_behind(g);
	g->lie = lie_about_term;
	settle(g);
	ck_assert_uint_ge(g->tampered, 5);
	ck_assert_uint_ge(replica_core(away->r)->refused, 1);
	ck_assert_uint_ge(installed(away), 1);
	group_free(g);
}
END_TEST

UNIT_MAIN("replica_snapshot", test_term_of_snapshot_is_a_lie)
