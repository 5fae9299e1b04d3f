/* SPDX-License-Identifier: Apache-2.0 */
/* peer_conn: one connection of a peer: opened, the responses that come by it, its end. */
#include "common/rpc/peer_private.h"

#include <string.h>
#include "common/base/mem.h"
#include "proto/common.pb-c.h"

/* ---- responses ---- */

static struct peer_conn *conn_of(struct conn *c)
{
	struct peer_conn *pc = CONTAINER_OF(c, struct peer_conn, conn);

	CHECK_MAGIC(pc, PEER_CONN_MAGIC);
	return pc;
}

static void on_opened(struct conn *c)
{
	struct peer_conn *pc = conn_of(c);

	pc->state = PC_OPEN;
	pc->peer->attempt = 0;
	peer__dispatch(pc->peer);
}

static int check_response(struct peer_conn *pc, const struct rpc_call *call, const struct frame *f)
{
	const struct rpc_method *method = call->method;

	if (f->method != method->id)
		return err_set(&pc->conn.err, ERR_PROTO, "%s answered as method 0x%04x", method->name, f->method);
	if (f->payload_len > method->response_payload)
		return err_set(&pc->conn.err, ERR_PROTO, "%s answered with a payload of %u bytes", method->name,
			f->payload_len);
	if (f->status && (f->payload_len || f->flags & FRAME_MORE))
		return err_set(&pc->conn.err, ERR_PROTO, "%s failed with a payload or more to come", method->name);
	if (f->flags & FRAME_MORE && !call->part)
		return err_set(&pc->conn.err, ERR_PROTO, "%s answered in parts", method->name);
	return 0;
}

/* Whatever the method: the reply is not that of its own. */
static int decode_hint(struct peer_conn *pc, struct rpc_call *call, struct slice body)
{
	const ProtobufCMessage *msg;
	int code = codec_unpack(&pc->arena, &craton__leader_hint__descriptor, body.data, (uint32_t)body.len, &msg);

	if (code)
		return err_set(&pc->conn.err, code, "%s names a leader in a malformed body", call->method->name);
	if (io_addr_parse(((const Craton__LeaderHint *)msg)->address, &call->leader) < 0)
		call->leader = (struct io_addr){0};
	return 0;
}

static int decode_response(
	struct peer_conn *pc, struct rpc_call *call, const struct frame *f, const uint8_t *body)
{
	int code;

	codec_arena_clear(&pc->arena);
	pc->msg = NULL;
	pc->status = err_from_wire(f->status);
	if (f->status && f->body_len == 0)
		return 0;
	if (pc->status == ERR_NOT_LEADER)
		return decode_hint(pc, call, slice_of(body, f->body_len));
	code = codec_unpack(&pc->arena, call->method->response, body, f->body_len, &pc->msg);
	if (code)
		return err_set(&pc->conn.err, code, "%s answered with a malformed body", call->method->name);
	return 0;
}

static void place_payload(struct peer_conn *pc, struct rpc_call *call, uint32_t payload_len)
{
	struct iovec iov[RPC_PAYLOAD_IOV];
	int count = 0;
	int code = call->place(call, pc->msg, payload_len, iov, &count);

	if (pc->current != call) /* cancelled from inside */
		return;
	if (code) {
		peer__fail_call(call, code);
		return;
	}
	frame_rx_place(&pc->conn.rx, iov, count);
	peer_call(call)->receiving = true;
}

static int on_response_head(struct conn *c, const struct frame *f, const uint8_t *body)
{
	struct peer_conn *pc = conn_of(c);
	const struct slot *slot = &pc->slots[f->request_id % PEER_SLOTS];
	struct rpc_call *call = slot->call;
	int code;

	if (f->request_id / PEER_SLOTS == 0 || f->request_id / PEER_SLOTS > slot->generation)
		return err_set(
			&c->err, ERR_PROTO, "response to request %llu, never sent", (unsigned long long)f->request_id);
	if (!call || peer_call(call)->id != f->request_id)
		return 0; /* late: drained */
	code = check_response(pc, call, f);
	if (code == 0)
		code = decode_response(pc, call, f, body);
	if (code) {
		peer__fail_call(call, ERR_PROTO);
		return code;
	}
	pc->current = call;
	if (f->payload_len > 0)
		place_payload(pc, call, f->payload_len);
	return 0;
}

