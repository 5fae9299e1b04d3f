/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing up a member whose next entry the leader's log no longer has. The core deals in descriptors; the bytes travel between the
 * drivers, over a connection of their own.
 *
 *     leader: snapshot_wanted --driver takes one--> RAFT_SNAPSHOT_TAKEN --message--> follower: fetch --driver fetches, syncs, verifies-->
 *     RAFT_SNAPSHOT_READY --> install: it takes the place of the log --acknowledged--> the leader goes on behind it
 *
 * Every arrow may break: until the acknowledgement came, the leader wants the snapshot again with each heartbeat, and a driver that has
 * one on the way says the same again.
 *
 * What a log has of its own is not given up for a snapshot that says no more: entries that were acknowledged behind it may be needed for
 * a commit.
 */
#include "metad/raft/raft_private.h"

#include "common/base/check.h"

void raft__snapshot_begin(struct raft_turn *t, struct raft_peer *peer)
{
	peer->state = RAFT_SENDING_SNAPSHOT;
	peer->inflight_at = peer->inflight_count = peer->inflight_bytes = 0;
	t->update->snapshot_wanted |= UINT64_C(1) << (peer - t->core->peers);
}

void raft__on_snapshot_taken(struct raft_turn *t, const struct raft_event *e)
{
	struct raft_core *core = t->core;
	struct raft_peer *peer = raft__peer(core, e->peer);

	if (core->role != RAFT_LEADER || !peer || peer->state != RAFT_SENDING_SNAPSHOT)
		return;
	CHECK(e->message->snapshot.index <= core->commit);
	if (e->message->snapshot.index < core->base_index) {
		t->update->code = ERR_STALE; /* the log does not go on behind it */
		return;
	}
	raft__send(t, RAFT_SNAPSHOT, peer->id)->snapshot = e->message->snapshot;
}

/* True: the log has all that the snapshot has; then that much is committed. */
static bool is_in_log(const struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;

	if (m->snapshot.index > core->commit && raft__log_has(t, m, m->snapshot.index)) {
		core->commit = m->snapshot.index;
		if (core->verified < core->commit)
			core->verified = core->commit;
	}
	return m->snapshot.index <= core->commit;
}

/* Terms never fall along a log: what lies behind all that is committed here is of no older term. */
static bool contradicts_log(const struct raft_core *core, const struct raft_message *m)
{
	return m->snapshot.index > core->commit &&
		(m->snapshot.term < core->base_term || m->snapshot.term < raft_term_at(core, core->commit));
}

void raft__on_snapshot(struct raft_turn *t, const struct raft_message *m)
{
	if (contradicts_log(t->core, m))
		t->core->refused++;
	else if (is_in_log(t, m))
		raft__acknowledge(t);
	else
		t->update->fetch = true;
}

void raft__on_snapshot_ready(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;

	if (core->role == RAFT_LEADER || m->snapshot.term > core->term || is_in_log(t, m)) {
		t->update->code = ERR_STALE;
		return;
	}
	if (contradicts_log(core, m)) {
		core->refused++;
		t->update->code = ERR_PROTO;
		return;
	}
	/* A candidate asked for votes with another log, and of members who may not be those of this one. */
	if (core->role != RAFT_FOLLOWER)
		raft__follow(t, core->term, 0);
	t->update->install = true;
	core->last_index = 0;
	raft__log_compact(core, m->snapshot.index, m->snapshot.term);
	core->persisted = core->commit = core->verified = m->snapshot.index;
	core->epoch++;
	raft__config_adopt(core, &m->snapshot.config);
	core->config_before = core->config;
	raft__acknowledge(t);
}
