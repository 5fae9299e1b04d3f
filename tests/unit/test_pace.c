/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pace.h"

#include "tests/lib/unit.h"

#define MS ((uint64_t)1000 * 1000)

START_TEST(test_slow_in_a_row_is_avoided)
{
	struct pace p = {0};

	/* Slower than four times the median, fifteen times in a row: not yet; one good one starts the row anew. */
	for (int i = 0; i < 15; i++)
		pace_note(&p, 5 * MS, 1 * MS);
	ck_assert(!pace_avoided(&p, 0));
	pace_note(&p, 4 * MS, 1 * MS);
	for (int i = 0; i < 15; i++)
		pace_note(&p, 5 * MS, 1 * MS);
	ck_assert(!pace_avoided(&p, 0));
	pace_note(&p, 5 * MS, 1 * MS);
	ck_assert(pace_avoided(&p, 0));
}
END_TEST

START_TEST(test_100_ms_of_it_are_enough)
{
	struct pace p = {0};

	pace_note(&p, 500 * MS, 5 * MS); /* once is no row */
	ck_assert(!pace_avoided(&p, 0));
	pace_note(&p, 30 * MS, 5 * MS);
	ck_assert(pace_avoided(&p, 0));
	p = (struct pace){0};
	pace_note(&p, 45 * MS, 5 * MS);
	pace_note(&p, 45 * MS, 5 * MS);
	ck_assert(!pace_avoided(&p, 0));
	pace_note(&p, 45 * MS, 5 * MS);
	ck_assert(pace_avoided(&p, 0));
}
END_TEST

START_TEST(test_what_is_no_slowness)
{
	struct pace p = {0};

	for (int i = 0; i < 100; i++)
		pace_note(&p, 900 * MS, 300 * MS); /* all were slow */
	ck_assert(!pace_avoided(&p, 0));
	for (int i = 0; i < 100; i++)
		pace_note(&p, 900 * MS, 0); /* no peers */
	ck_assert(!pace_avoided(&p, 0));
	for (int i = 0; i < 100; i++)
		pace_note(&p, 2 * MS, 1000); /* noise */
	ck_assert(!pace_avoided(&p, 0));
}
END_TEST

/* Without anybody to compare it with, 90 ms tell nothing: neither is a row of slow ones broken, nor is a slow disk brought back. */
START_TEST(test_alone_it_tells_nothing)
{
	struct pace p = {0};

	pace_note(&p, 80 * MS, 5 * MS);
	for (int i = 0; i < 10; i++)
		pace_note(&p, 90 * MS, 0);
	pace_note(&p, 80 * MS, 5 * MS);
	ck_assert(pace_avoided(&p, 0));
	for (int i = 0; i < 10; i++)
		pace_note(&p, 90 * MS, 0);
	ck_assert(pace_avoided(&p, 0));
	for (int i = 0; i < 3; i++)
		pace_note(&p, 1 * MS, 0);
	ck_assert(!pace_avoided(&p, 0));
}
END_TEST

/* Two of three are late: both are measured by the third. */
START_TEST(test_two_of_three_are_late)
{
	struct pace_race r = {.entered = 3};

	ck_assert_uint_eq(pace_race_peers(&r), 0);
	ck_assert_uint_eq(pace_race_end(&r, 5 * MS), 5 * MS); /* the quicker half is not slow */
	ck_assert_uint_eq(pace_race_peers(&r), 5 * MS);
	ck_assert_uint_eq(pace_race_end(&r, 85 * MS), 5 * MS);
	ck_assert_uint_eq(pace_race_end(&r, 90 * MS), 5 * MS);
	r = (struct pace_race){.entered = 2};
	ck_assert_uint_eq(pace_race_end(&r, 5 * MS), 0); /* the other one may be as slow as ever */
	ck_assert_uint_eq(pace_race_end(&r, 90 * MS), 5 * MS);
	r = (struct pace_race){.entered = 1};
	ck_assert_uint_eq(pace_race_peers(&r), 0);
	r = (struct pace_race){.entered = 6};
	ck_assert_uint_eq(pace_race_end(&r, 3 * MS), 3 * MS);
	ck_assert_uint_eq(pace_race_end(&r, 4 * MS), 4 * MS);
	ck_assert_uint_eq(pace_race_peers(&r), 0);
	ck_assert_uint_eq(pace_race_end(&r, 5 * MS), 5 * MS);
	ck_assert_uint_eq(pace_race_peers(&r), 5 * MS); /* the third of the five others */
}
END_TEST

