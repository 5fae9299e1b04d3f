/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments that are used again and removed, on a simulated disk: in steps, so that no disk is given much to do at once; and whatever moment the
 * power is lost at, the log opens, and what was left of a removal goes.
 */
#include "tests/lib/wal_bed.h"

static uint32_t gone_count;         /* as last looked at */
static char gone_name[NAME_BYTES]; /* the last of them */

static int look_at_name(void *ctx, const char *name)
{
	static const char prefix[] = "log-gone-";

	(void)ctx;
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return 0;
	gone_count++;
	snprintf(gone_name, sizeof(gone_name), "%s/%s", log_dir, name);
	return 0;
}

static uint32_t count_gone(void)
{
	gone_count = 0;
	gone_name[0] = 0;
	ck_assert_int_eq(io_list_dir(bed.host, log_dir, look_at_name, NULL), 0);
	return gone_count;
}

static bool is_gone(void *ctx)
{
	(void)ctx;
	return count_gone() == 0;
}

static void expect_gone(void)
{
	ck_assert(sim_run(bed.sim, is_gone, NULL, sim_now_ns(bed.sim) + 60 * SECOND_NS));
}

/* What a removal looks like from outside: the file that is there, its size, since when. */
struct watch {
	char name[NAME_BYTES];
	uint64_t bytes, since_ns;
	uint32_t files, steps;
};

static bool watch_removals(void *ctx)
{
	struct watch *w = ctx;
	uint32_t count = count_gone();
	uint64_t bytes = count ? size_of(gone_name) : 0, now = sim_now_ns(bed.sim);

	ck_assert_uint_le(count, 1);
	if (count && strcmp(w->name, gone_name) != 0) {
		ck_assert_uint_eq(w->bytes, 0); /* the one before has ended */
		ck_assert_uint_eq(bytes, bed.segment_bytes);
		memcpy(w->name, gone_name, sizeof(w->name));
		w->bytes = bytes;
		w->files++;
	} else if (bytes != w->bytes) {
		ck_assert_uint_le(w->bytes - bytes, WAL_STEP_BYTES);
		if (w->steps)
			ck_assert_uint_ge(now - w->since_ns, WAL_STEP_PAUSE_MS * 1000000ull * 9 / 10); /* the step itself takes a while */
		w->bytes = bytes;
		w->since_ns = now;
		w->steps++;
	}
	return false;
}

/* Five segments that are not needed any more: two are kept for use, three are removed, one after the other, in three steps each. */
START_TEST(test_example)
{
	struct watch watch = {0};

	bed_init(1, THREE_STEPS);
	open_log();
	fill(5);
	bed.file_syncs = bed.dir_syncs = 0;
	wal_trim(bed.wal, bed.acknowledged);
	ck_assert(!sim_run(bed.sim, watch_removals, &watch, sim_now_ns(bed.sim) + 60 * SECOND_NS));
	ck_assert_uint_eq(watch.files, 3);
	ck_assert_uint_eq(watch.steps, 9);
	ck_assert_uint_eq(bed.dir_syncs, 3);  /* of the new names */
	ck_assert_uint_eq(bed.file_syncs, 9); /* each step is synced, so that its discards do not wait for those of the next */
	ck_assert_uint_eq(count_gone(), 0);
	ck_assert(!is_there("/log/log-0000000000000003"));
	ck_assert(is_there("/log/log-0000000000000004"));
	fill(8); /* those that were kept, and new ones */
	close_log();
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
	close_log();
	bed_fini();
}
END_TEST

/* The log is written to, and segments are used again, while others are on their way out. */
START_TEST(test_log_goes_on)
{
	bed_init(3, TWO_STEPS);
	open_log();
	fill(6);
	wal_trim(bed.wal, bed.acknowledged);
	for (int i = 0; i < 100; i++) {
		append();
		wal_trim(bed.wal, bed.acknowledged - 1);
		ck_assert_uint_le(count_gone(), 1);
	}
	expect_gone();
	close_log();
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
	close_log();
	bed_fini();
}
END_TEST

static bool is_cut(void *ctx)
{
	(void)ctx;
	return count_gone() && size_of(gone_name) < bed.segment_bytes;
}

static bool is_renamed(void *ctx)
{
	(void)ctx;
	return count_gone() > 0;
}

/* Closed with its renaming, with a step and with a pause under way: no further step is begun, and the next open goes on. */
START_TEST(test_closed_meanwhile)
{
	for (int when = 0; when < 3; when++) {
		char name[NAME_BYTES];
		uint64_t bytes;

		bed_init(4, THREE_STEPS);
		open_log();
		fill(4);
		wal_trim(bed.wal, bed.acknowledged);
		ck_assert(sim_run(bed.sim, when ? is_cut : is_renamed, NULL, sim_now_ns(bed.sim) + SECOND_NS));
		if (when == 2)
			run_for(WAL_STEP_PAUSE_MS * 1000000ull / 2);
		bytes = size_of(gone_name);
		close_log();
		run_for(SECOND_NS);
		ck_assert_uint_eq(count_gone(), 1);
		ck_assert_uint_eq(size_of(gone_name), bytes);
		memcpy(name, gone_name, sizeof(name));
		open_log();
		ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
		ck_assert(is_there(name)); /* the open itself did not wait for that */
		expect_gone();
		close_log();
		bed_fini();
	}
}
END_TEST

