/* SPDX-License-Identifier: Apache-2.0 */
/* peer_call: how a call ends; its states and invariants are in peer.c. */
#include "common/rpc/peer_private.h"

#define GRACE_NS (100ull * 1000 * 1000) /* for a buffer of a cancelled call to come back by itself */

void peer__finish(struct rpc_call *call, int code)
{
	struct call_priv *priv = peer_call(call);
	struct rpc_peer *p = priv->peer;

	CHECK(code < 0);
	deadline_remove(&p->deadlines, &priv->deadline);
	priv->state = CALL_FINISHED;
	priv->code = code;
	priv->pc = NULL;
	list_push_back(&p->finished, &call->link);
	peer__post(p);
}

void peer__deliver(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct call_priv *priv = peer_call(call);

	deadline_remove(&priv->peer->deadlines, &priv->deadline);
	priv->state = CALL_IDLE;
	call->done(call, status, msg, payload_len);
}

void peer__release_slot(struct peer_conn *pc, struct rpc_call *call)
{
	uint16_t slot = (uint16_t)(peer_call(call)->id % PEER_SLOTS);

	CHECK(pc->slots[slot].call == call);
	pc->slots[slot].call = NULL;
	pc->free_slots[PEER_SLOTS - pc->in_flight] = slot;
	pc->in_flight--;
}

bool peer__out_in_use(struct rpc_call *call)
{
	struct call_priv *priv = peer_call(call);

	if (!priv->out)
		return false;
	if (!priv->out->started) {
		conn_unsend(&priv->pc->conn, priv->out);
		priv->out = NULL;
	} else if (call->payload_count == 0) {
		priv->out->done = NULL; /* its bytes are the connection's own */
		priv->out = NULL;
	}
	return priv->out;
}

void peer__fail_call(struct rpc_call *call, int code)
{
	struct call_priv *priv = peer_call(call);
	struct peer_conn *pc = priv->pc;

	switch (priv->state) {
	case CALL_QUEUED:
		list_remove(&call->link);
		peer__finish(call, code);
		return;
	case CALL_SENT:
		peer__release_slot(pc, call);
		if (pc->current == call && !priv->receiving)
			pc->current = NULL;
		break;
	case CALL_HELD:
		codec_arena_fini(&priv->arena);
		break;
	default:
		return;
	}
	if (!peer__out_in_use(call) && !priv->receiving) {
		list_remove(&call->link);
		peer__finish(call, code);
		return;
	}
	priv->state = CALL_DOOMED;
	priv->code = code;
	deadline_put(&priv->peer->deadlines, &priv->deadline, io_now_ns(priv->peer->io) + GRACE_NS);
	peer__arm_timer(priv->peer);
}

void peer__doomed_step(struct rpc_call *call)
{
	struct call_priv *priv = peer_call(call);

	if (priv->out || priv->receiving)
		return;
	list_remove(&call->link);
	peer__finish(call, priv->code);
}

void peer__request_sent(void *ctx, int code)
{
	struct rpc_call *call = ctx;
	struct call_priv *priv = peer_call(call);
	struct rpc_peer *p = priv->peer;
	struct codec_arena arena;

	(void)code; /* a failure comes with the end of the connection */
	priv->out = NULL;
	if (priv->state == CALL_DOOMED) {
		peer__doomed_step(call);
	} else if (priv->state == CALL_HELD) {
		list_remove(&call->link);
		arena = priv->arena; /* the call may be gone when done returns */
		peer__deliver(call, priv->code, priv->msg, priv->payload_len);
		codec_arena_fini(&arena);
	}
	if (!list_empty(&p->pending))
		peer__dispatch(p);
}
