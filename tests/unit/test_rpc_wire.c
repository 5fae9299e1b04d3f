/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One side is ours, the other is a bare socket in the test's hand: what a broken, hostile or stuck other side does to
 * us.
 */
#include "tests/lib/rpc_bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/crc32c.h"
#include "common/rpc/frame.h"
#include "common/rpc/hello.h"

/* ---- the bare side ---- */

struct wire {
	int fd;
	bool closed; /* the other side closed */
	uint8_t in[1 << 20];
	size_t in_len;
};

static struct wire wire;

/* Reads what is there. For BED_WAIT. */
static void wire_pull(void)
{
	ssize_t n;

	while (!wire.closed && wire.in_len < sizeof(wire.in)) {
		n = recv(wire.fd, wire.in + wire.in_len, sizeof(wire.in) - wire.in_len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n <= 0)
			wire.closed = true;
		else
			wire.in_len += (size_t)n;
	}
}

static bool wire_is_closed(void *ctx)
{
	(void)ctx;
	wire_pull();
	return wire.closed;
}

/* A whole frame (header and body) is there. */
static bool wire_has_frame(void *ctx)
{
	struct frame f;
	struct err err = {0};

	(void)ctx;
	wire_pull();
	if (wire.in_len < FRAME_HEADER_BYTES)
		return false;
	ck_assert_msg(frame_decode(wire.in, &f, &err) == 0, "%s", err.text);
	return wire.in_len >= FRAME_HEADER_BYTES + f.body_len;
}

static struct frame wire_take(struct bed *bed)
{
	struct frame f;
	struct err err = {0};
	size_t len;

	BED_WAIT(bed, wire_has_frame, NULL);
	ck_assert_int_eq(frame_decode(wire.in, &f, &err), 0);
	len = FRAME_HEADER_BYTES + f.body_len;
	ck_assert_uint_eq(crc32c(wire.in + FRAME_HEADER_BYTES, f.body_len), f.body_crc);
	memmove(wire.in, wire.in + len, wire.in_len - len);
	wire.in_len -= len;
	return f;
}

static void wire_put(const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = send(wire.fd, p, len, MSG_NOSIGNAL);

		if (n < 0)
			return; /* the other side has already closed: that is what the test will see */
		p += n;
		len -= (size_t)n;
	}
}

static void wire_frame(struct frame f, const ProtobufCMessage *msg)
{
	uint8_t bytes[4096];
	size_t len = msg ? protobuf_c_message_get_packed_size(msg) : 0;

	ck_assert_uint_le(FRAME_HEADER_BYTES + len, sizeof(bytes));
	if (msg)
		protobuf_c_message_pack(msg, bytes + FRAME_HEADER_BYTES);
	f.body_len = (uint32_t)len;
	f.body_crc = crc32c(bytes + FRAME_HEADER_BYTES, len);
	frame_encode(&f, bytes);
	wire_put(bytes, FRAME_HEADER_BYTES + len);
}

