/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write: a file being written, sequentially, by one writer.
 *
 * Operations are taken in order (write_take.c) into stripes (write_stripe.c) and blocks (write_block.c), whose chunks go to their disks
 * (write_chunk.c) and, in file order, several blocks at once, into the file (write_commit.c). An operation that promises durability
 * waits in `waiting` until `committed` reaches its end.
 *
 * Bounds: WRITE_STRIPES stripes are on their way unacknowledged; all data not yet committed lie in the client's pool (or in the
 * caller's memory).
 *
 * Failure: the first error that a spare or a new allocation cannot cure is sticky. Everything in flight is given up, operations are
 * answered only when nothing uses their memory any more, and the file is good only for close and abort, which report the error.
 *
 * write_step does whatever can be done; completions only record and kick it.
 */
#include "client/write.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ABORT_TIMEOUT_NS (5ull * 1000 * 1000 * 1000)

static void write_step(struct io_turn_hook *hook);

void write_kick(struct write_stream *s)
{
	io_at_turn_end(s->client->io, &s->hook);
}

void write_fail(struct write_stream *s, int code, const char *fmt, ...)
{
	char text[ERR_TEXT_BYTES];
	va_list ap;

	if (s->err.code)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_set(&s->err, code, "%s", text);
	write_kick(s);
}

static void pool_granted(struct pool_wait *w)
{
	struct write_stream *s = CONTAINER_OF(w, struct write_stream, pool_wait);

	s->granted_pages += w->pages;
	write_kick(s);
}

struct write_stream *write_open(struct client_file *file, uint64_t epoch, const struct ec_policy *policy,
	uint32_t cell_bytes, uint64_t chunk_bytes)
{
	struct write_stream *s = MEM_NEW(struct write_stream);
	uint64_t width = policy->k + policy->m, budget = (uint64_t)file->client->pool.max_pages * POOL_PAGE_BYTES;

	s->client = file->client;
	s->file = file;
	s->inode = file->inode;
	s->epoch = epoch;
	s->policy = policy;
	s->cell_bytes = cell_bytes;
	/* At least three blocks must fit the budget: one filling, one sealing, one being committed. */
	s->chunk_bytes = chunk_bytes / cell_bytes * cell_bytes;
	while (s->chunk_bytes > cell_bytes && s->chunk_bytes * width * 3 > budget)
		s->chunk_bytes = s->chunk_bytes / 2 / cell_bytes * cell_bytes;
	if (s->chunk_bytes < cell_bytes)
		s->chunk_bytes = cell_bytes;
	s->alloc_next = 1;
	s->tail.most = file->client->tail_bytes < write_stripe_bytes(s) ? file->client->tail_bytes : write_stripe_bytes(s);
	snprintf(s->path, sizeof(s->path), "%s", file->path);
	list_init(&s->ops);
	list_init(&s->waiting);
	list_init(&s->blocks);
	list_init(&s->allocs);
	s->pool_wait.granted = pool_granted;
	io_turn_hook_init(&s->hook, write_step);
	s->client->background++;
	return s;
}

static void renew_blocks(struct write_stream *s)
{
	LIST_FOREACH(it, &s->blocks) {
		struct write_block *b = LIST_ENTRY(it, struct write_block, link);
		struct write_alloc *a;

		if (!b->renew)
			continue;
		a = write_alloc_next(s);
		if (!a)
			return;
		write_block_renew(b, a);
	}
}

void write_continue(struct client_file *file, uint64_t tail_offset, const ProtobufCBinaryData *tail)
{
	struct write_stream *s = file->write;
	struct write_tail *t = &s->tail;

	s->end = s->filled = s->committed = file->attr.size;
	if (!tail->len)
		return;
	if (tail->len > t->most || tail_offset + tail->len != s->filled) {
		t->most = 0; /* it has one that cannot be added to; a file has one at most */
		return;
	}
	t->bytes = mem_alloc(t->most);
	memcpy(t->bytes, tail->data, tail->len);
	t->len = t->committed = (uint32_t)tail->len;
}

/* ---- ends ---- */

