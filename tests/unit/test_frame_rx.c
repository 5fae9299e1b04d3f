/* SPDX-License-Identifier: Apache-2.0 */
/* One stream of frames, cut in every way: whatever the pieces, the same frames come out. */
#include "common/rpc/frame_rx.h"

#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

static uint8_t stream[12 << 20];
static size_t stream_len;

/* The content of a body or payload starts in it at its length. */
static uint8_t pattern[4 << 20];

__attribute__((constructor)) static void make_pattern(void)
{
	for (uint32_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void add_frame(uint32_t body_len, uint32_t payload_len)
{
	struct frame f = {.kind = FRAME_REQUEST,
		.method = 1,
		.request_id = body_len + 1,
		.body_len = body_len,
		.payload_len = payload_len};
	uint8_t *body = stream + stream_len + FRAME_HEADER_BYTES;

	ck_assert(stream_len + FRAME_HEADER_BYTES + body_len + payload_len <= sizeof(stream));
	memcpy(body, pattern + body_len, body_len);
	memcpy(body + body_len, pattern + payload_len, payload_len);
	f.body_crc = crc32c(body, body_len);
	frame_encode(&f, stream + stream_len);
	stream_len += FRAME_HEADER_BYTES + body_len + payload_len;
}

struct reader {
	struct frame_rx rx;
	uint8_t *payload;
	bool drain; /* give no place */
	int heads, tails;
	uint64_t direct; /* bytes that went straight to their place */
	uint64_t receives;
};

static void on_head(struct reader *r)
{
	const struct frame *f = &r->rx.frame;
	uint32_t cut = f->payload_len / 3;
	struct iovec iov[2];
	int count = 0;

	ck_assert_uint_eq(f->request_id, f->body_len + 1);
	ck_assert(memcmp(r->rx.body, pattern + f->body_len, f->body_len) == 0);
	r->heads++;
	if (f->payload_len == 0 || r->drain)
		return;
	r->payload = mem_alloc(f->payload_len);
	if (cut)
		iov[count++] = (struct iovec){r->payload, cut};
	iov[count++] = (struct iovec){r->payload + cut, f->payload_len - cut};
	frame_rx_place(&r->rx, iov, count);
}

static void on_tail(struct reader *r)
{
	const struct frame *f = &r->rx.frame;

	r->tails++;
	if (!r->payload)
		return;
	ck_assert(memcmp(r->payload, pattern + f->payload_len, f->payload_len) == 0);
	mem_free(r->payload);
	r->payload = NULL;
}

static int pump(struct reader *r)
{
	enum frame_rx_event event;
	int code;

	for (;;) {
		code = frame_rx_next(&r->rx, &event);
		if (code || event == FRAME_RX_MORE)
			return code;
		if (event == FRAME_RX_HEAD)
			on_head(r);
		else
			on_tail(r);
	}
}

/* Gives the stream in pieces of at most `piece` bytes (0: of random sizes). Returns the code that ended it. */
static int feed(struct reader *r, size_t piece, struct rng *rng)
{
	size_t pos = 0;
	int code = 0;

	while (pos < stream_len && !code) {
		struct iovec iov[RPC_PAYLOAD_IOV];
		bool all;
		int count = frame_rx_room(&r->rx, iov, &all);
		size_t want = piece ? piece : rng_between(rng, 1, rng_chance(rng, 1, 3) ? 200000 : 50);
		size_t given = 0;

		for (int i = 0; i < count && given < want && pos < stream_len; i++) {
			size_t n = iov[i].iov_len;

			n = n < want - given ? n : want - given;
			n = n < stream_len - pos ? n : stream_len - pos;
			memcpy(iov[i].iov_base, stream + pos, n);
			if (r->payload && (uint8_t *)iov[i].iov_base >= r->payload &&
				(uint8_t *)iov[i].iov_base < r->payload + r->rx.frame.payload_len)
				r->direct += n;
			pos += n;
			given += n;
		}
		if (given == 0)
			ck_abort_msg("no room");
		frame_rx_filled(&r->rx, given);
		r->receives++;
		code = pump(r);
	}
	return code;
}

static void make_stream(void)
{
	static const uint32_t bodies[] = {
		0, 1, 39, 40, 4055, 4056, 4057, 5000, 65536, 65537, 200000, LIMIT_FRAME_BODY_BYTES};
	static const uint32_t payloads[] = {0, 1, 100, 4096, 70000, LIMIT_FRAME_PAYLOAD_BYTES};

	stream_len = 0;
	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		add_frame(bodies[i], payloads[i % 6]);
	for (size_t i = 0; i < 6; i++)
		add_frame(30, payloads[5 - i]);
}

static void run(size_t piece, bool bulk, bool drain, uint64_t seed)
{
	struct reader r = {.drain = drain};
	struct rng rng;

	rng_init(&rng, seed);
	frame_rx_init(&r.rx, bulk);
	ck_assert_int_eq(feed(&r, piece, &rng), 0);
	ck_assert_int_eq(r.heads, 18);
	ck_assert_int_eq(r.tails, 18);
	ck_assert(frame_rx_between(&r.rx) && !frame_rx_partial(&r.rx));
	frame_rx_fini(&r.rx);
}

START_TEST(test_pieces)
{
	static const size_t pieces[] = {1021, 4096, 65536, sizeof(stream)};

	make_stream();
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
		for (int variant = 0; variant < 4; variant++)
			run(pieces[i], variant & 1, variant & 2, 0);
	for (uint64_t seed = 1; seed <= 10; seed++)
		run(0, seed & 1, seed % 3 == 0, seed);
}
END_TEST

START_TEST(test_byte_by_byte)
{
	struct reader r = {0};

	stream_len = 0;
	add_frame(5, 3);
	add_frame(0, 0);
	add_frame(4100, 1);
	frame_rx_init(&r.rx, true);
	ck_assert_int_eq(feed(&r, 1, NULL), 0);
	ck_assert_int_eq(r.tails, 3);
	for (size_t piece = 2; piece < 100; piece++)
		ck_assert_int_eq(feed(&r, piece, NULL), 0);
	ck_assert_int_eq(r.tails, 3 * 99);
	frame_rx_fini(&r.rx);
}
END_TEST

/* Of a bulk payload only the first few KiB are copied. */
START_TEST(test_bulk_goes_straight)
{
	struct reader r = {0};

	stream_len = 0;
	add_frame(400, LIMIT_FRAME_PAYLOAD_BYTES);
	frame_rx_init(&r.rx, true);
	ck_assert_int_eq(feed(&r, sizeof(stream), NULL), 0);
	ck_assert_uint_ge(r.direct, LIMIT_FRAME_PAYLOAD_BYTES - FRAME_RX_BULK_BYTES);
	frame_rx_fini(&r.rx);
}
END_TEST

/* Many small payloads come with one receive; a large one among them goes to its place but for what was received before it was known. */
START_TEST(test_bulk_small_payloads_come_together)
{
	struct reader r = {0};
	uint64_t direct;

	stream_len = 0;
	for (int i = 0; i < 1000; i++)
		add_frame(200 + (uint32_t)i % 7, 4096);
	frame_rx_init(&r.rx, true);
	ck_assert_int_eq(feed(&r, sizeof(stream), NULL), 0);
	ck_assert_int_eq(r.tails, 1000);
	ck_assert_uint_le(r.receives, stream_len / FRAME_RX_CONTROL_BYTES + 10);
	ck_assert_uint_eq(r.rx.cap, FRAME_RX_CONTROL_BYTES);

	stream_len = 0;
	for (int i = 0; i < 3; i++)
		add_frame(400, LIMIT_FRAME_PAYLOAD_BYTES);
	direct = r.direct;
	ck_assert_int_eq(feed(&r, sizeof(stream), NULL), 0);
	ck_assert_uint_ge(
		r.direct - direct, 3ull * LIMIT_FRAME_PAYLOAD_BYTES - FRAME_RX_CONTROL_BYTES - 2 * FRAME_RX_BULK_BYTES);
	ck_assert_uint_eq(r.rx.cap, FRAME_RX_BULK_BYTES); /* given back */
	ck_assert_int_eq(feed(&r, 777, NULL), 0);
	ck_assert_int_eq(r.tails, 1006);
	frame_rx_fini(&r.rx);
}
END_TEST

/* A head that promises a long body costs no memory before the body comes. */
START_TEST(test_promises_cost_nothing)
{
	struct reader r = {0};
	size_t whole;

	stream_len = 0;
	add_frame(LIMIT_FRAME_BODY_BYTES, 0);
	whole = stream_len;
	stream_len = FRAME_HEADER_BYTES + 10;
	frame_rx_init(&r.rx, false);
	ck_assert_int_eq(feed(&r, 10, NULL), 0);
	ck_assert_uint_le(r.rx.large_cap, 64 << 10);
	ck_assert(frame_rx_partial(&r.rx) && !frame_rx_between(&r.rx));
	frame_rx_fini(&r.rx);
	stream_len = whole;
}
END_TEST

START_TEST(test_damage)
{
	struct reader r = {0};

	stream_len = 0;
	add_frame(100, 0);
	stream[60] ^= 1;
	frame_rx_init(&r.rx, false);
	ck_assert_int_eq(feed(&r, 1000, NULL), ERR_PROTO);
	ck_assert_ptr_nonnull(strstr(r.rx.err.text, "CRC of a body"));
	ck_assert_int_eq(r.heads, 0);
	frame_rx_fini(&r.rx);

	stream_len = 0;
	add_frame(100, 0);
	frame_rx_init(&r.rx, false);
	r.rx.max_body = 99;
	ck_assert_int_eq(feed(&r, 1000, NULL), ERR_MSGSIZE);
	frame_rx_fini(&r.rx);

	stream_len = 0;
	add_frame(100, 0);
	memcpy(stream + stream_len, "GET / HTTP/1.1\r\nHost: craton-and-more-than-40-bytes\r\n\r\n", 56);
	stream_len += 56;
	frame_rx_init(&r.rx, false);
	ck_assert_int_eq(feed(&r, 33, NULL), ERR_PROTO);
	ck_assert_int_eq(r.tails, 1);
	frame_rx_fini(&r.rx);
}
END_TEST

UNIT_MAIN("frame_rx", test_pieces, test_byte_by_byte, test_bulk_goes_straight, test_bulk_small_payloads_come_together,
	test_promises_cost_nothing, test_damage)
