/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memtable: an ordered table in memory with tombstones. Rows are put, overwritten and marked deleted, never taken out;
 * the whole table is cleared at once and keeps its memory for the next use. Pure.
 *
 * Not thread-safe, but a table that nobody changes may be read by several threads.
 */
#ifndef COMMON_KV_MEMTABLE_H
#define COMMON_KV_MEMTABLE_H

#include "common/base/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct memtable;

struct memtable *memtable_new(void);
void memtable_free(struct memtable *table);
void memtable_clear(struct memtable *table);

/* Both are copied. Key 1..LIMIT_KEY_BYTES, value 0..LIMIT_VALUE_BYTES. */
void memtable_put(struct memtable *table, struct slice key, struct slice value);
void memtable_del(struct memtable *table, struct slice key); /* puts a tombstone, whether the key is there or not */

enum memtable_found { MEMTABLE_ABSENT, MEMTABLE_VALUE, MEMTABLE_TOMBSTONE };
/* The value is valid until the next put, del or clear. */
enum memtable_found memtable_get(const struct memtable *table, struct slice key, struct slice *ret_value);

/*
 * A walk in key order. Valid until the next put, del or clear.
 *
 *     for (memtable_seek(table, &pos, from); memtable_at(&pos, &row); memtable_next(&pos)) use(row.key, row.value);
 */
struct memtable_pos {
	const void *leaf; /* private */
	uint64_t slot;    /* private */
};
struct memtable_row {
	struct slice key, value;
	bool tombstone;
};
void memtable_seek(const struct memtable *table, struct memtable_pos *pos, struct slice from); /* first key >= from */
bool memtable_at(const struct memtable_pos *pos, struct memtable_row *ret_row); /* false: behind the last */
void memtable_next(struct memtable_pos *pos);

uint64_t memtable_rows(const struct memtable *table); /* tombstones counted */
uint64_t memtable_tombstones(const struct memtable *table);
uint64_t memtable_bytes(const struct memtable *table);     /* memory in use for rows and nodes */
uint64_t memtable_row_bytes(const struct memtable *table); /* of keys and values that are there now */

#endif
