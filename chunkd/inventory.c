/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/inventory.h"

#include "chunkd/daemon.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/inventory.h"
#include "common/rpc/auth.h"
#include "common/rpc/methods.h"
#include "proto/metad.pb-c.h"

enum {
	CALL_MS = 10 * 1000,
	MODE_DIGESTS = 1,
	MODE_COPIES = 2,
	MODE_MISSING = 3,
	ROWS = 8192,  /* summed up in a turn: a few milliseconds */
	SLICE = 1024, /* read at once */
	DIFFERING_MAX = 2 * LIMIT_INVENTORY_RANGES,
	MISSING_MAX = LIMIT_DROPS,
};

static const uint64_t MS_NS = 1000 * 1000, RANGE_DONE = UINT64_MAX;

struct inventory {
	struct chunkd *ch;
	struct inventory_disk {
		uint64_t generation, round, again_ns; /* of the last inventory; when it is too old */
		uint64_t floor, whole_ns;             /* what it went up to; when all of it is too old */
	} * disks;
	uint64_t floor, round; /* as metad said last */
	/* the one under way */
	size_t at;
	uint64_t generation, to, this_round; /* `to`: the floor at its start */
	uint64_t pos;                        /* behind the ranges whose digests were compared */
	bool from_start;
	uint64_t differing[DIFFERING_MAX];
	size_t differing_count, differing_at;
	uint64_t list_from; /* in the range being listed */
	uint64_t resume;    /* list on from here when the missing ones are confirmed; RANGE_DONE: nothing more */
	struct copy_id slice[SLICE];
	Craton__InventoryRange range[LIMIT_INVENTORY_RANGES], *ranges[LIMIT_INVENTORY_RANGES];
	Craton__CopyId copy[LIMIT_INVENTORY_COPIES], *copies[LIMIT_INVENTORY_COPIES];
	struct rpc_call call;
	Craton__InventoryRequest request;
	uint8_t mac[32];
	bool running, calling, closing;
	void (*closed)(void *ctx);
	void *closed_ctx;
};

static void next_disk(struct inventory *v);

static void maybe_closed(struct inventory *v)
{
	void (*closed)(void *ctx) = v->closed;
	void *ctx = v->closed_ctx;

	if (!v->closing || v->calling)
		return;
	mem_free(v->disks);
	mem_free(v);
	closed(ctx);
}

static void finish(struct inventory *v, bool complete)
{
	struct inventory_disk *d = &v->disks[v->at];
	uint64_t now_ns = io_now_ns(v->ch->io);

	v->running = false;
	if (v->from_start)
		d->whole_ns = complete ? now_ns + INVENTORY_WHOLE_MS * MS_NS : 0;
	if (complete)
		d->floor = v->to;
	d->generation = v->generation;
	d->round = v->this_round;
	d->again_ns = now_ns + (complete ? INVENTORY_PERIOD_MS : INVENTORY_RETRY_MS) * MS_NS;
	next_disk(v);
}

/* ---- requests ---- */

static void on_reply(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len);

static void request_begin(struct inventory *v, uint32_t mode, uint64_t from, uint64_t to)
{
	struct chunkd *ch = v->ch;
	Craton__InventoryRequest *m = &v->request;

	craton__inventory_request__init(m);
	m->server = registrar_server(ch);
	m->server_uuid = (ProtobufCBinaryData){sizeof(ch->server_uuid.bytes), ch->server_uuid.bytes};
	m->disk = ch->disks[v->at]->sb.disk;
	m->generation = v->generation;
	m->mode = mode;
	m->from = from;
	m->to = to;
	m->ranges = v->ranges;
	m->copies = v->copies;
}

static void request_send(struct inventory *v)
{
	struct chunkd *ch = v->ch;
	Craton__InventoryRequest *m = &v->request;

	auth_inventory(ch->o.secret, ch->o.cluster.bytes, m, v->mac);
	m->auth = (ProtobufCBinaryData){sizeof(v->mac), v->mac};
	v->call = (struct rpc_call){.method = &rpc_metad_inventory,
		.request = &m->base,
		.deadline_ns = io_now_ns(ch->io) + CALL_MS * MS_NS,
		.done = on_reply};
	v->calling = true;
	rpc_call_start(registrar_peer(ch), &v->call);
}

