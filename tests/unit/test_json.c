/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/json.h"

#include <math.h>
#include <string.h>
#include "tests/lib/unit.h"

START_TEST(test_document)
{
	struct json j;
	struct buf b;

	buf_init(&b, 1 << 16);
	json_init(&j, &b);
	json_object(&j, NULL);
	json_str(&j, "health", "ok");
	json_array(&j, "reasons");
	json_end_array(&j);
	json_array(&j, "disks");
	json_object(&j, NULL);
	json_u64(&j, "id", UINT64_MAX);
	json_bool(&j, "up", true);
	json_end_object(&j);
	json_object(&j, NULL);
	json_end_object(&j);
	json_i64(&j, NULL, INT64_MIN);
	json_end_array(&j);
	json_f64(&j, "ratio", 0.1);
	json_f64(&j, "nan", NAN);
	json_str(&j, "none", NULL);
	json_bool(&j, "down", false);
	json_end_object(&j);
	buf_append(&b, "", 1);
	ck_assert_str_eq((char *)b.data,
		"{\"health\":\"ok\",\"reasons\":[],\"disks\":[{\"id\":18446744073709551615,\"up\":true},{},"
		"-9223372036854775808],\"ratio\":0.1,\"nan\":null,\"none\":null,\"down\":false}");
	ck_assert_uint_eq(j.depth, 0);
	buf_fini(&b);
}
END_TEST

static void expect_string(const char *value, const char *text)
{
	struct json j;
	struct buf b;

	buf_init(&b, 1 << 16);
	json_init(&j, &b);
	json_str(&j, NULL, value);
	buf_append(&b, "", 1);
	ck_assert_str_eq((char *)b.data, text);
	buf_fini(&b);
}

START_TEST(test_strings)
{
	expect_string("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
	expect_string("\n\t\x01", "\"\\n\\t\\u0001\"");
	expect_string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
	/* Not UTF-8: stray continuation, overlong, surrogate, past the end of Unicode, cut short. */
	expect_string("\x80", "\"\xef\xbf\xbd\"");
	expect_string("\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
	expect_string("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
	expect_string("\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
	expect_string("a\xe2\x82", "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
	expect_string("\xff""b", "\"\xef\xbf\xbd""b\"");
}
END_TEST

static void expect_name(const char *value, const char *text)
{
	struct json j;
	struct buf b;

	buf_init(&b, 1 << 16);
	json_init(&j, &b);
	json_object(&j, NULL);
	json_name(&j, "name", value);
	json_u64(&j, "size", 1);
	json_end_object(&j);
	buf_append(&b, "", 1);
	ck_assert_str_eq((char *)b.data, text);
	buf_fini(&b);
}

/* The bytes of a name that no JSON text can hold are there all the same. */
START_TEST(test_names)
{
	expect_name("", "{\"name\":\"\",\"size\":1}");
	expect_name("\xc3\xa4", "{\"name\":\"\xc3\xa4\",\"size\":1}");
	expect_name("\xff", "{\"name\":\"\xef\xbf\xbd\",\"name_base64\":\"/w==\",\"size\":1}");
	expect_name("a\xff", "{\"name\":\"a\xef\xbf\xbd\",\"name_base64\":\"Yf8=\",\"size\":1}");
	expect_name("a\xff/", "{\"name\":\"a\xef\xbf\xbd/\",\"name_base64\":\"Yf8v\",\"size\":1}");
	expect_name("\xc3\xa4\xfb\xef", "{\"name\":\"\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\",\"name_base64\":\"w6T77w==\",\"size\":1}");
}
END_TEST

START_TEST(test_numbers_read_back)
{
	static const double values[] = {0, 1.0 / 3, 1e300, -5e-324, 123456789.125, 0.1 + 0.2};
	struct json j;
	struct buf b;

	buf_init(&b, 1 << 16);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		buf_clear(&b);
		json_init(&j, &b);
		json_f64(&j, NULL, values[i]);
		buf_append(&b, "", 1);
		ck_assert(strtod((char *)b.data, NULL) == values[i]);
	}
	buf_fini(&b);
}
END_TEST

UNIT_MAIN("json", test_document, test_strings, test_names, test_numbers_read_back)
