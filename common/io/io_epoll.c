// SPDX-License-Identifier: Apache-2.0
/*
 * io_epoll: the back end for places where io_uring is forbidden, as in most containers. Sockets are non-blocking and
 * watched edge-triggered, both directions at once, so that a connection costs one epoll_ctl in its life; file
 * operations go to workers.
 *
 * Invariants: (1) an operation is tried before it waits, and after each edge until it would block, so no edge is
 * lost; (2) the operations of one direction of a socket are served in order; (3) a socket is in the table from its
 * first operation to io_close.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/mem.h"
#include "common/io/io_real.h"

enum { EPOLL_BATCH = 256 };

struct epoll_sock {
	struct list in, out; /* operations that wait for an edge */
	bool is_watched;
};

struct epoll {
	struct io_real real; /* first */
	int fd;
	bool has_no_pwait2;        /* an old kernel: milliseconds must do */
	struct epoll_sock **socks; /* by fd */
	size_t sock_cap;
};

static struct epoll *epoll_of(struct io_real *r)
{
	return CONTAINER_OF(r, struct epoll, real);
}

/* ---- the table of sockets ---- */

static struct epoll_sock *epoll_sock_of(struct epoll *e, int fd)
{
	size_t idx = (size_t)fd;

	if (idx >= e->sock_cap) {
		size_t cap = e->sock_cap ? e->sock_cap : 64;

		while (cap <= idx)
			cap *= 2;
		e->socks = mem_realloc(e->socks, cap * sizeof(*e->socks));
		memset(e->socks + e->sock_cap, 0, (cap - e->sock_cap) * sizeof(*e->socks));
		e->sock_cap = cap;
	}
	if (!e->socks[idx]) {
		struct epoll_sock *s = MEM_NEW(struct epoll_sock);

		list_init(&s->in);
		list_init(&s->out);
		e->socks[idx] = s;
	}
	return e->socks[idx];
}

static void epoll_forget(struct epoll *e, int fd)
{
	struct epoll_sock *s = (size_t)fd < e->sock_cap ? e->socks[fd] : NULL;

	if (!s)
		return;
	CHECK(list_empty(&s->in) && list_empty(&s->out));
	e->socks[fd] = NULL;
	mem_free(s);
}

static void epoll_close(struct io *io, int fd)
{
	epoll_forget(CONTAINER_OF(io, struct epoll, real.io), fd);
	io_file_close(io, fd);
}

/* Reports at once if the socket is ready already. */
static int epoll_watch(struct epoll *e, struct epoll_sock *s, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};

	if (s->is_watched)
		return 0;
	if (epoll_ctl(e->fd, EPOLL_CTL_ADD, fd, &event))
		return io__err(errno);
	s->is_watched = true;
	return 0;
}

/* ---- trying operations; each returns false if it would block, else has set *ret_result ---- */

