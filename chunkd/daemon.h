/* SPDX-License-Identifier: Apache-2.0 */
/* daemon: what chunkd.c, handlers.c and register.c share. Private to chunkd. */
#ifndef CHUNKD_DAEMON_H
#define CHUNKD_DAEMON_H

#include "chunkd/bufpool.h"
#include "chunkd/chunkd.h"
#include "chunkd/disk.h"
#include "chunkd/way.h"
#include "common/code/token.h"
#include "common/io/io_way.h"
#include "proto/chunkd.pb-c.h"
#include "common/rpc/metrics_http.h"

struct drops;
struct inventory;
struct probes;
struct registrar;
struct repairs;

enum { DAEMON_TOKEN_KEYS = 4, DAEMON_GETS_MAX = 1024, DAEMON_TROUBLE_BYTES = 256 };

/* A disk that could not be opened: its server does without it and says so in each heartbeat. */
struct bad_disk {
	char dir[DAEMON_TROUBLE_BYTES], text[DAEMON_TROUBLE_BYTES]; /* cut there, and printable */
	int code;
};

struct chunkd {
	struct io *io;
	struct chunkd_options o; /* strings are ours */
	struct log log;
	struct uuid server_uuid;
	struct bufpool *pool;
	struct way way;     /* bulk of these disks makes way */
	struct io_way asks; /* and that of all of the host's for small chunks of these */
	struct disk **disks;
	size_t disk_count;
	struct bad_disk *bad;
	size_t bad_count;
	struct rpc_server *server;
	struct metrics_http *http; /* NULL: none */
	struct refused refused;    /* since the start */
	struct registrar *registrar;
	struct repairs *repairs;
	struct drops *drops;
	struct inventory *inventory;
	struct probes *probes;
	struct list free_gets;
	uint32_t gets; /* under way */
	/* learned from metad */
	struct token_key keys[DAEMON_TOKEN_KEYS];
	size_t key_count;
	uint64_t state_ms, state_at_ns; /* state time as of io_now_ns state_at_ns */
	bool registered;
	/* stopping */
	bool stopping, server_closed;
	size_t disks_open;
	void (*stopped)(void *ctx);
	void *stopped_ctx;
};

/* ---- handlers.c ---- */
extern const struct rpc_handler daemon_handlers[];
/* The disk and the copy that a request is about, if its token gives it `right` (TOKEN_READ, TOKEN_WRITE) on them. */
int daemon_authorize(struct chunkd *ch, const ProtobufCBinaryData *token, const Craton__Copy *copy, uint8_t right,
	struct disk **ret_disk, struct copy_id *ret_copy, struct token *ret_token);
void daemon_handlers_fini(struct chunkd *ch);

/* ---- register.c ---- */
struct registrar *registrar_new(struct chunkd *ch);
/* Says goodbye to metad, whatever is still being written; then `closed`. */
void registrar_close(struct registrar *registrar, void (*closed)(void *ctx), void *ctx);
/* There is something to say: the next heartbeat goes soon. */
void registrar_kick(struct chunkd *ch);
/* For other requests to metad, as the server of this number (0 before the first registration). */
struct rpc_peer *registrar_peer(const struct chunkd *ch);
uint32_t registrar_server(const struct chunkd *ch);
/* State time now: never ahead of metad's. */
uint64_t registrar_state_ms(const struct chunkd *ch);

/* ---- metrics.c ---- */
int daemon_metrics_open(struct chunkd *ch, struct err *err);
/* `closed` may be called from inside, if there is none. */
void daemon_metrics_close(struct chunkd *ch, void (*closed)(void *ctx));

/* ---- chunkd.c ---- */
/* A get has ended. */
void daemon_idle(struct chunkd *ch);

#endif
