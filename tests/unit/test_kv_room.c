/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a commit may take of the disk is known before it begins, derived rows and all, and the less there is left the smaller commits become:
 * a table on a disk that is all but full goes on. Blocks "sID" lie on WIDTH disks; each makes a row "tDISK,ID".
 */
#include <stdatomic.h>
#include "common/base/limits.h"
#include "common/base/rng.h"
#include "common/io/io_backend.h"
#include "common/kv/journal.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"
#include <signal.h>
#include <sys/resource.h>

enum { WIDTH = 15, DISKS = 200, KEY_BYTES = 9, BLOCK_BYTES = 2 * WIDTH, MIB = 1 << 20 };

static size_t put_key(uint8_t *out, uint8_t table, uint16_t disk, uint64_t id)
{
	size_t at = 1;

	out[0] = table;
	if (table == 't') {
		out[at++] = (uint8_t)(disk >> 8);
		out[at++] = (uint8_t)disk;
	}
	for (int shift = 56; shift >= 0; shift -= 8)
		out[at++] = (uint8_t)(id >> shift);
	return at;
}

static uint16_t disk_at(const struct slice *value, int i)
{
	return (uint16_t)(value->data[2 * i] << 8 | value->data[2 * i + 1]);
}

static bool lies_on(const struct slice *value, uint16_t disk)
{
	for (int i = 0; value && i < WIDTH; i++)
		if (disk_at(value, i) == disk)
			return true;
	return false;
}

static int derive(struct slice key, const struct slice *was, const struct slice *is, struct kv_derived_rows *rows,
	struct err *err)
{
	uint8_t out[KEY_BYTES + 2];
	uint64_t id = 0;

	(void)err;
	for (size_t i = 1; i < key.len; i++)
		id = id << 8 | key.data[i];
	for (int i = 0; was && i < WIDTH; i++)
		if (!lies_on(is, disk_at(was, i)))
			kv_derived_del(rows, slice_of(out, put_key(out, 't', disk_at(was, i), id)));
	for (int i = 0; is && i < WIDTH; i++)
		if (!lies_on(was, disk_at(is, i)))
			kv_derived_put(rows, slice_of(out, put_key(out, 't', disk_at(is, i), id)), slice_of("12", 2));
	return 0;
}

static const struct kv_derived index_of_disks = {.source = 's', .target = 't', .derive = derive};

static void no_fatal(void *ctx, int code, const char *why)
{
	(void)ctx;
	ck_abort_msg("fatal %s: %s", err_name(code), why);
}

/* On disks far from each other, so that its rows are on as many pages. */
static void put_block(struct kv *kv, struct rng *rng, uint64_t id)
{
	uint8_t key[KEY_BYTES], value[BLOCK_BYTES];
	uint16_t first = (uint16_t)rng_below(rng, DISKS);

	for (int i = 0; i < WIDTH; i++) {
		uint16_t disk = (uint16_t)((first + i * (DISKS / WIDTH)) % DISKS);

		value[2 * i] = (uint8_t)(disk >> 8);
		value[2 * i + 1] = (uint8_t)disk;
	}
	kv_put(kv, slice_of(key, put_key(key, 's', 0, id)), slice_of(value, sizeof(value)));
}

static void del_block(struct kv *kv, uint64_t id)
{
	uint8_t key[KEY_BYTES];

	kv_del(kv, slice_of(key, put_key(key, 's', 0, id)));
}

/* ---- the bound ---- */

static void flush_kv(struct real_loop *l, struct kv *kv)
{
	l->expected = 1;
	kv_flush(kv, real_loop_closed, l);
	real_loop_wait(l);
	ck_assert_int_eq(l->code, 0);
}

/* A row of a kind of its own, of any length. */
static void put_other(struct kv *kv, struct rng *rng)
{
	static uint8_t key[LIMIT_KEY_BYTES], value[LIMIT_VALUE_BYTES];
	size_t len = 9 + rng_below(rng, rng_below(rng, 4) ? 30 : LIMIT_KEY_BYTES - 9),
	       bytes = rng_below(rng, rng_below(rng, 20) ? 3000 : LIMIT_VALUE_BYTES);

	put_key(key, 'a', 0, rng_below(rng, 5000));
	if (rng_below(rng, 4))
		kv_put(kv, slice_of(key, len), slice_of(value, bytes));
	else
		kv_del(kv, slice_of(key, len));
}

