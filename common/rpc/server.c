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
 *  3. Bounds: connections; requests in flight and bytes queued for sending of each; bytes of decoded requests, and of
 *     answers queued, of all.
 *     Past one of them nothing further is read, so TCP pushes back on the sender; nothing is dropped. The exception are
 *     bodies longer than the head buffer while they arrive: past LIMIT_SERVER_BODY_BYTES of them, the connection that
 *     asks for more is broken, since waiting would let those that stall block the others.
 *
 * At the greatest number of connections the oldest that has not yet said who it is makes room for a further one. Where all
 * have, the further one is closed at once; of those that were idle for IDLE_NS (their hosts are gone, perhaps) the one idle
 * for longest goes too, so that the next attempt finds room.
 *
 * One timer looks every second while there are connections: those without a HELLO after LIMIT_HELLO_MS and those that
 * stalled for LIMIT_STALL_MS are broken. It also tries to accept again after accept failed (no descriptors left).
 *
 * What is refused or broken here is counted by its cause (common/base/refused.h), and said in the log.
 */
#include "common/rpc/rpc.h"

#include <string.h>
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/rpc/codec.h"
#include "common/rpc/conn.h"
#include "common/rpc/server_metrics.h"
#include "proto/common.pb-c.h"

enum {
	SERVER_MAGIC = 0x72737276,
	CONN_MAGIC = 0x72736376,
	REQ_MAGIC = 0x72737271,
	FREE_REQS = 256, /* kept for reuse */
	ARENA_BYTES = 4 * LIMIT_FRAME_BODY_BYTES,
};

#define MS ((uint64_t)1000000)
#define SWEEP_NS (1000 * MS)
#define IDLE_NS (60000 * MS)

struct server_req {
	struct rpc_req pub; /* first */
	uint32_t magic;
	struct server_conn *conn;
	uint64_t id;
	uint64_t started_ns;
	struct codec_arena arena;
	size_t counted;   /* of arena.held, in server->held_bytes */
	struct list link; /* server->free_reqs */
};

struct server_conn {
	struct conn conn;
	uint32_t magic;
	struct rpc_server *server;
	struct list link; /* server->conns */
	uint64_t id;
	struct io_addr addr;
	uint64_t accepted_ns;
	uint32_t held;              /* requests with their handlers */
	size_t body_bytes;          /* held for a body in the making, in server->body_bytes */
	struct server_req *current; /* whose payload is arriving */
	bool reported;              /* that it went, and why */
	bool paused;                /* may_read said no */
};

struct rpc_server {
	uint32_t magic;
	struct io *io;
	struct rpc_server_options options;
	struct log log;
	int fd;
	struct io_addr addr;
	const struct rpc_handler **by_id;
	size_t by_id_count;
	struct method_stats *methods; /* as options.handlers */
	struct io_op accept_op;
	struct io_op sweep_op;
	struct list conns, free_reqs;
	struct codec_arena spare; /* the next request's: what was used last, and is warm */
	uint32_t conn_count, free_count;
	uint64_t next_conn_id;
	size_t held_bytes; /* of decoded requests */
	size_t body_bytes; /* of long bodies in the making */
	size_t send_bytes; /* of answers not sent yet, payloads apart */
	struct rpc_stats stats;
	struct refused *refused, own_refused; /* the first points to the second if nobody else wants to know */
	bool closing;
	void (*closed)(void *ctx);
	void *closed_ctx;
	struct io_post post;
	bool posted;
};

static void on_accept(struct io_op *op);
static void on_sweep(struct io_op *op);
static void maybe_closed(struct rpc_server *s);

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
static void uncount(struct rpc_server *s, struct server_req *req)
{
	bool was_over = s->held_bytes > LIMIT_SERVER_REQUEST_BYTES;

	s->held_bytes -= req->counted;
	req->counted = 0;
	if (was_over && s->held_bytes <= LIMIT_SERVER_REQUEST_BYTES)
		resume_paused(s);
}

void rpc_req_forget_msg(struct rpc_req *pub)
{
	struct server_req *req = req_of(pub);
	struct rpc_server *s = req->conn->server;

	pub->msg = NULL;
	uncount(s, req);
	codec_arena_clear(&req->arena);
	arena_swap(s, req);
}

