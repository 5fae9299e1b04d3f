/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_commit: commits of eight blocks to a metad of our own. We register as chunk servers, so we know the keys of receipts and sign
 * them ourselves: nothing is written anywhere but in metad. Blocks are allocated and signed first (a phase of its own), then committed,
 * eight a request, to one file of each client.
 */
#include <stdio.h>
#include <string.h>
#include "client/cli/bench_meta.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/code/ec.h"
#include "common/code/token.h"
#include "common/rpc/auth.h"
#include "common/rpc/methods.h"

enum {
	SERVERS = 8, /* k + m of rs-4-2, and as many spares as a reply names */
	WIDTH = 6,
	DATA = 4,
	COMMIT_BLOCKS = 8,
	CELL_BYTES = 1 << 20,
	CHUNK_BYTES = 4 << 20,
	SECRET_FILE_BYTES = 4096,
	FIRST_PORT = 7100, /* nobody listens there, nobody connects */
};

#define BLOCK_BYTES ((uint64_t)DATA * CHUNK_BYTES)
#define BEAT_NS (1000ull * 1000 * 1000)
#define CAPACITY_BYTES (1ull << 50)

struct server {
	uint32_t server, disk;
	uint64_t generation;
	uint8_t uuid[16];
	struct hmac_key key;
};

/* An allocated block with its signed receipts. */
struct block {
	uint64_t id;
	uint32_t disks[WIDTH];
	uint8_t macs[WIDTH][TOKEN_MAC_BYTES];
};

struct file {
	uint64_t inode, epoch, next_offset;
};

struct committer {
	struct bench_meta *b;
	uint8_t secret[AUTH_SECRET_BYTES];
	struct server servers[SERVERS + 1]; /* from 1 */
	struct file *files;                 /* by client */
	struct block *blocks;
	uint64_t block_count;
	/* heartbeats: one after the other, then a pause */
	struct session_call beat_call;
	Craton__HeartbeatRequest beat;
	Craton__DiskBeat beat_disk, *beat_disks[1];
	uint64_t free_bytes[3];
	uint8_t beat_mac[32];
	uint32_t beat_at;
	struct io_op timer;
	bool stopping;
};

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
	return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)data};
}

/* The CRC that chunk `index` of a block pretends to have. */
static uint32_t chunk_crc(uint64_t block, int index)
{
	return (uint32_t)block * WIDTH + (uint32_t)index + 1;
}

/* ---- the part of chunk servers ---- */

static int load_secret(struct committer *c, struct err *err)
{
	const char *path = c->b->config.secret_file;
	char *text;
	size_t len;
	int code = io_read_file(c->b->io, path, SECRET_FILE_BYTES, &text, &len);

	if (code)
		return err_set(err, code, "cannot read %s: %s", path, err_text(code));
	code = auth_parse_secret(slice_of(text, len), c->secret);
	mem_free(text);
	return code ? err_set(err, code, "%s does not hold 64 hex digits", path) : 0;
}

static void take_registered(void *ctx, const ProtobufCMessage *msg)
{
	const Craton__RegisterReply *reply = (const Craton__RegisterReply *)msg;
	struct committer *c = ctx;
	struct server *s = &c->servers[c->beat_at];
	uint8_t key[HMAC_KEY_BYTES];

	/* In a new store disk i is server i's. If it is not, sign_block finds out. */
	if (reply->n_disks != 1 || reply->disks[0]->disk != c->beat_at)
		return;
	s->server = reply->server;
	s->disk = reply->disks[0]->disk;
	s->generation = reply->disks[0]->generation;
	auth_derive(c->secret, "receipt", slice_of(reply->disks[0]->receipt_salt.data, reply->disks[0]->receipt_salt.len), key);
	hmac_key_init(&s->key, key);
}

