/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/alloc.h"

#include <string.h>
#include "common/base/err.h"
#include "tests/lib/unit.h"

START_TEST(test_first_fit_and_joining)
{
	struct alloc a;
	struct alloc_extent x, y, z;

	alloc_init(&a);
	alloc_add_segment(&a, 0, ALLOC_MEDIUM, 100);
	ck_assert_int_eq(alloc_take(&a, ALLOC_SMALL, 1, &x), ERR_NO_EXTENT);
	ck_assert_int_eq(alloc_take(&a, ALLOC_MEDIUM, 40, &x), 0);
	ck_assert_int_eq(alloc_take(&a, ALLOC_MEDIUM, 40, &y), 0);
	ck_assert_uint_eq(x.first, 0);
	ck_assert_uint_eq(y.first, 40);
	ck_assert_int_eq(alloc_take(&a, ALLOC_MEDIUM, 40, &z), ERR_NO_EXTENT);
	ck_assert_uint_eq(alloc_greatest(&a, ALLOC_MEDIUM), 20);
	/* The end of an extent goes back first, as at a seal; then the rest: all is one again. */
	alloc_give(&a, (struct alloc_extent){0, 60, 20});
	ck_assert_uint_eq(alloc_greatest(&a, ALLOC_MEDIUM), 40);
	alloc_give(&a, x);
	ck_assert_uint_eq(alloc_greatest(&a, ALLOC_MEDIUM), 40);
	alloc_give(&a, (struct alloc_extent){0, 40, 20});
	ck_assert_uint_eq(alloc_greatest(&a, ALLOC_MEDIUM), 100);
	alloc_fini(&a);
}
END_TEST

/* What is lent lies at the other end, and comes back as a whole while the class goes on at its own. */
START_TEST(test_borrowing_from_the_end)
{
	struct alloc a;
	struct alloc_extent x, y, own, again;

	alloc_init(&a);
	alloc_add_segment(&a, 0, ALLOC_LARGE, 100);
	alloc_add_segment(&a, 1, ALLOC_LARGE, 100);
	ck_assert_int_eq(alloc_borrow(&a, ALLOC_SMALL, 1, &x), ERR_NO_EXTENT);
	ck_assert_int_eq(alloc_borrow(&a, ALLOC_LARGE, 101, &x), ERR_NO_EXTENT);
	ck_assert_int_eq(alloc_borrow(&a, ALLOC_LARGE, 2, &x), 0);
	ck_assert_int_eq(alloc_take(&a, ALLOC_LARGE, 40, &own), 0);
	ck_assert_int_eq(alloc_borrow(&a, ALLOC_LARGE, 2, &y), 0);
	ck_assert(x.segment == 1 && x.first == 98 && y.segment == 1 && y.first == 96 && own.segment == 0 && own.first == 0);
	ck_assert_int_eq(alloc_borrow(&a, ALLOC_LARGE, 97, &again), ERR_NO_EXTENT);
	ck_assert_int_eq(alloc_borrow(&a, ALLOC_LARGE, 96, &again), 0);
	ck_assert_int_eq(alloc_borrow(&a, ALLOC_LARGE, 60, &own), 0);
	ck_assert(again.segment == 1 && again.first == 0 && own.segment == 0 && own.first == 40);
	alloc_give(&a, y);
	alloc_give(&a, x);
	alloc_give(&a, again);
	ck_assert_uint_eq(alloc_greatest(&a, ALLOC_LARGE), 100);
	alloc_fini(&a);
}
END_TEST

/* Free space counts for a chunk only where a whole one fits, with its trailer. */
START_TEST(test_what_fits)
{
	enum { SIZE_4M = 10, NEED_4M = 1025 };
	struct alloc a;
	struct alloc_extent x[9], first, last;

	alloc_init(&a);
	alloc_add_segment(&a, 0, ALLOC_MEDIUM, 8 * NEED_4M + 7);
	ck_assert_uint_eq(alloc_fit_whole(&a, SIZE_4M, NEED_4M - 1), 0);
	ck_assert_uint_eq(alloc_fit_whole(&a, SIZE_4M, 2 * NEED_4M - 1), NEED_4M);
	ck_assert_uint_eq(alloc_fit_grains(&a, SIZE_4M), 8 * NEED_4M);
	ck_assert_uint_eq(alloc_fit_grains(&a, 0), 8 * NEED_4M + 7);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(alloc_take(&a, ALLOC_MEDIUM, NEED_4M, &x[i]), 0);
	ck_assert_uint_eq(alloc_fit_grains(&a, SIZE_4M), 0);
	ck_assert_uint_eq(alloc_fit_grains(&a, 1), 6); /* 8 KiB need three grains */
	/* Three quarters of each come back: more than enough for six, and room for none. */
	for (int i = 0; i < 8; i++) {
		x[i].first += NEED_4M - 769;
		x[i].grains = 769;
		alloc_give(&a, x[i]);
	}
	ck_assert_uint_eq(alloc_fit_grains(&a, SIZE_4M), 0);
	ck_assert_uint_eq(alloc_fit_grains(&a, SIZE_4M - 1), 8 * 513);
	ck_assert_uint_eq(alloc_fit_grains(&a, 0), 8 * 769 + 7);
	/* A neighbour makes one of it. */
	first = (struct alloc_extent){0, 0, NEED_4M - 769};
	alloc_give(&a, first);
	ck_assert_uint_eq(alloc_fit_grains(&a, SIZE_4M), NEED_4M);
	last = (struct alloc_extent){0, NEED_4M - 1, 1};
	ck_assert_int_eq(alloc_reserve(&a, last), 0);
	ck_assert_uint_eq(alloc_fit_grains(&a, SIZE_4M), 0);
	alloc_fini(&a);
}
END_TEST

