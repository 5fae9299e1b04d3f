/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One slow or stalled chunk server in a store of virtual time: what single operations take, and that what makes them quick was really at
 * work (the client's counters). Times are those of the simulation: the same at each run.
 */
#include <stdio.h>
#include <string.h>
#include "client/client_priv.h"
#include "client/pick.h"
#include "client/read_job.h"
#include "client/write.h"
#include "common/rpc/methods.h"
#include "common/rpc/peer_private.h"
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

/* What a host that is abandoned with the simulation leaves behind is not looked for. */
static bool all_registered(void *ctx)
{
	return cluster_all_registered(ctx);
}

static struct bed *bed_new_disks(unsigned chunkds, unsigned clients, unsigned disks)
{
	static struct bed b;
	struct cluster_options o = {.seed = 7, .chunkds = chunkds, .clients = clients, .strict = true};

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

static struct bed *bed_new(unsigned chunkds, unsigned clients)
{
	return bed_new_disks(chunkds, clients, 1);
}

static struct client *client_of(struct bed *b, unsigned client)
{
	return b->cluster->nodes[b->cluster->first_client + client].client;
}

static void op_done(struct client_op *op)
{
	((struct bed *)op->user)->done = true;
}

static bool is_done(void *ctx)
{
	return ((struct bed *)ctx)->done;
}

static void until(struct bed *b, bool (*is_so)(void *ctx), void *ctx)
{
	ck_assert(sim_run(b->cluster->sim, is_so, ctx, sim_now_ns(b->cluster->sim) + OP_LIMIT_NS));
}

static void start_op(struct bed *b, unsigned client, enum client_op_kind kind)
{
	b->op.kind = kind;
	b->op.done = op_done;
	b->op.user = b;
	b->done = false;
	client_start(client_of(b, client), &b->op);
}

static void run_op(struct bed *b, unsigned client, enum client_op_kind kind)
{
	start_op(b, client, kind);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
}

/* Nanoseconds of a fsynced put of one file. */
static uint64_t put(struct bed *b, unsigned client, unsigned number)
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

static uint64_t get(struct bed *b, unsigned client, unsigned number)
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
static uint64_t longest(
	struct bed *b, uint64_t (*one)(struct bed *b, unsigned client, unsigned number), unsigned first, unsigned count)
{
	uint64_t most = 0;

	for (unsigned i = first; i < first + count; i++) {
		uint64_t took = one(b, 0, i);

		most = took > most ? took : most;
	}
	return most;
}

static void slow_down(struct bed *b, uint32_t factor)
{
	sim_disk_slow(b->cluster->nodes[SLOW].io, factor);
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static void pass(struct bed *b, uint64_t ns)
{
	sim_run(b->cluster->sim, never, NULL, sim_now_ns(b->cluster->sim) + ns);
}

/* Chunks of these files that are not stored. */
static unsigned missing_chunks(struct bed *b, unsigned first, unsigned count)
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

/* Chunks of blocks two of which share a server. */
static unsigned crowded_chunks(struct bed *b, unsigned number)
{
	unsigned crowded = 0;
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	b->op = (struct client_op){.path = path};
	run_op(b, 0, CLIENT_INSPECT);
	for (uint64_t n = 0; n < b->op.count; n++)
		crowded += b->op.chunks[n].crowded;
	mem_free(b->op.chunks);
	return crowded;
}

static void reach(struct bed *b, unsigned from, unsigned count, bool reached)
{
	for (unsigned i = from; i < from + count; i++)
		(reached ? sim_heal : sim_cut)(b->cluster->nodes[b->cluster->first_client].io, b->cluster->nodes[i].io);
}

static uint32_t slow_disk(struct bed *b)
{
	char name[16];
	size_t pos = 0;
	uint64_t key;
	void *value;

	snprintf(name, sizeof(name), "chunkd-%u", (unsigned)SLOW);
	while (map_next(&client_of(b, 0)->disks.disks, &pos, &key, &value))
		if (!strcmp(((struct disks_disk *)value)->server->name, name))
			return (uint32_t)key;
	return 0;
}

/* A disk that has no room for a chunk is one that new blocks go past for a while. Its server is no suspect. */
START_TEST(test_no_room_is_no_failure)
{
	struct bed *b = bed_new(7, 1);
	struct disks *disks = &client_of(b, 0)->disks;
	struct io *host = b->cluster->nodes[SLOW].io;
	uint64_t total, left;
	uint32_t disk, avoided[4];
	int fd;

	/* It has no segment yet, and metad hears a moment late that none can be made any more. */
	ck_assert_int_eq(io_disk_space(host, "/", &total, &left), 0);
	ck_assert_int_eq(io_open(host, "/in-the-way", IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd), 0);
	ck_assert_int_eq(io_allocate(host, fd, 0, left - (1 << 20)), 0);
	for (unsigned i = 0; i < 10 && !disks_avoid_list(disks, UINT64_MAX, avoided, 4); i++)
		put(b, 0, i);
	disk = slow_disk(b);
	ck_assert(disks_without_room(disks, disk, UINT64_MAX));
	ck_assert_uint_eq(disks_avoid_list(disks, UINT64_MAX, avoided, 4), 1);
	ck_assert_uint_eq(avoided[0], disk);
	ck_assert(!disks_suspect(disks, disk) && !disks_avoided(disks, disk));
	io_close(host, fd);
	pass(b, DISKS_NO_ROOM_NS);
	ck_assert_uint_eq(disks_avoid_list(disks, UINT64_MAX, avoided, 4), 0);
	cluster_free(b->cluster);
}
END_TEST

static void restart(struct bed *b, unsigned node)
{
	cluster_crash(b->cluster, node);
	cluster_start(b->cluster, node);
}

/*
 * All spares lie with servers that have a chunk of the block. One that does not answer for a while is waited for, behind the commit if all others
 * are there; the place of two that are gone is taken in the end.
 */
START_TEST(test_silent_servers_and_no_fresh_domain)
{
	struct bed *b = bed_new_disks(6, 1, 2);
	struct client *c = client_of(b, 0);
	uint64_t took;

	c->timeout_ns = 30 * CLUSTER_S;
	put(b, 0, 10); /* all are connected */
	reach(b, SLOW, 1, false);
	took = put(b, 0, 0);
	ck_assert_msg(took < 5 * CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
	pass(b, 4 * CLUSTER_S);
	ck_assert_uint_eq(c->late_blocks, 1);
	reach(b, SLOW, 1, true);
	pass(b, 5 * CLUSTER_S);
	ck_assert_uint_eq(missing_chunks(b, 0, 1), 0);
	ck_assert_uint_eq(crowded_chunks(b, 0), 0);
	reach(b, SLOW, 1, false);
	put(b, 0, 1);
	pass(b, 30 * CLUSTER_S);
	ck_assert_uint_eq(c->late_blocks, 0); /* it is kept no longer: repair's */
	reach(b, SLOW, 1, true);
	pass(b, 5 * CLUSTER_S);
	reach(b, SLOW, 2, false);
	took = put(b, 0, 2);
	ck_assert_msg(took > 10 * CLUSTER_S && took < 12 * CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
	reach(b, SLOW, 2, true);
	ck_assert_uint_gt(crowded_chunks(b, 2), 0); /* and repair takes them apart again */
	pass(b, 5 * CLUSTER_S);
	ck_assert_uint_eq(missing_chunks(b, 2, 1), 0);
}
END_TEST

/* One of three does not answer for a while, and nobody else may have its chunks, which the block needs. */
START_TEST(test_a_starved_server_and_no_spare)
{
	struct bed *b = bed_new_disks(3, 1, 2);
	struct client *c = client_of(b, 0);

	c->timeout_ns = 30 * CLUSTER_S;
	put(b, 0, 10); /* all are connected */
	reach(b, SLOW, 1, false);
	b->op = (struct client_op){.path = "/f0", .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){
		.file = b->op.ret_file, .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = FILE_BYTES};
	run_op(b, 0, CLIENT_WRITE);
	start_op(b, 0, CLIENT_CLOSE);
	pass(b, 9500 * CLUSTER_MS);
	ck_assert_msg(!b->done, "%s", b->op.err.text);
	reach(b, SLOW, 1, true);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
	pass(b, 2 * CLUSTER_S);
	ck_assert_uint_eq(missing_chunks(b, 0, 1), 0);
}
END_TEST

/* One of three is gone: no allocation can do without it, and it is not given the same time again by each. */
START_TEST(test_a_gone_server_and_no_spare)
{
	struct bed *b = bed_new_disks(3, 1, 2);
	struct client *c = client_of(b, 0);
	uint64_t start;

	c->timeout_ns = 30 * CLUSTER_S;
	put(b, 0, 10);
	reach(b, SLOW, 1, false);
	start = sim_now_ns(b->cluster->sim);
	b->op = (struct client_op){.path = "/f0", .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){
		.file = b->op.ret_file, .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = FILE_BYTES};
	run_op(b, 0, CLIENT_WRITE);
	start_op(b, 0, CLIENT_CLOSE);
	sim_run(b->cluster->sim, is_done, b, start + 60 * CLUSTER_S);
	ck_assert(b->done);
	ck_assert_int_eq(b->op.err.code, ERR_TOO_FEW_CHUNKS);
	start = sim_now_ns(b->cluster->sim) - start;
	ck_assert_msg(start > 10 * CLUSTER_S && start < 20 * CLUSTER_S, "%llu ms", (unsigned long long)start / 1000000);
}
END_TEST

/* All have just started, and metad has not told them yet whom to believe. */
START_TEST(test_a_get_of_servers_that_are_not_ready)
{
	struct bed *b = bed_new(6, 1);
	struct io *metad_io = b->cluster->nodes[CLUSTER_METAD].io;
	struct client_file *f;

	client_of(b, 0)->timeout_ns = 15 * CLUSTER_S;
	put(b, 0, 0);
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	f = b->op.ret_file;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = 1};
	run_op(b, 0, CLIENT_READ);
	for (unsigned i = CLUSTER_CHUNKD; i < CLUSTER_CHUNKD + 6; i++) {
		sim_cut(b->cluster->nodes[i].io, metad_io);
		restart(b, i);
	}
	pass(b, 5 * CLUSTER_S); /* they are suspects no more */
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	pass(b, 8 * CLUSTER_S);
	ck_assert_msg(!b->done, "%s", b->op.err.text);
	for (unsigned i = CLUSTER_CHUNKD; i < CLUSTER_CHUNKD + 6; i++)
		sim_heal(b->cluster->nodes[i].io, metad_io);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
	ck_assert(memcmp(b->data, b->back, FILE_BYTES) == 0);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
}
END_TEST

/* They are busy, and fall silent then: the read takes no longer than one call may. */
START_TEST(test_a_get_of_busy_servers_that_fall_silent)
{
	struct bed *b = bed_new(6, 1);
	struct io *metad_io = b->cluster->nodes[CLUSTER_METAD].io;
	uint64_t start_ns, took_ns;
	struct client_file *f;

	client_of(b, 0)->timeout_ns = 16 * CLUSTER_S;
	put(b, 0, 0);
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	f = b->op.ret_file;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = 1};
	run_op(b, 0, CLIENT_READ);
	for (unsigned i = CLUSTER_CHUNKD; i < CLUSTER_CHUNKD + 6; i++) {
		sim_cut(b->cluster->nodes[i].io, metad_io);
		restart(b, i);
	}
	pass(b, 5 * CLUSTER_S);
	start_ns = sim_now_ns(b->cluster->sim);
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	pass(b, 10 * CLUSTER_S);
	ck_assert_msg(!b->done, "%s", b->op.err.text);
	reach(b, CLUSTER_CHUNKD, 6, false);
	until(b, is_done, b);
	took_ns = sim_now_ns(b->cluster->sim) - start_ns;
	ck_assert_int_ne(b->op.err.code, 0);
	ck_assert_msg(took_ns < 17 * CLUSTER_S, "%llu ms", (unsigned long long)took_ns / 1000000);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	cluster_free(b->cluster);
}
END_TEST

/* The caller has no patience: that they did not answer in that time says nothing about servers. */
START_TEST(test_a_get_without_time)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	size_t pos = 0;
	uint64_t disk;
	struct client_file *f;
	void *value;

	put(b, 0, 0);
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	f = b->op.ret_file;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = 1};
	run_op(b, 0, CLIENT_READ);
	c->timeout_ns = CLUSTER_S / 2;
	reach(b, CLUSTER_CHUNKD, 6, false);
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	until(b, is_done, b);
	ck_assert_int_ne(b->op.err.code, 0);
	reach(b, CLUSTER_CHUNKD, 6, true);
	while (map_next(&c->disks.disks, &pos, &disk, &value))
		ck_assert_msg(!disks_suspect(&c->disks, (uint32_t)disk), "disk %u is taken for silent", (unsigned)disk);
	c->timeout_ns = 15 * CLUSTER_S;
	b->op = (struct client_op){.file = f, .buf = b->back, .len = FILE_BYTES};
	run_op(b, 0, CLIENT_READ);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	cluster_free(b->cluster);
}
END_TEST

/* The node of the server that has chunk `index` of the file's only block. */
static unsigned node_of_chunk(struct bed *b, unsigned number, unsigned index)
{
	unsigned node = 0;
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	b->op = (struct client_op){.path = path};
	run_op(b, 0, CLIENT_INSPECT);
	for (uint64_t n = 0; n < b->op.count; n++)
		if (b->op.chunks[n].index == index)
			ck_assert_int_eq(sscanf(b->op.chunks[n].server_name, "chunkd-%u", &node), 1);
	mem_free(b->op.chunks);
	ck_assert_uint_gt(node, 0);
	return CLUSTER_CHUNKD + node - 1;
}

/* Two servers do not answer, no connection breaks, and what may be read twice is used up. */
START_TEST(test_gets_with_silent_servers)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t took;

	longest(b, put, 0, 4);
	longest(b, get, 0, 4);
	c->timeout_ns = 15 * CLUSTER_S;
	c->bytes_hedged = 2 * PICK_HEDGE_FREE_BYTES;
	reach(b, SLOW, 2, false);
	took = longest(b, get, 0, 4);
	ck_assert_msg(took < 8 * CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
	ck_assert_uint_eq(c->bytes_hedged, 2 * PICK_HEDGE_FREE_BYTES); /* there was no choice */
}
END_TEST

struct middle {
	struct client *client;
	unsigned node; /* becomes that of a server some of whose bytes are here, and not all */
};

static bool is_amid_a_fetch(void *ctx)
{
	struct middle *m = ctx;

	for (uint32_t disk = 1; disk <= CLUSTER_CHUNKDS_MAX; disk++) {
		const struct disks_disk *d = disks_get(&m->client->disks, disk);

		if (!d || !d->server->peer)
			continue;
		LIST_FOREACH(it, &d->server->peer->conns)
			LIST_FOREACH(jt, &LIST_ENTRY(it, struct peer_conn, link)->calls) {
				const struct rpc_call *call = LIST_ENTRY(jt, struct rpc_call, link);
				const struct read_fetch *f = CONTAINER_OF(call, struct read_fetch, call);

				if (call->method != &rpc_chunkd_get || f->next == 0 || f->next == f->count)
					continue;
				ck_assert_int_eq(sscanf(d->server->name, "chunkd-%u", &m->node), 1);
				m->node += CLUSTER_CHUNKD - 1;
				return true;
			}
	}
	return false;
}

/* It begins to answer, and falls silent; what may be read twice is used up. */
START_TEST(test_a_server_falls_silent_amid_a_get)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct middle m = {.client = c};
	uint64_t start;

	put(b, 0, 0);
	get(b, 0, 0);
	c->timeout_ns = 15 * CLUSTER_S;
	c->bytes_hedged = 2 * PICK_HEDGE_FREE_BYTES;
	b->op = (struct client_op){.path = "/f0", .flags = CR_READ};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){.file = b->op.ret_file, .buf = b->back, .len = FILE_BYTES};
	start_op(b, 0, CLIENT_READ);
	until(b, is_amid_a_fetch, &m);
	start = sim_now_ns(b->cluster->sim);
	reach(b, m.node, 1, false);
	until(b, is_done, b);
	ck_assert_msg(b->op.err.code == 0, "%s", b->op.err.text);
	ck_assert(memcmp(b->data, b->back, FILE_BYTES) == 0);
	start = sim_now_ns(b->cluster->sim) - start;
	ck_assert_msg(start < 5 * CLUSTER_S, "%llu ms", (unsigned long long)start / 1000000);
	run_op(b, 0, CLIENT_CLOSE);
}
END_TEST

