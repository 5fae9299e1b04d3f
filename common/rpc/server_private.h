/* SPDX-License-Identifier: Apache-2.0 */
/* server: what server.c (requests, answers, the whole) and server_conns.c (who is let in, and who has to go) share. */
#ifndef COMMON_RPC_SERVER_PRIVATE_H
#define COMMON_RPC_SERVER_PRIVATE_H

#include "common/base/limits.h"
#include "common/rpc/codec.h"
#include "common/rpc/conn.h"
#include "common/rpc/rpc.h"
#include "common/rpc/server_metrics.h"

enum { SERVER_CONN_MAGIC = 0x72736376, SERVER_MAGIC = 0x72737276 };

/* What requests may hold together: of servers of the same role, and of everybody else. */
struct server_pool {
	size_t held_bytes; /* of decoded requests */
	size_t body_bytes; /* of long bodies in the making */
};
enum { POOL_OTHERS, POOL_KIN, POOLS };

struct server_req {
	struct rpc_req pub; /* first */
	uint32_t magic;
	struct server_conn *conn;
	uint64_t id;
	uint64_t started_ns;
	struct codec_arena arena;
	size_t counted;   /* of arena.held, in its pool's held_bytes */
	struct list link; /* server->free_reqs */
};

struct server_conn {
	struct conn conn;
	uint32_t magic;
	struct rpc_server *server;
	struct list link; /* server->conns */
	uint64_t id;
	struct io_addr addr;
	uint64_t accepted_ns;
	struct server_pool *pool;
	bool admitted;              /* counted in server->admitted, of its pool */
	uint32_t held;              /* requests with their handlers */
	size_t body_bytes;          /* held for a body in the making, in its pool's body_bytes */
	struct server_req *current; /* whose payload is arriving */
	bool reported;              /* that it went, and why */
	bool paused;                /* may_read said no */
};

struct rpc_server {
	uint32_t magic;
	struct io *io;
	struct rpc_server_options options;
	struct log log;
	int fd;
	struct io_addr addr;
	const struct rpc_handler **by_id;
	size_t by_id_count;
	struct method_stats *methods; /* as options.handlers */
	struct io_op accept_op;
	struct io_op sweep_op;
	struct list conns, free_reqs;
	struct codec_arena spare; /* the next request's: what was used last, and is warm */
	uint32_t conn_count, free_count;
	uint64_t next_conn_id;
	struct server_pool pools[POOLS];
	uint32_t admitted[POOLS]; /* connections that have said a HELLO that is right, until nothing is left of them */
	size_t send_bytes; /* of answers not sent yet, payloads apart */
	struct rpc_stats stats;
	struct refused *refused, own_refused; /* the first points to the second if nobody else wants to know */
	bool closing;
	void (*closed)(void *ctx);
	void *closed_ctx;
	struct io_post post;
	bool posted;
};

/* ---- server_conns.c ---- */

void server__accept(struct rpc_server *s);
/* Its HELLO was right. It may be broken by this: there is no room for one more of its kind. */
void server__admit(struct server_conn *sc);
/* Counts it, and a line for the operator; once for each connection. */
void server__refuse_conn(struct server_conn *sc, enum refused_cause cause, int code, const char *why);

/* ---- server.c ---- */

void server__conn_init(struct server_conn *sc);
void server__maybe_closed(struct rpc_server *s);

#endif
