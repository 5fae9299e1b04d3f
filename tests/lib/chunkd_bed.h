/* SPDX-License-Identifier: Apache-2.0 */
/* chunkd_bed: a chunk server spoken to over connections, registered with a real metad, on simulated hosts. One a program. */
#ifndef TESTS_LIB_CHUNKD_BED_H
#define TESTS_LIB_CHUNKD_BED_H

#include "chunkd/chunkd.h"
#include "common/base/crc32c.h"
#include "proto/chunkd.pb-c.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/no_leaks.h"

enum { DATA_BYTES = 100000, POLICY_COPIES = 7 };

struct bed {
	struct metad_bed m; /* plays server 1, to learn the token keys, and client */
	struct io *host;
	struct chunkd *chunkd;
	struct rpc_peer *peer;
	uint32_t disk;
	const char *way_path; /* of the next start */
	uint64_t way_bytes_per_s;
	uint64_t capacity_bytes; /* likewise; 0: 64 MiB */
	int fatal;
	uint8_t data[DATA_BYTES], got[DATA_BYTES];
	uint32_t crcs[DATA_BYTES / LIMIT_UNIT_BYTES + 1];
	uint64_t got_bytes;
	uint32_t parts;
};

static struct bed bed, *const b = &bed;

static inline void on_fatal(void *ctx, int code, const char *text)
{
	ck_assert_int_gt((int)strlen(text), 0);
	((struct bed *)ctx)->fatal = code;
}

static inline bool is_registered(void *ctx)
{
	return chunkd_is_registered(((struct bed *)ctx)->chunkd);
}

static inline bool has_fatal(void *ctx)
{
	return ((struct bed *)ctx)->fatal;
}

static inline int try_start(const char *secret, const char *const *disks, size_t count, struct err *err)
{
	struct chunkd_options o = {
		.state_dir = "/state",
		.name = "chunkd-9",
		.disk_dirs = disks,
		.disk_count = count,
		.capacity_bytes = b->capacity_bytes ? b->capacity_bytes : 64 << 20,
		.listen = sim_host_addr(b->host, 7100),
		.metads = {.count = 1, .addrs = {b->m.options.listen}},
		.cluster = metad_bed_cluster,
		.backend = &kv_mem,
		.log_segment_bytes = 1 << 20,
		.memory_bytes = 40 << 20,
		.way_path = b->way_path,
		.way_bytes_per_s = b->way_bytes_per_s,
		.log = &b->m.log,
		.on_fatal = on_fatal,
		.ctx = b,
	};

	memcpy(o.secret, secret, sizeof(o.secret));
	return chunkd_start(b->host, &o, &b->chunkd, err);
}

static inline void start_chunkd(const char *secret)
{
	static const char *const disks[] = {"/disk"};
	struct err err = {0};

	ck_assert_msg(try_start(secret, disks, 1, &err) == 0, "%s", err.text);
}

static inline void wait_registered(void)
{
	ck_assert(sim_run(b->m.sim, is_registered, b, sim_now_ns(b->m.sim) + 60ull * 1000000000));
}

static inline void stop_chunkd(void)
{
	chunkd_stop(b->chunkd, metad_bed_set_done, &b->m);
	metad_bed_wait(&b->m);
}

static inline void bed_open(uint64_t seed)
{
	struct rpc_peer_options o = {.self = {.cluster = metad_bed_cluster, .role = RPC_ROLE_CLIENT, .name = "test"},
		.conns = 1,
		.bulk = true};

	metad_bed_open_sim(&b->m, seed);
	b->host = sim_host_add(b->m.sim, "chunkd-9", 128ull * METAD_BED_MIB);
	ck_assert_int_eq(io_mkdir(b->host, "/disk", 0755), 0);
	ck_assert_int_eq(io_mkdir(b->host, "/state", 0755), 0);
	ck_assert_int_eq(io_sync_dir(b->host, "/"), 0);
	start_chunkd((const char *)b->m.options.secret);
	wait_registered();
	ck_assert_int_eq(bed_register(&b->m, 1, b->m.options.secret), 0);
	ck_assert(!bed_beat(&b->m, 1, 0));
	b->disk = 1; /* the first to register */
	ck_assert_uint_eq(b->m.servers[1].disk, 2);
	o.addr = chunkd_addr(b->chunkd);
	b->peer = rpc_peer_new(b->m.client_io, &o);
	for (size_t i = 0; i < DATA_BYTES; i++)
		b->data[i] = (uint8_t)(i * 2654435761u >> 11);
}

