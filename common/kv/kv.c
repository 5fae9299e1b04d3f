/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table that its users see: the active memory table over the frozen one over the backing store.
 *
 *   put, del -> active --freeze--> frozen --commit (IO_LANE_KV)--> backing store; at the end of a turn: renew, clear
 *
 * Invariants:
 *  1. A freeze happens between entries of the log only, so a commit is the state after exactly the entry that it names.
 *  2. The frozen table is not changed while a commit reads it, and is cleared only after the reader sees its commit.
 *  3. Values and scans that were handed out stay valid to the end of the turn: renew and clear happen in the turn hook.
 *  4. The trim index is that of a commit that no crash can take back: the last but one, or the last one synced.
 *  5. After the first error nothing is committed any more. What a failed commit was to write stays in `frozen`, so reads
 *     stay right; only a backing store that cannot be read ends them.
 *
 * A commit is started by size, by time, because a flush waits, or because the backing store has no room for more at once. While one runs, the active table goes on growing;
 * kv_admits tells the owner how fast it may.
 */
#include "common/kv/kv_private.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

enum {
	KV_FREEZE_BYTES = 16 << 20,
	KV_FREEZE_MS = 100,
	KV_FREE_SHARE = 4, /* 1/4 of the room beside a running commit is given at once, the rest by time */
	KV_COMMIT_BYTES_PER_MS = 16 << 10, /* before it is known how fast commits are */
	KV_SPEED_BYTES = 1 << 20,          /* what it takes to learn that from a commit */
	BROUGHT_ROOM = 3,                  /* pages that were cut in two are half empty, and rows have heads */
	DERIVED_BYTES = 64 + 16,           /* a derived row, and what the backing store needs for it beside key and value */
};

#define MS_NS 1000000ull
#define LOOK_NS (1000 * MS_NS) /* between looks at one that is full, and behind a commit, so that entries that wait for it to be settled find it so */

static void run_hook(struct io_turn_hook *hook);
static void snapshots_ended(void *ctx);

static void kick(struct kv *kv)
{
	io_at_turn_end(kv->io, &kv->hook);
}

static void fail(struct kv *kv, int code, const char *text)
{
	if (kv->failed)
		return;
	kv->failed = code;
	snprintf(kv->fatal_text, sizeof(kv->fatal_text), "%s", text);
	kick(kv);
}

void kv__read_failed(struct kv *kv, int code, const char *text)
{
	kv->unreadable = true;
	fail(kv, code, text);
}

int kv_failure(const struct kv *kv, const char **ret_text)
{
	if (kv->failed && ret_text)
		*ret_text = kv->fatal_text;
	return kv->failed;
}

/* ---- open ---- */

int kv_open(struct io *io, const struct kv_options *options, struct kv **ret_kv, uint64_t *ret_applied, struct err *err)
{
	struct kv *kv;
	uint64_t applied;
	void *store;
	int rc;

	rc = options->backend->open(io, options, &store, &applied, err);
	if (rc)
		return rc;
	kv = MEM_NEW(struct kv);
	kv->io = io;
	kv->backend = options->backend;
	kv->derived = options->derived;
	kv->store = store;
	kv->freeze_bytes = options->freeze_bytes ? options->freeze_bytes : KV_FREEZE_BYTES;
	kv->minds_room = options->room_bytes != 0;
	kv->freeze_ns = (options->freeze_ms ? options->freeze_ms : KV_FREEZE_MS) * MS_NS;
	kv->turn = options->turn;
	kv->on_fatal = options->on_fatal;
	kv->ctx = options->ctx;
	kv->active = memtable_new();
	kv->frozen = memtable_new();
	kv->bytes_per_ms = KV_COMMIT_BYTES_PER_MS;
	kv->applied = kv->frozen_applied = applied;
	io_turn_hook_init(&kv->hook, run_hook);
	list_init(&kv->waiters);
	kv->snapshots = (struct kv_snapshots){.io = io, .backend = kv->backend, .store = store, .ended = snapshots_ended, .ctx = kv};
	list_init(&kv->snapshots.all);
	*ret_kv = kv;
	*ret_applied = applied;
	return 0;
}

static void kv_free(struct kv *kv)
{
	CHECK(list_empty(&kv->snapshots.all));
	io_turn_hook_remove(kv->io, &kv->hook);
	kv->backend->close(kv->store);
	memtable_free(kv->active);
	memtable_free(kv->frozen);
	mem_free(kv);
}

