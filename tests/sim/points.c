// SPDX-License-Identifier: Apache-2.0
/*
 * points: see the header. The store that lives on is the parent of all copies; a copy is made inside the very sync (run.h: `synced`),
 * which in the copy does not take place. The same life is run once before without copies, to know how many syncs there will be to try.
 */
#include "tests/sim/points.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "common/base/check.h"
#include "metad/core.h"
#include "tests/sim/run.h"

enum {
	KINDS_MAX = 96,
	LABEL_BYTES = 120,
	FIRST = 2,         /* of each kind are tried in any case, */
	ONE_IN = 256,      /* and so many of the others */
	WAYS_OF_ONE = 2,   /* ways to lose power that a sync goes, in turn, */
	ALL_WAYS = 20,     /* or all, where each sync is tried; of a group the first of each kind */
	OPS_AFTER = 60,    /* of the clients, after the crash */
	AGAIN_MAX = 6,     /* syncs after the first crash, at one of which the second comes; */
	AGAIN_FIRST = 2,   /* from the first of a kind on at the 4th, 5th, 6th, 1st, ... */
	COPY_LIMIT_S = 60, /* of a core */
	COPIES_MAX = 16,   /* at once; as a rule one for each processor */
	TELL_S = 10,       /* how often it is told how far it is */
	FAILED_MAX = 8,    /* then it is clear enough */
};

/* Syncs of one role (metad, chunkd), one sort and one path, whatever numbers are in it. */
struct sync_kind {
	char label[LABEL_BYTES];
	uint64_t seen, tried, failed;
};

struct points {
	const struct points_options *o;
	struct sync_kind kinds[KINDS_MAX];
	size_t count;
	struct rng rng;
	bool is_copy;
	unsigned node;               /* a copy: of the daemon that was stopped */
	unsigned again;              /* at so many of its syncs from then on its power fails, too; 0: it does not */
	enum sim_loss again_loss;
	char what[LABEL_BYTES + 64]; /* a copy: where it went another way */
	struct {
		pid_t pid;
		struct sync_kind *kind;
	} copies[COPIES_MAX];
	unsigned copy_count, copies_most; /* under way */
	uint64_t failed;
	bool counting;          /* nothing is tried: how many syncs will be? */
	uint64_t chosen;        /* in whatever part */
	uint64_t points, total; /* syncs that were tried, and will have been */
	time_t begin_s, told_s;
};

static bool is_leader(struct cluster *c, unsigned node)
{
	return c->nodes[node].metad && c->nodes[node].metad == cluster_metad(c);
}

/* It has come, and does not vote yet. */
static bool is_learner(const struct cluster *c, unsigned node)
{
	struct ledger_view view;

	if (c->nodes[node].replica <= c->options.metads || !c->nodes[node].metad)
		return false;
	ledger_view(c->nodes[node].metad->ledger, &view);
	for (uint32_t i = 0; i < view.count; i++)
		if (view.members[i].id == view.id)
			return !view.members[i].voter;
	return true;
}

static const char *role_of(struct cluster *c, unsigned node)
{
	if (!cluster_is_metad(c, node))
		return "chunkd";
	if (!c->options.metads)
		return "metad";
	if (!c->nodes[node].metad)
		return "starting metad";
	if (is_learner(c, node))
		return "joining metad";
	return is_leader(c, node) ? "leading metad" : "following metad";
}

static void make_label(char label[LABEL_BYTES], const char *role, enum sim_sync kind, const char *path)
{
	static const char *const sorts[] = {[SIM_SYNC_FILE] = "fdatasync",
		[SIM_SYNC_DIR] = "sync of directory",
		[SIM_SYNC_WRITE] = "durable write"};
	size_t n = (size_t)snprintf(label, LABEL_BYTES, "%s: %s of ", role, sorts[kind]);
	bool was_number = false;

	for (; *path && n + 1 < LABEL_BYTES; path++) {
		bool is_number = isdigit((unsigned char)*path) || (was_number && isxdigit((unsigned char)*path));

		if (!is_number || !was_number)
			label[n++] = is_number ? '#' : *path;
		was_number = is_number;
	}
	label[n] = '\0';
}

