/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the leader's log gets to the others, and when an entry is committed.
 *
 * 1. A follower appends behind an entry of equal index and term only; then all before it is equal, too. What conflicts is cut, never
 *    below the commit index: a message that wanted that is refused.
 * 2. `appended.index` is durable at the follower and equal to the leader's: a leader counts nothing else, its own log neither.
 * 3. Only entries of the leader's own term are committed by counting; what is before them is with them (figure 8 of the paper).
 * 4. A member's log ends where the leader assumes (REPLICATE), or it is asked, one message at a time (PROBE). A message that was lost
 *    shows at the next heartbeat, which carries the end that is assumed.
 * 5. What is on the way to a member, or there and not durable, is bounded in bytes and messages: a disk that hangs gets no more.
 */
#include "metad/raft/raft_private.h"

#include <string.h>
#include "common/base/check.h"

struct raft_message *raft__send(struct raft_turn *t, enum raft_message_type type, uint64_t to)
{
	struct raft_message *m = &t->update->messages[t->update->message_count];

	CHECK(t->update->message_count < RAFT_MESSAGES_MAX);
	t->update->message_count++;
	memset(m, 0, sizeof(*m));
	m->type = type;
	m->from = t->core->options.id;
	m->to = to;
	m->term = t->core->term;
	return m;
}

/* ---- leader ---- */

static void inflight_release(struct raft_peer *peer)
{
	while (peer->inflight_count && peer->inflight[peer->inflight_at].last <= peer->match) {
		peer->inflight_bytes -= peer->inflight[peer->inflight_at].bytes;
		peer->inflight_at = (peer->inflight_at + 1) % RAFT_INFLIGHT_MAX;
		peer->inflight_count--;
	}
}

static void inflight_add(struct raft_peer *peer, uint64_t before, uint64_t last, uint32_t bytes)
{
	uint32_t at = (peer->inflight_at + peer->inflight_count) % RAFT_INFLIGHT_MAX;

	peer->inflight[at].before = before;
	peer->inflight[at].last = last;
	peer->inflight[at].bytes = bytes;
	peer->inflight_bytes += bytes;
	peer->inflight_count++;
}

/*
 * Of what begins at `next` nothing is there: it will be sent again. A message of which a part is there, as it had come with another, counts whole
 * until that part is durable: how many bytes it has is not known. Would it not count, each such message would be one more than a window.
 */
static void inflight_forget(struct raft_peer *peer, uint64_t next)
{
	while (peer->inflight_count) {
		uint32_t at = (peer->inflight_at + peer->inflight_count - 1) % RAFT_INFLIGHT_MAX;

		if (peer->inflight[at].last < next)
			return;
		if (peer->inflight[at].before + 1 < next) {
			peer->inflight[at].last = next - 1;
			return;
		}
		peer->inflight_bytes -= peer->inflight[at].bytes;
		peer->inflight_count--;
	}
}

static void probe_from(struct raft_peer *peer, uint64_t next)
{
	peer->state = RAFT_PROBE;
	peer->next = next;
	peer->paused = false;
	inflight_forget(peer, next);
}

static struct raft_message *append_message(struct raft_turn *t, const struct raft_peer *peer, uint64_t prev)
{
	struct raft_core *core = t->core;
	struct raft_message *m = raft__send(t, RAFT_APPEND, peer->id);

	m->append.prev_index = m->append.last = prev;
	m->append.prev_term = raft_term_at(core, prev);
	m->append.commit = core->commit;
	return m;
}

static void fill_wanted(struct raft_peer *peer, struct raft_message *m, uint32_t room)
{
	m->append.fill = true;
	m->append.room_bytes = room;
	peer->filling = true;
}

