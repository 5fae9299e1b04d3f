/* SPDX-License-Identifier: Apache-2.0 */
/* repair_priv: what repair.c (jobs, results), repair_order.c (one order) and repair_pull.c (one rebuild) share. */
#ifndef CHUNKD_REPAIR_PRIV_H
#define CHUNKD_REPAIR_PRIV_H

#include "chunkd/daemon.h"
#include "chunkd/get.h"
#include "chunkd/put.h"
#include "chunkd/repair.h"
#include "chunkd/repair_set.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "proto/chunkd.pb-c.h"

enum {
	REPAIR_JOBS = 4,   /* a cell of each chunk of a block for each: at most 17 MiB */
	REPAIR_PEERS = 64, /* servers that chunks are pulled from; idle ones give way */
	REPAIR_TEXT_BYTES = 160,
};

struct repair_peer {
	struct rpc_peer *peer;
	struct repairs *repairs;
	struct io_addr addr;
	uint32_t users;
	uint64_t used_ns;
	bool closing;
};

struct repair_job;

/* One chunk of the block that may be pulled. */
struct repair_source {
	struct repair_job *job;
	uint32_t disk, incarnation;
	bool named;     /* there is such a source */
	int bad;        /* why it is not used any more; 0: it is */
	bool told;      /* metad is told of it: it is not what the proof says, or cannot be read; not so a server that does not answer */
	char server[64];
	struct io_addr addr;
	uint32_t *list; /* masked unit CRCs, proven; NULL: not there yet */
	uint8_t *cell;
	struct repair_peer *peer;
	struct rpc_call call;
	Craton__GetRequest request;
	Craton__Copy copy;
	uint32_t want;
	bool waiting; /* for a connection: others give way */
};

enum repair_state { REPAIR_FREE, REPAIR_PULLING, REPAIR_WRITING, REPAIR_CHECKING, REPAIR_DONE };

struct repair_job {
	struct repairs *repairs;
	enum repair_state state;
	/* the order */
	struct disk *disk;
	struct copy_id copy;
	uint32_t disk_number;
	bool check;
	const struct ec_policy *policy;
	struct stripe_geom geom;
	uint32_t crcs[LIMIT_WIDTH];
	uint8_t read_token[TOKEN_BYTES];
	struct repair_source sources[LIMIT_WIDTH]; /* by index */
	/* the rebuild */
	struct repair_sets sets;
	uint16_t set;    /* being pulled */
	uint32_t stripe; /* next or being pulled, of stripe_count */
	uint32_t pulling;
	uint8_t *out[LIMIT_WIDTH];    /* decoded cells, by index */
	uint32_t *lists[LIMIT_WIDTH]; /* masked unit CRCs of what is decoded, by index */
	uint8_t *data_lists;
	struct put_cell *cell;
	struct io_op timer;     /* waits for room: for a cell to be written, or for connections */
	uint64_t room_until_ns; /* for the latter */
	struct io_turn_hook hook;
	/* the check */
	struct get get;
	struct index_row row;
	uint32_t *seen; /* unit CRCs of what was read, masked */
	/* the result */
	int status;
	uint32_t crc;
	uint64_t generation;
	uint8_t mac[TOKEN_MAC_BYTES];
	uint16_t liars;
	bool told; /* in the heartbeat that is under way */
	char text[REPAIR_TEXT_BYTES];
};

struct repairs {
	struct chunkd *ch;
	struct repair_job jobs[REPAIR_JOBS];
	struct repair_peer peers[REPAIR_PEERS];
	uint64_t busy_ns; /* when a job last began or ended */
	bool closing;
	void (*closed)(void *ctx);
	void *closed_ctx;
	/* results as messages */
	Craton__RepairResult result[REPAIR_JOBS], *results[REPAIR_JOBS];
	Craton__RepairCulprit culprit[REPAIR_JOBS][LIMIT_WIDTH], *culprits[REPAIR_JOBS][LIMIT_WIDTH];
	char culprit_text[REPAIR_JOBS][LIMIT_WIDTH][REPAIR_TEXT_BYTES];
};

/* repair.c */
/* The job has ended; `text` may be NULL. */
void repair__finish(struct repair_job *job, int status, const char *text);
struct repair_peer *repair__peer_get(
	struct repairs *repairs, const struct io_addr *addr); /* NULL: room is being made, ask again */
void repair__peer_put(struct repair_peer *peer);

/* repair_order.c */
/* What the job keeps of an order, whose copy (job->copy) the token is for. ERR_INVAL. */
int repair__order_take(struct repair_job *job, const Craton__RepairOrder *order, const struct token *token);

/* repair_pull.c */
void repair__pull_start(struct repair_job *job);
/* Cancels what is under way; the job ends later. */
void repair__pull_stop(struct repair_job *job);
void repair__pull_free(struct repair_job *job);

#endif
