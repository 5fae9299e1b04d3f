// SPDX-License-Identifier: Apache-2.0
/* Snapshots: who takes one, and who is sent one. */
#include "tests/lib/raft_bed.h"

static struct raft_message snapshot(uint64_t index, uint64_t term)
{
	struct raft_message m = from(2, RAFT_SNAPSHOT, 5);

	m.snapshot.index = index;
	m.snapshot.term = term;
	m.snapshot.config = group(3, 1);
	return m;
}

START_TEST(test_snapshot_takes_the_place_of_the_log)
{
	struct raft_run runs[] = {{1, 1}, {2, 2}};
	struct raft_message m = snapshot(9, 4);
	struct raft_event ready = {.type = RAFT_SNAPSHOT_READY, .message = &m};

	begin(3, 2, runs, 2, 5, 1);
	receive(&m);
	ck_assert(u.fetch);
	step(&ready);
	ck_assert(u.install);
	ck_assert_uint_eq(core.last_index, 9);
	ck_assert_uint_eq(core.commit, 9);
	ck_assert_uint_eq(raft_term_at(&core, 9), 4);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.index, 9);
	append(2, 5, 9, 4, 11, 5, 9);
	ck_assert_uint_eq(core.last_index, 11);
}
END_TEST

/* Entries behind it may have been counted for a commit already. */
START_TEST(test_snapshot_does_not_take_what_the_log_has)
{
	struct raft_run runs[] = {{1, 1}, {2, 2}};
	struct raft_message m = snapshot(4, 2);
	struct raft_event ready = {.type = RAFT_SNAPSHOT_READY, .message = &m};

	begin(3, 2, runs, 2, 7, 1);
	receive(&m);
	ck_assert(!u.fetch);
	ck_assert_uint_eq(core.commit, 4);
	step(&ready);
	ck_assert_int_eq(u.code, ERR_STALE);
	ck_assert_uint_eq(core.last_index, 7);
}
END_TEST

START_TEST(test_snapshot_for_who_is_too_far_behind)
{
	struct raft_event compacted = {.type = RAFT_COMPACTED, .index = 6, .term = 1},
			  taken = {.type = RAFT_SNAPSHOT_TAKEN, .peer = 3};
	struct raft_message m = from(3, RAFT_APPENDED, 2), descriptor = snapshot(7, 2);

	begin(3, 1, &(struct raft_run){1, 1}, 1, 6, 1);
	lead();
	appended(2, core.term, 7);
	ck_assert_uint_eq(core.commit, 7);
	step(&compacted);
	core.peers[2].filling = false;
	m.appended.reject = true;
	m.appended.index = 6;
	m.appended.hint_index = m.appended.hint_term = 1;
	receive(&m);
	ck_assert_uint_eq(u.snapshot_wanted, 1 << 2);
	taken.message = &descriptor;
	step(&taken);
	ck_assert_uint_eq(sent(RAFT_SNAPSHOT, 3)->snapshot.index, 7);
	tick(HEARTBEAT_MS);
	ck_assert_uint_eq(u.snapshot_wanted, 1 << 2); /* again, until it is there */
	appended(3, core.term, 7);
	ck_assert_int_eq(core.peers[2].state, RAFT_REPLICATE);
}
END_TEST

/* All that it may have at a time is on the way and was lost, and what comes next is no longer in the log: no heartbeat could tell. */
START_TEST(test_snapshot_for_who_was_cut_off)
{
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 100},
			  compacted = {.type = RAFT_COMPACTED, .index = 100, .term = 2};

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&submit);
	drain(2);
	persisted(102);
	appended(3, core.term, 102);
	ck_assert_uint_eq(core.commit, 102);
	step(&compacted);
	tick(HEARTBEAT_MS);
	ck_assert_uint_eq(u.snapshot_wanted, 1 << 1);
}
END_TEST

/* It asked with a log that is gone, of members who may be no longer. */
START_TEST(test_candidate_that_installs_a_snapshot_follows)
{
	struct raft_message m = snapshot(9, 4);
	struct raft_event ready = {.type = RAFT_SNAPSHOT_READY, .message = &m}, campaign = {.type = RAFT_CAMPAIGN};

	for (int candidate = 0; candidate < 2; candidate++) {
		begin(5, 5, &(struct raft_run){1, 1}, 1, 1, 1);
		step(&campaign);
		voted(2, 6, true, true);
		if (candidate) {
			voted(3, 6, true, true);
			voted(2, 6, false, true);
		}
		ck_assert_int_eq(core.role, candidate ? RAFT_CANDIDATE : RAFT_PRE_CANDIDATE);
		step(&ready);
		ck_assert(u.install);
		ck_assert_uint_eq(core.last_index, 9);
		ck_assert_uint_eq(u.message_count, 0);
		voted(3, 6, !candidate, true);
		voted(2, 6, !candidate, true);
		ck_assert_int_eq(core.role, RAFT_FOLLOWER);
		tick(1000);
		ck_assert_int_eq(core.role, RAFT_PRE_CANDIDATE);
		ck_assert_uint_eq(sent(RAFT_PRE_VOTE, 2)->vote.last_index, 9);
		ck_assert_uint_eq(sent(RAFT_PRE_VOTE, 2)->vote.last_term, 4);
		ck_assert_ptr_null(sent(RAFT_PRE_VOTE, 4)); /* the members are those of the snapshot */
	}
}
END_TEST

