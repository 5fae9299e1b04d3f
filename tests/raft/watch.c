/* SPDX-License-Identifier: Apache-2.0 */
/* What is checked of a world of chance and takes more than a step to see. */
#include <string.h>
#include "tests/raft/world_private.h"

/* IDLE_TICKS: there was a heartbeat in them. SENT_BODIES: a message may be longer than there is room, by one. */
enum { SILENT_MS = 3 * ELECTION_MS, QUIET_MS = 3 * ELECTION_MS, GAP_MS = 10, IDLE_TICKS = 8, SENT_BODIES = WINDOW_BODIES + 1 };

static uint64_t bit_of(struct world *w, uint64_t id)
{
	return UINT64_C(1) << (world__node(w, id) - w->nodes);
}

static const struct raft_member *find(const struct raft_member *members, uint32_t count, uint64_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (members[i].id == id)
			return &members[i];
	return NULL;
}

static bool quorum_in(struct world *w, const struct world_node *n, uint64_t bits)
{
	const struct raft_config *config = &n->core.config;
	uint32_t voters = 0, heard = 0;

	for (uint32_t i = 0; i < config->count; i++) {
		if (!config->members[i].voter)
			continue;
		voters++;
		heard += config->members[i].id == world__id(w, n) || (bits & bit_of(w, config->members[i].id));
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
	const struct world_node *m = world__node(w, id);

	for (uint32_t i = 0; i < n->core.config.count; i++) {
		uint64_t match = n->core.peers[i].match;
		const struct world_entry *mine = world__log_at(&n->log, match), *theirs = world__log_at(&m->disk, match);

		if (n->core.peers[i].id == id && m->disk_term <= n->core.term && match > m->disk.base_index &&
			(!theirs || (mine && mine->term != theirs->term)))
			world__fail(w, "node %u counts %" PRIu64 " as durable on %" PRIu64 ", where it is not", world__id(w, n),
				match, id);
	}
}

static void hear(struct world *w, struct world_node *n, const struct raft_message *m)
{
	if (m->term != n->core.term)
		return;
	n->watch.heard |= bit_of(w, m->from);
	n->watch.met |= bit_of(w, m->from);
}

/* A read that a quorum has answered has nothing to wait for, also if the quorum became one only as members went. */
static void check_idle(struct world *w, struct world_node *n, struct world_read *read)
{
	read->idle_ticks = quorum_in(w, n, read->heard) ? read->idle_ticks + 1 : 0;
	if (read->idle_ticks > IDLE_TICKS)
		world__fail(w, "node %u leads, as a quorum has said, and a read still waits", world__id(w, n));
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
			read->heard |= bit_of(w, event->message->from);
		if (read->token <= u->read_done && !quorum_in(w, n, read->heard))
			world__fail(w, "node %u answers a read, and no quorum has said since that it leads", world__id(w, n));
		else if (read->token > u->read_done && event->type == RAFT_TICK)
			check_idle(w, n, read);
	}
}

static void check_promoted(struct world *w, struct world_node *n, uint64_t id)
{
	for (uint32_t i = 0; i < n->core.config.count; i++)
		if (n->core.config.members[i].id == id && n->core.config.members[i].voter && !(n->watch.met & bit_of(w, id)))
			world__fail(w, "node %u makes %" PRIu64 " a voter, of whom it has heard nothing", world__id(w, n), id);
}

/* Places are said when they are known first, and when the member moves. */
static void check_places(struct world *w, struct world_node *n, const struct raft_event *event)
{
	static const uint8_t nowhere[RAFT_PLACE_BYTES];
	const struct raft_config *config = &n->core.config;

	for (uint32_t i = 0; i < config->count; i++) {
		uint64_t id = config->members[i].id;
		const struct raft_member *was = find(n->core.config_before.members, n->core.config_before.count, id),
					 *known = find(event->known, event->known_count, id);
		bool stays = was && memcmp(was->place, nowhere, RAFT_PLACE_BYTES) != 0 && (event->change != RAFT_MOVE || event->peer != id);

		if (memcmp(config->members[i].place, stays ? was->place : known ? known->place : nowhere, RAFT_PLACE_BYTES) != 0)
			world__fail(w, "node %u changes the members, and does not say of %" PRIu64 " where it is", world__id(w, n), id);
	}
}

/* What a voter told nobody it does not count for, and a vote holds for its term. */
static void check_elected(struct world *w, struct world_node *n)
{
	const struct raft_config *config = &n->core.config;
	uint32_t voters = 0, votes = 0;

	for (uint32_t i = 0; i < config->count && n->core.term < WORLD_TERMS; i++) {
		if (!config->members[i].voter)
			continue;
		voters++;
		votes += world__node(w, config->members[i].id)->voted[n->core.term] == n - w->nodes + 1;
	}
	if (votes < voters / 2 + 1)
		world__fail(w, "node %u is elected in term %" PRIu64 ", by %u votes of %u", world__id(w, n), n->core.term, votes, voters);
}

