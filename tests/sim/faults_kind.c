// SPDX-License-Identifier: Apache-2.0
/* faults_kind: each kind of fault, done. */
#include "tests/sim/faults_priv.h"

#include "chunkd/daemon.h"
#include "chunkd/drops.h"
#include "common/base/check.h"

enum { CUTS_MAX = 4, SYNCS_MAX = 40, LEFT_MAX_BYTES = 3 << 20 /* more than two segments of a log */ };

/* For a while; then it is crashed, so that nothing of it is left, and started. */
static void make_sick(struct faults *f, unsigned node, const char *what)
{
	f->nodes[node].sick = true;
	f->nodes[node].back_ns = faults__now_ns(f) + faults__some_time(f, 100 * CLUSTER_MS, 3 * CLUSTER_S);
	cluster_note(f->cluster, "%s %s", what, f->cluster->nodes[node].name);
}

static bool disk_error(struct faults *f, unsigned node, uint64_t most)
{
	enum sim_fault what = (enum sim_fault)rng_below(&f->rng, 3);

	if (!faults__is_well(f, node))
		return false;
	make_sick(f, node,
		what == SIM_FAULT_READ            ? "read-error"
			: what == SIM_FAULT_WRITE ? "write-error"
						  : "sync-error");
	sim_fault_after(faults__io_of(f, node), what, rng_between(&f->rng, 1, most), ERR_IO);
	return true;
}

static bool disk_gone(struct faults *f, unsigned node)
{
	unsigned disk = (unsigned)rng_below(&f->rng, f->cluster->options.disks[node - CLUSTER_CHUNKD]);

	make_sick(f, node, "disk-gone");
	f->nodes[node].heals = rng_chance(&f->rng, 1, 2);
	sim_dir_fail(faults__io_of(f, node), cluster_disk_path(disk), ERR_IO);
	return true;
}

static bool disk_full(struct faults *f, unsigned node)
{
	make_sick(f, node, "disk-full");
	f->nodes[node].heals = rng_chance(&f->rng, 1, 2);
	sim_disk_full(faults__io_of(f, node), true);
	return true;
}

/* Only what is written may suffer from it: it goes on by itself when there is room again, or after a restart if it gave up. */
static bool metad_full(struct faults *f, unsigned node)
{
	uint64_t left = rng_chance(&f->rng, 1, 4) ? 0 : rng_below(&f->rng, LEFT_MAX_BYTES);

	if (!faults__is_well(f, node))
		return false;
	f->nodes[node].full_until_ns = faults__now_ns(f) + faults__some_time(f, 100 * CLUSTER_MS, 6 * CLUSTER_S);
	sim_disk_leave(faults__io_of(f, node), left);
	cluster_note(f->cluster, "full %s left=%llu", f->cluster->nodes[node].name, (unsigned long long)left);
	return true;
}

static void stopped_at_sync(void *ctx)
{
	struct node_fault *n = ctx;

	faults__crash(n->f, n->node, 2 * CLUSTER_S);
}

static bool at_sync(struct faults *f, unsigned node)
{
	if (!faults__is_well(f, node))
		return false;
	make_sick(f, node, "crash-at-sync");
	faults__some_loss(f, node);
	sim_stop_at_sync(faults__io_of(f, node), rng_between(&f->rng, 1, SYNCS_MAX), stopped_at_sync, &f->nodes[node]);
	return true;
}

static bool stop(struct faults *f, unsigned node)
{
	if (!faults__is_well(f, node))
		return false;
	f->nodes[node].stopped_ns = faults__now_ns(f);
	f->nodes[node].back_ns = faults__now_ns(f) + faults__some_time(f, 10 * CLUSTER_MS, 5 * CLUSTER_S);
	cluster_stop(f->cluster, node);
	return true;
}

static bool dead(struct faults *f, unsigned node)
{
	bool in_lull = faults__now_ns(f) < f->lull_ns;

	if (!faults__is_well(f, node))
		return false;
	faults__crash(f, node, CLUSTER_S);
	f->nodes[node].back_ns =
		faults__now_ns(f) + faults__some_time(f, 8 * CLUSTER_S, (in_lull ? 40 : 12) * CLUSTER_S);
	return true;
}

unsigned faults__dropping(const struct faults *f)
{
	for (unsigned i = CLUSTER_CHUNKD; i < f->cluster->first_client; i++)
		if (faults__is_well(f, i) && drops_under_way(f->cluster->nodes[i].chunkd->drops))
			return i;
	return 0;
}

void faults__crash_dropping(struct faults *f, unsigned node)
{
	uint64_t ns = faults__some_time(f, CLUSTER_MS, 100 * CLUSTER_MS);

	make_sick(f, node, "dropping");
	f->nodes[node].back_ns = faults__now_ns(f) + ns;
	sim_disk_stall(faults__io_of(f, node), 2 * ns);
}