/* While a snapshot is open no page is used again: all that a commit takes, the file grows by. */
START_TEST(test_a_commit_takes_no_more)
{
	enum { COMMITS = 60, BLOCKS = 20000 };
	struct kv_options options = {.backend = &kv_lmdb, .derived = &index_of_disks, .freeze_ms = 60000, .on_fatal = no_fatal};
	struct kv_snapshot *snapshot;
	struct kv_stats before, after;
	struct real_loop l;
	uint64_t applied;
	struct rng rng;
	struct err err;
	struct kv *kv;

	real_loop_init(&l);
	rng_init(&rng, 7);
	options.dir = l.dir;
	options.ctx = &l;
	ck_assert_msg(kv_open(l.io, &options, &kv, &applied, &err) == 0, "%s", err.text);
	ck_assert_int_eq(kv_snapshot_open(kv, &snapshot, &applied, &err), 0);
	for (uint64_t commit = 1; commit <= COMMITS; commit++) {
		uint64_t blocks = rng_below(&rng, 3) ? rng_below(&rng, 20) : rng_below(&rng, 3000),
			 others = rng_below(&rng, 3) ? rng_below(&rng, 3) : rng_below(&rng, 500),
			 removed = rng_below(&rng, 4) ? rng_below(&rng, 10) : rng_below(&rng, 3000);

		for (uint64_t i = 0; i < blocks; i++)
			put_block(kv, &rng, rng_below(&rng, BLOCKS));
		for (uint64_t i = 0; i < removed; i++)
			del_block(kv, rng_below(&rng, BLOCKS));
		for (uint64_t i = 0; i < others; i++)
			put_other(kv, &rng);
		kv_applied(kv, commit);
		kv_get_stats(kv, &before);
		flush_kv(&l, kv);
		kv_get_stats(kv, &after);
		ck_assert_msg(after.backing_bytes - before.backing_bytes <= before.commit_room_bytes,
			"commit %lu took %lu bytes, at most %lu were expected: %lu blocks, %lu removed, %lu others", commit,
			after.backing_bytes - before.backing_bytes, before.commit_room_bytes, blocks, removed, others);
	}
	kv_snapshot_close(snapshot);
	l.expected = 1;
	kv_close(kv, real_loop_closed, &l);
	real_loop_wait(&l);
	real_loop_fini(&l);
}
END_TEST

/* ---- a disk that is all but full ---- */

enum { ROOM = 6 * MIB, LIMIT = 10 * MIB, ENTRIES = 8, OF_ENTRY = 16 };

struct bed {
	struct real_loop l;
	struct journal *journal;
	struct rng rng;
	struct entry {
		struct journal_entry entry;
		struct bed *bed;
		uint64_t id; /* of its first block */
	} entries[ENTRIES];
	uint64_t next, end; /* blocks that are put, or removed; end: as many as there may be */
	bool removing;
};

static int apply(
	void *ctx, struct kv *kv, uint64_t index, struct slice data, struct journal_entry *entry, struct err *err)
{
	struct bed *bed = ctx;
	uint64_t id;

	(void)index, (void)entry, (void)err;
	ck_assert_uint_eq(data.len, sizeof(id));
	memcpy(&id, data.data, sizeof(id));
	for (uint64_t i = id; i < id + OF_ENTRY; i++)
		if (bed->removing)
			del_block(kv, i);
		else
			put_block(kv, &bed->rng, i);
	return 0;
}

static void submit(struct bed *bed, struct entry *e)
{
	e->id = bed->next;
	bed->next += OF_ENTRY;
	journal_submit(bed->journal, &e->entry);
}

/* As metad does it: growth is refused as soon as the table says that it is full, removing never. */
static void on_entry(struct journal_entry *entry, int code)
{
	struct entry *e = CONTAINER_OF(entry, struct entry, entry);
	struct bed *bed = e->bed;

	ck_assert_int_eq(code, 0);
	if (bed->next < bed->end && (bed->removing || !kv_is_full(journal_kv(bed->journal))))
		submit(bed, e);
	else
		real_loop_got(&bed->l);
}

static void run(struct bed *bed, uint64_t end, bool removing)
{
	bed->next = 0;
	bed->end = end;
	bed->removing = removing;
	bed->l.expected = ENTRIES;
	for (int i = 0; i < ENTRIES; i++) {
		struct entry *e = &bed->entries[i];

		e->bed = bed;
		e->entry.append.data = slice_of(&e->id, sizeof(e->id));
		e->entry.rows = OF_ENTRY * (1 + WIDTH);
		e->entry.done = on_entry;
		submit(bed, e);
	}
	real_loop_wait(&bed->l);
}

static struct bed bed;

