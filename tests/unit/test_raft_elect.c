// SPDX-License-Identifier: Apache-2.0
/* Who votes for whom, and who leads. */
#include "tests/lib/raft_bed.h"

START_TEST(test_pre_vote_changes_nothing)
{
	struct raft_message m = from(2, RAFT_PRE_VOTE, 9);

	founded(3);
	m.vote.last_index = m.vote.last_term = 1;
	receive(&m);
	ck_assert(!u.meta);
	ck_assert_uint_eq(core.term, 1);
	ck_assert(sent(RAFT_VOTED, 2)->voted.granted);
	ck_assert_uint_eq(sent(RAFT_VOTED, 2)->term, 9);
	tick(1000);
	ck_assert_int_eq(core.role, RAFT_PRE_CANDIDATE);
	ck_assert_uint_eq(core.term, 1);
}
END_TEST

START_TEST(test_who_hears_a_leader_does_not_vote)
{
	struct raft_message m = from(3, RAFT_VOTE, 9);

	founded(3);
	append(2, 2, 1, 1, 1, 1, 1);
	m.vote.last_index = 7;
	m.vote.last_term = 7;
	receive(&m);
	ck_assert_uint_eq(u.message_count, 0);
	ck_assert_uint_eq(core.term, 2);
	m.vote.forced = true; /* the leader itself wants it */
	receive(&m);
	ck_assert(sent(RAFT_VOTED, 3)->voted.granted);
	ck_assert(u.meta);
	ck_assert_uint_eq(core.vote, 3);
}
END_TEST

/* Two cannot lead in one term. Who says that he is the second one is believed by none, and counted. */
START_TEST(test_second_leader_of_a_term)
{
	struct raft_message m = from(3, RAFT_APPEND, 2);

	founded(3);
	append(2, 2, 1, 1, 1, 1, 1);
	ck_assert_uint_eq(core.leader, 2);
	m.append.prev_index = m.append.prev_term = m.append.last = 1;
	receive(&m);
	ck_assert_uint_eq(core.leader, 2);
	ck_assert_uint_eq(core.refused, 1);
	ck_assert_uint_eq(u.message_count, 0);
	founded(3);
	lead();
	m.term = core.term;
	receive(&m);
	ck_assert_int_eq(core.role, RAFT_LEADER);
	ck_assert_uint_eq(core.refused, 1);
}
END_TEST

START_TEST(test_vote_goes_to_a_log_that_is_not_behind)
{
	struct raft_run runs[] = {{1, 1}, {4, 3}};
	static const struct {
		uint64_t index, term;
		bool granted;
	} cases[] = {{9, 2, false}, {4, 3, false}, {5, 3, true}, {1, 4, true}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct raft_message m = from(2, RAFT_VOTE, 9);

		begin(3, 3, runs, 2, 5, 1);
		m.vote.last_index = cases[i].index;
		m.vote.last_term = cases[i].term;
		receive(&m);
		ck_assert_int_eq(sent(RAFT_VOTED, 2)->voted.granted, cases[i].granted);
	}
}
END_TEST

START_TEST(test_one_vote_a_term)
{
	struct raft_message a = from(2, RAFT_VOTE, 5), b = from(3, RAFT_VOTE, 5);

	founded(3);
	a.vote.last_index = a.vote.last_term = b.vote.last_index = b.vote.last_term = 1;
	receive(&a);
	ck_assert(sent(RAFT_VOTED, 2)->voted.granted);
	receive(&b);
	ck_assert(!sent(RAFT_VOTED, 3)->voted.granted);
	receive(&a);
	ck_assert(sent(RAFT_VOTED, 2)->voted.granted);
	ck_assert(!u.meta); /* it stands on the disk already */
}
END_TEST

START_TEST(test_votes_of_an_older_term_do_not_count)
{
	struct raft_event campaign = {.type = RAFT_CAMPAIGN};

	founded(5);
	step(&campaign);
	voted(2, 2, true, true);
	voted(3, 2, true, true);
	ck_assert_int_eq(core.role, RAFT_CANDIDATE);
	voted(2, 2, false, true);
	tick(1000); /* asks anew */
	voted(2, 3, true, true);
	voted(3, 3, true, true);
	ck_assert_uint_eq(core.term, 3);
	voted(3, 2, false, true);
	voted(4, 2, false, true);
	ck_assert_int_eq(core.role, RAFT_CANDIDATE);
}
END_TEST

