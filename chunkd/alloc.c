/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One treap a class over its free extents, ordered by (segment, place); each node knows the longest extent below it, so that first fit,
 * neighbours and everything else take O(log n). Invariants: extents of a tree do not touch (neighbours are joined at once), none is
 * empty, none crosses a segment's end; free_grains is the sum of the lengths, fit_grains of alloc_fit_whole of each.
 */
#include "chunkd/alloc.h"

#include <string.h>
#include "chunkd/format.h"
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/code/stripe.h"

struct alloc_node {
	uint64_t key;          /* segment << 32 | first */
	uint32_t len, longest; /* longest: of this subtree */
	uint64_t priority;
	struct alloc_node *left, *right;
};

struct alloc_segment {
	uint8_t class;
	uint32_t grains; /* 0: no such segment */
	uint32_t free;
};

enum alloc_class alloc_class_of(uint64_t chunk_bytes)
{
	return chunk_bytes <= 64 << 10 ? ALLOC_SMALL : chunk_bytes <= 4 << 20 ? ALLOC_MEDIUM : ALLOC_LARGE;
}

uint64_t alloc_fit_whole(const struct alloc *a, uint32_t size, uint32_t grains)
{
	CHECK(size < LIMIT_ROOM_SIZES);
	return grains / a->needs[size] * a->needs[size];
}

static void count_fits(struct alloc *a, uint32_t len, bool more)
{
	for (uint32_t i = 0; i < LIMIT_ROOM_SIZES && a->needs[i] <= len; i++)
		a->fit_grains[i] += more ? alloc_fit_whole(a, i, len) : -alloc_fit_whole(a, i, len);
}

static uint64_t key_of(uint32_t segment, uint32_t first)
{
	return (uint64_t)segment << 32 | first;
}

static uint32_t longest(const struct alloc_node *n)
{
	return n ? n->longest : 0;
}

static void update(struct alloc_node *n)
{
	n->longest = n->len;
	if (longest(n->left) > n->longest)
		n->longest = n->left->longest;
	if (longest(n->right) > n->longest)
		n->longest = n->right->longest;
}

/* Keys below `key` to *left, the others to *right. */
static void split(struct alloc_node *n, uint64_t key, struct alloc_node **left, struct alloc_node **right)
{
	if (!n) {
		*left = *right = NULL;
	} else if (n->key < key) {
		*left = n;
		split(n->right, key, &n->right, right);
		update(n);
	} else {
		*right = n;
		split(n->left, key, left, &n->left);
		update(n);
	}
}

static struct alloc_node *merge(struct alloc_node *a, struct alloc_node *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a->priority > b->priority) {
		a->right = merge(a->right, b);
		update(a);
		return a;
	}
	b->left = merge(a, b->left);
	update(b);
	return b;
}

static void tree_insert(struct alloc *a, struct alloc_node **root, uint64_t key, uint32_t len)
{
	struct alloc_node *n = a->spare, *left, *right;

	if (n)
		a->spare = n->right;
	else
		n = mem_alloc(sizeof(*n));
	*n = (struct alloc_node){.key = key, .len = len, .longest = len, .priority = rng_u64(&a->rng)};
	split(*root, key, &left, &right);
	*root = merge(merge(left, n), right);
	count_fits(a, len, true);
}

static void tree_remove(struct alloc *a, struct alloc_node **root, uint64_t key)
{
	struct alloc_node *left, *mid, *right;

	split(*root, key, &left, &mid);
	split(mid, key + 1, &mid, &right);
	CHECK(mid && !mid->left && !mid->right);
	*root = merge(left, right);
	count_fits(a, mid->len, false);
	mid->right = a->spare;
	a->spare = mid;
}

/* The extent at `key`, which is longer, begins `by` later: nothing moves for that. */
static void tree_cut_front(struct alloc_node *n, uint64_t key, uint32_t by)
{
	if (n->key == key) {
		n->key += by;
		n->len -= by;
	} else {
		tree_cut_front(n->key < key ? n->right : n->left, key, by);
	}
	update(n);
}

/* Greatest key <= key. */
static struct alloc_node *tree_floor(struct alloc_node *n, uint64_t key)
{
	struct alloc_node *best = NULL;

	while (n) {
		if (n->key <= key) {
			best = n;
			n = n->right;
		} else {
			n = n->left;
		}
	}
	return best;
}

static struct alloc_node *tree_first(struct alloc_node *n, uint64_t key)
{
	struct alloc_node *best = NULL;