/* Leftovers of any size go at the next open, step by step, and only what has such a name in full. */
START_TEST(test_leftovers)
{
	static const char *const others[] = {"/log/log-gone-1", "/log/log-gone-000000000000000G", "/log/log-gone-00000000000000010"};
	static const char odd[] = "/log/log-gone-00000000000000ab", first[] = "/log/log-gone-0000000000000001";

	bed_init(5, TWO_STEPS);
	open_log();
	fill(1);
	close_log();
	make_file(odd, 2 * WAL_STEP_BYTES + 5000);
	make_file(first, TWO_STEPS); /* a segment of that number is there as well */
	make_file("/log/log-gone-0000000000000000", 0);
	make_file("/log/log-gone-00000000000000ff", 0);
	for (size_t i = 0; i < ARRAY_COUNT(others); i++)
		make_file(others[i], 100);
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
	ck_assert_uint_eq(size_of(odd), 2 * WAL_STEP_BYTES + 5000);
	ck_assert_uint_eq(size_of(first), TWO_STEPS);
	bed.file_syncs = bed.new_syncs = 0;
	append();
	run_for(10 * SECOND_NS);
	ck_assert_uint_eq(bed.file_syncs - bed.new_syncs, 2 + 3 + 1);
	ck_assert(!is_there(odd) && !is_there(first) && !is_there("/log/log-gone-00000000000000ff"));
	for (size_t i = 0; i < ARRAY_COUNT(others); i++)
		ck_assert_uint_eq(size_of(others[i]), 100);
	ck_assert(is_there("/log/log-0000000000000001"));
	close_log();
	bed_fini();
}
END_TEST

static bool is_blocked(void *ctx)
{
	(void)ctx;
	return bed.wal->blocked_since_ns != 0;
}

/* Entries that wait for room do not keep away what makes some. */
START_TEST(test_full_disk)
{
	bed_init(7, TWO_STEPS);
	open_log();
	close_log();
	make_file("/log/log-gone-0000000000000001", 6 * WAL_STEP_BYTES);
	open_log();
	no_room();
	for (int i = 0; i < 30; i++)
		submit();
	ck_assert(sim_run(bed.sim, is_blocked, NULL, sim_now_ns(bed.sim) + SECOND_NS));
	ck_assert_uint_eq(count_gone(), 1);
	expect_gone();
	ck_assert(is_blocked(NULL));
	sim_disk_full(bed.host, false);
	ck_assert(sim_run(bed.sim, is_quiet, NULL, sim_now_ns(bed.sim) + 60 * SECOND_NS));
	close_log();
	bed_fini();
}
END_TEST

/* Somebody makes room with rm: that is no failure. */
START_TEST(test_removed_by_hand)
{
	for (int opened = 0; opened < 2; opened++) {
		bed_init(6, THREE_STEPS);
		open_log();
		fill(3);
		wal_trim(bed.wal, bed.acknowledged);
		ck_assert(sim_run(bed.sim, is_cut, NULL, sim_now_ns(bed.sim) + SECOND_NS));
		if (!opened) {
			close_log();
			open_log();
		}
		ck_assert_uint_eq(count_gone(), 1);
		ck_assert_int_eq(io_unlink(bed.host, gone_name), 0);
		run_for(SECOND_NS);
		append();
		close_log();
		bed_fini();
	}
}
END_TEST

/*
 * Four segments are given up, and the host stops at the nth sync, or (0) when so much time has passed; and twice more when the next lives are at it.
 * False: it came not to that.
 */
static bool crash_at(uint64_t sync, uint64_t ns, enum sim_loss loss)
{
	bool died;

	bed_init(1 + sync, TWO_STEPS);
	open_log();
	fill(4);
	wal_trim(bed.wal, bed.acknowledged - 2);
	sim_set_loss(bed.host, loss);
	sim_stop_at_sync(bed.host, sync, stopped, NULL);
	died = sim_run(bed.sim, is_stopped, NULL, sim_now_ns(bed.sim) + ns);
	sim_stop_at_sync(bed.host, 0, NULL, NULL);
	come_back(SIM_LOSS_ALL);
	run_for(WAL_STEP_PAUSE_MS * 1000000ull / 2); /* a step of what was left, perhaps */
	come_back(SIM_LOSS_ANY);
	run_for(WAL_STEP_PAUSE_MS * 1000000ull / 2);
	come_back(SIM_LOSS_ANY);
	expect_gone();
	append();
	close_log();
	bed_fini();
	return died;
}

START_TEST(test_crash_everywhere)
{
	static const enum sim_loss losses[] = {SIM_LOSS_ALL, SIM_LOSS_ANY, SIM_LOSS_NONE};
	uint32_t crashes = 0;

	for (size_t l = 0; l < ARRAY_COUNT(losses); l++) {
		for (uint64_t n = 1; crash_at(n, SECOND_NS, losses[l]); n += unit_step())
			crashes++;
		for (uint64_t ms = 0; ms < 4 * WAL_STEP_PAUSE_MS; ms += WAL_STEP_PAUSE_MS / 3)
			crash_at(0, ms * 1000000, losses[l]);
	}
	ck_assert_uint_ge(crashes, 3 * 6 / unit_step()); /* a new name and two steps, of two segments */
}
END_TEST

UNIT_MAIN("wal_segment", test_example, test_log_goes_on, test_closed_meanwhile, test_leftovers,
	test_full_disk, test_removed_by_hand, test_crash_everywhere)
