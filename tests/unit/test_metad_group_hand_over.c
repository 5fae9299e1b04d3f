/* SPDX-License-Identifier: Apache-2.0 */
/* A leader hands over, because an operator asks for it or because it stops: another one leads before it is missed, or it leads on. */
#include "tests/lib/metad_group.h"

static bool is_about_to_lead(void *ctx)
{
	struct metad_bed **ret_lead = ctx;

	for (int i = 0; i < METADS; i++) {
		const struct raft_core *core = replica_core(beds[i].md->ledger->replica);

		if (core && core->role == RAFT_LEADER && !beds[i].md->role.leads)
			*ret_lead = &beds[i];
	}
	return *ret_lead != NULL;
}

/* While it hands over nothing is taken, also not what makes a new store; who was to take over is gone, and it leads on. */
START_TEST(test_first_leader_cannot_hand_over)
{
	struct metad_bed *lead = NULL, *next;

	open_group(3);
	ck_assert(sim_run(sim, is_about_to_lead, &lead, sim_now_ns(sim) + 10 * s_ns));
	next = lead == &beds[0] ? &beds[1] : &beds[0];
	cut_off(next, true);
	ck_assert_int_eq(replica_transfer(lead->md->ledger->replica, next->options.group.id, ignore_handed, NULL), 0);
	ck_assert_ptr_eq(wait_leader(), lead);
	cut_off(next, false);
	check_equal();
	close_group();
}
END_TEST

/* It hands over before it goes: nobody has to wait until it is missed. */
START_TEST(test_leader_stops)
{
	struct metad_bed *b;
	uint64_t since_ns;

	open_group(14);
	for (int round = 0; round < 6; round++) {
		b = wait_leader();
		since_ns = sim_now_ns(sim);
		metad_stop(b->md, metad_bed_set_done, b);
		b->md = NULL;
		wait_other_leader(b);
		ck_assert_uint_lt(sim_now_ns(sim) - since_ns, s_ns / 2);
		metad_bed_wait(b);
		metad_bed_start(b);
		metad_bed_silence(b, 2000);
	}
	check_equal();
	close_group();
}
END_TEST

/* As an operator asked for a hand-over just then, to one that lacks an entry yet: it waits for that one to end. */
START_TEST(test_leader_stops_amid_a_hand_over)
{
	struct metad_bed *b, *next;
	struct pending p = {0};
	uint64_t since_ns;

	open_group(21);
	b = wait_leader();
	next = follower();
	prepare_mkdir(b, &p);
	sim_disk_stall(next->server_io, s_ns / 5);
	start_call(b, &p, &rpc_metad_mkdir, &p.req.base);
	ck_assert(sim_run(sim, is_logged, b, sim_now_ns(sim) + 10 * s_ns));
	since_ns = sim_now_ns(sim);
	ck_assert_int_eq(replica_transfer(b->md->ledger->replica, next->options.group.id, ignore_handed, NULL), 0);
	metad_stop(b->md, metad_bed_set_done, b);
	b->md = NULL;
	ck_assert_ptr_eq(wait_other_leader(b), next);
	ck_assert_uint_lt(sim_now_ns(sim) - since_ns, s_ns / 2); /* nobody had to miss it */
	metad_bed_wait(b);
	ck_assert(p.done);
	metad_bed_start(b);
	metad_bed_silence(b, 2000);
	check_equal();
	close_group();
}
END_TEST

static uint64_t begun_ns;

static struct metad_bed *begin(uint64_t seed, struct metad_bed **ret_first, struct metad_bed **ret_second)
{
	struct metad_bed *b;

	open_group(seed);
	b = wait_leader();
	check_equal();
	*ret_first = follower();
	*ret_second = third(b, *ret_first);
	begun_ns = sim_now_ns(sim);
	return b;
}

/* The leader is down, who was asked first did not take over, and who is to lead next did not wait until it was missed. */
static void check_second_leads(struct metad_bed *old, struct metad_bed *second)
{
	ck_assert_uint_gt(sim_now_ns(sim) - begun_ns, s_ns);
	ck_assert_int_eq(replica_core(second->md->ledger->replica)->role, RAFT_LEADER);
	cut_off(third(old, second), false);
	ck_assert_ptr_eq(wait_other_leader(old), second);
	metad_bed_start(old);
	metad_bed_silence(old, 2000);
	check_equal();
	close_group();
}

/* Nobody has missed it yet: as good as the other, it is asked first. */
START_TEST(test_first_successor_is_cut_off)
{
	struct metad_bed *b, *first, *second;

	b = begin(22, &first, &second);
	cut_off(first, true);
	metad_bed_stop(b);
	check_second_leads(b, second);
}
END_TEST

/* It answers, and can log no vote for itself. */
START_TEST(test_disk_of_the_first_successor_hangs)
{
	struct metad_bed *b, *first, *second;

	b = begin(24, &first, &second);
	sim_disk_stall(first->server_io, 10 * s_ns);
	metad_bed_stop(b);
	check_second_leads(b, second);
}
END_TEST

/* That an operator's hand-over fails is no reason to go without one. */
START_TEST(test_hand_over_under_way_fails)
{
	struct metad_bed *b, *first, *second;

	b = begin(23, &first, &second);
	cut_off(first, true);
	ck_assert_int_eq(replica_transfer(b->md->ledger->replica, first->options.group.id, ignore_handed, NULL), 0);
	metad_bed_stop(b);
	check_second_leads(b, second);
}
END_TEST

/* Nobody is left to hand over to. */
START_TEST(test_last_one_stops)
{
	struct metad_bed *b;
	uint64_t since_ns;

	open_group(15);
	b = wait_leader();
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != b)
			crash(&beds[i]);
	since_ns = sim_now_ns(sim);
	metad_bed_stop(b);
	ck_assert_uint_lt(sim_now_ns(sim) - since_ns, 5 * s_ns);
	close_group();
}
END_TEST

UNIT_MAIN("metad_group_hand_over", test_first_leader_cannot_hand_over, test_leader_stops, test_leader_stops_amid_a_hand_over,
	test_first_successor_is_cut_off, test_disk_of_the_first_successor_hangs, test_hand_over_under_way_fails, test_last_one_stops)
