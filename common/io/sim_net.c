// SPDX-License-Identifier: Apache-2.0
/*
 * sim_net: byte streams between hosts.
 *
 * A connection is two ends. What an end sends is cut into segments of random sizes that fly one behind the other
 * (`flight`), each with a latency of its own but never overtaking, and land in the other end's `inbox`. Bytes in
 * flight and unread together are bounded by a window, like socket buffers: a sender whose peer does not read waits.
 * FIN is a segment; a reset is an event of its own that may overtake data.
 *
 * Between hosts that are cut (which may be so one way only), segments, handshakes and resets are tried again later, as TCP does; nothing arrives
 * until healed.
 *
 * Invariants: (1) a connection lives until neither end is held by a host; (2) an end's delivery event is scheduled
 * exactly while its flight is not empty; (3) operations wait in an end's queues only while it is held.
 */
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/mem.h"
#include "common/io/sim_impl.h"

enum {
	SIM_NET_WINDOW = 1 << 20,  /* bytes on their way or unread, each direction */
	SIM_NET_PIECE = 256 << 10, /* greatest segment */
	SIM_NET_BACKLOG = 4096,
	SIM_NET_LOCAL_MIN_NS = 5000, /* a host talking to itself */
	SIM_NET_LOCAL_MAX_NS = 20000,
};
static const uint64_t SIM_NET_RETRY_NS = 200000000, SIM_NET_RETRY_MAX_NS = 3200000000;
static const uint64_t SIM_NET_CONNECT_NS = 120000000000; /* Linux gives up after about two minutes */

struct sim_segment {
	struct list link;
	uint64_t arrives_ns;
	uint32_t len, taken;
	bool is_fin;
	uint8_t data[];
};

struct sim_end {
	struct sim_conn *conn;
	struct sim_host *host;
	struct io_addr addr;
	bool is_held; /* by a descriptor, a backlog or a connect under way */
	bool is_shut, has_sent_fin;
	bool has_fin; /* the peer's has arrived */
	bool is_reset;
	struct list inbox;
	uint64_t inbox_bytes;
	struct list recv_ops, send_ops;
	struct list flight; /* to the peer */
	uint64_t flight_bytes, last_arrival_ns;
	uint32_t tries;
	struct sim_event delivery; /* of the first in flight */
	struct sim_event reset;    /* on its way to this end */
	struct list backlog_link;
};

struct sim_conn {
	uint64_t number;
	struct sim_end ends[2];
};

struct sim_listener {
	struct sim_host *host;
	struct io_addr addr;
	struct list link; /* in host->listeners */
	struct list accept_ops;
	struct list backlog; /* ends */
	uint32_t backlog_count;
};

enum { SIM_CONNECT_SYN = 0, SIM_CONNECT_ANSWER = 1 };

/* ---- the wire ---- */

static struct sim_end *sim_peer(struct sim_end *end)
{
	return &end->conn->ends[end == &end->conn->ends[0]];
}

static bool sim_is_cut(const struct sim_host *a, const struct sim_host *b)
{
	return a->cut[b->number / 32] & (1u << (b->number % 32));
}

static uint64_t sim_latency(struct sim *sim, const struct sim_host *a, const struct sim_host *b)
{
	uint64_t delay = a->delay_ns > b->delay_ns ? a->delay_ns : b->delay_ns;

	if (a == b)
		return rng_between(&sim->rng, SIM_NET_LOCAL_MIN_NS, SIM_NET_LOCAL_MAX_NS);
	if (delay)
		delay = rng_below(&sim->rng, delay);
	return delay + rng_between(&sim->rng, sim->options.net_latency_min_ns, sim->options.net_latency_max_ns);
}

static uint64_t sim_retry_delay(uint32_t tries)
{
	uint64_t delay = SIM_NET_RETRY_NS << (tries < 4 ? tries : 4);

	return delay < SIM_NET_RETRY_MAX_NS ? delay : SIM_NET_RETRY_MAX_NS;
}

