/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_bed: a server and a client for tests of common/rpc, over loopback sockets of either real back end, or as two
 * hosts of the simulator.
 *
 * The service has one method that does what the request says (enum bed_op, in PutRequest.offset); its payload goes to a
 * buffer of the request's own, allocated exactly, so that the sanitizers see every byte too many.
 */
#ifndef TESTS_LIB_RPC_BED_H
#define TESTS_LIB_RPC_BED_H

#include <stdio.h>
#include <string.h>
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "common/rpc/rpc.h"
#include "proto/chunkd.pb-c.h"
#include "tests/lib/unit.h"

enum bed_op {
	BED_ECHO,   /* token comes back as list, payload as payload */
	BED_STREAM, /* announced_bytes parts with the payload each, then an empty end */
	BED_HOLD,   /* answered by bed_release */
	BED_FAIL,   /* ERR_NOSPC with detail */
	BED_REFUSE, /* the payload is refused: ERR_NO_EXTENT */
	BED_HUGE,   /* a reply body beyond a frame */
	BED_FORGET, /* as BED_HOLD, without payload: token comes back as list from a copy, the message is given up at once */
};

static const struct rpc_method bed_method = {
	.id = 0x0301,
	.name = "bed.do",
	.request = &craton__put_request__descriptor,
	.response = &craton__get_part__descriptor,
	.request_payload = LIMIT_FRAME_PAYLOAD_BYTES,
	.response_payload = LIMIT_FRAME_PAYLOAD_BYTES,
};
/* Known to clients only. */
static const struct rpc_method bed_unknown_method = {
	.id = 0x0302,
	.name = "bed.unknown",
	.request = &craton__put_request__descriptor,
	.response = &craton__get_part__descriptor,
	.request_payload = LIMIT_FRAME_PAYLOAD_BYTES,
};

struct bed_req {
	struct list link;
	struct rpc_req *req;
	uint8_t *payload;
	uint64_t parts_left;
	uint8_t token[64];  /* of BED_FORGET */
	size_t token_bytes;
	bool ended; /* last reply given */
	int sends;  /* replies not yet sent */
	int sent_code;
	struct bed *bed;
};

struct bed {
	struct io *server_io, *client_io; /* the same over real sockets */
	bool (*run)(struct bed *bed, bool (*until)(void *ctx), void *ctx, uint64_t at_most_ms);
	const struct rpc_transform *transform;
	struct sim *sim;
	struct rpc_server *server;
	struct rpc_peer *peer;
	struct list held; /* bed_req of BED_HOLD */
	int held_count, handled, placed, abandoned, conns_closed, dead_seen;
	int reqs; /* alive */
	struct refused refused;
	bool server_closed, peer_closed;
	/* of a real loop's wait */
	struct io_op tick;
	bool (*until)(void *ctx);
	void *until_ctx;
	uint64_t until_ns;
	bool until_held;
};

static const struct uuid bed_cluster = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

/* ---- the service ---- */

static inline void bed_req_free(struct bed_req *br)
{
	br->bed->reqs--;
	mem_free(br->payload);
	mem_free(br);
}

static inline void bed_sent(void *ctx, int code)
{
	struct bed_req *br = ctx;

	br->sent_code = code;
	if (--br->sends == 0 && br->ended)
		bed_req_free(br);
}

static inline struct bed_req *bed_req_new(struct bed *bed, struct rpc_req *req)
{
	struct bed_req *br = MEM_NEW(struct bed_req);

	bed->reqs++;
	br->bed = bed;
	br->req = req;
	list_init(&br->link);
	if (req->payload_len)
		br->payload = mem_alloc(req->payload_len);
	return br;
}

static inline void bed_reply(struct bed_req *br, const Craton__GetPart *part, bool more)
{
	struct iovec iov = {br->payload, br->req->payload_len};
	bool has_payload =
		br->req->payload_len && (more || ((const Craton__PutRequest *)br->req->msg)->offset == BED_ECHO);
	struct rpc_reply reply = {
		.msg = &part->base,
		.payload = has_payload ? &iov : NULL,
		.payload_count = has_payload,
		.more = more,
		.sent = bed_sent,
		.sent_ctx = br,
	};

	br->sends++;
	br->ended = !more;
	rpc_reply(br->req, &reply);
}

static inline int bed_place(void *ctx, struct rpc_req *req)
{
	const Craton__PutRequest *msg = (const Craton__PutRequest *)req->msg;
	struct bed *bed = ctx;
	struct bed_req *br;
	uint32_t half = req->payload_len / 2;

	if (msg->offset == BED_REFUSE)
		return ERR_NO_EXTENT;
	bed->placed++;
	br = bed_req_new(bed, req);
	req->user = br;
	/* In two pieces where there are two bytes. */
	req->payload[0] = (struct iovec){br->payload, half};
	req->payload[half > 0] = (struct iovec){br->payload + half, req->payload_len - half};
	req->payload_count = 1 + (half > 0);
	return 0;
}

