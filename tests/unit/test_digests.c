/* SPDX-License-Identifier: Apache-2.0 */
/* Who is found to have other rows than most: by the marks that members say to their leader, and it to them. */
#include "metad/digests.h"

#include <string.h>
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

enum { MEMBERS = 5 };

struct node {
	struct digests d;
	struct digests_mark says;
	uint64_t applied; /* marks */
	uint64_t wrong_from; /* number of the first mark that is another one here; 0: none is */
	uint32_t wrong; /* likewise: by how much */
	uint64_t found; /* it is to stop, for that mark */
	uint64_t since; /* its table was another's up to that entry; 0: it was not */
	bool down;
};

struct world {
	struct node nodes[MEMBERS];
	struct raft_config config;
	uint64_t leader, term, now_ms;
	struct rng rng;
	uint32_t loss; /* of 100 */
};

static struct world *world_new(uint32_t count, uint64_t seed)
{
	struct world *w = MEM_NEW(struct world);

	rng_init(&w->rng, seed);
	w->config.count = count;
	for (uint32_t i = 0; i < count; i++)
		w->config.members[i] = (struct raft_member){.id = i + 1, .voter = true};
	w->leader = w->term = 1;
	return w;
}

static struct node *at(struct world *w, uint64_t id)
{
	return &w->nodes[id - 1];
}

static bool is_wrong(const struct node *n)
{
	return n->wrong_from && n->applied >= n->wrong_from;
}

/* All that was in memory is gone. */
static void restart(struct world *w, uint64_t id)
{
	digests_init(&at(w, id)->d, at(w, id)->since, at(w, id)->applied * DIGEST_ENTRIES + 7);
}

/* It gets the rows of another one, with what is wrong in them, as they are a little behind its last mark. */
static void give_table(struct world *w, uint64_t from, uint64_t to)
{
	const struct node *n = at(w, from);
	struct node *t = at(w, to);

	if (is_wrong(n) || is_wrong(t)) {
		t->wrong_from = is_wrong(n) ? n->wrong_from : 0;
		t->wrong = n->wrong;
	}
	t->applied = n->applied;
	t->since = n->applied * DIGEST_ENTRIES + 7;
	restart(w, to);
}

static void apply(struct world *w, uint64_t id, uint64_t marks)
{
	struct node *n = at(w, id);

	while (n->applied < marks) {
		uint32_t crc = (uint32_t)++n->applied * 77;

		if (n->wrong_from && n->applied >= n->wrong_from)
			crc += n->wrong;
		digests_mark(&n->d, n->applied * DIGEST_ENTRIES, crc);
	}
}

static void apply_all(struct world *w, uint64_t marks)
{
	for (uint32_t i = 1; i <= w->config.count; i++)
		if (!at(w, i)->down)
			apply(w, i, marks);
}

static void step(struct world *w, uint64_t id)
{
	struct node *n = at(w, id);
	uint64_t index;

	if (n->down || n->found)
		return;
	if (digests_step(&n->d, &w->config, id, w->leader, w->term, w->now_ms, &n->says, &index) == DIGESTS_DIFFER) {
		n->found = index / DIGEST_ENTRIES;
		n->says = (struct digests_mark){.index = 0};
	}
}

static void send(struct world *w, uint64_t from, uint64_t to)
{
	if (at(w, from)->down || at(w, to)->down || at(w, from)->found || at(w, to)->found || rng_chance(&w->rng, w->loss, 100))
		return;
	if (at(w, from)->says.index || at(w, from)->says.missed)
		digests_hear(&at(w, to)->d, from, w->leader, &at(w, from)->says);
}

/* A heartbeat, its answers, and a look of each. */
static void exchange(struct world *w)
{
	w->now_ms += 200;
	for (uint32_t i = 1; i <= w->config.count; i++)
		step(w, i);
	for (uint32_t i = 1; i <= w->config.count; i++)
		if (i != w->leader) {
			send(w, w->leader, i);
			send(w, i, w->leader);
		}
}

static void exchanges(struct world *w, int count)
{
	while (count-- > 0)
		exchange(w);
}

static void check_fine(struct world *w, uint64_t id)
{
	ck_assert_msg(at(w, id)->found == 0, "replica %d is to stop for mark %d", (int)id, (int)at(w, id)->found);
}

