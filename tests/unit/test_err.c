/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/err.h"

#include <errno.h>
#include <string.h>
#include "tests/lib/unit.h"

START_TEST(test_set_and_prefix)
{
	struct err err = {0};

	ck_assert_int_eq(err_set(&err, ERR_INVAL, "size %d is not a multiple of %d", 3, 4), ERR_INVAL);
	ck_assert_int_eq(err.code, ERR_INVAL);
	ck_assert_int_eq(err_prefix(&err, "%s:%d", "craton.conf", 7), ERR_INVAL);
	ck_assert_str_eq(err.text, "craton.conf:7: size 3 is not a multiple of 4");
	/* Its own text may be an argument. */
	err_set(&err, ERR_IO, "again %s", err.text);
	ck_assert_str_eq(err.text, "again craton.conf:7: size 3 is not a multiple of 4");
	ck_assert_int_eq(err_set(NULL, ERR_IO, "nobody listens"), ERR_IO);
}
END_TEST

START_TEST(test_text_is_one_line_and_bounded)
{
	struct err err = {0};
	char many[2 * ERR_TEXT_BYTES];

	memset(many, 'x', sizeof(many) - 1);
	many[sizeof(many) - 1] = 0;
	err_set(&err, ERR_IO, "a\nb\x7f%s", many);
	ck_assert_uint_eq(strlen(err.text), ERR_TEXT_BYTES - 1);
	ck_assert_int_eq(strncmp(err.text, "a b x", 5), 0);
	err_prefix(&err, "%s", many);
	ck_assert_uint_eq(strlen(err.text), ERR_TEXT_BYTES - 1);
	err_set(&err, 0, "not shown");
	ck_assert_str_eq(err.text, "");
	ck_assert_int_eq(err_prefix(&err, "x"), 0);
	ck_assert_str_eq(err.text, "");
}
END_TEST

START_TEST(test_names_and_numbers)
{
	ck_assert_str_eq(err_name(ERR_NOENT), "ERR_NOENT");
	ck_assert_str_eq(err_text(ERR_NOENT), "no such file or directory");
	ck_assert_str_eq(err_name(0), "ERR_OK");
	ck_assert_str_eq(err_name(-7777), "ERR_UNKNOWN");
	ck_assert_int_eq(err_to_errno(ERR_BLOCK_LOST), EIO);
	ck_assert_int_eq(err_to_errno(ERR_NO_PLACEMENT), ENOSPC);
	ck_assert_int_eq(err_to_errno(-7777), EIO);
	ck_assert_int_eq(err_to_errno(0), 0);
	ck_assert_int_eq(err_to_errno(42), 0);
	ck_assert_int_eq(err_from_errno(ENOSPC), ERR_NOSPC);
	ck_assert_int_eq(err_from_errno(EXFULL), ERR_IO);
	ck_assert_int_eq(err_from_errno(0), 0);
	ck_assert_int_eq(err_from_errno(1003), ERR_IO); /* a number of ours is not an errno */
}
END_TEST

START_TEST(test_wire)
{
	ck_assert_int_eq(err_from_wire(ERR_FENCED), ERR_FENCED);
	ck_assert_int_eq(err_from_wire(0), 0);
	ck_assert_int_eq(err_from_wire(5), ERR_PROTO);
	ck_assert_int_eq(err_from_wire(-3), ERR_PROTO);
	ck_assert_int_eq(err_from_wire(INT64_MIN), ERR_PROTO);
	/* Not taken for a code whose low bits agree. */
	ck_assert_int_eq(err_from_wire((int64_t)ERR_IO - ((int64_t)1 << 32)), ERR_PROTO);
}
END_TEST

START_TEST(test_codes_that_posix_knows_are_its_numbers)
{
#define ERR_X(name, number, errno_, text) ck_assert(number < -1000 || number == -(errno_));
	ERR_LIST(ERR_X)
#undef ERR_X
	ck_assert_int_eq(ERR_TIMEDOUT, -ETIMEDOUT);
	ck_assert_int_eq(ERR_STALE, -ESTALE);
	ck_assert_int_eq(ERR_CONNREFUSED, -ECONNREFUSED);
	ck_assert_int_eq(ERR_CANCELED, -ECANCELED);
	ck_assert_int_eq(ERR_NOTEMPTY, -ENOTEMPTY);
}
END_TEST

UNIT_MAIN("err", test_set_and_prefix, test_text_is_one_line_and_bounded, test_names_and_numbers, test_wire,
	test_codes_that_posix_knows_are_its_numbers)
