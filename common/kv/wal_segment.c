/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segment files: made, recycled and removed off the data path.
 *
 * A segment that the trim index has passed is renamed to the next free number as it is: its old frames carry its old number, an
 * old nonce and another predecessor, so nothing in it can be taken for log. Where there is none, wal_make.c makes one.
 *
 * A segment that is removed:
 *
 *     log-N --rename, directory synced--> log-gone-N --cut by WAL_STEP_BYTES, synced, a pause; again--> empty --> unlinked
 *
 * in steps, for a file system that discards what is freed (ext4 does, with the commit of its journal, or at once if it has none) makes the
 * disk do so in one go, during which it may end no write of anybody: 100 to 250 ms were seen for 65 to 120 MiB, not always. The sync of a step is
 * for that alone: with it each step has its own commit, and without it all would wait for the same one. The new name comes first and is
 * durable before anything is cut, so that a file with a segment's name is still always complete; "log-gone-N" is longer than such a name,
 * so that no build takes it for one, and says whose it was. Its number is not missed: it was the lowest one. One is removed at a time; the others
 * may be used again meanwhile. What a crash or a close leaves goes on at the next open, before any other is renamed.
 *
 * When the segment written to is filled by a quarter and no ready one waits, jobs on IO_LANE_FILE make one ready. If they are out of
 * space, entries wait, and so does a restart: a trim, or somebody else, may give some; after WAL_SPACE_WAIT_MS it is
 * fatal. Any other failure is fatal at once. One that is half made waits while another can be used again.
 */
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/kv/wal_private.h"
#include <inttypes.h>
#include <stdio.h>

enum {
	NUMBER_CHARS = 16,
	SEGMENTS_MAX = 4096, /* 256 GiB of log by the default size: beyond it the directory is not ours */
};
static const char gone_prefix[] = "log-gone-";

void wal__segment_path(const struct wal *wal, uint64_t number, char path[WAL_PATH_BYTES])
{
	int n = snprintf(path, WAL_PATH_BYTES, "%s/log-%016" PRIx64, wal->dir, number);

	CHECK(n > 0 && n < WAL_PATH_BYTES);
}

static void gone_path(const struct wal *wal, uint64_t number, char path[WAL_PATH_BYTES])
{
	int n = snprintf(path, WAL_PATH_BYTES, "%s/%s%016" PRIx64, wal->dir, gone_prefix, number);

	CHECK(n > 0 && n < WAL_PATH_BYTES);
}

struct wal_segment *wal__last_live(const struct wal *wal)
{
	CHECK(!list_empty(&wal->live));
	return LIST_ENTRY(wal->live.prev, struct wal_segment, link);
}

static struct wal_segment *segment_new(uint64_t number, int fd)
{
	struct wal_segment *s = MEM_NEW(struct wal_segment);

	s->number = number;
	s->fd = fd;
	list_init(&s->link);
	return s;
}

static void segment_free(struct wal *wal, struct wal_segment *s)
{
	if (list_linked(&s->link))
		list_remove(&s->link);
	if (s->fd >= 0)
		io_close(wal->io, s->fd);
	mem_free(s);
}

static void segments_free(struct wal *wal, struct list *list)
{
	while (!list_empty(list))
		segment_free(wal, LIST_ENTRY(list->next, struct wal_segment, link));
}

void wal__segments_close(struct wal *wal)
{
	segments_free(wal, &wal->live);
	segments_free(wal, &wal->ready);
	segments_free(wal, &wal->obsolete);
	segments_free(wal, &wal->gone);
	if (wal->making)
		segment_free(wal, wal->making);
	wal->making = NULL;
}

