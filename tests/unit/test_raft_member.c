// SPDX-License-Identifier: Apache-2.0
/* Changes of the members, and leadership that is handed over. */
#include "tests/lib/raft_bed.h"

START_TEST(test_change_waits_for_an_entry_of_the_own_term)
{
	founded(3);
	lead();
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 4), ERR_AGAIN);
	appended(2, core.term, 2);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 4), 0);
	ck_assert_int_eq(u.append.kind, RAFT_APPEND_CONFIG);
	ck_assert_uint_eq(core.config.count, 4);
	ck_assert_int_eq(change(RAFT_PROMOTE, 4), ERR_BUSY);
	persisted(3);
	appended(2, core.term, 3);
	ck_assert_int_eq(change(RAFT_PROMOTE, 4), ERR_AGAIN);
	appended(4, core.term, 3);
	ck_assert_int_eq(change(RAFT_PROMOTE, 4), 0);
	persisted(4);
	appended(2, core.term, 4);
	ck_assert_uint_eq(core.commit, 3); /* of four voters now, three are a quorum */
	appended(4, core.term, 4);
	ck_assert_uint_eq(core.commit, 4);
}
END_TEST

START_TEST(test_changes_that_make_no_sense)
{
	founded(3);
	ck_assert_int_eq(change(RAFT_REMOVE, 2), ERR_NOT_LEADER);
	lead();
	appended(2, core.term, 2);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 3), ERR_EXIST);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 0), ERR_INVAL);
	ck_assert_int_eq(change(RAFT_PROMOTE, 3), ERR_EXIST);
	ck_assert_int_eq(change(RAFT_PROMOTE, 7), ERR_NOENT);
	ck_assert_int_eq(change(RAFT_REMOVE, 7), ERR_NOENT);
	ck_assert_int_eq(change(RAFT_REMOVE, 1), ERR_BUSY);
	ck_assert_uint_eq(core.last_index, 2);
	founded(1);
	tick(1000);
	persisted(2);
	ck_assert_int_eq(core.role, RAFT_LEADER);
	ck_assert_int_eq(change(RAFT_REMOVE, 1), ERR_INVAL);
}
END_TEST

START_TEST(test_id_of_a_removed_member_is_not_given_again)
{
	founded(3);
	lead();
	appended(2, core.term, 2);
	ck_assert_int_eq(change(RAFT_REMOVE, 3), 0);
	persisted(3);
	appended(2, core.term, 3);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 3), ERR_EXIST);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 5), 0);
	persisted(4);
	appended(2, core.term, 4);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 4), ERR_EXIST);
}
END_TEST

/* Alone it would have been a quorum of two, and nothing would be committed until it had all. */
START_TEST(test_learner_that_has_nothing_is_not_promoted)
{
	founded(1);
	tick(1000);
	persisted(2);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 2), 0);
	persisted(3);
	ck_assert_uint_eq(core.commit, 3);
	ck_assert_int_eq(change(RAFT_PROMOTE, 2), ERR_AGAIN);
	appended(2, core.term, 3);
	ck_assert_int_eq(change(RAFT_PROMOTE, 2), 0);
}
END_TEST

START_TEST(test_configuration_goes_with_its_entry)
{
	struct raft_message m = from(2, RAFT_APPEND, 2);

	founded(3);
	m.append.prev_index = m.append.prev_term = 1;
	m.append.last = 2;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){2, 2};
	m.append.has_config = true;
	m.append.config = group(5, 2);
	receive(&m);
	ck_assert_uint_eq(core.config.count, 5);
	append(3, 3, 1, 1, 2, 3, 1);
	ck_assert_uint_eq(u.truncate_from, 2);
	ck_assert_uint_eq(core.config.count, 3);
	ck_assert_uint_eq(core.config.index, 1);
}
END_TEST

/* Which one was in force before the two that go is not known: no leader takes both away. */
START_TEST(test_two_configurations_are_not_cut_at_once)
{
	struct raft_message m = from(2, RAFT_APPEND, 2);

	founded(3);
	m.append.prev_term = 1;
	m.append.run_count = 1;
	m.append.has_config = true;
	for (uint64_t index = 2; index <= 3; index++) {
		m.append.prev_index = index - 1;
		m.append.last = index;
		m.append.runs[0] = (struct raft_run){index, 2};
		m.append.config = group((uint32_t)index + 2, index);
		receive(&m);
		m.append.prev_term = 2;
	}
	ck_assert_uint_eq(core.config.count, 5);
	append(3, 3, 1, 1, 2, 3, 1);
	ck_assert_uint_eq(core.refused, 1);
	ck_assert_uint_eq(u.truncate_from, 0);
	ck_assert_uint_eq(core.last_index, 3);
	append(3, 3, 2, 2, 3, 3, 1); /* one of them may go */
	ck_assert_uint_eq(u.truncate_from, 3);
	ck_assert_uint_eq(core.config.count, 4);
}
END_TEST

