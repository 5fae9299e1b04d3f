/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_conns: who is let in, and who has to go.
 *
 *     accepted --HELLO--> admitted, in the pool of its kind --> down
 *
 * At the greatest number of connections the oldest that has not yet said who it is makes room for a further one. Where all
 * have, the further one is closed at once; of those that were idle for IDLE_NS (their hosts are gone, perhaps) the one idle
 * for longest goes too, so that the next attempt finds room.
 *
 * Servers of the same role have places of their own, as many as `kin_conns`, and bounds of their own for what their requests hold: as many clients
 * as there may be, with as much as they may ask for, do not keep the members of a group from hearing each other. Who is one says its HELLO; whoever
 * lies takes such a place. When they are taken the next one is one of everybody, and the one of them that was idle for longest goes, as above.
 *
 * One timer looks every second while there are connections: those without a HELLO after LIMIT_HELLO_MS and those that
 * stalled for LIMIT_STALL_MS are broken. It also tries to accept again after accept failed (no descriptors left).
 *
 * What is refused or broken here is counted by its cause (common/base/refused.h), and said in the log.
 */
#include "common/rpc/server_private.h"

#include "common/base/mem.h"

#define MS ((uint64_t)1000000)
#define SWEEP_NS (1000 * MS)
#define IDLE_NS (60000 * MS)

static void on_accept(struct io_op *op);
static void on_sweep(struct io_op *op);

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

void server__refuse_conn(struct server_conn *sc, enum refused_cause cause, int code, const char *why)
{
	if (!sc->reported)
		refuse(sc->server, cause, &sc->addr, sc->conn.peer.name, code, why);
	sc->reported = true;
}

/* ---- who is let in ---- */

static void sweep_arm(struct rpc_server *s)
{
	if (s->closing || io_pending(&s->sweep_op))
		return;
	if (s->conn_count == 0 && io_pending(&s->accept_op))
		return;
	io_prep_timer(&s->sweep_op, io_now_ns(s->io) + SWEEP_NS, on_sweep);
	io_submit(s->io, &s->sweep_op);
}

void server__accept(struct rpc_server *s)
{
	io_prep_accept(&s->accept_op, s->fd, on_accept);
	io_submit(s->io, &s->accept_op);
}

static void conn_new(struct rpc_server *s, int fd, const struct io_addr *addr)
{
	struct server_conn *sc = MEM_NEW(struct server_conn);

	sc->magic = SERVER_CONN_MAGIC;
	sc->server = s;
	sc->id = s->next_conn_id++;
	sc->addr = *addr;
	sc->pool = &s->pools[POOL_OTHERS];
	sc->accepted_ns = io_now_ns(s->io);
	list_push_back(&s->conns, &sc->link);
	s->conn_count++;
	s->stats.conns_accepted++;
	server__conn_init(sc);
	conn_start(&sc->conn, fd);
}

/* Makes room in that pool for whoever comes next. */
static void drop_idle(struct rpc_server *s, const struct server_pool *pool)
{
	struct server_conn *oldest = NULL;

	LIST_FOREACH(n, &s->conns) {
		struct server_conn *sc = LIST_ENTRY(n, struct server_conn, link);

		if (sc->pool != pool || sc->held > 0 || sc->current || !list_empty(&sc->conn.out) || io_pending(&sc->conn.send_op))
			continue;
		if (!oldest || sc->conn.received_ns < oldest->conn.received_ns)
			oldest = sc;
	}
	if (!oldest || io_now_ns(s->io) - oldest->conn.received_ns < IDLE_NS)
		return;
	server__refuse_conn(oldest, REFUSED_IDLE, ERR_TIMEDOUT, "idle for longest while others find no room");
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
			server__refuse_conn(sc, REFUSED_NO_HELLO, ERR_OVERLOADED, "it had said no hello when others found no room");
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
	drop_idle(s, &s->pools[POOL_OTHERS]);
	drop_idle(s, &s->pools[POOL_KIN]); /* whose it was nobody knows */
}

static void on_accept(struct io_op *op)
{
	struct rpc_server *s = CONTAINER_OF(op, struct rpc_server, accept_op);

	CHECK_MAGIC(s, SERVER_MAGIC);
	if (op->result >= 0) {
		if (s->closing)
			io_close(s->io, (int)op->result);
		else if (s->conn_count >= s->options.max_conns + s->options.kin_conns && !drop_stranger(s))
			refuse_too_many(s, (int)op->result, &op->accept.peer);
		else
			conn_new(s, (int)op->result, &op->accept.peer);
	} else if (!s->closing && op->result != ERR_CONNRESET) {
		refuse(s, REFUSED_ACCEPT, &(struct io_addr){0}, "", (int)op->result, "no connection can be accepted; where descriptors are used up LimitNOFILE (ulimit -n) is too low");
	}
	if (s->closing) {
		server__maybe_closed(s);
		return;
	}
	if (op->result >= 0 || op->result == ERR_CONNRESET)
		server__accept(s);
	sweep_arm(s); /* which accepts again after another error */
}

void server__admit(struct server_conn *sc)
{
	struct rpc_server *s = sc->server;
	bool is_kin = s->options.kin_conns && sc->conn.peer.role == s->options.self.role;

	if (is_kin && s->admitted[POOL_KIN] >= s->options.kin_conns) {
		drop_idle(s, &s->pools[POOL_KIN]); /* members of a group are never silent for so long; those whose hosts are gone are */
		is_kin = false;
	}
	if (!is_kin && s->admitted[POOL_OTHERS] >= s->options.max_conns) {
		s->stats.conns_refused++;
		server__refuse_conn(sc, REFUSED_CONNECTIONS, ERR_OVERLOADED, "as many connections as there may be");
		conn_break(&sc->conn, ERR_OVERLOADED);
		drop_idle(s, &s->pools[POOL_OTHERS]);
		return;
	}
	CHECK(sc->body_bytes == 0); /* a HELLO is short */
	if (is_kin)
		sc->pool = &s->pools[POOL_KIN];
	sc->admitted = true;
	s->admitted[sc->pool - s->pools]++;
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
		server__refuse_conn(sc, REFUSED_NO_HELLO, ERR_TIMEDOUT, "it said no hello");
	else if (sc->conn.phase == CONN_OPEN)
		server__refuse_conn(sc, REFUSED_STALLED, ERR_TIMEDOUT, "half a request, or an answer not taken, for too long");
	conn_break(&sc->conn, ERR_TIMEDOUT);
}

static void on_sweep(struct io_op *op)
{
	struct rpc_server *s = CONTAINER_OF(op, struct rpc_server, sweep_op);

	CHECK_MAGIC(s, SERVER_MAGIC);
	if (s->closing) {
		server__maybe_closed(s);
		return;
	}
	LIST_FOREACH(n, &s->conns) {
		struct server_conn *sc = LIST_ENTRY(n, struct server_conn, link);

		if (is_overdue(s, sc))
			break_overdue(sc);
	}
	if (!io_pending(&s->accept_op))
		server__accept(s);
	sweep_arm(s);
}
