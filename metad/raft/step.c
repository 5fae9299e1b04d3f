/* SPDX-License-Identifier: Apache-2.0 */
/* Start, what every message has in common, and the way of each event. */
#include <string.h>
#include "common/base/check.h"
#include "metad/raft/raft_private.h"

/* They end at `last`; what is before the first of them is not said here. */
static bool runs_are_sane(
	const struct raft_run *runs, uint32_t count, uint64_t first, uint64_t last, uint64_t prev_term, uint64_t term)
{
	if (count == 0)
		return last + 1 == first;
	if (last < first || runs[0].first < first || runs[0].term < prev_term || runs[count - 1].first > last ||
		runs[count - 1].term > term || runs[0].term == 0)
		return false;
	for (uint32_t i = 1; i < count; i++)
		if (runs[i].first <= runs[i - 1].first || runs[i].term <= runs[i - 1].term)
			return false;
	return true;
}

int raft_init(struct raft_core *core, const struct raft_options *options, const struct raft_boot *boot, uint64_t now_ms)
{
	uint32_t gone;

	if (options->id == 0 || options->heartbeat_ms == 0 || options->election_ms < 2 * options->heartbeat_ms ||
		options->message_bytes == 0 || options->inflight_bytes == 0)
		return ERR_INVAL;
	if (boot->last_index < boot->base_index || boot->last_index >= RAFT_INDEX_MAX || boot->term >= RAFT_TERM_MAX ||
		boot->commit > boot->last_index || boot->base_term > boot->term ||
		(boot->base_index == 0) != (boot->base_term == 0) ||
		!runs_are_sane(boot->runs, boot->run_count, boot->base_index + 1, boot->last_index, boot->base_term,
			boot->term))
		return ERR_CORRUPT;
	if (!raft__config_is_sane(&boot->config) || !raft__config_is_sane(&boot->config_before) ||
		boot->config.index > boot->last_index || boot->config_before.index > boot->config.index)
		return ERR_CORRUPT;
	if (boot->config.count == 0 && boot->last_index > 0)
		return ERR_CORRUPT;
	/* What a cut would bring back must be known, where one may come. */
	if (boot->config_before.count == 0 && boot->config.index > 1 && boot->config.index > boot->commit &&
		boot->config.index > boot->base_index)
		return ERR_CORRUPT;
	memset(core, 0, sizeof(*core));
	core->options = *options;
	rng_init(&core->rng, options->seed);
	core->term = boot->term;
	core->vote = boot->vote;
	core->base_index = boot->base_index;
	core->base_term = boot->base_term;
	core->last_index = core->persisted = boot->last_index;
	core->run_count = boot->run_count < RAFT_RUNS_MAX ? boot->run_count : RAFT_RUNS_MAX;
	gone = boot->run_count - core->run_count;
	core->known_index = core->base_index;
	if (core->run_count) {
		core->known_index = boot->runs[gone].first - 1;
		memcpy(core->runs, boot->runs + gone, core->run_count * sizeof(boot->runs[0]));
	}
	core->commit = core->verified = boot->commit > core->base_index ? boot->commit : core->base_index;
	raft__config_adopt(core, &boot->config);
	core->config_before = boot->config_before;
	core->now_ms = now_ms;
	raft__election_reset(core);
	return 0;
}

int raft_message_check(const struct raft_message *m)
{
	if (m->from == 0 || m->to == 0 || m->from == m->to || m->term == 0 || m->term >= RAFT_TERM_MAX)
		return ERR_PROTO;
	switch (m->type) {
	case RAFT_PRE_VOTE:
	case RAFT_VOTE:
		return m->vote.last_term < m->term && m->vote.last_index < RAFT_INDEX_MAX ? 0 : ERR_PROTO;
	case RAFT_APPEND:
		if (m->append.prev_index >= RAFT_INDEX_MAX || m->append.last >= RAFT_INDEX_MAX ||
			m->append.prev_term > m->term || m->append.commit >= RAFT_INDEX_MAX ||
			m->append.run_count > RAFT_MESSAGE_RUNS_MAX || m->append.fill)
			return ERR_PROTO;
		if (!runs_are_sane(m->append.runs, m->append.run_count, m->append.prev_index + 1, m->append.last,
			    m->append.prev_term, m->term) ||
			(m->append.run_count && m->append.runs[0].first != m->append.prev_index + 1))
			return ERR_PROTO;
		if (m->append.has_config &&
			(m->append.run_count == 0 || m->append.config.index != m->append.last ||
				m->append.config.count == 0 || !raft__config_is_sane(&m->append.config)))
			return ERR_PROTO;
		return 0;
	case RAFT_APPENDED:
		if (m->appended.index >= RAFT_INDEX_MAX || m->appended.seen >= RAFT_INDEX_MAX ||
			m->appended.hint_index >= RAFT_INDEX_MAX)
			return ERR_PROTO;
		return m->appended.reject ? (m->appended.index > 0 ? 0 : ERR_PROTO)
					  : (m->appended.index <= m->appended.seen ? 0 : ERR_PROTO);
	case RAFT_SNAPSHOT:
		return m->snapshot.index > 0 && m->snapshot.index < RAFT_INDEX_MAX && m->snapshot.term <= m->term &&
				m->snapshot.term > 0 && m->snapshot.config.count > 0 &&
				m->snapshot.config.index <= m->snapshot.index &&
				raft__config_is_sane(&m->snapshot.config)
			? 0
			: ERR_PROTO;
	case RAFT_VOTED:
	case RAFT_READ_PROBE:
	case RAFT_READ_ACK:
	case RAFT_TIMEOUT_NOW:
		return 0;
	case RAFT_MESSAGE_TYPES:
		break;
	}
	return ERR_PROTO;
}

