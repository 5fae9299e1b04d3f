/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a disk's index. How it keeps them: test_disk, test_disk_sim, test_rebuild. */
#include "chunkd/index.h"

#include <string.h>
#include "common/base/err.h"
#include "tests/lib/unit.h"

static const struct index_row row = {.copy = {0x1000000000007, 258, 5}, .policy = 1, .extent = {.segment = 9, .first = 2, .grains = 3},
	.length = 5000, .cell_bytes = 64 << 10, .crc = 0xdeadbeef, .sequence = 77};

static struct {
	uint8_t bytes[256];
	size_t len;
	int puts, drops;
	uint64_t settled;
} record;

static void add(const void *bytes, size_t len)
{
	memcpy(record.bytes + record.len, bytes, len);
	record.len += len;
}

static void each(void *ctx, const struct index_record_change *change)
{
	(void)ctx;
	ck_assert_uint_eq(change->key.len, INDEX_KEY_BYTES);
	record.drops += change->drop;
	record.puts += !change->drop;
	if (!change->drop) {
		ck_assert_uint_eq(change->row.copy.block, row.copy.block);
		ck_assert_uint_eq(change->row.copy.incarnation, 258);
		ck_assert_uint_eq(change->row.copy.index, 5);
		ck_assert_uint_eq(change->row.sequence, 77);
	}
}

START_TEST(test_bytes)
{
	uint8_t key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];
	struct index_row got;

	index_key_encode(&row.copy, key);
	index_value_encode(&row, value);
	ck_assert_str_eq(unit_hex(key, sizeof(key)), "63" "0001000000000007" "05" "00000102");
	ck_assert_str_eq(unit_hex(value, sizeof(value)),
		"01" "01" "0000" "09000000" "02000000" "03000000" "88130000" "00000100" "efbeadde" "4d00000000000000");
	ck_assert_int_eq(index_row_decode(slice_of(key, sizeof(key)), slice_of(value, sizeof(value)), &got), 0);
	ck_assert_uint_eq(got.extent.segment, 9);
	ck_assert_uint_eq(got.extent.first, 2);
	ck_assert_uint_eq(got.extent.grains, 3);
	ck_assert_uint_eq(got.length, 5000);
	ck_assert_uint_eq(got.cell_bytes, 64 << 10);
	ck_assert_uint_eq(got.crc, 0xdeadbeef);
	ck_assert_uint_eq(got.policy, 1);
}
END_TEST

static void walk_record(int version)
{
	uint8_t key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];

	memset(&record, 0, sizeof(record));
	index_key_encode(&row.copy, key);
	index_value_encode(&row, value);
	if (version == 1)
		add("\x01\x00\x02\x00\x00\x00", 6);
	else
		add("\x02\x00\x02\x00\x00\x00\x4e\x00\x00\x00\x00\x00\x00\x00", 14);
	add("\x01", 1);
	add(key, sizeof(key));
	add(value, sizeof(value));
	add("\x02", 1);
	add(key, sizeof(key));
	ck_assert_int_eq(index_record_walk(slice_of(record.bytes, record.len), each, NULL, &record.settled), 0);
	ck_assert_int_eq(record.puts, 1);
	ck_assert_int_eq(record.drops, 1);
	ck_assert_uint_eq(record.settled, version == 1 ? 0 : 78);
	for (size_t len = 0; len < record.len; len++)
		ck_assert_int_lt(index_record_walk(slice_of(record.bytes, len), each, NULL, &record.settled), 0);
	record.bytes[0] = 3;
	ck_assert_int_eq(index_record_walk(slice_of(record.bytes, record.len), each, NULL, &record.settled), ERR_VERSION);
}

START_TEST(test_bytes_of_a_record)
{
	walk_record(1);
	walk_record(2);
}
END_TEST

UNIT_MAIN("index", test_bytes, test_bytes_of_a_record)
