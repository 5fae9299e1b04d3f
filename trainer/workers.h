/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers: a fixed set of threads that run one loop at a time: workers_run calls fn(ctx, index, worker) for every index in
 * 0..count-1 and returns when all are done. Which worker gets which index is left to chance, so results must not depend on
 * it: `worker` (0..thread_count-1) is for scratch memory only. One caller at a time; fn must not call workers_run.
 */
#ifndef TRAINER_WORKERS_H
#define TRAINER_WORKERS_H

#include <stddef.h>

struct workers;

int workers_new(unsigned thread_count, struct workers **ret_workers); /* the caller counts as one; -errno */
void workers_free(struct workers *w);
unsigned workers_count(const struct workers *w);
void workers_run(struct workers *w, size_t count, void (*fn)(void *ctx, size_t index, unsigned worker), void *ctx);
/* memcpy by all workers. */
void workers_copy(struct workers *w, void *to, const void *from, size_t bytes);

#endif
