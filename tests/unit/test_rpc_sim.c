/* SPDX-License-Identifier: Apache-2.0 */
/* What takes time or chance: crashes, cuts, silence, and long random runs, in the simulator. */
#include "tests/lib/no_leaks.h"
#include "tests/lib/rpc_bed.h"

#include "common/base/rng.h"

#define MS ((uint64_t)1000000)

static bool one_held(void *ctx)
{
	return ((struct bed *)ctx)->held_count > 0;
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

/* A server that crashes breaks the calls that it has; after its restart the same peer goes on. */
START_TEST(test_crash_and_restart)
{
	struct bed_call *bc = bed_call_new(BED_HOLD, 50000, 1);
	struct io_addr addr;
	struct bed bed;

	bed_open_sim(&bed, 1, NULL, true);
	addr = rpc_server_addr(bed.server);
	rpc_call_start(bed.peer, &bc->call);
	BED_WAIT(&bed, one_held, &bed);
	sim_host_crash(bed.server_io);
	BED_WAIT(&bed, bed_call_is_done, bc);
	ck_assert_int_eq(bc->status, ERR_CONNRESET);
	bed_call_free(bc);

	sim_host_restart(bed.server_io);
	list_init(&bed.held);
	bed.held_count = bed.reqs = 0;
	bed_serve(&bed, addr, true);
	bc = bed_call_new(BED_ECHO, 50000, 1);
	bed_call_run(&bed, bed.peer, bc, 0);
	ck_assert_mem_eq(bc->in, bc->out, 50000);
	bed_call_free(bc);
	bed_close(&bed);
}
END_TEST

static int refusals;
static struct rpc_peer *knocking;

static void knock_again(struct bed_call *bc)
{
	ck_assert_int_eq(bc->status, ERR_CONNREFUSED);
	bc->done = 0;
	if (++refusals < 1000)
		rpc_call_start(knocking, &bc->call);
}

/* Whoever knocks again at once, for ten seconds, is held back by the peer. */
START_TEST(test_backoff)
{
	struct bed_call *bc = bed_call_new(BED_ECHO, 10, 1);
	struct bed bed;

	bed_open_sim(&bed, 7, NULL, false);
	bed_close_server(&bed);
	knocking = bed.peer;
	bc->on_done = knock_again;
	rpc_call_start(bed.peer, &bc->call);
	ck_assert(!bed.run(&bed, never, NULL, 10000));
	ck_assert_int_gt(refusals, 5);
	ck_assert_int_lt(refusals, 60);
	bc->on_done = NULL;
	bed_close(&bed);
	bed_call_free(bc);
}
END_TEST

/* Messages vanish: calls end at their deadlines, and a connection on which nothing was heard for 10 s is given up. */
START_TEST(test_cut)
{
	struct bed_call *first = bed_call_new(BED_ECHO, 100, 1), *lost = bed_call_new(BED_ECHO, 100, 2);
	struct bed_call *forever = bed_call_new(BED_HOLD, 0, 3), *after = bed_call_new(BED_ECHO, 100, 4);
	struct bed bed;

	bed_open_sim(&bed, 2, NULL, false);
	bed_call_run(&bed, bed.peer, first, 0);
	sim_cut(bed.client_io, bed.server_io);
	forever->call.deadline_ns = sim_now_ns(bed.sim) + 3600000 * MS;
	rpc_call_start(bed.peer, &forever->call);
	lost->call.deadline_ns = sim_now_ns(bed.sim) + 11000 * MS;
	bed_call_run(&bed, bed.peer, lost, ERR_TIMEDOUT);
	BED_WAIT(&bed, bed_call_is_done, forever);
	ck_assert_int_eq(forever->status, ERR_CONNRESET);
	sim_heal(bed.client_io, bed.server_io);
	after->call.deadline_ns = sim_now_ns(bed.sim) + 15000 * MS;
	bed_call_run(&bed, bed.peer, after, 0);
	bed_call_free(first);
	bed_call_free(lost);
	bed_call_free(forever);
	bed_call_free(after);
	bed_close(&bed);
}
END_TEST

/* ---- clients that stop talking, by bare operations on a third host ---- */

struct mute {
	struct io_op connect_op, send_op, recv_op;
	struct iovec out, in;
	uint8_t bytes[256], sink[4096];
	int fd;
	bool sent, closed;
	struct io *io;
};

static void mute_on_recv(struct io_op *op)
{
	struct mute *m = CONTAINER_OF(op, struct mute, recv_op);

	m->closed = op->result <= 0;
	if (!m->closed) {
		io_prep_recv(op, m->fd, &m->in, 1, 0, mute_on_recv);
		io_submit(m->io, op);
	}
}

static void mute_on_send(struct io_op *op)
{
	CONTAINER_OF(op, struct mute, send_op)->sent = true;
}

static void mute_on_connect(struct io_op *op)
{
	struct mute *m = CONTAINER_OF(op, struct mute, connect_op);

	ck_assert_int_ge(op->result, 0);
	m->fd = (int)op->result;
	m->in = (struct iovec){m->sink, sizeof(m->sink)};
	io_prep_recv(&m->recv_op, m->fd, &m->in, 1, 0, mute_on_recv);
	io_submit(m->io, &m->recv_op);
	if (m->out.iov_len) {
		io_prep_send(&m->send_op, m->fd, &m->out, 1, mute_on_send);
		io_submit(m->io, &m->send_op);
	}
}

static bool mute_is_closed(void *ctx)
{
	return ((struct mute *)ctx)->closed;
}

/* Returns after how many ms the server gave up. */
static uint64_t mute_run(struct bed *bed, struct mute *m)
{
	uint64_t start = sim_now_ns(bed->sim);
	struct io_addr to = rpc_server_addr(bed->server);

	m->io = bed->client_io;
	io_prep_connect(&m->connect_op, &to, mute_on_connect);
	io_submit(m->io, &m->connect_op);
	ck_assert(bed->run(bed, mute_is_closed, m, 120000));
	io_close(m->io, m->fd);
	return (sim_now_ns(bed->sim) - start) / MS;
}

START_TEST(test_half_open)
{
	struct rpc_stats stats;
	struct mute m = {0};
	uint64_t ms;
	struct bed bed;

	bed_open_sim(&bed, 3, NULL, false);
	ms = mute_run(&bed, &m);
	ck_assert_uint_ge(ms, LIMIT_HELLO_MS);
	ck_assert_uint_le(ms, LIMIT_HELLO_MS + 3000);

	/* It began one. */
	m = (struct mute){.bytes = "CRF1\1\1"};
	m.out = (struct iovec){m.bytes, 20};
	ms = mute_run(&bed, &m);
	ck_assert_uint_ge(ms, LIMIT_HELLO_MS);
	ck_assert_uint_le(ms, LIMIT_HELLO_MS + 3000);
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.conns_open, 0);
	ck_assert_uint_eq(stats.malformed, 0);
	ck_assert_uint_eq(bed.refused.of[REFUSED_NO_HELLO].count, 2);
	ck_assert_uint_eq(bed.refused.of[REFUSED_MALFORMED].count, 0);
	bed_close(&bed);
}
END_TEST