static void req_free(struct server_req *req)
{
	struct rpc_server *s = req->conn->server;

	uncount(s, req);
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

/* ---- what is refused ---- */

/* Counted, and a line for the operator, but a flood of bad connections does not become a flood of lines. */
static void refuse(struct rpc_server *s, enum refused_cause cause, const struct io_addr *from, const char *name,
	int code, const char *why)
{
	const char *event = cause == REFUSED_MALFORMED ? "connection-malformed" : "connection-refused";
	char addr[IO_ADDR_TEXT_BYTES];
	uint64_t unlogged;

	if (!refused_count(s->refused, cause, io_now_ns(s->io), &unlogged) || !s->options.log)
		return;
	log_line(&s->log, LOG_WARN, event, "cause=%s peer=%s name=%s error=%s unlogged=%llu reason=\"%s\"",
		refused_name(cause), io_addr_format(from, addr), name[0] ? name : "-", err_name(code),
		(unsigned long long)unlogged, why);
}

/* Once for each connection. */
static void refuse_conn(struct server_conn *sc, enum refused_cause cause, int code, const char *why)
{
	if (!sc->reported)
		refuse(sc->server, cause, &sc->addr, sc->conn.peer.name, code, why);
	sc->reported = true;
}

/* ---- frames ---- */

static struct server_conn *conn_of(struct conn *c)
{
	struct server_conn *sc = CONTAINER_OF(c, struct server_conn, conn);

	CHECK_MAGIC(sc, CONN_MAGIC);
	return sc;
}

static void on_opened(struct conn *c)
{
	(void)conn_of(c);
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
	sc->server->held_bytes += req->counted;
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
		sc->server->held_bytes > LIMIT_SERVER_REQUEST_BYTES;
	return !sc->paused;
}

static bool may_hold(struct conn *c)
{
	struct server_conn *sc = conn_of(c);
	struct rpc_server *s = sc->server;
	bool is_more = c->held > sc->body_bytes;

	s->body_bytes += c->held - sc->body_bytes;
	sc->body_bytes = c->held;
	if (!is_more || s->body_bytes <= LIMIT_SERVER_BODY_BYTES)
		return true;
	s->stats.conns_overloaded++;
	refuse_conn(sc, REFUSED_OVERLOADED, ERR_OVERLOADED, "long requests under way take too much memory");
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
		refuse_conn(sc, REFUSED_STRANGER, sc->conn.code, sc->conn.err.text);
	} else if (sc->conn.err.code) {
		s->stats.malformed++;
		refuse_conn(sc, REFUSED_MALFORMED, sc->conn.code, sc->conn.err.text);
	}
	sc->reported = true;
}

static void on_down(struct conn *c)
{
	struct server_conn *sc = conn_of(c);
	struct rpc_server *s = sc->server;
	struct server_req *req = sc->current;

	report_down(sc);
	s->body_bytes -= sc->body_bytes;
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
	conn_fini(c);
	sc->magic = 0;
	mem_free(sc);
	maybe_closed(s);
}

static const struct conn_ops server_conn_ops = {
	.opened = on_opened,
	.head = on_request_head,
	.tail = on_request_tail,
	.may_read = may_read,
	.may_hold = may_hold,
	.down = on_down,
};

/* ---- accepting ---- */

static void sweep_arm(struct rpc_server *s)
{
	if (s->closing || io_pending(&s->sweep_op))
		return;
	if (s->conn_count == 0 && io_pending(&s->accept_op))
		return;
	io_prep_timer(&s->sweep_op, io_now_ns(s->io) + SWEEP_NS, on_sweep);
	io_submit(s->io, &s->sweep_op);
}

static void accept_next(struct rpc_server *s)
{
	io_prep_accept(&s->accept_op, s->fd, on_accept);
	io_submit(s->io, &s->accept_op);
}

static void conn_new(struct rpc_server *s, int fd, const struct io_addr *addr)
{
	struct server_conn *sc = MEM_NEW(struct server_conn);

	sc->magic = CONN_MAGIC;
	sc->server = s;
	sc->id = s->next_conn_id++;
	sc->addr = *addr;
	sc->accepted_ns = io_now_ns(s->io);
	list_push_back(&s->conns, &sc->link);
	s->conn_count++;
	s->stats.conns_accepted++;
	conn_init(&sc->conn, s->io, &server_conn_ops, &s->options.self, true, s->options.bulk, s->options.transform);
	sc->conn.out_total = &s->send_bytes;
	conn_start(&sc->conn, fd);
}

