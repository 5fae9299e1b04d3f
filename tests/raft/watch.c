/* SPDX-License-Identifier: Apache-2.0 */
/* What is checked of a world of chance and takes more than a step to see. */
#include <string.h>
#include "tests/raft/world_private.h"

enum { SILENT_MS = 3 * ELECTION_MS, GAP_MS = 10 };

static bool has(uint64_t bits, uint64_t id)
{
	return bits >> (id - 1) & 1;
}

static bool quorum_in(const struct world *w, const struct world_node *n, uint64_t bits)
{
	const struct raft_config *config = &n->core.config;
	uint32_t voters = 0, heard = 0;

	for (uint32_t i = 0; i < config->count; i++) {
		if (!config->members[i].voter)
			continue;
		voters++;
		heard += config->members[i].id == world__id(w, n) || has(bits, config->members[i].id);
	}
	return heard > voters / 2;
}

/* Who hears no quorum leads no longer, by its own clock; what that leaps over, nobody could have said. */
static void check_heard(struct world *w, struct world_node *n)
{
	struct world_watch *watch = &n->watch;
	uint64_t gap = n->clock_ms - watch->ticked_ms;

	watch->ticked_ms = n->clock_ms;
	watch->silent_ms += gap < GAP_MS ? gap : GAP_MS;
	if (quorum_in(w, n, watch->heard))
		watch->silent_ms = watch->heard = 0;
	if (watch->silent_ms > SILENT_MS)
		world__fail(w, "node %u leads on, and has heard no quorum for %" PRIu64 " ms", world__id(w, n), watch->silent_ms);
}

/* What a leader counts of a member, that has. */
static void check_counted(struct world *w, struct world_node *n, uint64_t id)
{
	const struct world_node *m = &w->nodes[id - 1];

	for (uint32_t i = 0; i < n->core.config.count; i++) {
		uint64_t match = n->core.peers[i].match;
		const struct world_entry *mine = world__log_at(&n->log, match), *theirs = world__log_at(&m->disk, match);

		if (n->core.peers[i].id == id && m->disk_term <= n->core.term && match > m->disk.base_index &&
			(!theirs || (mine && mine->term != theirs->term)))
			world__fail(w, "node %u counts %" PRIu64 " as durable on %" PRIu64 ", where it is not", world__id(w, n),
				match, id);
	}
}

static void hear(struct world_node *n, const struct raft_message *m)
{
	if (m->term != n->core.term)
		return;
	n->watch.heard |= UINT64_C(1) << (m->from - 1);
	n->watch.met |= UINT64_C(1) << (m->from - 1);
}

/* A read is answered when a quorum of voters has said, after it was asked, that the leader leads. */
static void check_reads(struct world *w, struct world_node *n, const struct raft_event *event, const struct raft_update *u)
{
	if (event->type == RAFT_READ && u->read_done && u->read_done >= u->read_token && !quorum_in(w, n, 0))
		world__fail(w, "node %u answers a read at once, and leads a group of more than one", world__id(w, n));
	for (uint32_t i = 0; i < WORLD_READS; i++) {
		struct world_read *read = &w->reads[i];

		if (!read->open || read->node != world__id(w, n))
			continue;
		/* The answer to an older probe says nothing of now. */
		if (event->type == RAFT_RECEIVE && event->message->type == RAFT_READ_ACK && event->message->term == n->core.term &&
			event->message->read.seq >= read->token)
			read->heard |= UINT64_C(1) << (event->message->from - 1);
		if (read->token <= u->read_done && !quorum_in(w, n, read->heard))
			world__fail(w, "node %u answers a read, and no quorum has said since that it leads", world__id(w, n));
	}
}

static void check_promoted(struct world *w, struct world_node *n, uint64_t id)
{
	for (uint32_t i = 0; i < n->core.config.count; i++)
		if (n->core.config.members[i].id == id && n->core.config.members[i].voter && !has(n->watch.met, id))
			world__fail(w, "node %u makes %" PRIu64 " a voter, of whom it has heard nothing", world__id(w, n), id);
}

void world__watch(struct world *w, struct world_node *n, const struct raft_event *event, const struct raft_update *u, enum raft_role before)
{
	if (n->core.role != RAFT_LEADER)
		return;
	if (before != RAFT_LEADER)
		n->watch = (struct world_watch){.ticked_ms = n->clock_ms};
	check_reads(w, n, event, u);
	if (event->type == RAFT_RECEIVE) {
		hear(n, event->message);
		check_counted(w, n, event->message->from);
	} else if (event->type == RAFT_TICK) {
		check_heard(w, n);
	} else if (u->append.kind == RAFT_APPEND_CONFIG && event->change == RAFT_PROMOTE) {
		check_promoted(w, n, event->peer);
	}
}
