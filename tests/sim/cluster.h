/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster: one metad or a group, some chunkd and some clients, each on a host of the simulator, in this process and under virtual time. It
 * starts, stops and crashes them; what they do is their own code. A crashed host's objects are abandoned: their memory is forgotten.
 *
 * Everything that happens on purpose (operations, faults) and every log line of a daemon is a note: part of the event log and its hash,
 * and kept in a short ring that a failure shows.
 */
#ifndef TESTS_SIM_CLUSTER_H
#define TESTS_SIM_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "chunkd/chunkd.h"
#include "client/client.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/io/io_sim.h"
#include "metad/metad.h"
#include "tests/sim/known.h"

enum {
	CLUSTER_METADS_MAX = 3, /* that found a group; one more may join it */
	CLUSTER_CHUNKDS_MAX = 8,
	CLUSTER_CLIENTS_MAX = 3,
	CLUSTER_DISKS_MAX = 2, /* of a chunkd */
	CLUSTER_METAD = 0,     /* numbers of nodes: metad, the chunkd, the clients, the other metads of a group */
	CLUSTER_CHUNKD = 1,
	CLUSTER_NODES_MAX = CLUSTER_CHUNKD + CLUSTER_CHUNKDS_MAX + CLUSTER_CLIENTS_MAX + CLUSTER_METADS_MAX,
	CLUSTER_M = 2, /* of rs-4-2 and of rs-1-2 */
	CLUSTER_CELL_BYTES = 16 << 10,
	CLUSTER_CHUNK_BYTES = 64 << 10,
	CLUSTER_RING = 64,
	CLUSTER_NOTE_BYTES = 256,
};

#define CLUSTER_MS ((uint64_t)1000000)
#define CLUSTER_S (1000 * CLUSTER_MS)

/*
 *   CRASHED --cluster_start--> RUNNING --cluster_stop--> STOPPING --> STOPPED --cluster_start--> RUNNING
 *   from all but CRASHED: --cluster_crash--> CRASHED
 */
enum cluster_state { CLUSTER_STOPPED, CLUSTER_RUNNING, CLUSTER_STOPPING, CLUSTER_CRASHED };

struct cluster_node {
	struct cluster *cluster;
	unsigned number;
	char name[24];
	struct io *io;
	enum cluster_state state;
	struct metad *metad; /* one of the three, while RUNNING or STOPPING */
	struct chunkd *chunkd;
	struct client *client;
	struct log log;
	int fatal; /* 0 or the error for which the daemon asked to be stopped; not yet dealt with */
	uint64_t replica; /* of a metad of a group: its number, and where its files are */
	char dir[48];
	unsigned dirs; /* that it has had */
	bool founded; /* a metad of a group that holds what has been led: a start that finds nothing there has lost it */
	uint32_t starts;
	uint32_t older_starts; /* of a metad that founds a group, or comes back to it: so many are of an older build */
	struct known known; /* of a metad */
};

struct cluster_options {
	const char *policy; /* of new files; NULL: rs-4-2 */
	uint64_t seed;
	unsigned metads; /* 0: one, that keeps one log; else a group of so many */
	unsigned chunkds, clients;
	unsigned domains; /* that the chunkd are in, in turn; 0: each in its own */
	uint8_t disks[CLUSTER_CHUNKDS_MAX];
	FILE *transcript; /* NULL or where every note goes */
	FILE *events;     /* NULL or where every event of the simulation goes */
	bool strict;      /* no faults will be made: a daemon that fails is itself a failure */
	bool transform;   /* all connections go through the trivial transform */
	void (*synced)(
		void *ctx, unsigned node, enum sim_sync kind, const char *path); /* NULL, or hears of each sync */
	void *ctx;
};

struct cluster {
	struct sim *sim;
	struct cluster_options options;
	struct cluster_node nodes[CLUSTER_NODES_MAX];
	unsigned first_client, client_end, node_count;
	struct uuid id;
	uint8_t secret[32];
	bool failed; /* the run has shown a defect; `text` says which */
	char text[1024];
	char ring[CLUSTER_RING][CLUSTER_NOTE_BYTES];
	uint64_t notes;
	uint64_t crashes, stops, starts;
	uint64_t client_ops;
	int start_code; /* of the last start that failed, and what it said */
	char start_text[ERR_TEXT_BYTES];
	uint64_t replays; /* that were found to give the same rows */
	struct known_rows known_rows;
	uint64_t term; /* the latest that a metad was seen in */
};

/* The hosts: nothing runs yet. */
struct cluster *cluster_new(const struct cluster_options *options);
/* Everything running must have been stopped or crashed. */
void cluster_free(struct cluster *c);

/*
 * A start that fails is a failure of the run: any crash leaves a state from which start-up succeeds. Where the host was to stop at a
 * sync on the way, it is crashed, and is not running.
 */
void cluster_start(struct cluster *c, unsigned node);
/* Again if it was stopped on the way. */
void cluster_start_again(struct cluster *c, unsigned node);
/* All; chunk servers register as the simulation runs. */
void cluster_start_all(struct cluster *c);
/* A start that the disk may disturb: false if it failed; the node is crashed then. */
bool cluster_try_start(struct cluster *c, unsigned node);
void cluster_crash(struct cluster *c, unsigned node);
void cluster_stop(struct cluster *c, unsigned node);
bool cluster_running(const struct cluster *c, unsigned node);
/* Of nodes to be stopped: all are STOPPED or CRASHED. */
bool cluster_all_stopped(const struct cluster *c);
/* All daemons run and each chunk server is registered. */
bool cluster_all_registered(const struct cluster *c);
bool cluster_is_client(const struct cluster *c, unsigned node);
bool cluster_is_metad(const struct cluster *c, unsigned node);
/* So many have been there. */
unsigned cluster_metads(const struct cluster *c);
/* The node of metad number i, from 0. */
unsigned cluster_metad_node(const struct cluster *c, unsigned i);
struct io_addr cluster_metad_addr(const struct cluster *c, unsigned node);
/* One more, that waits to be added to the group under the number behind the founders': its node. Once. */
unsigned cluster_add_metad(struct cluster *c);
/* What was to go wrong with its disk does not, and there is room. */
void cluster_mend_disk(struct cluster *c, unsigned node);
/* It runs, crashes, and is started with nothing, under that number, on a disk that is well. */
void cluster_empty_metad(struct cluster *c, unsigned node, uint64_t replica);
/* One that runs loses power, and comes back over what it has with the build that supports most; its disk has no faults then. */
void cluster_renew_metad(struct cluster *c, unsigned node);
/* The metad that serves, and has all that was acknowledged; NULL: none just now. */
struct metad *cluster_metad(struct cluster *c);
/* With all metads up and nothing to do: they have the same rows. */
bool cluster_metads_are_even(const struct cluster *c);
void cluster_check_metads(struct cluster *c);
/* Starts an operation of the client of that node, which runs; counts it. */
void cluster_client_start(struct cluster *c, unsigned node, struct client_op *op);
/* How many chunk servers may be away at once, so that no block is lost. */
unsigned cluster_may_miss(const struct cluster *c);
/* "/disk-1": the path of a chunkd's disk on its host, counted from 0. */
const char *cluster_disk_path(unsigned disk);

void cluster_note(struct cluster *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A defect was shown. The first one counts. */
void cluster_fail(struct cluster *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The last notes, oldest first. Safe in a signal handler. */
void cluster_print_ring(const struct cluster *c, int fd);

#endif
