/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read: a file open for reading.
 *
 * An operation is cut along extents into jobs (read_job.c), READ_JOBS of them at once, so that the servers always have the next
 * request before the last answer ends. Layouts are fetched when needed and kept for LAYOUT_LIFE_NS; a job that ends with ERR_STALE is run
 * again, once, under a layout fetched anew.
 *
 * Blocking reads of a file from front to back are served from what was read ahead (read_ahead.c); anything else goes straight to the
 * caller's memory.
 */
#include "client/read.h"

#include <string.h>

#define LAYOUT_ASK_BYTES (1ull << 40) /* as much as fits one reply */
#define EOF_FRESH_NS (1000ull * 1000 * 1000)

struct read_layout {
	struct session_call call;
	struct read_stream *stream;
	Craton__LayoutRequest request;
	uint32_t slow[READ_SLOW_DISKS];
};

static void read_step(struct io_turn_hook *hook);

struct read_stream *read_open(struct client_file *file)
{
	struct read_stream *s = MEM_NEW(struct read_stream);

	s->client = file->client;
	s->file = file;
	list_init(&s->reads);
	list_init(&s->segments);
	list_init(&s->copies);
	io_turn_hook_init(&s->hook, read_step);
	s->client->background++;
	return s;
}

void read_kick(struct read_stream *s)
{
	io_at_turn_end(s->client->io, &s->hook);
}

/* ---- layouts ---- */

static bool usable(const struct read_stream *s, const struct layout *l, uint64_t since_ns)
{
	return l && l->fetched_ns >= since_ns && io_now_ns(s->client->io) - l->fetched_ns < LAYOUT_LIFE_NS;
}

static struct layout *window_at(const struct read_stream *s, uint64_t offset, uint64_t since_ns)
{
	for (int i = 0; i < READ_WINDOWS; i++) {
		struct layout *l = s->windows[i];

		if (usable(s, l, since_ns) && l->offset <= offset && offset < l->end_offset)
			return l;
	}
	return NULL;
}

/* True if a layout young enough to be believed says that the file ends at or before `offset`. */
static bool past_end(const struct read_stream *s, uint64_t offset, uint64_t since_ns)
{
	for (int i = 0; i < READ_WINDOWS; i++) {
		const struct layout *l = s->windows[i];

		if (usable(s, l, since_ns) && l->attr.size <= offset &&
			(l->attr.complete || io_now_ns(s->client->io) - l->fetched_ns < EOF_FRESH_NS))
			return true;
	}
	return false;
}

/* In place of what it overlaps, of what is out of date, or of the oldest. */
static void keep_window(struct read_stream *s, struct layout *l)
{
	int at = 0;

	for (int i = 0; i < READ_WINDOWS; i++) {
		struct layout *w = s->windows[i];

		if (w &&
			(!usable(s, w, 0) || (w->offset < l->end_offset && l->offset < w->end_offset) ||
				w->offset == l->offset)) {
			layout_put(w);
			s->windows[i] = NULL;
		}
	}
	for (int i = 1; i < READ_WINDOWS; i++)
		if (s->windows[at] && (!s->windows[i] || s->windows[i]->fetched_ns < s->windows[at]->fetched_ns))
			at = i;
	layout_put(s->windows[at]);
	s->windows[at] = l;
	s->file->attr = l->attr;
}

static void fail_reads(struct read_stream *s, int code)
{
	LIST_FOREACH(it, &s->reads) {
		struct read_op *r = LIST_ENTRY(it, struct read_op, link);

		if (!r->err.code && (r->again_count || r->pos < r->end))
			session_explain(&s->client->session, &r->err, code, "read", s->file->path);
	}
}

static void layout_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct read_layout *f = CONTAINER_OF(call, struct read_layout, call);
	struct read_stream *s = f->stream;
	const Craton__LayoutReply *reply = (const Craton__LayoutReply *)msg;
	struct layout *l;

	s->fetch = NULL;
	if (status == 0)
		status = reply ? layout_new(reply, f->request.offset, io_now_ns(s->client->io), &l) : ERR_PROTO;
	if (status == 0) {
		disks_learn(&s->client->disks, reply->disks, reply->n_disks);
		keep_window(s, l);
		/* Reads elsewhere in the file may still need another piece of its layout. */
		LIST_FOREACH(it, &s->reads)
			LIST_ENTRY(it, struct read_op, link)->looked_at = f->request.offset;
	} else {
		fail_reads(s, status);
	}
	mem_free(f);
	read_kick(s);
}

