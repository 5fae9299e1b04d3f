/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/format.h"

#include <string.h>
#include "common/base/crc32c.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "common/code/token.h"
#include "tests/lib/unit.h"

static const uint8_t secret[FORMAT_SECRET_BYTES] = {1, 2, 3, 250};

static const struct hmac_key *own_key(void)
{
	static struct hmac_key key;

	hmac_key_init(&key, secret);
	return &key;
}

static struct format_superblock superblock(void)
{
	struct format_superblock sb = {.disk = 7,
		.storage_class = FORMAT_CLASS_SSD,
		.generation = 12,
		.segment_bytes = (64 << 20) + (512 << 10),
		.features_compat = 5,
		.created_ns = -3};

	memset(sb.cluster.bytes, 0xc1, sizeof(sb.cluster.bytes));
	memset(sb.disk_uuid.bytes, 0xd2, sizeof(sb.disk_uuid.bytes));
	memcpy(sb.secret, secret, sizeof(secret));
	return sb;
}

START_TEST(test_superblock_and_damage_of_every_byte)
{
	struct format_superblock sb = superblock(), got;
	uint8_t bytes[FORMAT_SUPERBLOCK_BYTES];
	struct err err;

	format_superblock_encode(&sb, bytes);
	ck_assert_int_eq(format_superblock_decode(slice_of(bytes, sizeof(bytes)), &got, &err), 0);
	ck_assert_mem_eq(&got, &sb, sizeof(sb));
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] ^= (uint8_t)(1 << i % 8);
		ck_assert_int_lt(format_superblock_decode(slice_of(bytes, sizeof(bytes)), &got, &err), 0);
		bytes[i] ^= (uint8_t)(1 << i % 8);
	}
	ck_assert_int_eq(format_superblock_decode(slice_of(bytes, sizeof(bytes) - 1), &got, &err), ERR_FORMAT);
	ck_assert_int_eq(format_superblock_decode(slice_of(bytes, 0), &got, &err), ERR_FORMAT);
}
END_TEST

START_TEST(test_superblock_of_the_future)
{
	struct format_superblock sb = superblock(), got;
	uint8_t bytes[FORMAT_SUPERBLOCK_BYTES];
	struct err err;

	sb.features = 2;
	format_superblock_encode(&sb, bytes);
	ck_assert_int_eq(format_superblock_decode(slice_of(bytes, sizeof(bytes)), &got, &err), ERR_VERSION);
	sb.features = 0;
	sb.segment_bytes = 4096;
	format_superblock_encode(&sb, bytes);
	ck_assert_int_eq(format_superblock_decode(slice_of(bytes, sizeof(bytes)), &got, &err), ERR_FORMAT);
	bytes[8] = 2;
	ck_assert_int_eq(format_superblock_decode(slice_of(bytes, sizeof(bytes)), &got, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "version 2"));
}
END_TEST

/* Chunk `index` of a block of rs-4-2: 2 1/2 stripes of 64 KiB cells. */
enum { CELL = 64 << 10, BLOCK = 2 * 4 * CELL + 2 * CELL + 100 };
static uint8_t lists[4 * LIMIT_UNITS_PER_CHUNK];

static struct format_trailer trailer(uint8_t index)
{
	struct stripe_geom g = {.k = 4, .m = 2, .cell_bytes = CELL, .length = BLOCK};
	struct format_trailer t = {.copy = {0x1000000000007, 258, index},
		.policy = 1,
		.block_length = BLOCK,
		.cell_bytes = CELL,
		.chunk_crc = 0xdeadbeef,
		.disk = 3,
		.segment = 9,
		.offset = 8192,
		.sequence = 77};
	size_t units = 0;

	for (size_t i = 0; i < sizeof(lists); i++)
		lists[i] = (uint8_t)(i * 7 + index);
	t.length = stripe_chunk_len(&g, index);
	t.list = slice_of(lists, (size_t)stripe_unit_count(t.length) * 4);
	for (uint8_t i = 0; i < stripe_data_chunks(&g); i++)
		units += stripe_unit_count(stripe_chunk_len(&g, i));
	if (index >= 4)
		t.data_lists = slice_of(lists + 1024, units * 4);
	return t;
}