void kv_abandon(struct kv *kv)
{
	CHECK(!kv->commit_running && !io_pending(&kv->timer) && list_empty(&kv->waiters));
	kv_free(kv);
}

static void finish(struct kv *kv)
{
	void (*closed)(void *ctx, int code) = kv->closed;
	void *ctx = kv->closed_ctx;
	int code = kv->failed;

	kv_free(kv);
	if (closed)
		closed(ctx, code);
}

/* ---- commit ---- */

/*
 * The first commit of a life is synced: the one that it found may have been left by a sync that failed, and then no later sync makes that
 * one durable. Until there is one of this life, the log behind it is needed, and so is the room of the commit before it.
 */
static void freeze(struct kv *kv, bool sync)
{
	struct memtable *empty = kv->frozen;

	CHECK(!kv->commit_running && !kv->half_applied && memtable_rows(empty) == 0);
	kv->frozen = kv->active;
	kv->active = empty;
	kv->frozen_applied = kv->applied;
	kv->commit_sync = sync || !kv->committed_applied;
	kv->freeze_ns_at = io_now_ns(kv->io);
	kv->commit_running = true;
	kv->commit_ended = false;
	kv->commit_looks = kv->look_due && !sync;
	kv->freeze_due = kv->look_due = false;
	kv->frozen_sources = kv->active_sources;
	kv->active_sources = 0;
}

/* Blocking; on the worker. Touches nothing that the loop changes meanwhile. */
static void commit_run(struct io_op *op)
{
	struct kv *kv = CONTAINER_OF(op, struct kv, commit_op);

	kv->commit_start_ns = kv->commit_end_ns = io_clock_ns(kv->io);
	kv->commit_code = 0;
	kv->commit_void = kv->commit_looks && memtable_rows(kv->frozen) == 0 && !kv->backend->has_room(kv->store);
	if (kv->commit_void)
		return;
	kv->commit_code =
		kv->backend->commit(kv->store, kv->frozen, kv->frozen_applied, kv->commit_sync, &kv->commit_err);
	kv->commit_end_ns = io_clock_ns(kv->io);
}

static void commit_done(struct io_op *op)
{
	struct kv *kv = CONTAINER_OF(op, struct kv, commit_op);

	if (op->result < 0) {
		kv->commit_code = (int)op->result;
		err_set(&kv->commit_err, kv->commit_code, "commit was not run: %s", err_text(kv->commit_code));
	}
	kv->commit_ended = true;
	kick(kv);
}

/* Small commits are mostly waiting for the disk: they say nothing about how long a big one takes. */
static void learn_speed(struct kv *kv, uint64_t bytes, uint64_t ns)
{
	if (bytes >= KV_SPEED_BYTES)
		kv->bytes_per_ms = (3 * kv->bytes_per_ms + bytes * MS_NS / (ns + 1)) / 4 + 1;
}

/* The commit becomes what reads see, and its table is emptied. */
static void take_over(struct kv *kv)
{
	uint64_t ns = kv->commit_end_ns - kv->commit_start_ns;
	int rc = kv->commit_code;

	kv->commit_running = false;
	kv->commit_ended = false;
	kv->looked_ns = io_now_ns(kv->io);
	if (!rc && kv->commit_void)
		return;
	kv->generation++;
	kv->renewals++;
	if (!rc) {
		rc = kv->backend->renew(kv->store, kv->frozen, &kv->commit_err);
		kv->unreadable = rc;
	}
	if (rc) {
		fail(kv, rc, kv->commit_err.text);
		return;
	}
	kv->stats.commits++;
	kv->stats.committed_rows += memtable_rows(kv->frozen);
	kv->stats.last_commit_ns = ns;
	if (ns > kv->stats.longest_commit_ns)
		kv->stats.longest_commit_ns = ns;
	learn_speed(kv, memtable_bytes(kv->frozen), ns);
	kv->trim_index = kv->commit_sync ? kv->frozen_applied : kv->committed_applied;
	kv->committed_applied = kv->frozen_applied;
	memtable_clear(kv->frozen);
}

