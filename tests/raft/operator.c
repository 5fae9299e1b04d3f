/* SPDX-License-Identifier: Apache-2.0 */
/* The operator of a world of chance, who changes members at any time, in any trouble, and knows little of what it does. */
#include <string.h>
#include "tests/raft/world_private.h"

enum { NUMBERS = 100, TERMS_APART = 1000 }; /* as metad/force_plan.h has them, in a world where elections are counted */

/* In the driver's words: how often it moved, and whose place that is. */
static struct raft_member place_of(const struct world *w, const struct world_node *n)
{
	struct raft_member member = {.id = world__id(w, n), .place = {1}};

	memcpy(member.place + 1, &member.id, sizeof(member.id));
	memcpy(member.place + 1 + sizeof(member.id), &n->place, sizeof(n->place));
	return member;
}

/*
 * A message to the member that goes waits for its bodies: the entry that removes it may be one of them, and is sent to it by nothing else. The disk is
 * busy with what was before that.
 */
static void asks_before(struct world *w, struct world_node *n, uint64_t id)
{
	struct raft_event event = {.type = RAFT_SUBMIT, .count = 1};

	w->parts_from = id;
	world__step(w, n, &event, NULL);
	w->parts_from = 0;
}

static void change(struct world *w, struct world_node *n, enum raft_change what, uint64_t id)
{
	struct raft_member known[WORLD_NODES];
	struct raft_event event = {.type = RAFT_CHANGE, .change = what, .peer = id, .known = known};
	uint64_t config = n->core.config.index;

	if (what == RAFT_REMOVE && rng_chance(&w->rng, 1, 2))
		asks_before(w, n, id);
	TRACE(w, "operator at node %u: %d of %" PRIu64, world__id(w, n), (int)what, id);
	for (uint32_t i = 0; i < w->node_count; i++)
		known[event.known_count++] = place_of(w, &w->nodes[i]);
	world__step(w, n, &event, NULL);
	/* Then what it said may be left with that one alone. */
	if (n->up && n->core.config.index != config && what == RAFT_REMOVE && rng_chance(&w->rng, w->brief, 100))
		n->dies_at_ms = w->now_ms + 2 + rng_below(&w->rng, 12);
}

static struct world_node *node_new(struct world *w)
{
	struct world_node *n = &w->nodes[w->node_count];

	n->exists = true;
	world__start(w, n);
	w->node_count++;
	return n;
}

/* To one alone less often, as it has nobody to disagree with. */
static bool may_shrink(struct world *w, const struct raft_config *config)
{
	return config->count > 2 || (config->count == 2 && rng_chance(&w->rng, 1, 4));
}

/* A voter that has all that the leader has; else `id`. */
static uint64_t who_keeps_up(const struct world_node *n, uint64_t id)
{
	const struct raft_core *core = &n->core;

	for (uint32_t i = 0; i < core->config.count; i++)
		if (core->config.members[i].voter && core->peers[i].state == RAFT_REPLICATE &&
			core->peers[i].next > core->last_index && !core->peers[i].filling)
			return core->peers[i].id;
	return id;
}

void world__operator_acts(struct world *w)
{
	struct world_node *n = world__some_leader(w), *any = &w->nodes[rng_below(&w->rng, w->node_count)];
	struct raft_event event = {.type = RAFT_TRANSFER};
	uint64_t id;

	if (!n || n->core.config.count == 0 || w->config_count > WORLD_CONFIGS - 2)
		return;
	id = n->core.config.members[rng_below(&w->rng, n->core.config.count)].id;
	w->counts.changes++;
	switch (rng_below(&w->rng, 7)) {
	case 0:
		if (w->node_count < WORLD_NODES && n->core.config.count < w->members)
			change(w, n, RAFT_ADD_LEARNER, world__id(w, node_new(w)));
		return;
	case 1:
		change(w, n, RAFT_PROMOTE, id);
		return;
	case 2:
		if (may_shrink(w, &n->core.config))
			change(w, n, RAFT_REMOVE, rng_chance(&w->rng, 1, 2) ? who_keeps_up(n, id) : id);
		return;
	case 3: /* that was a member once, or is */
		change(w, n, RAFT_ADD_LEARNER, world__id(w, any));
		return;
	case 4:
		world__node(w, id)->place++;
		w->counts.moves++;
		change(w, n, RAFT_MOVE, id);
		return;
	case 5: /* to whom it makes no sense, too */
		id = world__id(w, any);
		/* fall through */
	default:
		event.peer = id;
		w->counts.changes--;
		w->counts.transfers++;
		TRACE(w, "operator at node %u: hand over to %" PRIu64, world__id(w, n), id);
		world__step(w, n, &event, NULL);
	}
}

