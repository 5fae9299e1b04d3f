// SPDX-License-Identifier: Apache-2.0
/*
 * linear_search: one search, from a beginning to the end or to the first return that no order explains.
 *
 * A configuration is   state | which known pending items took effect | how many optional ones of each kind did   in words. Optional items
 * that are alike are one kind: which of them took effect makes no difference. Of two configurations that agree in the first two, one that
 * used no more of any kind can do whatever the other can: the other is dropped. At a return of an item the configurations
 * in which it took effect already stay; from the others every order is tried of those pending items that it depends on, until it took
 * effect. What does not depend on it can take effect later as well.
 */
#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/lib/linear_priv.h"

enum { NO_RECORD = UINT32_MAX, BUCKETS_MIN = 64 };

struct event {
	uint64_t time;
	bool is_return;
	size_t item;
};

struct set {
	uint32_t *records, *next, *buckets;
	size_t count, cap, bucket_count;
};

struct pending {
	size_t item;    /* the first one of its kind, where they are optional */
	uint32_t bit;   /* of the record, counted from its first bit; of optional ones the word */
	uint32_t count; /* of optional ones: so many were invoked; else 0 */
	bool relevant;
};

struct search {
	struct linear_search *s;
	const struct linear_group *g;
	struct event *events;
	size_t event_count;
	struct pending *pending;
	size_t pending_count;
	uint32_t *bits; /* of each item; of an optional one the word of its kind */
	uint32_t state_words, key_words, words;
	struct set now, next, seen;
	uint32_t *steps, *record, *made; /* scratch */
	bool full;
};

/* ---- sets of configurations ---- */

static size_t set_bytes(const struct search *x, const struct set *set)
{
	return set->cap * (x->words + 1) * sizeof(uint32_t) + set->bucket_count * sizeof(uint32_t);
}

static uint32_t hash_of(const struct search *x, const uint32_t *record)
{
	uint64_t h = 0x9e3779b97f4a7c15;

	for (uint32_t i = 0; i < x->key_words; i++)
		h = (h ^ record[i]) * 0xff51afd7ed558ccd, h ^= h >> 32;
	return (uint32_t)h;
}

/* As cheap as what is in it: one that was full once must not cost that much at each return after it. */
static void set_clear(const struct search *x, struct set *set)
{
	if (set->count < set->bucket_count / 16)
		for (size_t i = 0; i < set->count; i++)
			set->buckets[hash_of(x, set->records + i * x->words) & (set->bucket_count - 1)] = NO_RECORD;
	else
		memset(set->buckets, 0xff, set->bucket_count * sizeof(set->buckets[0]));
	set->count = 0;
}

static void set_rehash(struct search *x, struct set *set)
{
	memset(set->buckets, 0xff, set->bucket_count * sizeof(set->buckets[0]));
	for (size_t i = 0; i < set->count; i++) {
		uint32_t *bucket = &set->buckets[hash_of(x, set->records + i * x->words) & (set->bucket_count - 1)];

		set->next[i] = *bucket;
		*bucket = (uint32_t)i;
	}
}

static void set_grow(struct search *x, struct set *set)
{
	size_t others = set_bytes(x, &x->now) + set_bytes(x, &x->next) + set_bytes(x, &x->seen);

	if (others + set_bytes(x, set) > x->s->bytes) {
		x->full = true;
		return;
	}
	set->cap = set->cap ? 2 * set->cap : BUCKETS_MIN;
	set->bucket_count = set->cap;
	set->records = mem_realloc(set->records, set->cap * x->words * sizeof(uint32_t));
	set->next = mem_realloc(set->next, set->cap * sizeof(uint32_t));
	set->buckets = mem_realloc(set->buckets, set->bucket_count * sizeof(uint32_t));
	set_rehash(x, set);
}

/* Has b used as many optional items of each kind as a has, or more? */
static bool is_within(const struct search *x, const uint32_t *a, const uint32_t *b)
{
	for (uint32_t i = x->key_words; i < x->words; i++)
		if (a[i] > b[i])
			return false;
	return true;
}

