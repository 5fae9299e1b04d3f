// SPDX-License-Identifier: Apache-2.0
/*
 * io_uring: the fast back end. One ring a loop; each turn is one system call that submits, waits and lets the kernel
 * finish work.
 *
 * Choices, measured elsewhere: no polling thread, no zero-copy send, no multishot receive (all slower here);
 * completion work is deferred to the loop's own thread where the kernel can (DEFER_TASKRUN, 6.1). The ring starts
 * disabled and is enabled by the first io_run, because DEFER_TASKRUN binds it to that thread. A large receive waits
 * until half a MiB of it is there (SO_RCVLOWAT, never more than its rest): a wake-up costs more than copying a packet.
 *
 * Invariants: (1) the user data of a request is its operation, with a tag in the low bits; a cancel carries its own
 * tag and is never dereferenced when it completes, since its operation may be gone; (2) cancels are issued before
 * what was submitted later, so they cannot hit a re-used operation; (3) an operation that came back short goes to
 * `pending` again with its progress, unless a cancel was asked for.
 *
 * Failure modes: a full submission queue is flushed and filled on; what still does not fit waits a turn. Memory that
 * may not be pinned (RLIMIT_MEMLOCK) is used unregistered. What would block goes to threads of the kernel's, which all files of a
 * ring share: their bound, 4 a CPU if nothing is said, is set such that disks that hang leave enough for those that do not.
 */
#include <errno.h>
#include <limits.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/mem.h"
#include "common/io/io_real.h"

enum {
	URING_ENTRIES = 512,          /* requests of one system call */
	URING_COMPLETIONS = 8192,     /* more than this spill into the kernel's own list: slower, not lost */
	URING_BUFFERS_MAX = 256,      /* registered: a daemon allocates bulk memory in a few large pieces */
	URING_BATCH = 256,            /* completions taken at once */
	URING_SCRATCH = 16,           /* vectors of continued operations between two system calls */
	URING_COPY_BYTES = 256 << 10, /* sent in one turn: worth a call of their own for the files' requests */
	URING_LOWAT_MIN = 64 << 10,   /* receives of less are not worth waiting for */
	URING_LOWAT_MAX = 512 << 10,  /* gathered by the kernel before it wakes us */
	URING_LOWAT_FDS = 4096,       /* sockets with greater numbers take what comes */
};
_Static_assert(IO_IOV_MAX <= IOV_MAX, "a vector goes to the kernel whole");

enum { URING_TAG_OP = 0, URING_TAG_CANCEL = 1, URING_TAG_WAKE = 2, URING_TAG_MASK = 3 };

struct uring_buffer {
	char *base;
	size_t bytes;
	uint32_t slot;
};

struct uring {
	struct io_real real; /* first */
	struct io_uring ring;
	bool is_enabled;
	bool is_wake_armed;
	uint64_t wake_value;
	struct list cancels; /* operations in the kernel, to be canceled at the next flush */
	struct iovec scratch[URING_SCRATCH][IO_IOV_MAX];
	uint32_t scratch_used;
	bool polls_first;           /* the kernel can wait before it tries (5.19) */
	int lowat[URING_LOWAT_FDS]; /* SO_RCVLOWAT of each socket; 0: as it was made, 1 */

	struct uring_buffer buffers[URING_BUFFERS_MAX]; /* by address */
	uint32_t buffer_count, free_count;
	uint32_t free_slots[URING_BUFFERS_MAX];
};

struct uring_slot {
	uint64_t progress;
	union {
		struct msghdr msg;
		struct {
			struct sockaddr_in6 sa;
			socklen_t len;
		} name;
	};
} __attribute__((may_alias));
_Static_assert(sizeof(struct uring_slot) <= sizeof(((struct io_op *)0)->slot), "uring_slot fits");

static struct uring *uring_of(struct io_real *r)
{
	return CONTAINER_OF(r, struct uring, real);
}

static struct uring_slot *uring_slot_of(struct io_op *op)
{
	return (struct uring_slot *)op->slot;
}

/* ---- giving requests to the kernel ---- */

