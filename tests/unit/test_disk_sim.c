/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk store on simulated disks that crash, fail and fill up. What must hold: every seal that was answered is there after the restart
 * with the right bytes; whatever else the index names is whole too; all other space is free.
 */
#include "chunkd/disk.h"

#include <string.h>
#include "common/io/io_backend.h"
#include "tests/lib/disk_bed.h"
#include "tests/lib/no_leaks.h"

static uint64_t crash_rounds(uint64_t seed)
{
	struct bed *b = mem_alloc(sizeof(*b));
	uint64_t sealed;

	bed_init(b, seed);
	for (int round = 0; round < 3; round++) {
		uint64_t life = sim_random(b->sim) % (40 * 1000000ull) + 100000;

		start_writers(b);
		sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + life);
		crash_and_restart(b);
		check_all(b);
	}
	sealed = b->seal_count;
	sim_free(b->sim);
	mem_free(b);
	return sealed;
}

START_TEST(test_crashes_at_random_points)
{
	uint64_t sealed = 0;

	for (uint64_t seed = 1; seed <= 6; seed += unit_step())
		sealed += crash_rounds(seed);
	ck_assert_uint_gt(sealed, 60 / unit_step()); /* else nothing was shown */
}
END_TEST

START_TEST(test_crashes_at_more_points)
{
	uint64_t sealed = 0;

	for (uint64_t seed = 101; seed <= 106; seed += unit_step())
		sealed += crash_rounds(seed);
	ck_assert_uint_gt(sealed, 60 / unit_step());
}
END_TEST

/* The nth write or sync fails: from then on nothing is acknowledged, and what was is there after the restart. */
static bool fail_at(struct bed *b, enum sim_fault what, uint64_t n)
{
	uint32_t sealed;

	sim_fault_after(b->host, what, n, ERR_IO);
	start_writers(b);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 30 * SECOND_NS));
	sim_fault_after(b->host, what, 0, 0);
	if (!b->disk->failed) {
		/* It hit the making of a segment: no upload could go on, but the disk is sound. */
		ck_assert_int_eq(b->last_failure, ERR_NO_EXTENT);
		crash_and_restart(b);
		check_all(b);
		return false;
	}
	ck_assert_int_eq(b->last_failure, ERR_DISK_FAILED);
	sealed = b->seal_count;
	writer_next(b, 0);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	ck_assert_uint_eq(b->seal_count, sealed);
	/* Reads go on. */
	if (sealed)
		check_chunk(b, &b->seals[0]);
	crash_and_restart(b);
	ck_assert_int_eq(b->disk->failed, 0);
	check_all(b);
	return true;
}

START_TEST(test_failed_writes_and_syncs_fail_the_disk)
{
	static const uint64_t points[] = {1, 2, 5, 9, 23};
	uint32_t writes = 0, syncs = 0;

	for (size_t i = 0; i < ARRAY_COUNT(points); i++) {
		struct bed *b = mem_alloc(sizeof(*b));

		bed_init(b, 1000 + i);
		/* Segments and superblock are made by other means than data: let them be there first. */
		b->stop_writing = true;
		start_writers(b);
		ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 10 * SECOND_NS));
		b->stop_writing = false;
		writes += fail_at(b, SIM_FAULT_WRITE, points[i]);
		syncs += fail_at(b, SIM_FAULT_SYNC, points[i]);
		sim_free(b->sim);
		mem_free(b);
	}
	ck_assert(writes >= 3 && syncs >= 2);
}
END_TEST

static bool has_failed(void *ctx)
{
	return ((struct bed *)ctx)->disk->failed != 0;
}