/* It answers nothing for a while but that it is there: it is not asked that without end. */
START_TEST(test_a_stalled_server_is_asked_seldom)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	unsigned node;

	put(b, 0, 0);
	get(b, 0, 0);
	node = node_of_chunk(b, 0, 0);
	c->bytes_hedged = 2 * PICK_HEDGE_FREE_BYTES;
	sim_disk_stall(b->cluster->nodes[node].io, 10 * CLUSTER_S);
	get(b, 0, 0);
	ck_assert_uint_ge(c->disks.checked, 2);
	ck_assert_uint_le(c->disks.checked, 10);
	ck_assert_uint_eq(disks_avoid_list(&c->disks, UINT64_MAX, (uint32_t[4]){0}, 4), 0);
}
END_TEST

/* What is rebuilt is checked by lists that each parity chunk has. */
START_TEST(test_lists_of_a_silent_server)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	unsigned lost, silent;
	uint64_t took;

	longest(b, put, 0, 4);
	longest(b, get, 0, 4);
	c->timeout_ns = 15 * CLUSTER_S;
	lost = node_of_chunk(b, 0, 0);
	silent = node_of_chunk(b, 0, 4);
	cluster_crash(b->cluster, lost);
	reach(b, silent, 1, false);
	took = get(b, 0, 0);
	ck_assert_msg(took < CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
}
END_TEST