static void wire_hello(uint8_t role)
{
	struct rpc_identity self = bed_identity(role, "bare");
	Craton__Hello hello;

	hello_fill(&self, &hello);
	wire_frame((struct frame){.kind = FRAME_HELLO}, &hello.base);
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void wire_nodelay(void)
{
	int one = 1;

	ck_assert_int_eq(setsockopt(wire.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
}

static void wire_connect(struct bed *bed)
{
	struct sockaddr_in to = loopback(rpc_server_addr(bed->server).port);

	memset(&wire, 0, sizeof(wire));
	wire.fd = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(wire.fd, (struct sockaddr *)&to, sizeof(to)), 0);
	wire_nodelay();
}

static void wire_close(void)
{
	close(wire.fd);
}

/* ---- a bare client ---- */

static void request(uint32_t op, uint32_t payload_len)
{
	Craton__PutRequest msg = CRATON__PUT_REQUEST__INIT;

	msg.offset = op;
	wire_frame(
		(struct frame){
			.kind = FRAME_REQUEST, .method = bed_method.id, .request_id = 7, .payload_len = payload_len},
		&msg.base);
}

/* Each sends something wrong after the HELLO. */
static void bad_magic(void)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a.long.enough.host\r\n\r\n";

	wire_put(text, sizeof(text) - 1);
}

static void bad_header_crc(void)
{
	uint8_t header[FRAME_HEADER_BYTES];

	frame_encode(&(struct frame){.kind = FRAME_REQUEST, .method = bed_method.id}, header);
	header[8] ^= 1;
	wire_put(header, sizeof(header));
}

static void bad_body_crc(void)
{
	uint8_t bytes[FRAME_HEADER_BYTES + 4] = {0};

	frame_encode(
		&(struct frame){.kind = FRAME_REQUEST, .method = bed_method.id, .body_len = 4, .body_crc = 1}, bytes);
	wire_put(bytes, sizeof(bytes));
}

static void bad_version(void)
{
	uint8_t header[FRAME_HEADER_BYTES];

	frame_encode(&(struct frame){.kind = FRAME_REQUEST, .method = bed_method.id}, header);
	header[4] = 2;
	wire_put(header, sizeof(header));
}

static void body_too_long(void)
{
	uint8_t header[FRAME_HEADER_BYTES];

	frame_encode(
		&(struct frame){.kind = FRAME_REQUEST, .method = bed_method.id, .body_len = LIMIT_FRAME_BODY_BYTES + 1},
		header);
	wire_put(header, sizeof(header));
}

static void payload_too_long(void)
{
	uint8_t header[FRAME_HEADER_BYTES];

	frame_encode(
		&(struct frame){
			.kind = FRAME_REQUEST, .method = bed_method.id, .payload_len = LIMIT_FRAME_PAYLOAD_BYTES + 1},
		header);
	wire_put(header, sizeof(header));
}

static void bad_protobuf(void)
{
	uint8_t bytes[FRAME_HEADER_BYTES + 2] = {0};

	memset(bytes + FRAME_HEADER_BYTES, 0xff, 2);
	frame_encode(&(struct frame){.kind = FRAME_REQUEST,
			     .method = bed_method.id,
			     .body_len = 2,
			     .body_crc = crc32c(bytes + FRAME_HEADER_BYTES, 2)},
		bytes);
	wire_put(bytes, sizeof(bytes));
}

static void response_to_a_server(void)
{
	wire_frame((struct frame){.kind = FRAME_RESPONSE, .method = bed_method.id, .request_id = 1}, NULL);
}

static void second_hello(void)
{
	wire_hello(RPC_ROLE_CLIENT);
}

static void (*const offences[])(void) = {bad_magic, bad_header_crc, bad_body_crc, bad_version, body_too_long,
	payload_too_long, bad_protobuf, response_to_a_server, second_hello};

static void bed_open(struct bed *bed, bool bulk)
{
	/* wire.fd stays blocking: what the test sends fits the socket's buffers. */
	bed_open_real(bed, IO_BACKEND_AUTO, NULL, bulk);
}

/* The server has dropped its end, and said why to its statistics. */
static bool no_conns(void *ctx)
{
	struct rpc_stats stats;

	rpc_server_get_stats(((struct bed *)ctx)->server, &stats);
	return stats.conns_open == 0;
}

static void malformed_frames_end_the_connection(bool bulk)
{
	struct rpc_stats stats;
	struct bed bed;

	bed_open(&bed, bulk);
	for (size_t i = 0; i < ARRAY_COUNT(offences); i++) {
		wire_connect(&bed);
		wire_hello(RPC_ROLE_CLIENT);
		ck_assert_int_eq(wire_take(&bed).status, 0);
		request(BED_ECHO, 0);
		ck_assert_uint_eq(wire_take(&bed).request_id, 7);
		offences[i]();
		BED_WAIT(&bed, wire_is_closed, NULL);
		BED_WAIT(&bed, no_conns, &bed);
		wire_close();
		rpc_server_get_stats(bed.server, &stats);
		ck_assert_uint_eq(stats.malformed, i + 1);
	}
	bed_close(&bed);
}

START_TEST(test_malformed_frames_end_the_connection)
{
	malformed_frames_end_the_connection(false);
	malformed_frames_end_the_connection(true);
}
END_TEST

/* The same, first thing: no HELLO. */
START_TEST(test_malformed_hello)
{
	struct rpc_stats stats;
	struct bed bed;

	bed_open(&bed, false);
	for (size_t i = 0; i < ARRAY_COUNT(offences); i++) {
		if (offences[i] == second_hello || offences[i] == bad_version)
			continue;
		wire_connect(&bed);
		offences[i]();
		BED_WAIT(&bed, wire_is_closed, NULL);
		ck_assert_uint_eq(wire.in_len, 0);
		wire_close();
	}
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.malformed, ARRAY_COUNT(offences) - 2);
	ck_assert_uint_eq(stats.requests, 0);

	/* A frame of another version gets a HELLO that says so. */
	wire_connect(&bed);
	bad_version();
	ck_assert_int_eq(wire_take(&bed).status, ERR_VERSION);
	wire_close();
	bed_close(&bed);
}
END_TEST

