/* SPDX-License-Identifier: Apache-2.0 */
/* A group is founded once, by all of its founders: who comes again with nothing takes no part, however many they are and whoever is away. */
#include "tests/lib/metad_group.h"

static void begin(uint64_t seed)
{
	sim = sim_new(&(struct sim_options){.seed = seed});
	bed_count = METADS;
	memset(bed_gone, 0, sizeof(bed_gone));
	metad_bed_make_group(beds, METADS, sim, PORT);
	craton__request_id__init(&group_session);
}

static void run_s(uint64_t s)
{
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + s * s_ns);
}

static void begin_with_a_name(uint64_t seed)
{
	begin(seed);
	for (int i = 0; i < METADS; i++)
		metad_bed_start(&beds[i]);
	ck_assert_int_eq(make_dir("a"), 0);
}

/* Its host loses power, and then has another disk. */
static void lose(struct metad_bed *b)
{
	crash(b);
	sim_host_restart(b->server_io);
	strcpy(b->dir, "/another");
	ck_assert_int_eq(io_mkdir(b->server_io, b->dir, 0755), 0);
	ck_assert_int_eq(io_sync_dir(b->server_io, "/"), 0);
	b->options.group.found = true;
	metad_bed_start(b);
}

static void find_again(struct metad_bed *b)
{
	strcpy(b->dir, "/metad");
	sim_host_restart(b->server_io);
	metad_bed_start(b);
}

static bool has_ended(void *ctx)
{
	return ((struct metad_bed *)ctx)->fatal != 0;
}

/* Its process ends. */
static void end_refused(struct metad_bed *b, const char *says)
{
	ck_assert_msg(b->fatal == ERR_EXIST && strstr(b->fatal_text, says), "%d: %s", b->fatal, b->fatal_text);
	b->fatal = 0;
	crash(b);
}

static void wait_refused(struct metad_bed *b)
{
	char remedy[64];

	ck_assert(sim_run(sim, has_ended, b, sim_now_ns(sim) + 60 * s_ns));
	snprintf(remedy, sizeof(remedy), "`craton meta remove metad-%d`", (int)(b - beds) + 1);
	end_refused(b, remedy);
}

START_TEST(test_all_must_be_there)
{
	begin(1);
	for (int i = 0; i < 2; i++)
		metad_bed_start(&beds[i]);
	run_s(20);
	crash(&beds[0]);
	restart(&beds[0]);
	run_s(20);
	ck_assert(!leader() && !beds[0].fatal && !beds[1].fatal);
	metad_bed_start(&beds[2]);
	ck_assert_int_eq(make_dir("a"), 0);
	check_equal();
	close_group();
}
END_TEST

/* While they wait they end like others. */
START_TEST(test_stopped_while_it_waits)
{
	begin(2);
	metad_bed_start(&beds[1]);
	run_s(5);
	metad_bed_restart(&beds[1]);
	metad_bed_start(&beds[0]);
	metad_bed_start(&beds[2]);
	ck_assert_int_eq(make_dir("a"), 0);
	close_group();
}
END_TEST

START_TEST(test_one_lost_its_directory)
{
	for (int leads = 0; leads < 2; leads++) {
		struct metad_bed *b;

		begin_with_a_name(3);
		b = leads ? wait_leader() : follower();
		lose(b);
		wait_refused(b);
		ck_assert_int_eq(make_dir("b"), 0);
		ck_assert_int_eq(lookup(wait_leader(), "a"), 0);
		find_again(b);
		check_equal();
		close_group();
	}
}
END_TEST

/* With the third one they are a majority, and without it, too. */
START_TEST(test_two_lost_their_directories)
{
	for (int away = 0; away < 2; away++) {
		begin_with_a_name(4);
		if (away)
			crash(&beds[2]);
		lose(&beds[0]);
		lose(&beds[1]);
		if (away) {
			run_s(30);
			ck_assert(!leader() && !beds[0].fatal && !beds[1].fatal);
			restart(&beds[2]);
		}
		wait_refused(&beds[0]);
		wait_refused(&beds[1]);
		run_s(20);
		ck_assert(!leader());
		find_again(&beds[0]);
		find_again(&beds[1]);
		ck_assert_int_eq(lookup(wait_leader(), "a"), 0);
		check_equal();
		close_group();
	}
}
END_TEST

/* Also of a group whose directories have no roll, as older builds made them. */
START_TEST(test_group_of_an_older_build)
{
	begin_with_a_name(5);
	for (int i = 0; i < METADS; i++) {
		crash(&beds[i]);
		sim_host_restart(beds[i].server_io);
		ck_assert_int_eq(io_unlink(beds[i].server_io, "/metad/log/founders"), 0);
		ck_assert_int_eq(io_sync_dir(beds[i].server_io, "/metad/log"), 0);
		metad_bed_start(&beds[i]);
	}
	ck_assert_int_eq(lookup(wait_leader(), "a"), 0);
	lose(&beds[1]);
	wait_refused(&beds[1]);
	ck_assert_int_eq(lookup(wait_leader(), "a"), 0);
	find_again(&beds[1]);
	check_equal();
	close_group();
}
END_TEST

