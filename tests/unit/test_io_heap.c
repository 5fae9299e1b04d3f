// SPDX-License-Identifier: Apache-2.0
#include "common/base/rng.h"
#include "common/io/io_heap.h"
#include "tests/lib/unit.h"

enum { COUNT = 500 };

/* Inserts and removals at random places; then everything leaves by key, equal keys in order of insertion. */
START_TEST(test_order)
	{
		struct io_heap_node nodes[COUNT] = {0}, *first;
		uint64_t last_key = 0, last_seq = 0;
		struct io_heap h;
		struct rng rng;
		size_t left = COUNT;

		rng_init(&rng, 4);
		io_heap_init(&h);
		ck_assert_ptr_null(io_heap_first(&h));
		for (size_t i = 0; i < COUNT; i++)
			io_heap_insert(&h, &nodes[i], rng_below(&rng, 100));
		for (size_t i = 0; i < COUNT; i += 3) {
			io_heap_remove(&h, &nodes[i]);
			ck_assert_uint_eq(nodes[i].idx, 0);
			left--;
		}
		while ((first = io_heap_first(&h))) {
			ck_assert(first->key > last_key || (first->key == last_key && first->seq >= last_seq));
			ck_assert_uint_ne((size_t)(first - nodes) % 3, 0);
			last_key = first->key;
			last_seq = first->seq;
			io_heap_remove(&h, first);
			left--;
		}
		ck_assert_uint_eq(left, 0);
		io_heap_fini(&h);
	}
END_TEST

UNIT_MAIN("io_heap", test_order)
