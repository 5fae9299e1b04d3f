/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shuffle: the order in which samples are read. Sample number n of a run (counted over all epochs) is
 * shuffle_at(s, n): a keyed permutation of 0..count-1, another key each epoch. Any n is found at once, so a run resumes at
 * any place, and every sample comes exactly once an epoch. A Feistel network over the next even number of bits, walked until
 * it lands inside the range (fewer than four rounds of it on average).
 */
#ifndef TRAINER_SHUFFLE_H
#define TRAINER_SHUFFLE_H

#include <stdint.h>

struct shuffle {
	uint64_t seed, count;
	unsigned half_bits;
};

void shuffle_init(struct shuffle *s, uint64_t seed, uint64_t count); /* 1 <= count <= 2^62 */
uint64_t shuffle_at(const struct shuffle *s, uint64_t n);

#endif
