/* SPDX-License-Identifier: Apache-2.0 */
/*
 * labels: small values that lie in the metadata alone and that a crew sets, removes and reads at once, without any order among its workers:
 * the targets of a few symbolic links, and a few extended attributes of one directory. What a look may find is judged by time alone (values.h).
 */
#ifndef TESTS_SIM_LABELS_H
#define TESTS_SIM_LABELS_H

#include "tests/sim/crew.h"

struct crew *labels_new(struct cluster *cluster, uint64_t seed, bool strict);

#endif
