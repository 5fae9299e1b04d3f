/* SPDX-License-Identifier: Apache-2.0 */
/* rng: see http://prng.di.unimi.it/ for generator and seeding; the output for a seed is part of every recorded simulation. */
#include "common/base/rng.h"

#include <string.h>
#include "common/base/check.h"

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

void rng_init(struct rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		r->s[i] = splitmix64(&seed);
}

static uint64_t rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

uint64_t rng_u64(struct rng *r)
{
	uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t rng_below(struct rng *r, uint64_t bound)
{
	uint64_t uneven, x;

	CHECK(bound > 0);
	uneven = -bound % bound; /* 2^64 mod bound: that many lowest values would make the rest unfair */
	do
		x = rng_u64(r);
	while (x < uneven);
	return x % bound;
}

uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi)
{
	CHECK(lo <= hi);
	if (hi - lo == UINT64_MAX)
		return rng_u64(r);
	return lo + rng_below(r, hi - lo + 1);
}

bool rng_chance(struct rng *r, uint32_t num, uint32_t den)
{
	return rng_below(r, den) < num;
}

void rng_bytes(struct rng *r, void *out, size_t len)
{
	uint8_t *p = out;

	while (len > 0) {
		uint64_t x = rng_u64(r);
		size_t piece = len < 8 ? len : 8;

		for (size_t i = 0; i < piece; i++)
			p[i] = (uint8_t)(x >> 8 * i);
		p += piece;
		len -= piece;
	}
}

uint64_t rng_backoff(struct rng *r, uint64_t base, uint64_t cap, uint32_t attempt)
{
	uint64_t hi = attempt < 64 && base <= UINT64_MAX >> attempt ? base << attempt : UINT64_MAX;

	if (hi > cap)
		hi = cap;
	return rng_between(r, base / 2 < hi ? base / 2 : hi, hi);
}