START_TEST(test_example)
{
	struct world *w = world_new(3, 1);

	apply_all(w, 1);
	exchanges(w, 5);
	for (uint32_t i = 1; i <= 3; i++) {
		check_fine(w, i);
		ck_assert_uint_eq(at(w, i)->d.agreed, DIGEST_ENTRIES);
	}
	at(w, 3)->wrong_from = 3;
	at(w, 3)->wrong = 5;
	apply_all(w, 2);
	exchanges(w, 5);
	check_fine(w, 3);
	apply_all(w, 3);
	exchanges(w, 5);
	check_fine(w, 1);
	check_fine(w, 2);
	ck_assert_uint_eq(at(w, 3)->found, 3);
	ck_assert_uint_eq(at(w, 3)->d.agreed, 2 * DIGEST_ENTRIES);
	ck_assert_uint_eq(digests_member(&at(w, 1)->d, 3)->agreed, 2 * DIGEST_ENTRIES);
	ck_assert_uint_eq(digests_member(&at(w, 1)->d, 3)->differs, 3 * DIGEST_ENTRIES);
	ck_assert_uint_eq(digests_member(&at(w, 1)->d, 2)->differs, 0);
	ck_assert_ptr_null(digests_member(&at(w, 1)->d, 4));
	mem_free(w);
}
END_TEST

/* It goes, not those that follow it. */
START_TEST(test_leader_is_wrong)
{
	struct world *w = world_new(3, 2);

	at(w, 1)->wrong_from = 2;
	at(w, 1)->wrong = 9;
	for (uint64_t marks = 1; marks <= 4; marks++) {
		apply_all(w, marks);
		exchanges(w, 3);
	}
	ck_assert_uint_eq(at(w, 1)->found, 2);
	check_fine(w, 2);
	check_fine(w, 3);
	w->leader = w->term = 2;
	apply_all(w, 8);
	exchanges(w, 30);
	check_fine(w, 2);
	check_fine(w, 3);
	ck_assert_uint_eq(at(w, 3)->d.agreed, 8 * DIGEST_ENTRIES);
	ck_assert_uint_eq(digests_member(&at(w, 2)->d, 1)->differs, 2 * DIGEST_ENTRIES); /* it knows of whom it heard that */
	mem_free(w);
}
END_TEST

/* Of two nobody knows who is right; the third says it when it comes. */
START_TEST(test_third_decides)
{
	for (uint32_t wrong = 1; wrong <= 2; wrong++) {
		struct world *w = world_new(3, 3);

		at(w, wrong)->wrong_from = 1;
		at(w, wrong)->wrong = 1;
		at(w, 3)->down = true;
		apply_all(w, 1);
		exchanges(w, 50);
		apply_all(w, 2);
		exchanges(w, 50);
		check_fine(w, 1);
		check_fine(w, 2);
		ck_assert_uint_eq(digests_member(&at(w, 1)->d, 2)->differs, DIGEST_ENTRIES);
		ck_assert_uint_eq(at(w, 1)->d.agreed, 0);
		at(w, 3)->down = false;
		apply_all(w, 2);
		exchanges(w, 50);
		ck_assert_uint_gt(at(w, wrong)->found, 0);
		check_fine(w, 3 - wrong);
		check_fine(w, 3);
		mem_free(w);
	}
}
END_TEST

/* One that was wrong gets the table of one that is right, before a third could say so: it has been wrong, and nobody is now. */
START_TEST(test_table_of_another)
{
	for (uint32_t wrong = 1; wrong <= 2; wrong++) {
		struct world *w = world_new(3, 8);

		at(w, wrong)->wrong_from = 1;
		at(w, wrong)->wrong = 1;
		at(w, 3)->down = true;
		apply_all(w, 2);
		exchanges(w, 50);
		w->leader = 3 - wrong;
		w->term++;
		apply(w, 3 - wrong, 4);
		give_table(w, 3 - wrong, wrong);
		apply(w, wrong, 6); /* ahead of who it has it from */
		apply(w, 3, 6);
		at(w, 3)->down = false;
		exchanges(w, 50);
		apply_all(w, 8);
		exchanges(w, 50);
		for (uint32_t i = 1; i <= 3; i++) {
			check_fine(w, i);
			ck_assert_uint_eq(at(w, i)->d.agreed, 8 * DIGEST_ENTRIES);
		}
		ck_assert_uint_eq(digests_member(&at(w, 3 - wrong)->d, wrong)->differs, 0);
		mem_free(w);
	}
}
END_TEST

