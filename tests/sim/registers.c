// SPDX-License-Identifier: Apache-2.0
/*
 * registers: see the header. A worker is resting or has one operation under way:
 *
 *     put:     open (hidden) -> write -> close;   a failure before the close: given up, the value must never be seen
 *     unlink:  one request; "nothing there" is a look that found nothing
 *     get:     open (the look) -> read whole -> close
 */
#include "tests/sim/registers.h"

#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/sim/values.h"

enum { NAMES = 3, VALUE_BYTES = 48 << 10, PAUSE_MS = 150 };

struct cell {
	char path[CHECKER_PATH_BYTES];
	struct values values;
};

struct registers_worker {
	struct crew_worker base;
	struct cell *cell;
	size_t change;
	uint64_t begin, end; /* of the look */
	uint8_t *buf;
};

struct registers {
	struct crew crew;
	uint64_t next_id;
	struct cell cells[NAMES];
	struct registers_worker workers[CREW_WORKERS];
};

static struct registers *registers_of(struct registers_worker *k)
{
	return CONTAINER_OF(k->base.crew, struct registers, crew);
}

static struct registers_worker *worker_of(struct client_op *op)
{
	return CONTAINER_OF(crew_worker_of(op), struct registers_worker, base);
}

static uint64_t tick(struct registers_worker *k)
{
	return ++k->base.crew->tick;
}

/* ---- judging ---- */

static struct values_change *mine(struct registers_worker *k)
{
	return &k->cell->values.changes[k->change];
}

static void change_begin(struct registers_worker *k, struct content content)
{
	k->change = values_add(&k->cell->values, &k->base.crew->tick, content);
}

static void found_nothing(struct registers_worker *k)
{
	if (!values_may_be_nothing(&k->cell->values, k->begin, tick(k)))
		cluster_fail(k->base.crew->cluster,
			"%s: nothing is there, though a put was acknowledged after every unlink", k->cell->path);
}

static void found_bytes(struct registers_worker *k, uint64_t got)
{
	const struct values *v = &k->cell->values;
	bool known = false;

	for (size_t i = 0; i < v->count; i++) {
		const struct values_change *c = &v->changes[i];

		if (c->content.id == 0 || c->content.bytes != got || !content_matches(c->content, 0, k->buf, got))
			continue;
		known = true;
		if (values_may_be_found(v, c, k->begin, k->end))
			return;
	}
	cluster_fail(k->base.crew->cluster, "%s: %llu bytes were read that %s", k->cell->path, (unsigned long long)got,
		known ? "had been replaced before, or were never published" : "nobody put there");
}

/* ---- operations ---- */

static void failed(struct registers_worker *k, const struct client_op *op)
{
	if (k->base.crew->strict || k->base.crew->looking)
		crew_fail(&k->base, k->cell->path, op);
}

static void finish(struct registers_worker *k, const char *what, int code)
{
	crew_finish(&k->base, what, k->cell->path, code);
}

static void put_closed(struct client_op *op)
{
	struct registers_worker *k = worker_of(op);

	if (op->err.code == 0)
		mine(k)->end = tick(k);
	else
		failed(k, op);
	finish(k, "put", op->err.code);
}

static void put_aborted(struct client_op *op)
{
	struct registers_worker *k = worker_of(op);

	finish(k, "put-failed", op->err.code);
}

static void put_written(struct client_op *op)
{
	struct registers_worker *k = worker_of(op);
	bool is_written = op->err.code == 0;

	if (!is_written) {
		failed(k, op);
		mine(k)->dead = true;
	}
	crew_clear(&k->base);
	crew_start(&k->base, is_written ? CLIENT_CLOSE : CLIENT_ABORT, is_written ? put_closed : put_aborted);
}

static void put_opened(struct client_op *op)
{
	struct registers_worker *k = worker_of(op);
	struct content content = mine(k)->content;

	if (op->err.code < 0) {
		failed(k, op);
		mine(k)->dead = true;
		finish(k, "put", op->err.code);
		return;
	}
	k->base.handle = op->ret_file;
	content_fill(content, 0, k->buf, content.bytes);
	crew_clear(&k->base);
	k->base.op.flags = CLIENT_WRITE_COPY;
	k->base.op.buf = k->buf;
	k->base.op.len = content.bytes;
	crew_start(&k->base, CLIENT_WRITE, put_written);
}