/* Nor is what was under way then, though its own write ended well: who was told of the failure may have been told for it. */
START_TEST(test_nothing_is_acknowledged_beside_a_failed_write)
{
	uint32_t failed = 0, under_way = 0;

	for (uint64_t n = 1; n <= 40; n += unit_step()) {
		struct bed *b = MEM_NEW(struct bed);
		uint32_t sealed;

		bed_init(b, 1100 + n);
		b->stop_writing = true;
		b->next_block = 100;
		small_puts(b, 1, 1); /* the segment is there */
		ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
		sim_fault_after(b->host, SIM_FAULT_WRITE, n, ERR_IO);
		for (uint64_t i = 0; i < 80 && !b->disk->failed; i++) {
			small_puts(b, 10 + i, 1);
			sim_run(b->sim, has_failed, b, sim_now_ns(b->sim) + 100000);
		}
		sim_fault_after(b->host, SIM_FAULT_WRITE, 0, 0);
		sealed = b->seal_count;
		failed += b->disk->failed != 0;
		under_way += b->disk->failed ? b->running : 0;
		ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
		ck_assert(b->disk->failed == 0 || b->seal_count == sealed);
		crash_and_restart(b);
		check_all(b);
		sim_free(b->sim);
		mem_free(b);
	}
	ck_assert_uint_gt(failed, 20 / unit_step());
	ck_assert_uint_gt(under_way, failed);
}
END_TEST

static void count_verified(void *ctx, enum log_level level, const char *line)
{
	const char *there = strstr(line, "last-seals-verified") ? strstr(line, "there=") : NULL;

	(void)level;
	if (there)
		*(uint32_t *)ctx += (uint32_t)strtoul(there + 6, NULL, 10);
}

/* What was written when a disk failed is never settled: the next start looks at it. */
START_TEST(test_chunks_of_a_failed_disk_are_looked_at)
{
	for (int fails = 0; fails < 2; fails++) {
		struct bed *b = MEM_NEW(struct bed);
		uint32_t verified = 0;

		bed_init(b, 1200);
		b->stop_writing = true;
		b->next_block = 10;
		small_puts(b, 1, 5);
		ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
		ck_assert_uint_eq(b->seal_count, 5);
		if (fails)
			disk_fail(b->disk, ERR_IO, "another write failed");
		sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + 5 * SECOND_NS);
		b->log = (struct log){.min_level = LOG_INFO, .write = count_verified, .ctx = &verified, .name = "test"};
		crash_and_restart(b);
		ck_assert_uint_eq(verified, fails ? 5 : 0);
		check_all(b);
		sim_free(b->sim);
		mem_free(b);
	}
}
END_TEST

static void put_one(struct bed *b, uint64_t block, uint32_t len)
{
	struct chunk_put *p = mem_alloc(sizeof(*p));

	chunk_put_init(p, b->disk, block, 0, len);
	p->ctx = b;
	p->done = writer_done;
	b->running = 1;
	b->stop_writing = true;
	b->last_failure = 0;
	chunk_put_step(p);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 10 * SECOND_NS));
}

static void bed_open_run(void *ctx)
{
	bed_open(ctx);
}

/*
 * The first start of a daemon ends at each of its syncs in turn, and `loss` befalls what it wrote. The next life goes on from that and seals a
 * chunk; when power fails then, the disk and the chunk are there.
 */
static void end_at_syncs_of_the_first_start(uint64_t seed, enum sim_loss loss)
{
	uint64_t nth = 0;
	bool is_open;

	do {
		struct bed *b = MEM_NEW(struct bed);

		b->log = (struct log){.min_level = LOG_ERROR, .write = no_log, .name = "test"};
		b->sim = sim_new(&(struct sim_options){.seed = seed});
		b->host = sim_host_add(b->sim, "chunkd-1", DISK_MIB * MIB);
		ck_assert_int_eq(io_mkdir(b->host, "/disk", 0700), 0);
		ck_assert_int_eq(io_sync_dir(b->host, "/"), 0);
		sim_set_loss(b->host, loss);
		sim_stop_at_sync(b->host, ++nth, NULL, NULL);
		is_open = sim_try(b->sim, bed_open_run, b);
		sim_stop_at_sync(b->host, 0, NULL, NULL);
		crash_and_restart(b);
		sim_set_loss(b->host, SIM_LOSS_ALL);
		b->next_block = 2;
		put_one(b, 1, 1000);
		ck_assert_int_eq(b->seal_count, 1);
		crash_and_restart(b);
		check_all(b);
		sim_free(b->sim);
		mem_free(b);
	} while (!is_open);
	ck_assert_uint_gt(nth, 6);
}

