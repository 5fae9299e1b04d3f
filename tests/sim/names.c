// SPDX-License-Identifier: Apache-2.0
/*
 * names: see the header. A worker is resting or at one operation, which is in the history, without an answer, from the moment that it is
 * asked; what the store tells makes its outcome known. So whatever is lost with a client stays as it is. A create that succeeded is
 * followed by the abort of its handle, which is no operation on names.
 */
#include "tests/sim/names.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/sim/checker.h"

enum {
	HOT = 3,         /* names in use at a time */
	ROUND_JOBS = 90, /* with a round of names, */
	ROUND_LOST = 8,  /* or so many without an answer */
	PAUSE_MS = 40,
	HASTY = 3, /* one operation in so many is not waited for longer than HASTY_MS */
	HASTY_MS = 400,
	TOLD_MAX = 40, /* lines of a window */
};

struct names_worker {
	struct crew_worker base;
	size_t op; /* in the history */
	char name[LINEAR_NAME_BYTES], to[LINEAR_NAME_BYTES];
};

struct names {
	struct crew crew;
	struct linear_history history;
	uint64_t last; /* time in the history: rising, so that what was heard before something was asked is before it */
	uint64_t round;
	size_t round_begin; /* in the history */
	struct names_worker workers[CREW_WORKERS];
};

static struct names *names_of(struct names_worker *k)
{
	return CONTAINER_OF(k->base.crew, struct names, crew);
}

static struct names_worker *worker_of(struct client_op *op)
{
	return CONTAINER_OF(crew_worker_of(op), struct names_worker, base);
}

static uint64_t tick(struct names *n)
{
	uint64_t now_ns = sim_now_ns(n->crew.cluster->sim);

	n->last = now_ns > n->last ? now_ns : n->last + 1;
	return n->last;
}

static void finish(struct names_worker *k, int code)
{
	struct linear_op *op = &names_of(k)->history.ops[k->op];
	char what[LINEAR_NAME_BYTES + 16];

	snprintf(what, sizeof(what), "%s%s%s", linear_kind_name(op->kind), op->to[0] ? " to " : "", op->to);
	crew_finish(&k->base, what, op->name, code);
}

static void aborted(struct client_op *op)
{
	finish(worker_of(op), 0);
}

/* What else the store may say, it does not say whether anything happened. */
static enum linear_outcome outcome_of(int code)
{
	switch (code) {
	case 0:
		return LINEAR_OK;
	case ERR_EXIST:
		return LINEAR_EXIST;
	case ERR_NOENT:
		return LINEAR_NOENT;
	default:
		return LINEAR_UNKNOWN;
	}
}

static void answered(struct client_op *client_op)
{
	struct names_worker *k = worker_of(client_op);
	struct linear_op *op = &names_of(k)->history.ops[k->op];

	op->outcome = outcome_of(client_op->err.code);
	if (op->outcome != LINEAR_UNKNOWN)
		op->ret = tick(names_of(k));
	else if (k->base.crew->strict || k->base.crew->looking)
		crew_fail(&k->base, op->name, client_op);
	if (op->outcome == LINEAR_OK && (op->kind == LINEAR_CREATE || op->kind == LINEAR_LOOKUP))
		op->inode = client_op->attr.inode;
	if (!client_op->ret_file) {
		finish(k, client_op->err.code);
		return;
	}
	k->base.handle = client_op->ret_file;
	crew_clear(&k->base);
	crew_start(&k->base, CLIENT_ABORT, aborted);
}

static void start(struct names_worker *k, enum linear_kind kind)
{
	static const enum client_op_kind kinds[] = {[LINEAR_CREATE] = CLIENT_OPEN,
		[LINEAR_LOOKUP] = CLIENT_STAT,
		[LINEAR_UNLINK] = CLIENT_UNLINK,
		[LINEAR_RENAME] = CLIENT_RENAME,
		[LINEAR_LINK] = CLIENT_LINK};
	struct names *n = names_of(k);
	bool has_to = kind == LINEAR_RENAME || kind == LINEAR_LINK;
	struct linear_op *op = linear_add(&n->history);
	struct client_op *client_op = &k->base.op;

	k->op = n->history.count - 1;
	*op = (struct linear_op){.kind = kind,
		.outcome = LINEAR_UNKNOWN,
		.noreplace = kind == LINEAR_RENAME && rng_chance(&k->base.rng, 1, 4),
		.client = k->base.number};
	memcpy(op->name, k->name, sizeof(op->name));
	if (has_to)
		memcpy(op->to, k->to, sizeof(op->to));
	client_op->path = k->name;
	client_op->path2 = has_to ? k->to : NULL;
	if (kind == LINEAR_CREATE) {
		client_op->flags = CR_WRITE | CR_EXCL;
		client_op->mode = 0644;
	} else if (op->noreplace) {
		client_op->flags = CR_RENAME_NOREPLACE;
	}
	if (!k->base.crew->strict && !k->base.crew->looking && rng_chance(&k->base.rng, 1, HASTY))
		client_op->timeout_ns = HASTY_MS * CLUSTER_MS;
	op->invoke = tick(n);
	crew_start(&k->base, kinds[kind], answered);
}