/* Those that are kept for servers of the same role, too: their hosts are gone. */
START_TEST(test_idle_kin_make_room)
{
	struct bed_call *first = bed_call_new(BED_ECHO, 10, 1), *other = bed_call_new(BED_ECHO, 10, 2);
	struct bed_call *refused = bed_call_new(BED_ECHO, 10, 3), *again = bed_call_new(BED_ECHO, 10, 4);
	struct rpc_identity self = bed_identity(RPC_ROLE_CHUNKD, "chunkd-2");
	struct rpc_server_options so = {
		.self = bed_identity(RPC_ROLE_CHUNKD, "chunkd-1"), .handlers = bed_handlers, .max_conns = 1, .kin_conns = 1};
	struct rpc_peer *gone, *next;
	bool closed = false;
	struct bed bed;

	bed_open_sim(&bed, 7, NULL, false);
	so.listen = rpc_peer_addr(bed.peer)[0];
	bed_reopen_server(&bed, &so);
	bed_call_run(&bed, bed.peer, other, 0); /* a client has the other place, and uses it */
	gone = bed_peer(&bed, &self, 1, false);
	bed_call_run(&bed, gone, first, 0);
	ck_assert(!bed.run(&bed, never, NULL, 61000));
	bed_touch(&bed);
	other->done = 0;
	other->call.deadline_ns = 0;
	bed_call_run(&bed, bed.peer, other, 0);
	next = bed_peer(&bed, &self, 1, false);
	bed_call_run(&bed, next, refused, ERR_CONNRESET); /* it makes the room */
	bed_call_run(&bed, next, again, 0);
	ck_assert_uint_eq(bed.refused.of[REFUSED_IDLE].count, 1);
	rpc_peer_close(gone, bed_set_true, &closed);
	BED_WAIT(&bed, bed_is_true, &closed);
	closed = false;
	rpc_peer_close(next, bed_set_true, &closed);
	BED_WAIT(&bed, bed_is_true, &closed);
	bed_close(&bed);
	bed_call_free(first);
	bed_call_free(other);
	bed_call_free(refused);
	bed_call_free(again);
}
END_TEST