static void free_done_blocks(struct write_stream *s)
{
	bool any = false;

	LIST_FOREACH_SAFE(it, &s->blocks) {
		struct write_block *b = LIST_ENTRY(it, struct write_block, link);

		if (b->state == WRITE_DONE && write_block_idle(b)) {
			write_block_free(b);
			any = true;
		}
	}
	if (any)
		client_relieve(s->client);
}

/* The first block that is neither over nor only waiting for a late chunk. */
static const struct write_block *first_wanted(const struct write_stream *s)
{
	LIST_FOREACH(it, &s->blocks) {
		const struct write_block *b = LIST_ENTRY(it, struct write_block, link);

		if (!b->late && b->state != WRITE_DONE)
			return b;
	}
	return NULL;
}

static void finish_close(struct write_stream *s, struct client_op *op)
{
	if (list_empty(&s->blocks)) {
		s->ending = true;
		write_kick(s);
		return;
	}
	/* Chunks that are late are finished without him. */
	s->closed = true;
	s->close_op = NULL;
	client_finish_later(s->client, op);
}

/* Bytes before `end` may still be on their way to a chunk server, out of the writer's own memory. */
static bool being_sent(const struct write_stream *s, uint64_t end)
{
	LIST_FOREACH(it, &s->blocks) {
		const struct write_block *b = LIST_ENTRY(it, struct write_block, link);

		if (b->file_offset < end && (!b->late || write_block_borrows(b)))
			return true;
	}
	return false;
}

static void finish_waiting(struct write_stream *s)
{
	LIST_FOREACH_SAFE(it, &s->waiting) {
		struct client_op *op = write_client_op(it);

		/* In order of their ends. */
		if (write_op_of(op)->until > s->committed ||
			(op->kind == CLIENT_CLOSE && (!s->complete || first_wanted(s))))
			return;
		if (op->kind == CLIENT_WRITE && being_sent(s, write_op_of(op)->until))
			return;
		list_remove(it);
		if (op->kind == CLIENT_CLOSE)
			finish_close(s, op);
		else
			client_finish_later(s->client, op);
	}
}

static void fail_list(struct write_stream *s, struct list *ops, const struct err *err)
{
	struct list *l;

	while ((l = list_pop_front(ops))) {
		struct client_op *op = write_client_op(l);

		if (op == s->close_op)
			continue; /* ends with the stream */
		op->err = *err;
		op->count = 0;
		client_finish_later(s->client, op);
	}
}

static void abort_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	/* Whatever came of it: the file has no name, nobody can see it. */
	(void)status;
	(void)msg;
	write_kick(CONTAINER_OF(call, struct write_stream, abort_call));
}

/* An incomplete file that is given up is reported, once, so that a hidden one goes at once. True while the report is on its way. */
static bool report_abort(struct write_stream *s)
{
	if (s->complete)
		return session_call_active(&s->abort_call);
	if (!s->abort_sent) {
		s->abort_sent = true;
		craton__abort_request__init(&s->abort_request);
		s->abort_request.inode = s->inode;
		s->abort_request.epoch = s->epoch;
		s->abort_call = (struct session_call){
			.method = &rpc_metad_abort,
			.request = &s->abort_request.base,
			.id = &s->abort_request.id,
			.timeout_ns = ABORT_TIMEOUT_NS,
			.done = abort_done,
		};
		session_start(&s->client->session, &s->abort_call);
	}
	return session_call_active(&s->abort_call);
}

static void cancel_all(struct write_stream *s)
{
	struct pool *pool = &s->client->pool;

	pool_wait_cancel(pool, &s->pool_wait);
	pool_unreserve(pool, s->granted_pages);
	s->granted_pages = 0;
	/* A stripe being filled is memory like the others. */
	s->stripe = NULL;
	s->open = NULL;
	write_alloc_cancel(s);
	write_commit_cancel(s);
	if (io_pending(&s->timer))
		io_cancel(s->client->io, &s->timer);
	LIST_FOREACH(it, &s->blocks) {
		struct write_block *b = LIST_ENTRY(it, struct write_block, link);

		if (b->state == WRITE_DONE || b->state == WRITE_COMMITTING)
			continue;
		write_block_cancel(b);
		b->state = WRITE_DONE;
	}
}

