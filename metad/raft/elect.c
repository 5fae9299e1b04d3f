/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elections. A replica that heard nothing for a random time of 1 to 2 election_ms first asks whether it would be elected (pre-vote),
 * which changes nothing anywhere; only with a quorum for it does it raise the term. So one that was cut off, or removed, does not
 * disturb a group that works: its members heard their leader lately, and answer nothing.
 *
 * 1. One vote a term, durable before it leaves: raft_update.meta comes first.
 * 2. A vote goes to a log that is not behind the voter's own only: by last term, then by last index.
 * 3. A voter votes whether it finds itself in its latest configuration or not: it may lack the entry that made it one.
 * 4. A voter whose latest configuration is without it stands until that is committed: its log may be the only one that is new enough. It does not
 *    count for itself, and leads no longer once it has committed that (Ongaro's thesis, 4.2.2).
 * 5. A higher term in any message but a pre-vote makes a follower; also in an answer that refuses, or two that refuse each other would
 *    never learn which of them is behind.
 * 6. A candidacy has longer than the silence before it: the candidate and each voter make a vote durable, two syncs each, and one that
 *    begins anew sooner than that is elected never.
 */
#include "metad/raft/raft_private.h"

#include "common/base/check.h"

void raft__election_reset(struct raft_core *core)
{
	core->election_at_ms =
		core->now_ms + core->options.election_ms + rng_below(&core->rng, core->options.election_ms);
}

bool raft__leader_is_fresh(const struct raft_core *core)
{
	if (core->role == RAFT_LEADER)
		return true;
	return core->leader != 0 && core->now_ms - core->heard_ms < core->options.election_ms;
}

void raft__follow(struct raft_turn *t, uint64_t term, uint64_t leader)
{
	struct raft_core *core = t->core;

	CHECK(term >= core->term);
	if (term > core->term) {
		core->term = term;
		core->vote = 0;
		core->verified = core->commit;
		t->update->meta = true;
	}
	if (core->role != RAFT_FOLLOWER) {
		core->role = RAFT_FOLLOWER;
		core->transfer_to = 0;
		raft__read_forget(t);
		raft__election_reset(core);
	}
	core->leader = leader;
}

static bool log_is_fresh(const struct raft_core *core, const struct raft_message *m)
{
	uint64_t term = raft__last_term(core);

	return m->vote.last_term > term || (m->vote.last_term == term && m->vote.last_index >= core->last_index);
}

static void count_votes(struct raft_turn *t)
{
	struct raft_core *core = t->core;
	uint32_t granted = 0, refused = 0;

	for (uint32_t i = 0; i < core->config.count; i++) {
		if (!core->config.members[i].voter)
			continue;
		granted += core->peers[i].granted;
		refused += core->peers[i].refused;
	}
	if (granted >= raft__quorum(core)) {
		if (core->role == RAFT_PRE_CANDIDATE)
			raft__campaign(t, false, false);
		else
			raft__lead(t);
	} else if (refused >= raft__quorum(core)) {
		raft__follow(t, core->term, 0);
	}
}

static bool may_stand(const struct raft_core *core)
{
	uint64_t id = core->options.id;

	return raft__is_voter(&core->config, id) ||
		(core->config.index > core->commit && raft__is_voter(&core->config_before, id));
}

void raft__stand_down(struct raft_turn *t)
{
	if (t->core->role == RAFT_LEADER && !may_stand(t->core))
		raft__follow(t, t->core->term, 0);
}

void raft__campaign(struct raft_turn *t, bool pre, bool forced)
{
	struct raft_core *core = t->core;

	raft__election_reset(core);
	if (!may_stand(core) || core->term + 1 >= RAFT_TERM_MAX)
		return;
	core->role = pre ? RAFT_PRE_CANDIDATE : RAFT_CANDIDATE;
	core->leader = 0;
	core->verified = core->commit;
	if (!pre) {
		core->term++;
		core->vote = core->options.id;
		t->update->meta = true;
		core->election_at_ms += core->options.election_ms; /* 6 */
	}
	for (uint32_t i = 0; i < core->config.count; i++) {
		const struct raft_member *member = &core->config.members[i];
		struct raft_message *m;

		core->peers[i].granted = member->id == core->options.id;
		core->peers[i].refused = false;
		if (member->id == core->options.id || !member->voter)
			continue;
		m = raft__send(t, pre ? RAFT_PRE_VOTE : RAFT_VOTE, member->id);
		m->term = core->term + pre;
		m->vote.last_index = core->last_index;
		m->vote.last_term = raft__last_term(core);
		m->vote.forced = forced;
	}
	count_votes(t);
}

void raft__on_vote(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	bool pre = m->type == RAFT_PRE_VOTE, grant;
	struct raft_message *answer;

	if (m->term > core->term && !m->vote.forced && raft__leader_is_fresh(core))
		return;
	if (!pre && m->term > core->term)
		raft__follow(t, m->term, 0);
	if (pre)
		grant = m->term > core->term && log_is_fresh(core, m);
	else
		grant = m->term == core->term && (core->vote == 0 || core->vote == m->from) &&
			core->role != RAFT_LEADER && log_is_fresh(core, m);
	if (grant && !pre) {
		raft__follow(t, core->term, core->leader);
		t->update->meta = t->update->meta || core->vote != m->from;
		core->vote = m->from;
		raft__election_reset(core);
	}
	answer = raft__send(t, RAFT_VOTED, m->from);
	answer->voted.granted = grant;
	answer->voted.pre = pre;
	if (pre && grant)
		answer->term = m->term;
}

void raft__on_voted(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	struct raft_peer *peer = raft__peer(core, m->from);
	bool pre = core->role == RAFT_PRE_CANDIDATE;

	if (m->term > core->term && !(m->voted.pre && m->voted.granted)) {
		raft__follow(t, m->term, 0);
		return;
	}
	if (!peer || m->voted.pre != pre || (!pre && core->role != RAFT_CANDIDATE))
		return;
	/* Who is asked whether it would vote keeps its term, which may be lower than ours. */
	if (m->voted.granted || !pre ? m->term != core->term + pre : m->term > core->term)
		return;
	if (m->voted.granted)
		peer->granted = true;
	else
		peer->refused = true;
	count_votes(t);
}

void raft__on_timeout_now(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;

	/* One that comes late, when another leads already, has an older term. */
	if (m->term == core->term && core->role == RAFT_FOLLOWER && core->leader == m->from)
		raft__campaign(t, false, true);
}

void raft__elect_tick(struct raft_turn *t)
{
	if (t->core->now_ms >= t->core->election_at_ms)
		raft__campaign(t, true, false);
}