/* Three of four pieces are as large as can be, the fourth ends anywhere. */
static uint32_t sim_piece(struct sim *sim, uint64_t want)
{
	if (want > SIM_NET_PIECE)
		want = SIM_NET_PIECE;
	if (want <= 1 || !rng_chance(&sim->rng, 1, 4))
		return (uint32_t)want;
	return (uint32_t)rng_between(&sim->rng, 1, want);
}

static void sim_fly(struct sim_end *end, struct sim_segment *segment)
{
	struct sim_host *host = end->host;
	struct sim *sim = host->sim;
	uint64_t sent_ns = host->net_free_ns > sim->now_ns ? host->net_free_ns : sim->now_ns;

	sent_ns += segment->len * 1000000000ull / sim->options.net_bytes_per_s;
	host->net_free_ns = sent_ns;
	segment->arrives_ns = sent_ns + sim_latency(sim, host, sim_peer(end)->host);
	if (segment->arrives_ns < end->last_arrival_ns)
		segment->arrives_ns = end->last_arrival_ns;
	end->last_arrival_ns = segment->arrives_ns;
	list_push_back(&end->flight, &segment->link);
	end->flight_bytes += segment->len;
	if (!end->delivery.node.idx)
		sim__schedule(sim, &end->delivery, segment->arrives_ns);
}

static struct sim_segment *sim_segment_new(uint32_t len, bool is_fin)
{
	struct sim_segment *segment = mem_alloc(sizeof(*segment) + len);

	*segment = (struct sim_segment){.len = len, .is_fin = is_fin};
	return segment;
}

static void sim_drop_segments(struct list *segments)
{
	struct list *n;

	while ((n = list_pop_front(segments)))
		mem_free(LIST_ENTRY(n, struct sim_segment, link));
}

static void sim_drop_flight(struct sim_end *end)
{
	sim__unschedule(end->host->sim, &end->delivery);
	sim_drop_segments(&end->flight);
	end->flight_bytes = 0;
}

static void sim_send_reset(struct sim_end *to)
{
	struct sim *sim = to->host->sim;

	if (to->is_held && !to->is_reset && !to->reset.node.idx)
		sim__schedule(sim, &to->reset, sim->now_ns + sim_latency(sim, to->host, sim_peer(to)->host));
}

static void sim_send_fin(struct sim_end *end)
{
	if (end->has_sent_fin || end->is_reset)
		return;
	end->has_sent_fin = true;
	sim_fly(end, sim_segment_new(0, true));
}

/* ---- sending ---- */

/* Copies `len` bytes of the vector from `skip` on. */
static void sim_gather(const struct iovec *iov, int iov_count, uint64_t skip, uint8_t *out, size_t len)
{
	for (int i = 0; i < iov_count && len > 0; i++) {
		size_t n;

		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		n = iov[i].iov_len - skip < len ? iov[i].iov_len - skip : len;
		memcpy(out, (const uint8_t *)iov[i].iov_base + skip, n);
		out += n;
		len -= n;
		skip = 0;
	}
}

static void sim_scatter(const struct iovec *iov, int iov_count, uint64_t skip, const uint8_t *in, size_t len)
{
	for (int i = 0; i < iov_count && len > 0; i++) {
		size_t n;

		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		n = iov[i].iov_len - skip < len ? iov[i].iov_len - skip : len;
		memcpy((uint8_t *)iov[i].iov_base + skip, in, n);
		in += n;
		len -= n;
		skip = 0;
	}
}

/* Lets the end's sends go on as far as the window allows. */
static void sim_pump(struct sim_end *end)
{
	struct sim_end *peer = sim_peer(end);

	while (!list_empty(&end->send_ops)) {
		struct io_op *op = LIST_ENTRY(end->send_ops.next, struct io_op, link);
		struct sim_op *s = sim_op_of(op);
		uint64_t total = io__iov_bytes(op->rw.iov, op->rw.iov_count);
		uint64_t used = end->flight_bytes + peer->inbox_bytes, want = total - s->progress;
		struct sim_segment *segment;

		if (end->is_reset || end->is_shut) {
			sim__ready(end->host, op, ERR_CONNRESET);
			continue;
		}
		if (want == 0) {
			sim__ready(end->host, op, (int64_t)total);
			continue;
		}
		if (used >= SIM_NET_WINDOW)
			return;
		if (want > SIM_NET_WINDOW - used)
			want = SIM_NET_WINDOW - used;
		segment = sim_segment_new(sim_piece(end->host->sim, want), false);
		sim_gather(op->rw.iov, op->rw.iov_count, s->progress, segment->data, segment->len);
		s->crc = crc32c_extend(s->crc, segment->data, segment->len);
		s->progress += segment->len;
		sim_fly(end, segment);
	}
}

