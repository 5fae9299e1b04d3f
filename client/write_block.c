/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_block: one block on its way to k + m disks.
 *
 * A stripe is filled, then encoded on a worker (parity, unit CRCs and the CRC of each cell in one pass), then its cells are sent, in
 * order, chunk by chunk, without waiting for answers. The last cell of a chunk carries the seal. All data stay until the block is
 * committed, so a chunk whose server fails is sent again from its first cell to a spare (a new *attempt*; answers to older attempts are
 * ignored), and a block whose allocation is used up or closed is sent again under a new id.
 *
 * Everything is level-triggered: completions only record what happened and kick the stream, whose step calls write_block_step for
 * each block. Memory of stripes is freed only when no call and no encoding uses it (write_block_idle).
 *
 * CRC lists are kept plain and masked when they are sent, since the mask depends on the block id, which a renewal changes.
 */
#include "client/write.h"

#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/sometimes.h"

static void use_alloc(struct write_block *b, struct write_alloc *a)
{
	struct disks *disks = &b->stream->client->disks;

	b->id = a->block;
	b->spare_count = a->spare_count;
	memcpy(b->spares, a->spares, sizeof(b->spares));
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		struct write_chunk *c = &b->chunks[i];

		write_chunk_begin(c, &a->targets[i]);
		c->probe = c->slow = c->target.disk == a->probe;
		/* If there is no spare for it, it is tried after all: write_block_step. */
		if (disks_avoided(disks, c->target.disk) && !c->probe)
			c->state = PICK_FAILED;
	}
	mem_free(a);
}

struct write_block *write_block_open(struct write_stream *s, struct write_alloc *alloc)
{
	struct write_block *b = MEM_NEW(struct write_block);
	uint32_t stripes = (uint32_t)(s->chunk_bytes / s->cell_bytes);

	b->stream = s;
	b->state = WRITE_OPEN;
	b->file_offset = s->filled - s->tail.len; /* what is in the tail comes first */
	b->geom = (struct stripe_geom){.k = s->policy->k, .m = s->policy->m, .cell_bytes = s->cell_bytes};
	b->stripes = mem_array(stripes, sizeof(b->stripes[0]));
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		b->chunks[i].block = b;
		b->chunks[i].index = i;
		list_init(&b->chunks[i].puts);
	}
	use_alloc(b, alloc);
	list_push_back(&s->blocks, &b->link);
	return b;
}

void write_block_close(struct write_block *b)
{
	CHECK(b->state == WRITE_OPEN && b->geom.length > 0);
	b->state = WRITE_CLOSED;
	b->stream->client->blocks_in_flight++;
	b->in_flight = true;
	b->race.entered = (uint8_t)(stripe_data_chunks(&b->geom) + b->geom.m);
	for (uint8_t i = 0; i < b->geom.k; i++)
		if (stripe_chunk_len(&b->geom, i) == 0)
			b->chunks[i].state = PICK_ABSENT;
}

bool write_block_idle(const struct write_block *b)
{
	return b->calls_active == 0 && b->encodes_active == 0 && !io_pending(&b->timer);
}

bool write_block_borrows(const struct write_block *b)
{
	for (uint8_t i = 0; i < b->geom.k; i++)
		if (write_chunk_borrows(&b->chunks[i]))
			return true;
	return false;
}

void write_block_end_flight(struct write_block *b)
{
	b->stream->client->blocks_in_flight -= b->in_flight;
	b->in_flight = false;
}

void write_block_free(struct write_block *b)
{
	CHECK(write_block_idle(b));
	write_block_end_flight(b);
	if (b->late) {
		b->stream->client->late_blocks--;
		b->stream->client->late_pages -= b->late_pages;
	}
	for (uint32_t i = 0; i < b->stripe_count; i++) {
		b->stream->unacked -= b->stripes[i]->counted;
		write_stripe_release(b->stripes[i]);
	}
	mem_free(b->stripes);
	for (uint32_t i = 0; i <= WRITE_REALLOCATIONS; i++)
		mem_free(b->data_lists[i]);
	list_remove(&b->link);
	mem_free(b);
}

/* ---- giving up ---- */

void write_block_cancel(struct write_block *b)
{
	b->renew = false;
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++)
		if (write_chunk_moving(&b->chunks[i]))
			write_chunk_stop(&b->chunks[i], PICK_FAILED);
		else
			write_chunk_cancel(&b->chunks[i]);
	b->wake_ns = 0;
	if (io_pending(&b->timer))
		io_cancel(b->stream->client->io, &b->timer);
	for (uint32_t i = 0; i < b->stripe_count; i++)
		if (b->stripes[i]->counted) {
			b->stripes[i]->counted = false;
			b->stream->unacked--;
		}
}

