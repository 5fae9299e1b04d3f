/* SPDX-License-Identifier: Apache-2.0 */
/* rng: xoshiro256** seeded by splitmix64 (Blackman, Vigna 2018). For simulation, placement, jitter; never for secrets. */
#ifndef COMMON_BASE_RNG_H
#define COMMON_BASE_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
	uint64_t s[4];
};

void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t bound);            /* uniform in [0, bound), bound > 0 */
uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi);/* uniform in [lo, hi] */
bool rng_chance(struct rng *r, uint32_t num, uint32_t den);
void rng_bytes(struct rng *r, void *out, size_t len);
/* Full jitter: uniform in [base/2, base * 2^attempt], capped (Brooker, "Exponential Backoff and Jitter"). */
uint64_t rng_backoff(struct rng *r, uint64_t base, uint64_t cap, uint32_t attempt);

#endif
