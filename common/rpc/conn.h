/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn: one connection, the same for both sides: the HELLO exchange, a receive machine, a send queue that leaves once a
 * turn. (Private to common/rpc: server.c and peer.c embed it.)
 *
 *     conn_init --conn_start--> HELLO --agreed: ops->opened--> OPEN --conn_break, other side's close, malformed input--\
 *                                 \--server refuses: its HELLO says why--> REFUSING --its close, owner's deadline----\
 *     BROKEN <-----------------------------------------------------------------------------------------------------/
 *       \--no operation of it in flight: all queued frames end with ERR_CONNRESET, the fd is closed--> ops->down
 *
 * No callback runs inside conn_send, conn_break or conn_kick. `down` is called again after each later conn_kick or
 * conn_send, so that an owner whose handlers answer late can see when the last of them is gone; only in `down` may the
 * owner call conn_fini.
 */
#ifndef COMMON_RPC_CONN_H
#define COMMON_RPC_CONN_H

#include "common/base/buf.h"
#include "common/rpc/frame_rx.h"

struct conn;
struct conn_chunk;

struct conn_ops {
	/* The other side's HELLO was accepted; it is in c->peer. */
	void (*opened)(struct conn *c);
	/* A request or response. A payload not placed with frame_rx_place(&c->rx) is drained. A code breaks the connection. */
	int (*head)(struct conn *c, const struct frame *f, const uint8_t *body);
	int (*tail)(struct conn *c);
	/* Between two frames: may the next one be looked at? If not, conn_kick when that changes. */
	bool (*may_read)(struct conn *c);
	/* May be NULL. The memory held for a body in the making changed to c->rx.large_cap. False: too much, break. */
	bool (*may_hold)(struct conn *c);
	void (*down)(struct conn *c);
};

enum conn_phase { CONN_HELLO, CONN_REFUSING, CONN_OPEN };

struct conn {
	uint32_t magic;
	struct io *io;
	const struct conn_ops *ops;
	const struct rpc_identity *self;
	const struct rpc_transform *transform;
	void *transform_state;
	int fd; /* -1 once closed */
	bool is_server;
	bool broken;
	enum conn_phase phase;
	int code;       /* why it broke, or why it is refused */
	struct err err; /* the same for people; empty if the other side just went */
	struct rpc_identity peer;

	struct frame_rx rx;
	size_t held; /* rx.large_cap as the owner knows it */
	struct io_op recv_op;
	struct iovec recv_iov[RPC_PAYLOAD_IOV];
	uint8_t *wire_in; /* with a transform: what recv_op fills */
	struct buf plain; /* and what became of it; consumed up to plain_pos */
	size_t plain_pos;

	struct list out;     /* queued frames */
	struct list sending; /* those that send_op carries */
	size_t out_bytes;    /* of both */
	size_t *out_total;   /* the owner's sum of memory of all frames queued, payloads apart; NULL: none is kept */
	struct io_op send_op;
	struct iovec send_iov[IO_IOV_MAX];
	struct buf wire_out;
	struct conn_chunk *tail; /* heads and bodies are packed behind one another */

	struct io_turn_hook hook;
	uint64_t received_ns; /* when bytes came last */
	uint64_t send_started_ns;
	uint64_t bytes_in, bytes_out;
};

/* One queued frame. */
struct conn_out {
	struct list link;
	struct conn_chunk *chunk;
	uint8_t *head; /* header and body */
	size_t head_len;
	size_t bytes; /* with payload */
	bool started; /* part of a send: its payload is the kernel's until `done` */
	int code;     /* reported instead of success */
	void (*done)(void *ctx, int code);
	void *ctx;
	int payload_count;
	struct iovec payload[];
};

/* What lies between a frame's header and its payload: a message, or (msg NULL) bytes that are one already; neither: nothing. */
struct conn_body {
	const ProtobufCMessage *msg;
	struct slice packed;
};

/* `self` stays valid. */
void conn_init(struct conn *c, struct io *io, const struct conn_ops *ops, const struct rpc_identity *self,
	bool is_server, bool bulk, const struct rpc_transform *transform);
/* Takes the fd. A client says HELLO now. */
void conn_start(struct conn *c, int fd);
void conn_fini(struct conn *c);

/*
 * Queues a frame; lengths and CRCs are filled in here. `done` (may be NULL) comes once, later, when the payload is not
 * needed any more. ERR_MSGSIZE: the body is beyond its limit, nothing was queued. On a broken connection it is queued
 * only to fail.
 */
int conn_send(struct conn *c, const struct frame *f, struct conn_body body, const struct iovec *payload,
	int payload_count, void (*done)(void *ctx, int code), void *ctx, struct conn_out **ret_out);
/* Takes an out that was not started back from the queue; no `done`. */
void conn_unsend(struct conn *c, struct conn_out *out);
/* The first code stays. */
void conn_break(struct conn *c, int code);
/* Looks again at the end of the turn: may_read, down. */
void conn_kick(struct conn *c);
/* Half a frame, or a send, has made no progress since before_ns (and it is not may_read that holds it). */
bool conn_stalled(const struct conn *c, uint64_t before_ns);

#endif
