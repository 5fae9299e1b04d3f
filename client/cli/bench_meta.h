/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_meta: how fast metad is: creates, stats, listings, commits of eight blocks, from many logical clients over few connections.
 *
 * On the configured store, or on a metad or a group of its own in a folder (real processes). Commits need receipts, which only chunk servers can
 * give: on a metad of its own the benchmark registers as six of them (bench_commit.c) and signs the receipts itself; on a real store
 * they are left out.
 */
#ifndef CLIENT_CLI_BENCH_META_H
#define CLIENT_CLI_BENCH_META_H

#include <stdbool.h>
#include <stdint.h>
#include "client/cli/bench_load.h"
#include "client/cli/cli.h"
#include "client/config.h"
#include "client/session.h"
#include "proto/metad.pb-c.h"

enum { BENCH_META_CLIENTS_MAX = 1024, BENCH_META_IN_FLIGHT_MAX = 64, BENCH_META_TOP_BYTES = 48, BENCH_META_PATH_BYTES = 128 };

struct bench_meta_options {
	uint64_t files;
	uint64_t clients, in_flight;       /* operations in flight: the product */
	uint64_t connections;              /* shared by all */
	uint64_t metads;                   /* of the group that is started in a folder; 1: no group */
	uint64_t per_s;                    /* creates, and stats, that become due; 0: as fast as they go */
};

/* What the machine gives at best, in the same run; only with a metad of our own. */
struct bench_meta_floor {
	double echo_per_s, echo_server_cpu_us;
	struct load_result log;    /* durable writes of 4 KiB */
};

struct bench_meta {
	struct cli *cli;
	struct io *io;
	struct config config;
	struct rng rng;
	struct session *sessions;          /* one for each client */
	uint64_t files, clients, in_flight, connections, metad_count, per_s;
	char top[BENCH_META_TOP_BYTES];    /* directory of this run */
	uint64_t *dirs;                    /* inodes, by client */
	uint64_t dirs_made, dirs_listed;
	bool leaving;                      /* a failed run's traces go: what is not there needs not */
	pid_t metads[LIMIT_METADS];        /* 0: not on this machine */
	uint64_t commits;
	bool own;                          /* the metad is ours alone */
	struct bench_meta_floor floor;
};

/* One request at a time: runs the loop until the answer is there. `id`: as in a session_call. `take` (may be NULL) sees a
 * successful answer. */
int bench_meta_call(struct bench_meta *b, const struct rpc_method *method, const ProtobufCMessage *request,
                    Craton__RequestId **id, void (*take)(void *ctx, const ProtobufCMessage *msg), void *ctx, struct err *err);
struct session *bench_meta_session(struct bench_meta *b, uint64_t number); /* of the client whose turn that is */
ProtobufCBinaryData bench_meta_bytes(const char *text);
/* Of a struct bench_meta's metads, together. */
double bench_meta_cpu_s(const void *arg);

int bench_meta_floor(struct bench_meta *b, const char *dir, struct bench_meta_floor *ret_floor, struct err *err);

struct bench_meta_results {
	struct load_result create, stat, list, allocate, commit;
	bool has_commit;
};

/* The commit phase. 0 or err. */
int bench_commit(struct bench_meta *b, struct load_result *ret_allocate, struct load_result *ret_commit, struct err *err);

/* `dir` NULL: the configured store. */
int bench_meta(struct cli *cli, const char *dir, const struct bench_meta_options *options);

#endif
