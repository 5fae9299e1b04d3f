/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/shuffle.h"

#include "tests/lib/unit.h"

START_TEST(test_each_sample_once_an_epoch)
{
	static const uint64_t counts[] = {1, 2, 3, 5, 16, 17, 1000, 4097};

	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		struct shuffle s;
		unsigned char *seen = calloc(counts[c], 1);

		shuffle_init(&s, 42, counts[c]);
		for (uint64_t n = 0; n < counts[c]; n++) {
			uint64_t x =
				shuffle_at(&s, 3 * counts[c] + n); /* the fourth epoch, without having walked there */

			ck_assert_uint_lt(x, counts[c]);
			ck_assert_msg(!seen[x], "%llu comes twice", (unsigned long long)x);
			seen[x] = 1;
		}
		free(seen);
	}
}
END_TEST

START_TEST(test_epochs_and_seeds_differ)
{
	struct shuffle a, b;
	int same_epoch = 0, same_seed = 0, in_place = 0;

	shuffle_init(&a, 1, 1000);
	shuffle_init(&b, 2, 1000);
	for (uint64_t n = 0; n < 1000; n++) {
		same_epoch += shuffle_at(&a, n) == shuffle_at(&a, 1000 + n);
		same_seed += shuffle_at(&a, n) == shuffle_at(&b, n);
		in_place += shuffle_at(&a, n) == n;
	}
	/* Random permutations agree in one place on average. */
	ck_assert_int_lt(same_epoch, 10);
	ck_assert_int_lt(same_seed, 10);
	ck_assert_int_lt(in_place, 10);
}
END_TEST

/* The order is part of what a checkpoint means: it must never change under it. */
START_TEST(test_known_order)
{
	static const uint64_t want[8] = {29507, 23691, 16014, 22316, 10581, 15472, 28303, 19710};
	struct shuffle s;

	shuffle_init(&s, 1, 32688);
	for (uint64_t n = 0; n < 8; n++)
		ck_assert_uint_eq(shuffle_at(&s, n), want[n]);
}
END_TEST

START_TEST(test_far_ahead)
{
	struct shuffle s;

	shuffle_init(&s, 7, (uint64_t)1 << 40);
	for (uint64_t n = 0; n < 1000; n++)
		ck_assert_uint_lt(shuffle_at(&s, UINT64_MAX - n), (uint64_t)1 << 40);
}
END_TEST

UNIT_MAIN("shuffle", test_each_sample_once_an_epoch, test_epochs_and_seeds_differ, test_known_order, test_far_ahead)
