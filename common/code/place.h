/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: where the chunks of a block go. Pure: candidates in, choice out, randomness from the caller's rng.
 *
 * Distinct domains first, weighted by free space. With fewer than k+m domains able to take a chunk the choice is crowded: the fewest
 * chunks per domain, never more than m in one domain, distinct disks first (chunks share a disk only if there are fewer disks than
 * chunks, never more than m on one). Spares come from domains not used yet where there are some, then from the least used.
 */
#ifndef COMMON_CODE_PLACE_H
#define COMMON_CODE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/limits.h"
#include "common/base/rng.h"

struct place_disk {
	uint32_t disk;
	uint32_t domain;
	uint64_t free_bytes;   /* in the size class asked for; 0: not able */
	bool avoid;            /* only if nothing else is left */
};

struct place_result {
	uint32_t disks[LIMIT_WIDTH];       /* by chunk index */
	uint32_t spares[LIMIT_M];
	uint8_t spare_count;               /* at most m */
	bool crowded;
	uint32_t missing_domains;          /* on ERR_NO_PLACEMENT: how many more are needed; set also on failure */
};

/* ERR_NO_PLACEMENT if even crowding would put more than m chunks in a domain. */
int place_choose(const struct place_disk *disks, size_t count, uint8_t k, uint8_t m, struct rng *rng, struct place_result *ret_result);

/* Where a chunk of a block lies already. */
struct place_spot {
	uint32_t disk, domain;
};

/*
 * One more chunk beside those that are held: by the same rule. Disks to be avoided are left out. *ret_in_domain: how many of
 * the held ones share its domain. ERR_NO_PLACEMENT: every domain that could take it holds m.
 */
int place_next(const struct place_disk *disks, size_t count, const struct place_spot held[], size_t held_count,
               uint8_t m, struct rng *rng, uint32_t *ret_disk, uint32_t *ret_in_domain);

/*
 * Bytes of user data that fit at most, if the domains have room for so many bytes of chunks: no domain takes more than m of a block's.
 */
uint64_t place_room(const uint64_t domain_bytes[], size_t count, uint8_t k, uint8_t m);

/* True if some domain holds two of the chunks; *ret_max: the most that any holds. */
bool place_is_crowded(const uint32_t domains[], size_t count, uint32_t *ret_max);

#endif