static void check_round_trip(uint8_t index)
{
	static uint8_t bytes[LIMIT_TRAILER_BYTES];
	struct format_trailer t = trailer(index), got;
	size_t len = format_trailer_bytes(t.list.len, t.data_lists.len), sum = 0;

	ck_assert_int_eq(format_trailer_check(&t), 0);
	ck_assert_uint_eq(len % FORMAT_GRAIN_BYTES, 0);
	ck_assert_uint_le(len, format_trailer_bound(t.policy, index, t.length));
	format_trailer_encode(&t, own_key(), bytes);
	ck_assert_int_eq(format_trailer_decode(slice_of(bytes, sizeof(bytes)), own_key(), &got), 0);
	ck_assert_uint_eq(got.copy.block, t.copy.block);
	ck_assert_uint_eq(got.copy.incarnation, 258);
	ck_assert_uint_eq(got.copy.index, index);
	ck_assert_uint_eq(got.length, t.length);
	ck_assert_uint_eq(got.block_length, BLOCK);
	ck_assert_uint_eq(got.chunk_crc, 0xdeadbeef);
	ck_assert_uint_eq(got.disk, 3);
	ck_assert_uint_eq(got.segment, 9);
	ck_assert_uint_eq(got.offset, 8192);
	ck_assert_uint_eq(got.sequence, 77);
	ck_assert_int_eq(slice_compare(got.list, t.list), 0);
	ck_assert_int_eq(slice_compare(got.data_lists, t.data_lists), 0);
	for (uint8_t i = 0; i < 5; i++) {
		struct slice list = format_trailer_data_list(&got, i);

		ck_assert_uint_eq(list.len > 0, index >= 4 && i < 4);
		sum += list.len;
	}
	ck_assert_uint_eq(sum, t.data_lists.len);
	for (size_t i = 0; i < len; i++) {
		bytes[i] ^= (uint8_t)(1 << i % 8);
		ck_assert_int_eq(format_trailer_decode(slice_of(bytes, len), own_key(), &got), ERR_TRAILER_CORRUPT);
		bytes[i] ^= (uint8_t)(1 << i % 8);
	}
	ck_assert_int_eq(format_trailer_decode(slice_of(bytes, len - 1), own_key(), &got), ERR_TRAILER_CORRUPT);
}

START_TEST(test_trailer_and_damage_of_every_byte)
{
	check_round_trip(0);
	check_round_trip(3);
	check_round_trip(5);
}
END_TEST

/* The MAC of version 1 covered the padding. */
START_TEST(test_trailer_of_version_1)
{
	uint8_t bytes[2 * FORMAT_GRAIN_BYTES];
	struct format_trailer t = trailer(5), got;
	size_t len = format_trailer_bytes(t.list.len, t.data_lists.len), hashed = len - FORMAT_MAC_BYTES;

	format_trailer_encode(&t, own_key(), bytes);
	bytes[4] = 1;
	ck_assert_int_eq(format_trailer_decode(slice_of(bytes, len), own_key(), &got), ERR_TRAILER_CORRUPT);
	token_hmac(own_key(), bytes, hashed, bytes + hashed);
	ck_assert_int_eq(format_trailer_decode(slice_of(bytes, len), own_key(), &got), 0);
	ck_assert_uint_eq(got.sequence, 77);
	ck_assert_int_eq(slice_compare(got.data_lists, t.data_lists), 0);
	bytes[4] = 3;
	token_hmac(own_key(), bytes, hashed, bytes + hashed);
	ck_assert_int_eq(format_trailer_decode(slice_of(bytes, len), own_key(), &got), ERR_TRAILER_CORRUPT);
}
END_TEST

/* Of version 2 too it shows where anything lies in the padding, or lists reach beyond it. */
START_TEST(test_trailer_lists_stay_within)
{
	uint8_t bytes[2 * FORMAT_GRAIN_BYTES];
	struct format_trailer t = trailer(0), got;

	format_trailer_encode(&t, own_key(), bytes);
	for (int i = 0; i < 4; i++)
		bytes[84 + i] = 0xff;
	token_hmac(own_key(), bytes, FORMAT_GRAIN_BYTES - FORMAT_MAC_BYTES, bytes + FORMAT_GRAIN_BYTES - FORMAT_MAC_BYTES);
	ck_assert_int_eq(format_trailer_decode(slice_of(bytes, FORMAT_GRAIN_BYTES), own_key(), &got), ERR_TRAILER_CORRUPT);
}
END_TEST

START_TEST(test_trailer_of_another_disk_is_no_trailer)
{
	uint8_t bytes[2 * FORMAT_GRAIN_BYTES], other[FORMAT_SECRET_BYTES] = {9};
	struct format_trailer t = trailer(1), got;
	struct hmac_key key;

	hmac_key_init(&key, other);
	format_trailer_encode(&t, &key, bytes);
	ck_assert_int_eq(format_trailer_decode(slice_of(bytes, sizeof(bytes)), own_key(), &got), ERR_TRAILER_CORRUPT);
}
END_TEST

