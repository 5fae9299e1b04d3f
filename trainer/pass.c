/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass: see pass.h. Names: R = rows = sequences * seq_len, C = width, H = heads, T = seq_len. Weights are [out][in], so a
 * linear layer is Y = X W^T + b. What the way back needs is kept per layer (struct pass_layer); everything else is scratch
 * that each layer uses again.
 */
#include "trainer/pass.h"

#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pass_layer {
	real *in;                  /* [R][C] the residual stream before the layer */
	real *ln1, *mean1, *rstd1; /* [R][C], [R], [R] */
	real *qkv;                 /* [R][3C] */
	real *probs;               /* [seqs][H][T][T] */
	real *heads;               /* [R][C] output of attention before the projection */
	real *mid;                 /* [R][C] the residual stream between attention and MLP */
	real *ln2, *mean2, *rstd2;
	real *fc, *act; /* [R][4C] before and after GELU */
};

struct pass {
	const struct model *m;
	const struct vecops *v;
	uint32_t max_seqs;
	real *memory;
	struct pass_layer layer[MODEL_LAYERS_MAX];
	real *last, *final, *mean, *rstd; /* the stream after all layers, its LayerNorm */
	real *logits;                     /* [R][256] */
	real *dx, *dn, *dqkv, *dfc, *dp;  /* gradients on the way back: [R][C] twice, [R][3C], [R][4C], [T][T] */
	uint8_t *targets;
};

/* Hands out consecutive pieces of one allocation; with base NULL it only counts. */
struct pass_carver {
	real *base;
	size_t used;
};

static real *pass_carve(struct pass_carver *c, size_t n)
{
	real *p = c->base ? c->base + c->used : NULL;

	c->used += (n + 15) & ~(size_t)15;
	return p;
}

static void pass_carve_all(struct pass *p, struct pass_carver *c)
{
	const struct model_shape *s = &p->m->shape;
	size_t width = s->width, seq = s->seq_len, rows = p->max_seqs * seq;

	for (uint32_t l = 0; l < s->layers; l++) {
		struct pass_layer *y = &p->layer[l];

		y->in = pass_carve(c, rows * width);
		y->ln1 = pass_carve(c, rows * width);
		y->mean1 = pass_carve(c, rows);
		y->rstd1 = pass_carve(c, rows);
		y->qkv = pass_carve(c, rows * 3 * width);
		y->probs = pass_carve(c, p->max_seqs * s->heads * seq * seq);
		y->heads = pass_carve(c, rows * width);
		y->mid = pass_carve(c, rows * width);
		y->ln2 = pass_carve(c, rows * width);
		y->mean2 = pass_carve(c, rows);
		y->rstd2 = pass_carve(c, rows);
		y->fc = pass_carve(c, rows * 4 * width);
		y->act = pass_carve(c, rows * 4 * width);
	}
	p->last = pass_carve(c, rows * width);
	p->final = pass_carve(c, rows * width);
	p->mean = pass_carve(c, rows);
	p->rstd = pass_carve(c, rows);
	p->logits = pass_carve(c, rows * MODEL_VOCAB);
	p->dx = pass_carve(c, rows * width);
	p->dn = pass_carve(c, rows * width);
	p->dqkv = pass_carve(c, rows * 3 * width);
	p->dfc = pass_carve(c, rows * 4 * width);
	p->dp = pass_carve(c, seq * seq);
}

int pass_new(const struct model *m, uint32_t max_seqs, struct pass **ret_pass)
{
	struct pass *p = calloc(1, sizeof(*p));
	struct pass_carver c = {0};

	if (!p)
		return -ENOMEM;
	p->m = m;
	p->v = vecops_get();
	p->max_seqs = max_seqs;
	pass_carve_all(p, &c);
	if (posix_memalign((void **)&p->memory, 64, c.used * sizeof(real)))
		p->memory = NULL;
	p->targets = malloc((size_t)max_seqs * m->shape.seq_len);
	if (!p->memory || !p->targets) {
		pass_free(p);
		return -ENOMEM;
	}
	c = (struct pass_carver){.base = p->memory};
	pass_carve_all(p, &c);
	*ret_pass = p;
	return 0;
}

void pass_free(struct pass *p)
{
	if (!p)
		return;
	free(p->memory);
	free(p->targets);
	free(p);
}

/* y[rows][out] = x[rows][in] w^T + bias */
static void pass_linear(real *y, const real *x, const real *w, const real *bias, size_t rows, size_t in, size_t out)
{
	for (size_t r = 0; bias && r < rows; r++)
		memcpy(y + r * out, bias, out * sizeof(*y));
	REAL_GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)out, (int)in, 1, x, (int)in, w, (int)in,
		bias ? 1 : 0, y, (int)out);
}

