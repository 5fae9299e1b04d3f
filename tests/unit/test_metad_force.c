// SPDX-License-Identifier: Apache-2.0
/* A group that lost its majority goes on with one replica: who may, as what, what is said; then in the simulator, cut short at each sync. */
#include "metad/core.h"
#include "metad/force.h"
#include "metad/raft_codec.h"
#include "metad/restore.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum { METADS = 3, PORT = 7000 };
static const uint64_t s_ns = 1000000000;

/* ---- decisions ---- */

static struct force_facts facts_of(uint32_t voters)
{
	struct force_facts f = {.dir = "/metad", .cluster = metad_bed_cluster, .id = 2, .term = 7, .last_index = 50, .last_term = 6, .commit = 40, .applied = 30};

	f.config = (struct raft_config){.index = 9, .count = voters, .last_id = voters};
	for (uint32_t i = 0; i < voters; i++)
		f.config.members[i] = (struct raft_member){.id = i + 1, .voter = true};
	f.before = f.config;
	f.before.index = 1;
	return f;
}

static struct force_plan plan;
static struct err err;

static int decide(const struct force_facts *f)
{
	return force_decide(f, &plan, &err);
}

START_TEST(test_example)
{
	struct force_facts f = facts_of(3);

	f.config.members[1].place[0] = 4;
	ck_assert_int_eq(decide(&f), 0);
	ck_assert_uint_eq(plan.term, 7 + FORCE_TERM_JUMP);
	ck_assert_uint_eq(plan.config.count, 1);
	ck_assert_uint_eq(plan.config.members[0].id, 2);
	ck_assert(plan.config.members[0].voter);
	ck_assert_uint_eq(plan.config.members[0].place[0], 4); /* it is where it was */
	ck_assert_uint_eq(plan.config.last_id, 100);
}
END_TEST

/* The others may have taken in members that are not known here. */
START_TEST(test_no_number_is_given_again)
{
	static const uint64_t last[] = {3, 99, 100, 101, 250}, then[] = {100, 200, 200, 200, 400};
	struct force_facts f = facts_of(3);

	for (size_t i = 0; i < ARRAY_COUNT(last); i++) {
		f.config.last_id = last[i];
		ck_assert_int_eq(decide(&f), 0);
		ck_assert_uint_eq(plan.config.last_id, then[i]);
	}
}
END_TEST

START_TEST(test_who_may_go_on)
{
	struct force_facts f = facts_of(1);

	f.id = 1;
	ck_assert_int_eq(decide(&f), ERR_EXIST);
	f.config.members[f.config.count++] = (struct raft_member){.id = 2};
	ck_assert_int_eq(decide(&f), ERR_EXIST); /* who does not vote is not missed */
	f.id = 2;
	ck_assert_int_eq(decide(&f), 0); /* but the only one that votes is */
	ck_assert(plan.config.members[0].voter);
	f = facts_of(3);
	f.id = 4;
	ck_assert_int_eq(decide(&f), ERR_PERM);
	f.before.members[f.before.count++] = (struct raft_member){.id = 4, .voter = true};
	ck_assert_int_eq(decide(&f), ERR_PERM);
	f.commit = 8; /* it may never have been removed */
	ck_assert_int_eq(decide(&f), 0);
	ck_assert_uint_eq(plan.config.members[0].id, 4);
	f.config.count = 0;
	ck_assert_int_eq(decide(&f), ERR_NOENT);
	f = facts_of(3);
	f.term = RAFT_TERM_MAX - FORCE_TERM_JUMP;
	ck_assert_int_eq(decide(&f), ERR_RANGE);
}
END_TEST

/* It is that of one report: what would be lost may have changed since. */
START_TEST(test_the_word)
{
	struct force_facts f = facts_of(3);
	char word[FORCE_WORD_BYTES];

	ck_assert_int_eq(decide(&f), 0);
	memcpy(word, plan.word, sizeof(word));
	ck_assert_uint_eq(strlen(word), FORCE_WORD_BYTES - 1);
	f.applied++;
	ck_assert_int_eq(decide(&f), 0);
	ck_assert_str_eq(plan.word, word);
	for (int i = 0; i < 5; i++) {
		f = facts_of(i == 4 ? 5 : 3);
		f.id -= i == 0;
		f.last_index += i == 1;
		f.last_term += i == 2;
		f.cluster.bytes[15] ^= i == 3;
		ck_assert_int_eq(decide(&f), 0);
		ck_assert_str_ne(plan.word, word);
	}
}
END_TEST