void write_block_renew(struct write_block *b, struct write_alloc *alloc)
{
	CHECK(b->renew);
	b->renew = false;
	if (b->state != WRITE_OPEN)
		b->state = WRITE_CLOSED;
	use_alloc(b, alloc);
	b->sums_ready = false;
	b->race.ended = 0;
	for (uint32_t n = 0; n < b->stripe_count; n++)
		b->stripes[n]->race.ended = 0;
	for (uint8_t i = 0; b->state != WRITE_OPEN && i < b->geom.k; i++)
		if (stripe_chunk_len(&b->geom, i) == 0)
			b->chunks[i].state = PICK_ABSENT;
}

/* Too few chunks are stored, and would not be too few if those had been that the last server that they were sent to had no room for. */
static bool is_full(const struct write_block *b)
{
	uint8_t k_data = b->state == WRITE_OPEN ? b->geom.k : stripe_data_chunks(&b->geom), full = 0, left = k_data + b->geom.m;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		const struct write_chunk *c = &b->chunks[i];
		bool no_room = c->error == ERR_NOSPC || c->error == ERR_NO_EXTENT;

		full += no_room;
		left -= c->state == PICK_FAILED && c->error && !no_room;
	}
	return full > 0 && left >= pick_fewest(k_data, b->geom.m);
}

static void want_renewal(struct write_block *b)
{
	struct write_stream *s = b->stream;
	int error = 0;
	bool full = is_full(b);

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		if (b->chunks[i].error)
			error = b->chunks[i].error;
		if (write_chunk_moving(&b->chunks[i]))
			write_chunk_stop(&b->chunks[i], PICK_FAILED);
	}
	if (++b->renewals <= WRITE_REALLOCATIONS) {
		b->renew = true;
		write_kick(s); /* an allocation may be there already */
		return;
	}
	if (full)
		write_fail(s, ERR_NOSPC, "write %s at offset %llu: too few chunk servers have room: %s", s->path,
			(unsigned long long)b->file_offset, SESSION_ROOM_HINT);
	else
		write_fail(s, ERR_TOO_FEW_CHUNKS,
			"write %s at offset %llu: too few chunk servers took their chunk (last error: %s): see `craton status`",
			s->path, (unsigned long long)b->file_offset, err_text(error));
}

static void timer_done(struct io_op *op)
{
	struct write_block *b = CONTAINER_OF(op, struct write_block, timer);

	if (op->result < 0 && b->wake_ns) {
		io_prep_timer(&b->timer, b->wake_ns, timer_done);
		io_submit(b->stream->client->io, &b->timer);
		return;
	}
	b->wake_ns = 0;
	write_kick(b->stream);
}

/*
 * The earliest of all that is asked for until then counts. Cancelled for an earlier one the timer is set to that and does not kick: a
 * step asks for all of its waits in turn, and would have it cancelled again, without end.
 */
void write_block_look_again(struct write_block *b, uint64_t wait_ns)
{
	struct io *io = b->stream->client->io;
	uint64_t at_ns = io_now_ns(io) + wait_ns;

	if (!io_pending(&b->timer)) {
		b->wake_ns = at_ns;
		io_prep_timer(&b->timer, at_ns, timer_done);
		io_submit(io, &b->timer);
	} else if (at_ns < b->wake_ns) {
		b->wake_ns = at_ns;
		io_cancel(io, &b->timer);
	}
}

/* CRCs of whole chunks, and the lists that parity trailers carry: when everything is encoded. */
static void make_sums(struct write_block *b)
{
	uint8_t *at;

	if (b->sums_ready || b->state == WRITE_OPEN || b->encoded_count < b->stripe_count)
		return;
	b->data_lists_bytes = 0;
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		uint32_t crc = 0;

		for (uint32_t n = 0; n < b->stripe_count; n++)
			crc = crc32c_combine(crc, b->stripes[n]->cell_crc[i], stripe_cell_len(&b->geom, n, i));
		b->chunk_crc[i] = crc;
		if (i < b->geom.k)
			b->data_lists_bytes += stripe_unit_count(stripe_chunk_len(&b->geom, i)) * sizeof(uint32_t);
	}
	mem_free(b->data_lists[b->renewals]);
	at = b->data_lists[b->renewals] = mem_alloc(b->data_lists_bytes);
	for (uint8_t i = 0; i < b->geom.k; i++) {
		uint32_t units = stripe_unit_count(stripe_chunk_len(&b->geom, i));
		uint8_t *list = at;

		if (units == 0)
			continue;
		for (uint32_t n = 0; n < b->stripe_count; n++) {
			size_t bytes = stripe_unit_count(b->stripes[n]->data_len[i]) * sizeof(uint32_t);

			memcpy(at, b->stripes[n]->crcs[i], bytes);
			at += bytes;
		}
		stripe_mask_units(b->id, i, 0, units, (uint32_t *)(void *)list);
	}
	b->sums_ready = true;
}