/* A connection that goes in the middle of a frame, at any byte of it. */
static void half_frames(bool bulk)
{
	Craton__PutRequest msg = CRATON__PUT_REQUEST__INIT;
	uint8_t bytes[1000] = {0};
	struct frame f = {.kind = FRAME_REQUEST, .method = bed_method.id, .request_id = 1, .payload_len = 100};
	size_t len;
	struct bed bed;

	bed_open(&bed, bulk);
	f.body_len = (uint32_t)craton__put_request__pack(&msg, bytes + FRAME_HEADER_BYTES);
	f.body_crc = crc32c(bytes + FRAME_HEADER_BYTES, f.body_len);
	frame_encode(&f, bytes);
	len = FRAME_HEADER_BYTES + f.body_len + f.payload_len;
	for (size_t cut = 0; cut < len; cut += 7) {
		wire_connect(&bed);
		wire_hello(RPC_ROLE_CLIENT);
		wire_take(&bed);
		wire_put(bytes, cut);
		shutdown(wire.fd, SHUT_WR);
		BED_WAIT(&bed, wire_is_closed, NULL);
		wire_close();
	}
	bed_close(&bed);
	ck_assert_int_eq(bed.handled, 0);
	ck_assert_int_gt(bed.placed, 10);
	ck_assert_int_eq(bed.abandoned, bed.placed);
}

START_TEST(test_half_frames)
{
	half_frames(false);
	half_frames(true);
}
END_TEST

static struct bed_call *waiting;

static bool ticked(void *ctx)
{
	return ++*(int *)ctx > 30;
}

static bool one_tick(void *ctx)
{
	return ++*(int *)ctx > 1;
}

/* Further connections than the limit are closed at once. */
START_TEST(test_too_many_connections)
{
	struct rpc_server_options so = {
		.self = bed_identity(RPC_ROLE_CHUNKD, "chunkd-1"), .handlers = bed_handlers, .max_conns = 2};
	struct rpc_stats stats;
	struct bed bed;
	int fds[2];

	bed_open(&bed, false);
	bed_close_server(&bed);
	so.ctx = &bed;
	io_addr_parse("127.0.0.1:0", &so.listen);
	ck_assert_int_eq(rpc_server_open(bed.server_io, &so, &bed.server, NULL), 0);
	bed.server_closed = false;
	for (int i = 0; i < 2; i++) {
		wire_connect(&bed);
		wire_hello(RPC_ROLE_CLIENT);
		wire_take(&bed);
		fds[i] = wire.fd;
	}
	wire_connect(&bed);
	BED_WAIT(&bed, wire_is_closed, NULL);
	wire_close();
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.conns_open, 2);
	ck_assert_uint_eq(stats.conns_refused, 1);
	close(fds[0]);
	close(fds[1]);
	BED_WAIT(&bed, no_conns, &bed);
	wire_connect(&bed);
	wire_hello(RPC_ROLE_CLIENT);
	wire_take(&bed);
	wire_close();
	bed_close(&bed);
}
END_TEST

static bool held_is_full(void *ctx)
{
	return ((struct bed *)ctx)->held_count >= LIMIT_CONN_REQUESTS;
}

