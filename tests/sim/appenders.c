// SPDX-License-Identifier: Apache-2.0
/*
 * appenders: see the header. A worker is resting or at one of two jobs, with one operation under way:
 *
 *     append:  open (the file is his from here on) -> { write | fsync | pause }... -> close, or abort: given up, or somebody else has it
 *     look:    open -> read whole -> close
 *
 * A tenure is one worker's time with a file, from his open on. Its bytes follow from its number and the offset. Who opened a file without
 * ever hearing of it has no tenure that could write: all that it can do is to fence others.
 */
#include "tests/sim/appenders.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "tests/sim/workload.h"

enum {
	FILES = 2,
	STEPS_MAX = 5,
	SMALL_BYTES = 24 << 10,
	LARGE_BYTES = 700 << 10, /* several blocks */
	FULL_BYTES = 256 << 10,  /* then another file takes its place */
	FILE_BYTES = 2 << 20,
	PAUSE_MS = 400,
	STEP_PAUSE_MS = 150,
};

struct tenure {
	uint64_t content;
	uint64_t opening, opened;    /* ticks; opened 0: not known to be */
	uint64_t base, sent, synced; /* of the file: as it was found; written and acknowledged up to here */
};

struct appended {
	char path[CHECKER_PATH_BYTES];
	struct tenure *tenures;
	size_t count, cap;
	uint64_t most; /* that any of them has sent */
};

struct appender {
	struct crew_worker base;
	struct appended *file;
	size_t tenure;
	unsigned steps;
	uint64_t least, size; /* of the look: acknowledged when it began; found */
	uint8_t *buf;
};

struct appenders {
	struct crew crew;
	uint64_t next_id;
	struct appended **files; /* the last FILES of them are still written */
	size_t file_count;
	struct appender workers[CREW_WORKERS];
};

static struct appenders *appenders_of(struct appender *k)
{
	return CONTAINER_OF(k->base.crew, struct appenders, crew);
}

static struct appender *worker_of(struct client_op *op)
{
	return CONTAINER_OF(crew_worker_of(op), struct appender, base);
}

static void step(struct appender *k);

/* ---- judging ---- */

static struct tenure *mine(struct appender *k)
{
	return &k->file->tenures[k->tenure];
}

static uint64_t acknowledged(const struct appended *f)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < f->count; i++)
		bytes = f->tenures[i].synced > bytes ? f->tenures[i].synced : bytes;
	return bytes;
}

static bool is_after(const struct tenure *later, const struct tenure *t)
{
	return t->opened && later->opened && t->opened < later->opening;
}

/* 1 and 2, for all that is known of two tenures: in whatever order the answers came. */
static void judge_pair(struct cluster *c, const struct appended *f, const struct tenure *t, const struct tenure *later)
{
	bool both = t->synced > t->base && later->synced > later->base;

	if (is_after(later, t) && t->synced > later->base)
		cluster_fail(c,
			"%s: %llu bytes were acknowledged to a writer; who took the file over from it had found %llu",
			f->path, (unsigned long long)t->synced, (unsigned long long)later->base);
	else if (both && t->synced > later->base && later->synced > t->base)
		cluster_fail(c,
			"%s: bytes %llu to %llu were acknowledged to a writer, %llu to %llu to another one, who had it at the same time",
			f->path, (unsigned long long)t->base, (unsigned long long)t->synced,
			(unsigned long long)later->base, (unsigned long long)later->synced);
}

static void judge(struct appender *k)
{
	for (size_t i = 0; i < k->file->count; i++) {
		if (i == k->tenure)
			continue;
		judge_pair(k->base.crew->cluster, k->file, &k->file->tenures[i], mine(k));
		judge_pair(k->base.crew->cluster, k->file, mine(k), &k->file->tenures[i]);
	}
}

/* May somebody else have taken it over? */
static bool may_be_fenced(struct appender *k)
{
	for (size_t i = 0; i < k->file->count; i++)
		if (i != k->tenure && (!k->file->tenures[i].opened || k->file->tenures[i].opened > mine(k)->opening))
			return true;
	return false;
}

static int by_base(const void *va, const void *vb)
{
	const struct tenure *a = va, *b = vb;

	return a->base < b->base ? -1 : a->base > b->base;
}

/* Whose bytes are they? One of those that found the file ending at `from`. */
static bool is_somebodys(const struct tenure *t, size_t count, uint64_t from, uint64_t to, const uint8_t *buf)
{
	for (size_t i = 0; i < count; i++)
		if (t[i].opened && t[i].base == from && t[i].sent >= to &&
			content_matches((struct content){t[i].content, to}, from, buf + from, to - from))
			return true;
	return false;
}

