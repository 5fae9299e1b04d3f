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

/* The table that counts is the one that has a mark. */
static uint32_t marked_slot(struct node *n)
{
	char path[TABLE_PATH_BYTES], *bytes;
	size_t len;

	for (uint32_t slot = 0; slot < TABLE_COUNT; slot++) {
		table_path("/r", slot, "snapshot", path);
		if (io_read_file(n->host, path, 100, &bytes, &len) == 0) {
			mem_free(bytes);
			return slot;
		}
	}
	ck_abort_msg("no table has a mark");
}

/* Which table counts the log says: what lies beside that one keeps nobody from starting. */
START_TEST(test_mark_beside_is_damaged)
{
	struct group *g = trimming_group(51, 0);
	struct replica_options options;
	char path[TABLE_PATH_BYTES];
	struct err err = {0};
	struct node *away;
	int rc;

	do {
		away = leave_behind(g);
		settle(g);
	} while (marked_slot(away) == 0); /* marks are read in turn */
	node_crash(away);
	sim_host_restart(away->host);
	damage_mark(away, 0);
	node_open(away);
	node_crash(away);
	sim_host_restart(away->host);
	damage_mark(away, 1);
	table_path("/r", 0, "snapshot", path);
	rc = io_unlink(away->host, path); /* the start before removed it; the crash may have brought it back */
	ck_assert(rc == 0 || rc == ERR_NOENT);
	options = node_options(away);
	ck_assert_int_eq(replica_open(away->host, &options, &away->r, &err), ERR_CORRUPT);
	ck_assert_msg(strstr(err.text, "table-1/snapshot: is damaged"), "%s", err.text);
	group_free(g);
}
END_TEST

static void tick_slowly(struct node *n, struct replica_options *o)
{
	(void)n;
	o->raft.heartbeat_ms = 2000;
	o->raft.election_ms = 8000;
}

static bool is_installed(void *ctx)
{
	struct group *g = ctx;

	for (uint32_t i = 0; i < g->count; i++)
		if (replica_counts(g->nodes[i].r)->snapshots_installed)
			return true;
	return false;
}

static bool has_sent(void *ctx)
{
	struct group *g = ctx;

	for (uint32_t i = 0; i < g->count; i++)
		if (replica_counts(g->nodes[i].r)->parts_sent)
			return true;
	return false;
}

/* The rate is kept, neither more nor less of it, by who looks twice a second. */
START_TEST(test_rate_is_kept_between_ticks)
{
	enum { RATE = 512 << 10 };
	struct group *g = group_new(52, 32 << 10);
	struct node *away;
	uint64_t begun;

	g->keep_bytes = 0;
	g->rate = RATE;
	g->adjust = tick_slowly;
	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	settle(g);
	away = leave_behind(g);
	isolate(g, away, false);
	ck_assert(sim_run(g->sim, has_sent, g, sim_now_ns(g->sim) + 60000 * ms_ns));
	begun = sim_now_ns(g->sim);
	ck_assert(sim_run(g->sim, is_installed, g, sim_now_ns(g->sim) + 60000 * ms_ns));
	/* 256 rows of some 3 KB, of which the last part does not count; half a second may be made up for */
	ck_assert_uint_gt(sim_now_ns(g->sim) - begun, 900 * ms_ns);
	ck_assert_uint_lt(sim_now_ns(g->sim) - begun, 2200 * ms_ns);
	settle(g);
	group_free(g);
}
END_TEST

static uint64_t offered(const struct group *g)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < g->count; i++)
		count += replica_counts(g->nodes[i].r)->snapshots_offered;
	return count;
}

/* Whoever writes what came, or reads it back, for longer than a leader waits for asks says that it is there. */
START_TEST(test_slow_member_is_waited_for)
{
	struct group *g = trimming_group(53, PART_BYTES_PER_S_LEAST);
	struct node *away = leave_behind(g);
	uint64_t before = offered(g), begun;

	isolate(g, away, false);
	while (replica_counts(away->r)->parts_received < 100)
		run_for(g, 10 * ms_ns);
	begun = sim_now_ns(g->sim);
	sim_disk_slow(away->host, 20000);
	run_for(g, (PART_IDLE_MS + 5000) * ms_ns);
	sim_disk_slow(away->host, 1);
	ck_assert(sim_run(g->sim, is_installed, g, sim_now_ns(g->sim) + 300000 * ms_ns));
	ck_assert_uint_gt(sim_now_ns(g->sim) - begun, PART_IDLE_MS * ms_ns);
	ck_assert_uint_eq(offered(g), before + 1);
	settle(g);
	group_free(g);
}
END_TEST

/*
 * A part is asked for when the one before it was taken: from far away longer ones come, so that at least half of the rate is had. Also where
 * the offer is repeated before the first word of the other one comes: letters take longer than heartbeats are apart.
 */
START_TEST(test_snapshot_for_one_far_away)
{
	static const uint64_t mail_ns[] = {100000, 20000000, 51000000, 125000000}; /* the last: each part is asked for twice */
	uint64_t parts[ARRAY_COUNT(mail_ns)];

	for (size_t i = 0; i < ARRAY_COUNT(mail_ns); i++) {
		struct group *g = trimming_group(55, 0);
		struct node *away = leave_behind(g);

		g->mail_ns = mail_ns[i];
		isolate(g, away, false);
		ck_assert(sim_run(g->sim, is_installed, g, sim_now_ns(g->sim) + 60000 * ms_ns));
		parts[i] = replica_counts(away->r)->parts_received;
		settle(g);
		group_free(g);
	}
	ck_assert_uint_ge(parts[0], 12);
	for (size_t i = 1; i < ARRAY_COUNT(mail_ns); i++)
		ck_assert_msg(parts[i] <= parts[0] / 2, "letters of %llu ms: %llu parts, %llu of one that is near", (unsigned long long)(mail_ns[i] / ms_ns),
			(unsigned long long)parts[i], (unsigned long long)parts[0]);
}
END_TEST

/* On a disk that is all but full what is committed has the room that a snapshot keeps: the snapshot ends, and another one is given away. */
START_TEST(test_snapshot_makes_way)
{
	struct group *g = group_new(54, 32 << 10);
	struct node *away;

	g->keep_bytes = 0;
	g->rate = PART_BYTES_PER_S_LEAST;
	g->adjust = make_tight;
	g->rows = 100;
	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	settle(g);
	away = leave_behind(g);
	isolate(g, away, false);
	ck_assert(sim_run(g->sim, has_sent, g, sim_now_ns(g->sim) + 60000 * ms_ns));
	submit_many(g, 100);
	ck_assert(!is_installed(g));
	ck_assert(sim_run(g->sim, is_installed, g, sim_now_ns(g->sim) + 300000 * ms_ns));
	ck_assert_uint_ge(offered(g), 2);
	settle(g);
	group_free(g);
}
END_TEST

UNIT_MAIN("replica_snapshot", test_term_of_snapshot_is_a_lie, test_mark_beside_is_damaged, test_rate_is_kept_between_ticks,
	test_slow_member_is_waited_for, test_snapshot_for_one_far_away, test_snapshot_makes_way)
