/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real: the number type of the model. craton-train computes in float; the gradient test compiles the same sources with
 * TRAIN_REAL_DOUBLE, because finite differences in single precision cannot tell a wrong derivative from rounding.
 */
#ifndef TRAINER_REAL_H
#define TRAINER_REAL_H

#ifdef TRAIN_REAL_DOUBLE
typedef double real;
#define REAL_GEMM cblas_dgemm
#define REAL_SQRT sqrt
#else
typedef float real;
#define REAL_GEMM cblas_sgemm
#define REAL_SQRT sqrtf
#endif

#endif
