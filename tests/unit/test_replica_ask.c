/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a leader asks whether it leads still, before it answers reads. */
#include "tests/lib/replica_group.h"

enum { MAIL_US = 100, WITH_HEARTBEATS = 10 /* a question that is open then is sent again */ };

static uint64_t asked[NODES]; /* by id - 1: questions that were sent to it */

static void count_asked(struct group *g, struct raft_message *m)
{
	(void)g;
	if (m->type == RAFT_READ_PROBE)
		asked[m->to - 1]++;
}

static struct group *quick_group(uint64_t seed, struct node **ret_leader)
{
	struct group *g = group_new(seed, 1 << 20);

	g->mail_ns = MAIL_US * 1000;
	*ret_leader = elected(g);
	submit(*ret_leader);
	run_for(g, 100 * ms_ns);
	g->lie = count_asked;
	memset(asked, 0, sizeof(asked));
	return g;
}

/* A read, and whether it is answered within so long. */
static bool read_within(struct node *l, uint64_t ns)
{
	uint64_t before = l->g->read_counts[0];

	read_rows(l);
	run_for(l->g, ns);
	return l->g->read_counts[0] == before + 1;
}

static struct node *node_asked(struct group *g)
{
	uint32_t most = 0;

	for (uint32_t i = 1; i < g->count; i++)
		if (asked[i] > asked[most])
			most = i;
	ck_assert_uint_gt(asked[most], 0);
	return &g->nodes[most];
}

static uint64_t all_asked(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < NODES; i++)
		sum += asked[i];
	return sum;
}

START_TEST(test_as_many_as_suffice)
{
	struct node *l;
	struct group *g = quick_group(1, &l);

	for (int i = 0; i < 100; i++)
		ck_assert(read_within(l, 300 * 1000));
	ck_assert_uint_ge(asked[node_asked(g)->id - 1], 100);
	ck_assert_uint_le(all_asked(), 100 + WITH_HEARTBEATS);
	memset(asked, 0, sizeof(asked));
	for (int i = 0; i < 20; i++) {
		read_rows(l);
		read_rows_as(l, i % 2);
		read_rows(l);
		run_for(g, ms_ns / 2);
	}
	ck_assert_uint_ge(all_asked(), 30);
	ck_assert_uint_le(all_asked(), 30 + WITH_HEARTBEATS);
	ck_assert_uint_eq(g->read_counts[0], 160);
	for (uint64_t id = FOUNDERS + 1; id <= 5; id++) {
		node_add(g);
		change_surely(g, RAFT_ADD_LEARNER, id);
		change_surely(g, RAFT_PROMOTE, id);
	}
	run_for(g, 1000 * ms_ns);
	l = elected(g);
	memset(asked, 0, sizeof(asked));
	for (int i = 0; i < 100; i++)
		ck_assert(read_within(l, 300 * 1000));
	ck_assert_uint_ge(all_asked(), 200);
	ck_assert_uint_le(all_asked(), 200 + WITH_HEARTBEATS);
	settle(g);
	group_free(g);
}
END_TEST

/* Who was asked says nothing: the other one is asked a moment later, and first from then on. */
START_TEST(test_who_is_silent)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct node *l, *silent;
		struct group *g = quick_group(seed, &l);

		ck_assert(read_within(l, 300 * 1000));
		silent = node_asked(g);
		isolate(g, silent, true);
		ck_assert(read_within(l, 1300 * 1000));
		for (int i = 0; i < 20; i++)
			ck_assert(read_within(l, 300 * 1000));
		isolate(g, silent, false);
		memset(asked, 0, sizeof(asked));
		for (int i = 0; i < 20; i++)
			ck_assert(read_within(l, 300 * 1000));
		ck_assert_uint_le(asked[silent->id - 1], WITH_HEARTBEATS);
		settle(g);
		group_free(g);
	}
}
END_TEST

static struct node *slow;

static void count_asked_and_be_late(struct group *g, struct raft_message *m)
{
	g->mail_ns = m->from == slow->id ? 3 * ms_ns : MAIL_US * 1000;
	count_asked(g, m);
}

/* Who answers, but late, is as one that is silent: its answer is to a question that is closed. */
START_TEST(test_who_is_slow)
{
	struct node *l;
	struct group *g = quick_group(3, &l);

	ck_assert(read_within(l, 300 * 1000));
	slow = node_asked(g);
	g->lie = count_asked_and_be_late;
	ck_assert(read_within(l, 1300 * 1000));
	for (int i = 0; i < 20; i++) {
		run_for(g, 20 * ms_ns);
		ck_assert(read_within(l, 300 * 1000));
	}
	settle(g);
	group_free(g);
}
END_TEST

/* It ends while the others may still have to be asked. */
START_TEST(test_close_amid_a_question)
{
	struct node *l;
	struct group *g = quick_group(4, &l);

	read_rows(l);
	run_for(g, MAIL_US * 1000 / 2);
	ck_assert_uint_eq(all_asked(), 1);
	node_close(l);
	ck_assert_uint_eq(g->read_counts[2], 1);
	node_open(l);
	settle(g);
	group_free(g);
}
END_TEST

/* Reads are asked for all the time, and each is answered soon, though who is asked is never the same for long. */
START_TEST(test_questions_follow_each_other)
{
	struct node *l;
	struct group *g = quick_group(7, &l);
	uint64_t begun = 0;

	for (int i = 0; i < 200; i++) {
		struct node *n = &g->nodes[(l->id + (uint64_t)(i / 20 % 2)) % g->count];

		isolate(g, n, true);
		for (int k = 0; k < 10; k++, begun++) {
			read_rows(l);
			run_for(g, 50 * 1000);
		}
		run_for(g, 1500 * 1000);
		ck_assert_uint_eq(g->read_counts[0], begun);
		isolate(g, n, false);
	}
	settle(g);
	group_free(g);
}
END_TEST

UNIT_MAIN("replica_ask", test_as_many_as_suffice, test_who_is_silent, test_who_is_slow, test_close_amid_a_question, test_questions_follow_each_other)
