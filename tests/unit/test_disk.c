/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks through put, get and drop on a disk of real files. */
#include "chunkd/disk.h"

#include "tests/lib/chunk_bed.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

struct bed {
	struct real_loop l;
	struct log log;
	struct bufpool *pool;
	struct disk *disk;
	struct disk_options o;
};

static void no_log(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

static void bed_open(struct bed *b)
{
	struct err err = {0};

	b->pool = bufpool_new(b->l.io, 64 * MIB);
	b->o.pool = b->pool;
	ck_assert_msg(disk_open(b->l.io, &b->o, &b->disk, &err) == 0, "%s", err.text);
}

static void bed_closed(void *ctx)
{
	real_loop_got(&((struct bed *)ctx)->l);
}

static void bed_close(struct bed *b)
{
	b->l.expected = 1;
	disk_close(b->disk, bed_closed, b);
	real_loop_wait(&b->l);
	bufpool_free(b->pool);
}

static void bed_init(struct bed *b)
{
	memset(b, 0, sizeof(*b));
	real_loop_init(&b->l);
	b->log = (struct log){.min_level = LOG_ERROR, .write = no_log, .name = "test"};
	b->o = (struct disk_options){.dir = b->l.dir,
		.capacity_bytes = 64 * MIB,
		.segment_bytes = 8 * MIB,
		.backend = &kv_mem,
		.log_segment_bytes = MIB,
		.log = &b->log};
	memset(b->o.cluster.bytes, 7, sizeof(b->o.cluster.bytes));
	bed_open(b);
}

static void bed_fini(struct bed *b)
{
	bed_close(b);
	real_loop_fini(&b->l);
}

static void put_finished(struct chunk_put *p)
{
	real_loop_got(&((struct bed *)p->ctx)->l);
}

static void get_finished(struct chunk_get *g)
{
	real_loop_got(&((struct bed *)g->ctx)->l);
}

static int run_put(struct bed *b, struct chunk_put *p)
{
	p->ctx = b;
	b->l.expected = 1;
	p->done = put_finished;
	chunk_put_step(p);
	real_loop_wait(&b->l);
	return p->code;
}

static int put(struct bed *b, uint64_t block, uint8_t index, uint32_t len, struct index_row *ret_row)
{
	struct chunk_put p;
	int rc;

	chunk_put_init(&p, b->disk, block, index, len);
	rc = run_put(b, &p);
	if (ret_row)
		*ret_row = p.row;
	chunk_put_fini(&p);
	return rc;
}

static void check_range(struct bed *b, const struct index_row *row, uint64_t offset, uint64_t len)
{
	static struct chunk_get g;
	uint8_t *want = mem_alloc(row->length), *out = mem_zalloc(row->length);
	uint32_t units = stripe_unit_count(row->length);
	uint64_t expected = len < row->length - offset ? len : row->length - offset;

	chunk_bed_bytes(&row->copy, want, row->length);
	ck_assert_int_eq(chunk_get_start(&g, b->disk, row, offset, len, out), 0);
	g.ctx = b;
	g.done = get_finished;
	b->l.expected = 1;
	real_loop_wait(&b->l);
	ck_assert_int_eq(g.code, 0);
	ck_assert_uint_eq(g.got, expected);
	ck_assert_int_eq(memcmp(out, want + offset, expected), 0);
	ck_assert(g.had_list);
	ck_assert_uint_eq(stripe_combine(row->copy.block, row->copy.index, row->length, g.list), row->crc);
	ck_assert_uint_le(units, LIMIT_UNITS_PER_CHUNK);
	mem_free(want);
	mem_free(out);
}

static uint64_t free_of(struct bed *b)
{
	return segments_free_bytes(b->disk->segments, 0) -
		(segments_capacity_bytes(b->disk->segments) - segments_made_bytes(b->disk->segments)) /
			b->disk->sb.segment_bytes * b->disk->sb.segment_bytes;
}

START_TEST(test_put_get_restart_get)
{
	static const uint32_t lengths[] = {
		1, 4096, 16384, 16385, 65536, 65537, 1 << 20, (1 << 20) + 1, 3500000, 5 << 20};
	struct index_row rows[ARRAY_COUNT(lengths)], again;
	struct bed b;

	bed_init(&b);
	for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
		ck_assert_int_eq(put(&b, 100 + i, i % 3, lengths[i], &rows[i]), 0);
		ck_assert_uint_eq(rows[i].length, lengths[i]);
		check_range(&b, &rows[i], 0, UINT64_MAX);
	}
	bed_close(&b);
	bed_open(&b);
	ck_assert_uint_eq(index_count(b.disk->index), ARRAY_COUNT(lengths));
	for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
		ck_assert_int_eq(index_get(b.disk->index, &rows[i].copy, &again), 0);
		ck_assert(chunk_bed_same_row(&again, &rows[i]));
		check_range(&b, &again, 0, lengths[i]);
		if (lengths[i] > LIMIT_UNIT_BYTES)
			check_range(&b, &again, LIMIT_UNIT_BYTES, 3 * LIMIT_UNIT_BYTES);
	}
	bed_fini(&b);
}
END_TEST

