/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is busy, or hangs: the others go on. */
#include "common/kv/kv_private.h"
#include "metad/replica/stall.h"
#include "tests/lib/replica_group.h"

static const struct raft_options options = {.heartbeat_ms = 50, .election_ms = 250};

/* What comes back, however seldom, is no stall; nor is time in which nobody looked. */
START_TEST(test_look)
{
	struct stall s = {0};
	uint64_t now = 1000;

	for (int i = 0; i < 100; i++)
		stall_look(&s, &options, now += 20, true, 1, i / 30);
	ck_assert(!stall_hangs(&s, &options));
	for (int i = 0; i < 100; i++)
		stall_look(&s, &options, now += 20, true, i / 30, 3);
	ck_assert(!stall_hangs(&s, &options));
	stall_look(&s, &options, now += 100000, true, 3, 3);
	ck_assert(!stall_hangs(&s, &options));
	for (int i = 0; i < 75; i++)
		stall_look(&s, &options, now += 20, true, 3, 3);
	ck_assert(stall_hangs(&s, &options));
	stall_look(&s, &options, now += 20, true, 3, 2); /* a cut */
	ck_assert(!stall_hangs(&s, &options));
	for (int i = 0; i < 100; i++)
		stall_look(&s, &options, now += 20, false, 3, 2);
	ck_assert(!stall_hangs(&s, &options));
}
END_TEST

START_TEST(test_successor)
{
	static struct raft_core core;

	core.options.id = 2;
	core.config = (struct raft_config){.count = 4, .members = {{.id = 1, .voter = true}, {.id = 2, .voter = true}, {.id = 3, .voter = true}, {.id = 4}}};
	for (uint32_t i = 0; i < 4; i++)
		core.peers[i] = (struct raft_peer){.id = i + 1, .match = 10 + i, .active = true};
	core.peers[1].match = 30;
	ck_assert_uint_eq(stall_successor(&core, 9, 0), 3);
	ck_assert_uint_eq(stall_successor(&core, 9, 3), 1);
	core.peers[2].active = false;
	ck_assert_uint_eq(stall_successor(&core, 9, 0), 1);
	ck_assert_uint_eq(stall_successor(&core, 11, 0), 3);
	ck_assert_uint_eq(stall_successor(&core, 12, 0), 0);
}
END_TEST

static bool another_leads(void *ctx)
{
	const struct node *old = ctx;
	struct node *l = leader(old->g);

	return l && l != old && l->role.ready;
}

static bool hangs(void *ctx)
{
	return replica_hangs(((const struct node *)ctx)->r);
}

static bool follows(void *ctx)
{
	return ((const struct node *)ctx)->role.role != RAFT_LEADER;
}

/* Its heartbeats go on, and it is heard: all the same it hands over, and says so at once, for its disk may never take the new term. */
START_TEST(test_leader_whose_disk_hangs)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct group *g = group_new(seed, 1 << 20);
		struct node *old = elected(g), *l;

		for (int i = 0; i < 10; i++)
			submit(old);
		run_for(g, 100 * ms_ns);
		sim_disk_stall(old->host, 10000 * ms_ns);
		for (int i = 0; i < 10; i++)
			submit(old);
		ck_assert(sim_run(g->sim, another_leads, old, sim_now_ns(g->sim) + 5000 * ms_ns));
		ck_assert(sim_run(g->sim, follows, old, sim_now_ns(g->sim) + 1000 * ms_ns));
		l = leader(g);
		for (int i = 0; i < 10; i++)
			submit(l);
		run_for(g, 1000 * ms_ns);
		ck_assert_uint_ge(g->fate_counts[ACKNOWLEDGED], 20);
		ck_assert(replica_hangs(old->r));
		ck_assert(sim_run(g->sim, is_even, g, sim_now_ns(g->sim) + 600000 * ms_ns));
		settle(g);
		group_free(g);
	}
}
END_TEST

