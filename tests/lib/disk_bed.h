/* SPDX-License-Identifier: Apache-2.0 */
/* disk_bed: a disk of chunks on a simulated host, writers that put chunk after chunk there, and what must hold after each restart. */
#ifndef TESTS_LIB_DISK_BED_H
#define TESTS_LIB_DISK_BED_H

#include "chunkd/disk.h"
#include "common/io/io_sim.h"
#include "tests/lib/chunk_bed.h"
#include "tests/lib/unit.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND_NS 1000000000ull

enum { WRITERS = 10, SEALS_MAX = 400, DISK_MIB = 128 };

struct bed {
	struct sim *sim;
	struct io *host;
	struct log log;
	struct disk *disk;
	struct chunk_put *puts[WRITERS];
	uint64_t next_block, capacity_bytes; /* 0: 64 MiB */
	bool stop_writing, closed;
	uint32_t running, failed_puts, dropped;
	int last_failure;
	struct index_row seals[SEALS_MAX];
	uint32_t seal_count;
};

static inline void no_log(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

static inline int bed_try_open(struct bed *b, struct err *err)
{
	struct disk_options o = {.dir = "/disk",
		.capacity_bytes = b->capacity_bytes ? b->capacity_bytes : 64 * MIB,
		.segment_bytes = 8 * MIB,
		.backend = &kv_mem,
		.log_segment_bytes = MIB,
		.log = &b->log};
	int rc = io_mkdir(b->host, "/disk", 0700);

	if (rc == 0)
		rc = io_sync_dir(b->host, "/");
	ck_assert(rc == 0 || rc == ERR_EXIST);
	o.cluster.bytes[0] = 1;
	o.pool = bufpool_new(b->host, 40 * MIB);
	rc = disk_open(b->host, &o, &b->disk, err);
	b->running = 0;
	b->stop_writing = b->closed = false;
	return rc;
}

static inline void bed_open(struct bed *b)
{
	struct err err = {0};
	int rc = bed_try_open(b, &err);

	ck_assert_msg(rc == 0, "seed's disk does not open: %s", err.text);
}

static inline void bed_init_with(struct bed *b, uint64_t seed, uint64_t disk_bytes)
{
	memset(b, 0, sizeof(*b));
	b->log = (struct log){.min_level = LOG_ERROR, .write = no_log, .name = "test"};
	b->sim = sim_new(&(struct sim_options){.seed = seed});
	b->host = sim_host_add(b->sim, "chunkd-1", disk_bytes);
	b->next_block = 1;
	bed_open(b);
}

static inline void bed_init(struct bed *b, uint64_t seed)
{
	bed_init_with(b, seed, DISK_MIB * MIB);
}

/* ---- writers: each puts one chunk after the other ---- */

static inline void writer_next(struct bed *b, int i);

static inline void writer_done(struct chunk_put *p)
{
	struct bed *b = p->ctx;

	b->running--;
	if (p->code == 0 && !p->stop_before_seal) {
		ck_assert_uint_lt(b->seal_count, SEALS_MAX);
		b->seals[b->seal_count++] = p->row;
	} else if (p->code < 0) {
		b->failed_puts++;
		b->last_failure = p->code;
	} else {
		/* Left open: the crash, or the next order to drop, ends it. */
		if (sim_random(b->sim) % 2 && put_drop(b->disk->puts, &p->copy) == 0)
			b->dropped++;
	}
	for (int i = 0; i < WRITERS; i++) {
		if (b->puts[i] != p)
			continue;
		b->puts[i] = NULL;
		if (!b->stop_writing && p->code == 0)
			writer_next(b, i);
	}
	/* p is not freed here: its last cell's `done` is still on the stack. */
}

static inline void writer_next(struct bed *b, int i)
{
	static const uint32_t lengths[] = {1, 5000, 16384, 65536, 65537, 300000, MIB, MIB + 1, 1700000};
	struct chunk_put *p = mem_alloc(sizeof(*p));
	uint64_t r = sim_random(b->sim);

	chunk_put_init(p, b->disk, b->next_block++, r % 3, lengths[r / 3 % ARRAY_COUNT(lengths)]);
	p->announced += r / 100 % 3 * 40000;
	p->seal_apart = r / 1000 % 4 == 0;
	p->burst = r / 100000 % 2;
	p->stop_before_seal = r / 10000 % 8 == 0 && p->len > p->cell_bytes;
	p->ctx = b;
	p->done = writer_done;
	b->puts[i] = p;
	b->running++;
	chunk_put_step(p);
}

/* So many small chunks at once, of blocks from `first` on. */
static inline void small_puts(struct bed *b, uint64_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct chunk_put *p = mem_alloc(sizeof(*p));

		chunk_put_init(p, b->disk, first + i, 0, 100 + 5000 * (i % 5));
		p->ctx = b;
		p->done = writer_done;
		b->running++;
		chunk_put_step(p);
	}
}

