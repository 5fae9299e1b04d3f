/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: what rows say of copies of chunks and what lies on the disks agree, at any time, as far as it can be seen between events:
 *  1. No drop row names a copy that a block's row or an intent names.
 *  2. A drop row goes when its grace is over, and not before; its copy is gone from the disk then, and does not come back.
 *  3. A copy leaves a disk only after a drop row has named it; one whose bits were flipped also at a start of its server, which may be the first
 *     to look at it.
 *  4. A copy that a block's row names as present lies on its disk, as long as the row says and with the proof for its CRC. (Whether it is
 *     readable is what verify looks at; repair makes a lost one anew, so that in the end nothing of it is seen any more.)
 *  5. When all hosts have been up for a while, no drop row is left whose grace is over.
 *  6. A block's policy, length and proofs never change, nor does a copy while it lies there.
 *  7. Two chunks of a block are in one domain if and only if it is listed as crowded; more than m never are.
 * Disks that are away or failed are looked at when they are back.
 */
#ifndef TESTS_SIM_COPIES_H
#define TESTS_SIM_COPIES_H

#include "tests/sim/cluster.h"
#include "tests/sim/faults.h"

struct copies;

/* What damage was done on purpose is excused; faults may be NULL. */
struct copies *copies_new(struct cluster *cluster, const struct faults *faults);
void copies_free(struct copies *copies);
/* Some blocks' rows in turn; now and then, and when a daemon has started, all drop rows and disks: as often as is convenient. */
void copies_look(struct copies *copies);
/* All of them. */
void copies_look_at_all(struct copies *copies);

#endif
