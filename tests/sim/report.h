/* SPDX-License-Identifier: Apache-2.0 */
/* report: results of runs as lines of text or JSON, and their sums. */
#ifndef TESTS_SIM_REPORT_H
#define TESTS_SIM_REPORT_H

#include "tests/sim/run.h"

void report_line(const struct run_result *r);
/* One line of JSON; of a sum also how many seeds there were, and how many of them failed. */
void report_json(const struct run_result *r);
void report_json_sum(const struct run_result *sum, uint64_t seeds, uint64_t failed);
void report_add(struct run_result *sum, const struct run_result *r);

#endif
