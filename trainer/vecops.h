/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vecops: the loops of the model that are not matrix products, each compiled for the baseline processor and for AVX2 with
 * FMA; vecops_get picks one set, once. All are pure functions of their arguments: the same processor gives the same bits,
 * whatever the number of threads. Arrays do not overlap unless said.
 */
#ifndef TRAINER_VECOPS_H
#define TRAINER_VECOPS_H

#include <stddef.h>
#include <stdint.h>
#include "trainer/real.h"

/* What AdamW needs to know in one step. */
struct adamw_step {
	real lr, beta1, beta2, eps;
	real correction1, correction2; /* 1 - beta^step */
	real grad_scale;               /* gradients are multiplied by this first (clipping) */
};

struct vecops {
	const char *name; /* "base", "avx2" */
	/* out = (x - mean) * rstd * gain + bias, row by row; mean and rstd are kept for the way back. */
	void (*layernorm)(real *out, real *mean, real *rstd, const real *x, const real *gain, const real *bias,
		size_t rows, size_t width);
	/* Adds to dx, dgain and dbias. */
	void (*layernorm_back)(real *dx, real *dgain, real *dbias, const real *dout, const real *x, const real *mean,
		const real *rstd, const real *gain, size_t rows, size_t width);
	void (*gelu)(real *out, const real *x, size_t n); /* tanh form */
	void (*gelu_back)(real *dx, const real *x, const real *dout, size_t n);
	/* p is n x n: each row becomes the softmax of its first row+1 entries times scale, zeros behind. */
	void (*softmax_causal)(real *p, size_t n, real scale);
	/* dp is replaced by the gradient of the scores before scaling. */
	void (*softmax_causal_back)(real *dp, const real *p, size_t n, real scale);
	/* Sum over rows of -log softmax(logits)[target]; logits are replaced by (softmax - onehot) * grad_scale. */
	double (*cross_entropy)(real *logits, const uint8_t *targets, size_t rows, size_t width, real grad_scale);
	void (*add)(real *y, const real *x, size_t n);                             /* y += x */
	void (*column_sums)(real *sums, const real *x, size_t rows, size_t width); /* sums += */
	double (*square_sum)(const real *x, size_t n);
	void (*adamw)(
		real *w, real *m, real *v, const real *g, size_t n, const struct adamw_step *a, real weight_decay);
	void (*exp)(real *out, const real *x, size_t n); /* for its test */
};

const struct vecops *vecops_get(void);
/* Every set this processor can run; returns how many. For tests. */
size_t vecops_all(const struct vecops *sets[4]);

#endif
