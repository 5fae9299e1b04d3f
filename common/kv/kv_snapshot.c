/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other thread has a reader of its own in the backing store. A snapshot goes when it was ended and that thread is done with it, which looks
 * at `stop` before each row; its memory goes when it was closed, too.
 */
#include "common/kv/kv_snapshot.h"

#include <stdatomic.h>
#include "common/base/check.h"
#include "common/base/mem.h"

struct kv_snapshot {
	struct list link; /* all->all */
	struct kv_snapshots *all;
	void *snapshot; /* NULL: it has gone */
	bool ended, closed;
	/* Ahead of who reads. */
	struct io_op op;
	bool looking, at_end;
	atomic_bool stop;
	uint64_t read_bytes, looked_bytes, look_to; /* all from the first row on */
	uint64_t got_bytes;                         /* the other thread's, while it looks */
	/* Who waits for rows to be near. */
	uint64_t near_bytes;
	void (*near)(void *ctx);
	void *near_ctx;
};

static void let_go(struct kv_snapshot *s)
{
	s->all->backend->snapshot_close(s->all->store, s->snapshot);
	s->snapshot = NULL;
	list_remove(&s->link);
}

static void look_run(struct io_op *op)
{
	struct kv_snapshot *s = CONTAINER_OF(op, struct kv_snapshot, op);

	s->got_bytes = s->all->backend->snapshot_ahead(s->all->store, s->snapshot, s->look_to - s->looked_bytes, &s->stop);
}

static void look_ahead(struct kv_snapshot *s);

static bool is_near(const struct kv_snapshot *s, uint64_t bytes)
{
	return !s->all->backend->snapshot_ahead || s->ended || s->at_end || s->looked_bytes >= s->read_bytes + bytes;
}

static void tell_near(struct kv_snapshot *s)
{
	void (*near)(void *ctx) = s->near;

	if (!near || !is_near(s, s->near_bytes))
		return;
	s->near = NULL;
	near(s->near_ctx);
}

static void look_done(struct io_op *op)
{
	struct kv_snapshot *s = CONTAINER_OF(op, struct kv_snapshot, op);
	struct kv_snapshots *all = s->all;

	s->looking = false;
	s->looked_bytes += s->got_bytes;
	s->at_end = s->looked_bytes < s->look_to;
	if (!s->ended) {
		look_ahead(s);
		tell_near(s); /* may close it */
		return;
	}
	let_go(s);
	if (s->closed)
		mem_free(s);
	if (--all->ending == 0)
		all->ended(all->ctx);
}

static void look_ahead(struct kv_snapshot *s)
{
	if (!s->all->backend->snapshot_ahead || s->looking || s->at_end || s->looked_bytes >= s->read_bytes + KV_AHEAD_BYTES / 2)
		return;
	s->looking = true;
	s->look_to = s->read_bytes + KV_AHEAD_BYTES;
	io_prep_offload(&s->op, IO_LANE_FILE, look_run, look_done);
	io_submit(s->all->io, &s->op);
}

int kv__snapshot_open(struct kv_snapshots *all, struct kv_snapshot **ret_snapshot, uint64_t *ret_applied, struct err *err)
{
	struct kv_snapshot *s;
	void *snapshot;
	int rc = all->backend->snapshot_open(all->store, &snapshot, ret_applied, err);

	if (rc)
		return rc;
	s = MEM_NEW(struct kv_snapshot);
	s->all = all;
	s->snapshot = snapshot;
	atomic_init(&s->stop, false);
	list_push_back(&all->all, &s->link);
	look_ahead(s);
	*ret_snapshot = s;
	return 0;
}

int kv_snapshot_check(const struct kv_snapshot *s, struct err *err)
{
	return !s->ended ? 0 : err_set(err, ERR_NOSPC, "the disk is all but full: what was written meanwhile needed the room that this kept");
}

int kv_snapshot_next(struct kv_snapshot *s, struct slice *ret_key, struct slice *ret_value, struct err *err)
{
	int rc = kv_snapshot_check(s, err);

	if (!rc)
		rc = s->all->backend->snapshot_next(s->all->store, s->snapshot, ret_key, ret_value, err);
	if (rc)
		return rc;
	s->read_bytes += ret_key->len + ret_value->len;
	look_ahead(s);
	return 0;
}

bool kv_snapshot_near(struct kv_snapshot *s, uint64_t bytes, void (*near)(void *ctx), void *ctx)
{
	CHECK(bytes <= KV_AHEAD_BYTES / 2);
	if (is_near(s, bytes))
		return true;
	CHECK(s->looking);
	s->near_bytes = bytes;
	s->near = near;
	s->near_ctx = ctx;
	return false;
}

static void end_snapshot(struct kv_snapshot *s)
{
	if (s->ended)
		return;
	s->ended = true;
	if (s->looking) {
		atomic_store_explicit(&s->stop, true, memory_order_relaxed);
		s->all->ending++;
	} else {
		let_go(s);
	}
}

void kv_snapshot_close(struct kv_snapshot *s)
{
	s->near = NULL;
	end_snapshot(s);
	s->closed = true;
	if (!s->looking)
		mem_free(s);
}

void kv__snapshots_end(struct kv_snapshots *all)
{
	LIST_FOREACH_SAFE(it, &all->all) {
		struct kv_snapshot *s = LIST_ENTRY(it, struct kv_snapshot, link);

		end_snapshot(s);
		tell_near(s);
	}
}
