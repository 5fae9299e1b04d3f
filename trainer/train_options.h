/* SPDX-License-Identifier: Apache-2.0 */
/* train_options: the command line of craton-train, from one table that also makes its --help. */
#ifndef TRAINER_TRAIN_OPTIONS_H
#define TRAINER_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "trainer/terr.h"

struct train_options {
	const char *config, *data, *checkpoint_dir, *resume, *device;
	uint64_t save_every, keep, batch_size, seq_len, max_steps, eval_every, eval_samples, log_every, seed, threads;
	uint64_t layers, width, heads, lanes, warmup_steps, decay_steps, holdout_percent, timeout_ms;
	double lr, weight_decay, clip;
	bool json, help, version;
	uint64_t given; /* private: bit i: row i of the table was on the command line */
};

/* Sets the defaults, then reads argv. Strings point into argv. -EINVAL and a line that names the option and the remedy. */
int train_options_parse(struct train_options *o, int argc, char **argv, struct terr *e);
/* Was this member of `o` given on the command line? */
bool train_options_given(const struct train_options *o, const void *member);
/* "--batch-size" */
const char *train_options_name(const struct train_options *o, const void *member);
void train_options_help(FILE *out);

#endif
