/* SPDX-License-Identifier: Apache-2.0 */
/* The float loops against libm in double, for every instruction set of this machine; derivatives are test_pass's. */
#include "trainer/vecops.h"

#include <math.h>
#include <string.h>
#include "tests/lib/unit.h"
#include "trainer/adamw.h"

enum { N = 1037 }; /* no multiple of a vector */

static float bed_value(unsigned i)
{
	return (float)((i * 2654435761u >> 8) & 0xffff) / 8192.0f - 4.0f;
}

START_TEST(test_exp)
{
	const struct vecops *sets[4];
	size_t count = vecops_all(sets);
	float x[N], y[N];

	for (int i = 0; i < N; i++)
		x[i] = (float)(i - N / 2) * 0.16f;
	for (size_t s = 0; s < count; s++) {
		sets[s]->exp(y, x, N);
		for (int i = 0; i < N; i++) {
			double clamped = x[i] < -87.0f ? -87.0 : (double)x[i], want = exp(clamped);

			ck_assert_msg(fabs(y[i] - want) <= 3e-7 * want, "%s: exp(%g) = %g", sets[s]->name, x[i], y[i]);
		}
		x[0] = NAN;
		sets[s]->exp(y, x, 1);
		ck_assert(isnan(y[0])); /* a broken run must stay visible */
		x[0] = 0;
	}
}
END_TEST

START_TEST(test_gelu_and_layernorm)
{
	const struct vecops *sets[4];
	size_t count = vecops_all(sets);
	float x[N], y[N], gain[N], bias[N], mean, rstd;
	double mu = 0, var = 0;

	for (int i = 0; i < N; i++) {
		x[i] = bed_value((unsigned)i);
		gain[i] = 1 + x[i] / 16;
		bias[i] = x[i] / 8;
		mu += x[i] / (double)N;
	}
	for (int i = 0; i < N; i++)
		var += (x[i] - mu) * (x[i] - mu) / N;
	for (size_t s = 0; s < count; s++) {
		sets[s]->gelu(y, x, N);
		for (int i = 0; i < N; i++) {
			double v = x[i], want = 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));

			ck_assert_msg(
				fabs(y[i] - want) < 2e-6, "%s: gelu(%g) = %g, not %g", sets[s]->name, v, y[i], want);
		}
		sets[s]->layernorm(y, &mean, &rstd, x, gain, bias, 1, N);
		for (int i = 0; i < N; i++) {
			double want = (x[i] - mu) / sqrt(var + 1e-5) * gain[i] + bias[i];

			ck_assert_msg(fabs(y[i] - want) < 2e-5, "%s: %g, not %g", sets[s]->name, y[i], want);
		}
	}
}
END_TEST

START_TEST(test_cross_entropy)
{
	const struct vecops *sets[4];
	size_t count = vecops_all(sets);

	for (size_t s = 0; s < count; s++) {
		float x[2 * 8] = {100, 1, 2, 3, 4, 5, 6, 7, -1, 0, 0, 0, 0, 0, 0, 0};
		uint8_t targets[2] = {0, 0};
		double loss = sets[s]->cross_entropy(x, targets, 2, 8, 1), p = exp(-1) / (exp(-1) + 7);

		ck_assert_double_eq_tol(loss, -log(p), 1e-5);
		ck_assert_double_eq_tol((double)x[8], p - 1, 1e-6);
		ck_assert_double_eq_tol((double)x[15], 1 / (exp(-1) + 7), 1e-6);
	}
}
END_TEST

START_TEST(test_adamw)
{
	const struct vecops *sets[4];
	size_t count = vecops_all(sets);
	const struct adamw_step a = {.lr = 0.01f,
		.beta1 = 0.9f,
		.beta2 = 0.98f,
		.eps = 1e-8f,
		.correction1 = 0.1f,
		.correction2 = 0.02f,
		.grad_scale = 0.5f};

	for (size_t s = 0; s < count; s++) {
		float w[N], m[N], v[N], g[N];

		for (int i = 0; i < N; i++) {
			w[i] = bed_value((unsigned)i);
			g[i] = bed_value((unsigned)i + 77);
			m[i] = v[i] = 0;
		}
		sets[s]->adamw(w, m, v, g, N, &a, 0.1f);
		for (int i = 0; i < N; i++) {
			double grad = g[i] * 0.5, before = bed_value((unsigned)i);
			double want = before - 0.01 * (grad / (fabs(grad) + 1e-8) + 0.1 * before);

			ck_assert_double_eq_tol((double)w[i], want, 2e-6);
			ck_assert_double_eq_tol((double)m[i], 0.1 * grad, 1e-6);
			ck_assert_double_eq_tol((double)v[i], 0.02 * grad * grad, 1e-6);
		}
	}
}
END_TEST

START_TEST(test_learning_rate)
{
	const struct adamw_options o = {.lr = 1, .warmup_steps = 10, .decay_steps = 100}, flat = {.lr = 1};

	ck_assert_double_eq_tol(adamw_lr(&o, 1), 0.1, 1e-12);
	ck_assert_double_eq_tol(adamw_lr(&o, 10), 1, 1e-12);
	ck_assert_double_eq_tol(adamw_lr(&o, 60), 0.55, 1e-12);
	ck_assert_double_eq_tol(adamw_lr(&o, 110), 0.1, 1e-12);
	ck_assert_double_eq_tol(adamw_lr(&o, 1000000), 0.1, 1e-12);
	ck_assert_double_eq_tol(adamw_lr(&flat, 1), 0.1, 1e-12);
}
END_TEST

UNIT_MAIN("vecops", test_exp, test_gelu_and_layernorm, test_cross_entropy, test_adamw, test_learning_rate)