START_TEST(test_ranges_are_checked)
{
	static struct chunk_get g;
	struct index_row row;
	struct bed b;
	uint8_t out[1];

	bed_init(&b);
	ck_assert_int_eq(put(&b, 5, 0, 100000, &row), 0);
	ck_assert_int_eq(chunk_get_start(&g, b.disk, &row, 1, 10, out), ERR_INVAL);
	ck_assert_int_eq(chunk_get_start(&g, b.disk, &row, 0, 0, out), ERR_INVAL);
	ck_assert_int_eq(chunk_get_start(&g, b.disk, &row, 7 * LIMIT_UNIT_BYTES, 10, out), ERR_RANGE);
	ck_assert_int_eq(chunk_get_start(&g, b.disk, &row, UINT64_MAX / LIMIT_UNIT_BYTES * LIMIT_UNIT_BYTES, 10, out),
		ERR_RANGE);
	bed_fini(&b);
}
END_TEST

START_TEST(test_sealed_again)
{
	struct index_row row, same;
	struct bed b;
	uint64_t before;

	bed_init(&b);
	ck_assert_int_eq(put(&b, 5, 0, 2000000, &row), 0);
	before = free_of(&b);
	/* The same content: the same answer, and nothing more is taken. */
	ck_assert_int_eq(put(&b, 5, 0, 2000000, &same), 0);
	ck_assert(chunk_bed_same_row(&same, &row));
	/* Other content of the same copy. */
	ck_assert_int_eq(put(&b, 5, 0, 2000001, &same), ERR_EXIST);
	ck_assert_uint_eq(free_of(&b), before);
	ck_assert_uint_eq(puts_count(b.disk->puts), 0);
	check_range(&b, &row, 0, UINT64_MAX);
	bed_fini(&b);
}
END_TEST

START_TEST(test_failed_uploads_leave_nothing)
{
	struct chunk_put p, q;
	struct bed b;
	uint64_t before;
	struct put_cell *cell;
	struct put_request r = {.copy = {9, 1, 0}, .policy = CHUNK_BED_POLICY, .announced_bytes = 100};

	bed_init(&b);
	ck_assert_int_eq(put(&b, 1, 0, 1500000, NULL), 0);
	before = free_of(&b);
	/* Damage on the way. */
	chunk_put_init(&p, b.disk, 2, 0, 1500000);
	p.flip = true;
	ck_assert_int_eq(run_put(&b, &p), ERR_CORRUPT);
	chunk_put_fini(&p);
	ck_assert_uint_eq(free_of(&b), before);
	chunk_put_init(&p, b.disk, 2, 0, 1500000);
	p.wrong_crc = true;
	ck_assert_int_eq(run_put(&b, &p), ERR_CORRUPT);
	chunk_put_fini(&p);
	ck_assert_uint_eq(free_of(&b), before);
	/* Given up by the writer; and begun anew. */
	chunk_put_init(&p, b.disk, 2, 0, 1500000);
	p.stop_before_seal = true;
	ck_assert_int_eq(run_put(&b, &p), 0);
	ck_assert_uint_lt(free_of(&b), before);
	ck_assert_int_eq(put_drop(b.disk->puts, &p.copy), 0);
	ck_assert_int_eq(put_drop(b.disk->puts, &p.copy), ERR_NOENT);
	ck_assert_uint_eq(free_of(&b), before);
	chunk_put_init(&q, b.disk, 2, 0, 1500000);
	q.seal_apart = true;
	ck_assert_int_eq(run_put(&b, &q), 0);
	check_range(&b, &q.row, 0, UINT64_MAX);
	chunk_put_fini(&q);
	chunk_put_fini(&p);
	/* The connection dies within a cell. */
	r.len = 100;
	r.unit_crcs = slice_of("abcd", 4);
	before = free_of(&b);
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &cell), 0);
	put_abandon(cell);
	ck_assert_uint_eq(puts_count(b.disk->puts), 0);
	bed_fini(&b);
}
END_TEST

