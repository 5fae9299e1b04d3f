/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_backend: what a back end of io.h provides. Private to common/io.
 *
 * io.c owns the parts that are alike everywhere: preparing operations, their state, the turn hooks, whole-file
 * helpers. A back end embeds `struct io` as its first member and fills a table of functions. It ends every operation
 * with io__complete, exactly once and only from its loop.
 */
#ifndef COMMON_IO_IO_BACKEND_H
#define COMMON_IO_IO_BACKEND_H

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/io/io.h"

enum { IO_MAGIC = 0x10c0de01, IO_OP_MAGIC = 0x10c0de02 };

/* Bits of io_op.state; 0: idle. */
enum {
	IO_STATE_SUBMITTED = 1, /* given to the back end, `done` not yet begun */
	IO_STATE_CANCEL = 2,    /* a cancel was asked for */
	IO_STATE_KERNEL = 4,    /* the kernel (or a worker) has it */
	IO_STATE_READY = 8,     /* has its result, waits for its `done` */
	IO_STATE_HELD = 16,     /* has its result, and is held back by io_slow */
};

struct io_vtable {
	const char *name;
	bool simulated;

	void (*submit)(struct io *io, struct io_op *op);
	void (*cancel)(struct io *io, struct io_op *op);
	void (*post)(struct io *io, struct io_post *post);
	void (*hook_added)(struct io *io); /* NULL: the loop looks at io->hooks before it waits */
	int (*run)(struct io *io);
	void (*stop)(struct io *io);
	void (*free)(struct io *io);

	uint64_t (*now_ns)(struct io *io);
	uint64_t (*clock_ns)(struct io *io);
	int64_t (*wall_ns)(struct io *io);
	void (*random)(struct io *io, void *out, size_t len);

	int (*listen)(
		struct io *io, const struct io_addr *addr, int *ret_fd, struct io_addr *ret_bound, struct err *err);
	void (*close)(struct io *io, int fd);
	void (*shutdown)(struct io *io, int fd);

	int (*open)(struct io *io, const char *path, uint32_t flags, uint32_t mode, int *ret_fd);
	int (*size)(struct io *io, int fd, uint64_t *ret_bytes);
	int (*allocate)(struct io *io, int fd, uint64_t offset, uint64_t len);
	int (*truncate)(struct io *io, int fd, uint64_t bytes);
	int64_t (*pread)(struct io *io, int fd, void *buf, size_t len, uint64_t offset);
	int64_t (*pwrite)(struct io *io, int fd, const void *buf, size_t len, uint64_t offset);
	int (*fdatasync)(struct io *io, int fd);
	int (*mkdir)(struct io *io, const char *path, uint32_t mode);
	int (*rename)(struct io *io, const char *from, const char *to);
	int (*unlink)(struct io *io, const char *path);
	int (*sync_dir)(struct io *io, const char *path);
	int (*list_dir)(struct io *io, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
	int (*lock)(struct io *io, int fd);
	int (*disk_space)(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free);

	void *(*buffer_alloc)(struct io *io, size_t bytes);
	void (*buffer_free)(struct io *io, void *buf, size_t bytes);
};

struct io {
	uint32_t magic;
	const struct io_vtable *v;
	struct list hooks;
};

void io__init(struct io *io, const struct io_vtable *v);
/* Runs what was added with io_at_turn_end, and what that adds. */
void io__run_hooks(struct io *io);
/* The end of every operation. */
static inline void io__complete(struct io_op *op, int64_t result)
{
	op->state = 0;
	op->result = result;
	op->done(op);
}

/* Workers at most: a call to a disk that hangs keeps its own for ever, and must not keep those of other disks waiting. 0: by the machine. */
uint32_t io__lane_workers(enum io_lane lane);

size_t io__iov_bytes(const struct iovec *iov, int iov_count);
/* What is left of iov after `skip` bytes, into out (of IO_IOV_MAX entries); returns its count. */
int io__iov_rest(const struct iovec *iov, int iov_count, size_t skip, struct iovec *out);

#endif
