// SPDX-License-Identifier: Apache-2.0
/* workload_get: looks: files read whole, in pieces and in ranges, also while others change them; stat; listings. */
#include "tests/sim/workload_priv.h"

/* ---- get ---- */

static void get_closed(struct client_op *op)
{
	struct worker *k = op->user;

	k->file = NULL;
	workload__job_end(k);
}

static void get_close(struct worker *k)
{
	workload__clear(&k->op);
	k->op.file = k->file;
	workload__start_op(k, &k->op, CLIENT_CLOSE, get_closed);
}

static bool get_excused(const struct worker *k)
{
	return !checker_stable(k->entry, k->look.since);
}

static void get_read(struct worker *k, uint64_t offset, uint64_t len, uint32_t flags);

/* Ranges while `left`, or front to back. */
static void get_next(struct worker *k)
{
	uint64_t bytes = k->content.bytes, from, len;

	if (k->w->cluster->failed || (k->left == 0 && k->at >= bytes)) {
		get_close(k);
	} else if (k->left > 0) {
		k->left--;
		from = rng_below(&k->rng, bytes + 1);
		len = workload__chance(k, 30) ? rng_between(&k->rng, 1, 64) : rng_between(&k->rng, 1, bytes + 1);
		get_read(k, from, len, 0);
	} else if (k->give_up) { /* in pieces */
		len = rng_between(&k->rng, 1, bytes);
		from = k->at;
		k->at += len;
		get_read(k, from, len, CLIENT_READ_AHEAD);
	} else {
		k->at = bytes;
		get_read(k, 0, bytes + rng_below(&k->rng, 100), 0);
	}
}

static void get_have(struct client_op *op)
{
	struct worker *k = op->user;

	if (op->err.code < 0) {
		k->w->checker->reads_failed++;
		if (!get_excused(k))
			workload__failed(k, op, true);
		get_close(k);
		return;
	}
	checker_look_read(k->w->checker, &k->look, op->offset, op->buf, op->len, op->count);
	get_next(k);
}

static void get_read(struct worker *k, uint64_t offset, uint64_t len, uint32_t flags)
{
	struct client_op *op = &k->op;

	workload__clear(op);
	op->file = k->file;
	op->buf = k->buf;
	op->len = len;
	op->offset = offset;
	op->flags = flags;
	workload__start_op(k, op, CLIENT_READ, get_have);
}

static void get_opened(struct client_op *op)
{
	struct worker *k = op->user;
	struct checker *c = k->w->checker;

	if (op->err.code < 0) {
		bool gone = workload_is_gone(op->err.code) &&
			checker_possible(k->entry, k->look.since, (struct content){0});

		if (!gone)
			workload__failed(k, op, false);
		workload__job_end(k);
		return;
	}
	k->file = op->ret_file;
	checker_look_opened(c, &k->look, op->attr.size);
	k->content.bytes = op->attr.size; /* what get_next goes by */
	k->at = 0;
	k->left = workload__chance(k, 40) ? (uint32_t)rng_between(&k->rng, 1, RANGES_MAX) : 0;
	if (k->left)
		k->at = op->attr.size; /* ranges only */
	k->give_up = workload__chance(k, 40);
	get_next(k);
}

static bool get(struct worker *k, struct checker_entry *e, const char *what)
{
	if (!e)
		return false;
	k->entry = e;
	k->what = what;
	checker_look_begin(k->w->checker, &k->look, e);
	k->op.path = e->path;
	k->op.flags = CR_READ;
	workload__start_op(k, &k->op, CLIENT_OPEN, get_opened);
	return true;
}

bool workload__job_get(struct worker *k)
{
	return get(k, workload__pick(k, checker_is_file, false), "get");
}

static bool may_be_file(const struct checker_entry *e)
{
	return checker_possible_file(e, UINT64_MAX);
}

/* Whoever's it is, and whatever is being done to it. */
bool workload__job_peek(struct worker *k)
{
	return get(k, workload__pick(k, may_be_file, true), "peek");
}

/* ---- stat ---- */

static void stat_done(struct client_op *op)
{
	struct worker *k = op->user;
	struct content content = checker_certain(k->entry);

	if (op->err.code < 0) {
		workload__failed(k, op, false);
	} else if (op->attr.size != content.bytes || op->attr.type != CR_TYPE_FILE || !op->attr.complete) {
		cluster_fail(k->w->cluster, "stat of %s says type %u, %llu bytes, complete %u: it is a file of %llu",
			k->entry->path, op->attr.type, (unsigned long long)op->attr.size, op->attr.complete,
			(unsigned long long)content.bytes);
	}
	workload__job_end(k);
}

bool workload__job_stat(struct worker *k)
{
	k->entry = workload__pick(k, checker_is_file, false);
	if (!k->entry)
		return false;
	k->what = "stat";
	k->op.path = k->entry->path;
	workload__start_op(k, &k->op, CLIENT_STAT, stat_done);
	return true;
}

/* ---- listing ---- */

static void list_page(struct client_op *op);

static void list_more(struct worker *k)
{
	k->op.entries = k->page;
	k->op.entry_cap = LIST_PAGE;
	workload__start_op(k, &k->op, CLIENT_READDIR, list_page);
}

static void list_page(struct client_op *op)
{
	struct worker *k = op->user;
	struct checker *c = k->w->checker;

	if (op->err.code < 0) {
		workload__failed(k, op, false);
		workload__job_end(k);
		return;
	}
	for (uint64_t i = 0; i < op->count; i++)
		checker_listed(c, k->entry->path, &op->entries[i], k->since);
	if (op->end) {
		checker_list_end(c, k->entry->path, k->since);
		workload__job_end(k);
		return;
	}
	if (op->count)
		snprintf(op->after, sizeof(op->after), "%s", op->entries[op->count - 1].name);
	list_more(k);
}

bool workload__job_list(struct worker *k)
{
	k->entry = workload__pick(k, checker_is_dir, false);
	if (!k->entry)
		return false;
	k->what = "list";
	k->since = ++k->w->checker->tick;
	k->op.path = k->entry->path;
	list_more(k);
	return true;
}