/* All three say something else: nobody goes. Nor does who learns count, but goes if it is the one. */
START_TEST(test_who_counts)
{
	struct world *w = world_new(3, 4);

	at(w, 2)->wrong_from = at(w, 3)->wrong_from = 1;
	at(w, 2)->wrong = 1;
	at(w, 3)->wrong = 2;
	apply_all(w, 3);
	exchanges(w, 100);
	for (uint32_t i = 1; i <= 3; i++)
		check_fine(w, i);
	mem_free(w);
	w = world_new(5, 5);
	w->config.members[3].voter = w->config.members[4].voter = false;
	for (uint32_t i = 2; i <= 5; i++)
		at(w, i)->wrong_from = 1;
	at(w, 2)->wrong = at(w, 4)->wrong = at(w, 5)->wrong = 1;
	at(w, 3)->wrong = 2;
	apply_all(w, 3);
	exchanges(w, 100);
	for (uint32_t i = 1; i <= 5; i++)
		check_fine(w, i);
	at(w, 3)->wrong_from = 0; /* it had them in memory only */
	restart(w, 3);
	apply_all(w, 5);
	exchanges(w, 100);
	check_fine(w, 1);
	check_fine(w, 3);
	for (uint32_t i = 2; i <= 5; i += i == 2 ? 2 : 1)
		ck_assert_uint_gt(at(w, i)->found, 0);
	mem_free(w);
}
END_TEST

/* One that is far behind is compared when it comes there, and holds nobody up for long. */
START_TEST(test_laggard)
{
	struct world *w = world_new(3, 6);

	at(w, 3)->wrong_from = 40;
	at(w, 3)->wrong = 1;
	for (uint64_t marks = 1; marks <= 200; marks++) {
		apply(w, 1, marks);
		apply(w, 2, marks);
		if (marks > 100)
			apply(w, 3, marks - 100);
		exchange(w);
	}
	ck_assert_uint_ge(at(w, 3)->found, 40);
	ck_assert_uint_lt(at(w, 3)->found, 160); /* the lag, and a question */
	ck_assert_uint_gt(at(w, 2)->d.agreed, 150 * DIGEST_ENTRIES);
	check_fine(w, 1);
	mem_free(w);
}
END_TEST

/* Who is removed is forgotten; what comes from strangers, or of no mark, is passed over. */
START_TEST(test_members_that_go)
{
	struct world *w = world_new(3, 7);
	struct digests_mark mark = {.index = DIGEST_ENTRIES, .crc = 77};

	apply_all(w, 1);
	for (uint64_t id = 2; id < 50; id++)
		digests_hear(&at(w, 1)->d, id, 1, &mark);
	exchanges(w, 1);
	ck_assert_ptr_null(digests_member(&at(w, 1)->d, 4));
	mark.index = DIGEST_ENTRIES + 1;
	digests_hear(&at(w, 2)->d, 1, 1, &mark);
	ck_assert_ptr_null(digests_member(&at(w, 2)->d, 9));
	w->config.count = 1;
	exchanges(w, 1);
	ck_assert_ptr_null(digests_member(&at(w, 1)->d, 2));
	mem_free(w);
}
END_TEST

/* Rows that one got from another are no witness for them: what was wrong in them before they were given is wrong in both. */
START_TEST(test_given_tables_are_no_witnesses)
{
	for (uint64_t leader = 1; leader <= 3; leader++) {
		struct world *w = world_new(3, 9);

		apply_all(w, 1);
		exchanges(w, 5);
		at(w, 1)->wrong_from = 2;
		at(w, 1)->wrong = 1;
		at(w, 3)->down = true;
		apply(w, 1, 2);
		give_table(w, 1, 3);
		at(w, 3)->down = false;
		w->leader = leader;
		w->term++;
		for (uint64_t marks = 3; marks < 8; marks++) {
			apply_all(w, marks);
			exchanges(w, 20);
			if (marks == 5)
				restart(w, 3);
		}
		for (uint64_t id = 1; id <= 3; id++) {
			check_fine(w, id);
			ck_assert_uint_le(at(w, id)->d.agreed, DIGEST_ENTRIES);
		}
		ck_assert(digests_doubts(&at(w, leader)->d, &w->config));
		mem_free(w);
	}
}
END_TEST

/* Once all have had the same as it behind its table's beginning it is as good a witness as any, also for one that has forgotten all. */
START_TEST(test_given_tables_become_witnesses)
{
	for (uint64_t wrong = 1; wrong <= 3; wrong++) {
		struct world *w = world_new(3, 10);

		apply_all(w, 2);
		give_table(w, 1, 2);
		give_table(w, 1, 3);
		apply_all(w, 3);
		exchanges(w, 10);
		ck_assert_uint_eq(at(w, 3)->d.since, 0);
		at(w, wrong)->wrong_from = 4;
		at(w, wrong)->wrong = 1;
		w->leader = wrong;
		w->term++;
		restart(w, wrong);
		apply_all(w, 4);
		exchanges(w, 10);
		for (uint64_t id = 1; id <= 3; id++)
			ck_assert_uint_eq(at(w, id)->found, id == wrong ? 4 : 0);
		mem_free(w);
	}
}
END_TEST