/* The prefix and 16 lower-case hex digits; other names are not ours. */
static bool parse_name(const char *name, const char *prefix, uint64_t *ret_number)
{
	size_t prefix_chars = strlen(prefix);
	uint64_t number = 0;

	if (strlen(name) != prefix_chars + NUMBER_CHARS || memcmp(name, prefix, prefix_chars) != 0)
		return false;
	for (const char *p = name + prefix_chars; *p; p++) {
		if (*p >= '0' && *p <= '9')
			number = number << 4 | (uint64_t)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			number = number << 4 | (uint64_t)(*p - 'a' + 10);
		else
			return false;
	}
	*ret_number = number;
	return number > 0 && number < UINT64_MAX;
}

struct segment_scan {
	struct wal *wal;
	uint32_t count;
};

static int collect_name(void *ctx, const char *name)
{
	struct segment_scan *scan = ctx;
	struct wal *wal = scan->wal;
	struct list *found = &wal->live;
	uint64_t number;

	if (parse_name(name, gone_prefix, &number))
		found = &wal->gone;
	else if (!parse_name(name, "log-", &number))
		return 0;
	if (++scan->count > SEGMENTS_MAX)
		return ERR_MFILE;
	/* names come in byte order, which is the order of numbers */
	list_push_back(found, &segment_new(number, -1)->link);
	return 0;
}

int wal__segments_open(struct wal *wal, uint64_t *ret_bytes, struct err *err)
{
	struct segment_scan scan = {.wal = wal};
	char path[WAL_PATH_BYTES];
	uint64_t bytes = 0, size;
	int rc;

	rc = io_list_dir(wal->io, wal->dir, collect_name, &scan);
	if (rc)
		return err_set(err, rc, "%s: cannot list the log's directory: %s", wal->dir, err_text(rc));
	LIST_FOREACH(it, &wal->live) {
		struct wal_segment *s = LIST_ENTRY(it, struct wal_segment, link);

		wal__segment_path(wal, s->number, path);
		rc = io_open(wal->io, path, wal->open_flags, 0, &s->fd);
		if (rc)
			return err_set(err, rc, "%s: cannot open: %s", path, err_text(rc));
		rc = io_size(wal->io, s->fd, &size);
		if (rc)
			return err_set(err, rc, "%s: cannot tell its size: %s", path, err_text(rc));
		if (bytes == 0)
			bytes = size;
		if (size != bytes || size < WAL_SEGMENT_BYTES_MIN || size % WAL_FRAME_ALIGN)
			return err_set(err, ERR_CORRUPT,
				"%s: has %" PRIu64
				" bytes, not the log's segment size: the file was cut or is not ours",
				path, size);
	}
	*ret_bytes = bytes;
	/* A daemon that was killed behind a rename leaves names that are seen and not durable: nothing may rest on them yet. */
	rc = list_empty(&wal->live) && list_empty(&wal->gone) ? 0 : io_sync_dir(wal->io, wal->dir);
	return rc ? err_set(err, rc, "%s: cannot sync the log's directory: %s", wal->dir, err_text(rc)) : 0;
}

/* Blocking. A complete segment `number`, durable under its name; NULL if that failed. */
static struct wal_segment *make_now(struct wal *wal, uint64_t number, const uint8_t *first, size_t first_bytes, int *ret_rc)
{
	struct wal_segment *s = segment_new(0, -1);
	int rc;

	do
		rc = wal__make_step(wal, s, WAL_MAKE_STEP_BYTES, first, first_bytes);
	while (!rc && !wal__made(wal, s));
	if (!rc)
		rc = wal__make_named(wal, s, number);
	*ret_rc = rc;
	if (!rc)
		return s;
	segment_free(wal, s);
	return NULL;
}

int wal__segment_first(struct wal *wal, const uint8_t *frame, size_t frame_bytes, struct err *err)
{
	int rc;
	struct wal_segment *s = make_now(wal, 1, frame, frame_bytes, &rc);

	if (!s)
		return err_set(err, rc, "%s: cannot create the log (segments of %" PRIu64 " bytes): %s", wal->dir,
			wal->segment_bytes, err_text(rc));
	list_push_back(&wal->live, &s->link);
	return 0;
}

