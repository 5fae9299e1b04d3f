// SPDX-License-Identifier: Apache-2.0
#include "metad/repeats.h"
#include "tests/lib/unit.h"

static struct repeats r;
static uint64_t count;

START_TEST(test_once_then_with_a_count)
{
	uint64_t key = repeats_key(repeats_key(0, slice_of("a", 1)), slice_of("b", 1));

	ck_assert_uint_ne(key, repeats_key(0, slice_of("a", 1)));
	ck_assert(repeats_say(&r, 1, key, 0, &count));
	ck_assert_uint_eq(count, 1);
	for (uint64_t ms = 0; ms < REPEATS_AGAIN_MS; ms += 1000)
		ck_assert(!repeats_say(&r, 1, key, ms, &count));
	ck_assert(repeats_say(&r, 1, key + 1, 5, &count)); /* something else */
	ck_assert(repeats_say(&r, 1, key, REPEATS_AGAIN_MS, &count));
	ck_assert_uint_eq(count, REPEATS_AGAIN_MS / 1000 + 1);
	ck_assert(!repeats_say(&r, 1, key, REPEATS_AGAIN_MS + 1, &count));
}
END_TEST

START_TEST(test_what_was_well_is_new)
{
	ck_assert(repeats_say(&r, 1, 10, 0, &count));
	ck_assert(repeats_say(&r, 2, 20, 0, &count));
	repeats_forget(&r, 1);
	ck_assert(!repeats_say(&r, 2, 20, 1, &count));
	ck_assert(repeats_say(&r, 1, 10, 1, &count));
	ck_assert_uint_eq(count, 1);
}
END_TEST

START_TEST(test_the_quietest_is_forgotten)
{
	for (uint64_t key = 1; key <= REPEATS; key++)
		ck_assert(repeats_say(&r, 0, key, key, &count));
	ck_assert(!repeats_say(&r, 0, 1, REPEATS + 1, &count));
	ck_assert(repeats_say(&r, 0, 1000, REPEATS + 2, &count)); /* in the place of 2 */
	ck_assert(!repeats_say(&r, 0, 1, REPEATS + 3, &count));
	ck_assert(!repeats_say(&r, 0, 3, REPEATS + 3, &count));
	ck_assert(repeats_say(&r, 0, 2, REPEATS + 3, &count));
}
END_TEST

UNIT_MAIN("repeats", test_once_then_with_a_count, test_what_was_well_is_new, test_the_quietest_is_forgotten)
