/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inventory: how metad and a chunk server find out whether they believe in the same copies: a digest over all copies of
 * a range of block ids, made by both sides. The digest is a sum, so that the order does not count; it finds mistakes, it
 * does not keep liars out (those have the cluster secret). Pure.
 */
#ifndef COMMON_CODE_INVENTORY_H
#define COMMON_CODE_INVENTORY_H

#include <stdint.h>

enum { INVENTORY_RANGE_BLOCKS = 1024 };

static inline uint64_t inventory_digest(uint64_t block, uint8_t index, uint32_t incarnation)
{
	uint64_t x = block * 0x9e3779b97f4a7c15ull ^ ((uint64_t)incarnation << 8 | index);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

#endif