START_TEST(test_puts_go_round_a_slow_disk)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t well = longest(b, put, 0, 40), ill;
	unsigned left;

	slow_down(b, FACTOR);
	longest(b, put, 100, 20); /* to notice */
	ill = longest(b, put, 200, 150);
	ck_assert_msg(ill <= 2 * well, "%llu us, %llu us with one slow disk", (unsigned long long)ill / 1000,
		(unsigned long long)well / 1000);
	ck_assert_uint_eq(c->disks.slowed, 1);
	ck_assert_uint_ge(c->disks.probed, 1); /* a hundredth of the blocks goes there all the same, */
	pass(b, 10 * CLUSTER_S);
	ck_assert_uint_ge(c->chunks_added, 1); /* is not waited for, and is whole in the end: added, or, */
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->late_pages, 0);
	left = missing_chunks(b, 100, 20) + missing_chunks(b, 200, 150); /* where there was no memory to keep it, */
	ck_assert_uint_lt(left, c->chunks_added);
	sim_disk_slow(b->cluster->nodes[SLOW].io, 1);
	pass(b, REPAIRED_NS); /* it is rebuilt */
	ck_assert_uint_eq(missing_chunks(b, 100, 20) + missing_chunks(b, 200, 150), 0);
}
END_TEST

START_TEST(test_gets_go_round_a_slow_disk)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t well, ill;

	longest(b, put, 0, 60);
	well = longest(b, get, 0, 60);
	slow_down(b, FACTOR);
	longest(b, get, 0, 20);
	ck_assert_uint_ge(c->fetches_hedged, 1); /* before it was known: rebuilt from the others */
	ck_assert_uint_le(c->bytes_hedged, PICK_HEDGE_FREE_BYTES + c->bytes_read / 10);
	ill = longest(b, get, 0, 60);
	ck_assert_msg(ill <= 2 * well, "%llu us, %llu us with one slow disk", (unsigned long long)ill / 1000,
		(unsigned long long)well / 1000);
	ck_assert_uint_eq(c->disks.slowed, 1);
	ck_assert_uint_ge(c->disks.probed, 1);
	/* It recovers: probes notice. */
	slow_down(b, 1);
	for (int i = 0; i < 600 && disks_slow_list(&c->disks, (uint32_t[4]){0}, 4) > 0; i++)
		get(b, 0, (unsigned)i % 60);
	ck_assert_uint_eq(disks_slow_list(&c->disks, (uint32_t[4]){0}, 4), 0);
}
END_TEST