/* Tells those who wait for a durable commit of theirs or, after a failure, all. */
static void tell_waiters(struct kv *kv)
{
	struct list telling, *node;

	list_init(&telling);
	LIST_FOREACH_SAFE(it, &kv->waiters) {
		if (kv->failed || LIST_ENTRY(it, struct kv_waiter, link)->index <= kv->trim_index) {
			list_remove(it);
			list_push_back(&telling, it);
		}
	}
	while ((node = list_pop_front(&telling))) {
		struct kv_waiter *w = LIST_ENTRY(node, struct kv_waiter, link);
		void (*done)(void *ctx, int code) = w->done;
		void *ctx = w->ctx;

		mem_free(w);
		done(ctx, kv->failed);
	}
}

static bool commit_is_due(const struct kv *kv)
{
	/* What made snapshots end needs the room that they kept. */
	if (kv->commit_running || kv->half_applied || kv->failed || kv->snapshots.ending)
		return false;
	if (!list_empty(&kv->waiters))
		return true;
	if (kv->look_due)
		return true;
	if (kv->applied == kv->frozen_applied)
		return false;
	return kv->freeze_due || kv->closing || memtable_bytes(kv->active) >= kv->freeze_bytes;
}

static void timer_done(struct io_op *op)
{
	struct kv *kv = CONTAINER_OF(op, struct kv, timer);

	kv->freeze_due = op->result == 0 && kv->applied != kv->frozen_applied; /* one by size, or a flush, may have been quicker */
	kick(kv);
}

uint64_t kv__turn_wait_ns(uint64_t turn, int64_t wall_ns, uint64_t period_ns)
{
	uint32_t part = (uint32_t)turn * 2654435769u; /* of 2^32, by the golden ratio */
	uint64_t phase = period_ns / (1 << 16) * (part >> 16), wait = period_ns - ((uint64_t)wall_ns + period_ns - phase) % period_ns;

	return wait < period_ns / 2 ? wait + period_ns : wait;
}

static void mind_timer(struct kv *kv)
{
	if (kv->closing) {
		io_cancel(kv->io, &kv->timer);
	} else if (kv->applied != kv->frozen_applied && !kv->freeze_due && !kv->failed && !io_pending(&kv->timer)) {
		uint64_t wait = kv->turn ? kv__turn_wait_ns(kv->turn, io_wall_ns(kv->io), kv->freeze_ns) : kv->freeze_ns;

		io_prep_timer(&kv->timer, io_now_ns(kv->io) + wait, timer_done);
		io_submit(kv->io, &kv->timer);
	}
}

static void run_hook(struct io_turn_hook *hook)
{
	struct kv *kv = CONTAINER_OF(hook, struct kv, hook);

	if (kv->commit_running && kv->commit_ended)
		take_over(kv);
	tell_waiters(kv);
	if (kv->failed && !kv->fatal_told) {
		kv->fatal_told = true;
		if (kv->on_fatal)
			kv->on_fatal(kv->ctx, kv->failed, kv->fatal_text);
	}
	if (commit_is_due(kv)) {
		freeze(kv, kv->closing || !list_empty(&kv->waiters));
		io_prep_offload(&kv->commit_op, IO_LANE_KV, commit_run, commit_done);
		io_submit(kv->io, &kv->commit_op);
	}
	mind_timer(kv);
	if (kv->closing && !kv->commit_running && !io_pending(&kv->timer) && list_empty(&kv->waiters) && !kv->snapshots.ending)
		finish(kv);
}

static int commit_now(struct kv *kv, bool sync, struct err *err)
{
	freeze(kv, sync);
	commit_run(&kv->commit_op);
	take_over(kv);
	return kv->failed ? err_set(err, kv->failed, "%s", kv->fatal_text) : 0;
}

int kv_settle(struct kv *kv, struct err *err)
{
	return memtable_bytes(kv->active) < kv->freeze_bytes ? 0 : commit_now(kv, false, err);
}

int kv_settle_all(struct kv *kv, struct err *err)
{
	return commit_now(kv, true, err);
}

void kv_flush(struct kv *kv, void (*done)(void *ctx, int code), void *ctx)
{
	struct kv_waiter *w = MEM_NEW(struct kv_waiter);

	w->index = kv->applied;
	w->done = done;
	w->ctx = ctx;
	list_push_back(&kv->waiters, &w->link);
	kick(kv);
}

