/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is found is synced behind the last read of it. The last life may have been killed with writes that the disk has and has not made durable, or that it
 * still gets: what can be read would be believed, and be gone when power fails. Where bytes go through the page cache it may show what it failed to write, which no
 * sync speaks of any more: there the chunk is written again.
 *
 * A chunk that cannot be read, again and again, is not there: a sector that was torn by the loss of power may look like that, and whoever is asked for the chunk once more
 * would say that it is sealed. Where many cannot be read the disk is what is at fault, and the start fails: they may have been acknowledged.
 */
#include "chunkd/verify.h"

#include "chunkd/put_check.h"
#include "chunkd/segment.h"
#include "chunkd/trailers.h"
#include "common/base/check.h"
#include "common/base/mem.h"

void verify_init(struct verify *v, struct io *io, const struct segments *segments, const struct hmac_key *trailer_key, const struct log *log, const char *dir,
	bool buffered)
{
	*v = (struct verify){.io = io, .buffered = buffered, .segments = segments, .trailer_key = trailer_key, .log = log, .dir = dir};
}

void verify_fini(struct verify *v)
{
	mem_free(v->touched);
	v->touched = NULL;
}

static void touch(struct verify *v, uint32_t segment)
{
	for (uint32_t i = 0; i < v->touched_count; i++)
		if (v->touched[i] == segment)
			return;
	if (v->touched_count == v->touched_cap) {
		v->touched_cap = v->touched_cap ? 2 * v->touched_cap : 16;
		v->touched = mem_realloc(v->touched, v->touched_cap * sizeof(*v->touched));
	}
	v->touched[v->touched_count++] = segment;
}

int verify_end(struct verify *v, struct err *err)
{
	char name[SEGMENT_NAME_BYTES];

	for (uint32_t i = 0; i < v->touched_count; i++) {
		int rc = io_fdatasync(v->io, segments_fd(v->segments, v->touched[i]));

		if (rc == 0)
			continue;
		segments_name(v->segments, v->touched[i], name);
		return err_set(err, rc, "cannot sync %s/%s: %s", v->dir, name, err_text(rc));
	}
	if (v->there + v->gone)
		log_line(v->log, LOG_INFO, "last-seals-verified", "disk=%s there=%u gone=%u unreadable=%u", v->dir, v->there, v->gone, v->unreadable);
	return 0;
}

bool verify_is_whole(const struct format_trailer *t, const uint8_t *bytes)
{
	struct put_request r = {.copy = t->copy, .len = (uint32_t)t->length, .unit_crcs = t->list};
	uint32_t crcs[INDEX_BESIDE_BYTES / LIMIT_UNIT_BYTES];

	CHECK(t->length <= INDEX_BESIDE_BYTES);
	return put_check_bytes(&r, bytes, crcs) == 0;
}

static bool is_whole(const struct verify *v, const struct index_row *row, const uint8_t *bytes)
{
	struct slice trailer = slice_of(bytes + index_row_trailer_at(row), index_row_trailer_bytes(row));
	struct format_trailer t;

	return format_trailer_decode(trailer, v->trailer_key, &t) == 0 && trailer_is_of_row(&t, row) && verify_is_whole(&t, bytes);
}

int64_t verify_read(struct io *io, int fd, uint8_t *bytes, size_t len, uint64_t offset)
{
	int64_t got = 0;

	for (int i = 0; i < VERIFY_READS && (i == 0 || got == ERR_IO || got == ERR_TIMEDOUT); i++)
		got = io_pread(io, fd, bytes, len, offset);
	return got;
}

static void note_gone(struct verify *v, const struct index_row *row, bool unreadable)
{
	v->unreadable += unreadable;
	if (v->gone++ < VERIFY_LINES)
		log_line(v->log, LOG_INFO, "last-seal-gone", "disk=%s block=%llu index=%u incarnation=%u unreadable=%d", v->dir,
			(unsigned long long)row->copy.block, row->copy.index, row->copy.incarnation, unreadable);
}

int verify_chunk(struct verify *v, const struct index_row *row, struct err *err)
{
	size_t len = (size_t)row->extent.grains * FORMAT_GRAIN_BYTES;
	char name[SEGMENT_NAME_BYTES];
	uint8_t *bytes;
	int64_t got;
	bool whole;

	if (!segments_has(v->segments, row->extent.segment))
		return 1;
	bytes = mem_aligned(IO_DIRECT_ALIGN, len);
	got = verify_read(v->io, segments_fd(v->segments, row->extent.segment), bytes, len, index_row_offset(row));
	whole = got == (int64_t)len && is_whole(v, row, bytes);
	if (whole && v->buffered)
		got = io_pwrite(v->io, segments_fd(v->segments, row->extent.segment), bytes, len, index_row_offset(row));
	mem_free(bytes);
	if (got < 0 && (whole || got != ERR_IO)) {
		segments_name(v->segments, row->extent.segment, name);
		return err_set(err, (int)got, "cannot %s %s/%s: %s", whole ? "write" : "read", v->dir, name, err_text((int)got));
	}
	if (got >= 0 && got < (int64_t)len)
		return 1; /* behind the segment's end */
	if (whole) {
		v->there++;
		touch(v, row->extent.segment);
		return 1;
	}
	note_gone(v, row, got < 0);
	return v->unreadable <= VERIFY_UNREADABLE ? 0
		: err_set(err, ERR_IO, "more than %d of the chunks that were written last cannot be read: %s; see the kernel's log on the disk", VERIFY_UNREADABLE, err_text((int)got));
}
