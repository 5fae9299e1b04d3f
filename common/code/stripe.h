/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stripe: the arithmetic of blocks. A block of `length` bytes is cut in stripes of k cells of `cell_bytes`, row by row: byte b lies in
 * stripe b / (k*cell), data chunk (b / cell) % k. Only the last stripe may be short; its missing bytes count as zeros, neither stored
 * nor sent. A parity chunk is as long as the longest data chunk (chunk 0). Empty chunks do not exist.
 *
 * Unit identity: the CRC of a unit on wire and disk is crc32c(unit) XOR stripe_unit_mask(block, index, unit), so that a unit of another
 * chunk or place never passes, while the plain CRCs still combine to the chunk's CRC, the proof.
 */
#ifndef COMMON_CODE_STRIPE_H
#define COMMON_CODE_STRIPE_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/limits.h"

struct stripe_geom {
	uint8_t k, m;
	uint32_t cell_bytes;   /* multiple of the unit */
	uint64_t length;       /* of the block, 1 .. k * chunk bytes */
};

uint64_t stripe_chunk_len(const struct stripe_geom *g, uint8_t index);    /* data or parity; 0: the chunk does not exist */
uint8_t stripe_data_chunks(const struct stripe_geom *g);                   /* k' */
uint32_t stripe_count(const struct stripe_geom *g);
uint32_t stripe_cell_len(const struct stripe_geom *g, uint32_t stripe, uint8_t index); /* parity: that of data chunk 0 */

struct stripe_piece {
	uint8_t index;          /* data chunk */
	uint32_t stripe;
	uint64_t chunk_offset;  /* in the chunk */
	uint64_t block_offset;
	uint32_t len;           /* within one cell */
};
/* The piece of [offset, offset + len) that starts at `offset`: go on from offset + piece.len. offset < g->length. */
void stripe_locate(const struct stripe_geom *g, uint64_t offset, uint64_t len, struct stripe_piece *ret_piece);

uint32_t stripe_unit_count(uint64_t chunk_len);
uint32_t stripe_unit_mask(uint64_t block, uint8_t index, uint32_t unit);
/* In place: plain <-> masked, units first .. first + count - 1; crcs[0] is unit `first`. */
void stripe_mask_units(uint64_t block, uint8_t index, uint32_t first, uint32_t count, uint32_t *crcs);
/* The chunk's plain CRC from its units' masked CRCs. */
uint32_t stripe_combine(uint64_t block, uint8_t index, uint64_t chunk_len, const uint32_t *masked);

#endif
