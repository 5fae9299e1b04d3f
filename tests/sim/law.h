/* SPDX-License-Identifier: Apache-2.0 */
/*
 * law: what must hold at any time, read from the insides of daemons between events:
 *  1. What lost its name is not taken apart before STATE_GC_READ_MS have passed, unless an operator asked for it.
 *  2. A copy that the index of a disk has owns its extent: it is not free for others, and the trailer there is its own; most of all while
 *     copies are being dropped, and after a loss of power then.
 */
#ifndef TESTS_SIM_LAW_H
#define TESTS_SIM_LAW_H

#include "tests/sim/faults.h"

struct law;

struct law *law_new(struct cluster *cluster);
void law_free(struct law *law);
/* An operator asks for it within the next seconds: what has lost its name by then is excused. */
void law_hurry(struct law *law);
/* 1, as often as is cheap. */
void law_look_at_garbage(struct law *law);
/* 2, of a chunk server that runs. Damage that was done on purpose is excused; faults may be NULL. */
void law_look_at_extents(struct cluster *c, unsigned node, const struct faults *faults);

#endif
