/* SPDX-License-Identifier: Apache-2.0 */
/* A group is founded once, by all of its founders: who comes again with nothing takes no part, however many they are and whoever is away. */
#include "metad/raft_links.h"
#include "tests/lib/metad_group.h"

static char said[64 << 10]; /* what all of them log of founders */

static void hear_log(void *ctx, enum log_level level, const char *line)
{
	struct metad_bed *b = ctx;
	size_t len = strlen(said);

	(void)level;
	if (strstr(line, "founder"))
		snprintf(said + len, sizeof(said) - len, "%d: %s\n", (int)(b - beds) + 1, line);
}

static void begin(uint64_t seed)
{
	sim = sim_new(&(struct sim_options){.seed = seed});
	bed_count = METADS;
	memset(bed_gone, 0, sizeof(bed_gone));
	metad_bed_make_group(beds, METADS, sim, PORT);
	for (int i = 0; i < METADS; i++) {
		beds[i].log.write = hear_log;
		beds[i].log.ctx = &beds[i];
	}
	said[0] = '\0';
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
	ck_assert(sim_run(sim, has_ended, b, sim_now_ns(sim) + 60 * s_ns));
	ck_assert_ptr_nonnull(strstr(b->fatal_text, "--join in an empty directory"));
	end_refused(b, "`craton meta remove` what `craton meta ls` shows");
}

