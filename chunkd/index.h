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
#include "chunkd/index_record.h"
#include "common/base/list.h"
#include "common/io/io.h"
#include "common/kv/kv.h"

struct index;

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
/*
 * The disk has failed: what another write was told may have been meant for any that was not settled by then. The next start looks at all of them.
 */
void index_doubt(struct index *index);

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

#endif
