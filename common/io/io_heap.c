// SPDX-License-Identifier: Apache-2.0
#include "common/io/io_heap.h"
#include <stdbool.h>
#include "common/base/check.h"
#include "common/base/mem.h"

void io_heap_init(struct io_heap *h)
{
	*h = (struct io_heap){0};
}

void io_heap_fini(struct io_heap *h)
{
	mem_free(h->entries);
	*h = (struct io_heap){0};
}

static bool io_heap_before(const struct io_heap_entry *a, const struct io_heap_entry *b)
{
	return a->key != b->key ? a->key < b->key : a->seq < b->seq;
}

static void io_heap_place(struct io_heap *h, size_t idx, struct io_heap_entry entry)
{
	h->entries[idx] = entry;
	entry.node->idx = idx + 1;
}

static void io_heap_up(struct io_heap *h, size_t idx, struct io_heap_entry entry)
{
	while (idx > 0) {
		size_t parent = (idx - 1) / 2;

		if (!io_heap_before(&entry, &h->entries[parent]))
			break;
		io_heap_place(h, idx, h->entries[parent]);
		idx = parent;
	}
	io_heap_place(h, idx, entry);
}

static void io_heap_down(struct io_heap *h, size_t idx, struct io_heap_entry entry)
{
	for (;;) {
		size_t child = 2 * idx + 1;

		if (child >= h->count)
			break;
		if (child + 1 < h->count && io_heap_before(&h->entries[child + 1], &h->entries[child]))
			child++;
		if (!io_heap_before(&h->entries[child], &entry))
			break;
		io_heap_place(h, idx, h->entries[child]);
		idx = child;
	}
	io_heap_place(h, idx, entry);
}

void io_heap_insert(struct io_heap *h, struct io_heap_node *node, uint64_t key)
{
	if (h->count == h->cap) {
		h->cap = h->cap ? 2 * h->cap : 64;
		h->entries = mem_realloc(h->entries, h->cap * sizeof(*h->entries));
	}
	node->key = key;
	node->seq = h->next_seq++;
	h->count++;
	io_heap_up(h, h->count - 1, (struct io_heap_entry){key, node->seq, node});
}

void io_heap_remove(struct io_heap *h, struct io_heap_node *node)
{
	size_t idx = node->idx - 1;
	struct io_heap_entry last;

	CHECK(node->idx > 0 && idx < h->count && h->entries[idx].node == node);
	node->idx = 0;
	last = h->entries[--h->count];
	if (last.node == node)
		return;
	if (idx > 0 && io_heap_before(&last, &h->entries[(idx - 1) / 2]))
		io_heap_up(h, idx, last);
	else
		io_heap_down(h, idx, last);
}

struct io_heap_node *io_heap_first(const struct io_heap *h)
{
	return h->count ? h->entries[0].node : NULL;
}
