// SPDX-License-Identifier: Apache-2.0
/* backup: a stream is written, read back, and refused with anything changed in it. */
#include "common/code/backup.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/unit.h"

enum { ROWS = 900, PARTS = 16, VALUE_BYTES = 1000 };

static struct {
	uint8_t data[PARTS][BACKUP_SECTION_BYTES];
	size_t len[PARTS];
	int count;
} made;
static uint8_t section[BACKUP_SECTION_BYTES];
static uint32_t seen;
static const struct backup_header header = {
	.cluster = {{1, 2, 3}}, .applied_index = 77, .state_ms = 5000, .created_ns = -4, .software = "craton test"};

static void store(struct backup_writer *w)
{
	ck_assert_int_lt(made.count, PARTS);
	memcpy(made.data[made.count], section, w->len);
	made.len[made.count++] = w->len;
	backup_writer_next(w);
}

static void row_of(uint32_t i, char key[16], char value[VALUE_BYTES])
{
	snprintf(key, 16, "key-%06u", i);
	memset(value, (int)i, VALUE_BYTES);
}

static void make(uint32_t rows)
{
	char key[16], value[VALUE_BYTES];
	struct backup_writer w;

	made.count = 0;
	backup_writer_init(&w, &header, section);
	store(&w);
	for (uint32_t i = 0; i < rows; i++) {
		row_of(i, key, value);
		if (backup_writer_row(&w, slice_of(key, strlen(key)), slice_of(value, VALUE_BYTES)))
			continue;
		backup_writer_seal(&w);
		store(&w);
		ck_assert(backup_writer_row(&w, slice_of(key, strlen(key)), slice_of(value, VALUE_BYTES)));
	}
	if (w.rows) {
		backup_writer_seal(&w);
		store(&w);
	}
	backup_writer_end(&w);
	store(&w);
}

static int each(void *ctx, struct slice k, struct slice v)
{
	char key[16], value[VALUE_BYTES];

	(void)ctx;
	row_of(seen++, key, value);
	ck_assert_uint_eq(k.len, strlen(key));
	ck_assert_mem_eq(k.data, key, k.len);
	ck_assert_uint_eq(v.len, VALUE_BYTES);
	ck_assert_mem_eq(v.data, value, v.len);
	return 0;
}

/* All parts, in this order. */
static int check_all(struct backup_check *c, struct err *err)
{
	int rc = backup_check_header(c, slice_of(made.data[0], made.len[0]), err);
	size_t bytes;

	seen = 0;
	for (int i = 1; i < made.count && rc == 0; i++) {
		rc = backup_section_size(made.data[i], &bytes);
		if (rc == 0 && bytes != made.len[i])
			rc = ERR_CORRUPT; /* whoever reads a file meets something else there */
		if (rc == 0)
			rc = backup_check_section(c, slice_of(made.data[i], bytes), NULL, NULL, err);
	}
	return rc;
}

START_TEST(test_round)
{
	static struct backup_check c;
	struct err err = {0};

	make(ROWS);
	ck_assert_int_gt(made.count, 4);
	ck_assert_int_eq(backup_check_header(&c, slice_of(made.data[0], made.len[0]), &err), 0);
	ck_assert_uint_eq(c.header.applied_index, 77);
	ck_assert_uint_eq(c.header.state_ms, 5000);
	ck_assert_int_eq(c.header.created_ns, -4);
	ck_assert_str_eq(c.header.software, "craton test");
	ck_assert_uint_eq(c.header.cluster.bytes[2], 3);
	seen = 0;
	for (int i = 1; i < made.count; i++) {
		ck_assert(!c.ended);
		ck_assert_msg(backup_check_section(&c, slice_of(made.data[i], made.len[i]), each, NULL, &err) == 0, "%s", err.text);
	}
	ck_assert(c.ended);
	ck_assert_uint_eq(seen, ROWS);
	ck_assert_uint_eq(c.rows, ROWS);
	make(0); /* of nothing */
	ck_assert_int_eq(made.count, 2);
	ck_assert_int_eq(check_all(&c, &err), 0);
	ck_assert(c.ended);
}
END_TEST

