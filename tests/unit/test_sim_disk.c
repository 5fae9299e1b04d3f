/* SPDX-License-Identifier: Apache-2.0 */
/* The disks of the simulator: what a crash keeps, faults, and room. */
#include "tests/lib/sim_world.h"
#include "tests/lib/unit.h"

enum { SECTOR = 4096, SEEDS = 60 };

/* How many bytes at the start of the sector are `c`, if all others are `rest`; -1: something else is there. */
static int prefix_of(const uint8_t *sector, uint8_t c, uint8_t rest)
{
	int n = 0;

	while (n < SECTOR && sector[n] == c)
		n++;
	for (int i = n; i < SECTOR; i++)
		if (sector[i] != rest)
			return -1;
	return n;
}

/* ---- durability ---- */

START_TEST(test_crash_keeps_what_is_synced)
{
	static uint8_t a[SECTOR], b[SECTOR], got[SECTOR];
	int kept = 0, lost = 0, torn = 0;

	memset(a, 'a', SECTOR);
	memset(b, 'b', SECTOR);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = sim_world(seed);
		struct world_op write = {0}, sync = {0};
		int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE), n;

		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		start_write(&w, &write, fd, a, SECTOR, 0, 0);
		WORLD_WAIT(&w, &write);
		start_write(&w, &write, fd, a, SECTOR, SECTOR, 0);
		WORLD_WAIT(&w, &write);
		start_sync(&w, &sync, fd);
		WORLD_WAIT(&w, &sync);
		/* the second sector is written again, without a sync; a third with IO_DSYNC */
		start_write(&w, &write, fd, b, SECTOR, SECTOR, 0);
		WORLD_WAIT(&w, &write);
		start_write(&w, &write, fd, b, SECTOR, 2 * SECTOR, IO_DSYNC);
		WORLD_WAIT(&w, &write);
		sim_host_crash(w.io);
		ck_assert(!sim_host_is_up(w.io));
		sim_host_restart(w.io);
		fd = open_file(w.io, "/f", 0);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, 0), SECTOR);
		ck_assert_int_eq(prefix_of(got, 'a', 0), SECTOR);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, 2 * SECTOR), SECTOR);
		ck_assert_int_eq(prefix_of(got, 'b', 0), SECTOR);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, SECTOR), SECTOR);
		n = prefix_of(got, 'b', 'a');
		ck_assert_int_ge(n, 0);
		ck_assert_int_eq(n % 512, 0);
		kept += n == SECTOR;
		lost += n == 0;
		torn += n > 0 && n < SECTOR;
		sim_free(w.sim);
	}
	ck_assert_int_gt(kept, 0);
	ck_assert_int_gt(lost, 0);
	ck_assert_int_gt(torn, 0);
}
END_TEST

/* A sync submitted together with a write does not cover it; one submitted after its completion does. */
START_TEST(test_sync_covers_completed_writes_only)
{
	static uint8_t a[SECTOR], got[SECTOR];
	int lost = 0, trials = 0;

	memset(a, 'a', SECTOR);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = sim_world(seed);
		struct world_op write = {0}, sync = {0};
		int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE);

		ck_assert_int_eq(io_allocate(w.io, fd, 0, SECTOR), 0);
		ck_assert_int_eq(io_fdatasync(w.io, fd), 0);
		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		start_write(&w, &write, fd, a, SECTOR, 0, 0);
		start_sync(&w, &sync, fd);
		WORLD_WAIT(&w, &write, &sync);
		/* else the write came after the sync's end, and nobody would take it for covered */
		trials += write.done_at < sync.done_at;
		sim_host_crash(w.io);
		sim_host_restart(w.io);
		fd = open_file(w.io, "/f", 0);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, 0), SECTOR);
		lost += write.done_at < sync.done_at && prefix_of(got, 'a', 0) != SECTOR;
		sim_free(w.sim);
	}
	ck_assert_int_gt(trials, 0);
	ck_assert_int_gt(lost, 0);
}
END_TEST

