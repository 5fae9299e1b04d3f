/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json: `first` alone is enough state for the commas: an opened object or array starts with it true, and a closed one was a
 * value of its parent, after which it is false. A buf that is full makes the text useless; its `failed` tells.
 */
#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"

enum { MAX_DEPTH = 32 }; /* ours to keep: the shape of the text comes from code, never from input */

void json_init(struct json *j, struct buf *out)
{
	*j = (struct json){.out = out, .first = true};
}

/* Bytes of the UTF-8 character at p (RFC 3629), 0 if there is none. A NUL ends every sequence, so nothing past it is read. */
static size_t utf8_len(const unsigned char *p)
{
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||   /* overlong, surrogates */
		(p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) /* overlong, past U+10FFFF */
		return 0;
	return len;
}

static void quote(struct buf *out, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	buf_append(out, "\"", 1);
	while (*p) {
		size_t len = utf8_len(p);

		if (len == 0) {
			buf_append(out, "\xef\xbf\xbd", 3);
			p++;
			continue;
		}
		if (*p == '"' || *p == '\\')
			buf_printf(out, "\\%c", *p);
		else if (*p == '\n')
			buf_append(out, "\\n", 2);
		else if (*p == '\t')
			buf_append(out, "\\t", 2);
		else if (*p < ' ' || *p == 0x7f)
			buf_printf(out, "\\u%04x", *p);
		else
			buf_append(out, p, len);
		p += len;
	}
	buf_append(out, "\"", 1);
}

static void before_value(struct json *j, const char *key)
{
	if (!j->first)
		buf_append(j->out, ",", 1);
	j->first = false;
	if (key) {
		quote(j->out, key);
		buf_append(j->out, ":", 1);
	}
}

static void begin(struct json *j, const char *key, const char *bracket)
{
	CHECK(j->depth < MAX_DEPTH);
	before_value(j, key);
	buf_append(j->out, bracket, 1);
	j->depth++;
	j->first = true;
}

static void end(struct json *j, const char *bracket)
{
	CHECK(j->depth > 0);
	buf_append(j->out, bracket, 1);
	j->depth--;
	j->first = false;
}

void json_object(struct json *j, const char *key)
{
	begin(j, key, "{");
}

void json_array(struct json *j, const char *key)
{
	begin(j, key, "[");
}

void json_end_object(struct json *j)
{
	end(j, "}");
}

void json_end_array(struct json *j)
{
	end(j, "]");
}

void json_str(struct json *j, const char *key, const char *value)
{
	before_value(j, key);
	if (value)
		quote(j->out, value);
	else
		buf_append(j->out, "null", 4);
}

static bool is_utf8(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t len;

	for (; *p; p += len)
		if ((len = utf8_len(p)) == 0)
			return false;
	return true;
}

static void base64(struct buf *out, const unsigned char *p, size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (; len > 0; p += len < 3 ? len : 3, len -= len < 3 ? len : 3) {
		uint32_t bits = (uint32_t)p[0] << 16 | (len > 1 ? (uint32_t)p[1] << 8 : 0) | (len > 2 ? p[2] : 0u);
		char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63], len > 1 ? digits[bits >> 6 & 63] : '=',
			len > 2 ? digits[bits & 63] : '='};

		buf_append(out, four, 4);
	}
}

void json_name(struct json *j, const char *key, const char *value)
{
	json_str(j, key, value);
	if (is_utf8(value))
		return;
	buf_printf(j->out, ",\"%s_base64\":\"", key);
	base64(j->out, (const unsigned char *)value, strlen(value));
	buf_append(j->out, "\"", 1);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	before_value(j, key);
	buf_printf(j->out, "%llu", (unsigned long long)value);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
	before_value(j, key);
	buf_printf(j->out, "%lld", (long long)value);
}

void json_f64(struct json *j, const char *key, double value)
{
	char text[40];

	before_value(j, key);
	if (!isfinite(value)) {
		buf_append(j->out, "null", 4);
		return;
	}
	/* The shortest of the two that reads back as the same number. */
	snprintf(text, sizeof(text), "%.15g", value);
	if (strtod(text, NULL) != value)
		snprintf(text, sizeof(text), "%.17g", value);
	for (char *p = text; *p; p++)
		if (*p == ',') /* the decimal point of a host program's locale */
			*p = '.';
	buf_append(j->out, text, strlen(text));
}

void json_bool(struct json *j, const char *key, bool value)
{
	before_value(j, key);
	if (value)
		buf_append(j->out, "true", 4);
	else
		buf_append(j->out, "false", 5);
}
