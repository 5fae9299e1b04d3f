// SPDX-License-Identifier: Apache-2.0
/* An index made anew on a host that loses power. */
#include "chunkd/rebuild.h"

#include <stdio.h>
#include <string.h>
#include "chunkd/verify.h"
#include "common/io/io_backend.h"
#include "tests/lib/disk_bed.h"
#include "tests/lib/no_leaks.h"

struct rebuilding {
	struct bed *b;
	bool ended, stopped;
	int code;
	char text[256];
};

static void rebuilt(void *ctx, int code, const char *text)
{
	struct rebuilding *r = ctx;

	r->ended = true;
	r->code = code;
	snprintf(r->text, sizeof(r->text), "%s", text);
}

static void rebuild_run(void *ctx)
{
	struct rebuilding *r = ctx;

	rebuild_start(r->b->host,
		&(struct rebuild_options){
			.dir = "/disk", .backend = &kv_mem, .log_segment_bytes = MIB, .done = rebuilt, .ctx = r});
}

static void rebuild_stopped(void *ctx)
{
	struct rebuilding *r = ctx;

	r->stopped = true;
	sim_host_crash(r->b->host);
}

static bool is_over(void *ctx)
{
	const struct rebuilding *r = ctx;

	return r->ended || r->stopped;
}

/* Power fails at its nth sync, or if there are fewer, when it has ended (true). */
static bool rebuild_until(struct bed *b, uint64_t nth)
{
	struct rebuilding r = {.b = b};

	sim_stop_at_sync(b->host, nth, rebuild_stopped, &r);
	if (!sim_try(b->sim, rebuild_run, &r))
		rebuild_stopped(&r);
	ck_assert(sim_run(b->sim, is_over, &r, sim_now_ns(b->sim) + 60 * SECOND_NS));
	sim_stop_at_sync(b->host, 0, NULL, NULL);
	if (r.ended) {
		ck_assert_msg(r.code == 0, "%s", r.text);
		sim_host_crash(b->host);
	}
	sim_host_restart(b->host);
	return r.ended;
}

static int find_left_name(void *ctx, const char *name)
{
	uint64_t *greatest = ctx;
	unsigned long long sequence;

	if (sscanf(name, "rebuilt-%16llx", &sequence) == 1 && sequence > *greatest)
		*greatest = sequence;
	return 0;
}

/* What seals go on from is in a name, where the index was made anew. */
static void check_left_name(struct bed *b)
{
	uint64_t greatest = 0;

	ck_assert_int_eq(io_list_dir(b->host, "/disk", find_left_name, &greatest), 0);
	ck_assert_uint_lt(index_next_sequence(b->disk->index), greatest + ((uint64_t)1 << 52));
}

/* A rebuild whose nth sync does not come to pass, of a disk with an index or without. False: it has fewer syncs. */
static bool fail_at_sync(struct bed *b, uint64_t n, enum sim_loss loss, bool has_index, uint32_t *rebuilds, uint32_t *without)
{
	char lost[32];
	struct err err;
	bool ended;
	int rc;

	sim_set_loss(b->host, SIM_LOSS_ALL);
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	if (!has_index) {
		snprintf(lost, sizeof(lost), "/disk/lost-%u", *rebuilds);
		ck_assert_int_eq(io_rename(b->host, "/disk/index", lost), 0);
		ck_assert_int_eq(io_sync_dir(b->host, "/disk"), 0);
	}
	sim_set_loss(b->host, loss);
	ended = rebuild_until(b, n);
	++*rebuilds;
	rc = bed_try_open(b, &err);
	if (rc == ERR_NOENT && !ended) {
		++*without;
		sim_host_crash(b->host);
		sim_host_restart(b->host);
		ck_assert(rebuild_until(b, 0));
		rc = bed_try_open(b, &err);
	}
	ck_assert_msg(rc == 0, "%s", err.text);
	check_left_name(b);
	check_all(b);
	sim_set_loss(b->host, SIM_LOSS_ALL);
	crash_and_restart(b);
	check_all(b);
	return !ended;
}

