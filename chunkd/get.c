/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of parts: [delivered and being sent][read][being read]. A part that was sent frees its place and its buffer, and the next read
 * starts: so the disk is always GET_WINDOW parts ahead of the connection, and a slow reader holds that much memory and no more. With
 * memory short a get narrows to two parts; with none it waits its turn for one. While it waits it holds none: neither a part nor the
 * buffer of the trailer, whose list is copied out (16 KiB at most) as soon as it is read.
 *
 * Parts end at the chunk's cell boundaries: a client's cell is never split over two. Bytes are not checked here: the reader has a list
 * that it can prove, we have none, and the disk's own errors are caught by the same check.
 */
#include "chunkd/get.h"

#include <string.h>
#include "chunkd/disk.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

enum part_state { FREE, READING, READY, OUT };

static void step(struct get *g);

static void step_later(struct get *g)
{
	io_at_turn_end(g->disk->io, &g->hook);
}

static void hook_run(struct io_turn_hook *hook)
{
	step(CONTAINER_OF(hook, struct get, hook));
}

static void part_read(struct sched_op *op)
{
	struct get_part *part = CONTAINER_OF(op, struct get_part, op);

	part->state = READY;
	part->code = op->io.result < 0 ? (int)op->io.result : op->io.result < (int64_t)part->len ? ERR_IO : 0;
	step(part->get);
}

static void buffer_there(struct bufpool_wait *wait)
{
	step(CONTAINER_OF(wait, struct get, wait));
}

static uint32_t window(const struct get *g)
{
	bool rich = bufpool_free_bytes(g->disk->pool, BUFPOOL_GET) > bufpool_held_bytes(g->disk->pool, BUFPOOL_GET);

	return rich ? GET_WINDOW : 2;
}

/* False: no memory. */
static bool read_next(struct get *g)
{
	struct get_part *part = &g->parts[(g->head + g->count) % GET_WINDOW];
	struct disk *d = g->disk;
	uint64_t end = (g->read_at / g->row.cell_bytes + 1) * g->row.cell_bytes;
	uint32_t padded;

	if (end > g->end)
		end = g->end;
	padded = (uint32_t)format_round(end - g->read_at);
	CHECK(part->state == FREE);
	if (bufpool_get(d->pool, BUFPOOL_GET, padded, &part->buf) < 0)
		return false;
	part->get = g;
	part->offset = g->read_at;
	part->len = (uint32_t)(end - g->read_at);
	part->data = part->buf.data;
	part->first = g->read_at == g->offset;
	part->last = end == g->end;
	part->state = READING;
	part->iov = (struct iovec){part->data, padded};
	io_prep_read(&part->op.io, segments_fd(d->segments, g->row.extent.segment), &part->iov, 1,
		index_row_offset(&g->row) + part->offset, sched_io_done);
	part->op.done = part_read;
	sched_submit(&d->sched, SCHED_FOREGROUND, &part->op);
	g->read_at = end;
	g->count++;
	return true;
}

static void read_ahead(struct get *g)
{
	/* A list that waits for memory goes first: data read before it would hold memory and wait for it. */
	if (g->list_reading && !g->trailer.buf.data)
		return;
	while (!g->ended && g->read_at < g->end && g->count + g->out < window(g)) {
		if (g->parts[(g->head + g->count) % GET_WINDOW].state != FREE)
			return; /* parts are sent in order, but one that is still out may lie here */
		if (read_next(g))
			continue;
		if (g->count + g->out == 0 && !list_linked(&g->wait.link))
			bufpool_wait(g->disk->pool, BUFPOOL_GET, &g->wait);
		return;
	}
}

static void release(struct get *g, struct get_part *part)
{
	bufpool_put(g->disk->pool, &part->buf);
	part->state = FREE;
}

static void end_with(struct get *g, int code)
{
	g->ended = true;
	bufpool_wait_cancel(&g->wait);
	if (code < 0)
		g->failed(g, code);
}

