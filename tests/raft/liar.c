/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broken peer in a world of chance. What it says passes for a message of the leader that the replica follows, or of another one of its term, and contradicts what is
 * committed, or itself: it is refused and counted, and changes nothing.
 */
#include <string.h>
#include "tests/raft/world_private.h"

/* Whatever it says is not looked at, so it is not refused either. */
static bool is_gone(const struct raft_core *core, uint64_t id)
{
	const struct raft_config *config = core->config.index <= core->commit ? &core->config : &core->config_before;

	for (uint32_t i = 0; i < config->count; i++)
		if (config->members[i].id == id)
			return false;
	return id + RAFT_NUMBERS_APART <= config->last_id;
}

static void told(struct world *w, struct world_node *n, const struct raft_message *m, const struct world_entry *bodies,
	uint64_t missing, uint64_t *ret_count, const char *lie)
{
	struct raft_event event = {.type = RAFT_RECEIVE, .message = m, .count = missing};
	const struct raft_core *core = &n->core;
	uint64_t refused = core->refused, term = core->term, last = core->last_index, commit = core->commit, base = core->base_index;

	if (raft_message_check(m) != 0 || is_gone(core, m->from))
		return; /* a connection that says this is closed */
	++*ret_count;
	n->lies++;
	world__step(w, n, &event, bodies);
	if (core->refused != refused + 1 || core->term != term || core->last_index != last || core->commit != commit ||
		core->base_index != base)
		world__fail(w, "node %u believes %s", world__id(w, n), lie);
}

/* Entries that were lost between the message's head and the replica. */
static void lacks_bodies(struct world *w)
{
	for (uint32_t i = 0; i < w->packet_count; i++) {
		struct world_packet p = w->packets[i];
		struct world_node *n = world__node(w, p.message.to);

		if (p.message.type != RAFT_APPEND || p.message.append.last == p.message.append.prev_index || !n->up || n->stalled || n->dropped)
			continue;
		told(w, n, &p.message, p.bodies, 1, &w->counts.lies_bodies, "a message that lacks a body");
		return;
	}
}

/* A configuration that is said to be of another entry than the last: not even well-formed. */
static void config_inside(struct world *w)
{
	for (uint32_t i = 0; i < w->packet_count; i++) {
		struct raft_message m = w->packets[i].message;

		if (m.type != RAFT_APPEND || !m.append.has_config || m.append.last == m.append.prev_index + 1)
			continue;
		m.append.config.index--;
		w->counts.lies_config++;
		if (raft_message_check(&m) == 0)
			world__fail(w, "a configuration inside of a message passes for its last entry");
		return;
	}
}

static bool follows(const struct world *w, const struct world_node *n)
{
	return n->up && !n->stalled && !n->dropped && n->core.role == RAFT_FOLLOWER && n->core.leader && n->core.leader != world__id(w, n);
}

/* Another entry in the place of one that is committed. */
static void other_committed(struct world *w, struct world_node *n)
{
	const struct raft_core *core = &n->core;
	struct raft_message m = {.type = RAFT_APPEND, .from = core->leader, .to = world__id(w, n), .term = core->term};
	struct world_entry bodies[WORLD_BODIES] = {{.term = core->term, .value = 1}};
	uint64_t index = core->commit;
	const struct world_entry *mine = world__log_at(&n->log, index), *before = world__log_at(&n->log, index - 1);

	if (!mine || !before || mine->term == core->term || !raft_term_at(core, index))
		return; /* who has forgotten the term trusts what is committed, and has nothing to cut */
	m.append.prev_index = index - 1;
	m.append.prev_term = before->term;
	m.append.last = index;
	m.append.commit = index;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){index, core->term};
	told(w, n, &m, bodies, 0, &w->counts.lies_entry, "another entry than that which is committed");
}

/* A snapshot of what comes later, of an older term than what is committed. */
static void older_term(struct world *w, struct world_node *n)
{
	const struct raft_core *core = &n->core;
	struct raft_message m = {.type = RAFT_SNAPSHOT, .from = core->leader, .to = world__id(w, n), .term = core->term};
	uint64_t term = raft_term_at(core, core->commit);

	if (term < 2)
		return;
	m.snapshot.index = core->commit + 1 + w->ways->choose(w, 100);
	m.snapshot.term = term - 1;
	m.snapshot.config = core->config;
	if (m.snapshot.config.index > m.snapshot.index || m.snapshot.config.count == 0)
		return;
	told(w, n, &m, NULL, 0, &w->counts.lies_snapshot, "a snapshot of an older term than what is committed");
}

/* Another member says that it leads the term whose leader the replica follows. */
static void second_leader(struct world *w, struct world_node *n)
{
	const struct raft_core *core = &n->core;
	struct raft_message m = {.type = RAFT_APPEND, .to = world__id(w, n), .term = core->term};

	for (uint32_t i = 0; i < core->config.count && !m.from; i++)
		if (core->config.members[i].id != core->leader && core->config.members[i].id != m.to)
			m.from = core->config.members[i].id;
	m.append.prev_index = m.append.last = m.append.commit = core->commit;
	m.append.prev_term = raft_term_at(core, core->commit);
	if (m.from)
		told(w, n, &m, NULL, 0, &w->counts.lies_leader, "a second leader of a term");
}

/* A term that no group reaches in its life. */
static void far_term(struct world *w, struct world_node *n)
{
	const struct raft_core *core = &n->core;
	struct raft_message m = {.type = RAFT_APPEND, .from = core->leader, .to = world__id(w, n), .term = RAFT_TERM_MAX - 1};

	m.append.prev_index = m.append.last = m.append.commit = core->commit;
	m.append.prev_term = raft_term_at(core, core->commit);
	told(w, n, &m, NULL, 0, &w->counts.lies_term, "a term behind which there are none");
}

/* What it says of the term is drawn together with what it says of the log. */
static void lies_as_leader(struct world *w, struct world_node *n, bool of_entries)
{
	if (!follows(w, n))
		return;
	if (of_entries) {
		other_committed(w, n);
		second_leader(w, n);
	} else {
		older_term(w, n);
		far_term(w, n);
	}
}

void world__lie(struct world *w)
{
	struct world_node *n = &w->nodes[w->ways->choose(w, w->node_count)];

	switch (w->ways->choose(w, 4)) {
	case 0:
		lacks_bodies(w);
		break;
	case 1:
		config_inside(w);
		break;
	case 2:
		lies_as_leader(w, n, true);
		break;
	default:
		lies_as_leader(w, n, false);
	}
}