/* Numbers go on behind the last one that any file has. */
static uint64_t next_number(const struct wal *wal)
{
	const struct list *last = list_empty(&wal->ready) ? &wal->live : &wal->ready;

	return LIST_ENTRY(last->prev, struct wal_segment, link)->number + 1;
}

int wal__segment_ready_now(struct wal *wal, struct err *err)
{
	struct wal_segment *s;
	int rc;

	if (!list_empty(&wal->ready))
		return 0;
	s = make_now(wal, next_number(wal), NULL, 0, &rc);
	if (!s)
		return err_set(err, rc, "%s: cannot create a segment of %" PRIu64 " bytes: %s", wal->dir,
			wal->segment_bytes, err_text(rc));
	list_push_back(&wal->ready, &s->link);
	return 0;
}

bool wal__segment_advance(struct wal *wal)
{
	uint64_t last_index = wal__last_live(wal)->last_index;
	struct list *next = list_pop_front(&wal->ready);
	struct wal_segment *s;

	if (!next)
		return false;
	s = LIST_ENTRY(next, struct wal_segment, link);
	CHECK(s->number == wal__last_live(wal)->number + 1);
	s->last_index = last_index;
	list_push_back(&wal->live, next);
	wal->offset = 0;
	wal__make_from(wal);
	wal->blocked_since_ns = 0;
	return true;
}

static void retire_first(struct wal *wal)
{
	struct list *s = list_pop_front(&wal->live);

	list_push_back(&wal->obsolete, s);
	wal->obsolete_count++;
}

/* Looks again whenever something became durable: the index may have been passed before the frames behind it were. */
void wal__segment_trim(struct wal *wal)
{
	uint64_t index = wal->group ? wal__group_trim_index(wal) : wal->trim_index;
	struct wal_segment *s;

	if (wal->group && wal->group->restart)
		return; /* until it is done the log is still the old one, and the index says nothing of that */
	for (;;) {
		s = LIST_ENTRY(wal->live.next, struct wal_segment, link);
		/* the first live segment always holds a durable frame: the next open finds the log's start by it */
		if (s->number >= wal->durable_segment || s->last_index > index)
			return;
		retire_first(wal);
		if (wal->group)
			wal__group_trimmed(wal);
		else if (wal->first_index <= s->last_index)
			wal->first_index = s->last_index + 1;
	}
}

void wal__segments_discard(struct wal *wal, uint64_t number)
{
	while (!list_empty(&wal->live) && LIST_ENTRY(wal->live.next, struct wal_segment, link)->number < number)
		retire_first(wal);
}

struct wal_segment *wal__segment_next(struct wal *wal)
{
	struct list *ready = list_pop_front(&wal->ready);

	return ready ? LIST_ENTRY(ready, struct wal_segment, link) : NULL;
}

int wal__segment_begin(struct wal *wal, struct wal_segment *segment, const uint8_t *frame, size_t frame_bytes)
{
	int64_t n = io_pwrite(wal->io, segment->fd, frame, frame_bytes, 0);

	return n < 0 ? (int)n : io_fdatasync(wal->io, segment->fd);
}

void wal__segment_begun(struct wal *wal, struct wal_segment *segment)
{
	while (!list_empty(&wal->live))
		retire_first(wal);
	list_push_back(&wal->live, &segment->link);
	wal__make_from(wal);
}

void wal__segment_free(struct wal *wal, struct wal_segment *segment)
{
	segment_free(wal, segment);
}

