/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_http: see the header. A connection's slot is free again when its operation and its timer have ended and its descriptor is
 * closed; the deadline's timer cancels the operation, the end of the operation cancels the timer.
 */
#include "common/rpc/metrics_http.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

#define MS ((uint64_t)1000000)

enum { ACCEPT_AGAIN_MS = 200 };

struct http_conn {
	struct metrics_http *http;
	struct io_op op, deadline;
	struct io_addr from;
	int fd; /* -1: the slot is free */
	bool ended;
	size_t len;
	struct iovec iov;
	struct buf out;
	uint8_t head[METRICS_HTTP_HEAD_BYTES];
};

struct metrics_http {
	struct io *io;
	struct metrics_http_options o;
	struct refused own_refused; /* if nobody else wants to know */
	int fd;
	struct io_addr addr;
	struct io_op accept, again;
	struct http_conn conns[METRICS_HTTP_CONNS];
	bool closing, posted;
	void (*closed)(void *ctx);
	void *closed_ctx;
	struct io_post post;
};

/* ---- the request, pure ---- */

static bool take_text(struct slice *s, const char *text)
{
	size_t len = strlen(text);

	if (s->len < len || memcmp(s->data, text, len))
		return false;
	*s = slice_of(s->data + len, s->len - len);
	return true;
}

/* "GET /metrics HTTP/1.1", the query behind a '?' is ignored. */
static int judge_line(struct slice line)
{
	const uint8_t *space = memchr(line.data, ' ', line.len), *end;
	struct slice rest, target;

	if (!space || space == line.data)
		return 400;
	rest = slice_of(space + 1, line.len - (size_t)(space + 1 - line.data));
	end = memchr(rest.data, ' ', rest.len);
	if (!end || end == rest.data)
		return 400;
	target = slice_of(rest.data, (size_t)(end - rest.data));
	rest = slice_of(end + 1, rest.len - target.len - 1);
	if (!take_text(&rest, "HTTP/"))
		return 400;
	if (!take_text(&rest, "1.") || rest.len != 1 || (rest.data[0] != '0' && rest.data[0] != '1'))
		return 505;
	if (!take_text(&target, "/metrics") || (target.len && target.data[0] != '?'))
		return 404;
	return take_text(&line, "GET ") ? 200 : 405;
}

int metrics_http_judge(struct slice head)
{
	const uint8_t *line_end = head.len ? memmem(head.data, head.len, "\r\n", 2) : NULL;

	if (head.len && memchr(head.data, 0, head.len))
		return 400;
	if (!line_end || !memmem(line_end, head.len - (size_t)(line_end - head.data), "\r\n\r\n", 4))
		return head.len >= METRICS_HTTP_HEAD_BYTES ? 431 : 0;
	return judge_line(slice_of(head.data, (size_t)(line_end - head.data)));
}

/* ---- the answer ---- */

static const char *status_text(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 431:
		return "Request Header Fields Too Large";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Internal Server Error";
	}
}

static void make_answer(struct http_conn *c, int status)
{
	struct metrics m;
	struct buf body;

	buf_init(&body, METRICS_HTTP_ANSWER_BYTES);
	metrics_init(&m, &body);
	if (status == 200)
		c->http->o.write(c->http->o.ctx, &m);
	if (body.failed) {
		buf_clear(&body);
		status = 500;
	}
	if (status != 200)
		buf_printf(&body, "%d %s: this is Craton's GET /metrics\n", status, status_text(status));
	buf_init(&c->out, METRICS_HTTP_ANSWER_BYTES + METRICS_HTTP_HEAD_BYTES);
	buf_printf(&c->out,
		"HTTP/1.1 %d %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n%s"
		"Content-Length: %zu\r\nConnection: close\r\n\r\n",
		status, status_text(status), status == 405 ? "Allow: GET\r\n" : "", body.len);
	buf_append(&c->out, body.data, body.len);
	buf_fini(&body);
}

/* ---- connections ---- */

static void refuse(struct metrics_http *h, enum refused_cause cause, const struct io_addr *from)
{
	char addr[IO_ADDR_TEXT_BYTES];
	uint64_t unlogged;

	if (refused_count(h->o.refused, cause, io_now_ns(h->io), &unlogged) && h->o.log)
		log_line(h->o.log, LOG_WARN, "metrics-refused", "cause=%s peer=%s unlogged=%llu", refused_name(cause),
			io_addr_format(from, addr), (unsigned long long)unlogged);
}

static void maybe_closed(struct metrics_http *h);
static void conn_read(struct http_conn *c);

/* Every completion of a connection that has ended comes here; the last one frees the slot. */
static void conn_settle(struct http_conn *c)
{
	if (io_pending(&c->op) || io_pending(&c->deadline))
		return;
	io_close(c->http->io, c->fd);
	buf_fini(&c->out);
	c->fd = -1;
	maybe_closed(c->http);
}

static void conn_end(struct http_conn *c)
{
	c->ended = true;
	io_cancel(c->http->io, &c->op);
	io_cancel(c->http->io, &c->deadline);
	conn_settle(c);
}

static void on_deadline(struct io_op *op)
{
	struct http_conn *c = CONTAINER_OF(op, struct http_conn, deadline);

	if (c->ended) {
		conn_settle(c);
		return;
	}
	refuse(c->http, REFUSED_METRICS_SLOW, &c->from);
	conn_end(c);
}

