// SPDX-License-Identifier: Apache-2.0
/*
 * faults: see the header. Nothing here runs inside a host's turn but the two ends of a look at a file's chunks; the main loop calls
 * faults_step between events.
 *
 * Invariants: (1) chunk servers that are away or have a disk error pending are at most m, but for a blackout, which loses nothing that
 * was synced; (2) bits are flipped only in chunks that were read and found right a moment before, and only in as many of a block as
 * its margin, by the same look, still allows; one look at a time; (3) whatever is broken has a time at which it is mended.
 */
#include "tests/sim/faults_priv.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/sim/law.h"

#define STOP_LIMIT_NS (90 * CLUSTER_S)
#define PAUSE_MAX_NS (500 * CLUSTER_MS)

static const struct {
	const char *name;
	uint32_t weight;
} kinds[] = {
#define FAULTS_X(name, weight) {#name, weight},
	FAULTS_LIST(FAULTS_X)
#undef FAULTS_X
};

/* ---- small things ---- */

uint64_t faults__now_ns(const struct faults *f)
{
	return sim_now_ns(f->cluster->sim);
}

/* Short ones more often than long ones. */
uint64_t faults__some_time(struct faults *f, uint64_t least_ns, uint64_t most_ns)
{
	return least_ns + rng_below(&f->rng, 1 + rng_below(&f->rng, most_ns - least_ns));
}

struct io *faults__io_of(struct faults *f, unsigned node)
{
	return f->cluster->nodes[node].io;
}

static bool is_cut_off(const struct faults *f, unsigned node)
{
	for (int i = 0; i < FAULTS_LINKS_MAX; i++)
		if (f->links[i].until_ns && (f->links[i].a == node || f->links[i].b == node))
			return true;
	return false;
}

static unsigned chunkds_away(const struct faults *f)
{
	unsigned count = 0;

	for (unsigned i = CLUSTER_CHUNKD; i < f->cluster->first_client; i++) {
		const struct cluster_node *n = &f->cluster->nodes[i];
		bool well = n->state == CLUSTER_RUNNING && !f->nodes[i].sick;

		/* Where one is too many, one that has not been back for long counts, too. */
		if (f->mode == FAULTS_ONE)
			well = well && chunkd_is_registered(n->chunkd) && !f->nodes[i].slow_until_ns &&
				!is_cut_off(f, i) && faults__now_ns(f) > f->nodes[i].well_ns + 500 * CLUSTER_MS;
		count += !well;
	}
	return count;
}

static unsigned most_away(const struct faults *f)
{
	return f->mode == FAULTS_ONE ? 1 : cluster_may_miss(f->cluster);
}

bool faults__is_well(const struct faults *f, unsigned node)
{
	return cluster_running(f->cluster, node) && !f->nodes[node].sick;
}

/* A chunk server that may go away now; 0: none (0 is metad's number). */
unsigned faults__some_chunkd(struct faults *f)
{
	unsigned node = CLUSTER_CHUNKD + (unsigned)rng_below(&f->rng, f->cluster->options.chunkds);

	return chunkds_away(f) < most_away(f) && faults__is_well(f, node) ? node : 0;
}

unsigned faults__some_daemon(struct faults *f)
{
	unsigned more = cluster_metads(f->cluster) - 1, node = (unsigned)rng_below(&f->rng, f->cluster->first_client + more);

	return node < f->cluster->first_client ? node : cluster_metad_node(f->cluster, node - f->cluster->first_client + 1);
}

unsigned faults__some_metad(struct faults *f)
{
	unsigned count = cluster_metads(f->cluster);

	return count == 1 ? CLUSTER_METAD : cluster_metad_node(f->cluster, (unsigned)rng_below(&f->rng, count));
}

unsigned faults__some_client(struct faults *f)
{
	return f->cluster->first_client + (unsigned)rng_below(&f->rng, f->cluster->options.clients);
}

