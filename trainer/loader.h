/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader: batches of text from a dataset in the store, in an order that depends on the seed alone (shuffle.h). A sample is
 * seq_len + 1 bytes; sample i of the training part starts at byte i * seq_len. The last part of the corpus is held out: no
 * training sample reaches into it. Several batches are fetched ahead by asynchronous reads, so no file is ever held in
 * memory as a whole, and a reader that keeps up never waits.
 */
#ifndef TRAINER_LOADER_H
#define TRAINER_LOADER_H

#include "client/craton.h"
#include "client/dataset.h"
#include "trainer/terr.h"

enum {
	LOADER_BATCH_MAX = 4096,
	LOADER_DEPTH = 4, /* batches fetched ahead */
};

struct loader_config {
	const char *path; /* of the dataset in the store */
	uint32_t seq_len, batch_size;
	uint64_t seed;
	uint32_t holdout_percent; /* of the bytes, at the end of the corpus */
};

struct loader;

/* The first batch starts with sample `position` (samples are counted over all epochs). -EINVAL: too short a corpus. */
int loader_open(struct cr_store *store, const struct loader_config *c, uint64_t position, struct loader **ret_loader,
	struct terr *e);
void loader_close(struct loader *l); /* waits for reads in flight */

/* The next batch_size samples, back to back; they stay valid until the next call. Failed reads are tried five times. */
int loader_next(struct loader *l, const uint8_t **ret_text, struct terr *e);
uint64_t loader_position(const struct loader *l); /* of the sample that the next batch starts with */
uint64_t loader_epoch_samples(const struct loader *l);
const struct cr_dataset_info *loader_dataset(const struct loader *l);

/* Evenly spaced samples of the held-out part, at most `count`, into text; returns how many, or an error. */
int loader_holdout(struct loader *l, uint32_t count, uint8_t *text, struct terr *e);

#endif