START_TEST(test_cells_out_of_order)
{
	struct put_request r = {.copy = {9, 1, 0},
		.policy = CHUNK_BED_POLICY,
		.announced_bytes = 1 << 20,
		.len = 16384,
		.unit_crcs = slice_of("abcd", 4)};
	struct put_cell *cell, *other;
	struct bed b;

	bed_init(&b);
	r.offset = 16384;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &cell), ERR_NOENT);
	r.offset = 0;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &cell), 0);
	r.offset = 32768;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &other), ERR_AGAIN);
	r.offset = 16384;
	r.policy = 1;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &other), ERR_INVAL);
	r.policy = CHUNK_BED_POLICY;
	r.offset = 1 << 20;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &other), ERR_INVAL);
	r.announced_bytes = 16384; /* the end of the first cell: what follows lies behind what was reserved then */
	r.offset = 0;
	put_abandon(cell);
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &cell), 0);
	r.announced_bytes = 1 << 20;
	r.offset = 16384;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &other), ERR_INVAL);
	r.offset = 100;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &other), ERR_INVAL);
	r.offset = 16384;
	r.unit_crcs.len = 8;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &other), ERR_INVAL);
	r.unit_crcs.len = 4;
	r.policy = 99;
	r.offset = 0;
	ck_assert_int_eq(put_begin(b.disk->puts, &r, &other), ERR_INVAL);
	put_abandon(cell);
	bed_fini(&b);
}
END_TEST

START_TEST(test_full_disk)
{
	struct index_row rows[64];
	uint32_t count = 0;
	struct bed b;
	int rc = 0;

	bed_init(&b);
	while (count + 2 < ARRAY_COUNT(rows) && (rc = put(&b, count + 1, 0, 3 << 20, &rows[count])) == 0)
		count++;
	ck_assert_int_eq(rc, ERR_NO_EXTENT);
	ck_assert_uint_ge(count, 6);
	ck_assert_int_eq(b.disk->failed, 0);
	/* No segment of another class can be made either: small chunks go where great ones have left room, and that is what the figures say. */
	ck_assert_uint_eq(segments_free_bytes(b.disk->segments, 10), 0);
	ck_assert_uint_gt(segments_free_bytes(b.disk->segments, 4), 64 << 10);
	ck_assert_int_eq(put(&b, 1000, 0, 100, &rows[count++]), 0);
	ck_assert_int_eq(put(&b, 1001, 0, 64 << 10, &rows[count++]), 0);
	ck_assert_int_eq(put(&b, 1002, 0, 3 << 20, NULL), ERR_NO_EXTENT);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < count; i++)
			check_range(&b, &rows[i], 0, UINT64_MAX);
		bed_close(&b);
		bed_open(&b);
	}
	bed_fini(&b);
}
END_TEST

struct dropping {
	struct disk_drop drop;
	struct bed *bed;
	int code;
};

static void dropped(struct disk_drop *drop, int code)
{
	struct dropping *d = CONTAINER_OF(drop, struct dropping, drop);

	d->code = code;
	real_loop_got(&d->bed->l);
}

