/* SPDX-License-Identifier: Apache-2.0 */
/* linear_priv: what the files of linear share: a group of coupled names, one step of the model, one search. */
#ifndef TESTS_LIB_LINEAR_PRIV_H
#define TESTS_LIB_LINEAR_PRIV_H

#include "tests/lib/linear.h"

/*
 * What a name names. Beside nothing, in this order: inodes whose creation was acknowledged; foreign ones, which were found and nobody's
 * creation was acknowledged; and symbols, the inodes of creates without an answer, until they are found: then the symbol becomes that
 * foreign inode everywhere, which is bound from then on and can be no other create's. Which of these creates made it makes no difference:
 * symbols are numbered as they come in the state, so that two states that differ in that only are one.
 *
 * A search that begins in the middle knows nothing of what was before: a name is ANY until an operation tells whether it is there, then
 * nothing or SOME inode. Which two names of SOME are one inode is forgotten: more is allowed then than could happen, so that what such a
 * search refuses has no order indeed.
 */
enum { VALUE_NONE, VALUE_ANY, VALUE_SOME, VALUE_FIRST };

struct linear_item {
	const struct linear_op *op;
	uint32_t name, to; /* of the group; `to` is `name` where there is one only */
	uint32_t value;    /* that a create makes, a lookup finds; first_symbol: a new symbol */
	bool optional;     /* it may never take effect */
};

struct linear_group {
	struct linear_item *items; /* in order of invocation */
	size_t count;
	uint32_t names, foreign; /* so many */
	uint32_t first_foreign, first_symbol;
	bool *is_new; /* NULL, or for each inode: it was made after the beginning, so SOME is another one */
};

static inline uint32_t linear__state_words(const struct linear_group *g)
{
	return g->names + (g->foreign + 31) / 32;
}

/* ---- linear_model.c ---- */

enum { LINEAR_STEP_MAX = 8 };

/* Could it change what a name names? */
bool linear__changes(const struct linear_item *item);
/* Are the two, neither of which needs to take effect, the same? */
bool linear__alike(const struct linear_item *a, const struct linear_item *b);
/* Does it matter which of the two is first? */
bool linear__depend(const struct linear_item *a, const struct linear_item *b);
/*
 * All states that it may leave behind in this state with the outcome that it had, one after the other in `out`; how many. A state is what
 * each name of the group names, and a bit for each foreign inode that is bound. One without an answer that would change nothing gives none.
 */
size_t linear__step(const struct linear_group *g, const struct linear_item *item, const uint32_t *state, uint32_t *out);

/* ---- linear_search.c ---- */

struct linear_search {
	/* in */
	const struct linear_group *group;
	bool middle;         /* each name may name anything at the beginning; else nothing */
	bool *conflicts;     /* NULL, or for each item */
	size_t bytes, steps; /* bounds */
	/* out */
	enum linear_verdict verdict;
	size_t failed; /* NO: the item whose return no order explains */
	size_t widest, stepped;
};

void linear__search(struct linear_search *s);

#endif
