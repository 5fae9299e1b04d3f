/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_heap: a binary heap of deadlines. Equal keys leave in the order in which they came (a sequence number breaks
 * ties), so that the order never depends on the heap's shape. Nodes are embedded in their owners.
 */
#ifndef COMMON_IO_IO_HEAP_H
#define COMMON_IO_IO_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct io_heap_node {
	uint64_t key;
	uint64_t seq;
	uint64_t idx;         /* place in the heap + 1; 0: not in it */
} __attribute__((may_alias)); /* also lives in io_op.slot */

/* Deadlines lie side by side: nodes are scattered over memory, and are looked at only when they move. */
struct io_heap_entry {
	uint64_t key, seq;
	struct io_heap_node *node;
};

struct io_heap {
	struct io_heap_entry *entries;
	size_t count, cap;
	uint64_t next_seq;
};

void io_heap_init(struct io_heap *h);
void io_heap_fini(struct io_heap *h);
void io_heap_insert(struct io_heap *h, struct io_heap_node *node, uint64_t key);
void io_heap_remove(struct io_heap *h, struct io_heap_node *node);
struct io_heap_node *io_heap_first(const struct io_heap *h); /* NULL if empty */

#endif
