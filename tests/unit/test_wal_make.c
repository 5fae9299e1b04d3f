/* SPDX-License-Identifier: Apache-2.0 */
/* Segments that are made, on a simulated disk: as the log comes near, in steps; from nothing that was there before; and whatever moment the power is lost at. */
#include "tests/lib/wal_bed.h"

enum { STEPS = THREE_STEPS / WAL_MAKE_STEP_BYTES };
_Static_assert((int)THREE_STEPS % (int)WAL_MAKE_STEP_BYTES == 0, "a sync for each whole step");

/* So much of the next segment. */
static uint64_t made(void)
{
	if (!list_empty(&bed.wal->ready))
		return bed.segment_bytes;
	return bed.wal->making ? bed.wal->making->made_bytes : 0;
}

static void append_until(uint64_t offset)
{
	while (bed.wal->offset <= offset)
		append();
	run_for(SECOND_NS / 20);
}

/* What earlier lives may leave there. */
static void leave_junk(uint64_t bytes)
{
	uint8_t *junk = mem_alloc(bytes + 1);
	int fd;

	memset(junk, 0xff, bytes);
	ck_assert_int_eq(io_open(bed.host, new_path, IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE, 0600, &fd), 0);
	if (bytes)
		ck_assert_int_eq(io_pwrite(bed.host, fd, junk, bytes, 0), (int64_t)bytes);
	ck_assert_int_eq(io_fdatasync(bed.host, fd), 0);
	ck_assert_int_eq(io_sync_dir(bed.host, log_dir), 0);
	io_close(bed.host, fd);
	mem_free(junk);
}

static void expect_zeros(const char *path, uint64_t from)
{
	uint8_t *bytes = mem_alloc(bed.segment_bytes);

	ck_assert_uint_eq(size_of(path), bed.segment_bytes);
	ck_assert_int_eq(sim_read_raw(bed.host, path, bytes, bed.segment_bytes, 0), (int64_t)bed.segment_bytes);
	ck_assert_uint_eq(bytes[from], 0);
	ck_assert_int_eq(memcmp(bytes + from, bytes + from + 1, bed.segment_bytes - from - 1), 0);
	mem_free(bytes);
}

START_TEST(test_due)
{
	const uint64_t segment = 64 << 20, quarter = segment / 4;

	for (uint64_t from = quarter; from < segment; from += segment / 32) {
		uint64_t before = 0, end = from + (segment - from) / 2;

		if (end < 3 * quarter)
			end = 3 * quarter;
		for (uint64_t offset = 0; offset <= segment; offset += 4096) {
			uint64_t due = wal__make_due(offset, from, segment);

			ck_assert_uint_eq(due > 0, offset > from);
			ck_assert_uint_eq(due == segment, offset >= end);
			ck_assert_uint_ge(due, before);
			ck_assert_uint_le(due - before, segment / ((end - from) / 4096) + 1);
			before = due;
		}
	}
	ck_assert_uint_eq(wal__make_due(3 * quarter, quarter, segment), segment);
	ck_assert_uint_eq(wal__make_due(segment, segment - 4096, segment), segment);
}
END_TEST

START_TEST(test_step)
{
	const uint64_t least = WAL_MAKE_STEP_LEAST_BYTES, most = WAL_MAKE_STEP_BYTES;

	ck_assert_uint_eq(wal__make_step_bytes(0, 1), least);
	ck_assert_uint_eq(wal__make_step_bytes(most, most + least), least);
	ck_assert_uint_eq(wal__make_step_bytes(most, most + least + 1), 2 * least);
	ck_assert_uint_eq(wal__make_step_bytes(0, most - 1), most);
	ck_assert_uint_eq(wal__make_step_bytes(0, 64 * most), most);
}
END_TEST

/* The steps follow the log, none ahead of it and none behind; each is synced, and the last one gives the name. */
START_TEST(test_example)
{
	uint64_t before = 0;
	uint32_t steps = 0;

	bed_init(1, THREE_STEPS);
	open_log();
	ck_assert_uint_eq(bed.new_syncs, STEPS);
	bed.new_syncs = bed.dir_syncs = 0;
	while (list_empty(&bed.wal->ready)) {
		uint64_t due;

		append();
		run_for(10 * SECOND_NS); /* an idle log makes nothing */
		due = wal__make_due(bed.wal->offset, bed.segment_bytes / 4, bed.segment_bytes);
		ck_assert_uint_ge(made(), due);
		ck_assert_uint_lt(made(), due + WAL_MAKE_STEP_LEAST_BYTES);
		ck_assert_uint_ge((bed.new_syncs - steps) * WAL_MAKE_STEP_BYTES, made() - before);
		ck_assert_uint_le((bed.new_syncs - steps) * WAL_MAKE_STEP_LEAST_BYTES, made() - before);
		steps = bed.new_syncs;
		before = made();
		ck_assert_uint_eq(bed.dir_syncs, made() == bed.segment_bytes);
	}
	ck_assert_uint_le(bed.wal->offset, bed.segment_bytes * 3 / 4 + WAL_FRAME_MAX_BYTES);
	ck_assert(!is_there(new_path));
	expect_zeros("/log/log-0000000000000002", 0);
	append_until(bed.segment_bytes - WAL_FRAME_MAX_BYTES);
	ck_assert_uint_eq(bed.new_syncs, steps); /* one is enough */
	close_log();
	bed_fini();
}
END_TEST

