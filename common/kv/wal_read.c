/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading entries back: whole frames of one segment with one read, each checked against what the index says of it. A
 * segment that is read from is not used again before the read has ended; frames are never written over while the index
 * knows them. Entries that are cut off while they are read are not given out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/kv/wal_private.h"

/* Reads end by themselves: what is left of them may be nothing. */
void wal__reads_cut(struct wal *wal, uint64_t from)
{
	LIST_FOREACH(it, &wal->group->reads) {
		struct wal_read *read = LIST_ENTRY(it, struct wal_read, link);

		if (read->limit >= from)
			read->limit = from ? from - 1 : 0;
	}
}

static bool frame_is_as_written(const struct wal_read *read, const struct wal_extent *e, struct wal_frame *ret_frame)
{
	struct wal_frame *f = ret_frame;

	return wal_frame_decode(read->buf + (e->offset - read->extents[0].offset), e->bytes, f) == 0 &&
		f->type == WAL_FRAME_ENTRIES && f->number == e->number && f->segment == e->segment &&
		f->term == e->term && f->first_index == e->first_index && f->entry_count >= e->count &&
		memcmp(f->log_id, read->wal->log_id, WAL_ID_BYTES) == 0;
}

static void read_failed(struct wal_read *read, int code, uint64_t offset, uint64_t index)
{
	char path[WAL_PATH_BYTES], text[ERR_TEXT_BYTES];

	wal__segment_path(read->wal, read->extents[0].segment, path);
	snprintf(text, sizeof(text), "%.300s: offset %" PRIu64 ": cannot read index %" PRIu64 " back: %s", path, offset,
		index, code == ERR_CORRUPT ? "the frame is damaged" : err_text(code));
	wal__fail(read->wal, code, text);
}

/* 0: all that is still wanted is there. */
static int check_read(struct wal_read *read)
{
	struct wal *wal = read->wal;

	if (wal->failed)
		return wal->failed;
	if (read->limit < read->next)
		return ERR_NOENT;
	if (read->op.result != (int64_t)read->iov.iov_len) {
		read_failed(read, read->op.result < 0 ? (int)read->op.result : ERR_IO, read->op.rw.offset, read->next);
		return wal->failed;
	}
	for (uint32_t i = 0; i < read->extent_count; i++) {
		const struct wal_extent *e = &read->extents[i];

		if (e->first_index <= read->limit && !frame_is_as_written(read, e, &read->frames[i])) {
			read_failed(read, ERR_CORRUPT, e->offset, e->first_index);
			return wal->failed;
		}
	}
	return 0;
}

static void read_done(struct io_op *op)
{
	struct wal_read *read = CONTAINER_OF(op, struct wal_read, op);
	int code = check_read(read);

	read->segment->readers--;
	list_remove(&read->link);
	wal__kick(read->wal);
	read->done(read, code);
}

static struct wal_segment *live_segment(const struct wal *wal, uint64_t number)
{
	for (struct list *it = wal->live.prev; it != &wal->live; it = it->prev) {
		struct wal_segment *s = LIST_ENTRY(it, struct wal_segment, link);

		if (s->number == number)
			return s;
	}
	CHECK_UNREACHABLE();
}

/* Durable frames from the nth on that lie together; returns the bytes from the first to the end of the last. */
static uint64_t choose_extents(const struct wal *wal, uint32_t n, struct wal_read *read)
{
	const struct wal_index *index = &wal->group->index;
	uint64_t bytes = 0, bodies = 0, to = read->to < wal->durable_index ? read->to : wal->durable_index;

	read->extent_count = 0;
	for (; n < index->count && read->extent_count < WAL_READ_EXTENTS; n++) {
		const struct wal_extent *e = wal_index_at(index, n), *first = &read->extents[0];

		if (e->first_index > to)
			break;
		if (read->extent_count > 0 &&
			(e->segment != first->segment || e->offset + e->bytes - first->offset > WAL_READ_BYTES ||
				bodies > read->max_bytes))
			break;
		read->extents[read->extent_count++] = *e;
		bytes = e->offset + e->bytes - first->offset;
		if (e->first_index >= read->from) /* of the first, only a part may be wanted */
			bodies += e->bytes - WAL_FRAME_ALIGN;
		read->limit = e->first_index + e->count - 1;
	}
	if (read->limit > to)
		read->limit = to;
	return bytes;
}

int wal_read(struct wal *wal, struct wal_read *read)
{
	uint32_t n = wal_index_find(&wal->group->index, read->from);
	uint64_t bytes;

	CHECK(!wal->closing && read->to >= read->from);
	if (read->from < wal->first_index || read->from >= wal->next_index)
		return ERR_NOENT;
	if (wal->failed || read->from > wal->durable_index || n == wal->group->index.count)
		return wal->failed ? wal->failed : ERR_AGAIN;
	read->wal = wal;
	read->next = read->from;
	read->given_bytes = 0;
	read->extent_at = read->entry_at = 0;
	read->pos = 0;
	bytes = choose_extents(wal, n, read);
	read->buf = mem_aligned(IO_DIRECT_ALIGN, bytes);
	read->iov = (struct iovec){read->buf, bytes};
	read->segment = live_segment(wal, read->extents[0].segment);
	read->segment->readers++;
	list_push_back(&wal->group->reads, &read->link);
	io_prep_read(&read->op, read->segment->fd, &read->iov, 1, read->extents[0].offset, read_done);
	io_submit(wal->io, &read->op);
	return 0;
}

/* The next entry in the frames that were read, wanted or not. */
static bool next_in_frames(struct wal_read *read, uint64_t *ret_index, uint64_t *ret_term, struct slice *ret_data)
{
	const struct wal_extent *e;

	while (read->extent_at < read->extent_count && read->entry_at == read->extents[read->extent_at].count) {
		read->extent_at++;
		read->entry_at = 0;
		read->pos = 0;
	}
	if (read->extent_at == read->extent_count)
		return false;
	e = &read->extents[read->extent_at];
	CHECK(wal_frame_next(&read->frames[read->extent_at], &read->pos, ret_data));
	*ret_index = e->first_index + read->entry_at++;
	*ret_term = e->term;
	return true;
}

bool wal_read_next(struct wal_read *read, uint64_t *ret_index, uint64_t *ret_term, struct slice *ret_data)
{
	uint64_t index, term;
	struct slice data;

	while (read->next <= read->limit && next_in_frames(read, &index, &term, &data)) {
		if (index < read->next)
			continue;
		if (read->given_bytes > 0 && read->given_bytes + data.len > read->max_bytes)
			break;
		read->given_bytes += data.len;
		read->next = index + 1;
		*ret_index = index;
		*ret_term = term;
		*ret_data = data;
		return true;
	}
	read->limit = 0; /* the end: also of later calls */
	return false;
}

void wal_read_end(struct wal_read *read)
{
	mem_free(read->buf);
	read->buf = NULL;
}
