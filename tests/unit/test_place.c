/* SPDX-License-Identifier: Apache-2.0 */
#include "common/code/place.h"

#include "common/base/err.h"
#include "tests/lib/unit.h"

enum { GIB = 1 << 30, ROUNDS = 300, MAX_DISKS = LIMIT_DISKS };

struct fleet {
	struct place_disk disks[MAX_DISKS];
	size_t count;
};

/* Disk numbers start at 1, so that a zero in a result shows. */
static void fleet_add(struct fleet *f, uint32_t domain, uint64_t free_bytes, bool avoid)
{
	f->disks[f->count] = (struct place_disk){
		.disk = (uint32_t)f->count + 1, .domain = domain, .free_bytes = free_bytes, .avoid = avoid};
	f->count++;
}

static void fleet_init(struct fleet *f, uint32_t domains, uint32_t disks_each)
{
	f->count = 0;
	for (uint32_t d = 0; d < domains; d++)
		for (uint32_t i = 0; i < disks_each; i++)
			fleet_add(f, 100 + d, 10ull * GIB, false);
}

static uint32_t fleet_domain(const struct fleet *f, uint32_t disk)
{
	ck_assert(disk >= 1 && disk <= f->count);
	return f->disks[disk - 1].domain;
}

static uint32_t most_in_a_domain(const struct fleet *f, const struct place_result *r, uint32_t width)
{
	uint32_t domains[LIMIT_WIDTH], most;

	for (uint32_t i = 0; i < width; i++)
		domains[i] = fleet_domain(f, r->disks[i]);
	ck_assert(place_is_crowded(domains, width, &most) == r->crowded);
	return most;
}

static uint32_t times_used(const struct place_result *r, uint32_t width, uint32_t disk)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < width; i++)
		n += r->disks[i] == disk;
	return n;
}

static uint32_t times_domain(const struct fleet *f, const struct place_result *r, uint32_t width, uint32_t domain)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < width; i++)
		n += fleet_domain(f, r->disks[i]) == domain;
	return n;
}

START_TEST(test_distinct_domains_and_spares)
	{
		struct place_result r;
		struct fleet f;
		struct rng rng;

		rng_init(&rng, 1);
		fleet_init(&f, 9, 3);
		for (int round = 0; round < ROUNDS; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			ck_assert(!r.crowded);
			ck_assert_uint_eq(most_in_a_domain(&f, &r, 6), 1);
			ck_assert_uint_eq(r.spare_count, 2);
			/* nine domains: the spares are in two of the three left */
			for (int i = 0; i < 2; i++)
				ck_assert_uint_eq(times_domain(&f, &r, 6, fleet_domain(&f, r.spares[i])), 0);
			ck_assert_uint_ne(fleet_domain(&f, r.spares[0]), fleet_domain(&f, r.spares[1]));
		}
	}
END_TEST

START_TEST(test_exactly_enough_domains)
	{
		struct place_result r;
		struct fleet f;
		struct rng rng;

		rng_init(&rng, 2);
		fleet_init(&f, 6, 1);
		for (int round = 0; round < ROUNDS; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			ck_assert(!r.crowded);
			ck_assert_uint_eq(most_in_a_domain(&f, &r, 6), 1);
			/* spares have to share a domain, but not both the same one */
			ck_assert_uint_eq(r.spare_count, 2);
			ck_assert_uint_ne(r.spares[0], r.spares[1]);
		}
	}
END_TEST

START_TEST(test_every_index_goes_everywhere)
	{
		uint32_t seen[6][6] = {{0}};
		struct place_result r;
		struct fleet f;
		struct rng rng;

		rng_init(&rng, 3);
		fleet_init(&f, 6, 1);
		for (int round = 0; round < ROUNDS; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			for (int i = 0; i < 6; i++)
				seen[i][r.disks[i] - 1]++;
		}
		for (int i = 0; i < 6; i++)
			for (int d = 0; d < 6; d++)
				ck_assert_uint_gt(seen[i][d], 0);
	}
END_TEST

START_TEST(test_weighted_by_free_space)
	{
		uint32_t small = 0, large = 0;
		struct place_result r;
		struct fleet f = {.count = 0};
		struct rng rng;

		rng_init(&rng, 4);
		for (uint32_t d = 0; d < 20; d++)
			fleet_add(&f, d, d < 10 ? 1ull * GIB : 9ull * GIB, false);
		for (int round = 0; round < ROUNDS; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			for (int i = 0; i < 6; i++)
				*(r.disks[i] <= 10 ? &small : &large) += 1;
		}
		ck_assert_uint_gt(small, 0);
		ck_assert_uint_gt(large, 4 * small);
	}
END_TEST

