/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/ids.h"

#include <string.h>
#include "common/base/err.h"
#include "tests/lib/unit.h"

START_TEST(test_uuid_text)
{
	static const char text[] = "00112233-4455-6677-8899-aabbccddeeff";
	char out[UUID_TEXT_BYTES];
	struct uuid u, v;

	ck_assert_int_eq(uuid_parse(text, &u), 0);
	ck_assert_uint_eq(u.bytes[1], 0x11);
	ck_assert_uint_eq(u.bytes[15], 0xff);
	uuid_format(&u, out);
	ck_assert_str_eq(out, text);
	ck_assert_int_eq(uuid_parse("00112233-4455-6677-8899-AABBCCDDEEFF", &v), 0);
	ck_assert(uuid_equal(&u, &v));
	v.bytes[7] ^= 1;
	ck_assert(!uuid_equal(&u, &v));
	ck_assert(!uuid_is_zero(&u));
	memset(&u, 0, sizeof(u));
	ck_assert(uuid_is_zero(&u));
}
END_TEST

START_TEST(test_uuid_refuses_all_else)
{
	static const char text[] = "00112233-4455-6677-8899-aabbccddeeff";
	struct uuid u;
	char bad[64];

	for (size_t len = 0; len < sizeof(text) - 1; len++) { /* every prefix */
		memcpy(bad, text, len);
		bad[len] = 0;
		ck_assert_int_eq(uuid_parse(bad, &u), ERR_INVAL);
	}
	for (size_t i = 0; i < sizeof(text) - 1; i++) { /* every place damaged */
		memcpy(bad, text, sizeof(text));
		bad[i] = 'g';
		ck_assert_int_eq(uuid_parse(bad, &u), ERR_INVAL);
	}
	ck_assert_int_eq(uuid_parse("00112233-4455-6677-8899-aabbccddeeff0", &u), ERR_INVAL);
	ck_assert_int_eq(uuid_parse("00112233445566778899aabbccddeeff", &u), ERR_INVAL);
}
END_TEST

START_TEST(test_id_parts)
{
	uint64_t id = id_make(0xabcd, 0x123456789abcULL);

	ck_assert_uint_eq(id, 0xabcd123456789abcULL);
	ck_assert_uint_eq(id_shard(id), 0xabcd);
	ck_assert_uint_eq(id_number(id), 0x123456789abcULL);
	ck_assert_uint_eq(id_make(0, INODE_ROOT), 1);
}
END_TEST

UNIT_MAIN("ids", test_uuid_text, test_uuid_refuses_all_else, test_id_parts)
