/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer on the GPU against the one on the CPU. Without a GPU it says so and is skipped. */
#include "trainer/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tests/lib/unit.h"

START_TEST(test_same_as_cpu)
{
	const struct model_shape shape = {.layers = 2, .width = 64, .heads = 2, .seq_len = 32};
	const struct adamw_options o = {
		.lr = 1e-2, .weight_decay = 0.1, .clip = 1, .warmup_steps = 3, .decay_steps = 100};
	struct model *m = malloc(sizeof(*m));
	struct model_rng rng;
	struct workers *w;
	struct cuda_adamw *c;
	struct terr e;
	real *a[3], *b[3], *grads;

	ck_assert_int_eq(model_init(m, &shape, &e), 0);
	ck_assert_int_eq(workers_new(1, &w), 0);
	model_rng_init(&rng, 3);
	grads = calloc(m->param_count, sizeof(real));
	for (int i = 0; i < 3; i++) {
		a[i] = calloc(m->param_count, sizeof(real));
		b[i] = calloc(m->param_count, sizeof(real));
	}
	model_init_params(m, &rng, a[0]);
	memcpy(b[0], a[0], m->param_count * sizeof(real));
	ck_assert_msg(cuda_adamw_new(m->param_count, b[0], b[1], b[2], &c, &e) == 0, "%s", e.text);
	for (uint64_t step = 1; step <= 10; step++) {
		for (size_t i = 0; i < m->param_count; i++)
			grads[i] = (real)(model_rng_next(&rng) >> 40) * 0x1p-24f - 0.5f;
		adamw_update(&o, m, w, step, a[0], a[1], a[2], grads, 2.5);
		ck_assert_msg(cuda_adamw_update(c, &o, m, step, b[0], grads, 2.5, &e) == 0, "%s", e.text);
	}
	ck_assert_msg(cuda_adamw_moments(c, b[1], b[2], &e) == 0, "%s", e.text);
	for (int k = 0; k < 3; k++)
		for (size_t i = 0; i < m->param_count; i++)
			ck_assert_double_eq_tol((double)a[k][i], (double)b[k][i], 1e-5);
	for (int i = 0; i < 3; i++) {
		free(a[i]);
		free(b[i]);
	}
	free(grads);
	cuda_adamw_free(c);
	workers_free(w);
	free(m);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {test_same_as_cpu};
	struct cuda_adamw *c;
	struct terr e;
	real one = 1;

	if (cuda_adamw_new(1, &one, &one, &one, &c, &e) == -ENODEV) {
		printf("skipped: %s\n", e.text);
		return 77;
	}
	setenv("CK_FORK", "no", 1); /* a CUDA context does not survive fork */
	cuda_adamw_free(c);
	return unit_run("cuda", tests, 1);
}
