/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc: requests and responses over ordered byte streams, many in flight on each connection, one send per turn of the
 * loop.
 *
 * A connection starts with one HELLO frame in each direction (proto/common.proto: protocol versions, cluster id, role,
 * name, feature bits); an unknown version or a wrong cluster ends it with a response-less ERR_VERSION /
 * ERR_WRONG_CLUSTER in the HELLO's status, so that both sides can say why. Then requests and responses; responses come
 * in any order; a response may be several frames (FRAME_MORE), each with a body and a payload. Anything malformed ends
 * the connection and is counted.
 *
 * Everything here runs on the loop's thread. Bodies are decoded by protobuf-c into an arena bounded by
 * LIMIT_FRAME_BODY_BYTES x 4 (a body that would need more is refused) that lives as long as its rpc_req or until the
 * rpc_call's callback returns.
 *
 * Transform: bytes of a connection can pass through `struct rpc_transform` (where TLS will sit); NULL: plain, no
 * copies.
 */
#ifndef COMMON_RPC_RPC_H
#define COMMON_RPC_RPC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/refused.h"
#include "common/base/slice.h"
#include "common/io/io.h"

enum { RPC_PAYLOAD_IOV = 8 };

/* ---- methods: one table for each service, shared by both sides (common/rpc/methods.c) ---- */

struct rpc_method {
	uint16_t id;              /* wire value, never reused */
	const char *name;         /* "metad.lookup" */
	const ProtobufCMessageDescriptor *request, *response;
	uint32_t request_payload; /* greatest payload of a request frame; 0: none allowed */
	uint32_t response_payload;
};

/* ---- who we are ---- */

enum rpc_role { RPC_ROLE_METAD = 1, RPC_ROLE_CHUNKD = 2, RPC_ROLE_CLIENT = 3, RPC_ROLE_ADMIN = 4 };

struct rpc_identity {
	struct uuid cluster;      /* zero in a client that takes any (never in daemons) */
	uint8_t role;             /* enum rpc_role */
	char name[64];            /* "chunkd-3" */
};

/*
 * A transform turns plain bytes into wire bytes and back, in order, per connection. `out` grows by what is produced.
 * Stateless functions with a state object; bounded: wrap/unwrap produce at most 2x + 1 KiB of what they are given. A
 * failure ends the connection. rpc_transform_xor is the trivial one that end-to-end tests run through once
 * (`transform = xor` in craton.conf).
 */
struct buf;
struct rpc_transform {
	const char *name;
	void *(*open)(void *ctx, bool is_server);
	int (*wrap)(void *state, const void *plain, size_t len, struct buf *out);
	int (*unwrap)(void *state, const void *wire, size_t len, struct buf *out);
	void (*close)(void *state);
	void *ctx;
};
extern const struct rpc_transform rpc_transform_xor;
/* By name; "" or "none" gives NULL. ERR_INVAL. */
int rpc_transform_by_name(const char *name, const struct rpc_transform **ret_transform);

/* ---- server ---- */

struct rpc_server;
struct rpc_req;

struct rpc_handler {
	const struct rpc_method *method;
	/* The request is complete (payload included). Answer now or later with rpc_reply, exactly once (the frame without `more`). */
	void (*handle)(void *ctx, struct rpc_req *req);
	/*
	 * Only methods with request payloads: called when the head is decoded, to say where the payload shall lie: fill
	 * req->payload (sum of lengths == req->payload_len) and return 0; or return an error: the payload is drained to
	 * nowhere and the error is the reply. If the connection dies before the payload is whole, `abandoned` is called
	 * instead of handle. A request without payload (req->payload_len == 0) goes straight to `handle`.
	 */
	int (*place)(void *ctx, struct rpc_req *req);
	void (*abandoned)(void *ctx, struct rpc_req *req);
};

struct rpc_req {
	const struct rpc_handler *handler;
	const ProtobufCMessage *msg;    /* decoded request, valid until the last reply or rpc_req_forget_msg */
	uint32_t payload_len;
	struct iovec payload[RPC_PAYLOAD_IOV];
	int payload_count;
	uint64_t conn_id;               /* unique for the server's life: to tie state (open uploads) to a connection */
	const struct rpc_identity *peer;/* as it said in its HELLO */
	struct io_addr peer_addr;
	void *user;                     /* for the handler */
};

struct rpc_reply {
	int status;                     /* 0 or an err code */
	const ProtobufCMessage *msg;    /* serialised before rpc_reply returns; NULL: empty body, or. With ERR_NOT_LEADER: a LeaderHint, else none goes */
	struct slice packed;            /* the body's bytes, by who packs faster than from a message; copied before rpc_reply returns */
	const struct iovec *payload;    /* bytes must stay valid until `sent` */
	int payload_count;
	bool more;
	void (*sent)(void *ctx, int code); /* may be NULL; always called once, also when the connection died; never inside rpc_reply */
	void *sent_ctx;
};
/* After the last reply `req` is gone. To a dead connection: nothing is sent, `sent` is called with ERR_CONNRESET. */
void rpc_reply(struct rpc_req *req, const struct rpc_reply *reply);
void rpc_reply_status(struct rpc_req *req, int status);
/* The handler has taken from msg what it needs and answers later: the next request may have its memory. msg is NULL from here on. */
void rpc_req_forget_msg(struct rpc_req *req);
/* True when the connection of req has died: a streaming handler should stop. */
bool rpc_req_dead(const struct rpc_req *req);