static void set_add(struct search *x, struct set *set, const uint32_t *record)
{
	uint32_t *bucket;

	if (set->count == set->cap)
		set_grow(x, set);
	if (x->full)
		return;
	bucket = &set->buckets[hash_of(x, record) & (set->bucket_count - 1)];
	for (uint32_t i = *bucket; i != NO_RECORD; i = set->next[i]) {
		const uint32_t *other = set->records + i * x->words;

		if (memcmp(other, record, x->key_words * sizeof(record[0])) == 0 && is_within(x, other, record))
			return;
	}
	memcpy(set->records + set->count * x->words, record, x->words * sizeof(record[0]));
	set->next[set->count] = *bucket;
	*bucket = (uint32_t)set->count++;
}

static void set_free(struct set *set)
{
	mem_free(set->records);
	mem_free(set->next);
	mem_free(set->buckets);
}

static bool bit_is_set(const uint32_t *record, uint32_t bit)
{
	return record[bit / 32] >> bit % 32 & 1;
}

/* ---- one return ---- */

/* What it depends on, and what that depends on. */
static void mark_relevant(struct search *x, size_t item)
{
	const struct linear_item *items = x->g->items;
	bool more = true;

	for (size_t i = 0; i < x->pending_count; i++)
		x->pending[i].relevant = x->pending[i].item == item;
	while (more) {
		more = false;
		for (size_t i = 0; i < x->pending_count; i++) {
			struct pending *p = &x->pending[i];

			if (p->relevant)
				continue;
			for (size_t k = 0; !p->relevant && k < x->pending_count; k++)
				p->relevant = x->pending[k].relevant &&
					linear__depend(&items[p->item], &items[x->pending[k].item]);
			more |= p->relevant;
		}
	}
}

/* x->record with that item's effect: to those that are done where it is the wanted one, else to those from where the search goes on. */
static void take(struct search *x, const struct pending *p, size_t wanted)
{
	size_t count = linear__step(x->g, &x->g->items[p->item], x->record, x->steps);

	x->s->stepped++;
	for (size_t i = 0; i < count; i++) {
		memcpy(x->made, x->record, x->words * sizeof(x->made[0]));
		memcpy(x->made, x->steps + i * x->state_words, x->state_words * sizeof(x->made[0]));
		if (p->item == wanted) {
			set_add(x, &x->next, x->made);
			continue;
		}
		if (p->count)
			x->made[p->bit]++;
		else
			x->made[p->bit / 32] |= (uint32_t)1 << p->bit % 32;
		set_add(x, &x->seen, x->made);
	}
}

static bool is_left(const struct search *x, const struct pending *p)
{
	return p->count ? x->record[p->bit] < p->count : !bit_is_set(x->record, p->bit);
}

static void returned(struct search *x, size_t item)
{
	uint32_t bit = x->bits[item];
	struct set done;

	set_clear(x, &x->next);
	set_clear(x, &x->seen);
	mark_relevant(x, item);
	for (size_t i = 0; i < x->now.count && !x->full; i++) {
		memcpy(x->record, x->now.records + i * x->words, x->words * sizeof(x->record[0]));
		if (bit_is_set(x->record, bit)) {
			x->record[bit / 32] &= ~((uint32_t)1 << bit % 32);
			set_add(x, &x->next, x->record);
		} else {
			set_add(x, &x->seen, x->record);
		}
	}
	for (size_t i = 0; i < x->seen.count && !x->full; i++) {
		memcpy(x->record, x->seen.records + i * x->words, x->words * sizeof(x->record[0]));
		for (size_t k = 0; k < x->pending_count; k++)
			if (x->pending[k].relevant && is_left(x, &x->pending[k]))
				take(x, &x->pending[k], item);
		x->full |= x->s->stepped > x->s->steps;
	}
	done = x->now;
	x->now = x->next;
	x->next = done;
	if (x->now.count > x->s->widest)
		x->s->widest = x->now.count;
}

/* ---- events ---- */

static void invoked(struct search *x, size_t item)
{
	const struct linear_item *items = x->g->items;

	for (size_t i = 0; x->s->conflicts && !items[item].optional && i < x->pending_count; i++) {
		size_t other = x->pending[i].item;

		if (!items[other].optional && linear__depend(&items[item], &items[other]))
			x->s->conflicts[item] = x->s->conflicts[other] = true;
	}
	for (size_t i = 0; items[item].optional && i < x->pending_count; i++)
		if (x->pending[i].count && x->pending[i].bit == x->bits[item]) {
			x->pending[i].count++;
			return;
		}
	x->pending[x->pending_count++] =
		(struct pending){.item = item, .bit = x->bits[item], .count = items[item].optional};
}

