// SPDX-License-Identifier: Apache-2.0
/*
 * workload: see the header. A worker is    resting --timer--> job --last completion--> resting    and has one job at a time.
 *
 * A job is begun by job_NAME, which starts a client operation whose `done` is the job's next step. Every step either starts the next
 * operation or ends the job with job_end. The checker hears of a change before the request that makes it can leave, and of its outcome:
 * done, not done (the store said so), or unknown.
 */
#include "tests/sim/workload_priv.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

#define LULL_PAUSE_NS (20 * CLUSTER_S)

static void rest(struct worker *k, uint64_t ns);
static void next_job(struct worker *k);

/* ---- helpers ---- */

const char *workload_op_name(enum client_op_kind kind)
{
	switch (kind) {
	case CLIENT_STAT:
		return "stat";
	case CLIENT_MKDIR:
		return "mkdir";
	case CLIENT_RMDIR:
		return "rmdir";
	case CLIENT_UNLINK:
		return "unlink";
	case CLIENT_RENAME:
		return "rename";
	case CLIENT_READDIR:
		return "list";
	case CLIENT_LINK:
		return "link";
	case CLIENT_TRUNCATE:
		return "truncate";
	case CLIENT_OPEN:
		return "open";
	case CLIENT_READ:
		return "read";
	case CLIENT_WRITE:
		return "write";
	case CLIENT_FSYNC:
		return "fsync";
	case CLIENT_CLOSE:
		return "close";
	case CLIENT_ABORT:
		return "abort";
	default:
		return "op";
	}
}

bool workload_is_verdict(int code)
{
	switch (code) {
	case ERR_NOENT:
	case ERR_EXIST:
	case ERR_NOTDIR:
	case ERR_ISDIR:
	case ERR_NOTEMPTY:
	case ERR_INVAL:
	case ERR_NAMETOOLONG:
	case ERR_RANGE:
	case ERR_LOOP:
	case ERR_PERM:
	case ERR_ACCES:
		return true;
	default:
		return false;
	}
}

bool workload_is_gone(int code)
{
	return code == ERR_NOENT || code == ERR_NOTDIR;
}

bool workload__chance(struct worker *k, uint32_t percent)
{
	return rng_chance(&k->rng, percent, 100);
}

static uint64_t now_ns(const struct worker *k)
{
	return sim_now_ns(k->w->cluster->sim);
}

void workload__start_op(
	struct worker *k, struct client_op *op, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	op->kind = kind;
	op->done = done;
	op->user = k;
	cluster_client_start(k->w->cluster, k->node, op);
}

void workload__clear(struct client_op *op)
{
	memset(op, 0, sizeof(*op));
}

void workload__job_end(struct worker *k)
{
	struct workload *w = k->w;

	CHECK(k->active);
	cluster_note(w->cluster, "w%u %s %s%s%s: %s", k->number, k->what, k->entry ? k->entry->path : "",
		k->other ? " " : "", k->other ? k->other->path : "", k->code < 0 ? err_name(k->code) : "ok");
	k->active = false;
	w->done++;
	if (!w->cluster->failed)
		rest(k, rng_below(&k->rng, 1 + rng_below(&k->rng, w->o.pause_ns + 1)));
}

/* A failure that faults may excuse is kept; any other one is a defect. */
void workload__failed(struct worker *k, const struct client_op *op, bool may_be_verdict)
{
	if (!k->code)
		k->code = op->err.code;
	if (k->w->o.strict || (workload_is_verdict(op->err.code) && !may_be_verdict))
		cluster_fail(k->w->cluster, "%s of %s failed in %s: %s: %s", k->what, k->entry->path,
			workload_op_name(op->kind), err_name(op->err.code), op->err.text);
}

enum checker_outcome workload__outcome_of(const struct client_op *op)
{
	return op->err.code == 0 ? CHECKER_DONE : CHECKER_UNKNOWN;
}

void workload__acknowledged(struct worker *k, const struct client_op *op)
{
	if (op->err.code == 0)
		k->w->o.acknowledged(k->w->o.ctx);
}

/* ---- choosing names ---- */

/* The directory and its entries are this worker's own: nobody else changes them. */
struct checker_entry *workload__pick(struct worker *k, bool (*is)(const struct checker_entry *e), bool any_owner)
{
	struct checker *c = k->w->checker;
	uint32_t count = 0, nth;

