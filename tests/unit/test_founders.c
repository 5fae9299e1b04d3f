/* SPDX-License-Identifier: Apache-2.0 */
/* Who may found a group: what is decided of what is said, and that nobody ever takes part who lost its directory, whatever comes late and in whatever order. */
#include "metad/founders.h"

#include <string.h>
#include "common/base/rng.h"
#include "tests/lib/unit.h"

static const struct uuid cluster = {.bytes = {7}};

/* ---- decisions ---- */

static void nonce_of(uint64_t number, uint8_t out[FOUNDERS_NONCE_BYTES])
{
	memset(out, 0, FOUNDERS_NONCE_BYTES);
	memcpy(out, &number, sizeof(number));
}

static struct founders of_three(uint64_t self)
{
	struct founders f = {.self = self, .count = 3};

	f.said[self - 1].heard = true;
	nonce_of(self, f.said[self - 1].nonce);
	return f;
}

static void hear(struct founders *f, uint64_t id, uint64_t nonce, const struct founders_roll *roll, bool member)
{
	f->said[id - 1] = (struct founders_said){.heard = true, .member = member};
	nonce_of(nonce, f->said[id - 1].nonce);
	if (roll)
		f->said[id - 1].roll = *roll;
}

static struct founders_roll roll_of(uint64_t a, uint64_t b, uint64_t c)
{
	struct founders_roll roll = {.count = 3};

	nonce_of(a, roll.nonces[0]);
	nonce_of(b, roll.nonces[1]);
	nonce_of(c, roll.nonces[2]);
	return roll;
}

static void decides(const struct founders *f, enum founders_step want, uint64_t who)
{
	struct founders_roll roll;
	uint64_t of;

	ck_assert_int_eq(founders_decide(f, &roll, &of), want);
	if (want != FOUNDERS_ACCEPT && want != FOUNDERS_TAKE_PART)
		ck_assert_uint_eq(of, who);
}

START_TEST(test_in_order)
{
	struct founders_roll all = roll_of(1, 2, 3), roll;
	struct founders f = of_three(2);
	uint64_t who;

	decides(&f, FOUNDERS_WAIT, 1);
	hear(&f, 1, 1, NULL, false);
	decides(&f, FOUNDERS_WAIT, 3);
	hear(&f, 3, 3, NULL, false);
	ck_assert_int_eq(founders_decide(&f, &roll, &who), FOUNDERS_ACCEPT);
	ck_assert(founders_roll_equal(&roll, &all));
	f.said[1].roll = all;
	decides(&f, FOUNDERS_WAIT, 1);
	hear(&f, 1, 1, &all, false);
	decides(&f, FOUNDERS_WAIT, 3);
	hear(&f, 3, 3, &all, false);
	decides(&f, FOUNDERS_TAKE_PART, 0);
}
END_TEST

START_TEST(test_another_was_first)
{
	struct founders_roll all = roll_of(1, 2, 3), roll;
	struct founders f = of_three(2);
	uint64_t who;

	hear(&f, 3, 3, &all, false); /* it has heard all, this one only of it */
	ck_assert_int_eq(founders_decide(&f, &roll, &who), FOUNDERS_ACCEPT);
	ck_assert(founders_roll_equal(&roll, &all));
	f.said[1].roll = all;
	decides(&f, FOUNDERS_WAIT, 1);
	hear(&f, 3, 3, &all, true); /* which it does when all have accepted it */
	decides(&f, FOUNDERS_TAKE_PART, 0);
}
END_TEST

START_TEST(test_lost)
{
	struct founders_roll old = roll_of(1, 9, 3), none = {.count = 0};
	struct founders f = of_three(2);

	hear(&f, 3, 3, &old, true);
	decides(&f, FOUNDERS_LOST, 3);
	hear(&f, 1, 1, NULL, false); /* nor with another one that lost its own */
	decides(&f, FOUNDERS_LOST, 3);
	hear(&f, 3, 0, &none, true); /* of a group that an older build founded */
	decides(&f, FOUNDERS_LOST, 3);
	f.said[1].roll = roll_of(1, 2, 3); /* or one whose roll cannot be read any more: this one had no second */
	decides(&f, FOUNDERS_UNSAID, 3);
	hear(&f, 1, 1, &f.said[1].roll, true);
	decides(&f, FOUNDERS_TAKE_PART, 0);
	hear(&f, 1, 1, &old, true);
	decides(&f, FOUNDERS_LOST, 1);
	hear(&f, 1, 0, &none, true); /* whoever of them can say it */
	hear(&f, 3, 3, &old, true);
	decides(&f, FOUNDERS_LOST, 3);
}
END_TEST

