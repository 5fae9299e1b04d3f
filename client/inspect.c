/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect: where the chunks of a file lie, and with `verify` whether every byte of them is right. One operation looks at a few blocks;
 * its caller goes on from where it ended.
 *
 *     lookup -> layout -> for each block: { stat of each chunk -> (verify) lists of the parity trailers -> all bytes of each chunk } -> done
 *
 * A block's chunks are looked at side by side, each through one page. Damage is named by what it is: a unit whose CRC is not the one in a
 * list that combines to the proof; a trailer that chunkd says is bad, or whose list does not combine to the proof. A chunk for which no
 * list is left is checked as a whole against the proof.
 */
#include <stdio.h>
#include <string.h>
#include "client/client_priv.h"
#include "client/layout.h"
#include "common/base/crc32c.h"

enum { INSPECT_BLOCKS = 16 };

struct inspect;

struct inspect_chunk {
	struct inspect *inspect;
	struct rpc_call call;
	uint8_t index;
	bool no_list; /* its trailer is bad: read without asking for it */
	int error;
	uint64_t received;
	uint32_t crc; /* of what was received */
	void *page;
	union {
		Craton__StatRequest stat;
		Craton__ListsRequest lists;
		Craton__GetRequest get;
	} request;
	Craton__Copy copy;
	struct cr_chunk_info info;
	uint32_t *bad_units;
	uint32_t bad_count;
	bool contradicts; /* what was read of it is not what the block's row says; else its trailer cannot be read */
};

enum inspect_phase { INSPECT_STAT, INSPECT_LISTS, INSPECT_READ, INSPECT_BLOCK_DONE };

struct inspect {
	struct client *client;
	struct client_op *op;
	struct session_call call;
	Craton__LookupRequest lookup;
	Craton__LayoutRequest layout_request;
	char path[CR_PATH_MAX];
	struct layout *layout;
	size_t extent, done_extents; /* now, and how many this operation looked at */
	enum inspect_phase phase;
	uint32_t active;
	struct inspect_chunk chunks[LIMIT_WIDTH];
	struct pool_wait pool_wait;
	bool has_pages;
	struct cr_chunk_info *infos;
	uint32_t info_count, info_cap;
	uint32_t *units; /* bad ones of all infos, one behind the other */
	uint32_t unit_count, unit_cap;
	struct io_turn_hook hook;
	bool stepping;
};

static void inspect_step(struct io_turn_hook *hook);

static void kick(struct inspect *n)
{
	io_at_turn_end(n->client->io, &n->hook);
}

static struct layout_block *block_of(const struct inspect *n)
{
	return n->layout->extents[n->extent].block;
}

static uint8_t width(const struct inspect *n)
{
	return (uint8_t)(block_of(n)->geom.k + block_of(n)->geom.m);
}

static void release(struct inspect *n)
{
	struct pool *pool = &n->client->pool;

	if (n->has_pages) {
		for (uint8_t i = 0; i < LIMIT_WIDTH; i++)
			if (n->chunks[i].page)
				pool_put(pool, n->chunks[i].page);
		pool_unreserve(pool, LIMIT_WIDTH);
	}
	layout_put(n->layout);
	mem_free(n->infos);
	mem_free(n->units);
	io_turn_hook_remove(n->client->io, &n->hook);
}

static void finish(struct inspect *n)
{
	struct client *client = n->client;
	struct client_op *op = n->op;
	uint32_t *units;

	if (op->err.code == 0 && n->info_count > 0) {
		op->chunks = mem_alloc(n->info_count * sizeof(n->infos[0]) + n->unit_count * sizeof(uint32_t));
		memcpy(op->chunks, n->infos, n->info_count * sizeof(n->infos[0]));
		units = (uint32_t *)(void *)(op->chunks + n->info_count);
		if (n->unit_count)
			memcpy(units, n->units, n->unit_count * sizeof(uint32_t));
		for (uint32_t i = 0; i < n->info_count; i++) {
			op->chunks[i].bad_units = units;
			units += op->chunks[i].bad_unit_count;
		}
		op->count = n->info_count;
	}
	release(n);
	mem_free(n);
	client_finish(client, op);
}

