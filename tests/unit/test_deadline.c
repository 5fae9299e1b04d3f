/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/deadline.h"

#include "common/base/rng.h"
#include "tests/lib/unit.h"

/* Against a plain search: puts, moves, removals at random; the first is always the least. */
START_TEST(test_against_search)
{
	enum { COUNT = 200 };
	static struct deadline nodes[COUNT];
	struct deadline_set set;
	struct rng rng;

	rng_init(&rng, 11);
	deadline_init(&set);
	ck_assert_ptr_null(deadline_first(&set));
	for (int step = 0; step < 20000; step++) {
		struct deadline *d = &nodes[rng_below(&rng, COUNT)], *least = NULL;
		size_t count = 0;

		if (rng_chance(&rng, 3, 5))
			deadline_put(&set, d, rng_below(&rng, 1000));
		else
			deadline_remove(&set, d);
		for (int i = 0; i < COUNT; i++) {
			if (!nodes[i].place)
				continue;
			count++;
			if (!least || nodes[i].at_ns < least->at_ns)
				least = &nodes[i];
		}
		ck_assert_uint_eq(set.count, count);
		ck_assert(!deadline_first(&set) == !least);
		if (least)
			ck_assert_uint_eq(deadline_first(&set)->at_ns, least->at_ns);
	}
	while (deadline_first(&set))
		deadline_remove(&set, deadline_first(&set));
	deadline_fini(&set);
}
END_TEST

UNIT_MAIN("deadline", test_against_search)
