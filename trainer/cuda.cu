/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda: see cuda.h. Parameters and moments stay on the GPU; a step copies the gradients there, runs one kernel per run of
 * tensors with the same weight decay, and copies the parameters back. Everything is on one stream, in order.
 */
#include "trainer/cuda.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <stdlib.h>

struct cuda_adamw {
	size_t count;
	real *params, *m, *v, *grads; /* on the GPU */
};

static int cuda_fail(struct terr *e, int code, const char *what, cudaError_t rc)
{
	return terr_set(e, code, "--device cuda: %s: %s", what, cudaGetErrorString(rc));
}

static __global__ void cuda_adamw_kernel(
	real *w, real *m, real *v, const real *g, size_t n, struct adamw_step a, real weight_decay)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	real grad = g[i] * a.grad_scale;
	real mi = a.beta1 * m[i] + ((real)1 - a.beta1) * grad;
	real vi = a.beta2 * v[i] + ((real)1 - a.beta2) * grad * grad;

	m[i] = mi;
	v[i] = vi;
	w[i] -= a.lr * (mi / a.correction1 / (sqrtf(vi / a.correction2) + a.eps) + weight_decay * w[i]);
}

extern "C" void cuda_adamw_free(struct cuda_adamw *c)
{
	if (!c)
		return;
	cudaFree(c->params);
	cudaFree(c->m);
	cudaFree(c->v);
	cudaFree(c->grads);
	free(c);
}

extern "C" int cuda_adamw_new(
	size_t count, const real *params, const real *m, const real *v, struct cuda_adamw **ret_cuda, struct terr *e)
{
	size_t bytes = count * sizeof(real);
	int devices = 0;
	cudaError_t rc = cudaGetDeviceCount(&devices);
	struct cuda_adamw *c;

	if (rc != cudaSuccess || devices < 1)
		return cuda_fail(e, -ENODEV, "no usable GPU", rc);
	c = (struct cuda_adamw *)calloc(1, sizeof(*c));
	if (!c)
		return terr_set(e, -ENOMEM, "out of memory");
	c->count = count;
	if ((rc = cudaMalloc((void **)&c->params, bytes)) != cudaSuccess ||
		(rc = cudaMalloc((void **)&c->m, bytes)) != cudaSuccess ||
		(rc = cudaMalloc((void **)&c->v, bytes)) != cudaSuccess ||
		(rc = cudaMalloc((void **)&c->grads, bytes)) != cudaSuccess ||
		(rc = cudaMemcpy(c->params, params, bytes, cudaMemcpyHostToDevice)) != cudaSuccess ||
		(rc = cudaMemcpy(c->m, m, bytes, cudaMemcpyHostToDevice)) != cudaSuccess ||
		(rc = cudaMemcpy(c->v, v, bytes, cudaMemcpyHostToDevice)) != cudaSuccess) {
		cuda_adamw_free(c);
		return cuda_fail(e, -ENOMEM, "memory for the optimizer", rc);
	}
	*ret_cuda = c;
	return 0;
}

extern "C" int cuda_adamw_update(struct cuda_adamw *c, const struct adamw_options *o, const struct model *model,
	uint64_t step, real *params, const real *grads, double grad_norm, struct terr *e)
{
	const unsigned threads = 256;
	struct adamw_step a = adamw_step_make(o, step, grad_norm);
	cudaError_t rc = cudaMemcpy(c->grads, grads, c->count * sizeof(real), cudaMemcpyHostToDevice);
	struct adamw_run run = {0};

	while (rc == cudaSuccess && adamw_next_run(model, &run)) {
		cuda_adamw_kernel<<<(unsigned)((run.count + threads - 1) / threads), threads>>>(c->params + run.offset,
			c->m + run.offset, c->v + run.offset, c->grads + run.offset, run.count, a,
			run.decays ? (real)o->weight_decay : 0);
		rc = cudaGetLastError();
	}
	if (rc == cudaSuccess)
		rc = cudaMemcpy(params, c->params, c->count * sizeof(real), cudaMemcpyDeviceToHost);
	return rc == cudaSuccess ? 0 : cuda_fail(e, -EIO, "the update failed", rc);
}

extern "C" int cuda_adamw_moments(struct cuda_adamw *c, real *m, real *v, struct terr *e)
{
	cudaError_t rc = cudaMemcpy(m, c->m, c->count * sizeof(real), cudaMemcpyDeviceToHost);

	if (rc == cudaSuccess)
		rc = cudaMemcpy(v, c->v, c->count * sizeof(real), cudaMemcpyDeviceToHost);
	return rc == cudaSuccess ? 0 : cuda_fail(e, -EIO, "the moments could not be copied", rc);
}
