/* SPDX-License-Identifier: Apache-2.0 */
/* vecops_body: the loops of vecops.c, included once per instruction set. No include guard: that is its purpose. */

#ifdef TRAIN_REAL_DOUBLE
VEC_TARGET static inline real VEC_NAME(exp_one)(real x)
{
	return exp(x);
}
#else
/*
 * exp without a branch, so that loops over it become vector code: 2^n * e^r with |r| <= ln 2 / 2 and the polynomial of
 * Cephes' expf; relative error < 2e-7. Arguments are clamped to where the result is a normal number.
 */
VEC_TARGET static inline real VEC_NAME(exp_one)(real x)
{
	const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which stands in the low bits */
	float t, n, r, p, scale;
	uint32_t bits;

	x = x < -87.0f ? -87.0f : x;
	x = x > 88.0f ? 88.0f : x;
	t = x * 1.44269504f + magic;
	n = t - magic;
	r = x - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	p = 1.9875691500e-4f;
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	memcpy(&bits, &t, sizeof(bits));
	bits = (bits - 0x4b400000u + 127u) << 23;
	memcpy(&scale, &bits, sizeof(scale));
	return p * scale;
}
#endif

VEC_TARGET static inline real VEC_NAME(tanh_one)(real x)
{
	return (real)1 - (real)2 / (VEC_NAME(exp_one)((real)2 * x) + (real)1);
}

VEC_TARGET static void VEC_NAME(exp_many)(real *out, const real *x, size_t n)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		out[i] = VEC_NAME(exp_one)(x[i]);
}

VEC_TARGET static void VEC_NAME(layernorm)(real *restrict out, real *restrict mean, real *restrict rstd,
	const real *restrict x, const real *restrict gain, const real *restrict bias, size_t rows, size_t width)
{
	for (size_t r = 0; r < rows; r++, x += width, out += width) {
		real sum = 0, var = 0, mu, rs;

#pragma omp simd reduction(+ : sum)
		for (size_t i = 0; i < width; i++)
			sum += x[i];
		mu = sum / (real)width;
#pragma omp simd reduction(+ : var)
		for (size_t i = 0; i < width; i++)
			var += (x[i] - mu) * (x[i] - mu);
		rs = (real)1 / REAL_SQRT(var / (real)width + (real)1e-5);
#pragma omp simd
		for (size_t i = 0; i < width; i++)
			out[i] = (x[i] - mu) * rs * gain[i] + bias[i];
		mean[r] = mu;
		rstd[r] = rs;
	}
}

VEC_TARGET static void VEC_NAME(layernorm_back)(real *restrict dx, real *restrict dgain, real *restrict dbias,
	const real *restrict dout, const real *restrict x, const real *restrict mean, const real *restrict rstd,
	const real *restrict gain, size_t rows, size_t width)
{
	for (size_t r = 0; r < rows; r++, x += width, dx += width, dout += width) {
		real mu = mean[r], rs = rstd[r], sum = 0, dot = 0;

#pragma omp simd reduction(+ : sum, dot)
		for (size_t i = 0; i < width; i++) {
			real d = dout[i] * gain[i];

			sum += d;
			dot += d * (x[i] - mu);
		}
		sum /= (real)width;
		dot *= rs / (real)width;
#pragma omp simd
		for (size_t i = 0; i < width; i++) {
			real hat = (x[i] - mu) * rs;

			dgain[i] += dout[i] * hat;
			dbias[i] += dout[i];
			dx[i] += rs * (dout[i] * gain[i] - sum - hat * dot);
		}
	}
}

VEC_TARGET static void VEC_NAME(gelu)(real *restrict out, const real *restrict x, size_t n)
{
	const real k = (real)0.7978845608028654, c = (real)0.044715; /* k = sqrt(2/pi) */

#pragma omp simd
	for (size_t i = 0; i < n; i++) {
		real v = x[i], t = VEC_NAME(tanh_one)(k * (v + c * v * v * v));

		out[i] = (real)0.5 * v * ((real)1 + t);
	}
}

VEC_TARGET static void VEC_NAME(gelu_back)(
	real *restrict dx, const real *restrict x, const real *restrict dout, size_t n)
{
	const real k = (real)0.7978845608028654, c = (real)0.044715;

#pragma omp simd
	for (size_t i = 0; i < n; i++) {
		real v = x[i], t = VEC_NAME(tanh_one)(k * (v + c * v * v * v));
		real slope = k * ((real)1 + (real)3 * c * v * v);

		dx[i] = dout[i] * ((real)0.5 * ((real)1 + t) + (real)0.5 * v * ((real)1 - t * t) * slope);
	}
}