static void closing_flushed(void *ctx, int code)
{
	(void)ctx;
	(void)code; /* kept in kv->failed, which finish() hands on */
}

void kv_close(struct kv *kv, void (*closed)(void *ctx, int code), void *ctx)
{
	CHECK(!kv->closing);
	if (kv->half_applied) { /* an apply that failed: its owner knows, and it must not be committed */
		fail(kv, ERR_STOPPED, "closed in the middle of an entry");
		kv->fatal_told = true;
	}
	kv->closing = true;
	kv->closed = closed;
	kv->closed_ctx = ctx;
	kv_flush(kv, closing_flushed, NULL);
}

/* ---- write ---- */

static bool is_derived(const struct kv *kv, struct slice key)
{
	return kv->derived && key.len > 0 && key.data[0] == kv->derived->target;
}

static bool is_source(const struct kv *kv, struct slice key)
{
	return kv->derived && key.len > 0 && key.data[0] == kv->derived->source;
}

void kv_put(struct kv *kv, struct slice key, struct slice value)
{
	CHECK(!is_derived(kv, key));
	kv->active_sources += is_source(kv, key);
	kv->half_applied = true;
	kv->generation++;
	memtable_put(kv->active, key, value);
}

void kv_del(struct kv *kv, struct slice key)
{
	CHECK(!is_derived(kv, key));
	kv->active_sources += is_source(kv, key);
	kv->half_applied = true;
	kv->generation++;
	memtable_del(kv->active, key);
}

void kv_applied(struct kv *kv, uint64_t index)
{
	CHECK(index > kv->applied && !kv->closing);
	kv->applied = index;
	kv->half_applied = false;
	if (!io_pending(&kv->timer) || memtable_bytes(kv->active) >= kv->freeze_bytes || !list_empty(&kv->waiters))
		kick(kv);
}

/* ---- read ---- */

int kv_get(struct kv *kv, struct slice key, struct slice *ret_value)
{
	const struct memtable *const tables[] = {kv->active, kv->frozen};
	struct err err;
	int rc;

	for (size_t i = 0; i < ARRAY_COUNT(tables); i++) {
		switch (memtable_get(tables[i], key, ret_value)) {
		case MEMTABLE_VALUE:
			return 0;
		case MEMTABLE_TOMBSTONE:
			return ERR_NOENT;
		case MEMTABLE_ABSENT:
			break;
		}
	}
	if (kv->unreadable)
		return kv->failed;
	rc = kv->backend->get(kv->store, key, ret_value, &err);
	if (rc && rc != ERR_NOENT)
		kv__read_failed(kv, rc, err.text);
	return rc;
}

/* ---- snapshots ---- */

int kv_snapshot_open(struct kv *kv, struct kv_snapshot **ret_snapshot, uint64_t *ret_applied, struct err *err)
{
	if (kv->failed)
		return err_set(err, kv->failed, "%s", kv->fatal_text);
	return kv__snapshot_open(&kv->snapshots, ret_snapshot, ret_applied, err);
}

void kv_end_snapshots(struct kv *kv)
{
	kv__snapshots_end(&kv->snapshots);
}

static void snapshots_ended(void *ctx)
{
	kick(ctx);
}

/* ---- what the owner asks ---- */

uint64_t kv_trim_index(const struct kv *kv)
{
	return kv->trim_index;
}

/* What the active table may hold now, of the `room` that the frozen one leaves it. */
static uint64_t active_ration(const struct kv *kv, uint64_t room)
{
	uint64_t expected_ms = memtable_bytes(kv->frozen) / kv->bytes_per_ms + 1,
		 elapsed_ms = (io_now_ns(kv->io) - kv->freeze_ns_at) / MS_NS, free_bytes = room / KV_FREE_SHARE;

	if (!kv->commit_running || elapsed_ms >= expected_ms)
		return room;
	return free_bytes + (room - free_bytes) * elapsed_ms / expected_ms;
}

static uint32_t percent_of(uint64_t part, uint64_t whole)
{
	return part >= whole ? 100 : (uint32_t)(part * 100 / whole);
}

uint32_t kv_pressure(const struct kv *kv)
{
	return percent_of(memtable_bytes(kv->active) + memtable_bytes(kv->frozen), LIMIT_MEMTABLE_BYTES);
}

