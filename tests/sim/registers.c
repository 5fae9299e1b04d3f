// SPDX-License-Identifier: Apache-2.0
/*
 * registers: see the header. A worker is resting or has one operation under way:
 *
 *     put:     open (hidden) -> write -> close;   a failure before the close: given up, the value must never be seen
 *     unlink:  one request; "nothing there" is a look that found nothing
 *     get:     open (the look) -> read whole -> close
 */
#include "tests/sim/registers.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/sim/workload.h"

enum { WORKERS = 3, NAMES = 3, VALUE_BYTES = 48 << 10, PAUSE_MS = 150, LULL_PAUSE_MS = 20000 };

#define NEVER UINT64_MAX

/* A change of a name; content 0: an unlink. Change 0 of each name is that nothing was there. */
struct change {
	struct content content;
	uint64_t begin, end; /* ticks; end NEVER: not acknowledged, so it may take effect at any time */
	bool dead;           /* it was given up before it could take effect */
};

struct cell {
	char path[CHECKER_PATH_BYTES];
	struct change *changes;
	size_t count, cap;
};

struct registers_worker {
	struct registers *r;
	unsigned number, node;
	struct rng rng;
	struct io_op pause;
	struct client_op op;
	bool active;
	struct cell *cell;
	size_t change;
	uint64_t begin, end; /* of the look */
	struct client_file *file;
	uint8_t *buf;
};

struct registers {
	struct cluster *cluster;
	bool strict, stopped, looking;
	uint64_t lull_ns; /* until when operations are rare */
	unsigned look;
	uint64_t tick, next_id, count;
	struct cell cells[NAMES];
	struct registers_worker workers[WORKERS];
};

static void rest(struct registers_worker *k);

/* ---- judging ---- */

static size_t add_change(struct registers *r, struct cell *cell, struct content content)
{
	if (cell->count == cell->cap) {
		cell->cap = cell->cap ? 2 * cell->cap : 16;
		cell->changes = mem_realloc(cell->changes, cell->cap * sizeof(cell->changes[0]));
	}
	cell->changes[cell->count] = (struct change){.content = content, .begin = ++r->tick, .end = NEVER};
	return cell->count++;
}

/* Could a look between begin and end have found this change's value? */
static bool may_be_found(const struct cell *cell, const struct change *c, uint64_t begin, uint64_t end)
{
	if (c->dead || c->begin > end)
		return false;
	for (size_t i = 0; i < cell->count; i++) {
		const struct change *later = &cell->changes[i];

		if (later->end < begin && later->begin > c->end)
			return false;
	}
	return true;
}

static void found_nothing(struct registers_worker *k)
{
	struct cell *cell = k->cell;
	uint64_t end = ++k->r->tick;

	for (size_t i = 0; i < cell->count; i++)
		if (cell->changes[i].content.id == 0 && may_be_found(cell, &cell->changes[i], k->begin, end))
			return;
	cluster_fail(
		k->r->cluster, "%s: nothing is there, though a put was acknowledged after every unlink", cell->path);
}

static void found_bytes(struct registers_worker *k, uint64_t got)
{
	struct cell *cell = k->cell;
	bool known = false;

	for (size_t i = 0; i < cell->count; i++) {
		const struct change *c = &cell->changes[i];

		if (c->content.id == 0 || c->content.bytes != got || !content_matches(c->content, 0, k->buf, got))
			continue;
		known = true;
		if (may_be_found(cell, c, k->begin, k->end))
			return;
	}
	cluster_fail(k->r->cluster, "%s: %llu bytes were read that %s", cell->path, (unsigned long long)got,
		known ? "had been replaced before, or were never published" : "nobody put there");
}

/* ---- operations ---- */

static void start_op(struct registers_worker *k, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	k->op.kind = kind;
	k->op.done = done;
	k->op.user = k;
	cluster_client_start(k->r->cluster, k->node, &k->op);
}

static void clear(struct registers_worker *k)
{
	memset(&k->op, 0, sizeof(k->op));
}

static void failed(struct registers_worker *k, const struct client_op *op)
{
	if (k->r->strict || k->r->looking)
		cluster_fail(k->r->cluster, "%s of %s failed: %s: %s", workload_op_name(op->kind), k->cell->path,
			err_name(op->err.code), op->err.text);
}

static void finish(struct registers_worker *k, const char *what, int code)
{
	cluster_note(k->r->cluster, "r%u %s %s: %s", k->number, what, k->cell->path, code < 0 ? err_name(code) : "ok");
	k->active = false;
	k->r->count++;
	rest(k);
}

static void put_closed(struct client_op *op)
{
	struct registers_worker *k = op->user;

	if (op->err.code == 0)
		k->cell->changes[k->change].end = ++k->r->tick;
	else
		failed(k, op);
	finish(k, "put", op->err.code);
}

static void put_aborted(struct client_op *op)
{
	struct registers_worker *k = op->user;

	finish(k, "put-failed", op->err.code);
}

static void put_written(struct client_op *op)
{
	struct registers_worker *k = op->user;
	bool is_written = op->err.code == 0;

	if (!is_written) {
		failed(k, op);
		k->cell->changes[k->change].dead = true;
	}
	clear(k);
	k->op.file = k->file;
	start_op(k, is_written ? CLIENT_CLOSE : CLIENT_ABORT, is_written ? put_closed : put_aborted);
}

static void put_opened(struct client_op *op)
{
	struct registers_worker *k = op->user;
	struct content content = k->cell->changes[k->change].content;

	if (op->err.code < 0) {
		failed(k, op);
		k->cell->changes[k->change].dead = true;
		finish(k, "put", op->err.code);
		return;
	}
	k->file = op->ret_file;
	content_fill(content, 0, k->buf, content.bytes);
	clear(k);
	k->op.file = k->file;
	k->op.flags = CLIENT_WRITE_COPY;
	k->op.buf = k->buf;
	k->op.len = content.bytes;
	start_op(k, CLIENT_WRITE, put_written);
}