START_TEST(test_killed_at_syncs_of_the_first_start)
{
	end_at_syncs_of_the_first_start(70, SIM_LOSS_NONE);
}
END_TEST

/* Names that are not durable yet are lost or kept one by one: of a disk no superblock stays without its folders. */
START_TEST(test_power_lost_at_syncs_of_the_first_start)
{
	for (uint64_t seed = 200; seed < 216; seed += unit_step())
		end_at_syncs_of_the_first_start(seed, SIM_LOSS_ANY);
}
END_TEST

/* A sync that fails while a segment is made fails the disk, and leaves nothing that the next start trips over. */
START_TEST(test_failed_sync_of_a_new_segment)
{
	for (uint64_t n = 1; n <= 2; n++) {
		struct bed *b = mem_alloc(sizeof(*b));

		bed_init(b, 40 + n);
		b->next_block = 4;
		sim_fault_after(b->host, SIM_FAULT_SYNC, n, ERR_IO); /* of the file; of its directory */
		put_one(b, 1, 1000);
		ck_assert_int_eq(b->seal_count, 0);
		ck_assert_int_ne(b->disk->failed, 0);
		sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + 25 * SECOND_NS); /* the loop turns every 10 s */
		put_one(b, 2, 1 << 20);
		ck_assert_int_eq(b->last_failure, ERR_DISK_FAILED);
		sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + SECOND_NS);
		crash_and_restart(b);
		put_one(b, 3, 1 << 20);
		ck_assert_int_eq(b->seal_count, 1);
		check_all(b);
		sim_free(b->sim);
		mem_free(b);
	}
}
END_TEST

static void bed_closed(void *ctx)
{
	((struct bed *)ctx)->closed = true;
}

static bool is_closed(void *ctx)
{
	return ((struct bed *)ctx)->closed;
}

static struct {
	const struct bed *bed;
	const struct io_op *last;
	uint32_t seen;
} failing;

/* All workers for files have work until all else is closed; then the next sync fails. */
static void keep_worker(struct io_op *op)
{
	struct io *host = failing.bed->host;

	if (op == failing.last)
		sim_fault_after(host, SIM_FAULT_SYNC, 1, ERR_IO);
	for (int i = 0; op != failing.last && i < 50; i++)
		ck_assert_int_eq(io_write_file(host, "/other", "x", 1, 0600), 0);
}

static void worker_done(struct io_op *op)
{
	(void)op;
}

static void note_failure(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	if (!strstr(line, "disk-failed"))
		return;
	failing.seen++;
	ck_assert_ptr_null(failing.bed->disk->index);
}

/* Likewise while the disk is closed, when its index is gone already. */
START_TEST(test_failed_sync_of_a_new_segment_amid_a_stop)
{
	struct bed *b = mem_alloc(sizeof(*b));
	uint32_t workers = io__lane_workers(IO_LANE_FILE);
	struct io_op *kept = mem_zalloc((workers + 1) * sizeof(*kept));

	bed_init(b, 43);
	b->capacity_bytes = 96 * MIB; /* segments are made ahead */
	crash_and_restart(b);
	b->next_block = 4;
	b->stop_writing = true;
	b->log.write = note_failure;
	put_one(b, 1, 1 << 20);
	failing.bed = b;
	failing.seen = 0;
	failing.last = &kept[workers];
	for (uint32_t i = 0; i <= workers; i++) {
		io_prep_offload(&kept[i], IO_LANE_FILE, keep_worker, worker_done);
		io_submit(b->host, &kept[i]);
	}
	put_one(b, 2, 1 << 20);
	ck_assert_uint_eq(b->seal_count, 2);
	disk_close(b->disk, bed_closed, b);
	ck_assert(sim_run(b->sim, is_closed, b, sim_now_ns(b->sim) + 100 * SECOND_NS));
	ck_assert_uint_eq(failing.seen, 1);
	sim_fault_after(b->host, SIM_FAULT_SYNC, 0, 0);
	bed_open(b);
	put_one(b, 3, 1 << 20);
	check_all(b);
	sim_free(b->sim);
	mem_free(kept);
	mem_free(b);
}
END_TEST

