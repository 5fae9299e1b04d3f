// SPDX-License-Identifier: Apache-2.0
/*
 * faults: see the header. Nothing here runs inside a host's turn but the two ends of a look at a file's chunks; the main loop calls
 * faults_step between events.
 *
 * Invariants: (1) chunk servers that are away or have a disk error pending are at most m, but for a blackout, which loses nothing that
 * was synced; (2) bits are flipped only in chunks that were read and found right a moment before, and only in as many of a block as
 * its margin, by the same look, still allows; one look at a time; (3) whatever is broken has a time at which it is mended.
 */
#include "tests/sim/faults.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

enum { LINKS_MAX = CLUSTER_NODES_MAX * CLUSTER_NODES_MAX / 2, CUTS_MAX = 4, BITS_MAX = 4, SYNCS_MAX = 40 };

#define STOP_LIMIT_NS (90 * CLUSTER_S)
#define PAUSE_MAX_NS (500 * CLUSTER_MS)

struct node_fault {
	struct faults *f;
	unsigned node;
	uint64_t back_ns;    /* away until then; 0: not away */
	uint64_t stopped_ns; /* when the stop began */
	bool sick;           /* trouble with a disk is pending or has struck: it is crashed when its time is over */
	uint64_t slow_until_ns, delay_until_ns;
	uint64_t well_ns; /* when its last fault ended */
};

struct link_fault {
	unsigned a, b;
	uint64_t until_ns; /* 0: none */
};

struct damaged_chunk {
	uint64_t block;
	uint8_t index;
	enum faults_damage damage;
};

struct faults {
	struct cluster *cluster;
	struct checker *checker;
	enum faults_mode mode;
	uint64_t without;
	struct faults_hooks hooks;
	struct rng rng;
	uint64_t next_ns; /* the next new fault */
	struct node_fault nodes[CLUSTER_NODES_MAX];
	struct link_fault links[LINKS_MAX];
	bool armed, hit; /* a crash waits for an acknowledgement; it has come */
	enum faults_kind armed_kind;
	bool mending;
	struct client_op look;
	bool looking;
	uint64_t counts[FAULTS_KINDS];
	uint64_t bits;
	struct damaged_chunk *damaged;
	size_t damaged_count, damaged_cap;
};

static const struct {
	const char *name;
	uint32_t weight;
} kinds[] = {
#define FAULTS_X(name, weight) {#name, weight},
	FAULTS_LIST(FAULTS_X)
#undef FAULTS_X
};

/* ---- small things ---- */

static uint64_t now_ns(const struct faults *f)
{
	return sim_now_ns(f->cluster->sim);
}

/* Short ones more often than long ones. */
static uint64_t some_time(struct faults *f, uint64_t least_ns, uint64_t most_ns)
{
	return least_ns + rng_below(&f->rng, 1 + rng_below(&f->rng, most_ns - least_ns));
}

static struct io *io_of(struct faults *f, unsigned node)
{
	return f->cluster->nodes[node].io;
}

static bool is_cut_off(const struct faults *f, unsigned node)
{
	for (int i = 0; i < LINKS_MAX; i++)
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
				!is_cut_off(f, i) && now_ns(f) > f->nodes[i].well_ns + 500 * CLUSTER_MS;
		count += !well;
	}
	return count;
}

static unsigned most_away(const struct faults *f)
{
	return f->mode == FAULTS_ONE ? 1 : cluster_may_miss(f->cluster);
}

static bool is_well(const struct faults *f, unsigned node)
{
	return cluster_running(f->cluster, node) && !f->nodes[node].sick;
}

/* A chunk server that may go away now; 0: none (0 is metad's number). */
static unsigned some_chunkd(struct faults *f)
{
	unsigned node = CLUSTER_CHUNKD + (unsigned)rng_below(&f->rng, f->cluster->options.chunkds);

	return chunkds_away(f) < most_away(f) && is_well(f, node) ? node : 0;
}

static unsigned some_daemon(struct faults *f)
{
	return (unsigned)rng_below(&f->rng, f->cluster->first_client);
}

