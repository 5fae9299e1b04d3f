/* SPDX-License-Identifier: Apache-2.0 */
/* The small files in the directory of a group's metad: whatever of one is missing or wrong, it is damaged, and no byte behind it is looked at. */
#include <string.h>
#include <sys/mman.h>
#include "common/base/crc32c.h"
#include "metad/ledger.h"
#include "metad/replica/founding.h"
#include "metad/replica/table.h"
#include "tests/lib/unit.h"

enum { PAGE_BYTES = 4096 };

static int decode_founding(struct slice data, struct err *err)
{
	struct founding f;

	return founding_decode("file", data, &f, err);
}

static int decode_mark(struct slice data, struct err *err)
{
	uint64_t snapshot;

	return table_mark_decode("file", data, &snapshot, err);
}

static int decode_differs(struct slice data, struct err *err)
{
	uint64_t same, differs;

	(void)err;
	return ledger__differs_decode(data, &same, &differs);
}

/* Bytes whose end is the end of what can be read. */
static struct slice at_the_edge(const uint8_t *bytes, size_t len)
{
	static uint8_t *pages;

	if (!pages) {
		pages = mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert_ptr_ne(pages, MAP_FAILED);
		ck_assert_int_eq(mprotect(pages + PAGE_BYTES, PAGE_BYTES, PROT_NONE), 0);
	}
	memcpy(pages + PAGE_BYTES - len, bytes, len);
	return slice_of(pages + PAGE_BYTES - len, len);
}

static void check_damage(const uint8_t *good, size_t bytes, int (*decode)(struct slice data, struct err *err))
{
	uint8_t bad[64];
	struct err err = {0};
	int rc;

	ck_assert_int_eq(decode(at_the_edge(good, bytes), &err), 0);
	for (size_t len = 0; len < bytes; len++)
		ck_assert_int_eq(decode(at_the_edge(good, len), &err), ERR_CORRUPT);
	memset(bad, 0, sizeof(bad));
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		memcpy(bad, good, bytes);
		bad[bit / 8] ^= (uint8_t)(1u << bit % 8);
		rc = decode(slice_of(bad, bytes), &err);
		ck_assert_msg(rc == ERR_CORRUPT || (rc == ERR_VERSION && bit / 8 >= 4 && bit / 8 < 8), "bit %zu: %d",
			bit, rc);
	}
	memcpy(bad, good, bytes);
	ck_assert_int_eq(decode(slice_of(bad, bytes + 1), &err), ERR_CORRUPT);
}

static void set_version(uint8_t *bytes, size_t len, uint8_t version)
{
	uint32_t crc;

	bytes[4] = version;
	crc = crc32c(bytes, len - sizeof(crc));
	memcpy(bytes + len - sizeof(crc), &crc, sizeof(crc));
}

START_TEST(test_founding)
{
	const struct founding f = {.cluster = {{1, 2, 3}}, .replica = 1, .index = 901, .last_id = 1000};
	uint8_t bytes[FOUNDING_BYTES];
	struct founding back;
	struct err err;

	founding_encode(&f, bytes);
	ck_assert_int_eq(founding_decode("file", slice_of(bytes, sizeof(bytes)), &back, &err), 0);
	ck_assert(uuid_equal(&back.cluster, &f.cluster) && back.replica == 1 && back.index == 901 &&
		back.last_id == 1000);
	check_damage(bytes, sizeof(bytes), decode_founding);
	set_version(bytes, sizeof(bytes), 2);
	ck_assert_int_eq(founding_decode("file", slice_of(bytes, sizeof(bytes)), &back, &err), ERR_VERSION);
	ck_assert_str_eq(err.text, "file: has version 2, this program knows 1");
}
END_TEST

START_TEST(test_mark)
{
	uint8_t bytes[TABLE_MARK_BYTES];
	uint64_t snapshot;
	struct err err;

	table_mark_encode(901, bytes);
	ck_assert_int_eq(table_mark_decode("file", slice_of(bytes, sizeof(bytes)), &snapshot, &err), 0);
	ck_assert_uint_eq(snapshot, 901);
	check_damage(bytes, sizeof(bytes), decode_mark);
	set_version(bytes, sizeof(bytes), 2);
	ck_assert_int_eq(table_mark_decode("file", slice_of(bytes, sizeof(bytes)), &snapshot, &err), ERR_VERSION);
	ck_assert_str_eq(err.text, "file: has version 2, this program knows 1");
}
END_TEST

START_TEST(test_differs)
{
	uint8_t bytes[LEDGER_DIFFERS_BYTES];
	uint64_t same, differs;

	ledger__differs_encode(256, 512, bytes);
	ck_assert_int_eq(ledger__differs_decode(slice_of(bytes, sizeof(bytes)), &same, &differs), 0);
	ck_assert(same == 256 && differs == 512);
	check_damage(bytes, sizeof(bytes), decode_differs);
	set_version(bytes, sizeof(bytes), 2);
	ck_assert_int_eq(ledger__differs_decode(slice_of(bytes, sizeof(bytes)), &same, &differs), ERR_CORRUPT);
}
END_TEST

UNIT_MAIN("replica_files", test_founding, test_mark, test_differs)