uint32_t kv_pressure_now(const struct kv *kv)
{
	uint64_t frozen = memtable_bytes(kv->frozen), room = LIMIT_MEMTABLE_BYTES > frozen ? LIMIT_MEMTABLE_BYTES - frozen : 0;
	uint32_t of_ration = percent_of(memtable_bytes(kv->active), active_ration(kv, room)), of_all = kv_pressure(kv);

	return of_all > of_ration ? of_all : of_ration;
}

static struct kv_room room_of(const struct kv *kv)
{
	struct kv_backend_stats backing;

	kv->backend->stats(kv->store, &backing);
	backing.room.left_bytes += list_empty(&kv->snapshots.all) ? backing.room.again_bytes : 0;
	return backing.room;
}

/* `bytes`: what the rows bring. */
static uint64_t commit_room(const struct kv_room *room, uint64_t bytes, uint64_t rows)
{
	uint64_t leaves = rows < room->leaf_pages ? rows : room->leaf_pages,
		 branches = rows * room->depth < room->branch_pages ? rows * room->depth : room->branch_pages;

	return 2 * (leaves + branches) * room->page_bytes + BROUGHT_ROOM * bytes + room->own_bytes;
}

/* What a table's commit may take, if so much more comes to it. */
static uint64_t table_room(const struct kv_room *room, const struct memtable *table, uint64_t sources, uint64_t bytes, uint64_t rows)
{
	uint64_t derived = sources * KV_DERIVED_ROWS;

	return commit_room(room, bytes + memtable_bytes(table) + derived * DERIVED_BYTES, rows + memtable_rows(table) + derived);
}

/*
 * Twice what the running commit may take: it is not in what the store says of itself, and what it makes greater the next one may copy. Pages
 * that it lets go of are of no use to the next one.
 */
static uint64_t all_room(const struct kv *kv, const struct kv_room *room, uint64_t bytes, uint64_t rows)
{
	return 2 * (kv->commit_running ? table_room(room, kv->frozen, kv->frozen_sources, 0, 0) : 0) +
		table_room(room, kv->active, kv->active_sources, bytes, rows);
}

static bool has_room(struct kv *kv, uint64_t bytes, uint64_t rows)
{
	struct kv_room room = room_of(kv);

	if (!kv->minds_room || all_room(kv, &room, bytes, rows) <= room.left_bytes)
		return true;
	if (!kv->commit_running && !kv->freeze_due && memtable_rows(kv->active)) {
		kv->freeze_due = true;
		kick(kv);
	}
	return false;
}

bool kv_fits(const struct kv *kv, uint64_t worst_bytes, uint64_t worst_rows)
{
	struct kv_room room = room_of(kv);

	return !kv->minds_room || commit_room(&room, worst_bytes, worst_rows) <= room.left_bytes / 2;
}

bool kv_is_settled(const struct kv *kv)
{
	return !kv->commit_running && memtable_rows(kv->active) == 0;
}

bool kv_admits(struct kv *kv, uint64_t worst_bytes, uint64_t worst_rows)
{
	uint64_t active = memtable_bytes(kv->active), room = LIMIT_MEMTABLE_BYTES;

	if (active + memtable_bytes(kv->frozen) + worst_bytes > room)
		return false;
	room -= memtable_bytes(kv->frozen) + worst_bytes;
	return active <= active_ration(kv, room) && has_room(kv, worst_bytes, worst_rows);
}

bool kv_is_full(struct kv *kv)
{
	struct kv_backend_stats backing;

	kv->backend->stats(kv->store, &backing);
	if (backing.full && !kv->commit_running && io_now_ns(kv->io) >= kv->looked_ns + LOOK_NS) {
		kv->look_due = true;
		kick(kv);
	}
	return backing.full;
}

void kv_get_stats(struct kv *kv, struct kv_stats *ret_stats)
{
	const struct kv_room room = room_of(kv);
	struct kv_backend_stats backing;

	kv->backend->stats(kv->store, &backing);
	*ret_stats = kv->stats;
	ret_stats->memory_bytes = memtable_bytes(kv->active) + memtable_bytes(kv->frozen);
	ret_stats->room_bytes = room.left_bytes;
	ret_stats->commit_room_bytes = all_room(kv, &room, 0, 0);
	ret_stats->backing_bytes = backing.bytes;
	ret_stats->backing_rows = backing.rows;
}
