/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the log at open.
 *
 * The first frame of the lowest segment is the anchor: a segment gets its name only after its first frame (new log),
 * and the first live one always holds a durable frame; so if the anchor is bad, the log is damaged. From there frame
 * follows frame. The next frame lies right behind its predecessor or, if that finds none, at the start of the next
 * segment (the writer moves on when a frame does not fit). A frame continues the log if it is intact, has the next
 * number, carries its predecessor's CRC, its segment's number, the log's id and the epoch's nonce (or starts a new
 * epoch).
 *
 * Where no frame continues the log, it ends, and either nothing was ever acknowledged from there on (a torn tail: cut),
 * or something was (corruption). Frame numbers only ever rise, and a mark is a number that was durable; so one intact
 * frame of this log anywhere behind, with a mark at or above the number that is missing, proves corruption; what lies
 * there from earlier uses has lower marks. The log's id, which no client knows, keeps bytes of an entry from being
 * taken for such a frame.
 *
 * A replicated log begins with a base frame in the segment that its slots name, or, once trimmed, with any other frame
 * behind that. A frame that continues a log and contradicts it (cuts off what is committed, belongs to no term that can
 * be there) is damage too. Entries are given out when it is known which of them later frames have cut off.
 *
 * Nothing is changed before all that is decided; what is found is synced first.
 */
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/kv/wal_private.h"
#include <inttypes.h>

enum { WINDOW_BYTES = 1 << 20 };
_Static_assert((int)WINDOW_BYTES >= (int)WAL_FRAME_MAX_BYTES, "a whole frame fits the window");

/* A window on one segment. */
struct reader {
	struct wal *wal;
	struct wal_segment *segment;
	uint8_t *buf;
	uint64_t start, len; /* what the window holds */
};

struct position {
	struct wal_segment *segment;
	uint64_t offset;
};

static struct wal_segment *next_segment(const struct wal *wal, const struct wal_segment *s)
{
	return s->link.next == &wal->live ? NULL : LIST_ENTRY(s->link.next, struct wal_segment, link);
}

/* `len` bytes at the position, or as many as the segment still has. */
static int reader_get(struct reader *r, struct position at, uint64_t len, const uint8_t **ret_data, uint64_t *ret_len,
	struct err *err)
{
	uint64_t left = r->wal->segment_bytes - at.offset, want;
	char path[WAL_PATH_BYTES];
	int64_t n;

	if (len > left)
		len = left;
	if (r->segment != at.segment || at.offset < r->start || at.offset + len > r->start + r->len) {
		want = left < WINDOW_BYTES ? left : WINDOW_BYTES;
		n = io_pread(r->wal->io, at.segment->fd, r->buf, want, at.offset);
		if (n < 0 || (uint64_t)n < want) {
			wal__segment_path(r->wal, at.segment->number, path);
			return err_set(err, n < 0 ? (int)n : ERR_IO, "%s: cannot read at offset %" PRIu64 ": %s", path,
				at.offset, n < 0 ? err_text((int)n) : "the file ends early");
		}
		r->segment = at.segment;
		r->start = at.offset;
		r->len = want;
	}
	*ret_data = r->buf + (at.offset - r->start);
	*ret_len = len;
	return 0;
}

/* What is there: 0 and the frame, ERR_VERSION and the head of one that a newer build wrote, or ERR_FORMAT: no frame. An error is that of a read. */
static int look_at(struct reader *r, struct position at, struct wal_frame *ret_frame, uint64_t *ret_bytes, int *ret_code, struct err *err)
{
	const uint8_t *data;
	uint64_t len;
	size_t bytes;
	int rc;

	*ret_code = ERR_FORMAT;
	rc = reader_get(r, at, WAL_FRAME_ALIGN, &data, &len, err);
	if (rc || len < WAL_FRAME_ALIGN)
		return rc;
	rc = wal_frame_peek(data, ret_frame, &bytes);
	if (rc && rc != ERR_VERSION)
		return 0;
	rc = reader_get(r, at, bytes, &data, &len, err);
	if (rc || len < bytes)
		return rc;
	rc = wal_frame_decode(data, bytes, ret_frame);
	if (rc && rc != ERR_VERSION)
		return 0;
	*ret_bytes = bytes;
	*ret_code = rc;
	return 0;
}

/* 0 and the frame; 0 and *ret_intact false if there is none that is known here; or the error of a read. */
static int read_frame(struct reader *r, struct position at, struct wal_frame *ret_frame, uint64_t *ret_bytes,
	bool *ret_intact, struct err *err)
{
	int code, rc = look_at(r, at, ret_frame, ret_bytes, &code, err);

	*ret_intact = code == 0;
	return rc;
}