static int register_all(struct committer *c, struct err *err)
{
	int code = 0;

	for (uint32_t i = 1; i <= SERVERS && !code; i++) {
		Craton__RegisterRequest r = CRATON__REGISTER_REQUEST__INIT;
		Craton__DiskRegister disk = CRATON__DISK_REGISTER__INIT, *disks[] = {&disk};
		char name[16], address[32], path[] = "bench";
		uint8_t disk_uuid[16], nonce[16], mac[32];

		io_random(c->b->io, c->servers[i].uuid, sizeof(c->servers[i].uuid));
		io_random(c->b->io, disk_uuid, sizeof(disk_uuid));
		io_random(c->b->io, nonce, sizeof(nonce));
		snprintf(name, sizeof(name), "bench-%u", i);
		snprintf(address, sizeof(address), "127.0.0.1:%u", FIRST_PORT + i);
		r.server_uuid = bytes_of(c->servers[i].uuid, sizeof(c->servers[i].uuid));
		r.name = name;
		r.address = address;
		r.nonce = bytes_of(nonce, sizeof(nonce));
		disk.uuid = bytes_of(disk_uuid, sizeof(disk_uuid));
		disk.path = path;
		disk.capacity_bytes = CAPACITY_BYTES;
		r.disks = disks;
		r.n_disks = 1;
		auth_register(c->secret, c->b->config.cluster.bytes, &r, mac);
		r.auth = bytes_of(mac, sizeof(mac));
		c->beat_at = i;
		code = bench_meta_call(c->b, &rpc_metad_register, &r.base, NULL, take_registered, c, err);
	}
	return code;
}

static void fill_beat(struct committer *c)
{
	const struct server *s = &c->servers[c->beat_at];

	craton__heartbeat_request__init(&c->beat);
	craton__disk_beat__init(&c->beat_disk);
	c->beat_disks[0] = &c->beat_disk;
	c->beat.server = s->server;
	c->beat.server_uuid = bytes_of(s->uuid, sizeof(s->uuid));
	c->beat.disks = c->beat_disks;
	c->beat.n_disks = 1;
	c->beat_disk.disk = s->disk;
	c->beat_disk.generation = s->generation;
	c->beat_disk.capacity_bytes = CAPACITY_BYTES;
	for (int i = 0; i < 3; i++)
		c->free_bytes[i] = CAPACITY_BYTES;
	c->beat_disk.free_bytes = c->free_bytes;
	c->beat_disk.n_free_bytes = 3;
	auth_heartbeat(c->secret, c->b->config.cluster.bytes, &c->beat, c->beat_mac);
	c->beat.auth = bytes_of(c->beat_mac, sizeof(c->beat_mac));
}

static void beat_next(struct committer *c);

static void timer_done(struct io_op *op)
{
	struct committer *c = CONTAINER_OF(op, struct committer, timer);

	c->beat_at = 0;
	beat_next(c);
}

/* A heartbeat that fails is missed in the commits: their receipts stop counting. */
static void beat_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	(void)status, (void)msg;
	beat_next(CONTAINER_OF(call, struct committer, beat_call));
}

static void beat_next(struct committer *c)
{
	if (c->stopping) {
		io_stop(c->b->io);
		return;
	}
	if (++c->beat_at > SERVERS) {
		io_prep_timer(&c->timer, io_now_ns(c->b->io) + BEAT_NS, timer_done);
		io_submit(c->b->io, &c->timer);
		return;
	}
	fill_beat(c);
	c->beat_call = (struct session_call){.method = &rpc_metad_heartbeat, .request = &c->beat.base, .done = beat_done};
	session_start(&c->b->sessions[0], &c->beat_call);
}

static void beats_stop(struct committer *c)
{
	c->stopping = true;
	if (io_pending(&c->timer))
		io_cancel(c->b->io, &c->timer);
	io_run(c->b->io);
}

/* All once, before anything may be allocated. */
static int beat_all(struct committer *c, struct err *err)
{
	int code = 0;

	for (c->beat_at = 1; c->beat_at <= SERVERS && !code; c->beat_at++) {
		fill_beat(c);
		code = bench_meta_call(c->b, &rpc_metad_heartbeat, &c->beat.base, NULL, NULL, NULL, err);
	}
	return code;
}

/* ---- files ---- */

static void take_created(void *ctx, const ProtobufCMessage *msg)
{
	const Craton__CreateReply *reply = (const Craton__CreateReply *)msg;
	struct file *f = ctx;

	f->inode = reply->attr ? reply->attr->inode : 0;
	f->epoch = reply->epoch;
}

