/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who belongs to the group, and how that changes: by one member at a time, in force from the moment that its entry is in the log.
 *
 * 1. The next change is taken only when the last one is committed, and when an entry of the leader's own term is: else a leader that was
 *    deposed in a change and its successor could each find a majority, disjoint from the other's.
 * 2. So at most one configuration of a log is not committed, and `config_before` is what a cut brings back.
 * 3. A member joins as a learner. A leader does not remove itself: it hands over first.
 * 4. Ids rise. The configuration keeps the greatest that was given, so that none comes back, whoever leads.
 * 5. Who was dropped by force (metad/force.h), and that is known as committed here, is not heard any more, whatever it says: it may think that it leads
 *    a group, with others that were dropped. Its number is RAFT_NUMBERS_APART or more behind, as after a force they go on far off. Who was removed
 *    in order is heard: others who do not know of it may have elected it, and wait for this one (4.2.2 again; tests/raft, seed 1000201).
 */
#include "metad/raft/raft_private.h"

#include <string.h>
#include "common/base/check.h"

static const struct raft_member *find(const struct raft_config *config, uint64_t id)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (config->members[i].id == id)
			return &config->members[i];
	return NULL;
}

bool raft__is_voter(const struct raft_config *config, uint64_t id)
{
	const struct raft_member *member = find(config, id);

	return member && member->voter;
}

/* A configuration that is followed by another one was committed before that was made. */
bool raft__is_gone(const struct raft_core *core, uint64_t id)
{
	const struct raft_config *config = core->config.index <= core->commit ? &core->config : &core->config_before;

	return id + RAFT_NUMBERS_APART <= config->last_id && !find(config, id);
}

struct raft_peer *raft__peer(struct raft_core *core, uint64_t id)
{
	const struct raft_member *member = find(&core->config, id);

	return member ? &core->peers[member - core->config.members] : NULL;
}

bool raft__peer_is_voter(const struct raft_core *core, const struct raft_peer *peer)
{
	return core->config.members[peer - core->peers].voter;
}

static uint32_t voters(const struct raft_config *config)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < config->count; i++)
		count += config->members[i].voter;
	return count;
}

uint32_t raft__quorum(const struct raft_core *core)
{
	return voters(&core->config) / 2 + 1;
}

bool raft__config_is_sane(const struct raft_config *config)
{
	if (config->count > RAFT_MEMBERS_MAX)
		return false;
	for (uint32_t i = 0; i < config->count; i++)
		if (config->members[i].id <= (i ? config->members[i - 1].id : 0))
			return false;
	return config->count == 0 || (voters(config) > 0 && config->last_id >= config->members[config->count - 1].id);
}

/* What is known of those who stay is kept. */
static void use(struct raft_core *core, const struct raft_config *config)
{
	struct raft_peer old[RAFT_MEMBERS_MAX];
	struct raft_config old_config = core->config;

	memcpy(old, core->peers, sizeof(old));
	memset(core->peers, 0, sizeof(core->peers));
	core->config = *config;
	for (uint32_t i = 0; i < config->count; i++) {
		const struct raft_member *was = find(&old_config, config->members[i].id);

		if (was) {
			core->peers[i] = old[was - old_config.members];
			continue;
		}
		core->peers[i].id = config->members[i].id;
		core->peers[i].next = core->last_index + 1;
		core->peers[i].active = true; /* it has a while to say something */
	}
}

void raft__config_adopt(struct raft_core *core, const struct raft_config *config)
{
	core->config_before = core->config;
	use(core, config);
}

bool raft__config_may_cut(const struct raft_core *core, uint64_t from)
{
	return core->config.index < from || core->config_before.index < from;
}

void raft__config_cut(struct raft_core *core, uint64_t from)
{
	if (core->config.index < from)
		return;
	CHECK(core->config_before.index < from);
	use(core, &core->config_before);
}

bool raft__term_is_committed(const struct raft_core *core)
{
	return core->commit > 0 && raft_term_at(core, core->commit) == core->term;
}

