/* SPDX-License-Identifier: Apache-2.0 */
/* What is checked of every world, of chance (history.c) or small (explore.c), after each step. */
#include <stdarg.h>
#include <string.h>
#include "tests/raft/world_private.h"

void world__fail(struct world *w, const char *format, ...)
{
	va_list args;

	if (w->fault[0])
		return;
	va_start(args, format);
	vsnprintf(w->fault, sizeof(w->fault), format, args);
	va_end(args);
}

static bool config_equal(const struct raft_config *a, const struct raft_config *b)
{
	if (a->index != b->index || a->count != b->count || a->last_id != b->last_id)
		return false;
	for (uint32_t i = 0; i < a->count; i++)
		if (a->members[i].id != b->members[i].id || a->members[i].voter != b->members[i].voter ||
			memcmp(a->members[i].place, b->members[i].place, RAFT_PLACE_BYTES) != 0)
			return false;
	return true;
}

/* Leader completeness: who was elected has all that was committed in earlier terms. (That a later one has begun, it need not know.) */
static void check_has_committed(struct world *w, struct world_node *n)
{
	for (uint64_t i = n->log.base_index + 1; i <= w->committed.count; i++) {
		const struct world_entry *e = world__log_at(&n->log, i), *c = &w->committed.entries[i - 1];

		if ((e && e->term == c->term && e->value == c->value) || c->committed_in >= n->core.term)
			continue;
		world__fail(w, "node %u leads term %" PRIu64 " without %" PRIu64 ", which is committed",
			world__id(w, n), n->core.term, i);
		return;
	}
}

/* What is acknowledged is on the disk, and is what the leader has. */
static void check_acknowledged(struct world *w, struct world_node *n, const struct raft_message *m)
{
	const struct world_node *leader = world__node(w, m->to);
	const struct world_entry *mine, *theirs;

	if (m->appended.reject || m->appended.index <= n->log.base_index)
		return;
	mine = world__log_at(&n->disk, m->appended.index);
	theirs = world__log_at(&leader->log, m->appended.index);
	if (!mine)
		world__fail(w, "node %u acknowledges %" PRIu64 ", which is not on its disk", world__id(w, n),
			m->appended.index);
	else if (leader->up && leader->core.role == RAFT_LEADER && leader->core.term == n->core.term && theirs &&
		theirs->term != mine->term)
		world__fail(w, "node %u acknowledges %" PRIu64 " of term %" PRIu64 ", its leader's is of %" PRIu64,
			world__id(w, n), m->appended.index, mine->term, theirs->term);
}

/* What a log says of itself to be committed is. */
void world__check_start(struct world *w, struct world_node *n)
{
	if (world__is_dropped(n))
		return;
	if (n->core.commit > w->committed.count)
		world__fail(w, "node %u starts with commit %" PRIu64 ", and only %u are", world__id(w, n),
			n->core.commit, w->committed.count);
	for (uint64_t i = n->log.base_index + 1; i <= n->core.commit && !w->fault[0]; i++)
		if (world__log_at(&n->log, i)->term != w->committed.entries[i - 1].term)
			world__fail(w, "node %u starts with %" PRIu64 " as committed, which is another",
				world__id(w, n), i);
}

void world__check_meta(struct world *w, struct world_node *n, uint64_t term, uint64_t vote, bool meta)
{
	if ((n->core.term != term || n->core.vote != vote) && !meta)
		world__fail(w, "node %u: term or vote changed, and nothing is to be written", world__id(w, n));
	if (n->core.term < term || (n->core.term == term && vote && n->core.vote != vote))
		world__fail(w, "node %u: term or vote went back", world__id(w, n));
}

static bool is_voter(const struct raft_config *config, uint64_t id)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (config->members[i].id == id)
			return config->members[i].voter;
	return false;
}

/* Who was removed stands and leads until that is committed, for its log may be the only one that is new enough. */
bool world__may_stand(const struct world *w, const struct world_node *n)
{
	const struct raft_core *core = &n->core;

	return is_voter(&core->config, world__id(w, n)) || (core->config.index > core->commit && is_voter(&core->config_before, world__id(w, n)));
}

static void check_belongs(struct world *w, struct world_node *n)
{
	const struct raft_core *core = &n->core;

	if (!world__may_stand(w, n))
		world__fail(w, "node %u leads on, and the configuration of %" PRIu64 ", which is committed, is without it", world__id(w, n),
			core->config.index);
}

