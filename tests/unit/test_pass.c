/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against central differences, in double precision. Built with the double build of model, pass and vecops. */
#ifndef TRAIN_REAL_DOUBLE
#define TRAIN_REAL_DOUBLE
#endif
#include "trainer/pass.h"

#include <math.h>
#include <string.h>
#include "tests/lib/unit.h"

enum { SEQS = 3 };

struct bed {
	struct model m;
	struct pass *pass;
	real *params, *grads;
	uint8_t text[SEQS * 64];
};

static void bed_init(struct bed *b, struct model_shape shape)
{
	struct model_rng rng;
	struct terr e;

	ck_assert_int_eq(model_init(&b->m, &shape, &e), 0);
	ck_assert_int_eq(pass_new(&b->m, SEQS, &b->pass), 0);
	b->params = calloc(b->m.param_count, sizeof(real));
	b->grads = calloc(b->m.param_count, sizeof(real));
	model_rng_init(&rng, 5);
	model_init_params(&b->m, &rng, b->params);
	/* Away from the special point of the start: no zeros, no ones, larger weights. */
	for (size_t i = 0; i < b->m.param_count; i++)
		b->params[i] = b->params[i] * 3 + ((double)(model_rng_next(&rng) >> 40) * 0x1p-24 - 0.5) * 0.2;
	for (size_t i = 0; i < SEQS * (shape.seq_len + 1); i++)
		b->text[i] = (uint8_t)(model_rng_next(&rng) % 11);
}

static void bed_fini(struct bed *b)
{
	pass_free(b->pass);
	free(b->params);
	free(b->grads);
}

static double difference(struct bed *b, size_t i, double scale)
{
	const double h = 1e-5;
	double keep = b->params[i], up, down;

	b->params[i] = keep + h;
	up = pass_loss(b->pass, b->params, b->text, SEQS);
	b->params[i] = keep - h;
	down = pass_loss(b->pass, b->params, b->text, SEQS);
	b->params[i] = keep;
	return (up - down) / (2 * h) * scale;
}

/* Some numbers of every tensor: all kinds of layers and all their places. */
START_TEST(test_gradient_of_every_tensor)
{
	struct bed *b = calloc(1, sizeof(*b));
	const double scale = 0.25;
	int far_from_zero = 0;

	bed_init(b, (struct model_shape){.layers = 2, .width = 12, .heads = 3, .seq_len = 7});
	pass_grads(b->pass, b->params, b->text, SEQS, scale, b->grads);
	for (uint32_t t = 0; t < b->m.tensor_count; t++) {
		const struct model_tensor *x = &b->m.tensor[t];
		size_t n = (size_t)x->rows * x->cols, stride = n / 17 + 1;

		for (size_t i = 0; i < n; i += stride) {
			double want = difference(b, x->offset + i, scale), have = b->grads[x->offset + i];

			far_from_zero += fabs(want) > 1e-3;
			ck_assert_msg(fabs(want - have) <= 1e-7 + 1e-5 * fabs(want),
				"%s[%zu]: %.9g, differences say %.9g", x->name, i, have, want);
		}
	}
	ck_assert_int_gt(far_from_zero, 100);
	bed_fini(b);
	free(b);
}
END_TEST

START_TEST(test_gradients_add_up)
{
	struct bed *b = calloc(1, sizeof(*b));
	real *parts;
	double whole, sum = 0;

	bed_init(b, (struct model_shape){.layers = 1, .width = 8, .heads = 2, .seq_len = 5});
	parts = calloc(b->m.param_count, sizeof(real));
	whole = pass_grads(b->pass, b->params, b->text, SEQS, 1, b->grads);
	for (uint32_t s = 0; s < SEQS; s++)
		sum += pass_grads(b->pass, b->params, b->text + s * 6, 1, 1, parts);
	ck_assert_double_eq_tol(whole, sum, 1e-9);
	ck_assert_double_eq_tol(whole, pass_loss(b->pass, b->params, b->text, SEQS), 1e-12);
	for (size_t i = 0; i < b->m.param_count; i++)
		ck_assert_double_eq_tol(parts[i], b->grads[i], 1e-9);
	free(parts);
	bed_fini(b);
	free(b);
}
END_TEST

/*
 * No position may see what comes after it. The losses of the first five of six predictions are those of the same weights with
 * sequences of five; then what is left of the six, -log p(last byte), makes probabilities that sum up to one.
 */
START_TEST(test_causal)
{
	struct bed *six = calloc(1, sizeof(*six)), *five = calloc(1, sizeof(*five));
	double head, sum = 0;

	bed_init(six, (struct model_shape){.layers = 2, .width = 8, .heads = 2, .seq_len = 6});
	bed_init(five, (struct model_shape){.layers = 2, .width = 8, .heads = 2, .seq_len = 5});
	for (uint32_t t = 0; t < five->m.tensor_count; t++) {
		const struct model_tensor *x = &five->m.tensor[t], *y = &six->m.tensor[t];

		ck_assert_str_eq(x->name, y->name);
		memcpy(five->params + x->offset, six->params + y->offset, (size_t)x->rows * x->cols * sizeof(real));
	}
	head = pass_loss(five->pass, five->params, six->text, 1);
	for (int byte = 0; byte < 256; byte++) {
		six->text[6] = (uint8_t)byte;
		sum += exp(head - pass_loss(six->pass, six->params, six->text, 1));
	}
	ck_assert_double_eq_tol(sum, 1, 1e-9);
	bed_fini(six);
	bed_fini(five);
	free(six);
	free(five);
}
END_TEST

UNIT_MAIN("pass", test_gradient_of_every_tensor, test_gradients_add_up, test_causal)