static void keep_info(struct inspect *n, const struct inspect_chunk *c)
{
	if (n->info_count == n->info_cap) {
		n->info_cap = n->info_cap ? n->info_cap * 2 : 64;
		n->infos = mem_realloc(n->infos, n->info_cap * sizeof(n->infos[0]));
	}
	n->infos[n->info_count] = c->info;
	n->infos[n->info_count++].bad_unit_count = c->bad_count;
	if (n->unit_count + c->bad_count > n->unit_cap) {
		n->unit_cap = (n->unit_count + c->bad_count) * 2;
		n->units = mem_realloc(n->units, n->unit_cap * sizeof(uint32_t));
	}
	if (c->bad_count)
		memcpy(n->units + n->unit_count, c->bad_units, c->bad_count * sizeof(uint32_t));
	n->unit_count += c->bad_count;
}

/* ---- calls to chunk servers ---- */

static void chunk_ended(struct inspect_chunk *c)
{
	c->inspect->active--;
	kick(c->inspect);
}

static void chunk_error(struct inspect_chunk *c, int status)
{
	if (status == ERR_NOENT || status == ERR_NOT_SEALED)
		c->info.state = CR_CHUNK_MISSING;
	else if (status == ERR_TRAILER_CORRUPT || status == ERR_CORRUPT)
		c->info.state = CR_CHUNK_CORRUPT;
	else
		c->info.state = CR_CHUNK_DOWN;
	c->error = status;
}

static int get_place(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len,
	struct iovec ret_iov[RPC_PAYLOAD_IOV], int *ret_count);
static void get_part(struct rpc_call *call, const ProtobufCMessage *msg, uint32_t payload_len);

/* Starts `call` for chunk c with c->request; token and copy are the same in all requests. */
static void chunk_call(struct inspect_chunk *c, const struct rpc_method *method, const ProtobufCMessage *request,
	void (*done)(struct rpc_call *, int, const ProtobufCMessage *, uint32_t))
{
	struct inspect *n = c->inspect;
	struct rpc_peer *peer = disks_peer(&n->client->disks, block_of(n)->chunks[c->index].disk);

	c->call = (struct rpc_call){
		.method = method,
		.request = request,
		.place = method == &rpc_chunkd_get ? get_place : NULL,
		.part = method == &rpc_chunkd_get ? get_part : NULL,
		.deadline_ns = io_now_ns(n->client->io) + n->client->timeout_ns,
		.done = done,
	};
	if (!peer) {
		chunk_error(c, ERR_HOSTUNREACH);
		return;
	}
	n->active++;
	rpc_call_start(peer, &c->call);
}

static ProtobufCBinaryData token_of(const struct inspect *n)
{
	return (ProtobufCBinaryData){block_of(n)->token_bytes, block_of(n)->token};
}

static void stat_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct inspect_chunk *c = CONTAINER_OF(call, struct inspect_chunk, call);
	const Craton__StatReply *r = (const Craton__StatReply *)msg;

	(void)payload_len;
	if (status < 0 || !r) {
		chunk_error(c, status < 0 ? status : ERR_PROTO);
	} else {
		snprintf(c->info.segment, sizeof(c->info.segment), "%s", r->segment);
		c->info.segment_offset = r->segment_offset;
		c->info.trailer_offset = r->trailer_offset;
		c->info.trailer_bytes = r->trailer_bytes;
		if (r->trailer_bad) {
			c->info.bad_trailer = 1;
			c->info.state = CR_CHUNK_CORRUPT;
			c->no_list = true;
		}
	}
	chunk_ended(c);
}

static void start_stat(struct inspect_chunk *c)
{
	craton__stat_request__init(&c->request.stat);
	c->request.stat.token = token_of(c->inspect);
	c->request.stat.copy = &c->copy;
	chunk_call(c, &rpc_chunkd_stat, &c->request.stat.base, stat_done);
}

static void bad_trailer(struct inspect_chunk *c, bool contradicts)
{
	c->info.bad_trailer = 1;
	c->contradicts |= contradicts;
	c->info.state = CR_CHUNK_CORRUPT;
	c->no_list = true;
}

