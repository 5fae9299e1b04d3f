/* SPDX-License-Identifier: Apache-2.0 */
#include "common/code/ec.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/err.h"
#include "common/code/stripe.h"
#include "tests/lib/unit.h"

enum {
	SHARD_BYTES = 1000,
	SHORT_BYTES = 617, /* real bytes of the last data shard */
	SMALL_BYTES = 96,
};

static uint8_t pattern(uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15u;

	return (uint8_t)(x >> 56 ^ x >> 29);
}

struct shards {
	uint8_t bytes[LIMIT_WIDTH][SHARD_BYTES];
	const uint8_t *data[LIMIT_K];
	size_t data_len[LIMIT_K];
	uint8_t *parity[LIMIT_M];
};

/* The last data shard is short; its missing bytes are zero in `bytes` but not told to the encoder. */
static void make_shards(const struct ec_policy *p, size_t len, size_t last_len, struct shards *s)
{
	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < p->k; i++) {
		s->data[i] = s->bytes[i];
		s->data_len[i] = i + 1u == p->k ? last_len : len;
		for (size_t b = 0; b < s->data_len[i]; b++)
			s->bytes[i][b] = pattern(i * SHARD_BYTES + b);
	}
	for (size_t j = 0; j < p->m; j++)
		s->parity[j] = s->bytes[p->k + j];
	ec_encode(p, len, s->data, s->data_len, s->parity, NULL);
}

/* Decodes all shards of `lost` from the first k others. */
static void decode_set(const struct ec_policy *p, const struct shards *s, size_t len, size_t last_len, uint32_t lost)
{
	uint8_t have_idx[LIMIT_WIDTH] = {0}, want_idx[LIMIT_WIDTH] = {0}, out[LIMIT_M][SHARD_BYTES];
	const uint8_t *have[LIMIT_WIDTH] = {NULL};
	uint8_t *out_ptr[LIMIT_M] = {NULL};
	size_t have_len[LIMIT_WIDTH] = {0}, have_count = 0, want_count = 0;

	for (uint8_t i = 0; i < p->k + p->m; i++) {
		if (lost & 1u << i) {
			out_ptr[want_count] = out[want_count];
			want_idx[want_count++] = i;
		} else if (have_count < p->k) {
			have_idx[have_count] = i;
			have[have_count] = s->bytes[i];
			have_len[have_count++] = i + 1u == p->k ? last_len : len;
		}
	}
	memset(out, 0xee, sizeof(out));
	ck_assert_int_eq(ec_decode(p, len, have_idx, have, have_len, want_idx, want_count, out_ptr), 0);
	for (size_t w = 0; w < want_count; w++)
		ck_assert_msg(memcmp(out[w], s->bytes[want_idx[w]], len) == 0, "%s: lost set %#x, shard %u", p->name,
			lost, want_idx[w]);
}

START_TEST(test_every_set_of_losses_of_every_policy_decodes)
	{
		static struct shards s;
		const struct ec_policy *p;

		for (size_t n = 0; (p = ec_policy_at(n)); n++) {
			uint32_t sets = 0;

			make_shards(p, SMALL_BYTES, 61, &s);
			for (uint32_t lost = 1; lost < 1u << (p->k + p->m); lost++) {
				if (__builtin_popcount(lost) > p->m)
					continue;
				decode_set(p, &s, SMALL_BYTES, 61, lost);
				sets++;
			}
			ck_assert_uint_gt(sets, 5);
			printf("erasure sets of %s: %u\n", p->name, sets); /* tools/prove erasure-sets counts them */
			fflush(stdout);
		}
	}
END_TEST

START_TEST(test_policies)
	{
		static const char *const names[] = {
			"rs-4-2", "rs-6-3", "rs-8-3", "rs-8-4", "rs-10-4", "rs-9-6", "rs-1-2"};

		for (uint8_t i = 0; i < 7; i++) {
			const struct ec_policy *p = ec_policy_at(i);

			ck_assert_str_eq(p->name, names[i]);
			ck_assert_uint_eq(p->id, i + 1);
			ck_assert_ptr_eq(ec_policy_by_id(p->id), p);
			ck_assert_ptr_eq(ec_policy_by_name(p->name), p);
			ck_assert_uint_le(p->k + p->m, LIMIT_WIDTH);
		}
		ck_assert_ptr_null(ec_policy_at(7));
		ck_assert_ptr_null(ec_policy_by_id(0));
		ck_assert_ptr_null(ec_policy_by_name("rs-5-2"));
		ck_assert_uint_eq(ec_policy_by_id(EC_POLICY_DEFAULT)->k, 4);
	}