/* A file that cannot grow beyond a limit stands for a file system that is full. */
static void bed_open(void)
{
	const struct rlimit limit = {LIMIT, LIMIT};
	struct journal_options options = {
		.backend = &kv_lmdb,
		.derived = &index_of_disks,
		.segment_bytes = MIB,
		.freeze_ms = 60000, /* commits begin by size, or for want of room */
		.entry_growth_bytes = 64 << 10,
		.room_bytes = ROOM,
		.apply = apply,
		.on_fatal = no_fatal,
		.ctx = &bed,
	};
	struct err err = {0};

	real_loop_init(&bed.l);
	rng_init(&bed.rng, 8);
	options.dir = bed.l.dir;
	options.buffered = bed.l.buffered;
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_msg(journal_open(bed.l.io, &options, &bed.journal, &err) == 0, "%s", err.text);
}

/* Returns how many blocks there are when it is full. */
static uint64_t fill(void)
{
	enum { BLOCKS_MAX = 400000 };

	run(&bed, BLOCKS_MAX, false);
	ck_assert_uint_lt(bed.next, BLOCKS_MAX);   /* full by then */
	ck_assert_uint_gt(bed.next, LIMIT / 4096); /* and not before something is there */
	return bed.next;
}

static void remove_all(uint64_t blocks)
{
	run(&bed, blocks, true);
	flush_kv(&bed.l, journal_kv(bed.journal));
	flush_kv(&bed.l, journal_kv(bed.journal));
	ck_assert(!kv_is_full(journal_kv(bed.journal)));
}

static void bed_close(void)
{
	bed.l.expected = 1;
	journal_close(bed.journal, real_loop_closed, &bed.l);
	real_loop_wait(&bed.l);
	ck_assert_int_eq(bed.l.code, 0);
	real_loop_fini(&bed.l);
}

START_TEST(test_full)
{
	bed_open();
	for (int round = 0; round < 2; round++)
		remove_all(fill());
	bed_close();
}
END_TEST

/* What a snapshot keeps is needed for what is removed: that goes on, and the snapshot says why it does not. */
START_TEST(test_a_snapshot_makes_way)
{
	struct kv_snapshot *snapshot;
	struct slice key, value;
	uint64_t blocks, applied;
	struct err err;

	bed_open();
	blocks = fill();
	flush_kv(&bed.l, journal_kv(bed.journal));
	ck_assert_int_eq(kv_snapshot_open(journal_kv(bed.journal), &snapshot, &applied, &err), 0);
	ck_assert_int_eq(kv_snapshot_next(snapshot, &key, &value, &err), 0);
	ck_assert_int_eq(kv_snapshot_check(snapshot, &err), 0);
	remove_all(blocks);
	ck_assert_int_eq(kv_snapshot_check(snapshot, &err), ERR_NOSPC);
	ck_assert_int_eq(kv_snapshot_next(snapshot, &key, &value, &err), ERR_NOSPC);
	kv_snapshot_close(snapshot);
	remove_all(fill());
	bed_close();
}
END_TEST

/* ---- a file system that others fill ---- */

static struct {
	const struct io_vtable *plain;
	_Atomic uint64_t left; /* in it, beside what is allocated */
	atomic_uint asked;
} shared;

static int shared_space(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free)
{
	int rc = shared.plain->disk_space(io, path, ret_total, ret_free);

	atomic_fetch_add(&shared.asked, 1);
	*ret_free = atomic_load(&shared.left);
	return rc;
}

/* A table with a row, in a file system that shows so much to be left; allocate: NULL, or instead of its own. */
static struct kv *shared_open(struct real_loop *l, uint64_t left, int (*allocate)(struct io *io, int fd, uint64_t offset, uint64_t len))
{
	struct kv_options options = {.backend = &kv_lmdb, .on_fatal = no_fatal, .room_bytes = 8 * MIB, .spare_bytes = 2 * MIB};
	static struct io_vtable v;
	uint64_t applied;
	struct err err;
	struct kv *kv;

	real_loop_init(l);
	shared.plain = l->io->v;
	v = *shared.plain;
	v.disk_space = shared_space;
	v.allocate = allocate ? allocate : v.allocate;
	l->io->v = &v;
	options.dir = l->dir;
	options.ctx = l;
	atomic_store(&shared.left, left);
	ck_assert_msg(kv_open(l->io, &options, &kv, &applied, &err) == 0, "%s", err.text);
	kv_put(kv, slice_of("a", 1), slice_of("b", 1));
	kv_applied(kv, 1);
	flush_kv(l, kv);
	return kv;
}

