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

static void damage_mark(struct node *n, uint32_t slot)
{
	char path[TABLE_PATH_BYTES];

	table_path("/r", slot, "snapshot", path);
	ck_assert_int_eq(io_write_file(n->host, path, "damaged", 7, 0600), 0);
}

/* Which table counts the log says: what lies beside that one keeps nobody from starting. */
START_TEST(test_mark_beside_is_damaged)
{
	struct group *g = trimming_group(51, 0);
	struct node *away = leave_behind(g);
	struct replica_options options;
	struct err err = {0};

	settle(g);
	ck_assert_uint_gt(wal_meta(replica_log(away->r))->base_index, 0);
	node_crash(away);
	sim_host_restart(away->host);
	damage_mark(away, 0);
	node_open(away);
	submit_many(g, 20);
	settle(g);
	node_crash(away);
	sim_host_restart(away->host);
	damage_mark(away, 1);
	options = node_options(away);
	ck_assert_int_eq(replica_open(away->host, &options, &away->r, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "table-1/snapshot: is damaged"));
	group_free(g);
}
END_TEST

UNIT_MAIN("replica_snapshot", test_term_of_snapshot_is_a_lie, test_mark_beside_is_damaged)
