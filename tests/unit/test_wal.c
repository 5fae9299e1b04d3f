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

static uint64_t entry_term; /* of the entries, in the log of a replica */

static void append(struct bed *bed)
{
	struct entry *e = MEM_NEW(struct entry);
	uint64_t index = wal_next_index(bed->wal);

	e->bed = bed;
	e->data = mem_alloc(entry_bytes(index));
	entry_fill(index, e->data);
	e->append.data = slice_of(e->data, entry_bytes(index));
	e->append.term = entry_term;
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

/* ---- the log of a replica on a real disk; its rules are looked at in test_wal_replica ---- */

struct replica {
	struct bed bed;
	struct wal_save save;
	struct wal_restart restart;
	struct wal_read read;
	uint64_t read_bytes;
};

static void on_saved(struct wal_save *save, int code)
{
	ck_assert_int_eq(code, 0);
	real_loop_got(&CONTAINER_OF(save, struct replica, save)->bed.l);
}

static void on_restarted(struct wal_restart *restart, int code)
{
	ck_assert_int_eq(code, 0);
	real_loop_got(&CONTAINER_OF(restart, struct replica, restart)->bed.l);
}

static void on_read(struct wal_read *read, int code)
{
	struct replica *r = CONTAINER_OF(read, struct replica, read);
	uint64_t index, term;
	struct slice data;

	ck_assert_int_eq(code, 0);
	while (wal_read_next(read, &index, &term, &data)) {
		ck_assert_uint_eq(term, 1);
		ck_assert_uint_eq(data.len, entry_bytes(index));
		r->read_bytes += data.len;
	}
	wal_read_end(read);
	real_loop_got(&r->bed.l);
}

static void open_replica(struct replica *r)
{
	const struct wal_replica replica = {.cluster = "on a real disk", .replica = 1};
	const struct wal_options options = {.dir = r->bed.l.dir,
		.segment_bytes = SEGMENT_BYTES,
		.buffered = r->bed.l.buffered,
		.replica = &replica,
		.on_fatal = on_fatal,
		.ctx = &r->bed};
	struct err err = {0};
	int rc;

	r->bed.replayed_from = r->bed.replayed_to = 0;
	rc = wal_open(r->bed.l.io, &options, 1, on_replay, &r->bed, &r->bed.wal, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
}

START_TEST(test_replica)
{
	struct replica r;

	memset(&r, 0, sizeof(r));
	bed_init(&r.bed);
	open_replica(&r);
	r.save = (struct wal_save){.term = 1, .vote = 1, .done = on_saved};
	r.bed.l.expected = 1;
	wal_save(r.bed.wal, &r.save);
	entry_term = 1;
	append_and_wait(&r.bed, 40);
	wal_cut(r.bed.wal, 31);
	r.bed.acknowledged = 30;
	append_and_wait(&r.bed, 10);
	close_log(&r.bed);

	open_replica(&r);
	ck_assert_uint_eq(r.bed.replayed_to, 40);
	ck_assert_uint_eq(wal_meta(r.bed.wal)->vote, 1);
	r.read = (struct wal_read){.from = 28, .to = 35, .max_bytes = 1 << 20, .done = on_read};
	r.bed.l.expected = 1;
	ck_assert_int_eq(wal_read(r.bed.wal, &r.read), 0);
	real_loop_wait(&r.bed.l);
	ck_assert_uint_gt(r.read_bytes, 0);
	r.restart = (struct wal_restart){.index = 1000, .term = 1, .done = on_restarted};
	r.bed.l.expected = 1;
	wal_restart(r.bed.wal, &r.restart);
	r.bed.acknowledged = 1000;
	append_and_wait(&r.bed, 10);
	close_log(&r.bed);

	open_replica(&r);
	ck_assert_uint_eq(r.bed.replayed_from, 1001);
	ck_assert_uint_eq(r.bed.replayed_to, 1010);
	close_log(&r.bed);
	real_loop_fini(&r.bed.l);
}
END_TEST

UNIT_MAIN("wal", test_example, test_trim_recycles, test_first_index_and_geometry, test_replica)
