/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_real: what the io_uring and the epoll loop share: the turn, timers, posts from other threads, workers, files,
 * sockets, clock and signals. Private to common/io.
 *
 * Where a submitted operation is:
 *
 *     io_submit --> timers (heap) | workers (io_offload) | pending --flush--> the kernel
 *                        \               |                   |                  /
 *                         '--------------+------> ready <----+-----------------'
 *                                                   `-- drained once a turn: `done`
 */
#ifndef COMMON_IO_IO_REAL_H
#define COMMON_IO_IO_REAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include "common/io/io_backend.h"
#include "common/io/io_heap.h"

struct io_real;
struct io_pool;

enum { IO_SLOW_SLOT = 7 }; /* of io_op.slot: when an operation on a file was submitted, for io_slow */

struct io_real_ops {
	/* Gives r->pending to the kernel; what cannot go now stays in it. */
	int (*flush)(struct io_real *r);
	/* Waits at most timeout_ns (0: looks only; UINT64_MAX: for ever); moves what completed to ready or back to
	 * pending. */
	int (*wait)(struct io_real *r, uint64_t timeout_ns);
	/* For an operation that the kernel (or a worker) has. */
	void (*cancel)(struct io_real *r, struct io_op *op);
};

struct io_real {
	struct io io; /* first */
	const struct io_real_ops *ops;
	uint64_t now_ns;
	struct io_heap timers;
	struct list pending; /* submitted, not yet given to the kernel */
	struct list ready;   /* op->result is set, `done` is due */
	size_t in_flight;
	atomic_bool stop;
	bool is_nonblocking; /* sockets are created with O_NONBLOCK */
	bool has_thread;
	pthread_t thread;
	struct io_pool *pool;
	struct io_slow *slow; /* NULL: nothing is held back */

	int wake_fd;          /* eventfd: written by other threads when the loop sleeps */
	pthread_mutex_t lock; /* guards the rest */
	bool is_asleep;
	struct io_post *post_first, **post_end;
	struct list finished; /* operations that workers have run */
};

int io_real_init(
	struct io_real *r, const struct io_vtable *v, const struct io_real_ops *ops, int wake_flags, struct err *err);
void io_real_fini(struct io_real *r);
/* The result is there; `done` follows in this turn or the next. */
void io_real_ready(struct io_real *r, struct io_op *op, int64_t result);
/* From a worker: op->result is set. */
void io_real_finished(struct io_real *r, struct io_op *op);

/* Rows of the back ends' tables. */
void io_real_submit(struct io *io, struct io_op *op);
void io_real_cancel(struct io *io, struct io_op *op);
void io_real_post(struct io *io, struct io_post *post);
int io_real_run(struct io *io);
void io_real_stop(struct io *io);
bool io_real_stopping(struct io *io); /* it was called, and the loop has not ended by it yet */
uint64_t io_real_now_ns(struct io *io);
uint64_t io_real_clock_ns(struct io *io);
int64_t io_real_wall_ns(struct io *io);
void io_real_random(struct io *io, void *out, size_t len);

int io_sock_listen(struct io *io, const struct io_addr *addr, int *ret_fd, struct io_addr *ret_bound, struct err *err);
int io_sock_open(const struct io_addr *to, bool is_nonblocking); /* fd or err */
void io_sock_accepted(int fd);
int io_sock_connected(int fd); /* a connect has succeeded: 0, or why it is none; does not close */
void io_sock_shutdown(struct io *io, int fd);

int io_file_open(struct io *io, const char *path, uint32_t flags, uint32_t mode, int *ret_fd);
void io_file_close(struct io *io, int fd);
int io_file_size(struct io *io, int fd, uint64_t *ret_bytes);
int io_file_allocate(struct io *io, int fd, uint64_t offset, uint64_t len);
int io_file_truncate(struct io *io, int fd, uint64_t bytes);
int64_t io_file_pread(struct io *io, int fd, void *buf, size_t len, uint64_t offset);
int64_t io_file_pwrite(struct io *io, int fd, const void *buf, size_t len, uint64_t offset);
int io_file_fdatasync(struct io *io, int fd);
int io_file_mkdir(struct io *io, const char *path, uint32_t mode);
int io_file_rename(struct io *io, const char *from, const char *to);
int io_file_unlink(struct io *io, const char *path);
int io_file_sync_dir(struct io *io, const char *path);
int io_file_list_dir(struct io *io, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
int io_file_lock(struct io *io, int fd);
int io_file_disk_space(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free);
/* READ, WRITE or SYNC, at once, on any thread. */
int64_t io_file_perform(const struct io_op *op);

#define IO_REAL_ROWS                                                                                                \
	.submit = io_real_submit, .cancel = io_real_cancel, .post = io_real_post, .run = io_real_run,               \
	.stop = io_real_stop, .now_ns = io_real_now_ns, .clock_ns = io_real_clock_ns, .wall_ns = io_real_wall_ns,   \
	.random = io_real_random, .listen = io_sock_listen, .shutdown = io_sock_shutdown, .open = io_file_open,     \
	.size = io_file_size, .allocate = io_file_allocate, .truncate = io_file_truncate, .pread = io_file_pread,   \
	.pwrite = io_file_pwrite,                                                                                   \
	.fdatasync = io_file_fdatasync, .mkdir = io_file_mkdir, .rename = io_file_rename, .unlink = io_file_unlink, \
	.sync_dir = io_file_sync_dir, .list_dir = io_file_list_dir, .lock = io_file_lock,                           \
	.disk_space = io_file_disk_space

/* Zeroed pages; 2 MiB aligned where large. */
void *io__pages_alloc(size_t bytes, bool touch);
void io__pages_free(void *buf, size_t bytes);

/* The err code of an errno, for errnos that our list folds together. */
int io__err(int os_errno);
socklen_t io__addr_to_os(const struct io_addr *addr, struct sockaddr_in6 *ret_sa);
void io__addr_from_os(const struct sockaddr_in6 *sa, struct io_addr *ret_addr);

/* ---- slow disks, for experiments (io_slow.c) ---- */

/* As io_slow_down; none gives NULL. */
int io_slow_new(const char *fault, struct io_slow **ret_slow, struct err *err);
/* How long an operation on a file that took took_ns shall be held back. */
uint64_t io_slow_delay_ns(struct io_slow *slow, const struct io_op *op, uint64_t took_ns);

/* ---- workers (io_offload.c) ---- */

enum {
	IO_LANE_DISK = IO_LANE_KV + 1, /* epoll's file operations: apart, not to wait behind long calls */
	IO_LANE_COUNT,
	IO_DISK_WORKERS = LIMIT_DISKS_PER_SERVER * LIMIT_DISK_IOS, /* at most, for operations on files that block */
};

struct io_pool *io_pool_new(struct io_real *owner);
void io_pool_free(struct io_pool *pool);
/* Threads of a lane that are not needed end after so long, but for IO_POOL_THREADS_KEPT; before any has begun. */
enum { IO_POOL_THREADS_KEPT = 4 };
void io_pool_end_idle_after(struct io_pool *pool, uint64_t idle_ns);
uint32_t io_pool_threads(struct io_pool *pool, enum io_lane lane);
void io_pool_submit(struct io_pool *pool, struct io_op *op);
/* True: it had not begun, and is the caller's again. */
bool io_pool_withdraw(struct io_pool *pool, struct io_op *op);

int io_uring_new(struct io **ret_io, struct err *err);
int io_epoll_new(struct io **ret_io, struct err *err);

#endif