static void give_room(struct faults *f, unsigned node)
{
	f->nodes[node].full_until_ns = 0;
	sim_disk_leave(faults__io_of(f, node), UINT64_MAX);
}

static void clear_sickness(struct faults *f, unsigned node)
{
	cluster_mend_disk(f->cluster, node);
	f->nodes[node].full_until_ns = 0;
	f->nodes[node].sick = f->nodes[node].heals = false;
}

void faults__some_loss(struct faults *f, unsigned node)
{
	sim_set_loss(faults__io_of(f, node), (enum sim_loss)rng_below(&f->rng, 4));
}

void faults__crash(struct faults *f, unsigned node, uint64_t most_ns)
{
	clear_sickness(f, node);
	faults__some_loss(f, node);
	cluster_crash(f->cluster, node);
	f->nodes[node].back_ns = faults__now_ns(f) + faults__some_time(f, 10 * CLUSTER_MS, most_ns);
	if (cluster_is_client(f->cluster, node)) {
		if (node == f->cluster->first_client)
			f->looking = false;
		f->hooks.client_crashed(f->hooks.ctx, node);
	}
}

/* At one start in four the disk fails somewhere on the way, or the power; a later start finds both well. */
static bool start_disturbed(struct faults *f, unsigned node)
{
	enum sim_fault what = (enum sim_fault)rng_below(&f->rng, 3);
	enum faults_kind kind = rng_chance(&f->rng, 1, 2) ? FAULTS_START_ERROR : FAULTS_START_CRASH;
	uint64_t nth = rng_between(&f->rng, 1, 25);
	bool is_up;

	if (f->mode != FAULTS_ALL || f->mending || cluster_is_client(f->cluster, node) || !rng_chance(&f->rng, 1, 4) ||
		(f->without >> kind & 1))
		return false;
	if (kind == FAULTS_START_ERROR) {
		sim_fault_after(faults__io_of(f, node), what, nth, ERR_IO);
		is_up = cluster_try_start(f->cluster, node);
	} else {
		faults__some_loss(f, node);
		sim_stop_at_sync(faults__io_of(f, node), nth, NULL, NULL);
		cluster_start(f->cluster, node);
		is_up = cluster_running(f->cluster, node);
	}
	clear_sickness(f, node);
	f->counts[kind] += !is_up;
	f->nodes[node].back_ns = faults__now_ns(f) + faults__some_time(f, 10 * CLUSTER_MS, CLUSTER_S);
	/* It may be up without the disk that failed: once more, then. */
	f->nodes[node].sick = is_up;
	return true;
}

/* At rest after a clean stop: else its log may end torn, and who could tell? */
static bool may_rot(struct faults *f, unsigned node)
{
	return f->mode == FAULTS_ALL && !f->mending && !cluster_is_client(f->cluster, node) &&
		f->cluster->nodes[node].state == CLUSTER_STOPPED && !(f->without >> FAULTS_START_ROTTEN & 1) &&
		rng_chance(&f->rng, 3, 4);
}

static void start(struct faults *f, unsigned node)
{
	f->nodes[node].back_ns = 0;
	f->nodes[node].stopped_ns = 0;
	give_room(f, node); /* where there is none at all it says so, and does not start */
	f->nodes[node].well_ns = faults__now_ns(f);
	if (may_rot(f, node) && faults__start_rotten(f, node))
		return;
	if (start_disturbed(f, node))
		return;
	cluster_start(f->cluster, node);
	if (cluster_running(f->cluster, node))
		law_look_at_extents(f->cluster, node, f);
	if (cluster_is_client(f->cluster, node) && !f->mending)
		f->hooks.client_started(f->hooks.ctx, node);
}

static bool may_wait(enum faults_kind kind)
{
	return kind == FAULTS_CRASH_CHUNKD || kind == FAULTS_CRASH_METAD || kind == FAULTS_CRASH_CLIENT ||
		kind == FAULTS_BLACKOUT;
}

