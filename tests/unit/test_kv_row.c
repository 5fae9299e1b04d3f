/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in LMDB's two tables: whatever bit is wrong, it is no row, and no state. */
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/kv/kv_row.h"
#include "tests/lib/unit.h"
#include <string.h>

static const struct slice key = {(const uint8_t *)"key", 3};

START_TEST(test_example)
{
	const struct slice value = slice_of("some value", 10);
	uint8_t stored[KV_ROW_CRC_BYTES + 10];
	struct slice back;
	struct err err = {0};

	kv_row_encode(key, value, stored);
	ck_assert_int_eq(kv_row_decode("data.mdb", key, slice_of(stored, sizeof(stored)), &back, &err), 0);
	ck_assert_int_eq(slice_compare(back, value), 0);
	ck_assert_ptr_eq(back.data, stored + KV_ROW_CRC_BYTES);
	/* under another key it is none */
	ck_assert_int_eq(kv_row_decode("data.mdb", slice_of("kez", 3), slice_of(stored, sizeof(stored)), &back, &err),
		ERR_CORRUPT);
	ck_assert_str_eq(err.text, "data.mdb: the value of key 6b657a (hex) fails its checksum");
}
END_TEST

START_TEST(test_damage)
{
	uint8_t stored[KV_ROW_CRC_BYTES + 10];
	struct slice back;

	kv_row_encode(key, slice_of("some value", 10), stored);
	for (size_t bit = 0; bit < 8 * sizeof(stored); bit++) {
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(
			kv_row_decode("data.mdb", key, slice_of(stored, sizeof(stored)), &back, NULL), ERR_CORRUPT);
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t len = 0; len < sizeof(stored); len++)
		ck_assert_int_eq(kv_row_decode("data.mdb", key, slice_of(stored, len), &back, NULL), ERR_CORRUPT);
}
END_TEST

START_TEST(test_lengths)
{
	uint8_t *value = mem_zalloc(LIMIT_VALUE_BYTES), *stored = mem_zalloc(KV_ROW_CRC_BYTES + LIMIT_VALUE_BYTES);
	struct slice back;

	kv_row_encode(key, slice_of(NULL, 0), stored);
	ck_assert_int_eq(kv_row_decode("data.mdb", key, slice_of(stored, KV_ROW_CRC_BYTES), &back, NULL), 0);
	ck_assert_uint_eq(back.len, 0);
	kv_row_encode(key, slice_of(value, LIMIT_VALUE_BYTES), stored);
	ck_assert_int_eq(
		kv_row_decode("data.mdb", key, slice_of(stored, KV_ROW_CRC_BYTES + LIMIT_VALUE_BYTES), &back, NULL), 0);
	ck_assert_uint_eq(back.len, LIMIT_VALUE_BYTES);
	/* What a damaged page says may lie behind the file's end: it is not looked at. */
	ck_assert_int_eq(
		kv_row_decode("data.mdb", key, slice_of(NULL, KV_ROW_CRC_BYTES + LIMIT_VALUE_BYTES + 1), &back, NULL),
		ERR_CORRUPT);
	mem_free(value);
	mem_free(stored);
}
END_TEST

START_TEST(test_state)
{
	uint8_t stored[KV_STATE_BYTES];
	struct err err = {0};
	uint64_t applied;
	uint32_t crc;

	kv_state_encode(901, stored);
	ck_assert_int_eq(kv_state_decode("data.mdb", slice_of(stored, sizeof(stored)), &applied, &err), 0);
	ck_assert_uint_eq(applied, 901);
	for (size_t len = 0; len < sizeof(stored); len++)
		ck_assert_int_eq(kv_state_decode("data.mdb", slice_of(stored, len), &applied, &err), ERR_CORRUPT);
	for (size_t bit = 0; bit < 8 * sizeof(stored); bit++) {
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(
			kv_state_decode("data.mdb", slice_of(stored, sizeof(stored)), &applied, &err), ERR_CORRUPT);
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	stored[KV_ROW_CRC_BYTES] = 2;
	crc = crc32c(stored + KV_ROW_CRC_BYTES, sizeof(stored) - KV_ROW_CRC_BYTES);
	memcpy(stored, &crc, sizeof(crc));
	ck_assert_int_eq(kv_state_decode("data.mdb", slice_of(stored, sizeof(stored)), &applied, &err), ERR_VERSION);
	ck_assert_str_eq(err.text, "data.mdb: has format version 2, this program knows 1");
}
END_TEST

UNIT_MAIN("kv_row", test_example, test_damage, test_lengths, test_state)
