/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_take: operations of a file being written, in order: the bytes of a write go into stripes (copied once, or, for whole stripes of an
 * asynchronous write, used where they lie), stripes into blocks. What an operation waits for here: room among WRITE_STRIPES stripes
 * unacknowledged, memory of the client's pool, an allocation. When the pool runs short a block is closed early, so that what it holds
 * becomes free.
 */
#include "client/write.h"

#include <string.h>

static void window_timer_done(struct io_op *op)
{
	struct write_stream *s = CONTAINER_OF(op, struct write_stream, timer);
	uint64_t now_ns = io_now_ns(s->client->io);

	if (op->result == 0 && now_ns > WRITE_SLOW_NS)
		LIST_FOREACH(it, &s->blocks)
			write_block_mark_slow(LIST_ENTRY(it, struct write_block, link), now_ns - WRITE_SLOW_NS);
	write_kick(s);
}

static bool window_open(struct write_stream *s)
{
	if (s->unacked < WRITE_STRIPES)
		return true;
	if (!io_pending(&s->timer)) {
		io_prep_timer(&s->timer, io_now_ns(s->client->io) + WRITE_SLOW_NS / 4, window_timer_done);
		io_submit(s->client->io, &s->timer);
	}
	return false;
}

static bool has_block_in_flight(const struct write_stream *s)
{
	LIST_FOREACH(it, &s->blocks)
		if (LIST_ENTRY(it, struct write_block, link) != s->open)
			return true;
	return false;
}

static void close_open(struct write_stream *s)
{
	struct write_block *b = s->open;

	if (!b)
		return;
	if (s->stripe)
		write_stripe_dispatch(s->stripe);
	s->stripe = NULL;
	s->open = NULL;
	write_block_close(b);
	write_kick(s);
}

uint64_t write_held_pages(const struct client_file *file)
{
	const struct write_stream *s = file->write;
	uint64_t pages = 0;

	for (uint32_t i = 0; s->open && i < s->open->stripe_count; i++)
		pages += s->open->stripes[i]->page_count;
	return pages;
}

bool write_relieve(struct client_file *file)
{
	if (!file->write->open)
		return false;
	close_open(file->write);
	return true;
}

/* Others wait for memory and nothing that is in flight will free some: the file that holds most of it closes its block. */
void client_relieve(struct client *client)
{
	struct client_file *most = NULL;

	if (!pool_has_waiters(&client->pool))
		return;
	LIST_FOREACH(it, &client->files) {
		struct client_file *f = LIST_ENTRY(it, struct client_file, link);

		if (f->write)
			write_late_drop(f->write);
		if (f->read)
			read_relieve(f);
		else if (client->blocks_in_flight == 0 && write_held_pages(f) > 0 &&
			(!most || write_held_pages(f) > write_held_pages(most)))
			most = f;
	}
	if (most)
		write_relieve(most);
}

static bool reserve(struct write_stream *s, uint32_t pages)
{
	struct pool *pool = &s->client->pool;

	if (s->granted_pages > 0) {
		/* Asked for under other circumstances: give back what is not needed, or all of it. */
		uint32_t granted = s->granted_pages;

		s->granted_pages = 0;
		if (granted >= pages) {
			pool_unreserve(pool, granted - pages);
			return true;
		}
		pool_unreserve(pool, granted);
	}
	if (list_linked(&s->pool_wait.link))
		return false;
	if (pool_reserve(pool, pages))
		return true;
	if (!has_block_in_flight(s))
		close_open(s);
	s->pool_wait.pages = pages;
	pool_wait(pool, &s->pool_wait);
	client_relieve(s->client);
	return false;
}

static bool start_stripe(struct write_stream *s, const struct client_op *op)
{
	bool in_place = !(op->flags & CLIENT_WRITE_COPY) && !s->tail.len &&
		op->len - write_op_of((struct client_op *)(uintptr_t)op)->taken >= write_stripe_bytes(s);
	uint32_t pages = write_stripe_pages(s, in_place);

	if (!window_open(s) || !reserve(s, pages))
		return false;
	if (!s->open) {
		struct write_alloc *a = write_alloc_next(s);

		if (!a) {
			s->granted_pages = pages;
			return false;
		}
		s->open = write_block_open(s, a);
	}
	s->stripe = write_stripe_open(s->open, in_place, pages);
	if (s->tail.len)
		write_stripe_copy(s->stripe, s->tail.bytes, s->tail.len);
	s->tail.len = s->tail.committed = 0;
	return true;
}

/* True: all of it fits the tail, and is there. */
static bool take_as_tail(struct write_stream *s, const uint8_t *from, uint64_t left)
{
	struct write_tail *t = &s->tail;

	if (s->open || t->len + left > t->most)
		return false;
	if (!t->bytes)
		t->bytes = mem_alloc(t->most);
	memcpy(t->bytes + t->len, from, left);
	t->len += (uint32_t)left;
	return true;
}

static void stripe_full(struct write_stream *s)
{
	write_stripe_dispatch(s->stripe);
	s->stripe = NULL;
	if (s->open->stripe_count == s->chunk_bytes / s->cell_bytes) {
		write_block_close(s->open);
		s->open = NULL;
	}
	/* Renewed in another hook's run or in the next one of ours: sending starts when it is encoded. */
}

/* False: it cannot go on now. */
static bool take_some(struct write_stream *s, struct client_op *op)
{
	struct write_op *w = write_op_of(op);
	const uint8_t *from = (const uint8_t *)op->buf + w->taken;
	uint64_t left = op->len - w->taken;
	uint32_t n;

	if (take_as_tail(s, from, left)) {
		w->taken += left;
		s->filled += left;
		return true;
	}
	if (!s->stripe && !start_stripe(s, op))
		return false;
	if (s->stripe->fill == write_stripe_bytes(s)) { /* the tail was a whole stripe */
		stripe_full(s);
		return true;
	}
	n = write_stripe_bytes(s) - s->stripe->fill;
	if (s->stripe->in_place) {
		write_stripe_in_place(s->stripe, from);
	} else {
		n = left < n ? (uint32_t)left : n;
		write_stripe_copy(s->stripe, from, n);
	}
	w->taken += n;
	s->filled += n;
	if (s->stripe->fill == write_stripe_bytes(s))
		stripe_full(s);
	return true;
}

static void wait_for_commit(struct write_stream *s, struct client_op *op)
{
	struct write_op *w = write_op_of(op);

	list_remove(&w->link);
	w->until = s->filled;
	list_push_back(&s->waiting, &w->link);
}

void write_take(struct write_stream *s)
{
	while (!list_empty(&s->ops)) {
		struct client_op *op = write_client_op(s->ops.next);

		if (s->tail.wanted)
			return;
		if (op->kind == CLIENT_WRITE) {
			while (write_op_of(op)->taken < op->len)
				if (!take_some(s, op))
					return;
			op->count = op->len;
			if (op->flags & CLIENT_WRITE_COPY) {
				list_remove(&write_op_of(op)->link);
				client_finish_later(s->client, op);
			} else {
				wait_for_commit(s, op);
			}
			continue;
		}
		close_open(s);
		s->tail.wanted = s->tail.committed < s->tail.len;
		wait_for_commit(s, op);
		if (op->kind == CLIENT_CLOSE)
			s->close_op = op;
	}
}