static bool slow(struct faults *f)
{
	/* Now and then all of them: then what is not waited for shows. */
	bool all = f->mode == FAULTS_ALL && rng_chance(&f->rng, 1, 3);
	unsigned node = f->mode == FAULTS_ALL ? faults__some_daemon(f) : faults__some_chunkd(f);
	uint32_t factor = (uint32_t)rng_between(&f->rng, 2, 10) * (rng_chance(&f->rng, 1, 2) ? 1 : 30);
	uint64_t until_ns = faults__now_ns(f) + faults__some_time(f, 100 * CLUSTER_MS, 4 * CLUSTER_S);

	if (f->mode == FAULTS_ONE && !node)
		return false;
	for (unsigned i = 0; i < f->cluster->node_count; i++) {
		if (cluster_is_client(f->cluster, i) || (!all && i != node))
			continue;
		f->nodes[i].slow_until_ns = until_ns;
		sim_disk_slow(faults__io_of(f, i), factor);
	}
	cluster_note(f->cluster, "slow %s factor=%u", all ? "all" : f->cluster->nodes[node].name, factor);
	return true;
}

/* False: no room, or they are cut off already. */
static bool cut_link(struct faults *f, unsigned a, unsigned b, bool one_way, uint64_t until_ns)
{
	struct link_fault *free_link = NULL;

	for (int i = 0; i < FAULTS_LINKS_MAX; i++) {
		if (!f->links[i].until_ns)
			free_link = &f->links[i];
		else if ((f->links[i].a == a && f->links[i].b == b) || (f->links[i].a == b && f->links[i].b == a))
			return false;
	}
	if (!free_link)
		return false;
	*free_link = (struct link_fault){a, b, until_ns};
	(one_way ? sim_cut_one_way : sim_cut)(faults__io_of(f, a), faults__io_of(f, b));
	return true;
}

static unsigned cut_count(const struct faults *f)
{
	unsigned count = 0;

	for (int i = 0; i < FAULTS_LINKS_MAX; i++)
		count += f->links[i].until_ns != 0;
	return count;
}

static bool cut(struct faults *f, bool one_way)
{
	unsigned a = rng_chance(&f->rng, 2, 3) ? faults__some_client(f) : faults__some_metad(f);
	unsigned b = f->mode == FAULTS_ALL ? faults__some_daemon(f) : faults__some_chunkd(f);

	if (a == b || (f->mode == FAULTS_ONE && !b) || cut_count(f) >= CUTS_MAX)
		return false;
	if (one_way && rng_chance(&f->rng, 1, 2)) {
		unsigned other = a;

		a = b;
		b = other;
	}
	return cut_link(f, a, b, one_way, faults__now_ns(f) + faults__some_time(f, 20 * CLUSTER_MS, 5 * CLUSTER_S));
}

static bool partition(struct faults *f)
{
	uint64_t side = rng_u64(&f->rng),
		 until_ns = faults__now_ns(f) + faults__some_time(f, 20 * CLUSTER_MS, 3 * CLUSTER_S);
	bool any = false;

	if (cut_count(f))
		return false;
	cluster_note(f->cluster, "partition");
	for (unsigned a = 0; a < f->cluster->node_count; a++)
		for (unsigned b = 0; b < a; b++)
			if ((side >> a & 1) != (side >> b & 1))
				any |= cut_link(f, a, b, false, until_ns);
	return any;
}

static bool reset(struct faults *f)
{
	unsigned a = rng_chance(&f->rng, 2, 3) ? faults__some_client(f) : faults__some_metad(f), b = faults__some_daemon(f);

	if (a == b || !sim_host_is_up(faults__io_of(f, a)) || !sim_host_is_up(faults__io_of(f, b)))
		return false;
	sim_reset(faults__io_of(f, a), faults__io_of(f, b));
	return true;
}

static bool delay(struct faults *f)
{
	unsigned node = (unsigned)rng_below(&f->rng, f->cluster->node_count);
	uint64_t most_ns = CLUSTER_MS * rng_between(&f->rng, 1, rng_chance(&f->rng, 1, 4) ? 1000 : 30);

	f->nodes[node].delay_until_ns = faults__now_ns(f) + faults__some_time(f, 50 * CLUSTER_MS, 2 * CLUSTER_S);
	sim_net_delay(faults__io_of(f, node), most_ns);
	cluster_note(
		f->cluster, "delay %s by up to %u ms", f->cluster->nodes[node].name, (unsigned)(most_ns / CLUSTER_MS));
	return true;
}

static bool stall(struct faults *f)
{
	unsigned node = faults__some_daemon(f);
	bool is_replica = cluster_is_metad(f->cluster, node) && f->cluster->options.metads;
	/* One that leads hands over after three seconds. */
	uint64_t ns = faults__some_time(f, 10 * CLUSTER_MS, (is_replica ? 10 : 2) * CLUSTER_S);

	sim_disk_stall(faults__io_of(f, node), ns);
	cluster_note(f->cluster, "stall %s for %u ms", f->cluster->nodes[node].name, (unsigned)(ns / CLUSTER_MS));
	return true;
}

