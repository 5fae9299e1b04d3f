// SPDX-License-Identifier: Apache-2.0
/* What a follower takes, acknowledges and cuts; what a leader counts and sends. */
#include "tests/lib/raft_bed.h"

/* Figure 8 of the paper: an entry of an older term on a quorum may still be overwritten. */
START_TEST(test_entries_of_older_terms_are_not_counted)
{
	struct raft_run runs[] = {{1, 1}, {2, 2}};

	begin(5, 3, runs, 2, 2, 1);
	lead();
	ck_assert_uint_eq(core.last_index, 3);
	appended(2, core.term, 2);
	appended(3, core.term, 2);
	ck_assert_uint_eq(core.commit, 1);
	appended(2, core.term, 3);
	appended(3, core.term, 3);
	ck_assert_uint_eq(core.commit, 3);
}
END_TEST

START_TEST(test_acknowledged_is_what_is_durable)
{
	founded(3);
	append(2, 2, 1, 1, 4, 2, 1);
	ck_assert_int_eq(u.append.kind, RAFT_APPEND_RECEIVED);
	ck_assert_ptr_null(sent(RAFT_APPENDED, 2));
	persisted(3);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.index, 3);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.seen, 4);
}
END_TEST

START_TEST(test_own_tail_is_not_acknowledged)
{
	struct raft_run runs[] = {{1, 1}, {2, 2}};

	/* The tail 2..5 is of a leader that is gone; the new one has said nothing of it yet. */
	begin(3, 3, runs, 2, 5, 1);
	append(2, 4, 1, 1, 1, 1, 4);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.index, 1);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.seen, 1);
	append(2, 4, 2, 2, 2, 2, 4);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.index, 2);
	ck_assert_uint_eq(core.commit, 2); /* though 4 is said to be committed: our 4 may be another */
}
END_TEST

START_TEST(test_conflict_is_cut)
{
	struct raft_run runs[] = {{1, 1}, {2, 2}};
	struct raft_event late = {.type = RAFT_PERSISTED, .index = 5};

	begin(3, 3, runs, 2, 5, 1);
	late.epoch = core.epoch;
	append(2, 4, 2, 2, 3, 4, 1);
	ck_assert_uint_eq(u.truncate_from, 3);
	ck_assert_uint_eq(core.last_index, 3);
	ck_assert_uint_eq(core.persisted, 2);
	late.index = 3;
	step(&late); /* of a sync that was started before the cut */
	ck_assert_uint_eq(core.persisted, 2);
	persisted(3);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.index, 3);
}
END_TEST

START_TEST(test_what_is_committed_is_never_cut)
{
	struct raft_run runs[] = {{1, 1}, {2, 2}};

	begin(3, 3, runs, 2, 5, 4);
	append(2, 4, 2, 2, 3, 4, 1);
	ck_assert_uint_eq(u.truncate_from, 0);
	ck_assert_uint_eq(core.refused, 1);
	ck_assert_uint_eq(core.last_index, 5);
}
END_TEST

START_TEST(test_rejection_finds_the_end)
{
	struct raft_run runs[] = {{1, 1}, {4, 2}};
	struct raft_message m = from(2, RAFT_APPENDED, 6);

	/* Ours: 1 1 1 2 2; the leader's: 1 1 1 5 5 5 5. */
	begin(3, 2, runs, 2, 5, 1);
	append(2, 5, 6, 5, 7, 5, 3);
	ck_assert(sent(RAFT_APPENDED, 2)->appended.reject);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.index, 6);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.hint_index, 5);
	ck_assert_uint_eq(sent(RAFT_APPENDED, 2)->appended.hint_term, 2);

	/* And as the leader: 1 1 1 5 5 5 6, what it is told leads to 3 at once. */
	begin(3, 5, (struct raft_run[]){{1, 1}, {4, 5}}, 2, 6, 1);
	lead();
	m.term = core.term;
	m.appended.reject = true;
	m.appended.index = 6;
	m.appended.hint_index = 5;
	m.appended.hint_term = 2;
	receive(&m);
	ck_assert_uint_eq(core.peers[1].next, 4);
	receive(&m); /* it comes twice: of no message that is out now */
	ck_assert_uint_eq(core.peers[1].next, 4);
}
END_TEST

START_TEST(test_answers_of_an_older_term_do_not_count)
{
	struct raft_message m = from(2, RAFT_APPENDED, 2);

	founded(5);
	lead();
	append(3, 3, 1, 1, 1, 1, 1); /* deposed: entry 2 stays, for the time being */
	append(3, 3, 1, 1, 2, 3, 1);
	persisted(2);
	lead();
	m.appended.index = m.appended.seen = 2;
	receive(&m); /* of the 2 that was ours in term 2 */
	ck_assert_uint_eq(core.peers[1].match, 0);
}
END_TEST

