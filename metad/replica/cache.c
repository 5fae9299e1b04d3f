/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/replica/cache.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

static struct entry **slot(const struct cache *cache, uint32_t n)
{
	return &cache->ring[(cache->head + n) & (cache->cap - 1)];
}

static void release(struct cache *cache, struct entry *entry)
{
	cache->bytes -= entry->append.data.len;
	cache->count--;
	entry->cached = false;
	if (!entry->writing)
		mem_free(entry);
}

void cache_fini(struct cache *cache)
{
	cache_cut(cache, 0);
	mem_free(cache->ring);
}

struct entry *entry_new(uint64_t term, const uint8_t *prefix, size_t prefix_bytes, struct slice data)
{
	struct entry *entry = mem_zalloc(sizeof(*entry) + prefix_bytes + data.len);

	if (prefix_bytes)
		memcpy(entry->bytes, prefix, prefix_bytes);
	if (data.len)
		memcpy(entry->bytes + prefix_bytes, data.data, data.len);
	entry->append.data = slice_of(entry->bytes, prefix_bytes + data.len);
	entry->append.term = term;
	return entry;
}

void entry_written(struct entry *entry)
{
	entry->writing = false;
	if (!entry->cached)
		mem_free(entry);
}

static void grow(struct cache *cache)
{
	uint32_t cap = cache->cap ? 2 * cache->cap : 64;
	struct entry **ring = mem_array(cap, sizeof(struct entry *));

	for (uint32_t i = 0; i < cache->count; i++)
		ring[i] = *slot(cache, i);
	mem_free(cache->ring);
	cache->ring = ring;
	cache->cap = cap;
	cache->head = 0;
}

void cache_push(struct cache *cache, struct entry *entry)
{
	if (cache->count == cache->cap)
		grow(cache);
	if (cache->count == 0)
		cache->first = entry->append.index;
	CHECK(entry->append.index == cache->first + cache->count);
	entry->cached = true;
	cache->bytes += entry->append.data.len;
	*slot(cache, cache->count++) = entry;
}

const struct entry *cache_at(const struct cache *cache, uint64_t index)
{
	if (index < cache->first || index - cache->first >= cache->count)
		return NULL;
	return *slot(cache, (uint32_t)(index - cache->first));
}

void cache_cut(struct cache *cache, uint64_t from)
{
	while (cache->count && cache->first + cache->count > from)
		release(cache, *slot(cache, cache->count - 1));
}

void cache_shrink(struct cache *cache, uint64_t durable, uint64_t most)
{
	while (cache->count && cache->bytes > most && cache->first <= durable) {
		release(cache, *slot(cache, 0));
		cache->head++;
		cache->first++;
	}
}
