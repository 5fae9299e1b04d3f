/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map: linear probing over a power of two of slots, at most three quarters full. Removing shifts the followers back, so there
 * are no tombstones and a lookup ends at the first empty slot. The hash has no secret: iteration must be the same in every run
 * of the simulator. Whoever keys a map by numbers from outside bounds its count.
 */
#include "common/base/map.h"

#include "common/base/check.h"
#include "common/base/mem.h"

enum { FIRST_CAP = 16 };

/* splitmix64's finaliser: neighbouring ids land far apart. */
static uint64_t hash(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static size_t home(const struct map *m, uint64_t key)
{
	return hash(key) & (m->cap - 1);
}

/* The slot that holds key, or the empty one where it would go. */
static struct map_slot *find(const struct map *m, uint64_t key)
{
	size_t i = home(m, key);

	while (m->slots[i].value && m->slots[i].key != key)
		i = (i + 1) & (m->cap - 1);
	return &m->slots[i];
}

static void grow(struct map *m)
{
	struct map bigger = {.cap = m->cap ? 2 * m->cap : FIRST_CAP, .count = m->count};

	bigger.slots = mem_array(bigger.cap, sizeof(struct map_slot));
	for (size_t i = 0; i < m->cap; i++)
		if (m->slots[i].value)
			*find(&bigger, m->slots[i].key) = m->slots[i];
	mem_free(m->slots);
	*m = bigger;
}

void map_init(struct map *m)
{
	*m = (struct map){0};
}

void map_fini(struct map *m)
{
	mem_free(m->slots);
	*m = (struct map){0};
}

void *map_get(const struct map *m, uint64_t key)
{
	return m->cap ? find(m, key)->value : NULL;
}

void *map_put(struct map *m, uint64_t key, void *value)
{
	struct map_slot *slot;
	void *old;

	CHECK(value);
	if ((m->count + 1) * 4 > m->cap * 3)
		grow(m);
	slot = find(m, key);
	old = slot->value;
	*slot = (struct map_slot){.key = key, .value = value};
	m->count += !old;
	return old;
}

void *map_remove(struct map *m, uint64_t key)
{
	size_t mask = m->cap - 1, hole, i;
	void *old;

	if (!m->cap || !(old = find(m, key)->value))
		return NULL;
	hole = (size_t)(find(m, key) - m->slots);
	for (i = (hole + 1) & mask; m->slots[i].value; i = (i + 1) & mask) {
		/* An entry may move into the hole if its home is not between the hole (excluded) and itself. */
		if (((i - home(m, m->slots[i].key)) & mask) < ((i - hole) & mask))
			continue;
		m->slots[hole] = m->slots[i];
		hole = i;
	}
	m->slots[hole] = (struct map_slot){0};
	m->count--;
	return old;
}

bool map_next(const struct map *m, size_t *pos, uint64_t *ret_key, void **ret_value)
{
	while (*pos < m->cap) {
		const struct map_slot *slot = &m->slots[(*pos)++];

		if (slot->value) {
			*ret_key = slot->key;
			*ret_value = slot->value;
			return true;
		}
	}
	return false;
}