static struct sync_kind *kind_of(struct points *p, const char *label)
{
	for (size_t i = 0; i < p->count; i++)
		if (strcmp(p->kinds[i].label, label) == 0)
			return &p->kinds[i];
	CHECK(p->count < KINDS_MAX);
	snprintf(p->kinds[p->count].label, LABEL_BYTES, "%s", label);
	return &p->kinds[p->count++];
}

/* ---- copies ---- */

static void wait_for_copy(struct points *p)
{
	int status;
	pid_t pid = wait(&status);

	CHECK(pid > 0);
	for (unsigned i = 0; i < p->copy_count; i++) {
		if (p->copies[i].pid != pid)
			continue;
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			p->copies[i].kind->failed++;
			p->failed++;
		}
		p->copies[i] = p->copies[--p->copy_count];
		return;
	}
	CHECK_UNREACHABLE();
}

/* True: this is the copy. */
static bool copy(struct points *p, struct sync_kind *kind)
{
	pid_t pid;

	while (p->copy_count == p->copies_most)
		wait_for_copy(p);
	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		p->is_copy = true;
		run_limit_cpu(COPY_LIMIT_S);
		return true;
	}
	kind->tried++;
	p->copies[p->copy_count].pid = pid;
	p->copies[p->copy_count++].kind = kind;
	return false;
}

/* The first that does not lead. */
static unsigned follower(struct cluster *c)
{
	unsigned i = 0;

	while (is_leader(c, cluster_metad_node(c, i)))
		i++;
	return cluster_metad_node(c, i);
}

static bool is_chosen(struct points *p, struct cluster *c, const struct sync_kind *kind, unsigned node)
{
	if (p->o->metads && !cluster_is_metad(c, node))
		return false; /* one metad shows them */
	if (p->o->all && p->o->metads)
		return kind->seen <= FIRST || is_leader(c, node) || node == follower(c) || is_learner(c, node);
	if (p->o->all)
		return node <= CLUSTER_CHUNKD || kind->seen <= FIRST; /* metad and one chunkd: the others are like it */
	return kind->seen <= FIRST || (kind->seen & (kind->seen - 1)) == 0 || rng_chance(&p->rng, 1, ONE_IN);
}

static time_t real_s(void)
{
	struct timespec t;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
	return t.tv_sec;
}

static void tell(struct points *p)
{
	uint64_t took_s = (uint64_t)(real_s() - p->begin_s);

	if (real_s() - p->told_s < TELL_S)
		return;
	p->told_s = real_s();
	fprintf(stderr, "%llu of %llu syncs tried, %llu crashes failed, %llu s; about %llu s to go\n",
		(unsigned long long)p->points, (unsigned long long)p->total, (unsigned long long)p->failed,
		(unsigned long long)took_s,
		(unsigned long long)(p->points ? took_s * (p->total - p->points) / p->points : 0));
}

/* The last one is of groups. */
static const struct way {
	const char *name;
	enum sim_loss loss;
	bool twice;
	void (*stopped)(void *ctx);
} ways[] = {
	{"the daemon killed", SIM_LOSS_NONE, false, run_stopped},
	{"torn", SIM_LOSS_TORN, false, run_stopped},
	{"lost", SIM_LOSS_ALL, false, run_stopped},
	{"the daemon killed, then power lost", SIM_LOSS_NONE, true, run_stopped},
	{"lost by all hosts", SIM_LOSS_ALL, false, run_all_stopped},
};

static size_t way_count(const struct points *p)
{
	return ARRAY_COUNT(ways) - (p->o->metads ? 0 : 1);
}

/* How many of them this sync goes. */
static size_t ways_of(const struct points *p, const struct sync_kind *kind, bool is_rare)
{
	return is_rare || (p->o->all && (!p->o->metads || kind->seen <= ALL_WAYS)) ? way_count(p) : WAYS_OF_ONE;
}

