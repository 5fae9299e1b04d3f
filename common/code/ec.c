/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ec: the one place that calls ISA-L's erasure code.
 *
 * Tables are built once for all policies. Work goes unit by unit; inside a unit it is cut where a shard ends, so that each
 * shard of a piece is either whole (used in place) or absent (a page of zeros takes its place): no padded copies. A piece of
 * k shards and m results of 16 KiB stays in the second-level cache, where the checksums then find it.
 *
 * k = 1 is copies: its matrix is all ones, so that decode needs no case of its own, and encode is memcpy.
 */
#include "common/code/ec.h"

#include <isa-l/erasure_code.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/err.h"

enum { TABLE_BYTES = 32 }; /* of one coefficient, as ISA-L wants it */

static const struct ec_policy policies[] = {
	{1, 4, 2, "rs-4-2"},
	{2, 6, 3, "rs-6-3"},
	{3, 8, 3, "rs-8-3"},
	{4, 8, 4, "rs-8-4"},
	{5, 10, 4, "rs-10-4"},
	{6, 9, 6, "rs-9-6"},
	{7, 1, 2, "rs-1-2"},
};

struct tables {
	uint8_t matrix[LIMIT_WIDTH * LIMIT_K]; /* (k + m) rows of k: identity, then parity */
	uint8_t encode[TABLE_BYTES * LIMIT_K * LIMIT_M];
};

static struct tables tables[ARRAY_COUNT(policies)];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static const uint8_t zeros[LIMIT_UNIT_BYTES];

const struct ec_policy *ec_policy_by_id(uint8_t id)
{
	for (size_t i = 0; i < ARRAY_COUNT(policies); i++)
		if (policies[i].id == id)
			return &policies[i];
	return NULL;
}

const struct ec_policy *ec_policy_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_COUNT(policies); i++)
		if (strcmp(policies[i].name, name) == 0)
			return &policies[i];
	return NULL;
}

const struct ec_policy *ec_policy_at(size_t index)
{
	return index < ARRAY_COUNT(policies) ? &policies[index] : NULL;
}

static void tables_build(void)
{
	for (size_t i = 0; i < ARRAY_COUNT(policies); i++) {
		const struct ec_policy *p = &policies[i];
		struct tables *t = &tables[i];

		if (p->k == 1)
			memset(t->matrix, 1, p->k + p->m);
		else
			gf_gen_cauchy1_matrix(t->matrix, p->k + p->m, p->k);
		ec_init_tables(p->k, p->m, t->matrix + p->k * p->k, t->encode);
	}
}

static const struct tables *tables_of(const struct ec_policy *p)
{
	size_t i = (size_t)(p - policies);

	CHECK(i < ARRAY_COUNT(policies) && p == &policies[i]);
	pthread_once(&tables_once, tables_build);
	return &tables[i];
}

/* The longest piece from `at`, at most up to `end`, in which no shard ends. */
static size_t piece_len(size_t at, size_t end, const size_t shard_len[], size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (shard_len[i] > at && shard_len[i] < end)
			end = shard_len[i];
	return end - at;
}

/* Products of [at, end) of the shards with the coefficients of `tbl`; [at, end) lies within one unit. */
static void multiply(size_t at, size_t end, uint8_t *tbl, size_t in_count, const uint8_t *const in[],
	const size_t in_len[], size_t out_count, uint8_t *const out[])
{
	while (at < end) {
		size_t n = piece_len(at, end, in_len, in_count);
		/* ISA-L reads the sources only; its prototype lacks the const. */
		uint8_t *src[LIMIT_K], *dst[LIMIT_WIDTH];

		for (size_t i = 0; i < in_count; i++)
			src[i] = (uint8_t *)(uintptr_t)(in_len[i] > at ? in[i] + at : zeros);
		for (size_t j = 0; j < out_count; j++)
			dst[j] = out[j] + at;
		ec_encode_data((int)n, (int)in_count, (int)out_count, tbl, src, dst);
		at += n;
	}
}

static void copy_unit(
	size_t at, size_t end, const uint8_t *data, size_t data_len, size_t out_count, uint8_t *const out[])
{
	size_t real = data_len <= at ? 0 : (data_len < end ? data_len : end) - at;

	for (size_t j = 0; j < out_count; j++) {
		if (real > 0)
			memcpy(out[j] + at, data + at, real);
		memset(out[j] + at + real, 0, end - at - real);
	}
}

