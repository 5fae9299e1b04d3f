/* SPDX-License-Identifier: Apache-2.0 */
/* metad: the metadata daemon as an object on a loop: main.c runs one on a real loop, the simulator several on hosts of its own. */
#ifndef METAD_METAD_H
#define METAD_METAD_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/io/io.h"
#include "common/kv/kv.h"
#include "common/rpc/replicas.h"

struct metad;

/*
 * The replicas of a store, by number: those that founded it are 1 .. members.count, by their place there. Those that were added later have greater
 * numbers; where they are, and from then on all others too, the log says.
 */
struct metad_group {
	uint64_t id; /* of this one; 0: it is the only one, and keeps one log */
	struct rpc_addrs members; /* where each founder listens, if the log does not say it */
	/* Makes its directory if there is nothing in it: of a new store, once in the life of the replica. One whose disk was lost may not come back
	 * like that: it has forgotten what it voted and acknowledged. Of replica 1, if it is the only founder: what one metad left in the directory
	 * becomes the group's (metad/convert.c). */
	bool found;
	/* Likewise, but it waits until it is invited into a group that there is (`craton meta add`). One whose disk was lost waits in vain. */
	bool join;
};

struct metad_options {
	const char *dir;                       /* exists; holds the journal, formatted at the first start */
	const char *name;                      /* "metad-1" */
	struct io_addr listen;
	struct metad_group group;
	uint32_t max_conns;                    /* of clients and servers; 0: LIMIT_SERVER_CONNS */
	struct io_addr metrics;                /* for GET /metrics; family 0: none */
	struct uuid cluster;
	uint8_t secret[32];
	const char *default_policy;            /* used when the store is new; "rs-4-2" */
	uint32_t cell_bytes;                   /* of the root's policy when new; 0: 1 MiB */
	uint64_t chunk_bytes;                  /* 0: 4 MiB */
	const struct kv_backend *backend;      /* kv_lmdb, kv_mem */
	uint64_t log_segment_bytes;            /* 0: 64 MiB */
	uint64_t log_keep_bytes;               /* of a group's log, for those that lag; 0: 256 MiB, or four segments if that is less */
	uint64_t down_after_ms;                /* server.down_after of a new store; 0: its default */
	uint16_t supports;                     /* cluster versions up to it, as an older build; 0: what this build does. For tests */
	bool table_unread;                     /* the whole table is not read now and then. For tests */
	const char *way_path;                  /* the word that asks bulk of this host to make way (common/io/io_way.h); NULL: none */
	const struct rpc_transform *transform;
	const struct log *log;
	void (*on_fatal)(void *ctx, int code, const char *text); /* the daemon cannot go on: stop the process */
	void *ctx;
};

/* Are policy and sizes such that a store could be made with them? metad_start looks, too, before anything is opened. */
int metad_check_options(const struct metad_options *options, struct err *err);

/* Options are copied, strings too. Replays the log synchronously. `err` has one line with cause and next step. */
int metad_start(struct io *io, const struct metad_options *options, struct metad **ret_metad, struct err *err);
struct io_addr metad_addr(const struct metad *metad);
struct io_addr metad_metrics_addr(const struct metad *metad); /* family 0: none */
/* Answers or fails what is in flight, syncs, frees; then `stopped`. */
void metad_stop(struct metad *metad, void (*stopped)(void *ctx), void *ctx);

#endif
