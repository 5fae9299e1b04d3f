/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a replica: what is read back, and a disk that fails. */
#include "tests/lib/replica_log.h"

struct reader {
	struct wal_read read;
	uint64_t next, entries, bytes;
	int code;
	bool done;
	const char *expected_file;
};

static void on_read(struct wal_read *read, int code)
{
	struct reader *r = CONTAINER_OF(read, struct reader, read);
	uint64_t index, term;
	struct slice data;
	int fd;

	r->code = code;
	r->done = true;
	r->next = read->from;
	while (code == 0 && wal_read_next(read, &index, &term, &data)) {
		ck_assert_uint_eq(index, r->next++);
		ck_assert_uint_eq(term, bed.now.entries[index].term);
		ck_assert_mem_eq(data.data, &bed.now.entries[index].stamp, 8);
		r->entries++;
		r->bytes += data.len;
	}
	if (r->expected_file) {
		ck_assert_int_eq(io_open(bed.host, r->expected_file, 0, 0, &fd), 0);
		io_close(bed.host, fd);
	}
	wal_read_end(read);
}

static bool read_is_done(void *ctx)
{
	return ((struct reader *)ctx)->done;
}

static int read_range(struct reader *r, uint64_t from, uint64_t to, uint32_t max_bytes)
{
	memset(r, 0, sizeof(*r));
	r->read.from = from;
	r->read.to = to;
	r->read.max_bytes = max_bytes;
	r->read.done = on_read;
	return wal_read(bed.wal, &r->read);
}

static void read_and_wait(struct reader *r, uint64_t from, uint64_t to, uint32_t max_bytes)
{
	ck_assert_int_eq(read_range(r, from, to, max_bytes), 0);
	ck_assert(sim_run(bed.sim, read_is_done, r, sim_now_ns(bed.sim) + 1000000000));
}

START_TEST(test_read)
{
	struct reader r;

	begin();
	for (int i = 0; i < 30; i++)
		bed_append(&bed, 1, 84); /* 100 bytes each; some share a frame */
	bed_settle(&bed);
	appends(3, 1, 100000);
	read_and_wait(&r, 1, 30, 1 << 20);
	ck_assert_uint_eq(r.entries, 30);
	read_and_wait(&r, 7, 9, 1 << 20);
	ck_assert_uint_eq(r.entries, 3);
	read_and_wait(&r, 7, 30, 450);
	ck_assert_uint_eq(r.entries, 4);
	read_and_wait(&r, 31, 33, 10); /* one goes, whatever its size */
	ck_assert_uint_eq(r.entries, 1);
	read_and_wait(&r, 31, 33, 250000);
	ck_assert_uint_eq(r.entries, 2);
	ck_assert_int_eq(read_range(&r, 34, 40, 100), ERR_NOENT);
	ck_assert_int_eq(read_range(&r, 0, 40, 100), ERR_NOENT);
	bed_append(&bed, 1, 10);
	ck_assert_int_eq(read_range(&r, 34, 40, 100), ERR_AGAIN);
	bed_settle(&bed);
	/* cut off while they are read */
	ck_assert_int_eq(read_range(&r, 20, 25, 10000), 0);
	bed_cut(&bed, 22);
	ck_assert(sim_run(bed.sim, read_is_done, &r, sim_now_ns(bed.sim) + 1000000000));
	ck_assert_uint_eq(r.entries, 2);
	ck_assert_int_eq(read_range(&r, 20, 25, 10000), 0);
	bed_cut(&bed, 20);
	ck_assert(sim_run(bed.sim, read_is_done, &r, sim_now_ns(bed.sim) + 1000000000));
	ck_assert_int_eq(r.code, ERR_NOENT);
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* A frame that rots while the log is open: whoever reads it ends the log, with the entry's index. */
START_TEST(test_read_of_damage)
{
	struct reader r;
	struct wal_frame f;
	uint64_t at;

	begin();
	appends(5, 1, 10);
	at = find_frame(3, &f);
	ck_assert_uint_eq(f.first_index, 3);
	ck_assert_int_eq(sim_flip_bit(bed.host, segment_1, at + 140, 1), 0);
	read_and_wait(&r, 2, 2, 100000);
	ck_assert_int_eq(r.code, 0);
	read_and_wait(&r, 2, 4, 100000);
	ck_assert_int_eq(r.code, ERR_CORRUPT);
	bed_run_for(&bed, 1000000);
	ck_assert_int_eq(bed.fatal, ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(bed.fatal_text, "index 3 "));
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* A segment that is read from is not used again before the read has ended. */
START_TEST(test_read_and_trim)
{
	struct reader r;

	begin();
	appends(6, 1, 200000); /* one in the second segment */
	bed_commit(&bed, 6);
	ck_assert_int_eq(read_range(&r, 1, 4, 1 << 20), 0);
	r.expected_file = segment_1;
	bed_trim(&bed, 6);
	ck_assert_uint_eq(wal_first_index(bed.wal), 6);
	bed_append(&bed, 1, 200000);
	bed_append(&bed, 1, 200000); /* past the half of it: another segment is wanted */
	ck_assert(sim_run(bed.sim, read_is_done, &r, sim_now_ns(bed.sim) + 1000000000));
	ck_assert_int_eq(r.code, 0);
	bed_settle(&bed);
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* The nth write, sync or read of the disk fails, for all n: what was said stays true, and the next open works. */
START_TEST(test_faults)
{
	static const enum sim_fault faults[] = {SIM_FAULT_WRITE, SIM_FAULT_SYNC, SIM_FAULT_READ};
	uint32_t hit = 0;

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		for (uint64_t n = 1;; n++) {
			struct reader r = {.done = true};
			bool failed;

			bed_init(&bed, n);
			sim_fault_after(bed.host, faults[i], n, ERR_IO);
			failed = bed_try_open(&bed) != 0;
			if (!failed) {
				bed_check(&bed);
				bed_save(&bed, 1, 1);
				bed_settle(&bed);
			}
			if (!failed && !bed.fatal) {
				for (int k = 0; k < 3; k++)
					bed_append(&bed, 1, 100);
				bed_settle(&bed);
			}
			if (!failed && !bed.fatal)
				read_range(&r, 1, 3, 1000);
			if (!failed && !bed.fatal) {
				bed_cut(&bed, 2);
				bed_append(&bed, 1, 100);
				bed_settle(&bed);
			}
			if (!failed && !bed.fatal) {
				bed_restart(&bed, 9, 1);
				bed_append(&bed, 1, 100);
				bed_settle(&bed);
			}
			if (!failed) {
				bed_close(&bed);
				ck_assert(r.done);
				failed = bed.fatal != 0;
			}
			sim_fault_after(bed.host, faults[i], 0, 0);
			bed_crash(&bed);
			bed_open(&bed);
			bed_close(&bed);
			bed_fini(&bed);
			if (!failed)
				break;
			hit++;
		}
	}
	ck_assert_uint_gt(hit, 20);
}
END_TEST

UNIT_MAIN("wal_read", test_read, test_read_of_damage, test_read_and_trim, test_faults)