/* Makes room for whoever comes next. */
static void drop_idle(struct rpc_server *s)
{
	struct server_conn *oldest = NULL;

	LIST_FOREACH(n, &s->conns) {
		struct server_conn *sc = LIST_ENTRY(n, struct server_conn, link);

		if (sc->held > 0 || sc->current || !list_empty(&sc->conn.out) || io_pending(&sc->conn.send_op))
			continue;
		if (!oldest || sc->conn.received_ns < oldest->conn.received_ns)
			oldest = sc;
	}
	if (!oldest || io_now_ns(s->io) - oldest->conn.received_ns < IDLE_NS)
		return;
	refuse_conn(oldest, REFUSED_IDLE, ERR_TIMEDOUT, "idle for longest while others find no room");
	conn_break(&oldest->conn, ERR_TIMEDOUT);
}

/* False: all have said who they are. A flood of connections that say nothing would else keep others out for as long as these may be silent. */
static bool drop_stranger(struct rpc_server *s)
{
	LIST_FOREACH(n, &s->conns) { /* the oldest is first */
		struct server_conn *sc = LIST_ENTRY(n, struct server_conn, link);

		if (sc->conn.broken || sc->conn.phase == CONN_OPEN)
			continue;
		if (sc->conn.phase == CONN_HELLO) /* else it is one of another cluster or version, and counts as that */
			refuse_conn(sc, REFUSED_NO_HELLO, ERR_OVERLOADED, "it had said no hello when others found no room");
		conn_break(&sc->conn, ERR_OVERLOADED);
		return true;
	}
	return false;
}

static void refuse_too_many(struct rpc_server *s, int fd, const struct io_addr *from)
{
	io_close(s->io, fd);
	s->stats.conns_refused++;
	refuse(s, REFUSED_CONNECTIONS, from, "", ERR_OVERLOADED, "as many connections as there may be");
	drop_idle(s);
}

static void on_accept(struct io_op *op)
{
	struct rpc_server *s = CONTAINER_OF(op, struct rpc_server, accept_op);

	CHECK_MAGIC(s, SERVER_MAGIC);
	if (op->result >= 0) {
		if (s->closing)
			io_close(s->io, (int)op->result);
		else if (s->conn_count >= s->options.max_conns && !drop_stranger(s))
			refuse_too_many(s, (int)op->result, &op->accept.peer);
		else
			conn_new(s, (int)op->result, &op->accept.peer);
	} else if (!s->closing && op->result != ERR_CONNRESET) {
		refuse(s, REFUSED_ACCEPT, &(struct io_addr){0}, "", (int)op->result, "no connection can be accepted; where descriptors are used up LimitNOFILE (ulimit -n) is too low");
	}
	if (s->closing) {
		maybe_closed(s);
		return;
	}
	if (op->result >= 0 || op->result == ERR_CONNRESET)
		accept_next(s);
	sweep_arm(s); /* which accepts again after another error */
}

static bool is_overdue(struct rpc_server *s, struct server_conn *sc)
{
	uint64_t now = io_now_ns(s->io);

	if (sc->conn.broken)
		return false;
	if (sc->conn.phase != CONN_OPEN)
		return now - sc->accepted_ns >= LIMIT_HELLO_MS * MS;
	return now >= LIMIT_STALL_MS * MS && conn_stalled(&sc->conn, now - LIMIT_STALL_MS * MS);
}

/* A stranger that stays is counted as one. */
static void break_overdue(struct server_conn *sc)
{
	if (sc->conn.phase == CONN_HELLO)
		refuse_conn(sc, REFUSED_NO_HELLO, ERR_TIMEDOUT, "it said no hello");
	else if (sc->conn.phase == CONN_OPEN)
		refuse_conn(sc, REFUSED_STALLED, ERR_TIMEDOUT, "half a request, or an answer not taken, for too long");
	conn_break(&sc->conn, ERR_TIMEDOUT);
}

static void on_sweep(struct io_op *op)
{
	struct rpc_server *s = CONTAINER_OF(op, struct rpc_server, sweep_op);

	CHECK_MAGIC(s, SERVER_MAGIC);
	if (s->closing) {
		maybe_closed(s);
		return;
	}
	LIST_FOREACH(n, &s->conns) {
		struct server_conn *sc = LIST_ENTRY(n, struct server_conn, link);

		if (is_overdue(s, sc))
			break_overdue(sc);
	}
	if (!io_pending(&s->accept_op))
		accept_next(s);
	sweep_arm(s);
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
	accept_next(s);
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
static void maybe_closed(struct rpc_server *s)
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
	maybe_closed(s);
}
