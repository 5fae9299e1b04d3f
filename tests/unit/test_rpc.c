/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and answers on both real back ends and the simulated one; plain and transformed; control and bulk. */
#include "tests/lib/rpc_bed.h"

static bool has_backend(enum io_backend backend)
{
	struct io *probe;

	/* io_uring is forbidden in some places; epoll never is. */
	if (io_new(backend, &probe, NULL)) {
		ck_assert_int_eq(backend, IO_BACKEND_URING);
		return false;
	}
	io_free(probe);
	return true;
}

/* Runs `body` in variants of the bed: bit 0 the transform, bit 1 bulk. */
static void beds(void (*body)(struct bed *bed), unsigned variants)
{
	static const struct rpc_transform *const transforms[] = {NULL, &rpc_transform_xor};

	enum { SIM = IO_BACKEND_EPOLL + 1 };

	for (int backend = IO_BACKEND_URING; backend <= SIM; backend++) {
		if (backend != SIM && !has_backend((enum io_backend)backend))
			continue;
		for (int i = 0; i < 4; i++) {
			struct bed bed;

			if (!(variants >> i & 1))
				continue;
			if (backend == SIM)
				bed_open_sim(&bed, (uint64_t)i + 1, transforms[i & 1], i & 2);
			else
				bed_open_real(&bed, (enum io_backend)backend, transforms[i & 1], i & 2);
			body(&bed);
			bed_close(&bed);
		}
	}
}

static void each_bed(void (*body)(struct bed *bed))
{
	beds(body, 0xf);
}

/* For those that wait for a backoff. */
static void two_beds(void (*body)(struct bed *bed))
{
	beds(body, 1 << 0 | 1 << 3);
}

static void one_echo(struct bed *bed)
{
	struct bed_call *bc = bed_call_new(BED_ECHO, 100, 1);

	bed_call_run(bed, bed->peer, bc, 0);
	ck_assert_mem_eq(bc->in, bc->out, 100);
	bed_call_free(bc);
}

START_TEST(test_echo)
{
	each_bed(one_echo);
}
END_TEST

static void every_size(struct bed *bed)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 100, 4055, 4056, 4057, 4096, 65495, 65536, 65537, 300001, 1 << 20};

	for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
		struct bed_call *bc = bed_call_new(BED_ECHO, sizes[i], (uint32_t)i);

		bed_call_run(bed, bed->peer, bc, 0);
		if (sizes[i])
			ck_assert_mem_eq(bc->in, bc->out, sizes[i]);
		bed_call_free(bc);
	}
}

START_TEST(test_payload_sizes)
{
	each_bed(every_size);
}
END_TEST

static int left;

static bool none_left(void *ctx)
{
	(void)ctx;
	return left == 0;
}

static void count_down(struct bed_call *bc)
{
	ck_assert_int_eq(bc->status, 0);
	if (bc->len)
		ck_assert_mem_eq(bc->in, bc->out, bc->len);
	left--;
}

static void many_in_flight(struct bed *bed)
{
	enum { COUNT = 1500 };
	static struct bed_call *calls[COUNT];
	struct rpc_stats stats;

	left = COUNT;
	for (uint32_t i = 0; i < COUNT; i++) {
		calls[i] = bed_call_new(BED_ECHO, i % 7 == 0 ? i * 5 : 0, i);
		calls[i]->on_done = count_down;
		calls[i]->call.deadline_ns = io_clock_ns(bed->client_io) + 15000000000u + i % 13;
		rpc_call_start(bed->peer, &calls[i]->call);
	}
	BED_WAIT(bed, none_left, NULL);
	for (int i = 0; i < COUNT; i++)
		bed_call_free(calls[i]);
	rpc_server_get_stats(bed->server, &stats);
	ck_assert_uint_eq(stats.requests, COUNT);
	ck_assert_uint_eq(stats.responses, COUNT);
	ck_assert_uint_eq(stats.malformed, 0);
}

START_TEST(test_many_in_flight)
{
	each_bed(many_in_flight);
}
END_TEST