static inline void bed_on_abandoned(void *ctx, struct rpc_req *req)
{
	struct bed *bed = ctx;

	bed->abandoned++;
	bed_req_free(req->user);
}

static inline void bed_handle(void *ctx, struct rpc_req *req)
{
	const Craton__PutRequest *msg = (const Craton__PutRequest *)req->msg;
	struct bed *bed = ctx;
	struct bed_req *br = req->payload_len ? req->user : bed_req_new(bed, req);
	Craton__GetPart part = CRATON__GET_PART__INIT;
	uint8_t *big;

	bed->handled++;
	part.list = msg->token;
	switch (msg->offset) {
	case BED_ECHO:
		bed_reply(br, &part, false);
		break;
	case BED_STREAM:
		for (uint64_t i = 0; i < msg->announced_bytes; i++) {
			part.offset = i;
			bed_reply(br, &part, true);
		}
		part.offset = msg->announced_bytes;
		bed_reply(br, &part, false);
		break;
	case BED_HOLD:
		list_push_back(&bed->held, &br->link);
		bed->held_count++;
		break;
	case BED_FORGET:
		br->token_bytes = msg->token.len;
		memcpy(br->token, msg->token.data, br->token_bytes);
		rpc_req_forget_msg(req);
		ck_assert_ptr_null(req->msg);
		list_push_back(&bed->held, &br->link);
		bed->held_count++;
		break;
	case BED_FAIL:
		part.detail = (char *)(uintptr_t) "the disk is full";
		bed_req_free(br);
		rpc_reply(req, &(struct rpc_reply){.status = ERR_NOSPC, .msg = &part.base});
		break;
	case BED_HUGE:
		big = mem_zalloc(LIMIT_FRAME_BODY_BYTES + 1);
		part.list.data = big;
		part.list.len = LIMIT_FRAME_BODY_BYTES + 1;
		bed_reply(br, &part, false);
		mem_free(big);
		break;
	default:
		bed_req_free(br);
		rpc_reply_status(req, ERR_INVAL);
	}
}

/* Answers what is held. */
static inline void bed_release(struct bed *bed)
{
	struct list *n;

	while ((n = list_pop_front(&bed->held))) {
		struct bed_req *br = LIST_ENTRY(n, struct bed_req, link);
		Craton__GetPart part = CRATON__GET_PART__INIT;

		bed->held_count--;
		bed->dead_seen += rpc_req_dead(br->req);
		part.list = (ProtobufCBinaryData){.data = br->token, .len = br->token_bytes};
		bed_reply(br, &part, false);
	}
}

static inline void bed_on_conn_closed(void *ctx, uint64_t conn_id)
{
	struct bed *bed = ctx;

	ck_assert_uint_ne(conn_id, 0);
	bed->conns_closed++;
}

static const struct rpc_handler bed_handlers[] = {
	{.method = &bed_method, .handle = bed_handle, .place = bed_place, .abandoned = bed_on_abandoned},
	{.method = NULL},
};

/* ---- loops ---- */

static inline void bed_on_tick(struct io_op *op)
{
	struct bed *bed = CONTAINER_OF(op, struct bed, tick);

	bed->until_held = bed->until(bed->until_ctx);
	if (bed->until_held || io_now_ns(bed->client_io) >= bed->until_ns) {
		io_stop(bed->client_io);
		return;
	}
	io_prep_timer(&bed->tick, io_now_ns(bed->client_io) + 200000, bed_on_tick);
	io_submit(bed->client_io, &bed->tick);
}

static inline bool bed_run_real(struct bed *bed, bool (*until)(void *ctx), void *ctx, uint64_t at_most_ms)
{
	bed->until = until;
	bed->until_ctx = ctx;
	bed->until_ns = io_clock_ns(bed->client_io) + at_most_ms * 1000000;
	io_prep_timer(&bed->tick, 0, bed_on_tick);
	io_submit(bed->client_io, &bed->tick);
	ck_assert_int_eq(io_run(bed->client_io), 0);
	return bed->until_held;
}

#define BED_WAIT(bed, until, ctx) ck_assert((bed)->run((bed), (until), (ctx), 20000))

/* ---- setting up ---- */

static inline struct rpc_identity bed_identity(uint8_t role, const char *name)
{
	struct rpc_identity id = {.cluster = bed_cluster, .role = role};

	snprintf(id.name, sizeof(id.name), "%s", name);
	return id;
}

