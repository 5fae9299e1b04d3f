// SPDX-License-Identifier: Apache-2.0
/*
 * io_offload: worker threads for what blocks or computes for long. One queue (lane) per sort of work, so that a slow
 * file system does not hold up encoding. Threads start when first needed. Results go back through the loop.
 *
 * A call to a disk that hangs holds its thread, for ever if need be. So a lane for such calls may have as many threads as all disks of a
 * server can hold: who comes finds one that is idle, or is given one. The last to become idle works first, so that those that are not needed any
 * more stay idle; after idle_ns they end, but for a few.
 *
 * Who ends joins the one that ended before it: one thread at most is left to be joined.
 *
 * op->slot[1] says whether a worker has begun; it is guarded by the lane's lock, which is all that a withdrawal
 * needs.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include "common/base/mem.h"
#include "common/io/io_real.h"

enum { IO_POOL_QUEUED = 1, IO_POOL_RUNNING = 2 };
enum { IO_POOL_CPU_THREADS_MAX = 4 };
static const uint64_t IO_POOL_IDLE_NS = 30ull * 1000 * 1000 * 1000;

struct io_worker {
	struct list link; /* lane->idle */
	struct io_lane_queue *lane;
	pthread_t id;
	pthread_cond_t wanted;
	bool called; /* it is idle no more */
};

struct io_lane_queue {
	struct io_pool *pool;
	pthread_mutex_t lock;
	pthread_cond_t emptied; /* `threads` is 0 */
	struct list ops;
	struct list idle; /* io_worker, the last to come first */
	bool is_quitting;
	uint32_t threads, threads_max;
	struct io_worker *ended; /* to be joined */
};

struct io_pool {
	struct io_real *owner;
	uint64_t idle_ns;
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
	pool->idle_ns = IO_POOL_IDLE_NS;
	for (int i = 0; i < IO_LANE_COUNT; i++) {
		struct io_lane_queue *lane = &pool->lanes[i];

		lane->pool = pool;
		list_init(&lane->ops);
		list_init(&lane->idle);
		CHECK(pthread_mutex_init(&lane->lock, NULL) == 0);
		CHECK(pthread_cond_init(&lane->emptied, NULL) == 0);
	}
	pool->lanes[IO_LANE_CPU].threads_max = io_pool_cpu_threads();
	pool->lanes[IO_LANE_FILE].threads_max = io__lane_workers(IO_LANE_FILE);
	pool->lanes[IO_LANE_KV].threads_max = io__lane_workers(IO_LANE_KV);
	pool->lanes[IO_LANE_DISK].threads_max = IO_DISK_WORKERS;
	return pool;
}

static void io_pool_call(struct io_lane_queue *lane)
{
	struct io_worker *w = LIST_ENTRY(list_pop_front(&lane->idle), struct io_worker, link);

	w->called = true;
	pthread_cond_signal(&w->wanted);
}

static void io_worker_join(struct io_worker *w)
{
	if (!w)
		return;
	CHECK(pthread_join(w->id, NULL) == 0);
	pthread_cond_destroy(&w->wanted);
	mem_free(w);
}

void io_pool_free(struct io_pool *pool)
{
	for (int i = 0; i < IO_LANE_COUNT; i++) {
		struct io_lane_queue *lane = &pool->lanes[i];

		pthread_mutex_lock(&lane->lock);
		CHECK(list_empty(&lane->ops));
		lane->is_quitting = true;
		while (!list_empty(&lane->idle))
			io_pool_call(lane);
		while (lane->threads > 0)
			pthread_cond_wait(&lane->emptied, &lane->lock);
		pthread_mutex_unlock(&lane->lock);
		io_worker_join(lane->ended);
		pthread_cond_destroy(&lane->emptied);
		pthread_mutex_destroy(&lane->lock);
	}
	mem_free(pool);
}

void io_pool_end_idle_after(struct io_pool *pool, uint64_t idle_ns)
{
	pool->idle_ns = idle_ns;
}