static void fetch_layout(struct read_stream *s, uint64_t offset)
{
	struct read_layout *f;

	if (s->fetch)
		return;
	f = MEM_NEW(struct read_layout);
	f->stream = s;
	craton__layout_request__init(&f->request);
	f->request.inode = s->file->inode;
	f->request.offset = offset;
	f->request.length = LAYOUT_ASK_BYTES;
	f->request.slow_disks = f->slow;
	f->request.n_slow_disks = disks_slow_list(&s->client->disks, f->slow, READ_SLOW_DISKS);
	f->call = (struct session_call){
		.method = &rpc_metad_layout,
		.request = &f->request.base,
		.repeatable = true,
		.done = layout_done,
	};
	s->fetch = f;
	session_start(&s->client->session, &f->call);
}

/* ---- reads ---- */

static void job_done(void *ctx, struct read_job *job, const struct err *err)
{
	struct read_op *r = ctx;
	const struct read_job_args *a = read_job_args(job);

	r->jobs--;
	if (err->code == ERR_STALE) {
		CHECK(r->again_count < READ_JOBS);
		r->again[r->again_count++] =
			(struct read_range){a->file_offset, a->file_offset + (a->block_hi - a->block_lo)};
		r->stale_ns = a->layout->fetched_ns + 1;
		r->looked_at = UINT64_MAX;
	} else if (err->code && !r->err.code) {
		r->err = *err;
	}
	read_kick(r->stream);
}

/* Starts a job for the front of *at .. end and moves *at. */
static void start_job(struct read_op *r, struct layout *l, const struct layout_extent *e, uint64_t *at, uint64_t end)
{
	struct read_stream *s = r->stream;
	uint64_t lo = e->block_offset + (*at - e->file_offset), hi = e->block_offset + e->length, limit;
	struct read_job_args args = {
		.client = s->client,
		.path = s->file->path,
		.layout = l,
		.block = e->block,
		.block_lo = lo,
		.file_offset = *at,
		.dest = r->dest,
		.dest_at = *at - r->offset,
		.done = job_done,
		.ctx = r,
		.fresh_layout = r->stale_ns != 0,
	};

	limit = read_job_limit(&e->block->geom, lo);
	if (hi > limit)
		hi = limit;
	if (hi - lo > end - *at)
		hi = lo + (end - *at);
	args.block_hi = hi;
	*at += hi - lo;
	r->jobs++;
	read_job_new(&args);
}

/* Bytes that are in no block: they are here. */
static bool take_gap(struct read_op *r, const struct layout *l, uint64_t *at, uint64_t end)
{
	static const uint8_t zeros[LIMIT_UNIT_BYTES];
	const uint8_t *bytes;
	uint64_t len = layout_gap(l, *at, end - *at, &bytes);

	if (!len) {
		err_set(&r->err, ERR_PROTO, "read %.200s at %llu: metad names no block for these bytes",
			r->stream->file->path, (unsigned long long)*at);
		return false;
	}
	if (!bytes && len > sizeof(zeros))
		len = sizeof(zeros);
	read_dest_copy(&r->dest, *at - r->offset, bytes ? bytes : zeros, len);
	*at += len;
	return true;
}