/* 6 chunks on fewer domains: the flattest distribution, distinct disks where there are enough. */
static void check_crowded(uint32_t domains, uint32_t disks_each, uint32_t most)
{
	struct place_result r;
	struct fleet f;
	struct rng rng;

	rng_init(&rng, 5 + domains);
	fleet_init(&f, domains, disks_each);
	for (int round = 0; round < ROUNDS; round++) {
		ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
		ck_assert(r.crowded);
		ck_assert_uint_eq(most_in_a_domain(&f, &r, 6), most);
		for (uint32_t d = 0; d < domains; d++)
			ck_assert_uint_ge(times_domain(&f, &r, 6, 100 + d), 6 / domains);
		if (domains * disks_each >= 6 && disks_each >= most)
			for (uint32_t i = 0; i < 6; i++)
				ck_assert_uint_eq(times_used(&r, 6, r.disks[i]), 1);
		/* chunks and spares together never put more than m in a domain */
		for (uint32_t d = 0; d < domains; d++) {
			uint32_t n = times_domain(&f, &r, 6, 100 + d);

			for (uint32_t i = 0; i < r.spare_count; i++)
				n += fleet_domain(&f, r.spares[i]) == 100 + d;
			ck_assert_uint_le(n, 2);
		}
		ck_assert_uint_eq(r.spare_count, domains * 2 - 6 < 2 ? domains * 2 - 6 : 2);
	}
}

START_TEST(test_six_chunks_on_five_four_three_domains)
	{
		for (uint32_t disks_each = 1; disks_each <= 3; disks_each++) {
			check_crowded(5, disks_each, 2);
			check_crowded(4, disks_each, 2);
			check_crowded(3, disks_each, 2);
		}
	}
END_TEST

START_TEST(test_no_placement_says_how_many_are_missing)
	{
		static const struct {
			uint8_t k, m;
			uint32_t needed;
		} cases[] = {{4, 2, 3}, {6, 3, 3}, {8, 3, 4}, {8, 4, 3}, {10, 4, 4}, {9, 6, 3}, {1, 2, 2}};
		struct place_result r;
		struct fleet f;
		struct rng rng;

		rng_init(&rng, 6);
		for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
			for (uint32_t domains = 0; domains <= cases[c].needed; domains++) {
				int code;

				fleet_init(&f, domains, 7); /* disks do not stand in for domains */
				code = place_choose(f.disks, f.count, cases[c].k, cases[c].m, &rng, &r);
				ck_assert_int_eq(code, domains < cases[c].needed ? ERR_NO_PLACEMENT : 0);
				ck_assert_uint_eq(r.missing_domains, cases[c].needed - domains);
				if (code == 0)
					ck_assert_uint_le(most_in_a_domain(&f, &r, (uint32_t)cases[c].k + cases[c].m),
						cases[c].m);
			}
	}
END_TEST

START_TEST(test_every_policy_on_every_fleet)
	{
		static const uint8_t policies[][2] = {{4, 2}, {6, 3}, {8, 3}, {8, 4}, {10, 4}, {9, 6}, {1, 2}};
		struct place_result r;
		struct fleet f;
		struct rng rng;

		rng_init(&rng, 7);
		for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); p++) {
			uint32_t width = (uint32_t)policies[p][0] + policies[p][1], m = policies[p][1];

			for (uint32_t domains = (width + m - 1) / m; domains <= 20; domains++) {
				fleet_init(&f, domains, 2);
				ck_assert_int_eq(
					place_choose(f.disks, f.count, policies[p][0], policies[p][1], &rng, &r), 0);
				ck_assert_uint_eq(most_in_a_domain(&f, &r, width), (width + domains - 1) / domains);
			}
		}
	}
END_TEST

START_TEST(test_full_disks_take_nothing)
	{
		struct place_result r;
		struct fleet f;
		struct rng rng;

		rng_init(&rng, 8);
		fleet_init(&f, 7, 1);
		f.disks[3].free_bytes = 0;
		for (int round = 0; round < ROUNDS; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			ck_assert(!r.crowded);
			ck_assert_uint_eq(times_used(&r, 6, 4), 0);
		}
		for (int i = 0; i < 5; i++)
			f.disks[i].free_bytes = 0;
		ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), ERR_NO_PLACEMENT);
		ck_assert_uint_eq(r.missing_domains, 1);
	}
END_TEST

START_TEST(test_avoided_disks_only_when_nothing_else_is_left)
	{
		struct place_result r;
		struct fleet f;
		struct rng rng;
		uint32_t avoided = 0;

		rng_init(&rng, 9);
		fleet_init(&f, 6, 1);
		f.disks[0].avoid = f.disks[1].avoid = true;
		for (int round = 0; round < ROUNDS; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			ck_assert(r.crowded);
			ck_assert_uint_eq(times_used(&r, 6, 1) + times_used(&r, 6, 2), 0);
			for (uint32_t i = 0; i < r.spare_count; i++)
				ck_assert_uint_gt(r.spares[i], 2);
		}
		/* two domains are not enough for rs-4-2: then avoided ones are better than a failed write */
		for (size_t i = 0; i < 4; i++)
			f.disks[i].avoid = true;
		ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
		for (uint32_t d = 1; d <= 4; d++)
			avoided += times_used(&r, 6, d);
		ck_assert_uint_gt(avoided, 0);
	}