/* As a virtual machine that is moved: what came meanwhile is there all at once, and the clock has gone on. */
static bool pause_host(struct faults *f)
{
	unsigned node = (unsigned)rng_below(&f->rng, f->cluster->node_count);
	uint64_t ns = faults__some_time(f, 10 * CLUSTER_MS, 8 * CLUSTER_S);

	if (!faults__is_well(f, node))
		return false;
	sim_host_pause(faults__io_of(f, node), ns);
	cluster_note(f->cluster, "pause %s for %u ms", f->cluster->nodes[node].name, (unsigned)(ns / CLUSTER_MS));
	return true;
}

static bool wall_jump(struct faults *f)
{
	static const int64_t spans_s[] = {1, 60, 3600, 86400, 10ll * 365 * 86400};
	unsigned node = (unsigned)rng_below(&f->rng, f->cluster->node_count);
	int64_t span_ns = spans_s[rng_below(&f->rng, ARRAY_COUNT(spans_s))] * (int64_t)CLUSTER_S;
	int64_t delta_ns = (int64_t)rng_below(&f->rng, (uint64_t)span_ns);

	delta_ns = rng_chance(&f->rng, 1, 2) ? delta_ns : -delta_ns;
	sim_wall_jump(faults__io_of(f, node), delta_ns);
	cluster_note(
		f->cluster, "wall-jump %s by %lld ms", f->cluster->nodes[node].name, (long long)(delta_ns / 1000000));
	return true;
}

void faults__crash_all(struct faults *f)
{
	cluster_note(f->cluster, "blackout");
	for (unsigned i = 0; i < f->cluster->node_count; i++)
		if (!cluster_is_client(f->cluster, i) && f->cluster->nodes[i].state != CLUSTER_CRASHED)
			faults__crash(f, i, 3 * CLUSTER_S);
}

bool faults__strike(struct faults *f, enum faults_kind kind)
{
	unsigned node;

	switch (kind) {
	case FAULTS_CRASH_CHUNKD:
		node = faults__some_chunkd(f);
		if (node)
			faults__crash(f, node, 4 * CLUSTER_S);
		return node != 0;
	case FAULTS_SYNC_CHUNKD:
		node = faults__some_chunkd(f);
		return node && at_sync(f, node);
	case FAULTS_STOP_CHUNKD:
		node = faults__some_chunkd(f);
		return node && stop(f, node);
	case FAULTS_DROP_CHUNKD:
		/* Counted when it comes. */
		f->drop_armed = true;
		return false;
	case FAULTS_DEAD_CHUNKD:
		node = faults__some_chunkd(f);
		return node && dead(f, node);
	case FAULTS_DISK_ERROR:
		node = faults__some_chunkd(f);
		return node && disk_error(f, node, 60);
	case FAULTS_DISK_GONE:
		node = faults__some_chunkd(f);
		return node && disk_gone(f, node);
	case FAULTS_DISK_FULL:
		node = faults__some_chunkd(f);
		return node && disk_full(f, node);
	case FAULTS_CRASH_METAD:
		node = faults__some_metad(f);
		if (!cluster_running(f->cluster, node))
			return false;
		faults__crash(f, node, 2 * CLUSTER_S);
		return true;
	case FAULTS_SYNC_METAD:
		return at_sync(f, faults__some_metad(f));
	case FAULTS_STOP_METAD:
		return stop(f, faults__some_metad(f));
	case FAULTS_METAD_DISK_ERROR:
		return disk_error(f, faults__some_metad(f), 20);
	case FAULTS_METAD_DISK_FULL:
		return metad_full(f, faults__some_metad(f));
	case FAULTS_CRASH_CLIENT:
		node = faults__some_client(f);
		if (!cluster_running(f->cluster, node))
			return false;
		faults__crash(f, node, 1 * CLUSTER_S);
		return true;
	case FAULTS_BLACKOUT:
		faults__crash_all(f);
		return true;
	case FAULTS_SLOW_DISK:
		return slow(f);
	case FAULTS_STALL_DISK:
		return stall(f);
	case FAULTS_CUT:
		return cut(f, false);
	case FAULTS_CUT_ONE_WAY:
		return cut(f, true);
	case FAULTS_PARTITION:
		return partition(f);
	case FAULTS_RESET:
		return reset(f);
	case FAULTS_DELAY:
		return delay(f);
	case FAULTS_PAUSE:
		return pause_host(f);
	case FAULTS_WALL_JUMP:
		return wall_jump(f);
	default:
		/* Counted when bits are really flipped. */
		(void)faults__look_for_chunks(f);
		return false;
	}
}
