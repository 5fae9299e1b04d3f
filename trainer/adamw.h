/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adamw: AdamW (Loshchilov, Hutter 2019) with clipping by the gradient's norm, and the learning rate as a function of the
 * step alone: linear warm-up, then half a cosine down to a tenth, then constant. --max-steps is no part of it, so a run cut
 * in two takes the same steps as one that was not.
 */
#ifndef TRAINER_ADAMW_H
#define TRAINER_ADAMW_H

#include "trainer/model.h"
#include "trainer/vecops.h"
#include "trainer/workers.h"

#ifdef __cplusplus
extern "C" {
#endif

struct adamw_options {
	double lr, weight_decay, clip; /* clip 0: none */
	uint64_t warmup_steps, decay_steps;
};

/* step counts from 1. */
double adamw_lr(const struct adamw_options *o, uint64_t step);
struct adamw_step adamw_step_make(const struct adamw_options *o, uint64_t step, double grad_norm);

/* Neighbouring tensors that all decay or all do not: few, long loops. Start with zeros; false after the last. */
struct adamw_run {
	size_t offset, count; /* in numbers */
	bool decays;
	uint32_t next_tensor; /* private */
};
bool adamw_next_run(const struct model *model, struct adamw_run *run);

/* params, m and v are changed in place; m and v start as zeros. */
void adamw_update(const struct adamw_options *o, const struct model *model, struct workers *w, uint64_t step,
	real *params, real *m, real *v, const real *grads, double grad_norm);

#ifdef __cplusplus
}
#endif
#endif
