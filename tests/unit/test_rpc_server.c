/* SPDX-License-Identifier: Apache-2.0 */
/* A bare client against our server. */
#include "tests/lib/rpc_wire.h"

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

static void (*const offences[])(void) = {wire_garbage, bad_header_crc, bad_body_crc, bad_version, body_too_long,
	payload_too_long, bad_protobuf, response_to_a_server, second_hello};

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

	wire_bed_open(&bed, bulk);
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

	wire_bed_open(&bed, false);
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
	ck_assert_uint_eq(bed.refused.of[REFUSED_MALFORMED].count, ARRAY_COUNT(offences) - 2);
	ck_assert_uint_eq(stats.requests, 0);

	/* A frame of another version gets a HELLO that says so. */
	wire_connect(&bed);
	bad_version();
	ck_assert_int_eq(wire_take(&bed).status, ERR_VERSION);
	wire_close();
	BED_WAIT(&bed, no_conns, &bed);
	ck_assert_uint_eq(bed.refused.of[REFUSED_STRANGER].count, 1);
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

	wire_bed_open(&bed, bulk);
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

static bool one_tick(void *ctx)
{
	return ++*(int *)ctx > 1;
}

static struct {
	int lines;
	char last[1100];
} said;

static void keep_line(void *ctx, enum log_level level, const char *line)
{
	(void)ctx, (void)level;
	said.lines++;
	snprintf(said.last, sizeof(said.last), "%s", line);
}

/* The bed with a server of these options. */
static void open_with(struct bed *bed, struct rpc_server_options *so)
{
	wire_bed_open(bed, false);
	io_addr_parse("127.0.0.1:0", &so->listen);
	bed_reopen_server(bed, so);
}

/* Who has said nothing yet makes room for whoever does. */
START_TEST(test_strangers_make_room)
{
	struct rpc_server_options so = {.self = bed_identity(RPC_ROLE_CHUNKD, "chunkd-1"), .handlers = bed_handlers, .max_conns = 2};
	struct rpc_stats stats;
	struct bed bed;
	int fds[4];

	open_with(&bed, &so);
	for (int i = 0; i < 4; i++) { /* one of another version, one that says nothing, then two that may stay */
		wire_connect(&bed);
		if (i == 0) {
			bad_version();
			ck_assert_int_eq(wire_take(&bed).status, ERR_VERSION);
		} else if (i >= 2) {
			wire_hello(RPC_ROLE_CLIENT);
			wire_take(&bed);
		}
		fds[i] = wire.fd;
	}
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.conns_refused, 1);
	ck_assert_uint_eq(bed.refused.of[REFUSED_STRANGER].count, 1);
	ck_assert_uint_eq(bed.refused.of[REFUSED_NO_HELLO].count, 1);
	wire_connect(&bed);
	BED_WAIT(&bed, wire_is_closed, NULL);
	wire_close();
	ck_assert_uint_eq(bed.refused.of[REFUSED_CONNECTIONS].count, 1);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	BED_WAIT(&bed, no_conns, &bed);
	bed_close(&bed);
}
END_TEST

/* Further connections than the limit are closed at once, counted, and said: the first of them, not each. */
START_TEST(test_too_many_connections)
{
	enum { MORE = 20 };
	static const struct log log = {.min_level = LOG_DEBUG, .write = keep_line, .name = "chunkd-1"};
	struct rpc_server_options so = {.self = bed_identity(RPC_ROLE_CHUNKD, "chunkd-1"),
		.handlers = bed_handlers,
		.log = &log,
		.max_conns = 2};
	struct rpc_stats stats;
	struct bed bed;
	int fds[2];
	uint64_t began;

	open_with(&bed, &so);
	for (int i = 0; i < 2; i++) {
		wire_connect(&bed);
		wire_hello(RPC_ROLE_CLIENT);
		wire_take(&bed);
		fds[i] = wire.fd;
	}
	began = io_now_ns(bed.server_io);
	for (int i = 0; i < MORE; i++) {
		wire_connect(&bed);
		BED_WAIT(&bed, wire_is_closed, NULL);
		wire_close();
	}
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.conns_open, 2);
	ck_assert_uint_eq(stats.conns_refused, MORE);
	ck_assert_uint_eq(bed.refused.of[REFUSED_CONNECTIONS].count, MORE);
	ck_assert_int_ge(said.lines, 1);
	ck_assert_uint_le(
		(uint64_t)said.lines, 1 + (io_now_ns(bed.server_io) - began) / (REFUSED_LINE_MS * 1000000ull));
	ck_assert_msg(strstr(said.last, "connection-refused cause=too_many_connections peer=127.0.0.1:") != NULL, "%s",
		said.last);
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

	wire_bed_open(&bed, bulk);
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

static bool is_answered(void *ctx)
{
	return wire_has_frame(ctx) || wire.closed;
}

