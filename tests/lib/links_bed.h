/* SPDX-License-Identifier: Apache-2.0 */
/* links_bed: a group of three replicas, with a table of what they applied, whose letters go over common/rpc in the simulator. */
#ifndef TESTS_LIB_LINKS_BED_H
#define TESTS_LIB_LINKS_BED_H

#include <stdio.h>
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "common/rpc/methods.h"
#include "metad/raft_links.h"
#include "metad/state/cmd.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum { NODES = 3, PORT = 7000, ENTRY_BYTES = 3000 };
static const uint64_t ms_ns = 1000000;
static const struct uuid cluster = {{'g', 'r', 'o', 'u', 'p'}};
static const uint8_t secret[32] = {1};
static uint16_t supports = STATE_CLUSTER_VERSION; /* of those that are opened from here on; 0: they are of builds that do not say it */
static uint16_t group_version; /* of the rows of all */
static const struct raft_config members = {
	.index = 1, .count = NODES, .members = {{.id = 1, .voter = true}, {.id = 2, .voter = true}, {.id = 3, .voter = true}}, .last_id = NODES};

struct node {
	struct bed *b;
	uint64_t id;
	struct io *host;
	struct replica *r;
	struct raft_links *links;
	struct rpc_server *server;
	struct raft_links_counts before; /* a crash */
	uint64_t installed;
	bool up;
};

struct bed {
	struct sim *sim;
	struct node nodes[NODES];
	uint64_t keep_bytes;
	uint32_t open, acknowledged;
	void (*tap)(const struct node *to, const Craton__RaftRequest *request); /* NULL, or sees what comes */
	bool closed;
};

/* ---- a replica ---- */

static inline void on_send(void *ctx, const struct raft_message *m, const struct replica_body *bodies, uint32_t count)
{
	raft_links_send(((struct node *)ctx)->links, m, bodies, count);
}

static inline void on_ask(void *ctx, uint64_t to, const struct replica_ask *ask)
{
	raft_links_ask(((struct node *)ctx)->links, to, ask);
}

static inline void on_part(void *ctx, uint64_t to, const struct replica_part *part)
{
	raft_links_part(((struct node *)ctx)->links, to, part);
}

static const uint8_t chain_key[] = {2};

static inline uint32_t chain_of(struct kv *kv)
{
	struct slice value;
	uint32_t chain = 0;

	if (kv_get(kv, slice_of(chain_key, 1), &value) == 0)
		memcpy(&chain, value.data, sizeof(chain));
	return chain;
}

static inline int on_apply(
	void *ctx, struct kv *kv, uint64_t index, uint64_t term, enum body_kind kind, struct slice data, struct err *err)
{
	uint8_t key[] = {1, (uint8_t)index};
	uint32_t chain = crc32c_extend(chain_of(kv), &index, sizeof(index));

	(void)ctx, (void)term, (void)err;
	chain = crc32c_extend(chain, data.data, data.len);
	kv_put(kv, slice_of(chain_key, 1), slice_of(&chain, sizeof(chain)));
	if (kind == BODY_COMMANDS)
		kv_put(kv, slice_of(key, 2), data);
	return 0;
}

static inline void on_table(void *ctx, struct kv *kv)
{
	((struct node *)ctx)->installed += kv != NULL;
}

static inline void on_role(void *ctx, const struct replica_role *role)
{
	(void)ctx, (void)role;
}

static inline void on_stop(void *ctx, int code, const char *text)
{
	ck_abort_msg("replica %d stopped: %d %s", (int)((struct node *)ctx)->id, code, text);
}

static inline void on_raft(void *ctx, struct rpc_req *req)
{
	struct node *n = ctx;

	if (n->b->tap)
		n->b->tap(n, (const Craton__RaftRequest *)req->msg);
	raft_links_handle(n->links, req);
}

static inline uint16_t on_version(void *ctx)
{
	(void)ctx;
	return group_version;
}

static inline struct rpc_identity self_of(const struct uuid *of, uint64_t id)
{
	struct rpc_identity self = {.cluster = *of, .role = RPC_ROLE_METAD};

	snprintf(self.name, sizeof(self.name), "metad-%d", (int)id);
	return self;
}

static inline void node_open(struct node *n)
{
	static const struct rpc_handler handlers[] = {{.method = &rpc_metad_raft, .handle = on_raft}, {.method = NULL}};
	const struct rpc_server_options server = {
		.listen = sim_host_addr(n->host, PORT), .self = self_of(&cluster, n->id), .handlers = handlers, .ctx = n};
	const struct raft_links_options links = {
		.self = self_of(&cluster, n->id), .id = n->id, .supports = supports, .secret = secret, .version = on_version};
	const struct replica_options options = {
		.raft = {.id = n->id,
			.heartbeat_ms = 50,
			.election_ms = 400,
			.message_bytes = 64 << 10,
			.inflight_bytes = 256 << 10,
			.seed = sim_random(n->b->sim)},
		.dir = "/r",
		.segment_bytes = 1 << 20,
		.cluster = "group",
		.found = &members,
		.kv = {.backend = &kv_mem, .freeze_ms = 20},
		.growth_bytes = 64 << 10,
		.keep_bytes = n->b->keep_bytes,
		.cache_bytes = 64 << 10,
		.send = on_send,
		.ask = on_ask,
		.part = on_part,
		.apply = on_apply,
		.on_table = on_table,
		.on_role = on_role,
		.on_stop = on_stop,
		.ctx = n,
	};
	struct err err = {0};

	n->links = raft_links_new(n->host, &links);
	for (uint32_t i = 0; i < NODES; i++) {
		struct io_addr addr = sim_host_addr(n->b->nodes[i].host, PORT);

		if (i + 1 != n->id)
			ck_assert_int_eq(raft_links_member(n->links, i + 1, &addr), 0);
	}
	ck_assert_msg(replica_open(n->host, &options, &n->r, &err) == 0, "%s", err.text);
	replica_start(n->r);
	raft_links_attach(n->links, n->r);
	ck_assert_msg(rpc_server_open(n->host, &server, &n->server, &err) == 0, "%s", err.text);
	n->up = true;
}

