// SPDX-License-Identifier: Apache-2.0
/* Reads without a log write. */
#include "tests/lib/raft_bed.h"

START_TEST(test_read_needs_a_quorum_of_now)
{
	struct raft_event read = {.type = RAFT_READ};
	struct raft_message ack = from(2, RAFT_READ_ACK, 2);
	uint64_t first, second;

	founded(3);
	lead();
	step(&read);
	ck_assert_int_eq(u.code, ERR_AGAIN);
	appended(2, core.term, 2);
	step(&read);
	ck_assert_int_eq(u.code, 0);
	ck_assert_uint_eq(u.read_done, 0);
	first = u.read_token;
	step(&read); /* while a probe is out: it is not for this one */
	second = u.read_token;
	ck_assert_uint_gt(second, first);
	ack.read.seq = first;
	receive(&ack);
	ck_assert_uint_eq(u.read_done, first);
	ck_assert_uint_eq(u.read_index, 2);
	ck_assert_ptr_nonnull(sent(RAFT_READ_PROBE, 2));
	ack.read.seq = second;
	receive(&ack);
	ck_assert_uint_eq(u.read_done, second);
	ack.read.seq = second + 5;
	receive(&ack);
	ck_assert_uint_eq(core.refused, 1);
}
END_TEST

/* Who has answered does not answer again, and who is gone never will. */
START_TEST(test_read_ends_when_the_quorum_shrinks)
{
	struct raft_event read = {.type = RAFT_READ};
	uint64_t first;

	founded(2);
	lead();
	appended(2, core.term, 2);
	step(&read);
	first = u.read_token;
	ck_assert_uint_eq(u.read_done, 0);
	ck_assert_int_eq(change(RAFT_REMOVE, 2), 0);
	persisted(3);
	ck_assert_uint_eq(core.commit, 3);
	step(&read);
	tick(HEARTBEAT_MS);
	ck_assert_uint_gt(u.read_done, first);
	ck_assert_uint_eq(u.read_index, 3);
}
END_TEST

START_TEST(test_reads_are_lost_with_leadership)
{
	struct raft_event read = {.type = RAFT_READ};
	struct raft_message ack = from(2, RAFT_READ_ACK, 2);

	founded(3);
	lead();
	appended(2, core.term, 2);
	step(&read);
	ack.read.seq = u.read_token;
	append(3, 3, 1, 1, 1, 1, 1);
	ck_assert(u.reads_lost);
	ck_assert_uint_eq(u.read_done, 0);
	receive(&ack);
	ck_assert_uint_eq(u.read_done, 0);
	lead();
	appended(2, core.term, core.last_index);
	receive(&ack);
	ck_assert_uint_eq(u.read_done, 0);
	step(&read);
	ck_assert_uint_gt(u.read_token, ack.read.seq);
	ack.term = core.term;
	ack.read.seq = u.read_token;
	receive(&ack);
	ck_assert_uint_eq(u.read_done, ack.read.seq);
	append(3, core.term + 1, 1, 1, 1, 1, 1);
	ck_assert(!u.reads_lost); /* none was open */
}
END_TEST

START_TEST(test_learner_answers_for_nobody)
{
	struct raft_event read = {.type = RAFT_READ};
	struct raft_message ack = from(4, RAFT_READ_ACK, 2);

	founded(3);
	lead();
	appended(2, core.term, 2);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 4), 0);
	persisted(3);
	appended(2, core.term, 3);
	step(&read);
	ack.read.seq = u.read_token;
	ck_assert_ptr_null(sent(RAFT_READ_PROBE, 4));
	tick(HEARTBEAT_MS);
	ck_assert_ptr_nonnull(sent(RAFT_READ_PROBE, 4));
	receive(&ack);
	ck_assert_uint_eq(u.read_done, 0);
	ack.from = 3;
	receive(&ack);
	ck_assert_uint_eq(u.read_done, ack.read.seq);
}
END_TEST

/* That it is there shows all the same, also where each read is over before a heartbeat is due; and once is enough. */
START_TEST(test_learner_is_asked_with_heartbeats)
{
	struct raft_event read = {.type = RAFT_READ};
	struct raft_message ack = from(3, RAFT_READ_ACK, 2);

	founded(3);
	lead();
	appended(2, core.term, 2);
	ck_assert_int_eq(change(RAFT_ADD_LEARNER, 4), 0);
	persisted(3);
	appended(2, core.term, 3);
	for (int i = 0; i < 3; i++) {
		step(&read);
		ck_assert_ptr_null(sent(RAFT_READ_PROBE, 4));
		ack.from = 3;
		ack.read.seq = u.read_token;
		receive(&ack);
		ck_assert_uint_eq(u.read_done, ack.read.seq);
	}
	tick(HEARTBEAT_MS);
	ck_assert_ptr_nonnull(sent(RAFT_READ_PROBE, 4));
	ck_assert_ptr_null(sent(RAFT_READ_PROBE, 2)); /* nobody waits for it */
	ack.from = 4;
	receive(&ack);
	ck_assert_uint_eq(core.peers[3].read_seq, ack.read.seq);
	tick(HEARTBEAT_MS);
	ck_assert_ptr_null(sent(RAFT_READ_PROBE, 4));
}
END_TEST

UNIT_MAIN("raft_read", test_read_needs_a_quorum_of_now, test_read_ends_when_the_quorum_shrinks,
	test_reads_are_lost_with_leadership, test_learner_answers_for_nobody,
	test_learner_is_asked_with_heartbeats)
