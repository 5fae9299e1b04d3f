/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metad_bed: a metad and those who call it: in the simulator (two hosts, virtual time, the store in memory) or on one
 * real loop (LMDB, a directory of its own). Calls are synchronous here: bed_call runs the loop until the answer is
 * there. Chunk servers are played by their requests: registration, heartbeat, receipts under the derived keys.
 */
#ifndef TESTS_LIB_METAD_BED_H
#define TESTS_LIB_METAD_BED_H

#include "tests/lib/assert.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/mem.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "common/code/token.h"
#include "common/io/io_sim.h"
#include "common/rpc/auth.h"
#include "common/rpc/methods.h"
#include "metad/metad.h"
#include "proto/metad.pb-c.h"

enum { METAD_BED_SERVERS = 9, METAD_BED_MIB = 1 << 20 };

struct metad_bed_server {
	uint32_t server, disk;
	uint64_t generation;
	struct hmac_key receipt_key;
};

struct metad_bed {
	struct sim *sim; /* NULL: a real loop */
	struct io *server_io, *client_io;
	char dir[64];
	struct log log;
	struct metad_options options;
	struct metad *md;
	struct rpc_peer *peer;
	/* of a wait */
	bool done;
	struct io_op guard;
	/* of the last call */
	int status;
	ProtobufCMessage *reply;
	int fatal;
	char fatal_text[ERR_TEXT_BYTES];
	struct metad_bed_server servers[METAD_BED_SERVERS + 1];
	struct token_key token_keys[2];
	size_t token_key_count;
	uint64_t state_ms;
	uint32_t heartbeat_ms;
	Craton__RequestId session; /* of the changes; number: of the last one */
	uint64_t renewed_ns;
};

static const struct uuid metad_bed_cluster = {{9, 8, 7}};

static inline void metad_bed_quiet(void *ctx, enum log_level level, const char *line)
{
	(void)ctx, (void)level;
	if (getenv("TEST_VERBOSE"))
		fprintf(stderr, "%s\n", line);
}

static inline void metad_bed_fatal(void *ctx, int code, const char *text)
{
	struct metad_bed *bed = ctx;

	bed->fatal = code;
	snprintf(bed->fatal_text, sizeof(bed->fatal_text), "%s", text);
}

static inline bool metad_bed_is_done(void *ctx)
{
	return ((struct metad_bed *)ctx)->done;
}

/* Runs the loop until bed->done; the deadline is Check's, or an hour of virtual time. */
static inline void metad_bed_wait(struct metad_bed *bed)
{
	if (bed->sim)
		ck_assert(sim_run(bed->sim, metad_bed_is_done, bed, sim_now_ns(bed->sim) + 3600ull * 1000000000));
	else
		while (!bed->done)
			ck_assert_int_eq(io_run(bed->client_io), 0);
	bed->done = false;
}

static inline void metad_bed_set_done(void *ctx)
{
	struct metad_bed *bed = ctx;

	bed->done = true;
	if (!bed->sim)
		io_stop(bed->client_io);
}

static inline bool metad_bed_never(void *ctx)
{
	(void)ctx;
	return false;
}

static inline void metad_bed_renew(struct metad_bed *bed);

/* Simulated time goes on, nobody says anything. */
static inline void metad_bed_silence(struct metad_bed *bed, uint64_t ms)
{
	sim_run(bed->sim, metad_bed_never, NULL, sim_now_ns(bed->sim) + ms * 1000000);
}

