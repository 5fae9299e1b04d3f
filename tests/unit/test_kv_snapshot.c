/* SPDX-License-Identifier: Apache-2.0 */
/* Another thread goes ahead of who reads a snapshot, over a backend that says how far it came and can be held there. */
#include <sched.h>
#include <stdatomic.h>

#include "common/kv/kv_backend.h"
#include "common/kv/kv_snapshot.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"

enum { ROWS = 3000, VALUE_BYTES = 2000 }; /* 6 MiB */

static atomic_uint_fast64_t looked, read_bytes, furthest;
static atomic_bool held, inside, closed_inside;
static atomic_uint commits;

static uint64_t watched_ahead(void *store, void *snapshot, uint64_t bytes, const atomic_bool *stop)
{
	uint64_t n;

	atomic_store(&inside, true);
	n = kv_lmdb.snapshot_ahead(store, snapshot, bytes, stop);
	atomic_fetch_add(&looked, n);
	if (atomic_load(&looked) > atomic_load(&read_bytes) + atomic_load(&furthest))
		atomic_store(&furthest, atomic_load(&looked) - atomic_load(&read_bytes));
	while (atomic_load(&held))
		sched_yield();
	atomic_store(&inside, false);
	return n;
}

static void watched_close(void *store, void *snapshot)
{
	if (atomic_load(&inside))
		atomic_store(&closed_inside, true);
	kv_lmdb.snapshot_close(store, snapshot);
}

static int watched_commit(void *store, const struct memtable *table, uint64_t applied, bool sync, struct err *err)
{
	atomic_fetch_add(&commits, 1);
	return kv_lmdb.commit(store, table, applied, sync, err);
}

struct bed {
	struct real_loop l;
	struct kv_backend backend;
	struct kv *kv;
	struct kv_snapshot *snapshot;
	struct io_op timer;
	uint64_t applied;
};

static void no_fatal(void *ctx, int code, const char *why)
{
	(void)ctx;
	ck_abort_msg("fatal %s: %s", err_name(code), why);
}

static void put_rows(struct bed *b, int from, int count)
{
	char key[16], value[VALUE_BYTES];

	memset(value, 'v', sizeof(value));
	for (int i = from; i < from + count; i++) {
		snprintf(key, sizeof(key), "key-%06d", i);
		kv_put(b->kv, slice_of(key, strlen(key)), slice_of(value, sizeof(value)));
		kv_applied(b->kv, ++b->applied);
	}
}

static void flush(struct bed *b)
{
	b->l.expected++;
	kv_flush(b->kv, real_loop_closed, &b->l);
	real_loop_wait(&b->l);
	ck_assert_int_eq(b->l.code, 0);
}

static void bed_init(struct bed *b)
{
	struct kv_options o = {.backend = &b->backend, .freeze_ms = 3600 * 1000, .on_fatal = no_fatal};
	struct err err = {0};

	memset(b, 0, sizeof(*b));
	atomic_store(&looked, 0);
	atomic_store(&read_bytes, 0);
	atomic_store(&furthest, 0);
	b->backend = kv_lmdb;
	b->backend.snapshot_ahead = watched_ahead;
	b->backend.snapshot_close = watched_close;
	b->backend.commit = watched_commit;
	real_loop_init(&b->l);
	o.dir = b->l.dir;
	ck_assert_msg(kv_open(b->l.io, &o, &b->kv, &b->applied, &err) == 0, "%s", err.text);
	put_rows(b, 0, ROWS);
	flush(b);
}

static void bed_fini(struct bed *b)
{
	b->l.expected++;
	kv_close(b->kv, real_loop_closed, &b->l);
	real_loop_wait(&b->l);
	ck_assert_int_eq(b->l.code, 0);
	ck_assert(!atomic_load(&closed_inside));
	real_loop_fini(&b->l);
}

static void open_snapshot(struct bed *b)
{
	struct err err = {0};
	uint64_t applied;

	ck_assert_int_eq(kv_snapshot_open(b->kv, &b->snapshot, &applied, &err), 0);
}

static void turned(struct io_op *op)
{
	io_stop(CONTAINER_OF(op, struct bed, timer)->l.io);
}

/* A millisecond of the loop. */
static void turn(struct bed *b)
{
	io_prep_timer(&b->timer, io_clock_ns(b->l.io) + 1000000, turned);
	io_submit(b->l.io, &b->timer);
	do
		ck_assert_int_eq(io_run(b->l.io), 0);
	while (io_pending(&b->timer));
}

