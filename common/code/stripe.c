/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stripe: see the header. Everything follows from one fact: data chunk i of a stripe holds the bytes of the block from
 * stripe * k * cell + i * cell on, as far as the block goes.
 *
 * The unit mask is a format: it lies on disks. splitmix64's finaliser over the block id, then over that and (index, unit),
 * upper and lower half folded: neighbouring units, chunks and blocks get unrelated masks.
 */
#include "common/code/stripe.h"

#include "common/base/check.h"
#include "common/base/crc32c.h"

static uint64_t stripe_bytes(const struct stripe_geom *g)
{
	return (uint64_t)g->k * g->cell_bytes;
}

static uint32_t clamp_to_cell(const struct stripe_geom *g, uint64_t from, uint64_t to)
{
	if (to <= from)
		return 0;
	return to - from < g->cell_bytes ? (uint32_t)(to - from) : g->cell_bytes;
}

uint64_t stripe_chunk_len(const struct stripe_geom *g, uint8_t index)
{
	uint64_t whole = g->length / stripe_bytes(g), rest = g->length % stripe_bytes(g);

	CHECK(index < g->k + g->m);
	if (index >= g->k)
		index = 0;
	return whole * g->cell_bytes + clamp_to_cell(g, (uint64_t)index * g->cell_bytes, rest);
}

uint8_t stripe_data_chunks(const struct stripe_geom *g)
{
	uint64_t cells = (g->length + g->cell_bytes - 1) / g->cell_bytes;

	return cells < g->k ? (uint8_t)cells : g->k;
}

uint32_t stripe_count(const struct stripe_geom *g)
{
	return (uint32_t)((g->length + stripe_bytes(g) - 1) / stripe_bytes(g));
}

uint32_t stripe_cell_len(const struct stripe_geom *g, uint32_t stripe, uint8_t index)
{
	CHECK(index < g->k + g->m);
	if (index >= g->k)
		index = 0;
	return clamp_to_cell(g, stripe * stripe_bytes(g) + (uint64_t)index * g->cell_bytes, g->length);
}

void stripe_locate(const struct stripe_geom *g, uint64_t offset, uint64_t len, struct stripe_piece *ret_piece)
{
	uint64_t cell = offset / g->cell_bytes;
	uint32_t in_cell = (uint32_t)(offset % g->cell_bytes);
	uint64_t most = g->cell_bytes - in_cell;

	CHECK(offset < g->length);
	if (most > g->length - offset)
		most = g->length - offset;
	*ret_piece = (struct stripe_piece){
		.index = (uint8_t)(cell % g->k),
		.stripe = (uint32_t)(cell / g->k),
		.chunk_offset = cell / g->k * g->cell_bytes + in_cell,
		.block_offset = offset,
		.len = (uint32_t)(len < most ? len : most),
	};
}

uint32_t stripe_unit_count(uint64_t chunk_len)
{
	return (uint32_t)((chunk_len + LIMIT_UNIT_BYTES - 1) / LIMIT_UNIT_BYTES);
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint32_t stripe_unit_mask(uint64_t block, uint8_t index, uint32_t unit)
{
	uint64_t x = mix(mix(block + 0x9e3779b97f4a7c15u) ^ ((uint64_t)index << 32 | unit));

	return (uint32_t)(x >> 32 ^ x);
}

void stripe_mask_units(uint64_t block, uint8_t index, uint32_t first, uint32_t count, uint32_t *crcs)
{
	for (uint32_t i = 0; i < count; i++)
		crcs[i] ^= stripe_unit_mask(block, index, first + i);
}

uint32_t stripe_combine(uint64_t block, uint8_t index, uint64_t chunk_len, const uint32_t *masked)
{
	uint32_t crc = 0, unit = 0;

	for (uint64_t at = 0; at < chunk_len; at += LIMIT_UNIT_BYTES, unit++) {
		uint64_t len = chunk_len - at < LIMIT_UNIT_BYTES ? chunk_len - at : LIMIT_UNIT_BYTES;

		crc = crc32c_combine(crc, masked[unit] ^ stripe_unit_mask(block, index, unit), len);
	}
	return crc;
}