/* This is the copy. */
static void go_another_way(struct points *p, struct cluster *c, unsigned node, const struct sync_kind *kind, const struct way *way)
{
	snprintf(p->what, sizeof(p->what), "%s no. %llu, %s", kind->label, (unsigned long long)kind->seen, way->name);
	p->node = node;
	p->again = way->twice ? 1 + (unsigned)((kind->seen + AGAIN_FIRST) % AGAIN_MAX) : 0;
	p->again_loss = kind->seen % 2 ? SIM_LOSS_TORN : SIM_LOSS_ALL;
	sim_set_loss(c->nodes[node].io, way->loss);
	sim_stop_at_sync(c->nodes[node].io, 1, way->stopped, (void *)(uintptr_t)node);
	run_only_more(OPS_AFTER);
}

static void synced(void *ctx, struct cluster *c, unsigned node, enum sim_sync sort, const char *path)
{
	struct points *p = ctx;
	struct sync_kind *kind;
	char label[LABEL_BYTES];

	if (p->is_copy && p->again && node == p->node && --p->again == 0) {
		sim_set_loss(c->nodes[node].io, p->again_loss);
		sim_stop_at_sync(c->nodes[node].io, 1, run_stopped, (void *)(uintptr_t)node);
	}
	if (p->is_copy || cluster_is_client(c, node) || p->failed >= FAILED_MAX)
		return;
	make_label(label, role_of(c, node), sort, path);
	kind = kind_of(p, label);
	kind->seen++;
	if (!is_chosen(p, c, kind, node) || p->chosen++ % p->o->parts != p->o->part)
		return;
	if (p->counting) {
		p->total++;
		return;
	}
	p->points++;
	tell(p);
	for (size_t i = 0; i < ways_of(p, kind, is_learner(c, node)); i++) {
		if (!copy(p, kind))
			continue;
		go_another_way(p, c, node, kind, &ways[(WAYS_OF_ONE * kind->seen + i) % way_count(p)]);
		return;
	}
}

/* ---- the whole ---- */

static int conclude(const struct points *p, const struct run_result *r)
{
	uint64_t seen = 0, tried = 0, failed = 0;

	for (size_t i = 0; i < p->count; i++) {
		const struct sync_kind *k = &p->kinds[i];

		printf("%8llu times, %5llu crashes, %llu failed: %s\n", (unsigned long long)k->seen,
			(unsigned long long)k->tried, (unsigned long long)k->failed, k->label);
		seen += k->seen;
		tried += k->tried;
		failed += k->failed;
	}
	if (p->o->json)
		printf("{\"operations\": %llu, \"syncs\": %llu, \"kinds\": %zu, \"points\": %llu, \"crashes\": %llu, \"failed\": %llu}\n",
			(unsigned long long)r->counts[RUN_operations], (unsigned long long)seen, p->count,
			(unsigned long long)p->points, (unsigned long long)tried, (unsigned long long)failed);
	return r->ok && tried && !failed ? 0 : 1;
}

static void count_points(struct points *p, const struct run_options *o)
{
	struct run_result r;

	p->counting = true;
	rng_init(&p->rng, o->seed);
	run_seed(o, &r);
	p->counting = false;
	p->count = 0;
	p->chosen = 0;
	memset(p->kinds, 0, sizeof(p->kinds));
}

int points_run(const struct points_options *options)
{
	static struct points points;
	struct points *p = &points;
	struct run_options o = {
		.seed = options->seed, .ops = options->ops, .mode = RUN_SYNCS, .metads = options->metads, .synced = synced, .ctx = p};
	struct run_result r;

	p->o = options;
	p->copies_most = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	if (p->copies_most > COPIES_MAX)
		p->copies_most = COPIES_MAX;
	count_points(p, &o);
	rng_init(&p->rng, options->seed);
	p->begin_s = p->told_s = real_s();
	run_seed(&o, &r);
	if (p->is_copy) {
		if (!r.ok)
			printf("crash at %s: %s\n", p->what, r.text);
		fflush(stdout);
		_exit(r.ok ? 0 : 1);
	}
	while (p->copy_count)
		wait_for_copy(p);
	return conclude(p, &r);
}
