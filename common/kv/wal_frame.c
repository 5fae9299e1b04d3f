/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header is written and read with cursors, field by field in the order of docs/FORMATS.md; the CRC covers
 * everything behind itself up to the end of the body. Padding is written as zeros and not looked at.
 */
#include "common/kv/wal_frame.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include <string.h>

enum {
	FRAME_MAGIC = 0x46577243, /* "CrWF" */
	FRAME_VERSION = 1,
	FRAME_CRC_AT = 4,
	FRAME_CRC_FROM = 8,
};

size_t wal_frame_put(uint8_t *out, size_t body_bytes, struct slice entry)
{
	struct wcursor w;

	CHECK(entry.len > 0 && entry.len <= LIMIT_LOG_ENTRY_BYTES);
	wcursor_init(&w, out + WAL_FRAME_HEADER_BYTES + body_bytes, WAL_FRAME_BODY_MAX_BYTES - body_bytes);
	wcursor_u32(&w, (uint32_t)entry.len);
	wcursor_bytes(&w, entry.data, entry.len);
	CHECK(!w.failed);
	return body_bytes + w.len;
}

size_t wal_frame_encode(uint8_t *out, size_t body_bytes, struct wal_frame *frame)
{
	size_t used = WAL_FRAME_HEADER_BYTES + body_bytes, total = wal_frame_bytes(body_bytes);
	struct wcursor w;

	CHECK(body_bytes <= WAL_FRAME_BODY_MAX_BYTES);
	wcursor_init(&w, out, WAL_FRAME_HEADER_BYTES);
	wcursor_u32(&w, FRAME_MAGIC);
	wcursor_u32(&w, 0);
	wcursor_u16(&w, FRAME_VERSION);
	wcursor_u8(&w, frame->type);
	wcursor_u8(&w, 0);
	wcursor_u32(&w, (uint32_t)body_bytes);
	wcursor_u64(&w, frame->number);
	wcursor_u64(&w, frame->mark);
	wcursor_u64(&w, frame->first_index);
	wcursor_u32(&w, frame->entry_count);
	wcursor_u32(&w, frame->prev_crc);
	wcursor_u64(&w, frame->segment);
	wcursor_u64(&w, frame->segment_bytes);
	wcursor_bytes(&w, frame->log_id, WAL_ID_BYTES);
	wcursor_bytes(&w, frame->nonce, WAL_ID_BYTES);
	CHECK(!w.failed && w.len == WAL_FRAME_HEADER_BYTES);
	memset(out + used, 0, total - used);
	frame->crc = crc32c(out + FRAME_CRC_FROM, used - FRAME_CRC_FROM);
	frame->body = slice_of(out + WAL_FRAME_HEADER_BYTES, body_bytes);
	wcursor_init(&w, out + FRAME_CRC_AT, sizeof(uint32_t));
	wcursor_u32(&w, frame->crc);
	return total;
}

/* The header alone; lengths are bounded here, before anybody uses them. */
static int decode_header(const void *data, struct wal_frame *f)
{
	struct rcursor r;
	uint32_t magic, body_bytes;
	uint16_t version;
	uint8_t zero;

	rcursor_init(&r, data, WAL_FRAME_HEADER_BYTES);
	magic = rcursor_u32(&r);
	f->crc = rcursor_u32(&r);
	version = rcursor_u16(&r);
	f->type = rcursor_u8(&r);
	zero = rcursor_u8(&r);
	body_bytes = rcursor_u32(&r);
	f->number = rcursor_u64(&r);
	f->mark = rcursor_u64(&r);
	f->first_index = rcursor_u64(&r);
	f->entry_count = rcursor_u32(&r);
	f->prev_crc = rcursor_u32(&r);
	f->segment = rcursor_u64(&r);
	f->segment_bytes = rcursor_u64(&r);
	rcursor_copy(&r, f->log_id, WAL_ID_BYTES);
	rcursor_copy(&r, f->nonce, WAL_ID_BYTES);
	if (magic != FRAME_MAGIC || version != FRAME_VERSION || zero != 0 || body_bytes > WAL_FRAME_BODY_MAX_BYTES)
		return ERR_FORMAT;
	if (f->type < WAL_FRAME_ENTRIES || f->type > WAL_FRAME_START)
		return ERR_FORMAT;
	if ((f->type == WAL_FRAME_ENTRIES) != (f->entry_count > 0) || (f->entry_count > 0) != (body_bytes > 0))
		return ERR_FORMAT;
	if (f->number == 0 || f->mark >= f->number || f->first_index == 0 ||
		f->first_index > UINT64_MAX - f->entry_count)
		return ERR_FORMAT;
	f->body = slice_of((const uint8_t *)data + WAL_FRAME_HEADER_BYTES, body_bytes);
	return 0;
}

int wal_frame_peek(const void *block, struct wal_frame *ret_frame, size_t *ret_bytes)
{
	struct wal_frame f;
	int rc = decode_header(block, &f);

	if (rc)
		return rc;
	*ret_bytes = wal_frame_bytes(f.body.len);
	f.body = slice_of(NULL, 0);
	*ret_frame = f;
	return 0;
}

/* The entries fill the body exactly. */
static bool body_is_whole(const struct wal_frame *f)
{
	struct slice entry;
	struct rcursor r;

	rcursor_init(&r, f->body.data, f->body.len);
	for (uint32_t i = 0; i < f->entry_count && !r.failed; i++) {
		entry = rcursor_slice(&r, rcursor_u32(&r));
		if (entry.len == 0 || entry.len > LIMIT_LOG_ENTRY_BYTES)
			return false;
	}
	return rcursor_done(&r);
}

int wal_frame_decode(const void *data, size_t len, struct wal_frame *ret_frame)
{
	struct wal_frame f;
	int rc;

	if (len < WAL_FRAME_HEADER_BYTES)
		return ERR_FORMAT;
	rc = decode_header(data, &f);
	if (rc)
		return rc;
	if (f.body.len > len - WAL_FRAME_HEADER_BYTES)
		return ERR_FORMAT;
	if (crc32c((const uint8_t *)data + FRAME_CRC_FROM, WAL_FRAME_HEADER_BYTES - FRAME_CRC_FROM + f.body.len) !=
		f.crc)
		return ERR_CORRUPT;
	if (!body_is_whole(&f))
		return ERR_FORMAT;
	*ret_frame = f;
	return 0;
}

bool wal_frame_next(const struct wal_frame *frame, size_t *pos, struct slice *ret_entry)
{
	struct rcursor r;

	if (*pos >= frame->body.len)
		return false;
	rcursor_init(&r, frame->body.data + *pos, frame->body.len - *pos);
	*ret_entry = rcursor_slice(&r, rcursor_u32(&r));
	CHECK(!r.failed);
	*pos += r.pos;
	return true;
}