/* Two of five that have their tables from another one are no witnesses for its mistakes, but for those of the two others. */
START_TEST(test_witnesses_against_whom)
{
	for (uint64_t wrong = 1; wrong <= 2; wrong++) {
		struct world *w = world_new(5, 11);

		apply_all(w, 1);
		exchanges(w, 5);
		at(w, 1)->wrong_from = wrong == 1 ? 2 : 0;
		at(w, 1)->wrong = 1;
		at(w, 2)->wrong_from = wrong == 2 ? 4 : 0;
		at(w, 2)->wrong = 1;
		apply_all(w, 2);
		give_table(w, 1, 4);
		give_table(w, 1, 5);
		apply_all(w, 3);
		exchanges(w, 20); /* 2 has the same as they, if 1 is right */
		apply_all(w, 4);
		exchanges(w, 20);
		for (uint64_t id = 1; id <= 5; id++)
			ck_assert_uint_eq(at(w, id)->found, wrong == 2 && id == 2 ? 4 : 0);
		mem_free(w);
	}
}
END_TEST

/* There is a doubt for as long as nobody knows who is right, and while both are members. */
START_TEST(test_doubt)
{
	struct world *w = world_new(3, 12);

	at(w, 2)->wrong_from = 2;
	at(w, 2)->wrong = 1;
	at(w, 3)->down = true;
	apply_all(w, 1);
	exchanges(w, 20);
	ck_assert(!digests_doubts(&at(w, 1)->d, &w->config));
	apply_all(w, 2);
	exchanges(w, 20);
	ck_assert(digests_doubts(&at(w, 1)->d, &w->config));
	w->config.members[1].voter = false; /* who learns is no voice against it */
	ck_assert(!digests_doubts(&at(w, 1)->d, &w->config));
	w->config.members[1].voter = true;
	at(w, 3)->down = false;
	apply_all(w, 2);
	exchanges(w, 20);
	ck_assert_uint_eq(at(w, 2)->found, 2);
	ck_assert_uint_eq(digests_member(&at(w, 1)->d, 2)->differs, 2 * DIGEST_ENTRIES);
	ck_assert(!digests_doubts(&at(w, 1)->d, &w->config)); /* most have what it has */
	mem_free(w);
}
END_TEST

/* The leader is wrong, and one of the others is far behind: what one has said waits for what the other will say. */
START_TEST(test_leader_is_wrong_and_one_lags)
{
	struct world *w = world_new(3, 13);

	at(w, 1)->wrong_from = 40;
	at(w, 1)->wrong = 1;
	for (uint64_t marks = 1; marks <= 120; marks++) {
		apply(w, 1, marks);
		apply(w, 2, marks);
		if (marks > 20)
			apply(w, 3, marks - 20);
		exchange(w);
	}
	ck_assert_uint_ge(at(w, 1)->found, 40);
	ck_assert_uint_lt(at(w, 1)->found, 90);
	check_fine(w, 2);
	check_fine(w, 3);
	mem_free(w);
}
END_TEST

/* Who is to vote soon is asked first; what it cannot know is not waited for. What was settled before it voted is not any more. */
START_TEST(test_who_learns)
{
	struct world *w = world_new(2, 14);
	struct digests *d = &at(w, 1)->d;

	w->config.members[1].voter = false;
	ck_assert(!digests_owes(d, 2)); /* there is nothing to be asked about yet */
	at(w, 2)->down = true;
	apply(w, 1, 2);
	exchanges(w, 2);
	ck_assert(digests_owes(d, 2));
	at(w, 2)->down = false;
	apply(w, 2, 1);
	exchanges(w, 20);
	ck_assert(digests_owes(d, 2));
	apply(w, 2, 2);
	exchanges(w, 3);
	ck_assert(!digests_owes(d, 2));
	mem_free(w);
	w = world_new(2, 15);
	d = &at(w, 1)->d;
	w->config.members[1].voter = false;
	apply(w, 1, 2);
	give_table(w, 1, 2);
	exchanges(w, 1);
	ck_assert(digests_owes(d, 2));
	exchanges(w, 3);
	ck_assert(!digests_owes(d, 2)); /* its table began behind that mark */
	ck_assert_uint_eq(digests_member(d, 2)->agreed, 0);
	ck_assert(at(w, 1)->d.round.settled);
	w->config.members[1].voter = true;
	at(w, 2)->down = true;
	exchanges(w, 1);
	ck_assert(!at(w, 1)->d.round.settled);
	mem_free(w);
}
END_TEST

