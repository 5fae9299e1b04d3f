/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/jsonread.h"

#include <errno.h>
#include <string.h>
#include "tests/lib/unit.h"

static int parse(struct jsonread *j, const char *text)
{
	return jsonread_parse(j, text, strlen(text));
}

START_TEST(test_reads_what_stands_there)
{
	struct jsonread j;
	char text[32];
	uint64_t n;
	double x;
	int list;

	ck_assert_int_eq(
		parse(&j,
			" {\"a\": 18446744073709551615, \"b\": [1.5e2, \"x\\\"\\\\y\\u0041\", {\"c\": true}], \"d\":{}} "),
		0);
	ck_assert_int_eq(jsonread_u64(&j, jsonread_member(&j, 0, "a"), &n), 0);
	ck_assert_uint_eq(n, UINT64_MAX);
	list = jsonread_member(&j, 0, "b");
	ck_assert_int_eq(jsonread_f64(&j, jsonread_item(&j, list, 0), &x), 0);
	ck_assert_double_eq(x, 150);
	ck_assert_int_eq(jsonread_str(&j, jsonread_item(&j, list, 1), text, sizeof(text)), 0);
	ck_assert_str_eq(text, "x\"\\yA");
	ck_assert_int_eq(jsonread_str(&j, jsonread_item(&j, list, 1), text, 5), -E2BIG);
	ck_assert_int_ge(jsonread_member(&j, jsonread_item(&j, list, 2), "c"), 0);
	ck_assert_int_eq(jsonread_item(&j, list, 3), -1);
	ck_assert_int_eq(jsonread_member(&j, 0, "c"), -1);
	ck_assert_int_eq(jsonread_member(&j, -1, "c"), -1);
	ck_assert_int_eq(jsonread_u64(&j, list, &n), -EBADMSG);
	ck_assert_int_eq(jsonread_u64(&j, jsonread_item(&j, list, 0), &n), -EBADMSG);
	ck_assert_int_eq(jsonread_str(&j, 0, text, sizeof(text)), -EBADMSG);
	jsonread_fini(&j);
}
END_TEST

START_TEST(test_refuses_what_is_no_json)
{
	static const char *const bad[] = {"", " ", "{", "}", "[1", "[1,]", "{\"a\"}", "{\"a\":}", "{a:1}", "\"abc",
		"\"a\\", "[1] 2", "{\"a\":1,}", "\"\n\"", ",", "[,]", "\\"};
	struct jsonread j;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(parse(&j, bad[i]) < 0, "%s", bad[i]);
}
END_TEST

START_TEST(test_bounds)
{
	static char text[2 * JSONREAD_NODES_MAX + 8];
	struct jsonread j;

	memset(text, '[', 100);
	ck_assert_int_eq(parse(&j, text), -E2BIG);
	memset(text, 0, sizeof(text));
	text[0] = '[';
	for (int i = 0; i < JSONREAD_NODES_MAX; i++)
		memcpy(text + 1 + 2 * i, "1,", 2);
	ck_assert_int_eq(parse(&j, text), -E2BIG);
	ck_assert_int_eq(parse(&j, "18446744073709551616"), 0);
	{
		uint64_t n;

		ck_assert_int_eq(jsonread_u64(&j, 0, &n), -EBADMSG);
	}
	jsonread_fini(&j);
}
END_TEST

UNIT_MAIN("jsonread", test_reads_what_stands_there, test_refuses_what_is_no_json, test_bounds)
