/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step: the loss and gradient of a whole batch on several threads, with bits that do not depend on how many there are. The
 * batch is cut into `lanes` parts; each part has its own gradient array and is computed by one thread from first to last
 * sequence; the arrays are then added in the order of the lanes. More threads than lanes do not help.
 */
#ifndef TRAINER_STEP_H
#define TRAINER_STEP_H

#include "trainer/model.h"
#include "trainer/workers.h"

enum { STEP_LANES_MAX = 64 };

struct step;

/* `lanes` is lowered to batch_size. Single-threads BLAS for the whole process. -ENOMEM. */
int step_new(const struct model *m, struct workers *w, uint32_t batch_size, uint32_t lanes, struct step **ret_step);
void step_free(struct step *s);

/* Mean loss a byte over the batch (text: batch_size runs of seq_len + 1 bytes). The mean gradient goes to *ret_grads, which
 * belongs to the step until its next call, its length (2-norm) to *ret_norm. */
double step_grads(struct step *s, const real *params, const uint8_t *text, const real **ret_grads, double *ret_norm);
/* Mean loss a byte over any number of sequences, without gradients. */
double step_loss(struct step *s, const real *params, const uint8_t *text, uint32_t seqs);

#endif
