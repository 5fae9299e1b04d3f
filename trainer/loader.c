/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader: see loader.h. A ring of LOADER_DEPTH slots, each one batch. A slot is filled by reads that were started together;
 * `pending` counts those not done yet and is the only thing that the library's threads touch, under the lock. loader_next
 * waits for the oldest slot, hands it out, and on the next call starts that slot's reads for a later batch. A wait ends
 * because every read of craton.h ends (within its timeout).
 */
#include "trainer/loader.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "trainer/shuffle.h"

enum { LOADER_TRIES = 5 };

struct loader_read {
	struct cr_op op;
	struct loader_slot *slot;
	uint32_t sample; /* in the batch */
	size_t len;
};

struct loader_slot {
	struct loader *owner;
	uint64_t position; /* sample number of its first sample */
	uint8_t *text;
	struct loader_read *reads;
	uint32_t read_count;
	uint32_t pending; /* under the lock */
};

struct loader {
	struct loader_config c;
	struct cr_dataset *data;
	struct shuffle order;
	uint64_t train_bytes;
	uint64_t position;   /* of the next batch to hand out */
	uint64_t next_fetch; /* of the next batch to start reading */
	uint32_t reads_a_sample;
	struct loader_slot slot[LOADER_DEPTH];
	uint32_t head; /* slot of the next batch */
	bool lent;     /* the slot before head is in the caller's hands */
	pthread_mutex_t lock;
	pthread_cond_t done;
};

static void loader_read_done(struct cr_op *op)
{
	struct loader_read *r = op->user;
	struct loader *l = r->slot->owner;

	pthread_mutex_lock(&l->lock);
	if (--r->slot->pending == 0)
		pthread_cond_signal(&l->done);
	pthread_mutex_unlock(&l->lock);
}

/* Pieces of one sample: more than one where it crosses from shard to shard. */
static int loader_plan_sample(struct loader *l, struct loader_slot *s, uint32_t sample, struct cr_dataset_file **files,
	uint64_t *offsets, uint32_t *count, char error[CR_DATASET_ERROR_BYTES])
{
	uint64_t at = shuffle_at(&l->order, s->position + sample) * l->c.seq_len;
	size_t left = l->c.seq_len + 1;

	while (left) {
		struct loader_read *r = &s->reads[*count];
		uint64_t bytes;
		int rc = cr_dataset_locate(l->data, at, &files[*count], &offsets[*count], &bytes, error);

		if (rc)
			return rc;
		r->slot = s;
		r->sample = sample;
		r->len = bytes < left ? (size_t)bytes : left;
		at += r->len;
		left -= r->len;
		(*count)++;
	}
	return 0;
}

static int loader_fetch(struct loader *l, struct loader_slot *s, struct terr *e)
{
	uint32_t most = l->c.batch_size * l->reads_a_sample, count = 0;
	struct cr_dataset_file **files = calloc(most, sizeof(*files));
	uint64_t *offsets = calloc(most, sizeof(*offsets));
	uint8_t *to = s->text;
	int rc = files && offsets ? 0 : terr_set(e, -ENOMEM, "out of memory");

	s->position = l->next_fetch;
	for (uint32_t i = 0; rc == 0 && i < l->c.batch_size; i++)
		rc = loader_plan_sample(l, s, i, files, offsets, &count, e->text);
	if (rc == 0) {
		s->read_count = count;
		s->pending = count; /* nothing is in flight on this slot */
		l->next_fetch += l->c.batch_size;
		for (uint32_t i = 0; i < count; i++) {
			struct loader_read *r = &s->reads[i];

			r->op.done = loader_read_done;
			r->op.user = r;
			cr_dataset_file_read_async(files[i], to, r->len, offsets[i], &r->op);
			to += r->len;
		}
	}
	free(files);
	free(offsets);
	return rc;
}

/* Blocking, with bounded retries: 50 ms, doubling, with jitter. */
static int loader_read_now(struct loader *l, void *to, size_t len, uint64_t at, struct terr *e)
{
	int rc = 0;

	for (int i = 0; i < LOADER_TRIES; i++) {
		long ms = (50L << i) / 2;
		struct timespec now, wait;

		rc = cr_dataset_read(l->data, to, len, at, e->text);
		if (rc == 0)
			return 0;
		clock_gettime(CLOCK_MONOTONIC, &now);
		ms += now.tv_nsec / 1000 % (ms + 1);
		wait = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
		nanosleep(&wait, NULL);
	}
	return rc;
}

