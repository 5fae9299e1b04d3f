/* SPDX-License-Identifier: Apache-2.0 */
/* An index made anew from trailers names what the lost one named. */
#include "chunkd/rebuild.h"

#include "tests/lib/chunk_bed.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"

#define MIB ((uint64_t)1 << 20)

enum { CHUNKS = 12 };

struct bed {
	struct real_loop l;
	struct log log;
	struct bufpool *pool;
	struct disk *disk;
	struct index_row rows[CHUNKS];
	int code;
	char text[512];
};

static void no_log(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

static int bed_open(struct bed *b, struct err *err)
{
	struct disk_options o = {.dir = b->l.dir,
		.capacity_bytes = 64 * MIB,
		.segment_bytes = 8 * MIB,
		.backend = &kv_mem,
		.log_segment_bytes = MIB,
		.log = &b->log};
	int rc;

	o.cluster.bytes[0] = 1;
	o.pool = b->pool = bufpool_new(b->l.io, 40 * MIB);
	rc = disk_open(b->l.io, &o, &b->disk, err);
	if (rc < 0)
		bufpool_free(b->pool);
	return rc;
}

static void got(void *ctx)
{
	real_loop_got(&((struct bed *)ctx)->l);
}

static void bed_close(struct bed *b)
{
	b->l.expected = 1;
	disk_close(b->disk, got, b);
	real_loop_wait(&b->l);
	bufpool_free(b->pool);
}

static void put_done(struct chunk_put *p)
{
	got(p->ctx);
}

static void rebuilt(void *ctx, int code, const char *text)
{
	struct bed *b = ctx;

	b->code = code;
	snprintf(b->text, sizeof(b->text), "%s", text);
	got(b);
}

static int rebuild(struct bed *b)
{
	b->l.expected = 1;
	rebuild_start(b->l.io,
		&(struct rebuild_options){
			.dir = b->l.dir, .backend = &kv_mem, .log_segment_bytes = MIB, .done = rebuilt, .ctx = b});
	if (b->l.expected)
		real_loop_wait(&b->l);
	return b->code;
}

static void fill(struct bed *b)
{
	static const uint32_t lengths[] = {1, 70000, 200000, 2000000};

	for (int i = 0; i < CHUNKS; i++) {
		struct chunk_put p;

		chunk_put_init(&p, b->disk, (uint64_t)i + 1, (uint8_t)(i % 3), lengths[i % 4]);
		p.ctx = b;
		p.done = put_done;
		b->l.expected = 1;
		chunk_put_step(&p);
		real_loop_wait(&b->l);
		ck_assert_int_eq(p.code, 0);
		b->rows[i] = p.row;
		chunk_put_fini(&p);
	}
}

START_TEST(test_lost_index)
{
	char from[96], to[96];
	struct index_row row;
	struct bed b = {.log = {.min_level = LOG_ERROR, .write = no_log, .name = "test"}};
	struct err err;

	real_loop_init(&b.l);
	ck_assert_int_eq(bed_open(&b, &err), 0);
	fill(&b);
	ck_assert_int_eq(rebuild(&b), ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(b.text, "in use"));
	bed_close(&b);
	snprintf(from, sizeof(from), "%s/index", b.l.dir);
	snprintf(to, sizeof(to), "%s/lost", b.l.dir);
	ck_assert_int_eq(io_rename(b.l.io, from, to), 0);
	ck_assert_int_lt(bed_open(&b, &err), 0);
	ck_assert_int_eq(rebuild(&b), 0);
	ck_assert_msg(strstr(b.text, "found 12 chunks") != NULL, "%s", b.text);
	/* Once more, over one that is there. */
	ck_assert_int_eq(rebuild(&b), 0);
	ck_assert_msg(strstr(b.text, "index.old-1") != NULL, "%s", b.text);
	ck_assert_msg(bed_open(&b, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(index_count(b.disk->index), CHUNKS);
	for (int i = 0; i < CHUNKS; i++) {
		ck_assert_int_eq(index_get(b.disk->index, &b.rows[i].copy, &row), 0);
		ck_assert(chunk_bed_same_row(&row, &b.rows[i]));
	}
	/* Seals go on behind the highest that was found. */
	ck_assert_uint_gt(index_next_sequence(b.disk->index), b.rows[CHUNKS - 1].sequence);
	bed_close(&b);
	real_loop_fini(&b.l);
}
END_TEST

static void dropped(struct disk_drop *drop, int code)
{
	(void)code;
	got(drop->user);
}

START_TEST(test_newest_of_a_place_wins)
{
	struct disk_drop drop = {.done = dropped};
	struct bed b = {.log = {.min_level = LOG_ERROR, .write = no_log, .name = "test"}};
	struct index_row row;
	struct chunk_put p;
	struct err err;

	real_loop_init(&b.l);
	ck_assert_int_eq(bed_open(&b, &err), 0);
	fill(&b);
	/* Chunk 2 goes, a shorter one takes its place: the trailer of the old one still lies behind it. */
	drop.user = &b;
	b.l.expected = 1;
	ck_assert_int_eq(disk_drop(b.disk, &b.rows[2].copy, &drop), 0);
	real_loop_wait(&b.l);
	chunk_put_init(&p, b.disk, 100, 0, 100000);
	p.ctx = &b;
	p.done = put_done;
	b.l.expected = 1;
	chunk_put_step(&p);
	real_loop_wait(&b.l);
	ck_assert_uint_eq(p.row.extent.first, b.rows[2].extent.first);
	bed_close(&b);
	ck_assert_int_eq(rebuild(&b), 0);
	ck_assert_int_eq(bed_open(&b, &err), 0);
	ck_assert_uint_eq(index_count(b.disk->index), CHUNKS);
	ck_assert_int_eq(index_get(b.disk->index, &p.copy, &row), 0);
	ck_assert(chunk_bed_same_row(&row, &p.row));
	ck_assert_int_eq(index_get(b.disk->index, &b.rows[2].copy, &row), ERR_NOENT);
	chunk_put_fini(&p);
	bed_close(&b);
	real_loop_fini(&b.l);
}
END_TEST

START_TEST(test_not_a_disk)
{
	struct bed b = {0};

	real_loop_init(&b.l);
	ck_assert_int_eq(rebuild(&b), ERR_NOENT);
	ck_assert_ptr_nonnull(strstr(b.text, "a disk of craton-chunkd?"));
	real_loop_fini(&b.l);
}
END_TEST

UNIT_MAIN("rebuild", test_lost_index, test_newest_of_a_place_wins, test_not_a_disk)