/* dx = dy w (dx NULL: not wanted), dw += dy^T x, dbias += column sums of dy */
static void pass_linear_back(struct pass *p, real *dx, real *dw, real *dbias, const real *dy, const real *x,
	const real *w, size_t rows, size_t in, size_t out)
{
	REAL_GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)rows, 1, dy, (int)out, x, (int)in, 1,
		dw, (int)in);
	if (dbias)
		p->v->column_sums(dbias, dy, rows, out);
	REAL_GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)in, (int)out, 1, dy, (int)out, w, (int)in,
		0, dx, (int)in);
}

static void pass_attention(struct pass *p, struct pass_layer *y, uint32_t seqs)
{
	const struct model_shape *s = &p->m->shape;
	int c = (int)s->width, t = (int)s->seq_len, hs = c / (int)s->heads;
	real scale = (real)1 / REAL_SQRT((real)hs);

	for (uint32_t b = 0; b < seqs; b++)
		for (uint32_t h = 0; h < s->heads; h++) {
			const real *q = y->qkv + (size_t)b * t * 3 * c + (size_t)h * hs, *k = q + c, *v = k + c;
			real *probs = y->probs + ((size_t)b * s->heads + h) * t * t;
			real *out = y->heads + (size_t)b * t * c + (size_t)h * hs;

			REAL_GEMM(
				CblasRowMajor, CblasNoTrans, CblasTrans, t, t, hs, 1, q, 3 * c, k, 3 * c, 0, probs, t);
			p->v->softmax_causal(probs, (size_t)t, scale);
			REAL_GEMM(
				CblasRowMajor, CblasNoTrans, CblasNoTrans, t, hs, t, 1, probs, t, v, 3 * c, 0, out, c);
		}
}

/* From dheads (in p->dn) to p->dqkv. */
static void pass_attention_back(struct pass *p, const struct pass_layer *y, uint32_t seqs)
{
	const struct model_shape *s = &p->m->shape;
	int c = (int)s->width, t = (int)s->seq_len, hs = c / (int)s->heads;
	real scale = (real)1 / REAL_SQRT((real)hs);

	for (uint32_t b = 0; b < seqs; b++)
		for (uint32_t h = 0; h < s->heads; h++) {
			size_t at = (size_t)b * t * 3 * c + (size_t)h * hs;
			const real *q = y->qkv + at, *k = q + c, *v = k + c;
			const real *probs = y->probs + ((size_t)b * s->heads + h) * t * t;
			const real *dout = p->dn + (size_t)b * t * c + (size_t)h * hs;
			real *dq = p->dqkv + at, *dk = dq + c, *dv = dk + c;

			REAL_GEMM(
				CblasRowMajor, CblasTrans, CblasNoTrans, t, hs, t, 1, probs, t, dout, c, 0, dv, 3 * c);
			REAL_GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, t, t, hs, 1, dout, c, v, 3 * c, 0, p->dp, t);
			p->v->softmax_causal_back(p->dp, probs, (size_t)t, scale);
			REAL_GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, t, hs, t, 1, p->dp, t, k, 3 * c, 0, dq,
				3 * c);
			REAL_GEMM(
				CblasRowMajor, CblasTrans, CblasNoTrans, t, hs, t, 1, p->dp, t, q, 3 * c, 0, dk, 3 * c);
		}
}

static void pass_layer_forward(struct pass *p, uint32_t l, const real *params, uint32_t seqs, real *out)
{
	const struct model_layer *o = &p->m->layer[l];
	struct pass_layer *y = &p->layer[l];
	size_t c = p->m->shape.width, rows = (size_t)seqs * p->m->shape.seq_len;

	p->v->layernorm(y->ln1, y->mean1, y->rstd1, y->in, params + o->ln1_gain, params + o->ln1_bias, rows, c);
	pass_linear(y->qkv, y->ln1, params + o->qkv_w, params + o->qkv_b, rows, c, 3 * c);
	pass_attention(p, y, seqs);
	pass_linear(y->mid, y->heads, params + o->proj_w, params + o->proj_b, rows, c, c);
	p->v->add(y->mid, y->in, rows * c);
	p->v->layernorm(y->ln2, y->mean2, y->rstd2, y->mid, params + o->ln2_gain, params + o->ln2_bias, rows, c);
	pass_linear(y->fc, y->ln2, params + o->fc_w, params + o->fc_b, rows, c, 4 * c);
	p->v->gelu(y->act, y->fc, rows * 4 * c);
	pass_linear(out, y->act, params + o->out_w, params + o->out_b, rows, 4 * c, c);
	p->v->add(out, y->mid, rows * c);
}

