/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair_set: which k chunks a rebuild is made from, and who lied when it does not come out right. Pure.
 *
 * Sources that are known to be bad (no answer, a list that is not the proof's, units that are not the list's) are left out.
 * When k good-looking chunks give another chunk than the proof says, one of them lies although all its checksums agree,
 * or the decoder is wrong: then each of them in turn is replaced by a chunk that was not used, by one such chunk after the other.
 * A set that gives the right chunk shows that the one it left out was a liar, and so were the replacements that did not help.
 */
#ifndef CHUNKD_REPAIR_SET_H
#define CHUNKD_REPAIR_SET_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/limits.h"

enum { REPAIR_SETS_MAX = LIMIT_K * LIMIT_M + 1 }; /* the first, then each of its chunks replaced by each other one */

struct repair_sets {
	/* set by the caller */
	uint8_t needed;     /* chunks of a set: the data chunks that exist */
	uint16_t available; /* bit by index: sources not known to be bad */
	/* private */
	uint16_t first; /* the set that gave another chunk than the proof; 0: none yet */
	uint8_t spare;  /* index that its members are being replaced by */
	uint8_t tried;  /* members replaced by it */
	uint16_t now;
};

/* The next set to try (bits by index); 0: none is left. */
uint16_t repair_set_next(struct repair_sets *sets);
/* A source turned out bad: it is in no further set. */
void repair_set_bad(struct repair_sets *sets, uint8_t index);
/* The set that was given last was decoded, and the result does not match its proof. */
void repair_set_mismatch(struct repair_sets *sets);
/* The set that was given last is right: bits of those that lied (that it does without, and that were in wrong ones). */
uint16_t repair_set_liars(const struct repair_sets *sets);

#endif
