/* SPDX-License-Identifier: Apache-2.0 */
/* deadline: a binary heap of pointers whose nodes know their place, so that removing one in the middle is cheap too. */
#include "common/rpc/deadline.h"

#include "common/base/check.h"
#include "common/base/mem.h"

enum { FIRST_CAP = 64 };

void deadline_init(struct deadline_set *set)
{
	*set = (struct deadline_set){0};
}

void deadline_fini(struct deadline_set *set)
{
	CHECK(set->count == 0);
	mem_free(set->heap);
	*set = (struct deadline_set){0};
}

static void set_at(struct deadline_set *set, size_t place, struct deadline *d)
{
	set->heap[place] = d;
	d->place = place;
}

static void sift_up(struct deadline_set *set, struct deadline *d)
{
	size_t place = d->place;

	for (; place > 1 && d->at_ns < set->heap[place / 2]->at_ns; place /= 2)
		set_at(set, place, set->heap[place / 2]);
	set_at(set, place, d);
}

static void sift_down(struct deadline_set *set, struct deadline *d)
{
	size_t place = d->place, child;

	for (; (child = 2 * place) <= set->count; place = child) {
		if (child < set->count && set->heap[child + 1]->at_ns < set->heap[child]->at_ns)
			child++;
		if (d->at_ns <= set->heap[child]->at_ns)
			break;
		set_at(set, place, set->heap[child]);
	}
	set_at(set, place, d);
}

void deadline_put(struct deadline_set *set, struct deadline *d, uint64_t at_ns)
{
	if (!d->place) {
		if (set->count + 1 >= set->cap) {
			set->cap = set->cap ? 2 * set->cap : FIRST_CAP;
			set->heap = mem_realloc(set->heap, set->cap * sizeof(struct deadline *));
		}
		set_at(set, ++set->count, d);
	}
	CHECK(d->place <= set->count && set->heap[d->place] == d);
	d->at_ns = at_ns;
	sift_up(set, d);
	sift_down(set, d);
}

void deadline_remove(struct deadline_set *set, struct deadline *d)
{
	struct deadline *last;

	if (!d->place)
		return;
	CHECK(d->place <= set->count && set->heap[d->place] == d);
	last = set->heap[set->count--];
	if (last != d) {
		set_at(set, d->place, last);
		sift_up(set, last);
		sift_down(set, last);
	}
	d->place = 0;
}

struct deadline *deadline_first(const struct deadline_set *set)
{
	return set->count ? set->heap[1] : NULL;
}
