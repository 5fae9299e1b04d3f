/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/step.h"

#include <math.h>
#include <string.h>
#include "tests/lib/unit.h"
#include "trainer/adamw.h"

enum { BATCH = 6, SEQ = 16 };

struct bed {
	struct model m;
	struct workers *w;
	struct step *step;
	real *params, *adam_m, *adam_v;
	uint8_t text[BATCH * (SEQ + 1)];
};

static struct bed *bed_new(unsigned threads, uint32_t lanes)
{
	struct bed *b = calloc(1, sizeof(*b));
	const struct model_shape shape = {.layers = 2, .width = 32, .heads = 2, .seq_len = SEQ};
	struct model_rng rng;
	struct terr e;

	ck_assert_int_eq(model_init(&b->m, &shape, &e), 0);
	ck_assert_int_eq(workers_new(threads, &b->w), 0);
	ck_assert_int_eq(step_new(&b->m, b->w, BATCH, lanes, &b->step), 0);
	b->params = calloc(b->m.param_count, sizeof(real));
	b->adam_m = calloc(b->m.param_count, sizeof(real));
	b->adam_v = calloc(b->m.param_count, sizeof(real));
	model_rng_init(&rng, 9);
	model_init_params(&b->m, &rng, b->params);
	for (size_t i = 0; i < sizeof(b->text); i++)
		b->text[i] = (uint8_t)(model_rng_next(&rng) % 50);
	return b;
}

static void bed_free(struct bed *b)
{
	step_free(b->step);
	workers_free(b->w);
	free(b->params);
	free(b->adam_m);
	free(b->adam_v);
	free(b);
}

static double bed_train(struct bed *b, uint64_t steps)
{
	const struct adamw_options o = {.lr = 3e-3, .clip = 1, .warmup_steps = 5, .decay_steps = 100000};
	double loss = 0, norm;
	const real *grads;

	for (uint64_t i = 1; i <= steps; i++) {
		loss = step_grads(b->step, b->params, b->text, &grads, &norm);
		ck_assert(isfinite(loss) && norm > 0);
		adamw_update(&o, &b->m, b->w, i, b->params, b->adam_m, b->adam_v, grads, norm);
	}
	return loss;
}

/* Random bytes cannot be guessed, only learned by heart: all of forward, backward and optimizer must work for that. */
START_TEST(test_learns_a_small_batch_by_heart)
{
	struct bed *b = bed_new(2, 3);
	double first = bed_train(b, 1), last = bed_train(b, 150);

	ck_assert_double_eq_tol(first, log(256), 0.2);
	ck_assert_double_lt(last, 0.3);
	ck_assert_double_lt(step_loss(b->step, b->params, b->text, BATCH), 0.3);
	bed_free(b);
}
END_TEST

START_TEST(test_bits_do_not_depend_on_threads)
{
	struct bed *one = bed_new(1, 3), *three = bed_new(3, 3);

	ck_assert(bed_train(one, 8) == bed_train(three, 8));
	ck_assert_int_eq(memcmp(one->params, three->params, one->m.param_count * sizeof(real)), 0);
	ck_assert_int_eq(memcmp(one->adam_v, three->adam_v, one->m.param_count * sizeof(real)), 0);
	bed_free(one);
	bed_free(three);
}
END_TEST

/* Other lanes are another order of additions: the same up to rounding. */
START_TEST(test_lanes_share_the_batch)
{
	static const uint32_t lanes[] = {1, 4, 6, 64};
	const real *grads, *want;
	double norm, want_norm;
	struct bed *all = bed_new(1, 1);
	double loss = step_grads(all->step, all->params, all->text, &want, &want_norm);

	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
		struct bed *b = bed_new(2, lanes[i]);

		ck_assert_double_eq_tol(step_grads(b->step, b->params, b->text, &grads, &norm), loss, 1e-5);
		ck_assert_double_eq_tol(norm, want_norm, 1e-5);
		for (size_t j = 0; j < b->m.param_count; j++)
			ck_assert_double_eq_tol((double)grads[j], (double)want[j], 1e-5);
		bed_free(b);
	}
	bed_free(all);
}
END_TEST

START_TEST(test_model_refuses_shapes)
{
	static const struct model_shape bad[] = {{0, 32, 2, 16}, {65, 32, 2, 16}, {1, 4, 1, 16}, {1, 32, 3, 16},
		{1, 32, 0, 16}, {1, 32, 2, 1}, {1, 9000, 2, 16}, {1, 32, 2, 100000}};
	struct model *m = malloc(sizeof(*m));
	struct terr e;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_lt(model_init(m, &bad[i], &e), 0);
	free(m);
}
END_TEST

UNIT_MAIN("step", test_learns_a_small_batch_by_heart, test_bits_do_not_depend_on_threads, test_lanes_share_the_batch,
	test_model_refuses_shapes)
