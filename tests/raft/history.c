/* SPDX-License-Identifier: Apache-2.0 */
/* A world of chance, from one seed. */
#include <string.h>
#include "common/base/mem.h"
#include "tests/raft/world_private.h"

enum { WELL_MS = 5000 };

static uint64_t choose(struct world *w, uint64_t bound)
{
	return rng_below(&w->rng, bound);
}

static uint64_t fill(struct world *w, const struct raft_peer *peer, uint64_t bound)
{
	(void)peer;
	return rng_below(&w->rng, bound);
}

static uint64_t takes_ms(struct world *w, uint64_t most, bool often_short)
{
	return rng_below(&w->rng, !often_short || w->parts_from || rng_chance(&w->rng, w->slow, 100) ? most : 3);
}

static struct world_packet *packet_new(struct world *w)
{
	if (w->packet_count == WORLD_PACKETS) { /* a network drops */
		w->packets[rng_below(&w->rng, WORLD_PACKETS)] = w->packets[WORLD_PACKETS - 1];
		w->packet_count--;
	}
	return &w->packets[w->packet_count++];
}

static bool is_cut(struct world *w, const struct raft_message *m)
{
	return w->cut[world__node(w, m->from) - w->nodes][world__node(w, m->to) - w->nodes];
}

/* A vote, an answer, a hand-over may be held up somewhere for as long as anybody likes: until its receiver speaks to its sender in a later term. */
static void hold_up(struct world *w, const struct raft_message *m)
{
	bool vote = m->type == RAFT_VOTED && m->voted.granted;

	if (vote || m->type == RAFT_TIMEOUT_NOW || ((m->type == RAFT_APPENDED || m->type == RAFT_READ_ACK) && rng_chance(&w->rng, 1, 16)))
		w->kept[!vote][rng_below(&w->rng, WORLD_KEPT)] = *m;
}

static void let_go(struct world *w, const struct raft_message *asks)
{
	bool vote = asks->type == RAFT_VOTE || asks->type == RAFT_PRE_VOTE;
	uint32_t from;

	if (w->well || !rng_chance(&w->rng, 1, vote ? 2 : 16))
		return;
	from = (uint32_t)rng_below(&w->rng, WORLD_KEPT);
	for (uint32_t i = 0; i < WORLD_KEPT / 4; i++) {
		const struct raft_message *kept = &w->kept[!vote][(from + i) % WORLD_KEPT];

		if (kept->from != asks->to || kept->to != asks->from || kept->term >= asks->term)
			continue;
		w->counts.held_up++;
		*packet_new(w) = (struct world_packet){.at_ms = w->now_ms + 1 + rng_below(&w->rng, 3), .message = *kept};
		return;
	}
}

static void post(struct world *w, const struct raft_message *m, const struct world_entry *bodies)
{
	uint32_t copies = 1 + rng_chance(&w->rng, w->repeat, 100);

	w->counts.repeated += copies - 1;
	hold_up(w, m);
	let_go(w, m);
	if (is_cut(w, m) || rng_chance(&w->rng, w->loss, 100)) {
		w->counts.lost++;
		return;
	}
	while (copies--) {
		struct world_packet *p = packet_new(w);

		p->at_ms = w->now_ms + 1 + rng_below(&w->rng, 3) +
			(rng_chance(&w->rng, w->loss, 100) ? rng_below(&w->rng, w->late_ms) : 0);
		p->message = *m;
		if (bodies)
			memcpy(p->bodies, bodies, sizeof(p->bodies));
	}
}

static bool fill_later(struct world *w, struct world_node *n, const struct raft_message *m)
{
	bool parts = m->to == w->parts_from;

	if ((!parts && !rng_chance(&w->rng, w->slow, 100)) || n->fill_count == WORLD_FILLS)
		return false;
	w->counts.late_fills++;
	n->fills[n->fill_count++] = (struct world_fill){w->now_ms + rng_below(&w->rng, parts ? 5 : rng_chance(&w->rng, 1, 4) ? 1000 : 150), *m};
	return true;
}

