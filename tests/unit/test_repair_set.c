/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks a rebuild is made from, and who is named when it does not come out right. */
#include "chunkd/repair_set.h"
#include "tests/lib/unit.h"

START_TEST(test_bad_sources_are_left_out)
{
	struct repair_sets s = {.needed = 4, .available = 0x3e}; /* chunk 0 is wanted */

	ck_assert_uint_eq(repair_set_next(&s), 0x1e);
	repair_set_bad(&s, 2);
	ck_assert_uint_eq(repair_set_next(&s), 0x3a);
	ck_assert_uint_eq(repair_set_liars(&s), 0);
	repair_set_bad(&s, 1);
	ck_assert_uint_eq(repair_set_next(&s), 0);
}
END_TEST

/* Runs until a set without the liars is found, as the rebuild would. */
static uint16_t find(struct repair_sets *s, uint16_t liars, int *ret_sets)
{
	uint16_t set;

	*ret_sets = 0;
	while ((set = repair_set_next(s))) {
		++*ret_sets;
		ck_assert_int_eq(__builtin_popcount(set), s->needed);
		ck_assert_int_le(*ret_sets, REPAIR_SETS_MAX);
		if (!(set & liars))
			return set;
		repair_set_mismatch(s);
	}
	return 0;
}

START_TEST(test_the_liar_is_named)
{
	for (uint8_t k = 1; k <= 10; k++)
		for (uint8_t liar = 1; liar <= k; liar++) {
			struct repair_sets s = {.needed = k, .available = (uint16_t)((1u << (k + 2)) - 2)};
			int sets;

			ck_assert_uint_ne(find(&s, (uint16_t)(1u << liar), &sets), 0);
			ck_assert_uint_eq(repair_set_liars(&s), 1u << liar);
		}
}
END_TEST

START_TEST(test_no_spare_or_two_liars)
{
	struct repair_sets s = {.needed = 4, .available = 0x1e};
	int sets;

	ck_assert_uint_eq(find(&s, 2, &sets), 0); /* nothing to compare with */
	ck_assert_int_eq(sets, 1);
	s = (struct repair_sets){
		.needed = 4, .available = 0x7e}; /* one of the set, and the first that it might be replaced by */
	ck_assert_uint_eq(find(&s, 0x24, &sets), 0x5a);
	ck_assert_uint_eq(repair_set_liars(&s), 0x24);
	s = (struct repair_sets){.needed = 4, .available = 0x3e};
	ck_assert_uint_eq(find(&s, 6, &sets), 0);
	ck_assert_int_eq(sets, 5); /* the first, and each of its chunks replaced: bounded */
}
END_TEST

START_TEST(test_a_source_fails_after_a_mismatch)
{
	struct repair_sets s = {.needed = 4, .available = 0x7e};
	uint16_t set = repair_set_next(&s);

	ck_assert_uint_eq(set, 0x1e);
	repair_set_mismatch(&s);
	repair_set_bad(&s, 1); /* now its list contradicts the proof: the mismatch says nothing about the others */
	ck_assert_uint_eq(repair_set_next(&s), 0x3c);
	ck_assert_uint_eq(repair_set_liars(&s), 0);
}
END_TEST

UNIT_MAIN("repair_set", test_bad_sources_are_left_out, test_the_liar_is_named, test_no_spare_or_two_liars,
	test_a_source_fails_after_a_mismatch)