/* The first frame of the log says what the log is; of a replicated one, it must be what its slots say. */
static bool is_anchor(const struct wal *wal, const struct wal_frame *f)
{
	const struct wal_meta *meta;

	if (!wal->group)
		return true;
	meta = &wal->group->meta;
	if (memcmp(f->log_id, meta->log_id, WAL_ID_BYTES) != 0)
		return false;
	if (f->segment != meta->first_segment)
		return f->type != WAL_FRAME_BASE;
	return f->type == WAL_FRAME_BASE && f->first_index == meta->base_index + 1 && f->prev_term == meta->base_term;
}

static bool continues(const struct wal *wal, const struct wal_segment *segment, const struct wal_frame *f)
{
	if (f->version != wal->version || f->segment != segment->number || f->segment_bytes != wal->segment_bytes)
		return false;
	if (wal->next_number == 0)
		return is_anchor(wal, f);
	return f->number == wal->next_number && f->prev_crc == wal->last_crc && f->type != WAL_FRAME_BASE &&
		(f->first_index == wal->next_index || (f->type == WAL_FRAME_CUT && f->first_index < wal->next_index)) &&
		memcmp(f->log_id, wal->log_id, WAL_ID_BYTES) == 0 &&
		(f->type == WAL_FRAME_START || f->type == WAL_FRAME_CUT ||
			memcmp(f->nonce, wal->nonce, WAL_ID_BYTES) == 0);
}

/* What a frame with terms says, beside a plain one. False: it cannot be. */
static bool accept_terms(struct wal *wal, struct position at, const struct wal_frame *f, uint64_t bytes)
{
	struct wal_group *g = wal->group;

	if (wal->next_number == 0)
		wal_index_init(&g->index, f->first_index - 1, f->prev_term);
	if (f->first_index <= g->commit && wal->next_number != 0)
		return false;
	if (f->type == WAL_FRAME_CUT)
		wal_index_cut(&g->index, f->first_index, f->prev_term);
	if (f->prev_term != wal_index_last_term(&g->index) || f->term > g->meta.term)
		return false;
	if (f->type == WAL_FRAME_ENTRIES)
		wal_index_push(&g->index,
			&(struct wal_extent){.first_index = f->first_index,
				.term = f->term,
				.number = f->number,
				.segment = at.segment->number,
				.offset = at.offset,
				.count = f->entry_count,
				.bytes = (uint32_t)bytes});
	if (g->commit < f->commit)
		g->commit = f->commit;
	g->last_term = f->term;
	return true;
}

/* The log goes on with this frame. */
static int accept(struct wal *wal, struct position at, const struct wal_frame *f, uint64_t bytes, struct err *err)
{
	char path[WAL_PATH_BYTES];

	if (wal->group && !accept_terms(wal, at, f, bytes)) {
		wal__segment_path(wal, at.segment->number, path);
		return err_set(err, ERR_CORRUPT,
			"%.300s: offset %" PRIu64 ": the log contradicts itself, or its slots, at index %" PRIu64
			"; nothing was changed",
			path, at.offset, f->first_index);
	}
	if (wal->next_number == 0) {
		memcpy(wal->log_id, f->log_id, WAL_ID_BYTES);
		wal->first_index = f->first_index;
	}
	memcpy(wal->nonce, f->nonce, WAL_ID_BYTES);
	wal->next_number = f->number + 1;
	wal->last_crc = f->crc;
	wal->next_index = f->first_index + f->entry_count;
	wal->offset = at.offset + bytes;
	if (at.segment->last_index < wal->next_index - 1)
		at.segment->last_index = wal->next_index - 1;
	return 0;
}