START_TEST(test_the_report)
{
	static const char *const says[] = {"/metad holds replica 2 of cluster ", "last entry is 50 of term 6; the newest change with a time is of 2001-09-09 01:46:40 UTC",
		"term 7, and entries up to 40 as committed; 30 are applied", "in term 1048583", "  metad-1  10.0.0.1:7000\n",
		"  metad-3  10.0.0.9:7000  (does not vote)\n", "  metad-4  address not known\n", "numbers go on at 101", "greater index"};
	struct force_facts f = facts_of(4);
	struct rpc_addrs founders;
	struct io_addr addr;
	char *text;

	f.written_ns = 1000000000ll * 1000000000;
	ck_assert_int_eq(rpc_addrs_parse("10.0.0.1:7000, 10.0.0.2:7000, 10.0.0.3:7000", &founders), 0);
	ck_assert_int_eq(io_addr_parse("10.0.0.9:7000", &addr), 0);
	raft_place_set(f.config.members[2].place, &addr);
	f.config.members[2].voter = false;
	ck_assert_int_eq(decide(&f), 0);
	text = force_report(&f, &plan, &founders);
	for (size_t i = 0; i < ARRAY_COUNT(says); i++)
		ck_assert_msg(strstr(text, says[i]), "it does not say: %s\n%s", says[i], text);
	ck_assert_ptr_null(strstr(text, "  metad-2"));
	mem_free(text);
}
END_TEST

/* ---- a group ---- */

static struct metad_bed beds[METADS], *left;
static struct sim *sim;

static void open_group(uint64_t seed)
{
	sim = sim_new(&(struct sim_options){.seed = seed});
	metad_bed_open_group(beds, METADS, sim, PORT);
}

static void close_group(void)
{
	for (int i = 0; i < METADS; i++) {
		struct metad_bed *b = &beds[i];

		ck_assert_int_eq(b->fatal, 0);
		metad_bed_free_reply(b);
		if (b->md)
			metad_bed_stop(b);
		rpc_peer_close(b->peer, metad_bed_set_done, b);
		metad_bed_wait(b);
	}
	sim_free(sim);
}

static bool is_led(void *ctx)
{
	(void)ctx;
	left = NULL;
	for (int i = 0; i < METADS; i++)
		if (beds[i].md && beds[i].md->ready)
			left = &beds[i];
	return left != NULL;
}

static bool leads(void *ctx)
{
	return ((struct metad_bed *)ctx)->md->ready;
}

static void stop(struct metad_bed *b)
{
	sim_host_crash(b->server_io);
	sim_host_restart(b->server_io);
	b->md = NULL;
}

/* What the one that is left, which led, has acknowledged: a directory, two disks. */
static void lose_majority(uint64_t seed)
{
	open_group(seed);
	ck_assert(sim_run(sim, is_led, NULL, sim_now_ns(sim) + 60 * s_ns));
	ck_assert_int_eq(bed_mkdir(left, "before"), 0);
	bed_register_all(left, 2);
	for (int i = 0; i < METADS; i++)
		if (&beds[i] != left)
			stop(&beds[i]);
}

static int forced_code;
static bool forced_ended;
static char forced_text[ERR_TEXT_BYTES], forced_report[16 << 10], word[FORCE_WORD_BYTES];
static struct force_options force_options;
static uint32_t restores_seen;

static void on_report(void *ctx, const char *text)
{
	(void)ctx;
	snprintf(forced_report, sizeof(forced_report), "%s", text);
}

static void on_forced(void *ctx, int code, const char *text)
{
	(void)ctx;
	forced_code = code;
	forced_ended = true;
	snprintf(forced_text, sizeof(forced_text), "%s", text);
}

static bool has_ended(void *ctx)
{
	(void)ctx;
	return forced_ended;
}

static void begin_force(void *ctx)
{
	force_options = (struct force_options){.dir = left->dir,
		.cluster = metad_bed_cluster,
		.id = left->options.group.id,
		.founders = &left->options.group.members,
		.confirm = ctx,
		.restores = restores_seen,
		.backend = &kv_mem,
		.log_segment_bytes = METAD_BED_MIB,
		.report = on_report,
		.done = on_forced};
	forced_ended = false;
	forced_report[0] = '\0';
	force_start(left->server_io, &force_options);
}

static int force(const char *confirm)
{
	begin_force((void *)(uintptr_t)confirm);
	ck_assert(sim_run(sim, has_ended, NULL, sim_now_ns(sim) + 60 * s_ns));
	return forced_code;
}

/* ERR_INVAL: it may; else why not. */
static int ask(void)
{
	int code = force(NULL);

	if (code == ERR_INVAL)
		snprintf(word, sizeof(word), "%s", strstr(forced_text, "--confirm ") + 10);
	return code;
}

