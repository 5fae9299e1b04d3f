/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint: saves the state of a run into the store while the run goes on.
 *
 * DIR/step-00001234/ holds one checkpoint: three arrays and manifest.json. It is written under a hidden name and renamed when
 * everything in it is durable: a directory of that name is whole, always. One snapshot of the state is kept in memory and one
 * thread writes it, so one save is under way at most; who saves faster than the store takes them asks checkpoint_busy first.
 *
 * DIR belongs to one run at a time: a new writer removes what earlier ones left half done.
 */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include <stdbool.h>
#include "client/craton.h"
#include "trainer/manifest.h"
#include "trainer/terr.h"
#include "trainer/workers.h"

struct checkpoint_writer;

struct checkpoint_result {
	uint64_t step;
	int rc; /* 0: durable and visible */
	char path[CR_PATH_MAX];
	struct terr error;   /* if rc */
	struct terr warning; /* if old ones could not be pruned; empty otherwise */
	uint64_t bytes;
	double seconds; /* from checkpoint_start to the rename */
	uint32_t pruned;
};

/* Makes DIR if needed. `keep` >= 1 checkpoints stay; the model must outlive the writer. */
int checkpoint_writer_new(struct cr_store *store, const char *dir, uint32_t keep, const struct model *model,
	struct checkpoint_writer **ret_writer, struct terr *e);
void checkpoint_writer_free(struct checkpoint_writer *w); /* waits for a save under way; NULL is allowed */

bool checkpoint_busy(struct checkpoint_writer *w);
/* Copies the state and returns; not while busy, nor before the last result was taken. */
void checkpoint_start(struct checkpoint_writer *w, struct workers *workers, const struct manifest_meta *meta,
	const real *params, const real *adam_m, const real *adam_v);
/* True once per save, when it is over; with `wait`, waits for that. False if no save is outstanding. */
bool checkpoint_finish(struct checkpoint_writer *w, bool wait, struct checkpoint_result *ret_result);

/* ---- names, shared with restore.c ---- */

/* Steps of all DIR/step-N, newest first, malloc'ed. -ENOENT: no such directory. */
int checkpoint_list(struct cr_store *store, const char *dir, uint64_t **ret_steps, size_t *ret_count, struct terr *e);
void checkpoint_path(char out[CR_PATH_MAX], const char *dir, uint64_t step);

#endif