START_TEST(test_a_stalled_put_goes_to_a_fresh_domain)
{
	struct bed *b = bed_new(8, 1);
	struct client *c = client_of(b, 0);
	uint64_t most = 0;

	longest(b, put, 0, 20); /* five in a hundred may be left: of these */
	for (unsigned i = 0; i < 8; i++) {
		uint64_t took;

		sim_disk_stall(b->cluster->nodes[CLUSTER_CHUNKD + i].io, 3 * CLUSTER_S);
		took = put(b, 0, 100 + i);
		most = took > most ? took : most;
		pass(b, 5 * CLUSTER_S);
	}
	ck_assert_msg(most < CLUSTER_S, "a put took %llu ms", (unsigned long long)most / 1000000);
	ck_assert_uint_ge(c->chunks_replaced, 4); /* six of eight servers have a chunk */
	ck_assert_uint_eq(c->chunks_left, 0);
	ck_assert_uint_eq(missing_chunks(b, 100, 8), 0);
}
END_TEST

START_TEST(test_a_stalled_put_leaves_a_chunk_and_adds_it)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	uint64_t took;

	longest(b, put, 0, 20);
	sim_disk_stall(b->cluster->nodes[SLOW].io, 3 * CLUSTER_S);
	took = put(b, 0, 100);
	ck_assert_msg(
		took >= 100 * CLUSTER_MS && took < 400 * CLUSTER_MS, "%llu ms", (unsigned long long)took / 1000000);
	ck_assert_uint_eq(c->chunks_left, 1); /* no domain is unused: it went on without */
	ck_assert_uint_eq(c->late_blocks, 1); /* and fsync and close did not wait */
	ck_assert_uint_eq(missing_chunks(b, 100, 1), 1);
	pass(b, 5 * CLUSTER_S);
	ck_assert_uint_eq(c->chunks_added, 1);
	ck_assert_uint_eq(c->chunks_left, 0);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(missing_chunks(b, 100, 1), 0);
}
END_TEST

