/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The append path of the log.
 *
 *   wal_submit --> queue --(end of turn)--> frame in one of two buffers --> one IO_DSYNC write --> done, in index order
 *
 * Everything submitted in a turn, and everything that waited while two writes were in flight, leaves as one frame and
 * one write.
 *
 * Invariants:
 *  1. An entry is acknowledged only when its own frame and every frame before it are durable.
 *  2. A mark names frames that were durable when the frame that carries it was built.
 *  3. After the first error nothing is written or acknowledged any more: only the next open can tell what is on the disk.
 *  4. A callback is never called from inside wal_submit, wal_trim or wal_close.
 *
 * All work is looked for in one place, the turn hook (run_hook); completions and calls only note facts and kick it. It
 * is also the only place that frees the log.
 */
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/kv/wal_private.h"
#include <inttypes.h>
#include <stdio.h>

static void run_hook(struct io_turn_hook *hook);

void wal__kick(struct wal *wal)
{
	io_at_turn_end(wal->io, &wal->hook);
}

void wal__fail(struct wal *wal, int code, const char *text)
{
	if (wal->failed)
		return;
	wal->failed = code;
	snprintf(wal->fatal_text, sizeof(wal->fatal_text), "%s", text);
	wal__kick(wal);
}

/* ---- open ---- */

static struct wal *wal_new(struct io *io, const struct wal_options *options)
{
	struct wal *wal = MEM_NEW(struct wal);

	wal->io = io;
	wal->dir = mem_strdup(options->dir);
	wal->segment_bytes = options->segment_bytes ? options->segment_bytes : WAL_SEGMENT_BYTES_DEFAULT;
	wal->open_flags = IO_OPEN_WRITE | (options->buffered ? 0 : IO_OPEN_DIRECT);
	wal->on_fatal = options->on_fatal;
	wal->ctx = options->ctx;
	list_init(&wal->live);
	list_init(&wal->ready);
	list_init(&wal->obsolete);
	list_init(&wal->gone);
	list_init(&wal->queue);
	wal->version = options->replica ? WAL_FRAME_TERMS : WAL_FRAME_PLAIN;
	if (options->replica)
		wal__group_init(wal, options->replica);
	io_turn_hook_init(&wal->hook, run_hook);
	for (int i = 0; i < WAL_WRITES; i++) {
		wal->writes[i].wal = wal;
		wal->writes[i].buf = io_buffer_alloc(io, WAL_FRAME_MAX_BYTES);
		list_init(&wal->writes[i].appends);
	}
	return wal;
}

static void wal_free(struct wal *wal)
{
	io_turn_hook_remove(wal->io, &wal->hook);
	wal__segments_close(wal);
	wal__group_free(wal);
	for (int i = 0; i < WAL_WRITES; i++)
		io_buffer_free(wal->io, wal->writes[i].buf, WAL_FRAME_MAX_BYTES);
	mem_free(wal->dir);
	mem_free(wal);
}

size_t wal__build_frame(struct wal *wal, uint8_t *buf, enum wal_frame_type type, size_t body_bytes,
	uint32_t entry_count, uint64_t term, uint64_t segment, struct wal_frame *ret_frame)
{
	struct wal_frame f = {
		.version = wal->version,
		.type = (uint8_t)type,
		.prev_crc = wal->last_crc,
		.number = wal->next_number,
		.mark = wal->durable_number,
		.first_index = wal->built_index + 1,
		.entry_count = entry_count,
		.segment = segment,
		.segment_bytes = wal->segment_bytes,
	};
	struct wal_group *g = wal->group;
	size_t bytes;

	memcpy(f.log_id, wal->log_id, WAL_ID_BYTES);
	memcpy(f.nonce, wal->nonce, WAL_ID_BYTES);
	if (g) {
		f.prev_term = g->last_term;
		f.term = entry_count ? term : g->last_term;
		f.commit = g->commit < wal->durable_index ? g->commit : wal->durable_index;
		g->last_term = f.term;
	}
	bytes = wal_frame_encode(buf, body_bytes, &f);
	if (g && entry_count)
		wal_index_push(&g->index,
			&(struct wal_extent){.first_index = f.first_index,
				.term = f.term,
				.number = f.number,
				.segment = segment,
				.offset = wal->offset,
				.count = entry_count,
				.bytes = (uint32_t)bytes});
	wal->last_crc = f.crc;
	wal->next_number++;
	wal->built_index += entry_count;
	wal->offset += bytes;
	*ret_frame = f;
	return bytes;
}