START_TEST(test_transfer_waits_until_the_other_has_all)
{
	struct raft_event transfer = {.type = RAFT_TRANSFER, .peer = 2}, submit = {.type = RAFT_SUBMIT, .count = 1};

	founded(3);
	lead();
	appended(2, core.term, 1);
	step(&transfer);
	ck_assert_int_eq(u.code, 0);
	ck_assert_ptr_null(sent(RAFT_TIMEOUT_NOW, 2));
	step(&submit);
	ck_assert_int_eq(u.code, ERR_AGAIN);
	appended(2, core.term, 2);
	ck_assert_ptr_nonnull(sent(RAFT_TIMEOUT_NOW, 2));
	for (int i = 0; i <= 2 * ELECTION_MS / HEARTBEAT_MS; i++) { /* it does nothing with it */
		tick(HEARTBEAT_MS);
		appended(2, core.term, 2);
	}
	step(&submit);
	ck_assert_int_eq(u.code, 0);
}
END_TEST

START_TEST(test_timeout_now_of_another_leader)
{
	struct raft_message m = from(2, RAFT_TIMEOUT_NOW, 2);

	founded(3);
	append(2, 2, 1, 1, 1, 1, 1);
	append(3, 3, 1, 1, 1, 1, 1);
	receive(&m);
	ck_assert_int_eq(core.role, RAFT_FOLLOWER);
	m.from = 3;
	m.term = 3;
	receive(&m);
	ck_assert_int_eq(core.role, RAFT_CANDIDATE);
	ck_assert(sent(RAFT_VOTE, 2)->vote.forced);
}
END_TEST

/* To a learner, a stranger, who was removed, itself; and who is no voter does nothing with it. */
START_TEST(test_transfer_to_who_cannot_lead)
{
	struct raft_event transfer = {.type = RAFT_TRANSFER};
	struct raft_message m = from(2, RAFT_TIMEOUT_NOW, 5);
	static const struct {
		uint64_t to;
		int code;
	} cases[] = {{4, ERR_NOENT}, {3, ERR_NOENT}, {9, ERR_NOENT}, {0, ERR_NOENT}, {1, ERR_EXIST}};

	founded(3);
	lead();
	appended(2, core.term, 2);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 4), 0);
	persisted(3);
	appended(2, core.term, 3);
	appended(4, core.term, 3);
	ck_assert_int_eq(change(RAFT_REMOVE, 3), 0);
	persisted(4);
	appended(2, core.term, 4);
	appended(4, core.term, 4);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		transfer.peer = cases[i].to;
		step(&transfer);
		ck_assert_int_eq(u.code, cases[i].code);
		ck_assert_uint_eq(u.message_count, 0);
		ck_assert_uint_eq(core.transfer_to, 0);
	}
	outsider((struct raft_member[]){{.id = 1, .voter = false}, {.id = 2, .voter = true}, {.id = 3, .voter = true}}, 3);
	append(2, 5, 1, 1, 1, 1, 1);
	receive(&m);
	ck_assert_int_eq(core.role, RAFT_FOLLOWER);
	ck_assert_uint_eq(core.term, 5);
}
END_TEST

/* What was not committed before a restart is not committed by it. */
START_TEST(test_configuration_found_at_start_may_go)
{
	struct raft_options options = {
		.id = 1, .heartbeat_ms = 20, .election_ms = 100, .message_bytes = 1000, .inflight_bytes = 4000};
	struct raft_run runs[] = {{1, 1}, {2, 2}};
	struct raft_boot boot = {.term = 2,
		.last_index = 3,
		.runs = runs,
		.run_count = 2,
		.config = group(5, 3),
		.config_before = group(3, 1),
		.commit = 1};

	ck_assert_int_eq(raft_init(&core, &options, &boot, now_ms), 0);
	append(2, 5, 2, 2, 3, 5, 1);
	ck_assert_uint_eq(u.truncate_from, 3);
	ck_assert_uint_eq(core.config.count, 3);
	ck_assert_int_eq(raft_init(&core, &options, &boot, now_ms), 0);
	lead();
	appended(2, core.term, 4);
	ck_assert_uint_eq(core.commit, 1); /* it is in force: of five voters three are a quorum */
	ck_assert_int_eq(change(RAFT_REMOVE, 5), ERR_AGAIN);
	appended(3, core.term, 4);
	ck_assert_uint_eq(core.commit, 4);
	ck_assert_int_eq(change(RAFT_REMOVE, 5), 0);
}
END_TEST