static void start(struct metad_bed *b)
{
	metad_bed_start(b);
	ck_assert_msg(sim_run(sim, leads, b, sim_now_ns(sim) + 60 * s_ns), "the one that was forced does not lead");
}

/* From its first moment on it knows that the others are dropped: it hears nothing that would take that back. */
static void start_forced(struct metad_bed *b)
{
	struct ledger_view view;

	metad_bed_start(b);
	ledger_view(b->md->ledger, &view);
	ck_assert_uint_eq(view.count, 1);
	ck_assert_uint_eq(view.commit, view.last);
	ck_assert_msg(sim_run(sim, leads, b, sim_now_ns(sim) + 60 * s_ns), "the one that was forced does not lead");
}

START_TEST(test_one_goes_on)
{
	struct ledger_view view;
	struct io_addr place;
	int code;

	lose_majority(41);
	ck_assert_int_eq(force(NULL), ERR_BUSY); /* it runs */
	ck_assert_str_eq(forced_report, "");
	stop(left);
	ck_assert_int_eq(ask(), ERR_INVAL);
	ck_assert_uint_gt(strlen(forced_report), 500);
	ck_assert_int_eq(force("00000000"), ERR_INVAL);
	restores_seen = RESTORE_PLAUSIBLE + 1;
	ck_assert_int_eq(ask(), ERR_RANGE);
	ck_assert_ptr_nonnull(strstr(forced_text, "add --force if it is meant"));
	restores_seen = 0;
	ck_assert_int_eq(ask(), ERR_INVAL);
	ck_assert_msg(force(word) == 0, "%s", forced_text);
	ck_assert_int_eq(force(word), ERR_EXIST);
	start_forced(left);
	ck_assert_int_eq(bed_lookup_path(left, "before", 6), 0);
	ledger_view(left->md->ledger, &view);
	ck_assert_uint_eq(view.count, 1);
	ck_assert_uint_eq(view.next_id, 101);
	/* Whoever joins with a list that names it alone is told where it is. */
	ck_assert(raft_place_get(replica_core(left->md->ledger->replica)->config.members[0].place, &place));
	ck_assert(io_addr_equal(&place, &left->options.listen));
	ck_assert_uint_gt(view.term, FORCE_TERM_JUMP);
	/* As after a restore: what the others gave away meets nothing. */
	code = bed_mkdir(left, "x");
	ck_assert_int_eq(code, ERR_SESSION_LOST);
	left->session.session = left->state_ms = 0;
	ck_assert_int_eq(bed_register(left, 1, left->options.secret), 0);
	ck_assert_uint_gt(left->servers[1].generation, 1ull << 32);
	ck_assert_int_eq(bed_mkdir(left, "after"), 0);
	close_group();
}
END_TEST

START_TEST(test_what_is_damaged_is_not_forced)
{
	static const char segment[] = "/metad/log/log-0000000000000001";
	uint8_t before[4096], after[sizeof(before)];

	lose_majority(42);
	stop(left);
	ck_assert_int_eq(io_write_file(left->server_io, "/metad/differs", "x", 1, 0600), 0);
	ck_assert_int_eq(ask(), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(forced_text, "not what most metads of the group had"));
	ck_assert_int_eq(io_unlink(left->server_io, "/metad/differs"), 0);
	ck_assert_int_eq(sim_flip_bit(left->server_io, segment, 100, 1), 0);
	ck_assert_int_eq(sim_read_raw(left->server_io, segment, before, sizeof(before), 0), sizeof(before));
	ck_assert_int_eq(ask(), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(forced_text, "damaged, from index 1 on; nothing was changed"));
	ck_assert_str_eq(forced_report, "");
	ck_assert_int_eq(sim_read_raw(left->server_io, segment, after, sizeof(after), 0), sizeof(after));
	ck_assert_mem_eq(before, after, sizeof(before));
	close_group();
}
END_TEST

