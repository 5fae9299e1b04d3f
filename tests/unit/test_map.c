/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/map.h"

#include "common/base/rng.h"
#include "tests/lib/unit.h"

START_TEST(test_put_get_remove)
{
	struct map m;
	int a, b;

	map_init(&m);
	ck_assert_ptr_null(map_get(&m, 1));
	ck_assert_ptr_null(map_remove(&m, 1));
	ck_assert_ptr_null(map_put(&m, 0, &a));
	ck_assert_ptr_null(map_put(&m, UINT64_MAX, &b));
	ck_assert_ptr_eq(map_get(&m, 0), &a);
	ck_assert_ptr_eq(map_put(&m, 0, &b), &a);
	ck_assert_ptr_eq(map_get(&m, 0), &b);
	ck_assert_uint_eq(m.count, 2);
	ck_assert_ptr_eq(map_remove(&m, 0), &b);
	ck_assert_ptr_null(map_get(&m, 0));
	ck_assert_uint_eq(m.count, 1);
	map_fini(&m);
}
END_TEST

enum { KEYS = 3000 };

/* Against an array, with many removals, so that the shifting back is exercised around the end of the table too. */
START_TEST(test_against_a_model)
{
	static char values[KEYS];
	static void *model[KEYS];
	struct rng rng;
	struct map m;
	size_t count = 0, seen = 0, pos = 0;
	uint64_t key;
	void *value;

	rng_init(&rng, 7);
	map_init(&m);
	for (int step = 0; step < 40000; step++) {
		uint64_t k = rng_below(&rng, KEYS);

		if (rng_chance(&rng, 1, 2)) {
			value = &values[rng_below(&rng, KEYS)];
			count += !model[k];
			ck_assert_ptr_eq(map_put(&m, k * 64, value), model[k]);
			model[k] = value;
		} else {
			count -= !!model[k];
			ck_assert_ptr_eq(map_remove(&m, k * 64), model[k]);
			model[k] = NULL;
		}
		ck_assert_uint_eq(m.count, count);
		ck_assert_ptr_eq(map_get(&m, (k ^ 1) * 64), (k ^ 1) < KEYS ? model[k ^ 1] : NULL);
	}
	while (map_next(&m, &pos, &key, &value)) {
		ck_assert_ptr_eq(model[key / 64], value);
		seen++;
	}
	ck_assert_uint_eq(seen, count);
	map_fini(&m);
}
END_TEST

UNIT_MAIN("map", test_put_get_remove, test_against_a_model)