static int create_files(struct committer *c, struct err *err)
{
	int code = 0;

	for (uint64_t i = 0; i < c->b->clients && !code; i++) {
		Craton__CreateRequest r = CRATON__CREATE_REQUEST__INIT;
		char name[32];

		snprintf(name, sizeof(name), "blocks-%llu", (unsigned long long)i);
		r.parent = INODE_ROOT;
		r.path = bench_meta_bytes(name);
		r.mode = 0644;
		r.now_ns = io_wall_ns(c->b->io);
		code = bench_meta_call(c->b, &rpc_metad_create, &r.base, &r.id, take_created, &c->files[i], err);
	}
	return code;
}

/* ---- allocation ---- */

struct commit_slot {
	struct load_slot load; /* first */
	struct session_call call;
	Craton__AllocateRequest allocate;
	Craton__CommitRequest commit;
	Craton__BlockCommit block[COMMIT_BLOCKS], *blocks[COMMIT_BLOCKS];
	Craton__ChunkReceipt receipt[COMMIT_BLOCKS][WIDTH], *receipts[COMMIT_BLOCKS][WIDTH];
	uint32_t crcs[COMMIT_BLOCKS][WIDTH];
};

static struct committer *committer_of(const struct commit_slot *s)
{
	return s->load.load->ctx;
}

static void slot_finish(struct commit_slot *s, int status, uint64_t units)
{
	struct err err = {0};

	if (status)
		session_explain(s->call.session, &err, status, s->call.method->name, NULL);
	load_done(&s->load, status, err.text, units);
}

static int sign_block(struct committer *c, const Craton__Allocation *a, struct block *out)
{
	if (a->n_targets != WIDTH)
		return ERR_PROTO;
	out->id = a->block;
	for (int i = 0; i < WIDTH; i++) {
		const Craton__Target *t = a->targets[i];
		struct receipt r = {.block = a->block, .length = CHUNK_BYTES, .disk = t->disk, .crc = chunk_crc(a->block, i), .index = (uint8_t)i};

		if (t->disk > SERVERS || c->servers[t->disk].disk != t->disk || t->incarnation != 0)
			return ERR_PROTO;
		r.generation = c->servers[t->disk].generation;
		out->disks[i] = t->disk;
		receipt_mac(&r, &c->servers[t->disk].key, out->macs[i]);
	}
	return 0;
}

static void allocate_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct commit_slot *s = CONTAINER_OF(call, struct commit_slot, call);
	const Craton__AllocateReply *reply = (const Craton__AllocateReply *)msg;
	struct committer *c = committer_of(s);

	if (status == 0 && (!msg || reply->n_blocks != LIMIT_ALLOCATE_BLOCKS))
		status = ERR_PROTO;
	for (uint32_t i = 0; i < LIMIT_ALLOCATE_BLOCKS && !status; i++)
		status = sign_block(c, reply->blocks[i], &c->blocks[s->load.number * LIMIT_ALLOCATE_BLOCKS + i]);
	slot_finish(s, status, LIMIT_ALLOCATE_BLOCKS);
}

static bool start_allocate(struct load_slot *slot)
{
	struct commit_slot *s = CONTAINER_OF(slot, struct commit_slot, load);
	struct committer *c = committer_of(s);
	const struct file *f = &c->files[slot->number % c->b->clients];

	craton__allocate_request__init(&s->allocate);
	s->allocate.inode = f->inode;
	s->allocate.epoch = f->epoch;
	s->allocate.count = LIMIT_ALLOCATE_BLOCKS;
	s->call = (struct session_call){.method = &rpc_metad_allocate, .request = &s->allocate.base, .done = allocate_done};
	session_start(bench_meta_session(c->b, slot->number), &s->call);
	return true;
}

/* ---- commit ---- */

static void commit_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct commit_slot *s = CONTAINER_OF(call, struct commit_slot, call);
	const Craton__CommitReply *reply = (const Craton__CommitReply *)msg;

	if (status == 0 && !msg)
		status = ERR_PROTO;
	for (size_t i = 0; status == 0 && i < reply->n_blocks; i++)
		if (reply->blocks[i]->n_not_counted)
			status = ERR_RECEIPT;
	slot_finish(s, status, 1);
}

