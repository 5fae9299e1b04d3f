/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_late: a block that is part of the file while a chunk of it, left behind because it was late, is still on its way. When that is
 * sealed the same commit, sent again, adds it. Nobody waits for it: neither fsync nor close. It keeps the memory of the left chunks only,
 * within WRITE_LATE_BLOCKS and WRITE_LATE_SHARE; when others need the memory, or after WRITE_LATE_NS, the chunk is given up, and what is
 * missing is rebuilt by the store.
 */
#include "client/write.h"

#include "common/base/sometimes.h"

static bool is_left(const struct write_block *b, uint8_t index)
{
	return b->chunks[index].state == PICK_LEFT;
}

static uint32_t left_count(const struct write_block *b)
{
	uint32_t n = 0;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++)
		n += is_left(b, i);
	return n;
}

/* Sealed, and no commit has spoken of it. */
static bool is_unasked(const struct write_block *b, uint8_t index)
{
	const struct write_chunk *c = &b->chunks[index];

	return c->state == PICK_SEALED && c->was_left && !c->asked;
}

static uint32_t unasked_count(const struct write_block *b)
{
	uint32_t n = 0;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++)
		n += is_unasked(b, i);
	return n;
}

static uint32_t borrowed_pages(const struct write_block *b)
{
	uint32_t pages = 0;

	for (uint32_t n = 0; n < b->stripe_count; n++)
		for (uint8_t i = 0; i < b->geom.k; i++)
			pages += is_left(b, i) && write_stripe_borrows(b->stripes[n], i);
	return pages;
}

/* The writer's own memory is his again when his write is done: what is sent later is copied. False: there is no memory for it. */
static bool take_over(struct write_block *b)
{
	for (uint8_t i = 0; i < b->geom.k; i++) {
		if (!is_left(b, i))
			continue;
		for (uint32_t n = 0; n < b->stripe_count; n++)
			if (write_stripe_borrows(b->stripes[n], i) && !write_stripe_copy_out(b->stripes[n], i))
				return false;
		write_chunk_moved(&b->chunks[i]);
	}
	return true;
}

bool write_late_keep(struct write_block *b)
{
	struct client *client = b->stream->client;
	uint32_t pages = borrowed_pages(b), most = client->pool.max_pages / WRITE_LATE_SHARE, keep = 0;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++)
		if (is_left(b, i) || !list_empty(&b->chunks[i].puts))
			keep |= 1u << i;
	if (left_count(b) + unasked_count(b) == 0 || b->stream->ending || client->closing ||
		pool_has_waiters(&client->pool) || client->late_blocks == WRITE_LATE_BLOCKS ||
		client->late_pages + pages > most || !take_over(b))
		return false;
	pages = 0;
	for (uint32_t n = 0; n < b->stripe_count; n++)
		pages += write_stripe_keep(b->stripes[n], keep);
	if (client->late_pages + pages > most)
		return false;
	SOMETIMES(write_late_kept);
	b->state = WRITE_LATE;
	b->late = true;
	b->late_pages = pages;
	b->late_until_ns = io_now_ns(client->io) + WRITE_LATE_NS;
	client->late_blocks++;
	client->late_pages += pages;
	write_block_end_flight(b);
	write_block_look_again(b, WRITE_LATE_NS);
	return true;
}

void write_late_step(struct write_block *b)
{
	struct client *client = b->stream->client;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++)
		write_chunk_send(&b->chunks[i]);
	if (left_count(b) > 0 && io_now_ns(client->io) < b->late_until_ns) {
		write_block_look_again(b, b->late_until_ns - io_now_ns(client->io));
		return;
	}
	if (unasked_count(b) > 0) {
		b->state = WRITE_READY;
		return;
	}
	SOMETIMES(write_late_given_up);
	write_block_cancel(b);
	b->state = WRITE_DONE;
}

void write_late_added(struct write_block *b, uint32_t not_counted)
{
	struct client *client = b->stream->client;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		struct write_chunk *c = &b->chunks[i];

		if (c->state != PICK_SEALED || !c->was_left || !c->asked || not_counted & 1u << i)
			continue;
		SOMETIMES(write_late_added);
		client->chunks_added++;
		client->chunks_left -= c->was_counted;
		c->was_left = c->was_counted = false;
	}
}

void write_late_drop(struct write_stream *s)
{
	LIST_FOREACH(it, &s->blocks) {
		struct write_block *b = LIST_ENTRY(it, struct write_block, link);

		if (b->state != WRITE_LATE)
			continue;
		write_block_cancel(b);
		b->state = WRITE_DONE;
		write_kick(s);
	}
}
