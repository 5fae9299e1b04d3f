/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/wal_index.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

static void push_frame(struct wal_index *x, uint32_t count, uint64_t term, uint64_t segment, uint32_t bytes)
{
	wal_index_push(x,
		&(struct wal_extent){
			.first_index = wal_index_last(x) + 1,
			.count = count,
			.term = term,
			.segment = segment,
			.bytes = bytes});
}

static void push(struct wal_index *x, uint32_t count, uint64_t term, uint64_t segment)
{
	push_frame(x, count, term, segment, 4096);
}

START_TEST(test_example)
{
	struct wal_index x;
	struct wal_run *runs;
	uint32_t count;

	wal_index_init(&x, 10, 2);
	push(&x, 3, 2, 1);
	push(&x, 1, 4, 1);
	push(&x, 5, 4, 2);
	ck_assert_uint_eq(wal_index_last(&x), 19);
	ck_assert_uint_eq(wal_index_last_term(&x), 4);
	ck_assert_uint_eq(wal_index_term(&x, 9), 0);
	ck_assert_uint_eq(wal_index_term(&x, 10), 2);
	ck_assert_uint_eq(wal_index_term(&x, 13), 2);
	ck_assert_uint_eq(wal_index_term(&x, 14), 4);
	ck_assert_uint_eq(wal_index_term(&x, 20), 0);
	ck_assert_uint_eq(wal_index_find(&x, 15), 2);
	ck_assert_uint_eq(wal_index_find(&x, 20), 3);
	ck_assert_uint_eq(wal_index_back(&x, 0), 19);
	ck_assert_uint_eq(wal_index_back(&x, 4096), 14);
	ck_assert_uint_eq(wal_index_back(&x, 4097), 13);
	ck_assert_uint_eq(wal_index_back(&x, 3 * 4096), 10);
	ck_assert_uint_eq(wal_index_back(&x, UINT64_MAX), 10);
	runs = wal_index_runs(&x, &count);
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(runs[1].first, 14);
	mem_free(runs);
	wal_index_cut(&x, 17, 0);
	ck_assert_uint_eq(wal_index_last(&x), 16);
	ck_assert_uint_eq(wal_index_at(&x, 2)->count, 2);
	wal_index_drop(&x, 2);
	ck_assert_uint_eq(x.base_index, 14);
	ck_assert_uint_eq(x.base_term, 4);
	ck_assert_uint_eq(wal_index_last(&x), 16);
	wal_index_cut(&x, 12, 2); /* below all there are: what a trimmed log says of its past is void */
	ck_assert_uint_eq(x.base_index, 11);
	ck_assert_uint_eq(x.base_term, 2);
	ck_assert_uint_eq(wal_index_last(&x), 11);
	ck_assert_ptr_null(wal_index_runs(&x, &count));
	ck_assert_uint_eq(count, 0);
	wal_index_fini(&x);
}
END_TEST

/* Frame by frame. */
static uint64_t back(const struct wal_index *x, uint64_t bytes)
{
	uint32_t n = x->count;

	for (uint64_t behind = 0; n > 0 && behind < bytes; behind += wal_index_at(x, n)->bytes)
		n--;
	return n > 0 ? wal_index_at(x, n - 1)->first_index + wal_index_at(x, n - 1)->count - 1 : x->base_index;
}

/* Against an array of terms, with growth of the ring at any place of its head. */
START_TEST(test_random)
{
	enum { MAX = 20000 };
	static uint64_t terms[MAX], segments[MAX];
	uint64_t base = 0, last = 0, term = 1, segment = 1, bytes;
	struct wal_index x;
	struct rng rng;

	rng_init(&rng, 5);
	wal_index_init(&x, 0, 0);
	while (last < MAX - 20) {
		uint32_t count = (uint32_t)rng_between(&rng, 1, 9);

		switch (rng_below(&rng, 12)) {
		case 0:
			if (last > base) {
				last = rng_between(&rng, base, last - 1);
				wal_index_cut(&x, last + 1, 0);
			}
			break;
		case 1:
			if (rng_chance(&rng, 1, 8)) {
				uint64_t below = rng_between(&rng, segment > 3 ? segment - 3 : 1, segment);

				while (base < last && segments[base + 1] < below)
					base++;
				wal_index_drop(&x, below);
			}
			break;
		default:
			term += rng_chance(&rng, 1, 6);
			segment += rng_chance(&rng, 1, 30);
			push_frame(&x, count, term, segment, 4096 * (uint32_t)rng_between(&rng, 1, 16));
			for (; count; count--) {
				terms[++last] = term;
				segments[last] = segment;
			}
		}
		ck_assert_uint_eq(x.base_index, base);
		ck_assert_uint_eq(wal_index_last(&x), last);
		bytes = rng_below(&rng, 4096 * 8 * ((uint64_t)x.count + 1));
		ck_assert_uint_eq(wal_index_back(&x, bytes), back(&x, bytes));
		for (int i = 0; i < 4; i++) {
			uint64_t entry = rng_below(&rng, last + 3);
			uint32_t n = wal_index_find(&x, entry);

			if (entry < base || entry > last)
				ck_assert_uint_eq(wal_index_term(&x, entry), 0);
			else
				ck_assert_uint_eq(wal_index_term(&x, entry), terms[entry]);
			ck_assert((n < x.count) == (entry > base && entry <= last));
			if (n < x.count)
				ck_assert(wal_index_at(&x, n)->first_index <= entry &&
					entry < wal_index_at(&x, n)->first_index + wal_index_at(&x, n)->count);
		}
	}
	wal_index_fini(&x);
}
END_TEST

UNIT_MAIN("wal_index", test_example, test_random)