static void on_sent(struct io_op *op)
{
	struct http_conn *c = CONTAINER_OF(op, struct http_conn, op);

	if (c->ended)
		conn_settle(c);
	else
		conn_end(c);
}

static void conn_answer(struct http_conn *c, int status)
{
	make_answer(c, status);
	c->iov = (struct iovec){c->out.data, c->out.len};
	io_prep_send(&c->op, c->fd, &c->iov, 1, on_sent);
	io_submit(c->http->io, &c->op);
}

static void on_received(struct io_op *op)
{
	struct http_conn *c = CONTAINER_OF(op, struct http_conn, op);
	int status;

	if (c->ended) {
		conn_settle(c);
		return;
	}
	if (op->result <= 0) {
		conn_end(c);
		return;
	}
	c->len += (size_t)op->result;
	status = metrics_http_judge(slice_of(c->head, c->len));
	if (status && status != 200)
		refuse(c->http, REFUSED_METRICS_REQUEST, &c->from);
	if (status)
		conn_answer(c, status);
	else
		conn_read(c);
}

static void conn_read(struct http_conn *c)
{
	c->iov = (struct iovec){c->head + c->len, sizeof(c->head) - c->len};
	io_prep_recv(&c->op, c->fd, &c->iov, 1, 0, on_received);
	io_submit(c->http->io, &c->op);
}

static void conn_begin(struct metrics_http *h, int fd, const struct io_addr *from)
{
	struct http_conn *c = NULL;

	for (int i = 0; i < METRICS_HTTP_CONNS && !c; i++)
		if (h->conns[i].fd < 0)
			c = &h->conns[i];
	if (!c || h->closing) {
		io_close(h->io, fd);
		if (!h->closing)
			refuse(h, REFUSED_METRICS_CONNECTIONS, from);
		return;
	}
	c->fd = fd;
	c->from = *from;
	c->len = 0;
	c->ended = false;
	c->out = (struct buf){0};
	io_prep_timer(&c->deadline, io_now_ns(h->io) + METRICS_HTTP_MS * MS, on_deadline);
	io_submit(h->io, &c->deadline);
	conn_read(c);
}

/* ---- accepting ---- */

static void accept_next(struct metrics_http *h);

static void on_again(struct io_op *op)
{
	struct metrics_http *h = CONTAINER_OF(op, struct metrics_http, again);

	if (h->closing)
		maybe_closed(h);
	else
		accept_next(h);
}

static void on_accept(struct io_op *op)
{
	struct metrics_http *h = CONTAINER_OF(op, struct metrics_http, accept);

	if (op->result >= 0)
		conn_begin(h, (int)op->result, &op->accept.peer);
	if (h->closing) {
		maybe_closed(h);
	} else if (op->result >= 0 || op->result == ERR_CONNRESET) {
		accept_next(h);
	} else { /* no descriptors left, say */
		io_prep_timer(&h->again, io_now_ns(h->io) + ACCEPT_AGAIN_MS * MS, on_again);
		io_submit(h->io, &h->again);
	}
}

static void accept_next(struct metrics_http *h)
{
	io_prep_accept(&h->accept, h->fd, on_accept);
	io_submit(h->io, &h->accept);
}

/* ---- open and close ---- */

int metrics_http_open(
	struct io *io, const struct metrics_http_options *options, struct metrics_http **ret_http, struct err *err)
{
	struct metrics_http *h;
	struct io_addr bound;
	int fd, rc = io_listen_wait(io, &options->listen, options->log, &fd, &bound, err);

	if (rc < 0)
		return err_prefix(err, "metrics");
	h = MEM_NEW(struct metrics_http);
	h->io = io;
	h->o = *options;
	if (!h->o.refused)
		h->o.refused = &h->own_refused;
	h->fd = fd;
	h->addr = bound;
	for (int i = 0; i < METRICS_HTTP_CONNS; i++) {
		h->conns[i].http = h;
		h->conns[i].fd = -1;
	}
	accept_next(h);
	*ret_http = h;
	return 0;
}

struct io_addr metrics_http_addr(const struct metrics_http *h)
{
	return h->addr;
}

static void on_closed(struct io_post *post)
{
	struct metrics_http *h = CONTAINER_OF(post, struct metrics_http, post);
	void (*closed)(void *ctx) = h->closed;
	void *ctx = h->closed_ctx;

	io_close(h->io, h->fd);
	mem_free(h);
	closed(ctx);
}

static void maybe_closed(struct metrics_http *h)
{
	if (!h->closing || h->posted || io_pending(&h->accept) || io_pending(&h->again))
		return;
	for (int i = 0; i < METRICS_HTTP_CONNS; i++)
		if (h->conns[i].fd >= 0)
			return;
	h->posted = true;
	h->post.run = on_closed;
	io_post(h->io, &h->post);
}

void metrics_http_close(struct metrics_http *h, void (*closed)(void *ctx), void *ctx)
{
	CHECK(!h->closing && closed);
	h->closing = true;
	h->closed = closed;
	h->closed_ctx = ctx;
	io_cancel(h->io, &h->accept);
	io_cancel(h->io, &h->again);
	for (int i = 0; i < METRICS_HTTP_CONNS; i++)
		if (h->conns[i].fd >= 0 && !h->conns[i].ended)
			conn_end(&h->conns[i]);
	maybe_closed(h);
}