/* All places are taken by clients that have gone silent: after a minute one of them makes room. */
START_TEST(test_idle_connections_make_room)
{
	struct bed_call *bc = bed_call_new(BED_ECHO, 10, 1), *refused = bed_call_new(BED_ECHO, 10, 2);
	struct bed_call *again = bed_call_new(BED_ECHO, 10, 3);
	struct rpc_identity self = bed_identity(RPC_ROLE_CLIENT, "late");
	struct rpc_server_options so = {
		.self = bed_identity(RPC_ROLE_CHUNKD, "chunkd-1"), .handlers = bed_handlers, .max_conns = 1};
	struct rpc_peer *late;
	bool closed = false;
	struct bed bed;

	bed_open_sim(&bed, 6, NULL, false);
	so.listen = rpc_peer_addr(bed.peer)[0];
	bed_reopen_server(&bed, &so);
	bed_call_run(&bed, bed.peer, bc, 0);
	late = bed_peer(&bed, &self, 1, false);
	bed_call_run(&bed, late, refused, ERR_CONNRESET);
	ck_assert(!bed.run(&bed, never, NULL, 61000));
	bed_touch(&bed);
	refused->done = 0;
	refused->call.deadline_ns = 0;
	bed_call_run(&bed, late, refused, ERR_CONNRESET); /* it makes the room */
	bed_call_run(&bed, late, again, 0);
	ck_assert_uint_eq(bed.refused.of[REFUSED_CONNECTIONS].count, 2);
	ck_assert_uint_eq(bed.refused.of[REFUSED_IDLE].count, 1);
	rpc_peer_close(late, bed_set_true, &closed);
	BED_WAIT(&bed, bed_is_true, &closed);
	bed_call_free(bc);
	bed_call_free(refused);
	bed_call_free(again);
	bed_close(&bed);
}
END_TEST

static bool is_abandoned(void *ctx)
{
	return ((struct bed *)ctx)->abandoned > 0;
}

static bool is_placed(void *ctx)
{
	return ((struct bed *)ctx)->placed > 0;
}

