// SPDX-License-Identifier: Apache-2.0
/*
 * io_offload: worker threads for what blocks or computes for long. One queue (lane) per sort of work, so that a slow
 * file system does not hold up encoding. Threads start when first needed and live until the pool is freed. Results go
 * back through the loop.
 *
 * A call to a disk that hangs holds its thread, for ever if need be. So a lane for such calls may have as many threads as all disks of a
 * server can hold: who comes finds one that is idle, or is given one.
 *
 * op->slot[1] says whether a worker has begun; it is guarded by the lane's lock, which is all that a withdrawal
 * needs.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include "common/base/mem.h"
#include "common/io/io_real.h"

enum { IO_POOL_QUEUED = 1, IO_POOL_RUNNING = 2 };
enum { IO_POOL_CPU_THREADS_MAX = 4 };

struct io_lane_queue {
	struct io_pool *pool;
	pthread_mutex_t lock;
	pthread_cond_t wanted;
	struct list ops;
	size_t queued;
	bool is_quitting;
	uint32_t threads, idle, threads_max;
	pthread_t *ids;
	uint32_t id_cap;
};

struct io_pool {
	struct io_real *owner;
	struct io_lane_queue lanes[IO_LANE_COUNT];
};

static uint32_t io_pool_cpu_threads(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (cores < 1)
		return 1;
	return cores < IO_POOL_CPU_THREADS_MAX ? (uint32_t)cores : IO_POOL_CPU_THREADS_MAX;
}

struct io_pool *io_pool_new(struct io_real *owner)
{
	struct io_pool *pool = MEM_NEW(struct io_pool);

	pool->owner = owner;
	for (int i = 0; i < IO_LANE_COUNT; i++) {
		struct io_lane_queue *lane = &pool->lanes[i];

		lane->pool = pool;
		list_init(&lane->ops);
		CHECK(pthread_mutex_init(&lane->lock, NULL) == 0);
		CHECK(pthread_cond_init(&lane->wanted, NULL) == 0);
	}
	pool->lanes[IO_LANE_CPU].threads_max = io_pool_cpu_threads();
	pool->lanes[IO_LANE_FILE].threads_max = io__lane_workers(IO_LANE_FILE);
	pool->lanes[IO_LANE_KV].threads_max = io__lane_workers(IO_LANE_KV);
	pool->lanes[IO_LANE_DISK].threads_max = IO_DISK_WORKERS;
	return pool;
}

void io_pool_free(struct io_pool *pool)
{
	for (int i = 0; i < IO_LANE_COUNT; i++) {
		struct io_lane_queue *lane = &pool->lanes[i];

		pthread_mutex_lock(&lane->lock);
		CHECK(list_empty(&lane->ops));
		lane->is_quitting = true;
		pthread_cond_broadcast(&lane->wanted);
		pthread_mutex_unlock(&lane->lock);
		for (uint32_t t = 0; t < lane->threads; t++)
			pthread_join(lane->ids[t], NULL);
		mem_free(lane->ids);
		pthread_cond_destroy(&lane->wanted);
		pthread_mutex_destroy(&lane->lock);
	}
	mem_free(pool);
}

static void io_pool_run(struct io_pool *pool, struct io_op *op)
{
	if (op->kind == IO_OFFLOAD) {
		op->offload.run(op);
		op->result = 0;
	} else {
		op->result = io_file_perform(op);
	}
	io_real_finished(pool->owner, op);
}

static void *io_pool_work(void *ctx)
{
	struct io_lane_queue *lane = ctx;

	pthread_mutex_lock(&lane->lock);
	while (!lane->is_quitting) {
		struct list *n = list_pop_front(&lane->ops);
		struct io_op *op;

		if (!n) {
			lane->idle++;
			pthread_cond_wait(&lane->wanted, &lane->lock);
			lane->idle--;
			continue;
		}
		lane->queued--;
		op = LIST_ENTRY(n, struct io_op, link);
		op->slot[1] = IO_POOL_RUNNING;
		pthread_mutex_unlock(&lane->lock);
		io_pool_run(lane->pool, op);
		pthread_mutex_lock(&lane->lock);
	}
	pthread_mutex_unlock(&lane->lock);
	return NULL;
}

/* With the lane's lock. Signals are for the loop's thread. */
static int io_pool_start_thread(struct io_lane_queue *lane)
{
	sigset_t all, saved;
	int rc;

	if (lane->threads == lane->id_cap) {
		lane->id_cap = lane->id_cap ? 2 * lane->id_cap : 4;
		lane->ids = mem_realloc(lane->ids, lane->id_cap * sizeof(*lane->ids));
	}
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, &saved) == 0);
	rc = pthread_create(&lane->ids[lane->threads], NULL, io_pool_work, lane);
	CHECK(pthread_sigmask(SIG_SETMASK, &saved, NULL) == 0);
	if (rc)
		return ERR_NOMEM;
	lane->threads++;
	return 0;
}

void io_pool_submit(struct io_pool *pool, struct io_op *op)
{
	struct io_lane_queue *lane = &pool->lanes[op->kind == IO_OFFLOAD ? op->offload.lane : IO_LANE_DISK];
	int rc = 0;

	pthread_mutex_lock(&lane->lock);
	if (lane->queued >= lane->idle && lane->threads < lane->threads_max)
		rc = io_pool_start_thread(lane);
	/* Fewer threads than wished for are only slower. */
	if (rc && lane->threads > 0)
		rc = 0;
	if (!rc) {
		op->slot[1] = IO_POOL_QUEUED;
		list_push_back(&lane->ops, &op->link);
		lane->queued++;
		pthread_cond_signal(&lane->wanted);
	}
	pthread_mutex_unlock(&lane->lock);
	if (rc)
		io_real_ready(pool->owner, op, rc);
}

bool io_pool_withdraw(struct io_pool *pool, struct io_op *op)
{
	struct io_lane_queue *lane = &pool->lanes[op->kind == IO_OFFLOAD ? op->offload.lane : IO_LANE_DISK];
	bool is_queued;

	pthread_mutex_lock(&lane->lock);
	is_queued = op->slot[1] == IO_POOL_QUEUED;
	if (is_queued) {
		list_remove(&op->link);
		lane->queued--;
	}
	pthread_mutex_unlock(&lane->lock);
	return is_queued;
}