static void streaming(struct bed *bed)
{
	struct bed_call *bc = bed_call_new(BED_STREAM, 100000, 3), *bare = bed_call_new(BED_STREAM, 0, 4);

	bc->msg.announced_bytes = 20;
	bed_call_run(bed, bed->peer, bc, 0);
	ck_assert_int_eq(bc->parts, 20);
	ck_assert_mem_eq(bc->in, bc->out, 100000);
	bed_call_free(bc);
	bare->msg.announced_bytes = 5;
	bed_call_run(bed, bed->peer, bare, 0);
	ck_assert_int_eq(bare->parts, 5);
	bed_call_free(bare);
}

START_TEST(test_streaming)
{
	each_bed(streaming);
}
END_TEST

/* Refusals end one call, never the connection. */
static void refusals(struct bed *bed)
{
	struct bed_call *bc;
	struct rpc_stats stats;

	bc = bed_call_new(BED_FAIL, 1000, 1);
	bed_call_run(bed, bed->peer, bc, ERR_NOSPC);
	ck_assert_str_eq(bc->detail, "the disk is full");
	bed_call_free(bc);

	bc = bed_call_new(BED_REFUSE, 1 << 20, 2);
	bed_call_run(bed, bed->peer, bc, ERR_NO_EXTENT);
	ck_assert(!bc->has_msg);
	bed_call_free(bc);

	bc = bed_call_new(BED_HUGE, 0, 3);
	bed_call_run(bed, bed->peer, bc, ERR_MSGSIZE);
	bed_call_free(bc);

	bc = bed_call_new(BED_ECHO, 500000, 4); /* the client has no place for the answer */
	bc->place_code = ERR_NOSPC;
	bed_call_run(bed, bed->peer, bc, ERR_NOSPC);
	bed_call_free(bc);

	bc = bed_call_new(BED_ECHO, 300000, 5);
	bc->call.method = &bed_unknown_method;
	bed_call_run(bed, bed->peer, bc, ERR_OPNOTSUPP);
	bed_call_free(bc);

	bc = bed_call_new((enum bed_op)99, 10, 6);
	bed_call_run(bed, bed->peer, bc, ERR_INVAL);
	bed_call_free(bc);

	bc = bed_call_new(BED_ECHO, 0, 7); /* too long to be sent */
	bc->msg.token.data = mem_zalloc(LIMIT_FRAME_BODY_BYTES);
	bc->msg.token.len = LIMIT_FRAME_BODY_BYTES;
	bed_call_run(bed, bed->peer, bc, ERR_MSGSIZE);
	mem_free(bc->msg.token.data);
	bed_call_free(bc);

	bc = bed_call_new(BED_ECHO, LIMIT_FRAME_PAYLOAD_BYTES + 1, 7);
	bed_call_run(bed, bed->peer, bc, ERR_MSGSIZE);
	bed_call_free(bc);

	bc = bed_call_new(BED_ECHO, 77, 8);
	bed_call_run(bed, bed->peer, bc, 0);
	bed_call_free(bc);
	rpc_server_get_stats(bed->server, &stats);
	ck_assert_uint_eq(stats.conns_accepted, 1);
	ck_assert_uint_eq(stats.malformed, 0);
}

START_TEST(test_refusals)
{
	each_bed(refusals);
}
END_TEST

static bool one_held(void *ctx)
{
	return ((struct bed *)ctx)->held_count > 0;
}

static void deadlines(struct bed *bed)
{
	struct bed_call *slow = bed_call_new(BED_HOLD, 1000, 1), *soon = bed_call_new(BED_HOLD, 0, 2);
	struct bed_call *after = bed_call_new(BED_ECHO, 100, 3);
	struct rpc_stats stats;

	/* The later deadline is set first: the timer must move forward. */
	slow->call.deadline_ns = io_clock_ns(bed->client_io) + 10000000000u;
	rpc_call_start(bed->peer, &slow->call);
	soon->call.deadline_ns = io_clock_ns(bed->client_io) + 30000000;
	bed_call_run(bed, bed->peer, soon, ERR_TIMEDOUT);
	ck_assert_uint_ge(io_clock_ns(bed->client_io), soon->call.deadline_ns);
	ck_assert_int_eq(slow->done, 0);
	BED_WAIT(bed, one_held, bed);
	bed_release(bed);
	BED_WAIT(bed, bed_call_is_done, slow);
	ck_assert_int_eq(slow->status, 0);
	/* The late answer to `soon` was dropped, the connections go on. */
	bed_call_run(bed, bed->peer, after, 0);
	rpc_server_get_stats(bed->server, &stats);
	ck_assert_uint_le(stats.conns_accepted, 2);
	bed_call_free(slow);
	bed_call_free(soon);
	bed_call_free(after);
}

