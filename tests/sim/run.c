// SPDX-License-Identifier: Apache-2.0
/* run: see the header. The shape of the store (servers, disks, domains, clients) comes from the seed too. */
#include "tests/sim/run.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "tests/sim/appenders.h"
#include "tests/sim/copies.h"
#include "tests/sim/filler.h"
#include "tests/sim/garbage.h"
#include "tests/sim/joiner.h"
#include "tests/sim/labels.h"
#include "tests/sim/law.h"
#include "tests/lib/linear_json.h"
#include "tests/sim/names.h"
#include "tests/sim/registers.h"
#include "tests/sim/settings.h"
#include "tests/sim/staller.h"
#include "tests/sim/verify.h"
#include "tests/sim/workload.h"

enum {
	CREWS_MAX = 4,
	PAUSE_MS = 60,
	PAUSE_ONE_MS = 600,  /* one fault follows the other: so that there are some within a run */
	OPS_PER_FAULT = 100, /* at most: else the workload goes on */
	LULL_SEEDS = 4,      /* one in so many has a lull: the grace of what is removed passes within the run */
	GARBAGE_SEEDS = 8,   /* one in so many waits until the garbage is gone */
	STALL_SEEDS = 10,    /* one in so many has a writer who stands still until the floor has passed his blocks */
	FULL_SEEDS = 5,      /* in one of so many the disks of metads become full */
	JOIN_SEEDS = 2,    /* of groups, one in so many gets one more metad */
	LOSE_SEEDS = 4,    /* and in one of so many a founder loses its directory */
	NAMES_SEEDS = 3,   /* of stores of one metad, one in so many has names that all clients change; of groups each has */
	SPIN_EVENTS =
		120000, /* within a second of virtual time; 20000 are usual: more, and somebody turns without need */
};

#define WATCH_NS (CLUSTER_S / 2)         /* how often the laws are looked at */
#define IDLE_STEP_NS (10 * CLUSTER_S) /* the same while an hour passes */
#define REGISTER_LIMIT_NS (60 * CLUSTER_S)
#define LULL_NS (135 * CLUSTER_S)        /* a little more than the grace */
#define STUCK_LIMIT_NS (400 * CLUSTER_S) /* one job may be a dozen operations, each bounded by its time-out */
#define SETTLE_NS (40 * CLUSTER_S)       /* longer than a broken connection can hold a request back */
#define VERIFY_LIMIT_NS (2000 * CLUSTER_S)
#define STOP_LIMIT_NS (120 * CLUSTER_S)

struct run {
	const struct run_options *o;
	struct cluster *cluster;
	struct checker *checker;
	struct workload *workload;
	struct crew *crews[CREWS_MAX];
	size_t crew_count;
	struct crew *names;           /* one of them; NULL: there is none */
	struct linear_result verdict; /* on their history */
	struct faults *faults; /* NULL: none */
	struct verify *verify;
	struct law *law;
	struct copies *copies;
	struct joiner joiner;
	struct staller staller;
	struct filler filler;
	struct settings settings;
	struct client_op gc;
	uint64_t lull_ops; /* when the lull is to begin; UINT64_MAX: there is none any more */
	uint64_t join_ops; /* likewise, when one more metad comes, or one loses its directory */
	const char *phase;
	bool worked;                       /* the workload has ended */
	bool one_look;                     /* the second one is enough */
	bool looking;                      /* nothing may be in the way */
	bool ended[CLUSTER_NODES_MAX];     /* daemons, when all was mended */
	uint64_t second_ns, second_events; /* since when check_spin counts */
	uint64_t ops_wanted;               /* of the clients */
	uint64_t ops;                      /* when the workload was over */
};

static struct run *current; /* for signal handlers */

