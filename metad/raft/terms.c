/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log as the core knows it: base, then runs of equal terms up to last_index. Terms never fall along it, so that few runs say
 * everything; only an election that wins adds one.
 *
 * 1. runs[0].first == base_index + 1 if there are runs; firsts and terms ascend; every run has an entry.
 * 2. base_term is the term of base_index: of the last entry that was compacted, or of a snapshot.
 * 3. With all runs in use the oldest is forgotten, if it is committed: base moves up, and a member that needs what lies before gets a
 *    snapshot. A log of nothing but terms that never committed anything takes no new one: it follows, and waits for the commit.
 */
#include "metad/raft/raft_private.h"

#include <string.h>
#include "common/base/check.h"

uint64_t raft_term_at(const struct raft_core *core, uint64_t index)
{
	if (index == core->base_index)
		return core->base_term;
	if (index < core->base_index || index > core->last_index)
		return 0;
	for (uint32_t i = core->run_count; i > 0; i--)
		if (core->runs[i - 1].first <= index)
			return core->runs[i - 1].term;
	CHECK_UNREACHABLE();
}

uint64_t raft__last_term(const struct raft_core *core)
{
	return core->run_count ? core->runs[core->run_count - 1].term : core->base_term;
}

bool raft__log_has_room(const struct raft_core *core)
{
	return core->run_count < RAFT_RUNS_MAX || core->runs[1].first - 1 <= core->commit;
}

static void forget_oldest(struct raft_core *core)
{
	core->base_index = core->runs[1].first - 1;
	core->base_term = core->runs[0].term;
	core->run_count--;
	memmove(core->runs, core->runs + 1, core->run_count * sizeof(core->runs[0]));
}

void raft__log_append(struct raft_core *core, uint64_t last, uint64_t term)
{
	CHECK(last > core->last_index && term >= raft__last_term(core));
	if (core->run_count == 0 || core->runs[core->run_count - 1].term != term) {
		if (core->run_count == RAFT_RUNS_MAX)
			forget_oldest(core);
		core->runs[core->run_count++] = (struct raft_run){core->last_index + 1, term};
	}
	core->last_index = last;
}

void raft__log_cut(struct raft_core *core, uint64_t from)
{
	CHECK(from > core->base_index && from > core->commit && from <= core->last_index);
	while (core->run_count && core->runs[core->run_count - 1].first >= from)
		core->run_count--;
	core->last_index = from - 1;
	if (core->persisted >= from)
		core->persisted = from - 1;
	if (core->verified >= from)
		core->verified = from - 1;
	core->epoch++;
}

void raft__log_compact(struct raft_core *core, uint64_t index, uint64_t term)
{
	uint32_t gone = 0;

	if (index >= core->last_index) {
		core->run_count = 0;
		core->last_index = index;
	} else {
		while (gone + 1 < core->run_count && core->runs[gone + 1].first <= index + 1)
			gone++;
		core->run_count -= gone;
		memmove(core->runs, core->runs + gone, core->run_count * sizeof(core->runs[0]));
		core->runs[0].first = index + 1;
	}
	core->base_index = index;
	core->base_term = term;
}

uint64_t raft__log_floor(const struct raft_core *core, uint64_t index, uint64_t term)
{
	if (index > core->last_index)
		index = core->last_index;
	for (uint32_t i = core->run_count; i > 0 && index > core->base_index; i--) {
		const struct raft_run *run = &core->runs[i - 1];

		if (run->first > index)
			continue;
		if (run->term <= term)
			return index;
		index = run->first - 1;
	}
	return index;
}

bool raft_fill(const struct raft_core *core, struct raft_message *m, uint64_t last)
{
	uint64_t first = m->append.prev_index + 1;
	uint32_t i = 0;

	CHECK(m->type == RAFT_APPEND && m->append.fill);
	if (m->term != core->term || core->role != RAFT_LEADER || first <= core->base_index || last < first ||
		last > core->last_index)
		return false;
	while (i + 1 < core->run_count && core->runs[i + 1].first <= first)
		i++;
	m->append.run_count = 0;
	for (; i < core->run_count && core->runs[i].first <= last; i++) {
		uint64_t from = core->runs[i].first < first ? first : core->runs[i].first;

		if (m->append.run_count == RAFT_MESSAGE_RUNS_MAX) {
			last = from - 1;
			break;
		}
		m->append.runs[m->append.run_count++] = (struct raft_run){from, core->runs[i].term};
	}
	m->append.last = last;
	m->append.fill = false;
	return true;
}