void wal__all_durable(struct wal *wal)
{
	wal->built_index = wal->next_index - 1;
	wal->durable_index = wal->built_index;
	wal->durable_number = wal->next_number - 1;
	wal->durable_segment = wal__last_live(wal)->number;
	wal->marked_number = wal->durable_number;
	wal->last_entries_number = 0;
}

int wal__create_log(struct wal *wal, enum wal_frame_type type, struct err *err)
{
	struct wal_frame f;
	size_t bytes;
	int rc;

	if (wal->segment_bytes < WAL_SEGMENT_BYTES_MIN || wal->segment_bytes % WAL_FRAME_ALIGN)
		return err_set(err, ERR_INVAL,
			"%s: log segments of %" PRIu64 " bytes: use at least 1 MiB, a multiple of 4 KiB", wal->dir,
			wal->segment_bytes);
	io_random(wal->io, wal->log_id, WAL_ID_BYTES);
	io_random(wal->io, wal->nonce, WAL_ID_BYTES);
	wal->first_index = wal->next_index;
	wal->built_index = wal->durable_index = wal->next_index - 1;
	wal->next_number = 1;
	bytes = wal__build_frame(wal, wal->writes[0].buf, type, 0, 0, 0, 1, &f);
	rc = wal__segment_first(wal, wal->writes[0].buf, bytes, err);
	if (!rc)
		wal__last_live(wal)->last_index = wal->next_index - 1;
	return rc;
}

/* The new epoch of this open: durable before anything can be appended. */
int wal__start_epoch(struct wal *wal, struct err *err)
{
	char path[WAL_PATH_BYTES];
	struct wal_segment *s;
	struct wal_frame f;
	uint64_t offset;
	size_t bytes;
	int64_t n;
	int rc;

	if (wal->offset == wal->segment_bytes) {
		rc = wal__segment_ready_now(wal, err);
		if (rc)
			return rc;
		CHECK(wal__segment_advance(wal));
	}
	io_random(wal->io, wal->nonce, WAL_ID_BYTES);
	s = wal__last_live(wal);
	offset = wal->offset;
	bytes = wal__build_frame(wal, wal->writes[0].buf, WAL_FRAME_START, 0, 0, 0, s->number, &f);
	n = io_pwrite(wal->io, s->fd, wal->writes[0].buf, bytes, offset);
	rc = n < 0 ? (int)n : io_fdatasync(wal->io, s->fd);
	if (rc) {
		wal__segment_path(wal, s->number, path);
		return err_set(err, rc, "%s: cannot write at offset %" PRIu64 ": %s", path, offset, err_text(rc));
	}
	return 0;
}

static int open_plain(struct wal *wal, const struct wal_options *options, uint64_t bytes, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err)
{
	int rc;

	if (list_empty(&wal->live)) {
		rc = wal__slots_refuse(wal, err);
		if (rc)
			return rc;
		wal->next_index = options->first_index ? options->first_index : 1;
		return wal__create_log(wal, WAL_FRAME_START, err);
	}
	wal->segment_bytes = bytes;
	rc = wal__recover(wal, from, each, each_ctx, err);
	if (rc)
		return rc;
	wal__all_durable(wal);
	return wal__start_epoch(wal, err);
}

int wal_open(struct io *io, const struct wal_options *options, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx,
	struct wal **ret_wal, struct err *err)
{
	struct wal *wal = wal_new(io, options);
	uint64_t bytes;
	int rc;