/* Some come late, some a second time. */
static bool report_later(struct world *w, struct world_node *n, const struct raft_event *e)
{
	if (!rng_chance(&w->rng, w->slow, 100) || n->report_count == WORLD_REPORTS)
		return false;
	w->counts.late_reports++;
	n->reports[n->report_count++] = (struct world_report){w->now_ms + rng_below(&w->rng, 200), e->index, e->epoch};
	return rng_chance(&w->rng, 1, 2);
}

/* Rows are read while the log goes on, and goes. */
static bool offer_later(struct world *w, struct world_node *n, uint64_t to, const struct raft_message *m)
{
	if (!n->offer_at_ms && rng_chance(&w->rng, w->slow, 100)) {
		w->counts.late_offers++;
		n->offer_at_ms = w->now_ms + 1 + rng_below(&w->rng, 300);
		n->offer_to = to;
		n->offer = *m;
	}
	return n->offer_at_ms > 0;
}

void world__part_from_rest(struct world *w, const struct world_node *n, uint64_t with)
{
	uint32_t self = (uint32_t)(n - w->nodes), other = (uint32_t)(world__node(w, with) - w->nodes);

	w->counts.partitions++;
	for (uint32_t i = 0; i < w->node_count; i++)
		for (uint32_t j = 0; j < w->node_count; j++)
			w->cut[i][j] = (i == self || i == other) != (j == self || j == other);
}

static void watch(struct world *w, struct world_node *n, const struct raft_event *event, const struct raft_update *u,
	enum raft_role before)
{
	uint64_t with = world__id(w, n);

	if (n->dropped)
		return;
	world__watch(w, n, event, u, before);
	if (before == RAFT_LEADER || n->core.role != RAFT_LEADER || !w->hasty || w->well)
		return;
	n->hasty = true;
	/* Alone, or with one other: of what it says first nothing gets to the rest. */
	if (rng_chance(&w->rng, 1, 2))
		with = n->core.config.members[rng_below(&w->rng, n->core.config.count)].id;
	if (rng_chance(&w->rng, 2, 3))
		world__part_from_rest(w, n, with);
}

static const struct world_ways chance = {.choose = choose,
	.fill = fill,
	.takes_ms = takes_ms,
	.post = post,
	.fill_later = fill_later,
	.report_later = report_later,
	.offer_later = offer_later,
	.watch = watch};

static void deliver(struct world *w)
{
	for (uint32_t i = 0; i < w->packet_count && !w->fault[0];) {
		struct world_packet p = w->packets[i];
		struct raft_event event = {.type = RAFT_RECEIVE, .message = &p.message};

		if (p.at_ms > w->now_ms || world__node(w, p.message.to)->stalled) {
			i++;
			continue;
		}
		w->packets[i] = w->packets[--w->packet_count];
		if (!is_cut(w, &p.message))
			world__step(w, world__node(w, p.message.to), &event, p.bodies);
	}
}

/* Disks and reads that were slow. */
static void run_late(struct world *w, struct world_node *n)
{
	for (uint32_t i = 0; n->up && i < n->report_count;) {
		struct world_report r = n->reports[i];
		struct raft_event event = {.type = RAFT_PERSISTED, .index = r.index, .epoch = r.epoch};

		if (w->now_ms < r.at_ms) {
			i++;
			continue;
		}
		n->reports[i] = n->reports[--n->report_count];
		world__step(w, n, &event, NULL);
		world__sync_begin(w, n);
	}
	for (uint32_t i = 0; n->up && i < n->fill_count;) {
		struct world_fill f = n->fills[i];

		if (w->now_ms < f.at_ms) {
			i++;
			continue;
		}
		n->fills[i] = n->fills[--n->fill_count];
		world__fill(w, n, &f.message);
	}
	if (n->up && n->offer_at_ms && w->now_ms >= n->offer_at_ms) {
		struct raft_event event = {.type = RAFT_SNAPSHOT_TAKEN, .peer = n->offer_to, .message = &n->offer};

		n->offer_at_ms = 0;
		world__step(w, n, &event, NULL);
	}
}

