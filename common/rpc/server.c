/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: accepts connections, decodes requests, hands them to handlers, sends what they answer.
 *
 *     request:  head decoded --place--> payload arriving --handle--> with the handler --last rpc_reply--> gone
 *                  |  \--place refuses, method unknown: answered, payload drained            (any order among requests)
 *                  \--malformed: the connection ends
 *
 * Invariants:
 *  1. A request is either being received (conn->current) or with its handler (counted in `held`). Each one that was
 *     placed ends by `handle` or by `abandoned`, never both; each one handled ends by its last reply.
 *  2. A connection's object lives until it is down, its handlers have answered and its replies have ended: req->peer is
 *     valid all that time. `conn_closed` comes then, once.
 *  3. Bounds: connections; requests in flight and bytes queued for sending of each; bytes of decoded requests (of each
 *     pool), and of answers queued, of all.
 *     Past one of them nothing further is read, so TCP pushes back on the sender; nothing is dropped. The exception are
 *     bodies longer than the head buffer while they arrive: past LIMIT_SERVER_BODY_BYTES of them, the connection that
 *     asks for more is broken, since waiting would let those that stall block the others.
 *
 * Who is let in, and who has to go, is for server_conns.c.
 */
#include "common/rpc/server_private.h"

#include <string.h>
#include "common/base/mem.h"
#include "proto/common.pb-c.h"

enum {
	REQ_MAGIC = 0x72737271,
	FREE_REQS = 256, /* kept for reuse */
	ARENA_BYTES = 4 * LIMIT_FRAME_BODY_BYTES,
};

/* ---- requests ---- */

static struct server_req *req_of(const struct rpc_req *pub)
{
	struct server_req *req = CONTAINER_OF(pub, struct server_req, pub);

	CHECK_MAGIC(req, REQ_MAGIC);
	return req;
}

static void arena_swap(struct rpc_server *s, struct server_req *req)
{
	struct codec_arena other = s->spare;

	s->spare = req->arena;
	req->arena = other;
}

static struct server_req *req_new(struct server_conn *sc)
{
	struct rpc_server *s = sc->server;
	struct list *n = list_pop_front(&s->free_reqs);
	struct server_req *req;

	if (n) {
		s->free_count--;
		req = LIST_ENTRY(n, struct server_req, link);
	} else {
		req = MEM_NEW(struct server_req);
		req->magic = REQ_MAGIC;
		codec_arena_init(&req->arena, ARENA_BYTES);
		list_init(&req->link);
	}
	arena_swap(s, req);
	memset(&req->pub, 0, sizeof(req->pub));
	req->conn = sc;
	req->pub.conn_id = sc->id;
	req->pub.peer = &sc->conn.peer;
	req->pub.peer_addr = sc->addr;
	return req;
}

static void resume_paused(struct rpc_server *s)
{
	LIST_FOREACH(n, &s->conns) {
		struct server_conn *sc = LIST_ENTRY(n, struct server_conn, link);

		if (sc->paused)
			conn_kick(&sc->conn);
	}
}

/* Its message is counted no more. */
static void uncount(struct server_req *req)
{
	struct server_pool *pool = req->conn->pool;
	bool was_over = pool->held_bytes > LIMIT_SERVER_REQUEST_BYTES;

	pool->held_bytes -= req->counted;
	req->counted = 0;
	if (was_over && pool->held_bytes <= LIMIT_SERVER_REQUEST_BYTES)
		resume_paused(req->conn->server);
}

void rpc_req_forget_msg(struct rpc_req *pub)
{
	struct server_req *req = req_of(pub);
	struct rpc_server *s = req->conn->server;

	pub->msg = NULL;
	uncount(req);
	codec_arena_clear(&req->arena);
	arena_swap(s, req);
}

static void req_free(struct server_req *req)
{
	struct rpc_server *s = req->conn->server;

	uncount(req);
	req->conn = NULL;
	if (s->free_count < FREE_REQS) {
		codec_arena_clear(&req->arena);
		list_push_front(&s->free_reqs, &req->link); /* the next request gets the memory that is warm */
		s->free_count++;
	} else {
		codec_arena_fini(&req->arena);
		req->magic = 0;
		mem_free(req);
	}
}

bool rpc_req_dead(const struct rpc_req *req)
{
	return req_of(req)->conn->conn.broken;
}