/* ---- receiving ---- */

/* True: something was taken out of the inbox. */
static bool sim_take(struct sim_end *end, struct io_op *op, uint64_t total)
{
	struct sim_op *s = sim_op_of(op);
	bool has_taken = false;

	while (s->progress < total && !list_empty(&end->inbox)) {
		struct sim_segment *segment = LIST_ENTRY(end->inbox.next, struct sim_segment, link);
		uint64_t n = segment->len - segment->taken;

		if (n > total - s->progress)
			n = total - s->progress;
		sim_scatter(op->rw.iov, op->rw.iov_count, s->progress, segment->data + segment->taken, n);
		s->progress += n;
		segment->taken += (uint32_t)n;
		end->inbox_bytes -= n;
		has_taken = true;
		if (segment->taken == segment->len) {
			list_remove(&segment->link);
			mem_free(segment);
		}
	}
	return has_taken;
}

static void sim_serve(struct sim_end *end)
{
	bool has_taken = false;

	while (!list_empty(&end->recv_ops)) {
		struct io_op *op = LIST_ENTRY(end->recv_ops.next, struct io_op, link);
		struct sim_op *s = sim_op_of(op);
		uint64_t total = io__iov_bytes(op->rw.iov, op->rw.iov_count);

		has_taken |= sim_take(end, op, total);
		if (s->progress == total || (s->progress > 0 && !(op->flags & IO_RECV_ALL)))
			sim__ready(end->host, op, (int64_t)s->progress);
		else if (end->is_reset)
			sim__ready(end->host, op, ERR_CONNRESET);
		else if (end->has_fin || end->is_shut)
			sim__ready(end->host, op, s->progress ? ERR_CONNRESET : 0);
		else
			break;
	}
	if (has_taken)
		sim_pump(sim_peer(end));
}

static void sim_arrived(struct sim_end *end, struct sim_segment *segment)
{
	struct sim_end *peer = sim_peer(end);

	if (!peer->is_held || peer->is_reset || peer->is_shut) {
		/* A closed socket answers data with a reset. */
		if (!segment->is_fin && !peer->is_held)
			sim_send_reset(end);
		mem_free(segment);
	} else if (segment->is_fin) {
		peer->has_fin = true;
		mem_free(segment);
	} else {
		list_push_back(&peer->inbox, &segment->link);
		peer->inbox_bytes += segment->len;
	}
}

static void sim_deliver(struct sim *sim, struct sim_event *event)
{
	struct sim_end *end = CONTAINER_OF(event, struct sim_end, delivery);
	struct sim_end *peer = sim_peer(end);

	if (sim_is_cut(end->host, peer->host)) {
		sim__schedule(sim, event, sim->now_ns + sim_retry_delay(end->tries++));
		return;
	}
	end->tries = 0;
	while (!list_empty(&end->flight)) {
		struct sim_segment *segment = LIST_ENTRY(end->flight.next, struct sim_segment, link);

		if (segment->arrives_ns > sim->now_ns) {
			sim__schedule(sim, event, segment->arrives_ns);
			break;
		}
		list_remove(&segment->link);
		end->flight_bytes -= segment->len;
		sim_arrived(end, segment);
	}
	if (peer->is_held)
		sim_serve(peer);
	if (end->is_held)
		sim_pump(end);
}

static void sim_reset_arrived(struct sim *sim, struct sim_event *event)
{
	struct sim_end *end = CONTAINER_OF(event, struct sim_end, reset);
	struct sim_end *peer = sim_peer(end);

	if (sim_is_cut(end->host, peer->host)) {
		sim__schedule(sim, event, sim->now_ns + sim_retry_delay(2));
		return;
	}
	end->is_reset = true;
	sim_drop_flight(end);
	sim_drop_flight(peer);
	sim__log(sim, end->host, "reset", (int64_t)end->conn->number, 0, 0);
	sim_pump(end);
	sim_serve(end);
}

