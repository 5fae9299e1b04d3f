/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raft_bed: one replica of a Raft group, number 1, whose peers are the test: it says what they send, and looks at what the core wants done.
 * Groups of real cores are in tests/raft.
 */
#ifndef TESTS_LIB_RAFT_BED_H
#define TESTS_LIB_RAFT_BED_H

#include <string.h>
#include "common/base/err.h"
#include "metad/raft/raft.h"
#include "tests/lib/unit.h"

enum { HEARTBEAT_MS = 20, ELECTION_MS = 100 };

static struct raft_core core;
static struct raft_update u;
static struct raft_message out[RAFT_MESSAGES_MAX];
static uint64_t now_ms;

static inline struct raft_config group(uint32_t voters, uint64_t index)
{
	struct raft_config config = {.index = index, .count = voters, .last_id = voters};

	for (uint32_t i = 0; i < voters; i++)
		config.members[i] = (struct raft_member){.id = i + 1, .voter = true};
	return config;
}

/* Replica 1 of `voters`, with a log of these runs up to `last`. */
static inline void begin(
	uint32_t voters, uint64_t term, const struct raft_run *runs, uint32_t run_count, uint64_t last, uint64_t commit)
{
	struct raft_options options = {.id = 1,
		.heartbeat_ms = HEARTBEAT_MS,
		.election_ms = ELECTION_MS,
		.message_bytes = 1000,
		.inflight_bytes = 4000,
		.seed = 1};
	struct raft_boot boot = {
		.term = term, .last_index = last, .runs = runs, .run_count = run_count, .commit = commit};

	boot.config = group(voters, 1);
	now_ms = 1000;
	ck_assert_int_eq(raft_init(&core, &options, &boot, now_ms), 0);
}

static inline void founded(uint32_t voters)
{
	struct raft_run run = {1, 1};

	begin(voters, 1, &run, 1, 1, 1);
}

/* Replica 1 in a group of these, which are not founded with it as a voter. */
static inline void outsider(const struct raft_member *members, uint32_t count)
{
	struct raft_run run = {1, 1};
	struct raft_options options;
	struct raft_boot boot = {.term = 1, .last_index = 1, .runs = &run, .run_count = 1, .commit = 1};

	founded(3);
	options = core.options;
	boot.config = (struct raft_config){.index = 1, .count = count, .last_id = members[count - 1].id};
	memcpy(boot.config.members, members, count * sizeof(*members));
	ck_assert_int_eq(raft_init(&core, &options, &boot, now_ms), 0);
}

static inline void step(const struct raft_event *event)
{
	raft_step(&core, now_ms, event, out, &u);
}

static inline void tick(uint64_t ms)
{
	struct raft_event event = {.type = RAFT_TICK};

	now_ms += ms;
	step(&event);
}

static inline struct raft_event receipt(const struct raft_message *m)
{
	struct raft_event event = {.type = RAFT_RECEIVE, .message = m};

	if (m->type == RAFT_APPEND)
		event.count = m->append.last - m->append.prev_index;
	return event;
}

static inline void receive(const struct raft_message *m)
{
	struct raft_event event = receipt(m);

	ck_assert_int_eq(raft_message_check(m), 0);
	step(&event);
}

static inline struct raft_message from(uint64_t id, enum raft_message_type type, uint64_t term)
{
	struct raft_message m = {.type = type, .from = id, .to = 1, .term = term};

	return m;
}

static inline void voted(uint64_t id, uint64_t term, bool pre, bool granted)
{
	struct raft_message m = from(id, RAFT_VOTED, term);

	m.voted.pre = pre;
	m.voted.granted = granted;
	receive(&m);
}

static inline void persisted(uint64_t index)
{
	struct raft_event event = {.type = RAFT_PERSISTED, .index = index, .epoch = core.epoch};

	step(&event);
}

static inline void appended(uint64_t id, uint64_t term, uint64_t index)
{
	struct raft_message m = from(id, RAFT_APPENDED, term);

	m.appended.index = m.appended.seen = index;
	receive(&m);
}

/* Entries prev + 1 .. last of one term. */
static inline void append(uint64_t id, uint64_t term, uint64_t prev, uint64_t prev_term, uint64_t last,
	uint64_t last_term, uint64_t commit)
{
	struct raft_message m = from(id, RAFT_APPEND, term);

	m.append.prev_index = prev;
	m.append.prev_term = prev_term;
	m.append.last = last;
	m.append.commit = commit;
	m.append.run_count = last > prev;
	m.append.runs[0] = (struct raft_run){prev + 1, last_term};
	receive(&m);
}

/* The driver has sent what it was to fill, one entry each. */
static inline uint32_t drain(uint64_t to)
{
	uint32_t messages = 0;

	for (uint32_t i = 0; i < u.message_count;) {
		struct raft_event event = {.type = RAFT_SENT, .peer = to, .bytes = 1000, .term = core.term};
		struct raft_message m = out[i];

		if (m.to != to || m.type != RAFT_APPEND || !m.append.fill) {
			i++;
			continue;
		}
		ck_assert(raft_fill(&core, &m, m.append.prev_index + 1, core.runs, core.run_count));
		ck_assert_uint_eq(m.append.last, m.append.prev_index + 1);
		event.index = m.append.last;
		step(&event);
		ck_assert_uint_lt(messages++, 100);
		i = 0;
	}
	return messages;
}

/* Elected by replica 2 (of 3) or 2 and 3 (of 5). */
static inline void lead(void)
{
	struct raft_event event = {.type = RAFT_CAMPAIGN};
	uint64_t term = core.term + 1;

	step(&event);
	for (uint64_t id = 2; id <= core.config.count / 2 + 1; id++)
		voted(id, term, true, true);
	for (uint64_t id = 2; id <= core.config.count / 2 + 1; id++)
		voted(id, term, false, true);
	ck_assert_int_eq(core.role, RAFT_LEADER);
	ck_assert_int_eq(u.append.kind, RAFT_APPEND_NOOP);
	drain(2);
	persisted(core.last_index);
}

static inline const struct raft_message *sent(enum raft_message_type type, uint64_t to)
{
	for (uint32_t i = 0; i < u.message_count; i++)
		if (out[i].type == type && out[i].to == to)
			return &out[i];
	return NULL;
}

static inline int change(enum raft_change what, uint64_t id)
{
	struct raft_event event = {.type = RAFT_CHANGE, .change = what, .peer = id};

	step(&event);
	return u.code;
}

#endif