/* Its clock runs at its own rate. */
static bool clock_ticks(struct world_node *n)
{
	uint64_t before = n->clock_ms;

	n->clock_us += n->rate;
	n->clock_ms = n->clock_us / 1000;
	return before / TICK_MS != n->clock_ms / TICK_MS;
}

static void run_node(struct world *w, struct world_node *n)
{
	bool ticks = clock_ticks(n);
	struct raft_event tick = {.type = RAFT_TICK}, ready = {.type = RAFT_SNAPSHOT_READY, .message = &n->fetch};

	if (!n->up || n->stalled)
		return;
	if (n->dies_at_ms && w->now_ms >= n->dies_at_ms && !w->well) {
		world__crash(w, n);
		return;
	}
	if (n->sync_busy && w->now_ms >= n->sync_at_ms)
		world__sync_end(w, n);
	if (n->up && n->fetch_busy && w->now_ms >= n->fetch_at_ms) {
		n->fetch_busy = false;
		world__step(w, n, &ready, NULL);
	}
	run_late(w, n);
	if (ticks)
		world__step(w, n, &tick, NULL);
	if (ticks && n->up)
		world__operator_waits(w, n);
}

static void some_clock_leaps(struct world *w)
{
	w->nodes[rng_below(&w->rng, w->node_count)].clock_us += rng_below(&w->rng, 2000000);
	w->counts.jumps++;
}

static void advance(struct world *w)
{
	w->now_ms++;
	if (!w->well && rng_chance(&w->rng, w->node_count, 20000))
		some_clock_leaps(w);
	deliver(w);
	for (uint32_t i = 0; i < w->node_count; i++)
		run_node(w, &w->nodes[i]);
}

struct world_node *world__some_leader(struct world *w)
{
	uint32_t from = (uint32_t)rng_below(&w->rng, w->node_count);

	for (uint32_t i = 0; i < w->node_count; i++) {
		struct world_node *n = &w->nodes[(from + i) % w->node_count];

		if (n->up && !n->stalled && !n->dropped && n->core.role == RAFT_LEADER)
			return n;
	}
	return NULL;
}

static void client_submits(struct world *w)
{
	struct world_node *n = world__some_leader(w);
	struct raft_event event = {.type = RAFT_SUBMIT, .count = 1 + rng_below(&w->rng, 3)};

	if (n && n->core.last_index < n->core.commit + 60)
		world__step(w, n, &event, NULL);
}

void world__client_reads(struct world *w, struct world_node *n)
{
	struct raft_event event = {.type = RAFT_READ};
	uint32_t i = 0;

	while (i < WORLD_READS && w->reads[i].open)
		i++;
	if (i == WORLD_READS)
		return;
	w->asked = &w->reads[i];
	w->asked->node = world__id(w, n);
	w->asked->floor = w->committed.count;
	w->asked->heard = w->asked->idle_ticks = 0;
	w->asked->term = n->core.term;
	world__step(w, n, &event, NULL);
}

static void client_reads(struct world *w)
{
	struct world_node *n = world__some_leader(w);

	if (n)
		world__client_reads(w, n);
}

static void compact_to(struct world *w, struct world_node *n, uint64_t keep)
{
	if (n->up && n->applied > n->log.base_index + keep)
		world__compact(w, n, n->applied - keep);
}

