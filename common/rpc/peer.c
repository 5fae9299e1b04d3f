/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: calls to one address over a few connections.
 *
 *     IDLE --start--> QUEUED --a connection has room--> SENT --last response frame--> done
 *                        |                               |  \--but its payload is still being sent--> HELD -sent-> done
 *                        |                               \--cancel, deadline, connection broke--> DOOMED or FINISHED
 *                        \--cancel, deadline, no connection can be made--> FINISHED
 *     DOOMED: has its result, but the kernel still has a buffer of it. It becomes FINISHED when that ends; after a
 *             grace the connection is broken so that it does.
 *     FINISHED: on peer->finished; `done` is called by a post, so never inside the function that ended it.
 *
 * Invariants:
 *  1. A call is on exactly one list: peer->pending (QUEUED), pc->calls (SENT, HELD, DOOMED), peer->finished (FINISHED).
 *  2. priv->out is set while its request frame is in the connection's queue or in a send; priv->receiving while a
 *     payload is being received into its buffers. `done` is called with neither.
 *  3. A call's id is slot + 1024 x generation of the slot: a response to an id that was issued but is over (cancelled,
 *     late) is drained; one to an id never issued ends the connection.
 *
 * Connections are opened one at a time: when a call waits, or had to join one that was busy. After a failure none is
 * opened before retry_at (backoff with jitter); calls wait meanwhile. If an attempt fails and there is no other
 * connection, the waiting calls fail with its code: connection refused, timed out, wrong cluster, unknown version.
 */
#include "common/rpc/peer_private.h"

#include <string.h>
#include "common/base/mem.h"

#define MS ((uint64_t)1000000)
#define BACKOFF_BASE_NS (100 * MS) /* rng_backoff starts at half of it */
#define BACKOFF_CAP_NS (2000 * MS)
#define CONNECT_TIMEOUT_NS (3000 * MS)
#define SILENT_NS \
	(10000 * MS) /* a call ran out of time and nothing at all was heard for so long: the connection is dead */

static void on_post(struct io_post *post);

void peer__post(struct rpc_peer *p)
{
	if (p->posted)
		return;
	p->posted = true;
	p->post.run = on_post;
	io_post(p->io, &p->post);
}

/* ---- connections ---- */

static bool is_connecting(const struct rpc_peer *p)
{
	LIST_FOREACH(n, &p->conns)
		if (LIST_ENTRY(n, struct peer_conn, link)->state != PC_OPEN)
			return true;
	return false;
}

static void maybe_connect(struct rpc_peer *p)
{
	if (p->closing || (list_empty(&p->pending) && !p->want_conn))
		return;
	if (p->conn_count >= p->options.conns || is_connecting(p) || io_now_ns(p->io) < p->retry_at_ns)
		return;
	p->want_conn = false;
	peer__connect(p);
}

void peer__conn_gone(struct rpc_peer *p, bool was_open, int code)
{
	struct list *n;

	p->retry_at_ns = io_now_ns(p->io) + rng_backoff(&p->rng, BACKOFF_BASE_NS, BACKOFF_CAP_NS, p->attempt);
	if (p->attempt < 32)
		p->attempt++;
	if (!was_open && p->conn_count == 0)
		while ((n = list_pop_front(&p->pending)))
			peer__finish(LIST_ENTRY(n, struct rpc_call, link), code);
	peer__dispatch(p);
	peer__maybe_closed(p);
}

/* ---- calls go out ---- */

/* The open connection with the least in flight; NULL: none has room. */
static struct peer_conn *pick_conn(const struct rpc_peer *p)
{
	struct peer_conn *best = NULL;

	LIST_FOREACH(n, &p->conns) {
		struct peer_conn *pc = LIST_ENTRY(n, struct peer_conn, link);

		if (pc->state != PC_OPEN || pc->conn.broken || pc->in_flight == PEER_SLOTS ||
			pc->conn.out_bytes > LIMIT_CONN_SEND_QUEUE_BYTES)
			continue;
		if (!best || pc->in_flight < best->in_flight)
			best = pc;
	}
	return best;
}

static bool payload_fits(const struct rpc_call *call)
{
	size_t left = call->method->request_payload;

	for (int i = 0; i < call->payload_count; i++) {
		if (call->payload[i].iov_len > left)
			return false;
		left -= call->payload[i].iov_len;
	}
	return true;
}

