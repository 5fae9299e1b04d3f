/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc: which parts of a disk's segments are free. Pure. Sizes and places are counted in grains of 4 KiB. Kept in memory only: built at
 * start by adding every segment and reserving every extent that the index names.
 *
 * A segment serves one size class. Extents are first fit by (segment, place): old segments fill up before new ones, and the end of the
 * newest stays whole for the largest. What is lent to another class is taken from the other end, so that it lies together and comes back
 * as a whole, not between the chunks that the segment is for.
 */
#ifndef CHUNKD_ALLOC_H
#define CHUNKD_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/limits.h"
#include "common/base/rng.h"

enum alloc_class { ALLOC_SMALL, ALLOC_MEDIUM, ALLOC_LARGE, ALLOC_CLASSES }; /* chunks <= 64 KiB, <= 4 MiB, above */

struct alloc_extent {
	uint32_t segment;
	uint32_t first; /* grain in the segment */
	uint32_t grains;
};

struct alloc_node;
struct alloc_segment;

struct alloc {
	struct rng rng; /* priorities of the trees */
	struct alloc_node *roots[ALLOC_CLASSES];
	struct alloc_node *spare;       /* nodes to reuse */
	struct alloc_segment *segments; /* by number */
	size_t segment_cap;
	uint64_t free_grains[ALLOC_CLASSES];
	uint64_t fit_grains[LIMIT_ROOM_SIZES];
	uint32_t needs[LIMIT_ROOM_SIZES]; /* grains of a chunk */
};

enum alloc_class alloc_class_of(uint64_t chunk_bytes);

void alloc_init(struct alloc *a);
void alloc_fini(struct alloc *a);

/* A new number, all of it free. */
void alloc_add_segment(struct alloc *a, uint32_t segment, enum alloc_class class, uint32_t grains);
/* At start: takes exactly this extent. ERR_EXIST if any of it is taken, ERR_RANGE if the segment has no such place. */
int alloc_reserve(struct alloc *a, struct alloc_extent extent);
/* ERR_NO_EXTENT. */
int alloc_take(struct alloc *a, enum alloc_class class, uint32_t grains, struct alloc_extent *ret_extent);
/* The last place of the class, for a chunk of another one. ERR_NO_EXTENT. */
int alloc_borrow(struct alloc *a, enum alloc_class class, uint32_t grains, struct alloc_extent *ret_extent);
/* An extent that was taken, or a part of one. */
void alloc_give(struct alloc *a, struct alloc_extent extent);

/*
 * Of all classes: what chunks of LIMIT_ROOM_BYTES << size could take, each in one extent and with the trailer of a data chunk (the least there is).
 * Size 0: all that is free.
 */
uint64_t alloc_fit_grains(const struct alloc *a, uint32_t size);
/* The same of a segment without chunks. */
uint64_t alloc_fit_whole(const struct alloc *a, uint32_t size, uint32_t segment_grains);
uint64_t alloc_free_grains(const struct alloc *a, enum alloc_class class);
uint32_t alloc_segment_free(const struct alloc *a, uint32_t segment);
uint32_t alloc_greatest(const struct alloc *a, enum alloc_class class); /* longest free extent */

#endif