static int changed(const struct raft_core *core, enum raft_change change, uint64_t id, struct raft_config *config)
{
	const struct raft_member *member = find(config, id);
	uint32_t at = member ? (uint32_t)(member - config->members) : 0;

	switch (change) {
	case RAFT_ADD_LEARNER:
		if (id == 0)
			return ERR_INVAL;
		/* A member, or one that was: it may come back with an older log, and vote again. */
		if (id <= config->last_id)
			return ERR_EXIST;
		if (config->count == RAFT_MEMBERS_MAX)
			return ERR_OVERFLOW;
		while (at < config->count && config->members[at].id < id)
			at++;
		memmove(config->members + at + 1, config->members + at,
			(config->count - at) * sizeof(config->members[0]));
		config->members[at] = (struct raft_member){.id = id};
		config->last_id = id;
		config->count++;
		return 0;
	case RAFT_PROMOTE:
		if (!member)
			return ERR_NOENT;
		if (member->voter)
			return ERR_EXIST;
		/* A voter that has nothing counts for the quorum all the same: nothing would be committed until it has caught up. */
		if (core->peers[at].state != RAFT_REPLICATE)
			return ERR_AGAIN;
		config->members[at].voter = true;
		return 0;
	case RAFT_REMOVE:
		if (!member)
			return ERR_NOENT;
		if (member->voter && voters(config) == 1)
			return ERR_INVAL;
		if (id == core->options.id)
			return ERR_BUSY;
		config->count--;
		memmove(config->members + at, config->members + at + 1,
			(config->count - at) * sizeof(config->members[0]));
		return 0;
	case RAFT_MOVE:
		if (!member)
			return ERR_NOENT;
		memset(config->members[at].place, 0, RAFT_PLACE_BYTES);
		return 0;
	}
	return ERR_INVAL;
}

static void place(struct raft_config *config, const struct raft_member *known, uint32_t count)
{
	static const uint8_t nowhere[RAFT_PLACE_BYTES];

	for (uint32_t i = 0; i < config->count; i++)
		for (uint32_t j = 0; j < count; j++)
			if (config->members[i].id == known[j].id && memcmp(config->members[i].place, nowhere, RAFT_PLACE_BYTES) == 0)
				memcpy(config->members[i].place, known[j].place, RAFT_PLACE_BYTES);
}

void raft__change(struct raft_turn *t, const struct raft_event *event)
{
	struct raft_core *core = t->core;
	struct raft_config config = core->config;

	if (core->role != RAFT_LEADER)
		t->update->code = ERR_NOT_LEADER;
	else if (!raft__term_is_committed(core) || core->transfer_to)
		t->update->code = ERR_AGAIN;
	else if (core->config.index > core->commit)
		t->update->code = ERR_BUSY;
	else
		t->update->code = changed(core, event->change, event->peer, &config);
	if (t->update->code)
		return;
	place(&config, event->known, event->known_count);
	config.index = core->last_index + 1;
	raft__config_adopt(core, &config);
	raft__append_own(t, RAFT_APPEND_CONFIG, 1);
}

void raft__transfer(struct raft_turn *t, uint64_t id)
{
	struct raft_core *core = t->core;
	struct raft_peer *peer = raft__peer(core, id);

	if (core->role != RAFT_LEADER)
		t->update->code = ERR_NOT_LEADER;
	else if (!peer || !raft__peer_is_voter(core, peer))
		t->update->code = ERR_NOENT;
	else if (id == core->options.id)
		t->update->code = ERR_EXIST;
	else if (core->transfer_to)
		t->update->code = ERR_AGAIN;
	if (t->update->code)
		return;
	core->transfer_to = id;
	core->transfer_until_ms = core->now_ms + 2 * core->options.election_ms; /* the other one has to be elected */
	raft__transfer_go(t, peer);
}

void raft__transfer_go(struct raft_turn *t, struct raft_peer *peer)
{
	if (t->core->transfer_to == peer->id && peer->match == t->core->last_index)
		raft__send(t, RAFT_TIMEOUT_NOW, peer->id);
}