static inline void node_crash(struct node *n)
{
	sim_host_crash(n->host);
	n->up = false;
}

static inline struct bed *bed_new(uint64_t seed, uint64_t keep_bytes)
{
	const struct sim_options options = {.seed = seed};
	struct bed *b = MEM_NEW(struct bed);

	b->sim = sim_new(&options);
	b->keep_bytes = keep_bytes;
	for (uint32_t i = 0; i < NODES; i++) {
		struct node *n = &b->nodes[i];
		char name[8];

		snprintf(name, sizeof(name), "r%d", (int)i + 1);
		n->b = b;
		n->id = i + 1;
		n->host = sim_host_add(b->sim, name, 256 << 20);
		ck_assert_int_eq(io_mkdir(n->host, "/r", 0700), 0);
		ck_assert_int_eq(io_sync_dir(n->host, "/"), 0);
	}
	for (uint32_t i = 0; i < NODES; i++)
		node_open(&b->nodes[i]);
	return b;
}

static inline void bed_free(struct bed *b)
{
	sim_free(b->sim);
	mem_free(b);
}

/* ---- running ---- */

static inline struct node *leader(struct bed *b)
{
	struct node *best = NULL;

	for (uint32_t i = 0; i < NODES; i++) {
		const struct raft_core *core = b->nodes[i].up ? replica_core(b->nodes[i].r) : NULL;

		if (core && core->role == RAFT_LEADER && (!best || core->term > replica_core(best->r)->term))
			best = &b->nodes[i];
	}
	return best;
}

static inline bool can_commit(void *ctx)
{
	struct node *l = leader(ctx);

	return l && replica_core(l->r)->commit == replica_core(l->r)->last_index;
}

static inline struct node *elected(struct bed *b)
{
	ck_assert(sim_run(b->sim, can_commit, b, sim_now_ns(b->sim) + 60000 * ms_ns));
	return leader(b);
}

static inline bool is_even(void *ctx)
{
	struct bed *b = ctx;
	struct node *l = leader(b);

	for (uint32_t i = 0; i < NODES; i++)
		if (!l || !b->nodes[i].up || replica_applied(b->nodes[i].r) != replica_core(l->r)->last_index)
			return false;
	return true;
}

static inline void come_together(struct bed *b)
{
	for (uint32_t i = 0; i < NODES; i++)
		if (!b->nodes[i].up) {
			sim_host_restart(b->nodes[i].host);
			node_open(&b->nodes[i]);
		}
	ck_assert_msg(sim_run(b->sim, is_even, b, sim_now_ns(b->sim) + 120000 * ms_ns), "they never came together");
}

static inline void settle(struct bed *b)
{
	come_together(b);
	for (uint32_t i = 0; i < NODES; i++) {
		const struct raft_links_counts *c = raft_links_counts(b->nodes[i].links);

		ck_assert_uint_eq(chain_of(replica_kv(b->nodes[i].r)), chain_of(replica_kv(b->nodes[0].r)));
		ck_assert_uint_eq(replica_counts(b->nodes[i].r)->malformed, 0);
		ck_assert_uint_eq(c->malformed + c->wrong_version + c->wrong_cluster + c->wrong_signature + c->not_here, 0);
	}
}

struct job {
	struct replica_submit submit;
	struct bed *b;
	uint8_t data[ENTRY_BYTES];
};

static inline void job_done(struct replica_submit *s, int code)
{
	struct job *j = CONTAINER_OF(s, struct job, submit);

	j->b->open--;
	j->b->acknowledged += code == 0;
	mem_free(j);
}

static inline void submit_many(struct bed *b, int count)
{
	for (int i = 0; i < count; i++) {
		struct job *j = MEM_NEW(struct job);

		j->b = b;
		memset(j->data, i, sizeof(j->data));
		j->submit.data = slice_of(j->data, sizeof(j->data));
		j->submit.done = job_done;
		b->open++;
		ck_assert_int_eq(replica_submit(elected(b)->r, &j->submit), 0);
		if (i % 32 == 31)
			sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 20 * ms_ns);
	}
	sim_run(b->sim, NULL, NULL, sim_now_ns(b->sim) + 1000 * ms_ns);
}

static inline void isolate(struct bed *b, const struct node *n, bool cut)
{
	for (uint32_t i = 0; i < NODES; i++) {
		if (&b->nodes[i] == n)
			continue;
		if (cut)
			sim_cut(b->nodes[i].host, n->host);
		else
			sim_heal(b->nodes[i].host, n->host);
	}
}

#endif