void sim__net_reset(struct sim_host *host, const struct sim_host *other)
{
	for (size_t fd = 0; fd < host->fd_cap; fd++) {
		struct sim_end *end = host->fds[fd].object;

		if (host->fds[fd].kind != SIM_FD_END || sim_peer(end)->host != other)
			continue;
		sim_send_reset(end);
		sim_send_reset(sim_peer(end));
	}
}

/* ---- life of a connection ---- */

static void sim_end_init(struct sim_conn *conn, struct sim_end *end, struct sim_host *host, const struct io_addr *addr)
{
	end->conn = conn;
	end->host = host;
	end->addr = *addr;
	end->is_held = true;
	list_init(&end->inbox);
	list_init(&end->recv_ops);
	list_init(&end->send_ops);
	list_init(&end->flight);
	list_init(&end->backlog_link);
	end->delivery.run = sim_deliver;
	end->reset.run = sim_reset_arrived;
}

static struct sim_conn *sim_conn_new(struct sim_host *from, struct sim_host *to, const struct io_addr *to_addr)
{
	struct sim_conn *conn = MEM_NEW(struct sim_conn);
	struct io_addr from_addr = sim_host_addr(&from->io, from->next_port);

	from->next_port = from->next_port == UINT16_MAX ? 32768 : (uint16_t)(from->next_port + 1);
	conn->number = from->sim->next_conn++;
	sim_end_init(conn, &conn->ends[0], from, &from_addr);
	sim_end_init(conn, &conn->ends[1], to, to_addr);
	return conn;
}

static void sim_conn_free(struct sim_conn *conn)
{
	for (int i = 0; i < 2; i++) {
		struct sim_end *end = &conn->ends[i];

		CHECK(list_empty(&end->recv_ops) && list_empty(&end->send_ops));
		sim_drop_flight(end);
		sim_drop_segments(&end->inbox);
		sim__unschedule(end->host->sim, &end->reset);
	}
	mem_free(conn);
}

/* The host lets go of it: orderly, or so that the peer gets a reset. */
static void sim_end_release(struct sim_end *end, bool is_abort)
{
	struct sim_end *peer = sim_peer(end);
	bool has_unread = end->inbox_bytes > 0;

	CHECK(list_empty(&end->recv_ops) && list_empty(&end->send_ops));
	end->is_held = false;
	sim__unschedule(end->host->sim, &end->reset);
	if (!peer->is_held) {
		sim_conn_free(end->conn);
		return;
	}
	sim_drop_segments(&end->inbox);
	end->inbox_bytes = 0;
	if (is_abort || has_unread)
		sim_send_reset(peer);
	else
		sim_send_fin(end);
}

/* ---- listening, accepting, connecting ---- */

static struct sim_listener *sim_find_listener(struct sim_host *host, uint16_t port)
{
	LIST_FOREACH(n, &host->listeners) {
		struct sim_listener *listener = LIST_ENTRY(n, struct sim_listener, link);

		if (listener->addr.port == port)
			return listener;
	}
	return NULL;
}

static struct sim_host *sim_find_host(struct sim_host *from, const struct io_addr *addr)
{
	if (addr->family != 4)
		return NULL;
	if (addr->ip[0] == 127)
		return from;
	if (addr->ip[0] != 10 || addr->ip[1] || addr->ip[2] || !addr->ip[3] || addr->ip[3] > from->sim->host_count)
		return NULL;
	return from->sim->hosts[addr->ip[3] - 1];
}