static int deliver(const struct wal_frame *f, uint64_t from, uint64_t to,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err)
{
	struct slice entry;
	size_t pos = 0;
	int rc;

	for (uint64_t index = f->first_index; index <= to && wal_frame_next(f, &pos, &entry); index++) {
		if (index < from)
			continue;
		rc = each(each_ctx, index, entry, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Looks behind the end of the log for proof that a frame numbered wal->next_number once was durable. */
static int look_for_proof(
	struct reader *r, struct position end, bool *ret_proof, struct position *ret_at, struct err *err)
{
	struct wal *wal = r->wal;
	struct wal_frame f;
	const uint8_t *data;
	uint64_t len, bytes;
	size_t peek_bytes;
	int rc, code;

	for (struct position at = end; at.segment; at = (struct position){next_segment(wal, at.segment), 0}) {
		for (; at.offset < wal->segment_bytes; at.offset += WAL_FRAME_ALIGN) {
			rc = reader_get(r, at, WAL_FRAME_ALIGN, &data, &len, err);
			if (rc)
				return rc;
			/* what is old is told by its header alone; a newer build's says as much */
			rc = wal_frame_peek(data, &f, &peek_bytes);
			if ((rc && rc != ERR_VERSION) || f.mark < wal->next_number ||
				memcmp(f.log_id, wal->log_id, WAL_ID_BYTES) != 0)
				continue;
			rc = look_at(r, at, &f, &bytes, &code, err);
			if (rc)
				return rc;
			if (code == 0 || code == ERR_VERSION) {
				*ret_proof = true;
				*ret_at = at;
				return 0;
			}
		}
	}
	*ret_proof = false;
	return 0;
}

/* Where the missing frame was: where the log ends or, if nothing was ever begun there, at the start of the next segment. */
static struct position missing_frame(struct reader *r, struct position end, struct position proof)
{
	static const uint8_t zeros[WAL_FRAME_ALIGN];
	struct position next = {next_segment(r->wal, end.segment), 0};
	struct wal_frame f;
	const uint8_t *data;
	size_t bytes;
	uint64_t len;
	struct err ignored; /* it was readable a moment ago; and this only makes a message better */

	if (proof.segment == end.segment || !next.segment || (proof.segment == next.segment && proof.offset == 0))
		return end;
	if (reader_get(r, end, WAL_FRAME_ALIGN, &data, &len, &ignored))
		return end;
	if (len < WAL_FRAME_ALIGN || memcmp(data, zeros, WAL_FRAME_ALIGN) == 0)
		return next;
	return wal_frame_peek(data, &f, &bytes) == 0 && f.number < r->wal->next_number ? next : end;
}

static int report_corruption(const struct wal *wal, struct position at, struct position proof, struct err *err)
{
	char path[WAL_PATH_BYTES], proof_path[WAL_PATH_BYTES];

	wal__segment_path(wal, at.segment->number, path);
	wal__segment_path(wal, proof.segment->number, proof_path);
	return err_set(err, ERR_CORRUPT,
		"%.160s: offset %" PRIu64 ": the log is damaged at index %" PRIu64 " (offset %" PRIu64
		" of %.160s proves that more was"
		" durable); nothing was changed",
		path, at.offset, wal->next_index, proof.offset, proof_path);
}

/* Follows the frames to the end of the log. */
static int walk(struct reader *r, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx,
	struct position *ret_end, struct err *err)
{
	struct wal *wal = r->wal;
	struct position at = {LIST_ENTRY(wal->live.next, struct wal_segment, link), 0}, next;
	struct wal_frame f;
	uint64_t bytes;
	bool intact;
	int rc;

	for (;;) {
		rc = read_frame(r, at, &f, &bytes, &intact, err);
		if (!rc && !(intact && continues(wal, at.segment, &f))) {
			next = (struct position){next_segment(wal, at.segment), 0};
			if (!next.segment || next.segment->number != at.segment->number + 1 || wal->next_number == 0)
				break;
			rc = read_frame(r, next, &f, &bytes, &intact, err);
			if (!rc && !(intact && continues(wal, next.segment, &f)))
				break;
			next.segment->last_index = at.segment->last_index;
			SOMETIMES(wal_goes_on_in_next_segment);
			at = next;
		}
		if (!rc) {
			rc = accept(wal, at, &f, bytes, err);
			if (!rc && !wal->group)
				rc = deliver(&f, from, UINT64_MAX, each, each_ctx, err);
		}
		if (rc)
			return rc;
		at.offset += bytes;
	}
	*ret_end = at;
	return 0;
}

/* Gives out what no later frame has cut off. */
static int deliver_kept(struct reader *r, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err)
{
	const struct wal_index *index = &r->wal->group->index;
	struct wal_segment *s = LIST_ENTRY(r->wal->live.next, struct wal_segment, link);
	uint32_t n = from <= index->base_index ? 0 : wal_index_find(index, from);
	char path[WAL_PATH_BYTES];
	struct wal_frame f;
	uint64_t bytes;
	bool intact;
	int rc = 0;

	for (; !rc && n < index->count; n++) {
		const struct wal_extent *e = wal_index_at(index, n);

		while (s->number != e->segment)
			s = next_segment(r->wal, s);
		rc = read_frame(r, (struct position){s, e->offset}, &f, &bytes, &intact, err);
		if (!rc && (!intact || f.number != e->number)) {
			wal__segment_path(r->wal, s->number, path);
			rc = err_set(err, ERR_CORRUPT,
				"%.300s: offset %" PRIu64 ": index %" PRIu64 " was there a moment ago", path, e->offset,
				e->first_index);
		}
		if (!rc)
			rc = deliver(&f, from, e->first_index + e->count - 1, each, each_ctx, err);
	}
	return rc;
}

/*
 * A frame of a version that is not known here: what a newer build wrote is not a torn tail. It has the log's id, which those who give us the bytes of
 * entries do not know, and the number that is missing: old bytes of a reused segment say nothing.
 */
static int refuse_newer(struct reader *r, struct position at, struct err *err)
{
	char path[WAL_PATH_BYTES];
	struct wal_frame f;
	uint64_t bytes;
	int rc, code;

	if (!at.segment || at.offset == r->wal->segment_bytes)
		return 0;
	rc = look_at(r, at, &f, &bytes, &code, err);
	if (rc || code != ERR_VERSION)
		return rc;
	if (r->wal->next_number != 0 &&
		(f.number != r->wal->next_number || memcmp(f.log_id, r->wal->log_id, WAL_ID_BYTES) != 0))
		return 0;
	wal__segment_path(r->wal, at.segment->number, path);
	return err_set(err, ERR_VERSION,
		"%.300s: offset %" PRIu64 ": index %" PRIu64
		" is in a format that is not known here: a newer build wrote it; start that one. Nothing was changed",
		path, at.offset, r->wal->next_index);
}

/* What a damaged first frame is taken for. */
static int report_anchor(struct reader *r, struct position at, struct err *err)
{
	char path[WAL_PATH_BYTES];
	struct wal_frame f;
	uint64_t bytes;
	bool intact;
	int rc = refuse_newer(r, at, err);

	if (!rc)
		rc = read_frame(r, at, &f, &bytes, &intact, err);
	if (rc)
		return rc;
	wal__segment_path(r->wal, at.segment->number, path);
	if (intact && f.version != r->wal->version)
		return err_set(err, ERR_VERSION, "%s: the log is one of %s; nothing was changed", path,
			f.version == WAL_FRAME_PLAIN ? "a single replica, not of a group" : "a group of replicas");
	if (r->wal->group && at.segment->number == r->wal->group->meta.first_segment)
		return err_set(err, ERR_CORRUPT,
			"%s: offset 0: the log's first frame is damaged, from index %" PRIu64 " on; nothing was changed", path,
			r->wal->group->meta.base_index + 1);
	if (r->wal->group) /* what is before was trimmed, and where that ended this frame alone knew */
		return err_set(err, ERR_CORRUPT,
			"%s: offset 0: the log's first frame is damaged, and with it an entry above index %" PRIu64 "; nothing was changed", path,
			r->wal->group->meta.base_index + 1);
	return err_set(err, ERR_CORRUPT, "%s: offset 0: the log's first frame is damaged; nothing was changed", path);
}

/* Segments behind the end: those numbered on are ready for use, others are renamed when needed. */
static void sort_segments(struct wal *wal, struct wal_segment *last)
{
	uint64_t number = last->number;
	struct list *node;

	while ((node = last->link.next) != &wal->live) {
		struct wal_segment *s = LIST_ENTRY(node, struct wal_segment, link);

		list_remove(node);
		if (s->number == number + 1) {
			number++;
			list_push_back(&wal->ready, node);
		} else {
			list_push_back(&wal->obsolete, node);
			wal->obsolete_count++;
		}
	}
}

/*
 * What is read may lie in caches only: of a life that was killed with writes under way. The table may be committed while the log is
 * replayed, and must not be ahead of it after a loss of power; so all of it is made durable first.
 */
static int sync_found(struct wal *wal, struct err *err)
{
	char path[WAL_PATH_BYTES];
	int rc;

	LIST_FOREACH(it, &wal->live) {
		struct wal_segment *s = LIST_ENTRY(it, struct wal_segment, link);

		rc = io_fdatasync(wal->io, s->fd);
		if (rc) {
			wal__segment_path(wal, s->number, path);
			return err_set(err, rc, "%s: cannot sync: %s", path, err_text(rc));
		}
	}
	return 0;
}

int wal__recover(struct wal *wal, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err)
{
	struct reader r = {.wal = wal, .buf = mem_aligned(IO_DIRECT_ALIGN, WINDOW_BYTES)};
	struct position end, proof_at;
	bool proof = false;
	int rc;

	wal->next_number = 0;
	rc = sync_found(wal, err);
	if (!rc)
		rc = walk(&r, from, each, each_ctx, &end, err);
	if (!rc && wal->next_number == 0)
		rc = report_anchor(&r, end, err);
	if (!rc)
		rc = look_for_proof(&r, end, &proof, &proof_at, err);
	if (!rc && proof)
		rc = report_corruption(wal, missing_frame(&r, end, proof_at), proof_at, err);
	if (!rc)
		rc = refuse_newer(&r, end, err);
	if (!rc)
		rc = refuse_newer(&r, (struct position){next_segment(wal, end.segment), 0}, err);
	if (!rc && wal->group)
		rc = wal__group_check(wal, err);
	if (!rc && wal->group)
		rc = deliver_kept(&r, from, each, each_ctx, err);
	if (!rc)
		sort_segments(wal, end.segment);
	mem_free(r.buf);
	return rc;
}
