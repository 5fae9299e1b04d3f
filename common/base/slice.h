/* SPDX-License-Identifier: Apache-2.0 */
/* slice: bytes that somebody else owns. */
#ifndef COMMON_BASE_SLICE_H
#define COMMON_BASE_SLICE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct slice {
	const uint8_t *data;
	size_t len;
};

static inline struct slice slice_of(const void *data, size_t len) { return (struct slice){(const uint8_t *)data, len}; }

/* memcmp order, a prefix sorts first */
static inline int slice_compare(struct slice a, struct slice b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int c = n ? memcmp(a.data, b.data, n) : 0;

	if (c)
		return c;
	return a.len < b.len ? -1 : a.len > b.len;
}

#endif
