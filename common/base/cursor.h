/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor: linear encoding and decoding with a sticky error: after the first overrun nothing is written or read (reads give
 * zeros), and one check at the end tells. Integers are little-endian (`_be` ones big-endian, for keys that must sort).
 *
 * Every put asks for room once and every get for bytes once; both answer NULL for ever after the first overrun. All of it is
 * inline: rows of metadata are some dozen integers each, and the calls cost more than the moves.
 */
#ifndef COMMON_BASE_CURSOR_H
#define COMMON_BASE_CURSOR_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "common/base/slice.h"

struct wcursor {
	uint8_t *data;
	size_t cap, len;
	bool failed;
};

struct rcursor {
	const uint8_t *data;
	size_t len, pos;
	bool failed;
};

/* ---- writing ---- */

static inline void wcursor_init(struct wcursor *w, void *data, size_t cap)
{
	*w = (struct wcursor){.data = (uint8_t *)data, .cap = cap};
}

/* Where the next `len` bytes go; NULL: there is no room. */
static inline uint8_t *wcursor__room(struct wcursor *w, size_t len)
{
	uint8_t *at;

	if (w->failed || len > w->cap - w->len) {
		w->failed = true;
		return NULL;
	}
	at = w->data + w->len;
	w->len += len;
	return at;
}

static inline void wcursor_bytes(struct wcursor *w, const void *data, size_t len)
{
	uint8_t *at = wcursor__room(w, len);

	if (at && len)
		memcpy(at, data, len);
}

static inline void wcursor_zeros(struct wcursor *w, size_t len)
{
	uint8_t *at = wcursor__room(w, len);

	if (at && len)
		memset(at, 0, len);
}

static inline void wcursor_u8(struct wcursor *w, uint8_t v)
{
	wcursor_bytes(w, &v, sizeof(v));
}

static inline void wcursor_u16(struct wcursor *w, uint16_t v)
{
	v = htole16(v);
	wcursor_bytes(w, &v, sizeof(v));
}

static inline void wcursor_u32(struct wcursor *w, uint32_t v)
{
	v = htole32(v);
	wcursor_bytes(w, &v, sizeof(v));
}

static inline void wcursor_u64(struct wcursor *w, uint64_t v)
{
	v = htole64(v);
	wcursor_bytes(w, &v, sizeof(v));
}

static inline void wcursor_u32_be(struct wcursor *w, uint32_t v)
{
	v = htobe32(v);
	wcursor_bytes(w, &v, sizeof(v));
}

static inline void wcursor_u64_be(struct wcursor *w, uint64_t v)
{
	v = htobe64(v);
	wcursor_bytes(w, &v, sizeof(v));
}

/* ---- reading ---- */

static inline void rcursor_init(struct rcursor *r, const void *data, size_t len)
{
	*r = (struct rcursor){.data = (const uint8_t *)data, .len = len};
}

/* Where the next `len` bytes are; NULL: there are not so many. */
static inline const uint8_t *rcursor__bytes(struct rcursor *r, size_t len)
{
	const uint8_t *at;

	if (r->failed || len > r->len - r->pos) {
		r->failed = true;
		return NULL;
	}
	at = r->data + r->pos;
	r->pos += len;
	return at;
}

/* Zeros on failure. */
static inline void rcursor_copy(struct rcursor *r, void *out, size_t len)
{
	const uint8_t *at = rcursor__bytes(r, len);

	if (len == 0)
		return;
	if (at)
		memcpy(out, at, len);
	else
		memset(out, 0, len);
}

static inline uint8_t rcursor_u8(struct rcursor *r)
{
	uint8_t v;

	rcursor_copy(r, &v, sizeof(v));
	return v;
}

static inline uint16_t rcursor_u16(struct rcursor *r)
{
	uint16_t v;

	rcursor_copy(r, &v, sizeof(v));
	return le16toh(v);
}

static inline uint32_t rcursor_u32(struct rcursor *r)
{
	uint32_t v;

	rcursor_copy(r, &v, sizeof(v));
	return le32toh(v);
}

static inline uint64_t rcursor_u64(struct rcursor *r)
{
	uint64_t v;

	rcursor_copy(r, &v, sizeof(v));
	return le64toh(v);
}

static inline uint32_t rcursor_u32_be(struct rcursor *r)
{
	uint32_t v;

	rcursor_copy(r, &v, sizeof(v));
	return be32toh(v);
}

static inline uint64_t rcursor_u64_be(struct rcursor *r)
{
	uint64_t v;

	rcursor_copy(r, &v, sizeof(v));
	return be64toh(v);
}

/* Points into the input; empty on failure. */
static inline struct slice rcursor_slice(struct rcursor *r, size_t len)
{
	const uint8_t *at = rcursor__bytes(r, len);

	return at ? slice_of(at, len) : slice_of(NULL, 0);
}

static inline size_t rcursor_left(const struct rcursor *r)
{
	return r->failed ? 0 : r->len - r->pos;
}

/* Not failed and nothing left. */
static inline bool rcursor_done(const struct rcursor *r)
{
	return !r->failed && r->pos == r->len;
}

#endif