/* Two of four took a millisecond; two more enter as the others are late: one of these, which now comes among the first three of six, is no quick one. */
START_TEST(test_hedges_enter_late)
{
	struct pace_race r = {.entered = 4};

	pace_race_end(&r, 1 * MS);
	ck_assert_uint_eq(pace_race_end(&r, 1 * MS), 1 * MS);
	r.entered = 6;
	ck_assert_uint_eq(pace_race_end(&r, 11 * MS), 0);
}
END_TEST

/* The quickest of six, at 6 ms: pauses hours apart are no row, and after two in a row it comes back. */
START_TEST(test_quickest_of_six)
{
	struct pace p = {0};

	for (int pause = 0; pause < 3; pause++) {
		struct pace_race r = {.entered = 6};

		ck_assert(!pace_avoided(&p, 0));
		pace_note(&p, 80 * MS, 7 * MS);
		pace_note(&p, 6 * MS, pace_race_end(&r, 6 * MS));
	}
	pace_note(&p, 80 * MS, 7 * MS);
	pace_note(&p, 80 * MS, 7 * MS);
	ck_assert(pace_avoided(&p, 0));
	for (int i = 0; i < PACE_WELL; i++) {
		struct pace_race r = {.entered = 6};

		pace_note(&p, 6 * MS, pace_race_end(&r, 6 * MS));
	}
	ck_assert(!pace_avoided(&p, 0));
}
END_TEST

START_TEST(test_probes_bring_it_back)
{
	struct pace p = {0};
	uint64_t now = 5000 * MS;
	int probes = 0;

	for (int i = 0; i < 16; i++)
		pace_note(&p, 500 * MS, 5 * MS);
	ck_assert(pace_probe(&p, now)); /* the first one soon: it may have been a hiccup */
	for (int i = 0; i < 1000; i++)
		probes += pace_probe(&p, now);
	ck_assert_int_eq(probes, 10); /* 1 % */
	ck_assert(pace_probe(&p, now + 1000 * MS));
	ck_assert(!pace_probe(&p, now + 1001 * MS));
	pace_note(&p, 6 * MS, 5 * MS);
	pace_note(&p, 6 * MS, 5 * MS);
	ck_assert(pace_avoided(&p, 0));
	pace_note(&p, 6 * MS, 5 * MS);
	ck_assert(!pace_avoided(&p, 0));
}
END_TEST

START_TEST(test_hints_end)
{
	struct pace p = {.hint_until_ns = 100};

	ck_assert(pace_avoided(&p, 99));
	ck_assert(!pace_avoided(&p, 100));
	p.hint_until_ns = UINT64_MAX;
	for (int i = 0; i < PACE_WELL; i++)
		pace_note(&p, 6 * MS, 5 * MS);
	ck_assert(!pace_avoided(&p, 99)); /* seen with our own eyes */
}
END_TEST

START_TEST(test_race)
{
	struct pace_race r = {.entered = 6};

	ck_assert_uint_eq(pace_race_median(&r), 0);
	pace_race_end(&r, 30);
	pace_race_end(&r, 10);
	ck_assert_uint_eq(pace_race_median(&r), 0);
	pace_race_end(&r, 20);
	ck_assert_uint_eq(pace_race_median(&r), 30); /* the third of six */
	for (int i = 0; i < 10; i++)
		pace_race_end(&r, 1000);
	ck_assert_uint_eq(r.ended, 6);
	ck_assert_uint_eq(pace_race_median(&r), 30);
	r = (struct pace_race){.entered = 1};
	pace_race_end(&r, 30);
	ck_assert_uint_eq(pace_race_median(&r), 0); /* no peers */
}
END_TEST

UNIT_MAIN("pace", test_slow_in_a_row_is_avoided, test_100_ms_of_it_are_enough, test_what_is_no_slowness, test_alone_it_tells_nothing, test_two_of_three_are_late, test_hedges_enter_late, test_quickest_of_six,
	test_probes_bring_it_back, test_hints_end, test_race)