/* The kernel may take some only, and has read the vectors of what it took. */
static void uring_submitted(struct uring *u)
{
	if (io_uring_sq_ready(&u->ring) == 0)
		u->scratch_used = 0;
}

/* NULL: the kernel takes no more at present. */
static struct io_uring_sqe *uring_get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (sqe)
		return sqe;
	if (io_uring_submit(&u->ring) < 0)
		return NULL;
	uring_submitted(u);
	return io_uring_get_sqe(&u->ring);
}

/* A registered buffer that holds all of iov, or -1. */
static int uring_find_buffer(const struct uring *u, const struct iovec *iov)
{
	const char *base = iov->iov_base;
	uint32_t lo = 0, hi = u->buffer_count;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (u->buffers[mid].base <= base)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0 || base + iov->iov_len > u->buffers[lo - 1].base + u->buffers[lo - 1].bytes)
		return -1;
	return (int)u->buffers[lo - 1].slot;
}

static void uring_fill_rw(
	struct uring *u, struct io_uring_sqe *sqe, struct io_op *op, const struct iovec *iov, int count)
{
	uint64_t offset = op->rw.offset + uring_slot_of(op)->progress;
	bool is_write = op->kind == IO_WRITE;
	int buffer;

	if (count > 1) {
		io_uring_prep_rw(
			is_write ? IORING_OP_WRITEV : IORING_OP_READV, sqe, op->fd, iov, (unsigned)count, offset);
	} else {
		buffer = uring_find_buffer(u, iov);
		io_uring_prep_rw(is_write ? (buffer < 0 ? IORING_OP_WRITE : IORING_OP_WRITE_FIXED)
					  : (buffer < 0 ? IORING_OP_READ : IORING_OP_READ_FIXED),
			sqe, op->fd, iov->iov_base, (unsigned)iov->iov_len, offset);
		if (buffer >= 0)
			sqe->buf_index = (uint16_t)buffer;
	}
	if (op->flags & IO_DSYNC)
		sqe->rw_flags = RWF_DSYNC;
}

/* The bytes that a receive should wait for, so that a payload wakes us a few times and not once a packet; 1: any. */
static int uring_wanted(const struct uring *u, const struct io_op *op, const struct iovec *iov, int count)
{
	size_t rest = io__iov_bytes(iov, count);

	if (!u->polls_first || !(op->flags & IO_RECV_ALL) || rest < URING_LOWAT_MIN)
		return 1;
	return rest < URING_LOWAT_MAX ? (int)rest : URING_LOWAT_MAX;
}

/* False: not to be had; the receive then takes what comes. */
static bool uring_set_lowat(struct uring *u, int fd, int bytes)
{
	if (fd < 0 || fd >= URING_LOWAT_FDS)
		return bytes == 1;
	if ((u->lowat[fd] ? u->lowat[fd] : 1) == bytes)
		return true;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)))
		return false;
	u->lowat[fd] = bytes;
	return true;
}

static void uring_fill_message(
	struct uring *u, struct io_uring_sqe *sqe, struct io_op *op, const struct iovec *iov, int count)
{
	struct uring_slot *slot = uring_slot_of(op);
	int flags = 0, wanted = 0;

	if (op->kind == IO_SEND) {
		flags = MSG_NOSIGNAL | MSG_WAITALL;
	} else {
		wanted = uring_wanted(u, op, iov, count);
		if (!uring_set_lowat(u, op->fd, wanted))
			wanted = 1;
		if (wanted == 1 && op->flags & IO_RECV_ALL)
			flags = MSG_WAITALL;
	}
	if (count == 1) {
		io_uring_prep_rw(op->kind == IO_SEND ? IORING_OP_SEND : IORING_OP_RECV, sqe, op->fd, iov->iov_base,
			(unsigned)iov->iov_len, 0);
	} else {
		memset(&slot->msg, 0, sizeof(slot->msg));
		slot->msg.msg_iov = (struct iovec *)iov;
		slot->msg.msg_iovlen = (size_t)count;
		io_uring_prep_rw(
			op->kind == IO_SEND ? IORING_OP_SENDMSG : IORING_OP_RECVMSG, sqe, op->fd, &slot->msg, 1, 0);
	}
	sqe->msg_flags = (uint32_t)flags;
	if (wanted > 1)
		sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
}