static void says(int i, const char *text)
{
	char *line = said, *end;
	bool found = false;

	for (; !found && (end = strchr(line, '\n')); line = end + 1) {
		char *at = strstr(line, text);

		found = line[0] == '1' + i && at && at < end;
	}
	ck_assert_msg(found, "%d does not say '%s':\n%s", i + 1, text, said);
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

/* Nobody has accepted anything when one of them is replaced: what the others heard of its first directory says nothing of it any more. */
START_TEST(test_one_was_replaced_before_all_were_up)
{
	for (int answers = 0; answers < 2; answers++) {
		begin(21);
		metad_bed_start(&beds[0]);
		metad_bed_start(&beds[1]);
		run_s(60);
		crash(&beds[0]);
		run_s(3600);
		says(1, "metad=1 error=ERR_");
		if (answers)
			lose(&beds[0]);
		metad_bed_start(&beds[2]);
		run_s(20);
		ck_assert(answers || !leader());
		if (!answers)
			lose(&beds[0]);
		ck_assert_int_eq(make_dir("a"), 0);
		check_equal();
		close_group();
	}
}
END_TEST

static bool is_writing(void *ctx)
{
	return io_pending(&((struct metad_bed *)ctx)->md->ledger->founding.write);
}

static void begin_with_a_hung_disk(void)
{
	begin(23);
	for (int i = 0; i < METADS; i++)
		metad_bed_start(&beds[i]);
	ck_assert(sim_run(sim, is_writing, &beds[1], sim_now_ns(sim) + 5 * s_ns));
	sim_dir_stall(beds[1].server_io, "/metad", 60 * s_ns);
}

/* It says so itself, and the others whom to look at; then all goes on. */
START_TEST(test_disk_hangs_amid_it)
{
	begin_with_a_hung_disk();
	run_s(40);
	says(1, "the own disk has not taken");
	says(0, "metad=2 error=- text=\"it answers, and waits, too");
	run_s(30);
	ck_assert_int_eq(make_dir("a"), 0);
	close_group();
}
END_TEST

/* The same of one that takes over what the others have accepted: it has heard of it, and not of all of them. */
START_TEST(test_disk_hangs_behind_the_others)
{
	struct founders_said own = {.heard = true};
	uint8_t bytes[FOUNDERS_BYTES_MAX];
	struct metad_bed *b = &beds[1];
	size_t len;

	begin_with_a_hung_disk();
	run_s(2);
	memcpy(own.nonce, beds[0].md->ledger->founding.own.roll.nonces[1], FOUNDERS_NONCE_BYTES);
	crash(b); /* of what it accepted nothing is durable */
	sim_host_restart(b->server_io);
	sim_dir_stall(b->server_io, "/metad", 0);
	len = founders_encode(&b->options.cluster, 2, &own, bytes);
	ck_assert_int_eq(io_write_file(b->server_io, "/metad/log/founders", bytes, len, 0600), 0);
	metad_bed_start(b);
	ck_assert(sim_run(sim, is_writing, b, sim_now_ns(sim) + 5 * s_ns));
	ck_assert_uint_ne(b->md->ledger->founding.who, 0);
	sim_dir_stall(b->server_io, "/metad", 30 * s_ns);
	said[0] = '\0';
	run_s(20);
	says(1, "the own disk has not taken");
	run_s(20);
	ck_assert_int_eq(make_dir("a"), 0);
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

/* One of three was started by an older build, which does not wait for others: that looks like a group, and who is refused is told that it may be none. */
START_TEST(test_begun_by_an_older_build)
{
	begin(22);
	metad_bed_start(&beds[0]);
	beds[0].md->ledger->founding.waits = false;
	raft_links_attach(beds[0].md->ledger->links, beds[0].md->ledger->replica);
	replica_found(beds[0].md->ledger->replica);
	run_s(5);
	crash(&beds[0]);
	sim_host_restart(beds[0].server_io);
	ck_assert_int_eq(io_unlink(beds[0].server_io, "/metad/log/founders"), 0);
	ck_assert_int_eq(io_sync_dir(beds[0].server_io, "/metad/log"), 0);
	metad_bed_start(&beds[0]);
	metad_bed_start(&beds[1]);
	ck_assert(sim_run(sim, has_ended, &beds[1], sim_now_ns(sim) + 60 * s_ns));
	end_refused(&beds[1], "or that one's build is older and it never served");
	sim_free(sim);
}
END_TEST

static void damage_roll(struct metad_bed *b)
{
	crash(b);
	sim_host_restart(b->server_io);
	ck_assert_int_eq(io_write_file(b->server_io, "/metad/log/founders", "x", 1, 0600), 0);
	metad_bed_start(b);
}

/* Members that cannot read their roll any more say so, serve, and can tell nobody whether it is of their group: that one waits, and says for what. */
START_TEST(test_rolls_of_members_are_damaged)
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
			damage_roll(&beds[1]);
			damage_roll(&beds[2]);
			says(1, "founders-unread");
			says(2, "/metad/log/founders: is damaged");
			ck_assert_int_eq(make_dir("a"), 0);
			restart(&beds[0]);
			run_s(20);
			ck_assert(!beds[0].fatal);
			last += replica_core(beds[0].md->ledger->replica) == NULL;
			if (last)
				says(0, "metad=2 error=- text=\"it is in the group, and cannot say");
		}
		close_group();
	}
	ck_assert_uint_gt(last, 0);
}
END_TEST

/* Who is to join, and has a roll that cannot be read, may have founded a group. */
START_TEST(test_damaged_roll_of_who_joins)
{
	struct err err;

	begin(24);
	metad_bed_start(&beds[1]);
	crash(&beds[1]);
	sim_host_restart(beds[1].server_io);
	ck_assert_int_eq(io_write_file(beds[1].server_io, "/metad/log/founders", "x", 1, 0600), 0);
	beds[1].options.group.found = false;
	beds[1].options.group.join = true;
	ck_assert_int_eq(metad_bed_try_start(&beds[1], &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "may ever have served"));
	sim_free(sim);
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

UNIT_MAIN("metad_founders", test_all_must_be_there, test_one_was_replaced_before_all_were_up, test_disk_hangs_amid_it, test_disk_hangs_behind_the_others, test_stopped_while_it_waits, test_one_lost_its_directory,
	test_two_lost_their_directories, test_group_of_an_older_build, test_begun_by_an_older_build, test_rolls_of_members_are_damaged, test_damaged_roll_of_who_joins, test_lost_amid_it, test_who_was_last_takes_part, test_power_lost_amid_it, test_other_number_of_founders, test_founder_that_joins)
