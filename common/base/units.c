/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units: a number is digits with at most one dot and nine decimals; a suffix multiplies it. All in integers of 128 bits, so that
 * no size depends on floating point or locale. A fraction of the smallest unit is refused, not rounded away.
 */
#include "common/base/units.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "common/base/check.h"
#include "common/base/err.h"

enum { MAX_DECIMALS = 9 };

struct suffix {
	const char *text;
	uint64_t factor;
};

/* clang-format off */
static const struct suffix byte_suffixes[] = {
	{"", 1}, {"B", 1},
	{"K", 1ull << 10}, {"KiB", 1ull << 10}, {"KB", 1000ull},
	{"M", 1ull << 20}, {"MiB", 1ull << 20}, {"MB", 1000000ull},
	{"G", 1ull << 30}, {"GiB", 1ull << 30}, {"GB", 1000000000ull},
	{"T", 1ull << 40}, {"TiB", 1ull << 40}, {"TB", 1000000000000ull},
	{"P", 1ull << 50}, {"PiB", 1ull << 50}, {"PB", 1000000000000000ull}
};

static const struct suffix ms_suffixes[] = {
	{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"min", 60 * 1000}, {"h", 60 * 60 * 1000},
	{"d", 24 * 60 * 60 * 1000}
};
/* clang-format on */

/* Digits up to *end; ERR_RANGE past 64 bits. Sets *ret_count to the number of digits. */
static int read_digits(const char *text, const char **end, uint64_t *ret_value, size_t *ret_count)
{
	uint64_t value = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10u, &value) ||
			__builtin_add_overflow(value, (unsigned)(*p - '0'), &value))
			return ERR_RANGE;
	*end = p;
	*ret_value = value;
	*ret_count = (size_t)(p - text);
	return 0;
}

static int parse_scaled(const char *text, const struct suffix *suffixes, size_t count, uint64_t *ret_value)
{
	uint64_t whole, fraction = 0, scale = 1;
	unsigned __int128 value;
	size_t digits, decimals;
	const char *p;
	int rc = read_digits(text, &p, &whole, &digits);

	if (rc)
		return rc;
	if (digits == 0)
		return ERR_INVAL;
	if (*p == '.') {
		if (read_digits(p + 1, &p, &fraction, &decimals) || decimals == 0 || decimals > MAX_DECIMALS)
			return ERR_INVAL;
		for (; decimals > 0; decimals--)
			scale *= 10;
	}
	while (*p == ' ')
		p++;
	for (size_t i = 0; i < count; i++) {
		if (strcasecmp(p, suffixes[i].text))
			continue;
		value = ((unsigned __int128)whole * scale + fraction) * suffixes[i].factor;
		if (suffixes[i].factor == 1 && value % scale)
			return ERR_INVAL;
		value /= scale;
		if (value > UINT64_MAX)
			return ERR_RANGE;
		*ret_value = (uint64_t)value;
		return 0;
	}
	return ERR_INVAL;
}

int units_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	return parse_scaled(text, byte_suffixes, ARRAY_COUNT(byte_suffixes), ret_bytes);
}

int units_parse_ms(const char *text, uint64_t *ret_ms)
{
	return parse_scaled(text, ms_suffixes, ARRAY_COUNT(ms_suffixes), ret_ms);
}

int units_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	uint64_t value;
	const char *end;
	size_t digits;
	int rc = read_digits(text, &end, &value, &digits);

	if (rc) {
		/* Too long a number, unless it is not one. */
		return text[strspn(text, "0123456789")] ? ERR_INVAL : ERR_RANGE;
	}
	if (digits == 0 || *end)
		return ERR_INVAL;
	if (value < min || value > max)
		return ERR_RANGE;
	*ret_value = value;
	return 0;
}

/* One decimal, dropped if it is 0. The unit is the greatest of which there is at least one after rounding. */
static const char *format_scaled(uint64_t value, const struct suffix *units, size_t count, char text[UNITS_TEXT_BYTES])
{
	size_t i = 0;
	uint64_t tenths;

	for (;; i++) {
		tenths = (uint64_t)(((unsigned __int128)value * 10 + units[i].factor / 2) / units[i].factor);
		if (i + 1 == count ||
			(unsigned __int128)tenths * units[i].factor < (unsigned __int128)units[i + 1].factor * 10)
			break;
	}
	if (tenths % 10)
		snprintf(text, UNITS_TEXT_BYTES, "%llu.%llu %s", (unsigned long long)(tenths / 10),
			(unsigned long long)(tenths % 10), units[i].text);
	else
		snprintf(text, UNITS_TEXT_BYTES, "%llu %s", (unsigned long long)(tenths / 10), units[i].text);
	return text;
}

const char *units_format_bytes(uint64_t bytes, char text[UNITS_TEXT_BYTES])
{
	static const struct suffix units[] = {{"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30},
		{"TiB", 1ull << 40}, {"PiB", 1ull << 50}, {"EiB", 1ull << 60}};

	return format_scaled(bytes, units, ARRAY_COUNT(units), text);
}

const char *units_format_ms(uint64_t ms, char text[UNITS_TEXT_BYTES])
{
	static const struct suffix units[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
	size_t i = 0;

	while (ms % units[i].factor)
		i++;
	if (ms == 0)
		i = 2;
	snprintf(text, UNITS_TEXT_BYTES, "%llu%s", (unsigned long long)(ms / units[i].factor), units[i].text);
	return text;
}

const char *units_format_ns(uint64_t ns, char text[UNITS_TEXT_BYTES])
{
	static const struct suffix units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000},
		{"min", 60 * 1000000000ull}, {"h", 3600 * 1000000000ull}};

	return format_scaled(ns, units, ARRAY_COUNT(units), text);
}