	rc = wal__segments_open(wal, &bytes, err);
	if (!rc)
		rc = wal->group ? wal__group_open(wal, bytes, from, each, each_ctx, err)
				: open_plain(wal, options, bytes, from, each, each_ctx, err);
	if (rc) {
		wal_free(wal);
		return rc;
	}
	wal__all_durable(wal);
	wal->epoch = wal->durable_number;
	wal__make_from(wal);
	if (wal->live.next == wal->live.prev && list_empty(&wal->ready) && list_empty(&wal->obsolete))
		wal__make_room(wal);
	if (!list_empty(&wal->gone))
		wal__kick(wal);
	*ret_wal = wal;
	return 0;
}

/* ---- append ---- */

/* A callback may cut off entries that are still to be told of: they wait where wal_cut finds them. */
static void retire(struct wal *wal, struct wal_write *write)
{
	struct list plain, *retired = wal->group ? &wal->group->retired : &plain, *node;
	bool entries = !list_empty(&write->appends);

	list_init(retired);
	while ((node = list_pop_front(&write->appends)))
		list_push_back(retired, node);
	wal->durable_number = write->number;
	wal->durable_index = write->last_index;
	wal->durable_segment = write->segment->number;
	wal->marked_number = write->mark;
	write->busy = false;
	wal->first_write = (wal->first_write + 1) % WAL_WRITES;
	wal->busy_writes--;
	while ((node = list_pop_front(retired))) {
		struct wal_append *append = LIST_ENTRY(node, struct wal_append, link);

		append->done(append, 0);
	}
	if (entries && wal->group && wal->group->replica.on_durable)
		wal->group->replica.on_durable(wal->ctx, wal->durable_index);
}

static void write_done(struct io_op *op)
{
	struct wal_write *write = CONTAINER_OF(op, struct wal_write, op);
	struct wal *wal = write->wal;
	char path[WAL_PATH_BYTES], text[ERR_TEXT_BYTES];

	if (op->result < 0) {
		wal__segment_path(wal, write->segment->number, path);
		snprintf(text, sizeof(text), "%.300s: write at offset %" PRIu64 " failed: %s", path, op->rw.offset,
			err_text((int)op->result));
		wal__fail(wal, (int)op->result, text);
	}
	write->written = true;
	wal->last_write_ns = io_now_ns(wal->io);
	while (!wal->failed && wal->busy_writes && wal->writes[wal->first_write].written)
		retire(wal, &wal->writes[wal->first_write]);
	wal__kick(wal);
}

static void start_write(struct wal *wal, struct wal_write *write, enum wal_frame_type type, size_t body_bytes,
	uint32_t entry_count, uint64_t term)
{
	struct wal_segment *s = wal__last_live(wal);
	uint64_t offset = wal->offset;
	struct wal_frame f;
	size_t bytes = wal__build_frame(wal, write->buf, type, body_bytes, entry_count, term, s->number, &f);

	write->segment = s;
	write->number = f.number;
	write->mark = f.mark;
	write->last_index = wal->built_index;
	write->busy = true;
	write->written = false;
	wal->busy_writes++;
	if (s->last_index < wal->built_index)
		s->last_index = wal->built_index;
	if (type == WAL_FRAME_ENTRIES || type == WAL_FRAME_CUT)
		wal->last_entries_number = f.number;
	write->iov = (struct iovec){write->buf, bytes};
	io_prep_write(&write->op, s->fd, &write->iov, 1, offset, IO_DSYNC, write_done);
	io_submit(wal->io, &write->op);
}

/* Room for a body of `body_bytes` in the segment written to, moving on to the next one if need be. */
static bool make_room(struct wal *wal, size_t body_bytes)
{
	return wal->offset + wal_frame_bytes(wal->version, body_bytes) <= wal->segment_bytes ||
		wal__segment_advance(wal);
}

