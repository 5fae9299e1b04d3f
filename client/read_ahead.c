/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_ahead: blocking reads of a file from front to back are served from segments of a few pages, which are read before they are asked
 * for (one copy). Segments go on from where the reader is, without gaps. If one fails, the read that needs it is done directly, so that
 * its error is its own.
 */
#include "client/read.h"

#include <string.h>

enum {
	SEGMENT_BYTES = READ_SEGMENT_PAGES * POOL_PAGE_BYTES,
	SEGMENTS = 4, /* read ahead at most */
};

struct read_segment {
	struct list link;
	struct read_op read;
	uint64_t offset, len; /* len: as far as the file goes, once ready */
	bool ready, dropped;
	int error;
	void *pages[READ_SEGMENT_PAGES];
};

/* An operation that is served from segments; lies in op->priv. */
struct read_copy {
	struct list link;
	uint64_t pos;
};
_Static_assert(sizeof(struct read_copy) <= sizeof(((struct client_op *)0)->priv), "fits the operation");

static void segment_free(struct read_segment *g)
{
	struct client *client = g->read.stream->client;

	for (int i = 0; i < READ_SEGMENT_PAGES; i++)
		pool_put(&client->pool, g->pages[i]);
	pool_unreserve(&client->pool, READ_SEGMENT_PAGES);
	list_remove(&g->link);
	mem_free(g);
}

static void segment_done(struct read_op *r)
{
	struct read_segment *g = r->segment;

	read_kick(r->stream);
	g->ready = true;
	g->error = r->err.code;
	g->len = r->end - r->offset;
	/* Nobody may have use for it, and others wait for memory. */
	if (g->dropped || (pool_has_waiters(&r->stream->client->pool) && list_empty(&r->stream->copies)))
		segment_free(g);
}

static void drop_segment(struct read_segment *g)
{
	if (g->ready) {
		segment_free(g);
		return;
	}
	/* Out of the way until what is on its way has come. */
	g->dropped = true;
	list_remove(&g->link);
}

static bool segment_add(struct read_stream *s, uint64_t offset)
{
	struct pool *pool = &s->client->pool;
	struct read_segment *g;
	uint64_t len = SEGMENT_BYTES - offset % SEGMENT_BYTES;

	if (!pool_reserve(pool, READ_SEGMENT_PAGES))
		return false;
	g = MEM_NEW(struct read_segment);
	for (int i = 0; i < READ_SEGMENT_PAGES; i++)
		g->pages[i] = pool_take(pool);
	g->offset = offset;
	g->len = len;
	read_begin(&g->read, s, offset, len);
	g->read.dest.pages = g->pages;
	g->read.segment = g;
	g->read.done = segment_done;
	list_push_back(&s->segments, &g->link);
	return true;
}

static uint32_t segment_count(const struct read_stream *s)
{
	uint32_t n = 0;

	LIST_FOREACH(it, &s->segments)
		n++;
	return n;
}

/* Segments go on from `pos` without gaps; those before it are dropped. */
static void read_ahead(struct read_stream *s, uint64_t pos)
{
	uint64_t next = pos;

	LIST_FOREACH_SAFE(it, &s->segments) {
		struct read_segment *g = LIST_ENTRY(it, struct read_segment, link);

		if (g->error || g->offset != (next == pos ? g->offset : next) || g->offset + g->len <= pos ||
			g->offset > next)
			drop_segment(g);
		else
			next = g->offset + g->len;
	}
	while (segment_count(s) < SEGMENTS && next < s->file->attr.size)
		if (segment_add(s, next))
			next += SEGMENT_BYTES - next % SEGMENT_BYTES;
		else
			break;
}

static struct read_segment *segment_at(const struct read_stream *s, uint64_t pos)
{
	LIST_FOREACH(it, &s->segments) {
		struct read_segment *g = LIST_ENTRY(it, struct read_segment, link);

		if (g->offset <= pos && pos < g->offset + g->len)
			return g;
	}
	return NULL;
}

static void copy_from(const struct read_segment *g, uint64_t pos, uint8_t *to, uint64_t len)
{
	while (len > 0) {
		uint64_t at = pos - g->offset, n = POOL_PAGE_BYTES - at % POOL_PAGE_BYTES;

		if (n > len)
			n = len;
		memcpy(to, (const uint8_t *)g->pages[at / POOL_PAGE_BYTES] + at % POOL_PAGE_BYTES, n);
		pos += n;
		to += n;
		len -= n;
	}
}

/* True: the operation has left the list of those served from segments. */
static bool serve_copy(struct read_stream *s, struct client_op *op)
{
	struct read_copy *c = (struct read_copy *)(void *)op->priv;
	uint64_t end = op->offset + op->len;

	while (c->pos < end) {
		struct read_segment *g = segment_at(s, c->pos);
		uint64_t n, have;

		if (!g || (g->ready && g->error)) {
			uint64_t done_bytes = c->pos - op->offset;

			list_remove(&c->link);
			read_direct(s, op, done_bytes);
			return true;
		}
		if (!g->ready)
			return false;
		have = g->offset + g->len - c->pos;
		n = end - c->pos < have ? end - c->pos : have;
		copy_from(g, c->pos, (uint8_t *)op->buf + (c->pos - op->offset), n);
		c->pos += n;
		read_ahead(s, c->pos);
	}
	list_remove(&c->link);
	op->count = op->len;
	client_finish_later(s->client, op);
	return true;
}

void read_ahead_serve(struct read_stream *s)
{
	while (!list_empty(&s->copies))
		if (!serve_copy(s, CONTAINER_OF((uint64_t *)(void *)s->copies.next, struct client_op, priv[0])))
			return;
	/* This reader may never come back, and nobody else would take its segments from it. */
	if (pool_has_waiters(&s->client->pool))
		read_relieve(s->file);
}

bool read_ahead_take(struct read_stream *s, struct client_op *op)
{
	bool ahead = op->flags & CLIENT_READ_AHEAD && op->len < SEGMENT_BYTES;
	struct read_copy *c = (struct read_copy *)(void *)op->priv;

	s->streak = op->offset == s->next_offset && ahead ? s->streak + 1 : 0;
	s->next_offset = op->offset + op->len;
	if (s->streak < 2 || op->offset >= s->file->attr.size)
		return false;
	/* The end of the file ends the operation, too. */
	if (op->len > s->file->attr.size - op->offset)
		op->len = s->file->attr.size - op->offset;
	*c = (struct read_copy){.pos = op->offset};
	list_push_back(&s->copies, &c->link);
	read_ahead(s, op->offset);
	read_kick(s);
	return true;
}

void read_ahead_drop(struct read_stream *s)
{
	LIST_FOREACH_SAFE(it, &s->segments)
		drop_segment(LIST_ENTRY(it, struct read_segment, link));
}

void read_relieve(struct client_file *file)
{
	struct read_stream *s = file->read;

	if (!list_empty(&s->copies))
		return;
	LIST_FOREACH_SAFE(it, &s->segments)
		if (LIST_ENTRY(it, struct read_segment, link)->ready)
			segment_free(LIST_ENTRY(it, struct read_segment, link));
}