/* Full by its capacity, then full by its file system: uploads are refused, nothing else breaks. */
START_TEST(test_full)
{
	struct bed *b = mem_alloc(sizeof(*b));
	uint32_t sealed;

	bed_init(b, 77);
	start_writers(b);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 60 * SECOND_NS));
	ck_assert_int_eq(b->last_failure, ERR_NO_EXTENT);
	ck_assert_int_eq(b->disk->failed, 0);
	sealed = b->seal_count;
	ck_assert_uint_gt(sealed, 20);
	/* A clean stop frees what was left open. */
	disk_close(b->disk, bed_closed, b);
	ck_assert(sim_run(b->sim, is_closed, b, sim_now_ns(b->sim) + SECOND_NS));
	bed_open(b);
	check_all(b);
	ck_assert_uint_eq(index_count(b->disk->index), sealed);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/* What keeps a segment from being made for a moment is waited for; what another class would lend comes back late. */
START_TEST(test_nothing_is_lent_for_a_moment)
{
	static const char in_the_way[] = "/disk/segments/new-00000001-small";
	struct bed *b = mem_alloc(sizeof(*b));

	bed_init(b, 81);
	b->next_block = 4;
	put_one(b, 1, 1 << 20);
	ck_assert_uint_eq(b->seal_count, 1);
	ck_assert_int_eq(io_mkdir(b->host, in_the_way, 0700), 0);
	put_one(b, 2, 1000);
	ck_assert_int_eq(b->last_failure, ERR_OVERLOADED);
	put_one(b, 2, 1000);
	ck_assert_uint_eq(b->seal_count, 1);
	ck_assert_int_eq(b->last_failure, ERR_OVERLOADED);
	ck_assert_int_eq(b->disk->failed, 0);
	ck_assert_int_eq(io_rename(b->host, in_the_way, "/disk/away"), 0);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + 3 * SECOND_NS);
	put_one(b, 2, 1000);
	ck_assert_uint_eq(b->seal_count, 2);
	ck_assert_uint_eq(b->seals[1].extent.segment, 1);
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/* Where segments can be made no more, uploads hear it at once, get what is there, and all is well again some time after that is mended. */
START_TEST(test_segments_that_cannot_be_made)
{
	static const char in_the_way[] = "/disk/segments/new-00000001-small";
	struct bed *b = mem_alloc(sizeof(*b));
	uint64_t from_ns;

	bed_init(b, 82);
	b->next_block = 13;
	put_one(b, 1, 1 << 20);
	ck_assert_int_eq(io_mkdir(b->host, in_the_way, 0700), 0);
	put_one(b, 2, 1000);
	ck_assert_int_eq(b->last_failure, ERR_OVERLOADED);
	ck_assert_int_eq(segments_stuck(b->disk->segments), 0);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + SECOND_NS / 2);
	put_one(b, 2, 1000); /* lent */
	ck_assert_uint_eq(b->seal_count, 2);
	ck_assert_int_ne(segments_stuck(b->disk->segments), 0);
	ck_assert_uint_eq(segments_free_bytes(b->disk->segments, 0) + (1 << 20) + 3 * 4096, segments_made_bytes(b->disk->segments));
	from_ns = sim_now_ns(b->sim);
	for (int i = 0; i < 8; i++) /* until nothing is left; nobody waits */
		put_one(b, 3 + (uint64_t)i, 2 << 20);
	ck_assert_int_eq(b->last_failure, ERR_NO_EXTENT);
	ck_assert_uint_lt(sim_now_ns(b->sim) - from_ns, SECOND_NS);
	ck_assert_int_eq(io_rename(b->host, in_the_way, "/disk/away"), 0);
	for (int i = 0; i < 5; i++) {
		segments_refresh(b->disk->segments, true);
		sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + SECOND_NS);
	}
	ck_assert_int_eq(segments_stuck(b->disk->segments), 0);
	ck_assert_uint_eq(segments_made_bytes(b->disk->segments), 2 * b->disk->sb.segment_bytes);
	put_one(b, 12, 2 << 20);
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/* Rows that point nowhere: the disk is refused, nothing of it stays open, and with what was missing it opens again. */
START_TEST(test_refused_index)
{
	static const char there[] = "/disk/segments/00000000-medium", away[] = "/disk/segments/away";
	struct bed *b = mem_alloc(sizeof(*b));
	struct disk_options o = {.dir = "/disk", .capacity_bytes = 64 * MIB, .backend = &kv_mem, .log = &b->log};
	struct err err = {0};
	struct disk *other;

	bed_init(b, 60);
	b->next_block = 2;
	put_one(b, 1, 1 << 20);
	disk_close(b->disk, bed_closed, b);
	ck_assert(sim_run(b->sim, is_closed, b, sim_now_ns(b->sim) + SECOND_NS));
	o.cluster.bytes[0] = 1;
	o.pool = bufpool_new(b->host, 40 * MIB);
	ck_assert_int_eq(io_rename(b->host, there, away), 0);
	ck_assert_int_eq(disk_open(b->host, &o, &other, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "no segment is"));
	ck_assert_int_eq(io_rename(b->host, away, there), 0);
	bed_open(b);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + SECOND_NS);
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/* Numbers of seals are never used twice, also where none of those given was recorded before the crash. */
START_TEST(test_sequences_only_rise)
{
	struct bed *b = mem_alloc(sizeof(*b));
	uint64_t last = 0;

	bed_init(b, 61);
	for (int i = 0; i < 6; i++) {
		uint64_t first = index_next_sequence(b->disk->index);

		ck_assert_uint_gt(first, last);
		for (int n = 0; n < 1000; n++)
			last = index_next_sequence(b->disk->index);
		if (i == 2) {
			put_one(b, b->next_block++, 1000);
			ck_assert_uint_eq(b->seal_count, 1);
			last = b->seals[0].sequence;
		}
		crash_and_restart(b);
	}
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

START_TEST(test_idle_uploads_are_dropped)
{
	struct bed *b = mem_alloc(sizeof(*b));
	struct chunk_put p;
	uint64_t before;

	bed_init(b, 5);
	chunk_put_init(&p, b->disk, 1, 0, 1 << 20);
	p.ctx = b;
	p.done = writer_done;
	b->running = 1;
	b->stop_writing = true;
	chunk_put_step(&p);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	before = segments_free_bytes(b->disk->segments, 0);
	chunk_put_init(&p, b->disk, 2, 0, 2 << 20);
	p.stop_before_seal = true;
	b->next_block = 3;
	chunk_put_step(&p);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + 50 * SECOND_NS);
	ck_assert_uint_eq(puts_count(b->disk->puts), 1);
	ck_assert_uint_lt(segments_free_bytes(b->disk->segments, 0), before);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + 40 * SECOND_NS);
	ck_assert_uint_eq(puts_count(b->disk->puts), 0);
	ck_assert_uint_eq(segments_free_bytes(b->disk->segments, 0), before);
	sim_free(b->sim);
	mem_free(b);
}
END_TEST