/* Of what its log has and it does not know to be committed: there before the entries that made it needless were. */
static void needless_snapshot(struct world *w, struct world_node *n)
{
	struct raft_message m = {.type = RAFT_SNAPSHOT, .from = n->core.leader, .to = world__id(w, n), .term = n->core.term};
	struct raft_event ready = {.type = RAFT_SNAPSHOT_READY, .message = &m};

	for (uint32_t i = 0; i < w->node_count && n->up && !n->stalled && !n->dropped && n->core.leader && n->core.leader != m.to; i++) {
		const struct world_node *at = &w->nodes[i];

		if (!at->up || at->dropped || at->applied <= n->core.commit || at->applied > n->core.last_index)
			continue;
		m.snapshot.index = at->applied;
		m.snapshot.term = w->committed.entries[at->applied - 1].term;
		m.snapshot.config = w->configs[at->applied_config];
		memcpy(m.snapshot.descriptor, &at->hash, 8);
		memcpy(m.snapshot.descriptor + 8, &at->applied_config, 4);
		if (raft_message_check(&m) == 0) /* else its leader is of an older term than the snapshot: it sends no such */
			world__step(w, n, &ready, NULL);
		return;
	}
}

static void part(struct world *w)
{
	uint64_t sides = rng_u64(&w->rng);

	w->counts.partitions++;
	for (uint32_t i = 0; i < w->node_count; i++)
		for (uint32_t j = 0; j < w->node_count; j++)
			w->cut[i][j] = (sides >> i & 1) != (sides >> j & 1);
}

static void trouble(struct world *w)
{
	struct world_node *leader = world__some_leader(w);
	struct world_node *n =
		leader && rng_chance(&w->rng, 1, 3) ? leader : &w->nodes[rng_below(&w->rng, w->node_count)];
	uint32_t other = (uint32_t)rng_below(&w->rng, w->node_count);

	switch (rng_below(&w->rng, 13)) {
	case 12:
		world__operator_forces(w);
		break;
	case 11:
		world__operator_shrinks(w);
		break;
	case 10:
		needless_snapshot(w, n);
		break;
	case 0:
	case 1:
		if (n->up)
			world__crash(w, n);
		break;
	case 2:
	case 3:
	case 4:
		if (!n->up)
			world__start(w, n);
		break;
	case 5:
		if (n->up && !n->stalled)
			w->counts.stalls++;
		n->stalled = n->up && !n->stalled;
		break;
	case 6: /* one direction */
		w->cut[n - w->nodes][other] = (int)other != n - w->nodes;
		break;
	case 7:
		part(w);
		break;
	case 8:
		memset(w->cut, 0, sizeof(w->cut));
		break;
	default:
		compact_to(w, n, rng_below(&w->rng, 8));
	}
}

static void heal(struct world *w)
{
	memset(w->cut, 0, sizeof(w->cut));
	w->loss = w->repeat = w->slow = 0;
	w->well = true;
	for (uint32_t i = 0; i < WORLD_NODES; i++)
		w->nodes[i].rate = 900 + (uint32_t)rng_below(&w->rng, 201);
	for (uint32_t i = 0; i < w->node_count; i++) {
		w->nodes[i].stalled = false;
		if (!w->nodes[i].up)
			world__start(w, &w->nodes[i]);
	}
}

/* A leader, all members at its state. */
static bool agrees(struct world *w)
{
	struct world_node *leader = world__some_leader(w);

	if (!leader || leader->core.commit != leader->core.last_index || leader->applied != leader->core.commit)
		return false;
	for (uint32_t i = 0; i < leader->core.config.count; i++) {
		struct world_node *n = world__node(w, leader->core.config.members[i].id);

		if (n->core.leader != world__id(w, leader) || n->applied != leader->applied)
			return false;
		if (n->hash != leader->hash)
			world__fail(w, "nodes %u and %u applied the same and are not in the same state",
				world__id(w, n), world__id(w, leader));
	}
	return leader->applied == w->committed.count;
}

static const struct raft_member *member_of(const struct raft_config *config, uint64_t id)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (config->members[i].id == id)
			return &config->members[i];
	return NULL;
}

enum { JOIN_KEPT = 3 }; /* entries behind what is applied */

/* As a replica does: what a stream that is under way needs next is held, and behind a snapshot what the member lacks, until it is level. */
static bool is_kept_for(const struct world_node *leader, const struct world_node *n)
{
	return n->fetch_busy || (n->log.base_index >= leader->log.base_index && n->log.base_index > 0 && n->applied + JOIN_KEPT < leader->applied);
}

