/* SPDX-License-Identifier: Apache-2.0 */
/* map: an open-addressing hash map from 64-bit keys to pointers. Pointers are never NULL. Not thread-safe. */
#ifndef COMMON_BASE_MAP_H
#define COMMON_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
	uint64_t key;
	void *value; /* NULL: empty */
};

struct map {
	struct map_slot *slots;
	size_t cap, count;
};

void map_init(struct map *m);
void map_fini(struct map *m);                           /* values are the caller's */
void *map_get(const struct map *m, uint64_t key);       /* NULL if absent */
void *map_put(struct map *m, uint64_t key, void *value);/* returns the old value or NULL */
void *map_remove(struct map *m, uint64_t key);          /* returns it or NULL */
/* Any order, but the same for the same history of calls. *pos starts at 0. No put or remove meanwhile. */
bool map_next(const struct map *m, size_t *pos, uint64_t *ret_key, void **ret_value);

#endif