/* Over a new connection. False: it is not let in. */
static bool says_hello(struct bed *bed, uint8_t role)
{
	wire_connect(bed);
	wire_hello(role);
	BED_WAIT(bed, is_answered, NULL);
	if (!wire.closed)
		wire_take(bed);
	return !wire.closed;
}

static int held_before;

static bool more_is_held(void *ctx)
{
	return ((struct bed *)ctx)->held_count > held_before;
}

/* Over the connection that is there: long requests, until no further one is taken. */
static void hold_much(struct bed *bed)
{
	Craton__PutRequest msg = CRATON__PUT_REQUEST__INIT;
	struct frame f = {.kind = FRAME_REQUEST, .method = bed_method.id, .request_id = 7};
	uint8_t *bytes = mem_zalloc(FRAME_HEADER_BYTES + LIMIT_FRAME_BODY_BYTES), *token = mem_zalloc(LIMIT_FRAME_BODY_BYTES);

	msg.offset = BED_HOLD;
	msg.token = (ProtobufCBinaryData){.len = LIMIT_FRAME_BODY_BYTES - 1024, .data = token};
	f.body_len = (uint32_t)protobuf_c_message_pack(&msg.base, bytes + FRAME_HEADER_BYTES);
	f.body_crc = crc32c(bytes + FRAME_HEADER_BYTES, f.body_len);
	frame_encode(&f, bytes);
	do {
		held_before = bed->held_count;
		wire_put_much(bed, bytes, FRAME_HEADER_BYTES + f.body_len);
	} while (bed->run(bed, more_is_held, bed, 1000));
	mem_free(token);
	mem_free(bytes);
}

/*
 * As many clients as there may be, with as much as they may ask for, do not keep servers of the same role from being heard; of these there are no more
 * than was said.
 */
START_TEST(test_kin)
{
	enum { CLIENTS = 2 };
	struct rpc_server_options so = {
		.self = bed_identity(RPC_ROLE_METAD, "metad-1"), .handlers = bed_handlers, .max_conns = CLIENTS, .kin_conns = 1};
	struct rpc_stats stats;
	struct bed bed;
	int fds[CLIENTS + 1];

	open_with(&bed, &so);
	for (int i = 0; i < CLIENTS; i++) {
		ck_assert(says_hello(&bed, RPC_ROLE_CLIENT));
		fds[i] = wire.fd;
	}
	ck_assert(!says_hello(&bed, RPC_ROLE_CLIENT));
	wire_close();
	ck_assert_uint_eq(bed.refused.of[REFUSED_CONNECTIONS].count, 1);
	ck_assert(says_hello(&bed, RPC_ROLE_METAD));
	fds[CLIENTS] = wire.fd;
	ck_assert(!says_hello(&bed, RPC_ROLE_METAD)); /* beyond those that are kept it is one of everybody */
	wire_close();

	wire.closed = false;
	wire.fd = fds[0];
	hold_much(&bed);
	ck_assert_int_ge(bed.held_count, LIMIT_SERVER_REQUEST_BYTES / LIMIT_FRAME_BODY_BYTES - 1);
	wire.fd = fds[1];
	request(BED_ECHO, 0);
	ck_assert(!bed.run(&bed, wire_has_frame, NULL, 200)); /* another client waits */
	wire.fd = fds[CLIENTS];
	request(BED_ECHO, 0);
	ck_assert_int_eq(wire_take(&bed).status, 0);
	bed_release(&bed);
	wire.fd = fds[1];
	ck_assert_int_eq(wire_take(&bed).status, 0);
	bed.run(&bed, more_is_held, &bed, 1000); /* the one that was not taken before */
	bed_release(&bed);
	for (int i = 0; i <= CLIENTS; i++)
		close(fds[i]);
	BED_WAIT(&bed, no_conns, &bed);
	rpc_server_get_stats(bed.server, &stats);
	ck_assert_uint_eq(stats.conns_refused, 2);
	for (int i = 0; i < 2 * CLIENTS; i++) { /* places are free again when those that had them are gone */
		ck_assert(says_hello(&bed, i % 2 ? RPC_ROLE_METAD : RPC_ROLE_CLIENT));
		wire_close();
		BED_WAIT(&bed, no_conns, &bed);
	}
	bed_close(&bed);
}
END_TEST

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

	wire_bed_open(&bed, false);
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
	ck_assert_uint_eq(bed.refused.of[REFUSED_OVERLOADED].count, 1);
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

	wire_bed_open(&bed, true);
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
	BED_WAIT(&bed, wire_ticked, &ticks);
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

	wire_bed_open(&bed, true);
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

UNIT_MAIN("rpc_server", test_malformed_frames_end_the_connection, test_malformed_hello, test_half_frames,
	test_too_many_connections, test_strangers_make_room, test_kin, test_request_bound, test_body_bound, test_send_queue_bound, test_small_answers_bound)
