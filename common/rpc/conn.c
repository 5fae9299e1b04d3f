/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn: see conn.h.
 *
 * Receiving: at most one IO_RECV is in flight. Its completion feeds frame_rx and runs the owner's callbacks until
 * frame_rx wants more bytes or the owner wants no more frames; in the latter case no receive is submitted until the
 * turn hook finds that may_read holds again: the kernel's buffers fill and TCP pushes back.
 *
 * Sending: frames queued during a turn are gathered by the turn hook into one send of whole frames; heads and bodies of
 * neighbours lie behind one another in a chunk and share an iovec. At most one send is in flight; what is queued
 * meanwhile leaves as the next one.
 *
 * With a transform, bytes go through one buffer each way, which costs the copies that a transform makes anyway.
 *
 * Breaking: shutdown makes both operations complete; the hook then finds nothing in flight, ends what is queued and
 * reports. A refused client gets a HELLO with the reason; the connection is then kept, reading and forgetting, until
 * the client closes it (an early close with unread input would reset the stream and destroy the reason) or the owner's
 * deadline breaks it.
 */
#include "common/rpc/conn.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/rpc/codec.h"
#include "common/rpc/hello.h"

enum {
	CONN_MAGIC = 0x636f6e6e,
	CHUNK_BYTES = 16 << 10, /* about a hundred small frames */
	SEND_BYTES = 2 << 20,  /* of one send, unless one frame is longer: bounds how late `done` comes for the first */
	WIRE_BYTES = 64 << 10, /* received at once under a transform */
	WIRE_KEEP_BYTES = 256 << 10, /* a send buffer longer than this is freed after use */
	HELLO_BODY_BYTES = 4 << 10,
	MALLOC_BYTES = 16, /* what the allocator adds */
	TRANSFORM_EXTRA = 1 << 10, /* rpc.h: 2x + 1 KiB */
};

/* A send that one frame more overshoots, wrapped piece by piece. */
#define WIRE_OUT_MAX                                                                                          \
	(2 * ((size_t)SEND_BYTES + FRAME_HEADER_BYTES + LIMIT_FRAME_BODY_BYTES + LIMIT_FRAME_PAYLOAD_BYTES) + \
		(IO_IOV_MAX + RPC_PAYLOAD_IOV) * (size_t)TRANSFORM_EXTRA)

/* Holds heads and bodies; freed with the last frame that lies in it. */
struct conn_chunk {
	uint32_t refs;
	size_t len, cap;
	uint8_t data[];
};

static void read_frames(struct conn *c);
static void on_recv(struct io_op *op);
static void on_send(struct io_op *op);
static void on_turn_end(struct io_turn_hook *hook);

/* ---- life ---- */

void conn_init(struct conn *c, struct io *io, const struct conn_ops *ops, const struct rpc_identity *self,
	bool is_server, bool bulk, const struct rpc_transform *transform)
{
	memset(c, 0, sizeof(*c));
	c->magic = CONN_MAGIC;
	c->io = io;
	c->ops = ops;
	c->self = self;
	c->is_server = is_server;
	c->fd = -1;
	c->phase = CONN_HELLO;
	frame_rx_init(&c->rx, bulk);
	c->rx.max_body = HELLO_BODY_BYTES;
	list_init(&c->out);
	list_init(&c->sending);
	io_turn_hook_init(&c->hook, on_turn_end);
	c->transform = transform;
	if (transform) {
		c->transform_state = transform->open(transform->ctx, is_server);
		c->wire_in = mem_alloc(WIRE_BYTES);
		buf_init(&c->plain, 2 * WIRE_BYTES + TRANSFORM_EXTRA);
		buf_init(&c->wire_out, WIRE_OUT_MAX);
	}
}

static void send_hello(struct conn *c, int status)
{
	struct frame f = {.kind = FRAME_HELLO, .status = status};
	Craton__Hello hello;
	struct conn_out *out;

	hello_fill(c->self, &hello);
	CHECK(conn_send(c, &f, (struct conn_body){.msg = &hello.base}, NULL, 0, NULL, NULL, &out) == 0);
}

void conn_start(struct conn *c, int fd)
{
	CHECK_MAGIC(c, CONN_MAGIC);
	CHECK(c->fd < 0 && fd >= 0);
	c->fd = fd;
	c->received_ns = io_now_ns(c->io);
	if (!c->is_server)
		send_hello(c, 0);
	conn_kick(c); /* which starts to read */
}