/* With ERR_NOT_LEADER goes a hint, whatever the method: what a handler answers to any failure would be read as one. */
static struct conn_body body_of(const struct rpc_reply *reply)
{
	if (reply->status == ERR_NOT_LEADER && (!reply->msg || reply->msg->descriptor != &craton__leader_hint__descriptor))
		return (struct conn_body){0};
	return (struct conn_body){.msg = reply->msg, .packed = reply->packed};
}

/* The last frame of an answer, or one of several, is queued. */
static void send_reply(struct server_conn *sc, uint64_t id, uint16_t method, const struct rpc_reply *reply)
{
	struct frame f = {
		.kind = FRAME_RESPONSE,
		.flags = reply->more ? FRAME_MORE : 0,
		.method = method,
		.status = reply->status,
		.request_id = id,
	};
	struct conn_body body = body_of(reply);
	struct conn_out *out;

	sc->server->stats.responses++;
	if (conn_send(&sc->conn, &f, body, reply->payload, reply->payload_count, reply->sent, reply->sent_ctx, &out) ==
		0)
		return;
	/* Longer than a frame may be: the caller asked for too much at once. For the client, parts end here. */
	f.flags = 0;
	f.status = ERR_MSGSIZE;
	CHECK(conn_send(&sc->conn, &f, (struct conn_body){0}, NULL, 0, reply->sent, reply->sent_ctx, &out) == 0);
	out->code = ERR_MSGSIZE;
}

static void count_answer(struct rpc_server *s, const struct server_req *req, int status)
{
	struct method_stats *stats = &s->methods[req->pub.handler - s->options.handlers];

	metrics_observe(&stats->seconds, io_now_ns(s->io) - req->started_ns);
	stats->errors += status < 0;
}

void rpc_reply(struct rpc_req *pub, const struct rpc_reply *reply)
{
	struct server_req *req = req_of(pub);
	struct server_conn *sc = req->conn;

	CHECK(reply->status <= 0 && sc->held > 0 && req != sc->current);
	CHECK(!reply->more || reply->status == 0);
	send_reply(sc, req->id, pub->handler->method->id, reply);
	if (reply->more)
		return;
	count_answer(sc->server, req, reply->status);
	sc->held--;
	req_free(req);
	conn_kick(&sc->conn);
}

void rpc_reply_status(struct rpc_req *req, int status)
{
	rpc_reply(req, &(struct rpc_reply){.status = status});
}

/* ---- frames ---- */

static struct server_conn *conn_of(struct conn *c)
{
	struct server_conn *sc = CONTAINER_OF(c, struct server_conn, conn);

	CHECK_MAGIC(sc, SERVER_CONN_MAGIC);
	return sc;
}

static void on_opened(struct conn *c)
{
	server__admit(conn_of(c));
}

static int decode_request(struct server_conn *sc, struct server_req *req, const struct frame *f, const uint8_t *body)
{
	const struct rpc_method *method = req->pub.handler->method;
	int code;

	if (f->payload_len > method->request_payload)
		return err_set(&sc->conn.err, ERR_PROTO, "%s with a payload of %u bytes", method->name, f->payload_len);
	code = codec_unpack(&req->arena, method->request, body, f->body_len, &req->pub.msg);
	if (code)
		return err_set(&sc->conn.err, code, "%s with a malformed body", method->name);
	req->counted = req->arena.held;
	sc->pool->held_bytes += req->counted;
	return 0;
}

/* Says where the payload goes; a refusal is the answer. */
static void place_payload(struct server_conn *sc, struct server_req *req)
{
	const struct rpc_handler *h = req->pub.handler;
	int code = h->place(sc->server->options.ctx, &req->pub);

	if (code == 0) {
		frame_rx_place(&sc->conn.rx, req->pub.payload, req->pub.payload_count);
		return;
	}
	CHECK(code < 0);
	count_answer(sc->server, req, code);
	send_reply(sc, req->id, h->method->id, &(struct rpc_reply){.status = code});
	sc->current = NULL;
	req_free(req);
}