END_TEST

START_TEST(test_decode_refuses_nonsense)
	{
		static struct shards s;
		const struct ec_policy *p = ec_policy_by_name("rs-4-2");
		const uint8_t *have[4];
		uint8_t out[SMALL_BYTES], *out_ptr[3] = {out, out, out};
		size_t have_len[4] = {SMALL_BYTES, SMALL_BYTES, SMALL_BYTES, SMALL_BYTES};

		make_shards(p, SMALL_BYTES, SMALL_BYTES, &s);
		for (size_t i = 0; i < 4; i++)
			have[i] = s.bytes[i];
		ck_assert_int_eq(
			ec_decode(p, SMALL_BYTES, (uint8_t[]){0, 1, 2, 6}, have, have_len, (uint8_t[]){3}, 1, out_ptr),
			ERR_INVAL);
		ck_assert_int_eq(
			ec_decode(p, SMALL_BYTES, (uint8_t[]){0, 1, 1, 2}, have, have_len, (uint8_t[]){3}, 1, out_ptr),
			ERR_INVAL);
		ck_assert_int_eq(
			ec_decode(p, SMALL_BYTES, (uint8_t[]){0, 1, 2, 3}, have, have_len, (uint8_t[]){3}, 1, out_ptr),
			ERR_INVAL);
		ck_assert_int_eq(ec_decode(p, SMALL_BYTES, (uint8_t[]){0, 1, 2, 3}, have, have_len,
					 (uint8_t[]){4, 5, 6}, 3, out_ptr),
			ERR_INVAL);
		ck_assert_int_eq(
			ec_decode(p, SMALL_BYTES, (uint8_t[]){0, 1, 2, 3}, have, have_len, NULL, 0, out_ptr), 0);
	}
END_TEST

/* A stripe of two and a half units: lists, short and empty shards, parity as of zero-padded shards. */
START_TEST(test_encode_with_checksums)
	{
		enum { LEN = 2 * LIMIT_UNIT_BYTES + 5000 };
		static uint8_t data[LIMIT_K][LEN], parity[LIMIT_M][LEN], padded[LIMIT_M][LEN];
		static uint32_t crcs[LIMIT_WIDTH][3];
		const struct ec_policy *p;

		for (size_t n = 0; (p = ec_policy_at(n)); n++) {
			const uint8_t *data_ptr[LIMIT_K];
			uint8_t *parity_ptr[LIMIT_M], *padded_ptr[LIMIT_M];
			uint32_t *crc_ptr[LIMIT_WIDTH];
			size_t len[LIMIT_K], full[LIMIT_K];

			memset(data, 0, sizeof(data));
			memset(crcs, 0xaa, sizeof(crcs));
			for (size_t i = 0; i < p->k; i++) {
				/* Lengths: all, 7,321 less, one unit and 3, nothing. */
				size_t lens[4] = {LEN, LEN - 7321, LIMIT_UNIT_BYTES + 3, 0};

				len[i] = lens[p->k == 1 ? 1 : i < 4 ? i : 3];
				full[i] = LEN;
				data_ptr[i] = data[i];
				for (size_t b = 0; b < len[i]; b++)
					data[i][b] = pattern(i * LEN + b);
			}
			for (size_t j = 0; j < p->m; j++) {
				parity_ptr[j] = parity[j];
				padded_ptr[j] = padded[j];
			}
			for (size_t i = 0; i < (size_t)p->k + p->m; i++)
				crc_ptr[i] = crcs[i];
			ec_encode(p, LEN, data_ptr, full, padded_ptr, NULL);
			for (size_t i = 0; i < p->k; i++)
				if (len[i] == 0)
					data_ptr[i] = NULL;
			ec_encode(p, LEN, data_ptr, len, parity_ptr, crc_ptr);
			for (size_t j = 0; j < p->m; j++)
				ck_assert_mem_eq(parity[j], padded[j], LEN);
			for (size_t i = 0; i < (size_t)p->k + p->m; i++) {
				size_t real = i < p->k ? len[i] : LEN;
				uint32_t expect[3] = {0xaaaaaaaa, 0xaaaaaaaa, 0xaaaaaaaa};

				ec_unit_crcs(i < p->k ? data[i] : parity[i - p->k], real, expect);
				ck_assert_mem_eq(crcs[i], expect, sizeof(expect));
				if (real)
					ck_assert_uint_eq(expect[0],
						crc32c(i < p->k ? data[i] : parity[i - p->k], LIMIT_UNIT_BYTES));
			}
		}
	}
END_TEST