/* Nanoseconds of a put out of the caller's own memory, which is the caller's again, and changes, as soon as the write is answered. */
static uint64_t put_in_place(struct bed *b, uint8_t *mine, size_t len, unsigned number)
{
	uint64_t start = sim_now_ns(b->cluster->sim);
	char path[32];

	snprintf(path, sizeof(path), "/f%u", number);
	for (size_t i = 0; i < len; i++)
		mine[i] = (uint8_t)(i * 31 + i / 251 + number);
	b->op = (struct client_op){.path = path, .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	b->op = (struct client_op){.file = b->op.ret_file, .buf = mine, .len = len};
	run_op(b, 0, CLIENT_WRITE);
	memset(mine, 0xee, len);
	run_op(b, 0, CLIENT_CLOSE);
	return sim_now_ns(b->cluster->sim) - start;
}

/* One server after the other hangs: four of them have data of the block, and these lie in the caller's memory. */
START_TEST(test_what_is_late_is_added_out_of_the_callers_memory)
{
	static uint8_t mine[BLOCK_BYTES];
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);

	longest(b, put, 0, 150); /* five in a hundred may be left: of these */
	for (unsigned i = 0; i < 6; i++) {
		uint64_t took;

		sim_disk_stall(b->cluster->nodes[CLUSTER_CHUNKD + i].io, 3 * CLUSTER_S);
		took = put_in_place(b, mine, sizeof(mine), 200 + i);
		ck_assert_msg(took < CLUSTER_S, "%llu ms", (unsigned long long)took / 1000000);
		pass(b, 5 * CLUSTER_S);
	}
	ck_assert_uint_eq(c->chunks_added, 6);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->late_pages, 0);
	ck_assert_uint_eq(missing_chunks(b, 200, 6), 0);
}
END_TEST