static void fill_block(struct committer *c, struct commit_slot *s, int at, const struct block *in, uint64_t offset)
{
	Craton__BlockCommit *b = &s->block[at];

	craton__block_commit__init(b);
	s->blocks[at] = b;
	b->block = in->id;
	b->policy = EC_POLICY_DEFAULT;
	b->cell_bytes = CELL_BYTES;
	b->length = BLOCK_BYTES;
	b->file_offset = offset;
	b->chunk_crcs = s->crcs[at];
	b->n_chunk_crcs = WIDTH;
	b->receipts = s->receipts[at];
	b->n_receipts = WIDTH;
	for (int i = 0; i < WIDTH; i++) {
		Craton__ChunkReceipt *r = &s->receipt[at][i];

		craton__chunk_receipt__init(r);
		s->receipts[at][i] = r;
		s->crcs[at][i] = chunk_crc(in->id, i);
		r->index = (uint32_t)i;
		r->disk = in->disks[i];
		r->generation = c->servers[in->disks[i]].generation;
		r->mac = bytes_of(in->macs[i], TOKEN_MAC_BYTES);
	}
}

static bool start_commit(struct load_slot *slot)
{
	struct commit_slot *s = CONTAINER_OF(slot, struct commit_slot, load);
	struct committer *c = committer_of(s);
	struct file *f = &c->files[slot->number % c->b->clients];

	craton__commit_request__init(&s->commit);
	s->commit.inode = f->inode;
	s->commit.epoch = f->epoch;
	s->commit.now_ns = io_wall_ns(c->b->io);
	s->commit.blocks = s->blocks;
	s->commit.n_blocks = COMMIT_BLOCKS;
	for (int i = 0; i < COMMIT_BLOCKS; i++) {
		fill_block(c, s, i, &c->blocks[slot->number * COMMIT_BLOCKS + (uint64_t)i], f->next_offset);
		f->next_offset += BLOCK_BYTES;
	}
	s->call = (struct session_call){.method = &rpc_metad_commit, .request = &s->commit.base, .id = &s->commit.id, .done = commit_done};
	session_start(bench_meta_session(c->b, slot->number), &s->call);
	return true;
}

static int run_phase(struct committer *c, bool (*start)(struct load_slot *slot), uint64_t count, struct load_result *ret_result, struct err *err)
{
	uint32_t slots = (uint32_t)(c->b->clients * c->b->in_flight);
	struct commit_slot *slot = mem_array(slots, sizeof(*slot));
	struct load load = {.io = c->b->io, .count = count, .start = start, .ctx = c, .stops = true, .server_cpu_s = bench_meta_cpu_s, .server = c->b};
	int code = load_run(&load, slot, sizeof(*slot), slots, ret_result);

	if (code)
		*err = load.err;
	mem_free(slot);
	return code;
}

static int run(struct committer *c, struct load_result *ret_allocate, struct load_result *ret_commit, struct err *err)
{
	int code = load_secret(c, err);

	if (!code)
		code = register_all(c, err);
	if (!code)
		code = beat_all(c, err);
	if (!code)
		code = create_files(c, err);
	if (code)
		return code;
	c->beat_at = 0;
	beat_next(c);
	code = run_phase(c, start_allocate, c->block_count / LIMIT_ALLOCATE_BLOCKS, ret_allocate, err);
	if (!code)
		code = run_phase(c, start_commit, c->block_count / COMMIT_BLOCKS, ret_commit, err);
	beats_stop(c);
	return code;
}

int bench_commit(struct bench_meta *b, struct load_result *ret_allocate, struct load_result *ret_commit, struct err *err)
{
	struct committer *c = MEM_NEW(struct committer);
	uint64_t requests = (b->commits * COMMIT_BLOCKS + LIMIT_ALLOCATE_BLOCKS - 1) / LIMIT_ALLOCATE_BLOCKS;
	int code;

	c->b = b;
	c->block_count = requests * LIMIT_ALLOCATE_BLOCKS;
	c->blocks = mem_array(c->block_count, sizeof(*c->blocks));
	c->files = mem_array(b->clients, sizeof(*c->files));
	code = run(c, ret_allocate, ret_commit, err);
	mem_free(c->files);
	mem_free(c->blocks);
	mem_free(c);
	return code;
}
