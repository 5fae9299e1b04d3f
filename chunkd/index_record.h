/* SPDX-License-Identifier: Apache-2.0 */
/* index_record: the bytes of the rows and records of the chunk index (index.h), as docs/FORMATS.md has them. Pure. */
#ifndef CHUNKD_INDEX_RECORD_H
#define CHUNKD_INDEX_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/alloc.h"
#include "chunkd/format.h"
#include "common/base/ids.h"
#include "common/base/slice.h"

struct wcursor;

/* A sealed chunk. */
struct index_row {
	struct copy_id copy;
	uint8_t policy;
	struct alloc_extent extent; /* data, padded to a grain, then the trailer */
	uint32_t length;            /* of the chunk */
	uint32_t cell_bytes;
	uint32_t crc;      /* of the chunk, plain */
	uint64_t sequence; /* of the seal */
};

static inline uint64_t index_row_trailer_at(const struct index_row *row)
{
	return format_round(row->length);
}
static inline uint64_t index_row_offset(const struct index_row *row)
{
	return (uint64_t)row->extent.first * FORMAT_GRAIN_BYTES;
}
static inline uint32_t index_row_trailer_bytes(const struct index_row *row)
{
	return (uint32_t)((uint64_t)row->extent.grains * FORMAT_GRAIN_BYTES - index_row_trailer_at(row));
}

static inline bool index_copy_equal(const struct copy_id *a, const struct copy_id *b)
{
	return a->block == b->block && a->incarnation == b->incarnation && a->index == b->index;
}
/* For hash maps; different copies may share one. */
static inline uint64_t index_copy_hash(const struct copy_id *c)
{
	return c->block * 0x9e3779b97f4a7c15ull ^ ((uint64_t)c->index << 32 | c->incarnation) * 0xbf58476d1ce4e5b9ull;
}

enum { INDEX_KEY_BYTES = 14, INDEX_VALUE_BYTES = 36, INDEX_KEY_CHUNK = 'c' /* its first byte */ };
_Static_assert(INDEX_KEY_BYTES + INDEX_VALUE_BYTES <= 64, "a row is small: memory and start-up time go with it");

void index_key_encode(const struct copy_id *copy, uint8_t ret_key[INDEX_KEY_BYTES]);
void index_value_encode(const struct index_row *row, uint8_t ret_value[INDEX_VALUE_BYTES]);
int index_row_decode(struct slice key, struct slice value, struct index_row *ret_row); /* ERR_FORMAT */

/* One change of a record of the log; slices point into it. */
struct index_record_change {
	bool drop;
	struct slice key, value; /* value and row: of a put */
	struct index_row row;
};
/*
 * Gives each change of a record, in order. ERR_VERSION; ERR_FORMAT: changes before the malformed one were given. Small chunks of sequences below
 * ret_settled were durable when it was written; 0: it is of a build that records chunks when they are.
 */
int index_record_walk(struct slice record, void (*each)(void *ctx, const struct index_record_change *change), void *ctx,
	uint64_t *ret_settled);

/* A record: its head, then `count` changes, of row.copy alone for a drop. */
enum { INDEX_HEAD_BYTES = 14, INDEX_CHANGE_BYTES_MAX = 1 + INDEX_KEY_BYTES + INDEX_VALUE_BYTES };
void index_record_head_encode(uint8_t ret_head[INDEX_HEAD_BYTES], uint32_t count, uint64_t settled);
void index_record_change_encode(struct wcursor *w, bool drop, const struct index_row *row);

#endif
