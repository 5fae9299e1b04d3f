/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the log of a replica does beside appending.
 *
 *     wal_save     waits for a restart that runs --> worker: both slots --> done
 *     wal_cut      at once: indices, and who is told what; the frame that says so is the next one (wal.c)
 *     wal_restart  at once: indices; all writes and jobs end, a segment is ready --> worker: base frame in it, synced, then
 *                  both slots, which now name it --> the old segments go back to the pool --> done
 *
 * While a save or a restart waits or runs, no frame is written, so that no entry is durable before the term that it
 * belongs to, or before the log that it belongs to. The two never wait at the same time for each other: a driver that
 * awaits its save before it steps on calls wal_restart only without one.
 *
 * Why a crash within a restart leaves the old log or the new: the slots alone decide. Before they name the new segment, it
 * is a segment behind the end of the old log whose frame nothing continues into (WAL_FRAME_BASE); once they do, segments
 * below it are not looked at.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/kv/wal_private.h"

/* ---- open ---- */

void wal__group_init(struct wal *wal, const struct wal_replica *replica)
{
	struct wal_group *g = MEM_NEW(struct wal_group);

	CHECK(replica->replica > 0 && (replica->base_index == 0) == (replica->base_term == 0));
	g->wal = wal;
	g->replica = *replica;
	g->meta_fd = -1;
	g->meta_buf = mem_aligned(IO_DIRECT_ALIGN, WAL_META_SLOTS * WAL_META_BYTES);
	list_init(&g->retired);
	list_init(&g->canceled);
	list_init(&g->holds);
	list_init(&g->reads);
	wal->group = g;
}

void wal__group_free(struct wal *wal)
{
	struct wal_group *g = wal->group;

	if (!g)
		return;
	if (g->meta_fd >= 0)
		io_close(wal->io, g->meta_fd);
	wal_index_fini(&g->index);
	mem_free(g->meta_buf);
	mem_free(g);
	wal->group = NULL;
}

static void begin_at(struct wal *wal, uint64_t index, uint64_t term)
{
	struct wal_group *g = wal->group;

	wal_index_fini(&g->index);
	wal_index_init(&g->index, index, term);
	g->last_term = term;
	if (g->commit < index)
		g->commit = index;
	wal->next_index = wal->first_index = index + 1;
	wal->built_index = wal->durable_index = index;
}

/* Slots that as yet name no log: whatever lies there is of an attempt to make one. */
static int make_log(struct wal *wal, struct wal_meta *meta, struct err *err)
{
	int rc;

	if (!list_empty(&wal->live) && (wal->live.next != wal->live.prev || wal__last_live(wal)->number != 1))
		return err_set(err, ERR_CORRUPT,
			"%s: the slots name no log, but segments are there; nothing was changed", wal->dir);
	wal__segments_close(wal);
	begin_at(wal, meta->base_index, meta->base_term);
	rc = wal__create_log(wal, WAL_FRAME_BASE, err);
	if (rc)
		return rc;
	meta->first_segment = 1;
	memcpy(meta->log_id, wal->log_id, WAL_ID_BYTES);
	return 0;
}

static int find_log(struct wal *wal, uint64_t bytes, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err)
{
	struct wal_group *g = wal->group;
	int rc;

	wal->segment_bytes = bytes;
	wal__segments_discard(wal, g->meta.first_segment);
	if (list_empty(&wal->live))
		return err_set(err, ERR_CORRUPT, "%s: the segments are missing, from %" PRIu64 " on, in which the log began with index %" PRIu64,
			wal->dir, g->meta.first_segment, g->meta.base_index + 1);
	rc = wal__recover(wal, from, each, each_ctx, err);
	if (rc)
		return rc;
	wal->first_index = g->index.base_index + 1;
	if (g->commit < g->meta.commit)
		g->commit = g->meta.commit;
	wal__all_durable(wal);
	return wal__start_epoch(wal, err);
}