static void heartbeat(struct raft_turn *t, struct raft_peer *peer)
{
	struct raft_core *core = t->core;
	bool knows = raft__log_knows(core, peer->next - 1);
	struct raft_message *m;

	/* To who waits for a snapshot, or needs one: only that there is a leader. */
	if (peer->state == RAFT_SENDING_SNAPSHOT || peer->next <= core->base_index || (peer->filling && !knows)) {
		append_message(t, peer, 0);
		return;
	}
	m = append_message(t, peer, peer->next - 1);
	if (!knows)
		fill_wanted(peer, m, 0);
}

/* What this member may have now. */
static void replicate(struct raft_turn *t, struct raft_peer *peer)
{
	struct raft_core *core = t->core;
	uint32_t room = core->options.message_bytes;

	if (peer->id == core->options.id || peer->filling || peer->next > core->last_index)
		return;
	/* Whatever is on the way to it: if that was lost, nothing but a snapshot would help, and no heartbeat would tell. */
	if (peer->next <= core->base_index) {
		if (peer->state != RAFT_SENDING_SNAPSHOT)
			raft__snapshot_begin(t, peer);
		return;
	}
	if (peer->state == RAFT_SENDING_SNAPSHOT || (peer->state == RAFT_PROBE && peer->paused))
		return;
	if (peer->state == RAFT_PROBE)
		inflight_forget(peer, peer->next);
	if (peer->inflight_count == RAFT_INFLIGHT_MAX || peer->inflight_bytes >= core->options.inflight_bytes)
		return;
	if (room > core->options.inflight_bytes - peer->inflight_bytes)
		room = core->options.inflight_bytes - peer->inflight_bytes;
	fill_wanted(peer, append_message(t, peer, peer->next - 1), room);
}

void raft__lead(struct raft_turn *t)
{
	struct raft_core *core = t->core;

	core->role = RAFT_LEADER;
	core->leader = core->options.id;
	core->transfer_to = 0;
	core->quorum_at_ms = core->now_ms + core->options.election_ms;
	core->heartbeat_at_ms = core->now_ms + core->options.heartbeat_ms;
	for (uint32_t i = 0; i < core->config.count; i++) {
		uint64_t id = core->config.members[i].id;

		memset(&core->peers[i], 0, sizeof(core->peers[i]));
		core->peers[i].id = id;
		core->peers[i].next = core->last_index + 1;
		core->peers[i].active = true;
	}
	raft__append_own(t, RAFT_APPEND_NOOP, 1);
}

void raft__append_own(struct raft_turn *t, enum raft_append_kind kind, uint64_t count)
{
	struct raft_core *core = t->core;

	t->update->append.kind = kind;
	t->update->append.first = core->last_index + 1;
	t->update->append.last = core->last_index + count;
	t->update->append.term = core->term;
	raft__log_append(core, core->last_index + count, core->term);
	for (uint32_t i = 0; i < core->config.count; i++)
		replicate(t, &core->peers[i]);
}

void raft__submit(struct raft_turn *t, uint64_t count)
{
	struct raft_core *core = t->core;

	if (core->role != RAFT_LEADER)
		t->update->code = ERR_NOT_LEADER;
	else if (core->transfer_to)
		t->update->code = ERR_AGAIN;
	else if (count == 0)
		t->update->code = ERR_INVAL;
	else
		raft__append_own(t, RAFT_APPEND_SUBMITTED, count);
}

void raft__on_sent(struct raft_turn *t, const struct raft_event *e)
{
	struct raft_core *core = t->core;
	struct raft_peer *peer = raft__peer(core, e->peer);

	if (core->role != RAFT_LEADER || e->term != core->term || !peer)
		return;
	CHECK(e->index <= core->last_index);
	peer->filling = false;
	if (e->index >= peer->next && peer->state == RAFT_PROBE) {
		peer->paused = true;
		inflight_add(peer, peer->next - 1, e->index, e->bytes);
	} else if (e->index >= peer->next && peer->state == RAFT_REPLICATE) {
		inflight_add(peer, peer->next - 1, e->index, e->bytes);
		peer->next = e->index + 1;
	}
	replicate(t, peer);
}