static void lists_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct inspect_chunk *c = CONTAINER_OF(call, struct inspect_chunk, call);
	const Craton__ListsReply *r = (const Craton__ListsReply *)msg;
	struct layout_block *b = block_of(c->inspect);

	(void)payload_len;
	if (status == ERR_TRAILER_CORRUPT || status == ERR_CORRUPT)
		bad_trailer(c, false);
	else if (status < 0 || !r)
		chunk_error(c, status < 0 ? status : ERR_PROTO);
	for (size_t i = 0; status == 0 && r && i < r->n_lists; i++)
		if (r->lists[i]->index >= (uint32_t)b->geom.k + b->geom.m ||
			layout_learn_list(
				b, (uint8_t)r->lists[i]->index, r->lists[i]->crcs.data, r->lists[i]->crcs.len) < 0)
			bad_trailer(c, true);
	chunk_ended(c);
}

static void start_lists(struct inspect_chunk *c)
{
	craton__lists_request__init(&c->request.lists);
	c->request.lists.token = token_of(c->inspect);
	c->request.lists.copy = &c->copy;
	chunk_call(c, &rpc_chunkd_lists, &c->request.lists.base, lists_done);
}

static int get_place(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len,
	struct iovec ret_iov[RPC_PAYLOAD_IOV], int *ret_count)
{
	struct inspect_chunk *c = CONTAINER_OF(call, struct inspect_chunk, call);
	const Craton__GetPart *part = (const Craton__GetPart *)head;
	uint64_t left = c->info.chunk_bytes - c->received;

	/* Whole units, but for the end of the chunk. */
	if (part->offset != c->received || payload_len > POOL_PAGE_BYTES || payload_len > left ||
		(payload_len % LIMIT_UNIT_BYTES && payload_len != left))
		return ERR_PROTO;
	ret_iov[0] = (struct iovec){c->page, payload_len};
	*ret_count = 1;
	return 0;
}

static void bad_unit(struct inspect_chunk *c, uint32_t unit)
{
	if (!c->bad_units)
		c->bad_units = mem_array(stripe_unit_count(c->info.chunk_bytes), sizeof(uint32_t));
	c->bad_units[c->bad_count++] = unit;
	c->contradicts = true;
	c->info.state = CR_CHUNK_CORRUPT;
}

static void check_part(struct inspect_chunk *c, const Craton__GetPart *part, uint32_t payload_len)
{
	struct layout_block *b = block_of(c->inspect);

	if (part->list.len > 0 && !c->no_list && layout_learn_list(b, c->index, part->list.data, part->list.len) < 0)
		bad_trailer(c, true);
	/* Data without the list that was asked for: the trailer cannot be read. */
	if (c->received == 0 && part->list.len == 0 && !c->no_list)
		bad_trailer(c, false);
	for (uint32_t at = 0; at < payload_len; at += LIMIT_UNIT_BYTES) {
		uint32_t len = payload_len - at < LIMIT_UNIT_BYTES ? payload_len - at : LIMIT_UNIT_BYTES;
		uint32_t unit = (uint32_t)((c->received + at) / LIMIT_UNIT_BYTES);
		uint32_t crc = crc32c((const uint8_t *)c->page + at, len);

		if (b->lists[c->index] && (crc ^ stripe_unit_mask(b->id, c->index, unit)) != b->lists[c->index][unit])
			bad_unit(c, unit);
		c->crc = crc32c_combine(c->crc, crc, len);
	}
	c->received += payload_len;
}

static void get_part(struct rpc_call *call, const ProtobufCMessage *msg, uint32_t payload_len)
{
	check_part(CONTAINER_OF(call, struct inspect_chunk, call), (const Craton__GetPart *)msg, payload_len);
}

static void start_get(struct inspect_chunk *c);

static void get_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct inspect_chunk *c = CONTAINER_OF(call, struct inspect_chunk, call);
	struct layout_block *b = block_of(c->inspect);

	if (status == 0 && msg)
		check_part(c, (const Craton__GetPart *)msg, payload_len);
	if (status == ERR_TRAILER_CORRUPT && !c->no_list) {
		bad_trailer(c, false);
		start_get(c);
	} else if (status < 0) {
		chunk_error(c, status);
	} else if (c->received != c->info.chunk_bytes || (!b->lists[c->index] && c->crc != b->chunks[c->index].crc)) {
		c->info.state = CR_CHUNK_CORRUPT;
		c->contradicts = true;
	}
	chunk_ended(c);
}

