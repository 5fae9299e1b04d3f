/* SPDX-License-Identifier: Apache-2.0 */
/*
 * garbage: whether only what is named is left. After the floor has passed all block ids in use, with every host up, each copy on a
 * disk is named by a block's row or an intent, no drop row waits, and nothing is pending. (That no named copy is gone is what verify
 * looks at.)
 */
#ifndef TESTS_SIM_GARBAGE_H
#define TESTS_SIM_GARBAGE_H

#include "tests/sim/cluster.h"

/* The floor's delay, the period of whole inventories, the grace; and the last two once more for what comes just too late. */
#define GARBAGE_LIMIT_NS (9600 * CLUSTER_S)

/* "" or what is left over, in words. */
const char *garbage_left(struct cluster *c);

#endif