START_TEST(test_refusal_tells_the_term)
{
	struct raft_message m = from(2, RAFT_PRE_VOTE, 3);

	begin(3, 7, &(struct raft_run){1, 1}, 1, 1, 1);
	m.vote.last_index = m.vote.last_term = 1;
	receive(&m);
	ck_assert(!sent(RAFT_VOTED, 2)->voted.granted);
	ck_assert_uint_eq(sent(RAFT_VOTED, 2)->term, 7);
	founded(3);
	tick(1000);
	voted(2, 7, true, false);
	ck_assert_uint_eq(core.term, 7);
}
END_TEST

START_TEST(test_leader_without_quorum_steps_down)
{
	founded(3);
	lead();
	for (int i = 0; i < 4 * ELECTION_MS / HEARTBEAT_MS; i++) {
		tick(HEARTBEAT_MS);
		if (core.role == RAFT_LEADER)
			appended(2, core.term, 2);
	}
	ck_assert_int_eq(core.role, RAFT_LEADER);
	for (int i = 0; i < 3 * ELECTION_MS / HEARTBEAT_MS; i++)
		tick(HEARTBEAT_MS);
	ck_assert_int_ne(core.role, RAFT_LEADER);
	ck_assert_uint_eq(core.term, 2);
}
END_TEST

/* It may lack the entry that made it a voter, or be out already and not know who needs it. */
START_TEST(test_who_is_no_voter_votes)
{
	struct raft_message m = from(2, RAFT_VOTE, 5);

	m.vote.last_index = m.vote.last_term = 1;
	outsider((struct raft_member[]){{.id = 1, .voter = false}, {.id = 2, .voter = true}, {.id = 3, .voter = true}}, 3);
	receive(&m);
	ck_assert(sent(RAFT_VOTED, 2)->voted.granted);
	outsider((struct raft_member[]){{.id = 2, .voter = true}, {.id = 3, .voter = true}, {.id = 4, .voter = true}}, 3);
	m.type = RAFT_PRE_VOTE;
	receive(&m);
	ck_assert(sent(RAFT_VOTED, 2)->voted.granted);
	m.type = RAFT_VOTE;
	receive(&m);
	ck_assert(sent(RAFT_VOTED, 2)->voted.granted);
}
END_TEST

START_TEST(test_removed_server_disturbs_nobody)
{
	static const enum raft_message_type types[] = {RAFT_PRE_VOTE, RAFT_VOTE};

	for (int i = 0; i < 4; i++) { /* a follower, then a leader, is asked by one that has even more entries */
		struct raft_message m = from(7, types[i % 2], 50);

		founded(3);
		if (i < 2)
			append(2, 2, 1, 1, 1, 1, 1);
		else
			lead();
		m.vote.last_index = m.vote.last_term = 40;
		receive(&m);
		ck_assert_uint_eq(u.message_count, 0);
		ck_assert_uint_eq(core.term, 2);
	}
	/* And who finds that it was removed asks nobody. */
	outsider((struct raft_member[]){{.id = 2, .voter = true}, {.id = 3, .voter = true}, {.id = 4, .voter = true}}, 3);
	for (int i = 0; i < 20; i++) {
		tick(ELECTION_MS);
		ck_assert_uint_eq(u.message_count, 0);
		ck_assert_int_eq(core.role, RAFT_FOLLOWER);
	}
}
END_TEST

/* Replica 1 has the entry that removes it, behind two of its own; the group without it: 2 and 3. */
static void told_of_removal(uint64_t commit)
{
	struct raft_message m = from(2, RAFT_APPEND, 2);

	founded(3);
	m.append.prev_index = m.append.prev_term = 1;
	m.append.last = 3;
	m.append.commit = commit;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){2, 2};
	m.append.has_config = true;
	m.append.config = (struct raft_config){
		.index = 3, .count = 2, .last_id = 3, .members = {{.id = 2, .voter = true}, {.id = 3, .voter = true}}};
	receive(&m);
	persisted(3);
	ck_assert_uint_eq(core.config.count, 2);
}

/* That entry may be on no other disk, and no other log as new as this one: nobody else could be elected. */
START_TEST(test_who_is_removed_stands_until_that_is_committed)
{
	told_of_removal(3);
	for (int i = 0; i < 20; i++) {
		tick(ELECTION_MS);
		ck_assert_uint_eq(u.message_count, 0);
	}
	told_of_removal(2);
	tick(2 * ELECTION_MS);
	ck_assert_int_eq(core.role, RAFT_PRE_CANDIDATE);
	voted(2, 3, true, true);
	ck_assert_int_eq(core.role, RAFT_PRE_CANDIDATE); /* it does not count for itself */
	voted(3, 3, true, true);
	ck_assert_int_eq(core.role, RAFT_CANDIDATE);
	voted(2, 3, false, true);
	ck_assert_int_eq(core.role, RAFT_CANDIDATE);
	voted(3, 3, false, true);
	ck_assert_int_eq(core.role, RAFT_LEADER);
	persisted(4);
	appended(2, 3, 4);
	ck_assert_uint_eq(core.commit, 2); /* nor for the commit */
	ck_assert_int_eq(core.role, RAFT_LEADER);
	appended(3, 3, 4);
	ck_assert_uint_eq(u.commit, 4);
	ck_assert_int_eq(core.role, RAFT_FOLLOWER); /* the others go on */
	ck_assert(u.role_changed);
}
END_TEST

