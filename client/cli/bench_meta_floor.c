/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_meta_floor: what this machine gives a metadata server at best, now: echoes of 128 bytes by another process over as many
 * connections and with as many in flight, and durable writes of 4 KiB, two at a time, into a file that was written before.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "client/cli/bench.h"
#include "client/cli/bench_meta.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

enum {
	MESSAGE_BYTES = 128,
	BUFFER_BYTES = 64 << 10,
	LOG_BYTES = 16 << 20,
	LOG_WRITE_BYTES = 4096,
	LOG_WRITES_AT_ONCE = 2,
};

#define FLOOR_NS (500ull * 1000 * 1000)

/* ---- the process that echoes ---- */

struct echo_conn {
	struct io *io;
	struct io_op op;
	struct iovec iov;
	int fd;
	uint8_t data[BUFFER_BYTES];
};

struct echo_server {
	struct io *io;
	struct io_op accept;
	int fd;
};

static void echo_received(struct io_op *op);

static void echo_sent(struct io_op *op)
{
	struct echo_conn *c = CONTAINER_OF(op, struct echo_conn, op);

	if (op->result < 0)
		_exit(0); /* the other side has seen enough */
	c->iov = (struct iovec){c->data, sizeof(c->data)};
	io_prep_recv(&c->op, c->fd, &c->iov, 1, 0, echo_received);
	io_submit(c->io, &c->op);
}

static void echo_received(struct io_op *op)
{
	struct echo_conn *c = CONTAINER_OF(op, struct echo_conn, op);

	if (op->result <= 0)
		_exit(0);
	c->iov.iov_len = (size_t)op->result;
	io_prep_send(&c->op, c->fd, &c->iov, 1, echo_sent);
	io_submit(c->io, &c->op);
}

static void echo_accepted(struct io_op *op)
{
	struct echo_server *s = CONTAINER_OF(op, struct echo_server, accept);
	struct echo_conn *c;

	if (op->result < 0)
		_exit(1);
	c = MEM_NEW(struct echo_conn);
	c->io = s->io;
	c->fd = (int)op->result;
	c->iov = (struct iovec){c->data, sizeof(c->data)};
	io_prep_recv(&c->op, c->fd, &c->iov, 1, 0, echo_received);
	io_submit(s->io, &c->op);
	io_prep_accept(&s->accept, s->fd, echo_accepted);
	io_submit(s->io, &s->accept);
}

/* Never returns; writes the port that it listens on to `out`. */
static void echo_serve(int out)
{
	struct echo_server s = {0};
	struct io_addr addr, bound;
	struct err err;

	io_addr_parse("127.0.0.1:0", &addr);
	if (io_new(IO_BACKEND_AUTO, &s.io, &err) || io_listen(s.io, &addr, &s.fd, &bound, &err))
		_exit(1);
	io_prep_accept(&s.accept, s.fd, echo_accepted);
	io_submit(s.io, &s.accept);
	if (write(out, &bound.port, sizeof(bound.port)) != sizeof(bound.port))
		_exit(1);
	io_run(s.io);
	_exit(0);
}

/* ---- the side that asks ---- */

struct asker;

struct ask_conn {
	struct asker *asker;
	struct io_op connect, send, recv;
	struct iovec send_iov, recv_iov;
	int fd;
	size_t owed; /* bytes to send when the send under way has ended */
	uint8_t in[BUFFER_BYTES], out[BUFFER_BYTES];
};

struct asker {
	struct io *io;
	uint64_t answered_bytes;
	struct io_op timer;
	bool failed, over;
	uint32_t pending;
};

static void ask_ended(struct asker *a)
{
	if (--a->pending == 0 && a->over)
		io_stop(a->io);
}

static void ask_sent(struct io_op *op);

static void ask_send(struct ask_conn *c)
{
	if (c->owed == 0 || io_pending(&c->send) || c->asker->over)
		return;
	c->send_iov = (struct iovec){c->out, c->owed};
	c->owed = 0;
	io_prep_send(&c->send, c->fd, &c->send_iov, 1, ask_sent);
	c->asker->pending++;
	io_submit(c->asker->io, &c->send);
}

static void ask_sent(struct io_op *op)
{
	struct ask_conn *c = CONTAINER_OF(op, struct ask_conn, send);

	c->asker->failed |= op->result < 0 && !c->asker->over;
	ask_send(c);
	ask_ended(c->asker);
}

static void ask_received(struct io_op *op)
{
	struct ask_conn *c = CONTAINER_OF(op, struct ask_conn, recv);
	struct asker *a = c->asker;

	if (op->result > 0 && !a->over) {
		a->answered_bytes += (uint64_t)op->result;
		c->owed += (size_t)op->result;
		ask_send(c);
		io_prep_recv(&c->recv, c->fd, &c->recv_iov, 1, 0, ask_received);
		io_submit(a->io, &c->recv);
		return;
	}
	a->failed |= !a->over;
	ask_ended(a);
}

static void ask_connected(struct io_op *op)
{
	struct ask_conn *c = CONTAINER_OF(op, struct ask_conn, connect);
	struct asker *a = c->asker;

	if (op->result < 0) {
		a->failed = true;
	} else {
		c->fd = (int)op->result;
		c->recv_iov = (struct iovec){c->in, sizeof(c->in)};
		io_prep_recv(&c->recv, c->fd, &c->recv_iov, 1, 0, ask_received);
		a->pending++;
		io_submit(a->io, &c->recv);
		ask_send(c);
	}
	ask_ended(a);
}

static void ask_timer(struct io_op *op)
{
	struct asker *a = CONTAINER_OF(op, struct asker, timer);

	(void)op;
	a->over = true;
	io_stop(a->io);
}

