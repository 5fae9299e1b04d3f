/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache: the newest entries of a replica's log, in memory, without holes. An entry belongs to the cache and, until its write ended, to
 * the log too; it is freed when both have let go of it. One that is not durable is never dropped: it cannot be read back.
 */
#ifndef METAD_REPLICA_CACHE_H
#define METAD_REPLICA_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include "common/kv/wal.h"

struct entry {
	struct wal_append append; /* index, term, data */
	bool cached, writing;
	uint8_t bytes[];
};

struct cache {
	struct entry **ring;
	uint32_t head, count, cap; /* cap: 0 or a power of two */
	uint64_t first;            /* index of the oldest one, if there is any */
	uint64_t bytes;
};

void cache_fini(struct cache *cache);
/* Of a prefix (body.h), and data behind it; neither cached nor writing. */
struct entry *entry_new(uint64_t term, const uint8_t *prefix, size_t prefix_bytes, struct slice data);
/* The log has let go of it. */
void entry_written(struct entry *entry);
/* append.index is that behind the last. */
void cache_push(struct cache *cache, struct entry *entry);
/* NULL: not cached. */
const struct entry *cache_at(const struct cache *cache, uint64_t index);
/* Entries >= from leave. */
void cache_cut(struct cache *cache, uint64_t from);
/* The oldest leave, durable ones only, until `most` bytes are left. */
void cache_shrink(struct cache *cache, uint64_t durable, uint64_t most);

#endif