/*
 * A sector written again while a sync of its first content is under way: that content is durable when the sync is
 * done.
 */
START_TEST(test_sync_survives_rewrite)
{
	static uint8_t a[SECTOR], b[SECTOR], got[SECTOR];
	int pure = 0;

	memset(a, 'a', SECTOR);
	memset(b, 'b', SECTOR);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = sim_world(seed);
		struct world_op write = {0}, sync = {0}, sync2 = {0};
		int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE), n;

		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		start_write(&w, &write, fd, a, SECTOR, 0, 0);
		WORLD_WAIT(&w, &write);
		start_sync(&w, &sync, fd);
		start_write(&w, &write, fd, b, SECTOR, 0, 0);
		WORLD_WAIT(&w, &write);
		if (seed % 2) {
			/* a later sync, not awaited, must not take the first one's promise away */
			start_sync(&w, &sync2, fd);
			WORLD_WAIT(&w, &sync);
		}
		WORLD_WAIT(&w, &sync);
		sim_host_crash(w.io);
		sim_host_restart(w.io);
		fd = open_file(w.io, "/f", 0);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, 0), SECTOR);
		n = prefix_of(got, 'b', 'a');
		ck_assert_int_ge(n, 0);
		pure += n == 0;
		sim_free(w.sim);
	}
	ck_assert_int_gt(pure, 0);
}
END_TEST

START_TEST(test_names_need_sync_dir)
{
	int found = 0, missing = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = sim_world(seed);
		int fd, rc;

		ck_assert_int_eq(io_mkdir(w.io, "/d", 0755), 0);
		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		io_close(w.io, open_file(w.io, "/d/safe", IO_OPEN_WRITE | IO_OPEN_CREATE));
		ck_assert_int_eq(io_sync_dir(w.io, "/d"), 0);
		fd = open_file(w.io, "/d/loose", IO_OPEN_WRITE | IO_OPEN_CREATE);
		ck_assert_int_eq(io_pwrite(w.io, fd, "x", 1, 0), 1);
		ck_assert_int_eq(io_fdatasync(w.io, fd), 0);
		sim_host_crash(w.io);
		sim_host_restart(w.io);
		io_close(w.io, open_file(w.io, "/d/safe", 0));
		rc = io_open(w.io, "/d/loose", 0, 0, &fd);
		ck_assert(rc == 0 || rc == ERR_NOENT);
		found += rc == 0;
		missing += rc != 0;
		sim_free(w.sim);
	}
	ck_assert_int_gt(found, 0);
	ck_assert_int_gt(missing, 0);
}
END_TEST

static void replace_file(struct io_op *op)
{
	struct world *w = CONTAINER_OF(op, struct world_op, op)->w;

	ck_assert_int_eq(io_write_file(w->io, "/d/f", "new content", 11, 0600), 0);
	/* later changes of the directory that are not synced */
	ck_assert_int_eq(io_rename(w->io, "/d/g", "/d/h"), 0);
}

/* io_write_file is atomic and durable; a rename that was not synced happened or did not, and never loses the file. */
START_TEST(test_rename_is_atomic)
{
	int old_names = 0, new_names = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = sim_world(seed);
		struct world_op work = {0};
		bool has_g, has_h;
		char *text;
		size_t len;
		int fd;

		ck_assert_int_eq(io_mkdir(w.io, "/d", 0755), 0);
		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		ck_assert_int_eq(io_write_file(w.io, "/d/f", "old", 3, 0600), 0);
		ck_assert_int_eq(io_write_file(w.io, "/d/g", "g", 1, 0600), 0);
		io_prep_offload(&work.op, IO_LANE_FILE, replace_file, world_done);
		world_submit(&w, &work);
		WORLD_WAIT(&w, &work);
		sim_host_crash(w.io);
		sim_host_restart(w.io);
		ck_assert_int_eq(io_read_file(w.io, "/d/f", 100, &text, &len), 0);
		ck_assert_str_eq(text, "new content");
		mem_free(text);
		has_g = io_open(w.io, "/d/g", 0, 0, &fd) == 0;
		has_h = io_open(w.io, "/d/h", 0, 0, &fd) == 0;
		ck_assert(has_g != has_h);
		old_names += has_g;
		new_names += has_h;
		sim_free(w.sim);
	}
	ck_assert_int_gt(old_names, 0);
	ck_assert_int_gt(new_names, 0);
}
END_TEST

