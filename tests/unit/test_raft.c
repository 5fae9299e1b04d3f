// SPDX-License-Identifier: Apache-2.0
/* The example of use, and what comes from outside: messages and a disk that make no sense. */
#include "tests/lib/raft_bed.h"

/* ---- an example: elected, one entry, committed ---- */

START_TEST(test_commit)
{
	struct raft_event submit = {.type = RAFT_SUBMIT, .count = 1};

	founded(3);
	lead();
	appended(2, core.term, 2);
	ck_assert_uint_eq(core.commit, 2);
	step(&submit);
	ck_assert_int_eq(u.code, 0);
	ck_assert_uint_eq(u.append.first, 3);
	ck_assert_ptr_nonnull(sent(RAFT_APPEND, 2));
	appended(2, core.term, 3);
	ck_assert_uint_eq(u.commit, 2); /* a quorum of two is one here and one there, and here it is not durable */
	persisted(3);
	ck_assert_uint_eq(u.commit, 3);
}
END_TEST

/* ---- what comes from outside ---- */

START_TEST(test_malformed)
{
	struct raft_message m = from(2, RAFT_APPEND, 2);

	m.append.prev_index = m.append.last = 1;
	m.append.prev_term = 1;
	ck_assert_int_eq(raft_message_check(&m), 0);
	m.append.last = 2;
	ck_assert_int_eq(raft_message_check(&m), ERR_PROTO); /* an entry without a term */
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){2, 3};
	ck_assert_int_eq(raft_message_check(&m), ERR_PROTO); /* of a term that the sender has not seen */
	m.append.runs[0].term = 2;
	ck_assert_int_eq(raft_message_check(&m), 0);
	m.append.has_config = true;
	ck_assert_int_eq(raft_message_check(&m), ERR_PROTO); /* of nobody */
	m.append.config = group(3, 2);
	ck_assert_int_eq(raft_message_check(&m), 0);
	m.append.config.members[2].id = 2;
	ck_assert_int_eq(raft_message_check(&m), ERR_PROTO); /* one twice */
	m = from(2, RAFT_VOTE, RAFT_TERM_MAX);
	ck_assert_int_eq(raft_message_check(&m), ERR_PROTO);
	m = from(1, RAFT_READ_ACK, 1);
	ck_assert_int_eq(raft_message_check(&m), ERR_PROTO); /* to itself */
}
END_TEST

/* Whatever passes the check may be stepped: refused perhaps, but nothing breaks, and what is committed stays. */
START_TEST(test_hostile_messages)
{
	struct rng rng;
	uint64_t stepped = 0;

	rng_init(&rng, 7);
	for (int round = 0; round < 300; round++) {
		struct raft_run runs[] = {{1, 1}, {3, 2}, {6, 4}};
		uint64_t commit = 1 + rng_below(&rng, 8);

		begin(3, 4, runs, 3, 8, commit);
		if (round % 2)
			lead();
		for (int i = 0; i < 200; i++) {
			struct raft_message m;
			struct raft_event event;
			uint64_t first, last;

			m = (struct raft_message){
				.type = 1 + (enum raft_message_type)rng_below(&rng, RAFT_MESSAGE_TYPES - 1),
				.from = 2 + rng_below(&rng, 3),
				.to = 1,
				.term = 1 + rng_below(&rng, 8)};
			if (m.type == RAFT_APPEND) {
				m.append.prev_index = rng_below(&rng, 12);
				m.append.prev_term = rng_below(&rng, 5);
				m.append.last = m.append.prev_index + rng_below(&rng, 4);
				m.append.commit = rng_below(&rng, 20);
				m.append.run_count = m.append.last > m.append.prev_index;
				m.append.runs[0] = (struct raft_run){m.append.prev_index + 1, 1 + rng_below(&rng, 8)};
				m.append.has_config = rng_chance(&rng, 1, 4);
				m.append.config = group(1 + (uint32_t)rng_below(&rng, 5), m.append.last);
			} else if (m.type == RAFT_SNAPSHOT) {
				m.snapshot.index = rng_below(&rng, 20);
				m.snapshot.term = rng_below(&rng, 8);
				m.snapshot.config = group(3, 1);
			} else if (m.type == RAFT_PRE_VOTE || m.type == RAFT_VOTE) {
				m.vote.last_index = rng_below(&rng, 12);
				m.vote.last_term = rng_below(&rng, 8);
				m.vote.forced = rng_chance(&rng, 1, 2);
			} else if (m.type == RAFT_VOTED) {
				m.voted.granted = rng_chance(&rng, 1, 2);
				m.voted.pre = rng_chance(&rng, 1, 2);
			} else if (m.type == RAFT_READ_PROBE || m.type == RAFT_READ_ACK) {
				m.read.seq = rng_below(&rng, 4);
			} else if (m.type == RAFT_APPENDED) {
				m.appended.index = rng_below(&rng, 12);
				m.appended.seen = rng_below(&rng, 12);
				m.appended.reject = rng_chance(&rng, 1, 2);
				m.appended.hint_index = rng_below(&rng, 12);
				m.appended.hint_term = rng_below(&rng, 8);
			}
			if (raft_message_check(&m) != 0)
				continue;
			stepped++;
			event = receipt(&m);
			if (m.type == RAFT_SNAPSHOT && rng_chance(&rng, 1, 2))
				event.type = RAFT_SNAPSHOT_READY;
			if (raft_asks(&core, &m, &first, &last))
				event.differs = first + rng_below(&rng, last + 2 - first);
			step(&event);
			ck_assert_uint_ge(core.commit, commit);
			ck_assert_uint_ge(core.last_index, core.commit);
			commit = core.commit;
			if (rng_chance(&rng, 1, 4))
				tick(10);
		}
	}
	ck_assert_uint_gt(stepped, 10000);
}
END_TEST