static void chunk_put(struct conn_chunk *chunk)
{
	if (chunk && --chunk->refs == 0)
		mem_free(chunk);
}

void conn_fini(struct conn *c)
{
	CHECK_MAGIC(c, CONN_MAGIC);
	CHECK(c->fd < 0 && list_empty(&c->out) && list_empty(&c->sending));
	io_turn_hook_remove(c->io, &c->hook);
	chunk_put(c->tail);
	frame_rx_fini(&c->rx);
	if (c->transform) {
		c->transform->close(c->transform_state);
		mem_free(c->wire_in);
		buf_fini(&c->plain);
		buf_fini(&c->wire_out);
	}
	c->magic = 0;
}

void conn_break(struct conn *c, int code)
{
	CHECK_MAGIC(c, CONN_MAGIC);
	if (c->broken)
		return;
	c->broken = true;
	if (!c->code)
		c->code = code;
	if (c->fd >= 0)
		io_shutdown(c->io, c->fd);
	conn_kick(c);
}

void conn_kick(struct conn *c)
{
	CHECK_MAGIC(c, CONN_MAGIC);
	io_at_turn_end(c->io, &c->hook);
}

bool conn_stalled(const struct conn *c, uint64_t before_ns)
{
	if (io_pending(&c->send_op) && c->send_started_ns < before_ns)
		return true;
	return io_pending(&c->recv_op) && frame_rx_partial(&c->rx) && c->received_ns < before_ns;
}

/* ---- receiving ---- */

/* Why the stream cannot be read on; the owner counts and logs it when the connection is down. */
static void break_malformed(struct conn *c, int code)
{
	if (!c->err.code)
		c->err = c->rx.err;
	conn_break(c, code);
}

static void refuse(struct conn *c, int code)
{
	c->phase = CONN_REFUSING;
	c->code = code;
	send_hello(c, code);
}

static void server_hello(struct conn *c, const uint8_t *body)
{
	int code = hello_parse(c->self, body, c->rx.frame.body_len, &c->peer, &c->err);

	if (code == ERR_VERSION || code == ERR_WRONG_CLUSTER) {
		refuse(c, code);
	} else if (code) {
		conn_break(c, code);
	} else {
		send_hello(c, 0);
		c->phase = CONN_OPEN;
	}
}

static void client_hello(struct conn *c, const uint8_t *body)
{
	int code = hello_parse(c->self, body, c->rx.frame.body_len, &c->peer, &c->err);
	int status = c->rx.frame.status;

	/* What the server says of us comes before what we think of it. */
	if (status == ERR_VERSION || status == ERR_WRONG_CLUSTER)
		code = err_set(&c->err, status, "the server refuses us: %s", err_text(status));
	else if (status)
		code = err_set(&c->err, ERR_PROTO, "hello: status %d", status);
	if (code)
		conn_break(c, code);
	else
		c->phase = CONN_OPEN;
}

static int on_head(struct conn *c)
{
	const struct frame *f = &c->rx.frame;

	if (c->phase == CONN_OPEN) {
		if (f->kind != (c->is_server ? FRAME_REQUEST : FRAME_RESPONSE))
			return err_set(&c->err, ERR_PROTO, "frame: unexpected kind %u", f->kind);
		return c->ops->head(c, f, c->rx.body);
	}
	if (f->kind != FRAME_HELLO)
		return err_set(&c->err, ERR_PROTO, "frame: kind %u before the hello", f->kind);
	if (c->is_server)
		server_hello(c, c->rx.body);
	else
		client_hello(c, c->rx.body);
	if (c->phase == CONN_OPEN) {
		c->rx.max_body = LIMIT_FRAME_BODY_BYTES;
		c->ops->opened(c);
	}
	return 0;
}

/* The tail of a HELLO is nobody's. */
static int on_tail(struct conn *c)
{
	return c->rx.frame.kind == FRAME_HELLO ? 0 : c->ops->tail(c);
}

/* Where frame_rx wants the next bytes. 0: the owner thinks that this connection holds too much, and it is broken. */
static int find_room(struct conn *c, struct iovec ret_iov[RPC_PAYLOAD_IOV], bool *ret_all)
{
	int count = frame_rx_room(&c->rx, ret_iov, ret_all);

	if (c->held == c->rx.large_cap)
		return count;
	c->held = c->rx.large_cap;
	if (!c->ops->may_hold || c->ops->may_hold(c))
		return count;
	conn_break(c, ERR_OVERLOADED);
	return 0;
}