/* Its index is that of its entry, not of the first that came with it. */
START_TEST(test_configuration_at_the_end_of_a_batch)
{
	struct raft_message m = from(2, RAFT_APPEND, 2);
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 3};

	founded(3);
	m.append.prev_index = m.append.prev_term = 1;
	m.append.last = 4;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){2, 2};
	m.append.has_config = true;
	m.append.config = group(5, 4);
	receive(&m);
	ck_assert_uint_eq(core.config.index, 4);
	append(3, 3, 3, 2, 4, 3, 1); /* 2 and 3 stay */
	ck_assert_uint_eq(u.truncate_from, 4);
	ck_assert_uint_eq(core.config.count, 3);
	m.append.config.index = 2; /* ... as it was told once */
	ck_assert_int_eq(raft_message_check(&m), ERR_PROTO);

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&submit);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 4), 0);
	ck_assert_uint_eq(core.config.index, 6);
	ck_assert_uint_eq(u.append.first, 6);
}
END_TEST

/* Where members are is carried, and said once. */
START_TEST(test_places)
{
	const struct raft_member known[] = {{.id = 1, .place = "one"}, {.id = 4, .place = "four"}, {.id = 9, .place = "nobody"}};
	const struct raft_member then[] = {{.id = 1, .place = "elsewhere"}, {.id = 2, .place = "two"}};
	struct raft_event event = {.type = RAFT_CHANGE, .change = RAFT_ADD_LEARNER, .peer = 4, .known = known, .known_count = 3};

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&event);
	ck_assert_int_eq(u.code, 0);
	ck_assert_str_eq((const char *)core.config.members[0].place, "one");
	ck_assert_str_eq((const char *)core.config.members[1].place, "");
	ck_assert_str_eq((const char *)core.config.members[3].place, "four");
	ck_assert_uint_eq(core.config.count, 4);
	appended(2, core.term, 3);
	appended(3, core.term, 3);
	event = (struct raft_event){.type = RAFT_CHANGE, .change = RAFT_REMOVE, .peer = 4, .known = then, .known_count = 2};
	step(&event);
	ck_assert_int_eq(u.code, 0);
	ck_assert_str_eq((const char *)core.config.members[0].place, "one");
	ck_assert_str_eq((const char *)core.config.members[1].place, "two");
}
END_TEST

/* Of who has moved, and of nobody else; whose vote counts stays as it is. */
START_TEST(test_place_said_anew)
{
	const struct raft_member known[] = {{.id = 1, .place = "one"}, {.id = 2, .place = "two"}},
				 then[] = {{.id = 1, .place = "elsewhere"}, {.id = 2, .place = "far"}, {.id = 3, .place = "three"}};
	struct raft_event event = {.type = RAFT_CHANGE, .change = RAFT_ADD_LEARNER, .peer = 4, .known = known, .known_count = 2};
	struct raft_config before;

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&event);
	appended(2, core.term, 3);
	appended(3, core.term, 3);
	before = core.config;
	event = (struct raft_event){.type = RAFT_CHANGE, .change = RAFT_MOVE, .peer = 7, .known = then, .known_count = 3};
	step(&event);
	ck_assert_int_eq(u.code, ERR_NOENT);
	event.peer = 2;
	step(&event);
	ck_assert_int_eq(u.code, 0);
	ck_assert_int_eq(u.append.kind, RAFT_APPEND_CONFIG);
	ck_assert_str_eq((const char *)core.config.members[0].place, "one");
	ck_assert_str_eq((const char *)core.config.members[1].place, "far");
	ck_assert_str_eq((const char *)core.config.members[2].place, "three"); /* it had not been said */
	ck_assert_uint_eq(core.config.count, before.count);
	ck_assert_uint_eq(core.config.last_id, before.last_id);
	for (uint32_t i = 0; i < before.count; i++)
		ck_assert_int_eq(core.config.members[i].voter, before.members[i].voter);
	step(&event);
	ck_assert_int_eq(u.code, ERR_BUSY);
}
END_TEST

UNIT_MAIN("raft_member", test_places, test_place_said_anew, test_change_waits_for_an_entry_of_the_own_term, test_changes_that_make_no_sense,
	test_id_of_a_removed_member_is_not_given_again, test_learner_that_has_nothing_is_not_promoted,
	test_configuration_goes_with_its_entry, test_two_configurations_are_not_cut_at_once, test_transfer_waits_until_the_other_has_all,
	test_timeout_now_of_another_leader, test_transfer_to_who_cannot_lead, test_configuration_found_at_start_may_go,
	test_configuration_at_the_end_of_a_batch)
