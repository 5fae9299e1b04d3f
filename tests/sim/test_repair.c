/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair in the simulator: eight chunk servers, files on them, and one that dies for ever; metad restarts, the target dies, the dead
 * server comes back with stale copies. In the end every chunk of every block is there, in domains of its own, and every file reads as
 * it was written. Bits that flip on a disk are found by a reader and made good.
 */
#include <stdlib.h>
#include "chunkd/repair_priv.h"
#include "client/client_priv.h"
#include "common/base/mem.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "metad/core.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"
#include "tests/sim/cluster.h"

enum { SERVERS = 8, FILES = 12, FILE_BYTES = 700000, SEEDS = 2 };

/* Of files of few bytes: a block of up to one cell, 16 KiB, has one data chunk; the last ones have two and three, the last of them a single byte. */
static const uint32_t small_bytes[] = {1, 2, 100, 511, 4095, 4096, 4097, 10000, 16383, 16384, 16385, 32769};
_Static_assert(sizeof(small_bytes) / sizeof(small_bytes[0]) == FILES, "one for each file");

static struct cluster *c;
static bool done;
static bool small; /* the files of this life are */

static struct state *state(void)
{
	return &c->nodes[CLUSTER_METAD].metad->state;
}

/* ---- operations ---- */

static void op_done(struct client_op *op)
{
	(void)op;
	done = true;
}

