/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/linear.h"

#include <stdio.h>
#include <string.h>
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "tests/lib/linear_json.h"
#include "tests/lib/unit.h"

#define NEVER UINT64_MAX

static void put(struct linear_history *h, enum linear_kind kind, const char *name, const char *to, uint64_t invoke,
	uint64_t ret, enum linear_outcome outcome, uint64_t inode)
{
	struct linear_op *op = linear_add(h);

	op->kind = kind;
	op->outcome = outcome;
	op->client = (uint32_t)h->count;
	op->invoke = invoke;
	op->ret = ret;
	op->inode = inode;
	snprintf(op->name, sizeof(op->name), "%s", name);
	snprintf(op->to, sizeof(op->to), "%s", to ? to : "");
}

/*
 * A history as words: OPERATION NAME[>NAME] INVOKE-RETURN ANSWER; an answer is an inode, or + (done), E (EEXIST), N (ENOENT), ? (none).
 * c create, l lookup, u unlink, r rename, R rename that replaces nothing, k link.
 */
static struct linear_history read_words(const char *text)
{
	struct linear_history h = {0};
	char what, names[32], answer[16];
	unsigned long from, to;
	int n;

	for (; sscanf(text, " %c %31s %lu-%lu %15s%n", &what, names, &from, &to, answer, &n) == 5; text += n) {
		static const char letters[] = "clurRk";
		static const enum linear_kind kinds[] = {
			LINEAR_CREATE, LINEAR_LOOKUP, LINEAR_UNLINK, LINEAR_RENAME, LINEAR_RENAME, LINEAR_LINK};
		char *second = strchr(names, '>');
		enum linear_outcome outcome = answer[0] == 'E' ? LINEAR_EXIST
			: answer[0] == 'N'                     ? LINEAR_NOENT
			: answer[0] == '?'                     ? LINEAR_UNKNOWN
							       : LINEAR_OK;

		ck_assert_ptr_nonnull(strchr(letters, what));
		if (second)
			*second++ = '\0';
		put(&h, kinds[strchr(letters, what) - letters], names, second, from, to, outcome,
			strtoul(answer, NULL, 10));
		h.ops[h.count - 1].noreplace = what == 'R';
	}
	ck_assert_msg(text[strspn(text, " ")] == '\0', "cannot read: %s", text);
	return h;
}

static enum linear_verdict verdict_of(const struct linear_history *h)
{
	struct linear_result r;
	enum linear_verdict v;

	linear_check(h, LINEAR_BYTES, &r);
	v = r.verdict;
	ck_assert_int_eq(v == LINEAR_NO, r.window_count > 0);
	linear_result_fini(&r);
	return v;
}

static void expect(const char *text, enum linear_verdict want)
{
	struct linear_history h = read_words(text);
	struct linear_result r;
	struct buf out;

	linear_check(&h, LINEAR_BYTES, &r);
	buf_init(&out, 1 << 16);
	linear_describe(&h, &r, &out);
	ck_assert_msg(r.verdict == want, "%s\n%.*s", text, (int)out.len, (const char *)out.data);
	buf_fini(&out);
	linear_result_fini(&r);
	linear_fini(&h);
}

static void good(const char *text)
{
	expect(text, LINEAR_YES);
}

static void bad(const char *text)
{
	expect(text, LINEAR_NO);
}

START_TEST(test_example)
{
	struct linear_history h = {0};
	struct linear_result r;

	/* a is made, and a lookup that began after that found nothing: a stale read. */
	put(&h, LINEAR_CREATE, "a", NULL, 10, 20, LINEAR_OK, 7);
	put(&h, LINEAR_LOOKUP, "a", NULL, 30, 40, LINEAR_NOENT, 0);
	linear_check(&h, LINEAR_BYTES, &r);
	ck_assert_int_eq(r.verdict, LINEAR_NO);
	ck_assert_uint_eq(r.window_count, 2);
	linear_result_fini(&r);
	linear_fini(&h);
}
END_TEST