static unsigned some_client(struct faults *f)
{
	return f->cluster->first_client + (unsigned)rng_below(&f->rng, f->cluster->options.clients);
}

static void clear_sickness(struct faults *f, unsigned node)
{
	struct io *io = io_of(f, node);

	sim_fault_after(io, SIM_FAULT_READ, 0, 0);
	sim_fault_after(io, SIM_FAULT_WRITE, 0, 0);
	sim_fault_after(io, SIM_FAULT_SYNC, 0, 0);
	sim_dir_fail(io, NULL, 0);
	sim_disk_full(io, false);
	sim_stop_at_sync(io, 0, NULL, NULL);
	f->nodes[node].sick = false;
}

static void some_loss(struct faults *f, unsigned node)
{
	sim_set_loss(io_of(f, node), (enum sim_loss)rng_below(&f->rng, 4));
}

static void crash(struct faults *f, unsigned node, uint64_t most_ns)
{
	clear_sickness(f, node);
	some_loss(f, node);
	cluster_crash(f->cluster, node);
	f->nodes[node].back_ns = now_ns(f) + some_time(f, 10 * CLUSTER_MS, most_ns);
	if (cluster_is_client(f->cluster, node)) {
		if (node == f->cluster->first_client)
			f->looking = false;
		f->hooks.client_crashed(f->hooks.ctx, node);
	}
}

static void stopped_at_sync(void *ctx)
{
	struct node_fault *n = ctx;

	crash(n->f, n->node, 2 * CLUSTER_S);
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
		sim_fault_after(io_of(f, node), what, nth, ERR_IO);
		is_up = cluster_try_start(f->cluster, node);
	} else {
		some_loss(f, node);
		sim_stop_at_sync(io_of(f, node), nth, NULL, NULL);
		cluster_start(f->cluster, node);
		is_up = cluster_running(f->cluster, node);
	}
	clear_sickness(f, node);
	f->counts[kind] += !is_up;
	f->nodes[node].back_ns = now_ns(f) + some_time(f, 10 * CLUSTER_MS, CLUSTER_S);
	/* It may be up without the disk that failed: once more, then. */
	f->nodes[node].sick = is_up;
	return true;
}

static void start(struct faults *f, unsigned node)
{
	f->nodes[node].back_ns = 0;
	f->nodes[node].stopped_ns = 0;
	f->nodes[node].well_ns = now_ns(f);
	if (start_disturbed(f, node))
		return;
	cluster_start(f->cluster, node);
	if (cluster_is_client(f->cluster, node) && !f->mending)
		f->hooks.client_started(f->hooks.ctx, node);
}

/* ---- bits ---- */

static unsigned node_of(const struct cr_chunk_info *info)
{
	unsigned number = 0;

	return sscanf(info->server_name, "chunkd-%u", &number) == 1 && number <= CLUSTER_CHUNKDS_MAX ? number : 0;
}

static void remember(struct faults *f, const struct cr_chunk_info *info, enum faults_damage damage)
{
	if (f->damaged_count == f->damaged_cap) {
		f->damaged_cap = f->damaged_cap ? 2 * f->damaged_cap : 32;
		f->damaged = mem_realloc(f->damaged, f->damaged_cap * sizeof(f->damaged[0]));
	}
	f->damaged[f->damaged_count++] = (struct damaged_chunk){info->block, info->index, damage};
}

/* In the trailer or in the data; bits of different bytes, so that none is flipped back. */
static void flip_chunk(struct faults *f, const struct cr_chunk_info *info)
{
	bool trailer = rng_chance(&f->rng, 1, 5);
	uint64_t from = trailer ? info->trailer_offset : info->segment_offset;
	uint64_t len = trailer ? info->trailer_bytes : info->chunk_bytes;
	uint64_t count = rng_between(&f->rng, 1, len < BITS_MAX ? len : BITS_MAX), part = len / count;
	unsigned node = node_of(info);
	char path[sizeof(info->segment) + 8];

	CHECK(node > 0 && info->segment[0] == '/');
	snprintf(path, sizeof(path), "%s", info->segment);
	for (uint64_t i = 0; i < count; i++)
		CHECK(sim_flip_bit(io_of(f, node), path, from + i * part + rng_below(&f->rng, part),
			      (uint8_t)rng_below(&f->rng, 8)) == 0);
	f->bits += count;
	remember(f, info, trailer ? FAULTS_TRAILER : FAULTS_DATA);
	cluster_note(f->cluster, "flip %u bits of block %llu chunk %u %s on %s", (unsigned)count,
		(unsigned long long)info->block, info->index, trailer ? "trailer" : "data", info->server_name);
}