/* More requests in flight than a connection may have: the rest waits in the socket and is served later. */
static void request_bound(bool bulk)
{
	struct bed bed;

	bed_open(&bed, bulk);
	wire_connect(&bed);
	wire_hello(RPC_ROLE_CLIENT);
	wire_take(&bed);
	for (int i = 0; i < LIMIT_CONN_REQUESTS + 100; i++)
		request(BED_HOLD, 0);
	BED_WAIT(&bed, held_is_full, &bed);
	request(BED_ECHO, 0);
	for (int i = 0; i < 20; i++) /* turns in which more could come */
		ck_assert(!bed.run(&bed, bed_is_true, &bed.peer_closed, 1));
	ck_assert_int_eq(bed.held_count, LIMIT_CONN_REQUESTS);
	bed_release(&bed);
	for (int i = 0; i < LIMIT_CONN_REQUESTS; i++)
		wire_take(&bed);
	BED_WAIT(&bed, wire_has_frame, NULL); /* the ECHO, behind the other 100 */
	ck_assert_int_eq(bed.held_count, 100);
	bed_release(&bed);
	wire_close();
	bed_close(&bed);
}

START_TEST(test_request_bound)
{
	request_bound(false);
	request_bound(true);
}
END_TEST

/* Sends more than the sockets' buffers may take. */
static void wire_put_much(struct bed *bed, const uint8_t *data, size_t len)
{
	for (size_t pos = 0; pos < len && !wire.closed;) {
		ssize_t n = send(wire.fd, data + pos, len - pos, MSG_NOSIGNAL | MSG_DONTWAIT);
		int ticks = 0;

		if (n < 0 && errno != EAGAIN)
			return;
		if (n > 0)
			pos += (size_t)n;
		else
			BED_WAIT(bed, one_tick, &ticks);
		wire_pull();
	}
}

static uint64_t bytes_wanted;

static bool bytes_came(void *ctx)
{
	struct rpc_stats stats;

	wire_pull();
	rpc_server_get_stats(((struct bed *)ctx)->server, &stats);
	return stats.bytes_in >= bytes_wanted || wire.closed;
}

/* Bodies of a megabyte that never end: they are held up to a bound, then it hits the one who wants more. */
START_TEST(test_body_bound)
{
	enum { MAX = LIMIT_SERVER_BODY_BYTES / LIMIT_FRAME_BODY_BYTES };
	uint8_t *bytes = mem_zalloc(FRAME_HEADER_BYTES + LIMIT_FRAME_BODY_BYTES);
	struct rpc_stats stats;
	struct bed bed;
	int fds[MAX + 1];

	bed_open(&bed, false);
	frame_encode(
		&(struct frame){.kind = FRAME_REQUEST, .method = bed_method.id, .body_len = LIMIT_FRAME_BODY_BYTES},
		bytes);
	for (int i = 0; i <= MAX; i++) {
		wire_connect(&bed);
		fds[i] = wire.fd;
		wire_hello(RPC_ROLE_CLIENT);
		wire_take(&bed);
		wire_put_much(&bed, bytes, FRAME_HEADER_BYTES + LIMIT_FRAME_BODY_BYTES - 1);
		/* The second half is received as one piece, so it is not counted before it is whole. */
		bytes_wanted = (uint64_t)(i + 1) * LIMIT_FRAME_BODY_BYTES / 2;
		BED_WAIT(&bed, bytes_came, &bed);
		ck_assert_int_eq(wire.closed, i == MAX);
	}
	BED_WAIT(&bed, wire_is_closed, NULL);
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.conns_overloaded, 1);
	for (int i = 0; i <= MAX; i++)
		close(fds[i]);
	BED_WAIT(&bed, no_conns, &bed);

	/* Room again. */
	wire_connect(&bed);
	wire_hello(RPC_ROLE_CLIENT);
	wire_take(&bed);
	wire_put_much(&bed, bytes, FRAME_HEADER_BYTES + LIMIT_FRAME_BODY_BYTES - 1);
	ck_assert(!wire.closed);
	wire_close();
	bed_close(&bed);
	mem_free(bytes);
}
END_TEST

static bool queue_is_full(void *ctx)
{
	return ((struct bed *)ctx)->handled > 1;
}