/* Nobody has more of this term than its leader. */
START_TEST(test_answers_beyond_the_log_do_not_count)
{
	struct raft_message m = from(2, RAFT_APPENDED, 2);

	founded(3);
	lead();
	m.appended.index = m.appended.seen = core.last_index + 1;
	receive(&m);
	ck_assert_uint_eq(core.refused, 1);
	ck_assert_uint_eq(core.peers[1].match, 0);
	ck_assert_uint_eq(core.commit, 1);
	appended(2, 2, core.last_index);
	ck_assert_uint_eq(core.refused, 1);
	ck_assert_uint_eq(core.commit, 2);
}
END_TEST

START_TEST(test_flow_is_bounded)
{
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 100};

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&submit);
	ck_assert_uint_eq(drain(2), 4);
	appended(2, core.term, 4);
	ck_assert_ptr_nonnull(sent(RAFT_APPEND, 2));
}
END_TEST

/* What it has received and not made durable counts, whatever was lost on the way meanwhile. */
START_TEST(test_disk_that_hangs_gets_no_more)
{
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 100};
	struct raft_message m = from(2, RAFT_APPENDED, 2);

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&submit);
	ck_assert_uint_eq(drain(2), 4);
	/* The last of them is lost, and the next heartbeat shows it. */
	m.appended.reject = true;
	m.appended.index = 6;
	m.appended.hint_index = 5;
	m.appended.hint_term = 2;
	receive(&m);
	ck_assert_uint_eq(drain(2), 1);
	m = from(2, RAFT_APPENDED, 2);
	m.appended.index = 2;
	m.appended.seen = 6;
	receive(&m);
	ck_assert_uint_eq(drain(2), 0);
	appended(2, core.term, 4);
	ck_assert_uint_eq(drain(2), 2);
}
END_TEST

static bool is_wanted(void)
{
	return sent(RAFT_APPEND, 2) && sent(RAFT_APPEND, 2)->append.fill;
}

static void filled(uint64_t last)
{
	struct raft_event event = {.type = RAFT_SENT, .peer = 2, .term = core.term, .index = last, .bytes = 1000};

	step(&event);
}

static void rejected(uint64_t index, uint64_t hint)
{
	struct raft_message m = from(2, RAFT_APPENDED, core.term);

	m.appended.reject = true;
	m.appended.index = index;
	m.appended.hint_index = hint;
	m.appended.hint_term = core.term;
	receive(&m);
}

static void seen(uint64_t index)
{
	struct raft_message m = from(2, RAFT_APPENDED, core.term);

	m.appended.index = 2;
	m.appended.seen = index;
	receive(&m);
}

/* Of two messages the second comes first, again and again; what is sent again then begins like the first, and ends elsewhere. */
START_TEST(test_disk_that_hangs_gets_no_more_in_parts)
{
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 100};
	uint64_t there = 2;

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&submit);
	while (there < 50) {
		filled(there + 2);
		if (!is_wanted())
			break;
		filled(there + 4);
		rejected(there + 2, there);
		filled(0); /* what was asked for before it goes nowhere */
		ck_assert(is_wanted());
		filled(there + 3);
		seen(there + 2); /* of the first */
		there += 2;
	}
	ck_assert_uint_eq(there, 8); /* 3 messages, and the one that fills the window */
	appended(2, core.term, 4);
	ck_assert(is_wanted());
	filled(12);
	ck_assert(!is_wanted());

	/* It has lost all that was not durable: nothing of it counts. */
	rejected(12, 4);
	ck_assert(is_wanted());
	ck_assert_uint_eq(sent(RAFT_APPEND, 2)->append.prev_index, 4);
	ck_assert_uint_eq(core.peers[1].inflight_bytes, 0);
}
END_TEST

/* Where a replica leads whose own log ends far behind what a quorum has: no single index must be reached first. */
START_TEST(test_commits_go_on_under_steady_load)
{
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 10};

	founded(3);
	lead();
	appended(2, core.term, 2);
	for (uint64_t i = 3; i < 100; i++) {
		step(&submit);
		persisted(core.last_index);
		appended(2, core.term, i); /* it falls behind ever further */
		ck_assert_uint_eq(core.commit, i);
	}
}
END_TEST

UNIT_MAIN("raft_replicate", test_entries_of_older_terms_are_not_counted, test_acknowledged_is_what_is_durable,
	test_own_tail_is_not_acknowledged, test_conflict_is_cut, test_what_is_committed_is_never_cut,
	test_rejection_finds_the_end, test_answers_of_an_older_term_do_not_count, test_answers_beyond_the_log_do_not_count, test_flow_is_bounded,
	test_disk_that_hangs_gets_no_more, test_disk_that_hangs_gets_no_more_in_parts,
	test_commits_go_on_under_steady_load)
