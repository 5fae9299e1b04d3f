/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass: forward and backward through the model for a few sequences at a time, by one thread, in memory that is allocated
 * once. Single-threaded on purpose: threads work on different parts of a batch (step.h), so BLAS must not start its own
 * (openblas_set_num_threads(1)).
 */
#ifndef TRAINER_PASS_H
#define TRAINER_PASS_H

#include "trainer/model.h"
#include "trainer/vecops.h"

struct pass;

int pass_new(const struct model *m, uint32_t max_seqs, struct pass **ret_pass); /* -ENOMEM */
void pass_free(struct pass *p);

/*
 * `text` holds `seqs` runs of seq_len + 1 bytes: byte t predicts byte t+1. Returns the sum of the losses of all
 * seqs * seq_len predictions, in nats.
 */
double pass_loss(struct pass *p, const real *params, const uint8_t *text, uint32_t seqs);
/* The same, and adds the gradient of loss * scale to grads (as long as params). */
double pass_grads(struct pass *p, const real *params, const uint8_t *text, uint32_t seqs, real scale, real *grads);

#endif