static void uring_fill(struct uring *u, struct io_uring_sqe *sqe, struct io_op *op)
{
	struct uring_slot *slot = uring_slot_of(op);
	const struct iovec *iov = op->rw.iov;
	int count = op->rw.iov_count;
	socklen_t len;

	if (op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SEND || op->kind == IO_RECV) {
		if (slot->progress > 0) {
			struct iovec *rest = u->scratch[u->scratch_used++];

			count = io__iov_rest(iov, count, slot->progress, rest);
			iov = rest;
		}
		if (op->kind == IO_READ || op->kind == IO_WRITE)
			uring_fill_rw(u, sqe, op, iov, count);
		else
			uring_fill_message(u, sqe, op, iov, count);
	} else if (op->kind == IO_SYNC) {
		io_uring_prep_fsync(sqe, op->fd, IORING_FSYNC_DATASYNC);
	} else if (op->kind == IO_ACCEPT) {
		slot->name.len = sizeof(slot->name.sa);
		io_uring_prep_accept(sqe, op->fd, (struct sockaddr *)&slot->name.sa, &slot->name.len, SOCK_CLOEXEC);
	} else {
		struct sockaddr_in6 sa;

		CHECK(op->kind == IO_CONNECT);
		len = io__addr_to_os(&op->connect.to, &sa);
		slot->name.sa = sa;
		io_uring_prep_connect(sqe, op->fd, (struct sockaddr *)&slot->name.sa, len);
	}
	io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)op | URING_TAG_OP);
}

/* False: no room; the caller keeps the operation. */
static bool uring_issue(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe;

	if (op->kind == IO_CONNECT && op->fd < 0) {
		op->fd = io_sock_open(&op->connect.to, false);
		if (op->fd < 0) {
			io_real_ready(&u->real, op, op->fd);
			return true;
		}
	}
	if (u->scratch_used == URING_SCRATCH) {
		if (io_uring_submit(&u->ring) < 0)
			return false;
		uring_submitted(u);
		if (u->scratch_used == URING_SCRATCH)
			return false;
	}
	sqe = uring_get_sqe(u);
	if (!sqe)
		return false;
	uring_fill(u, sqe, op);
	op->state |= IO_STATE_KERNEL;
	return true;
}

static bool uring_issue_cancel(struct uring *u, struct io_op *op)
{
	struct io_uring_sqe *sqe = uring_get_sqe(u);

	if (!sqe)
		return false;
	io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)op | URING_TAG_OP, 0);
	io_uring_sqe_set_data64(sqe, URING_TAG_CANCEL);
	return true;
}

static int uring_prepare_turn(struct uring *u)
{
	if (!u->is_enabled) {
		/* liburing 2.3 declares io_uring_enable_rings and forgets to export it. */
		int rc = io_uring_register((unsigned)u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);

		if (rc < 0)
			return io__err(-rc);
		u->is_enabled = true;
	}
	if (!u->is_wake_armed) {
		struct io_uring_sqe *sqe = uring_get_sqe(u);

		if (!sqe)
			return 0;
		io_uring_prep_read(sqe, u->real.wake_fd, &u->wake_value, sizeof(u->wake_value), 0);
		io_uring_sqe_set_data64(sqe, URING_TAG_WAKE);
		u->is_wake_armed = true;
	}
	return 0;
}

static bool uring_is_file(const struct io_op *op)
{
	return op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC;
}

/*
 * The kernel takes requests in order, copies what is sent as it comes to it, and holds back reads and writes of files until it has
 * seen all requests of the call (its plug). Where there is much to copy, the files' requests get a call of their own first.
 */
static bool uring_files_go_first(const struct io_real *r)
{
	size_t copied = 0;
	bool files = false;

	LIST_FOREACH(it, &r->pending) {
		const struct io_op *op = LIST_ENTRY(it, struct io_op, link);

		if (uring_is_file(op))
			files = true;
		else if (op->kind == IO_SEND)
			copied += io__iov_bytes(op->rw.iov, op->rw.iov_count);
	}
	return files && copied >= URING_COPY_BYTES;
}

