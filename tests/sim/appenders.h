/* SPDX-License-Identifier: Apache-2.0 */
/*
 * appenders: a few files that workers of several clients write on at their ends, each taking the file over from whoever has it open. What
 * must hold, judged by the order of opens and answers alone:
 *  1. What was acknowledged to a writer before it lost the file stays: who opens the file next finds at least so many bytes.
 *  2. Nothing of a writer gets into the file, or is acknowledged to him, behind the end that the next one has found.
 *  3. The bytes between the ends that two writers found are those of the first of them, and the file never gets shorter.
 */
#ifndef TESTS_SIM_APPENDERS_H
#define TESTS_SIM_APPENDERS_H

#include "tests/sim/checker.h"

struct appenders;

struct appenders *appenders_new(struct cluster *cluster, uint64_t seed, bool strict);
void appenders_free(struct appenders *a);
/* The client of that node runs; from now on and after each of its restarts. */
void appenders_client_started(struct appenders *a, unsigned node);
void appenders_client_crashed(struct appenders *a, unsigned node);
/* Until then, operations are rare. */
void appenders_lull(struct appenders *a, uint64_t until_ns);
/* No file is opened any more. */
void appenders_stop(struct appenders *a);
bool appenders_idle(const struct appenders *a);
/* Each file is read once more, without any excuse; then idle. */
void appenders_look(struct appenders *a);
uint64_t appenders_count(const struct appenders *a);

#endif
