/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/wal_index.h"
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

enum { CAP_MIN = 64 };

void wal_index_init(struct wal_index *index, uint64_t base_index, uint64_t base_term)
{
	*index = (struct wal_index){.base_index = base_index, .base_term = base_term};
}

void wal_index_fini(struct wal_index *index)
{
	mem_free(index->extents);
	index->extents = NULL;
	index->count = index->cap = index->head = 0;
}

static struct wal_extent *extent_at(const struct wal_index *index, uint32_t n)
{
	CHECK(n < index->count);
	return &index->extents[(index->head + n) & (index->cap - 1)];
}

const struct wal_extent *wal_index_at(const struct wal_index *index, uint32_t n)
{
	return extent_at(index, n);
}

static uint64_t extent_last(const struct wal_extent *e)
{
	return e->first_index + e->count - 1;
}

uint64_t wal_index_last(const struct wal_index *index)
{
	return index->count ? extent_last(extent_at(index, index->count - 1)) : index->base_index;
}

uint64_t wal_index_last_term(const struct wal_index *index)
{
	return index->count ? extent_at(index, index->count - 1)->term : index->base_term;
}

static void grow(struct wal_index *index)
{
	uint32_t cap = index->cap ? 2 * index->cap : CAP_MIN;
	struct wal_extent *extents = mem_array(cap, sizeof(*extents));

	CHECK(cap > index->cap);
	for (uint32_t i = 0; i < index->count; i++)
		extents[i] = *extent_at(index, i);
	mem_free(index->extents);
	index->extents = extents;
	index->head = 0;
	index->cap = cap;
}

void wal_index_push(struct wal_index *index, const struct wal_extent *extent)
{
	struct wal_extent *last;

	CHECK(extent->count > 0 && extent->first_index == wal_index_last(index) + 1);
	CHECK(extent->term >= wal_index_last_term(index));
	if (index->count == index->cap)
		grow(index);
	index->count++;
	last = extent_at(index, index->count - 1);
	*last = *extent;
	last->through = extent->bytes + (index->count > 1 ? extent_at(index, index->count - 2)->through : 0);
}

void wal_index_cut(struct wal_index *index, uint64_t from, uint64_t prev_term)
{
	struct wal_extent *last;

	CHECK(from > 0);
	while (index->count && (last = extent_at(index, index->count - 1))->first_index >= from)
		index->count--;
	if (index->count && extent_last(last) >= from)
		last->count = (uint32_t)(from - last->first_index);
	if (from <= index->base_index) {
		index->base_index = from - 1;
		index->base_term = prev_term;
	}
}

void wal_index_drop(struct wal_index *index, uint64_t segment)
{
	const struct wal_extent *first;

	while (index->count && (first = extent_at(index, 0))->segment < segment) {
		index->base_index = extent_last(first);
		index->base_term = first->term;
		index->head = (index->head + 1) & (index->cap - 1);
		index->count--;
	}
}

uint32_t wal_index_find(const struct wal_index *index, uint64_t entry)
{
	uint32_t low = 0, high = index->count;

	if (entry <= index->base_index || entry > wal_index_last(index))
		return index->count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (extent_at(index, middle)->first_index <= entry)
			low = middle;
		else
			high = middle;
	}
	return low;
}

uint64_t wal_index_term(const struct wal_index *index, uint64_t entry)
{
	uint32_t n = wal_index_find(index, entry);

	if (entry == index->base_index)
		return index->base_term;
	return n < index->count ? extent_at(index, n)->term : 0;
}

uint64_t wal_index_back(const struct wal_index *index, uint64_t bytes)
{
	uint32_t low = 0, high = index->count; /* so many extents are in front of it: at least, at most */
	uint64_t through = high ? extent_at(index, high - 1)->through : 0;

	while (low < high) {
		uint32_t middle = high - (high - low) / 2;

		if (through - extent_at(index, middle - 1)->through >= bytes)
			low = middle;
		else
			high = middle - 1;
	}
	return low > 0 ? extent_last(extent_at(index, low - 1)) : index->base_index;
}

struct wal_run *wal_index_runs(const struct wal_index *index, uint32_t *ret_count)
{
	struct wal_run *runs;
	uint32_t count = 0, n = 0;

	for (uint32_t i = 0; i < index->count; i++)
		count += i == 0 || extent_at(index, i)->term != extent_at(index, i - 1)->term;
	*ret_count = count;
	if (count == 0)
		return NULL;
	runs = mem_array(count, sizeof(*runs));
	for (uint32_t i = 0; i < index->count; i++) {
		const struct wal_extent *e = extent_at(index, i);

		if (i == 0 || e->term != extent_at(index, i - 1)->term)
			runs[n++] = (struct wal_run){e->first_index, e->term};
	}
	return runs;
}