/* Nothing is to be written: no disk is suspected. And one that is slow, but comes further, leads on. */
START_TEST(test_leader_whose_disk_is_slow)
{
	struct group *g = group_new(3, 1 << 20);
	struct node *l = elected(g);

	run_for(g, 2000 * ms_ns);
	ck_assert_ptr_eq(elected(g), l);
	sim_disk_stall(l->host, 20000 * ms_ns);
	run_for(g, 19000 * ms_ns);
	ck_assert(!replica_hangs(l->r));
	ck_assert_ptr_eq(elected(g), l);
	run_for(g, 2000 * ms_ns);
	for (int i = 0; i < 20; i++) {
		sim_disk_stall(l->host, 500 * ms_ns);
		for (int k = 0; k < 5; k++)
			submit(l);
		run_for(g, 600 * ms_ns);
	}
	ck_assert_ptr_eq(elected(g), l);
	settle(g);
	ck_assert_uint_eq(g->fate_counts[ACKNOWLEDGED], 100);
	group_free(g);
}
END_TEST

static uint32_t asked; /* for votes, by a replica whose log hangs */

static void count_asked(void *ctx, const struct raft_message *m, const struct replica_body *bodies, uint32_t count)
{
	const struct node *n = ctx;

	asked += replica_hangs(n->r) && (m->type == RAFT_PRE_VOTE || m->type == RAFT_VOTE);
	on_send(ctx, m, bodies, count);
}

static void watch(struct node *n, struct replica_options *o)
{
	(void)n;
	o->send = count_asked;
}

static bool stands(void *ctx)
{
	return replica_core(((const struct node *)ctx)->r)->role == RAFT_PRE_CANDIDATE;
}

/* Nobody hears it, so it can hand over to nobody; it stands for no election while its disk hangs, and may again when that answers. */
START_TEST(test_no_candidate_with_a_hung_disk)
{
	struct group *g = group_new(5, 1 << 20);
	struct node *old;

	g->adjust = watch;
	for (uint32_t i = 0; i < g->count; i++) {
		node_crash(&g->nodes[i]);
		node_restart(&g->nodes[i]);
	}
	old = elected(g);
	run_for(g, 500 * ms_ns);
	isolate(g, old, true);
	sim_disk_stall(old->host, 20000 * ms_ns);
	submit(old);
	ck_assert(sim_run(g->sim, hangs, old, sim_now_ns(g->sim) + 5000 * ms_ns));
	run_for(g, 10000 * ms_ns);
	ck_assert_uint_eq(asked, 0);
	run_for(g, 10000 * ms_ns);
	ck_assert(sim_run(g->sim, stands, old, sim_now_ns(g->sim) + 5000 * ms_ns));
	settle(g);
	group_free(g);
}
END_TEST

/* Each member's table commits at its own phase, so that most of the group has its disk for its log (that phases are apart: test_kv_sim). */
START_TEST(test_commits_take_turns)
{
	const uint64_t period = 20 * ms_ns; /* node_options */
	struct group *g = group_new(11, 1 << 20);
	uint64_t commits[FOUNDERS] = {0}, seen = 0, late = 0;

	for (int ms = 0; ms < 1000; ms++) {
		submit(elected(g));
		run_for(g, ms_ns);
		for (uint32_t i = 0; i < FOUNDERS; i++) {
			uint64_t wall = (uint64_t)io_wall_ns(g->nodes[i].host), turn = kv__turn_wait_ns(g->nodes[i].id, 0, period);
			struct kv_stats stats;

			kv_get_stats(replica_kv(g->nodes[i].r), &stats);
			if (stats.commits != commits[i] && ms > 100) { /* the first ones come as the group is founded */
				late += (wall - turn) % period > period / 2; /* a disk may be slow now and then */
				seen++;
			}
			commits[i] = stats.commits;
		}
	}
	ck_assert_uint_ge(seen, 100);
	ck_assert_uint_lt(late * 10, seen);
	settle(g);
	group_free(g);
}
END_TEST

UNIT_MAIN("replica_stall", test_commits_take_turns, test_look, test_successor, test_leader_whose_disk_hangs, test_leader_whose_disk_is_slow, test_no_candidate_with_a_hung_disk)