static void start_get(struct inspect_chunk *c)
{
	craton__get_request__init(&c->request.get);
	c->request.get.token = token_of(c->inspect);
	c->request.get.copy = &c->copy;
	c->request.get.length = c->info.chunk_bytes;
	c->request.get.want_list = !c->no_list;
	c->received = 0;
	c->bad_count = 0; /* read again, each unit counts once */
	c->crc = 0;
	chunk_call(c, &rpc_chunkd_get, &c->request.get.base, get_done);
}

/* ---- a block ---- */

/* Who reads all of it sees for himself. */
static bool known_damaged(const struct inspect *n, uint8_t index)
{
	return !n->op->verify && block_of(n)->chunks[index].damaged;
}

static void block_start(struct inspect *n)
{
	const struct layout_block *b = block_of(n);

	for (uint8_t i = 0; i < width(n); i++) {
		struct inspect_chunk *c = &n->chunks[i];
		void *page = c->page;
		const struct disks_disk *disk = disks_get(&n->client->disks, b->chunks[i].disk);

		*c = (struct inspect_chunk){.inspect = n, .index = i, .page = page};
		c->info = (struct cr_chunk_info){
			.block = b->id,
			.file_offset = n->layout->extents[n->extent].file_offset,
			.block_bytes = b->geom.length,
			.k = b->geom.k,
			.m = b->geom.m,
			.index = i,
			.state = !b->chunks[i].present ? CR_CHUNK_MISSING : known_damaged(n, i) ? CR_CHUNK_CORRUPT : CR_CHUNK_OK,
			.crowded = b->crowded,
			.disk = b->chunks[i].disk,
			.server = disk ? disk->server->id : 0,
			.chunk_bytes = stripe_chunk_len(&b->geom, i),
		};
		snprintf(c->info.policy, sizeof(c->info.policy), "%s", b->policy->name);
		snprintf(c->info.server_name, sizeof(c->info.server_name), "%s",
			disks_server_name(&n->client->disks, c->info.disk));
		craton__copy__init(&c->copy);
		c->copy.block = b->id;
		c->copy.index = i;
		c->copy.incarnation = b->chunks[i].incarnation;
		c->copy.disk = b->chunks[i].disk;
	}
}

static bool wanted(const struct inspect_chunk *c)
{
	return c->info.chunk_bytes > 0 && c->info.state != CR_CHUNK_MISSING && c->info.state != CR_CHUNK_DOWN;
}

static void phase_start(struct inspect *n)
{
	for (uint8_t i = 0; i < width(n); i++) {
		struct inspect_chunk *c = &n->chunks[i];

		if (!wanted(c))
			continue;
		if (n->phase == INSPECT_STAT)
			start_stat(c);
		else if (n->phase == INSPECT_LISTS && i >= block_of(n)->geom.k && !c->no_list)
			start_lists(c);
		else if (n->phase == INSPECT_READ)
			start_get(c);
	}
}

/* A chunk that is not what the block's row says: metad is told. */
static void tell(struct inspect *n, uint8_t index)
{
	const struct layout_block *b = block_of(n);
	const struct inspect_chunk *c = &n->chunks[index];
	uint8_t state = c->info.state;

	if (c->info.chunk_bytes > 0 && b->chunks[index].present && !b->chunks[index].damaged &&
		(state == CR_CHUNK_CORRUPT || state == CR_CHUNK_MISSING))
		report_copy(n->client, b->id, index, b->chunks[index].disk, b->chunks[index].incarnation,
			state == CR_CHUNK_MISSING ? ERR_NOENT
				: c->contradicts  ? ERR_CORRUPT
						  : ERR_TRAILER_CORRUPT);
}

static void block_end(struct inspect *n)
{
	int margin = block_of(n)->geom.m;

	for (uint8_t i = 0; i < width(n); i++)
		margin -= n->chunks[i].info.chunk_bytes > 0 && n->chunks[i].info.state != CR_CHUNK_OK;
	for (uint8_t i = 0; i < width(n); i++) {
		struct inspect_chunk *c = &n->chunks[i];

		c->info.margin = (int8_t)margin;
		if (c->info.chunk_bytes > 0)
			keep_info(n, c);
		tell(n, i);
		mem_free(c->bad_units);
		c->bad_units = NULL;
	}
}

