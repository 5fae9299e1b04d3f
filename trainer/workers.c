/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers: see workers.h. A run is a generation number, a function and a shared counter of indices. Sleeping threads wait on
 * a condition, not in a spin: the machine also runs the store's own daemons.
 */
#include "trainer/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct workers_thread {
	struct workers *owner;
	unsigned number;
	pthread_t thread;
};

struct workers {
	unsigned thread_count;
	struct workers_thread *threads; /* [0] is the caller and has no thread */
	pthread_mutex_t lock;
	pthread_cond_t start, done;
	uint64_t generation;
	unsigned running; /* threads that have not finished this generation */
	bool stop;
	size_t count;
	atomic_size_t next;
	void (*fn)(void *ctx, size_t index, unsigned worker);
	void *ctx;
};

static void workers_drain(struct workers *w, unsigned number)
{
	size_t i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->count)
		w->fn(w->ctx, i, number);
}

static void *workers_main(void *arg)
{
	struct workers_thread *t = arg;
	struct workers *w = t->owner;
	uint64_t seen = 0;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (w->generation == seen && !w->stop)
			pthread_cond_wait(&w->start, &w->lock);
		if (w->stop)
			break;
		seen = w->generation;
		pthread_mutex_unlock(&w->lock);
		workers_drain(w, t->number);
		pthread_mutex_lock(&w->lock);
		if (--w->running == 0)
			pthread_cond_signal(&w->done);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int workers_new(unsigned thread_count, struct workers **ret_workers)
{
	struct workers *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	w->threads = calloc(thread_count, sizeof(*w->threads));
	if (!w->threads) {
		free(w);
		return -ENOMEM;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->start, NULL);
	pthread_cond_init(&w->done, NULL);
	w->thread_count = 1;
	for (unsigned i = 1; i < thread_count; i++) {
		w->threads[i].owner = w;
		w->threads[i].number = i;
		rc = pthread_create(&w->threads[i].thread, NULL, workers_main, &w->threads[i]);
		if (rc) {
			workers_free(w);
			return -rc;
		}
		w->thread_count++;
	}
	*ret_workers = w;
	return 0;
}

void workers_free(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->start);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 1; i < w->thread_count; i++)
		pthread_join(w->threads[i].thread, NULL);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->start);
	pthread_cond_destroy(&w->done);
	free(w->threads);
	free(w);
}

unsigned workers_count(const struct workers *w)
{
	return w->thread_count;
}

void workers_run(struct workers *w, size_t count, void (*fn)(void *ctx, size_t index, unsigned worker), void *ctx)
{
	pthread_mutex_lock(&w->lock);
	w->count = count;
	w->fn = fn;
	w->ctx = ctx;
	atomic_store(&w->next, 0);
	w->running = w->thread_count - 1;
	w->generation++;
	pthread_cond_broadcast(&w->start);
	pthread_mutex_unlock(&w->lock);
	workers_drain(w, 0);
	pthread_mutex_lock(&w->lock);
	while (w->running)
		pthread_cond_wait(&w->done, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

enum { WORKERS_COPY_BYTES = 1 << 20 };

struct workers_copy_job {
	char *to;
	const char *from;
	size_t bytes;
};

static void workers_copy_part(void *ctx, size_t index, unsigned worker)
{
	struct workers_copy_job *j = ctx;
	size_t at = index * WORKERS_COPY_BYTES, left = j->bytes - at;

	(void)worker;
	memcpy(j->to + at, j->from + at, left < WORKERS_COPY_BYTES ? left : WORKERS_COPY_BYTES);
}

void workers_copy(struct workers *w, void *to, const void *from, size_t bytes)
{
	struct workers_copy_job j = {.to = to, .from = from, .bytes = bytes};

	workers_run(w, (bytes + WORKERS_COPY_BYTES - 1) / WORKERS_COPY_BYTES, workers_copy_part, &j);
}