void world__check_leader(struct world *w, struct world_node *n, bool elected)
{
	uint64_t term = n->core.term;

	if (n->core.role != RAFT_LEADER || world__is_dropped(n))
		return;
	check_belongs(w, n);
	if (term >= WORLD_TERMS) {
		world__fail(w, "term %" PRIu64 ": elections do not come to an end", term);
		return;
	}
	if (w->leaders[term] && w->leaders[term] != world__id(w, n))
		world__fail(w, "two leaders in term %" PRIu64 ": %" PRIu64 " and %u", term, w->leaders[term],
			world__id(w, n));
	else if (w->leaders[term] && elected)
		world__fail(w, "node %u is elected in term %" PRIu64 " a second time", world__id(w, n), term);
	if (!w->leaders[term]) {
		w->counts.elections++;
		check_has_committed(w, n);
	}
	w->leaders[term] = world__id(w, n);
}

/* Log matching, entry by entry as they come: who has one of the same index and term has the same, and the same before it. */
void world__check_appended(struct world *w, struct world_node *n, uint64_t index)
{
	const struct world_entry *mine = world__log_at(&n->log, index), *before = world__log_at(&n->log, index - 1);

	for (uint32_t i = 0; i < w->node_count && !world__is_dropped(n); i++) {
		const struct world_log *log = &w->nodes[i].log;
		const struct world_entry *theirs = world__log_at(log, index);

		if (!theirs || theirs->term != mine->term || world__is_dropped(&w->nodes[i]))
			continue;
		if (theirs->value != mine->value || theirs->config != mine->config)
			world__fail(w, "nodes %u and %u: two entries %" PRIu64 " of term %" PRIu64, world__id(w, n),
				i + 1, index, mine->term);
		theirs = world__log_at(log, index - 1);
		if (before && theirs && theirs->term != before->term)
			world__fail(w, "nodes %u and %u have the same entry %" PRIu64 ", and before it another",
				world__id(w, n), i + 1, index);
	}
}

/* As the core knows it, the log is the one that the driver keeps. */
void world__check_core(struct world *w, struct world_node *n)
{
	uint32_t latest = world__log_latest(&n->log);
	const struct raft_core *core = &n->core;

	if (core->last_index != world__log_last(&n->log))
		world__fail(w, "node %u: last %" PRIu64 " in the core, %" PRIu64 " in the log", world__id(w, n),
			core->last_index, world__log_last(&n->log));
	else if (raft_term_at(core, core->last_index) !=
		(n->log.count ? n->log.entries[n->log.count - 1].term : n->log.base_term))
		world__fail(w, "node %u: the core has another last term than the log", world__id(w, n));
	else if (!config_equal(&core->config, &w->configs[latest]))
		world__fail(w, "node %u: its configuration is of entry %" PRIu64 ", the latest of its log of %" PRIu64,
			world__id(w, n), core->config.index, w->configs[latest].index);
	else if (core->persisted > world__log_last(&n->disk) && !n->sync_busy)
		world__fail(w, "node %u: counts %" PRIu64 " as persisted, has %" PRIu64, world__id(w, n),
			core->persisted, world__log_last(&n->disk));
}

/* A commit is checked when it is first seen: a quorum of its configuration must have it on disk. */
void world__check_commit(struct world *w, struct world_node *n)
{
	while (w->committed.count < n->core.commit && !world__is_dropped(n)) {
		uint64_t index = w->committed.count + 1;
		const struct world_entry *e = world__log_at(&n->log, index);
		uint32_t have = 0, voters = 0;

		if (!e) {
			world__fail(w,
				"node %u commits %" PRIu64 ", which nobody committed before and it does not have",
				world__id(w, n), index);
			return;
		}
		for (uint32_t i = 0; i < n->core.config.count; i++) {
			const struct world_node *m = world__node(w, n->core.config.members[i].id);
			const struct world_entry *d = world__log_at(&m->disk, index);

			if (!n->core.config.members[i].voter)
				continue;
			voters++;
			have += (d && d->term == e->term) || m->disk.base_index >= index;
		}
		if (have < voters / 2 + 1)
			world__fail(w, "node %u commits %" PRIu64 " of term %" PRIu64 ", durable on %u of %u voters",
				world__id(w, n), index, e->term, have, voters);
		world__log_push(&w->committed, e);
		w->committed.entries[w->committed.count - 1].committed_in = (uint32_t)n->core.term;
		w->counts.committed++;
	}
}

/* Also of what is not applied yet, for it is not durable here: what a core has as committed is what was committed. */
static void check_last_committed(struct world *w, const struct world_node *n)
{
	const struct world_entry *e = world__log_at(&n->log, n->core.commit);

	if (e && e->term != w->committed.entries[n->core.commit - 1].term)
		world__fail(w, "node %u has %" PRIu64 " of term %" PRIu64 " as committed, which is another",
			world__id(w, n), n->core.commit, e->term);
}

