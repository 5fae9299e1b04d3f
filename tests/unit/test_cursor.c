/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/cursor.h"

#include <string.h>
#include "tests/lib/unit.h"

START_TEST(test_write_then_read)
{
	uint8_t data[64], three[3];
	struct wcursor w;
	struct rcursor r;
	struct slice s;

	wcursor_init(&w, data, sizeof(data));
	wcursor_u8(&w, 0x12);
	wcursor_u16(&w, 0x1234);
	wcursor_u32(&w, 0xdeadbeef);
	wcursor_u64(&w, 0x0123456789abcdefULL);
	wcursor_u32_be(&w, 0xdeadbeef);
	wcursor_u64_be(&w, 0x0123456789abcdefULL);
	wcursor_bytes(&w, "abcdef", 6);
	wcursor_zeros(&w, 2);
	ck_assert(!w.failed);
	ck_assert_uint_eq(w.len, 1 + 2 + 4 + 8 + 4 + 8 + 6 + 2);

	rcursor_init(&r, data, w.len);
	ck_assert_uint_eq(rcursor_u8(&r), 0x12);
	ck_assert_uint_eq(rcursor_u16(&r), 0x1234);
	ck_assert_uint_eq(rcursor_u32(&r), 0xdeadbeef);
	ck_assert_uint_eq(rcursor_u64(&r), 0x0123456789abcdefULL);
	ck_assert_uint_eq(rcursor_u32_be(&r), 0xdeadbeef);
	ck_assert_uint_eq(rcursor_u64_be(&r), 0x0123456789abcdefULL);
	rcursor_copy(&r, three, 3);
	ck_assert_int_eq(memcmp(three, "abc", 3), 0);
	s = rcursor_slice(&r, 3);
	ck_assert_uint_eq(s.len, 3);
	ck_assert_ptr_eq(s.data, data + 30);
	ck_assert_uint_eq(rcursor_left(&r), 2);
	ck_assert(!rcursor_done(&r));
	ck_assert_uint_eq(rcursor_u16(&r), 0);
	ck_assert(rcursor_done(&r));
}
END_TEST

START_TEST(test_byte_order)
{
	uint8_t data[12];
	struct wcursor w;

	wcursor_init(&w, data, sizeof(data));
	wcursor_u32(&w, 0x01020304);
	wcursor_u64_be(&w, 0x05060708090a0b0cULL);
	ck_assert_int_eq(memcmp(data, "\x04\x03\x02\x01\x05\x06\x07\x08\x09\x0a\x0b\x0c", 12), 0);
}
END_TEST

START_TEST(test_write_overrun_sticks)
{
	uint8_t data[4] = {9, 9, 9, 9};
	struct wcursor w;

	wcursor_init(&w, data, 3);
	wcursor_u16(&w, 0);
	wcursor_u16(&w, 0xffff); /* does not fit */
	ck_assert(w.failed);
	wcursor_u8(&w, 1); /* would fit */
	wcursor_bytes(&w, "x", SIZE_MAX);
	ck_assert_uint_eq(w.len, 2);
	ck_assert_int_eq(memcmp(data, "\0\0\x09\x09", 4), 0);
}
END_TEST

START_TEST(test_read_overrun_sticks)
{
	const uint8_t data[3] = {1, 2, 3};
	uint8_t out[4] = {7, 7, 7, 7};
	struct rcursor r;

	rcursor_init(&r, data, sizeof(data));
	ck_assert_uint_eq(rcursor_u32(&r), 0);
	ck_assert(r.failed);
	ck_assert_uint_eq(rcursor_u8(&r), 0); /* would be there */
	rcursor_copy(&r, out, sizeof(out));
	ck_assert_int_eq(memcmp(out, "\0\0\0\0", 4), 0);
	ck_assert_uint_eq(rcursor_slice(&r, 1).len, 0);
	ck_assert_ptr_null(rcursor_slice(&r, 1).data);
	ck_assert_uint_eq(rcursor_left(&r), 0);
	ck_assert(!rcursor_done(&r));
	rcursor_init(&r, NULL, 0);
	ck_assert(rcursor_done(&r));
	ck_assert_uint_eq(rcursor_slice(&r, SIZE_MAX).len, 0);
	ck_assert(r.failed);
}
END_TEST

START_TEST(test_slice_order)
{
	ck_assert_int_lt(slice_compare(slice_of("ab", 2), slice_of("abc", 3)), 0);
	ck_assert_int_gt(slice_compare(slice_of("b", 1), slice_of("abc", 3)), 0);
	ck_assert_int_gt(slice_compare(slice_of("\xff", 1), slice_of("\x01", 1)), 0);
	ck_assert_int_eq(slice_compare(slice_of(NULL, 0), slice_of(NULL, 0)), 0);
}
END_TEST

UNIT_MAIN("cursor", test_write_then_read, test_byte_order, test_write_overrun_sticks, test_read_overrun_sticks,
	test_slice_order)
