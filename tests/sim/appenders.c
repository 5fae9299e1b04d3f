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
	WORKERS = 3,
	FILES = 2,
	STEPS_MAX = 5,
	SMALL_BYTES = 24 << 10,
	LARGE_BYTES = 700 << 10, /* several blocks */
	FULL_BYTES = 256 << 10,  /* then another file takes its place */
	FILE_BYTES = 2 << 20,
	PAUSE_MS = 400,
	STEP_PAUSE_MS = 150,
	LULL_PAUSE_MS = 20000,
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
	struct appenders *a;
	unsigned number, node;
	struct rng rng;
	struct io_op pause;
	struct client_op op;
	bool active;
	struct appended *file;
	size_t tenure;
	unsigned steps;
	struct client_file *handle;
	uint64_t least, size; /* of the look: acknowledged when it began; found */
	uint8_t *buf;
};

struct appenders {
	struct cluster *cluster;
	bool strict, stopped, looking;
	uint64_t lull_ns; /* until when operations are rare */
	size_t look;
	uint64_t tick, next_id, count;
	struct appended **files; /* the last FILES of them are still written */
	size_t file_count;
	struct appender workers[WORKERS];
};

static void rest(struct appender *k);
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
static void judge_pair(
	struct appenders *a, const struct appended *f, const struct tenure *t, const struct tenure *later)
{
	bool both = t->synced > t->base && later->synced > later->base;

	if (is_after(later, t) && t->synced > later->base)
		cluster_fail(a->cluster,
			"%s: %llu bytes were acknowledged to a writer; who took the file over from it had found %llu",
			f->path, (unsigned long long)t->synced, (unsigned long long)later->base);
	else if (both && t->synced > later->base && later->synced > t->base)
		cluster_fail(a->cluster,
			"%s: bytes %llu to %llu were acknowledged to a writer, %llu to %llu to another one, who had it at the same time",
			f->path, (unsigned long long)t->base, (unsigned long long)t->synced,
			(unsigned long long)later->base, (unsigned long long)later->synced);
}

static void judge(struct appender *k)
{
	for (size_t i = 0; i < k->file->count; i++) {
		if (i == k->tenure)
			continue;
		judge_pair(k->a, k->file, &k->file->tenures[i], mine(k));
		judge_pair(k->a, k->file, mine(k), &k->file->tenures[i]);
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
		cluster_fail(k->a->cluster,
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
			cluster_fail(k->a->cluster,
				"%s: bytes %llu to %llu of %llu are not those of the writer who had it then", f->path,
				(unsigned long long)from, (unsigned long long)to, (unsigned long long)got);
		from = to;
	}
	mem_free(sorted);
}

/* ---- operations ---- */

static void start_op(struct appender *k, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	k->op.kind = kind;
	k->op.file = k->handle;
	k->op.done = done;
	k->op.user = k;
	cluster_client_start(k->a->cluster, k->node, &k->op);
}

static void clear(struct appender *k)
{
	memset(&k->op, 0, sizeof(k->op));
}

static void failed(struct appender *k, const struct client_op *op, bool may_be_fence)
{
	bool is_fence = op->err.code == ERR_FENCED || op->err.code == ERR_STALE;

	if (may_be_fence && is_fence && may_be_fenced(k)) {
		SOMETIMES(sim_writer_fenced);
		return;
	}
	if (k->a->strict || k->a->looking || (workload_is_verdict(op->err.code) && !k->a->cluster->failed))
		cluster_fail(k->a->cluster, "%s of %s failed: %s: %s", workload_op_name(op->kind), k->file->path,
			err_name(op->err.code), op->err.text);
}

static void finish(struct appender *k, const char *what, int code)
{
	cluster_note(k->a->cluster, "a%u %s %s: %s", k->number, what, k->file->path, code < 0 ? err_name(code) : "ok");
	k->active = false;
	k->a->count++;
	rest(k);
}

static void pause_for(struct appender *k, uint64_t most_ms, void (*done)(struct io_op *op))
{
	struct io *io = k->a->cluster->nodes[k->node].io;

	io_prep_timer(&k->pause, io_now_ns(io) + rng_below(&k->rng, most_ms * CLUSTER_MS), done);
	io_submit(io, &k->pause);
}

/* ---- append ---- */

static void append_ended(struct client_op *op)
{
	struct appender *k = op->user;

	k->handle = NULL;
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
	clear(k);
	start_op(k, kind, append_ended);
}

static void append_stepped(struct client_op *op)
{
	struct appender *k = op->user;

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
	step(CONTAINER_OF(op, struct appender, pause));
}

static void append_write(struct appender *k)
{
	struct tenure *t = mine(k);
	uint64_t bytes = rng_between(&k->rng, 1, rng_chance(&k->rng, 1, 20) ? LARGE_BYTES : SMALL_BYTES);

	if (t->sent + bytes > FILE_BYTES)
		bytes = FILE_BYTES - t->sent;
	content_fill((struct content){t->content, t->sent + bytes}, t->sent, k->buf, bytes);
	clear(k);
	k->op.flags = CLIENT_WRITE_COPY;
	k->op.buf = k->buf;
	k->op.len = bytes;
	k->op.offset = t->sent;
	t->sent += bytes;
	if (t->sent > k->file->most)
		k->file->most = t->sent;
	start_op(k, CLIENT_WRITE, append_stepped);
}

static void step(struct appender *k)
{
	if (k->steps-- == 0) {
		append_end(k, rng_chance(&k->rng, 4, 5) ? CLIENT_CLOSE : CLIENT_ABORT);
		return;
	}
	switch (rng_below(&k->rng, 4)) {
	case 0:
		pause_for(k, STEP_PAUSE_MS, paused);
		break;
	case 1:
		clear(k);
		start_op(k, CLIENT_FSYNC, append_stepped);
		break;
	default:
		append_write(k);
	}
}

static bool is_taken_over(struct appender *k)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		const struct appender *o = &k->a->workers[i];

		if (o != k && o->active && o->file == k->file && o->handle && o->tenure != SIZE_MAX)
			return true;
	}
	return false;
}