/* 3 */
static void found(struct appender *k, uint64_t got)
{
	const struct appended *f = k->file;
	struct tenure *sorted;
	uint64_t from = 0;

	if (got < k->size || got < k->least || got > f->most) {
		cluster_fail(k->base.crew->cluster,
			"%s: %llu bytes were read; it had %llu, of which %llu acknowledged, of %llu sent", f->path,
			(unsigned long long)got, (unsigned long long)k->size, (unsigned long long)k->least,
			(unsigned long long)f->most);
		return;
	}
	sorted = mem_array(f->count + 1, sizeof(*sorted));
	memcpy(sorted, f->tenures, f->count * sizeof(*sorted));
	qsort(sorted, f->count, sizeof(*sorted), by_base);
	for (size_t i = 0; i <= f->count && from < got; i++) {
		uint64_t to = i < f->count && sorted[i].base < got ? sorted[i].base : got;

		if (i < f->count && (!sorted[i].opened || to <= from))
			continue;
		if (!is_somebodys(sorted, f->count, from, to, k->buf))
			cluster_fail(k->base.crew->cluster,
				"%s: bytes %llu to %llu of %llu are not those of the writer who had it then", f->path,
				(unsigned long long)from, (unsigned long long)to, (unsigned long long)got);
		from = to;
	}
	mem_free(sorted);
}

/* ---- operations ---- */

static void failed(struct appender *k, const struct client_op *op, bool may_be_fence)
{
	const struct crew *crew = k->base.crew;
	bool is_fence = op->err.code == ERR_FENCED || op->err.code == ERR_STALE;

	if (may_be_fence && is_fence && may_be_fenced(k)) {
		SOMETIMES(sim_writer_fenced);
		return;
	}
	if (crew->strict || crew->looking || (workload_is_verdict(op->err.code) && !crew->cluster->failed))
		crew_fail(&k->base, k->file->path, op);
}

static void finish(struct appender *k, const char *what, int code)
{
	crew_finish(&k->base, what, k->file->path, code);
}

/* ---- append ---- */

static void append_ended(struct client_op *op)
{
	struct appender *k = worker_of(op);

	k->base.handle = NULL;
	if (op->kind == CLIENT_CLOSE && op->err.code == 0) {
		mine(k)->synced = mine(k)->sent;
		judge(k);
	} else if (op->kind == CLIENT_CLOSE) {
		failed(k, op, true);
	}
	finish(k, op->kind == CLIENT_CLOSE ? "append" : "append-given-up", op->err.code);
}

static void append_end(struct appender *k, enum client_op_kind kind)
{
	crew_clear(&k->base);
	crew_start(&k->base, kind, append_ended);
}

static void append_stepped(struct client_op *op)
{
	struct appender *k = worker_of(op);

	if (op->err.code < 0) {
		failed(k, op, true);
		append_end(k, CLIENT_ABORT);
		return;
	}
	if (op->kind == CLIENT_FSYNC) {
		mine(k)->synced = mine(k)->sent;
		judge(k);
	}
	step(k);
}

static void paused(struct io_op *op)
{
	step(CONTAINER_OF(op, struct appender, base.pause));
}

static void append_write(struct appender *k)
{
	struct tenure *t = mine(k);
	uint64_t bytes = rng_between(&k->base.rng, 1, rng_chance(&k->base.rng, 1, 20) ? LARGE_BYTES : SMALL_BYTES);

	if (t->sent + bytes > FILE_BYTES)
		bytes = FILE_BYTES - t->sent;
	content_fill((struct content){t->content, t->sent + bytes}, t->sent, k->buf, bytes);
	crew_clear(&k->base);
	k->base.op.flags = CLIENT_WRITE_COPY;
	k->base.op.buf = k->buf;
	k->base.op.len = bytes;
	k->base.op.offset = t->sent;
	t->sent += bytes;
	if (t->sent > k->file->most)
		k->file->most = t->sent;
	crew_start(&k->base, CLIENT_WRITE, append_stepped);
}

static void step(struct appender *k)
{
	if (k->steps-- == 0) {
		append_end(k, rng_chance(&k->base.rng, 4, 5) ? CLIENT_CLOSE : CLIENT_ABORT);
		return;
	}
	switch (rng_below(&k->base.rng, 4)) {
	case 0:
		crew_pause(&k->base, STEP_PAUSE_MS, paused);
		break;
	case 1:
		crew_clear(&k->base);
		crew_start(&k->base, CLIENT_FSYNC, append_stepped);
		break;
	default:
		append_write(k);
	}
}

static bool is_taken_over(struct appender *k)
{
	for (unsigned i = 0; i < CREW_WORKERS; i++) {
		const struct appender *o = &appenders_of(k)->workers[i];

		if (o != k && o->base.active && o->file == k->file && o->base.handle && o->tenure != SIZE_MAX)
			return true;
	}
	return false;
}

