/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A B+-tree that only grows, in an arena.
 *
 * A node is about a dozen cache lines: per slot a `head` (8 bytes of the key, big-endian, behind the prefix that all
 * keys of the node share) and a pointer to the row. Keys of one table of ours share long prefixes (a table byte, a
 * parent's id), so that heads taken from the front would all be equal; behind the shared prefix they nearly always
 * decide, and a search touches the memory of one or two rows only, not of one for each comparison. A tie is settled by
 * the rows' keys. A short prefix lies in the node itself: for a long one the first row is asked.
 *
 * Rows never move and never go, so an inner node's separators are just pointers to the rows that were first in their
 * child when it was made. The key searched for may be smaller than the first separator: it then belongs to the first
 * child.
 *
 * Invariants: slots are in strictly rising key order; all leaves are at the same depth and linked in key order; `skip`
 * bytes are the same in all keys of a node (it may be less than the longest such prefix).
 */
#include "common/kv/memtable.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include <string.h>

enum {
	NODE_SLOTS = 32,
	DEPTH_MAX = 12, /* 16^12 rows: more than there is memory */
	ARENA_FIRST_BYTES = 16 << 10,
	ARENA_STEP_BYTES = 1 << 20,
	ARENA_ALIGN = 8,
	PREFIX_BYTES = 24, /* table, id, and half a name */
	AHEAD_SLOTS = 8,   /* a walk asks for the rows that it comes to: they lie anywhere */
	LINE_BYTES = 64,
};

struct row {
	uint8_t *value;
	uint32_t value_bytes, value_room;
	uint16_t key_bytes;
	bool tombstone;
	uint8_t key[];
};

struct node {
	uint16_t count, skip;
	bool leaf;
	uint8_t prefix[PREFIX_BYTES]; /* what all keys begin with, if skip <= PREFIX_BYTES */
	uint64_t head[NODE_SLOTS];
	struct row *row[NODE_SLOTS]; /* of an inner node: the separators */
	struct node *child[];        /* of an inner node: NODE_SLOTS; of a leaf: one, the next leaf */
};

struct arena_step {
	struct arena_step *next;
	size_t bytes;
	uint8_t data[];
};

struct memtable {
	struct node *root, *first_leaf;
	uint32_t depth; /* of inner nodes above the leaves */
	uint64_t rows, tombstones, row_bytes, bytes;
	struct arena_step *first, *current; /* steps behind `current` are free */
	size_t used;                        /* of current */
};

/* ---- arena ---- */

/* Each step is twice as large as the one before it: most tables stay small, and a fresh megabyte costs more than what is put there. */
static struct arena_step *step_new(size_t after_bytes, size_t at_least)
{
	size_t bytes = after_bytes ? 2 * after_bytes : ARENA_FIRST_BYTES;
	struct arena_step *step;

	if (bytes < at_least || bytes > ARENA_STEP_BYTES)
		bytes = ARENA_STEP_BYTES;
	step = mem_alloc(sizeof(*step) + bytes);
	step->next = NULL;
	step->bytes = bytes;
	return step;
}

static void *arena_alloc(struct memtable *t, size_t bytes)
{
	void *p;

	bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
	CHECK(bytes <= ARENA_STEP_BYTES);
	while (!t->current || bytes > t->current->bytes - t->used) {
		struct arena_step **next = t->current ? &t->current->next : &t->first;

		if (!*next)
			*next = step_new(t->current ? t->current->bytes : 0, bytes);
		t->current = *next;
		t->used = 0;
	}
	p = t->current->data + t->used;
	t->used += bytes;
	t->bytes += bytes;
	return p;
}

static struct node *node_new(struct memtable *t, bool leaf)
{
	struct node *n = arena_alloc(t, sizeof(*n) + (leaf ? 1 : NODE_SLOTS) * sizeof(n->child[0]));

	n->count = 0;
	n->skip = 0;
	n->leaf = leaf;
	n->child[0] = NULL;
	return n;
}

struct memtable *memtable_new(void)
{
	struct memtable *t = MEM_NEW(struct memtable);

	memtable_clear(t);
	return t;
}

void memtable_clear(struct memtable *t)
{
	struct arena_step *first = t->first;

	*t = (struct memtable){.first = first, .current = first};
	t->root = node_new(t, true);
	t->first_leaf = t->root;
}

void memtable_free(struct memtable *t)
{
	struct arena_step *next;

	if (!t)
		return;
	for (struct arena_step *s = t->first; s; s = next) {
		next = s->next;
		mem_free(s);
	}
	mem_free(t);
}

/* ---- keys ---- */

static struct slice row_key(const struct row *r)
{
	return slice_of(r->key, r->key_bytes);
}

/* Eight bytes of the key from `skip` on, zeros behind its end: orders like the key, but for ties. */
static uint64_t head_of(struct slice key, size_t skip)
{
	uint8_t bytes[8] = {0};
	uint64_t head;

	if (key.len >= skip + 8)
		memcpy(&head, key.data + skip, 8);
	else {
		if (key.len > skip)
			memcpy(bytes, key.data + skip, key.len - skip);
		memcpy(&head, bytes, 8);
	}
	return __builtin_bswap64(head);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "head_of swaps");

static size_t common_prefix(struct slice a, struct slice b, size_t max)
{
	size_t n = a.len < b.len ? a.len : b.len, i = 0;

	if (n > max)
		n = max;
	while (i < n && a.data[i] == b.data[i])
		i++;
	return i;
}

/* The bytes that all keys of a node that is not empty share. */
static struct slice node_prefix(const struct node *n)
{
	return slice_of(n->skip <= PREFIX_BYTES ? n->prefix : n->row[0]->key, n->skip);
}

static uint64_t load_be(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

/* memcmp of a few bytes, of which mostly all are the same. */
static int compare_few(const uint8_t *a, const uint8_t *b, size_t len)
{
	for (; len >= 8; a += 8, b += 8, len -= 8)
		if (load_be(a) != load_be(b))
			return load_be(a) < load_be(b) ? -1 : 1;
	for (; len > 0; a++, b++, len--)
		if (*a != *b)
			return *a < *b ? -1 : 1;
	return 0;
}

/* The first and the last key of a sorted node share what all share. */
static uint16_t node_shared(const struct node *n)
{
	if (n->count == 0)
		return 0;
	return (uint16_t)common_prefix(row_key(n->row[0]), row_key(n->row[n->count - 1]), LIMIT_KEY_BYTES);
}

/* `skip` and heads anew. */
static void node_heads(struct node *n)
{
	n->skip = node_shared(n);
	if (n->skip <= PREFIX_BYTES && n->skip > 0)
		memcpy(n->prefix, n->row[0]->key, n->skip);
	for (uint16_t i = 0; i < n->count; i++)
		n->head[i] = head_of(row_key(n->row[i]), n->skip);
}

/* The first slot whose key is >= `key`; *ret_equal tells whether it is the key itself. */
static uint16_t node_search(const struct node *n, struct slice key, bool *ret_equal)
{
	uint16_t low = 0, high = n->count, mid;
	size_t shared;
	uint64_t head;
	int c;

	*ret_equal = false;
	if (n->count == 0)
		return 0;
	shared = key.len < n->skip ? key.len : n->skip;
	c = compare_few(key.data, node_prefix(n).data, shared);
	if (c < 0 || (c == 0 && key.len < n->skip))
		return 0;
	if (c > 0)
		return n->count;
	head = head_of(key, n->skip);
	while (low < high) {
		mid = (uint16_t)((low + high) / 2);
		if (n->head[mid] != head)
			c = n->head[mid] < head ? -1 : 1;
		else
			c = slice_compare(row_key(n->row[mid]), key);
		if (c == 0) {
			*ret_equal = true;
			return mid;
		}
		if (c < 0)
			low = (uint16_t)(mid + 1);
		else
			high = mid;
	}
	return low;
}

/* The child that holds `key`. */
static uint16_t node_descend(const struct node *n, struct slice key)
{
	bool equal;
	uint16_t slot = node_search(n, key, &equal);

	return equal || slot == 0 ? slot : (uint16_t)(slot - 1);
}

/* ---- insert ---- */

static void node_insert(struct node *n, uint16_t slot, struct row *row, struct node *child)
{
	size_t behind = n->count - slot;
	struct slice key = row_key(row), prefix = n->count ? node_prefix(n) : slice_of(NULL, 0);

	CHECK(n->count < NODE_SLOTS);
	memmove(&n->head[slot + 1], &n->head[slot], behind * sizeof(n->head[0]));
	memmove(&n->row[slot + 1], &n->row[slot], behind * sizeof(n->row[0]));
	n->row[slot] = row;
	if (!n->leaf) {
		memmove(&n->child[slot + 1], &n->child[slot], behind * sizeof(n->child[0]));
		n->child[slot] = child;
	}
	n->count++;
	if (n->count == 1 || common_prefix(key, prefix, prefix.len) < prefix.len)
		node_heads(n);
	else
		n->head[slot] = head_of(key, n->skip);
}

/* Moves the slots from `keep` on of a full node to a new one, which is returned. */
static struct node *node_split(struct memtable *t, struct node *n, uint16_t keep)
{
	struct node *right = node_new(t, n->leaf);

	right->count = (uint16_t)(n->count - keep);
	memcpy(right->row, &n->row[keep], right->count * sizeof(n->row[0]));
	if (n->leaf) {
		right->child[0] = n->child[0];
		n->child[0] = right;
	} else {
		memcpy(right->child, &n->child[keep], right->count * sizeof(n->child[0]));
	}
	n->count = keep;
	if (right->count == 0)
		return right;
	/* Heads that need no other prefix are good as they are: no row is read. */
	if (node_shared(right) == n->skip) {
		right->skip = n->skip;
		memcpy(right->prefix, n->prefix, sizeof(right->prefix));
		memcpy(right->head, &n->head[keep], right->count * sizeof(n->head[0]));
	} else {
		node_heads(right);
	}
	if (node_shared(n) != n->skip)
		node_heads(n);
	return right;
}

/* Inserts into a node that may be full; returns the node split off to the right, or NULL. */
static struct node *node_insert_split(
	struct memtable *t, struct node *n, uint16_t slot, struct row *row, struct node *child)
{
	bool at_end = slot == NODE_SLOTS; /* rows that come in key order leave full nodes behind them */
	uint16_t keep = at_end ? NODE_SLOTS : NODE_SLOTS / 2;
	struct node *right;

	if (n->count < NODE_SLOTS) {
		node_insert(n, slot, row, child);
		return NULL;
	}
	right = node_split(t, n, keep);
	if (at_end || slot > keep)
		node_insert(right, (uint16_t)(slot - keep), row, child);
	else
		node_insert(n, slot, row, child);
	return right;
}

struct path {
	struct node *node[DEPTH_MAX];
	uint16_t slot[DEPTH_MAX];
};

/* Puts `row` at `slot` of the leaf at the end of the path; what is split off goes into the node above. */
static void tree_insert(struct memtable *t, const struct path *path, struct node *leaf, uint16_t slot, struct row *row)
{
	struct node *n = leaf, *right = node_insert_split(t, n, slot, row, NULL), *above;

	for (uint32_t level = t->depth; right && level > 0; level--) {
		above = path->node[level - 1];
		slot = path->slot[level - 1];
		if (slot == 0) { /* the first child may hold smaller keys than its separator says */
			above->row[0] = n->row[0];
			node_heads(above);
		}
		n = above;
		right = node_insert_split(t, n, (uint16_t)(slot + 1), right->row[0], right);
	}
	if (!right)
		return;
	CHECK(t->depth + 1 < DEPTH_MAX);
	above = node_new(t, false);
	node_insert(above, 0, n->row[0], n);
	node_insert(above, 1, right->row[0], right);
	t->root = above;
	t->depth++;
}

static struct row *row_new(struct memtable *t, struct slice key, size_t value_bytes)
{
	struct row *r = arena_alloc(t, sizeof(*r) + key.len + value_bytes);

	memcpy(r->key, key.data, key.len);
	r->key_bytes = (uint16_t)key.len;
	r->value = r->key + key.len;
	r->value_room = (uint32_t)value_bytes;
	r->value_bytes = 0;
	r->tombstone = false;
	t->rows++;
	t->row_bytes += key.len;
	return r;
}

/* The row of `key`, made if it is not there, with room for the value. */
static struct row *row_for(struct memtable *t, struct slice key, size_t value_bytes)
{
	struct node *n = t->root;
	struct path path;
	struct row *r;
	uint16_t slot;
	bool equal;

	CHECK(key.len > 0 && key.len <= LIMIT_KEY_BYTES && value_bytes <= LIMIT_VALUE_BYTES);
	for (uint32_t level = 0; level < t->depth; level++) {
		path.node[level] = n;
		path.slot[level] = node_descend(n, key);
		n = n->child[path.slot[level]];
	}
	slot = node_search(n, key, &equal);
	if (!equal) {
		r = row_new(t, key, value_bytes);
		tree_insert(t, &path, n, slot, r);
		return r;
	}
	r = n->row[slot];
	if (value_bytes > r->value_room) {
		r->value = arena_alloc(t, value_bytes);
		r->value_room = (uint32_t)value_bytes;
	}
	return r;
}

static void row_set(struct memtable *t, struct row *r, struct slice value, bool tombstone)
{
	if (value.len)
		memmove(r->value, value.data, value.len); /* the value may be one got from this very row */
	t->row_bytes += value.len;
	t->row_bytes -= r->value_bytes;
	t->tombstones += tombstone;
	t->tombstones -= r->tombstone;
	r->value_bytes = (uint32_t)value.len;
	r->tombstone = tombstone;
}

void memtable_put(struct memtable *t, struct slice key, struct slice value)
{
	row_set(t, row_for(t, key, value.len), value, false);
}

void memtable_del(struct memtable *t, struct slice key)
{
	row_set(t, row_for(t, key, 0), slice_of(NULL, 0), true);
}

/* ---- read ---- */

static const struct node *find_leaf(const struct memtable *t, struct slice key)
{
	const struct node *n = t->root;

	for (uint32_t level = 0; level < t->depth; level++)
		n = n->child[node_descend(n, key)];
	return n;
}

enum memtable_found memtable_get(const struct memtable *t, struct slice key, struct slice *ret_value)
{
	const struct node *leaf;
	uint16_t slot;
	bool equal;

	if (t->rows == 0)
		return MEMTABLE_ABSENT;
	leaf = find_leaf(t, key);
	slot = node_search(leaf, key, &equal);
	if (!equal)
		return MEMTABLE_ABSENT;
	if (leaf->row[slot]->tombstone)
		return MEMTABLE_TOMBSTONE;
	*ret_value = slice_of(leaf->row[slot]->value, leaf->row[slot]->value_bytes);
	return MEMTABLE_VALUE;
}

/* A position is never behind the last slot of a leaf that has a next one. */
static void settle(struct memtable_pos *pos)
{
	const struct node *n = pos->leaf;

	while (pos->slot >= n->count && n->child[0]) {
		n = n->child[0];
		pos->slot = 0;
	}
	pos->leaf = n;
}

void memtable_seek(const struct memtable *t, struct memtable_pos *pos, struct slice from)
{
	const struct node *leaf = t->first_leaf;
	bool equal;

	pos->slot = 0;
	if (from.len > 0) {
		leaf = find_leaf(t, from);
		pos->slot = node_search(leaf, from, &equal);
	}
	pos->leaf = leaf;
	settle(pos);
}

bool memtable_at(const struct memtable_pos *pos, struct memtable_row *ret_row)
{
	const struct node *n = pos->leaf;
	const struct row *r;

	if (pos->slot >= n->count)
		return false;
	r = n->row[pos->slot];
	ret_row->key = row_key(r);
	ret_row->value = slice_of(r->value, r->value_bytes);
	ret_row->tombstone = r->tombstone;
	return true;
}

/* What a walk reads of a leaf: its count, and where its rows are. */
static void ask_for_leaf(const struct node *n)
{
	__builtin_prefetch(n);
	for (size_t i = 0; i < NODE_SLOTS; i += LINE_BYTES / sizeof(n->row[0]))
		__builtin_prefetch(&n->row[i]);
	__builtin_prefetch(&n->child[0]);
}

/* `slot` may be one of the next leaf's, counted on. */
static void ask_for_row(const struct node *n, uint64_t slot)
{
	if (slot >= n->count) {
		slot -= n->count;
		n = n->child[0];
	}
	if (!n || slot >= n->count)
		return;
	__builtin_prefetch(n->row[slot]);
	__builtin_prefetch((const uint8_t *)n->row[slot] + LINE_BYTES);
}

void memtable_next(struct memtable_pos *pos)
{
	const struct node *n = pos->leaf;

	pos->slot++;
	if (pos->slot == 1 && n->child[0])
		ask_for_leaf(n->child[0]);
	ask_for_row(n, pos->slot + AHEAD_SLOTS);
	if (pos->slot >= n->count)
		settle(pos);
}

uint64_t memtable_rows(const struct memtable *t)
{
	return t->rows;
}

uint64_t memtable_tombstones(const struct memtable *t)
{
	return t->tombstones;
}

uint64_t memtable_bytes(const struct memtable *t)
{
	return t->bytes;
}

uint64_t memtable_row_bytes(const struct memtable *t)
{
	return t->row_bytes;
}
