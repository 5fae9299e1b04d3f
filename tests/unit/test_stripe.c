/* SPDX-License-Identifier: Apache-2.0 */
#include "common/code/stripe.h"

#include <string.h>
#include "common/base/crc32c.h"
#include "tests/lib/unit.h"

enum { CELL = 2 * LIMIT_UNIT_BYTES };

/* Lengths around every border, by brute force over cells. */
START_TEST(test_lengths_add_up)
	{
		static const uint8_t ks[] = {1, 4, 9, 10};

		for (size_t n = 0; n < 4; n++) {
			uint8_t k = ks[n];

			for (uint64_t cells = 0; cells < 3u * k; cells++) {
				static const uint32_t extra[] = {1, 777, LIMIT_UNIT_BYTES, CELL - 1, CELL};

				for (size_t e = 0; e < 5; e++) {
					struct stripe_geom g = {k, 2, CELL, cells * CELL + extra[e]};
					uint64_t sum = 0, chunk[LIMIT_K + 2] = {0};

					for (uint32_t s = 0; s < stripe_count(&g); s++)
						for (uint8_t i = 0; i < k + 2; i++) {
							chunk[i] += stripe_cell_len(&g, s, i);
							sum += i < k ? stripe_cell_len(&g, s, i) : 0;
						}
					ck_assert_uint_eq(sum, g.length);
					for (uint8_t i = 0; i < k + 2; i++) {
						ck_assert_uint_eq(stripe_chunk_len(&g, i), chunk[i]);
						ck_assert_uint_le(chunk[i], chunk[0]);
						ck_assert_int_eq(chunk[i] > 0, i < stripe_data_chunks(&g) || i >= k);
					}
					ck_assert_uint_eq(chunk[k], chunk[0]);
				}
			}
		}
	}
END_TEST

START_TEST(test_locate_covers_a_range_in_order)
	{
		struct stripe_geom g = {4, 2, CELL, 11ull * CELL + 12345};
		uint64_t at = 1000, end = g.length;
		uint32_t pieces = 0;

		while (at < end) {
			struct stripe_piece p;

			stripe_locate(&g, at, end - at, &p);
			ck_assert_uint_eq(p.block_offset, at);
			ck_assert_uint_gt(p.len, 0);
			/* The other way round. */
			ck_assert_uint_eq(((uint64_t)p.stripe * g.k + p.index) * CELL + p.chunk_offset % CELL, at);
			ck_assert_uint_eq(p.chunk_offset / CELL, p.stripe);
			ck_assert_uint_le(p.chunk_offset + p.len, stripe_chunk_len(&g, p.index));
			at += p.len;
			pieces++;
		}
		ck_assert_uint_eq(at, end);
		ck_assert_uint_eq(pieces, 12);
	}
END_TEST

START_TEST(test_masks_tell_places_apart)
	{
		uint32_t seen[4 * 3 * 8], n = 0;

		for (uint64_t block = 1; block <= 4; block++)
			for (uint8_t index = 0; index < 3; index++)
				for (uint32_t unit = 0; unit < 8; unit++)
					seen[n++] = stripe_unit_mask(block, index, unit);
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = 0; j < i; j++)
				ck_assert_uint_ne(seen[i], seen[j]);
		/* A format: these values never change. */
		ck_assert_uint_eq(stripe_unit_mask(1, 0, 0), 0x5e24f644);
		ck_assert_uint_eq(stripe_unit_mask(0x0001000000abcdef, 5, 255), 0x1ddf3a95);
	}
END_TEST

START_TEST(test_combine_is_the_crc_of_the_chunk)
	{
		static uint8_t chunk[3 * LIMIT_UNIT_BYTES + 100];
		uint32_t list[4];

		for (size_t i = 0; i < sizeof(chunk); i++)
			chunk[i] = (uint8_t)(i * 40503u >> 7);
		for (uint64_t len = 1; len <= sizeof(chunk); len += 16381) {
			uint32_t units = stripe_unit_count(len);

			ck_assert_uint_eq(units, (len + LIMIT_UNIT_BYTES - 1) / LIMIT_UNIT_BYTES);
			for (uint32_t u = 0; u < units; u++) {
				uint64_t at = (uint64_t)u * LIMIT_UNIT_BYTES;

				list[u] = crc32c(chunk + at, len - at < LIMIT_UNIT_BYTES ? len - at : LIMIT_UNIT_BYTES);
			}
			stripe_mask_units(77, 3, 0, units, list);
			ck_assert_uint_eq(stripe_combine(77, 3, len, list), crc32c(chunk, len));
			ck_assert_uint_ne(stripe_combine(78, 3, len, list), crc32c(chunk, len));
			/* Masking twice gives the plain list back, also piece by piece. */
			for (uint32_t u = 0; u < units; u++)
				stripe_mask_units(77, 3, u, 1, &list[u]);
			ck_assert_uint_eq(list[0], crc32c(chunk, len < LIMIT_UNIT_BYTES ? len : LIMIT_UNIT_BYTES));
		}
	}
END_TEST

UNIT_MAIN("stripe", test_lengths_add_up, test_locate_covers_a_range_in_order, test_masks_tell_places_apart,
	test_combine_is_the_crc_of_the_chunk)
