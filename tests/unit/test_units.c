/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/units.h"

#include "common/base/check.h"
#include "common/base/err.h"
#include "tests/lib/unit.h"

static uint64_t bytes_of(const char *text)
{
	uint64_t value = 0;

	ck_assert_msg(units_parse_bytes(text, &value) == 0, "%s", text);
	return value;
}

static uint64_t ms_of(const char *text)
{
	uint64_t value = 0;

	ck_assert_msg(units_parse_ms(text, &value) == 0, "%s", text);
	return value;
}

START_TEST(test_bytes)
{
	ck_assert_uint_eq(bytes_of("4096"), 4096);
	ck_assert_uint_eq(bytes_of("0"), 0);
	ck_assert_uint_eq(bytes_of("64K"), 65536);
	ck_assert_uint_eq(bytes_of("64k"), 65536);
	ck_assert_uint_eq(bytes_of("1.5G"), 3ull << 29);
	ck_assert_uint_eq(bytes_of("8GiB"), 8ull << 30);
	ck_assert_uint_eq(bytes_of("8 GiB"), 8ull << 30);
	ck_assert_uint_eq(bytes_of("8GB"), 8000000000ull);
	ck_assert_uint_eq(bytes_of("512B"), 512);
	ck_assert_uint_eq(bytes_of("2TB"), 2000000000000ull);
	ck_assert_uint_eq(bytes_of("18446744073709551615"), UINT64_MAX);
	ck_assert_uint_eq(bytes_of("16383.9999P"), 18446743961119560931ull);
}
END_TEST

START_TEST(test_bytes_refused)
{
	static const char *const bad[] = {"", "x", "-1", "+1", " 1", "1 x", "1.K", ".5K", "1.5", "1.5B", "1,5K", "0x10", "1KK",
		"1.2.3K", "1.1234567890K", "K", "1e3", "nan"};
	uint64_t value = 77;

	for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
		ck_assert_msg(units_parse_bytes(bad[i], &value) == ERR_INVAL, "%s", bad[i]);
	ck_assert_int_eq(units_parse_bytes("18446744073709551616", &value), ERR_RANGE);
	ck_assert_int_eq(units_parse_bytes("16384P", &value), ERR_RANGE);
	ck_assert_uint_eq(value, 77); /* untouched */
}
END_TEST

START_TEST(test_durations)
{
	uint64_t value;

	ck_assert_uint_eq(ms_of("250ms"), 250);
	ck_assert_uint_eq(ms_of("30s"), 30000);
	ck_assert_uint_eq(ms_of("1.5s"), 1500);
	ck_assert_uint_eq(ms_of("10m"), 600000);
	ck_assert_uint_eq(ms_of("1h"), 3600000);
	ck_assert_uint_eq(ms_of("2d"), 172800000);
	ck_assert_uint_eq(ms_of("5"), 5000);
	ck_assert_int_eq(units_parse_ms("0.5ms", &value), ERR_INVAL);
	ck_assert_int_eq(units_parse_ms("5y", &value), ERR_INVAL);
}
END_TEST

START_TEST(test_u64)
{
	uint64_t value = 0;

	ck_assert_int_eq(units_parse_u64("7", 1, 10, &value), 0);
	ck_assert_uint_eq(value, 7);
	ck_assert_int_eq(units_parse_u64("0", 1, 10, &value), ERR_RANGE);
	ck_assert_int_eq(units_parse_u64("11", 1, 10, &value), ERR_RANGE);
	ck_assert_int_eq(units_parse_u64("99999999999999999999", 0, UINT64_MAX, &value), ERR_RANGE);
	ck_assert_int_eq(units_parse_u64("99999999999999999999x", 0, UINT64_MAX, &value), ERR_INVAL);
	ck_assert_int_eq(units_parse_u64("", 0, 10, &value), ERR_INVAL);
	ck_assert_int_eq(units_parse_u64("-1", 0, 10, &value), ERR_INVAL);
	ck_assert_int_eq(units_parse_u64("1 ", 0, 10, &value), ERR_INVAL);
	ck_assert_uint_eq(value, 7);
}
END_TEST

START_TEST(test_format)
{
	char text[UNITS_TEXT_BYTES];

	ck_assert_str_eq(units_format_bytes(0, text), "0 B");
	ck_assert_str_eq(units_format_bytes(1023, text), "1023 B");
	ck_assert_str_eq(units_format_bytes(1024, text), "1 KiB");
	ck_assert_str_eq(units_format_bytes(3ull << 29, text), "1.5 GiB");
	ck_assert_str_eq(units_format_bytes((1ull << 20) - 1, text), "1 MiB"); /* not 1024 KiB */
	ck_assert_str_eq(units_format_bytes(UINT64_MAX, text), "16 EiB");
	ck_assert_str_eq(units_format_ms(0, text), "0s");
	ck_assert_str_eq(units_format_ms(250, text), "250ms");
	ck_assert_str_eq(units_format_ms(1500, text), "1500ms"); /* exact */
	ck_assert_str_eq(units_format_ms(90000, text), "90s");
	ck_assert_str_eq(units_format_ms(86400000, text), "24h");
	ck_assert_str_eq(units_format_ns(12, text), "12 ns");
	ck_assert_str_eq(units_format_ns(1500000, text), "1.5 ms");
	ck_assert_str_eq(units_format_ns(90000000000ull, text), "1.5 min");
	ck_assert_str_eq(units_format_ns(7200000000000ull, text), "2 h");
}
END_TEST

UNIT_MAIN("units", test_bytes, test_bytes_refused, test_durations, test_u64, test_format)
