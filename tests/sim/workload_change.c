// SPDX-License-Identifier: Apache-2.0
/*
 * workload_change: files that are there are changed: second names, cut short, written on at their end. What is appended goes on with the
 * bytes of the same content, so a file that was cut and written on is what it was before, further on. Files with two names are not
 * changed: it would show at both.
 */
#include <string.h>
#include "tests/sim/workload_priv.h"

/* No other name is, or may be, the same file. */
static bool has_one_name(struct worker *k, const struct checker_entry *e)
{
	struct checker *c = k->w->checker;
	uint64_t id = checker_certain(e).id;

	for (uint32_t i = 0; i < c->entry_count; i++)
		for (uint32_t j = 0; c->entries[i] != e && j < c->entries[i]->state_count; j++)
			if (c->entries[i]->states[j].to == UINT64_MAX && c->entries[i]->states[j].content.id == id)
				return false;
	return true;
}

static struct checker_entry *pick_single(struct worker *k)
{
	struct checker_entry *e = workload__pick(k, checker_is_file, false);

	return e && has_one_name(k, e) ? e : NULL;
}

/* ---- one request ---- */

static void changed(struct client_op *op)
{
	struct worker *k = op->user;

	if (op->err.code < 0)
		workload__failed(k, op, false);
	checker_end(k->w->checker, k->entry, workload__outcome_of(op));
	workload__acknowledged(k, op);
	workload__job_end(k);
}

bool workload__job_link(struct worker *k)
{
	struct checker_entry *from = workload__pick(k, checker_is_file, false), *to = workload__free_name(k);

	if (!from || !to || from == to)
		return false;
	k->entry = to;
	k->what = "link";
	k->op.path = from->path;
	k->op.path2 = to->path;
	checker_begin(k->w->checker, to, checker_certain(from));
	workload__start_op(k, &k->op, CLIENT_LINK, changed);
	return true;
}

bool workload__job_truncate(struct worker *k)
{
	struct checker_entry *e = pick_single(k);
	struct content next;

	if (!e)
		return false;
	next = checker_certain(e);
	next.bytes = workload__chance(k, 30) ? 0 : rng_below(&k->rng, next.bytes + 1);
	k->entry = e;
	k->what = "truncate";
	k->op.path = e->path;
	k->op.offset = next.bytes;
	checker_begin(k->w->checker, e, next);
	workload__start_op(k, &k->op, CLIENT_TRUNCATE, changed);
	return true;
}

/* ---- append ---- */

bool workload__job_append(struct worker *k)
{
	struct checker_entry *e = pick_single(k);
	uint64_t more = workload__some_size(k);

	if (!e)
		return false;
	k->content = checker_certain(e);
	if (k->content.bytes + more > WORKLOAD_FILE_BYTES)
		return false;
	k->entry = e;
	k->what = "append";
	k->at = k->content.bytes;
	k->content.bytes += more;
	k->op.path = e->path;
	k->op.flags = CR_WRITE | CR_APPEND;
	checker_append_begin(k->w->checker, e, k->content);
	workload__stream_open(k);
	return true;
}