void world__apply(struct world *w, struct world_node *n)
{
	uint64_t to = n->core.commit < n->core.persisted ? n->core.commit : n->core.persisted;

	if (world__is_dropped(n))
		return;
	check_last_committed(w, n);
	while (n->applied < to) {
		const struct world_entry *e = world__log_at(&n->log, n->applied + 1),
					 *c = &w->committed.entries[n->applied];

		if (!e || e->term != c->term || e->value != c->value) {
			world__fail(w,
				"node %u applies %" PRIu64 ": %" PRIu64 " of term %" PRIu64 ", committed was %" PRIu64
				" of term %" PRIu64,
				world__id(w, n), n->applied + 1, e ? e->value : 0, e ? e->term : 0, c->value, c->term);
			return;
		}
		n->hash = world__hash(n->hash, e);
		if (e->config)
			n->applied_config = e->config;
		n->applied++;
	}
}

void world__check_step(struct world *w, struct world_node *n, const struct raft_event *event,
	const struct raft_update *u, enum raft_role before, uint64_t leader_before, uint64_t term_before)
{
	const struct world_entry *e;

	if (event->type == RAFT_RECEIVE && event->message->type == RAFT_TIMEOUT_NOW && before == RAFT_FOLLOWER &&
		n->core.role != before && (event->message->term != term_before || event->message->from != leader_before))
		world__fail(w, "node %u stands for election, as %" PRIu64 " asked, who does not lead", world__id(w, n),
			event->message->from);
	if (before == RAFT_FOLLOWER && n->core.role == RAFT_CANDIDATE &&
		(event->type != RAFT_RECEIVE || event->message->type != RAFT_TIMEOUT_NOW))
		world__fail(w, "node %u raises the term, and has asked nobody whether it would be elected", world__id(w, n));
	if (event->type == RAFT_RECEIVE && event->message->type == RAFT_VOTED && !event->message->voted.granted &&
		event->message->term > n->core.term)
		world__fail(w, "node %u is refused by one of term %" PRIu64 ", and stays in %" PRIu64, world__id(w, n),
			event->message->term, n->core.term);
	if (!u->install)
		return;
	e = world__log_at(&n->log, event->message->snapshot.index);
	if (e && e->term == event->message->snapshot.term)
		world__fail(w, "node %u gives up its log for the snapshot of %" PRIu64 ", which the log has",
			world__id(w, n), event->message->snapshot.index);
	if (n->core.role != RAFT_FOLLOWER)
		world__fail(w, "node %u installs a snapshot, and is still %s by votes for another log", world__id(w, n),
			world__role_name(n->core.role));
}

/* An id that was given away is not given again, and a leader stays: who leads shall not be open for longer than it must. */
void world__check_change(struct world *w, struct world_node *n, const struct raft_config *before)
{
	for (uint32_t i = 0; i < n->core.config.count; i++) {
		uint64_t id = n->core.config.members[i].id;
		bool known = id > before->last_id;

		for (uint32_t j = 0; j < before->count; j++)
			known |= before->members[j].id == id;
		if (!known)
			world__fail(w, "node %u: the id %" PRIu64 " was given before, and is given again", world__id(w, n), id);
	}
	if (is_voter(before, world__id(w, n)) && !is_voter(&n->core.config, world__id(w, n)))
		world__fail(w, "node %u leads, and removes itself", world__id(w, n));
}

/* Leadership goes to a voter that has all that the leader has. */
static void check_handed_over(struct world *w, struct world_node *n, const struct raft_message *m)
{
	const struct world_node *to = world__node(w, m->to);
	uint64_t last = n->core.last_index;
	const struct world_entry *mine = world__log_at(&n->log, last), *theirs = world__log_at(&to->disk, last);

	if (!is_voter(&n->core.config, m->to))
		world__fail(w, "node %u hands over to %" PRIu64 ", which is no voter", world__id(w, n), m->to);
	else if (to->disk_term <= n->core.term && to->disk.base_index < last && (!theirs || (mine && theirs->term != mine->term)))
		world__fail(w, "node %u hands over to %" PRIu64 ", which lacks entries", world__id(w, n), m->to);
}

/* What leaves a replica is well-formed, and true. */
void world__check_message(struct world *w, struct world_node *n, const struct raft_message *m)
{
	if (world__is_dropped(n))
		return;
	if (raft_message_check(m) != 0 && !(m->type == RAFT_APPEND && m->append.fill))
		world__fail(w, "node %u: sends a malformed message of type %d", world__id(w, n), (int)m->type);
	else if (m->type == RAFT_APPENDED)
		check_acknowledged(w, n, m);
	else if (m->type == RAFT_TIMEOUT_NOW)
		check_handed_over(w, n, m);
	else if (m->type == RAFT_SNAPSHOT && m->snapshot.index < n->core.base_index)
		world__fail(w, "node %u offers the snapshot of %" PRIu64 ", and its log goes on behind %" PRIu64 " only",
			world__id(w, n), m->snapshot.index, n->core.base_index);
}
