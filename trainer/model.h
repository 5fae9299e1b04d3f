/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: a byte-level GPT: learned positions, layers of pre-LayerNorm causal attention and GELU MLP, a last LayerNorm, and a
 * head tied to the byte embedding. This header: shapes, where each tensor lies in the one flat array of parameters, and the
 * initial values. pass.h computes with it.
 *
 * The order of tensors in the array is part of the checkpoint format (docs/FORMATS.md).
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "trainer/real.h"
#include "trainer/terr.h"

enum {
	MODEL_VOCAB = 256,
	MODEL_LAYERS_MAX = 64,
	MODEL_WIDTH_MAX = 8192,
	MODEL_SEQ_MAX = 8192,
	MODEL_TENSORS_MAX = 4 + 12 * MODEL_LAYERS_MAX,
};

struct model_shape {
	uint32_t layers, width, heads, seq_len;
};

/* Offsets in the flat array, in numbers. */
struct model_layer {
	size_t ln1_gain, ln1_bias, qkv_w, qkv_b, proj_w, proj_b, ln2_gain, ln2_bias, fc_w, fc_b, out_w, out_b;
};

struct model_tensor {
	char name[32];
	size_t offset;
	uint32_t rows, cols; /* rows = 1: a vector */
	bool decays;         /* AdamW's weight decay applies */
};

struct model {
	struct model_shape shape;
	size_t embed, position; /* [256][width], [seq_len][width] */
	struct model_layer layer[MODEL_LAYERS_MAX];
	size_t final_gain, final_bias;
	size_t param_count;
	struct model_tensor tensor[MODEL_TENSORS_MAX];
	uint32_t tensor_count;
};

/* xoshiro256** (Blackman, Vigna 2018): the state is the one in checkpoints. */
struct model_rng {
	uint64_t s[4];
};

void model_rng_init(struct model_rng *r, uint64_t seed);
uint64_t model_rng_next(struct model_rng *r);

/* -EINVAL with a line that names the option if the shape makes no sense. */
int model_init(struct model *m, const struct model_shape *shape, struct terr *e);
/* Normal numbers of standard deviation 0.02 (projections into the residual stream scaled by 1/sqrt(2 layers)). */
void model_init_params(const struct model *m, struct model_rng *rng, real *params);

#endif