static void assign(struct peer_conn *pc, struct rpc_call *call)
{
	struct call_priv *priv = peer_call(call);
	struct frame f = {.kind = FRAME_REQUEST, .method = call->method->id};
	uint16_t slot = pc->free_slots[PEER_SLOTS - 1 - pc->in_flight];
	int code = ERR_MSGSIZE;

	priv->id = slot + PEER_SLOTS * (pc->slots[slot].generation + 1);
	f.request_id = priv->id;
	if (payload_fits(call))
		code = conn_send(&pc->conn, &f, (struct conn_body){.msg = call->request}, call->payload,
			call->payload_count, peer__request_sent, call, &priv->out);
	if (code) {
		peer__finish(call, code);
		return;
	}
	if (pc->in_flight > 0)
		pc->peer->want_conn = true;
	pc->in_flight++;
	pc->slots[slot].generation++;
	pc->slots[slot].call = call;
	priv->pc = pc;
	priv->sent_ns = io_now_ns(pc->peer->io);
	priv->state = CALL_SENT;
	list_push_back(&pc->calls, &call->link);
}

void peer__dispatch(struct rpc_peer *p)
{
	while (!list_empty(&p->pending)) {
		struct peer_conn *pc = pick_conn(p);

		if (!pc)
			break;
		assign(pc, LIST_ENTRY(list_pop_front(&p->pending), struct rpc_call, link));
	}
	maybe_connect(p);
	peer__arm_timer(p);
}

/* ---- time ---- */

static uint64_t next_event_ns(const struct rpc_peer *p)
{
	const struct deadline *first = deadline_first(&p->deadlines);
	uint64_t at = first ? first->at_ns : UINT64_MAX;

	LIST_FOREACH(n, &p->conns) {
		const struct peer_conn *pc = LIST_ENTRY(n, struct peer_conn, link);

		if (pc->state != PC_OPEN && !pc->fail_code && pc->connect_deadline_ns < at)
			at = pc->connect_deadline_ns;
	}
	if (!list_empty(&p->pending) && p->conn_count < p->options.conns && !is_connecting(p) && p->retry_at_ns < at)
		at = p->retry_at_ns;
	return at;
}

/* Calls that run out of time; calls that were doomed and whose buffers did not come back. */
static void expire_calls(struct rpc_peer *p, uint64_t now)
{
	struct deadline *d;

	while ((d = deadline_first(&p->deadlines)) && d->at_ns <= now) {
		struct rpc_call *call = ((struct call_priv *)d)->call;
		struct call_priv *priv = peer_call(call);
		struct peer_conn *pc = priv->pc;

		deadline_remove(&p->deadlines, d);
		if (priv->state == CALL_DOOMED) {
			conn_break(&pc->conn, ERR_CONNRESET);
			continue;
		}
		if (pc && now - priv->sent_ns >= SILENT_NS && now - pc->conn.received_ns >= SILENT_NS)
			conn_break(&pc->conn, ERR_TIMEDOUT);
		peer__fail_call(call, ERR_TIMEDOUT);
	}
}

static void on_timer(struct io_op *op)
{
	struct rpc_peer *p = CONTAINER_OF(op, struct rpc_peer, timer);
	uint64_t now = io_now_ns(p->io);

	CHECK_MAGIC(p, PEER_MAGIC);
	if (p->closing) {
		peer__maybe_closed(p);
		return;
	}
	expire_calls(p, now);
	LIST_FOREACH(n, &p->conns) {
		struct peer_conn *pc = LIST_ENTRY(n, struct peer_conn, link);

		if (pc->state != PC_OPEN && pc->connect_deadline_ns <= now)
			peer__break_conn(pc, ERR_TIMEDOUT);
	}
	peer__dispatch(p);
}

void peer__arm_timer(struct rpc_peer *p)
{
	uint64_t at = next_event_ns(p);

	if (p->closing || at == UINT64_MAX)
		return;
	if (!io_pending(&p->timer)) {
		p->timer_at_ns = at;
		io_prep_timer(&p->timer, at, on_timer);
		io_submit(p->io, &p->timer);
	} else if (at < p->timer_at_ns) {
		io_cancel(p->io, &p->timer); /* on_timer arms it anew */
	}
}

/* ---- the interface ---- */

struct rpc_peer *rpc_peer_new(struct io *io, const struct rpc_peer_options *options)
{
	struct rpc_peer *p = MEM_NEW(struct rpc_peer);
	uint64_t seed;

