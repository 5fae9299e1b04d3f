/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda: the optimizer's state and update on a GPU; gradients come from the CPU. A build without nvcc has none of it
 * (HAVE_CUDA). The same formula as adamw.h; the last bits may differ from the CPU's.
 */
#ifndef TRAINER_CUDA_H
#define TRAINER_CUDA_H

#include "trainer/adamw.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_adamw;

/* -ENODEV: no GPU, or its driver is too old; e says which. */
int cuda_adamw_new(
	size_t count, const real *params, const real *m, const real *v, struct cuda_adamw **ret_cuda, struct terr *e);
void cuda_adamw_free(struct cuda_adamw *c); /* NULL is allowed */
/* One step as adamw_update; `params` receives the new parameters. -EIO: the GPU failed. */
int cuda_adamw_update(struct cuda_adamw *c, const struct adamw_options *o, const struct model *model, uint64_t step,
	real *params, const real *grads, double grad_norm, struct terr *e);
/* Brings the moments to the host, for a checkpoint. */
int cuda_adamw_moments(struct cuda_adamw *c, real *m, real *v, struct terr *e);

#ifdef __cplusplus
}
#endif
#endif
