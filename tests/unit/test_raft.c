/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the Raft core one by one: one replica, whose peers are the test. Groups of real cores are in tests/raft. */
#include <string.h>
#include "common/base/err.h"
#include "metad/raft/raft.h"
#include "tests/lib/unit.h"

enum { HEARTBEAT_MS = 20, ELECTION_MS = 100 };

static struct raft_core core;
static struct raft_update u;
static struct raft_message out[RAFT_MESSAGES_MAX];
static uint64_t now_ms;

static struct raft_config group(uint32_t voters, uint64_t index)
{
	struct raft_config config = {.index = index, .count = voters, .last_id = voters};

	for (uint32_t i = 0; i < voters; i++)
		config.members[i] = (struct raft_member){.id = i + 1, .voter = true};
	return config;
}

/* Replica 1 of `voters`, with a log of these runs up to `last`. */
static void begin(
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

static void founded(uint32_t voters)
{
	struct raft_run run = {1, 1};

	begin(voters, 1, &run, 1, 1, 1);
}

static void step(const struct raft_event *event)
{
	raft_step(&core, now_ms, event, out, &u);
}

static void tick(uint64_t ms)
{
	struct raft_event event = {.type = RAFT_TICK};

	now_ms += ms;
	step(&event);
}

static void receive(const struct raft_message *m)
{
	struct raft_event event = {.type = RAFT_RECEIVE, .message = m};

	ck_assert_int_eq(raft_message_check(m), 0);
	step(&event);
}

static struct raft_message from(uint64_t id, enum raft_message_type type, uint64_t term)
{
	struct raft_message m = {.type = type, .from = id, .to = 1, .term = term};

	return m;
}

static void voted(uint64_t id, uint64_t term, bool pre, bool granted)
{
	struct raft_message m = from(id, RAFT_VOTED, term);

	m.voted.pre = pre;
	m.voted.granted = granted;
	receive(&m);
}

static void persisted(uint64_t index)
{
	struct raft_event event = {.type = RAFT_PERSISTED, .index = index, .epoch = core.epoch};

	step(&event);
}

static void appended(uint64_t id, uint64_t term, uint64_t index)
{
	struct raft_message m = from(id, RAFT_APPENDED, term);

	m.appended.index = m.appended.seen = index;
	receive(&m);
}

/* Entries prev + 1 .. last of one term. */
static void append(uint64_t id, uint64_t term, uint64_t prev, uint64_t prev_term, uint64_t last, uint64_t last_term,
	uint64_t commit)
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
static uint32_t drain(uint64_t to)
{
	uint32_t messages = 0;

	for (uint32_t i = 0; i < u.message_count;) {
		struct raft_event event = {.type = RAFT_SENT, .peer = to, .bytes = 1000, .term = core.term};
		struct raft_message m = out[i];

		if (m.to != to || m.type != RAFT_APPEND || !m.append.fill) {
			i++;
			continue;
		}
		ck_assert(raft_fill(&core, &m, m.append.prev_index + 1));
		ck_assert_uint_eq(m.append.last, m.append.prev_index + 1);
		event.index = m.append.last;
		step(&event);
		ck_assert_uint_lt(messages++, 100);
		i = 0;
	}
	return messages;
}

/* Elected by replica 2 (of 3) or 2 and 3 (of 5). */
static void lead(void)
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

static const struct raft_message *sent(enum raft_message_type type, uint64_t to)
{
	for (uint32_t i = 0; i < u.message_count; i++)
		if (out[i].type == type && out[i].to == to)
			return &out[i];
	return NULL;
}

static int change(enum raft_change what, uint64_t id)
{
	struct raft_event event = {.type = RAFT_CHANGE, .change = what, .peer = id};

	step(&event);
	return u.code;
}

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

/* ---- elections ---- */

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

/* ---- the log ---- */

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

START_TEST(test_terms_are_bounded)
{
	founded(3);
	for (uint64_t i = 0; i < 3 * RAFT_RUNS_MAX; i++) { /* nothing is ever committed */
		append(2, i + 2, core.last_index, raft_term_at(&core, core.last_index), core.last_index + 1, i + 2, 1);
		ck_assert_uint_le(core.run_count, RAFT_RUNS_MAX);
		ck_assert_uint_le(core.base_index, core.commit);
	}
	ck_assert_uint_lt(core.last_index, RAFT_RUNS_MAX + 2);
	append(2, 9000, core.last_index, raft_term_at(&core, core.last_index), core.last_index + 1, 9000,
		core.last_index);
	append(2, 9000, core.last_index, raft_term_at(&core, core.last_index), core.last_index + 1, 9000,
		core.last_index);
	ck_assert_uint_eq(u.append.kind, RAFT_APPEND_RECEIVED);
}
END_TEST

/* ---- members ---- */

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
	for (int i = 0; i <= ELECTION_MS / HEARTBEAT_MS; i++) { /* it does nothing with it */
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

/* ---- reads ---- */

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

/* ---- snapshots ---- */

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
	struct raft_event compacted = {.type = RAFT_COMPACTED, .index = 6},
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
			  compacted = {.type = RAFT_COMPACTED, .index = 100};

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
			struct raft_event event = {.type = RAFT_RECEIVE, .message = &m};

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
				if (rng_chance(&rng, 1, 2))
					event.type = RAFT_SNAPSHOT_READY;
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

UNIT_MAIN("raft", test_disk_that_hangs_gets_no_more, test_id_of_a_removed_member_is_not_given_again,
	test_read_ends_when_the_quorum_shrinks, test_learner_that_has_nothing_is_not_promoted, test_term_out_of_nowhere,
	test_commit, test_pre_vote_changes_nothing, test_who_hears_a_leader_does_not_vote,
	test_vote_goes_to_a_log_that_is_not_behind, test_one_vote_a_term, test_votes_of_an_older_term_do_not_count,
	test_refusal_tells_the_term, test_leader_without_quorum_steps_down, test_entries_of_older_terms_are_not_counted,
	test_acknowledged_is_what_is_durable, test_own_tail_is_not_acknowledged, test_conflict_is_cut,
	test_what_is_committed_is_never_cut, test_rejection_finds_the_end, test_answers_of_an_older_term_do_not_count,
	test_flow_is_bounded, test_terms_are_bounded, test_change_waits_for_an_entry_of_the_own_term,
	test_changes_that_make_no_sense, test_configuration_goes_with_its_entry,
	test_transfer_waits_until_the_other_has_all, test_timeout_now_of_another_leader,
	test_read_needs_a_quorum_of_now, test_snapshot_takes_the_place_of_the_log,
	test_snapshot_does_not_take_what_the_log_has, test_snapshot_for_who_is_too_far_behind,
	test_snapshot_for_who_was_cut_off, test_malformed, test_hostile_messages, test_disk_that_contradicts_itself)
