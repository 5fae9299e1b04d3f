/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_backend: the backing store behind the memory tables of a kv; kv_lmdb.c and kv_mem.c implement it.
 *
 * Reads (get, cursor, renew, stats) come from the loop's thread; `commit` blocks and runs on IO_LANE_KV, one at a time,
 * while reads go on: they see the state of the last renew. `renew` and `close` are never called while a commit runs.
 *
 * After a crash `open` shows the state after the last commit or the one before it, never anything else; a commit with
 * `sync` is durable when it returns. Errors come with a text for people; after one from commit or renew the store is
 * only closed.
 */
#ifndef COMMON_KV_KV_BACKEND_H
#define COMMON_KV_KV_BACKEND_H

#include <stdatomic.h>
#include "common/kv/kv.h"
#include "common/kv/memtable.h"

/*
 * For backends, while they commit: what rows of the source table make of the target table (struct kv_derived).
 *
 *     for each row, if kv_derives(rows, row.key): kv_derive(rows, row, what is there still);
 *     when kv_derived_full(rows), and at the end: while ((derived = kv_derived_next(rows))) write(derived);
 */
struct kv_derived_rows *kv_derived_new(const struct kv_derived *derived); /* NULL for NULL: nothing is derived */
void kv_derived_free(struct kv_derived_rows *rows);
bool kv_derives(const struct kv_derived_rows *rows, struct slice key);
/* `was` NULL: the row is new. The failure of derive. */
int kv_derive(struct kv_derived_rows *rows, const struct memtable_row *row, const struct slice *was, struct err *err);
bool kv_derived_full(const struct kv_derived_rows *rows);
/* In key order; NULL: that was all, and the next rows may be derived. */
const struct memtable_row *kv_derived_next(struct kv_derived_rows *rows);

/*
 * The room for commits, and what says how much of it one may take at most: each row copies the pages from the root to it, and cuts as many in
 * two, or looks at them beside it; no page is copied twice.
 */
struct kv_room {
	uint64_t left_bytes;  /* UINT64_MAX: no bound that matters, and the rest is 0 */
	uint64_t again_bytes; /* beside them, of pages that were used before: not while a snapshot is open, which may read them */
	uint64_t page_bytes, leaf_pages, branch_pages, depth;
	uint64_t own_bytes; /* for what the store notes beside the rows */
};

struct kv_backend_stats {
	uint64_t bytes, rows;
	bool full; /* see kv_is_full */
	struct kv_room room;
};

struct kv_backend {
	const char *name;

	int (*open)(struct io *io, const struct kv_options *options, void **ret_store, uint64_t *ret_applied,
		struct err *err);
	void (*close)(void *store);

	/* The rows of the table, tombstones as removals, what they make of the derived table, and `applied`, all or nothing. Does not
	 * change the table. */
	int (*commit)(void *store, const struct memtable *table, uint64_t applied, bool sync, struct err *err);
	/* From here on reads see the commit of `table`, which the caller may clear afterwards. Ends all cursors. */
	int (*renew)(void *store, const struct memtable *table, struct err *err);

	/* ERR_NOENT without a text. The value is valid until renew. */
	int (*get)(void *store, struct slice key, struct slice *ret_value, struct err *err);
	/* Moves to the first key >= from (an empty slice: the first of all), then on. 0, ERR_NOENT behind the last, or
	 * an error. The value of where it stands is read, and checked, when it is asked for: many rows are passed, or are one too far.
	 * `value`: directly after a seek or a next that returned 0, any number of times; valid until renew. */
	int (*seek)(void *store, struct slice from, void **ret_cursor, struct slice *ret_key, struct err *err);
	int (*next)(void *store, void *cursor, struct slice *ret_key, struct err *err);
	int (*value)(void *store, void *cursor, struct slice *ret_value, struct err *err);
	void (*seek_end)(
		void *store, void *cursor); /* may be NULL: a seek that failed or found nothing leaves none behind */

	/*
	 * All rows as of a commit (the newest that the loop may see, or one after it), in key order, whatever is committed
	 * meanwhile. Several turns may go by; the store is not closed before. Key and value are valid until the next call.
	 */
	int (*snapshot_open)(void *store, void **ret_snapshot, uint64_t *ret_applied, struct err *err);
	int (*snapshot_next)(void *store, void *snapshot, struct slice *ret_key, struct slice *ret_value,
		struct err *err); /* ERR_NOENT behind the last */
	void (*snapshot_close)(void *store, void *snapshot);
	/*
	 * On any thread, beside snapshot_next but one at a time: has so many bytes more of keys and values in memory, from where it ended last on. Returns
	 * how many; fewer: there are no more, or `stop`. NULL: they always are.
	 */
	uint64_t (*snapshot_ahead)(void *store, void *snapshot, uint64_t bytes, const atomic_bool *stop);

	void (*stats)(void *store, struct kv_backend_stats *ret_stats); /* as of the last renew */
	/* Of a full one, where commits run: its file system has as much room as one must find to end that. Writes nothing. */
	bool (*has_room)(void *store);
};

#endif
