/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/wal_frame.h"
#include "common/base/crc32c.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

static uint8_t out[WAL_FRAME_MAX_BYTES];

static struct slice text(const char *s)
{
	return slice_of(s, strlen(s));
}

static struct wal_frame header(void)
{
	return (struct wal_frame){
		.version = WAL_FRAME_PLAIN,
		.type = WAL_FRAME_ENTRIES,
		.prev_crc = 0x12345678,
		.number = 9,
		.mark = 7,
		.first_index = 100,
		.entry_count = 2,
		.segment = 3,
		.segment_bytes = 1 << 20,
		.log_id = "0123456789abcde",
		.nonce = "fedcba987654321",
	};
}

START_TEST(test_example)
{
	struct wal_frame f = header(), got;
	size_t body = 0, bytes, peeked, pos = 0;
	struct slice entry;

	body = wal_frame_put(WAL_FRAME_PLAIN, out, body, text("first"));
	body = wal_frame_put(WAL_FRAME_PLAIN, out, body, text("second"));
	bytes = wal_frame_encode(out, body, &f);
	ck_assert_uint_eq(bytes, WAL_FRAME_ALIGN);

	ck_assert_int_eq(wal_frame_peek(out, &got, &peeked), 0);
	ck_assert_uint_eq(peeked, bytes);
	ck_assert_uint_eq(got.mark, 7);
	ck_assert_int_eq(wal_frame_decode(out, bytes, &got), 0);
	ck_assert_uint_eq(got.crc, f.crc);
	ck_assert_uint_eq(got.prev_crc, 0x12345678);
	ck_assert_uint_eq(got.number, 9);
	ck_assert_uint_eq(got.first_index, 100);
	ck_assert_uint_eq(got.segment, 3);
	ck_assert_uint_eq(got.segment_bytes, 1 << 20);
	ck_assert_mem_eq(got.nonce, f.nonce, WAL_ID_BYTES);
	ck_assert_mem_eq(got.log_id, f.log_id, WAL_ID_BYTES);
	ck_assert(wal_frame_next(&got, &pos, &entry));
	ck_assert_int_eq(slice_compare(entry, text("first")), 0);
	ck_assert(wal_frame_next(&got, &pos, &entry));
	ck_assert_int_eq(slice_compare(entry, text("second")), 0);
	ck_assert(!wal_frame_next(&got, &pos, &entry));
}
END_TEST

/* The bytes of docs/FORMATS.md: a change of these is a change of the format. */
START_TEST(test_bytes)
{
	static const uint8_t want[] = {
		'C',
		'r',
		'W',
		'F',
		0,
		0,
		0,
		0,
		1,
		0,
		1,
		0,
		9,
		0,
		0,
		0, /* magic, CRC, version, type, zero, body bytes */
		9,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		7,
		0,
		0,
		0,
		0,
		0,
		0,
		0, /* number, mark */
		100,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		1,
		0,
		0,
		0,
		0x78,
		0x56,
		0x34,
		0x12, /* first index, entries, CRC before */
		3,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		0x10,
		0,
		0,
		0,
		0,
		0, /* segment, segment bytes */
		'0',
		'1',
		'2',
		'3',
		'4',
		'5',
		'6',
		'7',
		'8',
		'9',
		'a',
		'b',
		'c',
		'd',
		'e',
		0,
		'f',
		'e',
		'd',
		'c',
		'b',
		'a',
		'9',
		'8',
		'7',
		'6',
		'5',
		'4',
		'3',
		'2',
		'1',
		0,
		5,
		0,
		0,
		0,
		'h',
		'e',
		'l',
		'l',
		'o',
		0,
		0,
		0,
		0,
	};
	struct wal_frame f = header();

	f.entry_count = 1;
	ck_assert_uint_eq(
		wal_frame_encode(out, wal_frame_put(WAL_FRAME_PLAIN, out, 0, text("hello")), &f), WAL_FRAME_ALIGN);
	ck_assert_uint_eq(f.crc, 0xd9fc0e12);
	memset(out + 4, 0, 4);
	ck_assert_mem_eq(out, want, sizeof(want));
}
END_TEST

