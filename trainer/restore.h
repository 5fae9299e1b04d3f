/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore: reads a checkpoint back. Nothing is believed before it was checked: the manifest against its own SHA-256, each
 * array against the length and SHA-256 in the manifest.
 */
#ifndef TRAINER_RESTORE_H
#define TRAINER_RESTORE_H

#include <stdbool.h>
#include "client/craton.h"
#include "trainer/manifest.h"
#include "trainer/terr.h"

/* True for results that mean "this checkpoint is damaged or lost, an older one may be good", as opposed to a store that does
 * not answer or a checkpoint of another kind. */
bool restore_damaged(int rc);

/* `path` is the directory of one checkpoint. */
int restore_manifest(struct cr_store *store, const char *path, struct manifest *ret_manifest, struct terr *e);
/* Fills the three arrays of param_count numbers; on failure their content is undefined. */
int restore_arrays(struct cr_store *store, const char *path, const struct manifest *m, size_t param_count,
	real *const arrays[MANIFEST_FILES], struct terr *e);

#endif
