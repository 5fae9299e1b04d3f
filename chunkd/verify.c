/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment is synced before the first of its chunks is looked at. The last life may have been killed with writes that the disk has and has
 * not made durable: what can be read would be believed, and be gone when power fails.
 *
 * A chunk that cannot be read counts as there: it may have been acknowledged, and be read another time. If it is not whole, whoever reads it
 * will say so, as of any chunk.
 */
#include "chunkd/verify.h"

#include "chunkd/put_check.h"
#include "chunkd/segment.h"
#include "chunkd/trailers.h"
#include "common/base/mem.h"

void verify_init(struct verify *v, struct io *io, const struct segments *segments, const struct hmac_key *trailer_key)
{
	*v = (struct verify){.io = io, .segments = segments, .trailer_key = trailer_key};
}

void verify_fini(struct verify *v, const struct log *log, const char *dir)
{
	if (v->there + v->gone)
		log_line(log, LOG_INFO, "last-seals-verified", "disk=%s there=%u gone=%u", dir, v->there, v->gone);
	mem_free(v->synced);
	v->synced = NULL;
}

static int sync_segment(struct verify *v, uint32_t segment, struct err *err)
{
	char name[SEGMENT_NAME_BYTES];
	int rc;

	for (uint32_t i = 0; i < v->synced_count; i++)
		if (v->synced[i] == segment)
			return 0;
	rc = io_fdatasync(v->io, segments_fd(v->segments, segment));
	if (rc < 0) {
		segments_name(v->segments, segment, name);
		return err_set(err, rc, "cannot sync %s: %s", name, err_text(rc));
	}
	if (v->synced_count == v->synced_cap) {
		v->synced_cap = v->synced_cap ? 2 * v->synced_cap : 16;
		v->synced = mem_realloc(v->synced, v->synced_cap * sizeof(*v->synced));
	}
	v->synced[v->synced_count++] = segment;
	return 0;
}

static bool is_whole(const struct verify *v, const struct index_row *row, const uint8_t *bytes)
{
	struct slice trailer = slice_of(bytes + index_row_trailer_at(row), index_row_trailer_bytes(row));
	struct put_request r = {.copy = row->copy, .len = row->length};
	uint32_t crcs[INDEX_BESIDE_BYTES / LIMIT_UNIT_BYTES];
	struct format_trailer t;

	if (format_trailer_decode(trailer, v->trailer_key, &t) < 0 || !trailer_is_of_row(&t, row))
		return false;
	r.unit_crcs = t.list;
	return put_check_bytes(&r, bytes, crcs) == 0;
}

int verify_chunk(struct verify *v, const struct index_row *row, struct err *err)
{
	size_t len = (size_t)row->extent.grains * FORMAT_GRAIN_BYTES;
	uint8_t *bytes;
	int64_t got;
	int rc;

	if (!segments_has(v->segments, row->extent.segment))
		return 1; /* no row of any life: the index is damaged, which is found behind this */
	rc = sync_segment(v, row->extent.segment, err);
	if (rc < 0)
		return rc;
	bytes = mem_aligned(IO_DIRECT_ALIGN, len);
	got = io_pread(v->io, segments_fd(v->segments, row->extent.segment), bytes, len, index_row_offset(row));
	rc = got != (int64_t)len || is_whole(v, row, bytes);
	mem_free(bytes);
	v->there += rc == 1;
	v->gone += rc == 0;
	return rc;
}
