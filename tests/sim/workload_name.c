// SPDX-License-Identifier: Apache-2.0
/* workload_name: changes of names, one request each, and requests that must be refused. */
#include <string.h>
#include "tests/sim/workload_priv.h"

/* ---- one request ---- */

static void changed(struct client_op *op)
{
	struct worker *k = op->user;
	struct checker *c = k->w->checker;

	if (op->err.code < 0)
		workload__failed(k, op, false);
	if (k->other)
		checker_rename_end(c, k->entry, k->other, workload__outcome_of(op));
	else
		checker_end(c, k->entry, workload__outcome_of(op));
	workload__acknowledged(k, op);
	workload__job_end(k);
}

static bool change(struct worker *k, enum client_op_kind kind, struct checker_entry *e, uint64_t next)
{
	if (!e)
		return false;
	k->entry = e;
	k->what = workload_op_name(kind);
	k->op.path = e->path;
	k->op.mode = 0755;
	checker_begin(k->w->checker, e, (struct content){.id = next});
	workload__start_op(k, &k->op, kind, changed);
	return true;
}

bool workload__job_unlink(struct worker *k)
{
	return change(k, CLIENT_UNLINK, workload__pick(k, checker_is_file, false), CHECKER_NOTHING);
}

void workload__make_dir(struct worker *k, const char *path)
{
	(void)change(k, CLIENT_MKDIR, checker_add(k->w->checker, k->number, path), CHECKER_DIRECTORY);
}

bool workload__job_mkdir(struct worker *k)
{
	char path[CHECKER_PATH_BYTES];

	if (workload__count_own(k, checker_is_dir) > DIRS_MAX)
		return false;
	snprintf(path, sizeof(path), "/w%u.%u/d%u", k->number, k->home, k->next_name++);
	workload__make_dir(k, path);
	return true;
}

static bool all_gone(struct worker *k, const struct checker_entry *dir)
{
	struct checker *c = k->w->checker;
	size_t n = strlen(dir->path);

	for (uint32_t i = 0; i < c->entry_count; i++)
		if (strncmp(c->entries[i]->path, dir->path, n) == 0 && c->entries[i]->path[n] == '/' &&
			!checker_is_nothing(c->entries[i]))
			return false;
	return true;
}

bool workload__job_rmdir(struct worker *k)
{
	struct checker_entry *dir = workload__pick(k, checker_is_dir, false);

	if (!dir || strchr(dir->path + 1, '/') == NULL || !all_gone(k, dir))
		return false;
	return change(k, CLIENT_RMDIR, dir, CHECKER_NOTHING);
}

bool workload__job_rename(struct worker *k)
{
	struct checker_entry *from = workload__pick(k, checker_is_file, false);
	struct checker_entry *to =
		workload__chance(k, 50) ? workload__pick(k, checker_is_file, false) : workload__free_name(k);

	/* Of two names of one file none replaces the other: nothing would happen. */
	if (!from || !to || from == to || checker_certain(from).id == checker_certain(to).id)
		return false;
	k->entry = from;
	k->other = to;
	k->what = "rename";
	k->op.path = from->path;
	k->op.path2 = to->path;
	checker_rename_begin(k->w->checker, from, to);
	workload__start_op(k, &k->op, CLIENT_RENAME, changed);
	return true;
}

/* ---- what must be refused ---- */

static void refused_closed(struct client_op *op)
{
	workload__job_end(op->user);
}

static void refused(struct client_op *op)
{
	struct worker *k = op->user;

	k->w->checker->refused++;
	k->code = op->err.code;
	if (op->err.code != k->expected && (op->err.code == 0 || workload_is_verdict(op->err.code) || k->w->o.strict))
		cluster_fail(k->w->cluster, "%s %s %s gave %s, not %s: %s", workload_op_name(op->kind), k->op.path,
			k->op.path2 ? k->op.path2 : "", err_name(op->err.code), err_name(k->expected), op->err.text);
	if (op->ret_file) {
		k->op2.file = op->ret_file;
		workload__start_op(k, &k->op2, CLIENT_ABORT, refused_closed);
		return;
	}
	workload__job_end(k);
}

static bool refuse(struct worker *k, enum client_op_kind kind, struct checker_entry *e, int expected)
{
	if (!e)
		return false;
	k->entry = e;
	k->what = "refuse";
	k->expected = expected;
	k->op.path = e->path;
	workload__start_op(k, &k->op, kind, refused);
	return true;
}

static bool is_file_or_dir(const struct checker_entry *e)
{
	return checker_is_file(e) || checker_is_dir(e);
}

bool workload__job_refused(struct worker *k)
{
	struct checker_entry *nothing = workload__free_name(k), *file = workload__pick(k, checker_is_file, false);

	switch (rng_below(&k->rng, 7)) {
	case 0:
		return refuse(k, CLIENT_UNLINK, nothing, ERR_NOENT);
	case 1:
		k->op.flags = CR_READ;
		return refuse(k, CLIENT_OPEN, nothing, ERR_NOENT);
	case 2:
		return refuse(k, CLIENT_MKDIR, workload__pick(k, is_file_or_dir, false), ERR_EXIST);
	case 3:
		return refuse(k, CLIENT_RMDIR, file, ERR_NOTDIR);
	case 4:
		k->op.flags = CR_WRITE | CR_ATOMIC | CR_EXCL;
		return refuse(k, CLIENT_OPEN, file, ERR_EXIST);
	case 5:
		k->op.path2 = nothing ? nothing->path : "/";
		return refuse(k, CLIENT_STAT, nothing, ERR_NOENT);
	default:
		k->op.flags = CR_RENAME_NOREPLACE;
		k->op.path2 = file ? file->path : "/";
		return refuse(k, CLIENT_RENAME, workload__pick(k, checker_is_file, false), ERR_EXIST);
	}
}