static inline void bed_close(void)
{
	rpc_peer_close(b->peer, metad_bed_set_done, &b->m);
	metad_bed_wait(&b->m);
	stop_chunkd();
	metad_bed_close(&b->m);
}

/* ---- calls ---- */

static inline int get_place(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len,
	struct iovec ret_iov[RPC_PAYLOAD_IOV], int *ret_count)
{
	const Craton__GetPart *part = (const Craton__GetPart *)head;

	(void)call;
	if (part->offset > DATA_BYTES || payload_len > DATA_BYTES - part->offset)
		return ERR_PROTO;
	ret_iov[0] = (struct iovec){b->got + part->offset, payload_len};
	*ret_count = 1;
	b->got_bytes += payload_len;
	b->parts++;
	return 0;
}

static inline int call(
	const struct rpc_method *method, const ProtobufCMessage *request, const void *payload, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)payload, len};
	struct metad_bed_call c = {
		.call = {.method = method, .request = request, .done = metad_bed_call_done},
		.bed = &b->m,
		.method = method,
	};

	if (len) {
		c.call.payload = &iov;
		c.call.payload_count = 1;
	}
	if (method->response_payload)
		c.call.place = get_place;
	c.call.deadline_ns = io_clock_ns(b->m.client_io) + 60ull * 1000000000;
	rpc_call_start(b->peer, &c.call);
	metad_bed_wait(&b->m);
	return b->m.status;
}

static inline struct token good_token(uint64_t block, uint8_t rights)
{
	return (struct token){.block = block,
		.expires_ms = b->m.state_ms + 60 * 1000,
		.max_chunk_bytes = DATA_BYTES,
		.disk = b->disk,
		.incarnation = 4,
		.index = 0,
		.policy = POLICY_COPIES,
		.rights = rights};
}

static inline Craton__Copy copy_of(uint64_t block)
{
	Craton__Copy copy = CRATON__COPY__INIT;

	copy.block = block;
	copy.incarnation = 4;
	copy.disk = b->disk;
	return copy;
}

static uint8_t sealed_token[TOKEN_BYTES];

static inline ProtobufCBinaryData seal_token(const struct token *t)
{
	token_seal(t, &b->m.token_keys[0], sealed_token);
	return bed_bytes(sealed_token, TOKEN_BYTES);
}

/* The whole chunk in one cell. */
static inline int put_one(const struct token *t, Craton__Copy copy, uint32_t len, bool seal)
{
	Craton__PutRequest req = CRATON__PUT_REQUEST__INIT;
	Craton__Seal s = CRATON__SEAL__INIT;

	ec_unit_crcs(b->data, len, b->crcs);
	stripe_mask_units(copy.block, (uint8_t)copy.index, 0, stripe_unit_count(len), b->crcs);
	req.token = seal_token(t);
	req.copy = &copy;
	req.announced_bytes = len;
	req.unit_crcs = bed_bytes(b->crcs, stripe_unit_count(len) * 4);
	s.length = s.block_length = len;
	s.chunk_crc = crc32c(b->data, len);
	s.cell_bytes = LIMIT_CELL_BYTES;
	if (seal)
		req.seal = &s;
	return call(&rpc_chunkd_put, &req.base, b->data, len);
}

static inline int get_one(const struct token *t, Craton__Copy copy, uint64_t offset, uint64_t length)
{
	Craton__GetRequest req = CRATON__GET_REQUEST__INIT;

	b->got_bytes = b->parts = 0;
	memset(b->got, 0, sizeof(b->got));
	req.token = seal_token(t);
	req.copy = &copy;
	req.offset = offset;
	req.length = length;
	req.want_list = true;
	return call(&rpc_chunkd_get, &req.base, NULL, 0);
}

static inline int receipt_of(const struct token *t, Craton__Copy copy)
{
	Craton__ReceiptRequest req = CRATON__RECEIPT_REQUEST__INIT;

	req.token = seal_token(t);
	req.copy = &copy;
	return call(&rpc_chunkd_receipt, &req.base, NULL, 0);
}

static inline const Craton__GcReply *bed_gc_start(void)
{
	Craton__GcRequest req = CRATON__GC_REQUEST__INIT;

	req.start = true;
	ck_assert_int_eq(bed_call(&b->m, &rpc_metad_gc, &req.base), 0);
	return (const Craton__GcReply *)b->m.reply;
}

#endif