int sim__net_listen(struct io *io, const struct io_addr *addr, int *ret_fd, struct io_addr *ret_bound, struct err *err)
{
	struct sim_host *host = sim_host_of(io);
	char text[IO_ADDR_TEXT_BYTES];
	struct io_addr bound = *addr;
	bool is_any = addr->family == 4 && !addr->ip[0];
	struct sim_listener *listener;

	if (!is_any && sim_find_host(host, addr) != host)
		return err_set(err, ERR_ADDRNOTAVAIL, "cannot listen on %s: %s", io_addr_format(addr, text),
			err_text(ERR_ADDRNOTAVAIL));
	while (!bound.port) {
		if (!sim_find_listener(host, host->next_port))
			bound.port = host->next_port;
		host->next_port = host->next_port == UINT16_MAX ? 32768 : (uint16_t)(host->next_port + 1);
	}
	if (sim_find_listener(host, bound.port))
		return err_set(err, ERR_ADDRINUSE, "cannot listen on %s: %s", io_addr_format(addr, text),
			err_text(ERR_ADDRINUSE));
	listener = MEM_NEW(struct sim_listener);
	listener->host = host;
	listener->addr = bound;
	list_init(&listener->accept_ops);
	list_init(&listener->backlog);
	list_push_back(&host->listeners, &listener->link);
	*ret_fd = sim__fd_new(host, SIM_FD_LISTENER, listener);
	*ret_bound = bound;
	return 0;
}

static void sim_accept_waiting(struct sim_listener *listener)
{
	while (!list_empty(&listener->accept_ops) && !list_empty(&listener->backlog)) {
		struct io_op *op = LIST_ENTRY(listener->accept_ops.next, struct io_op, link);
		struct sim_end *end = LIST_ENTRY(list_pop_front(&listener->backlog), struct sim_end, backlog_link);

		listener->backlog_count--;
		op->accept.peer = sim_peer(end)->addr;
		sim__ready(listener->host, op, sim__fd_new(listener->host, SIM_FD_END, end));
	}
}

static void sim_connect_answered(struct sim *sim, struct sim_event *event)
{
	struct io_op *op = sim_op_of_event(event);
	struct sim_op *s = sim_op_of(op);
	struct sim_end *end = s->object;

	(void)sim;
	s->object = NULL;
	sim__ready(s->host, op, end ? sim__fd_new(s->host, SIM_FD_END, end) : (int64_t)s->progress);
}

static void sim_connect_answer(struct io_op *op, struct sim_host *to, int result)
{
	struct sim_op *s = sim_op_of(op);
	struct sim *sim = s->host->sim;

	s->stage = SIM_CONNECT_ANSWER;
	s->progress = (uint64_t)(int64_t)result;
	sim__op_later(s->host, op, sim->now_ns + sim_latency(sim, s->host, to), sim_connect_answered);
}

/* The SYN arrives. s->progress: when to give up. */
static void sim_connect_arrived(struct sim *sim, struct sim_event *event)
{
	struct io_op *op = sim_op_of_event(event);
	struct sim_op *s = sim_op_of(op);
	struct sim_host *to = sim_find_host(s->host, &op->connect.to);
	struct sim_listener *listener;
	struct sim_conn *conn;

	if (sim_is_cut(s->host, to) || sim_is_cut(to, s->host)) { /* it needs an answer, too */
		if (sim->now_ns >= s->progress)
			sim__ready(s->host, op, ERR_TIMEDOUT);
		else
			sim__schedule(sim, event, sim->now_ns + sim_retry_delay(2));
		return;
	}
	listener = to->is_up ? sim_find_listener(to, op->connect.to.port) : NULL;
	if (!listener || listener->backlog_count >= SIM_NET_BACKLOG) {
		sim_connect_answer(op, to, ERR_CONNREFUSED);
		return;
	}
	conn = sim_conn_new(s->host, to, &listener->addr);
	s->object = &conn->ends[0];
	list_push_back(&listener->backlog, &conn->ends[1].backlog_link);
	listener->backlog_count++;
	sim_connect_answer(op, to, 0);
	sim_accept_waiting(listener);
}

static void sim_connect_start(struct sim_host *host, struct io_op *op)
{
	struct sim *sim = host->sim;
	struct sim_host *to = sim_find_host(host, &op->connect.to);

	if (!to) {
		sim__ready(host, op, ERR_HOSTUNREACH);
		return;
	}
	sim_op_of(op)->progress = sim->now_ns + SIM_NET_CONNECT_NS;
	sim__op_later(host, op, sim->now_ns + sim_latency(sim, host, to), sim_connect_arrived);
}

/* ---- the rows of sim.c ---- */