static bool is_done(void *ctx)
{
	(void)ctx;
	return done;
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static void pass(uint64_t ms)
{
	sim_run(c->sim, never, NULL, sim_now_ns(c->sim) + ms * CLUSTER_MS);
	ck_assert_msg(!c->failed, "%s", c->text);
}

static int run(struct client_op *op)
{
	done = false;
	op->done = op_done;
	cluster_client_start(c, c->first_client, op);
	ck_assert(sim_run(c->sim, is_done, NULL, sim_now_ns(c->sim) + 600 * CLUSTER_S));
	return op->err.code;
}

static void set(const char *name, const char *value)
{
	struct client_op op = {.kind = CLIENT_CONFIG, .setting = name, .value = value};

	ck_assert_msg(run(&op) == 0, "%s", op.err.text);
	mem_free(op.json);
}

static uint8_t byte_of(int file, uint64_t at)
{
	uint64_t x = (at / 8 + (uint64_t)file * 1000003) * 0xbf58476d1ce4e5b9u;

	return (uint8_t)((x ^ x >> 29) >> (at % 8 * 8));
}

static uint32_t bytes_of(int file)
{
	return small ? small_bytes[file] : FILE_BYTES;
}

static const char *path_of(int file)
{
	static char path[16];

	snprintf(path, sizeof(path), "/f%d", file);
	return path;
}

static void write_file(int file)
{
	struct client_op op = {.kind = CLIENT_OPEN, .path = path_of(file), .flags = CR_WRITE | CR_ATOMIC, .mode = 0644};
	struct client_file *f;
	uint32_t len = bytes_of(file);
	uint8_t *data = mem_alloc(len);

	for (uint64_t i = 0; i < len; i++)
		data[i] = byte_of(file, i);
	ck_assert_msg(run(&op) == 0, "%s", op.err.text);
	f = op.ret_file;
	op = (struct client_op){
		.kind = CLIENT_WRITE, .file = f, .buf = data, .len = len, .flags = CLIENT_WRITE_COPY};
	ck_assert_msg(run(&op) == 0, "%s", op.err.text);
	op = (struct client_op){.kind = CLIENT_CLOSE, .file = f};
	ck_assert_msg(run(&op) == 0, "%s", op.err.text);
	mem_free(data);
}

static void read_file(int file)
{
	struct client_op op = {.kind = CLIENT_OPEN, .path = path_of(file), .flags = CR_READ};
	struct client_file *f;
	uint32_t len = bytes_of(file);
	uint8_t *data = mem_alloc(len);

	ck_assert_msg(run(&op) == 0, "%s", op.err.text);
	f = op.ret_file;
	op = (struct client_op){.kind = CLIENT_READ, .file = f, .buf = data, .len = len};
	ck_assert_msg(run(&op) == 0, "%s", op.err.text);
	ck_assert_uint_eq(op.count, len);
	for (uint64_t i = 0; i < len; i++)
		if (data[i] != byte_of(file, i))
			ck_abort_msg("file %d differs at %llu", file, (unsigned long long)i);
	op = (struct client_op){.kind = CLIENT_CLOSE, .file = f};
	ck_assert_msg(run(&op) == 0, "%s", op.err.text);
	mem_free(data);
}

/* How many chunks of a file are not right; verify: every unit of them is read. */
static uint32_t inspect_file(int file, bool verify)
{
	struct client_op op = {.kind = CLIENT_INSPECT, .path = path_of(file), .verify = verify};
	uint32_t bad = 0;

	while (!op.end) {
		ck_assert_msg(run(&op) == 0, "%s", op.err.text);
		for (uint64_t i = 0; i < op.count; i++) {
			const struct cr_chunk_info *k = &op.chunks[i];

			bad += k->state != CR_CHUNK_OK;
			if (k->state != CR_CHUNK_OK)
				cluster_note(c, "chunk %u of block %llu on disk %u is %u", k->index,
					(unsigned long long)k->block, k->disk, k->state);
		}
		mem_free(op.chunks);
	}
	return bad;
}

/* ---- the cluster ---- */

static bool all_registered(void *ctx)
{
	(void)ctx;
	return cluster_all_registered(c);
}

static void begin_with(uint64_t seed, bool small_files)
{
	struct cluster_options o = {.seed = seed, .chunkds = SERVERS, .clients = 1};

	for (int i = 0; i < SERVERS; i++)
		o.disks[i] = 1;
	c = cluster_new(&o);
	cluster_start_all(c);
	ck_assert(sim_run(c->sim, all_registered, NULL, sim_now_ns(c->sim) + 60 * CLUSTER_S));
	set("server.dead_after", "10s");
	small = small_files;
	if (small)
		c->nodes[c->first_client].client->tail_bytes = 0; /* they are to be chunks */
	for (int i = 0; i < FILES; i++)
		write_file(i);
}

static void begin(uint64_t seed)
{
	begin_with(seed, false);
}

static void finish(void)
{
	ck_assert_msg(!c->failed, "%s", c->text);
	for (unsigned i = 0; i < c->node_count; i++)
		if (cluster_running(c, i))
			cluster_crash(c, i);
	cluster_free(c);
}

/* Blocks that lack a chunk, or have two in a domain; every row is looked at. */
static uint32_t unwell(void)
{
	struct state_block row;
	struct state_key key;
	struct kv_scan scan;
	uint32_t n = 0, blocks = 0;
	uint64_t id;

	state_key_id(&key, STATE_TABLE_BLOCK, 0);
	for (kv_seek(state()->kv, &scan, state_key_slice(&key)); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		struct stripe_geom g;
		bool well = true;

		if (!state_key_parse_id(scan.key, STATE_TABLE_BLOCK, &id))
			break;
		ck_assert_int_eq(state_block_decode(scan.value, id, &row), 0);
		g = state__geom(&row);
		for (uint8_t i = 0; i < row.width; i++)
			if (stripe_chunk_len(&g, i))
				well = well && row.chunks[i].present && !row.chunks[i].damaged &&
					state_disk_counts(state(), row.chunks[i].disk);
		n += !well || row.crowded;
		blocks++;
	}
	kv_scan_end(&scan);
	ck_assert_uint_ge(blocks, FILES);
	return n;
}

static bool is_whole(void *ctx)
{
	(void)ctx;
	return c->failed || (cluster_running(c, CLUSTER_METAD) && state()->intent_count == 0 && unwell() == 0);
}

static bool is_repairing(void *ctx)
{
	(void)ctx;
	return c->failed || state()->intent_count > 0;
}

static void until(bool (*condition)(void *ctx), const char *what)
{
	ck_assert_msg(sim_run(c->sim, condition, NULL, sim_now_ns(c->sim) + 600 * CLUSTER_S) && !c->failed,
		"no end of waiting for %s: %u blocks are unwell, %u intents: %s", what, unwell(), state()->intent_count,
		c->text);
}

static void all_is_well(void)
{
	until(is_whole, "full margins");
	for (int i = 0; i < FILES; i++) {
		read_file(i);
		if (inspect_file(i, true)) {
			cluster_print_ring(c, 2);
			ck_abort_msg("%s is not whole", path_of(i));
		}
	}
}

/* Some server that holds chunks; by the seed. */
static unsigned victim(void)
{
	return CLUSTER_CHUNKD + (unsigned)(sim_random(c->sim) % SERVERS);
}

/* ---- the lives ---- */

START_TEST(test_a_server_dies_for_ever)
{
	begin((uint64_t)_i + 1);
	cluster_crash(c, victim());
	pass(4000);
	ck_assert_uint_gt(unwell(), 0);
	ck_assert_uint_eq(state()->intent_count, 0); /* down is not dead */
	all_is_well();
	/* two more may go: everything is readable still */
	for (int n = 0; n < 2; n++) {
		unsigned v = victim();

		if (cluster_running(c, v))
			cluster_crash(c, v);
	}
	for (int i = 0; i < FILES; i++)
		read_file(i);
	finish();
}
END_TEST

/* Chunks far shorter than a cell, down to a single byte: of one server after the other all are made anew, and equal to what they were. */
START_TEST(test_small_chunks_are_made_anew)
{
	begin_with((uint64_t)_i + 71, true);
	set("repair.domain_interval", "0s");
	for (int deaths = 0; deaths < 2; deaths++) {
		unsigned v = victim();

		while (!cluster_running(c, v))
			v = victim();
		cluster_crash(c, v);
		pass(4000);
		ck_assert_uint_gt(unwell(), 0);
		all_is_well();
		pass(60 * 1000); /* two within a minute would be held for one event */
	}
	finish();
}
END_TEST

START_TEST(test_metad_restarts_amid_repair)
{
	begin((uint64_t)_i + 11);
	cluster_crash(c, victim());
	for (int n = 0; n < 4; n++) {
		until(is_repairing, "repair to begin");
		pass(1 + sim_random(c->sim) % 300);
		cluster_crash(c, CLUSTER_METAD);
		cluster_start(c, CLUSTER_METAD);
		pass(1 + sim_random(c->sim) % 2000);
		if (is_whole(NULL))
			break;
	}
	all_is_well();
	finish();
}
END_TEST

START_TEST(test_the_target_dies_amid_repair)
{
	unsigned dead, target = 0;

	begin((uint64_t)_i + 21);
	set("repair.mass_hold", "0s");
	set("repair.domain_interval", "0s");
	dead = victim();
	cluster_crash(c, dead);
	until(is_repairing, "repair to begin");
	for (uint32_t i = 1; i < state()->server_cap; i++) {
		const struct state_disk *disk = state_disk_at(state(), state()->intents[0].disk);
		const struct state_server *server = state_server_at(state(), i);

		for (unsigned n = CLUSTER_CHUNKD; server && n < CLUSTER_CHUNKD + SERVERS; n++)
			if (server->id == disk->server && strcmp(server->name, c->nodes[n].name) == 0)
				target = n;
	}
	ck_assert_uint_ne(target, 0);
	ck_assert_uint_ne(target, dead);
	cluster_crash(c, target);
	pass(20000);
	cluster_start(c, target); /* it has half a copy, or a whole one that nobody counts on */
	all_is_well();
	finish();
}
END_TEST

START_TEST(test_the_dead_come_back)
{
	unsigned dead;

	begin((uint64_t)_i + 31);
	dead = victim();
	cluster_crash(c, dead);
	until(is_repairing, "repair to begin");
	all_is_well();
	cluster_start(c, dead);
	until(all_registered, "the dead server to come back");
	/* its copies are stale: no row names them, and nobody reads them; some blocks are written on it again */
	for (int i = 0; i < FILES; i++)
		write_file(i);
	all_is_well();
	finish();
}
END_TEST

START_TEST(test_two_at_once_wait)
{
	unsigned a, b;

	begin((uint64_t)_i + 41);
	a = victim();
	do
		b = victim();
	while (b == a);
	cluster_crash(c, a);
	pass(5000);
	cluster_crash(c, b);
	pass(120 * 1000);
	ck_assert_uint_eq(state()->intent_count, 0);
	ck_assert_uint_gt(unwell(), 0);
	set("repair.mass_hold", "0s");
	set("repair.domain_interval", "0s");
	all_is_well();
	finish();
}
END_TEST

static uint32_t disk_of(unsigned node)
{
	for (uint32_t d = 1; d <= SERVERS; d++) {
		const struct state_disk *disk = state_disk_at(state(), d);
		const struct state_server *server = disk ? state_server_at(state(), disk->server) : NULL;

		if (server && strcmp(server->name, c->nodes[node].name) == 0)
			return d;
	}
	ck_abort_msg("%s has no disk", c->nodes[node].name);
}

static uint32_t dead_disk;

/* Is there a block that could not be made whole even if all but the dead server came back? */
static bool any_given_up(void *ctx)
{
	struct state_block row;
	struct state_key key;
	struct kv_scan scan;
	bool found = false;
	uint64_t id;

	(void)ctx;
	state_key_id(&key, STATE_TABLE_BLOCK, 0);
	for (kv_seek(state()->kv, &scan, state_key_slice(&key)); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		struct stripe_geom g;
		int good = 0;

		if (!state_key_parse_id(scan.key, STATE_TABLE_BLOCK, &id) || state_block_decode(scan.value, id, &row))
			break;
		g = state__geom(&row);
		for (uint8_t i = 0; i < row.width; i++)
			good += row.chunks[i].present && !row.chunks[i].damaged && row.chunks[i].disk != dead_disk;
		found |= good < stripe_data_chunks(&g);
	}
	kv_scan_end(&scan);
	return found;
}

/* Disks that cannot be read while others are rebuilt from them are not full of damaged chunks: they come back whole. */
START_TEST(test_failed_disks_are_not_damaged)
{
	unsigned dead, gone[2];

	begin((uint64_t)_i + 51);
	set("repair.mass_hold", "0s");
	set("repair.domain_interval", "0s");
	dead = victim();
	dead_disk = disk_of(dead);
	do {
		gone[0] = victim();
		gone[1] = victim();
	} while (gone[0] == dead || gone[1] == dead || gone[0] == gone[1]);
	cluster_crash(c, dead);
	until(is_repairing, "repair to begin");
	for (int i = 0; i < 2; i++)
		sim_dir_fail(c->nodes[gone[i]].io, cluster_disk_path(0), ERR_IO);
	ck_assert(!sim_run(c->sim, any_given_up, NULL, sim_now_ns(c->sim) + 60 * CLUSTER_S));
	for (int i = 0; i < 2; i++) {
		cluster_crash(c, gone[i]);
		sim_dir_fail(c->nodes[gone[i]].io, NULL, 0);
		cluster_start(c, gone[i]);
	}
	all_is_well();
	finish();
}
END_TEST

static void no_reason(void *ctx, const char *code, bool error, const char *text)
{
	(void)ctx, (void)code, (void)error, (void)text;
}

static void count_disputes(void *ctx, const char *code, bool error, const char *text)
{
	(void)error, (void)text;
	*(uint32_t *)ctx += strcmp(code, "chunk-disputed") == 0;
}

static uint32_t disputes(void)
{
	Craton__RepairStatus status;
	uint32_t n = 0;

	metad__repair_status(c->nodes[CLUSTER_METAD].metad, &status, count_disputes, &n);
	return n;
}

static Craton__RepairStatus counts(void)
{
	Craton__RepairStatus status;

	metad__repair_status(c->nodes[CLUSTER_METAD].metad, &status, no_reason, NULL);
	return status;
}

static bool any_damaged(void *ctx)
{
	(void)ctx;
	return counts().damaged > 0;
}

/* A whole disk is gone for a while, which readers notice and no write does: it comes back as it was, and nothing is in dispute. */
START_TEST(test_a_disk_is_gone_for_a_while)
{
	unsigned gone;

	begin((uint64_t)_i + 81);
	gone = victim();
	pass(20000); /* all that was written lies in tables */
	sim_dir_fail(c->nodes[gone].io, cluster_disk_path(0), ERR_IO);
	for (int n = 0; n < 3; n++) {
		for (int i = 0; i < FILES; i++)
			read_file(i);
		pass(3000);
	}
	ck_assert_uint_gt(counts().reports, 0);
	ck_assert_uint_eq(counts().damaged, 0);
	sim_dir_fail(c->nodes[gone].io, NULL, 0);
	ck_assert(!sim_run(c->sim, any_damaged, NULL, sim_now_ns(c->sim) + 120 * CLUSTER_S));
	ck_assert_uint_eq(disputes(), 0);
	ck_assert(!c->nodes[gone].chunkd->disks[0]->failed);
	all_is_well();
	finish();
}
END_TEST

static uint32_t lost_disk;

static bool is_out(void *ctx)
{
	(void)ctx;
	return state_disk_at(state(), lost_disk)->out;
}

/* It does not come back, and nothing is written to it: it is taken out whole, not copy by copy. */
START_TEST(test_a_disk_is_gone_for_good)
{
	unsigned gone;

	begin((uint64_t)_i + 86);
	gone = victim();
	lost_disk = disk_of(gone);
	pass(20000);
	sim_dir_fail(c->nodes[gone].io, cluster_disk_path(0), ERR_IO);
	for (int i = 0; i < FILES; i++)
		read_file(i);
	until(is_out, "the disk to be taken out");
	ck_assert_uint_eq(counts().damaged, 0);
	all_is_well();
	finish();
}
END_TEST

/* What cannot be read for good, on a disk that is there, is made anew. */
START_TEST(test_what_cannot_be_read_is_made_anew)
{
	uint32_t known = 0;
	struct io *host;

	begin((uint64_t)_i + 91);
	pass(20000);
	host = c->nodes[victim()].io;
	sim_dir_unreadable(host, cluster_disk_path(0), ERR_IO);
	for (int i = 0; i < FILES; i++)
		read_file(i);
	until(any_damaged, "copies to be found damaged");
	ck_assert_uint_eq(disputes(), 0);
	sim_dir_unreadable(host, NULL, 0);
	for (int i = 0; i < FILES; i++)
		known += inspect_file(i, false); /* the chunk server has nothing to say against them now */
	ck_assert_uint_gt(known, 0);
	finish();
}
END_TEST

/* More servers than a server keeps connections to: idle ones give way, and no source is given up for that. */
START_TEST(test_connections_give_way)
{
	Craton__RepairStatus status;

	begin((uint64_t)_i + 61);
	for (unsigned i = 0; i < SERVERS; i++) {
		struct repairs *r = c->nodes[CLUSTER_CHUNKD + i].chunkd->repairs;

		for (unsigned n = 0; n < REPAIR_PEERS; n++) {
			struct io_addr addr;
			char text[32];

			snprintf(text, sizeof(text), "127.0.0.1:%u", 20000 + n);
			ck_assert_int_eq(io_addr_parse(text, &addr), 0);
			repair__peer_put(repair__peer_get(r, &addr));
		}
	}
	cluster_crash(c, victim());
	until(is_repairing, "repair to begin");
	all_is_well();
	metad__repair_status(c->nodes[CLUSTER_METAD].metad, &status, no_reason, NULL);
	ck_assert_uint_gt(status.done, 0);
	ck_assert_uint_eq(status.failed, 0);
	finish();
}
END_TEST

static unsigned stopping;

static bool is_back(void *ctx)
{
	(void)ctx;
	return c->failed || chunkd_is_registered(c->nodes[stopping].chunkd);
}

static bool has_stopped(void *ctx)
{
	(void)ctx;
	return c->failed || c->nodes[stopping].state == CLUSTER_STOPPED;
}

/* A server is stopped while it rebuilds, at any moment of that: it ends, and the rebuild is done later. */
START_TEST(test_the_target_stops_amid_repair)
{
	begin((uint64_t)_i + 71);
	cluster_crash(c, victim());
	for (int n = 0; n < 8; n++) {
		until(is_repairing, "repair to begin");
		for (stopping = CLUSTER_CHUNKD; stopping < CLUSTER_CHUNKD + SERVERS; stopping++)
			if (cluster_running(c, stopping) && disk_of(stopping) == state()->intents[0].disk)
				break;
		ck_assert_uint_lt(stopping, CLUSTER_CHUNKD + SERVERS);
		sim_run(c->sim, never, NULL, sim_now_ns(c->sim) + sim_random(c->sim) % (300 * CLUSTER_MS));
		cluster_stop(c, stopping);
		ck_assert(sim_run(c->sim, has_stopped, NULL, sim_now_ns(c->sim) + 30 * CLUSTER_S));
		cluster_start(c, stopping);
		until(is_back, "it to come back");
		if (is_whole(NULL))
			break;
	}
	all_is_well();
	finish();
}
END_TEST

int main(void)
{
	const struct {
		const TTest *test;
		int seeds;
	} tests[] = {{test_a_server_dies_for_ever, SEEDS}, {test_small_chunks_are_made_anew, SEEDS}, {test_metad_restarts_amid_repair, SEEDS},
		{test_the_target_dies_amid_repair, SEEDS}, {test_the_dead_come_back, SEEDS}, {test_two_at_once_wait, 1},
		{test_failed_disks_are_not_damaged, SEEDS}, {test_connections_give_way, SEEDS},
		{test_the_target_stops_amid_repair, SEEDS}, {test_a_disk_is_gone_for_a_while, SEEDS},
		{test_a_disk_is_gone_for_good, SEEDS},
		{test_what_cannot_be_read_is_made_anew, 1}};
	Suite *suite = suite_create("repair");
	TCase *tcase = tcase_create("repair");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(tcase, 300);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_loop_test(tcase, tests[i].test, 0, tests[i].seeds);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
