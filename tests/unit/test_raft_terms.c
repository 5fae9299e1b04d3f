// SPDX-License-Identifier: Apache-2.0
/* Logs of more terms than are remembered, and messages that are filled. */
#include "tests/lib/raft_bed.h"

/* A log of more terms than are remembered, none of which came to commit anything: entry i is of term i. */
static void many_terms(uint64_t count)
{
	founded(3);
	for (uint64_t i = 2; i <= count; i++) {
		append(2, i, i - 1, i - 1, i, i, 1);
		ck_assert_uint_eq(core.last_index, i);
		ck_assert_uint_le(core.run_count, RAFT_RUNS_MAX);
	}
	persisted(count);
	ck_assert_uint_eq(core.commit, 1);
	ck_assert_uint_eq(raft_term_at(&core, 5), 0);
	ck_assert_uint_eq(raft_term_at(&core, count), count);
}

/* ... does not keep anybody from leading. */
START_TEST(test_terms_are_bounded)
{
	enum { COUNT = 3 * RAFT_RUNS_MAX };

	many_terms(COUNT);
	lead();
	appended(2, core.term, COUNT + 1);
	ck_assert_uint_eq(core.commit, COUNT + 1);
}
END_TEST

START_TEST(test_terms_that_were_forgotten_are_looked_up)
{
	enum { COUNT = 3 * RAFT_RUNS_MAX };
	struct raft_message m = from(2, RAFT_APPEND, 9000);
	struct raft_event event = {.type = RAFT_RECEIVE, .message = &m, .count = 2};
	uint64_t first, last;

	many_terms(COUNT);
	m.append.prev_index = m.append.prev_term = 5;
	m.append.last = 7;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){6, 8999};
	ck_assert(raft_asks(&core, &m, &first, &last));
	ck_assert_uint_eq(first, 5);
	ck_assert_uint_eq(last, 7);
	ck_assert_uint_eq(raft_message_term(&m, 5), 5);
	ck_assert_uint_eq(raft_message_term(&m, 6), 8999);
	event.differs = 5;
	step(&event);
	ck_assert(sent(RAFT_APPENDED, 2)->appended.reject);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.hint_index, 1); /* what is committed fits */
	ck_assert_uint_eq(core.last_index, COUNT);
	event.differs = 6;
	step(&event);
	ck_assert_uint_eq(u.truncate_from, 6);
	ck_assert_uint_eq(u.append.first, 6);
	ck_assert_uint_eq(core.last_index, 7);
	ck_assert_uint_eq(raft_term_at(&core, 5), 5);
	ck_assert_uint_eq(raft_term_at(&core, 7), 8999);
	ck_assert(!raft_asks(&core, &m, &first, &last));
}
END_TEST

START_TEST(test_snapshot_is_compared_with_what_was_forgotten)
{
	struct raft_message m = from(2, RAFT_SNAPSHOT, 9000);
	struct raft_event event = {.type = RAFT_SNAPSHOT_READY, .message = &m, .differs = 7};
	uint64_t first, last;

	many_terms(3 * RAFT_RUNS_MAX);
	m.snapshot.index = m.snapshot.term = 6;
	m.snapshot.config = group(3, 1);
	ck_assert(raft_asks(&core, &m, &first, &last));
	ck_assert(first == 6 && last == 6);
	step(&event); /* it is in the log, with all that is behind it */
	ck_assert_int_eq(u.code, ERR_STALE);
	ck_assert_uint_eq(core.commit, 6);
	m.snapshot.index = m.snapshot.term = 9;
	event.differs = 9;
	step(&event);
	ck_assert(u.install);
	ck_assert_uint_eq(core.last_index, 9);
}
END_TEST