bool sim__net_submit(struct sim_host *host, struct io_op *op)
{
	struct sim_listener *listener;
	struct sim_end *end;

	switch (op->kind) {
	case IO_CONNECT:
		sim_connect_start(host, op);
		return true;
	case IO_ACCEPT:
		listener = sim__fd_get(host, op->fd, SIM_FD_LISTENER);
		if (!listener) {
			sim__ready(host, op, ERR_BADF);
			return true;
		}
		list_push_back(&listener->accept_ops, &op->link);
		sim_accept_waiting(listener);
		return true;
	case IO_SEND:
	case IO_RECV:
		end = sim__fd_get(host, op->fd, SIM_FD_END);
		if (!end) {
			sim__ready(host, op, ERR_BADF);
			return true;
		}
		list_push_back(op->kind == IO_SEND ? &end->send_ops : &end->recv_ops, &op->link);
		if (op->kind == IO_SEND)
			sim_pump(end);
		else
			sim_serve(end);
		return true;
	default:
		return false;
	}
}

void sim__net_cancel(struct sim_host *host, struct io_op *op)
{
	struct sim_end *end = op->kind == IO_CONNECT ? sim_op_of(op)->object : NULL;

	if (op->kind == IO_CONNECT)
		sim__unschedule(host->sim, &sim_op_of(op)->event);
	sim__ready(host, op, ERR_CANCELED);
	if (end)
		sim_end_release(end, false);
}

void sim__net_shutdown(struct io *io, int fd)
{
	struct sim_end *end = sim__fd_get(sim_host_of(io), fd, SIM_FD_END);

	if (!end || end->is_shut)
		return;
	sim_send_fin(end);
	end->is_shut = true;
	sim_pump(end);
	sim_serve(end);
}

static void sim_listener_release(struct sim_listener *listener, bool has_crashed)
{
	struct list *n;

	while (has_crashed && (n = list_pop_front(&listener->accept_ops)))
		sim__drop_op(LIST_ENTRY(n, struct io_op, link));
	CHECK(list_empty(&listener->accept_ops));
	while ((n = list_pop_front(&listener->backlog)))
		sim_end_release(LIST_ENTRY(n, struct sim_end, backlog_link), true);
	list_remove(&listener->link);
	mem_free(listener);
}

void sim__net_close(struct sim_host *host, enum sim_fd_kind kind, void *object)
{
	(void)host;
	if (kind == SIM_FD_LISTENER)
		sim_listener_release(object, false);
	else
		sim_end_release(object, false);
}

static void sim_end_crash(struct sim_end *end)
{
	struct list *n;

	while ((n = list_pop_front(&end->recv_ops)))
		sim__drop_op(LIST_ENTRY(n, struct io_op, link));
	while ((n = list_pop_front(&end->send_ops)))
		sim__drop_op(LIST_ENTRY(n, struct io_op, link));
	/* What was sent may still arrive, or was lost with the machine. */
	if (rng_chance(&end->host->sim->rng, 1, 2))
		sim_drop_flight(end);
	sim_end_release(end, true);
}

void sim__net_crash_fd(struct sim_host *host, enum sim_fd_kind kind, void *object)
{
	(void)host;
	if (kind == SIM_FD_LISTENER)
		sim_listener_release(object, true);
	else
		sim_end_crash(object);
}

void sim__net_crash_op(struct sim_host *host, struct io_op *op)
{
	struct sim_end *end = sim_op_of(op)->object;

	(void)host;
	if (end)
		sim_end_crash(end);
}

/* The second of both ends takes the connection along. Waiting operations are not touched. */
static void sim_end_free(struct sim_end *end)
{
	list_init(&end->recv_ops);
	list_init(&end->send_ops);
	end->is_held = false;
	if (!sim_peer(end)->is_held)
		sim_conn_free(end->conn);
}

void sim__net_free_fd(enum sim_fd_kind kind, void *object)
{
	struct sim_listener *listener = object;
	struct list *n;

	if (kind == SIM_FD_END) {
		sim_end_free(object);
		return;
	}
	while ((n = list_pop_front(&listener->backlog)))
		sim_end_free(LIST_ENTRY(n, struct sim_end, backlog_link));
	mem_free(listener);
}
