/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/wal.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/kv/wal_private.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"
#include <fcntl.h>
#include <unistd.h>

enum { SEGMENT_BYTES = 1 << 20 };

/* ---- a log under test: entries are "entry INDEX" and padding, so that a replay checks itself ---- */

struct bed {
	struct real_loop l;
	struct wal *wal;
	uint64_t replayed_from, replayed_to; /* 0, 0: nothing */
	uint64_t acknowledged;               /* highest index */
	int fatal_code;
	char fatal_text[ERR_TEXT_BYTES];
};

static size_t entry_bytes(uint64_t index)
{
	static const size_t sizes[] = {20, 100, 3000, 5000, 20, 70000, 24, 4000};

	return sizes[index % 8];
}

static void entry_fill(uint64_t index, uint8_t *out)
{
	memset(out, (int)(index % 251), entry_bytes(index));
	memcpy(out, &index, sizeof(index));
}

static int on_replay(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	struct bed *bed = ctx;
	uint8_t *want = mem_alloc(entry_bytes(index));

	(void)err;
	if (bed->replayed_to)
		ck_assert_uint_eq(index, bed->replayed_to + 1);
	else
		bed->replayed_from = index;
	bed->replayed_to = index;
	entry_fill(index, want);
	ck_assert_uint_eq(data.len, entry_bytes(index));
	ck_assert_mem_eq(data.data, want, data.len);
	mem_free(want);
	return 0;
}

static void on_fatal(void *ctx, int code, const char *why)
{
	struct bed *bed = ctx;

	ck_assert_int_eq(bed->fatal_code, 0);
	bed->fatal_code = code;
	snprintf(bed->fatal_text, sizeof(bed->fatal_text), "%s", why);
}

static int try_open(struct bed *bed, uint64_t from, struct err *err)
{
	const struct wal_options options = {.dir = bed->l.dir,
		.segment_bytes = SEGMENT_BYTES,
		.buffered = bed->l.buffered,
		.on_fatal = on_fatal,
		.ctx = bed};

	bed->replayed_from = bed->replayed_to = 0;
	return wal_open(bed->l.io, &options, from, on_replay, bed, &bed->wal, err);
}

static void open_log(struct bed *bed, uint64_t from)
{
	struct err err = {0};
	int rc = try_open(bed, from, &err);

	ck_assert_msg(rc == 0, "%s", err.text);
}

static void close_log(struct bed *bed)
{
	bed->l.expected = 1;
	wal_close(bed->wal, real_loop_closed, &bed->l);
	real_loop_wait(&bed->l);
	ck_assert_int_eq(bed->l.code, bed->fatal_code);
}

struct entry {
	struct wal_append append;
	struct bed *bed;
	uint8_t *data;
};

static void on_done(struct wal_append *append, int code)
{
	struct entry *e = CONTAINER_OF(append, struct entry, append);
	struct bed *bed = e->bed;

	if (code == 0) {
		ck_assert_uint_eq(append->index, bed->acknowledged + 1);
		ck_assert_uint_ge(wal_durable_index(bed->wal), append->index);
		bed->acknowledged = append->index;
	}
	mem_free(e->data);
	mem_free(e);
	real_loop_got(&bed->l);
}

static void append(struct bed *bed)
{
	struct entry *e = MEM_NEW(struct entry);
	uint64_t index = wal_next_index(bed->wal);

	e->bed = bed;
	e->data = mem_alloc(entry_bytes(index));
	entry_fill(index, e->data);
	e->append.data = slice_of(e->data, entry_bytes(index));
	e->append.done = on_done;
	bed->l.expected++;
	wal_submit(bed->wal, &e->append);
	ck_assert_uint_eq(e->append.index, index);
}

static void append_and_wait(struct bed *bed, int count)
{
	for (int i = 0; i < count; i++)
		append(bed);
	real_loop_wait(&bed->l);
}

static void bed_init(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	real_loop_init(&bed->l);
}

/* ---- tests ---- */

START_TEST(test_example)
{
	struct bed bed;

	bed_init(&bed);
	open_log(&bed, 1);
	ck_assert_uint_eq(wal_next_index(bed.wal), 1);
	append_and_wait(&bed, 10);
	ck_assert_uint_eq(wal_durable_index(bed.wal), 10);
	ck_assert_uint_eq(wal_first_index(bed.wal), 1);
	close_log(&bed);

	open_log(&bed, 4);
	ck_assert_uint_eq(bed.replayed_from, 4);
	ck_assert_uint_eq(bed.replayed_to, 10);
	append_and_wait(&bed, 5);
	close_log(&bed);

	open_log(&bed, 1);
	ck_assert_uint_eq(bed.replayed_from, 1);
	ck_assert_uint_eq(bed.replayed_to, 15);
	close_log(&bed);
	real_loop_fini(&bed.l);
}
END_TEST

static int count_name(void *ctx, const char *name)
{
	*(int *)ctx += strncmp(name, "log-", 4) == 0;
	return 0;
}

/* Many times the size of a segment through the log; trimmed ones are used again, so that few files remain. */
START_TEST(test_trim_recycles)
{
	struct bed bed;
	int files = 0;

	bed_init(&bed);
	open_log(&bed, 1);
	for (int round = 0; round < 40; round++) {
		append_and_wait(&bed, 40); /* about 400 KiB */
		if (bed.acknowledged > 60)
			wal_trim(bed.wal, bed.acknowledged - 60);
	}
	ck_assert_uint_eq(bed.acknowledged, 1600);
	ck_assert_uint_gt(wal_first_index(bed.wal), 1300);
	ck_assert_uint_le(wal_first_index(bed.wal), 1600 - 60 + 1);
	close_log(&bed);
	ck_assert_int_eq(io_list_dir(bed.l.io, bed.l.dir, count_name, &files), 0);
	ck_assert_int_ge(files, 2);
	ck_assert_int_le(files, 6);

	open_log(&bed, 1541);
	ck_assert_uint_eq(bed.replayed_from, 1541);
	ck_assert_uint_eq(bed.replayed_to, 1600);
	close_log(&bed);
	real_loop_fini(&bed.l);
}
END_TEST

START_TEST(test_first_index_and_geometry)
{
	struct wal_options options = {.segment_bytes = SEGMENT_BYTES + 1};
	struct bed bed;
	struct err err;

	bed_init(&bed);
	options.dir = bed.l.dir;
	options.buffered = bed.l.buffered;
	ck_assert_int_eq(wal_open(bed.l.io, &options, 1, on_replay, &bed, &bed.wal, &err), ERR_INVAL);
	options.segment_bytes = SEGMENT_BYTES / 2;
	ck_assert_int_eq(wal_open(bed.l.io, &options, 1, on_replay, &bed, &bed.wal, &err), ERR_INVAL);
	options.segment_bytes = SEGMENT_BYTES + 4096;
	options.first_index = 1000;
	ck_assert_int_eq(wal_open(bed.l.io, &options, 1, on_replay, &bed, &bed.wal, &err), 0);
	ck_assert_uint_eq(wal_next_index(bed.wal), 1000);
	bed.acknowledged = 999;
	append_and_wait(&bed, 400);
	close_log(&bed);
	/* the size was fixed at creation; another one asked for later does not matter */
	open_log(&bed, 1);
	ck_assert_uint_eq(bed.replayed_from, 1000);
	ck_assert_uint_eq(bed.replayed_to, 1399);
	close_log(&bed);
	real_loop_fini(&bed.l);
}
END_TEST

UNIT_MAIN("wal", test_example, test_trim_recycles, test_first_index_and_geometry)