static void put(struct registers_worker *k)
{
	change_begin(k, (struct content){registers_of(k)->next_id++, rng_between(&k->base.rng, 16, VALUE_BYTES)});
	k->base.op.path = k->cell->path;
	k->base.op.flags = CR_WRITE | CR_ATOMIC;
	k->base.op.mode = 0644;
	crew_start(&k->base, CLIENT_OPEN, put_opened);
}

static void unlinked(struct client_op *op)
{
	struct registers_worker *k = worker_of(op);
	struct values_change *c = mine(k);

	if (op->err.code == 0) {
		c->end = tick(k);
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
	struct registers_worker *k = worker_of(op);

	finish(k, "get", op->err.code);
}

static void get_read(struct client_op *op)
{
	struct registers_worker *k = worker_of(op);

	/* A file that is replaced while it is read may be gone. */
	if (op->err.code == 0)
		found_bytes(k, op->count);
	else if (k->base.crew->looking)
		failed(k, op);
	crew_clear(&k->base);
	crew_start(&k->base, CLIENT_CLOSE, get_closed);
}

static void get_opened(struct client_op *op)
{
	struct registers_worker *k = worker_of(op);
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
		cluster_fail(k->base.crew->cluster, "%s has %llu bytes", k->cell->path, (unsigned long long)size);
		return;
	}
	k->end = tick(k);
	k->base.handle = op->ret_file;
	crew_clear(&k->base);
	k->base.op.buf = k->buf;
	k->base.op.len = size + 1;
	crew_start(&k->base, CLIENT_READ, get_read);
}

static void get(struct registers_worker *k)
{
	k->base.op.path = k->cell->path;
	k->base.op.flags = CR_READ;
	crew_start(&k->base, CLIENT_OPEN, get_opened);
}

static void act(struct crew_worker *w, size_t at)
{
	struct registers_worker *k = CONTAINER_OF(w, struct registers_worker, base);
	struct registers *r = registers_of(k);
	uint64_t what = rng_below(&w->rng, 10);

	k->cell = &r->cells[w->crew->looking ? at : rng_below(&w->rng, NAMES)];
	k->begin = tick(k);
	if (w->crew->looking || what < 4) {
		get(k);
	} else if (what < 8) {
		put(k);
	} else {
		change_begin(k, (struct content){0});
		w->op.path = k->cell->path;
		crew_start(w, CLIENT_UNLINK, unlinked);
	}
}

/* ---- life ---- */

static size_t things(const struct crew *crew)
{
	(void)crew;
	return NAMES;
}

static void registers_free(struct crew *crew)
{
	struct registers *r = CONTAINER_OF(crew, struct registers, crew);

	for (unsigned i = 0; i < NAMES; i++)
		values_fini(&r->cells[i].values);
	for (unsigned i = 0; i < CREW_WORKERS; i++)
		mem_free(r->workers[i].buf);
	mem_free(r);
}

static const struct crew_kind kind = {
	.letter = 'r', .salt = 0x726567, .pause_ms = PAUSE_MS, .act = act, .things = things, .free = registers_free};

struct crew *registers_new(struct cluster *cluster, uint64_t seed, bool strict)
{
	struct registers *r = MEM_NEW(struct registers);

	r->next_id = (uint64_t)1 << 32; /* not those of the checker */
	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(r->cells[i].path, sizeof(r->cells[i].path), "/r%u", i);
		values_init(&r->cells[i].values, &r->crew.tick);
	}
	for (unsigned i = 0; i < CREW_WORKERS; i++) {
		r->crew.workers[i] = &r->workers[i].base;
		r->workers[i].buf = mem_alloc(VALUE_BYTES + 1);
	}
	crew_init(&r->crew, &kind, cluster, seed, strict);
	return &r->crew;
}
