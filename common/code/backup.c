/* SPDX-License-Identifier: Apache-2.0 */
#include "common/code/backup.h"

#include <inttypes.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"

static const char header_magic[8] = {'C', 'R', 'A', 'T', 'M', 'B', 'K', '1'};

enum { SECTION_MAGIC = 0x53425243 /* "CRBS" */, SECTION_ROWS = 1, SECTION_END = 2, END_BODY_BYTES = 16, CRC_END = 8 };

/* ---- writing ---- */

void backup_writer_init(struct backup_writer *w, const struct backup_header *header, uint8_t *out)
{
	struct wcursor c;

	*w = (struct backup_writer){.out = out, .len = BACKUP_HEADER_BYTES};
	wcursor_init(&c, out, BACKUP_HEADER_BYTES);
	wcursor_bytes(&c, header_magic, sizeof(header_magic));
	wcursor_u32(&c, BACKUP_VERSION);
	wcursor_u32(&c, BACKUP_HEADER_BYTES);
	wcursor_bytes(&c, header->cluster.bytes, sizeof(header->cluster.bytes));
	wcursor_u64(&c, header->applied_index);
	wcursor_u64(&c, header->state_ms);
	wcursor_u64(&c, (uint64_t)header->created_ns);
	wcursor_bytes(&c, header->software, sizeof(header->software));
	wcursor_zeros(&c, BACKUP_HEADER_BYTES - 4 - c.len);
	w->crc = crc32c(out, c.len);
	wcursor_u32(&c, w->crc);
	CHECK(!c.failed && c.len == BACKUP_HEADER_BYTES);
}

void backup_writer_next(struct backup_writer *w)
{
	w->total_bytes += w->len;
	w->len = BACKUP_SECTION_HEAD_BYTES;
	w->rows = 0;
	w->number++;
}

bool backup_writer_row(struct backup_writer *w, struct slice key, struct slice value)
{
	struct wcursor c;

	CHECK(key.len >= 1 && key.len <= LIMIT_KEY_BYTES && value.len <= LIMIT_VALUE_BYTES);
	wcursor_init(&c, w->out + w->len, BACKUP_SECTION_BYTES - w->len);
	wcursor_u16(&c, (uint16_t)key.len);
	wcursor_u32(&c, (uint32_t)value.len);
	wcursor_bytes(&c, key.data, key.len);
	wcursor_bytes(&c, value.data, value.len);
	if (c.failed)
		return false;
	w->len += c.len;
	w->rows++;
	w->total_rows++;
	return true;
}

static void seal(struct backup_writer *w, uint8_t type)
{
	struct wcursor c;

	wcursor_init(&c, w->out, BACKUP_SECTION_HEAD_BYTES);
	wcursor_u32(&c, SECTION_MAGIC);
	wcursor_u32(&c, 0);
	wcursor_u32(&c, w->crc); /* of the part before */
	wcursor_u8(&c, type);
	wcursor_zeros(&c, 3);
	wcursor_u64(&c, w->number);
	wcursor_u32(&c, w->rows);
	wcursor_u32(&c, (uint32_t)(w->len - BACKUP_SECTION_HEAD_BYTES));
	wcursor_zeros(&c, BACKUP_SECTION_HEAD_BYTES - c.len);
	CHECK(!c.failed);
	w->crc = crc32c(w->out + CRC_END, w->len - CRC_END);
	wcursor_init(&c, w->out + 4, 4);
	wcursor_u32(&c, w->crc);
}

void backup_writer_seal(struct backup_writer *w)
{
	seal(w, SECTION_ROWS);
}

void backup_writer_end(struct backup_writer *w)
{
	struct wcursor c;

	CHECK(w->len == BACKUP_SECTION_HEAD_BYTES);
	wcursor_init(&c, w->out + w->len, END_BODY_BYTES);
	wcursor_u64(&c, w->total_rows);
	wcursor_u64(&c, w->total_bytes);
	w->len += END_BODY_BYTES;
	seal(w, SECTION_END);
}

/* ---- reading ---- */

int backup_check_header(struct backup_check *c, struct slice bytes, struct err *err)
{
	uint32_t version, header_bytes, crc;
	struct slice magic;
	struct rcursor r;

	memset(c, 0, sizeof(*c));
	rcursor_init(&r, bytes.data, bytes.len);
	magic = rcursor_slice(&r, sizeof(header_magic));
	version = rcursor_u32(&r);
	header_bytes = rcursor_u32(&r);
	if (r.failed || memcmp(magic.data, header_magic, sizeof(header_magic)))
		return err_set(err, ERR_FORMAT, "this is not a backup of Craton's metadata");
	if (version != BACKUP_VERSION)
		return err_set(err, ERR_VERSION,
			"the backup has format version %u, this program knows %u: use the version of Craton that made it",
			version, BACKUP_VERSION);
	if (bytes.len != BACKUP_HEADER_BYTES || header_bytes != BACKUP_HEADER_BYTES)
		return err_set(err, ERR_CORRUPT, "the backup is cut or damaged in its header");
	rcursor_copy(&r, c->header.cluster.bytes, sizeof(c->header.cluster.bytes));
	c->header.applied_index = rcursor_u64(&r);
	c->header.state_ms = rcursor_u64(&r);
	c->header.created_ns = (int64_t)rcursor_u64(&r);
	rcursor_copy(&r, c->header.software, sizeof(c->header.software));
	(void)rcursor_slice(&r, BACKUP_HEADER_BYTES - 4 - r.pos);
	crc = rcursor_u32(&r);
	c->crc = crc32c(bytes.data, BACKUP_HEADER_BYTES - 4);
	if (r.failed || crc != c->crc || c->header.software[BACKUP_SOFTWARE_BYTES - 1])
		return err_set(err, ERR_CORRUPT, "the backup's header fails its checksum");
	c->number = 1;
	c->bytes = BACKUP_HEADER_BYTES;
	return 0;
}