	CHECK(options->conns >= 1 && options->conns <= LIMIT_PEER_CONNS);
	p->magic = PEER_MAGIC;
	p->io = io;
	p->options = *options;
	if (p->options.connect_timeout_ns == 0)
		p->options.connect_timeout_ns = CONNECT_TIMEOUT_NS;
	io_random(io, &seed, sizeof(seed));
	rng_init(&p->rng, seed);
	list_init(&p->conns);
	list_init(&p->pending);
	list_init(&p->finished);
	deadline_init(&p->deadlines);
	return p;
}

const struct io_addr *rpc_peer_addr(const struct rpc_peer *p)
{
	return &p->options.addr;
}

bool rpc_peer_is_open(const struct rpc_peer *p)
{
	LIST_FOREACH(n, &p->conns) {
		const struct peer_conn *pc = LIST_ENTRY(n, struct peer_conn, link);

		if (pc->state == PC_OPEN && !pc->conn.broken)
			return true;
	}
	return false;
}

void rpc_call_start(struct rpc_peer *p, struct rpc_call *call)
{
	struct call_priv *priv = peer_call(call);

	CHECK_MAGIC(p, PEER_MAGIC);
	CHECK(call->method && call->request && call->done && priv->state == CALL_IDLE);
	CHECK(call->request->descriptor == call->method->request);
	CHECK(call->method->response_payload == 0 || call->place);
	memset(priv, 0, sizeof(*priv));
	priv->call = call;
	call->leader = (struct io_addr){0};
	priv->peer = p;
	if (p->closing) {
		peer__finish(call, ERR_CANCELED);
		return;
	}
	priv->state = CALL_QUEUED;
	list_push_back(&p->pending, &call->link);
	if (call->deadline_ns)
		deadline_put(&p->deadlines, &priv->deadline, call->deadline_ns);
	peer__dispatch(p);
}

void rpc_call_cancel(struct rpc_call *call)
{
	peer__fail_call(call, ERR_CANCELED);
}

bool rpc_call_active(const struct rpc_call *call)
{
	return ((const struct call_priv *)call->priv)->state != CALL_IDLE;
}

bool rpc_call_sending(const struct rpc_call *call)
{
	const struct call_priv *priv = (const struct call_priv *)call->priv;

	return call->payload_count > 0 && (priv->state == CALL_QUEUED || priv->out);
}

static void fail_all(struct rpc_peer *p, int code)
{
	struct list *n;

	while ((n = list_pop_front(&p->pending)))
		peer__finish(LIST_ENTRY(n, struct rpc_call, link), code);
	LIST_FOREACH(it, &p->conns)
		peer__break_conn(LIST_ENTRY(it, struct peer_conn, link), code);
}

void rpc_peer_reset(struct rpc_peer *p, int code)
{
	CHECK_MAGIC(p, PEER_MAGIC);
	CHECK(code < 0);
	fail_all(p, code);
}

static bool is_quiet(const struct rpc_peer *p)
{
	return p->conn_count == 0 && list_empty(&p->pending) && list_empty(&p->finished) && !io_pending(&p->timer);
}

void peer__maybe_closed(struct rpc_peer *p)
{
	if (p->closing && is_quiet(p))
		peer__post(p);
}

static void on_post(struct io_post *post_)
{
	struct rpc_peer *p = CONTAINER_OF(post_, struct rpc_peer, post);
	void (*closed)(void *ctx);
	void *ctx;
	struct list batch, *n;

	CHECK_MAGIC(p, PEER_MAGIC);
	p->posted = false;
	/* Those that a `done` makes fail at once wait for the next turn. */
	list_insert_before(&p->finished, &batch);
	list_remove(&p->finished);
	while ((n = list_pop_front(&batch))) {
		struct rpc_call *call = LIST_ENTRY(n, struct rpc_call, link);

		peer__deliver(call, peer_call(call)->code, NULL, 0);
	}
	if (!p->closing || !is_quiet(p) || p->posted)
		return;
	closed = p->closed;
	ctx = p->closed_ctx;
	deadline_fini(&p->deadlines);
	p->magic = 0;
	mem_free(p);
	closed(ctx);
}

void rpc_peer_close(struct rpc_peer *p, void (*closed)(void *ctx), void *ctx)
{
	CHECK_MAGIC(p, PEER_MAGIC);
	CHECK(!p->closing && closed);
	p->closing = true;
	p->closed = closed;
	p->closed_ctx = ctx;
	fail_all(p, ERR_CANCELED);
	io_cancel(p->io, &p->timer);
	peer__maybe_closed(p);
}