/* A new member catches up though entries come all the time and what it needs is compacted away, and becomes a voter. */
static void check_joins(struct world *w)
{
	struct world_node *leader = world__some_leader(w), *n = &w->nodes[w->node_count];
	struct raft_event event = {.type = RAFT_CHANGE};

	if (!leader || w->node_count == WORLD_NODES || leader->core.config.count == RAFT_MEMBERS_MAX ||
		w->config_count > WORLD_CONFIGS - 100)
		return;
	n->exists = true;
	world__start(w, n);
	w->node_count++;
	event.peer = world__id(w, n);
	for (uint32_t i = 0; i < WELL_MS && !w->fault[0]; i++) {
		leader = world__some_leader(w);
		if (i % 50 == 0 && leader) {
			const struct raft_member *member = member_of(&leader->core.config, event.peer);

			if (member && member->voter && leader->core.config.index <= leader->core.commit)
				return;
			event.change = member ? RAFT_PROMOTE : RAFT_ADD_LEARNER;
			world__step(w, leader, &event, NULL);
			if (!is_kept_for(leader, n))
				compact_to(w, leader, JOIN_KEPT);
		}
		if (i % 2 == 0)
			client_submits(w);
		advance(w);
	}
	world__fail(w, "all is well, and a new member does not catch up");
}

/* Entries come faster than disks sync, so that there is never a moment when all are durable; they are committed all the same. */
static void check_goes_on(struct world *w)
{
	uint64_t last = w->committed.count + 1;

	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && w->committed.count < last; i++) {
		struct world_node *n = world__some_leader(w);
		struct raft_event event = {.type = RAFT_SUBMIT, .count = 1};

		if (n)
			world__step(w, n, &event, NULL);
		advance(w);
	}
	if (w->committed.count < last)
		world__fail(w, "all is well, entries come all the time, and none is committed");
	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && !agrees(w); i++)
		advance(w);
}

/* With all well again: the group agrees, and goes on to serve; among replicas that work nobody broke the protocol. */
static void check_serves(struct world *w)
{
	uint64_t reads;

	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && !agrees(w); i++)
		advance(w);
	if (!agrees(w))
		world__fail(w, "all is well for 5 s, and there is no leader whom all follow to the end of its log");
	memset(w->reads, 0, sizeof(w->reads));
	reads = w->counts.reads;
	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && w->counts.reads == reads; i++) {
		if (i % 100 == 0)
			client_reads(w);
		advance(w);
	}
	if (w->counts.reads == reads)
		world__fail(w, "all is well, and a read comes to no end");
	client_submits(w);
	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && !agrees(w); i++)
		advance(w);
	if (!agrees(w))
		world__fail(w, "all is well, and an entry comes to no end");
	check_goes_on(w);
	check_joins(w);
	for (uint32_t i = 0; i < w->node_count; i++)
		if (!w->nodes[i].dropped && w->nodes[i].core.refused != w->nodes[i].lies)
			world__fail(w, "node %u refused %" PRIu64 " messages of its peers, and was told %" PRIu64 " lies", i + 1,
				w->nodes[i].core.refused, w->nodes[i].lies);
}

static void add_counts(struct world_counts *to, const struct world *w)
{
	const uint64_t *from = (const uint64_t *)&w->counts;

	for (size_t i = 0; i < sizeof(*to) / sizeof(uint64_t); i++)
		((uint64_t *)to)[i] += from[i];
	for (uint32_t i = 0; i < w->node_count; i++)
		to->refused += w->nodes[i].core.refused;
}

