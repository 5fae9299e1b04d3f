/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that see all that was acknowledged before them, without a clock and without the log (ReadIndex): the commit index is noted, then a
 * quorum of voters says that it still follows this term; whoever else was elected in between would have needed one of them.
 *
 * Learners are not counted. They are asked with the heartbeats only, as that they answered says that they are there (metad/ledger_members.c): to
 * answer each probe takes a quarter of a core where a store serves many reads, of a member that has a snapshot to write.
 *
 * One probe is out at a time, and carries every read that came before it left: a read takes the token of the next probe.
 */
#include "metad/raft/raft_private.h"

static void confirm(struct raft_turn *t)
{
	struct raft_core *core = t->core;

	core->read_open = false;
	core->read_confirmed = core->read_seq;
	t->update->read_done = core->read_seq;
	t->update->read_index = core->read_index;
}

static void probe(struct raft_turn *t, bool voters)
{
	struct raft_core *core = t->core;

	for (uint32_t i = 0; i < core->config.count; i++)
		if (core->config.members[i].voter == voters && core->peers[i].id != core->options.id && core->peers[i].read_seq < core->read_seq)
			raft__send(t, RAFT_READ_PROBE, core->peers[i].id)->read.seq = core->read_seq;
}

static void look(struct raft_turn *t)
{
	struct raft_core *core = t->core;
	uint32_t count = 0;

	for (uint32_t i = 0; i < core->config.count; i++)
		if (core->config.members[i].voter)
			count += core->peers[i].id == core->options.id || core->peers[i].read_seq >= core->read_seq;
	if (count >= raft__quorum(core))
		confirm(t);
}

static void begin(struct raft_turn *t)
{
	struct raft_core *core = t->core;

	core->read_next = false;
	core->read_open = true;
	core->read_seq++;
	core->read_index = core->commit;
	probe(t, true);
	look(t);
}

void raft__read(struct raft_turn *t)
{
	struct raft_core *core = t->core;

	if (core->role != RAFT_LEADER) {
		t->update->code = ERR_NOT_LEADER;
	} else if (!raft__term_is_committed(core)) {
		t->update->code =
			ERR_AGAIN; /* what older leaders acknowledged may not be known as committed here yet */
	} else if (core->read_open) {
		core->read_next = true;
		t->update->read_token = core->read_seq + 1;
	} else {
		t->update->read_token = core->read_seq + 1;
		begin(t);
	}
}

void raft__read_probe_again(struct raft_turn *t)
{
	probe(t, false);
	if (!t->core->read_open)
		return;
	probe(t, true);
	look(t); /* the quorum may have become smaller: who has answered does not answer again */
	if (!t->core->read_open && t->core->read_next)
		begin(t);
}

void raft__on_read_probe(struct raft_turn *t, const struct raft_message *m)
{
	if (m->term == t->core->term && t->core->role != RAFT_LEADER)
		raft__send(t, RAFT_READ_ACK, m->from)->read.seq = m->read.seq;
}

void raft__on_read_ack(struct raft_turn *t, const struct raft_message *m)
{
	struct raft_core *core = t->core;
	struct raft_peer *peer = raft__peer(core, m->from);

	if (core->role != RAFT_LEADER || m->term != core->term || !peer)
		return;
	if (m->read.seq > core->read_seq) {
		core->refused++;
		return;
	}
	peer->active = true;
	if (m->read.seq > peer->read_seq)
		peer->read_seq = m->read.seq;
	if (!core->read_open)
		return;
	look(t);
	if (!core->read_open && core->read_next)
		begin(t);
}

/* Leadership is over: the driver answers the readers; tokens go on, so that none is taken for an old one. */
void raft__read_forget(struct raft_turn *t)
{
	struct raft_core *core = t->core;

	t->update->reads_lost = core->read_open;
	core->read_seq++;
	core->read_open = core->read_next = false;
	for (uint32_t i = 0; i < core->config.count; i++)
		core->peers[i].read_seq = 0;
}
