/* SPDX-License-Identifier: Apache-2.0 */
/* step: see step.h. Gradients are added and measured in blocks of a fixed size, so that their sums are fixed too. */
#include "trainer/step.h"

#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "trainer/pass.h"

enum {
	STEP_BLOCK = 32768, /* numbers that one index of the reduction covers */
	STEP_ROWS = 512,    /* rows a pass aims at: weights are read once per pass, activations stay in cache */
};

struct step {
	const struct model *m;
	const struct vecops *v;
	struct workers *w;
	uint32_t batch, lanes, seqs_a_pass;
	struct pass **pass; /* one per thread */
	real *grads;        /* [lanes][param_count]; the sum ends up in the first */
	double *lane_loss;  /* [lanes], or one per pass of a loss */
	double *block_square;
	size_t block_count;
	uint32_t loss_parts; /* room in lane_loss */
	const real *params;  /* of the call under way */
	const uint8_t *text;
	uint32_t seqs;
};

static uint32_t step_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int step_new(const struct model *m, struct workers *w, uint32_t batch_size, uint32_t lanes, struct step **ret_step)
{
	struct step *s = calloc(1, sizeof(*s));
	uint32_t fit = STEP_ROWS / m->shape.seq_len;

	if (!s)
		return -ENOMEM;
	openblas_set_num_threads(1);
	s->m = m;
	s->v = vecops_get();
	s->w = w;
	s->batch = batch_size;
	s->lanes = step_min(lanes, batch_size);
	s->seqs_a_pass = step_min(fit ? fit : 1, (batch_size + s->lanes - 1) / s->lanes);
	s->block_count = (m->param_count + STEP_BLOCK - 1) / STEP_BLOCK;
	s->loss_parts = STEP_LANES_MAX;
	s->pass = calloc(workers_count(w), sizeof(struct pass *));
	s->grads = calloc(s->lanes * m->param_count, sizeof(real));
	s->lane_loss = calloc(s->loss_parts, sizeof(double));
	s->block_square = calloc(s->block_count, sizeof(double));
	if (!s->pass || !s->grads || !s->lane_loss || !s->block_square)
		goto fail;
	for (unsigned i = 0; i < workers_count(w); i++)
		if (pass_new(m, s->seqs_a_pass, &s->pass[i]))
			goto fail;
	*ret_step = s;
	return 0;
fail:
	step_free(s);
	return -ENOMEM;
}

void step_free(struct step *s)
{
	if (!s)
		return;
	for (unsigned i = 0; s->pass && i < workers_count(s->w); i++)
		pass_free(s->pass[i]);
	free(s->pass);
	free(s->grads);
	free(s->lane_loss);
	free(s->block_square);
	free(s);
}

static void step_lane(void *ctx, size_t index, unsigned worker)
{
	struct step *s = ctx;
	size_t run = s->m->shape.seq_len + 1;
	uint32_t from = (uint32_t)((uint64_t)s->batch * index / s->lanes);
	uint32_t to = (uint32_t)((uint64_t)s->batch * (index + 1) / s->lanes);
	real *grads = s->grads + index * s->m->param_count;
	real scale = (real)(1.0 / ((double)s->batch * s->m->shape.seq_len));
	double loss = 0;

	memset(grads, 0, s->m->param_count * sizeof(*grads));
	for (uint32_t at = from; at < to; at += s->seqs_a_pass)
		loss += pass_grads(s->pass[worker], s->params, s->text + at * run, step_min(s->seqs_a_pass, to - at),
			scale, grads);
	s->lane_loss[index] = loss;
}

static void step_add_block(void *ctx, size_t index, unsigned worker)
{
	struct step *s = ctx;
	size_t at = index * STEP_BLOCK, left = s->m->param_count - at, n = left < STEP_BLOCK ? left : STEP_BLOCK;

	(void)worker;
	for (uint32_t lane = 1; lane < s->lanes; lane++)
		s->v->add(s->grads + at, s->grads + lane * s->m->param_count + at, n);
	s->block_square[index] = s->v->square_sum(s->grads + at, n);
}

double step_grads(struct step *s, const real *params, const uint8_t *text, const real **ret_grads, double *ret_norm)
{
	double loss = 0, square = 0;

	s->params = params;
	s->text = text;
	workers_run(s->w, s->lanes, step_lane, s);
	workers_run(s->w, s->block_count, step_add_block, s);
	for (uint32_t i = 0; i < s->lanes; i++)
		loss += s->lane_loss[i];
	for (size_t i = 0; i < s->block_count; i++)
		square += s->block_square[i];
	*ret_grads = s->grads;
	*ret_norm = sqrt(square);
	return loss / ((double)s->batch * s->m->shape.seq_len);
}

static void step_loss_part(void *ctx, size_t index, unsigned worker)
{
	struct step *s = ctx;
	uint32_t at = (uint32_t)index * s->seqs_a_pass;

	s->lane_loss[index] = pass_loss(s->pass[worker], s->params, s->text + (size_t)at * (s->m->shape.seq_len + 1),
		step_min(s->seqs_a_pass, s->seqs - at));
}

double step_loss(struct step *s, const real *params, const uint8_t *text, uint32_t seqs)
{
	size_t run = s->m->shape.seq_len + 1;
	uint32_t round = s->loss_parts * s->seqs_a_pass;
	double loss = 0;

	s->params = params;
	for (uint32_t at = 0; at < seqs; at += round) {
		s->text = text + at * run;
		s->seqs = step_min(round, seqs - at);
		workers_run(s->w, (s->seqs + s->seqs_a_pass - 1) / s->seqs_a_pass, step_loss_part, s);
		for (uint32_t i = 0; i < (s->seqs + s->seqs_a_pass - 1) / s->seqs_a_pass; i++)
			loss += s->lane_loss[i];
	}
	return loss / ((double)seqs * s->m->shape.seq_len);
}