bool world_history(uint64_t seed, bool trace, struct world_counts *counts, char fault[512])
{
	struct world *w = MEM_NEW(struct world);
	uint64_t length, change_every;
	uint32_t trouble_every;
	bool ok;

	rng_init(&w->rng, seed);
	w->trace = trace;
	w->now_ms = 1;
	w->ways = &chance;
	for (uint32_t i = 0; i < WORLD_NODES; i++) {
		w->nodes[i].rate = rng_chance(&w->rng, 1, 2) ? 1000 : 300 + (uint32_t)rng_below(&w->rng, 1500);
		w->nodes[i].clock_us = rng_below(&w->rng, 1000000);
	}
	w->hasty = rng_chance(&w->rng, 1, 4);
	world__found(w, w->hasty ? 4 : 1 + 2 * (uint32_t)rng_below(&w->rng, 3), false, false);
	w->loss = (uint32_t)rng_below(&w->rng, 3) * 5;
	w->repeat = (uint32_t)rng_below(&w->rng, 3) * 5;
	w->slow = (uint32_t)rng_below(&w->rng, 3) * 10;
	w->brief = (uint32_t)rng_below(&w->rng, 3) * 30;
	w->members = 3 + (uint32_t)rng_below(&w->rng, 4);
	w->late_ms = rng_chance(&w->rng, 3, 4) ? 200 : 3000;
	trouble_every =
		(uint32_t)(rng_chance(&w->rng, 1, 2) ? rng_between(&w->rng, 4, 30) : rng_between(&w->rng, 30, 200));
	w->forces = rng_chance(&w->rng, 1, 4);
	length = 15000 + rng_below(&w->rng, 15000);
	change_every = rng_chance(&w->rng, 1, 2) ? rng_between(&w->rng, 5, 40) : rng_between(&w->rng, 50, 350);
	if (w->hasty) {
		w->members = 4;
		change_every = rng_between(&w->rng, 3, 20);
	}
	for (uint64_t i = 0; i < length && !w->fault[0]; i++) {
		advance(w);
		if (rng_chance(&w->rng, 1, 8))
			client_submits(w);
		if (rng_chance(&w->rng, 1, 16))
			client_reads(w);
		if (rng_chance(&w->rng, 1, (uint32_t)change_every))
			world__operator_acts(w);
		if (rng_chance(&w->rng, 1, trouble_every))
			trouble(w);
		if (w->hasty && rng_chance(&w->rng, 1, 1000))
			memset(w->cut, 0, sizeof(w->cut));
		if (rng_chance(&w->rng, 1, 50))
			world__lie(w);
	}
	heal(w);
	check_serves(w);
	for (uint32_t i = 0; i < w->node_count; i++) {
		const struct raft_core *core = &w->nodes[i].core;

		TRACE(w,
			"node %u %s: %s of term %" PRIu64 ", leader %" PRIu64 ", base %" PRIu64 " last %" PRIu64
			" persisted %" PRIu64 " commit %" PRIu64 " applied %" PRIu64 " refused %" PRIu64,
			i + 1, w->nodes[i].up ? "up" : "down", world__role_name(core->role), core->term, core->leader,
			core->base_index, core->last_index, core->persisted, core->commit, w->nodes[i].applied,
			core->refused);
		for (uint32_t j = 0; core->role == RAFT_LEADER && j < core->config.count; j++)
			TRACE(w,
				"  member %" PRIu64 "%s: state %d match %" PRIu64 " next %" PRIu64
				" filling %d paused %d inflight %u",
				core->peers[j].id, core->config.members[j].voter ? "" : " learner",
				(int)core->peers[j].state, core->peers[j].match, core->peers[j].next,
				core->peers[j].filling, core->peers[j].paused, core->peers[j].inflight_count);
	}
	ok = w->fault[0] == 0;
	add_counts(counts, w);
	memcpy(fault, w->fault, sizeof(w->fault));
	for (uint32_t i = 0; i < WORLD_NODES; i++) {
		world__log_fini(&w->nodes[i].disk);
		world__log_fini(&w->nodes[i].syncing);
		world__log_fini(&w->nodes[i].log);
	}
	world__log_fini(&w->committed);
	mem_free(w);
	return ok;
}