static void submit_recv(struct conn *c)
{
	bool all = false;
	int count = 1;

	if (c->transform)
		c->recv_iov[0] = (struct iovec){c->wire_in, WIRE_BYTES};
	else
		count = find_room(c, c->recv_iov, &all);
	if (count == 0)
		return;
	io_prep_recv(&c->recv_op, c->fd, c->recv_iov, count, all ? IO_RECV_ALL : 0, on_recv);
	io_submit(c->io, &c->recv_op);
}

/* Moves plain bytes to where frame_rx wants them. False: none are left. */
static bool feed_plain(struct conn *c)
{
	struct iovec room[RPC_PAYLOAD_IOV];
	bool all;
	size_t n = c->plain.len - c->plain_pos;

	if (n == 0)
		return false;
	if (find_room(c, room, &all) == 0)
		return false;
	n = n < room[0].iov_len ? n : room[0].iov_len;
	memcpy(room[0].iov_base, c->plain.data + c->plain_pos, n);
	c->plain_pos += n;
	frame_rx_filled(&c->rx, n);
	return true;
}

/* One step of the receive machine. False: no bytes, or no more frames wanted, or the end. */
static bool read_step(struct conn *c)
{
	enum frame_rx_event event;
	int code;

	if (frame_rx_between(&c->rx) && c->phase == CONN_OPEN && !c->ops->may_read(c))
		return false;
	code = frame_rx_next(&c->rx, &event);
	if (code == ERR_VERSION && c->is_server && c->phase == CONN_HELLO) {
		c->err = c->rx.err;
		refuse(c, code);
		return false;
	}
	if (code == 0 && event == FRAME_RX_HEAD)
		code = on_head(c);
	else if (code == 0 && event == FRAME_RX_TAIL)
		code = on_tail(c);
	if (code)
		break_malformed(c, code);
	if (c->broken || c->phase == CONN_REFUSING)
		return false;
	if (event != FRAME_RX_MORE || (c->transform && feed_plain(c)))
		return true;
	if (!c->broken)
		submit_recv(c);
	return false;
}

static void read_frames(struct conn *c)
{
	if (io_pending(&c->recv_op))
		return;
	while (!c->broken && c->phase != CONN_REFUSING)
		if (!read_step(c))
			break;
	if (c->phase == CONN_REFUSING && !c->broken && !io_pending(&c->recv_op)) {
		/* Whatever comes is forgotten; what matters is the close. */
		c->recv_iov[0] = (struct iovec){c->rx.buf, c->rx.cap};
		io_prep_recv(&c->recv_op, c->fd, c->recv_iov, 1, 0, on_recv);
		io_submit(c->io, &c->recv_op);
	}
}

/* Bytes are there: to frame_rx, through the transform if there is one. */
static int take_received(struct conn *c, size_t n)
{
	if (!c->transform) {
		frame_rx_filled(&c->rx, n);
		return 0;
	}
	buf_clear(&c->plain);
	c->plain_pos = 0;
	if (c->transform->unwrap(c->transform_state, c->wire_in, n, &c->plain) || c->plain.failed)
		return err_set(&c->err, ERR_PROTO, "transform %s: malformed input", c->transform->name);
	return 0;
}

static void on_recv(struct io_op *op)
{
	struct conn *c = CONTAINER_OF(op, struct conn, recv_op);
	int code;

	CHECK_MAGIC(c, CONN_MAGIC);
	if (op->result <= 0) {
		conn_break(c, op->result ? (int)op->result : ERR_CONNRESET);
		conn_kick(c);
		return;
	}
	c->received_ns = io_now_ns(c->io);
	c->bytes_in += (uint64_t)op->result;
	if (c->broken) {
		conn_kick(c);
		return;
	}
	if (c->phase != CONN_REFUSING) {
		code = take_received(c, (size_t)op->result);
		if (code) {
			conn_break(c, code);
			return;
		}
	}
	read_frames(c);
}

/* ---- sending ---- */

static struct conn_chunk *chunk_new(struct conn *c, size_t cap)
{
	struct conn_chunk *chunk = mem_alloc(sizeof(*chunk) + cap);

