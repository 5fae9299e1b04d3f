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
	mem_free(h->nodes);
	*h = (struct io_heap){0};
}

static bool io_heap_before(const struct io_heap_node *a, const struct io_heap_node *b)
{
	return a->key != b->key ? a->key < b->key : a->seq < b->seq;
}

static void io_heap_place(struct io_heap *h, size_t idx, struct io_heap_node *node)
{
	h->nodes[idx] = node;
	node->idx = idx + 1;
}

static void io_heap_up(struct io_heap *h, size_t idx, struct io_heap_node *node)
{
	while (idx > 0) {
		size_t parent = (idx - 1) / 2;

		if (!io_heap_before(node, h->nodes[parent]))
			break;
		io_heap_place(h, idx, h->nodes[parent]);
		idx = parent;
	}
	io_heap_place(h, idx, node);
}

static void io_heap_down(struct io_heap *h, size_t idx, struct io_heap_node *node)
{
	for (;;) {
		size_t child = 2 * idx + 1;

		if (child >= h->count)
			break;
		if (child + 1 < h->count && io_heap_before(h->nodes[child + 1], h->nodes[child]))
			child++;
		if (!io_heap_before(h->nodes[child], node))
			break;
		io_heap_place(h, idx, h->nodes[child]);
		idx = child;
	}
	io_heap_place(h, idx, node);
}

void io_heap_insert(struct io_heap *h, struct io_heap_node *node, uint64_t key)
{
	if (h->count == h->cap) {
		h->cap = h->cap ? 2 * h->cap : 64;
		h->nodes = mem_realloc(h->nodes, h->cap * sizeof(*h->nodes));
	}
	node->key = key;
	node->seq = h->next_seq++;
	h->count++;
	io_heap_up(h, h->count - 1, node);
}

void io_heap_remove(struct io_heap *h, struct io_heap_node *node)
{
	size_t idx = node->idx - 1;
	struct io_heap_node *last;

	CHECK(node->idx > 0 && idx < h->count && h->nodes[idx] == node);
	node->idx = 0;
	last = h->nodes[--h->count];
	if (last == node)
		return;
	if (idx > 0 && io_heap_before(last, h->nodes[(idx - 1) / 2]))
		io_heap_up(h, idx, last);
	else
		io_heap_down(h, idx, last);
}

struct io_heap_node *io_heap_first(const struct io_heap *h)
{
	return h->count ? h->nodes[0] : NULL;
}