static void put(struct registers_worker *k)
{
	k->change = add_change(k->r, k->cell, (struct content){k->r->next_id++, rng_between(&k->rng, 16, VALUE_BYTES)});
	k->op.path = k->cell->path;
	k->op.flags = CR_WRITE | CR_ATOMIC;
	k->op.mode = 0644;
	start_op(k, CLIENT_OPEN, put_opened);
}

static void unlinked(struct client_op *op)
{
	struct registers_worker *k = op->user;
	struct change *c = &k->cell->changes[k->change];

	if (op->err.code == 0) {
		c->end = ++k->r->tick;
	} else if (op->err.code == ERR_NOENT) {
		c->dead = true;
		found_nothing(k);
	} else {
		failed(k, op);
	}
	finish(k, "unlink", op->err.code);
}

static void get_closed(struct client_op *op)
{
	struct registers_worker *k = op->user;

	finish(k, "get", op->err.code);
}

static void get_read(struct client_op *op)
{
	struct registers_worker *k = op->user;

	/* A file that is replaced while it is read may be gone. */
	if (op->err.code == 0)
		found_bytes(k, op->count);
	else if (k->r->looking)
		failed(k, op);
	clear(k);
	k->op.file = k->file;
	start_op(k, CLIENT_CLOSE, get_closed);
}

static void get_opened(struct client_op *op)
{
	struct registers_worker *k = op->user;
	uint64_t size = op->attr.size;

	if (op->err.code < 0) {
		if (op->err.code == ERR_NOENT)
			found_nothing(k);
		else
			failed(k, op);
		finish(k, "get", op->err.code);
		return;
	}
	if (size > VALUE_BYTES) {
		cluster_fail(k->r->cluster, "%s has %llu bytes", k->cell->path, (unsigned long long)size);
		return;
	}
	k->end = ++k->r->tick;
	k->file = op->ret_file;
	clear(k);
	k->op.file = k->file;
	k->op.buf = k->buf;
	k->op.len = size + 1;
	start_op(k, CLIENT_READ, get_read);
}

static void get(struct registers_worker *k)
{
	k->op.path = k->cell->path;
	k->op.flags = CR_READ;
	start_op(k, CLIENT_OPEN, get_opened);
}

static void act(struct registers_worker *k)
{
	struct registers *r = k->r;
	uint64_t what = rng_below(&k->rng, 10);

	clear(k);
	k->active = true;
	k->cell = &r->cells[r->looking ? r->look++ : rng_below(&k->rng, NAMES)];
	k->begin = ++r->tick;
	if (r->looking || what < 4) {
		get(k);
	} else if (what < 8) {
		put(k);
	} else {
		k->change = add_change(r, k->cell, (struct content){0});
		k->op.path = k->cell->path;
		start_op(k, CLIENT_UNLINK, unlinked);
	}
}

static void rested(struct io_op *op)
{
	struct registers_worker *k = CONTAINER_OF(op, struct registers_worker, pause);

	if (!k->r->stopped && !k->r->cluster->failed)
		act(k);
}

static void rest(struct registers_worker *k)
{
	struct registers *r = k->r;
	struct io *io = r->cluster->nodes[k->node].io;

	if (r->looking) {
		if (r->look < NAMES && !r->cluster->failed)
			act(k);
		return;
	}
	if (r->stopped)
		return;
	io_prep_timer(&k->pause,
		io_now_ns(io) +
			rng_below(&k->rng,
				(sim_now_ns(r->cluster->sim) < r->lull_ns ? LULL_PAUSE_MS : PAUSE_MS) * CLUSTER_MS),
		rested);
	io_submit(io, &k->pause);
}

/* ---- life ---- */

struct registers *registers_new(struct cluster *cluster, uint64_t seed, bool strict)
{
	struct registers *r = MEM_NEW(struct registers);

	r->cluster = cluster;
	r->strict = strict;
	r->next_id = (uint64_t)1 << 32; /* not those of the checker */
	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(r->cells[i].path, sizeof(r->cells[i].path), "/r%u", i);
		add_change(r, &r->cells[i], (struct content){0});
		r->cells[i].changes[0].end = ++r->tick;
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		struct registers_worker *k = &r->workers[i];

		k->r = r;
		k->number = i;
		k->node = cluster->first_client + i % cluster->options.clients;
		rng_init(&k->rng, seed * WORKERS + i + 0x726567);
		k->buf = mem_alloc(VALUE_BYTES + 1);
	}
	return r;
}

void registers_free(struct registers *r)
{
	for (unsigned i = 0; i < NAMES; i++)
		mem_free(r->cells[i].changes);
	for (unsigned i = 0; i < WORKERS; i++)
		mem_free(r->workers[i].buf);
	mem_free(r);
}

void registers_client_started(struct registers *r, unsigned node)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (r->workers[i].node == node)
			rest(&r->workers[i]);
}

void registers_client_crashed(struct registers *r, unsigned node)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (r->workers[i].node == node)
			r->workers[i].active = false;
}

void registers_lull(struct registers *r, uint64_t until_ns)
{
	r->lull_ns = until_ns;
}

void registers_stop(struct registers *r)
{
	r->stopped = true;
}

bool registers_idle(const struct registers *r)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (r->workers[i].active)
			return false;
	return true;
}

void registers_look(struct registers *r)
{
	CHECK(registers_idle(r));
	r->looking = true;
	r->look = 0;
	act(&r->workers[0]);
}

uint64_t registers_count(const struct registers *r)
{
	return r->count;
}