START_TEST(test_create_and_lookup)
{
	good("");
	good("l a 1-2 N");
	good("c a 1-2 7  l a 3-4 7  c a 5-6 E");
	good("c a 1-9 7  l a 2-3 N  l a 4-5 7"); /* between the two */
	bad("c a 1-9 7  l a 2-3 7  l a 4-5 N");  /* back again */
	bad("l a 1-2 7");                        /* nobody made it */
	bad("c a 1-2 7  l a 3-4 8");
	bad("c a 1-2 E");
	bad("c a 1-2 7  c a 3-4 8"); /* made twice */
	good("c a 1-5 7  c a 2-6 E");
	bad("c a 1-5 7  c a 2-6 8");
	bad("c a 1-2 7  u a 3-4 +  c a 5-6 7"); /* a number again */
	bad("c a 1-2 7  c b 1-2 8  l b 3-4 7"); /* of a name that nothing couples */
	good("c a 1-3 7  l a 3-5 N");           /* at one instant: they overlap */
}
END_TEST

START_TEST(test_unlink)
{
	good("c a 1-2 7  u a 3-4 +  l a 5-6 N  u a 7-8 N  c a 9-10 8");
	bad("c a 1-2 7  u a 3-4 +  l a 5-6 7");
	bad("c a 1-2 7  u a 3-4 N");
	bad("u a 1-2 +");
	good("c a 1-2 7  u a 3-9 +  u a 4-8 N");
	bad("c a 1-2 7  u a 3-9 +  u a 4-8 +");
	bad("c a 1-2 7  u a 3-9 +  u a 4-5 N  l a 6-7 7");
}
END_TEST

START_TEST(test_rename)
{
	good("c a 1-2 7  r a>b 3-4 +  l b 5-6 7  l a 7-8 N");
	good("c a 1-2 7  c b 1-2 8  r a>b 3-4 +  l b 5-6 7  l a 7-8 N");
	bad("c a 1-2 7  c b 1-2 8  r a>b 3-4 +  l b 5-6 8");
	bad("c a 1-2 7  r a>b 3-4 +  l a 5-6 7");
	bad("r a>b 1-2 +");
	good("r a>b 1-2 N  r a>a 3-4 N");
	good("c a 1-2 7  r a>a 3-4 +  l a 5-6 7");
	bad("c a 1-2 7  r a>b 3-4 N");
	bad("c a 1-2 7  r a>b 3-9 +  l b 4-5 7  l a 6-7 7");               /* never at both */
	bad("c a 1-2 7  r a>b 3-9 +  l a 4-5 N  l b 6-7 N");               /* never at none */
	good("c a 1-2 7  k a>b 3-4 +  r a>b 5-6 +  l a 7-8 7  l b 7-8 7"); /* names of one inode: nothing happens */
	bad("c a 1-2 7  k a>b 3-4 +  r a>b 5-6 +  l a 7-8 N");
	good("c a 1-2 7  c b 1-2 8  R a>b 3-4 E  R b>c 5-6 +  R a>b 7-8 +");
	bad("c a 1-2 7  R a>b 3-4 E");
	bad("c a 1-2 7  c b 1-2 8  R a>b 3-4 +");
	good("c b 1-2 8  R a>b 3-4 N");
	/* a and b are exchanged by three, seen from two sides */
	good("c a 1-2 7  c b 1-2 8  r a>c 3-20 +  r b>a 3-20 +  r c>b 3-20 +  l a 21-22 8  l b 21-22 7");
	bad("c a 1-2 7  c b 1-2 8  r a>c 3-20 +  r b>a 3-20 +  r c>b 3-20 +  l a 21-22 7  l b 21-22 7");
}
END_TEST

START_TEST(test_link)
{
	good("c a 1-2 7  k a>b 3-4 +  l b 5-6 7  u a 7-8 +  l b 9-10 7");
	bad("c a 1-2 7  k a>b 3-4 +  u a 5-6 +  l b 7-8 N");
	bad("c a 1-2 7  k a>b 3-4 +  l b 5-6 8");
	good("c a 1-2 7  k a>a 3-4 E  k b>a 5-6 N  k b>c 7-8 N");
	bad("c a 1-2 7  c b 1-2 8  k a>b 3-4 +");
	bad("k a>b 1-2 +");
	bad("c a 1-2 7  k a>b 3-4 E");
	bad("c a 1-2 7  k a>b 3-4 N");
}
END_TEST