/* A write that was under way at the crash reached the disk, or did not. */
START_TEST(test_crash_during_write)
{
	static uint8_t a[SECTOR], got[SECTOR];
	int there = 0, absent = 0;

	memset(a, 'a', SECTOR);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = sim_world(seed);
		struct world_op write = {0};
		int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE);

		ck_assert_int_eq(io_allocate(w.io, fd, 0, SECTOR), 0);
		ck_assert_int_eq(io_fdatasync(w.io, fd), 0);
		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		start_write(&w, &write, fd, a, SECTOR, 0, IO_DSYNC);
		run_for(&w, 10000);
		ck_assert_int_eq(write.done_count, 0);
		sim_host_crash(w.io);
		ck_assert(!io_pending(&write.op));
		run_for(&w, 1000000000);
		ck_assert_int_eq(write.done_count, 0);
		sim_host_restart(w.io);
		fd = open_file(w.io, "/f", 0);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, 0), SECTOR);
		ck_assert_int_ge(prefix_of(got, 'a', 0), 0);
		there += got[0] == 'a';
		absent += got[0] == 0;
		sim_free(w.sim);
	}
	ck_assert_int_gt(there, 0);
	ck_assert_int_gt(absent, 0);
}
END_TEST

/* ---- space ---- */

START_TEST(test_no_space)
{
	struct world w = sim_world(1);
	struct world_op write = {0};
	uint64_t total, unused, before;
	static uint8_t zeros[SECTOR];
	int fd = open_file(w.io, "/big", IO_OPEN_WRITE | IO_OPEN_CREATE), other;

	ck_assert_int_eq(io_disk_space(w.io, "/", &total, &before), 0);
	ck_assert_uint_eq(total, 16 << 20);
	ck_assert_int_eq(io_allocate(w.io, fd, 0, 15 << 20), 0);
	ck_assert_int_eq(io_allocate(w.io, fd, 0, 17 << 20), ERR_NOSPC);
	ck_assert_int_eq(io_disk_space(w.io, "/", &total, &unused), 0);
	ck_assert_uint_eq(unused, 1 << 20);
	other = open_file(w.io, "/other", IO_OPEN_WRITE | IO_OPEN_CREATE);
	ck_assert_int_eq(io_allocate(w.io, other, 0, 1 << 20), 0);
	start_write(&w, &write, other, zeros, 1, 1 << 20, 0);
	WORLD_WAIT(&w, &write);
	ck_assert_int_eq(write.op.result, ERR_NOSPC);
	/* where blocks are reserved, writes go on */
	start_write(&w, &write, fd, zeros, SECTOR, 10 << 20, 0);
	WORLD_WAIT(&w, &write);
	ck_assert_int_eq(write.op.result, SECTOR);
	ck_assert_int_eq(io_pwrite(w.io, fd, "x", 1, (uint64_t)1 << 60), ERR_FBIG);
	io_close(w.io, fd);
	ck_assert_int_eq(io_unlink(w.io, "/big"), 0);
	ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
	ck_assert_int_eq(io_disk_space(w.io, "/", &total, &unused), 0);
	ck_assert_uint_eq(unused, 15 << 20);
	/* somebody else takes it, and gives it back */
	sim_disk_leave(w.io, 1 << 20);
	ck_assert_int_eq(io_disk_space(w.io, "/", &total, &unused), 0);
	ck_assert_uint_eq(unused, 1 << 20);
	ck_assert_int_eq(io_allocate(w.io, other, 0, 3 << 20), ERR_NOSPC);
	ck_assert_int_eq(io_allocate(w.io, other, 0, 2 << 20), 0);
	sim_disk_leave(w.io, UINT64_MAX);
	ck_assert_int_eq(io_allocate(w.io, other, 0, 3 << 20), 0);
	sim_free(w.sim);
}
END_TEST