/* The same; without it, a segment is asked for. */
static bool make_room_or_ask(struct wal *wal, size_t body_bytes)
{
	bool made = make_room(wal, body_bytes);

	if (!made && !wal->blocked_since_ns)
		wal->blocked_since_ns = io_now_ns(wal->io);
	return made;
}

/* The free buffer next in the ring, or NULL. */
static struct wal_write *free_write(struct wal *wal)
{
	if (wal->busy_writes == WAL_WRITES)
		return NULL;
	return &wal->writes[(wal->first_write + wal->busy_writes) % WAL_WRITES];
}

/* Tells the disk that entries left. */
static bool write_cut(struct wal *wal, struct wal_write *write)
{
	if (!make_room_or_ask(wal, 0))
		return false;
	io_random(wal->io, wal->nonce, WAL_ID_BYTES);
	wal->group->cut_wanted = false;
	start_write(wal, write, WAL_FRAME_CUT, 0, 0, 0);
	return true;
}

/* One frame of as much of the queue as fits, of one term. */
static bool write_entries(struct wal *wal, struct wal_write *write)
{
	struct wal_append *append = LIST_ENTRY(wal->queue.next, struct wal_append, link);
	uint64_t term = append->term;
	size_t body_bytes = 0, limit;
	uint32_t count = 0;

	if (!make_room_or_ask(wal, WAL_FRAME_ENTRY_HEADER_BYTES + append->data.len))
		return false;
	limit = wal->segment_bytes - wal->offset - wal_frame_header_bytes(wal->version);
	if (limit > wal_frame_body_max(wal->version))
		limit = wal_frame_body_max(wal->version);
	while (!list_empty(&wal->queue)) {
		append = LIST_ENTRY(wal->queue.next, struct wal_append, link);
		if (body_bytes + WAL_FRAME_ENTRY_HEADER_BYTES + append->data.len > limit ||
			(wal->group && append->term != term))
			break;
		list_remove(&append->link);
		list_push_back(&write->appends, &append->link);
		body_bytes = wal_frame_put(wal->version, write->buf, body_bytes, append->data);
		count++;
	}
	start_write(wal, write, WAL_FRAME_ENTRIES, body_bytes, count, term);
	return true;
}

/* The next frame, if there is anything to say, and a buffer for it. */
static bool write_next(struct wal *wal)
{
	struct wal_write *write = free_write(wal);

	if (!write || (wal->group && wal__group_holds_back(wal)))
		return false;
	if (wal->group && wal->group->cut_wanted)
		return write_cut(wal, write);
	return !list_empty(&wal->queue) && write_entries(wal, write);
}

static bool idle(const struct wal *wal)
{
	return wal->busy_writes == 0 && list_empty(&wal->queue) &&
		!(wal->group && (wal->group->cut_wanted || wal__group_holds_back(wal)));
}

/* True while some entry's durability is told by no mark and no later frame is coming to tell it. */
static bool mark_missing(const struct wal *wal)
{
	return !wal->failed && idle(wal) && wal->last_entries_number > wal->marked_number;
}

static void write_mark(struct wal *wal)
{
	if (make_room(wal, 0))
		start_write(wal, free_write(wal), WAL_FRAME_MARK, 0, 0, 0);
	else
		wal->last_entries_number =
			0; /* no room: the next frame tells, at the latest the start frame of the next open */
}

static void timer_done(struct io_op *op)
{
	wal__kick(CONTAINER_OF(op, struct wal, timer));
}

/* Marks a log that went idle; arms the timer for that, and to try again for space. */
static void mind_time(struct wal *wal)
{
	uint64_t now = io_now_ns(wal->io), at = 0;

	if (mark_missing(wal)) {
		at = wal->last_write_ns + WAL_MARK_IDLE_MS * 1000000ull;
		if (wal->closing || at <= now) {
			write_mark(wal);
			at = 0;
		}
	}
	if (wal->space_retry)
		at = now + WAL_SPACE_RETRY_MS * 1000000ull;
	if (wal->closing)
		io_cancel(wal->io, &wal->pause);
	if (wal->closing && !wal->blocked_since_ns) {
		io_cancel(wal->io, &wal->timer);
	} else if (at && !io_pending(&wal->timer)) {
		io_prep_timer(&wal->timer, at, timer_done);
		io_submit(wal->io, &wal->timer);
	}
}