/* Every flipped bit of header and body is noticed; one of the padding is nobody's. */
START_TEST(test_flipped_bits)
{
	struct wal_frame f = header(), got;
	size_t body, used;

	body = wal_frame_put(
		WAL_FRAME_PLAIN, out, wal_frame_put(WAL_FRAME_PLAIN, out, 0, text("first")), text("second"));
	wal_frame_encode(out, body, &f);
	used = WAL_FRAME_PLAIN_HEADER_BYTES + body;
	for (size_t bit = 0; bit < used * 8; bit++) {
		out[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_ne(wal_frame_decode(out, WAL_FRAME_ALIGN, &got), 0);
		out[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	out[used] ^= 1;
	ck_assert_int_eq(wal_frame_decode(out, WAL_FRAME_ALIGN, &got), 0);
	for (size_t len = 0; len < used; len++)
		ck_assert_int_eq(wal_frame_decode(out, len, &got), ERR_FORMAT);
}
END_TEST

/* Well-formed CRC, nonsense inside: as a program with a bug, or an attacker with the disk, would write it. */
START_TEST(test_nonsense_with_a_good_crc)
{
	struct wal_frame f, got;
	size_t body = wal_frame_put(
		WAL_FRAME_PLAIN, out, wal_frame_put(WAL_FRAME_PLAIN, out, 0, text("first")), text("second"));

#define EXPECT_FORMAT(change)                                                               \
	do {                                                                                \
		f = header();                                                               \
		change;                                                                     \
		wal_frame_encode(out, body, &f);                                            \
		ck_assert_int_eq(wal_frame_decode(out, WAL_FRAME_ALIGN, &got), ERR_FORMAT); \
	} while (0)
	EXPECT_FORMAT(f.type = 0);
	EXPECT_FORMAT(f.type = 4);
	EXPECT_FORMAT(f.type = WAL_FRAME_MARK);
	EXPECT_FORMAT(f.entry_count = 0);
	EXPECT_FORMAT(f.entry_count = 1);
	EXPECT_FORMAT(f.entry_count = 3);
	EXPECT_FORMAT(f.entry_count = UINT32_MAX);
	EXPECT_FORMAT(f.number = 0);
	EXPECT_FORMAT(f.mark = 9);
	EXPECT_FORMAT(f.first_index = 0);
	EXPECT_FORMAT(f.first_index = UINT64_MAX);
	EXPECT_FORMAT(body += 1); /* a byte behind the last entry */
	body -= 1;
	out[WAL_FRAME_PLAIN_HEADER_BYTES + 3] = 0xff; /* the first entry's length */
	EXPECT_FORMAT();
#undef EXPECT_FORMAT
}
END_TEST

START_TEST(test_greatest_frame)
{
	uint8_t *entry = mem_alloc(LIMIT_LOG_ENTRY_BYTES);
	struct wal_frame f = header(), got;
	size_t body = 0, bytes, pos = 0, room;
	struct slice e;

	memset(entry, 0xab, LIMIT_LOG_ENTRY_BYTES);
	body = wal_frame_put(WAL_FRAME_PLAIN, out, body, slice_of(entry, LIMIT_LOG_ENTRY_BYTES));
	room = wal_frame_body_max(WAL_FRAME_PLAIN) - body - WAL_FRAME_ENTRY_HEADER_BYTES;
	body = wal_frame_put(WAL_FRAME_PLAIN, out, body, slice_of(entry, room));
	bytes = wal_frame_encode(out, body, &f);
	ck_assert_uint_eq(bytes, WAL_FRAME_MAX_BYTES);
	ck_assert_int_eq(wal_frame_decode(out, bytes, &got), 0);
	ck_assert(wal_frame_next(&got, &pos, &e));
	ck_assert_uint_eq(e.len, LIMIT_LOG_ENTRY_BYTES);
	ck_assert(wal_frame_next(&got, &pos, &e));
	ck_assert_uint_eq(e.len, room);
	mem_free(entry);
}
END_TEST

static struct wal_frame header_with_terms(void)
{
	struct wal_frame f = header();

	f.version = WAL_FRAME_TERMS;
	f.term = 5;
	f.prev_term = 4;
	f.commit = 98;
	return f;
}

/* What a frame with terms has beside a plain one: the bytes of docs/FORMATS.md, and its greatest body. */
START_TEST(test_terms)
{
	static const uint8_t want[] = {5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o', 0};
	struct wal_frame f = header_with_terms(), got;
	uint8_t plain[WAL_FRAME_PLAIN_HEADER_BYTES];
	size_t pos = 0, body;
	static uint8_t zeros[200000];
	struct slice entry;

	f.entry_count = 1;
	wal_frame_encode(out, wal_frame_put(WAL_FRAME_TERMS, out, 0, text("hello")), &f);
	ck_assert_mem_eq(out + 96, want, sizeof(want));
	ck_assert_int_eq(wal_frame_decode(out, WAL_FRAME_ALIGN, &got), 0);
	ck_assert(got.term == 5 && got.prev_term == 4 && got.commit == 98);
	ck_assert(wal_frame_next(&got, &pos, &entry));
	ck_assert_int_eq(slice_compare(entry, text("hello")), 0);
	memcpy(plain, out, sizeof(plain));
	f.version = WAL_FRAME_PLAIN;
	wal_frame_encode(out, wal_frame_put(WAL_FRAME_PLAIN, out, 0, text("hello")), &f);
	ck_assert_uint_eq(plain[8], 2);
	plain[8] = 1;
	ck_assert_mem_eq(plain + 8, out + 8, sizeof(plain) - 8);
	for (body = 0; body + 4 + 200000 <= wal_frame_body_max(WAL_FRAME_TERMS);)
		body = wal_frame_put(WAL_FRAME_TERMS, out, body, slice_of(zeros, 200000));
	body = wal_frame_put(WAL_FRAME_TERMS, out, body,
		slice_of(zeros, wal_frame_body_max(WAL_FRAME_TERMS) - body - WAL_FRAME_ENTRY_HEADER_BYTES));
	f = header_with_terms();
	f.entry_count = 3;
	ck_assert_uint_eq(wal_frame_encode(out, body, &f), WAL_FRAME_MAX_BYTES);
	ck_assert_int_eq(wal_frame_decode(out, WAL_FRAME_MAX_BYTES, &got), 0);
}
END_TEST

START_TEST(test_nonsense_with_terms)
{
	struct wal_frame f, got;
	size_t body = wal_frame_put(WAL_FRAME_TERMS, out, 0, text("first"));

#define EXPECT(code, change)                                                          \
	do {                                                                          \
		f = header_with_terms();                                              \
		f.entry_count = 1;                                                    \
		change;                                                               \
		wal_frame_encode(out, f.entry_count ? body : 0, &f);                  \
		ck_assert_int_eq(wal_frame_decode(out, WAL_FRAME_ALIGN, &got), code); \
	} while (0)
	EXPECT(0, );
	EXPECT(ERR_FORMAT, f.commit = 100);
	EXPECT(ERR_FORMAT, f.term = 3);
	EXPECT(ERR_FORMAT, f.term = f.prev_term = 0);
	EXPECT(ERR_FORMAT, f.type = WAL_FRAME_CUT);
	EXPECT(ERR_FORMAT, f.type = WAL_FRAME_BASE);
	EXPECT(ERR_FORMAT, f.type = WAL_FRAME_BASE + 1);
	EXPECT(0, (f.entry_count = 0, f.type = WAL_FRAME_CUT, f.term = 4));
	EXPECT(ERR_FORMAT, (f.entry_count = 0, f.type = WAL_FRAME_CUT));
	EXPECT(0, (f.entry_count = 0, f.type = WAL_FRAME_BASE, f.term = f.prev_term = 0));
#undef EXPECT
}
END_TEST

static void set_crc(size_t used)
{
	uint32_t crc = crc32c(out + 8, used - 8);

	memcpy(out + 4, &crc, sizeof(crc));
}

/* What a newer build wrote says so under its CRC; what damage makes look like it does not. */
START_TEST(test_versions_not_known)
{
	struct wal_frame f = header(), got;
	size_t bytes = 0, body = wal_frame_put(WAL_FRAME_TERMS, out, 0, text("x"));

	f.version = WAL_FRAME_TERMS;
	f.entry_count = 1;
	f.term = f.prev_term = 1;
	wal_frame_encode(out, body, &f);
	for (int version = 3; version < 0x10000; version = version * 5 - 1) {
		out[8] = (uint8_t)version;
		out[9] = (uint8_t)(version >> 8);
		ck_assert_int_eq(wal_frame_peek(out, &got, &bytes), ERR_VERSION);
		ck_assert_uint_eq(bytes, WAL_FRAME_ALIGN);
		ck_assert_int_eq(wal_frame_decode(out, bytes, &got), ERR_CORRUPT);
		set_crc(WAL_FRAME_TERMS_HEADER_BYTES + body);
		ck_assert_int_eq(wal_frame_decode(out, bytes, &got), ERR_VERSION);
		out[120] ^= 1;
	}
	out[15] = 1; /* more than any frame has */
	ck_assert_int_eq(wal_frame_peek(out, &got, &bytes), ERR_FORMAT);
	out[15] = out[8] = out[9] = 0;
	ck_assert_int_eq(wal_frame_peek(out, &got, &bytes), ERR_FORMAT);
}
END_TEST

UNIT_MAIN("wal_frame", test_example, test_bytes, test_flipped_bits, test_nonsense_with_a_good_crc, test_greatest_frame,
	test_terms, test_nonsense_with_terms, test_versions_not_known)