/* All of it, some way ahead, no further, and what is read is what is there. */
START_TEST(test_goes_ahead)
{
	struct slice key, value;
	struct err err = {0};
	struct bed b;
	char want[16];

	bed_init(&b);
	open_snapshot(&b);
	for (int i = 0; i < ROWS; i++) {
		while (i % 100 == 0 && atomic_load(&looked) <= atomic_load(&read_bytes))
			turn(&b);
		snprintf(want, sizeof(want), "key-%06d", i);
		ck_assert_int_eq(kv_snapshot_next(b.snapshot, &key, &value, &err), 0);
		ck_assert_int_eq(slice_compare(key, slice_of(want, strlen(want))), 0);
		ck_assert_uint_eq(value.len, VALUE_BYTES);
		atomic_fetch_add(&read_bytes, key.len + value.len);
	}
	ck_assert_int_eq(kv_snapshot_next(b.snapshot, &key, &value, &err), ERR_NOENT);
	while (atomic_load(&looked) < atomic_load(&read_bytes))
		turn(&b);
	ck_assert_uint_le(atomic_load(&furthest), KV_AHEAD_BYTES + 3 * (VALUE_BYTES + sizeof(want))); /* a row is counted here later than there */
	kv_snapshot_close(b.snapshot);
	bed_fini(&b);
}
END_TEST

static void hold(struct bed *b)
{
	atomic_store(&held, true);
	open_snapshot(b);
	while (!atomic_load(&inside))
		sched_yield();
}

/* Whoever closes it does not wait, and it goes when the other thread is done with it. */
START_TEST(test_closed_while_it_looks)
{
	struct bed b;

	bed_init(&b);
	hold(&b);
	kv_snapshot_close(b.snapshot);
	turn(&b);
	atomic_store(&held, false);
	bed_fini(&b);
	bed_init(&b);
	hold(&b);
	turn(&b);
	atomic_store(&held, false);
	kv_snapshot_close(b.snapshot);
	bed_fini(&b);
}
END_TEST

/* Snapshots end to make room: no commit begins before they have. */
START_TEST(test_commit_waits_for_who_ends)
{
	struct slice key, value;
	struct err err = {0};
	unsigned before;
	struct bed b;

	bed_init(&b);
	hold(&b);
	kv_end_snapshots(b.kv);
	ck_assert_int_eq(kv_snapshot_next(b.snapshot, &key, &value, &err), ERR_NOSPC);
	before = atomic_load(&commits);
	put_rows(&b, 0, 10);
	b.l.expected = 1;
	kv_flush(b.kv, real_loop_closed, &b.l);
	for (int i = 0; i < 20; i++) {
		turn(&b);
		ck_assert_uint_eq(atomic_load(&commits), before);
	}
	atomic_store(&held, false);
	real_loop_wait(&b.l);
	ck_assert_uint_eq(atomic_load(&commits), before + 1);
	kv_snapshot_close(b.snapshot);
	bed_fini(&b);
}
END_TEST

static void is_near(void *ctx)
{
	(*(int *)ctx)++;
}

/* Who waits for rows is told when they are there, or when the snapshot has ended; and not when he has closed it. */
START_TEST(test_near)
{
	struct slice key, value;
	struct err err = {0};
	struct bed b;
	int told = 0;

	bed_init(&b);
	hold(&b);
	ck_assert(!kv_snapshot_near(b.snapshot, KV_AHEAD_BYTES / 2, is_near, &told));
	turn(&b);
	ck_assert_int_eq(told, 0);
	atomic_store(&held, false);
	while (!told)
		turn(&b);
	ck_assert(kv_snapshot_near(b.snapshot, KV_AHEAD_BYTES / 2, is_near, &told));
	for (int i = 0; i < ROWS; i++)
		ck_assert_int_eq(kv_snapshot_next(b.snapshot, &key, &value, &err), 0);
	while (!kv_snapshot_near(b.snapshot, KV_AHEAD_BYTES / 2, is_near, &told)) /* there are no more */
		turn(&b);
	turn(&b);
	kv_snapshot_close(b.snapshot);

	told = 0;
	hold(&b);
	ck_assert(!kv_snapshot_near(b.snapshot, 1, is_near, &told));
	kv_end_snapshots(b.kv);
	ck_assert_int_eq(told, 1);
	kv_snapshot_close(b.snapshot);
	atomic_store(&held, false);
	while (atomic_load(&inside))
		sched_yield();
	turn(&b);

	told = 0;
	hold(&b);
	ck_assert(!kv_snapshot_near(b.snapshot, 1, is_near, &told));
	kv_snapshot_close(b.snapshot);
	atomic_store(&held, false);
	bed_fini(&b);
	ck_assert_int_eq(told, 0);
}
END_TEST

UNIT_MAIN("kv_snapshot", test_goes_ahead, test_closed_while_it_looks, test_commit_waits_for_who_ends, test_near)