static unsigned writes_left, late_seen;

/* The memory is the caller's again: nothing may be on its way out of it. */
static void in_place_done(struct client_op *op)
{
	ck_assert_msg(op->err.code == 0, "%s", op->err.text);
	LIST_FOREACH(it, &op->file->write->blocks)
		ck_assert(!write_block_borrows(LIST_ENTRY(it, struct write_block, link)));
	late_seen += ((const struct client *)op->user)->late_blocks;
	writes_left--;
}

static bool all_written(void *ctx)
{
	(void)ctx;
	return writes_left == 0;
}

/* So many files at once that their chunks fill the way to a server that is not reached: the last ones do not leave the caller's memory. */
START_TEST(test_what_leaves_the_callers_memory_is_waited_for)
{
	static uint8_t mine[BLOCK_BYTES];
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct client_op ops[WRITE_LATE_BLOCKS + 4];

	c->pool.max_pages *=
		WRITE_LATE_BLOCKS; /* memory for all that is late: cells are small here, and pages are not */
	longest(b, put, 0, 100);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++) {
		char path[32];

		snprintf(path, sizeof(path), "/in-place-%u", i);
		b->op = (struct client_op){.path = path, .flags = CR_WRITE, .mode = 0644};
		run_op(b, 0, CLIENT_OPEN);
		ops[i] = (struct client_op){.kind = CLIENT_WRITE,
			.done = in_place_done,
			.file = b->op.ret_file,
			.buf = mine,
			.len = BLOCK_BYTES,
			.user = c};
	}
	sim_cut(b->cluster->nodes[b->cluster->first_client].io, b->cluster->nodes[SLOW].io);
	late_seen = 0;
	writes_left = ARRAY_COUNT(ops);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++)
		client_start(c, &ops[i]);
	ck_assert(sim_run(b->cluster->sim, all_written, NULL, sim_now_ns(b->cluster->sim) + OP_LIMIT_NS));
	ck_assert_uint_ge(late_seen, 1);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++) {
		b->op = (struct client_op){.file = ops[i].file};
		run_op(b, 0, CLIENT_CLOSE);
	}
	sim_heal(b->cluster->nodes[b->cluster->first_client].io, b->cluster->nodes[SLOW].io);
	pass(b, 40 * CLUSTER_S);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->late_pages, 0);
}
END_TEST

/* ---- commits that meet late chunks ---- */

static struct client_file *open_file(struct bed *b, const char *path)
{
	b->op = (struct client_op){.path = path, .flags = CR_WRITE, .mode = 0644};
	run_op(b, 0, CLIENT_OPEN);
	return b->op.ret_file;
}

static void append(struct bed *b, struct client_file *f)
{
	b->op = (struct client_op){.file = f, .flags = CLIENT_WRITE_COPY, .buf = b->data, .len = FILE_BYTES};
	b->op.offset = f->attr.size;
	run_op(b, 0, CLIENT_WRITE);
}

static void fsync_file(struct bed *b, struct client_file *f)
{
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_FSYNC);
}

static struct write_block *first_block(const struct client_file *f)
{
	return LIST_ENTRY(f->write->blocks.next, struct write_block, link);
}

static bool is_asking(void *ctx)
{
	const struct client_file *f = ctx;

	return f->write->commit && first_block(f)->state == WRITE_COMMITTING;
}

static bool is_answered(void *ctx)
{
	return !((const struct client_file *)ctx)->write->commit;
}

/* The late block, and the last of two others. */
static bool late_and_other_ready(void *ctx)
{
	const struct client_file *f = ctx;
	const struct write_block *last = LIST_ENTRY(f->write->blocks.prev, struct write_block, link);

	return first_block(f)->late && first_block(f)->state == WRITE_READY && last->state == WRITE_READY &&
		last->link.prev != &first_block(f)->link;
}

