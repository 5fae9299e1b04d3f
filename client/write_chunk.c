/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_chunk: one chunk of a block on its way to one disk. Its cells are sent in order without waiting for answers; the last one carries
 * the seal, whose answer is the receipt. Sent again from the first cell, to another disk or to the same one, it is a new *attempt*:
 * answers to older ones are ignored, but their calls hold the block's memory until they end.
 */
#include "client/write.h"

#include <string.h>

#define HOLD_BASE_NS (10ull * 1000 * 1000)
#define HOLD_CAP_NS (1000ull * 1000 * 1000)
#define DROP_TIMEOUT_NS (2000ull * 1000 * 1000) /* a courtesy, for which no disconnect shall wait long */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "CRC lists lie on the wire as they lie in memory");

struct write_put {
	struct list link; /* chunk->puts */
	struct rpc_call call;
	struct write_chunk *chunk;
	uint32_t attempt, stripe;
	uint64_t sent_ns;
	bool cell, seal; /* carries one */
	bool borrows;    /* its cell is the writer's own memory */
	Craton__PutRequest request;
	Craton__ReceiptRequest receipt;
	Craton__Copy copy;
	Craton__Seal seal_msg;
	uint8_t token[TOKEN_BYTES];
	struct iovec iov;
	uint32_t unit_crcs[WRITE_CELL_UNITS];
};

struct write_drop {
	struct rpc_call call;
	struct client *client;
	Craton__DropUploadRequest request;
	Craton__Copy copy;
	uint8_t token[TOKEN_BYTES];
};

static void fill_copy(const struct write_block *b, uint8_t index, const struct write_target *t, Craton__Copy *copy)
{
	craton__copy__init(copy);
	copy->block = b->id;
	copy->index = index;
	copy->incarnation = t->incarnation;
	copy->disk = t->disk;
}

void write_chunk_begin(struct write_chunk *c, const struct write_target *t)
{
	if (t != &c->target) {
		c->target = *t;
		c->refusals = c->most_acked = 0;
		c->error = 0; /* that of the old target says nothing about this one */
	}
	c->hold_until_ns = 0;
	c->state = PICK_SENDING;
	c->attempt++;
	c->cells_sent = c->cells_acked = 0;
	c->seal_sent = false;
	c->slow = c->probe = false;
	c->noted_ns = 0;
	c->calls = 0;
	c->progress_ns = io_now_ns(c->block->stream->client->io);
}

/* ---- giving up ---- */

static void drop_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct write_drop *d = CONTAINER_OF(call, struct write_drop, call);
	struct client *client = d->client;

	/* Nothing to do if it failed: chunkd drops what nobody seals. */
	(void)status;
	(void)msg;
	(void)payload_len;
	mem_free(d);
	client->background--;
	client_check_closed(client);
}

/* Tells the server that an upload will not be finished, so that it need not keep the space. */
static void drop_upload(struct write_chunk *c)
{
	struct client *client = c->block->stream->client;
	struct rpc_peer *peer = disks_peer(&client->disks, c->target.disk);
	struct write_drop *d;

	if (!peer || c->cells_sent == 0 || c->state == PICK_SEALED || disks_suspect(&client->disks, c->target.disk))
		return;
	d = MEM_NEW(struct write_drop);
	d->client = client;
	craton__drop_upload_request__init(&d->request);
	fill_copy(c->block, c->index, &c->target, &d->copy);
	memcpy(d->token, c->target.token, sizeof(d->token));
	d->request.copy = &d->copy;
	d->request.token = (ProtobufCBinaryData){sizeof(d->token), d->token};
	d->call = (struct rpc_call){
		.method = &rpc_chunkd_drop_upload,
		.request = &d->request.base,
		.deadline_ns = io_now_ns(client->io) + DROP_TIMEOUT_NS,
		.done = drop_done,
	};
	client->background++;
	rpc_call_start(peer, &d->call);
}

void write_chunk_cancel(struct write_chunk *c)
{
	LIST_FOREACH(it, &c->puts)
		rpc_call_cancel(&LIST_ENTRY(it, struct write_put, link)->call);
}

bool write_chunk_borrows(const struct write_chunk *c)
{
	LIST_FOREACH(it, &c->puts) {
		const struct write_put *p = LIST_ENTRY(it, struct write_put, link);

		if (p->borrows && rpc_call_sending(&p->call))
			return true;
	}
	return false;
}