/*
 * Power fails at each sync of a rebuild. Then there is no index, and the disk does not open: the rebuild is run again; or there is a whole one,
 * that of before or the new one, also after the next loss of power. One that had ended is there.
 */
START_TEST(test_rebuild_at_its_syncs)
{
	static const enum sim_loss losses[] = {
		SIM_LOSS_ALL, SIM_LOSS_NONE, SIM_LOSS_ANY, SIM_LOSS_TORN, SIM_LOSS_ANY, SIM_LOSS_TORN};
	enum { AT_THE_LAST = 30 };
	struct bed *b = mem_alloc(sizeof(*b));
	uint32_t without = 0, rebuilds = 0;
	uint64_t last = 0;
	bool ended = false;

	bed_init_with(b, 90, 16 * 1024 * MIB); /* each rebuild keeps the index of before */
	b->stop_writing = true;
	start_writers(b);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 10 * SECOND_NS));
	ck_assert_uint_gt(b->seal_count, 5);
	for (uint64_t n = 1; !ended; n += unit_step())
		for (size_t i = 0; i < 2 * ARRAY_COUNT(losses); i++)
			ended = !fail_at_sync(b, n, losses[i / 2], i % 2 == 0, &rebuilds, &without);
	/* The last one is of names, which come to the disk in any order or not at all: one case of several is that in which one is missed. */
	while (fail_at_sync(b, last + 1, SIM_LOSS_ALL, true, &rebuilds, &without))
		last++;
	for (int i = 0; i < AT_THE_LAST; i++)
		ck_assert(fail_at_sync(b, last, SIM_LOSS_ANY, false, &rebuilds, &without));
	ck_assert_uint_gt(without, 10 / unit_step());
	ck_assert_uint_gt(rebuilds, 8 * ARRAY_COUNT(losses) / unit_step());
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/*
 * A sector of a segment cannot be read, here and there: a chunk is missing if that was its trailer's, and the rest is there. Where it is many of
 * them it is no sector but the disk.
 */
START_TEST(test_bad_sectors)
{
	struct bed *b = mem_alloc(sizeof(*b));
	struct rebuilding r;
	uint32_t whole = 0, stepped_over = 0, small_unread = 0;
	uint64_t chunks;

	bed_init_with(b, 91, 16 * 1024 * MIB);
	b->stop_writing = true;
	start_writers(b);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 10 * SECOND_NS));
	chunks = index_count(b->disk->index);
	for (uint64_t n = 1; n < 40; n++) {
		for (uint64_t more = 0; more < VERIFY_READS; more++) {
			unsigned torn, grains, lost;
			struct err err;
			char *said;

			sim_host_crash(b->host);
			sim_host_restart(b->host);
			sim_faults_after(b->host, SIM_FAULT_READ, n, more, ERR_IO);
			r = (struct rebuilding){.b = b};
			rebuild_run(&r);
			ck_assert(sim_run(b->sim, is_over, &r, sim_now_ns(b->sim) + 60 * SECOND_NS));
			sim_faults_after(b->host, SIM_FAULT_READ, 0, 0, 0);
			ck_assert_msg(r.code == 0 || strstr(r.text, "/segments/") == NULL, "%s", r.text);
			if (r.code)
				continue;
			sim_host_crash(b->host);
			sim_host_restart(b->host);
			ck_assert_msg(bed_try_open(b, &err) == 0, "%s", err.text);
			said = strstr(r.text, " older ones, ");
			ck_assert_int_eq(sscanf(said, " older ones, %u small ones that are not there whole; %u grains and %u trailers or", &torn, &grains, &lost), 3);
			ck_assert_uint_le(torn, lost + grains);
			small_unread += torn;
			if (grains + lost == 0) {
				whole++;
				check_all(b);
				ck_assert_uint_eq(index_count(b->disk->index), chunks);
			} else {
				stepped_over++;
				ck_assert_uint_ge(index_count(b->disk->index) + 1 + more, chunks);
			}
		}
	}
	ck_assert_uint_gt(whole, 10);
	ck_assert_uint_gt(stepped_over, 10);
	ck_assert_uint_gt(small_unread, 0);
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	sim_faults_after(b->host, SIM_FAULT_READ, 20, 100000, ERR_IO);
	r = (struct rebuilding){.b = b};
	rebuild_run(&r);
	ck_assert(sim_run(b->sim, is_over, &r, sim_now_ns(b->sim) + 60 * SECOND_NS));
	ck_assert_int_eq(r.code, ERR_IO);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

