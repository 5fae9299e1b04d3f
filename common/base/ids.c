/* SPDX-License-Identifier: Apache-2.0 */
/* ids: the text form of a UUID (RFC 4122 section 3); reading takes either case, writing gives lower case. */
#include "common/base/ids.h"

#include <string.h>
#include "common/base/err.h"

static bool dash_before(int byte)
{
	return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void uuid_format(const struct uuid *u, char ret_text[UUID_TEXT_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	char *p = ret_text;

	for (int i = 0; i < 16; i++) {
		if (dash_before(i))
			*p++ = '-';
		*p++ = digits[u->bytes[i] >> 4];
		*p++ = digits[u->bytes[i] & 15];
	}
	*p = 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int uuid_parse(const char *text, struct uuid *ret_uuid)
{
	struct uuid u;

	for (int i = 0; i < 16; i++) {
		int high, low;

		if (dash_before(i) && *text++ != '-')
			return ERR_INVAL;
		high = hex_digit(*text);
		if (high < 0) /* also at the end of the text */
			return ERR_INVAL;
		low = hex_digit(text[1]);
		if (low < 0)
			return ERR_INVAL;
		u.bytes[i] = (uint8_t)(high << 4 | low);
		text += 2;
	}
	if (*text)
		return ERR_INVAL;
	*ret_uuid = u;
	return 0;
}

bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

bool uuid_is_zero(const struct uuid *u)
{
	static const struct uuid zero;

	return uuid_equal(u, &zero);
}