/* Entries that need a segment at once do not wait for the log to come near. */
START_TEST(test_burst)
{
	bed_init(2, THREE_STEPS);
	open_log();
	for (int i = 0; i < 4 * THREE_STEPS / ENTRY_BYTES; i++)
		submit();
	ck_assert(sim_run(bed.sim, is_quiet, NULL, sim_now_ns(bed.sim) + 5 * SECOND_NS));
	ck_assert_uint_ge(wal__last_live(bed.wal)->number, 4);
	close_log();
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
	close_log();
	bed_fini();
}
END_TEST

/* What can be used again comes first, and what was begun is not lost. */
START_TEST(test_used_again_meanwhile)
{
	uint64_t begun;

	bed_init(3, THREE_STEPS);
	open_log();
	fill(1);
	append_until(bed.segment_bytes - WAL_FRAME_MAX_BYTES); /* in the second; the third is ready */
	while (wal__last_live(bed.wal)->number < 3)
		append();
	append_until(bed.segment_bytes / 2);
	begun = made();
	ck_assert(begun > 0 && begun < bed.segment_bytes);
	bed.new_syncs = 0;
	wal_trim(bed.wal, wal__last_live(bed.wal)->last_index - 10); /* the first two */
	run_for(SECOND_NS);
	ck_assert(is_there("/log/log-0000000000000004") && !is_there("/log/log-0000000000000001"));
	ck_assert_uint_eq(bed.wal->making->made_bytes, begun);
	wal_trim(bed.wal, bed.acknowledged);
	fill(3); /* the other one is number 5 */
	ck_assert_uint_eq(bed.new_syncs, 0);
	fill(4);
	ck_assert_uint_eq(bed.new_syncs, STEPS - begun / WAL_MAKE_STEP_BYTES);
	ck_assert(!is_there(new_path));
	expect_zeros("/log/log-0000000000000006", 0);
	close_log();
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
	close_log();
	bed_fini();
}
END_TEST

/* Others fill the disk before a young log has come near its second segment: what frees space must be logged first. */
START_TEST(test_room_of_the_second)
{
	for (int opens = 1; opens <= 2; opens++) {
		bed_init(8, THREE_STEPS);
		open_log();
		if (opens == 2) {
			ck_assert_int_eq(io_unlink(bed.host, new_path), 0); /* its name was not durable */
			close_log();
			open_log();
		}
		ck_assert_uint_eq(size_of(new_path), bed.segment_bytes);
		sim_disk_full(bed.host, true);
		while (wal__last_live(bed.wal)->number == 1)
			append();
		close_log();
		open_log();
		ck_assert(!is_there(new_path)); /* there is one to use again, some time */
		ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
		close_log();
		bed_fini();
	}
}
END_TEST

/* Where there is no room a log is opened all the same, and leaves nothing. */
START_TEST(test_no_room_for_the_second)
{
	bed_init(9, THREE_STEPS);
	open_log();
	close_log();
	no_room();
	open_log();
	ck_assert(!is_there(new_path));
	append();
	close_log();
	bed_fini();
}
END_TEST

/* Who closes does not wait for a segment that nobody will write to. */
START_TEST(test_closed_before)
{
	bed_init(6, THREE_STEPS);
	open_log();
	bed.new_syncs = 0;
	for (int i = 0; i < THREE_STEPS / ENTRY_BYTES - 2; i++)
		submit();
	close_log();
	ck_assert_uint_eq(bed.in_flight, 0);
	ck_assert_uint_eq(bed.new_syncs, 0);
	bed_fini();
}
END_TEST

/*
 * Closed amid it: no further step. The next life begins where it stands, and anew, over whatever lies there, of any size, and without giving its blocks back
 * first: on a disk that is full then there is room for it all the same.
 */
START_TEST(test_closed_meanwhile)
{
	static const uint64_t sizes[] = {0, 4096 + 5, THREE_STEPS - 4096, THREE_STEPS, THREE_STEPS + 5, 2 * THREE_STEPS};

	for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
		bed_init(4, THREE_STEPS);
		open_log();
		append_until(bed.segment_bytes / 2);
		close_log();
		ck_assert_uint_eq(size_of(new_path), bed.segment_bytes);
		leave_junk(sizes[i]);
		bed.new_syncs = 0;
		open_log();
		run_for(SECOND_NS);
		append();
		run_for(SECOND_NS);
		ck_assert_uint_ge(bed.new_syncs, 1);
		ck_assert_uint_le(bed.new_syncs, 2); /* nothing is due of what the earlier life did */
		ck_assert_uint_eq(size_of(new_path), bed.segment_bytes);
		sim_disk_full(bed.host, true);
		fill(0);
		expect_zeros("/log/log-0000000000000002", 0);
		sim_disk_full(bed.host, false);
		fill(1);
		close_log();
		open_log();
		ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
		close_log();
		bed_fini();
	}
}
END_TEST