void raft__commit_advance(struct raft_turn *t)
{
	struct raft_core *core = t->core;
	uint64_t have[RAFT_MEMBERS_MAX], index;
	uint32_t count = 0;

	if (core->role != RAFT_LEADER)
		return;
	for (uint32_t i = 0; i < core->config.count; i++) {
		uint64_t match = core->peers[i].id == core->options.id ? core->persisted : core->peers[i].match;
		uint32_t at = count;

		if (!core->config.members[i].voter)
			continue;
		for (; at > 0 && have[at - 1] < match; at--)
			have[at] = have[at - 1];
		have[at] = match;
		count++;
	}
	index = have[raft__quorum(core) - 1];
	if (index > core->commit && raft_term_at(core, index) == core->term)
		core->commit = index;
}

static void on_reject(struct raft_turn *t, struct raft_peer *peer, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	uint64_t hint = m->appended.hint_index;

	/* Of a message that was overtaken: what it says is known, or is asked again. */
	if (peer->state == RAFT_SENDING_SNAPSHOT || m->appended.index <= peer->match ||
		m->appended.index >= peer->next || (peer->state == RAFT_PROBE && m->appended.index != peer->next - 1))
		return;
	if (hint >= m->appended.index)
		hint = m->appended.index - 1;
	if (m->appended.hint_term)
		hint = raft__log_floor(core, hint, m->appended.hint_term);
	probe_from(peer, (hint > peer->match ? hint : peer->match) + 1);
	replicate(t, peer);
}

static void on_accept(struct raft_turn *t, struct raft_peer *peer, const struct raft_message *m)
{
	struct raft_core *core = t->core;

	if (m->appended.index > peer->match)
		peer->match = m->appended.index;
	inflight_release(peer);
	if (peer->state == RAFT_PROBE || (peer->state == RAFT_SENDING_SNAPSHOT && peer->match >= core->base_index)) {
		peer->state = RAFT_REPLICATE;
		peer->next = (m->appended.seen > peer->match ? m->appended.seen : peer->match) + 1;
		inflight_forget(peer, peer->next);
	} else if (m->appended.seen >= peer->next) {
		peer->next = m->appended.seen + 1;
	}
	raft__commit_advance(t);
	replicate(t, peer);
	raft__transfer_go(t, peer);
}

void raft__on_appended(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	struct raft_peer *peer = raft__peer(core, m->from);

	if (core->role != RAFT_LEADER || m->term != core->term || !peer)
		return;
	if (!m->appended.reject && m->appended.seen > core->last_index) {
		core->refused++;
		return;
	}
	peer->active = true;
	if (m->appended.reject)
		on_reject(t, peer, m);
	else
		on_accept(t, peer, m);
}

static bool quorum_was_heard(struct raft_core *core)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < core->config.count; i++) {
		if (core->config.members[i].voter)
			count += core->peers[i].active || core->peers[i].id == core->options.id;
		core->peers[i].active = false;
	}
	return count >= raft__quorum(core);
}

void raft__lead_tick(struct raft_turn *t)
{
	struct raft_core *core = t->core;

	if (core->now_ms >= core->quorum_at_ms) {
		if (!quorum_was_heard(core)) {
			raft__follow(t, core->term, 0);
			return;
		}
		core->quorum_at_ms = core->now_ms + core->options.election_ms;
	}
	if (core->transfer_to && core->now_ms >= core->transfer_until_ms)
		core->transfer_to = 0;
	if (core->now_ms < core->heartbeat_at_ms)
		return;
	core->heartbeat_at_ms = core->now_ms + core->options.heartbeat_ms;
	for (uint32_t i = 0; i < core->config.count; i++) {
		struct raft_peer *peer = &core->peers[i];
		uint32_t before = t->update->message_count;

		if (peer->id == core->options.id)
			continue;
		peer->paused = false;
		if (peer->state == RAFT_SENDING_SNAPSHOT)
			t->update->snapshot_wanted |= UINT64_C(1) << i;
		replicate(t, peer);
		if (t->update->message_count == before)
			heartbeat(t, peer);
		raft__transfer_go(t, peer);
	}
	raft__read_probe_again(t);
}