/* Simulated time goes on; a session is kept, as a client would. */
/* How long the threads of the host's daemon have waited for a processor, as the system says it (io_way.h). */
static inline void metad_bed_say_waited(struct io *host, uint64_t ns)
{
	char text[64];
	int fd, rc = io_mkdir(host, "/proc", 0700);

	ck_assert(rc == 0 || rc == ERR_EXIST);
	rc = io_mkdir(host, "/proc/thread-self", 0700);
	ck_assert(rc == 0 || rc == ERR_EXIST);
	snprintf(text, sizeof(text), "12345 %llu 17\n", (unsigned long long)ns);
	ck_assert_int_eq(io_open(host, "/proc/thread-self/schedstat", IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	ck_assert_int_eq(io_pwrite(host, fd, text, strlen(text), 0), (int64_t)strlen(text));
	io_close(host, fd);
}

static inline void metad_bed_sleep(struct metad_bed *bed, uint64_t ms)
{
	const uint64_t step_ms = 10 * 1000;

	while (ms) {
		uint64_t part_ms = ms < step_ms ? ms : step_ms;

		metad_bed_silence(bed, part_ms);
		ms -= part_ms;
		if (bed->session.session && bed->md && sim_now_ns(bed->sim) - bed->renewed_ns >= step_ms * 1000000)
			metad_bed_renew(bed);
	}
}

static inline int metad_bed_try_start(struct metad_bed *bed, struct err *err)
{
	return metad_start(bed->server_io, &bed->options, &bed->md, err);
}

static inline void metad_bed_start(struct metad_bed *bed)
{
	struct rpc_peer_options o = {
		.self = {.cluster = metad_bed_cluster, .role = RPC_ROLE_CLIENT, .name = "test"}, .conns = 1};
	struct err err = {0};
	int rc = metad_bed_try_start(bed, &err);

	if (rc == ERR_EXIST) { /* founded once */
		bed->options.group.found = false;
		rc = metad_bed_try_start(bed, &err);
	}
	ck_assert_msg(rc == 0, "%s", err.text);
	o.addr = metad_addr(bed->md);
	bed->options.listen.port = o.addr.port;
	if (!bed->peer)
		bed->peer = rpc_peer_new(bed->client_io, &o);
	else /* whether it has noticed yet that the last one went is no matter of these tests */
		rpc_peer_reset(bed->peer, ERR_CONNRESET);
}

static inline void metad_bed_stop(struct metad_bed *bed)
{
	metad_stop(bed->md, metad_bed_set_done, bed);
	metad_bed_wait(bed);
	bed->md = NULL;
}

static inline void metad_bed_restart(struct metad_bed *bed)
{
	metad_bed_stop(bed);
	metad_bed_start(bed);
}

/* Its host loses power; it starts again. */
static inline void metad_bed_crash(struct metad_bed *bed)
{
	sim_host_crash(bed->server_io);
	sim_host_restart(bed->server_io);
	rpc_peer_reset(bed->peer, ERR_CONNRESET);
	metad_bed_start(bed);
}

static inline void metad_bed_init(struct metad_bed *bed)
{
	bed->log = (struct log){.min_level = LOG_DEBUG, .write = metad_bed_quiet, .name = "metad-1"};
	bed->options = (struct metad_options){
		.dir = bed->dir,
		.name = "metad-1",
		.cluster = metad_bed_cluster,
		.secret = "the secret of this test cluster",
		.backend = bed->sim ? &kv_mem : &kv_lmdb,
		.log_segment_bytes = 4 * METAD_BED_MIB,
		.log = &bed->log,
		.on_fatal = metad_bed_fatal,
		.ctx = bed,
	};
}

/* metad-N, on a host of its own; not started. */
static inline void metad_bed_make(struct metad_bed *b, struct sim *sim, uint64_t number, uint16_t port)
{
	char name[16];

	memset(b, 0, sizeof(*b));
	snprintf(name, sizeof(name), "metad-%u", (unsigned)number);
	b->sim = sim;
	b->server_io = sim_host_add(sim, name, 256ull * METAD_BED_MIB);
	strcpy(b->dir, "/metad");
	ck_assert_int_eq(io_mkdir(b->server_io, b->dir, 0755), 0);
	ck_assert_int_eq(io_sync_dir(b->server_io, "/"), 0);
	metad_bed_init(b);
	b->options.listen = sim_host_addr(b->server_io, port);
	b->options.log_segment_bytes = METAD_BED_MIB;
	b->options.group.id = number;
}

/* The founders of a group, and one client; not started. */
static inline void metad_bed_make_group(struct metad_bed *beds, int count, struct sim *sim, uint16_t port)
{
	struct io *client;

	for (int i = 0; i < count; i++)
		metad_bed_make(&beds[i], sim, (uint64_t)i + 1, port);
	client = sim_host_add(sim, "client", METAD_BED_MIB);
	for (int i = 0; i < count; i++) {
		beds[i].client_io = client;
		beds[i].options.group.found = true;
		beds[i].options.group.members.count = (uint32_t)count;
		for (int j = 0; j < count; j++)
			beds[i].options.group.members.addrs[j] = beds[j].options.listen;
	}
}

static inline void metad_bed_open_group(struct metad_bed *beds, int count, struct sim *sim, uint16_t port)
{
	metad_bed_make_group(beds, count, sim, port);
	for (int i = 0; i < count; i++)
		metad_bed_start(&beds[i]);
}

static inline void metad_bed_open_sim(struct metad_bed *bed, uint64_t seed)
{
	memset(bed, 0, sizeof(*bed));
	bed->sim = sim_new(&(struct sim_options){.seed = seed});
	bed->server_io = sim_host_add(bed->sim, "metad-1", 256ull * METAD_BED_MIB);
	bed->client_io = sim_host_add(bed->sim, "client", METAD_BED_MIB);
	strcpy(bed->dir, "/metad");
	ck_assert_int_eq(io_mkdir(bed->server_io, bed->dir, 0755), 0);
	ck_assert_int_eq(io_sync_dir(bed->server_io, "/"), 0);
	metad_bed_init(bed);
	bed->options.listen = sim_host_addr(bed->server_io, 7000);
	metad_bed_start(bed);
}

static inline void metad_bed_open_real(struct metad_bed *bed)
{
	struct err err;

	memset(bed, 0, sizeof(*bed));
	strcpy(bed->dir, "metad-XXXXXX"); /* in the build tree: /tmp may lack O_DIRECT */
	ck_assert_ptr_nonnull(mkdtemp(bed->dir));
	ck_assert_int_eq(io_new(IO_BACKEND_AUTO, &bed->client_io, &err), 0);
	bed->server_io = bed->client_io;
	metad_bed_init(bed);
	ck_assert_int_eq(io_addr_parse("127.0.0.1:0", &bed->options.listen), 0);
	metad_bed_start(bed);
}

static inline int metad_bed_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void metad_bed_free_reply(struct metad_bed *bed)
{
	if (bed->reply)
		protobuf_c_message_free_unpacked(bed->reply, NULL);
	bed->reply = NULL;
}

static inline void metad_bed_close(struct metad_bed *bed)
{
	ck_assert_int_eq(bed->fatal, 0);
	metad_bed_free_reply(bed);
	if (bed->md)
		metad_bed_stop(bed);
	rpc_peer_close(bed->peer, metad_bed_set_done, bed);
	metad_bed_wait(bed);
	if (bed->sim) {
		sim_free(bed->sim);
		return;
	}
	io_free(bed->client_io);
	ck_assert_int_eq(nftw(bed->dir, metad_bed_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- calls ---- */

struct metad_bed_call {
	struct rpc_call call;
	struct metad_bed *bed;
	const struct rpc_method *method;
};

static inline ProtobufCMessage *metad_bed_copy(const struct rpc_method *method, const ProtobufCMessage *msg)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	uint8_t *bytes = mem_alloc(len + 1);
	ProtobufCMessage *copy;

	protobuf_c_message_pack(msg, bytes);
	copy = protobuf_c_message_unpack(method->response, NULL, len, bytes);
	ck_assert_ptr_nonnull(copy);
	mem_free(bytes);
	return copy;
}

static inline void metad_bed_call_done(
	struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct metad_bed_call *c = CONTAINER_OF(call, struct metad_bed_call, call);

	(void)payload_len;
	metad_bed_free_reply(c->bed);
	c->bed->status = status;
	if (msg)
		c->bed->reply = metad_bed_copy(c->method, msg);
	metad_bed_set_done(c->bed);
}

static inline int bed_call_as_is(
	struct metad_bed *bed, const struct rpc_method *method, const ProtobufCMessage *request)
{
	struct metad_bed_call c = {
		.call = {.method = method, .request = request, .done = metad_bed_call_done},
		.bed = bed,
		.method = method,
	};

	c.call.deadline_ns = io_clock_ns(bed->client_io) + 60ull * 1000000000;
	rpc_call_start(bed->peer, &c.call);
	metad_bed_wait(bed);
	return bed->status;
}

/* The room for a request id in a change; NULL: it is none. */
static inline Craton__RequestId **bed_id_of(const ProtobufCMessage *request)
{
	const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(request->descriptor, "id");

	if (!f || f->type != PROTOBUF_C_TYPE_MESSAGE || f->descriptor != &craton__request_id__descriptor)
		return NULL;
	return (Craton__RequestId **)(void *)((uint8_t *)(uintptr_t)request + f->offset);
}

static inline int bed_open_session(struct metad_bed *bed, Craton__RequestId *ret_id)
{
	Craton__SessionOpenRequest req = CRATON__SESSION_OPEN_REQUEST__INIT;

	if (bed_call_as_is(bed, &rpc_metad_session_open, &req.base))
		return bed->status;
	craton__request_id__init(ret_id);
	ret_id->session = ((Craton__SessionOpenReply *)bed->reply)->session;
	ret_id->secret = ((Craton__SessionOpenReply *)bed->reply)->secret;
	return 0;
}

static inline int bed_renew(struct metad_bed *bed, const Craton__RequestId *id, uint64_t *open, size_t count)
{
	Craton__SessionRenewRequest req = CRATON__SESSION_RENEW_REQUEST__INIT;

	req.session = id->session;
	req.secret = id->secret;
	req.open_inodes = open;
	req.n_open_inodes = count;
	return bed_call_as_is(bed, &rpc_metad_session_renew, &req.base);
}

static inline void metad_bed_renew(struct metad_bed *bed)
{
	ck_assert_int_eq(bed_renew(bed, &bed->session, NULL, 0), 0);
	bed->renewed_ns = sim_now_ns(bed->sim);
}

/* A change that says nothing of a session is the next one of the bed's. */
static inline int bed_call(struct metad_bed *bed, const struct rpc_method *method, const ProtobufCMessage *request)
{
	Craton__RequestId **id = bed_id_of(request);

	if (!id || *id)
		return bed_call_as_is(bed, method, request);
	if (!bed->session.session && bed_open_session(bed, &bed->session))
		return bed->status;
	bed->session.unanswered = ++bed->session.number;
	*id = &bed->session;
	bed_call_as_is(bed, method, request);
	*id = NULL;
	return bed->status;
}

static inline ProtobufCBinaryData bed_bytes(const void *data, size_t len)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)data, .len = len};
}

static inline ProtobufCBinaryData bed_text(const char *text)
{
	return bed_bytes(text, strlen(text));
}

/* ---- the part of a chunk server ---- */

static inline void metad_bed_learn(struct metad_bed *bed, Craton__TokenKey **keys, size_t count, uint64_t state_ms)
{
	uint8_t key[TOKEN_KEY_BYTES];

	ck_assert_uint_le(count, 2);
	for (size_t i = 0; i < count; i++) {
		bed->token_keys[i].id = (uint8_t)keys[i]->id;
		ck_assert_int_eq(
			auth_derive(bed->options.secret, "token", slice_of(keys[i]->salt.data, keys[i]->salt.len), key),
			0);
		hmac_key_init(&bed->token_keys[i].key, key);
	}
	bed->token_key_count = count;
	ck_assert_uint_ge(state_ms, bed->state_ms);
	bed->state_ms = state_ms;
}

struct metad_bed_registration {
	Craton__RegisterRequest req;
	Craton__DiskRegister disk, *disks[1];
	uint8_t uuid[16], disk_uuid[16], mac[32];
	char name[32], address[32], path[8], version[8];
};

/* Server i (from 1) with one disk; what it knows of its disk goes along. */
static inline void metad_bed_registration(
	const struct metad_bed *bed, uint32_t i, const uint8_t secret[32], struct metad_bed_registration *g)
{
	const struct metad_bed_server *s = &bed->servers[i];

	memset(g, 0, sizeof(*g));
	craton__register_request__init(&g->req);
	craton__disk_register__init(&g->disk);
	g->uuid[0] = (uint8_t)i;
	g->disk_uuid[0] = (uint8_t)(100 + i);
	snprintf(g->name, sizeof(g->name), "chunkd-%u", i);
	snprintf(g->address, sizeof(g->address), "127.0.0.1:%u", 7100 + i);
	strcpy(g->path, "/disk");
	strcpy(g->version, "test");
	g->req.server_uuid = bed_bytes(g->uuid, sizeof(g->uuid));
	g->req.name = g->name;
	g->req.address = g->address;
	g->req.version = g->version;
	g->req.nonce = bed_text("0123456789");
	g->disk.uuid = bed_bytes(g->disk_uuid, sizeof(g->disk_uuid));
	g->disk.disk = s->disk;
	g->disk.generation = s->generation;
	g->disk.path = g->path;
	g->disk.capacity_bytes = 100ull << 30;
	g->disks[0] = &g->disk;
	g->req.disks = g->disks;
	g->req.n_disks = 1;
	auth_register(secret, metad_bed_cluster.bytes, &g->req, g->mac);
	g->req.auth = bed_bytes(g->mac, sizeof(g->mac));
}

static inline int bed_register(struct metad_bed *bed, uint32_t i, const uint8_t secret[32])
{
	struct metad_bed_server *s = &bed->servers[i];
	struct metad_bed_registration g;
	Craton__RegisterReply *reply;
	uint8_t key[HMAC_KEY_BYTES];

	metad_bed_registration(bed, i, secret, &g);
	if (bed_call(bed, &rpc_metad_register, &g.req.base))
		return bed->status;
	reply = (Craton__RegisterReply *)bed->reply;
	ck_assert_uint_eq(reply->n_disks, 1);
	s->server = reply->server;
	s->disk = reply->disks[0]->disk;
	s->generation = reply->disks[0]->generation;
	ck_assert_int_eq(auth_derive(bed->options.secret, "receipt",
				 slice_of(reply->disks[0]->receipt_salt.data, reply->disks[0]->receipt_salt.len), key),
		0);
	hmac_key_init(&s->receipt_key, key);
	metad_bed_learn(bed, reply->token_keys, reply->n_token_keys, reply->state_time_ms);
	bed->heartbeat_ms = reply->heartbeat_ms;
	return 0;
}

enum { BED_BEAT_FAILED = 1, BED_BEAT_STOPPING = 2, BED_BEAT_FULL = 4, BED_BEAT_SPLINTERED = 8, BED_BEAT_BY_CLASS = 16 };
/* Splintered: no room for chunks beyond 64 KiB. By class: as older chunk servers say it; there is room in medium segments only. */

/* True: it is told to register again. */
static inline bool bed_beat(struct metad_bed *bed, uint32_t i, int flags)
{
	struct metad_bed_server *s = &bed->servers[i];
	Craton__HeartbeatRequest req = CRATON__HEARTBEAT_REQUEST__INIT;
	Craton__DiskBeat beat = CRATON__DISK_BEAT__INIT, *beats[] = {&beat};
	uint64_t free_bytes[6] = {50ull << 30, 50ull << 30, 50ull << 30, 50ull << 30, 50ull << 30, 50ull << 30};
	uint8_t uuid[16] = {(uint8_t)i}, mac[32];
	char error[] = "EIO on read", none[] = "";
	Craton__HeartbeatReply *reply;

	if (flags & BED_BEAT_FULL)
		memset(free_bytes, 0, sizeof(free_bytes));
	if (flags & BED_BEAT_SPLINTERED)
		free_bytes[5] = 0;
	if (flags & BED_BEAT_BY_CLASS)
		free_bytes[0] = free_bytes[2] = 0;
	req.server = s->server;
	req.server_uuid = bed_bytes(uuid, sizeof(uuid));
	req.stopping = flags & BED_BEAT_STOPPING;
	req.disks = beats;
	req.n_disks = 1;
	beat.disk = s->disk;
	beat.generation = s->generation;
	beat.capacity_bytes = 100ull << 30;
	beat.free_bytes = free_bytes;
	beat.n_free_bytes = flags & BED_BEAT_BY_CLASS ? 3 : ARRAY_COUNT(free_bytes);
	beat.chunks = 5;
	beat.failed = flags & BED_BEAT_FAILED;
	beat.error = beat.failed ? error : none;
	auth_heartbeat(bed->options.secret, metad_bed_cluster.bytes, &req, mac);
	req.auth = bed_bytes(mac, sizeof(mac));
	ck_assert_int_eq(bed_call(bed, &rpc_metad_heartbeat, &req.base), 0);
	reply = (Craton__HeartbeatReply *)bed->reply;
	bed->heartbeat_ms = reply->heartbeat_ms;
	metad_bed_learn(bed, reply->token_keys, reply->n_token_keys, reply->state_time_ms);
	return reply->register_again;
}

/* And they are heard of once: they take chunks. */
static inline void bed_register_all(struct metad_bed *bed, uint32_t count)
{
	for (uint32_t i = 1; i <= count; i++)
		ck_assert_int_eq(bed_register(bed, i, bed->options.secret), 0);
	for (uint32_t i = 1; i <= count; i++)
		ck_assert(!bed_beat(bed, i, 0));
}

static inline void bed_beat_all(struct metad_bed *bed, uint32_t count)
{
	for (uint32_t i = 1; i <= count; i++)
		ck_assert(!bed_beat(bed, i, 0));
}

/* ---- the part of a client ---- */

static inline int bed_open_file(
	struct metad_bed *bed, const char *path, bool hidden, uint64_t *ret_inode, uint64_t *ret_epoch)
{
	Craton__CreateRequest req = CRATON__CREATE_REQUEST__INIT;

	*ret_inode = *ret_epoch = 0;
	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.mode = 0644;
	req.hidden = hidden;
	if (bed_call(bed, &rpc_metad_create, &req.base))
		return bed->status;
	*ret_inode = ((Craton__CreateReply *)bed->reply)->attr->inode;
	*ret_epoch = ((Craton__CreateReply *)bed->reply)->epoch;
	return 0;
}

static inline int bed_mkdir(struct metad_bed *bed, const char *path)
{
	Craton__MkdirRequest req = CRATON__MKDIR_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_text(path);
	req.mode = 0755;
	return bed_call(bed, &rpc_metad_mkdir, &req.base);
}

static inline int bed_lookup_path(struct metad_bed *bed, const char *path, size_t len)
{
	Craton__LookupRequest req = CRATON__LOOKUP_REQUEST__INIT;

	req.parent = INODE_ROOT;
	req.path = bed_bytes(path, len);
	return bed_call(bed, &rpc_metad_lookup, &req.base);
}

static inline int bed_allocate(struct metad_bed *bed, uint64_t inode, uint64_t epoch, uint32_t count)
{
	Craton__AllocateRequest req = CRATON__ALLOCATE_REQUEST__INIT;

	req.inode = inode;
	req.epoch = epoch;
	req.count = count;
	return bed_call(bed, &rpc_metad_allocate, &req.base);
}

/* One 16 MiB block as allocated, receipts by the servers it was given to; `spoil` receipts have a wrong MAC. */
static inline int bed_commit_one(struct metad_bed *bed, uint64_t inode, uint64_t epoch, const Craton__Allocation *a,
	uint64_t offset, bool complete, uint32_t spoil)
{
	enum { LENGTH = 16 * METAD_BED_MIB };
	Craton__CommitRequest req = CRATON__COMMIT_REQUEST__INIT;
	Craton__BlockCommit block = CRATON__BLOCK_COMMIT__INIT, *blocks[] = {&block};
	Craton__ChunkReceipt receipts[LIMIT_WIDTH], *table[LIMIT_WIDTH];
	uint32_t crcs[LIMIT_WIDTH];
	uint8_t macs[LIMIT_WIDTH][TOKEN_MAC_BYTES];

	req.inode = inode;
	req.epoch = epoch;
	req.size = offset + LENGTH;
	req.complete = complete;
	req.blocks = blocks;
	req.n_blocks = 1;
	block.block = a->block;
	block.policy = EC_POLICY_DEFAULT;
	block.cell_bytes = METAD_BED_MIB;
	block.length = LENGTH;
	block.file_offset = offset;
	block.chunk_crcs = crcs;
	block.n_chunk_crcs = a->n_targets;
	block.receipts = table;
	block.n_receipts = a->n_targets;
	for (size_t i = 0; i < a->n_targets; i++) {
		const Craton__Target *t = a->targets[i];
		const struct metad_bed_server *s = &bed->servers[t->disk]; /* disk i is server i's here */
		struct receipt r = {.block = a->block,
			.length = 4 * METAD_BED_MIB,
			.generation = s->generation,
			.disk = t->disk,
			.incarnation = t->incarnation,
			.crc = (uint32_t)(1000 + i),
			.index = (uint8_t)i};

		crcs[i] = r.crc;
		receipt_mac(&r, &s->receipt_key, macs[i]);
		if (spoil & 1u << i)
			macs[i][3] ^= 1;
		craton__chunk_receipt__init(&receipts[i]);
		receipts[i].index = (uint32_t)i;
		receipts[i].disk = t->disk;
		receipts[i].incarnation = t->incarnation;
		receipts[i].generation = s->generation;
		receipts[i].mac = bed_bytes(macs[i], TOKEN_MAC_BYTES);
		table[i] = &receipts[i];
	}
	return bed_call(bed, &rpc_metad_commit, &req.base);
}

/* A result of a check, as of server i and its disk. */
static inline void bed_tell_damaged(
	struct metad_bed *bed, uint32_t i, uint64_t block, uint32_t index, uint32_t incarnation)
{
	const struct metad_bed_server *s = &bed->servers[i];
	Craton__HeartbeatRequest req = CRATON__HEARTBEAT_REQUEST__INIT;
	Craton__RepairResult result = CRATON__REPAIR_RESULT__INIT, *results[] = {&result};
	uint8_t uuid[16] = {(uint8_t)i}, mac[32];

	result.block = block;
	result.index = index;
	result.incarnation = incarnation;
	result.disk = s->disk;
	result.generation = s->generation;
	result.check = true;
	result.status = ERR_CORRUPT;
	req.server = s->server;
	req.server_uuid = bed_bytes(uuid, sizeof(uuid));
	req.repairs = results;
	req.n_repairs = 1;
	auth_heartbeat(bed->options.secret, metad_bed_cluster.bytes, &req, mac);
	req.auth = bed_bytes(mac, sizeof(mac));
	ck_assert_int_eq(bed_call(bed, &rpc_metad_heartbeat, &req.base), 0);
	metad_bed_silence(bed, 100);
}

/* A reader says that the copy is wrong. */
static inline void bed_report(
	struct metad_bed *bed, uint32_t disk, uint64_t block, uint32_t index, uint32_t incarnation)
{
	Craton__ReportRequest req = CRATON__REPORT_REQUEST__INIT;
	Craton__CopyReport copy = CRATON__COPY_REPORT__INIT, *copies[] = {&copy};

	copy.block = block;
	copy.index = index;
	copy.disk = disk;
	copy.incarnation = incarnation;
	copy.status = ERR_CORRUPT;
	req.copies = copies;
	req.n_copies = 1;
	ck_assert_int_eq(bed_call(bed, &rpc_metad_report, &req.base), 0);
}

static inline const Craton__StatusReply *bed_status(struct metad_bed *bed)
{
	Craton__EmptyRequest req = CRATON__EMPTY_REQUEST__INIT;

	ck_assert_int_eq(bed_call(bed, &rpc_metad_status, &req.base), 0);
	return (const Craton__StatusReply *)bed->reply;
}

static inline bool bed_has_reason(const Craton__StatusReply *status, const char *code)
{
	for (size_t i = 0; i < status->n_reasons; i++)
		if (strcmp(status->reasons[i]->code, code) == 0)
			return true;
	return false;
}

/* How often metad has refused for this cause, as `craton status` says. */
static inline uint64_t bed_refused(struct metad_bed *bed, const char *cause)
{
	const Craton__StatusReply *status = bed_status(bed);

	for (size_t i = 0; i < status->n_refused; i++)
		if (strcmp(status->refused[i]->cause, cause) == 0)
			return status->refused[i]->count;
	return 0;
}

#endif