/* What lies there whole needs no room. */
START_TEST(test_leftover_on_full_disk)
{
	bed_init(9, THREE_STEPS);
	open_log();
	leave_junk(THREE_STEPS);
	sim_disk_full(bed.host, true);
	fill(0);
	expect_zeros("/log/log-0000000000000002", 0);
	close_log();
	bed_fini();
}
END_TEST

/* Somebody makes room with rm: that is no failure. */
START_TEST(test_removed_by_hand)
{
	bed_init(7, THREE_STEPS);
	open_log();
	append_until(bed.segment_bytes / 2);
	bed.new_syncs = 0;
	ck_assert_int_eq(io_unlink(bed.host, new_path), 0);
	fill(1);
	ck_assert_uint_gt(bed.new_syncs, STEPS);
	expect_zeros("/log/log-0000000000000003", 0);
	close_log();
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
	close_log();
	bed_fini();
}
END_TEST

static bool is_blocked(void *ctx)
{
	(void)ctx;
	return bed.wal->blocked_since_ns && bed.wal->space_retry;
}

/* Without room for all of it there is nothing of it, so that others may use what there is; and it is tried again. */
START_TEST(test_full_disk)
{
	bed_init(5, THREE_STEPS);
	open_log();
	no_room();
	for (int i = 0; i < 60; i++)
		submit();
	ck_assert(sim_run(bed.sim, is_blocked, NULL, sim_now_ns(bed.sim) + SECOND_NS));
	ck_assert(!is_there(new_path));
	run_for(10 * SECOND_NS);
	ck_assert(!is_there(new_path));
	sim_disk_full(bed.host, false);
	ck_assert(sim_run(bed.sim, is_quiet, NULL, sim_now_ns(bed.sim) + SECOND_NS / 2)); /* a try, and then a step follows the other */
	expect_zeros("/log/log-0000000000000002", bed.wal->offset);
	ck_assert(!bed.wal->space_retry);
	close_log();
	bed_fini();
}
END_TEST

/* The host stops at the nth sync behind the first quarter; the next life finds all that was acknowledged, and makes what it needs. False: it came not to that. */
static bool crash_at(uint64_t sync, enum sim_loss loss)
{
	bool died = false;

	bed_init(10 + sync, THREE_STEPS);
	open_log();
	leave_junk(THREE_STEPS);
	append_until(bed.segment_bytes / 4);
	sim_set_loss(bed.host, loss);
	sim_stop_at_sync(bed.host, sync, stopped, NULL);
	while (!died && list_empty(&bed.wal->ready)) {
		submit();
		died = sim_run(bed.sim, is_stopped, NULL, sim_now_ns(bed.sim) + SECOND_NS / 10);
	}
	sim_stop_at_sync(bed.host, 0, NULL, NULL);
	if (sim_host_is_up(bed.host))
		sim_host_crash(bed.host);
	sim_host_restart(bed.host);
	if (is_there("/log/log-0000000000000002"))
		expect_zeros("/log/log-0000000000000002", 0);
	bed.in_flight = 0;
	open_log();
	ck_assert_uint_ge(bed.replayed_to, bed.acknowledged);
	bed.acknowledged = bed.replayed_to;
	fill(1);
	expect_zeros("/log/log-0000000000000003", 0);
	close_log();
	open_log();
	ck_assert_uint_eq(bed.replayed_to, bed.acknowledged);
	close_log();
	bed_fini();
	return died;
}

START_TEST(test_crash_everywhere)
{
	static const enum sim_loss losses[] = {SIM_LOSS_ALL, SIM_LOSS_ANY, SIM_LOSS_TORN, SIM_LOSS_NONE};
	uint32_t crashes = 0;

	for (size_t l = 0; l < ARRAY_COUNT(losses); l++)
		for (uint64_t n = 1; crash_at(n, losses[l]); n += unit_step())
			crashes++;
	ck_assert_uint_ge(crashes, ARRAY_COUNT(losses) * (STEPS + 1) / unit_step());
}
END_TEST

UNIT_MAIN("wal_make", test_room_of_the_second, test_no_room_for_the_second, test_due, test_step, test_example, test_burst, test_used_again_meanwhile, test_closed_before, test_closed_meanwhile, test_leftover_on_full_disk,
	test_removed_by_hand, test_full_disk, test_crash_everywhere)
