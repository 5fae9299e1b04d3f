/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/wal_meta.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/err.h"

enum {
	META_MAGIC = 0x4d577243, /* "CrWM" */
	META_VERSION = 1,
	META_CRC_AT = 4,
	META_CRC_FROM = 8,
	META_USED_BYTES = 112,
};

void wal_meta_encode(const struct wal_meta *meta, uint8_t out[WAL_META_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out, WAL_META_BYTES);
	wcursor_u32(&w, META_MAGIC);
	wcursor_u32(&w, 0);
	wcursor_u32(&w, META_VERSION);
	wcursor_u32(&w, 0);
	wcursor_u64(&w, meta->generation);
	wcursor_bytes(&w, meta->cluster, WAL_ID_BYTES);
	wcursor_u64(&w, meta->replica);
	wcursor_u64(&w, meta->term);
	wcursor_u64(&w, meta->vote);
	wcursor_u64(&w, meta->commit);
	wcursor_u64(&w, meta->base_index);
	wcursor_u64(&w, meta->base_term);
	wcursor_u64(&w, meta->first_segment);
	wcursor_bytes(&w, meta->log_id, WAL_ID_BYTES);
	CHECK(w.len == META_USED_BYTES);
	wcursor_zeros(&w, WAL_META_BYTES - META_USED_BYTES);
	CHECK(!w.failed);
	wcursor_init(&w, out + META_CRC_AT, sizeof(uint32_t));
	wcursor_u32(&w, crc32c(out + META_CRC_FROM, WAL_META_BYTES - META_CRC_FROM));
}

int wal_meta_decode(const uint8_t data[WAL_META_BYTES], struct wal_meta *ret_meta)
{
	struct wal_meta m;
	struct rcursor r;
	uint32_t crc, version, zero;

	rcursor_init(&r, data, WAL_META_BYTES);
	if (rcursor_u32(&r) != META_MAGIC)
		return ERR_FORMAT;
	crc = rcursor_u32(&r);
	if (crc32c(data + META_CRC_FROM, WAL_META_BYTES - META_CRC_FROM) != crc)
		return ERR_CORRUPT;
	version = rcursor_u32(&r);
	if (version != META_VERSION)
		return ERR_VERSION;
	zero = rcursor_u32(&r);
	m.generation = rcursor_u64(&r);
	rcursor_copy(&r, m.cluster, WAL_ID_BYTES);
	m.replica = rcursor_u64(&r);
	m.term = rcursor_u64(&r);
	m.vote = rcursor_u64(&r);
	m.commit = rcursor_u64(&r);
	m.base_index = rcursor_u64(&r);
	m.base_term = rcursor_u64(&r);
	m.first_segment = rcursor_u64(&r);
	rcursor_copy(&r, m.log_id, WAL_ID_BYTES);
	for (size_t i = META_USED_BYTES; i < WAL_META_BYTES; i++)
		zero |= data[i];
	if (r.failed || zero || m.generation == 0 || m.replica == 0 || m.base_term > m.term ||
		m.commit < m.base_index || m.base_index == UINT64_MAX || (m.base_index == 0) != (m.base_term == 0))
		return ERR_FORMAT;
	*ret_meta = m;
	return 0;
}

int wal_meta_choose(const struct wal_meta metas[WAL_META_SLOTS], const int codes[WAL_META_SLOTS])
{
	if (codes[0] || codes[1])
		return codes[0] == 0 ? 0 : codes[1] == 0 ? 1 : -1;
	return metas[1].generation > metas[0].generation;
}
