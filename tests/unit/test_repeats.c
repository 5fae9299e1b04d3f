// SPDX-License-Identifier: Apache-2.0
#include "metad/repeats.h"
#include "tests/lib/unit.h"

static struct repeats r;
static uint64_t count;

START_TEST(test_once_then_with_a_count)
{
	uint64_t key = repeats_key(repeats_key(0, slice_of("a", 1)), slice_of("b", 1));

	ck_assert_uint_ne(key, repeats_key(0, slice_of("a", 1)));
	ck_assert_int_eq(repeats_say(&r, 1, key, 0, &count), REPEATS_NEWS);
	ck_assert_uint_eq(count, 1);
	for (uint64_t ms = 0; ms < REPEATS_AGAIN_MS; ms += 1000)
		ck_assert_int_eq(repeats_say(&r, 1, key, ms, &count), REPEATS_NO_NEWS);
	ck_assert_int_eq(repeats_say(&r, 1, key + 1, 5, &count), REPEATS_NEWS); /* something else */
	ck_assert_int_eq(repeats_say(&r, 1, key, REPEATS_AGAIN_MS, &count), REPEATS_NEWS);
	ck_assert_uint_eq(count, REPEATS_AGAIN_MS / 1000 + 1);
	ck_assert_int_eq(repeats_say(&r, 1, key, REPEATS_AGAIN_MS + 1, &count), REPEATS_NO_NEWS);
}
END_TEST

START_TEST(test_what_was_well_is_new)
{
	ck_assert_int_eq(repeats_say(&r, 1, 10, 0, &count), REPEATS_NEWS);
	ck_assert_int_eq(repeats_say(&r, 2, 20, 0, &count), REPEATS_NEWS);
	repeats_forget(&r, 1);
	ck_assert_int_eq(repeats_say(&r, 2, 20, 1, &count), REPEATS_NO_NEWS);
	ck_assert_int_eq(repeats_say(&r, 1, 10, 1, &count), REPEATS_NEWS);
	ck_assert_uint_eq(count, 1);
}
END_TEST

/* Thousands ask every half minute for an hour: each that has a place is named, and that there are more is said as rarely. */
START_TEST(test_more_than_there_are_places)
{
	enum { KINDS = 10 * REPEATS, STEP_MS = 30 * 1000, HOUR_MS = 3600 * 1000 };
	uint64_t named = 0, others = 0, heard = 0;

	for (uint64_t ms = 0; ms < HOUR_MS; ms += STEP_MS)
		for (uint64_t key = 1; key <= KINDS; key++) {
			enum repeats_news news = repeats_say(&r, key, key, ms, &count);

			named += news == REPEATS_NEWS;
			ck_assert(news != REPEATS_NEWS || key <= REPEATS);
			others += news == REPEATS_NEWS_OF_OTHERS;
			heard += news == REPEATS_NEWS_OF_OTHERS ? count : 0;
		}
	ck_assert_uint_eq(named, REPEATS * HOUR_MS / REPEATS_AGAIN_MS);
	ck_assert_uint_eq(others, HOUR_MS / REPEATS_AGAIN_MS);
	ck_assert_uint_eq(heard, 1 + (KINDS - REPEATS) * ((HOUR_MS - REPEATS_AGAIN_MS) / STEP_MS));
}
END_TEST

/* Who asks no more leaves its place to who does. */
START_TEST(test_what_is_quiet_is_over)
{
	for (uint64_t key = 1; key <= REPEATS; key++)
		ck_assert_int_eq(repeats_say(&r, 0, key, 0, &count), REPEATS_NEWS);
	for (uint64_t key = 2; key <= REPEATS; key++)
		ck_assert_int_eq(repeats_say(&r, 0, key, REPEATS_QUIET_MS - 1, &count), REPEATS_NO_NEWS);
	ck_assert_int_eq(repeats_say(&r, 0, 1000, REPEATS_QUIET_MS - 1, &count), REPEATS_NEWS_OF_OTHERS);
	ck_assert_int_eq(repeats_say(&r, 0, 1000, REPEATS_QUIET_MS, &count), REPEATS_NEWS);
	ck_assert_int_eq(repeats_say(&r, 0, 2, REPEATS_QUIET_MS, &count), REPEATS_NO_NEWS);
	ck_assert_int_eq(repeats_say(&r, 0, 1, REPEATS_QUIET_MS, &count), REPEATS_NO_NEWS); /* one of the others */
}
END_TEST

UNIT_MAIN("repeats", test_once_then_with_a_count, test_what_was_well_is_new, test_more_than_there_are_places,
	test_what_is_quiet_is_over)