START_TEST(test_what_cannot_be_is_not_sealed)
{
	struct format_trailer good = trailer(4), t;

#define REFUSED(change)                                                \
	do {                                                           \
		t = good;                                              \
		change;                                                \
		ck_assert_int_eq(format_trailer_check(&t), ERR_INVAL); \
	} while (0)
	ck_assert_int_eq(format_trailer_check(&good), 0);
	REFUSED(t.policy = 0);
	REFUSED(t.policy = 200);
	REFUSED(t.copy.index = 6);
	REFUSED(t.copy.block = 0);
	REFUSED(t.cell_bytes = 0);
	REFUSED(t.cell_bytes = CELL + 1);
	REFUSED(t.cell_bytes = 2 * LIMIT_CELL_BYTES);
	REFUSED(t.block_length = 0);
	REFUSED(t.block_length = UINT64_MAX);
	REFUSED(t.length++);
	REFUSED(t.length = 0);
	REFUSED(t.list.len -= 4);
	REFUSED(t.list.len++);
	REFUSED(t.data_lists.len = 0);
	REFUSED(t.data_lists.len += 4);
	good = trailer(0);
	REFUSED(t.data_lists = slice_of(lists, 4));
	ck_assert_uint_eq(format_trailer_bound(0, 0, 100), 0);
	ck_assert_uint_eq(format_trailer_bound(1, 6, 100), 0);
	ck_assert_uint_eq(format_trailer_bound(1, 0, LIMIT_CHUNK_BYTES + 1), 0);
}
END_TEST

START_TEST(test_bytes_of_a_superblock)
{
	static const uint8_t zeros[FORMAT_SUPERBLOCK_BYTES];
	struct format_superblock sb = superblock();
	uint8_t bytes[FORMAT_SUPERBLOCK_BYTES];

	format_superblock_encode(&sb, bytes);
	ck_assert_str_eq(unit_hex(bytes, 128),
		"435241544e534231" "01000000" "00100000"
		"c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1" "d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2"
		"07000000" "01000000" "0c00000000000000"
		"010203fa00000000000000000000000000000000000000000000000000000000"
		"0000080400000000" "0000000000000000" "0500000000000000" "fdffffffffffffff");
	ck_assert_mem_eq(bytes + 128, zeros, 3964);
	ck_assert_str_eq(unit_hex(bytes + 4092, 4), "504e2892");
}
END_TEST

/* Of chunk 1 of a block of rs-1-2 that has 100 bytes: the first of the copies beside the data chunk. */
START_TEST(test_bytes_of_a_trailer)
{
	static const uint8_t list[4] = {4, 3, 2, 1}, data_list[4] = {8, 7, 6, 5}, zeros[FORMAT_GRAIN_BYTES];
	const struct format_trailer t = {.copy = {0x1000000000007, 258, 1}, .policy = 7, .length = 100, .block_length = 100, .cell_bytes = CELL,
		.chunk_crc = 0xdeadbeef, .disk = 3, .segment = 9, .offset = 8192, .sequence = 77, .list = slice_of(list, 4), .data_lists = slice_of(data_list, 4)};
	uint8_t bytes[FORMAT_GRAIN_BYTES];

	ck_assert_int_eq(format_trailer_check(&t), 0);
	ck_assert_uint_eq(format_trailer_bytes(4, 4), sizeof(bytes));
	format_trailer_encode(&t, own_key(), bytes);
	ck_assert_str_eq(unit_hex(bytes, 104),
		"4352544c" "0200" "6000" "00100000" "00000000"
		"0700000000000100" "02010000" "01" "07" "00" "00"
		"6400000000000000" "6400000000000000" "00000100" "efbeadde"
		"03000000" "09000000" "0020000000000000" "4d00000000000000"
		"04000000" "04000000" "0000000000000000"
		"04030201" "08070605");
	ck_assert_mem_eq(bytes + 104, zeros, sizeof(bytes) - 104 - FORMAT_MAC_BYTES);
	ck_assert_str_eq(unit_hex(bytes + sizeof(bytes) - FORMAT_MAC_BYTES, FORMAT_MAC_BYTES), "e72edb38b3f46347bd4c57d4c3f6c2d5");
}
END_TEST

UNIT_MAIN("format", test_bytes_of_a_superblock, test_bytes_of_a_trailer, test_superblock_and_damage_of_every_byte, test_superblock_of_the_future,
	test_trailer_and_damage_of_every_byte, test_trailer_of_version_1, test_trailer_lists_stay_within,
	test_trailer_of_another_disk_is_no_trailer, test_what_cannot_be_is_not_sealed)
