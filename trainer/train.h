/* SPDX-License-Identifier: Apache-2.0 */
/* train: one run of craton-train over a store, from options to summary. */
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "trainer/train_options.h"
#include "trainer/train_report.h"

/*
 * Returns 0; -EINVAL: the options do not fit each other, the data or the checkpoint; else another error. If negative, `e` has
 * the line to print. *ret_summary is filled also when a run fails after its start.
 */
int train_run(struct cr_store *store, const struct train_options *o, const struct train_report *report,
	struct train_report_summary *ret_summary, struct terr *e);

/* Async-signal-safe: the run under way ends after its current step, with a checkpoint. */
void train_request_stop(void);

#endif
