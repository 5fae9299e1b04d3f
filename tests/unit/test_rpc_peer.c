/* SPDX-License-Identifier: Apache-2.0 */
/* Our peer against a bare server. */
#include "tests/lib/rpc_wire.h"

#include <poll.h>
#include <sys/ioctl.h>

static int listen_fd;

static bool can_accept(void *ctx)
{
	struct pollfd p = {.fd = listen_fd, .events = POLLIN};

	(void)ctx;
	return poll(&p, 1, 0) == 1;
}

static void bare_listen(struct bed *bed)
{
	struct sockaddr_in at = loopback(0);
	struct rpc_peer_options po = {.self = bed_identity(RPC_ROLE_CLIENT, "client"), .conns = 1, .bulk = true};
	socklen_t len = sizeof(at);
	int room = 32 << 10;

	wire_bed_open(bed, true);
	bed_close_peer(bed);
	bed->peer_closed = false;
	listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	/* Little room in the kernel, so that a send is soon stuck when the bare side does not read. */
	ck_assert_int_eq(setsockopt(listen_fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
	ck_assert_int_eq(bind(listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(listen_fd, 10), 0);
	ck_assert_int_eq(getsockname(listen_fd, (struct sockaddr *)&at, &len), 0);
	io_addr_parse("127.0.0.1:1", &po.addr);
	po.addr.port = ntohs(at.sin_port);
	bed->peer = rpc_peer_new(bed->client_io, &po);
}

static void bare_close(struct bed *bed)
{
	wire_close();
	close(listen_fd);
	bed_close(bed);
}

/* Accepts the peer's connection and reads its HELLO. */
static void bare_accept(struct bed *bed)
{
	BED_WAIT(bed, can_accept, NULL);
	memset(&wire, 0, sizeof(wire));
	wire.fd = accept(listen_fd, NULL, NULL);
	ck_assert_int_ge(wire.fd, 0);
	wire_nodelay();
	ck_assert_int_eq(wire_take(bed).kind, FRAME_HELLO);
}

/* A call that the bare server has; returns its frame. Its payload stays in `wire.in` or in the socket. */
static struct frame bare_call(struct bed *bed, struct bed_call *bc, bool first)
{
	bc->call.deadline_ns = io_clock_ns(bed->client_io) + 15000000000u;
	rpc_call_start(bed->peer, &bc->call);
	if (first) {
		bare_accept(bed);
		wire_hello(RPC_ROLE_CHUNKD);
	}
	return wire_take(bed);
}

static void answer(const struct frame *request_frame, struct frame f)
{
	Craton__GetPart part = CRATON__GET_PART__INIT;

	f.kind = FRAME_RESPONSE;
	f.method = request_frame->method;
	f.request_id = request_frame->request_id;
	wire_frame(f, &part.base);
}

static void expect(struct bed *bed, struct bed_call *bc, int status)
{
	BED_WAIT(bed, bed_call_is_done, bc);
	ck_assert_msg(bc->status == status, "status %s, wanted %s", err_name(bc->status), err_name(status));
	ck_assert_int_eq(bc->done, 1);
	bed_call_free(bc);
}

static void answer_other_id(const struct frame *f)
{
	wire_frame((struct frame){.kind = FRAME_RESPONSE, .method = f->method, .request_id = f->request_id + 1}, NULL);
}

static void answer_other_generation(const struct frame *f)
{
	wire_frame(
		(struct frame){.kind = FRAME_RESPONSE, .method = f->method, .request_id = f->request_id + 1024}, NULL);
}

static void answer_id_zero(const struct frame *f)
{
	wire_frame((struct frame){.kind = FRAME_RESPONSE, .method = f->method}, NULL);
}

static void answer_other_method(const struct frame *f)
{
	wire_frame((struct frame){.kind = FRAME_RESPONSE, .method = f->method + 1, .request_id = f->request_id}, NULL);
}

static void answer_failure_with_payload(const struct frame *f)
{
	answer(f, (struct frame){.status = ERR_IO, .payload_len = 10});
}

static void answer_failure_with_more(const struct frame *f)
{
	answer(f, (struct frame){.status = ERR_IO, .flags = FRAME_MORE});
}

static void answer_bad_body(const struct frame *f)
{
	uint8_t bytes[FRAME_HEADER_BYTES + 1] = {[FRAME_HEADER_BYTES] = 0xff};

	frame_encode(&(struct frame){.kind = FRAME_RESPONSE,
			     .method = f->method,
			     .request_id = f->request_id,
			     .body_len = 1,
			     .body_crc = crc32c(bytes + FRAME_HEADER_BYTES, 1)},
		bytes);
	wire_put(bytes, sizeof(bytes));
}

static void answer_hello_again(const struct frame *f)
{
	(void)f;
	wire_hello(RPC_ROLE_CHUNKD);
}

static void answer_request(const struct frame *f)
{
	wire_frame((struct frame){.kind = FRAME_REQUEST, .method = f->method, .request_id = f->request_id}, NULL);
}

static void answer_garbage(const struct frame *f)
{
	(void)f;
	wire_garbage();
}

/* A server that talks nonsense: the call fails, the connection is given up, the next call gets a new one. */
START_TEST(test_malformed_responses)
{
	static const struct {
		void (*answer)(const struct frame *f);
		int status;
	} cases[] = {
		{answer_other_id, ERR_CONNRESET},
		{answer_other_generation, ERR_CONNRESET},
		{answer_id_zero, ERR_CONNRESET},
		{answer_other_method, ERR_PROTO},
		{answer_failure_with_payload, ERR_PROTO},
		{answer_failure_with_more, ERR_PROTO},
		{answer_bad_body, ERR_PROTO},
		{answer_hello_again, ERR_CONNRESET},
		{answer_request, ERR_CONNRESET},
		{answer_garbage, ERR_CONNRESET},
	};
	struct bed bed;

	bare_listen(&bed);
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct bed_call *bc = bed_call_new(BED_FAIL, 0, 1);
		struct frame f = bare_call(&bed, bc, true);

		cases[i].answer(&f);
		expect(&bed, bc, cases[i].status);
		BED_WAIT(&bed, wire_is_closed, NULL);
		if (i + 1 < ARRAY_COUNT(cases))
			wire_close();
	}
	bare_close(&bed);
}
END_TEST

/* What a server may say at the HELLO. */
START_TEST(test_server_refuses)
{
	static const int codes[] = {ERR_VERSION, ERR_WRONG_CLUSTER, ERR_IO};
	Craton__Hello hello;
	struct rpc_identity id = bed_identity(RPC_ROLE_CHUNKD, "bare");
	struct bed_call *bc;
	struct bed bed;

	bare_listen(&bed);
	for (size_t i = 0; i < ARRAY_COUNT(codes); i++) {
		bc = bed_call_new(BED_FAIL, 0, 1);
		rpc_call_start(bed.peer, &bc->call);
		bare_accept(&bed);
		hello_fill(&id, &hello);
		wire_frame((struct frame){.kind = FRAME_HELLO, .status = codes[i]}, &hello.base);
		expect(&bed, bc, codes[i] == ERR_IO ? ERR_PROTO : codes[i]);
		BED_WAIT(&bed, wire_is_closed, NULL);
		wire_close();
	}
	/* A server that does not object, of a cluster that is not ours. */
	bc = bed_call_new(BED_FAIL, 0, 1);
	rpc_call_start(bed.peer, &bc->call);
	bare_accept(&bed);
	id.cluster.bytes[3] ^= 1;
	hello_fill(&id, &hello);
	wire_frame((struct frame){.kind = FRAME_HELLO}, &hello.base);
	expect(&bed, bc, ERR_WRONG_CLUSTER);
	BED_WAIT(&bed, wire_is_closed, NULL);
	bare_close(&bed);
}
END_TEST

/* A server that never says HELLO: the connect timeout ends it. */
START_TEST(test_silent_server)
{
	struct rpc_peer_options po = {
		.self = bed_identity(RPC_ROLE_CLIENT, "client"), .conns = 2, .connect_timeout_ns = 50000000};
	struct bed_call *bc = bed_call_new(BED_FAIL, 0, 1);
	struct bed bed;

	bare_listen(&bed);
	po.addr = *rpc_peer_addr(bed.peer);
	bed_close_peer(&bed);
	bed.peer_closed = false;
	bed.peer = rpc_peer_new(bed.client_io, &po);
	rpc_call_start(bed.peer, &bc->call);
	bare_accept(&bed);
	expect(&bed, bc, ERR_TIMEDOUT);
	BED_WAIT(&bed, wire_is_closed, NULL);
	bare_close(&bed);
}
END_TEST

static struct bed_call *waiting;

static bool some_received(void *ctx)
{
	(void)ctx;
	return waiting->in != NULL;
}

static bool tick_few(void *ctx)
{
	return ++*(int *)ctx > 20;
}

/* The answer's payload stops half-way. A cancel waits for it a little, then gives the connection up. */
START_TEST(test_cancel_while_receiving)
{
	static uint8_t payload[100000];
	struct bed_call *other;
	struct frame f, other_f;
	int ticks = 0;
	struct bed bed;

	bare_listen(&bed);
	waiting = bed_call_new(BED_FAIL, 0, 1);
	f = bare_call(&bed, waiting, true);
	other = bed_call_new(BED_FAIL, 0, 2);
	other_f = bare_call(&bed, other, false);

	/* The rest comes in time: the connection stays, and so does the other call. */
	answer(&f, (struct frame){.payload_len = sizeof(payload)});
	wire_put(payload, 50000);
	BED_WAIT(&bed, some_received, NULL);
	rpc_call_cancel(&waiting->call);
	BED_WAIT(&bed, tick_few, &ticks);
	ck_assert_int_eq(waiting->done, 0); /* its buffer is still the kernel's */
	wire_put(payload, 50000);
	expect(&bed, waiting, ERR_CANCELED);
	answer(&other_f, (struct frame){.status = ERR_STALE});
	expect(&bed, other, ERR_STALE);

	/* It does not. */
	waiting = bed_call_new(BED_FAIL, 0, 1);
	f = bare_call(&bed, waiting, false);
	other = bed_call_new(BED_FAIL, 0, 2);
	bare_call(&bed, other, false);
	answer(&f, (struct frame){.payload_len = sizeof(payload)});
	wire_put(payload, 50000);
	BED_WAIT(&bed, some_received, NULL);
	rpc_call_cancel(&waiting->call);
	expect(&bed, waiting, ERR_CANCELED);
	expect(&bed, other, ERR_CONNRESET);
	BED_WAIT(&bed, wire_is_closed, NULL);
	bare_close(&bed);
}
END_TEST

/* What waits in the bare side's socket has not changed for a while: the other side's send is stuck. */
static bool send_is_stuck(void *ctx)
{
	static int last, same;
	int now = 0;

	(void)ctx;
	ck_assert_int_eq(ioctl(wire.fd, FIONREAD, &now), 0);
	same = now == last ? same + 1 : 0;
	last = now;
	return now > 0 && same > 100;
}

/* The server does not read: a request's payload is stuck in the kernel. */
START_TEST(test_cancel_while_sending)
{
	enum { COUNT = 24 };
	struct bed_call *calls[COUNT];
	struct bed bed;

	bare_listen(&bed);
	for (int i = 0; i < COUNT; i++) {
		calls[i] = bed_call_new(BED_ECHO, 1 << 20, (uint32_t)i);
		rpc_call_start(bed.peer, &calls[i]->call);
	}
	bare_accept(&bed);
	wire_hello(RPC_ROLE_CHUNKD);
	BED_WAIT(&bed, send_is_stuck, NULL);
	/* The last is in the queue behind the stuck one: it ends without harm to the others. */
	rpc_call_cancel(&calls[COUNT - 1]->call);
	expect(&bed, calls[COUNT - 1], ERR_CANCELED);
	ck_assert_int_eq(calls[0]->done, 0);
	/* All the others: one of them is in a send. */
	for (int i = 1; i < COUNT - 1; i++)
		rpc_call_cancel(&calls[i]->call);
	for (int i = 1; i < COUNT - 1; i++)
		expect(&bed, calls[i], ERR_CANCELED);
	expect(&bed, calls[0], ERR_CONNRESET);
	bare_close(&bed);
}
END_TEST

static struct bed_call *many[24];

static int many_done_count(void)
{
	int count = 0;

	for (size_t i = 0; i < ARRAY_COUNT(many); i++)
		count += many[i]->done;
	return count;
}

/* All but the one whose payload is stuck in a send. */
static bool all_but_one_done(void *ctx)
{
	(void)ctx;
	return many_done_count() >= (int)ARRAY_COUNT(many) - 1;
}

static bool many_done(void *ctx)
{
	(void)ctx;
	wire_pull();
	wire.in_len = 0;
	return many_done_count() == (int)ARRAY_COUNT(many);
}

/* An answer comes while the request's payload is still being sent: `done` waits until the buffer is free. */
START_TEST(test_answered_before_sent)
{
	struct frame first;
	int ticks = 0;
	struct bed bed;

	bare_listen(&bed);
	for (size_t i = 0; i < ARRAY_COUNT(many); i++) {
		many[i] = bed_call_new(BED_FAIL, 1 << 20, (uint32_t)i);
		many[i]->call.deadline_ns = io_clock_ns(bed.client_io) + 15000000000u;
		rpc_call_start(bed.peer, &many[i]->call);
	}
	bare_accept(&bed);
	wire_hello(RPC_ROLE_CHUNKD);
	first = wire_take(&bed);
	BED_WAIT(&bed, send_is_stuck, NULL);
	/* Slots are given in order: the requests' ids follow each other. */
	for (uint32_t i = 0; i < ARRAY_COUNT(many); i++) {
		struct frame f = first;

		f.request_id += i;
		answer(&f, (struct frame){.status = ERR_STALE});
	}
	BED_WAIT(&bed, all_but_one_done, NULL);
	ticks = 0;
	BED_WAIT(&bed, wire_ticked, &ticks);
	ck_assert_int_eq(many_done_count(), (int)ARRAY_COUNT(many) - 1);
	BED_WAIT(&bed, many_done, NULL);
	for (size_t i = 0; i < ARRAY_COUNT(many); i++)
		expect(&bed, many[i], ERR_STALE);
	bare_close(&bed);
}
END_TEST

UNIT_MAIN("rpc_peer", test_malformed_responses, test_server_refuses, test_silent_server, test_cancel_while_receiving,
	test_cancel_while_sending, test_answered_before_sent)