START_TEST(test_reserve_refuses_what_cannot_be)
{
	struct alloc a;

	alloc_init(&a);
	alloc_add_segment(&a, 3, ALLOC_LARGE, 50);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 10, 10}), 0);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 19, 1}), ERR_EXIST);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 5, 6}), ERR_EXIST);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 5, 20}), ERR_EXIST);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 45, 6}), ERR_RANGE);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 50, 1}), ERR_RANGE);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 0, 0}), ERR_RANGE);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){3, 1, UINT32_MAX}), ERR_RANGE);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){2, 0, 1}), ERR_RANGE);
	ck_assert_int_eq(alloc_reserve(&a, (struct alloc_extent){900, 0, 1}), ERR_RANGE);
	ck_assert_uint_eq(alloc_free_grains(&a, ALLOC_LARGE), 40);
	ck_assert_uint_eq(alloc_segment_free(&a, 3), 40);
	alloc_fini(&a);
}
END_TEST

/* A map of single grains, which is what the allocator must agree with. */
enum { SEGMENTS = 5, GRAINS = 300, HELD = 200 };

struct model {
	bool used[SEGMENTS][GRAINS];
	enum alloc_class class[SEGMENTS];
	uint32_t segments;
};

static void model_set(struct model *m, struct alloc_extent x, bool used)
{
	for (uint32_t i = 0; i < x.grains; i++) {
		ck_assert_msg(
			m->used[x.segment][x.first + i] != used, "grain %u of segment %u", x.first + i, x.segment);
		m->used[x.segment][x.first + i] = used;
	}
}

/* Leftmost fit by the map; false if there is none. */
static bool model_fit(const struct model *m, enum alloc_class class, uint32_t grains, struct alloc_extent *ret)
{
	for (uint32_t s = 0; s < m->segments; s++) {
		uint32_t run = 0;

		for (uint32_t g = 0; g < GRAINS && m->class[s] == class; g++) {
			run = m->used[s][g] ? 0 : run + 1;
			if (run == grains) {
				*ret = (struct alloc_extent){s, g + 1 - grains, grains};
				return true;
			}
		}
	}
	return false;
}

START_TEST(test_agrees_with_a_map)
{
	static struct model m;
	struct alloc_extent held[HELD], x, want = {0};
	uint32_t count = 0, refused = 0, shortened = 0;
	struct alloc a;
	struct rng rng;

	rng_init(&rng, 42);
	alloc_init(&a);
	for (int step = 0; step < 30000; step++) {
		enum alloc_class class = (enum alloc_class)rng_below(&rng, 2);

		if (m.segments < SEGMENTS && step % 3000 == 0) {
			m.class[m.segments] = m.segments % 2 ? ALLOC_MEDIUM : ALLOC_SMALL;
			alloc_add_segment(&a, m.segments, m.class[m.segments], GRAINS);
			m.segments++;
		}
		if (count < HELD && rng_chance(&rng, 1, 2)) {
			uint32_t grains = (uint32_t)rng_between(&rng, 1, 40);
			bool fits = model_fit(&m, class, grains, &want);
			int rc = alloc_take(&a, class, grains, &x);

			ck_assert_int_eq(rc, fits ? 0 : ERR_NO_EXTENT);
			refused += !fits;
			if (rc < 0)
				continue;
			ck_assert(x.segment == want.segment && x.first == want.first && x.grains == grains);
			model_set(&m, x, true);
			held[count++] = x;
		} else if (count) {
			uint32_t i = (uint32_t)rng_below(&rng, count);

			if (held[i].grains > 1 && rng_chance(&rng, 1, 3)) {
				x = held[i];
				x.first += x.grains - 1;
				x.grains = 1;
				held[i].grains--;
				shortened++;
			} else {
				x = held[i];
				held[i] = held[--count];
			}
			model_set(&m, x, false);
			alloc_give(&a, x);
		}
	}
	ck_assert(refused > 100 && shortened > 100);
	for (uint32_t s = 0; s < m.segments; s++) {
		uint32_t empty = 0;

		for (uint32_t g = 0; g < GRAINS; g++)
			empty += !m.used[s][g];
		ck_assert_uint_eq(alloc_segment_free(&a, s), empty);
	}
	while (count)
		alloc_give(&a, held[--count]);
	ck_assert_uint_eq(alloc_free_grains(&a, ALLOC_SMALL), 3 * GRAINS);
	ck_assert_uint_eq(alloc_greatest(&a, ALLOC_MEDIUM), GRAINS);
	alloc_fini(&a);
}
END_TEST

UNIT_MAIN("alloc", test_first_fit_and_joining, test_borrowing_from_the_end, test_what_fits, test_reserve_refuses_what_cannot_be, test_agrees_with_a_map)
