/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/journal.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"

enum { SEGMENT_BYTES = 1 << 20 };

/* Entries are "key=value"; a journal of them is a small database. */
struct bed {
	struct real_loop l;
	struct journal *journal;
	uint64_t acknowledged, replayed;
};

struct put {
	struct journal_entry entry;
	struct bed *bed;
	char text[64];
};

static int apply_put(
	void *ctx, struct kv *kv, uint64_t index, struct slice data, struct journal_entry *entry, struct err *err)
{
	const uint8_t *eq = memchr(data.data, '=', data.len);
	struct bed *bed = ctx;

	if (!eq)
		return err_set(err, ERR_FORMAT, "entry %lu has no '='", (unsigned long)index);
	if (!entry)
		bed->replayed++;
	kv_put(kv, slice_of(data.data, (size_t)(eq - data.data)),
		slice_of(eq + 1, (size_t)(data.data + data.len - eq - 1)));
	return 0;
}

static void no_fatal(void *ctx, int code, const char *why)
{
	(void)ctx;
	ck_abort_msg("fatal %s: %s", err_name(code), why);
}

static void open_journal(struct bed *bed)
{
	const struct journal_options options = {
		.dir = bed->l.dir,
		.backend = &kv_lmdb,
		.segment_bytes = SEGMENT_BYTES,
		.freeze_bytes = 64 << 10,
		.freeze_ms = 5,
		.entry_growth_bytes = 1 << 20,
		.buffered = bed->l.buffered,
		.apply = apply_put,
		.on_fatal = no_fatal,
		.ctx = bed,
	};
	struct err err = {0};
	int rc;

	bed->replayed = 0;
	rc = journal_open(bed->l.io, &options, &bed->journal, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
}

static void close_journal(struct bed *bed)
{
	bed->l.expected = 1;
	journal_close(bed->journal, real_loop_closed, &bed->l);
	real_loop_wait(&bed->l);
	ck_assert_int_eq(bed->l.code, 0);
}

static void put_done(struct journal_entry *entry, int code)
{
	struct put *put = CONTAINER_OF(entry, struct put, entry);
	struct bed *bed = put->bed;

	ck_assert_int_eq(code, 0);
	bed->acknowledged++;
	ck_assert_uint_eq(journal_applied_index(bed->journal), entry->append.index);
	mem_free(put);
	real_loop_got(&bed->l);
}

static void put(struct bed *bed, int key, int value)
{
	struct put *p = MEM_NEW(struct put);

	p->bed = bed;
	p->entry.append.data =
		slice_of(p->text, (size_t)snprintf(p->text, sizeof(p->text), "key-%06d=value-%d", key, value));
	p->entry.done = put_done;
	bed->l.expected++;
	journal_submit(bed->journal, &p->entry);
}

static void expect(struct bed *bed, int key, int value)
{
	char k[32], v[32];
	struct slice got;

	snprintf(k, sizeof(k), "key-%06d", key);
	snprintf(v, sizeof(v), "value-%d", value);
	ck_assert_int_eq(kv_get(journal_kv(bed->journal), slice_of(k, strlen(k)), &got), 0);
	ck_assert_int_eq(slice_compare(got, slice_of(v, strlen(v))), 0);
}

START_TEST(test_example)
{
	struct bed bed = {0};

	real_loop_init(&bed.l);
	open_journal(&bed);
	put(&bed, 1, 10);
	put(&bed, 2, 20);
	put(&bed, 1, 11);
	real_loop_wait(&bed.l); /* all are durable and applied */
	expect(&bed, 1, 11);
	expect(&bed, 2, 20);
	close_journal(&bed);

	open_journal(&bed);
	ck_assert_uint_eq(journal_applied_index(bed.journal), 3);
	ck_assert_uint_eq(bed.replayed, 0); /* a clean stop leaves nothing to replay */
	expect(&bed, 1, 11);
	close_journal(&bed);
	real_loop_fini(&bed.l);
}
END_TEST

/* More than the log's segments hold: commits behind the path, trims, and all of it there at the end. */
START_TEST(test_long_run)
{
	enum { ROUNDS = 60, PUTS = 200 };
	struct bed bed = {0};

	real_loop_init(&bed.l);
	open_journal(&bed);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < PUTS; i++)
			put(&bed, i * 7 + round, round);
		real_loop_wait(&bed.l);
	}
	close_journal(&bed);
	open_journal(&bed);
	ck_assert_uint_eq(journal_applied_index(bed.journal), ROUNDS * PUTS);
	for (int i = 0; i < PUTS; i++)
		expect(&bed, i * 7 + ROUNDS - 1, ROUNDS - 1);
	close_journal(&bed);
	real_loop_fini(&bed.l);
}
END_TEST

