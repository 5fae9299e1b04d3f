/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/frame.h"

#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "tests/lib/unit.h"

static const struct frame sample = {
	.kind = FRAME_RESPONSE,
	.flags = FRAME_MORE,
	.method = 0x0204,
	.status = ERR_NOSPC,
	.request_id = 0x1122334455667788,
	.body_len = 5,
	.payload_len = 1 << 20,
	.body_crc = 0xdeadbeef,
};

/* docs/FORMATS.md, section "Frames". */
START_TEST(test_golden_bytes)
{
	static const uint8_t golden[FRAME_HEADER_BYTES] = {'C', 'R', 'F', '1', 0x01, 0x03, 0x01, 0x00, 0x88, 0x77, 0x66,
		0x55, 0x44, 0x33, 0x22, 0x11, 0x04, 0x02, 0x00, 0x00, 0xe4, 0xff, 0xff, 0xff, 0x05, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x10, 0x00, 0xef, 0xbe, 0xad, 0xde, 0x8f, 0x65, 0x70, 0xe6};
	uint8_t header[FRAME_HEADER_BYTES];

	frame_encode(&sample, header);
	ck_assert_mem_eq(header, golden, sizeof(golden));
}
END_TEST

START_TEST(test_round_trip)
{
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame f;
	struct err err = {0};

	frame_encode(&sample, header);
	ck_assert_int_eq(frame_decode(header, &f, &err), 0);
	ck_assert_int_eq(f.kind, sample.kind);
	ck_assert_int_eq(f.flags, sample.flags);
	ck_assert_int_eq(f.method, sample.method);
	ck_assert_int_eq(f.status, sample.status);
	ck_assert_uint_eq(f.request_id, sample.request_id);
	ck_assert_uint_eq(f.body_len, sample.body_len);
	ck_assert_uint_eq(f.payload_len, sample.payload_len);
	ck_assert_uint_eq(f.body_crc, sample.body_crc);
}
END_TEST

/* No single flipped bit goes unnoticed. */
START_TEST(test_every_bit_counts)
{
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame f;

	for (int bit = 0; bit < 8 * FRAME_HEADER_BYTES; bit++) {
		struct err err = {0};
		int code;

		frame_encode(&sample, header);
		header[bit / 8] ^= (uint8_t)(1 << bit % 8);
		code = frame_decode(header, &f, &err);
		ck_assert_int_eq(code, bit / 8 == 4 ? ERR_VERSION : ERR_PROTO);
		ck_assert_int_eq(err.code, code);
	}
}
END_TEST

static int decode(const struct frame *f)
{
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame back;
	struct err err = {0};

	frame_encode(f, header);
	return frame_decode(header, &back, &err);
}

START_TEST(test_what_is_refused)
{
	struct frame f = {.kind = FRAME_REQUEST, .method = 1, .request_id = 1};
	struct frame hello = {.kind = FRAME_HELLO};

	ck_assert_int_eq(decode(&f), 0);
	f.body_len = LIMIT_FRAME_BODY_BYTES;
	f.payload_len = LIMIT_FRAME_PAYLOAD_BYTES;
	ck_assert_int_eq(decode(&f), 0);
	f.body_len++;
	ck_assert_int_eq(decode(&f), ERR_MSGSIZE);
	f.body_len = 0;
	f.payload_len++;
	ck_assert_int_eq(decode(&f), ERR_MSGSIZE);
	f.payload_len = 0;
	f.status = ERR_IO;
	ck_assert_int_eq(decode(&f), ERR_PROTO);
	f.status = 0;
	f.flags = FRAME_MORE; /* means something in responses only */
	ck_assert_int_eq(decode(&f), ERR_PROTO);
	f.kind = FRAME_RESPONSE;
	ck_assert_int_eq(decode(&f), 0);
	f.flags = 2;
	ck_assert_int_eq(decode(&f), ERR_PROTO);
	f.flags = 0;
	f.status = 1;
	ck_assert_int_eq(decode(&f), ERR_PROTO);
	f.status = INT32_MIN; /* unknown, but a status: err_from_wire makes something of it */
	ck_assert_int_eq(decode(&f), 0);
	f.kind = 0;
	ck_assert_int_eq(decode(&f), ERR_PROTO);
	f.kind = 4;
	ck_assert_int_eq(decode(&f), ERR_PROTO);
	ck_assert_int_eq(decode(&hello), 0);
	hello.payload_len = 1;
	ck_assert_int_eq(decode(&hello), ERR_PROTO);
	hello.payload_len = 0;
	hello.request_id = 1;
	ck_assert_int_eq(decode(&hello), ERR_PROTO);
}
END_TEST

START_TEST(test_reserved_bytes)
{
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame f;
	struct err err = {0};
	uint32_t crc;

	frame_encode(&sample, header);
	header[18] = 1;
	crc = crc32c(header, 36);
	memcpy(header + 36, &crc, sizeof(crc));
	ck_assert_int_eq(frame_decode(header, &f, &err), ERR_PROTO);
	ck_assert_ptr_nonnull(strstr(err.text, "reserved"));
}
END_TEST

UNIT_MAIN("frame", test_golden_bytes, test_round_trip, test_every_bit_counts, test_what_is_refused, test_reserved_bytes)