/* One block of those looked at, and no more of its chunks than it can lose. */
static void flip_some(struct faults *f, const struct cr_chunk_info *infos, uint64_t count)
{
	uint64_t block = infos[rng_below(&f->rng, count)].block, first = 0, last;
	int margin;

	while (infos[first].block != block)
		first++;
	for (last = first; last < count && infos[last].block == block; last++)
		;
	margin = infos[first].margin;
	if (margin <= 0)
		return;
	margin = (int)rng_between(&f->rng, 1, (uint64_t)margin);
	f->counts[FAULTS_FLIP_BITS]++;
	for (int tries = 0; margin > 0 && tries < 32; tries++) {
		uint64_t i = first + rng_below(&f->rng, last - first);

		if (infos[i].state != CR_CHUNK_OK)
			continue;
		flip_chunk(f, &infos[i]);
		((struct cr_chunk_info *)(uintptr_t)infos)[i].state = CR_CHUNK_CORRUPT;
		margin--;
	}
}

static void looked(struct client_op *op)
{
	struct faults *f = op->user;

	f->looking = false;
	if (op->err.code == 0 && op->count > 0 && !f->mending)
		flip_some(f, op->chunks, op->count);
	mem_free(op->chunks);
}

static bool look_for_chunks(struct faults *f)
{
	struct checker *k = f->checker;
	struct checker_entry *e = NULL;

	if (f->looking || !cluster_running(f->cluster, f->cluster->first_client) || !k->entry_count)
		return false;
	for (int tries = 0; tries < 10 && (!e || !checker_is_file(e)); tries++)
		e = k->entries[rng_below(&f->rng, k->entry_count)];
	if (!checker_is_file(e))
		return false;
	f->looking = true;
	memset(&f->look, 0, sizeof(f->look));
	f->look.kind = CLIENT_INSPECT;
	f->look.path = e->path;
	f->look.verify = true;
	f->look.done = looked;
	f->look.user = f;
	cluster_client_start(f->cluster, f->cluster->first_client, &f->look);
	return true;
}

/* ---- the kinds ---- */

/* For a while; then it is crashed, so that nothing of it is left, and started. */
static void make_sick(struct faults *f, unsigned node, const char *what)
{
	f->nodes[node].sick = true;
	f->nodes[node].back_ns = now_ns(f) + some_time(f, 100 * CLUSTER_MS, 3 * CLUSTER_S);
	cluster_note(f->cluster, "%s %s", what, f->cluster->nodes[node].name);
}

static bool disk_error(struct faults *f, unsigned node, uint64_t most)
{
	enum sim_fault what = (enum sim_fault)rng_below(&f->rng, 3);

	if (!is_well(f, node))
		return false;
	make_sick(f, node,
		what == SIM_FAULT_READ            ? "read-error"
			: what == SIM_FAULT_WRITE ? "write-error"
						  : "sync-error");
	sim_fault_after(io_of(f, node), what, rng_between(&f->rng, 1, most), ERR_IO);
	return true;
}

static bool disk_gone(struct faults *f, unsigned node)
{
	unsigned disk = (unsigned)rng_below(&f->rng, f->cluster->options.disks[node - CLUSTER_CHUNKD]);

	make_sick(f, node, "disk-gone");
	sim_dir_fail(io_of(f, node), cluster_disk_path(disk), ERR_IO);
	return true;
}

static bool disk_full(struct faults *f, unsigned node)
{
	make_sick(f, node, "disk-full");
	sim_disk_full(io_of(f, node), true);
	return true;
}