/* ---- follower ---- */

void raft__acknowledge(struct raft_turn *t)
{
	struct raft_core *core = t->core;
	struct raft_message *m;

	if (core->role != RAFT_FOLLOWER || core->leader == 0)
		return;
	m = raft__send(t, RAFT_APPENDED, core->leader);
	m->appended.index = core->persisted < core->verified ? core->persisted : core->verified;
	m->appended.seen = core->verified;
}

static void reject(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	struct raft_message *answer = raft__send(t, RAFT_APPENDED, m->from);
	uint64_t hint = m->append.prev_index - 1;

	hint = raft__log_floor(core, hint, m->append.prev_term);
	if (hint < core->commit || !raft__log_knows(core, hint))
		hint = core->commit; /* up to there it fits */
	answer->appended.reject = true;
	answer->appended.index = m->append.prev_index;
	answer->appended.hint_index = hint;
	answer->appended.hint_term = raft_term_at(core, hint);
}

/* First entry of the message that is not in the log; last + 1: all are. */
static uint64_t first_new(const struct raft_turn *t, const struct raft_message *m)
{
	uint64_t index = m->append.prev_index + 1;

	if (index < t->core->base_index)
		index = t->core->base_index;
	/* Entry by entry: a message has few, and its length in bytes is bounded. */
	while (index <= m->append.last && raft__log_has(t, m, index))
		index++;
	return index;
}

static void append_received(struct raft_turn *t, const struct raft_message *m, uint64_t first)
{
	struct raft_core *core = t->core;

	for (uint32_t i = 0; i < m->append.run_count; i++) {
		uint64_t last = i + 1 < m->append.run_count ? m->append.runs[i + 1].first - 1 : m->append.last;

		if (last > core->last_index)
			raft__log_append(core, last, m->append.runs[i].term);
	}
	t->update->append.kind = RAFT_APPEND_RECEIVED;
	t->update->append.first = first;
	t->update->append.last = core->last_index;
	if (m->append.has_config)
		raft__config_adopt(core, &m->append.config);
}

void raft__on_append(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	uint64_t prev = m->append.prev_index, first;

	if (prev >= core->base_index && !raft__log_has(t, m, prev)) {
		if (prev <= core->commit)
			core->refused++; /* two leaders of one term, or a log that forgot */
		else
			reject(t, m);
		return;
	}
	first = first_new(t, m);
	if (first <= m->append.last) {
		if (first <= core->commit || first <= core->base_index || !raft__config_may_cut(core, first)) {
			core->refused++;
			return;
		}
		if (first <= core->last_index) {
			t->update->truncate_from = first;
			raft__config_cut(core, first);
			raft__log_cut(core, first, raft_message_term(m, first - 1));
		}
		append_received(t, m, first);
	}
	if (m->append.last > core->verified)
		core->verified = m->append.last;
	if (m->append.commit > core->commit && core->verified > core->commit)
		core->commit = m->append.commit < core->verified ? m->append.commit : core->verified;
	if (t->update->append.kind == RAFT_APPEND_NONE)
		raft__acknowledge(t);
}

/* ---- both ---- */

void raft__on_persisted(struct raft_turn *t, uint64_t index, uint64_t epoch)
{
	struct raft_core *core = t->core;

	CHECK(epoch <= core->epoch);
	if (epoch != core->epoch || index <= core->persisted)
		return;
	CHECK(index <= core->last_index);
	core->persisted = index;
	raft__acknowledge(t);
	raft__commit_advance(t);
}

void raft__on_compacted(struct raft_turn *t, uint64_t index, uint64_t term)
{
	struct raft_core *core = t->core;

	CHECK(index <= core->commit && index <= core->persisted);
	if (index <= core->base_index)
		return;
	CHECK(term && (!raft__log_knows(core, index) || term == raft_term_at(core, index)));
	raft__log_compact(core, index, term);
}