START_TEST(test_lost_amid_it)
{
	struct founders_roll old = roll_of(1, 9, 3), mine = roll_of(1, 2, 3);
	struct founders f = of_three(2);

	hear(&f, 3, 3, &old, false); /* this one did */
	decides(&f, FOUNDERS_DIFFER, 3);
	f = of_three(2);
	f.said[1].roll = mine;
	hear(&f, 1, 8, NULL, false); /* another one did */
	decides(&f, FOUNDERS_DIFFER, 1);
	hear(&f, 1, 1, &old, false);
	decides(&f, FOUNDERS_DIFFER, 1);
	f = of_three(2);
	hear(&f, 1, 8, NULL, false);
	hear(&f, 3, 3, &mine, false);
	decides(&f, FOUNDERS_DIFFER, 1);
}
END_TEST

START_TEST(test_other_founders)
{
	struct founders_roll two = {.count = 2}, five = {.count = 5}, roll;
	struct founders f = of_three(2);
	uint64_t who;

	nonce_of(1, two.nonces[0]);
	nonce_of(2, two.nonces[1]);
	five = roll_of(1, 2, 3);
	five.count = 5;
	hear(&f, 1, 1, &two, false);
	decides(&f, FOUNDERS_DIFFER, 1);
	hear(&f, 1, 1, &five, false);
	decides(&f, FOUNDERS_DIFFER, 1);
	hear(&f, 1, 1, &five, true);
	decides(&f, FOUNDERS_LOST, 1);
	f.count = 2;
	hear(&f, 1, 1, &five, false);
	decides(&f, FOUNDERS_DIFFER, 1);
	hear(&f, 1, 1, &two, false);
	ck_assert_int_eq(founders_decide(&f, &roll, &who), FOUNDERS_ACCEPT);
	ck_assert(founders_roll_equal(&roll, &two));
}
END_TEST

/* ---- all that may happen ---- */

enum { MOST = 3, SAYINGS = 512 };

static struct world {
	struct rng rng;
	uint32_t count;
	bool few; /* the last one is not named by the others */
	uint64_t next_nonce;
	struct member {
		struct founders f;
		bool ended;
	} members[MOST];
	/* Each answer that was ever given: any of them may come now. */
	struct saying {
		uint64_t of;
		struct founders_said said;
	} sayings[SAYINGS];
	uint32_t said;
	uint32_t parts, lost, differ, wiped;
} w;

static struct founders_said *own(struct member *m)
{
	return &m->f.said[m->f.self - 1];
}

static void fresh(uint64_t id)
{
	struct member *m = &w.members[id - 1];

	*m = (struct member){.f = {.self = id, .count = w.few && id < w.count ? w.count - 1 : w.count}};
	own(m)->heard = true;
	nonce_of(++w.next_nonce, own(m)->nonce);
}

/* As long as the directory of one that took part is there, all that take part do so by its roll. */
static void check_parts(const struct member *newcomer)
{
	const struct founders_said *said = &newcomer->f.said[newcomer->f.self - 1];

	for (uint32_t i = 0; i < w.count; i++) {
		const struct founders_said *other = own(&w.members[i]);

		if (other->member)
			ck_assert(founders_roll_equal(&other->roll, &said->roll));
		ck_assert(!other->member || memcmp(said->roll.nonces[i], other->nonce, FOUNDERS_NONCE_BYTES) == 0);
	}
}

static void take_step(struct member *m)
{
	struct founders_roll roll;
	uint64_t who;

	if (m->ended || own(m)->member)
		return;
	switch (founders_decide(&m->f, &roll, &who)) {
	case FOUNDERS_WAIT:
		break;
	case FOUNDERS_ACCEPT:
		ck_assert_uint_eq(own(m)->roll.count, 0);
		ck_assert_mem_eq(roll.nonces[m->f.self - 1], own(m)->nonce, FOUNDERS_NONCE_BYTES);
		own(m)->roll = roll;
		break;
	case FOUNDERS_TAKE_PART:
		own(m)->member = true;
		w.parts++;
		check_parts(m);
		break;
	case FOUNDERS_LOST:
		w.lost++;
		m->ended = true;
		break;
	case FOUNDERS_DIFFER:
	case FOUNDERS_UNSAID:
		w.differ++;
		break;
	}
}

static uint64_t any(uint64_t n)
{
	return rng_below(&w.rng, n);
}

/* A start knows what is durable, and no more. */
static void restart(struct member *m)
{
	struct founders_said said = *own(m);

	memset(m->f.said, 0, sizeof(m->f.said));
	*own(m) = said;
	m->ended = false;
}