static bool at_sync(struct faults *f, unsigned node)
{
	if (!is_well(f, node))
		return false;
	make_sick(f, node, "crash-at-sync");
	some_loss(f, node);
	sim_stop_at_sync(io_of(f, node), rng_between(&f->rng, 1, SYNCS_MAX), stopped_at_sync, &f->nodes[node]);
	return true;
}

static bool stop(struct faults *f, unsigned node)
{
	if (!is_well(f, node))
		return false;
	f->nodes[node].stopped_ns = now_ns(f);
	f->nodes[node].back_ns = now_ns(f) + some_time(f, 10 * CLUSTER_MS, 5 * CLUSTER_S);
	cluster_stop(f->cluster, node);
	return true;
}

static bool slow(struct faults *f)
{
	/* Now and then all of them: then what is not waited for shows. */
	bool all = f->mode == FAULTS_ALL && rng_chance(&f->rng, 1, 3);
	unsigned node = f->mode == FAULTS_ALL ? some_daemon(f) : some_chunkd(f);
	uint32_t factor = (uint32_t)rng_between(&f->rng, 2, 10) * (rng_chance(&f->rng, 1, 2) ? 1 : 30);
	uint64_t until_ns = now_ns(f) + some_time(f, 100 * CLUSTER_MS, 4 * CLUSTER_S);

	if (f->mode == FAULTS_ONE && !node)
		return false;
	for (unsigned i = 0; i < f->cluster->first_client; i++) {
		if (!all && i != node)
			continue;
		f->nodes[i].slow_until_ns = until_ns;
		sim_disk_slow(io_of(f, i), factor);
	}
	cluster_note(f->cluster, "slow %s factor=%u", all ? "all" : f->cluster->nodes[node].name, factor);
	return true;
}

/* False: no room, or they are cut off already. */
static bool cut_link(struct faults *f, unsigned a, unsigned b, uint64_t until_ns)
{
	struct link_fault *free_link = NULL;

	for (int i = 0; i < LINKS_MAX; i++) {
		if (!f->links[i].until_ns)
			free_link = &f->links[i];
		else if ((f->links[i].a == a && f->links[i].b == b) || (f->links[i].a == b && f->links[i].b == a))
			return false;
	}
	if (!free_link)
		return false;
	*free_link = (struct link_fault){a, b, until_ns};
	sim_cut(io_of(f, a), io_of(f, b));
	return true;
}

static unsigned cut_count(const struct faults *f)
{
	unsigned count = 0;

	for (int i = 0; i < LINKS_MAX; i++)
		count += f->links[i].until_ns != 0;
	return count;
}

static bool cut(struct faults *f)
{
	unsigned a = rng_chance(&f->rng, 2, 3) ? some_client(f) : CLUSTER_METAD;
	unsigned b = f->mode == FAULTS_ALL ? some_daemon(f) : some_chunkd(f);

	if (a == b || (f->mode == FAULTS_ONE && !b) || cut_count(f) >= CUTS_MAX)
		return false;
	return cut_link(f, a, b, now_ns(f) + some_time(f, 20 * CLUSTER_MS, 5 * CLUSTER_S));
}

static bool partition(struct faults *f)
{
	uint64_t side = rng_u64(&f->rng), until_ns = now_ns(f) + some_time(f, 20 * CLUSTER_MS, 3 * CLUSTER_S);
	bool any = false;

	if (cut_count(f))
		return false;
	cluster_note(f->cluster, "partition");
	for (unsigned a = 0; a < f->cluster->node_count; a++)
		for (unsigned b = 0; b < a; b++)
			if ((side >> a & 1) != (side >> b & 1))
				any |= cut_link(f, a, b, until_ns);
	return any;
}

static bool reset(struct faults *f)
{
	unsigned a = rng_chance(&f->rng, 2, 3) ? some_client(f) : CLUSTER_METAD, b = some_daemon(f);

	if (a == b || !sim_host_is_up(io_of(f, a)) || !sim_host_is_up(io_of(f, b)))
		return false;
	sim_reset(io_of(f, a), io_of(f, b));
	return true;
}