/*
 * Golden blocks: what this version writes is what the first one wrote. A file holds k + m shards of SHARD_BYTES bytes (the
 * last data shard is padded), then for a block of two stripes and a bit with cells of one unit its masked unit-CRC lists
 * and, behind each list, the chunk's CRC. CRATON_GOLDEN_WRITE=DIR writes the files.
 */
static void golden_lists(const struct ec_policy *p, FILE *f, bool write)
{
	struct stripe_geom g = {p->k, p->m, LIMIT_UNIT_BYTES, 0};
	uint64_t block = 0x0001000000abcdefu;
	static uint8_t cells[LIMIT_WIDTH][LIMIT_UNIT_BYTES];
	uint32_t lists[LIMIT_WIDTH][4] = {{0}};

	g.length = 2ull * p->k * g.cell_bytes + (p->k > 1 ? g.cell_bytes : 0) + 777;
	for (uint32_t s = 0; s < stripe_count(&g); s++) {
		const uint8_t *data[LIMIT_K];
		uint8_t *parity[LIMIT_M];
		uint32_t *crcs[LIMIT_WIDTH];
		size_t len[LIMIT_K];

		for (uint8_t i = 0; i < p->k + p->m; i++) {
			crcs[i] = &lists[i][s];
			if (i >= p->k) {
				parity[i - p->k] = cells[i];
				continue;
			}
			data[i] = cells[i];
			len[i] = stripe_cell_len(&g, s, i);
			for (size_t b = 0; b < len[i]; b++)
				cells[i][b] = pattern(((uint64_t)s * p->k + i) * g.cell_bytes + b);
		}
		ec_encode(p, stripe_cell_len(&g, s, p->k), data, len, parity, crcs);
	}
	for (uint8_t i = 0; i < p->k + p->m; i++) {
		uint32_t units = stripe_unit_count(stripe_chunk_len(&g, i)), read[5];

		stripe_mask_units(block, i, 0, units, lists[i]);
		/* The chunk's CRC behind the list. */
		lists[i][units] = stripe_combine(block, i, stripe_chunk_len(&g, i), lists[i]);
		if (write) {
			ck_assert_uint_eq(fwrite(lists[i], 4, units + 1, f), units + 1);
			continue;
		}
		ck_assert_uint_eq(fread(read, 4, units + 1, f), units + 1);
		ck_assert_mem_eq(read, lists[i], (units + 1) * 4);
	}
}

static void golden_path(const char *dir, const struct ec_policy *p, char *path, size_t len)
{
	ck_assert_int_lt(snprintf(path, len, "%s/%s.bin", dir, p->name), (int)len);
}

START_TEST(test_golden_blocks)
	{
		static struct shards made, gold;
		const char *srcdir = getenv("srcdir"), *out = getenv("CRATON_GOLDEN_WRITE");
		const struct ec_policy *p;
		char dir[512], path[600];

		snprintf(dir, sizeof(dir), "%s/tests/golden", srcdir ? srcdir : ".");
		for (size_t n = 0; (p = ec_policy_at(n)); n++) {
			FILE *f;

			make_shards(p, SHARD_BYTES, SHORT_BYTES, &made);
			golden_path(out ? out : dir, p, path, sizeof(path));
			f = fopen(path, out ? "w" : "r");
			ck_assert_msg(f != NULL, "%s", path);
			if (out) {
				ck_assert_uint_eq(fwrite(made.bytes, SHARD_BYTES, p->k + p->m, f), p->k + p->m);
			} else {
				gold = made;
				memset(gold.bytes, 0, sizeof(gold.bytes));
				ck_assert_uint_eq(fread(gold.bytes, SHARD_BYTES, p->k + p->m, f), p->k + p->m);
				ck_assert_mem_eq(gold.bytes, made.bytes, (size_t)(p->k + p->m) * SHARD_BYTES);
				for (uint32_t lost = 1; lost < 1u << (p->k + p->m); lost++)
					if (__builtin_popcount(lost) == p->m && lost % 7 == 0)
						decode_set(p, &gold, SHARD_BYTES, SHORT_BYTES, lost);
			}
			golden_lists(p, f, out != NULL);
			ck_assert_int_eq(fgetc(f), EOF);
			ck_assert_int_eq(fclose(f), 0);
			printf("golden block of %s: ok\n", p->name);
			fflush(stdout);
		}
	}
END_TEST

UNIT_MAIN("ec", test_every_set_of_losses_of_every_policy_decodes, test_policies, test_decode_refuses_nonsense,
	test_encode_with_checksums, test_golden_blocks)