struct rpc_server_options {
	struct io_addr listen;
	struct rpc_identity self;
	const struct rpc_handler *handlers; /* ends with method == NULL */
	void *ctx;                          /* first argument of all callbacks */
	void (*conn_closed)(void *ctx, uint64_t conn_id); /* after the last request of it was answered; may be NULL */
	const struct rpc_transform *transform;
	const struct log *log;
	struct refused *refused;            /* where what is refused is counted; may be NULL */
	uint32_t max_conns;                 /* 0: LIMIT_SERVER_CONNS; further ones are closed at once and counted */
	uint32_t kin_conns;                 /* beside these, of servers of the same role, which others cannot keep from being heard; 0: none */
	bool bulk;                          /* expects payloads: small head reads, so that payloads go straight to their place */
};

struct rpc_stats {
	uint64_t conns_open, conns_accepted, conns_refused, conns_overloaded, requests, responses, malformed, bytes_in, bytes_out;
	uint64_t queued_bytes; /* memory of answers not sent yet, payloads apart */
};

int rpc_server_open(struct io *io, const struct rpc_server_options *options, struct rpc_server **ret_server, struct err *err);
struct io_addr rpc_server_addr(const struct rpc_server *server);
void rpc_server_get_stats(const struct rpc_server *server, struct rpc_stats *ret_stats);
/* All of it, and the times of each method, for /metrics. */
void rpc_server_write_metrics(const struct rpc_server *server, struct metrics *m);
/* Stops accepting, breaks connections, waits until handlers have answered what they hold; then `closed`. */
void rpc_server_close(struct rpc_server *server, void (*closed)(void *ctx), void *ctx);

/* ---- client ---- */

/*
 * A peer is one address with up to `conns` connections, opened when needed, kept, opened again after a failure no
 * sooner than a backoff with jitter (50 ms .. 2 s). Calls queue while connecting. A call that was sent is never sent
 * again here: its outcome is unknown when the connection breaks (ERR_CONNRESET), retrying is for the caller to decide.
 */
struct rpc_peer;
struct rpc_call;

struct rpc_peer_options {
	struct io_addr addr;
	struct rpc_identity self;
	uint32_t conns;                     /* 1.. 16 */
	bool bulk;                          /* responses carry payloads */
	uint64_t connect_timeout_ns;        /* 0: 3 s */
	const struct rpc_transform *transform;
};

struct rpc_peer *rpc_peer_new(struct io *io, const struct rpc_peer_options *options);
/* Fails all calls with ERR_CANCELED, closes, then `closed`. */
void rpc_peer_close(struct rpc_peer *peer, void (*closed)(void *ctx), void *ctx);
const struct io_addr *rpc_peer_addr(const struct rpc_peer *peer);
/* There is a connection over which it has said HELLO. */
bool rpc_peer_is_open(const struct rpc_peer *peer);
/* Fails what is in flight or queued with `code` and drops the connections (a server that is known to be dead). */
void rpc_peer_reset(struct rpc_peer *peer, int code);

struct rpc_call {
	/* set by the caller; everything pointed to stays valid until done */
	const struct rpc_method *method;
	const ProtobufCMessage *request;
	const struct iovec *payload;
	int payload_count;
	uint64_t deadline_ns;               /* io_now_ns scale; 0: none (avoid). ERR_TIMEDOUT */
	/*
	 * Where a response frame's payload shall lie; NULL if the method has none. As rpc_handler.place: only for
	 * frames with a payload, and an error ends the call with that code. The call may be cancelled from inside.
	 */
	int (*place)(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len, struct iovec ret_iov[RPC_PAYLOAD_IOV],
	             int *ret_count);
	/* A response frame with FRAME_MORE, payload in place. May be NULL if the method never has any. */
	void (*part)(struct rpc_call *call, const ProtobufCMessage *msg, uint32_t payload_len);
	/*
	 * Once: the last response frame (status from the server), or a failure on the way (msg NULL). Buffers are the
	 * caller's again. On success of the transport but failure of the request, status < 0 and msg may carry detail
	 * (NULL if the server sent none).
	 */
	void (*done)(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len);
	struct io_addr leader; /* of a call that ended with ERR_NOT_LEADER (msg NULL): who leads, as was said; family 0: not */
	/* private; zero before the first start */
	uint64_t priv[24];
	struct list link;
};
void rpc_call_start(struct rpc_peer *peer, struct rpc_call *call);
/* `done` follows, later, with ERR_CANCELED, when no buffer of the call is in use any more. No-op when it is done. */
void rpc_call_cancel(struct rpc_call *call);
bool rpc_call_active(const struct rpc_call *call);
/* Its payload may still be read: it has not left yet. Once false, false until the call is started again. */
bool rpc_call_sending(const struct rpc_call *call);

#endif