static struct {
	const struct io_vtable *plain;
	int segment;
} weak;

static int64_t weak_pread(struct io *io, int fd, void *buf, size_t len, uint64_t offset)
{
	if (len == MIB)
		weak.segment = fd;
	return fd == weak.segment && len > FORMAT_GRAIN_BYTES ? ERR_IO : weak.plain->pread(io, fd, buf, len, offset);
}

/* Of a disk that reads a grain and no more at a time, small chunks that are longer are not there, and each of them counts. */
START_TEST(test_long_reads_that_fail)
{
	struct bed *b = mem_alloc(sizeof(*b));
	struct rebuilding r = {.b = b};
	struct io_vtable v;
	unsigned torn, grains, lost;

	bed_init_with(b, 92, 16 * 1024 * MIB);
	b->stop_writing = true;
	small_puts(b, 10, 20);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 10 * SECOND_NS));
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	weak.plain = b->host->v;
	weak.segment = -1;
	v = *weak.plain;
	v.pread = weak_pread;
	b->host->v = &v;
	rebuild_run(&r);
	b->host->v = weak.plain;
	ck_assert(sim_run(b->sim, is_over, &r, sim_now_ns(b->sim) + 60 * SECOND_NS));
	ck_assert_msg(r.code == 0, "%s", r.text);
	ck_assert_int_eq(sscanf(strstr(r.text, " older ones, "), " older ones, %u small ones that are not there whole; %u grains and %u trailers or", &torn, &grains, &lost), 3);
	ck_assert_uint_eq(torn, 16); /* of 100 bytes there are four */
	ck_assert_uint_eq(lost, torn);
	ck_assert_uint_eq(grains, 0);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

static void writers_write_once(struct bed *b, int writers)
{
	b->stop_writing = true;
	for (int i = 0; i < writers; i++)
		writer_next(b, i);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 10 * SECOND_NS));
}

static void rebuild_and_open(struct bed *b, uint64_t failing_read)
{
	struct rebuilding r = {.b = b};

	sim_host_crash(b->host);
	sim_host_restart(b->host);
	sim_fault_after(b->host, SIM_FAULT_READ, failing_read, ERR_IO);
	rebuild_run(&r);
	ck_assert(sim_run(b->sim, is_over, &r, sim_now_ns(b->sim) + 60 * SECOND_NS));
	sim_fault_after(b->host, SIM_FAULT_READ, 0, 0);
	ck_assert_msg(r.code == 0 || failing_read, "%s", r.text);
	if (r.code) /* it was no segment's */
		rebuild_and_open(b, 0);
	else
		crash_and_restart(b);
}

/* The newest chunk is alone of its start; it is no longer among those that must be there. Its sequence. */
static uint64_t write_newest(struct bed *b, bool rebuilt_before, struct copy_id *ret_copy)
{
	uint32_t seals;

	bed_init_with(b, 92, 16 * 1024 * MIB);
	for (int i = 0; i < 4; i++)
		writers_write_once(b, WRITERS);
	if (rebuilt_before)
		rebuild_and_open(b, 0);
	for (int i = 0; i < 4; i++)
		crash_and_restart(b);
	for (seals = b->seal_count; b->seal_count == seals;)
		writers_write_once(b, 1);
	b->seal_count--;
	*ret_copy = b->seals[b->seal_count].copy;
	return b->seals[b->seal_count].sequence;
}