static void add_copy(struct inventory *v, const struct copy_id *copy)
{
	Craton__CopyId *out = &v->copy[v->request.n_copies];

	craton__copy_id__init(out);
	out->block = copy->block;
	out->index = copy->index;
	out->incarnation = copy->incarnation;
	v->copies[v->request.n_copies++] = out;
}

/* Adds a copy to its range's digest. False: that range does not fit into this request. */
static bool add_digest(struct inventory *v, const struct copy_id *copy, uint64_t rows)
{
	uint64_t range = copy->block / INVENTORY_RANGE_BLOCKS;
	size_t n = v->request.n_ranges;

	if (n == 0 || v->range[n - 1].range != range) {
		if (n == LIMIT_INVENTORY_RANGES || rows >= ROWS)
			return false;
		craton__inventory_range__init(&v->range[n]);
		v->range[n].range = range;
		v->ranges[n] = &v->range[n];
		v->request.n_ranges = ++n;
	}
	v->range[n - 1].count++;
	v->range[n - 1].digest += inventory_digest(copy->block, copy->index, copy->incarnation);
	return true;
}

static void send_digests(struct inventory *v)
{
	struct index *index = v->ch->disks[v->at]->index;
	struct copy_id from = {.block = v->pos};
	uint64_t rows = 0;
	size_t n;

	request_begin(v, MODE_DIGESTS, v->pos, v->to);
	do {
		n = index_list(index, &from, v->slice, SLICE);
		for (size_t i = 0; i < n; i++, rows++) {
			if (v->slice[i].block >= v->to) {
				n = 0;
				break;
			}
			if (!add_digest(v, &v->slice[i], rows)) {
				v->request.to = v->slice[i].block / INVENTORY_RANGE_BLOCKS * INVENTORY_RANGE_BLOCKS;
				n = 0;
				break;
			}
		}
		if (n)
			from = v->slice[n - 1], from.incarnation++;
	} while (n == SLICE);
	request_send(v);
}

/* The copies of [list_from, end of its range), as many whole blocks of them as fit. */
static void send_copies(struct inventory *v)
{
	struct index *index = v->ch->disks[v->at]->index;
	uint64_t end = (v->list_from / INVENTORY_RANGE_BLOCKS + 1) * INVENTORY_RANGE_BLOCKS;
	struct copy_id from = {.block = v->list_from};
	size_t n;

	end = end < v->to ? end : v->to;
	request_begin(v, MODE_COPIES, v->list_from, end);
	do {
		n = index_list(index, &from, v->slice, SLICE);
		for (size_t i = 0; i < n; i++) {
			if (v->slice[i].block >= end) {
				n = 0;
				break;
			}
			if (v->request.n_copies == LIMIT_INVENTORY_COPIES) {
				end = v->request.to = v->slice[i].block;
				while (v->request.n_copies && v->copy[v->request.n_copies - 1].block == end)
					v->request.n_copies--;
				n = 0;
				break;
			}
			add_copy(v, &v->slice[i]);
		}
		if (n)
			from = v->slice[n - 1], from.incarnation++;
	} while (n == SLICE);
	if (v->request.to > v->list_from) {
		request_send(v);
		return;
	}
	log_line(&v->ch->log, LOG_ERROR, "inventory-too-many",
		"disk=%u block=%llu text=\"a block with more copies than can be told\"", v->request.disk,
		(unsigned long long)v->list_from);
	finish(v, false);
}

/* ---- replies ---- */

static void next_range(struct inventory *v)
{
	if (v->differing_at < v->differing_count) {
		v->list_from = v->differing[v->differing_at++] * INVENTORY_RANGE_BLOCKS;
		send_copies(v);
	} else if (v->pos < v->to) {
		send_digests(v);
	} else {
		finish(v, true);
	}
}

static void after_listing(struct inventory *v)
{
	if (v->resume != RANGE_DONE) {
		v->list_from = v->resume;
		send_copies(v);
	} else {
		next_range(v);
	}
}

static void take_digests(struct inventory *v, const Craton__InventoryReply *m)
{
	const Craton__InventoryRequest *req = &v->request;

	if (m->next <= req->from || m->next > req->to || m->n_differing > DIFFERING_MAX) {
		finish(v, false);
		return;
	}
	v->differing_at = v->differing_count = 0;
	for (size_t i = 0; i < m->n_differing; i++)
		if (m->differing[i] * INVENTORY_RANGE_BLOCKS >= req->from &&
			m->differing[i] * INVENTORY_RANGE_BLOCKS < m->next)
			v->differing[v->differing_count++] = m->differing[i];
	v->pos = m->next;
	next_range(v);
}

