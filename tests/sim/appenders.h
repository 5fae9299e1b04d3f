/* SPDX-License-Identifier: Apache-2.0 */
/*
 * appenders: a few files that a crew writes on at their ends, each worker taking the file over from whoever has it open. What must hold,
 * judged by the order of opens and answers alone:
 *  1. What was acknowledged to a writer before it lost the file stays: who opens the file next finds at least so many bytes.
 *  2. Nothing of a writer gets into the file, or is acknowledged to him, behind the end that the next one has found.
 *  3. The bytes between the ends that two writers found are those of the first of them, and the file never gets shorter.
 */
#ifndef TESTS_SIM_APPENDERS_H
#define TESTS_SIM_APPENDERS_H

#include "tests/sim/crew.h"

struct crew *appenders_new(struct cluster *cluster, uint64_t seed, bool strict);

#endif