START_TEST(test_lost_answers)
{
	good("c a 1-0 ?  l a 3-4 N  l a 5-6 7  l a 7-8 7");
	good("c a 1-0 ?  l a 3-4 N  l a 500-600 N"); /* late, or never */
	bad("c a 5-0 ?  l a 3-4 7");                 /* not before it was asked for */
	bad("c a 1-0 ?  l a 3-4 7  l a 5-6 N");
	bad("c a 1-0 ?  l a 3-4 7  u a 5-6 +  l a 7-8 7"); /* once only */
	bad("c a 1-0 ?  l a 3-4 7  u a 5-6 +  l a 7-8 9");
	good("c a 1-0 ?  c a 1-0 ?  l a 3-4 7  u a 5-6 +  l a 7-8 9");
	bad("c a 1-0 ?  c a 1-0 ?  l a 3-4 7  u a 5-6 +  l a 7-8 7");
	good("c a 1-2 7  u a 3-0 ?  l a 5-6 7  l a 7-8 N");
	bad("c a 1-2 7  u a 3-0 ?  l a 5-6 N  l a 7-8 7");
	bad("c a 1-2 7  u a 3-0 ?  l a 5-6 N  c a 7-8 8  l a 9-10 N"); /* a change done twice */
	good("c a 1-2 7  r a>b 3-0 ?  l a 5-6 7  l b 7-8 7  l a 9-10 N");
	bad("c a 1-2 7  r a>b 3-0 ?  l b 5-6 7  l a 7-8 7");
	good("c a 1-0 ?  k a>b 3-4 +  l b 5-6 7  l a 7-8 7"); /* found at the other name */
	bad("c a 1-0 ?  k a>b 3-4 +  l b 5-6 7  l a 7-8 9");
	good("l a 1-0 ?  l a 3-4 N");
	good("c a 1-0 ?  k a>b 2-3 +  r a>b 4-5 +  l a 6-7 9");
}
END_TEST

START_TEST(test_no_history)
{
	expect("c a 5-3 7", LINEAR_MALFORMED);
	expect("c a 1-2 +", LINEAR_MALFORMED);
	expect("c a 1-2 N", LINEAR_MALFORMED);
	expect("u a 1-2 E", LINEAR_MALFORMED);
	expect("r a>b 1-2 E", LINEAR_MALFORMED);
	expect("r a 1-2 +", LINEAR_MALFORMED);
}
END_TEST

/* The window: what it takes, and nothing before or beside it. */
START_TEST(test_window)
{
	struct linear_history h = {0};
	struct linear_result r;
	uint64_t t = 100;
	struct buf out;

	for (uint64_t i = 0; i < 2000; i++, t += 10) {
		bool is_first = i % 4 == 0;
		const char *name = is_first ? "a" : i % 4 == 1 ? "b" : "c";

		put(&h, LINEAR_CREATE, name, NULL, t, t + 3, LINEAR_OK, 1000 + i);
		put(&h, LINEAR_LOOKUP, name, NULL, t + 4, t + 5, LINEAR_OK, 1000 + i);
		put(&h, LINEAR_RENAME, name, "d", t + 6, t + 7, LINEAR_OK, 0);
		if (i == 1500) {
			put(&h, LINEAR_LOOKUP, "d", NULL, t + 8, t + 9, LINEAR_OK, 1000 + i);
			put(&h, LINEAR_LOOKUP, "e", NULL, t + 8, t + 9, LINEAR_NOENT, 0);
			put(&h, LINEAR_LOOKUP, name, NULL, t + 8, t + 9, LINEAR_OK, 1000 + i);
		}
	}
	linear_check(&h, LINEAR_BYTES, &r);
	ck_assert_int_eq(r.verdict, LINEAR_NO);
	ck_assert(!r.from_start);
	ck_assert_uint_eq(r.window_count, 3); /* without the create, a and d may have been names of one inode */
	ck_assert_uint_eq(r.window[0], 1500 * 3);
	ck_assert_uint_eq(r.window[1], 1500 * 3 + 2);
	ck_assert_uint_eq(r.window[2], 1500 * 3 + 5);
	buf_init(&out, 4096);
	linear_describe(&h, &r, &out);
	ck_assert_ptr_nonnull(strstr((const char *)out.data, "NOT LINEARIZABLE: no order explains a lookup of a\n"));
	ck_assert_ptr_nonnull(strstr((const char *)out.data, "rename a -> d"));
	buf_fini(&out);
	linear_result_fini(&r);
	linear_fini(&h);
}
END_TEST