static int on_request_head(struct conn *c, const struct frame *f, const uint8_t *body)
{
	struct server_conn *sc = conn_of(c);
	struct rpc_server *s = sc->server;
	const struct rpc_handler *h = f->method < s->by_id_count ? s->by_id[f->method] : NULL;
	struct server_req *req;
	int code;

	s->stats.requests++;
	if (!h) {
		/* A newer client, perhaps: only this request fails. */
		refused_count(s->refused, REFUSED_METHOD, io_now_ns(s->io), NULL);
		send_reply(sc, f->request_id, f->method, &(struct rpc_reply){.status = ERR_OPNOTSUPP});
		return 0;
	}
	req = req_new(sc);
	req->id = f->request_id;
	req->started_ns = io_now_ns(s->io);
	req->pub.handler = h;
	req->pub.payload_len = f->payload_len;
	code = decode_request(sc, req, f, body);
	if (code) {
		req_free(req);
		return code;
	}
	sc->current = req;
	if (f->payload_len > 0)
		place_payload(sc, req);
	return 0;
}

static int on_request_tail(struct conn *c)
{
	struct server_conn *sc = conn_of(c);
	struct server_req *req = sc->current;

	if (!req)
		return 0;
	sc->current = NULL;
	sc->held++;
	req->pub.handler->handle(sc->server->options.ctx, &req->pub);
	return 0;
}

static bool may_read(struct conn *c)
{
	struct server_conn *sc = conn_of(c);

	/* Whoever has nothing in the queue is not held up by those who do not read their answers. */
	if (sc->server->send_bytes > LIMIT_SERVER_SEND_BYTES && c->out_bytes > 0)
		return false;
	sc->paused = sc->held >= LIMIT_CONN_REQUESTS || c->out_bytes > LIMIT_CONN_SEND_QUEUE_BYTES ||
		sc->pool->held_bytes > LIMIT_SERVER_REQUEST_BYTES;
	return !sc->paused;
}

static bool may_hold(struct conn *c)
{
	struct server_conn *sc = conn_of(c);
	struct rpc_server *s = sc->server;
	bool is_more = c->held > sc->body_bytes;

	sc->pool->body_bytes += c->held - sc->body_bytes;
	sc->body_bytes = c->held;
	if (!is_more || sc->pool->body_bytes <= LIMIT_SERVER_BODY_BYTES)
		return true;
	s->stats.conns_overloaded++;
	server__refuse_conn(sc, REFUSED_OVERLOADED, ERR_OVERLOADED, "long requests under way take too much memory");
	return false;
}

/* ---- the end of a connection ---- */

/* What came over it was refused; why we broke it was said when we did. */
static void report_down(struct server_conn *sc)
{
	struct rpc_server *s = sc->server;

	if (sc->reported)
		return;
	if (sc->conn.phase == CONN_REFUSING) {
		s->stats.conns_refused++;
		server__refuse_conn(sc, REFUSED_STRANGER, sc->conn.code, sc->conn.err.text);
	} else if (sc->conn.err.code) {
		s->stats.malformed++;
		server__refuse_conn(sc, REFUSED_MALFORMED, sc->conn.code, sc->conn.err.text);
	}
	sc->reported = true;
}

static void on_down(struct conn *c)
{
	struct server_conn *sc = conn_of(c);
	struct rpc_server *s = sc->server;
	struct server_req *req = sc->current;

	report_down(sc);
	sc->pool->body_bytes -= sc->body_bytes;
	sc->body_bytes = 0;
	if (req) {
		sc->current = NULL;
		if (req->pub.payload_len > 0)
			req->pub.handler->abandoned(s->options.ctx, &req->pub);
		req_free(req);
	}
	if (sc->held > 0 || !list_empty(&c->out))
		return;
	s->stats.bytes_in += c->bytes_in;
	s->stats.bytes_out += c->bytes_out;
	if (s->options.conn_closed)
		s->options.conn_closed(s->options.ctx, sc->id);
	list_remove(&sc->link);
	s->conn_count--;
	if (sc->admitted)
		s->admitted[sc->pool - s->pools]--;
	conn_fini(c);
	sc->magic = 0;
	mem_free(sc);
	server__maybe_closed(s);
}

static const struct conn_ops server_conn_ops = {
	.opened = on_opened,
	.head = on_request_head,
	.tail = on_request_tail,
	.may_read = may_read,
	.may_hold = may_hold,
	.down = on_down,
};

void server__conn_init(struct server_conn *sc)
{
	struct rpc_server *s = sc->server;

	conn_init(&sc->conn, s->io, &server_conn_ops, &s->options.self, true, s->options.bulk, s->options.transform);
	sc->conn.out_total = &s->send_bytes;
}

/* ---- open and close ---- */

