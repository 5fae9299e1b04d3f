// SPDX-License-Identifier: Apache-2.0
/*
 * labels: see the header. A worker is resting or has one operation under way. What each is for a link and for an attribute:
 *
 *     set:     symlink; what is there already stays, and that is a look     | xattr-set, which replaces; without the directory: mkdir
 *     remove:  unlink; "nothing there" is a look that found nothing         | xattr-remove, likewise
 *     look:    readlink                                                     | xattr-get, or xattr-list: is it among them?
 */
#include "tests/sim/labels.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/sim/values.h"
#include "tests/sim/workload.h"

enum { LINKS = 2, ATTRIBUTES = 2, LABELS = LINKS + ATTRIBUTES, VALUE_BYTES = 300, LIST_BYTES = 1024, PAUSE_MS = 300 };

static const char home[] = "/labels";

struct label {
	char path[CHECKER_PATH_BYTES], name[16]; /* a link has no name */
	struct values values;
};

struct labels_worker {
	struct crew_worker base;
	struct label *label;
	size_t change;
	uint64_t begin; /* of the job */
	char value[LIST_BYTES];
};

struct labels {
	struct crew crew;
	uint64_t next_id;
	struct label labels[LABELS];
	struct labels_worker workers[CREW_WORKERS];
};

static struct labels *labels_of(struct labels_worker *k)
{
	return CONTAINER_OF(k->base.crew, struct labels, crew);
}

static struct labels_worker *worker_of(struct client_op *op)
{
	return CONTAINER_OF(crew_worker_of(op), struct labels_worker, base);
}

static bool is_link(const struct labels_worker *k)
{
	return !k->label->name[0];
}

static uint64_t tick(struct labels_worker *k)
{
	return ++k->base.crew->tick;
}

static struct values_change *mine(struct labels_worker *k)
{
	return &k->label->values.changes[k->change];
}

static void change_begin(struct labels_worker *k, struct content content)
{
	k->change = values_add(&k->label->values, &k->base.crew->tick, content);
}

/* Text that follows from the content: the target of a link has no NUL. */
static void write_value(struct content content, char value[VALUE_BYTES + 1])
{
	int n = snprintf(value, VALUE_BYTES + 1, "%llu/", (unsigned long long)content.id);

	for (uint64_t i = (uint64_t)n; i < content.bytes; i++)
		value[i] = (char)('a' + (content.id + i) % 26);
	value[content.bytes] = '\0';
}

/* ---- judging ---- */

static void found_nothing(struct labels_worker *k)
{
	if (!values_may_be_nothing(&k->label->values, k->begin, tick(k)))
		cluster_fail(k->base.crew->cluster,
			"%s %s: nothing is there, though it was set after it was last removed", k->label->path,
			k->label->name);
}

static void found_something(struct labels_worker *k)
{
	if (!values_may_be_something(&k->label->values, k->begin, tick(k)))
		cluster_fail(k->base.crew->cluster,
			"%s %s: something is there, though it was removed after it was last set", k->label->path,
			k->label->name);
}

static void found_value(struct labels_worker *k, uint64_t got)
{
	const struct values *v = &k->label->values;
	uint64_t end = tick(k);
	char value[VALUE_BYTES + 1];
	bool known = false;

	for (size_t i = 0; i < v->count; i++) {
		const struct values_change *c = &v->changes[i];

		if (c->content.id == 0 || c->content.bytes != got)
			continue;
		write_value(c->content, value);
		if (memcmp(value, k->value, got) != 0)
			continue;
		known = true;
		if (values_may_be_found(v, c, k->begin, end))
			return;
	}
	cluster_fail(k->base.crew->cluster, "%s %s: %llu bytes were read that %s", k->label->path, k->label->name,
		(unsigned long long)got, known ? "had been replaced or removed before" : "nobody set");
}

static bool is_listed(const struct labels_worker *k, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += strlen(k->value + at) + 1)
		if (strcmp(k->value + at, k->label->name) == 0)
			return true;
	return false;
}

/* ---- operations ---- */

static void failed(struct labels_worker *k, const struct client_op *op)
{
	if (k->base.crew->strict || k->base.crew->looking || workload_is_verdict(op->err.code))
		crew_fail(&k->base, k->label->path, op);
}

static void finish(struct labels_worker *k, const char *what, int code)
{
	crew_finish(&k->base, what, k->label->path, code);
}

static bool is_nothing(const struct client_op *op)
{
	return op->err.code == ERR_NOENT || op->err.code == ERR_NODATA;
}

static void start(struct labels_worker *k, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	k->base.op.path = k->label->path;
	crew_start(&k->base, kind, done);
}

static void has_home(struct client_op *op)
{
	struct labels_worker *k = worker_of(op);

	if (op->err.code && op->err.code != ERR_EXIST)
		failed(k, op);
	finish(k, "mkdir", op->err.code);
}

