/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_backend.h"
#include "common/base/limits.h"
#include "common/base/rng.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static struct slice text(const char *s)
{
	return slice_of(s, strlen(s));
}

static void no_fatal(void *ctx, int code, const char *why)
{
	(void)ctx;
	ck_abort_msg("fatal %s: %s", err_name(code), why);
}

static struct kv *open_kv(
	struct real_loop *l, const struct kv_backend *backend, uint64_t freeze_bytes, uint64_t want_applied)
{
	const struct kv_options options = {.dir = l->dir,
		.backend = backend,
		.freeze_bytes = freeze_bytes,
		.freeze_ms = 1,
		.on_fatal = no_fatal,
		.ctx = l};
	struct err err;
	uint64_t applied;
	struct kv *kv;
	int rc;

	rc = kv_open(l->io, &options, &kv, &applied, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	ck_assert_uint_eq(applied, want_applied);
	return kv;
}

static void close_kv(struct real_loop *l, struct kv *kv)
{
	l->expected = 1;
	kv_close(kv, real_loop_closed, l);
	real_loop_wait(l);
	ck_assert_int_eq(l->code, 0);
}

static void flush_kv(struct real_loop *l, struct kv *kv)
{
	l->expected = 1;
	kv_flush(kv, real_loop_closed, l);
	real_loop_wait(l);
	ck_assert_int_eq(l->code, 0);
}

static void expect(struct kv *kv, const char *key, const char *want)
{
	struct slice value;
	int rc = kv_get(kv, text(key), &value);

	if (!want) {
		ck_assert_int_eq(rc, ERR_NOENT);
		return;
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(slice_compare(value, text(want)), 0);
}

static const struct kv_backend *const backends[] = {&kv_lmdb, &kv_mem};
enum { BACKENDS = 2 };

START_TEST(test_example)
{
	for (int b = 0; b < BACKENDS; b++) {
		struct real_loop l;
		struct kv_scan scan;
		struct kv *kv;
		char seen[64] = "";

		real_loop_init(&l);
		kv = open_kv(&l, backends[b], 0, 0);
		kv_put(kv, text("fruit/apple"), text("red"));
		kv_put(kv, text("fruit/banana"), text("yellow"));
		kv_put(kv, text("nut/hazel"), text(""));
		kv_applied(kv, 1);
		flush_kv(&l, kv); /* now all is in the backing store */
		ck_assert_uint_eq(kv_trim_index(kv), 1);
		kv_del(kv, text("fruit/banana"));
		kv_put(kv, text("fruit/cherry"), text("dark"));
		kv_applied(kv, 2); /* this is in memory only */

		expect(kv, "fruit/apple", "red");
		expect(kv, "fruit/banana", NULL);
		expect(kv, "nut/hazel", "");
		for (kv_seek(kv, &scan, text("fruit/")); kv_scan_valid(&scan); kv_scan_next(&scan)) {
			strncat(seen, (const char *)scan.key.data, scan.key.len);
			strcat(seen, " ");
		}
		kv_scan_end(&scan);
		ck_assert_str_eq(seen, "fruit/apple fruit/cherry nut/hazel ");
		ck_assert_int_eq(kv_failure(kv, NULL), 0);
		close_kv(&l, kv);

		kv = open_kv(&l, backends[b], 0, 2);
		expect(kv, "fruit/banana", NULL);
		expect(kv, "fruit/cherry", "dark");
		close_kv(&l, kv);
		real_loop_fini(&l);
	}
}
END_TEST

/* ---- against a model, across freezes, commits and reopening ---- */

enum { KEYS = 700, STEPS = 60, OPS_PER_STEP = 60, VALUE_MAX = 200 };

struct model {
	char key[16];
	bool there;
	uint8_t value[VALUE_MAX];
	size_t value_bytes;
};

struct bed {
	struct real_loop l;
	struct kv *kv;
	struct rng rng;
	struct model model[KEYS];
	struct io_op step;
	int steps_left;
	uint64_t applied;
};

/* The next that a scan comes upon which began at `from`, and sees keys alone that share the first `prefix` bytes with it. */
static int next_there(const struct bed *bed, int i, int from, size_t prefix)
{
	while (i < KEYS && !(bed->model[i].there && strncmp(bed->model[i].key, bed->model[from].key, prefix) == 0))
		i++;
	return i;
}

static void check_scan(struct bed *bed, int from, size_t prefix)
{
	struct kv_scan scan;
	int i = from;

	if (prefix)
		kv_seek_within(bed->kv, &scan, text(bed->model[from].key), prefix);
	else
		kv_seek(bed->kv, &scan, from ? text(bed->model[from].key) : slice_of(NULL, 0));
	for (; kv_scan_valid(&scan); kv_scan_next(&scan), i++) {
		i = next_there(bed, i, from, prefix);
		ck_assert_int_lt(i, KEYS);
		ck_assert_int_eq(slice_compare(scan.key, text(bed->model[i].key)), 0);
		ck_assert_int_eq(
			slice_compare(scan.value, slice_of(bed->model[i].value, bed->model[i].value_bytes)), 0);
	}
	ck_assert_int_eq(next_there(bed, i, from, prefix), KEYS);
	kv_scan_end(&scan);
}

static void check_get(struct bed *bed, int i)
{
	const struct model *m = &bed->model[i];
	struct slice value;
	int rc = kv_get(bed->kv, text(m->key), &value);

	ck_assert_int_eq(rc, m->there ? 0 : ERR_NOENT);
	if (m->there)
		ck_assert_int_eq(slice_compare(value, slice_of(m->value, m->value_bytes)), 0);
}

static void change(struct bed *bed)
{
	struct model *m = &bed->model[rng_below(&bed->rng, KEYS)];

	m->there = rng_chance(&bed->rng, 3, 5);
	if (m->there) {
		m->value_bytes = rng_below(&bed->rng, VALUE_MAX);
		rng_bytes(&bed->rng, m->value, m->value_bytes);
		kv_put(bed->kv, text(m->key), slice_of(m->value, m->value_bytes));
	} else {
		kv_del(bed->kv, text(m->key));
	}
	kv_applied(bed->kv, ++bed->applied);
}

static void step_done(struct io_op *op)
{
	struct bed *bed = CONTAINER_OF(op, struct bed, step);
	struct kv_stats stats;
	int from;

	for (int i = 0; i < OPS_PER_STEP; i++) {
		change(bed);
		check_get(bed, (int)rng_below(&bed->rng, KEYS));
	}
	check_scan(bed, (int)rng_below(&bed->rng, KEYS), 0);
	from = (int)rng_below(&bed->rng, KEYS);
	check_scan(bed, from, 1 + rng_below(&bed->rng, strlen(bed->model[from].key)));
	ck_assert_uint_le(kv_trim_index(bed->kv), bed->applied);
	/* until there were some commits, however slow the disk is today */
	kv_get_stats(bed->kv, &stats);
	bed->steps_left -= bed->steps_left > 0;
	if (bed->steps_left == 0 && stats.commits > 3) {
		real_loop_got(&bed->l);
		return;
	}
	/* now and then time for a commit; else the tables pile up */
	io_prep_timer(&bed->step, io_now_ns(bed->l.io) + (rng_chance(&bed->rng, 1, 3) ? 2000000 : 0), step_done);
	io_submit(bed->l.io, &bed->step);
}

static void run_steps(struct bed *bed)
{
	bed->steps_left = STEPS;
	bed->l.expected = 1;
	io_prep_timer(&bed->step, io_now_ns(bed->l.io), step_done);
	io_submit(bed->l.io, &bed->step);
	real_loop_wait(&bed->l);
}

START_TEST(test_against_a_model)
{
	static struct bed bed;

	for (int b = 0; b < BACKENDS; b++) {
		memset(&bed, 0, sizeof(bed));
		real_loop_init(&bed.l);
		rng_init(&bed.rng, 5);
		for (int i = 0; i < KEYS; i++)
			snprintf(bed.model[i].key, sizeof(bed.model[i].key), "key-%05d", i);
		for (int round = 0; round < 3; round++) {
			bed.kv = open_kv(&bed.l, backends[b], 32 << 10, bed.applied);
			check_scan(&bed, 0, 0);
			run_steps(&bed);
			close_kv(&bed.l, bed.kv);
		}
		bed.kv = open_kv(&bed.l, backends[b], 0, bed.applied);
		for (int i = 0; i < KEYS; i++)
			check_get(&bed, i);
		check_scan(&bed, 0, 0);
		close_kv(&bed.l, bed.kv);
		real_loop_fini(&bed.l);
	}
}
END_TEST

/* The log must be kept from the last-but-one commit on: a crash may take the last one back. But the first one of a life is synced. */
START_TEST(test_trim_index)
{
	for (int b = 0; b < BACKENDS; b++) {
		struct real_loop l;
		struct err err;
		struct kv *kv;

		real_loop_init(&l);
		kv = open_kv(&l, backends[b], 1, 0); /* each settle commits */
		for (uint64_t index = 1; index <= 5; index++) {
			kv_put(kv, text("key"), text("value"));
			kv_applied(kv, index);
			ck_assert_int_eq(kv_settle(kv, &err), 0);
			ck_assert_uint_eq(kv_trim_index(kv), index == 1 ? 1 : index - 1);
		}
		kv_abandon(kv); /* like a kill: nothing more is synced */
		kv = open_kv(&l, backends[b], 0, 5);
		ck_assert_uint_eq(kv_trim_index(kv), 0);
		flush_kv(&l, kv);
		ck_assert_uint_eq(kv_trim_index(kv), 5);
		close_kv(&l, kv);
		real_loop_fini(&l);
	}
}
END_TEST

START_TEST(test_bounds_and_pressure)
{
	static uint8_t key[LIMIT_KEY_BYTES], value[LIMIT_VALUE_BYTES];
	struct real_loop l;
	struct kv_stats stats;
	struct slice got;
	struct kv *kv;

	real_loop_init(&l);
	kv = open_kv(&l, &kv_lmdb, 0, 0);
	ck_assert_uint_eq(kv_pressure(kv), 0);
	memset(value, 3, sizeof(value));
	for (uint32_t i = 0; i < 520; i++) {
		memcpy(key + LIMIT_KEY_BYTES - sizeof(i), &i, sizeof(i));
		kv_put(kv, slice_of(key, sizeof(key)), slice_of(value, sizeof(value)));
	}
	ck_assert_uint_gt(kv_pressure(kv), 40);
	ck_assert_uint_lt(kv_pressure(kv), 60);
	kv_applied(kv, 1);
	flush_kv(&l, kv);
	ck_assert_uint_lt(kv_pressure(kv), 2);
	ck_assert_int_eq(kv_get(kv, slice_of(key, sizeof(key)), &got), 0);
	ck_assert_uint_eq(got.len, LIMIT_VALUE_BYTES);
	kv_get_stats(kv, &stats);
	ck_assert_uint_eq(stats.backing_rows, 520);
	ck_assert_uint_eq(stats.committed_rows, 520);
	ck_assert_uint_gt(stats.backing_bytes, 520 * (uint64_t)LIMIT_VALUE_BYTES);
	close_kv(&l, kv);
	real_loop_fini(&l);
}
END_TEST

/* kv_lmdb, whose commits wait until they may. */
static struct kv_backend held;
static atomic_bool held_back, is_held;

static int held_commit(void *store, const struct memtable *table, uint64_t applied, bool sync, struct err *err)
{
	atomic_store(&is_held, true);
	while (atomic_load(&held_back))
		usleep(1000);
	return kv_lmdb.commit(store, table, applied, sync, err);
}

static void look_whether_held(struct io_op *op)
{
	struct bed *bed = CONTAINER_OF(op, struct bed, step);

	if (atomic_load(&is_held)) {
		real_loop_got(&bed->l);
		return;
	}
	io_prep_timer(&bed->step, io_now_ns(bed->l.io) + 1000000, look_whether_held);
	io_submit(bed->l.io, &bed->step);
}

static void put_bulk(struct kv *kv, uint32_t number)
{
	static uint8_t key[LIMIT_KEY_BYTES], value[LIMIT_VALUE_BYTES];

	memcpy(key + LIMIT_KEY_BYTES - sizeof(number), &number, sizeof(number));
	kv_put(kv, slice_of(key, sizeof(key)), slice_of(value, sizeof(value)));
}

/* Who can wait stands back before a commit leaves no more to anybody, not when memory is full; and in good time. */
START_TEST(test_pressure_beside_a_commit)
{
	static struct bed bed;
	struct kv_stats frozen, half, all;
	uint32_t n = 0;

	real_loop_init(&bed.l);
	held = kv_lmdb;
	held.commit = held_commit;
	bed.kv = open_kv(&bed.l, &held, 0, 0);
	atomic_store(&held_back, true);
	while (kv_pressure(bed.kv) < 37)
		put_bulk(bed.kv, n++);
	kv_applied(bed.kv, 1);
	bed.l.expected = 1;
	look_whether_held(&bed.step);
	real_loop_wait(&bed.l);
	kv_get_stats(bed.kv, &frozen);
	while (kv_pressure_now(bed.kv) < 50)
		put_bulk(bed.kv, n++);
	kv_get_stats(bed.kv, &half);
	while (kv_admits(bed.kv, 0, 0))
		put_bulk(bed.kv, n++);
	kv_get_stats(bed.kv, &all);
	ck_assert_uint_gt(kv_pressure_now(bed.kv), 90);
	ck_assert_uint_lt(kv_pressure(bed.kv), 90);
	ck_assert_uint_gt(half.memory_bytes, frozen.memory_bytes);
	/* What a commit leaves grows meanwhile: of the whole it was less than half. */
	ck_assert_uint_lt(half.memory_bytes - frozen.memory_bytes, (all.memory_bytes - frozen.memory_bytes) * 6 / 10);
	kv_applied(bed.kv, 2);
	atomic_store(&held_back, false);
	flush_kv(&bed.l, bed.kv);
	ck_assert_uint_lt(kv_pressure_now(bed.kv), 2);
	close_kv(&bed.l, bed.kv);
	real_loop_fini(&bed.l);
}
END_TEST

/* ---- damage ---- */

static char fatal_text[ERR_TEXT_BYTES];

static void note_fatal(void *ctx, int code, const char *why)
{
	ck_assert_int_eq(code, ERR_CORRUPT);
	snprintf(fatal_text, sizeof(fatal_text), "%s", why);
	real_loop_got(ctx);
}

/* Adds to one byte of data.mdb: that at `at` of each page of 4 KiB in which `needle` lies, or of the needle itself, where `at` is negative. */
static void spoil(struct real_loop *l, const char *needle, int at, int by)
{
	enum { PAGE_BYTES = 4096 };
	static uint8_t data[1 << 20];
	char path[96];
	ssize_t n;
	uint8_t *found;
	int fd, hits = 0;

	snprintf(path, sizeof(path), "%s/data.mdb", l->dir);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	n = pread(fd, data, sizeof(data), 0);
	ck_assert_int_gt(n, 0);
	for (uint8_t *p = data; (found = memmem(p, (size_t)(data + n - p), needle, strlen(needle))); p = found + 1, hits++) {
		uint8_t *byte = at < 0 ? found : data + (found - data) / PAGE_BYTES * PAGE_BYTES + at;

		*byte = (uint8_t)(*byte + by);
		ck_assert_int_eq(pwrite(fd, byte, 1, byte - data), 1);
	}
	ck_assert_int_gt(hits, 0);
	close(fd);
}

/* Of its two rows, "good" and "hurt", the latter is damaged. */
static struct kv *open_hurt(struct real_loop *l)
{
	struct kv_options options = {.backend = &kv_lmdb, .on_fatal = note_fatal, .ctx = l};
	struct kv *kv;
	uint64_t applied;
	struct err err;

	real_loop_init(l);
	options.dir = l->dir;
	kv = open_kv(l, &kv_lmdb, 0, 0);
	kv_put(kv, text("good"), text("an intact value"));
	kv_put(kv, text("hurt"), text("a value that will be damaged"));
	kv_applied(kv, 1);
	close_kv(l, kv);
	spoil(l, "a value that will be damaged", -1, 1);
	ck_assert_int_eq(kv_open(l->io, &options, &kv, &applied, &err), 0);
	return kv;
}

/* A scan that passes a row, or stops before it, does not read its value: that costs as much as the value is long. */
START_TEST(test_values_that_no_scan_gives)
{
	struct real_loop l;
	struct kv *kv = open_hurt(&l);
	struct kv_scan scan;
	const char *why;

	kv_seek_within(kv, &scan, text("good"), 4);
	ck_assert(kv_scan_valid(&scan));
	kv_scan_next(&scan);
	ck_assert(!kv_scan_valid(&scan));
	kv_scan_end(&scan);
	kv_put(kv, text("hurt"), text("a new one"));
	kv_seek(kv, &scan, text("h"));
	ck_assert(kv_scan_valid(&scan));
	ck_assert(slice_compare(scan.value, text("a new one")) == 0);
	kv_scan_end(&scan);
	kv_del(kv, text("hurt"));
	kv_seek(kv, &scan, text("h"));
	ck_assert(!kv_scan_valid(&scan));
	kv_scan_end(&scan);
	kv_applied(kv, 2);
	ck_assert_int_eq(kv_failure(kv, &why), 0);
	close_kv(&l, kv);
	real_loop_fini(&l);
}
END_TEST

START_TEST(test_damaged_value)
{
	struct real_loop l;
	struct kv *kv = open_hurt(&l);
	struct kv_scan scan;
	struct slice value;
	const char *why;

	ck_assert_int_eq(kv_get(kv, text("good"), &value), 0);
	kv_seek(kv, &scan, text("a"));
	ck_assert(kv_scan_valid(&scan));
	ck_assert_int_eq(kv_failure(kv, &why), 0);
	kv_scan_next(&scan);
	ck_assert(!kv_scan_valid(&scan)); /* not the end: a failure */
	kv_scan_end(&scan);
	ck_assert_int_eq(kv_failure(kv, &why), ERR_CORRUPT);
	ck_assert_int_eq(kv_get(kv, text("hurt"), &value), ERR_CORRUPT);
	l.expected = 1;
	real_loop_wait(&l);
	ck_assert_str_eq(fatal_text, why);
	ck_assert_ptr_nonnull(strstr(fatal_text, "68757274")); /* "hurt" */
	ck_assert_ptr_nonnull(strstr(fatal_text, "data.mdb"));
	l.expected = 1;
	kv_close(kv, real_loop_closed, &l);
	real_loop_wait(&l);
	ck_assert_int_eq(l.code, ERR_CORRUPT);
	real_loop_fini(&l);
}
END_TEST

/* A second owner is refused before it can do harm. */
START_TEST(test_in_use)
{
	struct real_loop l;
	struct kv_options options = {.backend = &kv_lmdb};
	struct kv *kv, *second;
	uint64_t applied;
	struct err err;

	real_loop_init(&l);
	options.dir = l.dir;
	kv = open_kv(&l, &kv_lmdb, 0, 0);
	ck_assert_int_eq(kv_open(l.io, &options, &second, &applied, &err), ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "data.mdb"));
	close_kv(&l, kv);
	close_kv(&l, open_kv(&l, &kv_lmdb, 0, 0));
	real_loop_fini(&l);
}
END_TEST

/* Files that are not ours, or cut: an error that names the file, no crash. */
START_TEST(test_bad_files)
{
	struct real_loop l;
	struct kv_options options = {.backend = &kv_lmdb};
	uint64_t applied;
	struct err err;
	struct kv *kv;
	char path[96] = "";

	real_loop_init(&l);
	options.dir = l.dir;
	snprintf(path, sizeof(path), "%s/data.mdb", l.dir);
	ck_assert_int_eq(io_write_file(l.io, path, "this is no table at all", 23, 0600), 0);
	ck_assert_int_ne(kv_open(l.io, &options, &kv, &applied, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "data.mdb"));
	ck_assert_int_eq(truncate(path, 0), 0);
	ck_assert_int_eq(kv_open(l.io, &options, &kv, &applied, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "data.mdb"));
	ck_assert_int_eq(unlink(path), 0);
	kv = open_kv(&l, &kv_lmdb, 0, 0);
	for (uint32_t i = 0; i < 1000; i++)
		kv_put(kv, slice_of(&i, sizeof(i)), slice_of(path, sizeof(path)));
	kv_applied(kv, 1);
	flush_kv(&l, kv);
	close_kv(&l, kv);
	ck_assert_int_eq(truncate(path, 3 * 4096), 0); /* with its first pages: LMDB itself would open it, and read what is not there */
	ck_assert_int_eq(kv_open(l.io, &options, &kv, &applied, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "data.mdb"));

	options.backend = &kv_mem;
	snprintf(path, sizeof(path), "%s/kv-mem", l.dir);
	ck_assert_int_eq(io_write_file(l.io, path, "nor is this", 11, 0600), 0);
	ck_assert_int_eq(kv_open(l.io, &options, &kv, &applied, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "kv-mem"));
	options.dir = "no/such/directory";
	for (int b = 0; b < BACKENDS; b++) {
		options.backend = backends[b];
		ck_assert_int_eq(kv_open(l.io, &options, &kv, &applied, &err), ERR_NOENT);
		ck_assert_ptr_nonnull(strstr(err.text, options.dir));
	}
	real_loop_fini(&l);
}
END_TEST

/* ---- commits that fail ---- */

static int commit_fails(void *store, const struct memtable *table, uint64_t applied, bool sync, struct err *err)
{
	(void)store, (void)table, (void)applied, (void)sync;
	return err_set(err, ERR_NOSPC, "no space left");
}

static void note_full(void *ctx, int code, const char *why)
{
	(void)why;
	ck_assert_int_eq(code, ERR_NOSPC);
	real_loop_got(ctx);
}

/* What was there can be read on, and what the failed commit was to write, too. */
START_TEST(test_reads_go_on_after_a_failed_commit)
{
	struct kv_backend failing = kv_lmdb;
	struct real_loop l;
	struct kv_options options = {.backend = &failing, .freeze_ms = 1, .on_fatal = note_full, .ctx = &l};
	struct kv_scan scan;
	uint64_t applied;
	struct err err;
	struct kv *kv;
	int rows = 0;

	real_loop_init(&l);
	options.dir = l.dir;
	kv = open_kv(&l, &kv_lmdb, 0, 0);
	kv_put(kv, text("old"), text("committed"));
	kv_put(kv, text("overwritten"), text("before"));
	kv_applied(kv, 1);
	close_kv(&l, kv);
	failing.commit = commit_fails;
	ck_assert_int_eq(kv_open(l.io, &options, &kv, &applied, &err), 0);
	kv_put(kv, text("overwritten"), text("after"));
	kv_put(kv, text("young"), text("in memory"));
	kv_applied(kv, 2);
	l.expected = 1;
	real_loop_wait(&l); /* the commit has failed */
	ck_assert_int_eq(kv_failure(kv, NULL), ERR_NOSPC);
	expect(kv, "old", "committed");
	expect(kv, "overwritten", "after");
	expect(kv, "young", "in memory");
	expect(kv, "nothing", NULL);
	for (kv_seek(kv, &scan, slice_of(NULL, 0)); kv_scan_valid(&scan); kv_scan_next(&scan))
		rows++;
	kv_scan_end(&scan);
	ck_assert_int_eq(rows, 3);
	l.expected = 1;
	kv_close(kv, real_loop_closed, &l);
	real_loop_wait(&l);
	ck_assert_int_eq(l.code, ERR_NOSPC);
	real_loop_fini(&l);
}
END_TEST

/* Rows of 3000 bytes: one fills a page or two. */
static void put_rows(struct real_loop *l, struct kv *kv, uint32_t from, uint32_t to, bool del, uint64_t *applied)
{
	static uint8_t value[3000];
	char key[16];

	for (uint32_t i = from; i < to; i++) {
		snprintf(key, sizeof(key), "row-%08u", i);
		if (del)
			kv_del(kv, text(key));
		else
			kv_put(kv, text(key), slice_of(value, sizeof(value)));
		if (i % 256 == 255 || i + 1 == to) {
			kv_applied(kv, ++*applied);
			flush_kv(l, kv);
		}
	}
}

/* A file that cannot grow beyond a limit stands for a file system that is full. */
START_TEST(test_full)
{
	enum { MIB = 1 << 20, ROOM = 8 * MIB, LIMIT = 24 * MIB };
	const struct rlimit limit = {LIMIT, LIMIT};
	struct kv_options options = {.backend = &kv_lmdb, .on_fatal = no_fatal, .room_bytes = ROOM};
	struct real_loop l;
	struct kv_stats stats;
	uint64_t applied;
	uint32_t rows = 0;
	struct err err;
	struct kv *kv;

	real_loop_init(&l);
	options.dir = l.dir;
	options.ctx = &l;
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_msg(kv_open(l.io, &options, &kv, &applied, &err) == 0, "%s", err.text);
	ck_assert(!kv_is_full(kv));
	while (!kv_is_full(kv)) {
		put_rows(&l, kv, rows, rows + 256, false, &applied);
		rows += 256;
		ck_assert_uint_lt(rows, LIMIT / 3000);
	}
	kv_get_stats(kv, &stats);
	ck_assert_uint_le(stats.backing_bytes, LIMIT - ROOM + 4 * MIB);
	ck_assert_uint_ge(stats.backing_bytes, LIMIT - ROOM - 4 * MIB);
	/* what is kept free is enough to remove all of it, and what was removed makes room */
	put_rows(&l, kv, 0, rows, true, &applied);
	ck_assert(!kv_is_full(kv));
	put_rows(&l, kv, 0, rows / 2, false, &applied);
	ck_assert(!kv_is_full(kv));
	close_kv(&l, kv);
	ck_assert_msg(kv_open(l.io, &options, &kv, &applied, &err) == 0, "%s", err.text);
	ck_assert(!kv_is_full(kv));
	close_kv(&l, kv);
	real_loop_fini(&l);
}
END_TEST

/* A page that has forgotten its last row: who scans it cannot know, but who is to have all rows is not given fewer. */
START_TEST(test_snapshot_of_fewer_rows)
{
	enum { LOWER_AT = 12, ROW_BYTES = 2 }; /* of a page's header: where the list of its rows ends */
	struct kv_options options = {.backend = &kv_lmdb};
	struct kv_snapshot *snapshot;
	struct slice key, value;
	struct real_loop l;
	struct err err = {0};
	uint64_t applied;
	struct kv *kv;

	real_loop_init(&l);
	options.dir = l.dir;
	kv = open_kv(&l, &kv_lmdb, 0, 0);
	kv_put(kv, text("first"), text("a"));
	kv_put(kv, text("last"), text("a row that will be hidden"));
	kv_applied(kv, 1);
	close_kv(&l, kv);
	spoil(&l, "a row that will be hidden", LOWER_AT, -ROW_BYTES);
	ck_assert_int_eq(kv_open(l.io, &options, &kv, &applied, &err), 0);
	ck_assert_int_eq(kv_snapshot_open(kv, &snapshot, &applied, &err), 0);
	ck_assert_int_eq(kv_snapshot_next(snapshot, &key, &value, &err), 0);
	ck_assert_int_eq(slice_compare(key, text("first")), 0);
	ck_assert_int_eq(kv_snapshot_next(snapshot, &key, &value, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "data.mdb: is damaged: of 2 rows 1"));
	kv_snapshot_close(snapshot);
	close_kv(&l, kv);
	real_loop_fini(&l);
}
END_TEST

/* A snapshot is the state after one index, whatever is put, committed and renewed while it is read. */
START_TEST(test_snapshot)
{
	for (int b = 0; b < BACKENDS; b++) {
		struct kv_snapshot *snapshot, *second;
		struct slice key, value;
		struct real_loop l;
		struct err err = {0};
		uint64_t applied;
		struct kv *kv;
		char name[16];

		real_loop_init(&l);
		kv = open_kv(&l, backends[b], 0, 0);
		for (int i = 0; i < 50; i++) {
			snprintf(name, sizeof(name), "key-%02d", i);
			kv_put(kv, text(name), text("old"));
			kv_applied(kv, (uint64_t)i + 1);
		}
		flush_kv(&l, kv);
		kv_put(kv, text("key-99"), text("not committed"));
		kv_applied(kv, 51);
		ck_assert_int_eq(kv_snapshot_open(kv, &snapshot, &applied, &err), 0);
		ck_assert_uint_eq(applied, 50);
		for (int i = 0; i < 50; i++) {
			snprintf(name, sizeof(name), "key-%02d", i);
			ck_assert_int_eq(kv_snapshot_next(snapshot, &key, &value, &err), 0);
			ck_assert_int_eq(slice_compare(key, text(name)), 0);
			ck_assert_int_eq(slice_compare(value, text("old")), 0);
			/* ahead of it and behind it, changed and removed */
			kv_put(kv, text(name), text("new"));
			kv_del(kv, text("key-49"));
			kv_applied(kv, (uint64_t)i + 52);
			if (i % 10 == 5)
				flush_kv(&l, kv);
		}
		ck_assert_int_eq(kv_snapshot_next(snapshot, &key, &value, &err), ERR_NOENT);
		flush_kv(&l, kv);
		ck_assert_int_eq(kv_snapshot_open(kv, &second, &applied, &err), 0);
		ck_assert_uint_eq(applied, 101);
		ck_assert_int_eq(kv_snapshot_next(second, &key, &value, &err), 0);
		ck_assert_int_eq(slice_compare(value, text("new")), 0);
		kv_snapshot_close(snapshot);
		kv_snapshot_close(second);
		close_kv(&l, kv);
		real_loop_fini(&l);
	}
}
END_TEST

UNIT_MAIN("kv", test_example, test_snapshot, test_snapshot_of_fewer_rows, test_against_a_model, test_trim_index, test_bounds_and_pressure, test_pressure_beside_a_commit, test_values_that_no_scan_gives, test_damaged_value, test_in_use,
	test_bad_files, test_reads_go_on_after_a_failed_commit, test_full)