END_TEST

START_TEST(test_same_seed_same_choice)
	{
		struct place_result a, b;
		struct rng r1, r2;
		struct fleet f;

		rng_init(&r1, 10);
		rng_init(&r2, 10);
		fleet_init(&f, 12, 2);
		for (int round = 0; round < 20; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 8, 3, &r1, &a), 0);
			ck_assert_int_eq(place_choose(f.disks, f.count, 8, 3, &r2, &b), 0);
			ck_assert_mem_eq(a.disks, b.disks, sizeof(a.disks));
			ck_assert_mem_eq(a.spares, b.spares, sizeof(a.spares));
		}
	}
END_TEST

/* With many disks they are drawn by chance first: the same rule, the same weights. */
START_TEST(test_many_disks)
	{
		static struct fleet f;
		struct place_result r;
		uint32_t large = 0, picks = 0;
		struct rng rng;

		rng_init(&rng, 11);
		fleet_init(&f, 512, 8);
		for (size_t i = 0; i < f.count; i += 2)
			f.disks[i].free_bytes = 30ull * GIB;
		for (int round = 0; round < ROUNDS; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 9, 6, &rng, &r), 0);
			ck_assert_uint_eq(most_in_a_domain(&f, &r, 15), 1);
			ck_assert_uint_eq(r.spare_count, 6);
			for (int i = 0; i < 15; i++, picks++)
				large += f.disks[r.disks[i] - 1].free_bytes == 30ull * GIB;
			for (int i = 0; i < 6; i++)
				ck_assert_uint_eq(times_domain(&f, &r, 15, fleet_domain(&f, r.spares[i])), 0);
		}
		/* half of the disks with three times the room of the others: three of four chunks */
		ck_assert_uint_gt(large, picks * 72 / 100);
		ck_assert_uint_lt(large, picks * 78 / 100);
	}
END_TEST

/* What no draw can find is found all the same: few that are able, few domains. */
START_TEST(test_many_disks_few_choices)
	{
		static struct fleet f;
		struct place_result r;
		struct rng rng;

		rng_init(&rng, 12);
		fleet_init(&f, 512, 8);
		for (size_t i = 0; i < f.count; i++)
			f.disks[i].free_bytes = i % 683 == 0 ? 1 << 20 : 0;
		for (int round = 0; round < 20; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			ck_assert_uint_eq(most_in_a_domain(&f, &r, 6), 1);
			ck_assert_uint_eq(r.spare_count, 2);
		}
		fleet_init(&f, 3, 1000);
		for (int round = 0; round < 20; round++) {
			ck_assert_int_eq(place_choose(f.disks, f.count, 4, 2, &rng, &r), 0);
			ck_assert_uint_eq(most_in_a_domain(&f, &r, 6), 2);
			for (uint32_t i = 0; i < 6; i++)
				ck_assert_uint_eq(times_used(&r, 6, r.disks[i]), 1);
		}
	}
END_TEST

/* What fits, by hand. */
START_TEST(test_room)
{
	const uint64_t even[] = {6000, 6000, 0, 6000, 6000, 6000, 6000}, one_full[] = {6000, 6000, 6000, 6000, 6000},
		three[] = {9000, 9000, 9000}, two[] = {9000, 9000}, odd[] = {1000, 1000, 1000, 1000, 1000, UINT64_MAX / 8192};

	ck_assert_uint_eq(place_room(even, 7, 4, 2), 24000);
	ck_assert_uint_eq(place_room(one_full, 5, 4, 2), 20000); /* crowded */
	ck_assert_uint_eq(place_room(three, 3, 4, 2), 18000);
	ck_assert_uint_eq(place_room(two, 2, 4, 2), 0);
	ck_assert_uint_eq(place_room(even, 0, 4, 2), 0);
	ck_assert_uint_eq(place_room(odd, 6, 4, 2), 5000);       /* two of six chunks on the great one, at most */
	ck_assert_uint_eq(place_room(odd, 6, 1, 2), 5000);
}
END_TEST

UNIT_MAIN("place", test_room, test_distinct_domains_and_spares, test_exactly_enough_domains, test_every_index_goes_everywhere,
	test_weighted_by_free_space, test_six_chunks_on_five_four_three_domains,
	test_no_placement_says_how_many_are_missing, test_every_policy_on_every_fleet, test_full_disks_take_nothing,
	test_avoided_disks_only_when_nothing_else_is_left, test_same_seed_same_choice,
	test_many_disks, test_many_disks_few_choices)