static bool is_one(enum faults_kind kind)
{
	return kind == FAULTS_CRASH_CHUNKD || kind == FAULTS_STOP_CHUNKD || kind == FAULTS_DISK_ERROR ||
		kind == FAULTS_SLOW_DISK || kind == FAULTS_CUT || kind == FAULTS_WALL_JUMP;
}

/* False: it cannot be now, or it comes later. */
static bool some_fault(struct faults *f)
{
	enum faults_kind kind = 0;
	uint64_t sum = 0, at;

	for (size_t i = 0; i < FAULTS_KINDS; i++)
		sum += kinds[i].weight;
	for (at = rng_below(&f->rng, sum); at >= kinds[kind].weight; kind++)
		at -= kinds[kind].weight;
	if ((f->mode == FAULTS_ONE && !is_one(kind)) || (f->without >> kind & 1))
		return false;
	if (may_wait(kind) && !f->armed && rng_chance(&f->rng, 2, 3)) {
		f->armed = true;
		f->armed_kind = kind;
		return false;
	}
	if (!faults__strike(f, kind))
		return false;
	f->counts[kind]++;
	return true;
}

/* ---- mending ---- */

static void mend_node(struct faults *f, unsigned node, bool now)
{
	struct node_fault *n = &f->nodes[node];
	struct cluster_node *c = &f->cluster->nodes[node];

	if (n->slow_until_ns && (now || n->slow_until_ns <= faults__now_ns(f))) {
		n->slow_until_ns = 0;
		n->well_ns = faults__now_ns(f);
		sim_disk_slow(c->io, 1);
	}
	if (n->delay_until_ns && (now || n->delay_until_ns <= faults__now_ns(f))) {
		n->delay_until_ns = 0;
		sim_net_delay(c->io, 0);
	}
	if (n->full_until_ns && (now || n->full_until_ns <= faults__now_ns(f)))
		give_room(f, node);
	if (c->fatal && c->state == CLUSTER_RUNNING)
		faults__crash(f, node, 2 * CLUSTER_S);
	if (!n->back_ns || (!now && n->back_ns > faults__now_ns(f)))
		return;
	if (c->state == CLUSTER_STOPPING) {
		if (faults__now_ns(f) > n->stopped_ns + STOP_LIMIT_NS)
			cluster_fail(f->cluster, "%s does not stop", c->name);
		n->back_ns = faults__now_ns(f) + 100 * CLUSTER_MS;
		return;
	}
	if (n->heals && !now && cluster_running(f->cluster, node)) {
		clear_sickness(f, node);
		n->sick = true;
		n->back_ns = faults__now_ns(f) + faults__some_time(f, 100 * CLUSTER_MS, 5 * CLUSTER_S);
		cluster_note(f->cluster, "healed %s", c->name);
		return;
	}
	/* Trouble that never struck, too: so nothing of it is left. */
	if (n->sick)
		faults__crash(f, node, 1 * CLUSTER_S);
	start(f, node);
}

static void mend_links(struct faults *f, bool now)
{
	for (int i = 0; i < FAULTS_LINKS_MAX; i++) {
		struct link_fault *l = &f->links[i];

		if (!l->until_ns || (!now && l->until_ns > faults__now_ns(f)))
			continue;
		l->until_ns = 0;
		f->nodes[l->a].well_ns = f->nodes[l->b].well_ns = faults__now_ns(f);
		sim_heal(faults__io_of(f, l->a), faults__io_of(f, l->b));
	}
}

static void mend_all(struct faults *f, bool now)
{
	mend_links(f, now);
	for (unsigned i = 0; i < f->cluster->node_count && !f->cluster->failed; i++)
		mend_node(f, i, now);
}

bool faults_mend(struct faults *f)
{
	f->mending = true;
	f->armed = f->hit = f->drop_armed = false;
	mend_all(f, true);
	for (unsigned i = 0; i < f->cluster->node_count; i++)
		if (!cluster_running(f->cluster, i))
			return false;
	return true;
}