static void fail_list(struct wal *wal, struct list *list)
{
	struct list failing, *node;

	list_init(&failing);
	while ((node = list_pop_front(list)))
		list_push_back(&failing, node);
	while ((node = list_pop_front(&failing))) {
		struct wal_append *append = LIST_ENTRY(node, struct wal_append, link);

		append->done(append, wal->failed);
	}
}

/* After the first error: everything waiting fails, the owner is told once. Writes still in flight are waited for
 * elsewhere. */
static void run_failed(struct wal *wal)
{
	for (uint32_t i = 0; i < WAL_WRITES; i++)
		fail_list(wal, &wal->writes[(wal->first_write + i) % WAL_WRITES].appends);
	fail_list(wal, &wal->queue);
	if (wal->group)
		wal__group_fail(wal);
	wal->blocked_since_ns = 0;
	wal->space_retry = false;
	if (!wal->fatal_told) {
		wal->fatal_told = true;
		if (wal->on_fatal)
			wal->on_fatal(wal->ctx, wal->failed, wal->fatal_text);
	}
}

static bool anything_pending(const struct wal *wal)
{
	for (int i = 0; i < WAL_WRITES; i++)
		if (io_pending(&wal->writes[i].op))
			return true;
	return wal->job_running || io_pending(&wal->timer) || io_pending(&wal->pause) || !list_empty(&wal->queue) ||
		(wal->group && wal__group_pending(wal));
}

static void finish(struct wal *wal)
{
	void (*closed)(void *ctx, int code) = wal->closed;
	void *ctx = wal->closed_ctx;
	int code = wal->failed;

	wal_free(wal);
	if (closed)
		closed(ctx, code);
}

static void run_hook(struct io_turn_hook *hook)
{
	struct wal *wal = CONTAINER_OF(hook, struct wal, hook);

	if (wal->failed)
		run_failed(wal);
	else
		while (write_next(wal))
			;
	if (wal->group)
		wal__group_work(wal);
	wal__segment_work(wal);
	mind_time(wal);
	if (wal->closing && !anything_pending(wal))
		finish(wal);
}

/* ---- calls ---- */

void wal_submit(struct wal *wal, struct wal_append *append)
{
	CHECK(append->data.len > 0 && append->data.len <= LIMIT_LOG_ENTRY_BYTES);
	CHECK(!wal->closing);
	if (wal->group)
		wal__group_check_term(wal, append->term);
	append->index = wal->next_index++;
	list_push_back(&wal->queue, &append->link);
	wal__kick(wal);
}

uint64_t wal_next_index(const struct wal *wal)
{
	return wal->next_index;
}

uint64_t wal_first_index(const struct wal *wal)
{
	return wal->first_index;
}

uint64_t wal_durable_index(const struct wal *wal)
{
	return wal->durable_index;
}

uint64_t wal_epoch(const struct wal *wal)
{
	return wal->epoch;
}

void wal_trim(struct wal *wal, uint64_t index)
{
	if (index <= wal->trim_index)
		return;
	wal->trim_index = index;
	wal__segment_trim(wal);
	wal__kick(wal);
}

void wal_close(struct wal *wal, void (*closed)(void *ctx, int code), void *ctx)
{
	CHECK(!wal->closing);
	wal->closing = true;
	wal->closed = closed;
	wal->closed_ctx = ctx;
	wal__kick(wal);
}

void wal_abandon(struct wal *wal)
{
	CHECK(wal->busy_writes == 0 && !anything_pending(wal));
	wal_free(wal);
}