static void list_read(struct trailer_read *read, int code)
{
	struct get *g = CONTAINER_OF(read, struct get, trailer);

	g->list_ready = true;
	g->list_code = code;
	if (code == 0) {
		struct slice list = g->trailer.trailer.list;

		g->own_list = mem_alloc(list.len);
		memcpy(g->own_list, list.data, list.len);
		g->list = slice_of(g->own_list, list.len);
		trailer_cache_put(g->disk->trailers, &g->row.copy, g->list);
	}
	/* Its buffer goes back at once: held until the data are there, which need one too, enough readers would wait for ever. */
	trailer_read_end(&g->trailer);
	g->list_reading = false;
	step(g);
}

/* From the cache, whose memory is good for this moment only, or from the trailer. False: being read. */
static bool list_there(struct get *g)
{
	struct slice cached;

	if (g->list_ready || !g->want_list)
		return true;
	if (g->list_reading)
		return false;
	cached = trailer_cache_get(g->disk->trailers, &g->row.copy);
	if (cached.len) {
		g->list = cached;
		return true;
	}
	g->list_reading = true;
	g->trailer.done = list_read;
	trailer_read_start(g->disk, &g->row, &g->trailer);
	return false;
}

static void deliver(struct get *g)
{
	while (g->count && !g->ended) {
		struct get_part *part = &g->parts[g->head];

		if (part->state != READY || (part->first && !list_there(g)))
			return;
		if (part->code < 0) {
			end_with(g, part->code);
			return;
		}
		g->head = (g->head + 1) % GET_WINDOW;
		g->count--;
		g->out++;
		part->state = OUT;
		if (part->last)
			g->ended = true;
		g->part(g, part);
	}
}

/* After the end: read parts are let go, those in the kernel awaited. */
static void settle(struct get *g)
{
	while (g->count && g->parts[g->head].state == READY) {
		release(g, &g->parts[g->head]);
		g->head = (g->head + 1) % GET_WINDOW;
		g->count--;
	}
	if (g->count || g->out || g->list_reading)
		return;
	mem_free(g->own_list);
	g->own_list = NULL;
	io_turn_hook_remove(g->disk->io, &g->hook);
	disk_unpin(g->disk, &g->row);
	g->closed(g);
}

static void step(struct get *g)
{
	if (g->busy) {
		step_later(g); /* from inside a callback of ours */
		return;
	}
	g->busy = true;
	if (!g->ended) {
		read_ahead(g);
		deliver(g);
		read_ahead(g);
	}
	g->busy = false;
	if (g->ended)
		settle(g);
}

int get_end(uint64_t offset, uint64_t length, uint64_t chunk_length, uint64_t *ret_end)
{
	if (offset % LIMIT_UNIT_BYTES || length == 0)
		return ERR_INVAL;
	if (offset >= chunk_length)
		return ERR_RANGE;
	*ret_end = length < chunk_length - offset ? offset + length : chunk_length;
	return 0;
}

int get_start(struct get *g)
{
	int rc = get_end(g->offset, g->length, g->row.length, &g->end);

	if (rc < 0)
		return rc;
	g->read_at = g->offset;
	g->head = g->count = g->out = 0;
	g->ended = g->list_ready = g->list_reading = g->busy = false;
	g->list = slice_of(NULL, 0);
	g->list_code = 0;
	g->own_list = NULL;
	for (int i = 0; i < GET_WINDOW; i++)
		g->parts[i].state = FREE;
	g->wait = (struct bufpool_wait){.run = buffer_there};
	io_turn_hook_init(&g->hook, hook_run);
	disk_pin(g->disk, &g->row);
	(void)list_there(g); /* in parallel with the data */
	step_later(g);
	return 0;
}

void get_part_sent(struct get_part *part, int code)
{
	struct get *g = part->get;

	CHECK(part->state == OUT && g->out > 0);
	release(g, part);
	g->out--;
	if (code < 0 && !g->ended)
		end_with(g, code);
	step(g);
}