/* Which read of a rebuild that has to fail so that its trailer is not found. */
static uint64_t newest_is_read(bool rebuilt_before)
{
	struct bed *b = mem_alloc(sizeof(*b));
	struct copy_id newest;
	struct index_row row;
	uint64_t n;

	write_newest(b, rebuilt_before, &newest);
	for (n = 0; index_get(b->disk->index, &newest, &row) == 0; n++) {
		ck_assert_uint_lt(n, 500);
		rebuild_and_open(b, n + 1);
	}
	sim_free(b->sim);
	mem_free(b);
	return n;
}

/*
 * The newest trailer of the disk cannot be read when the index is made anew; what is put then may lie where it does. The next time it can be read: what
 * was put since is the newer one.
 */
static void trailer_comes_back(bool rebuilt_before)
{
	struct bed *b = mem_alloc(sizeof(*b));
	uint64_t sequence, failing_read = newest_is_read(rebuilt_before);
	struct copy_id newest;
	struct index_row row;
	uint32_t seals;

	sequence = write_newest(b, rebuilt_before, &newest);
	seals = b->seal_count;
	rebuild_and_open(b, failing_read);
	ck_assert_int_eq(index_get(b->disk->index, &newest, &row), ERR_NOENT);
	for (uint32_t i = 0; i < seals; i++)
		ck_assert_int_eq(index_get(b->disk->index, &b->seals[i].copy, &row), 0);
	writers_write_once(b, WRITERS);
	ck_assert_uint_gt(b->seal_count, seals);
	ck_assert_uint_gt(b->seals[seals].sequence, sequence);
	rebuild_and_open(b, 0);
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}

START_TEST(test_trailer_that_comes_back)
{
	trailer_comes_back(false);
	trailer_comes_back(true);
}
END_TEST

/* A rebuild whose nth write or sync fails says so; the index of before is in place, or none, and the next rebuild makes one. False: it has fewer. */
static bool fails_at(struct bed *b, enum sim_fault what, uint64_t n, uint32_t *names_failed)
{
	struct rebuilding r = {.b = b};
	struct err err;
	int rc;

	sim_host_crash(b->host);
	sim_host_restart(b->host);
	sim_fault_after(b->host, what, n, ERR_IO);
	rebuild_run(&r);
	ck_assert(sim_run(b->sim, is_over, &r, sim_now_ns(b->sim) + 60 * SECOND_NS));
	sim_fault_after(b->host, what, 0, 0);
	ck_assert(r.code == 0 || r.text[0]);
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	rc = bed_try_open(b, &err);
	if (strstr(r.text, "/rebuilt-") != NULL) {
		++*names_failed;
		ck_assert_int_eq(rc, 0);
	}
	if (rc == ERR_NOENT && r.code) {
		rebuild_and_open(b, 0);
		rc = 0;
	}
	ck_assert_msg(rc == 0, "%s", err.text);
	check_all(b);
	return r.code != 0;
}