static void shared_close(struct real_loop *l, struct kv *kv)
{
	l->expected = 1;
	kv_close(kv, real_loop_closed, l);
	real_loop_wait(l);
	l->io->v = shared.plain;
	real_loop_fini(l);
}

static struct real_loop *waiting;

static void elapsed(struct io_op *op)
{
	(void)op;
	real_loop_got(waiting);
}

static void elapse(struct real_loop *l, uint64_t ms)
{
	struct io_op timer = {0};

	waiting = l;
	l->expected = 1;
	io_prep_timer(&timer, io_now_ns(l->io) + ms * 1000000, elapsed);
	io_submit(l->io, &timer);
	real_loop_wait(l);
}

/* Whoever asks is told when there is room again; as long as there is none nothing is written. */
START_TEST(test_full_of_others)
{
	struct kv_stats stats;
	struct real_loop l;
	uint64_t applied;
	struct kv *kv;

	kv = shared_open(&l, MIB, NULL);
	kv_get_stats(kv, &stats);
	atomic_store(&shared.asked, 0);
	for (int i = 0; i < 200 && atomic_load(&shared.asked) < 2; i++) {
		ck_assert(kv_is_full(kv));
		elapse(&l, 50);
	}
	ck_assert_uint_ge(atomic_load(&shared.asked), 2);
	atomic_store(&shared.left, 9 * MIB); /* the file has a little more than it uses */
	elapse(&l, 1100);
	ck_assert(kv_is_full(kv));
	elapse(&l, 200);
	applied = stats.commits;
	kv_get_stats(kv, &stats);
	ck_assert_uint_eq(stats.commits, applied);
	atomic_store(&shared.left, 200 * MIB);
	for (int i = 0; i < 200 && kv_is_full(kv); i++)
		elapse(&l, 50);
	ck_assert(!kv_is_full(kv));
	kv_get_stats(kv, &stats);
	ck_assert_uint_eq(stats.commits, applied + 1);
	shared_close(&l, kv);
}
END_TEST

static int refuse(struct io *io, int fd, uint64_t offset, uint64_t bytes)
{
	(void)io, (void)fd, (void)offset, (void)bytes;
	return ERR_NOSPC;
}

/* A quota refuses what the file system shows: that is not tried each second, which would write each time. */
START_TEST(test_full_by_quota)
{
	struct kv_stats before, after;
	struct real_loop l;
	struct kv *kv;

	kv = shared_open(&l, 200 * MIB, refuse);
	kv_get_stats(kv, &before);
	atomic_store(&shared.asked, 0);
	for (int i = 0; i < 200 && atomic_load(&shared.asked) < 3; i++) {
		ck_assert(kv_is_full(kv));
		elapse(&l, 50);
	}
	ck_assert_uint_ge(atomic_load(&shared.asked), 3);
	kv_get_stats(kv, &after);
	ck_assert_uint_eq(after.commits, before.commits);
	shared_close(&l, kv);
}
END_TEST

static atomic_bool refusing;

static int refuse_at_first(struct io *io, int fd, uint64_t offset, uint64_t bytes)
{
	return atomic_load(&refusing) ? ERR_NOSPC : shared.plain->allocate(io, fd, offset, bytes);
}

/* What is refused once, as others took it in that moment, is no quota once it is seen that they have it. */
START_TEST(test_no_quota_but_others)
{
	struct real_loop l;
	struct kv *kv;

	atomic_store(&refusing, true);
	kv = shared_open(&l, 200 * MIB, refuse_at_first);
	ck_assert(kv_is_full(kv));
	atomic_store(&refusing, false);
	atomic_store(&shared.left, MIB);
	atomic_store(&shared.asked, 0);
	for (int i = 0; i < 400 && atomic_load(&shared.asked) < 2; i++) {
		ck_assert(kv_is_full(kv));
		elapse(&l, 50);
	}
	atomic_store(&shared.left, 200 * MIB);
	atomic_store(&shared.asked, 0);
	for (int i = 0; i < 400 && kv_is_full(kv); i++)
		elapse(&l, 50);
	ck_assert(!kv_is_full(kv));
	ck_assert_uint_lt(atomic_load(&shared.asked), 10); /* looks: a quota is believed in for sixty */
	shared_close(&l, kv);
}
END_TEST

UNIT_MAIN("kv_room", test_a_commit_takes_no_more, test_full, test_a_snapshot_makes_way, test_full_of_others, test_full_by_quota, test_no_quota_but_others)
