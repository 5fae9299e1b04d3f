/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of a replica's log: whose it is, what it voted for. */
#include "tests/lib/replica_log.h"

/* One slot may rot, whichever it is, and nothing goes back; both, and the replica is out. */
START_TEST(test_slots)
{
	for (int slot = 0; slot < 2; slot++) {
		begin();
		bed_save(&bed, 5, 3);
		bed_settle(&bed);
		bed_crash(&bed);
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, (uint64_t)slot * WAL_META_BYTES + 60, 2), 0);
		bed_open(&bed);
		ck_assert_uint_eq(wal_meta(bed.wal)->term, 5);
		ck_assert_uint_eq(wal_meta(bed.wal)->vote, 3);
		bed_crash(&bed);
		/* the open has mended it */
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, (uint64_t)!slot * WAL_META_BYTES + 200, 2), 0);
		bed_open(&bed);
		bed_crash(&bed);
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, 60, 2), 0);
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, WAL_META_BYTES + 60, 2), 0);
		expect_refused(ERR_CORRUPT, "both slots are damaged");
		bed_fini(&bed);
	}
}
END_TEST

static uint32_t slot_syncs;
static uint64_t generations[WAL_META_SLOTS];

static void on_slot_sync(struct replica_bed *b, const char *path)
{
	uint8_t both[WAL_META_SLOTS * WAL_META_BYTES];
	struct wal_meta meta;
	uint32_t changed = 0;

	(void)b;
	if (strcmp(path, meta_path) != 0)
		return;
	get(meta_path, both, sizeof(both), 0);
	for (int i = 0; i < WAL_META_SLOTS; i++) {
		ck_assert_int_eq(wal_meta_decode(both + i * WAL_META_BYTES, &meta), 0);
		changed += meta.generation != generations[i];
		generations[i] = meta.generation;
	}
	ck_assert_uint_le(changed, 1);
	slot_syncs += changed; /* an open also syncs what it finds */
}

/* One slot is durable before the other is touched: no loss of power can damage both, however a disk tears what it writes. */
START_TEST(test_slots_one_by_one)
{
	begin();
	generations[0] = generations[1] = wal_meta(bed.wal)->generation;
	bed.synced = on_slot_sync;
	bed_save(&bed, 2, 3);
	bed_settle(&bed);
	ck_assert_uint_eq(slot_syncs, 2);
	bed_restart(&bed, 5, 2);
	bed_settle(&bed);
	ck_assert_uint_eq(slot_syncs, 4);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(slot_syncs, 6);
	bed_fini(&bed);
}
END_TEST

static void stopped(void *ctx)
{
	sim_host_crash(((struct replica_bed *)ctx)->host);
}

static void try_open(void *ctx)
{
	ck_assert_int_eq(bed_try_open(ctx), 0);
}

static bool is_down(void *ctx)
{
	(void)ctx;
	return !sim_host_is_up(bed.host);
}

static uint8_t found_slots[WAL_META_SLOTS * WAL_META_BYTES];

static void on_first_slot_sync(struct replica_bed *b, const char *path)
{
	uint8_t both[sizeof(found_slots)];

	if (strcmp(path, meta_path) != 0)
		return;
	get(meta_path, both, sizeof(both), 0);
	ck_assert_mem_eq(both, found_slots, sizeof(both));
	b->synced = NULL;
	slot_syncs++;
}

/*
 * Killed between the write of a slot and its sync: the next open makes durable what it found before it writes over the other one, or both could be
 * torn when the power fails then.
 */
START_TEST(test_slot_written_and_not_synced)
{
	begin();
	slot_syncs = 0;
	sim_set_loss(bed.host, SIM_LOSS_NONE);
	sim_stop_at_sync(bed.host, 1, stopped, &bed);
	bed_save(&bed, 2, 3);
	ck_assert(sim_run(bed.sim, is_down, NULL, UINT64_MAX));
	bed_crash(&bed);
	get(meta_path, found_slots, sizeof(found_slots), 0);
	ck_assert_mem_ne(found_slots, found_slots + WAL_META_BYTES, WAL_META_BYTES);
	bed.synced = on_first_slot_sync;
	bed_open(&bed);
	ck_assert_uint_eq(slot_syncs, 1);
	ck_assert_uint_eq(wal_meta(bed.wal)->term, 2);
	bed_fini(&bed);
}
END_TEST

START_TEST(test_whose_log)
{
	struct wal_replica replica = {.cluster = "of these tests", .replica = 4};
	uint8_t both[WAL_META_SLOTS * WAL_META_BYTES];

	begin();
	appends(2, 1, 10);
	bed_crash(&bed);
	ck_assert_int_eq(bed_open_as(&bed, &replica), ERR_WRONG_CLUSTER);
	ck_assert_ptr_nonnull(strstr(bed.err.text, "replica 3 of this cluster"));
	replica.replica = 3;
	replica.cluster[0]++;
	ck_assert_int_eq(bed_open_as(&bed, &replica), ERR_WRONG_CLUSTER);
	ck_assert_int_eq(bed_open_as(&bed, NULL), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(bed.err.text, "a group of replicas"));
	get(meta_path, both, sizeof(both), 0);
	ck_assert_int_eq(io_unlink(bed.host, meta_path), 0);
	expect_refused(ERR_CORRUPT, "no slots");
	ck_assert_int_eq(io_write_file(bed.host, meta_path, both, WAL_META_BYTES, 0600), 0);
	expect_refused(ERR_CORRUPT, "4096 bytes");
	ck_assert_int_eq(io_write_file(bed.host, meta_path, both, sizeof(both), 0600), 0);
	bed_open(&bed);
	bed_fini(&bed);
}
END_TEST

/* A plain log is not taken for that of a replica, nor made where one was being founded. */
START_TEST(test_plain_log)
{
	static const uint64_t slots_made = 2; /* syncs: of the slots' bytes and of their name */

	bed_init(&bed, 7);
	sim_stop_at_sync(bed.host, slots_made + 1, stopped, &bed);
	ck_assert(!sim_try(bed.sim, try_open, &bed));
	bed_crash(&bed);
	ck_assert_int_eq(bed_open_as(&bed, NULL), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(bed.err.text, "/log/meta: the log is one of a group of replicas"));
	ck_assert_int_eq(io_unlink(bed.host, meta_path), 0);
	ck_assert_int_eq(bed_open_as(&bed, NULL), 0);
	wal_abandon(bed.wal);
	expect_refused(ERR_CORRUPT, "not one of a group");
	ck_assert_int_eq(bed_open_as(&bed, NULL), 0);
	bed_fini(&bed);
}
END_TEST

/* A second process finds it locked, and has changed nothing. */
START_TEST(test_one_process)
{
	uint8_t before[WAL_META_SLOTS * WAL_META_BYTES], after[sizeof(before)];
	struct wal *first;

	begin();
	appends(2, 1, 10);
	idle();
	first = bed.wal;
	get(meta_path, before, sizeof(before), 0);
	expect_refused(ERR_BUSY, "/log/meta: cannot lock: another process uses it");
	get(meta_path, after, sizeof(after), 0);
	ck_assert_mem_eq(before, after, sizeof(before));
	bed.wal = first;
	appends(2, 1, 10); /* that one goes on */
	bed_crash(&bed);
	bed_open(&bed);
	bed_fini(&bed);
}
END_TEST

UNIT_MAIN("wal_slots", test_slots, test_slots_one_by_one, test_slot_written_and_not_synced, test_whose_log,
	test_plain_log, test_one_process)