static inline bool none_running(void *ctx)
{
	return ((struct bed *)ctx)->running == 0;
}

static inline bool never(void *ctx)
{
	(void)ctx;
	return false;
}

/* ---- checks ---- */

static inline void get_done(struct chunk_get *g)
{
	*(bool *)g->ctx = true;
}

static inline void reader_done(struct chunk_get *g)
{
	((struct bed *)g->ctx)->running--;
}

static inline bool is_true(void *ctx)
{
	return *(bool *)ctx;
}

static inline void check_chunk(struct bed *b, const struct index_row *row)
{
	struct chunk_get *g = MEM_NEW(struct chunk_get);
	uint8_t *want = mem_alloc(row->length), *out = mem_zalloc(row->length);
	bool done = false;

	chunk_bed_bytes(&row->copy, want, row->length);
	ck_assert_int_eq(chunk_get_start(g, b->disk, row, 0, UINT64_MAX, out), 0);
	g->ctx = &done;
	g->done = get_done;
	ck_assert(sim_run(b->sim, is_true, &done, sim_now_ns(b->sim) + 10 * SECOND_NS));
	ck_assert_int_eq(g->code, 0);
	ck_assert_int_eq(memcmp(out, want, row->length), 0);
	ck_assert(g->had_list);
	ck_assert_uint_eq(stripe_combine(row->copy.block, row->copy.index, row->length, g->list), row->crc);
	mem_free(g);
	mem_free(want);
	mem_free(out);
}

/* After a restart: answered seals are honoured; all the index names is whole; the rest is free. */
static inline void check_all(struct bed *b)
{
	uint64_t held = 0, found = 0, made = segments_made_bytes(b->disk->segments), unmade;
	struct index_row row;

	for (uint32_t i = 0; i < b->seal_count; i++) {
		ck_assert_int_eq(index_get(b->disk->index, &b->seals[i].copy, &row), 0);
		ck_assert(chunk_bed_same_row(&row, &b->seals[i]));
	}
	for (uint64_t block = 1; block < b->next_block; block++) {
		for (uint8_t index = 0; index < 3; index++) {
			if (index_get(b->disk->index, &(struct copy_id){block, 1, index}, &row) < 0)
				continue;
			check_chunk(b, &row);
			found++;
			held += (uint64_t)row.extent.grains * FORMAT_GRAIN_BYTES;
		}
	}
	ck_assert_uint_eq(found, index_count(b->disk->index));
	unmade = (segments_capacity_bytes(b->disk->segments) - made) / b->disk->sb.segment_bytes *
		b->disk->sb.segment_bytes;
	ck_assert_uint_eq(segments_free_bytes(b->disk->segments, 0) - unmade, made - held);
}

static inline void crash_and_restart(struct bed *b)
{
	sim_host_crash(b->host);
	sim_host_restart(b->host);
	bed_open(b);
}

/* All of small_puts once more, after a start: whatever is answered is true after power has failed. Ends the bed. */
static inline void seal_again_and_lose_power(struct bed *b, uint64_t first, uint32_t count)
{
	b->seal_count = 0;
	b->stop_writing = true;
	small_puts(b, first, count);
	ck_assert(sim_run(b->sim, none_running, b, sim_now_ns(b->sim) + SECOND_NS));
	ck_assert_uint_eq(b->seal_count, count);
	sim_set_loss(b->host, SIM_LOSS_ALL);
	crash_and_restart(b);
	check_all(b);
	sim_free(b->sim);
	mem_free(b);
}

static inline void start_writers(struct bed *b)
{
	for (int i = 0; i < WRITERS; i++)
		writer_next(b, i);
}

#endif
