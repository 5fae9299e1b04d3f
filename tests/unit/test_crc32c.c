/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/crc32c.h"

#include <string.h>
#include "common/base/limits.h"
#include "tests/lib/unit.h"

START_TEST(test_known_answers)
{
	uint8_t buf[32];

	ck_assert_uint_eq(crc32c("123456789", 9), 0xe3069283);
	ck_assert_uint_eq(crc32c("", 0), 0);
	/* RFC 3720 appendix B.4 */
	memset(buf, 0, sizeof(buf));
	ck_assert_uint_eq(crc32c(buf, sizeof(buf)), 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	ck_assert_uint_eq(crc32c(buf, sizeof(buf)), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	ck_assert_uint_eq(crc32c(buf, sizeof(buf)), 0x46dd794e);
}
END_TEST

START_TEST(test_extend_is_the_crc_of_the_whole)
{
	const char *text = "the quick brown fox jumps over the lazy dog";
	size_t len = strlen(text);

	for (size_t cut = 0; cut <= len; cut++)
		ck_assert_uint_eq(crc32c_extend(crc32c(text, cut), text + cut, len - cut), crc32c(text, len));
}
END_TEST

/* Bit by bit, as the standard says it. */
static uint32_t slow_crc(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

/* Short input goes another way than long. */
START_TEST(test_every_length)
{
	uint8_t data[600 + 8];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	for (size_t len = 0; len <= 600; len++)
		ck_assert_uint_eq(crc32c(data + len % 8, len), slow_crc(data + len % 8, len));
}
END_TEST

START_TEST(test_combine_every_cut)
{
	static uint8_t data[70000];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	for (size_t cut = 0; cut <= sizeof(data); cut += 617)
		ck_assert_uint_eq(
			crc32c_combine(crc32c(data, cut), crc32c(data + cut, sizeof(data) - cut), sizeof(data) - cut),
			crc32c(data, sizeof(data)));
}
END_TEST

/* Behind A come 16 KiB, whose power has a table of its own: every bit of A goes through it. */
START_TEST(test_combine_a_unit)
{
	uint8_t unit[LIMIT_UNIT_BYTES] = {0};

	for (int bit = 0; bit < 32; bit++) {
		uint32_t a = 1u << bit;

		ck_assert_uint_eq(crc32c_combine(a, crc32c(unit, sizeof(unit)), sizeof(unit)),
			crc32c_extend(a, unit, sizeof(unit)));
		unit[bit * 511] = (uint8_t)(bit + 1);
	}
}
END_TEST

START_TEST(test_combine_lengths)
{
	/* Zero length is the identity; long lengths are associative, which needs the upper powers of the table. */
	uint64_t far = 0x123456789abcdeULL;
	uint32_t a = 0xdeadbeef, b = 0x12345678, c = 0x0badcafe;

	ck_assert_uint_eq(crc32c_combine(a, 0, 0), a);
	ck_assert_uint_eq(crc32c_combine(crc32c_combine(a, b, far), c, far + 1),
		crc32c_combine(a, crc32c_combine(b, c, far + 1), 2 * far + 1));
	ck_assert_uint_ne(crc32c_combine(a, b, far), crc32c_combine(a, b, far + 1));
}
END_TEST

UNIT_MAIN("crc32c", test_known_answers, test_extend_is_the_crc_of_the_whole, test_every_length, test_combine_every_cut,
	test_combine_a_unit, test_combine_lengths)