/* False: it cannot go on now, or there is nothing left. */
static bool read_some(struct read_op *r)
{
	struct read_stream *s = r->stream;
	struct read_range *again = r->again_count ? &r->again[r->again_count - 1] : NULL;
	uint64_t *at = again ? &again->offset : &r->pos, end = again ? again->end : r->end;
	struct layout_extent *e;
	struct layout *l;

	/* Ranges to be run again count as jobs, since they become some. */
	if (r->err.code || *at >= end || r->jobs + (again ? 0 : r->again_count) >= READ_JOBS)
		return false;
	l = window_at(s, *at, r->stale_ns);
	if (!l) {
		if (past_end(s, *at, r->stale_ns) && !again) {
			r->end = r->pos;
		} else if (r->looked_at == *at) {
			err_set(&r->err, ERR_STALE, "read %.200s at %llu: the file has changed: open it again",
				s->file->path, (unsigned long long)*at);
		} else {
			fetch_layout(s, *at);
		}
		return false;
	}
	r->looked_at = UINT64_MAX;
	e = layout_find(l, *at);
	if (e)
		start_job(r, l, e, at, end);
	else if (!take_gap(r, l, at, end))
		return false;
	if (again && again->offset >= again->end)
		r->again_count--;
	return true;
}

static bool read_over(const struct read_op *r)
{
	return r->jobs == 0 && (r->err.code || (r->again_count == 0 && r->pos >= r->end));
}

void read_begin(struct read_op *r, struct read_stream *s, uint64_t offset, uint64_t len)
{
	*r = (struct read_op){.stream = s, .offset = offset, .pos = offset, .looked_at = UINT64_MAX};
	r->end = offset + (len > INT64_MAX - offset ? INT64_MAX - offset : len);
	list_push_back(&s->reads, &r->link);
	read_kick(s);
}

static void direct_done(struct read_op *r)
{
	struct client_op *op = r->op;

	op->err = r->err;
	op->count = r->err.code ? 0 : r->end - r->offset;
	client_finish_later(r->stream->client, op);
	mem_free(r);
}

void read_direct(struct read_stream *s, struct client_op *op, uint64_t done_bytes)
{
	struct read_op *r = mem_alloc(sizeof(*r));

	read_begin(r, s, op->offset, op->len);
	r->pos += done_bytes;
	r->dest.base = op->buf;
	r->op = op;
	r->done = direct_done;
}

/* ---- ends ---- */

static void stream_free(struct read_stream *s)
{
	struct client *client = s->client;
	struct client_op *op = s->close_op;

	for (int i = 0; i < READ_WINDOWS; i++)
		layout_put(s->windows[i]);
	client_file_free(s->file);
	io_turn_hook_remove(client->io, &s->hook);
	mem_free(s);
	if (op)
		client_finish_later(client, op);
	client->background--;
	client_check_closed(client);
}

static void wind_down(struct read_stream *s)
{
	if (s->fetch)
		session_cancel(&s->fetch->call);
	read_ahead_drop(s);
	LIST_FOREACH(it, &s->reads) {
		struct read_op *r = LIST_ENTRY(it, struct read_op, link);

		if (r->err.code)
			continue;
		err_set(&r->err, ERR_CANCELED, "read %.200s: the file was closed", s->file->path);
		read_kick(s);
	}
	if (!s->fetch && list_empty(&s->reads) && list_empty(&s->copies))
		stream_free(s);
}

static void read_step(struct io_turn_hook *hook)
{
	struct read_stream *s = CONTAINER_OF(hook, struct read_stream, hook);
	bool ending = s->ending;

	LIST_FOREACH_SAFE(it, &s->reads) {
		struct read_op *r = LIST_ENTRY(it, struct read_op, link);

		while (!ending && read_some(r))
			;
		if (!read_over(r))
			continue;
		list_remove(&r->link);
		r->done(r);
	}
	read_ahead_serve(s);
	if (ending)
		wind_down(s);
}

void read_start(struct client_file *file, struct client_op *op)
{
	struct read_stream *s = file->read;

	switch (op->kind) {
	case CLIENT_READ:
		if (op->len > 0 && op->offset < INT64_MAX) {
			if (!read_ahead_take(s, op))
				read_direct(s, op, 0);
			return;
		}
		break;
	case CLIENT_CLOSE:
	case CLIENT_ABORT:
		s->close_op = op;
		s->ending = true;
		read_kick(s);
		return;
	case CLIENT_FSYNC:
		break;
	default:
		err_set(&op->err, ERR_BADF, "write %.200s: the file is open for reading only", file->path);
	}
	client_finish_later(s->client, op);
}

void read_abandon(struct client_file *file)
{
	file->read->ending = true;
	read_kick(file->read);
}