static void count_encoded(struct write_block *b)
{
	while (b->encoded_count < b->stripe_count && b->stripes[b->encoded_count]->encoded)
		b->encoded_count++;
}

/* Stripes that all the chunks we wait for have acknowledged leave the window. */
static void count_acked(struct write_block *b)
{
	while (b->acked_count < b->encoded_count) {
		struct write_stripe *t = b->stripes[b->acked_count];

		for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
			const struct write_chunk *c = &b->chunks[i];

			if (c->state == PICK_SENDING && !c->slow && t->data_len[i < b->geom.k ? i : 0] > 0 &&
				c->cells_acked <= b->acked_count)
				return;
		}
		if (t->counted) {
			t->counted = false;
			b->stream->unacked--;
		}
		b->acked_count++;
	}
}

void write_block_mark_slow(struct write_block *b, uint64_t before_ns)
{
	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		struct write_chunk *c = &b->chunks[i];

		if (c->state == PICK_SENDING && c->calls > 0 && c->progress_ns < before_ns)
			c->slow = true;
	}
}

/* ---- deciding ---- */

/* Spares not used yet: of slow disks only if there are no others, of servers that do not answer only if there are not even these. */
static uint8_t usable_spares(const struct write_block *b, struct pick_block *facts, uint8_t map[LIMIT_M])
{
	const struct disks *disks = &b->stream->client->disks;
	uint8_t count = 0;

	for (int tier = 0; tier < 3 && count == 0; tier++)
		for (uint8_t i = 0; i < b->spare_count; i++) {
			uint32_t disk = b->spares[i].disk;
			bool suspect = disks_suspect(disks, disk);

			if (b->spares[i].used || tier != (suspect ? 2 : disks_avoided(disks, disk)))
				continue;
			facts->spare[count] = (struct pick_place){disk, disks_domain(disks, disk)};
			facts->spares_suspect = suspect;
			map[count++] = i;
		}
	return count;
}

static void gather_facts(const struct write_block *b, struct pick_block *facts, uint8_t map[LIMIT_M])
{
	const struct client *client = b->stream->client;
	uint64_t now_ns = io_now_ns(client->io);

	*facts = (struct pick_block){
		.m = b->geom.m,
		.k_data = b->state == WRITE_OPEN ? b->geom.k : stripe_data_chunks(&b->geom),
		.chunk_count = (uint8_t)(b->geom.k + b->geom.m),
		.chunks_total = client->chunks_total,
		.chunks_left = client->chunks_left,
	};
	for (uint8_t i = 0; i < facts->chunk_count; i++) {
		const struct write_chunk *c = &b->chunks[i];

		facts->state[i] = c->state;
		facts->pace[i] = c->probe                               ? PICK_PACE_PROBE
			: disks_avoided(&client->disks, c->target.disk) ? PICK_PACE_SLOW
									: PICK_PACE_WELL;
		facts->place[i] = (struct pick_place){c->target.disk, disks_domain(&client->disks, c->target.disk)};
		facts->age_ns[i] = c->state == PICK_SEALED ? c->seal_took_ns
			: c->seal_sent                     ? now_ns - c->seal_sent_ns
							   : 0;
		facts->still_ns[i] = now_ns - c->progress_ns < facts->age_ns[i] ? now_ns - c->progress_ns : facts->age_ns[i];
	}
	facts->spare_count = usable_spares(b, facts, map);
}

/* A target that was set aside because it is avoided, and for which there is no spare, is tried after all. */
static bool try_avoided(struct write_block *b, bool suspects)
{
	const struct disks *disks = &b->stream->client->disks;
	bool any = false;

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		struct write_chunk *c = &b->chunks[i];

		if (c->state != PICK_FAILED || c->error || (!suspects && disks_suspect(disks, c->target.disk)))
			continue;
		c->state = PICK_SENDING;
		any = true;
	}
	return any;
}

/* It has not come yet: that is known of its disk already. */
static void note_late(struct write_chunk *c)
{
	struct client *client = c->block->stream->client;
	uint64_t waits_ns = io_now_ns(client->io) - c->seal_sent_ns, peers_ns = pace_race_peers(&c->block->race);

	if (c->seal_sent && pace_is_slow(waits_ns, peers_ns))
		disks_note(&client->disks, c->target.disk, waits_ns, peers_ns);
}

/* Each second that a chunk is waited for: of a disk that hangs, and whose chunk may neither be left nor go elsewhere, nothing else is heard for long. */
static void note_waited_for(struct write_block *b)
{
	uint64_t now_ns = io_now_ns(b->stream->client->io);

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		struct write_chunk *c = &b->chunks[i];

		if (c->state != PICK_SENDING || !c->seal_sent || now_ns - (c->noted_ns ? c->noted_ns : c->seal_sent_ns) < WRITE_SLOW_NS)
			continue;
		c->noted_ns = now_ns;
		note_late(c);
	}
}