START_TEST(test_disk_that_contradicts_itself)
{
	struct raft_options options = {
		.id = 1, .heartbeat_ms = 20, .election_ms = 100, .message_bytes = 1, .inflight_bytes = 1};
	struct raft_run runs[] = {{1, 1}, {4, 3}};
	struct raft_boot good = {.term = 3, .last_index = 5, .runs = runs, .run_count = 2, .config = group(3, 1)}, bad;

	ck_assert_int_eq(raft_init(&core, &options, &good, 0), 0);
	bad = good;
	bad.term = 2; /* an entry of a term that was never seen */
	ck_assert_int_eq(raft_init(&core, &options, &bad, 0), ERR_CORRUPT);
	bad = good;
	bad.commit = 6;
	ck_assert_int_eq(raft_init(&core, &options, &bad, 0), ERR_CORRUPT);
	bad = good;
	bad.config.index = 5; /* it may be cut, and nobody says what was before it */
	ck_assert_int_eq(raft_init(&core, &options, &bad, 0), ERR_CORRUPT);
	bad.config.index = 6;
	ck_assert_int_eq(raft_init(&core, &options, &bad, 0), ERR_CORRUPT);
	options.election_ms = 30;
	ck_assert_int_eq(raft_init(&core, &options, &good, 0), ERR_INVAL);
}
END_TEST

START_TEST(test_term_out_of_nowhere)
{
	struct raft_message m = from(2, RAFT_APPENDED, RAFT_TERM_MAX - 1);

	founded(3);
	receive(&m);
	ck_assert_uint_eq(core.term, 1);
	ck_assert_uint_eq(core.refused, 1);
}
END_TEST

START_TEST(test_bodies_that_are_missing)
{
	struct raft_message m = from(2, RAFT_APPEND, 2);
	struct raft_event event = {.type = RAFT_RECEIVE, .message = &m};

	founded(3);
	m.append.prev_index = m.append.prev_term = 1;
	m.append.last = 3;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){2, 2};
	for (uint64_t count = 0; count < 4; count++) {
		event.count = count;
		step(&event);
		ck_assert_uint_eq(core.last_index, count < 2 ? 1 : 3);
		ck_assert_uint_eq(core.refused, count < 2 ? count + 1 : count == 2 ? 2 : 3);
	}
}
END_TEST

UNIT_MAIN("raft", test_commit, test_malformed, test_hostile_messages, test_disk_that_contradicts_itself,
	test_term_out_of_nowhere, test_bodies_that_are_missing)
