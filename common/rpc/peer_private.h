/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_private: what the parts of a peer share (private to common/rpc/peer*.c; see peer.c):
 *
 *   peer.c        the peer: which connection a call takes, time, the interface
 *   peer_call.c   how a call ends
 *   peer_conn.c   one connection: opened, its responses, its end
 */
#ifndef COMMON_RPC_PEER_PRIVATE_H
#define COMMON_RPC_PEER_PRIVATE_H

#include "common/base/limits.h"
#include "common/base/rng.h"
#include "common/rpc/codec.h"
#include "common/rpc/conn.h"
#include "common/rpc/deadline.h"

enum {
	PEER_MAGIC = 0x72706565,
	PEER_CONN_MAGIC = 0x72706363,
	PEER_SLOTS = LIMIT_CONN_REQUESTS,
	PEER_ARENA_BYTES = 4 * LIMIT_FRAME_BODY_BYTES,
};

enum call_state { CALL_IDLE, CALL_QUEUED, CALL_SENT, CALL_HELD, CALL_DOOMED, CALL_FINISHED };

struct peer_conn;

/* What lies in rpc_call.priv. */
struct call_priv {
	struct deadline deadline; /* first */
	struct rpc_call *call;
	struct rpc_peer *peer;
	struct peer_conn *pc;
	struct conn_out *out;
	uint64_t id;
	uint64_t sent_ns;
	uint8_t state;
	bool receiving;
	int code;                 /* the result, once it is HELD, DOOMED or FINISHED */
	struct codec_arena arena; /* HELD: where msg lies */
	const ProtobufCMessage *msg;
	uint32_t payload_len;
} __attribute__((may_alias));

_Static_assert(sizeof(struct call_priv) <= sizeof(((struct rpc_call *)0)->priv), "a call's private part fits");

struct slot {
	struct rpc_call *call;
	uint64_t generation; /* last one issued */
};

enum peer_conn_state { PC_CONNECTING, PC_HELLO, PC_OPEN };

struct peer_conn {
	struct conn conn;
	uint32_t magic;
	struct rpc_peer *peer;
	struct list link; /* peer->conns */
	enum peer_conn_state state;
	struct io_op connect_op;
	uint64_t connect_deadline_ns; /* connection and HELLO */
	int fail_code;                /* given to its calls instead of ERR_CONNRESET */
	struct list calls;
	uint32_t in_flight; /* slots in use */
	struct slot slots[PEER_SLOTS];
	uint16_t free_slots[PEER_SLOTS];
	/* the response that is being received */
	struct rpc_call *current; /* NULL: nobody waits for it */
	struct codec_arena arena;
	const ProtobufCMessage *msg;
	int status;
};

struct rpc_peer {
	uint32_t magic;
	struct io *io;
	struct rpc_peer_options options;
	struct rng rng;
	struct list conns;
	uint32_t conn_count;
	struct list pending, finished;
	struct deadline_set deadlines;
	struct io_op timer;
	uint64_t timer_at_ns;
	uint64_t retry_at_ns;
	uint32_t attempt;
	bool want_conn; /* a call had to join a busy connection */
	bool closing;
	void (*closed)(void *ctx);
	void *closed_ctx;
	struct io_post post;
	bool posted;
};

static inline struct call_priv *peer_call(struct rpc_call *call)
{
	return (struct call_priv *)call->priv;
}

/* ---- peer.c ---- */

/* Calls that wait take the connections that have room; if none has, one is opened. */
void peer__dispatch(struct rpc_peer *p);
void peer__arm_timer(struct rpc_peer *p);
void peer__maybe_closed(struct rpc_peer *p);
/* One of its connections is gone, or could not be made. */
void peer__conn_gone(struct rpc_peer *p, bool was_open, int code);
/* peer->finished, or its close, is looked at by a post. */
void peer__post(struct rpc_peer *p);

/* ---- peer_call.c ---- */

/* No list, no buffer, no connection has it any more; `done` follows by the post. */
void peer__finish(struct rpc_call *call, int code);
/* `done`, now. */
void peer__deliver(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len);
/* The call ends with `code`, as soon as its buffers are free. */
void peer__fail_call(struct rpc_call *call, int code);
void peer__release_slot(struct peer_conn *pc, struct rpc_call *call);
/* Frees the request frame from the call where that is possible. True: the kernel still reads the call's payload. */
bool peer__out_in_use(struct rpc_call *call);
/* A buffer of a doomed call came back. */
void peer__doomed_step(struct rpc_call *call);
/* For conn_send: `ctx` is the call. */
void peer__request_sent(void *ctx, int code);

/* ---- peer_conn.c ---- */

void peer__connect(struct rpc_peer *p);
/* Its calls end with `code`. */
void peer__break_conn(struct peer_conn *pc, int code);

#endif
