/* SPDX-License-Identifier: Apache-2.0 */
/* What an entry holds, and the entries that are in memory. */
#include "common/base/err.h"
#include "common/base/mem.h"
#include "metad/replica/body.h"
#include "metad/replica/cache.h"
#include "tests/lib/unit.h"

START_TEST(test_config_bytes)
{
	static const uint8_t golden[] = {
		2, 2, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0};
	const struct raft_config config = {.count = 2, .members = {{3, true}, {7, false}}, .last_id = 7};
	uint8_t bytes[BODY_CONFIG_BYTES_MAX];
	struct raft_config back;
	enum body_kind kind;

	ck_assert_uint_eq(body_encode_config(&config, bytes), sizeof(golden));
	ck_assert_mem_eq(bytes, golden, sizeof(golden));
	ck_assert_int_eq(body_decode(slice_of(golden, sizeof(golden)), 12, &kind, &back), 0);
	ck_assert_int_eq(kind, BODY_CONFIG);
	ck_assert_uint_eq(back.index, 12);
	ck_assert_uint_eq(back.count, 2);
	ck_assert_uint_eq(back.last_id, 7);
	ck_assert_uint_eq(back.members[0].id, 3);
	ck_assert(back.members[0].voter && !back.members[1].voter);
	for (size_t len = 0; len < sizeof(golden); len++)
		ck_assert_int_eq(body_decode(slice_of(golden, len), 12, &kind, &back), ERR_FORMAT);
}
END_TEST

START_TEST(test_nonsense)
{
	static const struct {
		uint8_t bytes[20];
		size_t len;
		int code;
	} cases[] = {
		{{1}, 1, 0},
		{{1, 0}, 2, ERR_FORMAT},
		{{3, 0}, 2, 0},
		{{3}, 1, ERR_FORMAT},
		{{0}, 1, ERR_FORMAT},
		{{4, 0}, 2, ERR_FORMAT},
		{{2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2}, 19, ERR_FORMAT},
		{{2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9}, 11, ERR_FORMAT},
	};
	struct raft_config config;
	enum body_kind kind;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_int_eq(body_decode(slice_of(cases[i].bytes, cases[i].len), 1, &kind, &config), cases[i].code);
}
END_TEST

static void push(struct cache *cache, uint64_t index)
{
	static const uint8_t prefix = BODY_COMMANDS;
	struct entry *e = entry_new(index / 100 + 1, &prefix, 1, slice_of("123456789", 9));

	e->append.index = index;
	e->writing = true;
	cache_push(cache, e);
}

START_TEST(test_cache)
{
	struct cache cache = {0};
	struct entry *kept;

	for (uint64_t i = 5; i < 305; i++)
		push(&cache, i);
	ck_assert_uint_eq(cache.bytes, 3000);
	ck_assert_ptr_null(cache_at(&cache, 4));
	ck_assert_ptr_null(cache_at(&cache, 305));
	ck_assert_uint_eq(cache_at(&cache, 304)->append.term, 4);
	for (uint64_t i = 5; i < 205; i++)
		entry_written((struct entry *)cache_at(&cache, i));
	cache_shrink(&cache, 204, 2500);
	ck_assert_uint_eq(cache.first, 55);
	cache_shrink(&cache, 204, 0); /* what is not durable stays */
	ck_assert_uint_eq(cache.first, 205);
	kept = (struct entry *)cache_at(&cache, 304);
	cache_cut(&cache, 304);
	ck_assert_ptr_null(cache_at(&cache, 304));
	ck_assert_mem_eq(kept->bytes + 1, "123456789", 9); /* the log still has it */
	entry_written(kept);
	push(&cache, 304);
	for (uint64_t i = 205; i < 305; i++)
		entry_written((struct entry *)cache_at(&cache, i));
	cache_fini(&cache);
	ck_assert_uint_eq(cache.bytes, 0);
}
END_TEST

UNIT_MAIN("replica", test_config_bytes, test_nonsense, test_cache)
