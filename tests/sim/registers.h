/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registers: a few names that a crew puts, unlinks and reads at once, without any order among its workers. What a read may find is judged
 * by time alone (values.h).
 */
#ifndef TESTS_SIM_REGISTERS_H
#define TESTS_SIM_REGISTERS_H

#include "tests/sim/crew.h"

struct crew *registers_new(struct cluster *cluster, uint64_t seed, bool strict);

#endif
