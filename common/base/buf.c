/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf: memory doubles as it grows, so n appends copy O(n) bytes. Invariants: len <= max; one byte more than len is allocated
 * once something was printed, for the NUL that follows.
 */
#include "common/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

enum { FIRST_BYTES = 256 };

void buf_init(struct buf *b, size_t max)
{
	CHECK(max < SIZE_MAX / 4);
	*b = (struct buf){.max = max};
}

void buf_fini(struct buf *b)
{
	mem_free(b->data);
	*b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
}

/* Room for len more bytes and `spare` uncounted ones. */
static bool reserve(struct buf *b, size_t len, size_t spare)
{
	size_t want, cap = b->cap ? b->cap : FIRST_BYTES;

	if (b->failed || len > b->max - b->len) {
		b->failed = true;
		return false;
	}
	want = b->len + len + spare;
	if (want <= b->cap)
		return true;
	while (cap < want)
		cap *= 2;
	if (cap > b->max + 1)
		cap = b->max + 1;
	b->data = mem_realloc(b->data, cap);
	b->cap = cap;
	return true;
}

void *buf_extend(struct buf *b, size_t len)
{
	uint8_t *at;

	if (!reserve(b, len, 1))
		return NULL;
	at = b->data + b->len;
	b->len += len;
	return at;
}

void buf_append(struct buf *b, const void *data, size_t len)
{
	void *at = buf_extend(b, len);

	if (at && len)
		memcpy(at, data, len);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	CHECK(len >= 0);
	if (!reserve(b, (size_t)len, 1))
		return;
	va_start(args, fmt);
	vsnprintf((char *)b->data + b->len, (size_t)len + 1, fmt, args);
	va_end(args);
	b->len += (size_t)len;
}