static void happen(uint32_t wipes)
{
	uint64_t id = any(w.count) + 1, what = any(100);
	struct member *m = &w.members[id - 1];

	if (what < 40) {
		if (w.said < SAYINGS)
			w.sayings[w.said++] = (struct saying){.of = id, .said = *own(m)};
	} else if (what < 75 && w.said) {
		const struct saying *s = &w.sayings[any(w.said)];

		if (s->of != id && s->of <= m->f.count && !own(m)->member)
			m->f.said[s->of - 1] = s->said;
	} else if (what < 95) {
		take_step(m);
	} else if (what < 97) {
		restart(m);
	} else if (what < 98) { /* one does not answer any more */
		struct founders_said *said = &m->f.said[any(m->f.count)];

		if (said != own(m) && said->roll.count == 0 && !own(m)->member)
			*said = (struct founders_said){.heard = false};
	} else if (w.wiped < wipes) {
		w.wiped++;
		fresh(id);
	}
}

static void live(uint64_t seed, uint32_t count, bool few, uint32_t wipes)
{
	uint32_t parts = w.parts, lost = w.lost, differ = w.differ;

	memset(&w, 0, sizeof(w));
	w.parts = parts;
	w.lost = lost;
	w.differ = differ;
	w.count = count;
	w.few = few;
	rng_init(&w.rng, seed);
	for (uint32_t i = 0; i < count; i++)
		fresh(i + 1);
	for (int i = 0; i < 400; i++)
		happen(wipes);
	if (w.wiped || few)
		return;
	/* Where nothing was lost, all take part when they have heard each other. */
	for (uint32_t round = 0; round < 4; round++)
		for (uint32_t i = 0; i < count; i++) {
			for (uint32_t j = 0; j < count; j++)
				if (i != j)
					w.members[i].f.said[j] = *own(&w.members[j]);
			take_step(&w.members[i]);
		}
	for (uint32_t i = 0; i < count; i++)
		ck_assert(own(&w.members[i])->member);
}

START_TEST(test_whatever_happens)
{
	memset(&w, 0, sizeof(w));
	for (uint64_t seed = 1; seed <= 20000; seed += unit_step())
		live(seed, seed % 2 ? 3 : 2, seed % 10 == 1, (uint32_t)(seed / 2 % 4));
	ck_assert_uint_gt(w.parts, 1000 / unit_step());
	ck_assert_uint_gt(w.lost, 100 / unit_step());
	ck_assert_uint_gt(w.differ, 100 / unit_step());
}
END_TEST

/* ---- DIR/log/founders ---- */

START_TEST(test_file)
{
	const struct uuid other = {.bytes = {8}};
	struct founders_said said = {.heard = true}, in;
	uint8_t bytes[FOUNDERS_BYTES_MAX + 1];
	struct err err;

	for (int with_roll = 0; with_roll < 2; with_roll++) {
		size_t len;

		nonce_of(77, said.nonce);
		if (with_roll)
			said.roll = roll_of(5, 77, 6);
		len = founders_encode(&cluster, 2, &said, bytes);
		ck_assert_uint_eq(len, with_roll ? 104 : 56);
		ck_assert_int_eq(founders_decode("file", slice_of(bytes, len), &cluster, 2, &in, &err), 0);
		ck_assert(in.heard && !in.member && founders_roll_equal(&in.roll, &said.roll));
		ck_assert_mem_eq(in.nonce, said.nonce, sizeof(in.nonce));
		ck_assert_int_eq(founders_decode("file", slice_of(bytes, len), &cluster, 3, &in, &err), ERR_INVAL);
		ck_assert_int_eq(founders_decode("file", slice_of(bytes, len), &other, 2, &in, &err), ERR_WRONG_CLUSTER);
		for (size_t i = 0; i < len; i++) {
			int rc;

			ck_assert_int_eq(founders_decode("file", slice_of(bytes, i), &cluster, 2, &in, &err), ERR_CORRUPT);
			bytes[i] ^= 1;
			rc = founders_decode("file", slice_of(bytes, len), &cluster, 2, &in, &err);
			ck_assert_int_eq(rc, i >= 4 && i < 8 ? ERR_VERSION : ERR_CORRUPT);
			bytes[i] ^= 1;
		}
		ck_assert_int_eq(founders_decode("file", slice_of(bytes, len + 1), &cluster, 2, &in, &err), ERR_CORRUPT);
	}
}
END_TEST

UNIT_MAIN("founders", test_in_order, test_another_was_first, test_lost, test_lost_amid_it, test_other_founders, test_whatever_happens, test_file)