/* Its receipt is not in the request that is under way. */
START_TEST(test_what_comes_during_the_commit_is_added)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct client_file *f;

	longest(b, put, 0, 20);
	f = open_file(b, "/f100");
	sim_disk_stall(b->cluster->nodes[SLOW].io, 3 * CLUSTER_S);
	sim_disk_stall(b->cluster->nodes[CLUSTER_METAD].io, 6 * CLUSTER_S);
	append(b, f);
	fsync_file(b, f);
	ck_assert_uint_eq(c->chunks_added, 0);
	ck_assert_uint_eq(c->late_blocks, 1);
	pass(b, CLUSTER_S);
	ck_assert_uint_eq(c->chunks_added, 1);
	ck_assert_uint_eq(c->chunks_left, 0);
	ck_assert_uint_eq(c->late_blocks, 0);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	ck_assert_uint_eq(missing_chunks(b, 100, 1), 0);
}
END_TEST

/* What a late block lacks when its commit was answered is the store's matter: nobody waits for another receipt. */
START_TEST(test_a_late_receipt_is_not_renewed)
{
	struct bed *b = bed_new(6, 1);
	struct io *client_io = b->cluster->nodes[b->cluster->first_client].io;
	struct io *slow_io = b->cluster->nodes[SLOW].io, *metad_io = b->cluster->nodes[CLUSTER_METAD].io;
	struct client *c = client_of(b, 0);
	struct client_file *f;
	uint64_t start;

	longest(b, put, 0, 20);
	f = open_file(b, "/f100");
	sim_disk_stall(slow_io, 3 * CLUSTER_S);
	append(b, f);
	fsync_file(b, f);
	ck_assert_uint_eq(c->late_blocks, 1);
	sim_cut(client_io, metad_io);
	until(b, is_asking, f);
	restart(b, SLOW); /* its disk has a new generation when the receipt arrives */
	until(b, all_registered, b->cluster);
	sim_net_delay(slow_io, 3 * CLUSTER_S);
	for (uint8_t i = 0; i < 6;
		i++) { /* as if other requests had found it quick again: one that is known to be slow is left at once */
		const struct write_chunk *k = &first_block(f)->chunks[i];

		if (k->was_left)
			((struct disks_disk *)disks_get(&c->disks, k->target.disk))->pace = (struct pace){0};
	}
	sim_heal(client_io, metad_io);
	until(b, is_answered, f);
	ck_assert_uint_eq(c->chunks_added, 0);
	start = sim_now_ns(b->cluster->sim);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
	start = sim_now_ns(b->cluster->sim) - start;
	ck_assert_msg(start < 50 * CLUSTER_MS, "close took %llu ms", (unsigned long long)start / 1000000);
	ck_assert_uint_eq(c->late_blocks, 0);
}
END_TEST

/* A block that is part of the file is not tried again with others that are not. */
static bool is_committing(void *arg)
{
	const struct client_file *f = arg;

	return f->write->commit;
}

START_TEST(test_a_late_block_does_not_go_round_with_others)
{
	struct bed *b = bed_new(6, 1);
	struct client *c = client_of(b, 0);
	struct client_op ops[4];
	struct client_file *f;

	longest(b, put, 0, 20);
	f = open_file(b, "/f100");
	sim_disk_stall(b->cluster->nodes[SLOW].io, 3 * CLUSTER_S);
	append(b, f);
	fsync_file(b, f);
	ck_assert_uint_eq(c->late_blocks, 1);
	pass(b, 2500 * CLUSTER_MS);
	/* One commit hangs; behind it the late block and another one get ready, whose receipts count no more. */
	sim_disk_stall(b->cluster->nodes[CLUSTER_METAD].io, 6 * CLUSTER_S);
	writes_left = ARRAY_COUNT(ops);
	for (unsigned i = 0; i < ARRAY_COUNT(ops); i++) {
		ops[i] = (struct client_op){.kind = i % 2 ? CLIENT_FSYNC : CLIENT_WRITE, .file = f};
		ops[i].done = in_place_done;
		ops[i].user = c;
		if (i % 2 == 0) {
			ops[i].flags = CLIENT_WRITE_COPY;
			ops[i].buf = b->data;
			ops[i].len = FILE_BYTES;
			ops[i].offset = f->attr.size;
		}
		client_start(c, &ops[i]);
		if (i == 1)
			until(b, is_committing, f);
	}
	until(b, late_and_other_ready, f);
	for (unsigned i = 0; i < 6; i++)
		if (CLUSTER_CHUNKD + i != SLOW)
			restart(b, CLUSTER_CHUNKD + i);
	until(b, is_asking, f);
	ck_assert_uint_ge(c->late_blocks, 1);
	until(b, is_answered, f);
	ck_assert_int_gt(LIST_ENTRY(f->write->blocks.prev, struct write_block, link)->cures, 0);
	pass(b, 10 * CLUSTER_MS);
	ck_assert_uint_eq(c->late_blocks, 0);
	ck_assert_uint_eq(c->chunks_added, 0);
	until(b, all_written, NULL);
	b->op = (struct client_op){.file = f};
	run_op(b, 0, CLIENT_CLOSE);
}
END_TEST