/* Softmax of x[0..n) times scale, in place; returns log of the sum of exp(scaled x). */
VEC_TARGET static inline real VEC_NAME(softmax_row)(real *x, size_t n, real scale, real *ret_sum)
{
	real max = x[0], sum = 0, inv;

#pragma omp simd reduction(max : max)
	for (size_t i = 0; i < n; i++)
		max = x[i] > max ? x[i] : max;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < n; i++) {
		x[i] = VEC_NAME(exp_one)((x[i] - max) * scale);
		sum += x[i];
	}
	inv = (real)1 / sum;
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		x[i] *= inv;
	*ret_sum = sum;
	return max;
}

VEC_TARGET static void VEC_NAME(softmax_causal)(real *p, size_t n, real scale)
{
	real sum;

	for (size_t r = 0; r < n; r++, p += n) {
		VEC_NAME(softmax_row)(p, r + 1, scale, &sum);
		memset(p + r + 1, 0, (n - r - 1) * sizeof(*p));
	}
}

VEC_TARGET static void VEC_NAME(softmax_causal_back)(real *restrict dp, const real *restrict p, size_t n, real scale)
{
	for (size_t r = 0; r < n; r++, p += n, dp += n) {
		real dot = 0;

#pragma omp simd reduction(+ : dot)
		for (size_t i = 0; i <= r; i++)
			dot += dp[i] * p[i];
#pragma omp simd
		for (size_t i = 0; i <= r; i++)
			dp[i] = p[i] * (dp[i] - dot) * scale;
		memset(dp + r + 1, 0, (n - r - 1) * sizeof(*dp));
	}
}

VEC_TARGET static double VEC_NAME(cross_entropy)(
	real *logits, const uint8_t *targets, size_t rows, size_t width, real grad_scale)
{
	double loss = 0;

	for (size_t r = 0; r < rows; r++, logits += width) {
		real target = logits[targets[r]], sum, max;

		max = VEC_NAME(softmax_row)(logits, width, (real)1, &sum);
		loss += log((double)sum) + (double)max - (double)target;
		logits[targets[r]] -= (real)1;
#pragma omp simd
		for (size_t i = 0; i < width; i++)
			logits[i] *= grad_scale;
	}
	return loss;
}

VEC_TARGET static void VEC_NAME(add)(real *restrict y, const real *restrict x, size_t n)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		y[i] += x[i];
}

VEC_TARGET static void VEC_NAME(column_sums)(real *restrict sums, const real *restrict x, size_t rows, size_t width)
{
	for (size_t r = 0; r < rows; r++, x += width)
#pragma omp simd
		for (size_t i = 0; i < width; i++)
			sums[i] += x[i];
}

VEC_TARGET static double VEC_NAME(square_sum)(const real *x, size_t n)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return sum;
}

VEC_TARGET static void VEC_NAME(adamw)(real *restrict w, real *restrict m, real *restrict v, const real *restrict g,
	size_t n, const struct adamw_step *a, real weight_decay)
{
	const struct adamw_step c = *a;

#pragma omp simd
	for (size_t i = 0; i < n; i++) {
		real grad = g[i] * c.grad_scale;
		real mi = c.beta1 * m[i] + ((real)1 - c.beta1) * grad;
		real vi = c.beta2 * v[i] + ((real)1 - c.beta2) * grad * grad;

		m[i] = mi;
		v[i] = vi;
		w[i] -= c.lr * (mi / c.correction1 / (REAL_SQRT(vi / c.correction2) + c.eps) + weight_decay * w[i]);
	}
}

static const struct vecops VEC_NAME(vecops) = {
	.name = VEC_LABEL,
	.layernorm = VEC_NAME(layernorm),
	.layernorm_back = VEC_NAME(layernorm_back),
	.gelu = VEC_NAME(gelu),
	.gelu_back = VEC_NAME(gelu_back),
	.softmax_causal = VEC_NAME(softmax_causal),
	.softmax_causal_back = VEC_NAME(softmax_causal_back),
	.cross_entropy = VEC_NAME(cross_entropy),
	.add = VEC_NAME(add),
	.column_sums = VEC_NAME(column_sums),
	.square_sum = VEC_NAME(square_sum),
	.adamw = VEC_NAME(adamw),
	.exp = VEC_NAME(exp_many),
};
