/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index: which chunks lie on a disk, and where: a journal (common/kv) of its own for each disk. A row appears when its record and its chunk are
 * durable, and not before; docs/FORMATS.md has the bytes of rows and records.
 *
 * A small chunk and its record may be on their way at once (index_put_beside), so that sealing takes as long as one durable write and not as two. A
 * crash may then leave the record of a chunk that is not there. Each record says which seals are settled, that is, which chunks were durable
 * when it was written; rows of others are looked at by the next start, and go if their chunk is not there whole: nobody was told of them.
 */
#ifndef CHUNKD_INDEX_H
#define CHUNKD_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/alloc.h"
#include "chunkd/format.h"
#include "common/base/ids.h"
#include "common/base/list.h"
#include "common/io/io.h"
#include "common/kv/kv.h"

struct index;

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

struct index_options {
	const char *dir; /* exists */
	const struct kv_backend *backend;
	uint64_t log_segment_bytes;
	bool buffered;
	/* At open, for each row, then once for all of them; a failure ends the open. */
	int (*each)(void *ctx, const struct index_row *row, struct err *err);
	int (*loaded)(void *ctx, struct err *err);
	/*
	 * Before `each`, for a row of a chunk of INDEX_BESIDE_BYTES at most that may not be there. 1: it is, and is durable when `loaded` has returned 0; 0: it
	 * is not, so that the row goes and `each` does not see it; below 0: that ends the open. NULL: there are none.
	 */
	int (*verify)(void *ctx, const struct index_row *row, struct err *err);
	/* Nothing is acknowledged any more. */
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;
};

/* Synchronous. */
int index_open(struct io *io, const struct index_options *options, struct index **ret_index, struct err *err);
/* No change is under way, but for what the start itself began. */
void index_close(struct index *index, void (*closed)(void *ctx), void *ctx);

/* ERR_NOENT. */
int index_get(struct index *index, const struct copy_id *copy, struct index_row *ret_row);

/* Copies in the order of (block, index, incarnation), *from and behind it, at most max; returns how many. */
size_t index_list(struct index *index, const struct copy_id *from, struct copy_id *ret_copies, size_t max);

/* One change, the caller's until `done` (never called from inside the calls that begin it). All changes of a turn are one record. */
struct index_change {
	struct index_row row; /* PUT: all of it. DROP: row.copy */
	void (*done)(struct index_change *change, int code);
	void *owner;      /* the caller's */
	/* private */
	struct list link, unsettled;
	bool drop, data_due, recorded;
	int code;
};
enum { INDEX_BESIDE_BYTES = 64 << 10 };
/* Of a chunk that is durable. */
void index_put(struct index *index, struct index_change *change);
/*
 * Of one of INDEX_BESIDE_BYTES at most that is being written: index_written follows, once, with how that ended, 0: it is durable. `done` comes after
 * both, then perhaps from inside index_written. The row's sequence is the last that index_next_sequence gave.
 */
void index_put_beside(struct index *index, struct index_change *change);
void index_written(struct index *index, struct index_change *change, int code);
void index_drop(struct index *index, struct index_change *change);

enum { INDEX_SEQUENCE_GAP = 1 << 14 };
/* Greater than that of every seal of this disk before, also of those that a crash cut short. */
uint64_t index_next_sequence(struct index *index);
uint64_t index_count(const struct index *index); /* rows, also of chunks that are being written or go */

/* Since it was opened. */
struct index_stats {
	uint64_t beside;              /* chunks that index_put_beside was called for */
	uint64_t records, records_ns; /* that became durable, or failed, and their time from submission on */
};
struct index_stats index_stats(const struct index *index);
bool index_idle(const struct index *index);      /* no change under way */
bool index_is_full(const struct index *index);   /* its file system is: only drops, which always pass */
bool index_has_room(const struct index *index);  /* false: the tables in memory are full, admit no new work */

/* ---- encodings, for tests and tools ---- */

enum { INDEX_KEY_BYTES = 14, INDEX_VALUE_BYTES = 36 };
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

#endif