void write_chunk_moved(struct write_chunk *c)
{
	uint8_t state = c->state;

	if (!write_chunk_borrows(c))
		return;
	write_chunk_cancel(c);
	write_chunk_begin(c, &c->target);
	c->state = state;
}

void write_chunk_stop(struct write_chunk *c, uint8_t state)
{
	write_chunk_cancel(c);
	if (write_chunk_moving(c))
		drop_upload(c);
	c->state = state;
	c->attempt++; /* answers still on their way belong to the past */
}

/* ---- sending ---- */

/* The server is busy, not broken: from the first cell again, a little later. False: it was busy too often. */
static bool chunk_hold(struct write_chunk *c, int status)
{
	struct client *client = c->block->stream->client;
	uint8_t state = c->state;

	if ((status != ERR_OVERLOADED && status != ERR_AGAIN && status != ERR_BUSY) || c->refusals >= WRITE_REFUSALS)
		return false;
	write_chunk_cancel(c);
	write_chunk_begin(c, &c->target);
	c->state = state; /* one that was left is left */
	c->hold_until_ns = io_now_ns(client->io) + rng_backoff(&client->rng, HOLD_BASE_NS, HOLD_CAP_NS, c->refusals++);
	return true;
}

void write_chunk_failed(struct write_chunk *c, int status)
{
	struct disks *disks = &c->block->stream->client->disks;

	c->error = status;
	if (status == ERR_NOSPC || status == ERR_NO_EXTENT)
		disks_had_no_room(disks, c->target.disk, c->announced_bytes);
	if (disks_is_failure(status))
		disks_failed(disks, c->target.disk);
	write_chunk_stop(c, PICK_FAILED);
}

static void note_pace(struct write_chunk *c, struct pace_race *race, uint64_t took_ns)
{
	disks_note(&c->block->stream->client->disks, c->target.disk, took_ns, pace_race_end(race, took_ns));
}

static void take_receipt(struct write_chunk *c, const Craton__PutReply *reply)
{
	struct client *client = c->block->stream->client;

	if (!reply || reply->mac.len != TOKEN_MAC_BYTES) {
		write_chunk_failed(c, ERR_PROTO);
		return;
	}
	memcpy(c->mac, reply->mac.data, TOKEN_MAC_BYTES);
	c->generation = reply->generation;
	c->state = PICK_SEALED;
	c->seal_took_ns = io_now_ns(client->io) - c->seal_sent_ns;
	disks_succeeded(&client->disks, c->target.disk);
	note_pace(c, &c->block->race, c->seal_took_ns);
}

static void put_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct write_put *p = CONTAINER_OF(call, struct write_put, call);
	struct write_chunk *c = p->chunk;
	bool current = p->attempt == c->attempt;

	(void)payload_len;
	list_remove(&p->link);
	c->block->calls_active--;
	if (current) {
		c->calls--;
		c->progress_ns = io_now_ns(c->block->stream->client->io);
		if (status < 0) {
			if (!chunk_hold(c, status))
				write_chunk_failed(c, status);
		} else {
			c->cells_acked += p->cell;
			/* Cells that an earlier attempt had sent are no progress: a server that always refuses the second
			   one would be tried for ever. */
			if (c->cells_acked > c->most_acked) {
				c->most_acked = c->cells_acked;
				c->refusals = 0;
			}
			if (p->seal)
				take_receipt(c, (const Craton__PutReply *)msg);
			else
				note_pace(c, &c->block->stripes[p->stripe]->race, c->progress_ns - p->sent_ns);
		}
	}
	write_kick(c->block->stream);
	mem_free(p);
}

static struct write_put *put_new(struct write_chunk *c)
{
	struct write_block *b = c->block;
	struct write_put *p = MEM_NEW(struct write_put);

	p->chunk = c;
	p->attempt = c->attempt;
	memcpy(p->token, c->target.token, sizeof(p->token));
	fill_copy(b, c->index, &c->target, &p->copy);
	return p;
}

static void put_start(struct write_put *p, const struct rpc_method *method, const ProtobufCMessage *request)
{
	struct write_chunk *c = p->chunk;
	struct client *client = c->block->stream->client;
	struct rpc_peer *peer = disks_peer(&client->disks, c->target.disk);

	if (!peer) {
		mem_free(p);
		write_chunk_failed(c, ERR_HOSTUNREACH);
		return;
	}
	p->call = (struct rpc_call){
		.method = method,
		.request = request,
		.payload = p->iov.iov_len ? &p->iov : NULL,
		.payload_count = p->iov.iov_len ? 1 : 0,
		.deadline_ns = io_now_ns(client->io) + client->timeout_ns,
		.done = put_done,
	};
	p->sent_ns = io_now_ns(client->io);
	if (c->calls++ == 0)
		c->progress_ns = p->sent_ns;
	c->block->calls_active++;
	list_push_back(&c->puts, &p->link);
	rpc_call_start(peer, &p->call);
}