/* ---- histories ---- */

static int tables_given, wrong_tables_given, all_found;

static bool has_doubt(struct world *w, uint64_t id)
{
	return digests_doubts(&at(w, id)->d, &w->config);
}

/* Of whoever leads, if it may. */
static void give_some_table(struct world *w, uint64_t to)
{
	if (w->leader == to || at(w, w->leader)->down || at(w, w->leader)->found || at(w, to)->found || at(w, to)->applied > at(w, w->leader)->applied ||
		has_doubt(w, w->leader))
		return;
	tables_given++;
	wrong_tables_given += is_wrong(at(w, w->leader));
	give_table(w, w->leader, to);
}

/* Who never had the table of another is a witness against anybody. */
static bool most_are_witnesses(struct world *w)
{
	uint32_t count = 0;

	for (uint32_t id = 1; id <= w->config.count; id++)
		count += !at(w, id)->since && !at(w, id)->wrong_from;
	return count > w->config.count / 2;
}

/*
 * Letters are lost, leaders change, replicas restart and get tables, and one goes wrong, or none: nobody who is right is ever found; and who is wrong is,
 * as is whoever has its table, where most have made their own.
 */
static void history(uint64_t seed)
{
	struct world *w = world_new(seed % 2 ? 3 : 5, seed);
	uint64_t marks = 1, wrong = seed % 3 ? rng_between(&w->rng, 1, w->config.count) : 0;
	uint32_t tables = seed % 4 ? 30 : 600; /* one in so many turns */
	bool ends_well;

	w->loss = (uint32_t)rng_below(&w->rng, 60);
	if (wrong) {
		at(w, wrong)->wrong_from = rng_between(&w->rng, 1, 60);
		at(w, wrong)->wrong = (uint32_t)rng_u64(&w->rng) | 1;
	}
	for (int i = 0; i < 600; i++) {
		uint64_t id = rng_between(&w->rng, 1, w->config.count);

		marks += rng_chance(&w->rng, 1, 4);
		for (uint32_t other = 1; other <= w->config.count; other++)
			if (!at(w, other)->down && rng_chance(&w->rng, 1, 3))
				apply(w, other, rng_between(&w->rng, at(w, other)->applied, marks));
		if (rng_chance(&w->rng, 1, 30)) {
			w->leader = rng_between(&w->rng, 1, w->config.count);
			w->term++;
		}
		if (rng_chance(&w->rng, 1, 40))
			at(w, id)->down = !at(w, id)->down;
		if (rng_chance(&w->rng, 1, 40))
			restart(w, id);
		if (rng_chance(&w->rng, 1, tables))
			give_some_table(w, id);
		exchange(w);
	}
	w->loss = 0;
	ends_well = most_are_witnesses(w);
	all_found += ends_well && wrong;
	for (uint32_t id = 1; id <= w->config.count; id++)
		at(w, id)->down = false;
	for (w->leader = 1; w->leader <= w->config.count; w->leader++) {
		w->term++;
		apply_all(w, ++marks);
		exchanges(w, 40);
	}
	for (uint32_t id = 1; id <= w->config.count; id++) {
		const struct node *n = at(w, id);

		ck_assert_msg(!n->found || is_wrong(n), "seed %d: replica %d is right, and stops", (int)seed, (int)id);
		ck_assert_msg(n->found || !is_wrong(n) || !ends_well, "seed %d: replica %d is wrong, and is not found", (int)seed, (int)id);
	}
	mem_free(w);
}

START_TEST(test_histories)
{
	for (uint64_t seed = 1; seed <= 600; seed++)
		history(seed);
	ck_assert_int_gt(tables_given, 1000);
	ck_assert_int_gt(wrong_tables_given, 30);
	ck_assert_int_gt(all_found, 100);
}
END_TEST

UNIT_MAIN("digests", test_example, test_leader_is_wrong, test_third_decides, test_table_of_another, test_who_counts, test_laggard,
	test_given_tables_are_no_witnesses, test_given_tables_become_witnesses, test_witnesses_against_whom, test_doubt,
	test_leader_is_wrong_and_one_lags, test_who_learns, test_members_that_go, test_histories)