START_TEST(test_the_news_is_shared)
{
	struct bed *b = bed_new(6, 2);
	struct client *second = client_of(b, 1);
	uint64_t well = longest(b, put, 0, 30), ill = 0;

	slow_down(b, FACTOR);
	longest(b, put, 100, 40);
	ck_assert_uint_eq(client_of(b, 0)->disks.slowed, 1);
	/* It has never met the slow disk, and need not to know it: but for a probe, for which it does not wait. */
	for (unsigned i = 0; i < 20; i++) {
		uint64_t took = put(b, 1, 200 + i);

		ill = took > ill ? took : ill;
		put(b, 0, 300 + i); /* who knows goes on saying so */
	}
	ck_assert_msg(ill <= 2 * well, "%llu us, %llu us with one slow disk", (unsigned long long)ill / 1000,
		(unsigned long long)well / 1000);
	ck_assert_uint_eq(second->chunks_left, 0);
	ck_assert_uint_eq(second->disks.slowed, 0);
	/* Its word ends when nobody repeats it. */
	slow_down(b, 1);
	pass(b, 20 * CLUSTER_S);
	put(b, 1, 400);
	ck_assert_uint_eq(disks_avoid_list(&second->disks, UINT64_MAX, (uint32_t[4]){0}, 4), 0);
}
END_TEST

/*
 * Checksums of a data chunk lie in the parity chunks' trailers. With those damaged, what is rebuilt cannot be checked: the chunk itself is
 * there, on a disk that is avoided for being slow.
 */
START_TEST(test_a_slow_chunk_that_nobody_vouches_for)
{
	struct bed *b = bed_new(6, 1);
	char path[32], slow[16];
	unsigned on_slow = 0;

	longest(b, put, 0, 8);
	snprintf(slow, sizeof(slow), "chunkd-%u", SLOW - CLUSTER_CHUNKD + 1);
	for (unsigned i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "/f%u", i);
		b->op = (struct client_op){.path = path};
		run_op(b, 0, CLIENT_INSPECT);
		for (uint64_t n = 0; n < b->op.count; n++) {
			const struct cr_chunk_info *c = &b->op.chunks[n];
			unsigned node;

			on_slow += c->index < 4 && strcmp(c->server_name, slow) == 0;
			if (c->index < 4)
				continue;
			ck_assert_int_eq(sscanf(c->server_name, "chunkd-%u", &node), 1);
			ck_assert_int_eq(sim_flip_bit(b->cluster->nodes[CLUSTER_CHUNKD + node - 1].io, c->segment,
						 c->trailer_offset, 3),
				0);
		}
		mem_free(b->op.chunks);
	}
	ck_assert_uint_gt(on_slow, 0);
	slow_down(b, FACTOR);
	longest(b, put, 100, 40);
	ck_assert_uint_eq(client_of(b, 0)->disks.slowed, 1);
	for (unsigned i = 0; i < 8; i++)
		get(b, 0, i);
}
END_TEST

UNIT_MAIN("tails", test_no_room_is_no_failure, test_a_get_without_time, test_gets_with_silent_servers, test_lists_of_a_silent_server,
	test_a_starved_server_and_no_spare, test_a_gone_server_and_no_spare, test_a_server_falls_silent_amid_a_get, test_a_stalled_server_is_asked_seldom, test_a_get_of_servers_that_are_not_ready, test_a_get_of_busy_servers_that_fall_silent, test_silent_servers_and_no_fresh_domain, test_a_slow_chunk_that_nobody_vouches_for, test_puts_go_round_a_slow_disk,
	test_gets_go_round_a_slow_disk, test_a_stalled_put_goes_to_a_fresh_domain,
	test_a_stalled_put_leaves_a_chunk_and_adds_it, test_what_is_late_is_added_out_of_the_callers_memory,
	test_what_leaves_the_callers_memory_is_waited_for, test_what_comes_during_the_commit_is_added,
	test_a_late_receipt_is_not_renewed, test_a_late_block_does_not_go_round_with_others, test_the_news_is_shared)
