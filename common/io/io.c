// SPDX-License-Identifier: Apache-2.0
/*
 * io: the part of the loop that all back ends share: filling in operations, guarding their states, and passing calls
 * on.
 *
 * Invariants: (1) an operation is prepared and submitted only while it is idle; (2) its `done` runs once for each
 * submit; (3) a hook runs at most once a turn for each time it was added.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/io/io_backend.h"
#include "common/io/io_real.h"

enum { IO_BYTES_MAX = 1 << 30 }; /* of one operation: what every kernel takes in one call, less than 2 GiB */

/* ---- operations ---- */

static void io_prep(struct io_op *op, enum io_kind kind, int fd, uint16_t flags, io_done_fn *done)
{
	CHECK(done);
	/* An op in flight must not be prepared anew. Fresh memory cannot look like one: ops die idle. */
	CHECK(op->magic != IO_OP_MAGIC || !(op->state & IO_STATE_SUBMITTED));
	op->magic = IO_OP_MAGIC;
	op->kind = (uint8_t)kind;
	op->state = 0;
	op->flags = flags;
	op->fd = fd;
	op->done = done;
	op->result = 0;
	list_init(&op->link);
}

static void io_prep_rw(struct io_op *op, const struct iovec *iov, int iov_count, uint64_t offset)
{
	CHECK(iov_count >= 1 && iov_count <= IO_IOV_MAX);
	CHECK(io__iov_bytes(iov, iov_count) <= IO_BYTES_MAX);
	op->rw.iov = iov;
	op->rw.iov_count = iov_count;
	op->rw.offset = offset;
}

void io_prep_read(struct io_op *op, int fd, const struct iovec *iov, int iov_count, uint64_t offset, io_done_fn *done)
{
	io_prep(op, IO_READ, fd, 0, done);
	io_prep_rw(op, iov, iov_count, offset);
}

void io_prep_write(struct io_op *op, int fd, const struct iovec *iov, int iov_count, uint64_t offset, uint16_t flags,
	io_done_fn *done)
{
	CHECK((flags & ~IO_DSYNC) == 0);
	io_prep(op, IO_WRITE, fd, flags, done);
	io_prep_rw(op, iov, iov_count, offset);
}

void io_prep_sync(struct io_op *op, int fd, io_done_fn *done)
{
	io_prep(op, IO_SYNC, fd, 0, done);
}

void io_prep_accept(struct io_op *op, int fd, io_done_fn *done)
{
	io_prep(op, IO_ACCEPT, fd, 0, done);
	memset(&op->accept.peer, 0, sizeof(op->accept.peer));
}

void io_prep_connect(struct io_op *op, const struct io_addr *to, io_done_fn *done)
{
	io_prep(op, IO_CONNECT, -1, 0, done);
	op->connect.to = *to;
}

void io_prep_send(struct io_op *op, int fd, const struct iovec *iov, int iov_count, io_done_fn *done)
{
	io_prep(op, IO_SEND, fd, 0, done);
	io_prep_rw(op, iov, iov_count, 0);
}

void io_prep_recv(struct io_op *op, int fd, const struct iovec *iov, int iov_count, uint16_t flags, io_done_fn *done)
{
	CHECK((flags & ~IO_RECV_ALL) == 0);
	io_prep(op, IO_RECV, fd, flags, done);
	io_prep_rw(op, iov, iov_count, 0);
	/* Nothing to receive could not be told from a closed peer. */
	CHECK(io__iov_bytes(iov, iov_count) > 0);
}

void io_prep_timer(struct io_op *op, uint64_t at_ns, io_done_fn *done)
{
	io_prep(op, IO_TIMER, -1, 0, done);
	op->timer.at_ns = at_ns;
}

void io_prep_offload(struct io_op *op, enum io_lane lane, void (*run)(struct io_op *op), io_done_fn *done)
{
	CHECK(run && lane <= IO_LANE_KV);
	io_prep(op, IO_OFFLOAD, -1, 0, done);
	op->offload.run = run;
	op->offload.lane = (uint8_t)lane;
}