START_TEST(test_dropped_chunks_give_their_space_back)
{
	struct dropping d = {.drop.done = dropped}, twice = {.drop.done = dropped};
	struct index_row row, got;
	uint64_t before;
	struct bed b;

	bed_init(&b);
	d.bed = &b;
	ck_assert_int_eq(put(&b, 1, 0, 100000, NULL), 0);
	before = free_of(&b);
	ck_assert_int_eq(put(&b, 2, 0, 100000, &row), 0);
	/* A reader holds the extent until it is done. */
	disk_pin(b.disk, &row);
	b.l.expected = 1;
	ck_assert_int_eq(disk_drop(b.disk, &row.copy, &d.drop), 0);
	ck_assert_int_eq(disk_drop(b.disk, &row.copy, &twice.drop), ERR_BUSY);
	real_loop_wait(&b.l);
	ck_assert_int_eq(d.code, 0);
	ck_assert_int_eq(index_get(b.disk->index, &row.copy, &got), ERR_NOENT);
	ck_assert_uint_lt(free_of(&b), before);
	disk_unpin(b.disk, &row);
	ck_assert_uint_eq(free_of(&b), before);
	bed_close(&b);
	bed_open(&b);
	ck_assert_uint_eq(index_count(b.disk->index), 1);
	ck_assert_uint_eq(free_of(&b), before);
	bed_fini(&b);
}
END_TEST

/* Blocks come in any order, near and far: whatever has a row is found, also after a start, and nothing else is. */
START_TEST(test_blocks_in_any_order)
{
	static const uint64_t blocks[] = {70, 7, 69, 1 << 20, (1 << 20) + 7, 8, 5 << 20, 9, (5 << 20) - 1, (4 << 20) + 1, 4 << 20};
	static const uint64_t absent[] = {6, 10, (1 << 20) - 1, (1 << 20) + 8, (4 << 20) + 2, (5 << 20) - 2, (5 << 20) + 1};
	struct index_row rows[ARRAY_COUNT(blocks)], got;
	struct bed b;

	bed_init(&b);
	for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
		ck_assert_int_eq(put(&b, blocks[i], 0, 100, &rows[i]), 0);
		ck_assert_uint_eq(index_count(b.disk->index), i + 1);
	}
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
			ck_assert_int_eq(index_get(b.disk->index, &rows[i].copy, &got), 0);
			ck_assert_int_eq(put(&b, blocks[i], 0, 101, NULL), ERR_EXIST);
		}
		for (size_t i = 0; i < ARRAY_COUNT(absent); i++)
			ck_assert_int_eq(index_get(b.disk->index, &(struct copy_id){absent[i], 1, 0}, &got), ERR_NOENT);
		ck_assert_uint_eq(index_count(b.disk->index), ARRAY_COUNT(blocks));
		bed_close(&b);
		bed_open(&b);
	}
	bed_fini(&b);
}
END_TEST

/* Neither a file nor a lock is made in it. */
static void others(struct io *io, const char *dir, bool no_format, int code, const char *say)
{
	static const char *const made[] = {"lock", "superblock", "superblock.tmp"};
	const struct disk_options o = {.dir = dir, .capacity_bytes = 256 * MIB, .no_format = no_format};
	struct disk *disk;
	struct err err;
	char path[96];

	ck_assert_int_eq(disk_open(io, &o, &disk, &err), code);
	ck_assert_msg(strstr(err.text, say), "\"%s\" is not in: %s", say, err.text);
	for (size_t i = 0; i < ARRAY_COUNT(made); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, made[i]);
		ck_assert(access(path, F_OK) != 0);
	}
}

static void touch(struct io *io, const char *dir, const char *name, bool there)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_int_eq(there ? io_write_file(io, path, "x", 1, 0600) : io_unlink(io, path), 0);
}

