/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log as the core knows it: base, then runs of equal terms up to last_index. Terms never fall along it, so that few runs say
 * everything; only an election that wins adds one.
 *
 * 1. base_term is the term of base_index: of the last entry that was compacted, or of a snapshot.
 * 2. The runs say the terms of known_index + 1 .. last_index: firsts and terms ascend; every run has an entry. The last entry is
 *    among them, or is the base.
 * 3. With all runs in use the oldest is forgotten, and known_index moves up: terms between base and there stand in the driver's log
 *    alone. They are needed when a log is compared with another that parted from it as many terms ago, which is seldom: then
 *    raft_asks, or raft_fill, has the driver look them up. So memory is bounded and no number of terms stops a group, also not if
 *    no leader of any of them came to commit anything.
 */
#include "metad/raft/raft_private.h"

#include <string.h>
#include "common/base/check.h"

bool raft__log_knows(const struct raft_core *core, uint64_t index)
{
	return index == core->base_index || index > core->known_index;
}

uint64_t raft_term_at(const struct raft_core *core, uint64_t index)
{
	if (index == core->base_index)
		return core->base_term;
	if (index <= core->known_index || index > core->last_index)
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

static uint64_t term_in(const struct raft_run *runs, uint32_t count, uint64_t index)
{
	while (count && runs[count - 1].first > index)
		count--;
	return count ? runs[count - 1].term : 0;
}

uint64_t raft_message_term(const struct raft_message *m, uint64_t index)
{
	if (m->type == RAFT_SNAPSHOT)
		return m->snapshot.term;
	return index <= m->append.prev_index ? m->append.prev_term
					     : term_in(m->append.runs, m->append.run_count, index);
}

bool raft_asks(const struct raft_core *core, const struct raft_message *m, uint64_t *ret_first, uint64_t *ret_last)
{
	uint64_t first, last;

	if (m->type == RAFT_APPEND) {
		first = m->append.prev_index;
		last = m->append.last;
	} else if (m->type == RAFT_SNAPSHOT) {
		first = last = m->snapshot.index;
	} else {
		return false;
	}
	/* What is committed is everywhere the same. */
	*ret_first = first > core->commit ? first : core->commit + 1;
	*ret_last = last < core->known_index ? last : core->known_index;
	return first <= *ret_last && *ret_first <= *ret_last;
}

bool raft__log_has(const struct raft_turn *t, const struct raft_message *m, uint64_t index)
{
	const struct raft_core *core = t->core;

	if (index > core->last_index)
		return false;
	if (raft__log_knows(core, index))
		return raft_term_at(core, index) == raft_message_term(m, index);
	return index <= core->commit || index < t->differs;
}

void raft__log_append(struct raft_core *core, uint64_t last, uint64_t term)
{
	CHECK(last > core->last_index && term >= raft__last_term(core));
	if (core->run_count == 0 || core->runs[core->run_count - 1].term != term) {
		if (core->run_count == RAFT_RUNS_MAX) {
			core->run_count--;
			memmove(core->runs, core->runs + 1, core->run_count * sizeof(core->runs[0]));
			core->known_index = core->run_count ? core->runs[0].first - 1 : core->last_index;
		}
		core->runs[core->run_count++] = (struct raft_run){core->last_index + 1, term};
	}
	core->last_index = last;
}

void raft__log_cut(struct raft_core *core, uint64_t from, uint64_t term_before)
{
	CHECK(from > core->base_index && from > core->commit && from <= core->last_index);
	while (core->run_count && core->runs[core->run_count - 1].first >= from)
		core->run_count--;
	core->last_index = from - 1;
	if (core->run_count == 0) {
		core->known_index = core->base_index;
		if (core->last_index > core->base_index) {
			core->known_index = core->last_index - 1;
			core->runs[core->run_count++] = (struct raft_run){core->last_index, term_before};
		}
	}
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
		core->last_index = core->known_index = index;
	} else if (index > core->known_index) {
		while (gone + 1 < core->run_count && core->runs[gone + 1].first <= index + 1)
			gone++;
		core->run_count -= gone;
		memmove(core->runs, core->runs + gone, core->run_count * sizeof(core->runs[0]));
		core->runs[0].first = index + 1;
		core->known_index = index;
	}
	core->base_index = index;
	core->base_term = term;
}

uint64_t raft__log_floor(const struct raft_core *core, uint64_t index, uint64_t term)
{
	if (index > core->last_index)
		index = core->last_index;
	for (uint32_t i = core->run_count; i > 0 && index > core->known_index; i--) {
		const struct raft_run *run = &core->runs[i - 1];

		if (run->first > index)
			continue;
		if (run->term <= term)
			return index;
		index = run->first - 1;
	}
	return index;
}

bool raft_fill(const struct raft_core *core, struct raft_message *m, uint64_t last, const struct raft_run *runs,
	uint32_t run_count)
{
	uint64_t prev = m->append.prev_index, first = prev + 1;
	uint32_t i = 0;

	CHECK(m->type == RAFT_APPEND && m->append.fill);
	if (m->term != core->term || core->role != RAFT_LEADER || prev < core->base_index)
		return false;
	CHECK(last <= core->last_index && last >= (m->append.room_bytes ? first : prev));
	m->append.prev_term = prev == core->base_index ? core->base_term : term_in(runs, run_count, prev);
	CHECK(!raft__log_knows(core, prev) || m->append.prev_term == raft_term_at(core, prev));
	CHECK(prev == core->base_index || m->append.prev_term);
	while (i + 1 < run_count && runs[i + 1].first <= first)
		i++;
	m->append.run_count = 0;
	for (; i < run_count && runs[i].first <= last && last > prev; i++) {
		uint64_t from = runs[i].first < first ? first : runs[i].first;

		CHECK(!raft__log_knows(core, from) || runs[i].term == raft_term_at(core, from));
		if (m->append.run_count == RAFT_MESSAGE_RUNS_MAX) {
			last = from - 1;
			break;
		}
		m->append.runs[m->append.run_count++] = (struct raft_run){from, runs[i].term};
	}
	CHECK(last == prev || (m->append.run_count && m->append.runs[0].first == first));
	m->append.last = last;
	m->append.fill = false;
	return true;
}