/* Only what is not here now, when a row of metad's has already named it: no upload or move can be on its way. */
static void take_listing(struct inventory *v, const Craton__InventoryReply *m)
{
	struct index *index = v->ch->disks[v->at]->index;
	uint64_t to = v->request.to, from = v->request.from;
	bool whole = m->next == to && (to == v->to || to % INVENTORY_RANGE_BLOCKS == 0);
	struct index_row row;

	if (m->next < from || m->next > to || (m->next == from && !m->orphans) || m->n_missing > MISSING_MAX) {
		finish(v, false);
		return;
	}
	v->resume = whole ? RANGE_DONE : m->next;
	request_begin(v, MODE_MISSING, 0, 0);
	for (size_t i = 0; i < m->n_missing; i++) {
		struct copy_id copy = {m->missing[i]->block, m->missing[i]->incarnation, (uint8_t)m->missing[i]->index};

		if (m->missing[i]->index < LIMIT_WIDTH && index_get(index, &copy, &row) == ERR_NOENT)
			add_copy(v, &copy);
	}
	if (m->n_missing == MISSING_MAX && v->request.n_copies) /* there may be more: ask for this part again */
		v->resume = from;
	if (v->request.n_copies)
		request_send(v);
	else
		after_listing(v);
}

static void on_reply(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct inventory *v = CONTAINER_OF(call, struct inventory, call);
	const Craton__InventoryReply *m = (const Craton__InventoryReply *)msg;
	const struct disk *d = v->ch->disks[v->at];

	(void)payload_len;
	v->calling = false;
	if (v->closing) {
		maybe_closed(v);
		return;
	}
	if (status < 0 || !d->registered || d->failed || d->sb.generation != v->generation)
		finish(v, false);
	else if (v->request.mode == MODE_DIGESTS)
		take_digests(v, m);
	else if (v->request.mode == MODE_COPIES)
		take_listing(v, m);
	else
		after_listing(v);
}

/* ---- which disk ---- */

/* Between whole ones only what the floor has passed since the last: little can have changed below. */
static bool is_all_due(const struct inventory *v, size_t at)
{
	const struct inventory_disk *last = &v->disks[at];

	return last->generation != v->ch->disks[at]->sb.generation || last->round != v->round ||
		io_now_ns(v->ch->io) >= last->whole_ns;
}

static bool wanted(const struct inventory *v, size_t at)
{
	const struct disk *d = v->ch->disks[at];
	const struct inventory_disk *last = &v->disks[at];

	return d->registered && !d->failed && v->floor > 1 &&
		(last->generation != d->sb.generation || last->round != v->round ||
			io_now_ns(v->ch->io) >= last->again_ns);
}

static void next_disk(struct inventory *v)
{
	for (size_t i = 0; i < v->ch->disk_count && !v->running; i++) {
		size_t at = (v->at + 1 + i) % v->ch->disk_count;

		if (!wanted(v, at))
			continue;
		v->running = true;
		v->at = at;
		v->generation = v->ch->disks[at]->sb.generation;
		v->this_round = v->round;
		v->to = v->floor;
		v->from_start = is_all_due(v, at);
		v->pos = v->from_start ? 0 : v->disks[at].floor / INVENTORY_RANGE_BLOCKS * INVENTORY_RANGE_BLOCKS;
		v->differing_at = v->differing_count = 0;
		next_range(v);
	}
}

void inventory_beat(struct inventory *v, uint64_t floor, uint64_t round)
{
	v->floor = floor;
	v->round = round;
	if (!v->running && !v->closing)
		next_disk(v);
}

struct inventory *inventory_new(struct chunkd *ch)
{
	struct inventory *v = MEM_NEW(struct inventory);

	v->ch = ch;
	v->disks = mem_array(ch->disk_count, sizeof(*v->disks));
	return v;
}

void inventory_close(struct inventory *v, void (*closed)(void *ctx), void *ctx)
{
	v->closing = true;
	v->closed = closed;
	v->closed_ctx = ctx;
	rpc_call_cancel(&v->call);
	maybe_closed(v);
}
