/* SPDX-License-Identifier: Apache-2.0 */
/* adamw: see adamw.h. Elementwise, so the threads' shares do not change the result. */
#include "trainer/adamw.h"

#include <math.h>

enum { ADAMW_BLOCK = 32768 };

#define ADAMW_BETA1 0.9
#define ADAMW_BETA2 0.98
#define ADAMW_EPS 1e-8
#define ADAMW_LR_FLOOR 0.1 /* of the peak */

double adamw_lr(const struct adamw_options *o, uint64_t step)
{
	double done;

	if (step <= o->warmup_steps)
		return o->lr * (double)step / (double)o->warmup_steps;
	if (step >= o->warmup_steps + o->decay_steps)
		return o->lr * ADAMW_LR_FLOOR;
	done = (double)(step - o->warmup_steps) / (double)o->decay_steps;
	return o->lr * (ADAMW_LR_FLOOR + (1 - ADAMW_LR_FLOOR) * 0.5 * (1 + cos(M_PI * done)));
}

struct adamw_step adamw_step_make(const struct adamw_options *o, uint64_t step, double grad_norm)
{
	return (struct adamw_step){
		.lr = (real)adamw_lr(o, step),
		.beta1 = (real)ADAMW_BETA1,
		.beta2 = (real)ADAMW_BETA2,
		.eps = (real)ADAMW_EPS,
		.correction1 = (real)(1 - pow(ADAMW_BETA1, (double)step)),
		.correction2 = (real)(1 - pow(ADAMW_BETA2, (double)step)),
		.grad_scale = o->clip > 0 && grad_norm > o->clip ? (real)(o->clip / grad_norm) : 1,
	};
}

bool adamw_next_run(const struct model *model, struct adamw_run *run)
{
	if (run->next_tensor == model->tensor_count)
		return false;
	run->offset = model->tensor[run->next_tensor].offset;
	run->count = 0;
	run->decays = model->tensor[run->next_tensor].decays;
	while (run->next_tensor < model->tensor_count && model->tensor[run->next_tensor].decays == run->decays) {
		const struct model_tensor *t = &model->tensor[run->next_tensor++];

		run->count += (size_t)t->rows * t->cols;
	}
	return true;
}

struct adamw_job {
	const struct vecops *ops;
	struct adamw_step a;
	real *params, *m, *v, weight_decay;
	const real *grads;
	size_t count;
};

static void adamw_block(void *ctx, size_t index, unsigned worker)
{
	struct adamw_job *j = ctx;
	size_t at = index * ADAMW_BLOCK, left = j->count - at, n = left < ADAMW_BLOCK ? left : ADAMW_BLOCK;

	(void)worker;
	j->ops->adamw(j->params + at, j->m + at, j->v + at, j->grads + at, n, &j->a, j->weight_decay);
}

void adamw_update(const struct adamw_options *o, const struct model *model, struct workers *w, uint64_t step,
	real *params, real *m, real *v, const real *grads, double grad_norm)
{
	struct adamw_job j = {.ops = vecops_get(), .a = adamw_step_make(o, step, grad_norm)};
	struct adamw_run run = {0};

	while (adamw_next_run(model, &run)) {
		j.params = params + run.offset;
		j.m = m + run.offset;
		j.v = v + run.offset;
		j.grads = grads + run.offset;
		j.count = run.count;
		j.weight_decay = run.decays ? (real)o->weight_decay : 0;
		workers_run(w, (j.count + ADAMW_BLOCK - 1) / ADAMW_BLOCK, adamw_block, &j);
	}
}