/* Any bit anywhere. */
START_TEST(test_flips)
{
	static struct backup_check c;
	struct err err = {0};

	make(40);
	for (int part = 0; part < made.count; part++)
		for (size_t at = 0; at < made.len[part]; at += part == 1 && at > 60 ? 97 : 1) {
			int rc;

			made.data[part][at] ^= (uint8_t)(1 << at % 8);
			rc = check_all(&c, &err);
			ck_assert_msg(rc == ERR_CORRUPT || (part == 0 && at < 12 && (rc == ERR_FORMAT || rc == ERR_VERSION)),
				"part %d byte %zu: %d", part, at, rc);
			made.data[part][at] ^= (uint8_t)(1 << at % 8);
		}
	ck_assert_int_eq(check_all(&c, &err), 0);
}
END_TEST

static void swap(int a, int b)
{
	memcpy(section, made.data[a], BACKUP_SECTION_BYTES);
	memcpy(made.data[a], made.data[b], BACKUP_SECTION_BYTES);
	memcpy(made.data[b], section, BACKUP_SECTION_BYTES);
	made.len[a] ^= made.len[b];
	made.len[b] ^= made.len[a];
	made.len[a] ^= made.len[b];
}

/* Sections that are good by themselves, but not here. */
START_TEST(test_order)
{
	static struct backup_check c;
	static uint8_t other[BACKUP_SECTION_BYTES];
	struct err err = {0};

	make(ROWS);
	swap(1, 2);
	ck_assert_int_eq(check_all(&c, &err), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(err.text, "does not follow the one before"));
	swap(1, 2);
	ck_assert_int_eq(check_all(&c, &err), 0);
	ck_assert_int_eq(backup_check_section(&c, slice_of(made.data[1], made.len[1]), NULL, NULL, &err), ERR_CORRUPT);
	/* one left out; the end alone */
	swap(made.count - 2, made.count - 1);
	made.count--;
	ck_assert_int_eq(check_all(&c, &err), ERR_CORRUPT);
	/* the same section of a backup that began otherwise */
	make(ROWS - 1);
	memcpy(other, made.data[2], BACKUP_SECTION_BYTES);
	make(ROWS);
	memcpy(made.data[2], other, BACKUP_SECTION_BYTES);
	ck_assert_int_eq(check_all(&c, &err), 0);
	/* not whole: no end */
	made.count--;
	ck_assert_int_eq(check_all(&c, &err), 0);
	ck_assert(!c.ended);
}
END_TEST

START_TEST(test_strangers)
{
	static struct backup_check c;
	struct err err = {0};
	uint8_t bytes[BACKUP_HEADER_BYTES] = "no backup of anybody";

	ck_assert_int_eq(backup_check_header(&c, slice_of(bytes, sizeof(bytes)), &err), ERR_FORMAT);
	ck_assert_int_eq(backup_check_header(&c, slice_of(bytes, 3), &err), ERR_FORMAT);
	make(1);
	for (size_t len = 0; len < BACKUP_HEADER_BYTES; len++)
		ck_assert_int_lt(backup_check_header(&c, slice_of(made.data[0], len), &err), 0);
	made.data[0][8] = 2; /* a version to come */
	ck_assert_int_eq(check_all(&c, &err), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(err.text, "format version 2"));
}
END_TEST

START_TEST(test_bytes)
{
	struct backup_writer w;

	made.count = 0;
	backup_writer_init(&w, &header, section);
	store(&w);
	ck_assert(backup_writer_row(&w, slice_of("key", 3), slice_of("value", 5)));
	backup_writer_seal(&w);
	store(&w);
	backup_writer_end(&w);
	store(&w);
	ck_assert_str_eq(unit_hex(made.data[0], made.len[0]),
		"435241544d424b31" "01000000" "80000000" "01020300000000000000000000000000"
		"4d00000000000000" "8813000000000000" "fcffffffffffffff"
		"637261746f6e207465737400000000000000000000000000" "0000000000000000"
		"000000000000000000000000000000000000000000000000000000000000000000000000" "6d0c6175");
	ck_assert_str_eq(unit_hex(made.data[1], made.len[1]),
		"43524253" "3c49b517" "6d0c6175" "01" "000000" "0100000000000000" "01000000" "0e000000" "0000000000000000"
		"0300" "05000000" "6b6579" "76616c7565");
	ck_assert_str_eq(unit_hex(made.data[2], made.len[2]),
		"43524253" "aab8f7ee" "3c49b517" "02" "000000" "0200000000000000" "00000000" "10000000" "0000000000000000"
		"0100000000000000" "b600000000000000");
}
END_TEST

UNIT_MAIN("backup", test_bytes, test_round, test_flips, test_order, test_strangers)