START_TEST(test_snapshot_that_comes_late)
{
	struct raft_message m = snapshot(4, 2);
	struct raft_event ready = {.type = RAFT_SNAPSHOT_READY, .message = &m};

	begin(3, 5, (struct raft_run[]){{1, 1}, {2, 2}, {6, 5}}, 3, 8, 6);
	step(&ready); /* below what is committed */
	ck_assert_int_eq(u.code, ERR_STALE);
	ck_assert(!u.install);
	m.snapshot.index = 8;
	m.snapshot.term = 6; /* of a term that this replica has not seen: nothing speaks for it */
	m.term = 7;
	step(&ready);
	ck_assert_int_eq(u.code, ERR_STALE);
	lead();
	m.snapshot.index = 20;
	m.snapshot.term = 5;
	m.term = 5;
	step(&ready);
	ck_assert_int_eq(u.code, ERR_STALE);
	ck_assert_int_eq(core.role, RAFT_LEADER);
	m.term = 4;
	m.snapshot.term = 4;
	receive(&m); /* of who does not know that it was deposed */
	ck_assert(!u.fetch);
	ck_assert(sent(RAFT_APPENDED, 2)->appended.reject);
}
END_TEST

/* Terms never fall: one that is behind what is committed here, and of an older term, is a lie. */
START_TEST(test_snapshot_of_a_term_that_cannot_be)
{
	struct raft_message m = snapshot(20, 1);
	struct raft_event ready = {.type = RAFT_SNAPSHOT_READY, .message = &m},
			  compacted = {.type = RAFT_COMPACTED, .index = 4, .term = 2};

	begin(3, 5, (struct raft_run[]){{1, 1}, {3, 2}, {6, 3}}, 3, 8, 6);
	receive(&m);
	ck_assert(!u.fetch);
	ck_assert_uint_eq(core.refused, 1);
	m.snapshot.term = 2; /* entry 6 is of 3 */
	receive(&m);
	ck_assert(!u.fetch);
	step(&ready);
	ck_assert_int_eq(u.code, ERR_PROTO);
	ck_assert(!u.install);
	step(&compacted);
	m.snapshot.term = 1;
	step(&ready);
	ck_assert_int_eq(u.code, ERR_PROTO);
	ck_assert_uint_eq(core.refused, 4);
	m.snapshot.term = 3;
	receive(&m);
	ck_assert(u.fetch);
}
END_TEST

START_TEST(test_snapshot_below_the_base_is_refused)
{
	struct raft_event compacted = {.type = RAFT_COMPACTED, .index = 6, .term = 1},
			  taken = {.type = RAFT_SNAPSHOT_TAKEN, .peer = 3};
	struct raft_message m = snapshot(5, 1);

	begin(3, 1, &(struct raft_run){1, 1}, 1, 6, 1);
	lead();
	appended(2, core.term, 7);
	step(&compacted);
	core.peers[2].filling = false;
	core.peers[2].next = 4;
	tick(HEARTBEAT_MS);
	ck_assert_uint_eq(u.snapshot_wanted, 1 << 2);
	taken.message = &m;
	step(&taken);
	ck_assert_int_eq(u.code, ERR_STALE);
	ck_assert_uint_eq(u.message_count, 0);
	m = snapshot(6, 1);
	step(&taken);
	ck_assert_int_eq(u.code, 0);
	ck_assert_uint_eq(sent(RAFT_SNAPSHOT, 3)->snapshot.index, 6);
}
END_TEST

UNIT_MAIN("raft_snapshot", test_snapshot_takes_the_place_of_the_log, test_snapshot_does_not_take_what_the_log_has,
	test_snapshot_for_who_is_too_far_behind, test_snapshot_for_who_was_cut_off,
	test_candidate_that_installs_a_snapshot_follows, test_snapshot_that_comes_late,
	test_snapshot_of_a_term_that_cannot_be, test_snapshot_below_the_base_is_refused)