void faults_lull(struct faults *f, uint64_t until_ns)
{
	f->lull_ns = until_ns;
}

void faults_blackout(struct faults *f)
{
	faults__crash_all(f);
}

/* ---- the schedule ---- */

struct faults *faults_new(struct cluster *cluster, struct checker *checker, uint64_t seed, enum faults_mode mode,
	uint64_t without, const struct faults_hooks *hooks)
{
	struct faults *f = MEM_NEW(struct faults);

	f->cluster = cluster;
	f->checker = checker;
	f->mode = mode;
	f->without = without;
	f->hooks = *hooks;
	for (unsigned i = 0; i < CLUSTER_NODES_MAX; i++) {
		f->nodes[i].f = f;
		f->nodes[i].node = i;
	}
	rng_init(&f->rng, seed ^ 0x6661756c7473);
	f->next_ns = sim_now_ns(cluster->sim) + 300 * CLUSTER_MS;
	return f;
}

void faults_free(struct faults *f)
{
	mem_free(f->damaged);
	mem_free(f);
}

uint64_t faults_next_ns(const struct faults *f)
{
	uint64_t next = f->next_ns;

	for (unsigned i = 0; i < f->cluster->node_count; i++) {
		const struct node_fault *n = &f->nodes[i];

		if (n->back_ns && n->back_ns < next)
			next = n->back_ns;
		if (n->slow_until_ns && n->slow_until_ns < next)
			next = n->slow_until_ns;
		if (n->delay_until_ns && n->delay_until_ns < next)
			next = n->delay_until_ns;
		if (n->full_until_ns && n->full_until_ns < next)
			next = n->full_until_ns;
	}
	for (int i = 0; i < FAULTS_LINKS_MAX; i++)
		if (f->links[i].until_ns && f->links[i].until_ns < next)
			next = f->links[i].until_ns;
	return next;
}

/* The chunk server whose moment has come; 0: none. */
static unsigned drop_due_node(const struct faults *f)
{
	return f->drop_armed && chunkds_away(f) < most_away(f) ? faults__dropping(f) : 0;
}

bool faults_wants_now(const struct faults *f)
{
	if (f->hit || drop_due_node(f) != 0)
		return true;
	for (unsigned i = 0; i < f->cluster->node_count; i++)
		if (f->cluster->nodes[i].fatal && f->cluster->nodes[i].state == CLUSTER_RUNNING)
			return true;
	return false;
}

void faults_step(struct faults *f)
{
	unsigned node;

	if (f->hit) {
		f->armed = f->hit = false;
		f->counts[f->armed_kind] += faults__strike(f, f->armed_kind);
	}
	node = drop_due_node(f);
	if (node) {
		f->drop_armed = false;
		f->counts[FAULTS_DROP_CHUNKD]++;
		law_look_at_extents(f->cluster, node, f);
		faults__crash_dropping(f, node);
	}
	mend_all(f, false);
	if (f->cluster->failed || faults__now_ns(f) < f->next_ns)
		return;
	for (int tries = 0; tries < 5 && !some_fault(f); tries++)
		;
	if (faults__now_ns(f) < f->lull_ns) {
		f->next_ns = faults__now_ns(f) + faults__some_time(f, CLUSTER_S, 40 * CLUSTER_S);
		return;
	}
	f->next_ns = faults__now_ns(f) +
		faults__some_time(f, 20 * CLUSTER_MS, f->mode == FAULTS_ONE ? 900 * CLUSTER_MS : PAUSE_MAX_NS);
}

void faults_acknowledged(struct faults *f)
{
	f->hit |= f->armed && rng_chance(&f->rng, 1, 3);
}

const char *faults_name(enum faults_kind kind)
{
	return kinds[kind].name;
}

uint64_t faults_count(const struct faults *f, enum faults_kind kind)
{
	return f->counts[kind];
}
