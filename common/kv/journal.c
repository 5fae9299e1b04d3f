/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log first, then apply, then answer: the order that makes an acknowledged entry survive.
 *
 *   journal_submit -> waiting --the table has room--> wal (durable) -> apply -> kv_applied -> entry->done
 *
 * Entries are admitted at the end of a turn; while the table has no room it is looked at again every millisecond. What
 * the entries in the log but not yet applied may bring is counted as if it were there, so the table never passes its
 * bound.
 *
 * The table commits behind that path; the log is trimmed to where its last-but-one commit stands. At open the table
 * says how far it is, and the log's entries behind that are applied again, by the same function in the same order.
 *
 * The first failure (log, table, or an apply that could not do its work) stops the journal: entries that are not
 * applied yet fail, and the owner is told once. What is in the log then comes back at the next open, acknowledged or
 * not; that is no lie, as nobody was told that it failed for good.
 */
#include "common/kv/journal.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include <inttypes.h>
#include <stdio.h>

#define ROOM_RETRY_NS (1000ull * 1000)

static void run_hook(struct io_turn_hook *hook);

struct journal {
	struct io *io;
	struct journal_options options; /* without dir */
	struct kv *kv;
	struct wal *wal;
	uint64_t applied;
	struct list waiting; /* journal_entry.append.link */
	uint32_t in_log;     /* entries that are with the log */
	uint64_t rows_in_log; /* that they may write */
	struct io_turn_hook hook;
	struct io_op timer;
	int failed;
	bool closing;
	void (*closed)(void *ctx, int code);
	void *closed_ctx;
};

static void journal_fail(struct journal *j, int code, const char *text)
{
	if (j->failed)
		return;
	j->failed = code;
	io_at_turn_end(j->io, &j->hook);
	if (j->options.on_fatal)
		j->options.on_fatal(j->options.ctx, code, text);
}

static void part_failed(void *ctx, int code, const char *text)
{
	journal_fail(ctx, code, text);
}

/* One entry, live or at replay. A storage error inside kv is the entry's failure, whatever apply made of it. */
static int apply(struct journal *j, uint64_t index, struct slice data, struct journal_entry *entry, struct err *err)
{
	const char *text;
	int rc;

	CHECK(index == j->applied + 1);
	rc = j->options.apply(j->options.ctx, j->kv, index, data, entry, err);
	if (!rc) {
		rc = kv_failure(j->kv, &text);
		if (rc)
			err_set(err, rc, "%s", text);
	}
	if (rc)
		return rc;
	kv_applied(j->kv, index);
	j->applied = index;
	return 0;
}

/* ---- open ---- */

static int replay(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	struct journal *j = ctx;
	int rc;

	if (index != j->applied + 1)
		return err_set(err, ERR_CORRUPT,
			"the log begins at index %" PRIu64 ", but the table ends at %" PRIu64
			": one of them is from another time",
			index, j->applied);
	rc = apply(j, index, data, NULL, err);
	if (rc)
		return err_prefix(err, "replay of index %" PRIu64, index);
	return kv_settle(j->kv, err);
}

static int make_dirs(struct io *io, const char *dir, const char *log_dir, const char *kv_dir, struct err *err)
{
	const char *const dirs[] = {log_dir, kv_dir};
	int rc;

	for (size_t i = 0; i < ARRAY_COUNT(dirs); i++) {
		rc = io_mkdir(io, dirs[i], 0700);
		if (rc && rc != ERR_EXIST)
			return err_set(err, rc, "%s: cannot create: %s", dirs[i], err_text(rc));
	}
	rc = io_sync_dir(io, dir);
	return rc ? err_set(err, rc, "%s: cannot sync: %s", dir, err_text(rc)) : 0;
}

static int open_kv(struct journal *j, const char *dir, struct err *err)
{
	const struct kv_options options = {
		.dir = dir,
		.backend = j->options.backend,
		.derived = j->options.derived,
		.freeze_bytes = j->options.freeze_bytes,
		.freeze_ms = j->options.freeze_ms,
		.room_bytes = j->options.room_bytes,
		.spare_bytes = j->options.room_bytes
			? 2 * (j->options.segment_bytes ? j->options.segment_bytes : WAL_SEGMENT_BYTES_DEFAULT)
			: 0,
		.on_fatal = part_failed,
		.ctx = j,
	};

	return kv_open(j->io, &options, &j->kv, &j->applied, err);
}

static int open_wal(struct journal *j, const char *dir, struct err *err)
{
	const struct wal_options options = {
		.dir = dir,
		.segment_bytes = j->options.segment_bytes,
		.buffered = j->options.buffered,
		.on_fatal = part_failed,
		.ctx = j,
	};
	int rc = wal_open(j->io, &options, j->applied + 1, replay, j, &j->wal, err);

	if (!rc && wal_next_index(j->wal) != j->applied + 1)
		rc = err_set(err, ERR_CORRUPT,
			"%s: the log ends at index %" PRIu64 ", but the table at %" PRIu64
			": one of them is from another time",
			dir, wal_next_index(j->wal) - 1, j->applied);
	return rc;
}

