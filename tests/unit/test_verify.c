/* SPDX-License-Identifier: Apache-2.0 */
/* What a start of a disk looks at, of small chunks that were written beside their records, and what it makes of what it finds. */
#include "chunkd/verify.h"

#include <string.h>
#include "tests/lib/disk_bed.h"
#include "tests/lib/no_leaks.h"

enum { PUTS = 12 };

static struct {
	uint32_t verified, gone;
} lines;

static void count_drop(struct disk_drop *drop, int code)
{
	ck_assert_int_eq(code, 0);
	--*(int *)drop->user;
}

static bool is_zero(void *ctx)
{
	return *(int *)ctx == 0;
}

/* The same chunks were there before and lie, dropped, where they come to lie again. */
static void put_and_drop(struct bed *b)
{
	struct disk_drop drops[PUTS];
	int left = 0;

	small_puts(b, 10, PUTS);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	for (int i = 0; i < PUTS; i++) {
		drops[i] = (struct disk_drop){.done = count_drop, .user = &left};
		left += disk_drop(b->disk, &(struct copy_id){10 + (uint64_t)i, 1, 0}, &drops[i]) == 0;
	}
	ck_assert_int_eq(left, PUTS);
	ck_assert(sim_run(b->sim, is_zero, &left, sim_now_ns(b->sim) + SECOND_NS));
	b->seal_count -= PUTS;
}

/*
 * Ends the life that puts small chunks after `life_ns`, and what it has left befalls `loss`; then the next one, which is told to seal
 * them all once more, by power loss. All that was answered in either is there. Returns how many rows went.
 */
static void note_line(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	lines.verified += strstr(line, "last-seals-verified") != NULL;
	lines.gone += strstr(line, "last-seal-gone") != NULL;
}

static uint32_t two_lives(uint64_t seed, enum sim_loss loss, uint64_t life_ns)
{
	struct bed *b = MEM_NEW(struct bed);
	uint32_t rows, gone;

	bed_init(b, seed);
	b->next_block = 100;
	b->stop_writing = true;
	small_puts(b, 1, 1); /* the segment is there */
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	if (seed % 2)
		put_and_drop(b);
	b->log = (struct log){.min_level = LOG_INFO, .write = note_line, .name = "test"};
	sim_set_loss(b->host, loss);
	small_puts(b, 10, PUTS);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + life_ns);
	crash_and_restart(b);
	rows = (uint32_t)index_count(b->disk->index);
	b->stop_writing = true;
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + SECOND_NS / 10);
	gone = rows - (uint32_t)index_count(b->disk->index);
	check_all(b);
	seal_again_and_lose_power(b, 10, PUTS);
	return gone;
}

static void many_lives(enum sim_loss loss, uint32_t least_gone)
{
	uint32_t gone = 0;

	memset(&lines, 0, sizeof(lines));
	for (uint64_t seed = 1; seed <= 120; seed += unit_step())
		gone += two_lives(seed, loss, seed * 10000);
	ck_assert_uint_ge(gone, least_gone);
	ck_assert_uint_eq(lines.gone, gone);
	ck_assert_uint_gt(lines.verified, 100 / unit_step());
}

START_TEST(test_power_lost_amid_small_chunks)
{
	many_lives(SIM_LOSS_ANY, 5 / unit_step());
	many_lives(SIM_LOSS_ALL, 5 / unit_step());
}
END_TEST

START_TEST(test_killed_amid_small_chunks)
{
	many_lives(SIM_LOSS_NONE, 0);
}
END_TEST

static void puts_that_are_unsettled(struct bed *b, uint64_t seed, uint32_t count)
{
	bed_init(b, seed);
	b->next_block = 100;
	b->stop_writing = true;
	small_puts(b, 10, count);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	ck_assert_uint_eq(b->seal_count, count);
}