/* Where the bound is reached the verdict is never that it is. */
START_TEST(test_bound)
{
	struct linear_history h = {0};
	struct linear_result r;

	put(&h, LINEAR_CREATE, "a", NULL, 1, 2, LINEAR_OK, 7);
	for (uint64_t i = 0; i < 36; i++) {
		char from[2] = {(char)('a' + i / 6), 0}, to[2] = {(char)('a' + i % 6), 0};

		put(&h, LINEAR_RENAME, from, to, 3, 0, LINEAR_UNKNOWN, 0);
		put(&h, LINEAR_CREATE, from, NULL, 3, 0, LINEAR_UNKNOWN, 0);
		put(&h, LINEAR_UNLINK, from, NULL, 3, 0, LINEAR_UNKNOWN, 0);
	}
	put(&h, LINEAR_LOOKUP, "a", NULL, 8, 9, LINEAR_OK, 7);
	linear_check(&h, 1 << 16, &r);
	ck_assert_int_eq(r.verdict, LINEAR_UNDECIDED);
	ck_assert_uint_gt(strlen(r.text), 0);
	linear_result_fini(&r);
	linear_fini(&h);
}
END_TEST

/* ---- against all permutations ---- */

enum { SMALL = 7, NAMES = 3 };

struct brute {
	const struct linear_history *h;
	uint64_t makes[SMALL]; /* the inode of each create */
	bool taken[SMALL];
};

static unsigned name_number(const char *name)
{
	return (unsigned)(name[0] - 'a');
}

/* A second model, by another way than the checker's: true: the answer is right. */
static bool brute_apply(const struct brute *b, size_t i, uint64_t names[NAMES])
{
	const struct linear_op *op = &b->h->ops[i];
	uint64_t *from = &names[name_number(op->name)], *to = &names[op->to[0] ? name_number(op->to) : 0],
		 inode = *from;
	enum linear_outcome real = LINEAR_OK;

	switch (op->kind) {
	case LINEAR_CREATE:
		if (*from)
			real = LINEAR_EXIST;
		else
			*from = inode = b->makes[i];
		break;
	case LINEAR_LOOKUP:
		real = *from ? LINEAR_OK : LINEAR_NOENT;
		break;
	case LINEAR_UNLINK:
		real = *from ? LINEAR_OK : LINEAR_NOENT;
		*from = 0;
		break;
	case LINEAR_RENAME:
		if (!*from) {
			real = LINEAR_NOENT;
		} else if (*to && op->noreplace) {
			real = LINEAR_EXIST;
		} else if (*to != *from) {
			*from = 0;
			*to = inode;
		}
		break;
	case LINEAR_LINK:
		if (!*from)
			real = LINEAR_NOENT;
		else if (*to)
			real = LINEAR_EXIST;
		else
			*to = *from;
		break;
	}
	if (op->outcome == LINEAR_UNKNOWN)
		return true;
	return op->outcome == real && (op->inode == 0 || real != LINEAR_OK || op->inode == inode);
}