int journal_open(struct io *io, const struct journal_options *options, struct journal **ret_journal, struct err *err)
{
	struct journal *j = MEM_NEW(struct journal);
	char *log_dir = mem_printf("%s/log", options->dir), *kv_dir = mem_printf("%s/kv", options->dir);
	int rc;

	CHECK(options->entry_growth_bytes > 0 && options->entry_growth_bytes <= LIMIT_MEMTABLE_BYTES / 4);
	j->io = io;
	list_init(&j->waiting);
	io_turn_hook_init(&j->hook, run_hook);
	j->options = *options;
	j->options.dir = NULL; /* the caller's, only until we return */
	rc = make_dirs(io, options->dir, log_dir, kv_dir, err);
	if (!rc)
		rc = open_kv(j, kv_dir, err);
	if (!rc)
		rc = open_wal(j, log_dir, err);
	mem_free(log_dir);
	mem_free(kv_dir);
	if (rc) {
		if (j->wal)
			wal_abandon(j->wal);
		if (j->kv)
			kv_abandon(j->kv);
		mem_free(j);
		return rc;
	}
	*ret_journal = j;
	return 0;
}

void journal_abandon(struct journal *journal)
{
	CHECK(journal->in_log == 0 && list_empty(&journal->waiting));
	wal_abandon(journal->wal);
	kv_abandon(journal->kv);
	mem_free(journal);
}

int journal_settle(struct journal *journal, struct err *err)
{
	return kv_settle_all(journal->kv, err);
}

/* ---- entries ---- */

static void append_done(struct wal_append *append, int code)
{
	struct journal_entry *entry = CONTAINER_OF(append, struct journal_entry, append);
	struct journal *j = entry->journal;
	struct err err;
	int rc;

	j->in_log--;
	j->rows_in_log -= entry->rows;
	if (!list_empty(&j->waiting))
		io_at_turn_end(j->io, &j->hook);
	if (!code && j->failed)
		code = ERR_STOPPED;
	if (!code) {
		rc = apply(j, append->index, append->data, entry, &err);
		if (rc) {
			err_prefix(&err, "apply of index %" PRIu64, append->index);
			journal_fail(j, rc, err.text);
			code = rc;
		}
	}
	if (!code)
		wal_trim(j->wal, kv_trim_index(j->kv));
	entry->done(entry, code);
}

static void timer_done(struct io_op *op)
{
	struct journal *j = CONTAINER_OF(op, struct journal, timer);

	io_at_turn_end(j->io, &j->hook);
}

static struct journal_entry *first_waiting(struct journal *j)
{
	return CONTAINER_OF(LIST_ENTRY(list_pop_front(&j->waiting), struct wal_append, link), struct journal_entry, append);
}

/*
 * One that finds no room although it is alone is tried: the room is counted for the worst, and waiting would not make any. Snapshots make way first:
 * pages that they keep count as room only without them.
 */
static bool admits(const struct journal *j)
{
	const struct journal_entry *next =
		CONTAINER_OF(LIST_ENTRY(j->waiting.next, struct wal_append, link), struct journal_entry, append);

	if (kv_admits(j->kv, (j->in_log + 1) * j->options.entry_growth_bytes, j->rows_in_log + next->rows))
		return true;
	if (j->in_log || !kv_is_settled(j->kv))
		return false;
	kv_end_snapshots(j->kv);
	return true;
}

static void close_step(struct journal *j);

/* Admits what the table has room for. After a failure nothing is written any more. */
static void run_hook(struct io_turn_hook *hook)
{
	struct journal *j = CONTAINER_OF(hook, struct journal, hook);

	while (!list_empty(&j->waiting) && (j->failed || admits(j))) {
		struct journal_entry *entry = first_waiting(j);

		if (j->failed) {
			entry->done(entry, ERR_STOPPED);
		} else {
			j->in_log++;
			j->rows_in_log += entry->rows;
			wal_submit(j->wal, &entry->append);
		}
	}
	if (!list_empty(&j->waiting) && !io_pending(&j->timer)) {
		io_prep_timer(&j->timer, io_now_ns(j->io) + ROOM_RETRY_NS, timer_done);
		io_submit(j->io, &j->timer);
	}
	if (j->closing)
		close_step(j);
}

void journal_submit(struct journal *journal, struct journal_entry *entry)
{
	CHECK(!journal->closing);
	entry->journal = journal;
	entry->append.done = append_done;
	list_push_back(&journal->waiting, &entry->append.link);
	io_at_turn_end(journal->io, &journal->hook);
}

struct kv *journal_kv(struct journal *journal)
{
	return journal->kv;
}

uint64_t journal_applied_index(const struct journal *journal)
{
	return journal->applied;
}

uint64_t journal_epoch(const struct journal *journal)
{
	return wal_epoch(journal->wal);
}

/* ---- close ---- */

static void kv_closed(void *ctx, int code)
{
	struct journal *j = ctx;
	void (*closed)(void *ctx, int code) = j->closed;
	void *closed_ctx = j->closed_ctx;

	if (!j->failed)
		j->failed = code;
	code = j->failed;
	io_turn_hook_remove(j->io, &j->hook);
	mem_free(j);
	if (closed)
		closed(closed_ctx, code);
}

static void wal_closed(void *ctx, int code)
{
	struct journal *j = ctx;

	if (!j->failed)
		j->failed = code;
	j->wal = NULL;
	kv_close(j->kv, kv_closed, j);
}

/* What waits is admitted first. */
static void close_step(struct journal *j)
{
	if (!list_empty(&j->waiting) || io_pending(&j->timer))
		return;
	j->closing = false; /* the rest goes by callbacks */
	wal_close(j->wal, wal_closed, j);
}

void journal_close(struct journal *journal, void (*closed)(void *ctx, int code), void *ctx)
{
	CHECK(!journal->closing);
	journal->closing = true;
	journal->closed = closed;
	journal->closed_ctx = ctx;
	if (io_pending(&journal->timer))
		io_cancel(journal->io, &journal->timer);
	io_at_turn_end(journal->io, &journal->hook);
}