static bool delay(struct faults *f)
{
	unsigned node = (unsigned)rng_below(&f->rng, f->cluster->node_count);
	uint64_t most_ns = CLUSTER_MS * rng_between(&f->rng, 1, rng_chance(&f->rng, 1, 4) ? 1000 : 30);

	f->nodes[node].delay_until_ns = now_ns(f) + some_time(f, 50 * CLUSTER_MS, 2 * CLUSTER_S);
	sim_net_delay(io_of(f, node), most_ns);
	cluster_note(
		f->cluster, "delay %s by up to %u ms", f->cluster->nodes[node].name, (unsigned)(most_ns / CLUSTER_MS));
	return true;
}

static bool stall(struct faults *f)
{
	unsigned node = some_daemon(f);
	uint64_t ns = some_time(f, 10 * CLUSTER_MS, 2 * CLUSTER_S);

	sim_disk_stall(io_of(f, node), ns);
	cluster_note(f->cluster, "stall %s for %u ms", f->cluster->nodes[node].name, (unsigned)(ns / CLUSTER_MS));
	return true;
}

static bool wall_jump(struct faults *f)
{
	static const int64_t spans_s[] = {1, 60, 3600, 86400, 10ll * 365 * 86400};
	unsigned node = (unsigned)rng_below(&f->rng, f->cluster->node_count);
	int64_t span_ns = spans_s[rng_below(&f->rng, ARRAY_COUNT(spans_s))] * (int64_t)CLUSTER_S;
	int64_t delta_ns = (int64_t)rng_below(&f->rng, (uint64_t)span_ns);

	delta_ns = rng_chance(&f->rng, 1, 2) ? delta_ns : -delta_ns;
	sim_wall_jump(io_of(f, node), delta_ns);
	cluster_note(
		f->cluster, "wall-jump %s by %lld ms", f->cluster->nodes[node].name, (long long)(delta_ns / 1000000));
	return true;
}

static void crash_all(struct faults *f)
{
	cluster_note(f->cluster, "blackout");
	for (unsigned i = 0; i < f->cluster->first_client; i++)
		if (f->cluster->nodes[i].state != CLUSTER_CRASHED)
			crash(f, i, 3 * CLUSTER_S);
}

static bool strike(struct faults *f, enum faults_kind kind)
{
	unsigned node;

	switch (kind) {
	case FAULTS_CRASH_CHUNKD:
		node = some_chunkd(f);
		if (node)
			crash(f, node, 4 * CLUSTER_S);
		return node != 0;
	case FAULTS_SYNC_CHUNKD:
		node = some_chunkd(f);
		return node && at_sync(f, node);
	case FAULTS_STOP_CHUNKD:
		node = some_chunkd(f);
		return node && stop(f, node);
	case FAULTS_DISK_ERROR:
		node = some_chunkd(f);
		return node && disk_error(f, node, 60);
	case FAULTS_DISK_GONE:
		node = some_chunkd(f);
		return node && disk_gone(f, node);
	case FAULTS_DISK_FULL:
		node = some_chunkd(f);
		return node && disk_full(f, node);
	case FAULTS_CRASH_METAD:
		if (!cluster_running(f->cluster, CLUSTER_METAD))
			return false;
		crash(f, CLUSTER_METAD, 2 * CLUSTER_S);
		return true;
	case FAULTS_SYNC_METAD:
		return at_sync(f, CLUSTER_METAD);
	case FAULTS_STOP_METAD:
		return stop(f, CLUSTER_METAD);
	case FAULTS_METAD_DISK_ERROR:
		return disk_error(f, CLUSTER_METAD, 20);
	case FAULTS_CRASH_CLIENT:
		node = some_client(f);
		if (!cluster_running(f->cluster, node))
			return false;
		crash(f, node, 1 * CLUSTER_S);
		return true;
	case FAULTS_BLACKOUT:
		crash_all(f);
		return true;
	case FAULTS_SLOW_DISK:
		return slow(f);
	case FAULTS_STALL_DISK:
		return stall(f);
	case FAULTS_CUT:
		return cut(f);
	case FAULTS_PARTITION:
		return partition(f);
	case FAULTS_RESET:
		return reset(f);
	case FAULTS_DELAY:
		return delay(f);
	case FAULTS_WALL_JUMP:
		return wall_jump(f);
	default:
		/* Counted when bits are really flipped. */
		(void)look_for_chunks(f);
		return false;
	}
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
	if (!strike(f, kind))
		return false;
	f->counts[kind]++;
	return true;
}