/* Samples whose reads failed are read again here. */
static int loader_mend(struct loader *l, struct loader_slot *s, struct terr *e)
{
	size_t run = l->c.seq_len + 1;

	for (uint32_t i = 0; i < s->read_count; i++) {
		struct loader_read *r = &s->reads[i];
		uint64_t at = shuffle_at(&l->order, s->position + r->sample) * l->c.seq_len;
		int rc;

		if (r->op.result == (int64_t)r->len)
			continue;
		rc = loader_read_now(l, s->text + r->sample * run, run, at, e);
		if (rc)
			return rc;
	}
	return 0;
}

int loader_next(struct loader *l, const uint8_t **ret_text, struct terr *e)
{
	struct loader_slot *s;
	int rc;

	if (l->lent) {
		l->lent = false;
		rc = loader_fetch(l, &l->slot[(l->head + LOADER_DEPTH - 1) % LOADER_DEPTH], e);
		if (rc)
			return rc;
	}
	s = &l->slot[l->head];
	pthread_mutex_lock(&l->lock);
	while (s->pending)
		pthread_cond_wait(&l->done, &l->lock);
	pthread_mutex_unlock(&l->lock);
	rc = loader_mend(l, s, e);
	if (rc)
		return rc;
	l->head = (l->head + 1) % LOADER_DEPTH;
	l->lent = true;
	l->position += l->c.batch_size;
	*ret_text = s->text;
	return 0;
}

static int loader_measure(struct loader *l, struct terr *e)
{
	const struct cr_dataset_info *info = cr_dataset_info(l->data);
	uint64_t held =
		info->total_bytes / 100 * l->c.holdout_percent + info->total_bytes % 100 * l->c.holdout_percent / 100;
	uint64_t samples;

	l->train_bytes = info->total_bytes - held;
	samples = l->train_bytes ? (l->train_bytes - 1) / l->c.seq_len : 0;
	if (samples < 1 || held < l->c.seq_len + 1)
		return terr_set(e, -EINVAL,
			"%s: %llu bytes are too few for a sequence of %u and %u %% held out; pack more text", l->c.path,
			(unsigned long long)info->total_bytes, l->c.seq_len, l->c.holdout_percent);
	shuffle_init(&l->order, l->c.seed, samples);
	l->reads_a_sample = (uint32_t)((l->c.seq_len + 1) / info->shard_bytes) + 2;
	return 0;
}

int loader_open(struct cr_store *store, const struct loader_config *c, uint64_t position, struct loader **ret_loader,
	struct terr *e)
{
	struct loader *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return terr_set(e, -ENOMEM, "out of memory");
	l->c = *c;
	l->position = l->next_fetch = position;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->done, NULL);
	rc = cr_dataset_open(store, c->path, &l->data, e->text);
	if (rc == 0)
		rc = loader_measure(l, e);
	for (uint32_t i = 0; rc == 0 && i < LOADER_DEPTH; i++) {
		struct loader_slot *s = &l->slot[i];

		s->owner = l;
		s->text = malloc((size_t)c->batch_size * (c->seq_len + 1));
		s->reads = calloc((size_t)c->batch_size * l->reads_a_sample, sizeof(*s->reads));
		if (!s->text || !s->reads)
			rc = terr_set(e, -ENOMEM, "out of memory for batches");
		else
			rc = loader_fetch(l, s, e);
	}
	if (rc) {
		loader_close(l);
		return rc;
	}
	*ret_loader = l;
	return 0;
}

void loader_close(struct loader *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	for (uint32_t i = 0; i < LOADER_DEPTH; i++)
		while (l->slot[i].pending)
			pthread_cond_wait(&l->done, &l->lock);
	pthread_mutex_unlock(&l->lock);
	cr_dataset_close(l->data);
	for (uint32_t i = 0; i < LOADER_DEPTH; i++) {
		free(l->slot[i].text);
		free(l->slot[i].reads);
	}
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->done);
	free(l);
}

uint64_t loader_position(const struct loader *l)
{
	return l->position;
}

uint64_t loader_epoch_samples(const struct loader *l)
{
	return l->order.count;
}

const struct cr_dataset_info *loader_dataset(const struct loader *l)
{
	return cr_dataset_info(l->data);
}

int loader_holdout(struct loader *l, uint32_t count, uint8_t *text, struct terr *e)
{
	uint64_t held = cr_dataset_info(l->data)->total_bytes - l->train_bytes, run = l->c.seq_len + 1;
	uint64_t fit = held / run;

	if (count > fit)
		count = (uint32_t)fit;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = l->train_bytes + (count > 1 ? (held - run) / (count - 1) * i : 0);
		int rc = loader_read_now(l, text + i * run, run, at, e);

		if (rc)
			return rc;
	}
	return (int)count;
}