/* The last frame of a response is whole. */
static void complete(struct peer_conn *pc, struct rpc_call *call, uint32_t payload_len)
{
	struct call_priv *priv = peer_call(call);
	struct rpc_peer *p = pc->peer;

	peer__release_slot(pc, call);
	if (peer__out_in_use(call)) {
		/* Answered before it was asked: the message waits with the call. */
		priv->state = CALL_HELD;
		priv->code = pc->status;
		priv->msg = pc->msg;
		priv->payload_len = payload_len;
		priv->arena = pc->arena;
		codec_arena_init(&pc->arena, PEER_ARENA_BYTES);
	} else {
		list_remove(&call->link);
		peer__deliver(call, pc->status, pc->msg, payload_len);
	}
	if (!list_empty(&p->pending))
		peer__dispatch(p);
}

static int on_response_tail(struct conn *c)
{
	struct peer_conn *pc = conn_of(c);
	struct rpc_call *call = pc->current;
	const struct frame *f = &c->rx.frame;

	if (!call)
		return 0;
	pc->current = NULL;
	peer_call(call)->receiving = false;
	if (peer_call(call)->state == CALL_DOOMED)
		peer__doomed_step(call);
	else if (f->flags & FRAME_MORE)
		call->part(call, pc->msg, f->payload_len);
	else
		complete(pc, call, f->payload_len);
	return 0;
}

static bool may_read(struct conn *c)
{
	(void)c;
	return true;
}

/* ---- connections ---- */

static void conn_free(struct peer_conn *pc)
{
	list_remove(&pc->link);
	pc->peer->conn_count--;
	codec_arena_fini(&pc->arena);
	conn_fini(&pc->conn);
	pc->magic = 0;
	mem_free(pc);
}

static void on_down(struct conn *c)
{
	struct peer_conn *pc = conn_of(c);
	struct rpc_peer *p = pc->peer;
	bool was_open = pc->state == PC_OPEN;
	int code = pc->fail_code ? pc->fail_code : c->code;
	int call_code = pc->fail_code ? pc->fail_code : ERR_CONNRESET;
	struct list *n;

	pc->current = NULL;
	while ((n = list_pop_front(&pc->calls))) {
		struct rpc_call *call = LIST_ENTRY(n, struct rpc_call, link);
		struct call_priv *priv = peer_call(call);

		CHECK(!priv->out);
		priv->receiving = false;
		peer__finish(call, priv->state == CALL_DOOMED ? priv->code : call_code);
	}
	conn_free(pc);
	peer__conn_gone(p, was_open, code);
}

static const struct conn_ops peer_conn_ops = {
	.opened = on_opened,
	.head = on_response_head,
	.tail = on_response_tail,
	.may_read = may_read,
	.down = on_down,
};

static void on_connect(struct io_op *op)
{
	struct peer_conn *pc = CONTAINER_OF(op, struct peer_conn, connect_op);
	struct rpc_peer *p = pc->peer;
	int code = op->result < 0 ? (int)op->result : 0;

	CHECK_MAGIC(pc, PEER_CONN_MAGIC);
	if (code == 0 && pc->fail_code)
		io_close(p->io, (int)op->result); /* the cancel lost the race */
	if (pc->fail_code)
		code = pc->fail_code;
	if (code) {
		conn_free(pc);
		peer__conn_gone(p, false, code);
		return;
	}
	pc->state = PC_HELLO;
	conn_start(&pc->conn, (int)op->result);
}

void peer__break_conn(struct peer_conn *pc, int code)
{
	if (!pc->fail_code)
		pc->fail_code = code;
	if (pc->state == PC_CONNECTING)
		io_cancel(pc->peer->io, &pc->connect_op);
	else
		conn_break(&pc->conn, code);
}

void peer__connect(struct rpc_peer *p)
{
	struct peer_conn *pc = MEM_NEW(struct peer_conn);

	pc->magic = PEER_CONN_MAGIC;
	pc->peer = p;
	pc->state = PC_CONNECTING;
	pc->connect_deadline_ns = io_now_ns(p->io) + p->options.connect_timeout_ns;
	list_init(&pc->calls);
	for (uint16_t i = 0; i < PEER_SLOTS; i++)
		pc->free_slots[i] = (uint16_t)(PEER_SLOTS - 1 - i);
	codec_arena_init(&pc->arena, PEER_ARENA_BYTES);
	conn_init(&pc->conn, p->io, &peer_conn_ops, &p->options.self, false, p->options.bulk, p->options.transform);
	list_push_back(&p->conns, &pc->link);
	p->conn_count++;
	io_prep_connect(&pc->connect_op, &p->options.addr, on_connect);
	io_submit(p->io, &pc->connect_op);
}