/* What is cut off gives its room back, and no crash brings it back, whatever it makes of the rest. */
START_TEST(test_truncate)
{
	static uint8_t a[3 * SECTOR], got[SECTOR];
	uint64_t total, before, unused, bytes;

	memset(a, 'a', sizeof(a));
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = sim_world(seed);
		int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE);

		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		ck_assert_int_eq(io_disk_space(w.io, "/", &total, &before), 0);
		ck_assert_int_eq(io_pwrite(w.io, fd, a, sizeof(a), 0), sizeof(a));
		if (seed % 2)
			ck_assert_int_eq(io_fdatasync(w.io, fd), 0);
		ck_assert_int_eq(io_pwrite(w.io, fd, a, SECTOR, SECTOR), SECTOR);
		ck_assert_int_eq(io_truncate(w.io, fd, SECTOR + 512), 0);
		ck_assert_int_eq(io_disk_space(w.io, "/", &total, &unused), 0);
		ck_assert_uint_eq(before - unused, 2 * SECTOR);
		sim_host_crash(w.io);
		sim_host_restart(w.io);
		fd = open_file(w.io, "/f", IO_OPEN_WRITE);
		ck_assert_int_eq(io_size(w.io, fd, &bytes), 0);
		ck_assert(bytes == SECTOR + 512 || (bytes == 0 && seed % 2 == 0));
		ck_assert_int_eq(io_allocate(w.io, fd, 0, 3 * SECTOR), 0);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, SECTOR), SECTOR);
		for (int i = 512; i < SECTOR; i++)
			ck_assert_int_eq(got[i], 0);
		ck_assert_int_eq(io_pread(w.io, fd, got, SECTOR, 2 * SECTOR), SECTOR);
		ck_assert_int_eq(prefix_of(got, 0, 0), SECTOR);
		sim_free(w.sim);
	}
}
END_TEST

/* ---- faults ---- */

START_TEST(test_faults_by_countdown)
{
	struct world w = sim_world(1);
	struct world_op op = {0};
	char byte;
	int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE);

	sim_fault_after(w.io, SIM_FAULT_WRITE, 3, ERR_IO);
	sim_fault_after(w.io, SIM_FAULT_READ, 1, ERR_IO);
	sim_fault_after(w.io, SIM_FAULT_SYNC, 1, ERR_NOSPC);
	for (int i = 1; i <= 4; i++) {
		start_write(&w, &op, fd, "x", 1, 0, 0);
		WORLD_WAIT(&w, &op);
		ck_assert_int_eq(op.op.result, i == 3 ? ERR_IO : 1);
	}
	ck_assert_int_eq(io_pread(w.io, fd, &byte, 1, 0), ERR_IO);
	ck_assert_int_eq(io_pread(w.io, fd, &byte, 1, 0), 1);
	start_sync(&w, &op, fd);
	WORLD_WAIT(&w, &op);
	ck_assert_int_eq(op.op.result, ERR_NOSPC);
	start_sync(&w, &op, fd);
	WORLD_WAIT(&w, &op);
	ck_assert_int_eq(op.op.result, 0);
	sim_free(w.sim);
}
END_TEST