int wal__group_open(struct wal *wal, uint64_t bytes, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err)
{
	struct wal_group *g = wal->group;
	struct wal_meta meta;
	int rc;

	rc = wal__slots_open(wal, err);
	if (rc)
		return rc;
	meta = g->meta;
	rc = meta.first_segment == 0 ? make_log(wal, &meta, err) : find_log(wal, bytes, from, each, each_ctx, err);
	if (rc)
		return rc;
	meta.generation++;
	meta.commit = g->commit;
	rc = wal__slots_write(wal, &meta);
	if (rc)
		return err_set(err, rc, "%s: cannot write the slots: %s", wal->dir, err_text(rc));
	g->meta = meta;
	return 0;
}

int wal__group_check(struct wal *wal, struct err *err)
{
	const struct wal_meta *meta = &wal->group->meta;

	if (wal->next_index <= meta->commit)
		return err_set(err, ERR_CORRUPT,
			"%s: the log is damaged at index %" PRIu64 ": it ends there, and up to %" PRIu64
			" was committed and durable; nothing was changed",
			wal->dir, wal->next_index, meta->commit);
	return 0;
}

/* ---- who is told what ---- */

static void cancel_from(struct wal *wal, struct list *appends, uint64_t from)
{
	LIST_FOREACH_SAFE(it, appends) {
		if (LIST_ENTRY(it, struct wal_append, link)->index < from)
			continue;
		list_remove(it);
		list_push_back(&wal->group->canceled, it);
	}
}

/* Entries >= from are not of the log any more, wherever they are on their way. */
static void forget_from(struct wal *wal, uint64_t from)
{
	cancel_from(wal, &wal->group->retired, from);
	for (uint32_t i = 0; i < WAL_WRITES; i++)
		cancel_from(wal, &wal->writes[(wal->first_write + i) % WAL_WRITES].appends, from);
	cancel_from(wal, &wal->queue, from);
	wal__reads_cut(wal, from);
}

static void tell_canceled(struct wal *wal)
{
	struct list *node;

	while ((node = list_pop_front(&wal->group->canceled))) {
		struct wal_append *append = LIST_ENTRY(node, struct wal_append, link);

		append->done(append, ERR_CANCELED);
	}
}

bool wal__group_holds_back(const struct wal *wal)
{
	return wal->group->save || wal->group->restart;
}

bool wal__group_pending(const struct wal *wal)
{
	const struct wal_group *g = wal->group;

	return g->cut_wanted || g->save || g->restart || !list_empty(&g->canceled) || !list_empty(&g->reads);
}

/* ---- slots ---- */

static void op_done(struct io_op *op);

static void run_save(struct io_op *op)
{
	struct wal_group *g = CONTAINER_OF(op, struct wal_group, op);

	g->op_result = wal__slots_write(g->wal, &g->op_meta);
}

static void run_restart(struct io_op *op)
{
	struct wal_group *g = CONTAINER_OF(op, struct wal_group, op);

	g->op_result = wal__segment_begin(g->wal, g->op_segment, g->wal->writes[0].buf, g->op_frame_bytes);
	if (!g->op_result)
		g->op_result = wal__slots_write(g->wal, &g->op_meta);
}

static void start_op(struct wal *wal, void (*run)(struct io_op *op))
{
	struct wal_group *g = wal->group;

	g->op_meta.generation++;
	g->op_meta.commit = g->commit < wal->durable_index ? g->commit : wal->durable_index;
	g->op_running = true;
	io_prep_offload(&g->op, IO_LANE_FILE, run, op_done);
	io_submit(wal->io, &g->op);
}

static void start_save(struct wal *wal)
{
	struct wal_group *g = wal->group;

	g->op_meta = g->meta;
	g->op_meta.term = g->save->term;
	g->op_meta.vote = g->save->vote;
	start_op(wal, run_save);
}

