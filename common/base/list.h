/* SPDX-License-Identifier: Apache-2.0 */
/* list: an intrusive doubly linked list with a head of the same type. A node is in at most one list; `list_remove` resets it. */
#ifndef COMMON_BASE_LIST_H
#define COMMON_BASE_LIST_H

#include <stdbool.h>
#include "common/base/check.h"

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l) { l->next = l->prev = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }
static inline bool list_linked(const struct list *n) { return n->next && n->next != n; }

static inline void list_insert_before(struct list *at, struct list *n)
{
	n->prev = at->prev;
	n->next = at;
	at->prev->next = n;
	at->prev = n;
}

static inline void list_push_back(struct list *l, struct list *n) { list_insert_before(l, n); }
static inline void list_push_front(struct list *l, struct list *n) { list_insert_before(l->next, n); }

static inline void list_remove(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

static inline struct list *list_pop_front(struct list *l)
{
	struct list *n = l->next;

	if (n == l)
		return NULL;
	list_remove(n);
	return n;
}

#define LIST_ENTRY(node, type, member) CONTAINER_OF(node, type, member)
#define LIST_FOREACH(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* The current node may be removed. */
#define LIST_FOREACH_SAFE(it, head) \
	for (struct list *it = (head)->next, *it##_next = it->next; it != (head); it = it##_next, it##_next = it->next)

#endif