START_TEST(test_deadlines)
{
	each_bed(deadlines);
}
END_TEST

static void cancel_itself(struct bed_call *bc)
{
	rpc_call_cancel(&bc->call); /* a no-op by now */
}

static void cancels(struct bed *bed)
{
	struct bed_call *queued = bed_call_new(BED_ECHO, 1000, 1), *held = bed_call_new(BED_HOLD, 1000, 2);
	struct bed_call *unsent = bed_call_new(BED_ECHO, 1000, 3), *after = bed_call_new(BED_ECHO, 1000, 4);
	struct rpc_stats stats;

	/* before there is a connection */
	rpc_call_start(bed->peer, &queued->call);
	rpc_call_cancel(&queued->call);
	rpc_call_cancel(&queued->call);
	ck_assert_int_eq(queued->done, 0);
	BED_WAIT(bed, bed_call_is_done, queued);
	ck_assert_int_eq(queued->status, ERR_CANCELED);

	/* with the handler; the answer comes too late */
	rpc_call_start(bed->peer, &held->call);
	BED_WAIT(bed, one_held, bed);
	rpc_call_cancel(&held->call);
	ck_assert_int_eq(held->done, 0);
	bed_release(bed);
	BED_WAIT(bed, bed_call_is_done, held);
	ck_assert_int_eq(held->status, ERR_CANCELED);

	/* queued on an open connection, not yet sent: the server never sees it */
	rpc_server_get_stats(bed->server, &stats);
	rpc_call_start(bed->peer, &unsent->call);
	rpc_call_cancel(&unsent->call);
	after->on_done = cancel_itself;
	bed_call_run(bed, bed->peer, after, 0);
	ck_assert_int_eq(unsent->status, ERR_CANCELED);
	ck_assert_uint_eq(stats.requests, 1);
	rpc_server_get_stats(bed->server, &stats);
	ck_assert_uint_eq(stats.requests, 2);
	bed_call_free(queued);
	bed_call_free(held);
	bed_call_free(unsent);
	bed_call_free(after);
}

START_TEST(test_cancel)
{
	each_bed(cancels);
}
END_TEST

static struct bed_call *both[2];

static bool both_done(void *ctx)
{
	(void)ctx;
	return both[0]->done && both[1]->done;
}

/* A server goes with calls in flight; another comes at the same address. */
static void server_dies(struct bed *bed)
{
	struct io_addr addr = rpc_server_addr(bed->server);
	struct bed_call *held = bed_call_new(BED_HOLD, 200000, 1), *again;

	rpc_call_start(bed->peer, &held->call);
	BED_WAIT(bed, one_held, bed);
	rpc_server_close(bed->server, bed_set_true, &bed->server_closed);
	BED_WAIT(bed, bed_call_is_done, held);
	ck_assert_int_eq(held->status, ERR_CONNRESET);
	ck_assert(!bed->server_closed); /* its handler has not answered yet */
	bed_release(bed);
	ck_assert_int_eq(bed->dead_seen, 1);
	BED_WAIT(bed, bed_is_true, &bed->server_closed);
	ck_assert_int_eq(bed->conns_closed, 1);
	bed_call_free(held);

	again = bed_call_new(BED_ECHO, 10, 2);
	bed_call_run(bed, bed->peer, again, ERR_CONNREFUSED);
	bed_call_free(again);
	bed_serve(bed, addr, false);
	again = bed_call_new(BED_ECHO, 10, 3);
	bed_call_run(bed, bed->peer, again, 0);
	bed_call_free(again);
}

START_TEST(test_server_dies)
{
	two_beds(server_dies);
}
END_TEST