/* What a leader has forgotten is filled in by the driver, of entries and of a heartbeat that asks where a member's log ends. */
START_TEST(test_leader_fills_terms_that_were_forgotten)
{
	struct raft_message m = from(3, RAFT_APPENDED, 0), fill;
	struct raft_run runs[] = {{5, 5}, {6, 6}, {7, 7}};
	struct raft_event event = {.type = RAFT_SENT, .peer = 3, .index = 7, .bytes = 4000};

	many_terms(3 * RAFT_RUNS_MAX);
	lead();
	event.term = m.term = core.term;
	m.appended.reject = true;
	m.appended.index = core.peers[2].next - 1;
	m.appended.hint_index = 5;
	core.peers[2].filling = false;
	receive(&m);
	ck_assert_ptr_nonnull(sent(RAFT_APPEND, 3));
	fill = *sent(RAFT_APPEND, 3);
	ck_assert_uint_eq(fill.append.prev_index, 5);
	ck_assert(raft_fill(&core, &fill, 7, runs, 3));
	ck_assert_uint_eq(fill.append.prev_term, 5);
	ck_assert_uint_eq(fill.append.run_count, 2);
	ck_assert_int_eq(raft_message_check(&fill), 0);
	step(&event);
	/* All that may be under way is: only a heartbeat, with the end that is assumed. */
	m = from(3, RAFT_APPENDED, core.term);
	m.appended.index = 5;
	m.appended.seen = 7;
	receive(&m);
	ck_assert_ptr_null(sent(RAFT_APPEND, 3));
	tick(HEARTBEAT_MS);
	fill = *sent(RAFT_APPEND, 3);
	ck_assert(fill.append.fill);
	ck_assert_uint_eq(fill.append.room_bytes, 0);
	ck_assert_uint_eq(fill.append.prev_index, 7);
	ck_assert(raft_fill(&core, &fill, 7, runs + 2, 1));
	ck_assert_uint_eq(fill.append.prev_term, 7);
	ck_assert_uint_eq(fill.append.last, 7);
	ck_assert_int_eq(raft_message_check(&fill), 0);
	tick(HEARTBEAT_MS); /* while it is with the driver: only that there is a leader */
	ck_assert(!sent(RAFT_APPEND, 3)->append.fill);
	ck_assert_uint_eq(sent(RAFT_APPEND, 3)->append.prev_index, 0);
}
END_TEST

/* A member's log that was compacted, lost its leader, or is another's by the time that its bodies were read. */
START_TEST(test_late_fill_is_void)
{
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 1},
			  compacted = {.type = RAFT_COMPACTED, .index = 3, .term = 2},
			  none = {.type = RAFT_SENT, .peer = 3, .term = 2};
	struct raft_run run = {2, 2};
	struct raft_message early, late;

	founded(3);
	lead();
	none.index = 2;
	step(&none); /* of the no-op, to 3 */
	none.index = 0;
	step(&submit);
	ck_assert_ptr_null(sent(RAFT_APPEND, 3)); /* one at a time, until it answers */
	tick(HEARTBEAT_MS);
	early = *sent(RAFT_APPEND, 3);
	ck_assert(early.append.fill);
	ck_assert_uint_eq(early.append.prev_index, 1);
	late = early;
	ck_assert(raft_fill(&core, &late, 3, (struct raft_run[]){{1, 1}, {2, 2}}, 2));
	persisted(3);
	appended(2, core.term, 3);
	ck_assert_uint_eq(core.commit, 3);
	step(&compacted);
	late = early;
	ck_assert(!raft_fill(&core, &late, 3, &run, 1));
	step(&none);
	ck_assert_uint_eq(u.snapshot_wanted, 1 << 2);
	append(2, 3, 3, 2, 4, 3, 3); /* deposed */
	persisted(4);
	late = early;
	ck_assert(!raft_fill(&core, &late, 3, &run, 1));
	lead();
	late = early;
	ck_assert(!raft_fill(&core, &late, 3, &run, 1));
	ck_assert(core.peers[2].filling);
	step(&none); /* of the old term */
	ck_assert(core.peers[2].filling);
}
END_TEST

UNIT_MAIN("raft_terms", test_terms_are_bounded, test_terms_that_were_forgotten_are_looked_up,
	test_snapshot_is_compared_with_what_was_forgotten, test_leader_fills_terms_that_were_forgotten,
	test_late_fill_is_void)