static inline void bed_serve(struct bed *bed, struct io_addr listen, bool bulk)
{
	struct rpc_server_options so = {
		.listen = listen,
		.self = bed_identity(RPC_ROLE_CHUNKD, "chunkd-1"),
		.handlers = bed_handlers,
		.ctx = bed,
		.conn_closed = bed_on_conn_closed,
		.transform = bed->transform,
		.refused = &bed->refused,
		.bulk = bulk,
	};
	struct err err = {0};

	ck_assert_msg(rpc_server_open(bed->server_io, &so, &bed->server, &err) == 0, "%s", err.text);
	bed->server_closed = false;
}

static inline struct rpc_peer *bed_peer(struct bed *bed, const struct rpc_identity *self, uint32_t conns, bool bulk)
{
	struct rpc_peer_options po = {
		.addr = rpc_server_addr(bed->server),
		.self = *self,
		.conns = conns,
		.bulk = bulk,
		.transform = bed->transform,
	};

	return rpc_peer_new(bed->client_io, &po);
}

static inline void bed_begin(struct bed *bed, const struct rpc_transform *transform)
{
	memset(bed, 0, sizeof(*bed));
	list_init(&bed->held);
	bed->transform = transform;
}

static inline void bed_open_real(
	struct bed *bed, enum io_backend backend, const struct rpc_transform *transform, bool bulk)
{
	struct rpc_identity self = bed_identity(RPC_ROLE_CLIENT, "client");
	struct io_addr listen;
	struct err err = {0};

	bed_begin(bed, transform);
	bed->run = bed_run_real;
	ck_assert_msg(io_new(backend, &bed->client_io, &err) == 0, "%s", err.text);
	bed->server_io = bed->client_io;
	ck_assert_int_eq(io_addr_parse("127.0.0.1:0", &listen), 0);
	bed_serve(bed, listen, bulk);
	bed->peer = bed_peer(bed, &self, 4, bulk);
}

static inline bool bed_run_sim(struct bed *bed, bool (*until)(void *ctx), void *ctx, uint64_t at_most_ms)
{
	return sim_run(bed->sim, until, ctx, sim_now_ns(bed->sim) + at_most_ms * 1000000);
}

static inline void bed_open_sim(struct bed *bed, uint64_t seed, const struct rpc_transform *transform, bool bulk)
{
	struct rpc_identity self = bed_identity(RPC_ROLE_CLIENT, "client");
	struct sim_options options = {.seed = seed};

	bed_begin(bed, transform);
	bed->run = bed_run_sim;
	bed->sim = sim_new(&options);
	bed->server_io = sim_host_add(bed->sim, "server", 1 << 20);
	bed->client_io = sim_host_add(bed->sim, "client", 1 << 20);
	bed_serve(bed, sim_host_addr(bed->server_io, 7000), bulk);
	bed->peer = bed_peer(bed, &self, 4, bulk);
}

static inline void bed_set_true(void *ctx)
{
	*(bool *)ctx = true;
}

static inline bool bed_is_true(void *ctx)
{
	return *(bool *)ctx;
}

static inline void bed_close_peer(struct bed *bed)
{
	rpc_peer_close(bed->peer, bed_set_true, &bed->peer_closed);
	BED_WAIT(bed, bed_is_true, &bed->peer_closed);
}

static inline void bed_close_server(struct bed *bed)
{
	rpc_server_close(bed->server, bed_set_true, &bed->server_closed);
	bed_release(bed);
	BED_WAIT(bed, bed_is_true, &bed->server_closed);
}

/* Another one in its place. options: all but ctx and refused, which are the bed's. */
static inline void bed_reopen_server(struct bed *bed, struct rpc_server_options *options)
{
	bed_close_server(bed);
	options->ctx = bed;
	options->refused = &bed->refused;
	ck_assert_int_eq(rpc_server_open(bed->server_io, options, &bed->server, NULL), 0);
	bed->server_closed = false;
}

/* Everything is gone, and nothing was lost on the way. */
static inline void bed_close(struct bed *bed)
{
	if (!bed->peer_closed)
		bed_close_peer(bed);
	if (!bed->server_closed)
		bed_close_server(bed);
	ck_assert_int_eq(bed->reqs, 0);
	if (bed->sim)
		sim_free(bed->sim);
	else
		io_free(bed->client_io);
}

/* ---- calls ---- */

struct bed_call {
	struct rpc_call call;
	Craton__PutRequest msg;
	uint8_t token[64];
	uint8_t *out, *in; /* payloads */
	uint32_t len, in_len;
	struct iovec iov[2];
	int place_code;
	int parts, done, status;
	char detail[64];
	bool has_msg;
	void (*on_done)(struct bed_call *bc);
	void *ctx;
};

