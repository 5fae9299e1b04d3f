/* SPDX-License-Identifier: Apache-2.0 */
/* mem: zero bytes are asked for as one, so that a pointer returned is never NULL and always fit for mem_free. */
#include "common/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"

static _Noreturn void out_of_memory(size_t bytes)
{
	fprintf(stderr, "craton: out of memory: %zu bytes refused; give the process more memory or lower its limits\n",
		bytes);
	abort();
}

static void *checked(void *p, size_t bytes)
{
	if (!p)
		out_of_memory(bytes);
	return p;
}

void *mem_alloc(size_t bytes)
{
	return checked(malloc(bytes ? bytes : 1), bytes);
}

void *mem_zalloc(size_t bytes)
{
	return checked(calloc(1, bytes ? bytes : 1), bytes);
}

void *mem_array(size_t count, size_t bytes)
{
	size_t total;

	CHECK(!__builtin_mul_overflow(count, bytes, &total));
	return mem_zalloc(total);
}

void *mem_realloc(void *p, size_t bytes)
{
	return checked(realloc(p, bytes ? bytes : 1), bytes);
}

void *mem_aligned(size_t align, size_t bytes)
{
	void *p = NULL;

	CHECK(align >= sizeof(void *) && (align & (align - 1)) == 0);
	if (posix_memalign(&p, align, bytes ? bytes : 1))
		out_of_memory(bytes);
	return p;
}

char *mem_strdup(const char *s)
{
	size_t bytes = strlen(s) + 1;

	return memcpy(mem_alloc(bytes), s, bytes);
}

char *mem_printf(const char *fmt, ...)
{
	va_list args, again;
	char *text;
	int len;

	va_start(args, fmt);
	va_copy(again, args);
	len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	CHECK(len >= 0);
	text = mem_alloc((size_t)len + 1);
	vsnprintf(text, (size_t)len + 1, fmt, again);
	va_end(again);
	return text;
}

void mem_free(void *p)
{
	free(p);
}