int backup_section_size(const uint8_t head[BACKUP_SECTION_HEAD_BYTES], size_t *ret_bytes)
{
	struct rcursor r;
	uint32_t magic, body;

	rcursor_init(&r, head, BACKUP_SECTION_HEAD_BYTES);
	magic = rcursor_u32(&r);
	(void)rcursor_slice(&r, 24);
	body = rcursor_u32(&r);
	if (magic != SECTION_MAGIC || body > BACKUP_SECTION_BYTES - BACKUP_SECTION_HEAD_BYTES)
		return ERR_CORRUPT;
	*ret_bytes = BACKUP_SECTION_HEAD_BYTES + (size_t)body;
	return 0;
}

static int corrupt(const struct backup_check *c, struct err *err, const char *what)
{
	return err_set(err, ERR_CORRUPT, "the backup is damaged in section %" PRIu64 ", at byte %" PRIu64 ": %s", c->number,
		c->bytes, what);
}

/* One row; false behind the last, or at bytes that are none. */
static bool next_row(struct rcursor *r, struct slice *ret_key, struct slice *ret_value)
{
	size_t key_len = rcursor_u16(r), value_len = rcursor_u32(r);

	*ret_key = rcursor_slice(r, key_len);
	*ret_value = rcursor_slice(r, value_len);
	if (key_len == 0 || key_len > LIMIT_KEY_BYTES || value_len > LIMIT_VALUE_BYTES)
		r->failed = true;
	return !r->failed;
}

/* All rows are there, and their keys rise. */
static int check_rows(struct backup_check *c, struct slice body, uint32_t rows, struct err *err)
{
	struct slice key, value, last = c->last_key;
	struct rcursor r;

	rcursor_init(&r, body.data, body.len);
	for (uint32_t i = 0; i < rows; i++) {
		if (!next_row(&r, &key, &value))
			return corrupt(c, err, "a row is none");
		if (last.len && slice_compare(last, key) >= 0)
			return corrupt(c, err, "its rows are out of order");
		last = key;
	}
	if (!rcursor_done(&r) || rows == 0)
		return corrupt(c, err, "it does not hold the rows it counts");
	memcpy(c->key, last.data, last.len);
	c->last_key = slice_of(c->key, last.len);
	return 0;
}

static int check_end(const struct backup_check *c, struct slice body, uint32_t rows, struct err *err)
{
	struct rcursor r;
	uint64_t total_rows, total_bytes;

	rcursor_init(&r, body.data, body.len);
	total_rows = rcursor_u64(&r);
	total_bytes = rcursor_u64(&r);
	if (!rcursor_done(&r) || rows || total_rows != c->rows || total_bytes != c->bytes)
		return corrupt(c, err, "what came before is not what it counts");
	return 0;
}

int backup_check_section(struct backup_check *c, struct slice section,
	int (*each)(void *ctx, struct slice key, struct slice value), void *ctx, struct err *err)
{
	struct slice body, key, value;
	uint32_t magic, crc, before, rows, body_bytes;
	uint64_t number;
	struct rcursor r;
	uint8_t type;
	int rc;

	if (c->ended)
		return corrupt(c, err, "something follows its end");
	rcursor_init(&r, section.data, section.len);
	magic = rcursor_u32(&r);
	crc = rcursor_u32(&r);
	before = rcursor_u32(&r);
	type = rcursor_u8(&r);
	(void)rcursor_slice(&r, 3);
	number = rcursor_u64(&r);
	rows = rcursor_u32(&r);
	body_bytes = rcursor_u32(&r);
	(void)rcursor_slice(&r, BACKUP_SECTION_HEAD_BYTES - r.pos);
	body = rcursor_slice(&r, body_bytes);
	if (!rcursor_done(&r) || magic != SECTION_MAGIC || crc != crc32c(section.data + CRC_END, section.len - CRC_END))
		return corrupt(c, err, "it fails its checksum");
	if (before != c->crc || number != c->number)
		return corrupt(c, err, "it does not follow the one before");
	if (type != SECTION_ROWS && type != SECTION_END)
		return corrupt(c, err, "its type is unknown");
	rc = type == SECTION_ROWS ? check_rows(c, body, rows, err) : check_end(c, body, rows, err);
	if (rc < 0)
		return rc;
	if (type == SECTION_ROWS && each) {
		rcursor_init(&r, body.data, body.len);
		for (uint32_t i = 0; i < rows && rc == 0; i++) {
			CHECK(next_row(&r, &key, &value));
			rc = each(ctx, key, value);
		}
		if (rc < 0)
			return rc;
	}
	c->ended = type == SECTION_END;
	c->crc = crc;
	c->number++;
	c->rows += rows;
	c->bytes += section.len;
	return 0;
}
