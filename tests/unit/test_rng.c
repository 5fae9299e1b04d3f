/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/rng.h"

#include <string.h>
#include "tests/lib/unit.h"

START_TEST(test_known_sequence)
{
	/* The authors' C code from state {1, 2, 3, 4}. */
	struct rng r = {.s = {1, 2, 3, 4}};

	ck_assert_uint_eq(rng_u64(&r), 11520ULL);
	ck_assert_uint_eq(rng_u64(&r), 0ULL);
	ck_assert_uint_eq(rng_u64(&r), 1509978240ULL);
	ck_assert_uint_eq(rng_u64(&r), 1215971899390074240ULL);
	/* splitmix64 from 1234567. */
	rng_init(&r, 1234567);
	ck_assert_uint_eq(r.s[0], 6457827717110365317ULL);
	ck_assert_uint_eq(r.s[1], 3203168211198807973ULL);
}
END_TEST

START_TEST(test_bounds)
{
	struct rng r;
	unsigned counts[10] = {0};

	rng_init(&r, 1);
	for (int i = 0; i < 100000; i++) {
		uint64_t x = rng_below(&r, 10);

		ck_assert_uint_lt(x, 10);
		counts[x]++;
		x = rng_between(&r, 5, 7);
		ck_assert(x >= 5 && x <= 7);
	}
	for (int i = 0; i < 10; i++)
		ck_assert(counts[i] > 9500 && counts[i] < 10500);
	ck_assert_uint_eq(rng_below(&r, 1), 0);
	ck_assert_uint_eq(rng_between(&r, 9, 9), 9);
	rng_between(&r, 0, UINT64_MAX);
	ck_assert(!rng_chance(&r, 0, 5));
	ck_assert(rng_chance(&r, 5, 5));
}
END_TEST

START_TEST(test_bytes)
{
	struct rng a, b;
	uint8_t x[21], y[21];

	rng_init(&a, 3);
	rng_init(&b, 3);
	memset(x, 0, sizeof(x));
	x[20] = 0xa5;
	rng_bytes(&a, x, 20);
	rng_bytes(&b, y, 21);
	ck_assert_int_eq(memcmp(x, y, 20), 0);
	ck_assert_uint_eq(x[20], 0xa5);
}
END_TEST

START_TEST(test_backoff)
{
	struct rng r;

	rng_init(&r, 5);
	for (uint32_t attempt = 0; attempt < 200; attempt++) {
		uint64_t wait = rng_backoff(&r, 100, 5000, attempt), most = attempt < 6 ? 100ull << attempt : 5000;

		ck_assert(wait >= 50 && wait <= most && wait <= 5000);
	}
	ck_assert_uint_le(rng_backoff(&r, 100, 10, 3), 10);
}
END_TEST

UNIT_MAIN("rng", test_known_sequence, test_bounds, test_bytes, test_backoff)