/* Another program's lock is no chunk server's, and is not tried. */
static void others_locked(struct io *io, const char *dir)
{
	struct disk_options o = {.dir = dir, .capacity_bytes = 256 * MIB};
	struct format_superblock sb;
	struct disk *disk;
	struct err err;
	char path[96];
	int fd;

	touch(io, dir, "thesis.tex", true);
	snprintf(path, sizeof(path), "%s/lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	ck_assert_int_eq(disk_open(io, &o, &disk, &err), ERR_NOTEMPTY);
	ck_assert_ptr_nonnull(strstr(err.text, "it holds thesis.tex: "));
	ck_assert_int_eq(disk_format(io, &o, &sb, &err), ERR_NOTEMPTY);
	o.no_format = true;
	ck_assert_int_eq(disk_open(io, &o, &disk, &err), ERR_NOTEMPTY);
	o.no_format = false;
	touch(io, dir, "thesis.tex", false);
	ck_assert_int_eq(disk_open(io, &o, &disk, &err), ERR_BUSY); /* or a disk that is being made */
	ck_assert_ptr_nonnull(strstr(err.text, "or its lock by another program (fuser "));
	close(fd);
	touch(io, dir, "lock", false);
}

/* Who gave the wrong directory finds it as it was. */
START_TEST(test_directory_of_others)
{
	static const char *const names[] = {"thesis.tex", "index.html", "index", "rebuilt-by-me"};
	struct real_loop l;
	struct disk *disk;
	struct err err;
	char path[96];

	real_loop_init(&l);
	others(l.io, l.dir, true, ERR_NOENT, "is it mounted?");
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		char holds[64];

		touch(l.io, l.dir, names[i], true);
		snprintf(holds, sizeof(holds), "it holds %s: ", names[i]);
		others(l.io, l.dir, false, ERR_NOTEMPTY, holds);
		others(l.io, l.dir, true, ERR_NOTEMPTY, "is it mounted?");
		touch(l.io, l.dir, names[i], false);
	}
	others_locked(l.io, l.dir);
	snprintf(path, sizeof(path), "%s/segments", l.dir);
	ck_assert_int_eq(io_mkdir(l.io, path, 0700), 0);
	touch(l.io, l.dir, "segments/a.ts", true);
	others(l.io, l.dir, false, ERR_NOTEMPTY, "it holds segments/a.ts: ");
	/* A superblock that is there, and is none, as the file system that it is on is not mounted. */
	touch(l.io, l.dir, "segments/a.ts", false);
	snprintf(path, sizeof(path), "%s/superblock", l.dir);
	ck_assert_int_eq(symlink("/nowhere/superblock", path), 0);
	for (int no_format = 0; no_format < 2; no_format++) {
		const struct disk_options o = {.dir = l.dir, .capacity_bytes = 256 * MIB, .no_format = no_format};

		ck_assert_int_eq(disk_open(l.io, &o, &disk, &err), ERR_CORRUPT);
		ck_assert_ptr_nonnull(strstr(err.text, "cannot be opened"));
	}
	real_loop_fini(&l);
}
END_TEST

/* What a disk that was used has is of a disk, whatever else was lost; but what is another's is not given away with it. */
START_TEST(test_lost_superblock)
{
	static const char *const names[] = {"rebuilt-0010000000004001", "index.old-1", "index.unfinished-12", "index.new", "segments/00000003-small", "segments/new-00000003-small"};
	struct real_loop l;
	char path[96], has[64];

	real_loop_init(&l);
	snprintf(path, sizeof(path), "%s/segments", l.dir);
	ck_assert_int_eq(io_mkdir(l.io, path, 0700), 0);
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		touch(l.io, l.dir, names[i], true);
		snprintf(has, sizeof(has), "it has %s. Restore", strncmp(names[i], "segments/", 9) ? names[i] : "segments");
		others(l.io, l.dir, false, ERR_CORRUPT, has);
		others(l.io, l.dir, true, ERR_CORRUPT, has);
		touch(l.io, l.dir, "thesis.tex", true);
		others(l.io, l.dir, false, ERR_CORRUPT, "and thesis.tex, which is none of Craton's");
		touch(l.io, l.dir, "thesis.tex", false);
		touch(l.io, l.dir, names[i], false);
	}
	real_loop_fini(&l);
}
END_TEST