static bool brute_order(struct brute *b, const uint64_t names[NAMES])
{
	uint64_t first_return = NEVER;
	bool is_done = true;

	for (size_t i = 0; i < b->h->count; i++) {
		const struct linear_op *op = &b->h->ops[i];

		if (b->taken[i] || op->outcome == LINEAR_UNKNOWN)
			continue;
		is_done = false;
		if (op->ret < first_return)
			first_return = op->ret;
	}
	if (is_done)
		return true;
	for (size_t i = 0; i < b->h->count; i++) {
		uint64_t next[NAMES];
		bool found;

		if (b->taken[i] || b->h->ops[i].invoke > first_return)
			continue;
		memcpy(next, names, sizeof(next));
		b->taken[i] = true;
		found = brute_apply(b, i, next) && brute_order(b, next);
		b->taken[i] = false;
		if (found)
			return true;
	}
	return false;
}

/* Each create without an answer made one of the inodes that were seen, no two the same, or one that nobody saw. */
static bool brute_inodes(struct brute *b, size_t at)
{
	uint64_t names[NAMES] = {0};

	while (at < b->h->count && b->h->ops[at].kind != LINEAR_CREATE)
		at++;
	if (at == b->h->count)
		return brute_order(b, names);
	b->makes[at] = b->h->ops[at].outcome == LINEAR_OK ? b->h->ops[at].inode : 1000000 + at;
	for (size_t i = 0; i < at; i++)
		if (b->h->ops[i].kind == LINEAR_CREATE && b->makes[i] == b->makes[at])
			return false;
	if (brute_inodes(b, at + 1))
		return true;
	for (size_t i = 0; b->h->ops[at].outcome == LINEAR_UNKNOWN && i < b->h->count; i++) {
		bool is_free = b->h->ops[i].kind == LINEAR_LOOKUP && b->h->ops[i].outcome == LINEAR_OK;

		for (size_t k = 0; k < b->h->count; k++)
			if (b->h->ops[k].kind == LINEAR_CREATE && k != at &&
				(k < at ? b->makes[k] : b->h->ops[k].inode) == b->h->ops[i].inode)
				is_free = false;
		b->makes[at] = b->h->ops[i].inode;
		if (is_free && brute_inodes(b, at + 1))
			return true;
	}
	return false;
}

static bool brute_force(const struct linear_history *h)
{
	struct brute b = {.h = h};

	return brute_inodes(&b, 0);
}

/* ---- random histories of a real model ---- */

struct point {
	uint64_t at;
	size_t op;
};

