/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/index_record.h"

#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include "common/base/limits.h"

enum {
	RECORD_VERSION = 2, /* 1: without `settled`; every record is of chunks that are durable */
	CHANGE_PUT = 1,
	CHANGE_DROP = 2,
	STATE_SEALED = 1,
};

/* ---- rows ---- */

void index_key_encode(const struct copy_id *copy, uint8_t ret_key[INDEX_KEY_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, ret_key, INDEX_KEY_BYTES);
	wcursor_u8(&w, INDEX_KEY_CHUNK);
	wcursor_u64_be(&w, copy->block);
	wcursor_u8(&w, copy->index);
	wcursor_u32_be(&w, copy->incarnation);
	CHECK(!w.failed && w.len == INDEX_KEY_BYTES);
}

void index_value_encode(const struct index_row *row, uint8_t ret_value[INDEX_VALUE_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, ret_value, INDEX_VALUE_BYTES);
	wcursor_u8(&w, STATE_SEALED);
	wcursor_u8(&w, row->policy);
	wcursor_u16(&w, 0);
	wcursor_u32(&w, row->extent.segment);
	wcursor_u32(&w, row->extent.first);
	wcursor_u32(&w, row->extent.grains);
	wcursor_u32(&w, row->length);
	wcursor_u32(&w, row->cell_bytes);
	wcursor_u32(&w, row->crc);
	wcursor_u64(&w, row->sequence);
	CHECK(!w.failed && w.len == INDEX_VALUE_BYTES);
}

static int key_decode(struct rcursor *r, struct copy_id *ret_copy)
{
	if (rcursor_u8(r) != INDEX_KEY_CHUNK)
		return ERR_FORMAT;
	ret_copy->block = rcursor_u64_be(r);
	ret_copy->index = rcursor_u8(r);
	ret_copy->incarnation = rcursor_u32_be(r);
	return r->failed ? ERR_FORMAT : 0;
}

int index_row_decode(struct slice key, struct slice value, struct index_row *ret_row)
{
	struct index_row row = {0};
	struct rcursor r;
	uint16_t zero;
	uint8_t state;

	rcursor_init(&r, key.data, key.len);
	if (key_decode(&r, &row.copy) < 0 || !rcursor_done(&r))
		return ERR_FORMAT;
	rcursor_init(&r, value.data, value.len);
	state = rcursor_u8(&r);
	row.policy = rcursor_u8(&r);
	zero = rcursor_u16(&r);
	row.extent.segment = rcursor_u32(&r);
	row.extent.first = rcursor_u32(&r);
	row.extent.grains = rcursor_u32(&r);
	row.length = rcursor_u32(&r);
	row.cell_bytes = rcursor_u32(&r);
	row.crc = rcursor_u32(&r);
	row.sequence = rcursor_u64(&r);
	if (!rcursor_done(&r) || state != STATE_SEALED || zero)
		return ERR_FORMAT;
	if (row.length == 0 || row.length > LIMIT_CHUNK_BYTES || row.cell_bytes == 0 ||
		row.cell_bytes > LIMIT_CELL_BYTES || row.cell_bytes % LIMIT_UNIT_BYTES)
		return ERR_FORMAT;
	if ((uint64_t)row.extent.grains * FORMAT_GRAIN_BYTES <= format_round(row.length) ||
		(uint64_t)row.extent.grains * FORMAT_GRAIN_BYTES > format_round(row.length) + LIMIT_TRAILER_BYTES)
		return ERR_FORMAT;
	*ret_row = row;
	return 0;
}

/* ---- records ---- */

void index_record_head_encode(uint8_t ret_head[INDEX_HEAD_BYTES], uint32_t count, uint64_t settled)
{
	struct wcursor w;

	wcursor_init(&w, ret_head, INDEX_HEAD_BYTES);
	wcursor_u16(&w, RECORD_VERSION);
	wcursor_u32(&w, count);
	wcursor_u64(&w, settled);
	CHECK(!w.failed && w.len == INDEX_HEAD_BYTES);
}

void index_record_change_encode(struct wcursor *w, bool drop, const struct index_row *row)
{
	uint8_t key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];

	index_key_encode(&row->copy, key);
	wcursor_u8(w, drop ? CHANGE_DROP : CHANGE_PUT);
	wcursor_bytes(w, key, sizeof(key));
	if (drop)
		return;
	index_value_encode(row, value);
	wcursor_bytes(w, value, sizeof(value));
}

int index_record_walk(struct slice record, void (*each)(void *ctx, const struct index_record_change *change), void *ctx,
	uint64_t *ret_settled)
{
	struct rcursor r;
	uint32_t count;
	uint16_t version;

	rcursor_init(&r, record.data, record.len);
	version = rcursor_u16(&r);
	if (version < 1 || version > RECORD_VERSION)
		return ERR_VERSION;
	count = rcursor_u32(&r);
	*ret_settled = version == 1 ? 0 : rcursor_u64(&r);
	for (uint32_t i = 0; i < count && !r.failed; i++) {
		struct index_record_change c = {0};
		uint8_t kind = rcursor_u8(&r);

		c.drop = kind == CHANGE_DROP;
		c.key = rcursor_slice(&r, INDEX_KEY_BYTES);
		if (!c.drop)
			c.value = rcursor_slice(&r, INDEX_VALUE_BYTES);
		if (r.failed || (!c.drop && (kind != CHANGE_PUT || index_row_decode(c.key, c.value, &c.row) < 0)))
			return ERR_FORMAT;
		each(ctx, &c);
	}
	return rcursor_done(&r) ? 0 : ERR_FORMAT;
}