static void append_opened(struct client_op *op)
{
	struct appender *k = worker_of(op);
	struct tenure *t = mine(k);

	if (op->err.code < 0) {
		failed(k, op, true);
		finish(k, "append", op->err.code);
		return;
	}
	if (is_taken_over(k))
		SOMETIMES(sim_file_taken_over);
	k->base.handle = op->ret_file;
	t->opened = ++k->base.crew->tick;
	t->base = t->sent = t->synced = op->attr.size;
	if (t->base > k->file->most)
		cluster_fail(k->base.crew->cluster, "%s has %llu bytes: only %llu were ever sent", k->file->path,
			(unsigned long long)t->base, (unsigned long long)k->file->most);
	judge(k);
	k->steps = (unsigned)rng_between(&k->base.rng, 1, STEPS_MAX);
	step(k);
}

static void append(struct appender *k)
{
	struct appended *f = k->file;

	if (f->count == f->cap) {
		f->cap = f->cap ? 2 * f->cap : 32;
		f->tenures = mem_realloc(f->tenures, f->cap * sizeof(f->tenures[0]));
	}
	k->tenure = f->count++;
	*mine(k) = (struct tenure){.content = appenders_of(k)->next_id++, .opening = ++k->base.crew->tick};
	k->base.op.path = f->path;
	k->base.op.flags = CR_WRITE | CR_APPEND;
	k->base.op.mode = 0644;
	crew_start(&k->base, CLIENT_OPEN, append_opened);
}

/* ---- look ---- */

static void look_closed(struct client_op *op)
{
	struct appender *k = worker_of(op);

	k->base.handle = NULL;
	finish(k, "look", op->err.code);
}

static void look_read(struct client_op *op)
{
	struct appender *k = worker_of(op);

	if (op->err.code == 0)
		found(k, op->count);
	else
		failed(k, op, false);
	crew_clear(&k->base);
	crew_start(&k->base, CLIENT_CLOSE, look_closed);
}

static void look_opened(struct client_op *op)
{
	struct appender *k = worker_of(op);

	if (op->err.code < 0) {
		if (op->err.code != ERR_NOENT || k->least)
			failed(k, op, false);
		finish(k, "look", op->err.code);
		return;
	}
	k->base.handle = op->ret_file;
	k->size = op->attr.size;
	crew_clear(&k->base);
	k->base.op.buf = k->buf;
	k->base.op.len = FILE_BYTES;
	crew_start(&k->base, CLIENT_READ, look_read);
}

static void look(struct appender *k)
{
	k->tenure = SIZE_MAX;
	k->least = acknowledged(k->file);
	k->base.op.path = k->file->path;
	k->base.op.flags = CR_READ;
	crew_start(&k->base, CLIENT_OPEN, look_opened);
}

/* ---- which ---- */

static void add_file(struct appenders *a)
{
	struct appended *f = MEM_NEW(struct appended);

	snprintf(f->path, sizeof(f->path), "/a%zu", a->file_count);
	a->files = mem_realloc(a->files, (a->file_count + 1) * sizeof(struct appended *));
	a->files[a->file_count++] = f;
}

/* One of those that are written; one that is full is written by nobody who comes now. */
static struct appended *some_file(struct appender *k)
{
	struct appenders *a = appenders_of(k);
	size_t at = a->file_count - 1 - rng_below(&k->base.rng, FILES);
	struct appended *f = a->files[at];

	if (f->most < FULL_BYTES)
		return f;
	a->files[at] = a->files[a->file_count - FILES]; /* the last ones are the ones that are written */
	a->files[a->file_count - FILES] = f;
	add_file(a);
	return a->files[a->file_count - 1];
}

static void act(struct crew_worker *w, size_t at)
{
	struct appender *k = CONTAINER_OF(w, struct appender, base);

	k->file = w->crew->looking ? appenders_of(k)->files[at] : some_file(k);
	if (w->crew->looking || rng_chance(&w->rng, 1, 4))
		look(k);
	else
		append(k);
}

/* ---- life ---- */

static size_t things(const struct crew *crew)
{
	return CONTAINER_OF(crew, struct appenders, crew)->file_count;
}

static void appenders_free(struct crew *crew)
{
	struct appenders *a = CONTAINER_OF(crew, struct appenders, crew);

	for (size_t i = 0; i < a->file_count; i++) {
		mem_free(a->files[i]->tenures);
		mem_free(a->files[i]);
	}
	for (unsigned i = 0; i < CREW_WORKERS; i++)
		mem_free(a->workers[i].buf);
	mem_free(a->files);
	mem_free(a);
}

static const struct crew_kind kind = {
	.letter = 'a', .salt = 0x617070, .pause_ms = PAUSE_MS, .act = act, .things = things, .free = appenders_free};

struct crew *appenders_new(struct cluster *cluster, uint64_t seed, bool strict)
{
	struct appenders *a = MEM_NEW(struct appenders);

	a->next_id = (uint64_t)2 << 32; /* those of nobody else */
	for (unsigned i = 0; i < FILES; i++)
		add_file(a);
	for (unsigned i = 0; i < CREW_WORKERS; i++) {
		a->crew.workers[i] = &a->workers[i].base;
		a->workers[i].buf = mem_alloc(FILE_BYTES);
	}
	crew_init(&a->crew, &kind, cluster, seed, strict);
	return &a->crew;
}