static void put_send(struct write_chunk *c, const struct write_stripe *t, bool seal)
{
	struct write_block *b = c->block;
	struct write_put *p = put_new(c);
	Craton__PutRequest *r = &p->request;

	craton__put_request__init(r);
	r->token = (ProtobufCBinaryData){sizeof(p->token), p->token};
	r->copy = &p->copy;
	if (c->cells_sent == 0)
		c->announced_bytes =
			b->state == WRITE_OPEN ? b->stream->chunk_bytes : stripe_chunk_len(&b->geom, c->index);
	r->announced_bytes = c->announced_bytes;
	if (t) {
		uint32_t first = t->number * (b->geom.cell_bytes / LIMIT_UNIT_BYTES);
		size_t len = t->data_len[c->index < b->geom.k ? c->index : 0];
		uint32_t units = stripe_unit_count(len);
		const uint8_t *data = c->index < b->geom.k ? t->data[c->index] : t->parity[c->index - b->geom.k];

		p->cell = true;
		p->stripe = t->number;
		p->borrows = write_stripe_borrows(t, c->index);
		p->iov = (struct iovec){(void *)(uintptr_t)data, len};
		memcpy(p->unit_crcs, t->crcs[c->index], units * sizeof(uint32_t));
		stripe_mask_units(b->id, c->index, first, units, p->unit_crcs);
		r->unit_crcs = (ProtobufCBinaryData){units * sizeof(uint32_t), (uint8_t *)p->unit_crcs};
		r->offset = (uint64_t)t->number * b->geom.cell_bytes;
		c->cells_sent++;
	} else {
		r->offset = stripe_chunk_len(&b->geom, c->index);
	}
	if (seal) {
		Craton__Seal *m = &p->seal_msg;

		craton__seal__init(m);
		m->length = stripe_chunk_len(&b->geom, c->index);
		m->chunk_crc = b->chunk_crc[c->index];
		m->block_length = b->geom.length;
		m->cell_bytes = b->geom.cell_bytes;
		if (c->index >= b->geom.k)
			m->data_lists = (ProtobufCBinaryData){b->data_lists_bytes, b->data_lists[b->renewals]};
		r->seal = m;
		p->seal = true;
		c->seal_sent = true;
		c->seal_sent_ns = io_now_ns(b->stream->client->io);
	}
	put_start(p, &rpc_chunkd_put, &r->base);
}

static uint32_t cells_of(const struct write_block *b, uint8_t index)
{
	uint32_t n = b->stripe_count;

	/* Only the last stripe can be too short to have one; and a stripe being filled does not count. */
	while (n > 0 && (n > b->encoded_count || b->stripes[n - 1]->data_len[index < b->geom.k ? index : 0] == 0))
		n--;
	return n;
}

void write_chunk_send(struct write_chunk *c)
{
	struct write_block *b = c->block;
	uint32_t cells = cells_of(b, c->index);
	bool sealable = b->state != WRITE_OPEN && b->sums_ready;
	uint64_t now_ns = io_now_ns(b->stream->client->io);

	if (write_chunk_moving(c) && c->hold_until_ns > now_ns) {
		write_block_look_again(b, c->hold_until_ns - now_ns);
		return;
	}
	while (write_chunk_moving(c) && c->cells_sent < cells)
		put_send(c, b->stripes[c->cells_sent], sealable && c->cells_sent + 1 == cells);
	if (write_chunk_moving(c) && sealable && !c->seal_sent)
		put_send(c, NULL, true);
}

void write_chunk_fresh_receipt(struct write_chunk *c)
{
	struct write_block *b = c->block;
	struct write_put *p;

	c->state = PICK_SENDING;
	c->attempt++;
	c->calls = 0;
	c->seal_sent = true;
	c->seal_sent_ns = io_now_ns(b->stream->client->io);
	c->cells_sent = cells_of(b, c->index);
	p = put_new(c);
	craton__receipt_request__init(&p->receipt);
	p->receipt.token = (ProtobufCBinaryData){sizeof(p->token), p->token};
	p->receipt.copy = &p->copy;
	p->seal = true;
	put_start(p, &rpc_chunkd_receipt, &p->receipt.base);
}