static void append_opened(struct client_op *op)
{
	struct appender *k = op->user;
	struct tenure *t = mine(k);

	if (op->err.code < 0) {
		failed(k, op, true);
		finish(k, "append", op->err.code);
		return;
	}
	if (is_taken_over(k))
		SOMETIMES(sim_file_taken_over);
	k->handle = op->ret_file;
	t->opened = ++k->a->tick;
	t->base = t->sent = t->synced = op->attr.size;
	if (t->base > k->file->most)
		cluster_fail(k->a->cluster, "%s has %llu bytes: only %llu were ever sent", k->file->path,
			(unsigned long long)t->base, (unsigned long long)k->file->most);
	judge(k);
	k->steps = (unsigned)rng_between(&k->rng, 1, STEPS_MAX);
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
	*mine(k) = (struct tenure){.content = k->a->next_id++, .opening = ++k->a->tick};
	k->op.path = f->path;
	k->op.flags = CR_WRITE | CR_APPEND;
	k->op.mode = 0644;
	start_op(k, CLIENT_OPEN, append_opened);
}

/* ---- look ---- */

static void look_closed(struct client_op *op)
{
	struct appender *k = op->user;

	k->handle = NULL;
	finish(k, "look", op->err.code);
}

static void look_read(struct client_op *op)
{
	struct appender *k = op->user;

	if (op->err.code == 0)
		found(k, op->count);
	else
		failed(k, op, false);
	clear(k);
	start_op(k, CLIENT_CLOSE, look_closed);
}

static void look_opened(struct client_op *op)
{
	struct appender *k = op->user;

	if (op->err.code < 0) {
		if (op->err.code != ERR_NOENT || k->least)
			failed(k, op, false);
		finish(k, "look", op->err.code);
		return;
	}
	k->handle = op->ret_file;
	k->size = op->attr.size;
	clear(k);
	k->op.buf = k->buf;
	k->op.len = FILE_BYTES;
	start_op(k, CLIENT_READ, look_read);
}

static void look(struct appender *k)
{
	k->tenure = SIZE_MAX;
	k->least = acknowledged(k->file);
	k->op.path = k->file->path;
	k->op.flags = CR_READ;
	start_op(k, CLIENT_OPEN, look_opened);
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
	struct appenders *a = k->a;
	size_t at = a->file_count - 1 - rng_below(&k->rng, FILES);
	struct appended *f = a->files[at];

	if (f->most < FULL_BYTES)
		return f;
	a->files[at] = a->files[a->file_count - FILES]; /* the last ones are the ones that are written */
	a->files[a->file_count - FILES] = f;
	add_file(a);
	return a->files[a->file_count - 1];
}

static void act(struct appender *k)
{
	struct appenders *a = k->a;

	clear(k);
	k->handle = NULL;
	k->active = true;
	k->file = a->looking ? a->files[a->look++] : some_file(k);
	if (a->looking || rng_chance(&k->rng, 1, 4))
		look(k);
	else
		append(k);
}

static void rested(struct io_op *op)
{
	struct appender *k = CONTAINER_OF(op, struct appender, pause);

	if (!k->a->stopped && !k->a->cluster->failed)
		act(k);
}

static void rest(struct appender *k)
{
	struct appenders *a = k->a;

	if (a->looking) {
		if (a->look < a->file_count && !a->cluster->failed)
			act(k);
	} else if (!a->stopped) {
		pause_for(k, sim_now_ns(a->cluster->sim) < a->lull_ns ? LULL_PAUSE_MS : PAUSE_MS, rested);
	}
}

/* ---- life ---- */

struct appenders *appenders_new(struct cluster *cluster, uint64_t seed, bool strict)
{
	struct appenders *a = MEM_NEW(struct appenders);

	a->cluster = cluster;
	a->strict = strict;
	a->next_id = (uint64_t)2 << 32; /* those of nobody else */
	for (unsigned i = 0; i < FILES; i++)
		add_file(a);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct appender *k = &a->workers[i];

		k->a = a;
		k->number = i;
		k->node = cluster->first_client + i % cluster->options.clients;
		rng_init(&k->rng, seed * WORKERS + i + 0x617070);
		k->buf = mem_alloc(FILE_BYTES);
	}
	return a;
}

void appenders_free(struct appenders *a)
{
	for (size_t i = 0; i < a->file_count; i++) {
		mem_free(a->files[i]->tenures);
		mem_free(a->files[i]);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		mem_free(a->workers[i].buf);
	mem_free(a->files);
	mem_free(a);
}

void appenders_client_started(struct appenders *a, unsigned node)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (a->workers[i].node == node)
			rest(&a->workers[i]);
}

void appenders_client_crashed(struct appenders *a, unsigned node)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (a->workers[i].node == node)
			a->workers[i].active = false;
}

void appenders_lull(struct appenders *a, uint64_t until_ns)
{
	a->lull_ns = until_ns;
}

void appenders_stop(struct appenders *a)
{
	a->stopped = true;
}

bool appenders_idle(const struct appenders *a)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (a->workers[i].active)
			return false;
	return true;
}

void appenders_look(struct appenders *a)
{
	CHECK(appenders_idle(a));
	a->looking = true;
	a->look = 0;
	act(&a->workers[0]);
}

uint64_t appenders_count(const struct appenders *a)
{
	return a->count;
}