/* p->dx holds the gradient of the layer's output and then that of its input. */
static void pass_layer_back(struct pass *p, uint32_t l, const real *params, uint32_t seqs, real *grads)
{
	const struct model_layer *o = &p->m->layer[l];
	struct pass_layer *y = &p->layer[l];
	size_t c = p->m->shape.width, rows = (size_t)seqs * p->m->shape.seq_len;

	pass_linear_back(
		p, p->dfc, grads + o->out_w, grads + o->out_b, p->dx, y->act, params + o->out_w, rows, 4 * c, c);
	p->v->gelu_back(y->act, y->fc, p->dfc, rows * 4 * c); /* act is not needed any more: it becomes dfc */
	pass_linear_back(p, p->dn, grads + o->fc_w, grads + o->fc_b, y->act, y->ln2, params + o->fc_w, rows, c, 4 * c);
	p->v->layernorm_back(p->dx, grads + o->ln2_gain, grads + o->ln2_bias, p->dn, y->mid, y->mean2, y->rstd2,
		params + o->ln2_gain, rows, c);
	pass_linear_back(
		p, p->dn, grads + o->proj_w, grads + o->proj_b, p->dx, y->heads, params + o->proj_w, rows, c, c);
	pass_attention_back(p, y, seqs);
	pass_linear_back(
		p, p->dn, grads + o->qkv_w, grads + o->qkv_b, p->dqkv, y->ln1, params + o->qkv_w, rows, c, 3 * c);
	p->v->layernorm_back(p->dx, grads + o->ln1_gain, grads + o->ln1_bias, p->dn, y->in, y->mean1, y->rstd1,
		params + o->ln1_gain, rows, c);
}

static void pass_embed(struct pass *p, const real *params, const uint8_t *text, uint32_t seqs)
{
	size_t c = p->m->shape.width, t = p->m->shape.seq_len;
	real *x = p->layer[0].in;

	for (uint32_t b = 0; b < seqs; b++)
		for (size_t i = 0; i < t; i++, x += c) {
			const real *e = params + p->m->embed + text[b * (t + 1) + i] * c;
			const real *pos = params + p->m->position + i * c;

			for (size_t j = 0; j < c; j++)
				x[j] = e[j] + pos[j];
			p->targets[b * t + i] = text[b * (t + 1) + i + 1];
		}
}

static void pass_embed_back(struct pass *p, const uint8_t *text, uint32_t seqs, real *grads)
{
	size_t c = p->m->shape.width, t = p->m->shape.seq_len;
	const real *dx = p->dx;

	for (uint32_t b = 0; b < seqs; b++)
		for (size_t i = 0; i < t; i++, dx += c) {
			p->v->add(grads + p->m->embed + text[b * (t + 1) + i] * c, dx, c);
			p->v->add(grads + p->m->position + i * c, dx, c);
		}
}

static double pass_forward(struct pass *p, const real *params, const uint8_t *text, uint32_t seqs, real scale)
{
	const struct model *m = p->m;
	size_t c = m->shape.width, rows = (size_t)seqs * m->shape.seq_len;

	pass_embed(p, params, text, seqs);
	for (uint32_t l = 0; l < m->shape.layers; l++)
		pass_layer_forward(p, l, params, seqs, l + 1 < m->shape.layers ? p->layer[l + 1].in : p->last);
	p->v->layernorm(p->final, p->mean, p->rstd, p->last, params + m->final_gain, params + m->final_bias, rows, c);
	pass_linear(p->logits, p->final, params + m->embed, NULL, rows, c, MODEL_VOCAB);
	return p->v->cross_entropy(p->logits, p->targets, rows, MODEL_VOCAB, scale);
}

double pass_loss(struct pass *p, const real *params, const uint8_t *text, uint32_t seqs)
{
	return pass_forward(p, params, text, seqs, 1);
}

double pass_grads(struct pass *p, const real *params, const uint8_t *text, uint32_t seqs, real scale, real *grads)
{
	const struct model *m = p->m;
	size_t c = m->shape.width, rows = (size_t)seqs * m->shape.seq_len;
	double loss = pass_forward(p, params, text, seqs, scale);

	pass_linear_back(
		p, p->dn, grads + m->embed, NULL, p->logits, p->final, params + m->embed, rows, c, MODEL_VOCAB);
	memset(p->dx, 0, rows * c * sizeof(*p->dx));
	p->v->layernorm_back(p->dx, grads + m->final_gain, grads + m->final_bias, p->dn, p->last, p->mean, p->rstd,
		params + m->final_gain, rows, c);
	for (uint32_t l = m->shape.layers; l-- > 0;)
		pass_layer_back(p, l, params, seqs, grads);
	pass_embed_back(p, text, seqs, grads);
	return loss;
}