/* After a failed sync a second one that succeeds promises nothing for the same data. */
START_TEST(test_failed_sync_forgets)
{
	int lost = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct world w = sim_world(seed);
		struct world_op sync = {0};
		char byte = 0;
		int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE);

		ck_assert_int_eq(io_allocate(w.io, fd, 0, SECTOR), 0);
		ck_assert_int_eq(io_fdatasync(w.io, fd), 0);
		ck_assert_int_eq(io_sync_dir(w.io, "/"), 0);
		ck_assert_int_eq(io_pwrite(w.io, fd, "x", 1, 0), 1);
		sim_fault_after(w.io, SIM_FAULT_SYNC, 1, ERR_IO);
		ck_assert_int_eq(io_fdatasync(w.io, fd), ERR_IO);
		ck_assert_int_eq(io_pread(w.io, fd, &byte, 1, 0), 1);
		ck_assert_int_eq(byte, 'x');
		start_sync(&w, &sync, fd);
		WORLD_WAIT(&w, &sync);
		ck_assert_int_eq(sync.op.result, 0);
		sim_host_crash(w.io);
		sim_host_restart(w.io);
		fd = open_file(w.io, "/f", 0);
		ck_assert_int_eq(io_pread(w.io, fd, &byte, 1, 0), 1);
		lost += byte != 'x';
		sim_free(w.sim);
	}
	ck_assert_int_gt(lost, 0);
}
END_TEST

START_TEST(test_slow_disk_and_flipped_bit)
{
	struct world w = sim_world(1);
	struct world_op op = {0};
	uint64_t start;
	char byte;
	int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE);

	sim_disk_slow(w.io, 100);
	start = sim_now_ns(w.sim);
	start_write(&w, &op, fd, "A", 1, 5, IO_DSYNC);
	WORLD_WAIT(&w, &op);
	ck_assert_uint_ge(sim_now_ns(w.sim) - start, 3000000);
	ck_assert_int_eq(sim_flip_bit(w.io, "/f", 5, 1), 0);
	ck_assert_int_eq(io_pread(w.io, fd, &byte, 1, 5), 1);
	ck_assert_int_eq(byte, 'A' ^ 2);
	ck_assert_int_eq(sim_read_raw(w.io, "/f", &byte, 1, 5), 1);
	ck_assert_int_eq(byte, 'A' ^ 2);
	ck_assert_int_eq(sim_flip_bit(w.io, "/f", 6, 1), ERR_RANGE);
	ck_assert_int_eq(sim_flip_bit(w.io, "/g", 0, 1), ERR_NOENT);
	sim_free(w.sim);
}
END_TEST

START_TEST(test_direct_files_want_alignment)
{
	struct world w = sim_world(1);
	struct world_op op = {0};
	uint8_t *buf = io_buffer_alloc(w.io, 2 * SECTOR);
	int fd = open_file(w.io, "/f", IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_DIRECT);

	for (int i = 0; i < 2 * SECTOR; i++)
		ck_assert_int_eq(buf[i], 0);
	start_write(&w, &op, fd, buf, SECTOR, SECTOR, 0);
	WORLD_WAIT(&w, &op);
	ck_assert_int_eq(op.op.result, SECTOR);
	start_write(&w, &op, fd, buf + 1, SECTOR, 0, 0);
	WORLD_WAIT(&w, &op);
	ck_assert_int_eq(op.op.result, ERR_INVAL);
	start_write(&w, &op, fd, buf, SECTOR, 512, 0);
	WORLD_WAIT(&w, &op);
	ck_assert_int_eq(op.op.result, ERR_INVAL);
	start_write(&w, &op, fd, buf, 512, 0, 0);
	WORLD_WAIT(&w, &op);
	ck_assert_int_eq(op.op.result, ERR_INVAL);
	io_buffer_free(w.io, buf, 2 * SECTOR);
	sim_free(w.sim);
}
END_TEST

UNIT_MAIN("sim_disk", test_crash_keeps_what_is_synced, test_sync_covers_completed_writes_only, test_sync_survives_rewrite,
	test_names_need_sync_dir, test_rename_is_atomic, test_crash_during_write, test_no_space, test_truncate,
	test_faults_by_countdown, test_failed_sync_forgets, test_slow_disk_and_flipped_bit, test_direct_files_want_alignment)
