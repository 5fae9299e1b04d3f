/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle: see shuffle.h. Changing anything here changes the order of every resumed run: raise the manifest's version. */
#include "trainer/shuffle.h"

enum { SHUFFLE_ROUNDS = 6 };

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t shuffle_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

void shuffle_init(struct shuffle *s, uint64_t seed, uint64_t count)
{
	s->seed = seed;
	s->count = count;
	s->half_bits = 1;
	while (s->half_bits < 31 && (uint64_t)1 << (2 * s->half_bits) < count)
		s->half_bits++;
}

static uint64_t shuffle_feistel(uint64_t key, unsigned half_bits, uint64_t x)
{
	uint64_t mask = ((uint64_t)1 << half_bits) - 1, left = x >> half_bits, right = x & mask;

	for (unsigned r = 0; r < SHUFFLE_ROUNDS; r++) {
		uint64_t f = shuffle_mix(key + 0x9e3779b97f4a7c15u * (r + 1) + right * 0xd1342543de82ef95u) & mask;
		uint64_t t = left ^ f;

		left = right;
		right = t;
	}
	return left << half_bits | right;
}

uint64_t shuffle_at(const struct shuffle *s, uint64_t n)
{
	uint64_t epoch = n / s->count, x = n % s->count;
	uint64_t key = shuffle_mix(s->seed ^ shuffle_mix(epoch + 0x632be59bd9b4e019u));

	do
		x = shuffle_feistel(key, s->half_bits, x);
	while (x >= s->count);
	return x;
}