START_TEST(test_refused_directories)
{
	struct disk_options o;
	struct disk *other;
	struct err err;
	struct bed b;
	char path[96];
	uint8_t bytes[FORMAT_SUPERBLOCK_BYTES];
	char *text;
	size_t len;

	bed_init(&b);
	o = b.o;
	ck_assert_int_eq(disk_open(b.l.io, &o, &other, &err), ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "in use"));
	o.dir = "does/not/exist";
	ck_assert_int_eq(disk_open(b.l.io, &o, &other, &err), ERR_NOENT);
	ck_assert_int_eq(put(&b, 1, 0, 5000, NULL), 0);
	bed_close(&b);
	b.pool = bufpool_new(b.l.io, 64 * MIB);
	o = b.o;
	o.pool = b.pool;
	o.cluster.bytes[0] ^= 1;
	ck_assert_int_eq(disk_open(b.l.io, &o, &other, &err), ERR_WRONG_CLUSTER);
	/* A newer version; a damaged superblock; none at all, over segments that hold data. */
	snprintf(path, sizeof(path), "%s/superblock", b.l.dir);
	ck_assert_int_eq(io_read_file(b.l.io, path, sizeof(bytes), &text, &len), 0);
	memcpy(bytes, text, sizeof(bytes));
	bytes[8] = 9;
	ck_assert_int_eq(io_write_file(b.l.io, path, bytes, sizeof(bytes), 0600), 0);
	ck_assert_int_eq(disk_open(b.l.io, &b.o, &other, &err), ERR_VERSION);
	memcpy(bytes, text, sizeof(bytes));
	bytes[70] ^= 1;
	ck_assert_int_eq(io_write_file(b.l.io, path, bytes, sizeof(bytes), 0600), 0);
	ck_assert_int_eq(disk_open(b.l.io, &b.o, &other, &err), ERR_CORRUPT);
	ck_assert_int_eq(io_unlink(b.l.io, path), 0);
	ck_assert_int_eq(disk_open(b.l.io, &b.o, &other, &err), ERR_CORRUPT);
	ck_assert_msg(strstr(err.text, "has lost its superblock: it has segments"), "%s", err.text);
	ck_assert_int_eq(io_write_file(b.l.io, path, text, len, 0600), 0);
	mem_free(text);
	bufpool_free(b.pool);
	bed_open(&b);
	ck_assert_uint_eq(index_count(b.disk->index), 1);
	bed_fini(&b);
}
END_TEST

START_TEST(test_damaged_trailer_is_named_and_data_still_comes)
{
	static struct chunk_get g;
	static uint8_t out[100000];
	struct index_row row;
	char path[128], name[SEGMENT_NAME_BYTES];
	struct bed b;
	uint8_t byte;
	int fd;

	bed_init(&b);
	ck_assert_int_eq(put(&b, 5, 1, 100000, &row), 0);
	segments_name(b.disk->segments, row.extent.segment, name);
	snprintf(path, sizeof(path), "%s/%s", b.l.dir, name);
	ck_assert_int_eq(io_open(b.l.io, path, IO_OPEN_WRITE, 0, &fd), 0);
	ck_assert_int_eq(io_pread(b.l.io, fd, &byte, 1, index_row_offset(&row) + index_row_trailer_at(&row) + 50), 1);
	byte ^= 1;
	ck_assert_int_eq(io_pwrite(b.l.io, fd, &byte, 1, index_row_offset(&row) + index_row_trailer_at(&row) + 50), 1);
	ck_assert_int_eq(io_fdatasync(b.l.io, fd), 0);
	io_close(b.l.io, fd);
	ck_assert_int_eq(chunk_get_start(&g, b.disk, &row, 0, UINT64_MAX, out), 0);
	g.ctx = &b;
	g.done = get_finished;
	b.l.expected = 1;
	real_loop_wait(&b.l);
	ck_assert_int_eq(g.code, 0);
	ck_assert_uint_eq(g.got, 100000);
	ck_assert(!g.had_list);
	bed_fini(&b);
}
END_TEST

UNIT_MAIN("disk", test_put_get_restart_get, test_ranges_are_checked, test_sealed_again,
	test_failed_uploads_leave_nothing, test_cells_out_of_order, test_full_disk,
	test_dropped_chunks_give_their_space_back, test_blocks_in_any_order, test_directory_of_others, test_lost_superblock, test_refused_directories,
	test_damaged_trailer_is_named_and_data_still_comes)