/* A payload that stops half-way: its buffer is the handler's again after a while. */
START_TEST(test_stalled_payload)
{
	struct bed_call *bc = bed_call_new(BED_ECHO, 1 << 20, 1), *hello = bed_call_new(BED_ECHO, 0, 2);
	uint64_t start;
	struct bed bed;

	bed_open_sim(&bed, 4, NULL, true);
	bed_call_run(&bed, bed.peer, hello, 0);
	rpc_call_start(bed.peer, &bc->call);
	BED_WAIT(&bed, is_placed, &bed);
	sim_cut(bed.client_io, bed.server_io);
	start = sim_now_ns(bed.sim);
	ck_assert(bed.run(&bed, is_abandoned, &bed, 120000));
	ck_assert_uint_le(sim_now_ns(bed.sim) - start, (LIMIT_STALL_MS + 3000) * MS);
	ck_assert_uint_eq(bed.refused.of[REFUSED_STALLED].count, 1);
	ck_assert_uint_eq(bed.refused.of[REFUSED_NO_HELLO].count, 0);
	sim_heal(bed.client_io, bed.server_io);
	rpc_peer_reset(bed.peer, ERR_STALE);
	BED_WAIT(&bed, bed_call_is_done, bc);
	ck_assert_int_eq(bc->status, ERR_STALE);
	bed_call_free(bc);
	bed_call_free(hello);
	bed_close(&bed);
}
END_TEST

/* ---- chance ---- */

enum { SOAK_CALLS = 400 };

struct soak {
	struct bed bed;
	struct rng rng;
	struct bed_call *calls[SOAK_CALLS];
	int started, done, ok;
	struct io_op timer;
	bool cut, over;
};

static void soak_done(struct bed_call *bc)
{
	struct soak *s = bc->ctx;

	ck_assert_int_eq(bc->done, 1);
	s->done++;
	if (bc->status == 0) {
		s->ok++;
		if (bc->msg.offset == BED_ECHO && bc->len)
			ck_assert(memcmp(bc->in, bc->out, bc->len) == 0);
	}
	/* The buffers are ours again: whoever still wrote to them would be caught. */
	mem_free(bc->out);
	mem_free(bc->in);
	bc->out = bc->in = NULL;
}

static void soak_start(struct soak *s)
{
	static const enum bed_op ops[] = {BED_ECHO, BED_ECHO, BED_ECHO, BED_STREAM, BED_HOLD, BED_FAIL, BED_REFUSE};
	enum bed_op op = ops[rng_below(&s->rng, ARRAY_COUNT(ops))];
	uint32_t len = (uint32_t)rng_below(&s->rng, rng_chance(&s->rng, 1, 4) ? 300000 : 3000);
	struct bed_call *bc = bed_call_new(op, len, (uint32_t)s->started);

	bc->ctx = s;
	bc->on_done = soak_done;
	bc->msg.announced_bytes = rng_below(&s->rng, 8);
	bc->call.deadline_ns =
		io_now_ns(s->bed.client_io) + rng_between(&s->rng, 1, rng_chance(&s->rng, 1, 3) ? 20 : 5000) * MS;
	s->calls[s->started++] = bc;
	rpc_call_start(s->bed.peer, &bc->call);
}

static void soak_step(struct io_op *op)
{
	struct soak *s = CONTAINER_OF(op, struct soak, timer);

	if (s->over)
		return;
	for (uint64_t n = rng_below(&s->rng, 6); n > 0 && s->started < SOAK_CALLS; n--)
		soak_start(s);
	if (s->started && rng_chance(&s->rng, 1, 3))
		rpc_call_cancel(&s->calls[rng_below(&s->rng, (uint64_t)s->started)]->call);
	if (rng_chance(&s->rng, 1, 4))
		bed_release(&s->bed);
	if (rng_chance(&s->rng, 1, 100))
		rpc_peer_reset(s->bed.peer, ERR_STALE);
	if (rng_chance(&s->rng, 1, s->cut ? 10 : 300)) {
		s->cut = !s->cut;
		(s->cut ? sim_cut : sim_heal)(s->bed.client_io, s->bed.server_io);
	}
	io_prep_timer(&s->timer, io_now_ns(s->bed.client_io) + rng_below(&s->rng, 3 * MS), soak_step);
	io_submit(s->bed.client_io, &s->timer);
}

static bool soak_is_done(void *ctx)
{
	struct soak *s = ctx;

	return s->done == SOAK_CALLS;
}

static bool soak_is_idle(void *ctx)
{
	return !io_pending(&((struct soak *)ctx)->timer);
}

