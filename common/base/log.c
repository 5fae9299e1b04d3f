/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: formats conversion by conversion instead of in one vsnprintf, because only then is it known where a value begins and
 * ends: a %s right after '=' that has spaces, quotes, '=' or nothing in it comes out quoted, and no value can break a line in
 * two or forge a second key. All conversions of printf that the tree uses are known: d i u x X o c s p f g e with the lengths
 * hh h l ll z j t; others are a mistake of ours.
 */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"

enum { LINE_BYTES = 1024, SPEC_BYTES = 24 };

struct line {
	char text[LINE_BYTES + 1];
	size_t len;
};

static void put(struct line *line, char c)
{
	if (line->len < LINE_BYTES)
		line->text[line->len++] = c;
}

static void put_text(struct line *line, const char *text)
{
	while (*text)
		put(line, *text++);
}

static void put_escaped(struct line *line, char c, bool quoted)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char byte = (unsigned char)c;

	if (byte < ' ' || byte == 0x7f) {
		put_text(line, "\\x");
		put(line, digits[byte >> 4]);
		put(line, digits[byte & 15]);
		return;
	}
	if (quoted && (c == '"' || c == '\\'))
		put(line, '\\');
	put(line, c);
}

/* At most `max` bytes of text are looked at: the %.*s of something that has no NUL. */
static void put_value(struct line *line, const char *text, size_t max)
{
	bool after_key = line->len > 0 && line->text[line->len - 1] == '=';
	bool quoted = after_key && (max == 0 || !*text);
	size_t len = 0;

	for (; len < max && text[len]; len++)
		if (after_key && ((unsigned char)text[len] <= ' ' || strchr("\"=\\\x7f", text[len])))
			quoted = true;
	if (quoted)
		put(line, '"');
	for (size_t i = 0; i < len; i++)
		put_escaped(line, text[i], quoted);
	if (quoted)
		put(line, '"');
}

struct spec {
	char text[SPEC_BYTES]; /* "%-5ld", star and its precision filled in */
	size_t len;
	int precision; /* -1: none */
	char length[3];
};

static void spec_add(struct spec *spec, char c)
{
	CHECK(spec->len + 1 < SPEC_BYTES);
	spec->text[spec->len++] = c;
	spec->text[spec->len] = 0;
}

/* Copies digits or the argument of a star. */
static const char *spec_number(struct spec *spec, const char *p, va_list *args, int *ret_number)
{
	char digits[16];
	int number = 0;

	if (*p == '*') {
		number = va_arg(*args, int);
		snprintf(digits, sizeof(digits), "%d", number);
		for (const char *d = digits; *d; d++)
			spec_add(spec, *d);
		p++;
	} else {
		for (; *p >= '0' && *p <= '9'; p++) {
			number = number * 10 + (*p - '0');
			CHECK(number <= LINE_BYTES);
			spec_add(spec, *p);
		}
	}
	*ret_number = number;
	return p;
}

/* Reads from after the '%' to the conversion letter, which is returned; *p is moved past it. */
static char spec_read(struct spec *spec, const char **p, va_list *args)
{
	const char *at = *p;
	size_t length = 0;
	int width;

	*spec = (struct spec){.precision = -1};
	spec_add(spec, '%');
	while (*at && strchr("-+ #0", *at))
		spec_add(spec, *at++);
	at = spec_number(spec, at, args, &width);
	if (*at == '.') {
		spec_add(spec, *at++);
		at = spec_number(spec, at, args, &spec->precision);
	}
	while (*at && strchr("hlzjt", *at)) {
		CHECK(length < 2);
		spec->length[length++] = *at;
		spec_add(spec, *at++);
	}
	CHECK(*at);
	spec_add(spec, *at);
	*p = at + 1;
	return *at;
}

static void put_signed(struct line *line, const struct spec *spec, va_list *args)
{
	char text[128];

	if (spec->length[0] == 0 || spec->length[0] == 'h')
		snprintf(text, sizeof(text), spec->text, va_arg(*args, int));
	else if (!strcmp(spec->length, "l"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, long));
	else if (!strcmp(spec->length, "z"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, ssize_t));
	else if (!strcmp(spec->length, "j"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, intmax_t));
	else if (!strcmp(spec->length, "t"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, ptrdiff_t));
	else
		snprintf(text, sizeof(text), spec->text, va_arg(*args, long long));
	put_text(line, text);
}

static void put_unsigned(struct line *line, const struct spec *spec, va_list *args)
{
	char text[128];

	if (spec->length[0] == 0 || spec->length[0] == 'h')
		snprintf(text, sizeof(text), spec->text, va_arg(*args, unsigned));
	else if (!strcmp(spec->length, "l"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, unsigned long));
	else if (!strcmp(spec->length, "z"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, size_t));
	else if (!strcmp(spec->length, "j"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, uintmax_t));
	else if (!strcmp(spec->length, "t"))
		snprintf(text, sizeof(text), spec->text, va_arg(*args, ptrdiff_t));
	else
		snprintf(text, sizeof(text), spec->text, va_arg(*args, unsigned long long));
	put_text(line, text);
}

static void put_string(struct line *line, const struct spec *spec, va_list *args)
{
	const char *text = va_arg(*args, const char *);

	if (!text)
		put_text(line, "null");
	else
		put_value(line, text, spec->precision >= 0 ? (size_t)spec->precision : SIZE_MAX);
}

static void put_conversion(struct line *line, const char **p, va_list *args)
{
	struct spec spec;
	char text[512];

	switch (spec_read(&spec, p, args)) {
	case 'd':
	case 'i':
		put_signed(line, &spec, args);
		break;
	case 'u':
	case 'x':
	case 'X':
	case 'o':
		put_unsigned(line, &spec, args);
		break;
	case 's':
		put_string(line, &spec, args);
		break;
	case 'c':
		put_value(line, (char[2]){(char)va_arg(*args, int)}, 1);
		break;
	case 'p':
		snprintf(text, sizeof(text), spec.text, va_arg(*args, void *));
		put_text(line, text);
		break;
	case 'f':
	case 'g':
	case 'e':
		snprintf(text, sizeof(text), spec.text, va_arg(*args, double));
		put_text(line, text);
		break;
	case '%':
		put(line, '%');
		break;
	default:
		CHECK_UNREACHABLE();
	}
}

void log_line(const struct log *log, enum log_level level, const char *event, const char *fmt, ...)
{
	struct line line;
	va_list args;

	if (level < log->min_level || !log->write)
		return;
	line.len = 0;
	if (log->name) {
		put_text(&line, log->name);
		put(&line, ' ');
	}
	put_text(&line, event);
	if (*fmt)
		put(&line, ' ');
	va_start(args, fmt);
	while (*fmt) {
		if (*fmt == '%') {
			fmt++;
			put_conversion(&line, &fmt, &args);
		} else {
			put_escaped(&line, *fmt++, false);
		}
	}
	va_end(args);
	line.text[line.len] = 0;
	log->write(log->ctx, level, line.text);
}