/* Blocking. To the number that it serves under next, or to the name under which it is cut; durable. */
static int rename_away(struct wal *wal, const struct wal_job *job)
{
	char from[WAL_PATH_BYTES], to[WAL_PATH_BYTES];
	int rc;

	wal__segment_path(wal, job->segment->number, from);
	if (job->kind == WAL_JOB_RECYCLE) {
		SOMETIMES(wal_segment_recycled);
		wal__segment_path(wal, job->number, to);
	} else {
		SOMETIMES(wal_segment_removed);
		gone_path(wal, job->number, to);
	}
	rc = io_rename(wal->io, from, to);
	return rc ? rc : io_sync_dir(wal->io, wal->dir);
}

/* Blocking. Takes a step from the end of a file that is not a segment any more. The last one leaves nothing that its close would free on the loop. */
static int cut(struct wal *wal, struct wal_segment *s, bool *ret_removed)
{
	char path[WAL_PATH_BYTES];
	uint64_t bytes = 0;
	int rc = 0;

	gone_path(wal, s->number, path);
	if (s->fd < 0)
		rc = io_open(wal->io, path, IO_OPEN_WRITE, 0, &s->fd);
	if (!rc)
		rc = io_size(wal->io, s->fd, &bytes);
	bytes = bytes > WAL_STEP_BYTES ? bytes - WAL_STEP_BYTES : 0;
	if (!rc)
		rc = io_truncate(wal->io, s->fd, bytes);
	if (!rc)
		rc = io_fdatasync(wal->io, s->fd);
	if (!rc && bytes == 0)
		rc = io_unlink(wal->io, path);
	*ret_removed = rc == ERR_NOENT || (!rc && bytes == 0);
	return rc == ERR_NOENT ? 0 : rc; /* somebody was quicker */
}

/* Blocking. A step; the last one gives it its name. */
static int make(struct wal *wal, const struct wal_job *job)
{
	int rc = wal__make_step(wal, job->segment, job->step_bytes, NULL, 0);

	if (rc || !wal__made(wal, job->segment))
		return rc;
	rc = wal__make_named(wal, job->segment, job->number);
	return rc == ERR_NOENT && job->segment->fd < 0 ? 0 : rc; /* somebody has removed it: it is made anew */
}

static void job_run(struct io_op *op)
{
	struct wal_job *job = CONTAINER_OF(op, struct wal_job, op);
	struct wal *wal = job->wal;

	if (job->kind == WAL_JOB_MAKE)
		job->result = make(wal, job);
	else if (job->kind == WAL_JOB_CUT)
		job->result = cut(wal, job->segment, &job->removed);
	else
		job->result = rename_away(wal, job);
}

static void job_failed(struct wal *wal, const struct wal_job *job)
{
	static const char *const what[] = {"make", "recycle", "remove", "remove"};
	char text[ERR_TEXT_BYTES];
	uint64_t now = io_now_ns(wal->io);

	if (job->result == ERR_NOSPC && job->kind == WAL_JOB_MAKE &&
		(!wal->blocked_since_ns || now - wal->blocked_since_ns < WAL_SPACE_WAIT_MS * 1000000ull)) {
		wal->space_retry = true;
		return;
	}
	snprintf(text, sizeof(text), "%.300s: cannot %s log segment %" PRIu64 ": %s", wal->dir, what[job->kind],
		job->number, err_text(job->result));
	wal__fail(wal, job->result, text);
}

static void pause_done(struct io_op *op)
{
	wal__kick(CONTAINER_OF(op, struct wal, pause));
}

static void pause_start(struct wal *wal)
{
	io_prep_timer(&wal->pause, io_now_ns(wal->io) + WAL_STEP_PAUSE_MS * 1000000ull, pause_done);
	io_submit(wal->io, &wal->pause);
}