/* Is it time for fresh names? */
static bool is_round_over(const struct names *n)
{
	size_t lost = 0;

	for (size_t i = n->round_begin; i < n->history.count; i++)
		lost += n->history.ops[i].outcome == LINEAR_UNKNOWN;
	return n->history.count - n->round_begin >= ROUND_JOBS || lost >= ROUND_LOST;
}

static void act(struct crew_worker *w, size_t at)
{
	/* As often made as removed. */
	static const enum linear_kind kinds[] = {LINEAR_CREATE, LINEAR_CREATE, LINEAR_CREATE, LINEAR_LOOKUP,
		LINEAR_LOOKUP, LINEAR_LOOKUP, LINEAR_LOOKUP, LINEAR_UNLINK, LINEAR_UNLINK, LINEAR_RENAME, LINEAR_RENAME,
		LINEAR_LINK};
	struct names_worker *k = CONTAINER_OF(w, struct names_worker, base);
	struct names *n = names_of(k);

	if (w->crew->looking) {
		snprintf(k->name, sizeof(k->name), "/n%zu", at);
		start(k, LINEAR_LOOKUP);
		return;
	}
	if (is_round_over(n)) {
		n->round++;
		n->round_begin = n->history.count;
	}
	snprintf(k->name, sizeof(k->name), "/n%llu", (unsigned long long)(n->round * HOT + rng_below(&w->rng, HOT)));
	snprintf(k->to, sizeof(k->to), "/n%llu", (unsigned long long)(n->round * HOT + rng_below(&w->rng, HOT)));
	start(k, kinds[rng_below(&w->rng, ARRAY_COUNT(kinds))]);
}

/* ---- judging ---- */

/* Line by line, so that they are among the last notes. */
static void note_all(struct cluster *cluster, const struct buf *text)
{
	const char *at = (const char *)text->data, *end = at + text->len;

	for (int i = 0; i < TOLD_MAX && at < end; i++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		int len = (int)((newline ? newline : end) - at);

		cluster_note(cluster, "%.*s", len, at);
		at += len + 1;
	}
}

void names_judge(struct crew *crew, struct linear_result *r)
{
	struct names *n = CONTAINER_OF(crew, struct names, crew);
	struct buf out;

	linear_check(&n->history, LINEAR_BYTES, r);
	if (r->verdict == LINEAR_YES || crew->cluster->failed)
		return;
	buf_init(&out, 1 << 20);
	linear_describe(&n->history, r, &out);
	note_all(crew->cluster, &out);
	buf_fini(&out);
	cluster_fail(crew->cluster, "the history of names is %s: %s",
		r->verdict == LINEAR_NO ? "not linearizable" : "not judged", r->text);
}

const struct linear_history *names_history(const struct crew *crew)
{
	return &CONTAINER_OF(crew, struct names, crew)->history;
}

/* ---- life ---- */

static size_t things(const struct crew *crew)
{
	const struct names *n = CONTAINER_OF(crew, struct names, crew);

	return (n->round + 1) * HOT;
}

static void names_free(struct crew *crew)
{
	struct names *n = CONTAINER_OF(crew, struct names, crew);

	linear_fini(&n->history);
	mem_free(n);
}

static const struct crew_kind kind = {
	.letter = 'n', .salt = 0x6e616d65, .pause_ms = PAUSE_MS, .act = act, .things = things, .free = names_free};

struct crew *names_new(struct cluster *cluster, uint64_t seed, bool strict)
{
	struct names *n = MEM_NEW(struct names);

	for (unsigned i = 0; i < CREW_WORKERS; i++)
		n->crew.workers[i] = &n->workers[i].base;
	crew_init(&n->crew, &kind, cluster, seed, strict);
	return &n->crew;
}