/* A vote is made durable by two who sync twice each, one after the other. */
START_TEST(test_candidacy_outlasts_the_silence_before_it)
{
	struct raft_event campaign = {.type = RAFT_CAMPAIGN};

	founded(3);
	step(&campaign);
	voted(2, 2, true, true);
	ck_assert_int_eq(core.role, RAFT_CANDIDATE);
	tick(2 * ELECTION_MS - 1);
	ck_assert_int_eq(core.role, RAFT_CANDIDATE);
	voted(2, 2, false, true);
	ck_assert_int_eq(core.role, RAFT_LEADER);
	founded(3);
	step(&campaign);
	voted(2, 2, true, true);
	tick(3 * ELECTION_MS);
	ck_assert_int_eq(core.role, RAFT_PRE_CANDIDATE); /* but not for ever */
}
END_TEST

/* Replica 3 may think that it leads: it does not know, or others that were dropped with it follow it. */
START_TEST(test_who_was_removed_is_not_heard)
{
	static const enum raft_message_type types[] = {
		RAFT_PRE_VOTE, RAFT_VOTE, RAFT_VOTED, RAFT_APPEND, RAFT_APPENDED, RAFT_READ_PROBE, RAFT_READ_ACK, RAFT_TIMEOUT_NOW};

	outsider((struct raft_member[]){{.id = 1, .voter = true}, {.id = 2, .voter = true}, {.id = 4, .voter = true}}, 3);
	core.config.last_id = core.config_before.last_id = 3 + 64;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct raft_message m = from(3, types[i], 50);

		if (m.type == RAFT_PRE_VOTE || m.type == RAFT_VOTE)
			m.vote.last_index = m.vote.last_term = 40;
		if (m.type == RAFT_APPEND)
			m.append.prev_index = m.append.prev_term = m.append.last = 1;
		receive(&m);
		ck_assert_uint_eq(u.message_count, 0);
		ck_assert_uint_eq(core.term, 1);
		ck_assert_uint_eq(core.leader, 0);
	}
	append(68, 50, 1, 1, 1, 1, 1); /* it may be new */
	ck_assert_uint_eq(core.leader, 68);
}
END_TEST

/* Its log may be the only one that is new enough. */
START_TEST(test_who_may_have_been_removed_is_heard)
{
	for (uint64_t commit = 1; commit <= 2; commit++) {
		struct raft_message m = from(2, RAFT_APPEND, 2), vote = from(3, RAFT_VOTE, 3);

		founded(3);
		m.append.prev_index = m.append.prev_term = 1;
		m.append.last = 2;
		m.append.commit = commit;
		m.append.run_count = 1;
		m.append.runs[0] = (struct raft_run){2, 2};
		m.append.has_config = true;
		m.append.config = (struct raft_config){
			.index = 2, .count = 2, .last_id = 3 + 64, .members = {{.id = 1, .voter = true}, {.id = 2, .voter = true}}};
		receive(&m);
		persisted(2);
		vote.vote.forced = true;
		vote.vote.last_index = vote.vote.last_term = 2;
		receive(&vote);
		ck_assert_uint_eq(u.message_count, commit == 1);
		ck_assert_uint_eq(core.vote, commit == 1 ? 3 : 0);
	}
}
END_TEST

UNIT_MAIN("raft_elect", test_pre_vote_changes_nothing, test_who_hears_a_leader_does_not_vote, test_second_leader_of_a_term,
	test_vote_goes_to_a_log_that_is_not_behind, test_one_vote_a_term, test_votes_of_an_older_term_do_not_count,
	test_refusal_tells_the_term, test_leader_without_quorum_steps_down, test_who_is_no_voter_votes,
	test_removed_server_disturbs_nobody, test_who_is_removed_stands_until_that_is_committed, test_candidacy_outlasts_the_silence_before_it,
	test_who_was_removed_is_not_heard, test_who_may_have_been_removed_is_heard)