/* True: it comes from the leader of this term, whom we follow now. */
static bool comes_from_leader(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	struct raft_message *answer;

	if (m->term < core->term) {
		/* It does not know that it was deposed, or that its term is behind ours: else neither would get on. */
		answer = raft__send(t, RAFT_APPENDED, m->from);
		answer->appended.reject = true;
		answer->appended.index = 1;
		return false;
	}
	if (m->term == core->term && (core->role == RAFT_LEADER || (core->leader && core->leader != m->from))) {
		core->refused++;
		return false;
	}
	raft__follow(t, m->term, m->from);
	core->heard_ms = core->now_ms;
	raft__election_reset(core);
	return true;
}

/* Terms rise by one an election. A jump that no group makes in its life would leave no room for the next ones. */
#define TERM_JUMP_MAX (UINT64_C(1) << 32)

static void receive(struct raft_turn *t, const struct raft_message *m, uint64_t bodies)
{
	struct raft_core *core = t->core;

	if (raft__is_gone(core, m->from)) {
		core->gone++;
		return;
	}
	if (m->term > core->term + TERM_JUMP_MAX ||
		bodies != (m->type == RAFT_APPEND ? m->append.last - m->append.prev_index : 0)) {
		core->refused++;
		return;
	}
	switch (m->type) {
	case RAFT_PRE_VOTE:
	case RAFT_VOTE:
		raft__on_vote(t, m);
		return;
	case RAFT_VOTED:
		raft__on_voted(t, m);
		return;
	case RAFT_APPEND:
		if (comes_from_leader(t, m))
			raft__on_append(t, m);
		return;
	case RAFT_SNAPSHOT:
		if (comes_from_leader(t, m))
			raft__on_snapshot(t, m);
		return;
	case RAFT_READ_PROBE:
		if (comes_from_leader(t, m))
			raft__on_read_probe(t, m);
		return;
	case RAFT_TIMEOUT_NOW:
		raft__on_timeout_now(t, m);
		return;
	case RAFT_APPENDED:
	case RAFT_READ_ACK:
		if (m->term > core->term)
			raft__follow(t, m->term, 0);
		else if (m->type == RAFT_APPENDED)
			raft__on_appended(t, m);
		else
			raft__on_read_ack(t, m);
		return;
	case RAFT_MESSAGE_TYPES:
		break;
	}
	CHECK_UNREACHABLE();
}

static void check_message(const struct raft_core *core, const struct raft_event *event)
{
	uint64_t first, last;

	CHECK(raft_message_check(event->message) == 0);
	if (raft_asks(core, event->message, &first, &last))
		CHECK(event->differs >= first && event->differs <= last + 1);
}

void raft_step(struct raft_core *core, uint64_t now_ms, const struct raft_event *event, struct raft_message *messages,
	struct raft_update *ret_update)
{
	struct raft_turn turn = {core, ret_update, event->differs}, *t = &turn;
	enum raft_role role = core->role;
	uint64_t term = core->term, leader = core->leader;

	CHECK(now_ms >= core->now_ms);
	core->now_ms = now_ms;
	memset(ret_update, 0, sizeof(*ret_update));
	ret_update->messages = messages;
	switch (event->type) {
	case RAFT_TICK:
		if (core->role == RAFT_LEADER)
			raft__lead_tick(t);
		else
			raft__elect_tick(t);
		break;
	case RAFT_RECEIVE:
		CHECK(event->message->to == core->options.id);
		check_message(core, event);
		receive(t, event->message, event->count);
		break;
	case RAFT_SUBMIT:
		raft__submit(t, event->count);
		break;
	case RAFT_PERSISTED:
		raft__on_persisted(t, event->index, event->epoch);
		break;
	case RAFT_SENT:
		raft__on_sent(t, event);
		break;
	case RAFT_COMPACTED:
		raft__on_compacted(t, event->index, event->term);
		break;
	case RAFT_SNAPSHOT_TAKEN:
		raft__on_snapshot_taken(t, event);
		break;
	case RAFT_SNAPSHOT_READY:
		check_message(core, event);
		raft__on_snapshot_ready(t, event->message);
		break;
	case RAFT_CHANGE:
		raft__change(t, event);
		break;
	case RAFT_TRANSFER:
		raft__transfer(t, event->peer);
		break;
	case RAFT_READ:
		raft__read(t);
		break;
	case RAFT_CAMPAIGN:
		if (core->role != RAFT_LEADER)
			raft__campaign(t, true, false);
		break;
	}
	raft__stand_down(t);
	ret_update->commit = core->commit;
	ret_update->role_changed = role != core->role || term != core->term || leader != core->leader;
}