	chunk->refs = 1;
	chunk->len = 0;
	chunk->cap = cap;
	chunk_put(c->tail);
	c->tail = chunk;
	return chunk;
}

/* Returns the body's length; if that is more than `room`, it is not in `out`. */
static size_t pack(struct conn_body body, uint8_t *out, size_t room)
{
	if (body.msg)
		return codec_pack(body.msg, out, room);
	if (body.packed.len && body.packed.len <= room)
		memcpy(out, body.packed.data, body.packed.len);
	return body.packed.len;
}

/*
 * The body goes behind what the tail holds, room for its header left before it, or into a new tail. Returns its length. The tail is not
 * longer for it yet.
 */
static size_t place_body(struct conn *c, struct conn_body body)
{
	struct conn_chunk *chunk = c->tail;
	size_t len, room;

	if (!chunk || chunk->cap - chunk->len < FRAME_HEADER_BYTES)
		chunk = chunk_new(c, CHUNK_BYTES);
	room = chunk->cap - chunk->len - FRAME_HEADER_BYTES;
	len = pack(body, chunk->data + chunk->len + FRAME_HEADER_BYTES, room);
	if (len <= room || len > LIMIT_FRAME_BODY_BYTES)
		return len;
	room = len + CODEC_PACK_SPARE > CHUNK_BYTES ? len + CODEC_PACK_SPARE : CHUNK_BYTES;
	chunk = chunk_new(c, FRAME_HEADER_BYTES + room);
	CHECK(pack(body, chunk->data + FRAME_HEADER_BYTES, room) == len);
	return len;
}

/* The body that was placed becomes a frame. */
static void seal_frame(struct conn *c, struct conn_out *out, const struct frame *f, size_t body_len)
{
	struct conn_chunk *chunk = c->tail;
	struct frame full = *f;

	out->chunk = chunk;
	out->head = chunk->data + chunk->len;
	out->head_len = FRAME_HEADER_BYTES + body_len;
	chunk->refs++;
	chunk->len += out->head_len;
	full.body_len = (uint32_t)body_len;
	full.payload_len = (uint32_t)(out->bytes - out->head_len);
	full.body_crc = crc32c(out->head + FRAME_HEADER_BYTES, body_len);
	frame_encode(&full, out->head);
}

/* Of a frame in the queue; small ones are mostly what it takes to keep them. */
static size_t out_memory(const struct conn_out *out)
{
	return sizeof(*out) + (size_t)out->payload_count * sizeof(out->payload[0]) + out->head_len + MALLOC_BYTES;
}

int conn_send(struct conn *c, const struct frame *f, struct conn_body body, const struct iovec *payload,
	int payload_count, void (*done)(void *ctx, int code), void *ctx, struct conn_out **ret_out)
{
	size_t body_len = 0, payload_len = 0;
	struct conn_out *out;

	CHECK_MAGIC(c, CONN_MAGIC);
	CHECK(payload_count >= 0 && payload_count <= RPC_PAYLOAD_IOV);
	for (int i = 0; i < payload_count; i++)
		payload_len += payload[i].iov_len;
	CHECK(payload_len <= LIMIT_FRAME_PAYLOAD_BYTES);
	if (!c->broken)
		body_len = place_body(c, body);
	if (body_len > LIMIT_FRAME_BODY_BYTES)
		return ERR_MSGSIZE;
	out = mem_alloc(sizeof(*out) + (size_t)payload_count * sizeof(*payload));
	*out = (struct conn_out){.done = done, .ctx = ctx, .payload_count = payload_count};
	list_init(&out->link);
	if (payload_count)
		memcpy(out->payload, payload, (size_t)payload_count * sizeof(*payload));
	out->bytes = FRAME_HEADER_BYTES + body_len + payload_len;
	if (!c->broken)
		seal_frame(c, out, f, body_len);
	c->out_bytes += out->bytes;
	if (c->out_total)
		*c->out_total += out_memory(out);
	list_push_back(&c->out, &out->link);
	conn_kick(c);
	*ret_out = out;
	return 0;
}

static void out_free(struct conn *c, struct conn_out *out)
{
	if (c->out_total)
		*c->out_total -= out_memory(out);
	c->out_bytes -= out->bytes;
	chunk_put(out->chunk);
	mem_free(out);
}