	for (uint32_t i = 0; i < c->entry_count; i++)
		count += (any_owner || c->entries[i]->owner == k->number) && is(c->entries[i]);
	if (!count)
		return NULL;
	nth = (uint32_t)rng_below(&k->rng, count);
	for (uint32_t i = 0;; i++)
		if ((any_owner || c->entries[i]->owner == k->number) && is(c->entries[i]) && nth-- == 0)
			return c->entries[i];
}

static void parent_of(const struct checker_entry *e, char dir[CHECKER_PATH_BYTES])
{
	size_t n = (size_t)(strrchr(e->path, '/') - e->path);

	memcpy(dir, e->path, n);
	dir[n] = '\0';
}

static bool parent_is_there(struct worker *k, const struct checker_entry *e)
{
	char dir[CHECKER_PATH_BYTES];
	struct checker_entry *parent;

	parent_of(e, dir);
	parent = checker_find(k->w->checker, dir);
	return parent && checker_is_dir(parent);
}

uint32_t workload__count_own(struct worker *k, bool (*is)(const struct checker_entry *e))
{
	struct checker *c = k->w->checker;
	uint32_t count = 0;

	for (uint32_t i = 0; i < c->entry_count; i++)
		count += c->entries[i]->owner == k->number && is(c->entries[i]);
	return count;
}

/* A name at which certainly nothing is, in a directory that certainly is there: an old one or a new one. NULL: none. */
struct checker_entry *workload__free_name(struct worker *k)
{
	struct checker_entry *e = workload__chance(k, 40) ? workload__pick(k, checker_is_nothing, false) : NULL;
	struct checker_entry *dir = workload__pick(k, checker_is_dir, false);
	char path[CHECKER_PATH_BYTES];

	if (e && parent_is_there(k, e))
		return e;
	if (!dir)
		return NULL;
	snprintf(path, sizeof(path), "%.30s/f%u", dir->path, k->next_name++);
	return checker_add(k->w->checker, k->number, path);
}

uint64_t workload__some_size(struct worker *k)
{
	uint32_t bits;

	if (workload__chance(k, 5))
		return 0;
	if (workload__chance(k, 2))
		return rng_between(&k->rng, 1 << 18, WORKLOAD_FILE_BYTES);
	if (workload__chance(k, 12)) /* edges of units, cells, stripes and blocks */
		return (uint64_t)CLUSTER_CELL_BYTES * rng_between(&k->rng, 1, 20) + rng_below(&k->rng, 3) - 1;
	bits = (uint32_t)rng_between(&k->rng, 3, 17);
	return rng_between(&k->rng, (uint64_t)1 << (bits - 1), (uint64_t)1 << bits);
}

/* ---- the jobs by weight ---- */

static const struct job {
	bool (*start)(struct worker *k); /* false: impossible now; nothing was done */
	uint32_t weight;
} jobs[] = {
	{workload__job_put, 34},
	{workload__job_put_given_up, 4},
	{workload__job_stream, 8},
	{workload__job_append, 6},
	{workload__job_truncate, 4},
	{workload__job_link, 4},
	{workload__job_get, 22},
	{workload__job_peek, 8},
	{workload__job_rename, 7},
	{workload__job_unlink, 6},
	{workload__job_stat, 4},
	{workload__job_list, 5},
	{workload__job_mkdir, 3},
	{workload__job_rmdir, 3},
	{workload__job_refused, 4},
};

static bool start_some_job(struct worker *k)
{
	uint64_t sum = 0, at;

	for (size_t i = 0; i < ARRAY_COUNT(jobs); i++)
		sum += jobs[i].weight;
	at = rng_below(&k->rng, sum);
	for (size_t i = 0;; i++) {
		if (at < jobs[i].weight)
			return jobs[i].start(k);
		at -= jobs[i].weight;
	}
}

static void job_reset(struct worker *k)
{
	workload__clear(&k->op);
	workload__clear(&k->op2);
	k->entry = k->other = NULL;
	k->code = 0;
	k->at = 0;
	k->file = NULL;
}

static bool is_enough(const struct workload *w)
{
	return w->o.enough(w->o.ctx);
}

/* The worker's directory; NULL: it is still to be made, at `path`. */
static struct checker_entry *find_home(struct worker *k, char path[CHECKER_PATH_BYTES])
{
	struct checker_entry *home;