/* ---- mending ---- */

static void mend_node(struct faults *f, unsigned node, bool now)
{
	struct node_fault *n = &f->nodes[node];
	struct cluster_node *c = &f->cluster->nodes[node];

	if (n->slow_until_ns && (now || n->slow_until_ns <= now_ns(f))) {
		n->slow_until_ns = 0;
		n->well_ns = now_ns(f);
		sim_disk_slow(c->io, 1);
	}
	if (n->delay_until_ns && (now || n->delay_until_ns <= now_ns(f))) {
		n->delay_until_ns = 0;
		sim_net_delay(c->io, 0);
	}
	if (c->fatal && c->state == CLUSTER_RUNNING)
		crash(f, node, 2 * CLUSTER_S);
	if (!n->back_ns || (!now && n->back_ns > now_ns(f)))
		return;
	if (c->state == CLUSTER_STOPPING) {
		if (now_ns(f) > n->stopped_ns + STOP_LIMIT_NS)
			cluster_fail(f->cluster, "%s does not stop", c->name);
		n->back_ns = now_ns(f) + 100 * CLUSTER_MS;
		return;
	}
	/* Trouble that never struck, too: so nothing of it is left. */
	if (n->sick)
		crash(f, node, 1 * CLUSTER_S);
	start(f, node);
}

static void mend_links(struct faults *f, bool now)
{
	for (int i = 0; i < LINKS_MAX; i++) {
		struct link_fault *l = &f->links[i];

		if (!l->until_ns || (!now && l->until_ns > now_ns(f)))
			continue;
		l->until_ns = 0;
		f->nodes[l->a].well_ns = f->nodes[l->b].well_ns = now_ns(f);
		sim_heal(io_of(f, l->a), io_of(f, l->b));
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
	f->armed = f->hit = false;
	mend_all(f, true);
	for (unsigned i = 0; i < f->cluster->node_count; i++)
		if (!cluster_running(f->cluster, i))
			return false;
	return true;
}

void faults_blackout(struct faults *f)
{
	crash_all(f);
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
	}
	for (int i = 0; i < LINKS_MAX; i++)
		if (f->links[i].until_ns && f->links[i].until_ns < next)
			next = f->links[i].until_ns;
	return next;
}

bool faults_wants_now(const struct faults *f)
{
	if (f->hit)
		return true;
	for (unsigned i = 0; i < f->cluster->node_count; i++)
		if (f->cluster->nodes[i].fatal && f->cluster->nodes[i].state == CLUSTER_RUNNING)
			return true;
	return false;
}

void faults_step(struct faults *f)
{
	if (f->hit) {
		f->armed = f->hit = false;
		f->counts[f->armed_kind] += strike(f, f->armed_kind);
	}
	mend_all(f, false);
	if (f->cluster->failed || now_ns(f) < f->next_ns)
		return;
	for (int tries = 0; tries < 5 && !some_fault(f); tries++)
		;
	f->next_ns = now_ns(f) + some_time(f, 20 * CLUSTER_MS, f->mode == FAULTS_ONE ? 900 * CLUSTER_MS : PAUSE_MAX_NS);
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

uint64_t faults_flipped(const struct faults *f)
{
	return f->bits;
}

enum faults_damage faults_damage_of(const struct faults *f, uint64_t block, uint8_t index)
{
	for (size_t i = 0; i < f->damaged_count; i++)
		if (f->damaged[i].block == block && f->damaged[i].index == index)
			return f->damaged[i].damage;
	return FAULTS_SOUND;
}
