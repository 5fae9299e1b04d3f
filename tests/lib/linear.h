/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear: is a history of operations on names linearizable: is there one order of them, in which each takes effect at one instant between
 * its invocation and its return, that a store of names with one client would have answered in the same way? (Herlihy, Wing 1990.)
 *
 * The search is that of Wing and Gong (1993), breadth first and just in time, as Lowe has it (2017): the returns are taken in order of
 * time, and what is kept is the set of all configurations that explain everything up to there: what each name names, and which
 * operations that have not returned yet took effect already. Names that no operation couples are independent, and searched one set of
 * coupled names after the other (Herlihy and Wing's locality; Horn and Kroening's P-compositionality).
 *
 * An operation whose answer was lost takes effect at any time after its invocation, or never. An inode that a lookup finds and whose
 * creation was never acknowledged must be that of some create whose answer was lost, and of no other one.
 *
 * A history that is not linearizable is told by its shortest window: the operations from the latest instant on, whatever the names were
 * then, up to the first return that no order explains, without those reads that it does not take.
 *
 * Pure: a history in, a verdict out. The memory is bounded; a search that would need more ends undecided.
 */
#ifndef TESTS_LIB_LINEAR_H
#define TESTS_LIB_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"

enum { LINEAR_NAME_BYTES = 32 };

enum linear_kind {
	LINEAR_CREATE, /* exclusive: EEXIST where the name is */
	LINEAR_LOOKUP,
	LINEAR_UNLINK,
	LINEAR_RENAME, /* replaces; between two names of one inode nothing happens */
	LINEAR_LINK,   /* EEXIST where the new name is */
};

/* Where both refusals are right, ENOENT of `name` goes before EEXIST of `to`. */
enum linear_outcome { LINEAR_OK, LINEAR_EXIST, LINEAR_NOENT, LINEAR_UNKNOWN };

struct linear_op {
	enum linear_kind kind;
	enum linear_outcome outcome;
	bool noreplace; /* RENAME: EEXIST where the new name is */
	uint32_t client;
	uint64_t invoke, ret; /* on one clock, invoke <= ret; a return and an invocation at one instant overlap */
	uint64_t inode;       /* of CREATE and LOOKUP that are OK; never 0 */
	char name[LINEAR_NAME_BYTES], to[LINEAR_NAME_BYTES];
};

struct linear_history {
	struct linear_op *ops;
	size_t count, cap;
};

/* The history's new operation, zeroed; it stays where it is until the next one is added. */
struct linear_op *linear_add(struct linear_history *h);
void linear_fini(struct linear_history *h);

enum linear_verdict {
	LINEAR_YES,
	LINEAR_NO,
	LINEAR_UNDECIDED, /* the bound was reached: nothing is known */
	LINEAR_MALFORMED, /* it is no history: `text` says why */
};

struct linear_result {
	enum linear_verdict verdict;
	char text[256]; /* of any verdict but YES: one line */
	size_t *window; /* of NO: operations by their place in the history, in order of invocation; linear_result_fini frees it */
	size_t window_count;
	bool from_start;  /* the window reaches back to where no name named anything */
	size_t checked;   /* operations; lookups without an answer say nothing, and are left out */
	size_t unknown;   /* of these: outcomes that nobody knows */
	size_t conflicts; /* of these: overlapped another one on a name of its own, and one of the two could change it */
	size_t groups;    /* sets of coupled names */
	size_t widest;    /* configurations kept at once, the most */
};

#define LINEAR_BYTES ((size_t)256 << 20)

/* With at most so much memory for configurations. */
void linear_check(const struct linear_history *h, size_t bytes, struct linear_result *ret_result);
void linear_result_fini(struct linear_result *r);
/* The verdict for a reader, the window as a table. */
void linear_describe(const struct linear_history *h, const struct linear_result *r, struct buf *out);

const char *linear_kind_name(enum linear_kind kind);
const char *linear_outcome_name(enum linear_outcome outcome);

#endif