/* They have their directories, and lead each other: what they say is not heard. */
START_TEST(test_those_that_were_dropped_come_back)
{
	struct ledger_view before, after;

	for (uint64_t seed = 50; seed < 55; seed++) {
		lose_majority(seed);
		stop(left);
		ck_assert_int_eq(ask(), ERR_INVAL);
		ck_assert_msg(force(word) == 0, "%s", forced_text);
		for (int i = 0; i < METADS; i++)
			if (&beds[i] != left)
				metad_bed_start(&beds[i]);
		metad_bed_silence(left, 3000 * (seed % 2)); /* they have elected one, or will */
		start_forced(left);
		left->session.session = left->state_ms = 0;
		ledger_view(left->md->ledger, &before);
		for (int i = 0; i < 5; i++) {
			metad_bed_silence(left, 2000);
			ck_assert_int_eq(bed_mkdir(left, (const char *const[]){"a", "b", "c", "d", "e"}[i]), 0);
		}
		ledger_view(left->md->ledger, &after);
		ck_assert_uint_eq(after.count, 1);
		ck_assert_uint_eq(after.term, before.term);
		ck_assert_uint_eq(after.leader, left->options.group.id);
		ck_assert_uint_gt(ledger_dropped(left->md->ledger), 0);
		ck_assert_uint_eq(ledger_contradictions(left->md->ledger), 0);
		close_group();
	}
}
END_TEST

/* Each write fails in turn: that is said, and it may be tried again, or is done all the same. */
START_TEST(test_writes_fail)
{
	uint32_t failed = 0;
	int code;

	lose_majority(43);
	stop(left);
	for (uint32_t n = 1;; n++) {
		code = ask();
		ck_assert_msg(code == ERR_INVAL || code == ERR_EXIST, "%s", forced_text);
		if (code == ERR_EXIST)
			break;
		sim_fault_after(left->server_io, SIM_FAULT_WRITE, n, ERR_IO);
		code = force(word);
		sim_fault_after(left->server_io, SIM_FAULT_WRITE, 0, 0);
		if (code == 0)
			break;
		ck_assert_int_eq(code, ERR_IO);
		ck_assert_uint_gt(strlen(forced_text), 10);
		failed++;
	}
	ck_assert_uint_gt(failed, 4);
	start(left);
	ck_assert_int_eq(bed_lookup_path(left, "before", 6), 0);
	close_group();
}
END_TEST

/* ---- losing power ---- */

static bool has_stopped;

static void on_stopped(void *ctx)
{
	(void)ctx;
	has_stopped = true;
	sim_host_crash(left->server_io);
}

static bool has_ended_or_stopped(void *ctx)
{
	return has_stopped || has_ended(ctx);
}

/* Power fails at its nth sync, or if there are fewer, when it has ended (true). */
static bool force_until(uint64_t nth)
{
	has_stopped = false;
	sim_stop_at_sync(left->server_io, nth, on_stopped, NULL);
	if (!sim_try(sim, begin_force, word))
		on_stopped(NULL);
	ck_assert(sim_run(sim, has_ended_or_stopped, NULL, sim_now_ns(sim) + 60 * s_ns));
	sim_stop_at_sync(left->server_io, 0, NULL, NULL);
	if (!has_stopped)
		sim_host_crash(left->server_io);
	sim_host_restart(left->server_io);
	return !has_stopped;
}

/* It is as it was, or forced, also after the next loss of power: then it leads, and has all. */
START_TEST(test_power_fails_at_each_sync)
{
	static const enum sim_loss losses[] = {SIM_LOSS_ALL, SIM_LOSS_NONE, SIM_LOSS_ANY, SIM_LOSS_TORN};
	uint32_t as_it_was = 0, forced = 0;
	bool ended = false;

	for (uint64_t n = 1; !ended; n++) {
		for (size_t i = 0; i < ARRAY_COUNT(losses); i++) {
			int code;

			lose_majority(60 + n);
			stop(left);
			ck_assert_int_eq(ask(), ERR_INVAL);
			sim_set_loss(left->server_io, losses[i]);
			ended = force_until(n);
			ck_assert(!ended || forced_code == 0);
			code = ask();
			ck_assert_msg(code == ERR_INVAL || code == ERR_EXIST, "at sync %d: %s", (int)n, forced_text);
			ck_assert_msg(!ended || code == ERR_EXIST, "what was told as done is gone");
			as_it_was += code == ERR_INVAL;
			forced += code == ERR_EXIST;
			if (code == ERR_INVAL)
				ck_assert_msg(force(word) == 0, "%s", forced_text);
			stop(left);
			start(left);
			ck_assert_int_eq(bed_lookup_path(left, "before", 6), 0);
			close_group();
		}
	}
	ck_assert_uint_gt(as_it_was, 2 * ARRAY_COUNT(losses));
	ck_assert_uint_ge(forced, 2 * ARRAY_COUNT(losses));
}
END_TEST

UNIT_MAIN("metad_force", test_example, test_no_number_is_given_again, test_who_may_go_on, test_the_word, test_the_report, test_one_goes_on,
	test_what_is_damaged_is_not_forced, test_those_that_were_dropped_come_back, test_writes_fail,
	test_power_fails_at_each_sync)