/* Any other member, until it is taken: the first thing that a leader is asked for. */
static void remove_in_haste(struct world *w, struct world_node *n)
{
	const struct raft_config *config = &n->core.config;
	uint64_t id;

	n->hasty = n->core.role == RAFT_LEADER && config->count > 3 && config->index <= n->core.commit &&
		w->config_count < WORLD_CONFIGS - 2;
	if (!n->hasty)
		return;
	id = config->members[rng_below(&w->rng, config->count)].id;
	if (id != world__id(w, n))
		change(w, n, RAFT_REMOVE, id);
}

void world__operator_waits(struct world *w, struct world_node *n)
{
	uint64_t id = n->shrinks_by;

	if (n->hasty)
		remove_in_haste(w, n);
	if (!id || w->now_ms < n->shrinks_at_ms)
		return;
	n->shrinks_by = 0;
	if (n->core.role == RAFT_LEADER && w->config_count < WORLD_CONFIGS - 2)
		change(w, n, RAFT_REMOVE, id);
}

/* Half of the voters are cut off, and a read is asked for; then one of those is removed, so that the others are a quorum. */
void world__operator_shrinks(struct world *w)
{
	struct world_node *n = world__some_leader(w);
	uint64_t near = 0, far = 0;
	uint32_t voters = 0;

	if (!n)
		return;
	for (uint32_t i = 0; i < n->core.config.count; i++) {
		const struct raft_member *m = &n->core.config.members[i];

		if (!m->voter)
			continue;
		voters++;
		if (m->id == world__id(w, n))
			continue;
		near = far;
		far = m->id;
	}
	if (voters != 2 && voters != 4)
		return;
	w->counts.shrinks++;
	world__part_from_rest(w, n, voters == 4 ? near : world__id(w, n));
	world__client_reads(w, n);
	n->shrinks_by = far;
	n->shrinks_at_ms = w->now_ms + rng_below(&w->rng, 30);
}

static bool has_all_committed(const struct world *w, const struct world_node *n)
{
	for (uint64_t i = n->disk.base_index + 1; i <= w->committed.count; i++) {
		const struct world_entry *e = world__log_at(&n->disk, i);

		if (!e || e->term != w->committed.entries[i - 1].term)
			return false;
	}
	return true;
}

static void push_committed(struct world *w, struct world_node *n, uint64_t term)
{
	while (w->committed.count < world__log_last(&n->disk)) {
		world__log_push(&w->committed, world__log_at(&n->disk, w->committed.count + 1));
		w->committed.entries[w->committed.count - 1].committed_in = (uint32_t)term;
	}
}

/* As metad/force.h does it, on the disk of one that is down. The others live on, and hear of nothing. */
static void force(struct world *w, struct world_node *n)
{
	uint64_t last_id = ((w->node_count + RAFT_NUMBERS_APART - 1) / NUMBERS + 1) * NUMBERS;
	struct raft_config *config = &w->configs[w->config_count];
	struct world_entry restored = {.term = n->disk_term + TERMS_APART, .value = ++w->next_value},
			   only = {.term = restored.term};

	TRACE(w, "the group is forced on to node %u", world__id(w, n));
	w->counts.forced++;
	n->disk_term = restored.term;
	n->disk_vote = world__id(w, n);
	only.config = w->config_count++;
	*config = (struct raft_config){.index = world__log_last(&n->disk) + 2, .count = 1, .last_id = last_id};
	config->members[0] = place_of(w, n);
	config->members[0].voter = true;
	world__log_push(&n->disk, &restored);
	world__log_push(&n->disk, &only);
	push_committed(w, n, restored.term);
	n->forced = config->index;
	w->forces = false;
	w->apart_from = w->node_count;
	w->apart = (uint32_t)last_id - w->node_count;
	for (uint32_t i = 0; i < w->node_count; i++)
		w->nodes[i].dropped = &w->nodes[i] != n;
	memset(w->reads, 0, sizeof(w->reads));
	world__start(w, n);
}

/* Onto one that has all that was committed: of what only the others have, nothing is promised. */
void world__operator_forces(struct world *w)
{
	struct world_node *n = &w->nodes[rng_below(&w->rng, w->node_count)];
	uint32_t config;
	bool member = false;

	if (!w->forces || n->disk_term + 2 * TERMS_APART > WORLD_TERMS || w->config_count > WORLD_CONFIGS - 2)
		return;
	if (n->up)
		world__crash(w, n);
	config = world__log_latest(&n->disk);
	for (uint32_t i = 0; i < w->configs[config].count; i++)
		member |= w->configs[config].members[i].id == world__id(w, n);
	if (member && w->configs[config].count > 2 && has_all_committed(w, n))
		force(w, n);
}