static void job_done(struct io_op *op)
{
	struct wal_job *job = CONTAINER_OF(op, struct wal_job, op);
	struct wal *wal = job->wal;
	struct wal_segment *s = job->segment;
	int rc = op->result < 0 ? (int)op->result : job->result;

	job->result = rc;
	wal->job_running = false;
	if (rc || (job->kind == WAL_JOB_CUT && job->removed)) {
		segment_free(wal, s);
	} else if (job->kind == WAL_JOB_REMOVE || job->kind == WAL_JOB_CUT) {
		list_push_front(&wal->gone, &s->link);
	} else if (job->kind == WAL_JOB_MAKE && !wal__made(wal, s)) {
		wal->making = s;
	} else {
		s->number = job->number;
		list_push_back(&wal->ready, &s->link);
	}
	if (!rc && (job->kind == WAL_JOB_MAKE || job->kind == WAL_JOB_RECYCLE))
		wal->space_retry = false;
	job->segment = NULL;
	if (!rc && job->kind == WAL_JOB_CUT)
		pause_start(wal);
	if (rc)
		job_failed(wal, job);
	wal__kick(wal);
}

static struct wal_segment *job_segment(struct wal *wal, enum wal_job_kind kind)
{
	struct wal_segment *making = wal->making;

	if (kind == WAL_JOB_MAKE) {
		wal->making = NULL;
		return making ? making : segment_new(0, -1);
	}
	if (kind == WAL_JOB_CUT)
		return LIST_ENTRY(list_pop_front(&wal->gone), struct wal_segment, link);
	wal->obsolete_count--;
	return LIST_ENTRY(list_pop_front(&wal->obsolete), struct wal_segment, link);
}

static void job_start(struct wal *wal, enum wal_job_kind kind)
{
	bool leaves = kind == WAL_JOB_REMOVE || kind == WAL_JOB_CUT;
	struct wal_job *job = &wal->job;

	job->wal = wal;
	job->kind = kind;
	job->segment = job_segment(wal, kind);
	job->number = leaves ? job->segment->number : next_number(wal);
	wal->job_running = true;
	io_prep_offload(&job->op, IO_LANE_FILE, job_run, job_done);
	io_submit(wal->io, &job->op);
}

static void make_start(struct wal *wal, uint32_t step_bytes)
{
	wal->job.step_bytes = step_bytes;
	job_start(wal, WAL_JOB_MAKE);
}

/* The oldest that waits, unless somebody reads from it. */
static bool can_leave(const struct wal *wal)
{
	return !list_empty(&wal->obsolete) && LIST_ENTRY(wal->obsolete.next, struct wal_segment, link)->readers == 0;
}

/* One file after the other; a step when the disk has had its pause. */
static void remove_some(struct wal *wal)
{
	if (list_empty(&wal->gone)) {
		if (wal->obsolete_count > WAL_OBSOLETE_MAX && can_leave(wal))
			job_start(wal, WAL_JOB_REMOVE);
	} else if (!io_pending(&wal->pause)) {
		job_start(wal, WAL_JOB_CUT);
	}
}

/* Bytes of a new segment's next step, when the log has come so far, or waits for it; 0: not now. */
static uint32_t step_due(const struct wal *wal)
{
	uint64_t made = wal->making ? wal->making->made_bytes : 0, due = wal__make_due(wal->offset, wal->make_from, wal->segment_bytes);

	if (wal->space_retry && io_pending(&wal->timer))
		return 0;
	if (wal->blocked_since_ns)
		return WAL_MAKE_STEP_BYTES;
	return made < due ? wal__make_step_bytes(made, due) : 0;
}

void wal__segment_work(struct wal *wal)
{
	bool wanted = list_empty(&wal->ready) && (wal->blocked_since_ns || !wal->closing);

	if (wal->group && wal->group->op_segment)
		return; /* a restart has the segments for itself */
	wal__segment_trim(wal);
	if (wal->job_running || wal->failed)
		return;
	if (wanted && (wal->blocked_since_ns || wal->offset > wal->segment_bytes / 4) && can_leave(wal))
		job_start(wal, WAL_JOB_RECYCLE);
	else if (wanted && step_due(wal))
		make_start(wal, step_due(wal));
	else if (!wal->closing)
		remove_some(wal);
}