static void start_restart(struct wal *wal)
{
	struct wal_group *g = wal->group;
	struct wal_frame f;

	CHECK(wal->busy_writes == 0 && !wal->job_running);
	g->op_segment = wal__segment_next(wal);
	if (!g->op_segment) {
		if (!wal->blocked_since_ns)
			wal->blocked_since_ns = io_now_ns(wal->io);
		return;
	}
	wal->blocked_since_ns = 0;
	io_random(wal->io, wal->log_id, WAL_ID_BYTES);
	io_random(wal->io, wal->nonce, WAL_ID_BYTES);
	wal->offset = 0;
	g->op_frame_bytes =
		wal__build_frame(wal, wal->writes[0].buf, WAL_FRAME_BASE, 0, 0, 0, g->op_segment->number, &f);
	g->op_segment->last_index = g->restart->index;
	g->op_meta = g->meta;
	g->op_meta.base_index = g->restart->index;
	g->op_meta.base_term = g->restart->term;
	g->op_meta.first_segment = g->op_segment->number;
	memcpy(g->op_meta.log_id, wal->log_id, WAL_ID_BYTES);
	start_op(wal, run_restart);
}

static void op_failed(struct wal *wal)
{
	struct wal_group *g = wal->group;
	char text[ERR_TEXT_BYTES];

	snprintf(text, sizeof(text), "%.300s: cannot write the %s: %s", wal->dir,
		g->restart ? "start of a new log" : "slots", err_text(g->op_result));
	wal__fail(wal, g->op_result, text);
	if (g->op_segment)
		wal__segment_free(wal, g->op_segment);
	g->op_segment = NULL;
}

static void op_done(struct io_op *op)
{
	struct wal_group *g = CONTAINER_OF(op, struct wal_group, op);
	struct wal *wal = g->wal;
	struct wal_save *save = g->save;
	struct wal_restart *restart = g->restart;

	g->op_running = false;
	if (op->result < 0)
		g->op_result = (int)op->result;
	wal__kick(wal);
	if (g->op_result) {
		op_failed(wal);
		return; /* the hook tells */
	}
	g->meta = g->op_meta;
	if (!restart) {
		g->save = NULL;
		save->done(save, 0);
		return;
	}
	wal__segment_begun(wal, g->op_segment);
	g->op_segment = NULL;
	wal->durable_number = wal->marked_number = wal->next_number - 1;
	wal->durable_segment = g->meta.first_segment;
	wal->last_entries_number = 0;
	g->restart = NULL;
	restart->done(restart, 0);
}

void wal__group_work(struct wal *wal)
{
	struct wal_group *g = wal->group;

	tell_canceled(wal);
	if (g->op_running || wal->failed)
		return;
	if (g->restart) {
		if (wal->busy_writes == 0 && !wal->job_running)
			start_restart(wal);
	} else if (g->save) {
		start_save(wal);
	}
}

void wal__group_fail(struct wal *wal)
{
	struct wal_group *g = wal->group;
	struct wal_save *save = g->save;
	struct wal_restart *restart = g->restart;

	g->cut_wanted = false;
	if (g->op_running)
		return;
	g->save = NULL;
	g->restart = NULL;
	if (restart)
		restart->done(restart, wal->failed);
	if (save)
		save->done(save, wal->failed);
}

/* ---- calls ---- */

const struct wal_meta *wal_meta(const struct wal *wal)
{
	return &wal->group->meta;
}

uint64_t wal_commit(const struct wal *wal)
{
	return wal->group->commit;
}

const struct wal_index *wal_index(const struct wal *wal)
{
	return &wal->group->index;
}

uint64_t wal_bytes_from(const struct wal *wal, uint64_t entry)
{
	const struct wal_index *index = &wal->group->index;
	const struct wal_extent *first, *last;

	if (index->count == 0 || entry > wal_index_last(index))
		return 0;
	first = wal_index_at(index, entry > index->base_index ? wal_index_find(index, entry) : 0);
	last = wal_index_at(index, index->count - 1);
	return (last->segment - first->segment) * wal->segment_bytes + last->offset + last->bytes - first->offset;
}