/* More readers at once than their trailers find memory for: none holds what another waits for. */
START_TEST(test_many_readers_with_lists)
{
	enum { READERS = 400, LEN = 300000 };
	struct bed *b = mem_alloc(sizeof(*b));
	struct chunk_get *gets = mem_zalloc(READERS * sizeof(*gets));
	uint8_t *want = mem_alloc(LEN), *out = mem_alloc(LEN);
	struct chunk_put p;

	bed_init(b, 8);
	chunk_put_init(&p, b->disk, 1, 0, LEN);
	p.ctx = b;
	p.done = writer_done;
	b->running = 1;
	b->stop_writing = true;
	chunk_put_step(&p);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	ck_assert_int_eq(p.code, 0);
	chunk_bed_bytes(&p.copy, want, LEN);
	b->running = READERS;
	for (int i = 0; i < READERS; i++) {
		ck_assert_int_eq(chunk_get_start(&gets[i], b->disk, &p.row, 0, UINT64_MAX, out), 0);
		gets[i].ctx = b;
		gets[i].done = reader_done;
	}
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + 60 * SECOND_NS));
	for (int i = 0; i < READERS; i++)
		ck_assert(gets[i].code == 0 && gets[i].had_list && gets[i].got == LEN);
	ck_assert_mem_eq(out, want, LEN);
	ck_assert_uint_eq(bufpool_held_bytes(b->disk->pool, BUFPOOL_GET), 0);
	sim_free(b->sim);
	mem_free(b);
	mem_free(gets);
	mem_free(want);
	mem_free(out);
}
END_TEST