static uint64_t soak_run(uint64_t seed, int *ret_ok)
{
	struct soak *s = MEM_NEW(struct soak);
	uint64_t hash;

	bed_open_sim(&s->bed, seed, seed & 1 ? &rpc_transform_xor : NULL, seed & 2);
	rng_init(&s->rng, seed);
	io_prep_timer(&s->timer, 0, soak_step);
	io_submit(s->bed.client_io, &s->timer);
	ck_assert(s->bed.run(&s->bed, soak_is_done, s, 600000));
	s->over = true;
	if (s->cut)
		sim_heal(s->bed.client_io, s->bed.server_io);
	ck_assert(s->bed.run(&s->bed, soak_is_idle, s, 60000));
	*ret_ok = s->ok;
	for (int i = 0; i < SOAK_CALLS; i++)
		bed_call_free(s->calls[i]);
	if (!s->bed.peer_closed)
		bed_close_peer(&s->bed);
	rpc_server_close(s->bed.server, bed_set_true, &s->bed.server_closed);
	while (!s->bed.run(&s->bed, bed_is_true, &s->bed.server_closed, 100))
		bed_release(&s->bed);
	hash = sim_event_hash(s->bed.sim);
	bed_close(&s->bed);
	mem_free(s);
	return hash;
}

/* Each call ends once, with its buffers free; what is answered is right; nothing is left over. */
START_TEST(test_soak)
{
	int ok = 0, total = 0;

	for (uint64_t seed = 1; seed <= 12; seed++) {
		soak_run(seed, &ok);
		total += ok;
	}
	ck_assert_int_gt(total, 12 * SOAK_CALLS / 4);
}
END_TEST

START_TEST(test_same_seed_same_run)
{
	int ok;

	for (uint64_t seed = 20; seed < 22; seed++)
		ck_assert_uint_eq(soak_run(seed, &ok), soak_run(seed, &ok));
	ck_assert_uint_ne(soak_run(20, &ok), soak_run(21, &ok));
}
END_TEST

/* An idle pair makes no events but the server's look around. */
START_TEST(test_idle_is_quiet)
{
	struct bed_call *bc = bed_call_new(BED_ECHO, 10, 1);
	uint64_t before;
	struct bed bed;

	bed_open_sim(&bed, 5, NULL, false);
	bed_call_run(&bed, bed.peer, bc, 0);
	bed_call_free(bc);
	before = sim_event_count(bed.sim);
	ck_assert(!bed.run(&bed, never, NULL, 60000));
	ck_assert_uint_le(sim_event_count(bed.sim) - before, 80);
	bed_close(&bed);
}
END_TEST

enum { FORGOTTEN = 20 };

static bool all_held(void *ctx)
{
	return ((struct bed *)ctx)->held_count == FORGOTTEN;
}

/* Requests whose messages were given up before their answers: each gets its own answer, whatever came into that memory since. */
START_TEST(test_messages_forgotten)
{
	struct bed_call *forgotten[FORGOTTEN], *echo;
	struct bed bed;

	bed_open_sim(&bed, 6, NULL, false);
	for (uint32_t i = 0; i < FORGOTTEN; i++) {
		forgotten[i] = bed_call_new(BED_FORGET, 0, i);
		rpc_call_start(bed.peer, &forgotten[i]->call);
	}
	BED_WAIT(&bed, all_held, &bed);
	echo = bed_call_new(BED_ECHO, 100, 77);
	bed_call_run(&bed, bed.peer, echo, 0);
	bed_release(&bed);
	for (int i = 0; i < FORGOTTEN; i++) {
		BED_WAIT(&bed, bed_call_is_done, forgotten[i]);
		ck_assert_int_eq(forgotten[i]->status, 0);
		bed_call_free(forgotten[i]);
	}
	bed_call_free(echo);
	bed_close(&bed);
}
END_TEST

UNIT_MAIN("rpc_sim", test_crash_and_restart, test_backoff, test_cut, test_half_open, test_idle_connections_make_room, test_idle_kin_make_room,
	test_stalled_payload, test_soak, test_same_seed_same_run, test_idle_is_quiet, test_messages_forgotten)
