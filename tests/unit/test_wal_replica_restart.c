/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a replica that begins anew behind a snapshot, or is trimmed. */
#include "tests/lib/replica_log.h"

static int count_segment(void *ctx, const char *name)
{
	*(int *)ctx += strncmp(name, "log-", 4) == 0;
	return 0;
}

START_TEST(test_restart)
{
	char path[64];
	int count = 0;

	begin();
	appends(12, 1, 200000); /* three segments */
	bed_append(&bed, 1, 10);
	bed_run_for(&bed, 1000);
	bed_append(&bed, 1, 10);
	bed_restart(&bed, 100, 1);
	bed_append(&bed, 1, 10);
	bed_append(&bed, 1, 10);
	bed_settle(&bed);
	ck_assert_uint_eq(bed.canceled, 2);
	ck_assert_uint_eq(bed.acknowledged, 14);
	ck_assert_uint_eq(wal_durable_index(bed.wal), 102);
	ck_assert_uint_eq(wal_commit(bed.wal), 100);
	idle();
	ck_assert_int_eq(io_list_dir(bed.host, bed_dir, count_segment, &count), 0);
	ck_assert_int_le(count, 4); /* the others are used again or removed */
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(wal_first_index(bed.wal), 101);
	ck_assert_uint_eq(bed.now.last, 102);
	snprintf(path, sizeof(path), "/log/log-%016" PRIx64, wal_meta(bed.wal)->first_segment);
	bed_crash(&bed);
	ck_assert_int_eq(sim_flip_bit(bed.host, path, 30, 1), 0);
	expect_refused(ERR_CORRUPT, "first frame is damaged, from index 101 on");
	for (uint64_t n = wal_meta(bed.wal)->first_segment; n < 20; n++) {
		snprintf(path, sizeof(path), "/log/log-%016" PRIx64, n);
		(void)io_unlink(bed.host, path);
	}
	expect_refused(ERR_CORRUPT, "on, in which the log began with index 101");
	bed_fini(&bed);
}
END_TEST

/* Without space a restart waits for some, as entries do: what was trimmed gives it, or somebody else; but not for ever. */
START_TEST(test_restart_on_full_disk)
{
	begin();
	appends(11, 1, 200000); /* one in the third segment: none is ready */
	sim_disk_full(bed.host, true);
	bed_restart(&bed, 100, 1);
	bed_append(&bed, 1, 10);
	bed_run_for(&bed, 20000000000);
	ck_assert(bed.restarting);
	ck_assert_int_eq(bed.fatal, 0);
	sim_disk_full(bed.host, false);
	bed_settle(&bed);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 101);
	/* the old segments are used again */
	sim_disk_full(bed.host, true);
	bed_restart(&bed, 200, 1);
	bed_run_for(&bed, 100000000);
	ck_assert(!bed.restarting);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 200);
	bed_fini(&bed);

	begin();
	appends(11, 1, 200000);
	sim_disk_full(bed.host, true);
	bed_restart(&bed, 100, 1);
	bed_run_for(&bed, 60000000000);
	ck_assert_int_eq(bed.fatal, ERR_NOSPC);
	ck_assert(!bed.restarting);
	bed_close(&bed);
	sim_disk_full(bed.host, false);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 11);
	bed_fini(&bed);
}
END_TEST

/* What the snapshot has, the old log may give away only when there is a new one: it is what a crash before finds. */
START_TEST(test_trim_before_restart_is_done)
{
	for (uint64_t n = 1; n <= 30; n++) {
		begin();
		appends(11, 1, 200000);
		sim_disk_full(bed.host, true);
		bed_restart(&bed, 100, 1);
		bed_trim(&bed, 100);
		bed.dies_at_event = sim_event_count(bed.sim) + n;
		bed_run_for(&bed, 100000000);
		sim_disk_full(bed.host, false);
		bed_crash(&bed);
		bed_open(&bed);
		ck_assert_uint_ge(wal_commit(bed.wal), wal_index(bed.wal)->base_index);
		bed_fini(&bed);
	}
}
END_TEST

