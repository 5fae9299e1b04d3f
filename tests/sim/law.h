/* SPDX-License-Identifier: Apache-2.0 */
/*
 * law: what must hold at any time, read from the insides of daemons between events:
 *  1. What lost its name is not taken apart before STATE_GC_READ_MS have passed, unless an operator asked for it.
 *  2. A copy that the index of a disk has owns its extent: it is not free for others, and the trailer there is its own: while
 *     copies are being dropped, when a chunk server has started, and in the end.
 *  3. State time, on which all that expires rests, runs no faster than time does, whatever is done to the clocks of hosts.
 */
#ifndef TESTS_SIM_LAW_H
#define TESTS_SIM_LAW_H

#include "tests/sim/faults.h"

struct law;

struct law *law_new(struct cluster *cluster);
void law_free(struct law *law);
/* An operator asks for it within the next seconds: what has lost its name by then is excused. */
void law_hurry(struct law *law);
/* 1 and 3, as often as is cheap. */
void law_look(struct law *law);
/* 2, of a daemon that runs. Damage that was done on purpose is excused; faults may be NULL. */
void law_look_at_extents(struct cluster *c, unsigned node, const struct faults *faults);

#endif
