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
	FRAME_CRC_AT = 4,
	FRAME_CRC_FROM = 8,
	FRAME_NEWER = WAL_FRAME_TERMS + 1, /* or anything above */
};

size_t wal_frame_put(uint8_t version, uint8_t *out, size_t body_bytes, struct slice entry)
{
	size_t used = wal_frame_header_bytes(version) + body_bytes;
	struct wcursor w;

	CHECK(entry.len > 0 && entry.len <= LIMIT_LOG_ENTRY_BYTES);
	wcursor_init(&w, out + used, WAL_FRAME_MAX_BYTES - used);
	wcursor_u32(&w, (uint32_t)entry.len);
	wcursor_bytes(&w, entry.data, entry.len);
	CHECK(!w.failed);
	return body_bytes + w.len;
}

size_t wal_frame_encode(uint8_t *out, size_t body_bytes, struct wal_frame *frame)
{
	size_t header_bytes = wal_frame_header_bytes(frame->version), used = header_bytes + body_bytes;
	size_t total = wal_frame_bytes(frame->version, body_bytes);
	struct wcursor w;

	CHECK(used <= WAL_FRAME_MAX_BYTES);
	wcursor_init(&w, out, header_bytes);
	wcursor_u32(&w, FRAME_MAGIC);
	wcursor_u32(&w, 0);
	wcursor_u16(&w, frame->version);
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
	if (frame->version == WAL_FRAME_TERMS) {
		wcursor_u64(&w, frame->term);
		wcursor_u64(&w, frame->prev_term);
		wcursor_u64(&w, frame->commit);
		wcursor_u64(&w, 0);
	}
	CHECK(!w.failed && w.len == header_bytes);
	memset(out + used, 0, total - used);
	frame->crc = crc32c(out + FRAME_CRC_FROM, used - FRAME_CRC_FROM);
	frame->body = slice_of(out + header_bytes, body_bytes);
	wcursor_init(&w, out + FRAME_CRC_AT, sizeof(uint32_t));
	wcursor_u32(&w, frame->crc);
	return total;
}

/* What a header that is read may say. */
static bool header_is_sane(const struct wal_frame *f, uint32_t body_bytes)
{
	if (f->type < WAL_FRAME_ENTRIES || f->type > (f->version == WAL_FRAME_PLAIN ? WAL_FRAME_START : WAL_FRAME_BASE))
		return false;
	if ((f->type == WAL_FRAME_ENTRIES) != (f->entry_count > 0) || (f->entry_count > 0) != (body_bytes > 0))
		return false;
	if (f->number == 0 || f->mark >= f->number || f->first_index == 0 ||
		f->first_index > UINT64_MAX - f->entry_count)
		return false;
	if (f->version == WAL_FRAME_PLAIN)
		return true;
	return f->commit < f->first_index &&
		(f->type == WAL_FRAME_ENTRIES ? f->term > 0 && f->term >= f->prev_term : f->term == f->prev_term);
}

/*
 * The header alone, of at least WAL_FRAME_PLAIN_HEADER_BYTES; lengths are bounded here, before anybody uses them. ERR_VERSION: it could be of a
 * newer version, if the CRC agrees; what all versions have
 * is set, unchecked.
 */
static int decode_header(const void *data, size_t len, struct wal_frame *f)
{
	struct rcursor r;
	uint32_t magic, body_bytes;
	uint16_t version;
	uint64_t zero;

	rcursor_init(&r, data, len);
	magic = rcursor_u32(&r);
	f->crc = rcursor_u32(&r);
	version = rcursor_u16(&r);
	if (r.failed || magic != FRAME_MAGIC || version == 0)
		return ERR_FORMAT;
	f->version = (uint8_t)(version < FRAME_NEWER ? version : FRAME_NEWER);
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
	f->term = f->prev_term = f->commit = 0;
	if (f->version == FRAME_NEWER) {
		if (r.failed || len < WAL_FRAME_TERMS_HEADER_BYTES || body_bytes > wal_frame_body_max(FRAME_NEWER))
			return ERR_FORMAT;
		f->body = slice_of((const uint8_t *)data + WAL_FRAME_TERMS_HEADER_BYTES, body_bytes);
		return ERR_VERSION;
	}
	if (version == WAL_FRAME_TERMS) {
		f->term = rcursor_u64(&r);
		f->prev_term = rcursor_u64(&r);
		f->commit = rcursor_u64(&r);
		zero |= rcursor_u64(&r);
	}
	if (r.failed || zero != 0 || body_bytes > wal_frame_body_max(f->version) || !header_is_sane(f, body_bytes))
		return ERR_FORMAT;
	f->body = slice_of((const uint8_t *)data + r.pos, body_bytes);
	return 0;
}

int wal_frame_peek(const void *block, struct wal_frame *ret_frame, size_t *ret_bytes)
{
	struct wal_frame f;
	int rc = decode_header(block, WAL_FRAME_ALIGN, &f);

	if (rc && rc != ERR_VERSION)
		return rc;
	*ret_bytes = wal_frame_bytes(f.version, f.body.len);
	f.body = slice_of(NULL, 0);
	*ret_frame = f;
	return rc;
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
	size_t header_bytes;
	int rc = decode_header(data, len, &f);

	if (rc && rc != ERR_VERSION)
		return rc;
	header_bytes = wal_frame_header_bytes(f.version);
	if (f.body.len > len - header_bytes)
		return ERR_FORMAT;
	if (crc32c((const uint8_t *)data + FRAME_CRC_FROM, header_bytes - FRAME_CRC_FROM + f.body.len) != f.crc)
		return ERR_CORRUPT;
	if (!rc && !body_is_whole(&f))
		return ERR_FORMAT;
	*ret_frame = f;
	return rc;
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