/* A flood of small needs does not take the memory of large ones for ever. */
START_TEST(test_small_buffers_leave_room_for_large)
{
	enum { MANY = 1000 };
	struct bufpool_buf *bufs = mem_array(MANY, sizeof(*bufs));
	struct bed *b = mem_alloc(sizeof(*b));
	struct bufpool *pool;
	int count, n = 0;

	bed_init(b, 9);
	pool = b->disk->pool;
	for (int use = 0; use < BUFPOOL_USES; use++)
		while (n < MANY && bufpool_get(pool, use, 1000, &bufs[n]) == 0)
			n++;
	ck_assert_int_gt(n, 100);
	for (int i = 0; i < n; i++)
		bufpool_put(pool, &bufs[i]);
	for (count = 0; bufpool_get(pool, BUFPOOL_PUT, MIB, &bufs[count]) == 0; count++)
		;
	ck_assert_int_ge(count, 24); /* of the 30 that are the share of puts in 40 MiB */
	for (int i = 0; i < count; i++)
		bufpool_put(pool, &bufs[i]);
	sim_free(b->sim);
	mem_free(b);
	mem_free(bufs);
}
END_TEST

/* The same seed, the same events. */
static uint64_t hash_of(uint64_t seed)
{
	struct bed *b = mem_alloc(sizeof(*b));
	uint64_t hash;

	bed_init(b, seed);
	start_writers(b);
	sim_run(b->sim, never, NULL, sim_now_ns(b->sim) + 20 * 1000000ull);
	hash = sim_event_hash(b->sim);
	sim_free(b->sim);
	mem_free(b);
	return hash;
}

START_TEST(test_same_seed_same_events)
{
	ck_assert_uint_eq(hash_of(3), hash_of(3));
	ck_assert_uint_ne(hash_of(3), hash_of(4));
}
END_TEST

UNIT_MAIN("disk_sim", test_crashes_at_random_points, test_crashes_at_more_points,
	test_failed_writes_and_syncs_fail_the_disk, test_nothing_is_acknowledged_beside_a_failed_write, test_chunks_of_a_failed_disk_are_looked_at, test_full, test_nothing_is_lent_for_a_moment, test_segments_that_cannot_be_made, test_refused_index, test_sequences_only_rise,
	test_idle_uploads_are_dropped, test_killed_at_syncs_of_the_first_start, test_power_lost_at_syncs_of_the_first_start,
	test_failed_sync_of_a_new_segment, test_failed_sync_of_a_new_segment_amid_a_stop,
	test_many_readers_with_lists, test_small_buffers_leave_room_for_large, test_same_seed_same_events)