/* A client that asks and asks, and never reads: its requests are not read any more when much is queued for it. */
START_TEST(test_send_queue_bound)
{
	enum { PARTS = LIMIT_CONN_SEND_QUEUE_BYTES / LIMIT_FRAME_PAYLOAD_BYTES + 20 };
	static uint8_t payload[LIMIT_FRAME_PAYLOAD_BYTES];
	Craton__PutRequest msg = CRATON__PUT_REQUEST__INIT;
	struct bed_call *other;
	int ticks = 0;
	struct bed bed;

	bed_open(&bed, true);
	wire_connect(&bed);
	wire_hello(RPC_ROLE_CLIENT);
	wire_take(&bed);
	msg.offset = BED_STREAM;
	msg.announced_bytes = PARTS;
	wire_frame((struct frame){.kind = FRAME_REQUEST,
			   .method = bed_method.id,
			   .request_id = 7,
			   .payload_len = sizeof(payload)},
		&msg.base);
	wire_put_much(&bed, payload, sizeof(payload));
	wire.in_len = 0;
	request(BED_ECHO, 0);
	BED_WAIT(&bed, ticked, &ticks);
	ck_assert_int_eq(bed.handled, 1);
	/* Nobody else suffers. */
	other = bed_call_new(BED_ECHO, 1000, 1);
	bed_call_run(&bed, bed.peer, other, 0);
	bed_call_free(other);
	ck_assert_int_eq(bed.handled, 2);
	bed.handled = 1;
	while (!bed.run(&bed, queue_is_full, &bed, 5)) {
		wire_pull();
		wire.in_len = 0;
	}
	wire_close();
	bed_close(&bed);
}
END_TEST

static bool only_the_peer(void *ctx)
{
	struct rpc_stats stats;

	rpc_server_get_stats(((struct bed *)ctx)->server, &stats);
	return stats.conns_open <= 1;
}

/* A flood of requests that cost nothing, by one who never reads the answers: what these take is bounded. */
START_TEST(test_small_answers_bound)
{
	enum { FRAMES = 1000, STUCK = 50 };
	static uint8_t bytes[FRAMES * FRAME_HEADER_BYTES];
	struct rpc_stats stats;
	struct bed_call *other;
	size_t pos = 0;
	int stuck = 0;
	struct bed bed;

	bed_open(&bed, true);
	wire_connect(&bed);
	wire_hello(RPC_ROLE_CLIENT);
	wire_take(&bed);
	for (uint32_t i = 0; i < FRAMES; i++)
		frame_encode(&(struct frame){.kind = FRAME_REQUEST, .method = 0x999, .request_id = i + 1},
			bytes + (size_t)i * FRAME_HEADER_BYTES);
	while (stuck < STUCK) {
		ssize_t n = send(wire.fd, bytes + pos, sizeof(bytes) - pos, MSG_NOSIGNAL | MSG_DONTWAIT);
		int ticks = 0;

		stuck = n > 0 ? 0 : stuck + 1;
		pos = n > 0 ? (pos + (size_t)n) % sizeof(bytes) : pos;
		if (n <= 0)
			BED_WAIT(&bed, one_tick, &ticks);
		rpc_server_get_stats(bed.server, &stats);
		ck_assert_uint_lt(stats.queued_bytes, LIMIT_SERVER_SEND_BYTES + (1 << 20));
	}
	ck_assert_uint_gt(stats.queued_bytes, LIMIT_SERVER_SEND_BYTES);
	/* Nobody else suffers. */
	other = bed_call_new(BED_ECHO, 1000, 1);
	bed_call_run(&bed, bed.peer, other, 0);
	bed_call_free(other);
	wire_close();
	BED_WAIT(&bed, only_the_peer, &bed);
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.queued_bytes, 0);
	bed_close(&bed);
}
END_TEST

/* ---- a bare server ---- */

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

	bed_open(bed, true);
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
	bad_magic();
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
	BED_WAIT(&bed, ticked, &ticks);
	ck_assert_int_eq(many_done_count(), (int)ARRAY_COUNT(many) - 1);
	BED_WAIT(&bed, many_done, NULL);
	for (size_t i = 0; i < ARRAY_COUNT(many); i++)
		expect(&bed, many[i], ERR_STALE);
	bare_close(&bed);
}
END_TEST

UNIT_MAIN("rpc_wire", test_malformed_frames_end_the_connection, test_malformed_hello, test_half_frames,
	test_too_many_connections, test_request_bound, test_body_bound, test_send_queue_bound, test_small_answers_bound,
	test_malformed_responses,
	test_server_refuses, test_silent_server, test_cancel_while_receiving, test_cancel_while_sending,
	test_answered_before_sent)