/* At any moment of the founding: they found it with the new directory, or it was founded and that one is refused, or all wait, and nobody serves. */
START_TEST(test_lost_amid_it)
{
	uint32_t founded = 0, waiting = 0, refused = 0;

	for (uint64_t ms = 0; ms < 300; ms += 5 * unit_step()) {
		begin(6);
		for (int i = 0; i < METADS; i++)
			metad_bed_start(&beds[i]);
		sim_run(sim, NULL, NULL, sim_now_ns(sim) + ms * s_ns / 1000);
		lose(&beds[1]);
		run_s(20);
		if (beds[1].fatal) {
			refused++;
			end_refused(&beds[1], "lost what it had");
		} else if (!leader()) {
			waiting++;
			ck_assert(!beds[0].fatal && !beds[2].fatal);
			lose(&beds[0]); /* what is left to do */
			lose(&beds[2]);
			crash(&beds[1]);
			restart(&beds[1]);
		} else {
			founded++;
		}
		ck_assert_int_eq(make_dir("a"), 0);
		close_group();
	}
	ck_assert_uint_gt(founded, 0);
	ck_assert_uint_gt(waiting, 0);
	ck_assert_uint_gt(refused, 0);
}
END_TEST

/* Two have founded it, and the third one has not heard of that when another disk is lost: it comes to them all the same, and nobody is told to empty anything. */
START_TEST(test_who_was_last_takes_part)
{
	uint32_t last = 0;

	for (uint64_t ms = 0; ms < 300 && !last; ms++) {
		begin(9);
		for (int i = 0; i < METADS; i++)
			metad_bed_start(&beds[i]);
		sim_run(sim, NULL, NULL, sim_now_ns(sim) + ms * s_ns / 1000);
		crash(&beds[0]);
		run_s(5);
		if (leader()) {
			ck_assert_int_eq(make_dir("a"), 0);
			lose(&beds[2]);
			crash(&beds[1]);
			restart(&beds[0]);
			run_s(10);
			ck_assert(!leader() && !beds[0].fatal);
			last += !beds[2].fatal; /* else the first knew that it is a member, and said so */
			restart(&beds[1]);
			wait_refused(&beds[2]);
			ck_assert_int_eq(lookup(wait_leader(), "a"), 0);
		}
		close_group();
	}
	ck_assert_uint_gt(last, 0);
}
END_TEST

static void stopped(void *ctx)
{
	crash(ctx);
}

static void start_one(void *ctx)
{
	metad_bed_start(ctx);
}

/* Power fails at each sync of one of them, up to when it leads. */
START_TEST(test_power_lost_amid_it)
{
	uint32_t crashes = 0;

	for (uint64_t n = 1; n <= 24; n += unit_step()) {
		begin(7);
		sim_set_loss(beds[0].server_io, SIM_LOSS_ALL);
		sim_stop_at_sync(beds[0].server_io, n, stopped, &beds[0]);
		if (!sim_try(sim, start_one, &beds[0]))
			crash(&beds[0]);
		metad_bed_start(&beds[1]);
		metad_bed_start(&beds[2]);
		run_s(3);
		sim_stop_at_sync(beds[0].server_io, 0, NULL, NULL);
		if (!is_up(&beds[0])) {
			crashes++;
			restart(&beds[0]);
		}
		ck_assert_int_eq(make_dir("a"), 0);
		check_equal();
		close_group();
	}
	ck_assert_uint_gt(crashes, 10 / unit_step());
}
END_TEST

/* One that accepted it is not let in by another door. */
START_TEST(test_founder_that_joins)
{
	uint32_t refused = 0;

	for (uint64_t ms = 0; ms < 300; ms += 5) {
		struct err err;

		begin(10);
		for (int i = 0; i < METADS; i++)
			metad_bed_start(&beds[i]);
		sim_run(sim, NULL, NULL, sim_now_ns(sim) + ms * s_ns / 1000);
		crash(&beds[1]);
		sim_host_restart(beds[1].server_io);
		beds[1].options.group.found = false;
		beds[1].options.group.join = true;
		refused += metad_bed_try_start(&beds[1], &err) == ERR_INVAL && strstr(err.text, "was to found a group");
		sim_free(sim);
	}
	ck_assert_uint_gt(refused, 0);
}
END_TEST

/* They were to be three, and then two of them are told otherwise. */
START_TEST(test_other_number_of_founders)
{
	uint32_t named = 0;

	for (uint64_t ms = 0; ms < 300; ms += 5) {
		struct err err;

		begin(8);
		for (int i = 0; i < METADS; i++)
			metad_bed_start(&beds[i]);
		sim_run(sim, NULL, NULL, sim_now_ns(sim) + ms * s_ns / 1000);
		for (int i = 0; i < METADS; i++)
			crash(&beds[i]);
		for (int i = 0; i < 2; i++) {
			sim_host_restart(beds[i].server_io);
			beds[i].options.group.members.count = i == 0 ? 1 : 2;
			if (metad_bed_try_start(&beds[i], &err) == ERR_INVAL && strstr(err.text, "was to be founded by 3 metads"))
				named |= 1u << i;
		}
		sim_free(sim);
	}
	ck_assert_uint_eq(named, 3); /* also by who is told that it founds it alone */
}
END_TEST

UNIT_MAIN("metad_founders", test_all_must_be_there, test_stopped_while_it_waits, test_one_lost_its_directory, test_two_lost_their_directories,
	test_group_of_an_older_build, test_lost_amid_it, test_who_was_last_takes_part, test_power_lost_amid_it, test_other_number_of_founders, test_founder_that_joins)