static bool epoll_try_transfer(struct io_op *op, int64_t *ret_result)
{
	size_t total = io__iov_bytes(op->rw.iov, op->rw.iov_count);
	bool is_send = op->kind == IO_SEND, wants_all = is_send || (op->flags & IO_RECV_ALL);
	struct iovec rest[IO_IOV_MAX];

	while (op->slot[0] < total) {
		struct msghdr msg = {.msg_iov = rest};
		ssize_t n;

		msg.msg_iovlen = (size_t)io__iov_rest(op->rw.iov, op->rw.iov_count, op->slot[0], rest);
		n = is_send ? sendmsg(op->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(op->fd, &msg, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return false;
		if (n < 0) {
			*ret_result = errno == EPIPE ? ERR_CONNRESET : io__err(errno);
			return true;
		}
		if (n == 0) {
			*ret_result = op->slot[0] ? ERR_CONNRESET : 0;
			return true;
		}
		op->slot[0] += (uint64_t)n;
		if (!wants_all)
			break;
	}
	*ret_result = (int64_t)op->slot[0];
	return true;
}

static bool epoll_try_accept(struct io_op *op, int64_t *ret_result)
{
	for (;;) {
		struct sockaddr_in6 sa;
		socklen_t len = sizeof(sa);
		int fd = accept4(op->fd, (struct sockaddr *)&sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			io_sock_accepted(fd);
			io__addr_from_os(&sa, &op->accept.peer);
			*ret_result = fd;
			return true;
		}
		if (errno == EAGAIN)
			return false;
		if (errno != EINTR && errno != ECONNABORTED) {
			*ret_result = io__err(errno);
			return true;
		}
	}
}

/* Called again after an edge, connect tells how the attempt ended. */
static bool epoll_try_connect(struct io_op *op, int64_t *ret_result)
{
	struct sockaddr_in6 sa;
	socklen_t len = io__addr_to_os(&op->connect.to, &sa);

	if (connect(op->fd, (struct sockaddr *)&sa, len) == 0 || errno == EISCONN) {
		int rc = io_sock_connected(op->fd);

		*ret_result = rc < 0 ? rc : op->fd;
		return true;
	}
	if (errno == EINPROGRESS || errno == EALREADY || errno == EINTR)
		return false;
	*ret_result = io__err(errno);
	return true;
}

static bool epoll_try(struct io_op *op, int64_t *ret_result)
{
	switch (op->kind) {
	case IO_ACCEPT:
		return epoll_try_accept(op, ret_result);
	case IO_CONNECT:
		return epoll_try_connect(op, ret_result);
	default:
		return epoll_try_transfer(op, ret_result);
	}
}

static void epoll_end(struct epoll *e, struct io_op *op, int64_t result)
{
	op->state &= (uint8_t)~IO_STATE_KERNEL;
	if (op->kind == IO_CONNECT) {
		if (result < 0 && op->fd >= 0) {
			epoll_forget(e, op->fd);
			close(op->fd);
		}
		op->fd = -1;
	}
	io_real_ready(&e->real, op, result);
}

/* ---- the turn ---- */

static struct list *epoll_queue_of(struct epoll_sock *s, const struct io_op *op)
{
	return op->kind == IO_SEND || op->kind == IO_CONNECT ? &s->out : &s->in;
}

static void epoll_start_socket_op(struct epoll *e, struct io_op *op)
{
	struct epoll_sock *s;
	struct list *queue;
	int64_t result;
	int rc;

	if (op->kind == IO_CONNECT) {
		op->fd = io_sock_open(&op->connect.to, true);
		if (op->fd < 0) {
			epoll_end(e, op, op->fd);
			return;
		}
	}
	s = epoll_sock_of(e, op->fd);
	queue = epoll_queue_of(s, op);
	if (list_empty(queue) && epoll_try(op, &result)) {
		epoll_end(e, op, result);
		return;
	}
	/* A connecting socket may be watched only now: before connect it would report a hang-up. */
	rc = epoll_watch(e, s, op->fd);
	if (rc) {
		epoll_end(e, op, rc);
		return;
	}
	list_push_back(queue, &op->link);
	op->state |= IO_STATE_KERNEL;
}

static int epoll_flush(struct io_real *r)
{
	struct epoll *e = epoll_of(r);
	struct list *n;

	while ((n = list_pop_front(&r->pending))) {
		struct io_op *op = LIST_ENTRY(n, struct io_op, link);

		if (op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC) {
			op->state |= IO_STATE_KERNEL;
			io_pool_submit(r->pool, op);
		} else {
			epoll_start_socket_op(e, op);
		}
	}
	return 0;
}

static void epoll_cancel(struct io_real *r, struct io_op *op)
{
	if (op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC) {
		if (io_pool_withdraw(r->pool, op))
			io_real_ready(r, op, ERR_CANCELED);
		return;
	}
	list_remove(&op->link);
	epoll_end(epoll_of(r), op, ERR_CANCELED);
}

static void epoll_serve(struct epoll *e, struct list *queue)
{
	while (!list_empty(queue)) {
		struct io_op *op = LIST_ENTRY(queue->next, struct io_op, link);
		bool is_connect = op->kind == IO_CONNECT;
		int64_t result;

		if (!epoll_try(op, &result))
			return;
		list_remove(&op->link);
		epoll_end(e, op, result);
		/* The only operation on its socket, which may be gone now. */
		if (is_connect)
			return;
	}
}

static void epoll_on_event(struct epoll *e, const struct epoll_event *event)
{
	int fd = event->data.fd;
	uint64_t count;

	if (fd == e->real.wake_fd) {
		while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
			;
		return;
	}
	/* The fd may have been closed since, or even be a new one: trying again does no harm. */
	if ((size_t)fd < e->sock_cap && e->socks[fd] && (event->events & ~(uint32_t)EPOLLOUT))
		epoll_serve(e, &e->socks[fd]->in);
	if ((size_t)fd < e->sock_cap && e->socks[fd] && (event->events & ~(uint32_t)(EPOLLIN | EPOLLRDHUP)))
		epoll_serve(e, &e->socks[fd]->out);
}

static int epoll_sleep(struct epoll *e, struct epoll_event *events, uint64_t timeout_ns)
{
	uint64_t ms;

	if (!e->has_no_pwait2) {
		struct timespec ts = {
			.tv_sec = (time_t)(timeout_ns / 1000000000u),
			.tv_nsec = (long)(timeout_ns % 1000000000u),
		};
		int n = epoll_pwait2(e->fd, events, EPOLL_BATCH, timeout_ns == UINT64_MAX ? NULL : &ts, NULL);

		if (n >= 0 || errno != ENOSYS)
			return n;
		e->has_no_pwait2 = true;
	}
	ms = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0);
	if (timeout_ns == UINT64_MAX)
		return epoll_wait(e->fd, events, EPOLL_BATCH, -1);
	return epoll_wait(e->fd, events, EPOLL_BATCH, ms < INT32_MAX ? (int)ms : INT32_MAX);
}

static int epoll_wait_turn(struct io_real *r, uint64_t timeout_ns)
{
	struct epoll *e = epoll_of(r);
	struct epoll_event events[EPOLL_BATCH];
	int n = epoll_sleep(e, events, timeout_ns);

	if (n < 0)
		return errno == EINTR ? 0 : io__err(errno);
	for (int i = 0; i < n; i++)
		epoll_on_event(e, &events[i]);
	return 0;
}

/* ---- life ---- */

static void *epoll_buffer_alloc(struct io *io, size_t bytes)
{
	(void)io;
	return io__pages_alloc(bytes, true);
}

static void epoll_buffer_free(struct io *io, void *buf, size_t bytes)
{
	(void)io;
	io__pages_free(buf, bytes);
}

static void epoll_free(struct io *io)
{
	struct epoll *e = CONTAINER_OF(io, struct epoll, real.io);

	io_real_fini(&e->real);
	for (size_t i = 0; i < e->sock_cap; i++)
		mem_free(e->socks[i]);
	mem_free(e->socks);
	close(e->fd);
	mem_free(e);
}

static const struct io_real_ops epoll_ops = {
	.flush = epoll_flush,
	.wait = epoll_wait_turn,
	.cancel = epoll_cancel,
};

static const struct io_vtable epoll_vtable = {
	IO_REAL_ROWS,
	.name = "epoll",
	.free = epoll_free,
	.close = epoll_close,
	.buffer_alloc = epoll_buffer_alloc,
	.buffer_free = epoll_buffer_free,
};

int io_epoll_new(struct io **ret_io, struct err *err)
{
	struct epoll *e = MEM_NEW(struct epoll);
	struct epoll_event event = {.events = EPOLLIN};
	int rc;

	rc = io_real_init(&e->real, &epoll_vtable, &epoll_ops, EFD_NONBLOCK, err);
	if (rc) {
		mem_free(e);
		return rc;
	}
	e->real.is_nonblocking = true;
	e->fd = epoll_create1(EPOLL_CLOEXEC);
	event.data.fd = e->real.wake_fd;
	if (e->fd < 0 || epoll_ctl(e->fd, EPOLL_CTL_ADD, e->real.wake_fd, &event)) {
		rc = err_set(err, io__err(errno), "cannot make an epoll instance: %s", strerror(errno));
		if (e->fd >= 0)
			close(e->fd);
		io_real_fini(&e->real);
		mem_free(e);
		return rc;
	}
	*ret_io = &e->real.io;
	return 0;
}
