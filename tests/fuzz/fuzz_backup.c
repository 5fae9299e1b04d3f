/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups on arbitrary bytes: as they are, and once more with CRCs that fit and follow each other, so that what lies behind the checks is
 * reached. Rows of what is accepted rise, and writing them again gives the same sections.
 */
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "common/code/backup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	uint64_t rows;
	struct slice last;
};

static int each(void *ctx, struct slice key, struct slice value)
{
	struct seen *s = ctx;

	CHECK(key.len >= 1 && key.len <= LIMIT_KEY_BYTES && value.len <= LIMIT_VALUE_BYTES);
	CHECK(s->last.len == 0 || slice_compare(s->last, key) < 0);
	s->last = key;
	s->rows++;
	return 0;
}

static void read_all(const uint8_t *data, size_t size)
{
	struct backup_check *c = MEM_NEW(struct backup_check);
	struct seen seen = {0};
	struct err err = {0};
	size_t at = BACKUP_HEADER_BYTES, len;

	if (size >= BACKUP_HEADER_BYTES && backup_check_header(c, slice_of(data, BACKUP_HEADER_BYTES), &err) == 0) {
		while (!c->ended && size - at >= BACKUP_SECTION_HEAD_BYTES && backup_section_size(data + at, &len) == 0 &&
			len <= size - at && backup_check_section(c, slice_of(data + at, len), each, &seen, &err) == 0)
			at += len;
		CHECK(seen.rows == c->rows && c->bytes == at);
	}
	mem_free(c);
}

static void put_u32(uint8_t *at, uint32_t v)
{
	struct wcursor w;

	wcursor_init(&w, at, 4);
	wcursor_u32(&w, v);
}

static void mend(uint8_t *data, size_t size)
{
	size_t at = BACKUP_HEADER_BYTES, len;
	uint64_t number = 1;
	uint32_t crc;

	if (size < BACKUP_HEADER_BYTES)
		return;
	crc = crc32c(data, BACKUP_HEADER_BYTES - 4);
	put_u32(data + BACKUP_HEADER_BYTES - 4, crc);
	while (size - at >= BACKUP_SECTION_HEAD_BYTES && backup_section_size(data + at, &len) == 0 && len <= size - at) {
		put_u32(data + at + 8, crc);
		put_u32(data + at + 16, (uint32_t)number++);
		put_u32(data + at + 20, 0);
		crc = crc32c(data + at + 8, len - 8);
		put_u32(data + at + 4, crc);
		at += len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = mem_alloc(size + 1);

	read_all(data, size);
	memcpy(copy, data, size);
	mend(copy, size);
	read_all(copy, size);
	mem_free(copy);
	return 0;
}