void conn_unsend(struct conn *c, struct conn_out *out)
{
	CHECK(!out->started);
	list_remove(&out->link);
	out_free(c, out);
}

static void end_all(struct conn *c, struct list *outs, int code)
{
	struct list *n;

	while ((n = list_pop_front(outs))) {
		struct conn_out *out = LIST_ENTRY(n, struct conn_out, link);
		void (*done)(void *ctx, int code) = out->done;
		void *ctx = out->ctx;
		int result = code ? code : out->code;

		out_free(c, out);
		if (done)
			done(ctx, result);
	}
}

/* Bytes of a frame into the send: an iovec, or the end of the last one, or through the transform. */
static int gather_bytes(struct conn *c, int count, void *data, size_t len)
{
	struct iovec *last = count ? &c->send_iov[count - 1] : NULL;

	if (len == 0)
		return count;
	if (c->transform) {
		if (c->transform->wrap(c->transform_state, data, len, &c->wire_out) || c->wire_out.failed) {
			err_set(&c->err, ERR_IO, "transform %s failed", c->transform->name);
			conn_break(c, ERR_IO);
		}
		return count;
	}
	if (last && (uint8_t *)last->iov_base + last->iov_len == data) {
		last->iov_len += len;
		return count;
	}
	c->send_iov[count] = (struct iovec){data, len};
	return count + 1;
}

/* Whole frames, from the front of the queue, into send_iov. Returns the count of iovecs. */
static int gather(struct conn *c)
{
	size_t bytes = 0;
	int count = 0;

	while (!list_empty(&c->out) && !c->broken) {
		struct conn_out *out = LIST_ENTRY(c->out.next, struct conn_out, link);

		if (count + 1 + out->payload_count > IO_IOV_MAX || (bytes > 0 && bytes + out->bytes > SEND_BYTES))
			break;
		list_remove(&out->link);
		list_push_back(&c->sending, &out->link);
		out->started = true;
		bytes += out->bytes;
		count = gather_bytes(c, count, out->head, out->head_len);
		for (int i = 0; i < out->payload_count; i++)
			count = gather_bytes(c, count, out->payload[i].iov_base, out->payload[i].iov_len);
	}
	if (c->transform && c->wire_out.len > 0) {
		c->send_iov[0] = (struct iovec){c->wire_out.data, c->wire_out.len};
		count = 1;
	}
	return count;
}

static void write_frames(struct conn *c)
{
	int count;

	if (io_pending(&c->send_op) || list_empty(&c->out))
		return;
	count = gather(c);
	if (c->broken) /* the transform failed; the hook runs again */
		return;
	c->send_started_ns = io_now_ns(c->io);
	io_prep_send(&c->send_op, c->fd, c->send_iov, count, on_send);
	io_submit(c->io, &c->send_op);
}

static void on_send(struct io_op *op)
{
	struct conn *c = CONTAINER_OF(op, struct conn, send_op);

	CHECK_MAGIC(c, CONN_MAGIC);
	if (op->result < 0)
		conn_break(c, (int)op->result);
	else
		c->bytes_out += (uint64_t)op->result;
	if (c->transform) {
		if (c->wire_out.cap > WIRE_KEEP_BYTES)
			buf_fini(&c->wire_out);
		buf_clear(&c->wire_out);
	}
	end_all(c, &c->sending, op->result < 0 ? ERR_CONNRESET : 0);
	if (list_empty(&c->out) && c->tail && c->tail->refs == 1) {
		/* An idle connection holds no memory for sending. */
		chunk_put(c->tail);
		c->tail = NULL;
	}
	conn_kick(c);
}

/* ---- the end of the turn ---- */

static void on_turn_end(struct io_turn_hook *hook)
{
	struct conn *c = CONTAINER_OF(hook, struct conn, hook);

	CHECK_MAGIC(c, CONN_MAGIC);
	if (!c->broken)
		read_frames(c);
	if (!c->broken)
		write_frames(c);
	if (!c->broken || io_pending(&c->recv_op) || io_pending(&c->send_op))
		return;
	end_all(c, &c->sending, ERR_CONNRESET);
	end_all(c, &c->out, ERR_CONNRESET);
	if (c->fd >= 0) {
		io_close(c->io, c->fd);
		c->fd = -1;
	}
	c->ops->down(c);
}
