/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf: a growable byte buffer with a bound. Growing past `max` sets `failed` and changes nothing else; from then on nothing is
 * added, so that one check at the end tells. buf_clear makes it good again.
 */
#ifndef COMMON_BASE_BUF_H
#define COMMON_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data;
	size_t len, cap, max;
	bool failed;
};

void buf_init(struct buf *b, size_t max);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b);                        /* keeps the memory */
void *buf_extend(struct buf *b, size_t len);          /* room for len more bytes, counted in; NULL if past max */
void buf_append(struct buf *b, const void *data, size_t len);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* no NUL counted, one follows */

#endif