static void forget(struct search *x, size_t item)
{
	for (size_t i = 0; i < x->pending_count; i++)
		if (x->pending[i].item == item)
			x->pending[i--] = x->pending[--x->pending_count];
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	if (x->is_return != y->is_return)
		return x->is_return ? 1 : -1;
	return x->item < y->item ? -1 : x->item > y->item;
}

/* The number of its kind; *count grows if it is the first one. */
static uint32_t kind_of(const struct search *x, size_t item, size_t *kinds, uint32_t *count)
{
	const struct linear_item *items = x->g->items;

	for (uint32_t i = 0; i < *count; i++)
		if (linear__alike(&items[kinds[i]], &items[item]))
			return i;
	kinds[*count] = item;
	return (*count)++;
}

/* Known items share bits, each while it is pending. */
static void give_bits(struct search *x)
{
	const struct linear_group *g = x->g;
	uint32_t *free_bits = mem_array(g->count + 1, sizeof(free_bits[0])), free_count = 0, known = 0, kind_count = 0;
	size_t *kinds = mem_array(g->count + 1, sizeof(kinds[0]));

	for (size_t i = 0; i < x->event_count; i++) {
		size_t item = x->events[i].item;

		if (g->items[item].optional)
			x->bits[item] = kind_of(x, item, kinds, &kind_count);
		else if (x->events[i].is_return)
			free_bits[free_count++] = x->bits[item];
		else
			x->bits[item] = free_count ? free_bits[--free_count] : known++;
	}
	x->state_words = linear__state_words(g);
	x->key_words = x->state_words + (known + 31) / 32;
	x->words = x->key_words + kind_count;
	for (size_t i = 0; i < g->count; i++)
		x->bits[i] += g->items[i].optional ? x->key_words : x->state_words * 32;
	mem_free(free_bits);
	mem_free(kinds);
}

static void begin(struct search *x)
{
	const struct linear_group *g = x->g;

	x->events = mem_array(2 * g->count + 1, sizeof(x->events[0]));
	x->bits = mem_array(g->count + 1, sizeof(x->bits[0]));
	x->pending = mem_array(g->count + 1, sizeof(x->pending[0]));
	for (size_t i = 0; i < g->count; i++) {
		x->events[x->event_count++] = (struct event){g->items[i].op->invoke, false, i};
		if (!g->items[i].optional)
			x->events[x->event_count++] = (struct event){g->items[i].op->ret, true, i};
	}
	qsort(x->events, x->event_count, sizeof(x->events[0]), by_time);
	give_bits(x);
	x->record = mem_array(x->words, sizeof(uint32_t));
	x->made = mem_array(x->words, sizeof(uint32_t));
	x->steps = mem_array(LINEAR_STEP_MAX * x->state_words, sizeof(uint32_t));
	set_grow(x, &x->now);
	set_grow(x, &x->next);
	set_grow(x, &x->seen);
	for (uint32_t i = 0; i < g->names && x->s->middle; i++)
		x->record[i] = VALUE_ANY;
	set_add(x, &x->now, x->record);
}

void linear__search(struct linear_search *s)
{
	struct search x = {.s = s, .g = s->group};

	s->verdict = LINEAR_YES;
	s->widest = s->stepped = 0;
	begin(&x);
	for (size_t i = 0; i < x.event_count && !x.full; i++) {
		size_t item = x.events[i].item;

		if (!x.events[i].is_return) {
			invoked(&x, item);
			continue;
		}
		returned(&x, item);
		forget(&x, item);
		if (!x.full && x.now.count == 0) {
			s->verdict = LINEAR_NO;
			s->failed = item;
			break;
		}
	}
	if (x.full)
		s->verdict = LINEAR_UNDECIDED;
	set_free(&x.now);
	set_free(&x.next);
	set_free(&x.seen);
	mem_free(x.events);
	mem_free(x.bits);
	mem_free(x.pending);
	mem_free(x.record);
	mem_free(x.made);
	mem_free(x.steps);
}