/* False: the kernel takes no more at present; what is left stays in `pending`. */
static bool uring_issue_pending(struct uring *u, bool files_only)
{
	LIST_FOREACH_SAFE(it, &u->real.pending) {
		struct io_op *op = LIST_ENTRY(it, struct io_op, link);

		if (files_only && !uring_is_file(op))
			continue;
		list_remove(&op->link);
		if (!uring_issue(u, op)) {
			list_push_front(&u->real.pending, &op->link);
			return false;
		}
	}
	return true;
}

static int uring_flush(struct io_real *r)
{
	struct uring *u = uring_of(r);
	struct list *n;
	int rc = uring_prepare_turn(u);

	if (rc)
		return rc;
	while ((n = list_pop_front(&u->cancels))) {
		if (!uring_issue_cancel(u, LIST_ENTRY(n, struct io_op, link))) {
			list_push_front(&u->cancels, n);
			return 0;
		}
	}
	if (uring_files_go_first(r)) {
		if (!uring_issue_pending(u, true))
			return 0;
		/* What it does not take goes with the turn's own call, which also tells why. */
		if (io_uring_submit(&u->ring) >= 0)
			uring_submitted(u);
	}
	(void)uring_issue_pending(u, false);
	return 0;
}

static void uring_cancel(struct io_real *r, struct io_op *op)
{
	list_push_back(&uring_of(r)->cancels, &op->link);
}

/* ---- taking results ---- */

static void uring_again(struct uring *u, struct io_op *op)
{
	if (op->state & IO_STATE_CANCEL)
		io_real_ready(&u->real, op, ERR_CANCELED);
	else
		list_push_back(&u->real.pending, &op->link);
}

static void uring_transferred(struct uring *u, struct io_op *op, int res)
{
	struct uring_slot *slot = uring_slot_of(op);
	size_t total = io__iov_bytes(op->rw.iov, op->rw.iov_count);
	bool wants_all = op->kind != IO_RECV || (op->flags & IO_RECV_ALL);

	if (res > 0) {
		slot->progress += (uint64_t)res;
		if (slot->progress < total && wants_all)
			uring_again(u, op);
		else
			io_real_ready(&u->real, op, (int64_t)slot->progress);
	} else if (res == 0) {
		if (op->kind == IO_READ || slot->progress == total)
			io_real_ready(&u->real, op, (int64_t)slot->progress);
		else if (op->kind == IO_RECV)
			io_real_ready(&u->real, op, slot->progress ? ERR_CONNRESET : 0);
		else
			io_real_ready(&u->real, op, ERR_IO);
	} else if (res == -EINVAL && op->kind == IO_READ && slot->progress > 0) {
		/* With O_DIRECT the try to read on behind an unaligned end is EINVAL: it is the end. */
		io_real_ready(&u->real, op, (int64_t)slot->progress);
	} else if (res == -EPIPE && op->kind == IO_SEND) {
		io_real_ready(&u->real, op, ERR_CONNRESET);
	} else {
		io_real_ready(&u->real, op, io__err(-res));
	}
}

static void uring_new_socket(struct uring *u, int fd)
{
	if (fd < URING_LOWAT_FDS)
		u->lowat[fd] = 1;
}

static void uring_accepted(struct uring *u, struct io_op *op, int res)
{
	struct sockaddr_in6 sa;

	if (res == -ECONNABORTED) {
		uring_again(u, op);
		return;
	}
	if (res < 0) {
		io_real_ready(&u->real, op, io__err(-res));
		return;
	}
	io_sock_accepted(res);
	uring_new_socket(u, res);
	sa = uring_slot_of(op)->name.sa;
	io__addr_from_os(&sa, &op->accept.peer);
	io_real_ready(&u->real, op, res);
}

static void uring_connected(struct uring *u, struct io_op *op, int res)
{
	int fd = op->fd;

	int rc = res < 0 && res != -EISCONN ? io__err(-res) : io_sock_connected(fd);

	op->fd = -1;
	if (rc < 0)
		close(fd);
	else
		uring_new_socket(u, fd);
	io_real_ready(&u->real, op, rc < 0 ? rc : fd);
}