static inline uint8_t bed_byte(uint32_t i, uint32_t salt)
{
	return (uint8_t)((i + salt) * 2654435761u >> 11);
}

static inline int bed_call_place(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len,
	struct iovec ret_iov[RPC_PAYLOAD_IOV], int *ret_count)
{
	struct bed_call *bc = CONTAINER_OF(call, struct bed_call, call);
	uint32_t third = payload_len / 3;

	ck_assert_ptr_nonnull(head);
	if (bc->place_code)
		return bc->place_code;
	if (!bc->in)
		bc->in = mem_alloc(payload_len);
	bc->in_len = payload_len;
	*ret_count = 0;
	if (third)
		ret_iov[(*ret_count)++] = (struct iovec){bc->in, third};
	ret_iov[(*ret_count)++] = (struct iovec){bc->in + third, payload_len - third};
	return 0;
}

static inline void bed_call_part(struct rpc_call *call, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct bed_call *bc = CONTAINER_OF(call, struct bed_call, call);

	ck_assert_uint_eq(((const Craton__GetPart *)msg)->offset, (uint64_t)bc->parts);
	ck_assert_uint_eq(payload_len, bc->len);
	bc->parts++;
}

static inline void bed_call_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct bed_call *bc = CONTAINER_OF(call, struct bed_call, call);
	const Craton__GetPart *part = (const Craton__GetPart *)msg;

	ck_assert(!rpc_call_active(call));
	bc->done++;
	bc->status = status;
	bc->has_msg = msg;
	if (msg) {
		snprintf(bc->detail, sizeof(bc->detail), "%s", part->detail);
		if (status == 0 && (bc->msg.offset == BED_ECHO || bc->msg.offset == BED_FORGET)) {
			ck_assert_uint_eq(part->list.len, sizeof(bc->token));
			ck_assert_mem_eq(part->list.data, bc->token, sizeof(bc->token));
			ck_assert_uint_eq(payload_len, bc->len);
		}
	}
	if (bc->on_done)
		bc->on_done(bc);
}

/* A call that carries `len` bytes of payload made from `salt`. */
static inline struct bed_call *bed_call_new(enum bed_op op, uint32_t len, uint32_t salt)
{
	struct bed_call *bc = MEM_NEW(struct bed_call);

	craton__put_request__init(&bc->msg);
	for (uint32_t i = 0; i < sizeof(bc->token); i++)
		bc->token[i] = bed_byte(i, salt * 31);
	bc->msg.token.data = bc->token;
	bc->msg.token.len = sizeof(bc->token);
	bc->msg.offset = op;
	bc->len = len;
	if (len) {
		bc->out = mem_alloc(len);
		for (uint32_t i = 0; i < len; i++)
			bc->out[i] = bed_byte(i, salt);
		bc->iov[0] = (struct iovec){bc->out, len / 5};
		bc->iov[1] = (struct iovec){bc->out + len / 5, len - len / 5};
	}
	bc->call.method = &bed_method;
	bc->call.request = &bc->msg.base;
	bc->call.payload = bc->iov;
	bc->call.payload_count = len ? 2 : 0;
	bc->call.place = bed_call_place;
	bc->call.part = bed_call_part;
	bc->call.done = bed_call_done;
	return bc;
}

static inline void bed_call_free(struct bed_call *bc)
{
	mem_free(bc->out);
	mem_free(bc->in);
	mem_free(bc);
}

static inline bool bed_call_is_done(void *ctx)
{
	return ((struct bed_call *)ctx)->done > 0;
}

struct bed_touch {
	struct io_post post;
	bool ran;
};

static inline void bed_on_touch(struct io_post *post)
{
	CONTAINER_OF(post, struct bed_touch, post)->ran = true;
}

/* A loop's clock stands still between its turns: after a long wait it needs one before it is used from outside. */
static inline void bed_touch(struct bed *bed)
{
	struct bed_touch touch = {.post.run = bed_on_touch};

	io_post(bed->client_io, &touch.post);
	BED_WAIT(bed, bed_is_true, &touch.ran);
}

/* Starts it, waits, checks the status. */
static inline void bed_call_run(struct bed *bed, struct rpc_peer *peer, struct bed_call *bc, int status)
{
	if (!bc->call.deadline_ns)
		bc->call.deadline_ns = io_clock_ns(bed->client_io) + 15000000000u;
	rpc_call_start(peer, &bc->call);
	ck_assert(rpc_call_active(&bc->call));
	ck_assert_int_eq(bc->done, 0);
	BED_WAIT(bed, bed_call_is_done, bc);
	ck_assert_msg(bc->status == status, "status %s, wanted %s", err_name(bc->status), err_name(status));
	ck_assert_int_eq(bc->done, 1);
}

#endif