/* reset and close fail what is queued and what is in flight, each once. */
static void reset_and_close(struct bed *bed)
{
	both[0] = bed_call_new(BED_HOLD, 1000, 1);
	both[1] = bed_call_new(BED_ECHO, 1000, 2);
	rpc_call_start(bed->peer, &both[0]->call);
	BED_WAIT(bed, one_held, bed);
	rpc_call_start(bed->peer, &both[1]->call);
	rpc_peer_reset(bed->peer, ERR_STALE);
	ck_assert_int_eq(both[0]->done + both[1]->done, 0);
	BED_WAIT(bed, both_done, NULL);
	ck_assert_int_eq(both[0]->status, ERR_STALE);
	ck_assert_int_eq(both[1]->status, ERR_STALE);
	bed_release(bed);
	bed_call_free(both[0]);
	bed_call_free(both[1]);

	both[0] = bed_call_new(BED_HOLD, 1000, 1); /* it goes on after a reset */
	both[1] = bed_call_new(BED_ECHO, 1000, 2);
	rpc_call_start(bed->peer, &both[0]->call);
	BED_WAIT(bed, one_held, bed);
	rpc_peer_close(bed->peer, bed_set_true, &bed->peer_closed);
	rpc_call_start(bed->peer, &both[1]->call);
	ck_assert_int_eq(both[0]->done + both[1]->done, 0);
	BED_WAIT(bed, bed_is_true, &bed->peer_closed);
	ck_assert_int_eq(both[0]->status, ERR_CANCELED);
	ck_assert_int_eq(both[1]->status, ERR_CANCELED);
	bed_release(bed);
	bed_call_free(both[0]);
	bed_call_free(both[1]);
}

START_TEST(test_reset_and_close)
{
	two_beds(reset_and_close);
}
END_TEST

static void wrong_cluster(struct bed *bed)
{
	struct rpc_identity self = bed_identity(RPC_ROLE_CLIENT, "stranger");
	struct rpc_peer *peer;
	struct bed_call *bc;
	struct rpc_stats stats;
	bool closed = false;

	self.cluster.bytes[0] ^= 1;
	peer = bed_peer(bed, &self, 2, false);
	for (int i = 0; i < 2; i++) {
		bc = bed_call_new(BED_ECHO, 100, 1);
		bed_call_run(bed, peer, bc, ERR_WRONG_CLUSTER);
		bed_call_free(bc);
	}
	rpc_peer_close(peer, bed_set_true, &closed);
	BED_WAIT(bed, bed_is_true, &closed);
	ck_assert_int_eq(bed->handled, 0);

	memset(&self.cluster, 0, sizeof(self.cluster)); /* takes any */
	peer = bed_peer(bed, &self, 2, false);
	bc = bed_call_new(BED_ECHO, 100, 1);
	bed_call_run(bed, peer, bc, 0);
	bed_call_free(bc);
	closed = false;
	rpc_peer_close(peer, bed_set_true, &closed);
	BED_WAIT(bed, bed_is_true, &closed);
	rpc_server_get_stats(bed->server, &stats);
	ck_assert_uint_eq(stats.conns_refused, 2);
	ck_assert_uint_eq(stats.malformed, 0);
}

START_TEST(test_wrong_cluster)
{
	two_beds(wrong_cluster);
}
END_TEST

/* `done` may start the next call, also when it fails at once: turn by turn, without recursion. */
static struct bed *chain_bed;

static void start_next(struct bed_call *bc)
{
	if (--left > 0) {
		bc->done = 0;
		rpc_call_start(chain_bed->peer, &bc->call);
		if (left % 2)
			rpc_call_cancel(&bc->call);
	}
}

static void chain(struct bed *bed)
{
	struct bed_call *bc = bed_call_new(BED_ECHO, 10, 1);

	chain_bed = bed;
	left = 200;
	bc->on_done = start_next;
	bc->call.deadline_ns = io_clock_ns(bed->client_io) + 15000000000u;
	rpc_call_start(bed->peer, &bc->call);
	BED_WAIT(bed, none_left, NULL);
	bed_call_free(bc);
}

START_TEST(test_done_starts_the_next)
{
	each_bed(chain);
}
END_TEST

UNIT_MAIN("rpc", test_echo, test_payload_sizes, test_many_in_flight, test_streaming, test_refusals, test_deadlines,
	test_cancel, test_server_dies, test_reset_and_close, test_wrong_cluster, test_done_starts_the_next)