void wal_save(struct wal *wal, struct wal_save *save)
{
	struct wal_group *g = wal->group;

	CHECK(!wal->closing && !g->save);
	CHECK(save->term > g->meta.term ||
		(save->term == g->meta.term && (!g->meta.vote || save->vote == g->meta.vote)));
	g->save = save;
	wal__kick(wal);
}

void wal__group_check_term(const struct wal *wal, uint64_t term)
{
	const struct wal_group *g = wal->group;
	uint64_t last =
		list_empty(&wal->queue) ? g->last_term : LIST_ENTRY(wal->queue.prev, struct wal_append, link)->term;

	CHECK(term > 0 && term >= last && term <= (g->save ? g->save->term : g->meta.term));
}

void wal_cut(struct wal *wal, uint64_t from)
{
	struct wal_group *g = wal->group;

	CHECK(!wal->closing && from > g->commit && from > g->index.base_index);
	if (from >= wal->next_index)
		return;
	wal__kick(wal);
	forget_from(wal, from);
	wal->blocked_since_ns = 0; /* whoever waits still says so again */
	wal->next_index = from;
	if (from > wal->built_index)
		return;
	SOMETIMES(wal_cut_of_written);
	wal->built_index = from - 1;
	if (wal->durable_index >= from)
		wal->durable_index = from - 1;
	for (uint32_t i = 0; i < WAL_WRITES; i++)
		if (wal->writes[i].last_index >= from)
			wal->writes[i].last_index = from - 1;
	wal_index_cut(&g->index, from, 0);
	g->last_term = wal_index_last_term(&g->index);
	g->cut_wanted = true;
}

void wal_restart(struct wal *wal, struct wal_restart *restart)
{
	struct wal_group *g = wal->group;

	CHECK(!wal->closing && !g->restart && !g->save);
	CHECK(restart->index > g->commit && restart->term >= g->meta.base_term && restart->term <= g->meta.term);
	g->restart = restart;
	wal__kick(wal);
	forget_from(wal, 0);
	begin_at(wal, restart->index, restart->term);
	for (uint32_t i = 0; i < WAL_WRITES; i++)
		wal->writes[i].last_index = restart->index;
	g->cut_wanted = false;
	wal->blocked_since_ns = 0;
	wal->space_retry = false;
}

void wal_note_commit(struct wal *wal, uint64_t index)
{
	CHECK(index < wal->next_index);
	if (wal->group->commit < index)
		wal->group->commit = index;
}

/* ---- trimming ---- */

uint64_t wal__group_trim_index(const struct wal *wal)
{
	uint64_t index = wal->trim_index < wal->group->commit ? wal->trim_index : wal->group->commit;

	LIST_FOREACH(it, &wal->group->holds) {
		const struct wal_hold *hold = LIST_ENTRY(it, struct wal_hold, link);

		if (hold->from <= index && hold->from > wal->group->index.base_index)
			index = hold->from - 1;
	}
	return index;
}

void wal__group_trimmed(struct wal *wal)
{
	struct wal_group *g = wal->group;

	wal_index_drop(&g->index, LIST_ENTRY(wal->live.next, struct wal_segment, link)->number);
	wal->first_index = g->index.base_index + 1;
}

int wal_hold(struct wal *wal, struct wal_hold *hold, uint64_t from)
{
	if (from <= wal->group->index.base_index)
		return ERR_NOENT;
	hold->from = from;
	list_push_back(&wal->group->holds, &hold->link);
	return 0;
}

void wal_release(struct wal *wal, struct wal_hold *hold)
{
	list_remove(&hold->link);
	wal__segment_trim(wal);
	wal__kick(wal);
}