/* A read that fails once costs no chunk, and no start. */
START_TEST(test_a_read_that_fails)
{
	uint32_t failed_starts = 0, reads = 40;

	for (uint32_t n = 1; n <= reads; n++) {
		struct bed *b = MEM_NEW(struct bed);
		struct err err = {0};

		puts_that_are_unsettled(b, 300, 8);
		sim_host_crash(b->host);
		sim_host_restart(b->host);
		sim_fault_after(b->host, SIM_FAULT_READ, n, ERR_IO);
		if (bed_try_open(b, &err) < 0) { /* of its superblock, log or table */
			failed_starts++;
			crash_and_restart(b);
		}
		sim_fault_after(b->host, SIM_FAULT_READ, 0, 0);
		check_all(b);
		sim_free(b->sim);
		mem_free(b);
	}
	ck_assert_uint_lt(failed_starts, reads - 8);
}
END_TEST

/* The page cache shows what it has failed to write: what is found there is written again. And what keeps a read from being tried says nothing of the chunk. */
START_TEST(test_verify_through_the_page_cache)
{
	struct bed *b = MEM_NEW(struct bed);
	struct err err = {0};
	struct verify v;

	puts_that_are_unsettled(b, 303, 1);
	for (int buffered = 0; buffered < 2; buffered++) {
		verify_init(&v, b->host, b->disk->segments, &b->disk->trailer_key, &b->log, "/disk", buffered);
		sim_fault_after(b->host, SIM_FAULT_WRITE, 1, ERR_IO);
		ck_assert_int_eq(verify_chunk(&v, &b->seals[0], &err), buffered ? ERR_IO : 1);
		sim_fault_after(b->host, SIM_FAULT_WRITE, 0, 0);
		ck_assert_int_eq(verify_chunk(&v, &b->seals[0], &err), 1);
		sim_fault_after(b->host, SIM_FAULT_READ, 1, ERR_IO);
		ck_assert_int_eq(verify_chunk(&v, &b->seals[0], &err), 1);
		sim_fault_after(b->host, SIM_FAULT_READ, 1, ERR_TIMEDOUT);
		ck_assert_int_eq(verify_chunk(&v, &b->seals[0], &err), 1);
		sim_faults_after(b->host, SIM_FAULT_READ, 1, VERIFY_READS - 1, ERR_TIMEDOUT);
		ck_assert_int_eq(verify_chunk(&v, &b->seals[0], &err), ERR_TIMEDOUT);
		sim_fault_after(b->host, SIM_FAULT_READ, 1, ERR_NOMEM);
		ck_assert_int_eq(verify_chunk(&v, &b->seals[0], &err), ERR_NOMEM);
		ck_assert_int_eq(verify_end(&v, &err), 0);
		ck_assert_uint_eq(v.gone, 0);
		verify_fini(&v);
	}
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/* After a crash, with all reads of the chunks failing that are there: those behind the first n of the start. */
static int open_unreadable(struct bed *b, uint64_t seed, uint32_t count, uint64_t n, struct err *err)
{
	int rc;

	puts_that_are_unsettled(b, seed, count);
	b->log = (struct log){.min_level = LOG_INFO, .write = note_line, .name = "test"};
	lines.gone = 0;
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	sim_faults_after(b->host, SIM_FAULT_READ, n, (uint64_t)count * VERIFY_READS - 1, ERR_IO);
	rc = bed_try_open(b, err);
	sim_fault_after(b->host, SIM_FAULT_READ, 0, 0);
	return rc;
}

/* A chunk that cannot be read is not there: who comes again is not told that it is. If it is many, it is the disk. */
START_TEST(test_chunks_that_cannot_be_read)
{
	enum { FEW = 8, MANY = VERIFY_UNREADABLE + 8 };
	struct bed *b = MEM_NEW(struct bed);
	struct err err = {0};
	uint64_t n = 1;

	while (open_unreadable(b, 301, FEW, n, &err) < 0 || lines.gone < FEW) {
		sim_free(b->sim);
		ck_assert_uint_lt(++n, 60);
	}
	b->seal_count = 0;
	b->stop_writing = true;
	small_puts(b, 10, FEW);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	ck_assert_uint_eq(b->seal_count, FEW);
	check_all(b);
	sim_free(b->sim);

	ck_assert_int_eq(open_unreadable(b, 301, MANY, n, &err), ERR_IO);
	ck_assert_ptr_nonnull(strstr(err.text, "cannot be read"));
	crash_and_restart(b);
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

UNIT_MAIN("verify", test_a_read_that_fails, test_verify_through_the_page_cache, test_chunks_that_cannot_be_read, test_power_lost_amid_small_chunks,
	test_killed_amid_small_chunks)
