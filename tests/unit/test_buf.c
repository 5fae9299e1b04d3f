/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/buf.h"

#include <string.h>
#include "tests/lib/unit.h"

START_TEST(test_append_and_print)
{
	struct buf b;

	buf_init(&b, 1 << 20);
	buf_append(&b, "ab", 2);
	buf_printf(&b, "-%d", 42);
	ck_assert_uint_eq(b.len, 5);
	ck_assert_str_eq((char *)b.data, "ab-42"); /* a NUL follows */
	memcpy(buf_extend(&b, 3), "xyz", 3);
	ck_assert_int_eq(memcmp(b.data, "ab-42xyz", 8), 0);
	buf_clear(&b);
	ck_assert_uint_eq(b.len, 0);
	for (int i = 0; i < 5000; i++)
		buf_printf(&b, "%04d", i);
	ck_assert_uint_eq(b.len, 20000);
	ck_assert_int_eq(memcmp(b.data + 4 * 4321, "4321", 4), 0);
	ck_assert(!b.failed);
	buf_fini(&b);
	ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(test_bound)
{
	struct buf b;

	buf_init(&b, 8);
	buf_append(&b, "12345678", 8); /* exactly full is fine */
	ck_assert(!b.failed);
	ck_assert_uint_eq(b.len, 8);
	buf_append(&b, "9", 1);
	ck_assert(b.failed);
	ck_assert_uint_eq(b.len, 8);
	ck_assert_int_eq(memcmp(b.data, "12345678", 8), 0);
	buf_clear(&b);
	ck_assert(!b.failed);
	buf_printf(&b, "12345678");
	ck_assert_str_eq((char *)b.data, "12345678");
	ck_assert(!b.failed);
	buf_fini(&b);
}
END_TEST

START_TEST(test_failure_sticks)
{
	struct buf b;

	buf_init(&b, 4);
	ck_assert_ptr_null(buf_extend(&b, 5));
	ck_assert(b.failed);
	buf_append(&b, "a", 1); /* would fit: but the text would lack its middle */
	buf_printf(&b, "b");
	ck_assert_ptr_null(buf_extend(&b, 0));
	ck_assert_uint_eq(b.len, 0);
	ck_assert_ptr_null(buf_extend(&b, SIZE_MAX));
	buf_fini(&b);
}
END_TEST

UNIT_MAIN("buf", test_append_and_print, test_bound, test_failure_sticks)
