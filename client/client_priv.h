/* SPDX-License-Identifier: Apache-2.0 */
/* client_priv: what the rooms of the client core share: the client, its files, and who starts what. */
#ifndef CLIENT_CLIENT_PRIV_H
#define CLIENT_CLIENT_PRIV_H

#include "client/client.h"
#include "client/disks.h"
#include "client/path.h"
#include "client/pool.h"
#include "client/report.h"
#include "client/session.h"
#include "common/base/check.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "common/rpc/methods.h"
#include "proto/chunkd.pb-c.h"
#include "proto/metad.pb-c.h"

struct write_stream; /* write.h */
struct read_stream;  /* read.h */

struct client {
	struct io *io;
	struct rng rng;
	char name[64];
	struct session session;
	struct disks disks;
	struct pool pool;
	struct report report;
	uint64_t timeout_ns;
	struct list files;           /* client_file.link */
	uint32_t tail_bytes;         /* that a file's end may have in the metadata */
	uint32_t file_count;         /* of them; at most LIMIT_OPEN_FILES */
	uint32_t ops_active;         /* operations whose `done` is still to come */
	uint32_t background;         /* calls that nobody waits for (dropped uploads, aborts), streams being taken down */
	uint64_t chunks_total, chunks_left;    /* written; left behind for lateness alone, and not added since */
	uint64_t chunks_replaced, chunks_added; /* late ones: sent to a spare; added after the commit */
	uint32_t late_blocks, late_pages;      /* committed, and kept until a chunk that was left is there */
	uint64_t bytes_read, bytes_hedged, fetches_hedged;
	uint64_t fetch_took_ns[32];  /* of the last ones, to know what is late */
	uint32_t fetch_count;
	uint32_t blocks_in_flight;   /* of writers: closed, not yet committed */
	bool closing, peer_closed, disks_closed;
	struct io_turn_hook close_hook;
	void (*closed)(void *ctx);
	void *closed_ctx;
};

struct client_file {
	struct client *client;
	struct list link;
	uint64_t inode;
	struct cr_stat attr;         /* reader: as last heard */
	char path[CR_PATH_MAX];      /* for messages, as the user wrote it */
	struct write_stream *write;  /* exactly one of these */
	struct read_stream *read;
};

/* Ends an operation: err is set already. `done` is called, the op is the caller's. Never from inside client_start. */
void client_finish(struct client *client, struct client_op *op);
/* The same, from anywhere: at the end of the turn (op->priv is used). */
void client_finish_later(struct client *client, struct client_op *op);
/* After something that client_close waits for has ended. */
void client_check_closed(struct client *client);
/* Somebody waits for memory: what nothing in flight will free is freed. After every pool_wait. */
void client_relieve(struct client *client);
void client_file_free(struct client_file *file);
int client_attr(const Craton__Attr *in, struct cr_stat *ret_stat); /* ERR_PROTO if NULL */

/* names.c: everything but file operations */
void names_start(struct client *client, struct client_op *op);

/* write.c */
struct write_stream *write_open(struct client_file *file, uint64_t epoch, const struct ec_policy *policy, uint32_t cell_bytes,
                                uint64_t chunk_bytes);
/* The file has bytes already (attr.size): writing goes on behind them. `tail`: those that metad keeps itself, from tail_offset on. */
void write_continue(struct client_file *file, uint64_t tail_offset, const ProtobufCBinaryData *tail);
void write_start(struct client_file *file, struct client_op *op); /* WRITE, FSYNC, CLOSE, ABORT; frees the file with the last two */
/* Memory is short: the file should close the block that it is filling. True if it did. */
bool write_relieve(struct client_file *file);
uint64_t write_held_pages(const struct client_file *file);
/* client_close: gives the file up; it goes when nothing of it is in flight. */
void write_abandon(struct client_file *file);

/*
 * write_alloc.c: the first block of a file, asked for with its creation. NULL: it must not lie just anywhere, and is asked for later. Free
 * what is returned (mem_free) when the creation was answered.
 */
struct write_allocate;
struct write_allocate *write_first_ask(struct client *client);
void write_first_take(struct write_allocate *first, struct write_stream *s, const Craton__AllocateReply *reply);

/* read.c */
struct read_stream *read_open(struct client_file *file);
void read_start(struct client_file *file, struct client_op *op);  /* READ, CLOSE, ABORT; frees the file with the last two */
/* Memory is short: gives back what was read ahead and nobody waits for. */
void read_relieve(struct client_file *file);
void read_abandon(struct client_file *file);

/* inspect.c */
void inspect_start(struct client *client, struct client_op *op);

#endif