/* A vote is on the disk now. */
static void note_vote(struct world *w, struct world_node *n)
{
	if (n->core.vote && n->core.term < WORLD_TERMS)
		n->voted[n->core.term] = (uint8_t)(world__node(w, n->core.vote) - w->nodes + 1);
}

/*
 * A member whose disk hangs gets a window of entries, and no more, however many messages are lost on the way. Not counted is what was taken for
 * lost and arrives all the same; the first part of a message whose last part was taken for lost does count.
 */
static void check_window(struct world *w, struct world_node *n, const struct raft_event *event, const struct raft_peer *peer)
{
	struct world_flow *flow = &n->watch.flows[world__node(w, peer->id) - w->nodes];
	uint64_t before = event->index - event->bytes / BODY_BYTES, from;

	if (event->index == 0 || event->term != n->core.term)
		return;
	if (!flow->begun)
		flow->low = flow->sent = before;
	flow->begun = true;
	if (before < flow->low)
		flow->low = before;
	/* It was asked for before what is between was taken for lost. */
	if (before > flow->sent)
		flow->surprise += before - flow->sent;
	if (event->index > flow->sent)
		flow->sent = event->index;
	from = peer->match > flow->low ? peer->match : flow->low;
	if (event->index > from + SENT_BODIES + flow->surprise)
		world__fail(w, "node %u sends %" PRIu64 " to %" PRIu64 ", which has made durable no more than %" PRIu64, world__id(w, n),
			event->index, peer->id, from);
}

static void hear_of_window(struct world_flow *flow, const struct raft_message *m, const struct raft_peer *peer)
{
	if (m->appended.reject) {
		if (peer->next - 1 < flow->sent) /* what is behind is taken for lost */
			flow->sent = peer->next - 1;
	} else if (!flow->begun) {
		flow->low = flow->sent = m->appended.seen;
		flow->begun = true;
	} else if (m->appended.seen > flow->sent) {
		flow->surprise += m->appended.seen - flow->sent;
		flow->sent = m->appended.seen;
	}
}

static void watch_window(struct world *w, struct world_node *n, const struct raft_event *event)
{
	for (uint32_t i = 0; i < n->core.config.count; i++) {
		const struct raft_peer *peer = &n->core.peers[i];
		struct world_flow *flow = &n->watch.flows[world__node(w, peer->id) - w->nodes];

		if (event->type == RAFT_SENT && event->peer == peer->id)
			check_window(w, n, event, peer);
		if (event->type == RAFT_RECEIVE && event->message->type == RAFT_APPENDED && event->message->from == peer->id &&
			event->message->term == n->core.term)
			hear_of_window(flow, event->message, peer);
		if (flow->state != peer->state && peer->state == RAFT_REPLICATE) {
			if (flow->state == RAFT_SENDING_SNAPSHOT)
				flow->surprise += peer->next - 1 - peer->match;
			flow->sent = peer->next - 1;
		}
		flow->state = peer->state;
		if (peer->state == RAFT_PROBE && peer->filling && flow->sent >= peer->next) /* it is sent again */
			flow->sent = peer->next - 1;
		if (peer->match >= flow->sent)
			flow->surprise = 0;
	}
}

/* By its own clock, but for its leaps: a tick stands for TICK_MS. */
static void check_stands(struct world *w, struct world_node *n, const struct raft_event *event)
{
	if (n->core.role != RAFT_FOLLOWER || !world__may_stand(w, n) || (event->type != RAFT_TICK && n->core.election_at_ms != n->election_at_ms))
		n->quiet_ms = 0;
	else if (event->type == RAFT_TICK)
		n->quiet_ms += TICK_MS;
	n->election_at_ms = n->core.election_at_ms;
	if (n->quiet_ms > QUIET_MS)
		world__fail(w, "node %u has heard of no leader for %" PRIu64 " ms, may lead, and does not stand for election", world__id(w, n),
			n->quiet_ms);
}

void world__watch(struct world *w, struct world_node *n, const struct raft_event *event, const struct raft_update *u, enum raft_role before)
{
	note_vote(w, n);
	check_stands(w, n, event);
	if (n->core.role != RAFT_LEADER)
		return;
	if (before != RAFT_LEADER) {
		memset(&n->watch, 0, sizeof(n->watch));
		n->watch.ticked_ms = n->clock_ms;
		check_elected(w, n);
	}
	check_reads(w, n, event, u);
	watch_window(w, n, event);
	if (event->type == RAFT_RECEIVE) {
		hear(w, n, event->message);
		check_counted(w, n, event->message->from);
	} else if (event->type == RAFT_TICK) {
		check_heard(w, n);
	} else if (u->append.kind == RAFT_APPEND_CONFIG) {
		check_places(w, n, event);
		if (event->change == RAFT_PROMOTE)
			check_promoted(w, n, event->peer);
	}
}