static void commit_if_closed(struct write_block *b)
{
	if (b->state == WRITE_CLOSED)
		b->state = WRITE_READY;
}

/* One decision; true if there may be more to decide. */
static bool decide(struct write_block *b)
{
	struct client *client = b->stream->client;
	struct pick_block facts;
	struct pick_result r;
	uint8_t map[LIMIT_M];
	struct write_chunk *c;

	gather_facts(b, &facts, map);
	pick_write(&facts, &r);
	c = &b->chunks[r.index];
	switch (r.action) {
	case PICK_WAIT:
		note_waited_for(b);
		if (b->state == WRITE_CLOSED && r.wait_ns > 0)
			write_block_look_again(b, r.wait_ns < WRITE_SLOW_NS / 2 ? r.wait_ns : WRITE_SLOW_NS / 2);
		return false;
	case PICK_COMMIT:
		commit_if_closed(b);
		return false;
	case PICK_EXPOSED:
		if (try_avoided(b, false))
			return true;
		commit_if_closed(b);
		return false;
	case PICK_REPLACE:
		if (c->state == PICK_SENDING) {
			note_late(c);
			SOMETIMES(write_block_replaced_late);
			client->chunks_replaced++;
			write_chunk_stop(c, PICK_FAILED);
		}
		b->spares[map[r.spare]].used = true;
		SOMETIMES(client_spare_used);
		write_chunk_begin(c, &b->spares[map[r.spare]]);
		return true;
	case PICK_LEAVE:
		note_late(c);
		c->was_left = true;
		if (!c->was_counted && facts.pace[r.index] == PICK_PACE_WELL) {
			c->was_counted = true;
			client->chunks_left++;
		}
		c->state = PICK_LEFT;
		return true;
	case PICK_REALLOCATE:
		if (b->committed) { /* under this id it is part of the file, with the chunks that it has */
			write_block_cancel(b);
			b->state = WRITE_DONE;
			return false;
		}
		if (try_avoided(b, true))
			return true;
		want_renewal(b);
		return false;
	}
	CHECK_UNREACHABLE();
}

/* Where else the chunk could go, if it can at all, one of the block lies already: it would bear the loss of a server less. */
static bool would_cost_safety(const struct write_block *b, uint8_t index)
{
	struct pick_block facts;
	uint8_t map[LIMIT_M];

	gather_facts(b, &facts, map);
	return pick_spare(&facts, index, true) < 0;
}

/* Its chunk's place is given up: since it was asked, or since it was found gone, there was time enough for one that is starved to be heard. */
static bool is_gone(const struct write_block *b, uint8_t index, uint64_t silent_ns)
{
	const struct disks *disks = &b->stream->client->disks;
	uint32_t disk = b->chunks[index].target.disk;

	return disks_suspect(disks, disk) &&
		(silent_ns >= WRITE_SILENT_NS || disks_suspect_ns(disks, disk) >= WRITE_SILENT_NS ||
			!(b->state == WRITE_LATE || would_cost_safety(b, index)));
}

/*
 * A server that is silent is asked whether it is there; its chunk fails when it turns out that it is not. Slowness is no failure; who is
 * starved does not answer either, and is given longer where that failure would cost safety: behind the commit nobody waits, and no spare is left.
 */
static void check_silent(struct write_block *b)
{
	struct client *client = b->stream->client;
	uint64_t now_ns = io_now_ns(client->io);

	for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
		struct write_chunk *c = &b->chunks[i];
		uint64_t silent_ns = now_ns - c->progress_ns;

		if (!write_chunk_moving(c) || c->calls == 0 || silent_ns < WRITE_SLOW_NS)
			continue;
		disks_check(&client->disks, c->target.disk);
		if (is_gone(b, i, silent_ns))
			write_chunk_failed(c, ERR_TIMEDOUT);
	}
}

void write_block_step(struct write_block *b)
{
	if (b->state == WRITE_LATE) {
		check_silent(b);
		write_late_step(b);
	}
	if (b->state >= WRITE_READY || b->renew)
		return;
	count_encoded(b);
	make_sums(b);
	check_silent(b);
	/* Sending can fail a chunk at once, which is the next decision's matter: spares run out, so this ends. */
	do {
		for (uint8_t i = 0; i < b->geom.k + b->geom.m; i++) {
			b->chunks[i].slow |= disks_avoided(&b->stream->client->disks, b->chunks[i].target.disk);
			write_chunk_send(&b->chunks[i]);
		}
	} while (!b->stream->err.code && decide(b));
	count_acked(b);
}