/* The echoes that come back in FLOOR_NS. */
static int ask(struct bench_meta *b, uint16_t port, double *ret_per_s)
{
	struct asker a = {.io = b->io};
	struct ask_conn *conns = mem_array(b->connections, sizeof(*conns));
	size_t depth = (b->clients * b->in_flight + b->connections - 1) / b->connections;
	struct io_addr to;
	double start;

	io_addr_parse("127.0.0.1:1", &to);
	to.port = port;
	if (depth > BUFFER_BYTES / MESSAGE_BYTES)
		depth = BUFFER_BYTES / MESSAGE_BYTES;
	for (uint64_t i = 0; i < b->connections; i++) {
		conns[i].asker = &a;
		conns[i].fd = -1;
		conns[i].owed = depth * MESSAGE_BYTES;
		io_prep_connect(&conns[i].connect, &to, ask_connected);
		a.pending++;
		io_submit(b->io, &conns[i].connect);
	}
	io_prep_timer(&a.timer, io_clock_ns(b->io) + FLOOR_NS, ask_timer);
	io_submit(b->io, &a.timer);
	start = bench_clock_s();
	io_run(b->io);
	*ret_per_s = (double)a.answered_bytes / MESSAGE_BYTES / (bench_clock_s() - start);
	for (uint64_t i = 0; i < b->connections; i++)
		if (conns[i].fd >= 0)
			io_shutdown(b->io, conns[i].fd);
	if (a.pending)
		io_run(b->io);
	for (uint64_t i = 0; i < b->connections; i++)
		if (conns[i].fd >= 0)
			io_close(b->io, conns[i].fd);
	mem_free(conns);
	return a.failed || a.answered_bytes == 0 ? ERR_CONNRESET : 0;
}

static int echo_floor(struct bench_meta *b, struct bench_meta_floor *ret_floor, struct err *err)
{
	struct rusage usage;
	uint16_t port;
	int pipes[2], code = 0;
	pid_t pid;

	if (pipe(pipes) < 0)
		return err_set(err, err_from_errno(errno), "cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		echo_serve(pipes[1]);
	close(pipes[1]);
	if (pid < 0 || read(pipes[0], &port, sizeof(port)) != sizeof(port))
		code = err_set(err, ERR_IO, "cannot start a process that echoes");
	close(pipes[0]);
	if (!code && ask(b, port, &ret_floor->echo_per_s))
		code = err_set(err, ERR_IO, "the process that echoes went away");
	if (pid > 0) {
		kill(pid, SIGKILL);
		if (wait4(pid, NULL, 0, &usage) == pid && ret_floor->echo_per_s > 0)
			ret_floor->echo_server_cpu_us =
				((double)usage.ru_utime.tv_sec * 1e6 + (double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_sec * 1e6 +
				 (double)usage.ru_stime.tv_usec) / (ret_floor->echo_per_s * (double)FLOOR_NS / 1e9);
	}
	return code;
}

/* ---- durable writes ---- */

struct log_slot {
	struct load_slot load; /* first */
	struct io_op op;
	struct iovec iov;
};

struct log_file {
	int fd;
	uint8_t *data;
	uint64_t until_ns;
};

static void log_written(struct io_op *op)
{
	struct log_slot *s = CONTAINER_OF(op, struct log_slot, op);

	load_done(&s->load, op->result < 0 ? (int)op->result : 0, "a write of the floor failed", 1);
}

static bool start_log_write(struct load_slot *slot)
{
	struct log_slot *s = CONTAINER_OF(slot, struct log_slot, load);
	const struct log_file *f = slot->load->ctx;

	if (io_clock_ns(slot->load->io) >= f->until_ns)
		return false;
	s->iov = (struct iovec){f->data, LOG_WRITE_BYTES};
	io_prep_write(&s->op, f->fd, &s->iov, 1, slot->number * LOG_WRITE_BYTES % LOG_BYTES, IO_DSYNC, log_written);
	io_submit(slot->load->io, &s->op);
	return true;
}

static int log_floor(struct bench_meta *b, const char *dir, struct bench_meta_floor *ret_floor, struct err *err)
{
	struct log_slot slots[LOG_WRITES_AT_ONCE] = {0};
	struct log_file f = {.data = bench_random_memory(LOG_BYTES)};
	struct load load = {.io = b->io, .count = UINT64_MAX, .start = start_log_write, .ctx = &f};
	char *path = mem_printf("%s/floor", dir);
	int64_t n;
	int code = io_open(b->io, path, IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_DIRECT, 0600, &f.fd);

	if (code == ERR_INVAL) /* no O_DIRECT there: metad's log goes the same way */
		code = io_open(b->io, path, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &f.fd);
	if (code) {
		err_set(err, code, "cannot make %s: %s", path, err_text(code));
	} else {
		n = io_pwrite(b->io, f.fd, f.data, LOG_BYTES, 0);
		code = n < 0 ? (int)n : io_fdatasync(b->io, f.fd);
		f.until_ns = io_clock_ns(b->io) + FLOOR_NS;
		if (code)
			err_set(err, code, "cannot write %s: %s", path, err_text(code));
		else if (load_run(&load, slots, sizeof(slots[0]), LOG_WRITES_AT_ONCE, &ret_floor->log))
			*err = load.err, code = load.err.code;
		io_close(b->io, f.fd);
		io_unlink(b->io, path);
	}
	mem_free(path);
	mem_free(f.data);
	return code;
}

int bench_meta_floor(struct bench_meta *b, const char *dir, struct bench_meta_floor *ret_floor, struct err *err)
{
	int code = echo_floor(b, ret_floor, err);

	return code ? code : log_floor(b, dir, ret_floor, err);
}