static void index_handlers(struct rpc_server *s)
{
	const struct rpc_handler *h;

	for (h = s->options.handlers; h->method; h++) {
		CHECK(h->handle && (h->method->request_payload == 0 || (h->place && h->abandoned)));
		CHECK(h->method->request_payload <= LIMIT_FRAME_PAYLOAD_BYTES);
		if (h->method->id >= s->by_id_count)
			s->by_id_count = (size_t)h->method->id + 1;
	}
	s->methods = mem_array((size_t)(h - s->options.handlers) + 1, sizeof(*s->methods));
	s->by_id = mem_array(s->by_id_count ? s->by_id_count : 1, sizeof(struct rpc_handler *));
	for (h = s->options.handlers; h->method; h++) {
		CHECK(!s->by_id[h->method->id]);
		s->by_id[h->method->id] = h;
	}
}

int rpc_server_open(
	struct io *io, const struct rpc_server_options *options, struct rpc_server **ret_server, struct err *err)
{
	struct io_addr bound;
	struct rpc_server *s;
	int fd, code;

	code = io_listen_wait(io, &options->listen, options->log, &fd, &bound, err);
	if (code)
		return code;
	s = MEM_NEW(struct rpc_server);
	s->magic = SERVER_MAGIC;
	s->io = io;
	s->options = *options;
	if (s->options.max_conns == 0 || s->options.max_conns > LIMIT_SERVER_CONNS)
		s->options.max_conns = LIMIT_SERVER_CONNS;
	if (options->log)
		s->log = *options->log;
	s->refused = options->refused ? options->refused : &s->own_refused;
	s->fd = fd;
	s->addr = bound;
	s->next_conn_id = 1;
	list_init(&s->conns);
	list_init(&s->free_reqs);
	codec_arena_init(&s->spare, ARENA_BYTES);
	index_handlers(s);
	server__accept(s);
	*ret_server = s;
	return 0;
}

struct io_addr rpc_server_addr(const struct rpc_server *s)
{
	return s->addr;
}

void rpc_server_get_stats(const struct rpc_server *s, struct rpc_stats *ret_stats)
{
	*ret_stats = s->stats;
	ret_stats->conns_open = s->conn_count;
	ret_stats->queued_bytes = s->send_bytes;
	LIST_FOREACH(n, &s->conns) {
		const struct server_conn *sc = LIST_ENTRY(n, struct server_conn, link);

		ret_stats->bytes_in += sc->conn.bytes_in;
		ret_stats->bytes_out += sc->conn.bytes_out;
	}
}

void rpc_server_write_metrics(const struct rpc_server *s, struct metrics *m)
{
	struct rpc_stats stats;

	rpc_server_get_stats(s, &stats);
	server_metrics_write(m, &stats, s->options.handlers, s->methods);
}

static void on_closed(struct io_post *post)
{
	struct rpc_server *s = CONTAINER_OF(post, struct rpc_server, post);
	void (*closed)(void *ctx) = s->closed;
	void *ctx = s->closed_ctx;
	struct list *n;

	CHECK_MAGIC(s, SERVER_MAGIC);
	io_close(s->io, s->fd);
	codec_arena_fini(&s->spare);
	while ((n = list_pop_front(&s->free_reqs))) {
		struct server_req *req = LIST_ENTRY(n, struct server_req, link);

		codec_arena_fini(&req->arena);
		mem_free(req);
	}
	mem_free(s->by_id);
	mem_free(s->methods);
	s->magic = 0;
	mem_free(s);
	closed(ctx);
}

/* By a post, so that `closed` never runs inside the caller of whatever ended last. */
void server__maybe_closed(struct rpc_server *s)
{
	if (!s->closing || s->posted || s->conn_count > 0 || io_pending(&s->accept_op) || io_pending(&s->sweep_op))
		return;
	s->posted = true;
	s->post.run = on_closed;
	io_post(s->io, &s->post);
}

void rpc_server_close(struct rpc_server *s, void (*closed)(void *ctx), void *ctx)
{
	CHECK_MAGIC(s, SERVER_MAGIC);
	CHECK(!s->closing && closed);
	s->closing = true;
	s->closed = closed;
	s->closed_ctx = ctx;
	io_cancel(s->io, &s->accept_op);
	io_cancel(s->io, &s->sweep_op);
	LIST_FOREACH(n, &s->conns)
		conn_break(&LIST_ENTRY(n, struct server_conn, link)->conn, ERR_STOPPED);
	server__maybe_closed(s);
}