static void uring_completed(struct uring *u, struct io_op *op, int res)
{
	CHECK_MAGIC(op, IO_OP_MAGIC);
	op->state &= (uint8_t)~IO_STATE_KERNEL;
	list_remove(&op->link); /* a cancel not yet issued */
	if (res == -EINTR || res == -EAGAIN)
		uring_again(u, op);
	else if (op->kind == IO_SYNC)
		io_real_ready(&u->real, op, res < 0 ? io__err(-res) : 0);
	else if (op->kind == IO_ACCEPT)
		uring_accepted(u, op, res);
	else if (op->kind == IO_CONNECT)
		uring_connected(u, op, res);
	else
		uring_transferred(u, op, res);
}

static uint32_t uring_reap(struct uring *u)
{
	struct io_uring_cqe *cqes[URING_BATCH];
	uint32_t count = io_uring_peek_batch_cqe(&u->ring, cqes, URING_BATCH);

	for (uint32_t i = 0; i < count; i++) {
		uint64_t data = cqes[i]->user_data;

		if ((data & URING_TAG_MASK) == URING_TAG_OP)
			uring_completed(u, (struct io_op *)(uintptr_t)data, cqes[i]->res);
		else if ((data & URING_TAG_MASK) == URING_TAG_WAKE)
			u->is_wake_armed = false;
	}
	io_uring_cq_advance(&u->ring, count);
	return count;
}

static int uring_wait(struct io_real *r, uint64_t timeout_ns)
{
	struct uring *u = uring_of(r);
	struct __kernel_timespec ts = {
		.tv_sec = (int64_t)(timeout_ns / 1000000000u),
		.tv_nsec = (long long)(timeout_ns % 1000000000u),
	};
	struct io_uring_cqe *cqe;
	int rc;

	if (timeout_ns == 0 || !list_empty(&u->cancels))
		rc = io_uring_submit_and_get_events(&u->ring);
	else if (timeout_ns == UINT64_MAX)
		rc = io_uring_submit_and_wait(&u->ring, 1);
	else
		rc = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
	uring_submitted(u);
	/* EAGAIN and EBUSY: the kernel is short of memory or of room for completions; these are taken now, the
	 * rest goes next turn. */
	if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
		return io__err(-rc);
	while (uring_reap(u) == URING_BATCH)
		;
	return 0;
}

/* ---- registered buffers ---- */

static void uring_register(struct uring *u, void *buf, size_t bytes)
{
	struct iovec iov = {buf, bytes};
	uint64_t tag = 0;
	uint32_t slot, at;

	if (u->free_count == 0)
		return;
	slot = u->free_slots[u->free_count - 1];
	/* Often forbidden by the limit of locked memory; the buffer then works unregistered. */
	if (io_uring_register_buffers_update_tag(&u->ring, slot, &iov, (__u64 *)&tag, 1) != 1)
		return;
	u->free_count--;
	for (at = u->buffer_count; at > 0 && u->buffers[at - 1].base > (char *)buf; at--)
		u->buffers[at] = u->buffers[at - 1];
	u->buffers[at] = (struct uring_buffer){buf, bytes, slot};
	u->buffer_count++;
}

static void uring_unregister(struct uring *u, void *buf)
{
	struct iovec none = {0};
	uint64_t tag = 0;
	uint32_t at = 0, slot;

	while (at < u->buffer_count && u->buffers[at].base != buf)
		at++;
	if (at == u->buffer_count)
		return;
	slot = u->buffers[at].slot;
	u->buffer_count--;
	for (; at < u->buffer_count; at++)
		u->buffers[at] = u->buffers[at + 1];
	/* If the kernel keeps it (the ring belongs to another thread), the slot is spent until the ring ends. */
	if (io_uring_register_buffers_update_tag(&u->ring, slot, &none, (__u64 *)&tag, 1) == 1)
		u->free_slots[u->free_count++] = slot;
}

static void *uring_buffer_alloc(struct io *io, size_t bytes)
{
	struct uring *u = CONTAINER_OF(io, struct uring, real.io);
	void *buf = io__pages_alloc(bytes, true);

	uring_register(u, buf, bytes);
	return buf;
}

