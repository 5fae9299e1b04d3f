/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the leader asks whether it leads still (raft/read.c): of all voters as many as suffice, first those whose answers sufficed last time. To ask and to answer takes more
 * than the read that waits for it, where questions follow each other. The others are asked a moment later, if there is no quorum by then; an answer that comes
 * after that makes nobody first. To the core that is a message that was slow.
 */
#include "metad/replica/replica_private.h"

#include "common/base/sometimes.h"

enum { SUFFICE_NS = 1000 * 1000 };

/* Of the voters beside the leader: how many have to answer. */
static uint32_t needed(const struct raft_core *core)
{
	uint32_t voters = 0;
	bool votes = false;

	for (uint32_t i = 0; i < core->config.count; i++) {
		voters += core->config.members[i].voter;
		votes |= core->config.members[i].voter && core->peers[i].id == core->options.id;
	}
	return voters / 2 + 1 - votes;
}

static bool sufficed(const struct replica *r, uint64_t id)
{
	for (uint32_t i = 0; i < r->ask.sufficed_count; i++)
		if (r->ask.sufficed[i] == id)
			return true;
	return false;
}

void replica__ask_answered(struct replica *r)
{
	r->ask.sufficed_count = 0;
	for (uint32_t i = 0; i < r->core.config.count; i++)
		if (r->core.peers[i].read_seq >= r->update.read_done)
			r->ask.sufficed[r->ask.sufficed_count++] = r->core.peers[i].id;
}

/* Is it one of the first voters, as many as are needed? Of equals those come first that do in the group. */
static bool is_asked(const struct replica *r, uint64_t id)
{
	const struct raft_core *core = &r->core;
	uint32_t before = 0;
	bool first = true, it = sufficed(r, id);

	for (uint32_t i = 0; i < core->config.count; i++) {
		const struct raft_peer *peer = &core->peers[i];

		if (peer->id == id) {
			if (!core->config.members[i].voter)
				return true;
			first = false;
		} else if (core->config.members[i].voter && peer->id != core->options.id) {
			before += first ? sufficed(r, peer->id) >= it : sufficed(r, peer->id) > it;
		}
	}
	return before < needed(core);
}

static void more_are_due(struct io_op *op);

static void arm(struct replica *r)
{
	if (io_pending(&r->ask.timer))
		return;
	io_prep_timer(&r->ask.timer, r->ask.asked_ns + SUFFICE_NS, more_are_due);
	io_submit(r->io, &r->ask.timer);
}

static void more_are_due(struct io_op *op)
{
	struct replica *r = CONTAINER_OF(op, struct replica, ask.timer);

	if (r->closing || r->stopped) {
		replica__kick(r);
		return;
	}
	if (!r->ask.count)
		return;
	if (io_now_ns(r->io) < r->ask.asked_ns + SUFFICE_NS) {
		arm(r);
		return;
	}
	if (r->core.read_open && r->core.term == r->ask.term && r->core.read_seq == r->ask.seq) {
		SOMETIMES(replica_asks_more);
		for (uint32_t i = 0; i < r->ask.count; i++)
			r->options.send(r->options.ctx, &r->ask.later[i], NULL, 0);
	}
	r->ask.count = 0;
}

bool replica__ask_later(struct replica *r, const struct raft_message *m)
{
	if (m->term != r->ask.term || m->read.seq != r->ask.seq) {
		r->ask.term = m->term;
		r->ask.seq = m->read.seq;
		r->ask.asked_ns = io_now_ns(r->io);
		r->ask.count = 0;
		r->ask.is_new = true;
	}
	if (!r->ask.is_new || m->read.seq == r->ask.all_seq || is_asked(r, m->to))
		return false;
	r->ask.later[r->ask.count++] = *m;
	arm(r);
	return true;
}