/* Held entries stay however far the log is trimmed, and go when they are released. */
START_TEST(test_hold)
{
	struct wal_hold holds[2];

	begin();
	appends(12, 1, 200000);
	ck_assert_uint_eq(wal_durable_index(bed.wal), 12);
	bed_commit(&bed, 12);
	ck_assert_int_eq(wal_hold(bed.wal, &holds[0], 8), 0);
	ck_assert_int_eq(wal_hold(bed.wal, &holds[1], 2), 0);
	bed_trim(&bed, 12);
	ck_assert_uint_le(wal_first_index(bed.wal), 2);
	/* Entries of 200,000 bytes, five of which fill a segment of a MiB. */
	ck_assert_uint_eq(wal_bytes_from(bed.wal, 13), 0);
	ck_assert_uint_ge(wal_bytes_from(bed.wal, 12), 200000);
	ck_assert_uint_lt(wal_bytes_from(bed.wal, 12), 210000);
	ck_assert_uint_ge(wal_bytes_from(bed.wal, 2), 11 * 200000);
	ck_assert_uint_lt(wal_bytes_from(bed.wal, 2), 3 << 20);
	wal_release(bed.wal, &holds[1]);
	ck_assert_uint_gt(wal_first_index(bed.wal), 2);
	ck_assert_uint_le(wal_first_index(bed.wal), 8);
	ck_assert_int_eq(wal_hold(bed.wal, &holds[1], 2), ERR_NOENT);
	wal_release(bed.wal, &holds[0]);
	ck_assert_uint_gt(wal_first_index(bed.wal), 8);
	bed_crash(&bed);
	bed_open(&bed); /* segments that wait to be used again are there again */
	ck_assert_uint_eq(wal_index_term(wal_index(bed.wal), wal_first_index(bed.wal)), 1);
	bed_fini(&bed);
}
END_TEST

/* A hold of entries that went with an installed snapshot holds nothing. */
START_TEST(test_hold_and_restart)
{
	struct wal_hold hold;

	begin();
	appends(2, 1, 10);
	ck_assert_int_eq(wal_hold(bed.wal, &hold, 2), 0);
	bed_restart(&bed, 20, 1);
	appends(12, 1, 200000);
	bed_commit(&bed, 32);
	bed_trim(&bed, 32);
	ck_assert_uint_gt(wal_first_index(bed.wal), 25);
	wal_release(bed.wal, &hold);
	bed_fini(&bed);
}
END_TEST

/* What is trimmed to is applied, and thus committed: more than that never goes. */
START_TEST(test_trim_is_bounded)
{
	begin();
	appends(12, 1, 200000);
	bed_commit(&bed, 3);
	bed_trim(&bed, 12);
	ck_assert_uint_le(wal_first_index(bed.wal), 4);
	bed_fini(&bed);
}
END_TEST

static int find_oldest(void *ctx, const char *name)
{
	uint64_t *oldest = ctx, n;

	if (sscanf(name, "log-%" SCNx64, &n) == 1 && n < *oldest)
		*oldest = n;
	return 0;
}

/* Where the log began is what the slots know, and not where it begins now. */
START_TEST(test_damaged_behind_trim)
{
	uint64_t oldest = UINT64_MAX;
	char path[64];

	begin();
	appends(12, 1, 200000);
	bed_commit(&bed, 12);
	bed_trim(&bed, 12);
	appends(12, 1, 200000); /* in the segments that were trimmed */
	idle();
	bed_crash(&bed);
	ck_assert_int_eq(io_list_dir(bed.host, bed_dir, find_oldest, &oldest), 0);
	ck_assert_uint_gt(oldest, 1);
	snprintf(path, sizeof(path), "/log/log-%016" PRIx64, oldest);
	ck_assert_int_eq(sim_flip_bit(bed.host, path, 30, 1), 0);
	expect_refused(ERR_CORRUPT, "the log's first frame is damaged, and with it an entry above index 1;");
	bed_fini(&bed);
}
END_TEST

UNIT_MAIN("wal_replica_restart", test_restart, test_restart_on_full_disk, test_trim_before_restart_is_done, test_hold,
	test_hold_and_restart, test_trim_is_bounded, test_damaged_behind_trim)
