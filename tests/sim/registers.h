/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registers: a few names that workers of several clients put, unlink and read at once, without any order among them. What a read may find is
 * judged by time alone: a value whose put began before the read ended, and which no change replaced that began after that put had
 * been acknowledged and was itself acknowledged before the read began.
 */
#ifndef TESTS_SIM_REGISTERS_H
#define TESTS_SIM_REGISTERS_H

#include "tests/sim/checker.h"

struct registers;

struct registers *registers_new(struct cluster *cluster, uint64_t seed, bool strict);
void registers_free(struct registers *r);
/* The client of that node runs; from now on and after each of its restarts. */
void registers_client_started(struct registers *r, unsigned node);
void registers_client_crashed(struct registers *r, unsigned node);
/* No operation begins any more. */
/* Until then, operations are rare. */
void registers_lull(struct registers *r, uint64_t until_ns);
void registers_stop(struct registers *r);
bool registers_idle(const struct registers *r);
/* Each name is read once more, without any excuse; then idle. */
void registers_look(struct registers *r);
uint64_t registers_count(const struct registers *r);

#endif
