/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_report: what a run prints, one line an event, for people or (--json) as one JSON object a line. Losses are printed
 * with all their digits in JSON, so that two logs can be compared bit for bit.
 */
#ifndef TRAINER_TRAIN_REPORT_H
#define TRAINER_TRAIN_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "trainer/checkpoint.h"

struct train_report {
	FILE *out;
	bool json;
};

struct train_report_summary {
	uint64_t step, first_step;     /* steps taken in all, and before this run */
	uint64_t tokens;               /* of this run */
	double seconds, train_seconds; /* of this run; without loading, saving, evaluating */
	double loss, heldout;          /* of the last step; NAN: none */
	uint64_t saves, failed_saves;
	double max_stall_ms, sum_stall_ms; /* training stood still for snapshots and waits at the end excluded */
	double data_wait_ms;               /* training stood still for batches */
	bool last_save_failed;
	char weights_sha256[2 * MANIFEST_SHA_BYTES + 1];
	const char *stopped; /* "max-steps", "signal", "error" */
};

void train_report_start(const struct train_report *r, const struct manifest_meta *m, uint64_t params, unsigned threads,
	const char *vectors, uint64_t dataset_bytes, uint64_t epoch_samples);
void train_report_resume(const struct train_report *r, const char *path, uint64_t step);
void train_report_step(const struct train_report *r, uint64_t step, double loss, double lr, double norm,
	double tokens_per_s, double step_ms, double data_wait_ms);
void train_report_heldout(const struct train_report *r, uint64_t step, double loss, uint32_t samples, double seconds);
void train_report_save_start(const struct train_report *r, uint64_t step, double stall_ms, uint64_t late_steps);
void train_report_save(const struct train_report *r, const struct checkpoint_result *c);
void train_report_note(const struct train_report *r, const char *event, const char *text); /* "warning", ... */
void train_report_summary(const struct train_report *r, const struct train_report_summary *s);

#endif
