/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout: what metad says about where a piece of a file lies, checked and kept for a while. Counted references: the readers of a layout
 * keep it while it is replaced by a newer one.
 */
#ifndef CLIENT_LAYOUT_H
#define CLIENT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include "client/client_priv.h"
#include "common/code/token.h"

/* Less than the grace in which deleted chunks stay (120 s). */
#define LAYOUT_LIFE_NS (60ull * 1000 * 1000 * 1000)

struct layout_chunk {
	uint32_t disk, incarnation;
	uint32_t crc; /* the proof */
	bool present;
	bool damaged; /* metad knows that it is; it may be read all the same */
};

struct layout_block {
	uint64_t id;
	const struct ec_policy *policy;
	struct stripe_geom geom;
	struct layout_chunk chunks[LIMIT_WIDTH];
	uint32_t *lists[LIMIT_WIDTH]; /* masked unit CRCs that were shown to combine to the proof; NULL: not known yet */
	bool crowded;
	uint8_t token_bytes;
	uint8_t token[TOKEN_BYTES];
};

struct layout_extent {
	uint64_t file_offset, length, block_offset;
	struct layout_block *block;
};

struct layout {
	uint32_t refs;
	uint64_t fetched_ns;
	uint64_t offset, end_offset;  /* what it covers of the file */
	struct cr_stat attr;
	struct layout_extent *extents;
	struct layout_block *blocks;
	size_t extent_count, block_count;
	/* What no extent holds: the tail, which metad keeps itself, and zeros, if the file has holes at all. */
	uint64_t tail_offset;
	size_t tail_bytes;
	uint8_t *tail;
	bool holes;
};

/* ERR_PROTO if the reply contradicts itself or our limits. One reference, the caller's. */
int layout_new(const Craton__LayoutReply *reply, uint64_t offset, uint64_t now_ns, struct layout **ret_layout);
struct layout *layout_get(struct layout *l);
void layout_put(struct layout *l);                  /* NULL is allowed */
/* The extent that holds this byte of the file; NULL: none. */
struct layout_extent *layout_find(const struct layout *l, uint64_t offset);
/*
 * Bytes from `offset` on that no extent holds: how many there are at most `len` in one piece, and where they are in memory (NULL: zeros).
 * 0: metad has left something out.
 */
uint64_t layout_gap(const struct layout *l, uint64_t offset, uint64_t len, const uint8_t **ret_bytes);
/* Keeps the list if it combines to the proof of this chunk. ERR_CORRUPT if not. */
int layout_learn_list(struct layout_block *b, uint8_t index, const uint8_t *list, size_t bytes);

#endif