	while (n) {
		if (n->key >= key) {
			best = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

void alloc_init(struct alloc *a)
{
	memset(a, 0, sizeof(*a));
	rng_init(&a->rng, 1);
	for (uint32_t i = 0; i < LIMIT_ROOM_SIZES; i++) {
		uint64_t bytes = (uint64_t)LIMIT_ROOM_BYTES << i, trailer = format_trailer_bytes(stripe_unit_count(bytes) * 4, 0);

		a->needs[i] = i == 0 ? 1 : (uint32_t)((bytes + trailer) / FORMAT_GRAIN_BYTES);
	}
}

static void tree_free(struct alloc_node *n)
{
	if (!n)
		return;
	tree_free(n->left);
	tree_free(n->right);
	mem_free(n);
}

void alloc_fini(struct alloc *a)
{
	for (int i = 0; i < ALLOC_CLASSES; i++)
		tree_free(a->roots[i]);
	while (a->spare) {
		struct alloc_node *next = a->spare->right;

		mem_free(a->spare);
		a->spare = next;
	}
	mem_free(a->segments);
	memset(a, 0, sizeof(*a));
}

void alloc_add_segment(struct alloc *a, uint32_t segment, enum alloc_class class, uint32_t grains)
{
	if (segment >= a->segment_cap) {
		size_t cap = a->segment_cap ? a->segment_cap : 64;

		while (cap <= segment)
			cap *= 2;
		a->segments = mem_realloc(a->segments, cap * sizeof(*a->segments));
		memset(a->segments + a->segment_cap, 0, (cap - a->segment_cap) * sizeof(*a->segments));
		a->segment_cap = cap;
	}
	CHECK(class < ALLOC_CLASSES && grains > 0 && a->segments[segment].grains == 0);
	a->segments[segment] = (struct alloc_segment){.class = (uint8_t) class, .grains = grains, .free = grains};
	tree_insert(a, &a->roots[class], key_of(segment, 0), grains);
	a->free_grains[class] += grains;
}

static struct alloc_segment *find_segment(const struct alloc *a, struct alloc_extent x)
{
	struct alloc_segment *s;

	if (x.segment >= a->segment_cap)
		return NULL;
	s = &a->segments[x.segment];
	if (x.grains == 0 || x.first >= s->grains || x.grains > s->grains - x.first)
		return NULL;
	return s;
}

int alloc_reserve(struct alloc *a, struct alloc_extent x)
{
	struct alloc_segment *s = find_segment(a, x);
	uint64_t key = key_of(x.segment, x.first), free_key;
	struct alloc_node *n;
	uint32_t free_len, before;

	if (!s)
		return ERR_RANGE;
	n = tree_floor(a->roots[s->class], key);
	if (!n || n->key >> 32 != x.segment || n->key + n->len < key + x.grains)
		return ERR_EXIST;
	free_key = n->key;
	free_len = n->len;
	before = (uint32_t)(key - free_key);
	if (!before && free_len > x.grains) {
		tree_cut_front(a->roots[s->class], key, x.grains);
		count_fits(a, free_len, false);
		count_fits(a, free_len - x.grains, true);
	} else {
		tree_remove(a, &a->roots[s->class], free_key);
		if (before)
			tree_insert(a, &a->roots[s->class], free_key, before);
		if (free_len > before + x.grains)
			tree_insert(a, &a->roots[s->class], key + x.grains, free_len - before - x.grains);
	}
	s->free -= x.grains;
	a->free_grains[s->class] -= x.grains;
	return 0;
}

int alloc_take(struct alloc *a, enum alloc_class class, uint32_t grains, struct alloc_extent *ret_extent)
{
	struct alloc_node *n = a->roots[class];

	CHECK(grains > 0);
	if (longest(n) < grains)
		return ERR_NO_EXTENT;
	for (;;) {
		if (longest(n->left) >= grains)
			n = n->left;
		else if (n->len >= grains)
			break;
		else
			n = n->right;
	}
	*ret_extent = (struct alloc_extent){(uint32_t)(n->key >> 32), (uint32_t)n->key, grains};
	CHECK(alloc_reserve(a, *ret_extent) == 0);
	return 0;
}

int alloc_borrow(struct alloc *a, enum alloc_class class, uint32_t grains, struct alloc_extent *ret_extent)
{
	struct alloc_node *n = a->roots[class];

	CHECK(grains > 0);
	if (longest(n) < grains)
		return ERR_NO_EXTENT;
	for (;;) {
		if (longest(n->right) >= grains)
			n = n->right;
		else if (n->len >= grains)
			break;
		else
			n = n->left;
	}
	*ret_extent = (struct alloc_extent){(uint32_t)(n->key >> 32), (uint32_t)n->key + n->len - grains, grains};
	CHECK(alloc_reserve(a, *ret_extent) == 0);
	return 0;
}

void alloc_give(struct alloc *a, struct alloc_extent x)
{
	struct alloc_segment *s = find_segment(a, x);
	uint64_t key = key_of(x.segment, x.first);
	struct alloc_node **root, *n;
	uint32_t len = x.grains;

	CHECK(s);
	root = &a->roots[s->class];
	s->free += x.grains;
	a->free_grains[s->class] += x.grains;
	n = tree_first(*root, key);
	if (n && n->key >> 32 == x.segment) {
		CHECK(n->key >= key + len);
		if (n->key == key + len) {
			len += n->len;
			tree_remove(a, root, n->key);
		}
	}
	n = tree_floor(*root, key);
	if (n && n->key >> 32 == x.segment) {
		CHECK(n->key + n->len <= key);
		if (n->key + n->len == key) {
			key = n->key;
			len += n->len;
			tree_remove(a, root, n->key);
		}
	}
	tree_insert(a, root, key, len);
}

uint64_t alloc_fit_grains(const struct alloc *a, uint32_t size)
{
	CHECK(size < LIMIT_ROOM_SIZES);
	return a->fit_grains[size];
}

uint64_t alloc_free_grains(const struct alloc *a, enum alloc_class class)
{
	return a->free_grains[class];
}

uint32_t alloc_segment_free(const struct alloc *a, uint32_t segment)
{
	return segment < a->segment_cap ? a->segments[segment].free : 0;
}

uint32_t alloc_greatest(const struct alloc *a, enum alloc_class class)
{
	return longest(a->roots[class]);
}