static bool quiet(const struct write_stream *s)
{
	return list_empty(&s->blocks) && !s->allocate && !s->commit && !io_pending(&s->timer);
}

static void stream_free(struct write_stream *s)
{
	struct client *client = s->client;
	struct client_op *ops[2] = {s->close_op, s->abort_op};

	if (s->file)
		client_file_free(s->file);
	mem_free(s->tail.bytes);
	io_turn_hook_remove(client->io, &s->hook);
	for (int i = 0; i < 2; i++)
		if (ops[i]) {
			if (ops[i]->kind == CLIENT_CLOSE)
				ops[i]->err = s->err;
			client_finish_later(client, ops[i]);
		}
	mem_free(s);
	client->background--;
	client_check_closed(client);
}

/* The file has failed or is being ended. */
static void wind_down(struct write_stream *s)
{
	struct err canceled;

	cancel_all(s);
	free_done_blocks(s);
	if (!quiet(s))
		return;
	err_set(&canceled, ERR_CANCELED, "write %s: the file was closed", s->path);
	fail_list(s, &s->waiting, s->err.code ? &s->err : &canceled);
	LIST_FOREACH(it, &s->ops)
		if (write_client_op(it)->kind == CLIENT_CLOSE) {
			s->close_op = write_client_op(it);
			s->ending = true;
		}
	fail_list(s, &s->ops, s->err.code ? &s->err : &canceled);
	if (s->close_op || s->abort_op)
		s->ending = true;
	if (s->ending && !report_abort(s))
		stream_free(s);
}

static void write_step(struct io_turn_hook *hook)
{
	struct write_stream *s = CONTAINER_OF(hook, struct write_stream, hook);

	if (!s->err.code && !s->ending) {
		renew_blocks(s);
		write_take(s);
		LIST_FOREACH(it, &s->blocks)
			write_block_step(LIST_ENTRY(it, struct write_block, link));
		/* What was acknowledged meanwhile makes room. */
		write_take(s);
		if (!s->err.code)
			write_commit_try(s);
		free_done_blocks(s);
		finish_waiting(s);
		if (s->open && s->alloc_count < s->alloc_next / 2 + 1 &&
			s->open->stripe_count * 2 > s->chunk_bytes / s->cell_bytes) {
			write_alloc_ask(s, s->alloc_next);
			if (s->alloc_next < WRITE_ALLOCATE_MAX)
				s->alloc_next *= 2;
		}
		LIST_FOREACH(it, &s->blocks)
			if (LIST_ENTRY(it, struct write_block, link)->renew && s->alloc_count == 0 && !s->err.code)
				write_alloc_ask(s, 1);
	}
	if (s->closed && list_empty(&s->blocks) && !s->commit)
		s->ending = true;
	if (s->err.code || s->ending)
		wind_down(s);
}

void write_start(struct client_file *file, struct client_op *op)
{
	struct write_stream *s = file->write;
	struct write_op *w = write_op_of(op);

	*w = (struct write_op){0};
	list_init(&w->link);
	if (op->kind == CLIENT_READ) {
		err_set(&op->err, ERR_BADF, "read %s: the file is open for writing only", s->path);
	} else if (op->kind == CLIENT_ABORT) {
		s->abort_op = op;
		s->ending = true;
		write_kick(s);
		return;
	} else if (s->err.code && op->kind != CLIENT_CLOSE) {
		op->err = s->err;
	} else if (op->kind == CLIENT_WRITE && op->offset != s->end) {
		err_set(&op->err, ERR_OPNOTSUPP,
			"write %s: offset %llu is not the end of what was written (%llu): files are written in order",
			s->path, (unsigned long long)op->offset, (unsigned long long)s->end);
	} else if (op->kind != CLIENT_WRITE || op->len > 0) {
		if (op->kind == CLIENT_WRITE)
			s->end += op->len;
		file->attr.size = s->end;
		list_push_back(&s->ops, &w->link);
		write_kick(s);
		return;
	}
	client_finish_later(s->client, op);
}

void write_abandon(struct client_file *file)
{
	file->write->ending = true;
	write_kick(file->write);
}
