/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tails_bed: a store of virtual time in which one chunk server is slow or stalled, and single operations are timed. Times are those of the
 * simulation: the same at each run. What a host that is abandoned with the simulation leaves behind is not looked for.
 */
#ifndef TESTS_SIM_TAILS_BED_H
#define TESTS_SIM_TAILS_BED_H

#include <stdio.h>
#include <string.h>
#include "client/client_priv.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"
#include "tests/sim/cluster.h"

enum { FILE_BYTES = 200 << 10, BLOCK_BYTES = 4 * CLUSTER_CHUNK_BYTES, SLOW = CLUSTER_CHUNKD + 2, FACTOR = 200 };
#define OP_LIMIT_NS (20 * CLUSTER_S)
#define REPAIRED_NS (300 * CLUSTER_S) /* repair.missing_after, and time to rebuild */

struct bed {
	struct cluster *cluster;
	struct client_op op;
	bool done;
	uint8_t data[FILE_BYTES], back[FILE_BYTES];
};

static inline bool all_registered(void *ctx)
{
	return cluster_all_registered(ctx);
}

static inline struct bed *bed_new_policy(unsigned chunkds, unsigned clients, unsigned disks, const char *policy)
{
	static struct bed b;
	struct cluster_options o = {.seed = 7, .policy = policy, .chunkds = chunkds, .clients = clients, .strict = true};

	memset(&b, 0, sizeof(b));
	for (unsigned i = 0; i < chunkds; i++)
		o.disks[i] = disks;
	b.cluster = cluster_new(&o);
	cluster_start_all(b.cluster);
	ck_assert(sim_run(b.cluster->sim, all_registered, b.cluster, 60 * CLUSTER_S));
	for (size_t i = 0; i < sizeof(b.data); i++)
		b.data[i] = (uint8_t)(i * 31 + i / 251);
	return &b;
}

static inline struct bed *bed_new_disks(unsigned chunkds, unsigned clients, unsigned disks)
{
	return bed_new_policy(chunkds, clients, disks, NULL);
}

static inline struct bed *bed_new(unsigned chunkds, unsigned clients)
{
	return bed_new_disks(chunkds, clients, 1);
}

static inline struct client *client_of(struct bed *b, unsigned client)
{
	return b->cluster->nodes[b->cluster->first_client + client].client;
}

static inline void op_done(struct client_op *op)
{
	((struct bed *)op->user)->done = true;
}

static inline bool is_done(void *ctx)
{
	return ((struct bed *)ctx)->done;
}

static inline void until(struct bed *b, bool (*is_so)(void *ctx), void *ctx)
{
	ck_assert(sim_run(b->cluster->sim, is_so, ctx, sim_now_ns(b->cluster->sim) + OP_LIMIT_NS));
}

static inline void start_op(struct bed *b, unsigned client, enum client_op_kind kind)
{
	b->op.kind = kind;
	b->op.done = op_done;
	b->op.user = b;
	b->done = false;
	client_start(client_of(b, client), &b->op);
}

static inline void run_op(struct bed *b, unsigned client, enum client_op_kind kind)
{
	start_op(b, client, kind);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
}

/* Nanoseconds of a fsynced put of one file. */
static inline uint64_t put(struct bed *b, unsigned client, unsigned number)
{
	uint64_t start = sim_now_ns(b->cluster->sim);
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	b->op = (struct client_op){.path = path, .flags = CR_WRITE, .mode = 0644};
	run_op(b, client, CLIENT_OPEN);
	b->op = (struct client_op){
		.file = b->op.ret_file, .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = FILE_BYTES};
	run_op(b, client, CLIENT_WRITE);
	run_op(b, client, CLIENT_FSYNC);
	run_op(b, client, CLIENT_CLOSE);
	return sim_now_ns(b->cluster->sim) - start;
}

static inline uint64_t get(struct bed *b, unsigned client, unsigned number)
{
	uint64_t start = sim_now_ns(b->cluster->sim);
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	memset(b->back, 0, sizeof(b->back));
	b->op = (struct client_op){.path = path, .flags = CR_READ};
	run_op(b, client, CLIENT_OPEN);
	b->op = (struct client_op){.file = b->op.ret_file, .buf = b->back, .len = FILE_BYTES};
	run_op(b, client, CLIENT_READ);
	ck_assert_uint_eq(b->op.count, FILE_BYTES);
	ck_assert(memcmp(b->data, b->back, FILE_BYTES) == 0);
	run_op(b, client, CLIENT_CLOSE);
	return sim_now_ns(b->cluster->sim) - start;
}

/* The longest of `count` such operations on files from `first` on. */
static inline uint64_t longest(
	struct bed *b, uint64_t (*one)(struct bed *b, unsigned client, unsigned number), unsigned first, unsigned count)
{
	uint64_t most = 0;

	for (unsigned i = first; i < first + count; i++) {
		uint64_t took = one(b, 0, i);

		most = took > most ? took : most;
	}
	return most;
}

static inline void slow_down(struct bed *b, uint32_t factor)
{
	sim_disk_slow(b->cluster->nodes[SLOW].io, factor);
}

static inline bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static inline void pass(struct bed *b, uint64_t ns)
{
	sim_run(b->cluster->sim, never, NULL, sim_now_ns(b->cluster->sim) + ns);
}

/* Chunks of these files that are not stored. */
static inline unsigned missing_chunks(struct bed *b, unsigned first, unsigned count)
{
	unsigned missing = 0;
	char path[32];

	for (unsigned i = first; i < first + count; i++) {
		snprintf(path, sizeof(path), "/f%u", i);
		b->op = (struct client_op){.path = path};
		run_op(b, 0, CLIENT_INSPECT);
		for (uint64_t n = 0; n < b->op.count; n++)
			missing += b->op.chunks[n].state != CR_CHUNK_OK;
		mem_free(b->op.chunks);
	}
	return missing;
}

/* Of these files, of a block each, those that could not be read if some one server were lost. */
static inline unsigned exposed_files(struct bed *b, unsigned first, unsigned count)
{
	unsigned exposed = 0;
	char path[32];

	for (unsigned i = first; i < first + count; i++) {
		unsigned stored = 0, most = 0, data = 0;

		snprintf(path, sizeof(path), "/f%u", i);
		b->op = (struct client_op){.path = path};
		run_op(b, 0, CLIENT_INSPECT);
		ck_assert_uint_gt(b->op.count, 0);
		for (uint64_t n = 0; n < b->op.count; n++) {
			unsigned here = 0;

			ck_assert_uint_eq(b->op.chunks[n].block, b->op.chunks[0].block);
			for (uint64_t o = 0; o < b->op.count; o++)
				here += b->op.chunks[o].state != CR_CHUNK_MISSING && b->op.chunks[o].server == b->op.chunks[n].server;
			stored += b->op.chunks[n].state != CR_CHUNK_MISSING;
			data += b->op.chunks[n].index < b->op.chunks[n].k && b->op.chunks[n].chunk_bytes > 0;
			most = here > most ? here : most;
		}
		exposed += stored - most < data;
		mem_free(b->op.chunks);
	}
	return exposed;
}

static inline void reach(struct bed *b, unsigned from, unsigned count, bool reached)
{
	for (unsigned i = from; i < from + count; i++)
		(reached ? sim_heal : sim_cut)(b->cluster->nodes[b->cluster->first_client].io, b->cluster->nodes[i].io);
}

static inline void restart(struct bed *b, unsigned node)
{
	cluster_crash(b->cluster, node);
	cluster_start(b->cluster, node);
}

#endif
