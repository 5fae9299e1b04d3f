/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err: tables over ERR_LIST, and the building of the one line that goes with a code.
 *
 * Both setters format into a scratch array first, since an argument may point into the text that is being replaced.
 */
#include "common/base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"

struct err_row {
	int code;
	int os_errno;
	const char *name;
	const char *text;
};

static const struct err_row rows[] = {
#define ERR_X(name, number, errno_, text) {name, errno_, #name, text},
	ERR_LIST(ERR_X)
#undef ERR_X
};

enum { SHOWN_EIO = 5 };

static const struct err_row *row_of(int64_t code)
{
	for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
		if (rows[i].code == code)
			return &rows[i];
	return NULL;
}

/* One line: what came from outside into a text must not break it in two. */
static void flatten(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = ' ';
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	char text[ERR_TEXT_BYTES];
	va_list args;

	if (!e)
		return code;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	flatten(text);
	e->code = code;
	memcpy(e->text, text, sizeof(text));
	if (code == 0)
		e->text[0] = 0;
	return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	char text[ERR_TEXT_BYTES];
	va_list args;
	size_t len, rest;

	if (e->code == 0)
		return 0;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	len = strlen(text);
	if (len + 2 < sizeof(text)) {
		rest = strnlen(e->text, sizeof(text) - len - 3);
		memcpy(text + len, ": ", 2);
		memcpy(text + len + 2, e->text, rest);
		text[len + 2 + rest] = 0;
	}
	flatten(text);
	memcpy(e->text, text, sizeof(text));
	return e->code;
}

const char *err_name(int code)
{
	const struct err_row *row = row_of(code);

	if (code == 0)
		return "ERR_OK";
	return row ? row->name : "ERR_UNKNOWN";
}

const char *err_text(int code)
{
	const struct err_row *row = row_of(code);

	if (code == 0)
		return "success";
	return row ? row->text : "unknown error";
}

int err_to_errno(int code)
{
	const struct err_row *row = row_of(code);

	if (code >= 0)
		return 0;
	return row ? row->os_errno : SHOWN_EIO;
}

int err_from_errno(int os_errno)
{
	/* Craton's own codes stand for several errno values; only those that are an errno by number map back. */
	const struct err_row *row = row_of(-(int64_t)os_errno);

	if (os_errno == 0)
		return 0;
	return row && row->os_errno == os_errno ? row->code : ERR_IO;
}

int err_from_wire(int64_t number)
{
	const struct err_row *row = row_of(number);

	if (number == 0)
		return 0;
	return row ? row->code : ERR_PROTO;
}
