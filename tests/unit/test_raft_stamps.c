/* SPDX-License-Identifier: Apache-2.0 */
/* Stamps of letters: each is taken once, by who it is for, as long as that one lives. */
#include "metad/raft_stamps.h"

#include <string.h>
#include "tests/lib/unit.h"

static const uint8_t first[RAFT_LIFE_BYTES] = {1}, second[RAFT_LIFE_BYTES] = {2}, third[RAFT_LIFE_BYTES] = {3};

/* One that writes to one that takes. */
struct pair {
	struct raft_stamps from, to;
	struct raft_stamps_other to_known, from_known; /* as `from` knows `to`, and as `to` does `from` */
};

static void begin_from(struct pair *p, const uint8_t *life)
{
	raft_stamps_init(&p->from, life);
	raft_stamps_meet(&p->from, &p->to_known);
}

static void begin_to(struct pair *p, const uint8_t *life)
{
	raft_stamps_init(&p->to, life);
	raft_stamps_meet(&p->to, &p->from_known);
}

static struct pair pair_of(const uint8_t *from, const uint8_t *to)
{
	struct pair p;

	begin_from(&p, from);
	begin_to(&p, to);
	return p;
}

static void tell(struct pair *p)
{
	struct raft_stamp wanted = raft_stamps_wanted(&p->to, &p->from_known);

	raft_stamps_told(&p->from, &p->to_known, &wanted);
}

static struct raft_stamp next(struct pair *p)
{
	return raft_stamps_next(&p->from, p->to_known.life);
}

static bool take(struct pair *p, struct raft_stamp stamp)
{
	return raft_stamps_take(&p->to, &p->from_known, RAFT_SERIES_MESSAGES, &stamp);
}

START_TEST(test_example)
{
	struct pair p = pair_of(first, second);
	struct raft_stamp stamp;

	ck_assert(!p.to_known.lives);
	ck_assert(!take(&p, (struct raft_stamp){.number = 0}));
	tell(&p);
	ck_assert(p.to_known.lives);
	stamp = next(&p);
	ck_assert(take(&p, stamp));
	ck_assert(!take(&p, stamp)); /* once */
	ck_assert(take(&p, next(&p)));
	ck_assert(!take(&p, stamp));
}
END_TEST

/* What left later is behind nothing that left before; letters may be lost. */
START_TEST(test_order)
{
	struct pair p = pair_of(first, second);
	struct raft_stamp early, late;

	tell(&p);
	early = next(&p);
	late = next(&p);
	ck_assert(take(&p, late));
	ck_assert(!take(&p, early));
	ck_assert(take(&p, next(&p)));
}
END_TEST

/* Letters over several connections do not wait for each other. */
START_TEST(test_series)
{
	struct pair p = pair_of(first, second);
	struct raft_stamp stamps[RAFT_SERIES];

	tell(&p);
	for (int i = 0; i < RAFT_SERIES; i++)
		stamps[i] = next(&p);
	for (int i = RAFT_SERIES - 1; i >= 0; i--) {
		ck_assert(raft_stamps_take(&p.to, &p.from_known, (enum raft_series)i, &stamps[i]));
		ck_assert(!raft_stamps_take(&p.to, &p.from_known, (enum raft_series)i, &stamps[i]));
	}
	ck_assert_uint_eq(raft_stamps_wanted(&p.to, &p.from_known).number, stamps[RAFT_SERIES - 1].number);
}
END_TEST

/* Who takes has started again: nothing of before is taken, and one exchange is enough. */
START_TEST(test_another_life)
{
	struct pair p = pair_of(first, second);
	struct raft_stamp before, on_its_way;

	tell(&p);
	before = next(&p);
	on_its_way = next(&p);
	ck_assert(take(&p, before));
	begin_to(&p, third);
	ck_assert(!take(&p, before));
	ck_assert(!take(&p, on_its_way));
	ck_assert(!take(&p, next(&p)));
	tell(&p);
	ck_assert(take(&p, next(&p)));
	ck_assert(!take(&p, on_its_way));
}
END_TEST

/* Who writes has started again, and counts from the beginning: it goes on above what was taken of its life before. */
START_TEST(test_sender_starts_again)
{
	struct pair p = pair_of(first, second);
	struct raft_stamp before[5];

	tell(&p);
	for (int i = 0; i < 5; i++) {
		before[i] = next(&p);
		ck_assert(take(&p, before[i]));
	}
	begin_from(&p, third);
	tell(&p);
	ck_assert(take(&p, next(&p)));
	for (int i = 0; i < 5; i++)
		ck_assert(!take(&p, before[i]));
}
END_TEST

/* Who is not known any more, or not yet, has nothing taken twice; and somebody else who is not, with smaller numbers, is told where to begin. */
START_TEST(test_who_is_not_known)
{
	struct pair p = pair_of(first, second), other = pair_of(third, second);
	struct raft_stamp stamp, wanted;

	tell(&p);
	for (int i = 0; i < 10; i++)
		stamp = next(&p);
	ck_assert(take(&p, stamp));
	raft_stamps_part(&p.to, &p.from_known);
	ck_assert(!raft_stamps_take(&p.to, NULL, RAFT_SERIES_MESSAGES, &stamp));
	stamp = next(&p);
	ck_assert(raft_stamps_take(&p.to, NULL, RAFT_SERIES_MESSAGES, &stamp));
	ck_assert(!raft_stamps_take(&p.to, NULL, RAFT_SERIES_KNOCKS, &stamp));
	raft_stamps_meet(&p.to, &p.from_known);
	ck_assert(!take(&p, stamp));
	ck_assert(take(&p, next(&p)));

	stamp = raft_stamps_next(&other.from, second);
	ck_assert(!raft_stamps_take(&p.to, NULL, RAFT_SERIES_MESSAGES, &stamp));
	wanted = raft_stamps_wanted(&p.to, NULL);
	raft_stamps_told(&other.from, NULL, &wanted);
	stamp = raft_stamps_next(&other.from, wanted.life);
	ck_assert(raft_stamps_take(&p.to, NULL, RAFT_SERIES_MESSAGES, &stamp));
}
END_TEST

/* An answer that comes late takes no number back. */
START_TEST(test_late_answers)
{
	struct pair p = pair_of(first, second);
	struct raft_stamp wanted = raft_stamps_wanted(&p.to, &p.from_known), stamp;

	tell(&p);
	stamp = next(&p);
	ck_assert(take(&p, stamp));
	raft_stamps_told(&p.from, &p.to_known, &wanted);
	ck_assert(take(&p, next(&p)));
}
END_TEST

UNIT_MAIN("raft_stamps", test_example, test_order, test_series, test_another_life, test_sender_starts_again,
	test_who_is_not_known, test_late_answers)