static void make_home(struct labels_worker *k)
{
	crew_clear(&k->base);
	k->base.op.mode = 0755;
	start(k, CLIENT_MKDIR, has_home);
}

static void was_set(struct client_op *op)
{
	struct labels_worker *k = worker_of(op);

	if (op->err.code == 0) {
		mine(k)->end = tick(k);
	} else if (is_link(k) && op->err.code == ERR_EXIST) {
		mine(k)->dead = true;
		found_something(k);
	} else if (!is_link(k) && op->err.code == ERR_NOENT) {
		mine(k)->dead = true;
		found_nothing(k);
		make_home(k);
		return;
	} else {
		failed(k, op);
	}
	finish(k, "set", op->err.code);
}

static void set(struct labels_worker *k)
{
	change_begin(k, (struct content){labels_of(k)->next_id++, rng_between(&k->base.rng, 24, VALUE_BYTES)});
	write_value(mine(k)->content, k->value);
	if (is_link(k)) {
		k->base.op.path2 = k->value;
		start(k, CLIENT_SYMLINK, was_set);
		return;
	}
	k->base.op.path2 = k->label->name;
	k->base.op.buf = k->value;
	k->base.op.len = mine(k)->content.bytes;
	start(k, CLIENT_XATTR_SET, was_set);
}

static void was_removed(struct client_op *op)
{
	struct labels_worker *k = worker_of(op);

	if (op->err.code == 0) {
		mine(k)->end = tick(k);
	} else if (is_nothing(op)) {
		mine(k)->dead = true;
		found_nothing(k);
	} else {
		failed(k, op);
	}
	finish(k, "remove", op->err.code);
}

static void take_away(struct labels_worker *k)
{
	change_begin(k, (struct content){0});
	k->base.op.path2 = is_link(k) ? NULL : k->label->name;
	start(k, is_link(k) ? CLIENT_UNLINK : CLIENT_XATTR_REMOVE, was_removed);
}

static void looked(struct client_op *op)
{
	struct labels_worker *k = worker_of(op);

	if (is_nothing(op))
		found_nothing(k);
	else if (op->err.code)
		failed(k, op);
	else if (op->kind != CLIENT_XATTR_LIST)
		found_value(k, op->count);
	else if (is_listed(k, op->count))
		found_something(k);
	else
		found_nothing(k);
	finish(k, "look", op->err.code);
}

static void look(struct labels_worker *k)
{
	bool lists = !k->base.crew->looking && rng_chance(&k->base.rng, 1, 3);

	k->base.op.buf = k->value;
	k->base.op.len = sizeof(k->value);
	k->base.op.path2 = is_link(k) ? NULL : k->label->name;
	start(k, is_link(k) ? CLIENT_READLINK : lists ? CLIENT_XATTR_LIST : CLIENT_XATTR_GET, looked);
}

static void act(struct crew_worker *w, size_t at)
{
	struct labels_worker *k = CONTAINER_OF(w, struct labels_worker, base);
	uint64_t what = rng_below(&w->rng, 10);

	k->label = &labels_of(k)->labels[w->crew->looking ? at : rng_below(&w->rng, LABELS)];
	k->begin = tick(k);
	if (w->crew->looking || what < 4)
		look(k);
	else if (what < 7)
		set(k);
	else
		take_away(k);
}

/* ---- life ---- */

static size_t things(const struct crew *crew)
{
	(void)crew;
	return LABELS;
}

static void labels_free(struct crew *crew)
{
	struct labels *l = CONTAINER_OF(crew, struct labels, crew);

	for (unsigned i = 0; i < LABELS; i++)
		values_fini(&l->labels[i].values);
	mem_free(l);
}

static const struct crew_kind kind = {
	.letter = 'l', .salt = 0x6c6162, .pause_ms = PAUSE_MS, .act = act, .things = things, .free = labels_free};

struct crew *labels_new(struct cluster *cluster, uint64_t seed, bool strict)
{
	struct labels *l = MEM_NEW(struct labels);

	l->next_id = (uint64_t)3 << 32; /* those of nobody else */
	for (unsigned i = 0; i < LABELS; i++) {
		struct label *label = &l->labels[i];

		if (i < LINKS)
			snprintf(label->path, sizeof(label->path), "/l%u", i);
		else
			snprintf(label->path, sizeof(label->path), "%s", home);
		if (i >= LINKS)
			snprintf(label->name, sizeof(label->name), "user.a%u", i - LINKS);
		values_init(&label->values, &l->crew.tick);
	}
	for (unsigned i = 0; i < CREW_WORKERS; i++)
		l->crew.workers[i] = &l->workers[i].base;
	crew_init(&l->crew, &kind, cluster, seed, strict);
	return &l->crew;
}