static void pages_granted(struct pool_wait *w)
{
	struct inspect *n = CONTAINER_OF(w, struct inspect, pool_wait);

	n->has_pages = true;
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++)
		n->chunks[i].page = pool_take(&n->client->pool);
	kick(n);
}

static void inspect_step(struct io_turn_hook *hook)
{
	struct inspect *n = CONTAINER_OF(hook, struct inspect, hook);

	if (n->op->verify && !n->has_pages)
		return;
	while (n->active == 0) {
		if (n->phase == INSPECT_BLOCK_DONE) {
			block_end(n);
			n->extent++;
			n->done_extents++;
			n->phase = INSPECT_STAT;
			if (n->extent == n->layout->extent_count || n->done_extents == INSPECT_BLOCKS) {
				const struct layout_extent *last = &n->layout->extents[n->extent - 1];

				n->op->offset = last->file_offset + last->length;
				n->op->end = n->op->offset >= n->layout->attr.size;
				finish(n);
				return;
			}
			block_start(n);
			phase_start(n);
			continue;
		}
		n->phase++;
		if (!n->op->verify)
			n->phase = INSPECT_BLOCK_DONE;
		if (n->phase != INSPECT_BLOCK_DONE)
			phase_start(n);
	}
}

static void fail(struct inspect *n, int status)
{
	session_explain(&n->client->session, &n->op->err, status, "inspect", n->op->path);
	finish(n);
}

static void layout_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct inspect *n = CONTAINER_OF(call, struct inspect, call);
	const Craton__LayoutReply *reply = (const Craton__LayoutReply *)msg;

	if (status == 0)
		status = reply ? layout_new(reply, n->op->offset, io_now_ns(n->client->io), &n->layout) : ERR_PROTO;
	if (status < 0) {
		fail(n, status);
		return;
	}
	disks_learn(&n->client->disks, reply->disks, reply->n_disks);
	if (n->layout->extent_count == 0) {
		n->op->end = true;
		finish(n);
		return;
	}
	if (n->op->verify) {
		n->pool_wait = (struct pool_wait){.pages = LIMIT_WIDTH, .granted = pages_granted};
		pool_wait(&n->client->pool, &n->pool_wait);
		client_relieve(n->client);
	}
	block_start(n);
	phase_start(n);
	kick(n);
}

static void lookup_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct inspect *n = CONTAINER_OF(call, struct inspect, call);
	const Craton__AttrReply *reply = (const Craton__AttrReply *)msg;

	if (status == 0)
		status = reply ? client_attr(reply->attr, &n->op->attr) : ERR_PROTO;
	if (status == 0 && n->op->attr.type != CR_TYPE_FILE)
		status = n->op->attr.type == CR_TYPE_DIR ? ERR_ISDIR : ERR_LOOP;
	if (status == 0 && path_wants_dir(n->op->path))
		status = ERR_NOTDIR;
	if (status < 0) {
		fail(n, status);
		return;
	}
	craton__layout_request__init(&n->layout_request);
	n->layout_request.inode = n->op->attr.inode;
	n->layout_request.offset = n->op->offset;
	n->layout_request.length = 1ull << 40;
	n->call = (struct session_call){
		.method = &rpc_metad_layout,
		.request = &n->layout_request.base,
		.repeatable = true,
		.done = layout_done,
	};
	session_start(&n->client->session, &n->call);
}

void inspect_start(struct client *client, struct client_op *op)
{
	struct inspect *n = MEM_NEW(struct inspect);

	n->client = client;
	n->op = op;
	io_turn_hook_init(&n->hook, inspect_step);
	if (path_resolve(op->path, n->path, &op->err) < 0) {
		release(n);
		mem_free(n);
		client_finish_later(client, op);
		return;
	}
	craton__lookup_request__init(&n->lookup);
	n->lookup.parent = INODE_ROOT;
	n->lookup.path = (ProtobufCBinaryData){strlen(n->path), (uint8_t *)n->path};
	n->call = (struct session_call){
		.method = &rpc_metad_lookup,
		.request = &n->lookup.base,
		.repeatable = true,
		.done = lookup_done,
	};
	session_start(&client->session, &n->call);
}
