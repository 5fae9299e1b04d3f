/* SPDX-License-Identifier: Apache-2.0 */
/* model: see model.h. Tensors are laid out in the order of the calls in model_init. */
#include "trainer/model.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static uint64_t model_rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

void model_rng_init(struct model_rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++) { /* splitmix64 */
		uint64_t z = seed += 0x9e3779b97f4a7c15u;

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		r->s[i] = z ^ (z >> 31);
	}
}

uint64_t model_rng_next(struct model_rng *r)
{
	uint64_t *s = r->s, result = model_rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = model_rotl(s[3], 45);
	return result;
}

static double model_rng_uniform(struct model_rng *r)
{
	return ((double)(model_rng_next(r) >> 11) + 0.5) * 0x1p-53;
}

static size_t model_add(struct model *m, const char *name, int layer, uint32_t rows, uint32_t cols)
{
	struct model_tensor *t = &m->tensor[m->tensor_count++];

	if (layer >= 0)
		snprintf(t->name, sizeof(t->name), "layer%d.%s", layer, name);
	else
		snprintf(t->name, sizeof(t->name), "%s", name);
	t->offset = m->param_count;
	t->rows = rows;
	t->cols = cols;
	t->decays = rows > 1;
	m->param_count += (size_t)rows * cols;
	return t->offset;
}

static int model_check(const struct model_shape *s, struct terr *e)
{
	if (s->layers < 1 || s->layers > MODEL_LAYERS_MAX)
		return terr_set(e, -EINVAL, "--layers %u: give 1 to %d", s->layers, MODEL_LAYERS_MAX);
	if (s->width < 8 || s->width > MODEL_WIDTH_MAX)
		return terr_set(e, -EINVAL, "--width %u: give 8 to %d", s->width, MODEL_WIDTH_MAX);
	if (s->heads < 1 || s->width % s->heads)
		return terr_set(e, -EINVAL, "--heads %u: give a number that divides the width, %u", s->heads, s->width);
	if (s->seq_len < 2 || s->seq_len > MODEL_SEQ_MAX)
		return terr_set(e, -EINVAL, "--seq-len %u: give 2 to %d", s->seq_len, MODEL_SEQ_MAX);
	return 0;
}

int model_init(struct model *m, const struct model_shape *shape, struct terr *e)
{
	uint32_t w = shape->width;
	int rc = model_check(shape, e);

	if (rc)
		return rc;
	memset(m, 0, sizeof(*m));
	m->shape = *shape;
	m->embed = model_add(m, "embed", -1, MODEL_VOCAB, w);
	m->position = model_add(m, "position", -1, shape->seq_len, w);
	for (int l = 0; l < (int)shape->layers; l++) {
		struct model_layer *y = &m->layer[l];

		y->ln1_gain = model_add(m, "ln1.gain", l, 1, w);
		y->ln1_bias = model_add(m, "ln1.bias", l, 1, w);
		y->qkv_w = model_add(m, "qkv.weight", l, 3 * w, w);
		y->qkv_b = model_add(m, "qkv.bias", l, 1, 3 * w);
		y->proj_w = model_add(m, "proj.weight", l, w, w);
		y->proj_b = model_add(m, "proj.bias", l, 1, w);
		y->ln2_gain = model_add(m, "ln2.gain", l, 1, w);
		y->ln2_bias = model_add(m, "ln2.bias", l, 1, w);
		y->fc_w = model_add(m, "fc.weight", l, 4 * w, w);
		y->fc_b = model_add(m, "fc.bias", l, 1, 4 * w);
		y->out_w = model_add(m, "out.weight", l, w, 4 * w);
		y->out_b = model_add(m, "out.bias", l, 1, w);
	}
	m->final_gain = model_add(m, "final.gain", -1, 1, w);
	m->final_bias = model_add(m, "final.bias", -1, 1, w);
	return 0;
}

static void model_fill_normal(struct model_rng *rng, real *x, size_t n, double deviation)
{
	for (size_t i = 0; i < n; i++) { /* Box-Muller, one of the pair */
		double u = model_rng_uniform(rng), v = model_rng_uniform(rng);

		x[i] = (real)(deviation * sqrt(-2 * log(u)) * cos(2 * M_PI * v));
	}
}

static bool model_name_ends(const char *name, const char *end)
{
	size_t n = strlen(name), k = strlen(end);

	return n >= k && !strcmp(name + n - k, end);
}

void model_init_params(const struct model *m, struct model_rng *rng, real *params)
{
	double residual = 0.02 / sqrt(2.0 * m->shape.layers);

	for (uint32_t i = 0; i < m->tensor_count; i++) {
		const struct model_tensor *t = &m->tensor[i];
		size_t n = (size_t)t->rows * t->cols;
		real *x = params + t->offset;

		if (model_name_ends(t->name, ".gain"))
			for (size_t j = 0; j < n; j++)
				x[j] = 1;
		else if (model_name_ends(t->name, "proj.weight") || model_name_ends(t->name, "out.weight"))
			model_fill_normal(rng, x, n, residual);
		else if (t->rows > 1)
			model_fill_normal(rng, x, n, 0.02);
		else
			memset(x, 0, n * sizeof(*x));
	}
}