uint32_t io__lane_workers(enum io_lane lane)
{
	return lane == IO_LANE_CPU ? 0 : LIMIT_DISKS_PER_SERVER * (lane == IO_LANE_KV ? 1 : LIMIT_DISK_CALLS);
}

void io_submit(struct io *io, struct io_op *op)
{
	CHECK_MAGIC(io, IO_MAGIC);
	CHECK_MAGIC(op, IO_OP_MAGIC);
	CHECK(op->state == 0);
	op->state = IO_STATE_SUBMITTED;
	op->result = 0;
	io->v->submit(io, op);
}

void io_cancel(struct io *io, struct io_op *op)
{
	CHECK_MAGIC(io, IO_MAGIC);
	if (!io_pending(op) || (op->state & (IO_STATE_CANCEL | IO_STATE_READY)))
		return;
	CHECK_MAGIC(op, IO_OP_MAGIC);
	op->state |= IO_STATE_CANCEL;
	io->v->cancel(io, op);
}

bool io_pending(const struct io_op *op)
{
	return op->state & IO_STATE_SUBMITTED;
}

size_t io__iov_bytes(const struct iovec *iov, int iov_count)
{
	size_t bytes = 0;

	for (int i = 0; i < iov_count; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

size_t io_op_bytes(const struct io_op *op)
{
	CHECK(op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SEND || op->kind == IO_RECV);
	return io__iov_bytes(op->rw.iov, op->rw.iov_count);
}

int io__iov_rest(const struct iovec *iov, int iov_count, size_t skip, struct iovec *out)
{
	int n = 0;

	for (int i = 0; i < iov_count; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		out[n].iov_base = (char *)iov[i].iov_base + skip;
		out[n].iov_len = iov[i].iov_len - skip;
		skip = 0;
		n++;
	}
	return n;
}

/* ---- the loop ---- */

void io__init(struct io *io, const struct io_vtable *v)
{
	io->magic = IO_MAGIC;
	io->v = v;
	list_init(&io->hooks);
}

void io_turn_hook_init(struct io_turn_hook *hook, void (*run)(struct io_turn_hook *hook))
{
	hook->run = run;
	list_init(&hook->link);
}

void io_at_turn_end(struct io *io, struct io_turn_hook *hook)
{
	CHECK_MAGIC(io, IO_MAGIC);
	if (list_linked(&hook->link))
		return;
	list_push_back(&io->hooks, &hook->link);
	if (io->v->hook_added)
		io->v->hook_added(io);
}

void io_turn_hook_remove(struct io *io, struct io_turn_hook *hook)
{
	CHECK_MAGIC(io, IO_MAGIC);
	if (list_linked(&hook->link))
		list_remove(&hook->link);
}

void io__run_hooks(struct io *io)
{
	struct list *n;

	while ((n = list_pop_front(&io->hooks))) {
		struct io_turn_hook *hook = LIST_ENTRY(n, struct io_turn_hook, link);

		hook->run(hook);
	}
}

void io_post(struct io *io, struct io_post *post)
{
	io->v->post(io, post);
}

int io_run(struct io *io)
{
	CHECK_MAGIC(io, IO_MAGIC);
	return io->v->run(io);
}

void io_stop(struct io *io)
{
	io->v->stop(io);
}

uint64_t io_now_ns(struct io *io)
{
	return io->v->now_ns(io);
}

uint64_t io_clock_ns(struct io *io)
{
	return io->v->clock_ns(io);
}

int64_t io_wall_ns(struct io *io)
{
	return io->v->wall_ns(io);
}

void io_random(struct io *io, void *out, size_t len)
{
	io->v->random(io, out, len);
}

/* ---- sockets and files ---- */

int io_listen(struct io *io, const struct io_addr *addr, int *ret_fd, struct io_addr *ret_bound, struct err *err)
{
	return io->v->listen(io, addr, ret_fd, ret_bound, err);
}

int io_listen_wait(struct io *io, const struct io_addr *addr, const struct log *log, int *ret_fd, struct io_addr *ret_bound, struct err *err)
{
	enum { TRIES = 200, PAUSE_NS = 50 * 1000 * 1000 };
	struct err unseen;
	int r;

	err = err ? err : &unseen;
	r = io_listen(io, addr, ret_fd, ret_bound, err);
	if (r == ERR_ADDRINUSE && log)
		log_line(log, LOG_WARN, "listen-waits", "for_s=10 text=%s", err->text);
	for (int i = 1; i < TRIES && r == ERR_ADDRINUSE; i++) {
		if (!io->v->simulated && io_real_stopping(io)) {
			err_prefix(err, "told to stop while it waited");
			return err->code = ERR_STOPPED;
		}
		nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
		r = io_listen(io, addr, ret_fd, ret_bound, err);
	}
	if (r == ERR_OK)
		*err = (struct err){0};
	return r;
}

void io_close(struct io *io, int fd)
{
	CHECK(fd >= 0);
	io->v->close(io, fd);
}

void io_shutdown(struct io *io, int fd)
{
	io->v->shutdown(io, fd);
}

int io_open(struct io *io, const char *path, uint32_t flags, uint32_t mode, int *ret_fd)
{
	return io->v->open(io, path, flags, mode, ret_fd);
}

int io_size(struct io *io, int fd, uint64_t *ret_bytes)
{
	return io->v->size(io, fd, ret_bytes);
}

int io_allocate(struct io *io, int fd, uint64_t offset, uint64_t len)
{
	return io->v->allocate(io, fd, offset, len);
}

int io_truncate(struct io *io, int fd, uint64_t bytes)
{
	return io->v->truncate(io, fd, bytes);
}

int64_t io_pread(struct io *io, int fd, void *buf, size_t len, uint64_t offset)
{
	return io->v->pread(io, fd, buf, len, offset);
}

int64_t io_pwrite(struct io *io, int fd, const void *buf, size_t len, uint64_t offset)
{
	return io->v->pwrite(io, fd, buf, len, offset);
}

int io_fdatasync(struct io *io, int fd)
{
	return io->v->fdatasync(io, fd);
}

int io_mkdir(struct io *io, const char *path, uint32_t mode)
{
	return io->v->mkdir(io, path, mode);
}

int io_rename(struct io *io, const char *from, const char *to)
{
	return io->v->rename(io, from, to);
}

int io_unlink(struct io *io, const char *path)
{
	return io->v->unlink(io, path);
}

int io_sync_dir(struct io *io, const char *path)
{
	return io->v->sync_dir(io, path);
}

int io_list_dir(struct io *io, const char *path, int (*each)(void *ctx, const char *name), void *ctx)
{
	return io->v->list_dir(io, path, each, ctx);
}

int io_lock(struct io *io, int fd)
{
	return io->v->lock(io, fd);
}

int io_disk_space(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free)
{
	return io->v->disk_space(io, path, ret_total, ret_free);
}

/* ---- whole files ---- */

int io_read_file(struct io *io, const char *path, size_t max_bytes, char **ret_text, size_t *ret_len)
{
	size_t cap = 4096, len = 0;
	char *text;
	int fd, rc;

	rc = io_open(io, path, 0, 0, &fd);
	if (rc)
		return rc;
	/* The size of a file in /proc is not known before it is read. */
	text = mem_alloc(cap + 1);
	for (;;) {
		int64_t n = io_pread(io, fd, text + len, cap - len, len);

		if (n < 0) {
			rc = (int)n;
			break;
		}
		len += (size_t)n;
		if (len > max_bytes) {
			rc = ERR_FBIG;
			break;
		}
		if (len < cap)
			break;
		cap *= 2;
		text = mem_realloc(text, cap + 1);
	}
	io_close(io, fd);
	if (rc) {
		mem_free(text);
		return rc;
	}
	text[len] = 0;
	*ret_text = text;
	*ret_len = len;
	return 0;
}

static char *io_parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return mem_strdup(".");
	if (slash == path)
		return mem_strdup("/");
	return mem_printf("%.*s", (int)(slash - path), path);
}

static int io_write_temporary(struct io *io, const char *temporary, const void *data, size_t len, uint32_t mode)
{
	int64_t n;
	int fd, rc;

	/* One left behind by a crash may have other permissions. */
	rc = io_unlink(io, temporary);
	if (rc && rc != ERR_NOENT)
		return rc;
	rc = io_open(io, temporary, IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCL, mode, &fd);
	if (rc)
		return rc;
	n = io_pwrite(io, fd, data, len, 0);
	rc = n < 0 ? (int)n : io_fdatasync(io, fd);
	io_close(io, fd);
	return rc;
}

int io_write_file(struct io *io, const char *path, const void *data, size_t len, uint32_t mode)
{
	char *temporary = mem_printf("%s.tmp", path);
	char *parent = io_parent_of(path);
	int rc;

	rc = io_write_temporary(io, temporary, data, len, mode);
	if (!rc)
		rc = io_rename(io, temporary, path);
	if (rc)
		(void)io_unlink(io, temporary); /* best effort: the first error is the one to report */
	else
		rc = io_sync_dir(io, parent);
	mem_free(parent);
	mem_free(temporary);
	return rc;
}

/* ---- buffers, back ends ---- */

void *io_buffer_alloc(struct io *io, size_t bytes)
{
	CHECK(bytes > 0);
	return io->v->buffer_alloc(io, bytes);
}

void io_buffer_free(struct io *io, void *buf, size_t bytes)
{
	if (buf)
		io->v->buffer_free(io, buf, bytes);
}

const char *io_backend_name(const struct io *io)
{
	return io->v->name;
}

bool io_is_simulated(const struct io *io)
{
	return io->v->simulated;
}

static int io_backend_from_env(enum io_backend *backend, struct err *err)
{
	const char *name = getenv("CRATON_IO");

	if (!name || !*name)
		return 0;
	if (!strcmp(name, "uring"))
		*backend = IO_BACKEND_URING;
	else if (!strcmp(name, "epoll"))
		*backend = IO_BACKEND_EPOLL;
	else
		return err_set(err, ERR_INVAL, "CRATON_IO=%s: give uring or epoll, or unset it", name);
	return 0;
}

int io_new(enum io_backend backend, struct io **ret_io, struct err *err)
{
	int rc;

	if (backend == IO_BACKEND_AUTO) {
		rc = io_backend_from_env(&backend, err);
		if (rc)
			return rc;
	}
	if (backend == IO_BACKEND_EPOLL)
		return io_epoll_new(ret_io, err);
	rc = io_uring_new(ret_io, err);
	if (rc && backend == IO_BACKEND_AUTO) {
		/* Containers and old kernels commonly forbid io_uring: not an error. */
		if (err)
			*err = (struct err){0};
		rc = io_epoll_new(ret_io, err);
	}
	return rc;
}

int io_slow_down(struct io *io, const char *fault, struct err *err)
{
	struct io_real *r = CONTAINER_OF(io, struct io_real, io);

	CHECK(!io->v->simulated && !r->slow);
	return io_slow_new(fault, &r->slow, err);
}

bool io_is_slowed(const struct io *io)
{
	return !io->v->simulated && CONTAINER_OF(io, const struct io_real, io)->slow;
}

void io_free(struct io *io)
{
	if (!io)
		return;
	CHECK_MAGIC(io, IO_MAGIC);
	io->v->free(io);
}

void io_worker_rest(uint64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}