	for (;; k->home++) {
		snprintf(path, CHECKER_PATH_BYTES, "/w%u.%u", k->number, k->home);
		home = checker_find(k->w->checker, path);
		if (!home || !home->doubtful)
			return home;
	}
}

static void next_job(struct worker *k)
{
	struct workload *w = k->w;
	char path[CHECKER_PATH_BYTES];
	struct checker_entry *home;

	if (is_enough(w) || w->cluster->failed)
		return;
	k->active = true;
	k->since_ns = now_ns(k);
	job_reset(k);
	home = find_home(k, path);
	if (!home) {
		workload__make_dir(k, path);
		return;
	}
	for (int tries = 0; tries < 20; tries++) {
		if (start_some_job(k))
			return;
		job_reset(k);
	}
	/* Everything of its own is in doubt. */
	k->entry = home;
	k->what = "nothing";
	workload__job_end(k);
}

static void rested(struct io_op *op)
{
	next_job(CONTAINER_OF(op, struct worker, pause));
}

static void rest(struct worker *k, uint64_t ns)
{
	struct io *io = k->w->cluster->nodes[k->node].io;

	if (is_enough(k->w))
		return;
	if (now_ns(k) < k->w->lull_ns)
		ns = rng_below(&k->rng, LULL_PAUSE_NS);
	io_prep_timer(&k->pause, io_now_ns(io) + ns, rested);
	io_submit(io, &k->pause);
}

/* ---- the workload ---- */

struct workload *workload_new(struct cluster *cluster, struct checker *checker, const struct workload_options *options)
{
	struct workload *w = MEM_NEW(struct workload);

	w->cluster = cluster;
	w->checker = checker;
	w->o = *options;
	for (uint32_t i = 0; i < WORKLOAD_WORKERS; i++) {
		struct worker *k = &w->workers[i];

		k->w = w;
		k->number = i;
		k->node = cluster->first_client + i % cluster->options.clients;
		rng_init(&k->rng, options->seed * WORKLOAD_WORKERS + i + 0x776f726b);
		k->buf = mem_alloc(WORKLOAD_FILE_BYTES + 128);
		k->page = mem_array(LIST_PAGE, sizeof(k->page[0]));
	}
	return w;
}

void workload_free(struct workload *w)
{
	for (uint32_t i = 0; i < WORKLOAD_WORKERS; i++) {
		mem_free(w->workers[i].buf);
		mem_free(w->workers[i].page);
	}
	mem_free(w);
}

void workload_client_started(struct workload *w, unsigned node)
{
	for (uint32_t i = 0; i < WORKLOAD_WORKERS; i++) {
		if (w->workers[i].node != node)
			continue;
		CHECK(!w->workers[i].active);
		rest(&w->workers[i], rng_below(&w->workers[i].rng, w->o.pause_ns + 1));
	}
}

static void give_up_job(struct worker *k)
{
	struct checker *c = k->w->checker;

	cluster_note(k->w->cluster, "w%u %s %s: lost with its client", k->number, k->what, k->entry->path);
	if (k->entry->busy && k->entry->owner == k->number) {
		if (k->other)
			checker_rename_end(c, k->entry, k->other, CHECKER_UNKNOWN);
		else
			checker_end(c, k->entry, CHECKER_UNKNOWN);
	}
	k->active = false;
	k->w->done++;
}

void workload_client_crashed(struct workload *w, unsigned node)
{
	for (uint32_t i = 0; i < WORKLOAD_WORKERS; i++)
		if (w->workers[i].node == node && w->workers[i].active)
			give_up_job(&w->workers[i]);
}

void workload_lull(struct workload *w, uint64_t until_ns)
{
	w->lull_ns = until_ns;
}

bool workload_done(const struct workload *w)
{
	for (uint32_t i = 0; i < WORKLOAD_WORKERS; i++)
		if (w->workers[i].active)
			return false;
	return is_enough(w);
}

uint32_t workload_count(const struct workload *w)
{
	return w->done;
}

uint64_t workload_oldest_ns(const struct workload *w, const char **ret_what)
{
	uint64_t oldest = UINT64_MAX;

	for (uint32_t i = 0; i < WORKLOAD_WORKERS; i++) {
		if (!w->workers[i].active || w->workers[i].since_ns >= oldest)
			continue;
		oldest = w->workers[i].since_ns;
		*ret_what = w->workers[i].what;
	}
	return oldest;
}