static void uring_buffer_free(struct io *io, void *buf, size_t bytes)
{
	uring_unregister(CONTAINER_OF(io, struct uring, real.io), buf);
	io__pages_free(buf, bytes);
}

/* ---- life ---- */

static void uring_free(struct io *io)
{
	struct uring *u = CONTAINER_OF(io, struct uring, real.io);

	CHECK(u->buffer_count == 0);
	CHECK(u->real.in_flight == 0);
	io_uring_queue_exit(&u->ring);
	io_real_fini(&u->real);
	mem_free(u);
}

static const struct io_real_ops uring_ops = {
	.flush = uring_flush,
	.wait = uring_wait,
	.cancel = uring_cancel,
};

static const struct io_vtable uring_vtable = {
	IO_REAL_ROWS,
	.name = "uring",
	.free = uring_free,
	.close = io_file_close,
	.buffer_alloc = uring_buffer_alloc,
	.buffer_free = uring_buffer_free,
};

static int uring_setup(struct io_uring *ring)
{
	static const uint32_t flags[] = {
		IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
		IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_R_DISABLED,
	};
	int rc = -EINVAL;

	for (size_t i = 0; i < ARRAY_COUNT(flags) && rc == -EINVAL; i++) {
		struct io_uring_params params = {
			.flags = flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
			.cq_entries = URING_COMPLETIONS,
		};

		rc = io_uring_queue_init_params(URING_ENTRIES, ring, &params);
	}
	return rc;
}

static int uring_check_kernel(struct io_uring *ring)
{
	static const uint8_t wanted[] = {
		IORING_OP_READ,
		IORING_OP_WRITE,
		IORING_OP_READV,
		IORING_OP_WRITEV,
		IORING_OP_READ_FIXED,
		IORING_OP_WRITE_FIXED,
		IORING_OP_FSYNC,
		IORING_OP_SENDMSG,
		IORING_OP_SEND,
		IORING_OP_RECVMSG,
		IORING_OP_RECV,
		IORING_OP_ACCEPT,
		IORING_OP_CONNECT,
		IORING_OP_ASYNC_CANCEL,
	};
	const uint32_t features =
		IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_FAST_POLL | IORING_FEAT_EXT_ARG;
	struct io_uring_probe *probe;
	int rc = 0;

	if ((ring->features & features) != features)
		return -ENOSYS;
	probe = io_uring_get_probe_ring(ring);
	if (!probe)
		return -ENOSYS;
	for (size_t i = 0; i < ARRAY_COUNT(wanted); i++)
		if (!io_uring_opcode_supported(probe, wanted[i]))
			rc = -ENOSYS;
	io_uring_free_probe(probe);
	return rc;
}

int io_uring_new(struct io **ret_io, struct err *err)
{
	struct uring *u = MEM_NEW(struct uring);
	unsigned workers[2] = {IO_DISK_WORKERS, 0}; /* for files; 0: for others as it is */
	int rc;

	rc = uring_setup(&u->ring);
	if (rc < 0) {
		mem_free(u);
		return err_set(err, io__err(-rc), "io_uring is not to be had here (%s); use epoll", strerror(-rc));
	}
	rc = uring_check_kernel(&u->ring);
	if (rc < 0) {
		io_uring_queue_exit(&u->ring);
		mem_free(u);
		return err_set(err, ERR_NOSYS, "this kernel's io_uring is too old (5.11 is needed); use epoll");
	}
	rc = io_real_init(&u->real, &uring_vtable, &uring_ops, 0, err);
	if (rc) {
		io_uring_queue_exit(&u->ring);
		mem_free(u);
		return rc;
	}
	list_init(&u->cancels);
	(void)io_uring_register_iowq_max_workers(&u->ring, workers); /* a kernel before 5.15: one hung disk may hold up others */
	u->polls_first = u->ring.flags & IORING_SETUP_DEFER_TASKRUN;
	if (io_uring_register_buffers_sparse(&u->ring, URING_BUFFERS_MAX) == 0) {
		for (uint32_t i = 0; i < URING_BUFFERS_MAX; i++)
			u->free_slots[u->free_count++] = i;
	}
	*ret_io = &u->real.io;
	return 0;
}