static int by_point(const void *a, const void *b)
{
	const struct point *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static void answer(struct linear_op *op, uint64_t names[], uint64_t *next_inode)
{
	uint64_t *from = &names[name_number(op->name)], *to = &names[op->to[0] ? name_number(op->to) : 0];

	op->outcome = op->kind != LINEAR_CREATE && !*from ? LINEAR_NOENT : LINEAR_OK;
	if ((op->kind == LINEAR_CREATE && *from) ||
		(op->outcome == LINEAR_OK && *to &&
			(op->kind == LINEAR_LINK || (op->kind == LINEAR_RENAME && op->noreplace))))
		op->outcome = LINEAR_EXIST;
	if (op->outcome != LINEAR_OK)
		return;
	if (op->kind == LINEAR_CREATE)
		*from = (*next_inode)++;
	op->inode = op->kind == LINEAR_CREATE || op->kind == LINEAR_LOOKUP ? *from : 0;
	if (op->kind == LINEAR_LINK || (op->kind == LINEAR_RENAME && *to != *from)) {
		*to = *from;
		if (op->kind == LINEAR_RENAME)
			*from = 0;
	} else if (op->kind == LINEAR_UNLINK) {
		*from = 0;
	}
}

/* Clients, one operation after the other each, whose effects are instants of one store; some answers are lost. */
static void random_history(
	struct rng *rng, struct linear_history *h, size_t count, unsigned clients, unsigned names, unsigned lost)
{
	uint64_t clock[32] = {0}, state[26] = {0}, next_inode = 100;
	struct point *points = mem_array(count, sizeof(points[0]));

	for (size_t i = 0; i < count; i++) {
		unsigned c = (unsigned)rng_below(rng, clients);
		char name[2] = {(char)('a' + rng_below(rng, names)), 0},
		     to[2] = {(char)('a' + rng_below(rng, names)), 0};
		enum linear_kind kind = (enum linear_kind)rng_below(rng, 5);
		uint64_t from = clock[c] + rng_below(rng, 5), until = from + rng_below(rng, 20);
		bool has_to = kind == LINEAR_RENAME || kind == LINEAR_LINK,
		     is_lost = kind != LINEAR_LOOKUP && rng_below(rng, 100) < lost;

		put(h, kind, name, has_to ? to : NULL, from, until, LINEAR_OK, 0);
		h->ops[i].client = c;
		h->ops[i].noreplace = kind == LINEAR_RENAME && rng_chance(rng, 1, 3);
		clock[c] = until + 1;
		points[i] = (struct point){64 * rng_between(rng, from, until) + rng_below(rng, 64), i};
		if (is_lost) {
			h->ops[i].ret = NEVER;
			points[i].at =
				rng_chance(rng, 1, 3) ? NEVER : 64 * (from + rng_below(rng, 60)) + rng_below(rng, 64);
		}
	}
	qsort(points, count, sizeof(points[0]), by_point);
	for (size_t i = 0; i < count; i++) {
		struct linear_op *op = &h->ops[points[i].op];

		if (points[i].at != NEVER)
			answer(op, state, &next_inode);
		if (op->ret == NEVER) {
			op->outcome = LINEAR_UNKNOWN;
			op->inode = op->ret = 0;
		}
	}
	mem_free(points);
}

/* One answer becomes another one that it could have been. */
static void alter(struct rng *rng, struct linear_history *h)
{
	for (;;) {
		struct linear_op *op = &h->ops[rng_below(rng, h->count)];
		bool may_exist = op->kind == LINEAR_CREATE || op->kind == LINEAR_LINK ||
			(op->kind == LINEAR_RENAME && op->noreplace);
		enum linear_outcome was = op->outcome;

		if (was == LINEAR_UNKNOWN)
			continue;
		if (was == LINEAR_OK && op->kind == LINEAR_LOOKUP && rng_chance(rng, 1, 2)) {
			op->inode = rng_chance(rng, 1, 2) ? 100 + rng_below(rng, h->count) : op->inode + 1;
			return;
		}
		op->outcome = (enum linear_outcome)rng_below(rng, 3);
		if (op->outcome == was || (op->outcome == LINEAR_EXIST && !may_exist) ||
			(op->outcome == LINEAR_NOENT && op->kind == LINEAR_CREATE)) {
			op->outcome = was;
			continue;
		}
		op->inode =
			op->outcome == LINEAR_OK && (op->kind == LINEAR_CREATE || op->kind == LINEAR_LOOKUP) ? 99 : 0;
		return;
	}
}

START_TEST(test_small_against_all_orders)
{
	struct rng rng;
	size_t refused = 0, accepted = 0, lost = 0;

	rng_init(&rng, 1);
	for (int i = 0; i < 6000; i++) {
		struct linear_history h = {0};
		bool want;

		random_history(
			&rng, &h, 1 + rng_below(&rng, SMALL), 1 + (unsigned)rng_below(&rng, 4), NAMES, i % 3 ? 25 : 0);
		ck_assert_int_eq(verdict_of(&h), LINEAR_YES);
		for (int k = 0; k < 3; k++) {
			size_t known = 0;

			for (size_t n = 0; n < h.count; n++)
				known += h.ops[n].outcome != LINEAR_UNKNOWN;
			if (!known)
				break;
			lost += known < h.count;
			alter(&rng, &h);
			want = brute_force(&h);
			ck_assert_int_eq(verdict_of(&h), want ? LINEAR_YES : LINEAR_NO);
			refused += !want;
			accepted += want;
		}
		linear_fini(&h);
	}
	printf("small histories: %zu altered ones refused, %zu accepted, %zu with lost answers\n", refused, accepted,
		lost);
	ck_assert_uint_gt(refused, 5000);
	ck_assert_uint_gt(accepted, 1000);
	ck_assert_uint_gt(lost, 1000);
}
END_TEST

START_TEST(test_long_ones)
{
	struct rng rng;
	size_t refused = 0, widest = 0, lost = 0, thin = 0;

	rng_init(&rng, 2);
	for (int i = 0; i < 60; i++) {
		struct linear_history h = {0};
		struct linear_result r;

		random_history(&rng, &h, 400, 2 + (unsigned)rng_below(&rng, 5), 2 + (unsigned)rng_below(&rng, 8),
			i % 2 ? 3 : 0);
		linear_check(&h, LINEAR_BYTES, &r);
		ck_assert_msg(r.verdict == LINEAR_YES, "history %d: %s", i, r.text);
		widest = r.widest > widest ? r.widest : widest;
		lost += r.unknown;
		linear_result_fini(&r);
		alter(&rng, &h);
		linear_check(&h, LINEAR_BYTES, &r);
		ck_assert_int_ne(r.verdict, LINEAR_UNDECIDED);
		refused += r.verdict == LINEAR_NO;
		thin += r.verdict == LINEAR_NO && r.window_count <= 12;
		linear_result_fini(&r);
		linear_fini(&h);
	}
	printf("long histories: 60 accepted, at most %zu configurations, %zu lost answers; altered: %zu refused, %zu told by 12 operations or less\n",
		widest, lost, refused, thin);
	ck_assert_uint_gt(refused, 30);
	ck_assert_uint_gt(lost, 100);
	ck_assert_uint_gt(thin, refused / 2);
}
END_TEST

/* ---- as lines of JSON ---- */

START_TEST(test_json)
{
	struct rng rng;
	struct linear_history h = {0}, again = {0};
	struct err err = {0};
	FILE *f = tmpfile();

	rng_init(&rng, 3);
	random_history(&rng, &h, 200, 4, 6, 10);
	ck_assert_int_eq(linear_write(f, &h), 0);
	rewind(f);
	ck_assert_int_eq(linear_read(f, &again, &err), 0);
	ck_assert_uint_eq(again.count, h.count);
	for (size_t i = 0; i < h.count; i++)
		ck_assert_mem_eq(&h.ops[i], &again.ops[i], sizeof(h.ops[i]));
	fclose(f);
	linear_fini(&h);
	linear_fini(&again);
}
END_TEST

START_TEST(test_json_refused)
{
	static const char head[] = "{\"craton_history\": 1}\n";
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"", "line 1: a history begins"},
		{"{\"x\": 1}\n", "line 1: a history begins"},
		{"{\"craton_history\": 2}\n", "line 1: this version"},
		{"{\"craton_history\": 1}", "line 1: the line is too long, or does not end"},
		{"{\"craton_history\": 1}\n{\n", "line 2: this is not JSON"},
		{"+{\"op\": \"make\", \"client\": 1}\n", "line 2: op is"},
		{"+{\"op\": \"create\", \"outcome\": \"ok\", \"client\": 1, \"name\": \"a\", \"invoke\": 1, \"inode\": 1}\n",
			"line 2: return"},
		{"+{\"op\": \"link\", \"outcome\": \"unknown\", \"client\": 1, \"name\": \"a\", \"invoke\": 1}\n",
			"line 2: to is"},
		{"+{\"op\": \"create\", \"outcome\": \"unknown\", \"client\": 1, \"name\": \"01234567890123456789012345678901\"}\n",
			"line 2: name is"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct linear_history h = {0};
		struct err err = {0};
		FILE *f = tmpfile();

		fprintf(f, "%s%s", cases[i].text[0] == '+' ? head : "", cases[i].text + (cases[i].text[0] == '+'));
		rewind(f);
		ck_assert_int_eq(linear_read(f, &h, &err), ERR_CORRUPT);
		ck_assert_msg(strstr(err.text, cases[i].says) == err.text, "%s", err.text);
		fclose(f);
		linear_fini(&h);
	}
}
END_TEST

UNIT_MAIN("linear", test_example, test_create_and_lookup, test_unlink, test_rename, test_link, test_lost_answers,
	test_no_history, test_window, test_bound, test_small_against_all_orders, test_long_ones, test_json,
	test_json_refused)
