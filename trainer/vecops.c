/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vecops: see vecops.h. The loops stand in vecops_body.h, which is included once per instruction set with VEC_TARGET (a
 * function attribute) and VEC_NAME. Plain loops marked `omp simd` are enough (the mark works at -O2 too, and
 * allows sums in several parts): the compilers turn them into vector code, and the order of additions is fixed then.
 */
#include "trainer/vecops.h"

#include <math.h>
#include <string.h>

#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that stays scalar is slower, not wrong */
#endif

#define VEC_TARGET
#define VEC_NAME(x) x##_base
#define VEC_LABEL "base"
#include "trainer/vecops_body.h"
#undef VEC_TARGET
#undef VEC_NAME
#undef VEC_LABEL

#if defined(__x86_64__)
#define VECOPS_HAVE_AVX2 1
#define VEC_TARGET __attribute__((target("avx2,fma")))
#define VEC_NAME(x) x##_avx2
#define VEC_LABEL "avx2"
#include "trainer/vecops_body.h"
#endif

size_t vecops_all(const struct vecops *sets[4])
{
	size_t n = 0;

	sets[n++] = &vecops_base;
#ifdef VECOPS_HAVE_AVX2
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		sets[n++] = &vecops_avx2;
#endif
	return n;
}

const struct vecops *vecops_get(void)
{
	const struct vecops *sets[4];
	size_t n = vecops_all(sets);

	return sets[n - 1];
}