/* Log and table from different times are told apart. */
START_TEST(test_mixed_up_directories)
{
	const struct journal_options options = {
		.segment_bytes = SEGMENT_BYTES, .backend = &kv_lmdb, .entry_growth_bytes = 1 << 20, .apply = apply_put};
	struct journal_options o = options;
	struct bed bed = {0};
	char path[96], aside[96];
	struct journal *j;
	struct err err;

	real_loop_init(&bed.l);
	open_journal(&bed);
	put(&bed, 1, 10);
	real_loop_wait(&bed.l);
	close_journal(&bed);
	snprintf(path, sizeof(path), "%s/log", bed.l.dir);
	snprintf(aside, sizeof(aside), "%s/log-aside", bed.l.dir);
	ck_assert_int_eq(rename(path, aside), 0);
	o.dir = bed.l.dir;
	o.buffered = bed.l.buffered;
	o.ctx = &bed;
	ck_assert_int_eq(journal_open(bed.l.io, &o, &j, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "/log"));
	real_loop_fini(&bed.l);
}
END_TEST

/* ---- the table's bound ---- */

enum { BULK_ROWS = 16, BULK_ENTRIES = 160, BULK_GROWTH = 2 << 20 };

/* A few bytes in the log, a mebibyte in the table. */
static int apply_bulk(
	void *ctx, struct kv *kv, uint64_t index, struct slice data, struct journal_entry *entry, struct err *err)
{
	static uint8_t value[LIMIT_VALUE_BYTES];

	(void)ctx, (void)data, (void)entry, (void)err;
	for (uint32_t i = 0; i < BULK_ROWS; i++) {
		uint64_t key = index * BULK_ROWS + i;

		kv_put(kv, slice_of(&key, sizeof(key)), slice_of(value, sizeof(value)));
	}
	return 0;
}

struct bulk {
	struct bed bed;
	uint64_t peak_bytes;
};

static void bulk_done(struct journal_entry *entry, int code)
{
	struct put *put = CONTAINER_OF(entry, struct put, entry);
	struct bulk *bulk = CONTAINER_OF(put->bed, struct bulk, bed);
	struct kv_stats stats;

	ck_assert_int_eq(code, 0);
	kv_get_stats(journal_kv(bulk->bed.journal), &stats);
	if (stats.memory_bytes > bulk->peak_bytes)
		bulk->peak_bytes = stats.memory_bytes;
	mem_free(put);
	real_loop_got(&bulk->bed.l);
}

/* All at once, far more than memory may hold: nothing is refused, and the table stays below its bound. */
START_TEST(test_table_keeps_its_bound)
{
	struct journal_options options = {
		.segment_bytes = SEGMENT_BYTES, .backend = &kv_lmdb, .entry_growth_bytes = BULK_GROWTH, .apply = apply_bulk, .on_fatal = no_fatal};
	struct bulk bulk = {0};
	struct bed *bed = &bulk.bed;
	struct err err;

	real_loop_init(&bed->l);
	options.dir = bed->l.dir;
	options.buffered = bed->l.buffered;
	ck_assert_int_eq(journal_open(bed->l.io, &options, &bed->journal, &err), 0);
	for (int i = 0; i < BULK_ENTRIES; i++) {
		struct put *p = MEM_NEW(struct put);

		p->bed = bed;
		p->entry.append.data = slice_of("bulk", 4);
		p->entry.done = bulk_done;
		bed->l.expected++;
		journal_submit(bed->journal, &p->entry);
	}
	real_loop_wait(&bed->l);
	ck_assert_uint_le(bulk.peak_bytes, LIMIT_MEMTABLE_BYTES);
	ck_assert_uint_gt(bulk.peak_bytes, LIMIT_MEMTABLE_BYTES / 4); /* it was under pressure */
	close_journal(bed);
	real_loop_fini(&bed->l);
}
END_TEST

UNIT_MAIN("journal", test_example, test_long_run, test_mixed_up_directories, test_table_keeps_its_bound)