static double cpu_seconds(void)
{
	struct rusage u;

	CHECK(getrusage(RUSAGE_SELF, &u) == 0);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		(double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* ---- conditions ---- */

static bool is_registered(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || cluster_all_registered(r->cluster);
}

static bool wants_attention(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || workload_done(r->workload) || (r->faults && faults_wants_now(r->faults));
}

static bool is_failed(void *ctx)
{
	return ((struct run *)ctx)->cluster->failed;
}

static bool is_verified(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || verify_done(r->verify);
}

static bool is_stopped(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || cluster_all_stopped(r->cluster);
}

static bool are_clients_stopped(void *ctx)
{
	struct run *r = ctx;

	for (unsigned i = r->cluster->first_client; i < r->cluster->client_end; i++)
		if (r->cluster->nodes[i].state != CLUSTER_STOPPED)
			return r->cluster->failed;
	return true;
}

static void acknowledged(void *ctx)
{
	struct run *r = ctx;

	if (r->faults)
		faults_acknowledged(r->faults);
}

static bool enough(void *ctx)
{
	struct run *r = ctx;
	uint64_t faults = 0;

	for (int i = 0; r->faults && i < FAULTS_KINDS; i++)
		faults += faults_count(r->faults, i);
	return r->cluster->client_ops >= r->ops_wanted &&
		(r->o->mode != RUN_ALL || r->o->without || faults >= r->ops_wanted / OPS_PER_FAULT);
}

static void client_crashed(void *ctx, unsigned node)
{
	struct run *r = ctx;

	workload_client_crashed(r->workload, node);
	for (size_t i = 0; i < r->crew_count; i++)
		crew_client_crashed(r->crews[i], node);
}

static void client_started(void *ctx, unsigned node)
{
	struct run *r = ctx;

	workload_client_started(r->workload, node);
	for (size_t i = 0; i < r->crew_count; i++)
		crew_client_started(r->crews[i], node);
}

static bool is_idle(void *ctx)
{
	struct run *r = ctx;

	for (size_t i = 0; i < r->crew_count; i++)
		if (!crew_idle(r->crews[i]))
			return r->cluster->failed;
	return r->cluster->failed || joiner_idle(&r->joiner);
}

/* ---- phases ---- */

static uint64_t now_ns(const struct run *r)
{
	return sim_now_ns(r->cluster->sim);
}

static void enter(struct run *r, const char *phase)
{
	if (r->cluster->failed)
		return;
	r->phase = phase;
	cluster_note(r->cluster, "phase %s", phase);
}

/* No more events within a second than work can explain. */
static void check_spin(struct run *r)
{
	uint64_t events = sim_event_count(r->cluster->sim);

	if (now_ns(r) - r->second_ns >= CLUSTER_S) {
		r->second_ns = now_ns(r);
		r->second_events = events;
	}
	if (events - r->second_events > SPIN_EVENTS)
		cluster_fail(r->cluster, "%llu events within a second of virtual time: something spins",
			(unsigned long long)(events - r->second_events));
}

/* What must hold at any time. */
static void watch(struct run *r)
{
	check_spin(r);
	law_look(r->law);
	copies_look(r->copies);
	joiner_look(&r->joiner);
}

/* True: until() held. */
static bool advance(struct run *r, bool (*until)(void *ctx), uint64_t limit_ns)
{
	uint64_t end_ns = now_ns(r) + limit_ns;
	bool held = false;

	while (!held && !r->cluster->failed && now_ns(r) < end_ns) {
		uint64_t left_ns = end_ns - now_ns(r);

		held = sim_run(r->cluster->sim, until, r, now_ns(r) + (left_ns < WATCH_NS ? left_ns : WATCH_NS));
		watch(r);
	}
	return held;
}

static void wait_for(struct run *r, bool (*until)(void *ctx), uint64_t limit_ns)
{
	if (!advance(r, until, limit_ns))
		cluster_fail(r->cluster, "%s did not end within %llu s of virtual time", r->phase,
			(unsigned long long)(limit_ns / CLUSTER_S));
}

static void check_stuck(struct run *r)
{
	const char *what = "";
	uint64_t oldest_ns = workload_oldest_ns(r->workload, &what);

	if (oldest_ns != UINT64_MAX && now_ns(r) - oldest_ns > STUCK_LIMIT_NS)
		cluster_fail(r->cluster, "a %s did not end within %llu s of virtual time", what,
			(unsigned long long)(STUCK_LIMIT_NS / CLUSTER_S));
}

void run_stopped(void *ctx)
{
	unsigned node = (unsigned)(uintptr_t)ctx;
	bool is_wanted = cluster_running(current->cluster, node);

	cluster_crash(current->cluster, node);
	if (is_wanted)
		cluster_start_again(current->cluster, node);
}

/* Power fails everywhere, and nothing stays but what was made durable. */
static void lose_all(struct run *r)
{
	for (unsigned i = 0; i < r->cluster->node_count; i++) {
		if (cluster_is_client(r->cluster, i) || !cluster_running(r->cluster, i))
			continue;
		sim_set_loss(r->cluster->nodes[i].io, SIM_LOSS_ALL);
		cluster_crash(r->cluster, i);
	}
	for (unsigned i = 0; i < r->cluster->node_count && !r->cluster->failed; i++)
		if (!cluster_is_client(r->cluster, i))
			cluster_start_again(r->cluster, i);
}

void run_all_stopped(void *ctx)
{
	if (cluster_running(current->cluster, (unsigned)(uintptr_t)ctx))
		lose_all(current);
	else
		run_stopped(ctx); /* all are being stopped */
}

void run_only_more(uint64_t ops)
{
	if (!current->worked) /* else those that rest would begin again */
		current->ops_wanted = current->cluster->client_ops + ops;
	current->one_look = true;
}

static bool are_settings_done(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || settings_done(&r->settings);
}

static void gc_asked(struct client_op *op)
{
	(void)op; /* faults may be in its way: then what lost its name waits longer */
}

/* What has lost its name by now will be dropped at the end of the lull, when there is much to do again. */
static void lull(struct run *r)
{
	uint64_t until_ns = now_ns(r) + LULL_NS;

	r->lull_ops = UINT64_MAX;
	SOMETIMES(sim_lull);
	cluster_note(r->cluster, "lull");
	workload_lull(r->workload, until_ns);
	for (size_t i = 0; i < r->crew_count; i++)
		crew_lull(r->crews[i], until_ns);
	law_hurry(r->law);
	if (r->faults)
		faults_lull(r->faults, until_ns);
	for (unsigned i = r->cluster->first_client; i < r->cluster->client_end; i++) {
		if (!cluster_running(r->cluster, i))
			continue;
		r->gc = (struct client_op){.kind = CLIENT_GC, .flags = CLIENT_GC_START, .done = gc_asked};
		cluster_client_start(r->cluster, i, &r->gc);
		return;
	}
}

/* Others remember what it acknowledged. */
static bool loses_founder(const struct run_options *o)
{
	return o->metads > 2 && o->mode == RUN_ALL && o->seed % LOSE_SEEDS == 0;
}

static void join(struct run *r)
{
	r->join_ops = UINT64_MAX;
	if (loses_founder(r->o)) {
		joiner_begin_lost(&r->joiner, r->cluster, cluster_metad_node(r->cluster, (unsigned)(r->o->seed / LOSE_SEEDS % r->o->metads)));
		return;
	}
	cluster_note(r->cluster, "join");
	joiner_begin(&r->joiner, r->cluster);
}

static void work(struct run *r)
{
	enter(r, "workload");
	for (unsigned i = r->cluster->first_client; i < r->cluster->client_end; i++)
		client_started(r, i);
	while (!r->cluster->failed && !workload_done(r->workload)) {
		uint64_t next_ns = now_ns(r) + WATCH_NS;

		if (r->faults && faults_next_ns(r->faults) < next_ns)
			next_ns = faults_next_ns(r->faults);
		sim_run(r->cluster->sim, wants_attention, r, next_ns);
		watch(r);
		check_stuck(r);
		if (r->cluster->client_ops >= r->lull_ops && !r->cluster->failed)
			lull(r);
		if (r->cluster->client_ops >= r->join_ops && !r->cluster->failed)
			join(r);
		if (r->faults && !r->cluster->failed)
			faults_step(r->faults);
	}
}

static bool is_any_down(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || (r->faults && faults_wants_now(r->faults));
}

static bool is_registered_or_down(void *ctx)
{
	return is_registered(ctx) || is_any_down(ctx);
}

static bool is_idle_or_down(void *ctx)
{
	return is_idle(ctx) || is_any_down(ctx);
}

static void mend(struct run *r)
{
	uint64_t begin_ns = now_ns(r);

	while (r->faults && !r->cluster->failed && !faults_mend(r->faults)) {
		advance(r, is_failed, 50 * CLUSTER_MS);
		if (now_ns(r) - begin_ns > STOP_LIMIT_NS)
			cluster_fail(r->cluster, "%s: a daemon did not stop", r->phase);
	}
}

/*
 * All was mended, and only one thing may end a daemon, once: a write that failed while there was no room, of which it learns when there is
 * again.
 */
static void check_ends(struct run *r)
{
	for (unsigned i = 0; i < r->cluster->node_count; i++) {
		const struct cluster_node *n = &r->cluster->nodes[i];

		if (!n->fatal || n->state != CLUSTER_RUNNING)
			continue;
		if (n->fatal != ERR_NOSPC || r->ended[i])
			cluster_fail(r->cluster, "%s gave up when all was well: %s", n->name, err_name(n->fatal));
		r->ended[i] = true;
	}
}

static void settle(struct run *r)
{
	for (;;) {
		mend(r);
		wait_for(r, is_registered_or_down, REGISTER_LIMIT_NS);
		wait_for(r, is_idle_or_down, STUCK_LIMIT_NS);
		if (!r->faults || r->cluster->failed || (is_idle(r) && !is_any_down(r) && !advance(r, is_any_down, SETTLE_NS)))
			return;
		check_ends(r);
	}
}

static bool are_even(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || cluster_metads_are_even(r->cluster);
}

static void look_at_all(struct run *r)
{
	if (r->cluster->failed)
		return;
	r->looking = true;
	wait_for(r, are_even, REGISTER_LIMIT_NS);
	if (!r->cluster->failed)
		cluster_check_metads(r->cluster);
	copies_look_at_all(r->copies);
	for (unsigned i = CLUSTER_CHUNKD; i < r->cluster->first_client; i++)
		law_look_at_extents(r->cluster, i, r->faults);
	verify_start(r->verify);
	wait_for(r, is_verified, VERIFY_LIMIT_NS);
	if (!r->cluster->failed) {
		for (size_t i = 0; i < r->crew_count; i++)
			crew_look(r->crews[i]);
		wait_for(r, is_idle, VERIFY_LIMIT_NS);
	}
	r->looking = false;
}

static bool is_of(const struct run *r, unsigned seeds, unsigned which)
{
	return !r->cluster->failed && r->o->seed % seeds == which && r->o->mode != RUN_SYNCS;
}

static bool is_filler_done(void *ctx)
{
	struct run *r = ctx;

	return r->cluster->failed || r->filler.done;
}

/* What is acknowledged on a full disk is looked at behind the restart. */
static void fill(struct run *r)
{
	if (!is_of(r, FULL_SEEDS, 2))
		return;
	enter(r, "full");
	filler_begin(&r->filler, r->cluster, r->checker);
	wait_for(r, is_filler_done, FILLER_LIMIT_NS);
	filler_end(&r->filler);
}

/* Little will happen for an hour of virtual time: so not every seed has one. */
static void begin_idle(struct run *r, const char *phase)
{
	enter(r, phase);
	settings_slacken(&r->settings, r->cluster);
	wait_for(r, are_settings_done, REGISTER_LIMIT_NS);
}

/* What a writer has sealed is closed under his hands. */
static void stall(struct run *r)
{
	uint64_t end_ns = now_ns(r) + STALLER_LIMIT_NS;

	if (!is_of(r, STALL_SEEDS, STALL_SEEDS / 2))
		return;
	begin_idle(r, "stall");
	if (!r->cluster->failed)
		staller_begin(&r->staller, r->cluster, r->checker);
	while (!r->cluster->failed && !r->staller.done) {
		if (now_ns(r) > end_ns)
			cluster_fail(r->cluster, "a writer who stood still does not end");
		sim_run(r->cluster->sim, is_failed, r, now_ns(r) + IDLE_STEP_NS);
		watch(r);
	}
	staller_end(&r->staller);
	enter(r, "stalled-look");
	look_at_all(r);
}

/* Everything that is not named goes, in bounded time. */
static void collect_garbage(struct run *r)
{
	uint64_t end_ns = now_ns(r) + GARBAGE_LIMIT_NS;
	const char *left;

	if (!is_of(r, GARBAGE_SEEDS, 0))
		return;
	begin_idle(r, "garbage");
	while (!r->cluster->failed && (left = garbage_left(r->cluster))[0]) {
		if (now_ns(r) > end_ns)
			cluster_fail(r->cluster, "after %llu s with all hosts up, %s",
				(unsigned long long)(GARBAGE_LIMIT_NS / CLUSTER_S), left);
		sim_run(r->cluster->sim, is_failed, r, now_ns(r) + IDLE_STEP_NS);
		watch(r);
	}
	enter(r, "third-look");
	look_at_all(r);
}

/* The clients first: they say goodbye to those that are still there. */
static void stop_all(struct run *r)
{
	if (r->cluster->failed)
		return;
	for (unsigned i = r->cluster->first_client; i < r->cluster->client_end; i++)
		cluster_stop(r->cluster, i);
	wait_for(r, are_clients_stopped, STOP_LIMIT_NS);
	for (unsigned i = CLUSTER_CHUNKD; i < r->cluster->first_client && !r->cluster->failed; i++)
		cluster_stop(r->cluster, i);
	for (unsigned i = 0; i < cluster_metads(r->cluster) && !r->cluster->failed; i++)
		cluster_stop(r->cluster, cluster_metad_node(r->cluster, i));
	wait_for(r, is_stopped, STOP_LIMIT_NS);
}

static void restart_all(struct run *r)
{
	if (r->cluster->failed)
		return;
	if (r->faults) {
		faults_blackout(r->faults);
	} else if (r->o->mode == RUN_SYNCS) {
		lose_all(r);
	} else {
		stop_all(r);
		for (unsigned i = 0; i < r->cluster->node_count && !r->cluster->failed; i++)
			cluster_start(r->cluster, i);
	}
	mend(r);
	wait_for(r, is_registered, REGISTER_LIMIT_NS);
}

static void run_phases(struct run *r)
{
	enter(r, "start");
	wait_for(r, is_registered, REGISTER_LIMIT_NS);
	if (!r->cluster->failed) {
		settings_hasten(&r->settings, r->cluster);
		wait_for(r, are_settings_done, REGISTER_LIMIT_NS);
	}
	if (!r->cluster->failed)
		work(r);
	r->worked = true;
	r->ops = r->cluster->client_ops;
	enter(r, "mending");
	for (size_t i = 0; i < r->crew_count; i++)
		crew_stop(r->crews[i]);
	settle(r);
	if (!r->one_look) {
		enter(r, "look");
		look_at_all(r);
	}
	fill(r);
	enter(r, "restart");
	restart_all(r);
	enter(r, "second-look");
	look_at_all(r);
	stall(r);
	collect_garbage(r);
	if (r->names && !r->cluster->failed)
		names_judge(r->names, &r->verdict);
	enter(r, "stop");
	stop_all(r);
}

static void export_history(const struct run *r)
{
	if (r->names && r->o->history && linear_write(r->o->history, names_history(r->names)))
		cluster_fail(r->cluster, "the history cannot be written");
}

/* ---- one run ---- */

static void fill_result(const struct run *r, struct run_result *out)
{
	const struct checker *k = r->checker;
	const struct verify_counts *v = verify_counts(r->verify);

	out->ok = !r->cluster->failed;
	snprintf(out->text, sizeof(out->text), "%.250s", r->cluster->text);
	out->counts[RUN_operations] = r->ops;
	out->counts[RUN_jobs] = workload_count(r->workload);
	for (size_t i = 0; i < r->crew_count; i++)
		out->counts[RUN_jobs] += r->crews[i]->count;
	out->counts[RUN_acknowledged] = k->acknowledged;
	out->counts[RUN_refused] = k->refused;
	out->counts[RUN_unknown] = k->doubts;
	out->counts[RUN_reads] = k->reads;
	out->counts[RUN_reads_failed] = k->reads_failed;
	out->counts[RUN_bytes_read] = k->bytes_read;
	out->counts[RUN_names] = k->names_checked;
	out->counts[RUN_files_verified] = v->files;
	out->counts[RUN_bytes_verified] = v->bytes;
	out->counts[RUN_chunks] = v->chunks;
	out->counts[RUN_damaged_chunks] = v->damaged;
	out->counts[RUN_never_sealed] = v->unsealed;
	out->counts[RUN_replays] = r->cluster->replays;
	out->counts[RUN_crashes] = r->cluster->crashes;
	out->counts[RUN_stops] = r->cluster->stops;
	out->counts[RUN_bits_flipped] = r->faults ? faults_flipped(r->faults) : 0;
	out->counts[RUN_name_ops] = r->verdict.checked;
	out->counts[RUN_name_conflicts] = r->verdict.conflicts;
	out->counts[RUN_name_unknown] = r->verdict.unknown;
	out->counts[RUN_events] = sim_event_count(r->cluster->sim);
	for (int i = 0; r->faults && i < FAULTS_KINDS; i++)
		out->faults[i] = faults_count(r->faults, i);
	out->hash = sim_event_hash(r->cluster->sim);
	out->virtual_s = (double)now_ns(r) / 1e9;
}

static void shape(struct cluster_options *o, uint64_t seed)
{
	struct rng rng;

	rng_init(&rng, seed ^ 0x7368617065);
	o->chunkds = 6;
	o->clients = 2;
	switch (rng_below(&rng, 6)) {
	case 0: /* some share a domain, and there are more than a block needs */
		o->chunkds = 8;
		o->domains = 7;
		break;
	case 1: /* fewer domains than chunks: every block is crowded */
		o->chunkds = 5;
		break;
	case 2:
		o->clients = 3;
		break;
	}
	for (unsigned i = 0; i < o->chunkds; i++)
		o->disks[i] = 1;
	if (rng_chance(&rng, 1, 2))
		o->disks[rng_below(&rng, o->chunkds)] = 2;
}

static void hear_sync(void *ctx, unsigned node, enum sim_sync kind, const char *path)
{
	struct run *r = ctx;

	if (r->cluster && !r->looking)
		r->o->synced(r->o->ctx, r->cluster, node, kind, path);
}

void run_limit_cpu(unsigned seconds)
{
	CHECK(setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL) == 0);
}

bool run_print_last(int fd)
{
	if (!current)
		return false;
	if (write(fd, current->phase, strlen(current->phase)) < 0 || write(fd, "; the last notes:\n", 18) < 0)
		return true;
	cluster_print_ring(current->cluster, fd);
	return true;
}

void run_seed(const struct run_options *o, struct run_result *out)
{
	bool strict = o->mode == RUN_NO_FAULTS || o->mode == RUN_ONE;
	struct run r = {.o = o, .phase = "start", .ops_wanted = o->ops, .lull_ops = UINT64_MAX, .join_ops = UINT64_MAX};
	struct cluster_options c = {
		.seed = o->seed,
		.metads = o->metads,
		.transcript = o->transcript,
		.events = o->events,
		.strict = o->mode == RUN_NO_FAULTS,
		.transform = o->seed % 16 == 3,
		.synced = o->synced ? hear_sync : NULL,
		.ctx = &r,
	};
	struct workload_options w = {.seed = o->seed,
		.strict = strict,
		.pause_ns = (o->mode == RUN_ONE ? PAUSE_ONE_MS : PAUSE_MS) * CLUSTER_MS,
		.acknowledged = acknowledged,
		.enough = enough,
		.ctx = &r};
	struct faults_hooks hooks = {client_crashed, client_started, &r};
	double begin_s = cpu_seconds();

	memset(out, 0, sizeof(*out));
	if (o->seed % LULL_SEEDS == 2 && (o->mode == RUN_ALL || o->mode == RUN_NO_FAULTS))
		r.lull_ops = o->ops / 2;
	if (o->metads && (o->mode == RUN_SYNCS || (o->mode == RUN_ALL && o->seed % JOIN_SEEDS == 1) || loses_founder(o)))
		r.join_ops = o->ops * 3 / 4;
	for (size_t i = 0; i < marks_count(); i++)
		out->marks[i] = marks_hits(i);
	out->seed = o->seed;
	shape(&c, o->seed);
	r.cluster = cluster_new(&c);
	current = &r;
	r.checker = checker_new(r.cluster);
	r.workload = workload_new(r.cluster, r.checker, &w);
	if (o->mode == RUN_ALL || o->mode == RUN_ONE)
		r.faults = faults_new(r.cluster, r.checker, o->seed, o->mode == RUN_ALL ? FAULTS_ALL : FAULTS_ONE,
			o->without, &hooks);
	r.crews[0] = registers_new(r.cluster, o->seed, strict);
	r.crews[1] = appenders_new(r.cluster, o->seed, strict);
	r.crew_count = 2;
	if (o->mode != RUN_SYNCS) /* where each operation costs one run more */
		r.crews[r.crew_count++] = labels_new(r.cluster, o->seed, strict);
	if (o->metads || (o->mode != RUN_SYNCS && o->seed % NAMES_SEEDS == 0))
		r.names = r.crews[r.crew_count++] = names_new(r.cluster, o->seed, strict);
	r.law = law_new(r.cluster);
	r.copies = copies_new(r.cluster, r.faults);
	r.verify = verify_new(r.cluster, r.checker, r.faults);
	cluster_start_all(r.cluster);
	run_phases(&r);
	export_history(&r);
	current = NULL;
	fill_result(&r, out);
	if (!out->ok) {
		printf("seed %llu: FAILED in %s: %s\nthe last notes:\n", (unsigned long long)o->seed, r.phase,
			r.cluster->text);
		fflush(stdout);
		cluster_print_ring(r.cluster, STDOUT_FILENO);
	}
	if (r.faults)
		faults_free(r.faults);
	verify_free(r.verify);
	law_free(r.law);
	copies_free(r.copies);
	for (size_t i = 0; i < r.crew_count; i++)
		crew_free(r.crews[i]);
	linear_result_fini(&r.verdict);
	workload_free(r.workload);
	checker_free(r.checker);
	cluster_free(r.cluster);
	for (size_t i = 0; i < marks_count(); i++)
		out->marks[i] = marks_hits(i) - out->marks[i];
	out->cpu_s = cpu_seconds() - begin_s;
}
