/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/replica/stall.h"

void stall_look(struct stall *s, const struct raft_options *o, uint64_t now_ms, bool waits, uint64_t generation, uint64_t durable)
{
	uint64_t passed_ms = now_ms - s->looked_ms;

	if (!waits || generation != s->generation || durable != s->durable)
		s->waited_ms = 0;
	else
		s->waited_ms += passed_ms < o->heartbeat_ms ? passed_ms : o->heartbeat_ms;
	s->generation = generation;
	s->durable = durable;
	s->looked_ms = now_ms;
}

bool stall_hangs(const struct stall *s, const struct raft_options *o)
{
	return s->waited_ms >= (uint64_t)STALL_ELECTIONS * o->election_ms;
}

uint64_t stall_successor(const struct raft_core *core, uint64_t above, uint64_t but)
{
	const struct raft_peer *best = NULL;

	for (uint32_t i = 0; i < core->config.count; i++) {
		const struct raft_peer *peer = &core->peers[i];
		uint64_t id = core->config.members[i].id;

		if (id == core->options.id || id == but || !core->config.members[i].voter || peer->match <= above)
			continue;
		if (!best || (peer->active == best->active ? peer->match > best->match : peer->active))
			best = peer;
	}
	return best ? best->id : 0;
}