START_TEST(test_failed_writes)
{
	static const enum sim_fault faults[] = {SIM_FAULT_WRITE, SIM_FAULT_SYNC};
	struct bed *b = mem_alloc(sizeof(*b));
	uint32_t failed = 0, names_failed = 0;

	bed_init_with(b, 93, 16 * 1024 * MIB);
	for (int i = 0; i < 4; i++)
		writers_write_once(b, WRITERS);
	for (size_t i = 0; i < ARRAY_COUNT(faults); i++)
		for (uint64_t n = 1; n < 30; n++)
			failed += fails_at(b, faults[i], n, &names_failed);
	ck_assert_uint_gt(failed, 10);
	ck_assert_uint_gt(names_failed, 0);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

static void leave(struct bed *b, const char *path)
{
	int fd;

	ck_assert_int_eq(io_open(b->host, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	io_close(b->host, fd);
}

/* A name that no rebuild leaves would have sequences begin anew; what only looks like one counts for nothing. */
START_TEST(test_sequences_used_up)
{
	struct bed *b = mem_alloc(sizeof(*b));
	struct rebuilding r = {.b = b};

	bed_init_with(b, 94, 16 * 1024 * MIB);
	writers_write_once(b, WRITERS);
	leave(b, "/disk/rebuilt-fffffffffffffff");
	leave(b, "/disk/rebuilt-FFFFFFFFFFFFFFFF");
	rebuild_and_open(b, 0);
	check_all(b);
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	leave(b, "/disk/rebuilt-ffffffffffffffff");
	rebuild_run(&r);
	ck_assert(sim_run(b->sim, is_over, &r, sim_now_ns(b->sim) + 60 * SECOND_NS));
	ck_assert_int_eq(r.code, ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(r.text, "rebuilt-*"));
	crash_and_restart(b);
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/*
 * Its index is lost with the power, or with the process, amid small chunks. The one made anew names whole chunks only, and what is told of them then is true after
 * power has failed once more.
 */
static uint32_t rebuilt_amid_small_chunks(uint64_t seed, enum sim_loss loss)
{
	enum { PUTS = 12 };
	struct bed *b = MEM_NEW(struct bed);
	uint32_t found;

	bed_init_with(b, seed, 16 * 1024 * MIB);
	b->next_block = 100;
	b->stop_writing = true;
	small_puts(b, 1, 1); /* the segment is there */
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	sim_set_loss(b->host, loss);
	small_puts(b, 10, PUTS);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + seed * 10000);
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	ck_assert(rebuild_until(b, 0));
	bed_open(b);
	found = (uint32_t)index_count(b->disk->index);
	check_all(b);
	seal_again_and_lose_power(b, 10, PUTS);
	return found;
}

START_TEST(test_rebuilt_amid_small_chunks)
{
	uint32_t found = 0;

	for (uint64_t seed = 1; seed <= 120; seed += unit_step()) {
		found += rebuilt_amid_small_chunks(seed, SIM_LOSS_ANY);
		found += rebuilt_amid_small_chunks(seed, SIM_LOSS_TORN);
		found += rebuilt_amid_small_chunks(seed, SIM_LOSS_NONE);
	}
	ck_assert_uint_gt(found, 360 / unit_step());
}
END_TEST

static struct index_row found_row(uint64_t block, uint64_t sequence, uint32_t first, uint32_t grains, uint32_t length)
{
	return (struct index_row){.copy = {block, 1, 0}, .extent = {1, first, grains}, .length = length, .sequence = sequence};
}

/* What lies over another one is the newer of them, be it whole or not; of a copy it is the newest that is whole. */
START_TEST(test_which_rows_are_chosen)
{
	struct index_row rows[] = {
		found_row(1, 10, 0, 2, 100),   /* under the next one */
		found_row(2, 11, 1, 2, 0),     /* not whole */
		found_row(3, 20, 10, 2, 100),  /* whole, and again, not whole */
		found_row(3, 21, 20, 2, 0),
		found_row(4, 30, 30, 2, 100),  /* sealed twice */
		found_row(4, 31, 40, 2, 100),
		found_row(5, 29, 31, 2, 100),  /* under the first of them */
		found_row(6, 22, 21, 2, 100),  /* over what is not whole */
	};
	struct alloc alloc;

	alloc_init(&alloc);
	alloc_add_segment(&alloc, 1, ALLOC_SMALL, 100);
	ck_assert_uint_eq(rebuild_choose(rows, 0, &alloc), 0);
	ck_assert_uint_eq(rebuild_choose(rows, ARRAY_COUNT(rows), &alloc), 3);
	ck_assert_uint_eq(rows[0].sequence, 31);
	ck_assert_uint_eq(rows[1].sequence, 22);
	ck_assert_uint_eq(rows[2].sequence, 20);
	alloc_fini(&alloc);
}
END_TEST

UNIT_MAIN("rebuild_sim", test_which_rows_are_chosen, test_rebuilt_amid_small_chunks, test_rebuild_at_its_syncs, test_bad_sectors, test_long_reads_that_fail, test_trailer_that_comes_back, test_failed_writes,
	test_sequences_used_up)
