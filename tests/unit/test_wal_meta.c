/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/wal_meta.h"
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/err.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

static const struct wal_meta sample = {
	.generation = 0x11,
	.cluster = "cluster 8 bytes",
	.replica = 3,
	.term = 7,
	.vote = 2,
	.commit = 95,
	.base_index = 90,
	.base_term = 6,
	.first_segment = 12,
	.log_id = "the log's own i",
};

START_TEST(test_example)
{
	uint8_t slot[WAL_META_BYTES];
	struct wal_meta got;

	wal_meta_encode(&sample, slot);
	ck_assert_int_eq(wal_meta_decode(slot, &got), 0);
	ck_assert_mem_eq(&got, &sample, sizeof(got));
}
END_TEST

/* The bytes of docs/FORMATS.md: a change of these is a change of the format. */
START_TEST(test_bytes)
{
	static const struct {
		uint8_t at, value;
	} want[] = {{0, 'C'}, {1, 'r'}, {2, 'W'}, {3, 'M'}, {8, 1}, {16, 0x11}, {24, 'c'}, {38, 's'}, {40, 3}, {48, 7},
		{56, 2}, {64, 95}, {72, 90}, {80, 6}, {88, 12}, {96, 't'}, {110, 'i'}};
	uint8_t slot[WAL_META_BYTES];
	uint32_t crc;

	wal_meta_encode(&sample, slot);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		ck_assert_msg(slot[want[i].at] == want[i].value, "byte %u", want[i].at);
	crc = crc32c(slot + 8, WAL_META_BYTES - 8);
	ck_assert_mem_eq(slot + 4, &crc, 4);
	for (size_t i = 112; i < sizeof(slot); i++)
		ck_assert_uint_eq(slot[i], 0);
}
END_TEST

START_TEST(test_damage)
{
	uint8_t slot[WAL_META_BYTES], older[WAL_META_BYTES];
	struct wal_meta got, before = sample;
	struct rng rng;

	rng_init(&rng, 1);
	wal_meta_encode(&sample, slot);
	for (int i = 0; i < 2000; i++) {
		size_t at = i < 900 ? (size_t)i / 8 : rng_below(&rng, WAL_META_BYTES);

		slot[at] ^= (uint8_t)(1 << i % 8);
		ck_assert_int_ne(wal_meta_decode(slot, &got), 0);
		slot[at] ^= (uint8_t)(1 << i % 8);
	}
	/* torn at each sector */
	before.generation--;
	before.term--;
	wal_meta_encode(&before, older);
	for (size_t at = 512; at < WAL_META_BYTES; at += 512) {
		memcpy(older, slot, at);
		ck_assert_int_eq(wal_meta_decode(older, &got), 0); /* all that differs lies in the first sector */
		wal_meta_encode(&before, older);
	}
}
END_TEST

START_TEST(test_nonsense_with_a_good_crc)
{
	uint8_t slot[WAL_META_BYTES];
	struct wal_meta m, got;

#define EXPECT_FORMAT(change)                                              \
	do {                                                               \
		m = sample;                                                \
		change;                                                    \
		wal_meta_encode(&m, slot);                                 \
		ck_assert_int_eq(wal_meta_decode(slot, &got), ERR_FORMAT); \
	} while (0)
	EXPECT_FORMAT(m.generation = 0);
	EXPECT_FORMAT(m.replica = 0);
	EXPECT_FORMAT(m.base_term = 8);
	EXPECT_FORMAT(m.commit = 89);
	EXPECT_FORMAT(m.base_index = 0);
	EXPECT_FORMAT(m.base_term = 0);
	EXPECT_FORMAT(m.base_index = m.commit = UINT64_MAX);
#undef EXPECT_FORMAT
}
END_TEST

START_TEST(test_choose)
{
	struct wal_meta metas[2] = {{.generation = 4}, {.generation = 5}};

	ck_assert_int_eq(wal_meta_choose(metas, (const int[]){0, 0}), 1);
	ck_assert_int_eq(wal_meta_choose(metas, (const int[]){0, ERR_CORRUPT}), 0);
	ck_assert_int_eq(wal_meta_choose(metas, (const int[]){ERR_FORMAT, 0}), 1);
	ck_assert_int_eq(wal_meta_choose(metas, (const int[]){ERR_FORMAT, ERR_CORRUPT}), -1);
	metas[0].generation = 6;
	ck_assert_int_eq(wal_meta_choose(metas, (const int[]){0, 0}), 0);
}
END_TEST

UNIT_MAIN("wal_meta", test_example, test_bytes, test_damage, test_nonsense_with_a_good_crc, test_choose)