uint32_t io_pool_threads(struct io_pool *pool, enum io_lane lane)
{
	struct io_lane_queue *queue = &pool->lanes[lane];
	uint32_t threads;

	pthread_mutex_lock(&queue->lock);
	threads = queue->threads;
	pthread_mutex_unlock(&queue->lock);
	return threads;
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

static struct timespec io_pool_later(uint64_t wait_ns)
{
	struct timespec at;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
	wait_ns += (uint64_t)at.tv_nsec;
	at.tv_sec += (time_t)(wait_ns / 1000000000);
	at.tv_nsec = (long)(wait_ns % 1000000000);
	return at;
}

/* With the lane's lock. False: it has been idle for long, and there are others. */
static bool io_worker_wait(struct io_worker *w)
{
	struct io_lane_queue *lane = w->lane;
	struct timespec until = io_pool_later(lane->pool->idle_ns);
	bool may_end = lane->threads > IO_POOL_THREADS_KEPT;
	int rc = 0;

	w->called = false;
	list_push_front(&lane->idle, &w->link);
	while (!w->called && rc == 0)
		rc = may_end ? pthread_cond_timedwait(&w->wanted, &lane->lock, &until) : pthread_cond_wait(&w->wanted, &lane->lock);
	if (w->called)
		return true;
	list_remove(&w->link);
	return lane->threads <= IO_POOL_THREADS_KEPT;
}

static void *io_pool_work(void *ctx)
{
	struct io_worker *w = ctx, *before;
	struct io_lane_queue *lane = w->lane;

	pthread_mutex_lock(&lane->lock);
	while (!lane->is_quitting) {
		struct list *n = list_pop_front(&lane->ops);
		struct io_op *op;

		if (!n && !io_worker_wait(w))
			break;
		if (!n)
			continue;
		op = LIST_ENTRY(n, struct io_op, link);
		op->slot[1] = IO_POOL_RUNNING;
		pthread_mutex_unlock(&lane->lock);
		io_pool_run(lane->pool, op);
		pthread_mutex_lock(&lane->lock);
	}
	before = lane->ended;
	lane->ended = w;
	if (--lane->threads == 0)
		pthread_cond_signal(&lane->emptied);
	pthread_mutex_unlock(&lane->lock);
	io_worker_join(before);
	return NULL;
}

static struct io_worker *io_worker_new(struct io_lane_queue *lane)
{
	struct io_worker *w = MEM_NEW(struct io_worker);
	pthread_condattr_t attr;

	w->lane = lane;
	CHECK(pthread_condattr_init(&attr) == 0);
	CHECK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	CHECK(pthread_cond_init(&w->wanted, &attr) == 0);
	pthread_condattr_destroy(&attr);
	return w;
}

/* With the lane's lock. Signals are for the loop's thread. */
static int io_pool_start_thread(struct io_lane_queue *lane)
{
	struct io_worker *w = io_worker_new(lane);
	sigset_t all, saved;
	int rc;

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, &saved) == 0);
	rc = pthread_create(&w->id, NULL, io_pool_work, w);
	CHECK(pthread_sigmask(SIG_SETMASK, &saved, NULL) == 0);
	if (rc) {
		pthread_cond_destroy(&w->wanted);
		mem_free(w);
		return ERR_NOMEM;
	}
	lane->threads++;
	return 0;
}

void io_pool_submit(struct io_pool *pool, struct io_op *op)
{
	struct io_lane_queue *lane = &pool->lanes[op->kind == IO_OFFLOAD ? op->offload.lane : IO_LANE_DISK];
	int rc = 0;

	pthread_mutex_lock(&lane->lock);
	if (!list_empty(&lane->idle))
		io_pool_call(lane);
	else if (lane->threads < lane->threads_max)
		rc = io_pool_start_thread(lane);
	/* Fewer threads than wished for are only slower. */
	if (rc && lane->threads > 0)
		rc = 0;
	if (!rc) {
		op->slot[1] = IO_POOL_QUEUED;
		list_push_back(&lane->ops, &op->link);
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
	if (is_queued)
		list_remove(&op->link);
	pthread_mutex_unlock(&lane->lock);
	return is_queued;
}