static void unit_checksums(const struct ec_policy *p, size_t at, size_t end, const uint8_t *const data[],
	const size_t data_len[], uint8_t *const parity[], uint32_t *const crcs[])
{
	size_t unit = at / LIMIT_UNIT_BYTES;

	for (size_t i = 0; i < p->k; i++)
		if (data_len[i] > at)
			crcs[i][unit] = crc32c(data[i] + at, (data_len[i] < end ? data_len[i] : end) - at);
	for (size_t j = 0; j < p->m; j++) {
		/* A copy of a whole unit has the CRC of what it was copied from. */
		if (p->k == 1 && data_len[0] >= end)
			crcs[1 + j][unit] = crcs[0][unit];
		else
			crcs[p->k + j][unit] = crc32c(parity[j] + at, end - at);
	}
}

void ec_encode(const struct ec_policy *p, size_t len, const uint8_t *const data[], const size_t data_len[],
	uint8_t *const parity[], uint32_t *const crcs[])
{
	const struct tables *t = tables_of(p);

	for (size_t i = 0; i < p->k; i++)
		CHECK(data_len[i] <= len);
	for (size_t at = 0; at < len; at += LIMIT_UNIT_BYTES) {
		size_t end = len - at > LIMIT_UNIT_BYTES ? at + LIMIT_UNIT_BYTES : len;

		if (p->k == 1)
			copy_unit(at, end, data[0], data_len[0], p->m, parity);
		else
			multiply(at, end, (uint8_t *)(uintptr_t)t->encode, p->k, data, data_len, p->m, parity);
		if (crcs)
			unit_checksums(p, at, end, data, data_len, parity, crcs);
	}
}

static bool indices_valid(
	const struct ec_policy *p, const uint8_t have_idx[], const uint8_t want_idx[], size_t want_count)
{
	uint32_t seen = 0;

	for (size_t i = 0; i < (size_t)p->k + want_count; i++) {
		uint8_t idx = i < p->k ? have_idx[i] : want_idx[i - p->k];

		if (idx >= p->k + p->m || seen & 1u << idx)
			return false;
		seen |= 1u << idx;
	}
	return true;
}

/* Rows that make the wanted shards from those at hand: the wanted rows of the matrix times the inverse of the rows at hand. */
static void decode_rows(const struct ec_policy *p, const uint8_t *matrix, const uint8_t have_idx[],
	const uint8_t want_idx[], size_t want_count, uint8_t *rows)
{
	uint8_t had[LIMIT_K * LIMIT_K], inverse[LIMIT_K * LIMIT_K];
	size_t k = p->k;

	for (size_t i = 0; i < k; i++)
		memcpy(had + i * k, matrix + have_idx[i] * k, k);
	/* Any k rows of a Cauchy matrix under an identity are independent; the tests go through all sets. */
	CHECK(gf_invert_matrix(had, inverse, (int)k) == 0);
	for (size_t w = 0; w < want_count; w++)
		for (size_t j = 0; j < k; j++) {
			uint8_t sum = 0;

			for (size_t i = 0; i < k; i++)
				sum ^= gf_mul(matrix[want_idx[w] * k + i], inverse[i * k + j]);
			rows[w * k + j] = sum;
		}
}

int ec_decode(const struct ec_policy *p, size_t len, const uint8_t have_idx[], const uint8_t *const have[],
	const size_t have_len[], const uint8_t want_idx[], size_t want_count, uint8_t *const out[])
{
	const struct tables *t = tables_of(p);
	uint8_t rows[LIMIT_WIDTH * LIMIT_K];
	uint8_t tbl[TABLE_BYTES * LIMIT_WIDTH * LIMIT_K];

	if (want_count > p->m || !indices_valid(p, have_idx, want_idx, want_count))
		return ERR_INVAL;
	if (want_count == 0)
		return 0;
	for (size_t i = 0; i < p->k; i++)
		CHECK(have_len[i] <= len);
	decode_rows(p, t->matrix, have_idx, want_idx, want_count, rows);
	ec_init_tables(p->k, (int)want_count, rows, tbl);
	for (size_t at = 0; at < len; at += LIMIT_UNIT_BYTES) {
		size_t end = len - at > LIMIT_UNIT_BYTES ? at + LIMIT_UNIT_BYTES : len;

		multiply(at, end, tbl, p->k, have, have_len, want_count, out);
	}
	return 0;
}

void ec_unit_crcs(const void *data, size_t len, uint32_t *out)
{
	const uint8_t *p = data;

	for (size_t at = 0; at < len; at += LIMIT_UNIT_BYTES)
		*out++ = crc32c(p + at, len - at < LIMIT_UNIT_BYTES ? len - at : LIMIT_UNIT_BYTES);
}
