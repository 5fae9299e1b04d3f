/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole store in one process: metad, six chunk servers and a client, each on a host of its own in virtual time. Files are written and
 * read while servers crash, restart, are cut off and slow down, metad crashes, and bits flip. Whatever happens: a read gives the bytes
 * of a version that was acknowledged, or of one whose outcome the writer never learnt, or an error; never other bytes. When everything
 * is up again every acknowledged file can be read. The same seed gives the same events, twice.
 *
 * CRATON_SIM_SEED=N runs one seed, CRATON_SIM_RUNS=N so many of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chunkd/chunkd.h"
#include "client/client.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/io/io_sim.h"
#include "metad/metad.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum { SERVERS = 6, FILES = 6, STEPS = 60, MIB = 1 << 20, MOST_BYTES = 3 * MIB };
#define MS ((uint64_t)1000000)

struct file {
	char path[16];
	uint64_t acked; /* version; 0: none */
	uint64_t maybe; /* a later version whose writer got an error; 0: none */
	uint64_t next;
};

struct world {
	struct sim *sim;
	uint64_t seed;
	struct io *metad_io, *chunkd_io[SERVERS], *client_io;
	struct metad *metad;
	struct chunkd *chunkd[SERVERS];
	bool up[SERVERS], cut[SERVERS];
	struct client *client;
	struct log log;
	struct file files[FILES];
	bool done;
	uint32_t crashes, puts, puts_failed, gets, gets_failed, flips, metad_crashes;
};

static const struct uuid cluster = {{1, 2, 3}};

static void write_log(void *ctx, enum log_level level, const char *line)
{
	(void)ctx, (void)level;
	if (getenv("TEST_VERBOSE"))
		fprintf(stderr, "%s\n", line);
}

static void on_fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_abort_msg("a daemon gave up: %s: %s", err_name(code), text);
}

static uint64_t pick(struct world *w, uint64_t bound)
{
	return sim_random(w->sim) % bound;
}

/* ---- content: follows from path and version ---- */

static uint64_t size_of(const struct file *f, uint64_t version)
{
	uint64_t x = (version * 0x9e3779b97f4a7c15u) ^ ((uint64_t)f->path[2] << 40);

	x ^= x >> 31;
	switch (x % 5) {
	case 0:
		return x / 5 % 3;
	case 1:
		return 65536 * (1 + x / 5 % 9);
	case 2:
		return x / 5 % 200000;
	default:
		return x / 5 % MOST_BYTES;
	}
}

static uint8_t byte_of(const struct file *f, uint64_t version, uint64_t at)
{
	uint64_t x = (at / 8 + version * 1000003 + (uint64_t)f->path[2] * 7919) * 0xbf58476d1ce4e5b9u;

	return (uint8_t)((x ^ x >> 29) >> (at % 8 * 8));
}

static bool is_version(
	const struct file *f, uint64_t version, const uint8_t *data, uint64_t offset, uint64_t len, uint64_t asked)
{
	uint64_t size = version ? size_of(f, version) : 0;
	uint64_t want = offset >= size ? 0 : size - offset < asked ? size - offset : asked;

	if (version == 0 || len != want)
		return false;
	for (uint64_t i = 0; i < len; i++)
		if (data[i] != byte_of(f, version, offset + i))
			return false;
	return true;
}

/* ---- servers ---- */

static void start_metad(struct world *w)
{
	struct metad_options o = {
		.dir = "/metad",
		.name = "metad-1",
		.listen = sim_host_addr(w->metad_io, 7000),
		.cluster = cluster,
		.secret = "the secret of the simulation!!!",
		.cell_bytes = 64 << 10,
		.chunk_bytes = 256 << 10,
		.backend = &kv_mem,
		.log_segment_bytes = 4 * MIB,
		.log = &w->log,
		.on_fatal = on_fatal,
	};
	struct err err = {0};

	ck_assert_msg(metad_start(w->metad_io, &o, &w->metad, &err) == 0, "%s", err.text);
}

static void start_chunkd(struct world *w, int i)
{
	char name[16];
	const char *disk = "/disk";
	struct chunkd_options o = {
		.state_dir = "/state",
		.name = name,
		.disk_dirs = &disk,
		.disk_count = 1,
		.capacity_bytes = 128 * MIB,
		.segment_bytes = 4 * MIB,
		.listen = sim_host_addr(w->chunkd_io[i], 7100),
		.metads = {.count = 1, .addrs = {sim_host_addr(w->metad_io, 7000)}},
		.cluster = cluster,
		.secret = "the secret of the simulation!!!",
		.backend = &kv_mem,
		.log_segment_bytes = 1 * MIB,
		.memory_bytes = 64 * MIB,
		.log = &w->log,
		.on_fatal = on_fatal,
	};
	struct err err = {0};

	snprintf(name, sizeof(name), "chunkd-%d", i + 1);
	ck_assert_msg(chunkd_start(w->chunkd_io[i], &o, &w->chunkd[i], &err) == 0, "%s", err.text);
	w->up[i] = true;
}

static void make_dir(struct io *io, const char *path)
{
	ck_assert_int_eq(io_mkdir(io, path, 0755), 0);
	ck_assert_int_eq(io_sync_dir(io, "/"), 0);
}

static bool all_registered(void *ctx)
{
	struct world *w = ctx;

	for (int i = 0; i < SERVERS; i++)
		if (w->up[i] && !chunkd_is_registered(w->chunkd[i]))
			return false;
	return true;
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static void pass_ms(struct world *w, uint64_t ms)
{
	sim_run(w->sim, never, NULL, sim_now_ns(w->sim) + ms * MS);
}

static void world_open(struct world *w, uint64_t seed)
{
	struct client_options o = {.cluster = cluster, .buffer_bytes = 64 * MIB};

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->sim = sim_new(&(struct sim_options){.seed = seed});
	w->log = (struct log){.min_level = LOG_INFO, .write = write_log, .name = "sim"};
	w->metad_io = sim_host_add(w->sim, "metad-1", 256ull * MIB);
	make_dir(w->metad_io, "/metad");
	for (int i = 0; i < SERVERS; i++) {
		w->chunkd_io[i] = sim_host_add(w->sim, "chunkd", 256ull * MIB);
		make_dir(w->chunkd_io[i], "/state");
		make_dir(w->chunkd_io[i], "/disk");
	}
	w->client_io = sim_host_add(w->sim, "client", MIB);
	start_metad(w);
	for (int i = 0; i < SERVERS; i++)
		start_chunkd(w, i);
	ck_assert(sim_run(w->sim, all_registered, w, sim_now_ns(w->sim) + 60000 * MS));
	o.metads = (struct rpc_addrs){.count = 1, .addrs = {sim_host_addr(w->metad_io, 7000)}};
	w->client = client_new(w->client_io, &o);
	for (int i = 0; i < FILES; i++)
		snprintf(w->files[i].path, sizeof(w->files[i].path), "/f%c", 'a' + i);
}

static int down_count(const struct world *w)
{
	int n = 0;

	for (int i = 0; i < SERVERS; i++)
		n += !w->up[i] || w->cut[i];
	return n;
}

static void crash_chunkd(struct world *w, int i)
{
	if (!w->up[i] || down_count(w) >= 2)
		return;
	sim_host_crash(w->chunkd_io[i]);
	w->up[i] = false;
	w->crashes++;
}

static void restart_chunkd(struct world *w, int i)
{
	if (w->up[i])
		return;
	sim_host_restart(w->chunkd_io[i]);
	start_chunkd(w, i);
}

static void heal(struct world *w, int i)
{
	if (w->cut[i])
		sim_heal(w->client_io, w->chunkd_io[i]);
	w->cut[i] = false;
}

static void fault(struct world *w)
{
	int i = (int)pick(w, SERVERS);

	switch (pick(w, 12)) {
	case 0:
	case 1:
	case 7:
	case 8:
		crash_chunkd(w, i);
		break;
	case 2:
	case 3:
		restart_chunkd(w, i);
		break;
	case 4:
		if (down_count(w) < 2 && w->up[i] && !w->cut[i]) {
			sim_cut(w->client_io, w->chunkd_io[i]);
			w->cut[i] = true;
		}
		break;
	case 5:
		heal(w, i);
		break;
	case 6:
	case 9:
	case 10:
		sim_disk_slow(w->chunkd_io[i], pick(w, 3) ? 1 : 50);
		break;
	default:
		sim_host_crash(w->metad_io);
		sim_host_restart(w->metad_io);
		start_metad(w);
		w->metad_crashes++;
	}
}

static void all_up(struct world *w)
{
	for (int i = 0; i < SERVERS; i++) {
		heal(w, i);
		restart_chunkd(w, i);
		sim_disk_slow(w->chunkd_io[i], 1);
	}
	ck_assert(sim_run(w->sim, all_registered, w, sim_now_ns(w->sim) + 60000 * MS));
	/* Suspicion ends with a probe. */
	pass_ms(w, 5000);
}

/* ---- operations ---- */

static void op_done(struct client_op *op)
{
	((struct world *)op->user)->done = true;
}

static bool is_done(void *ctx)
{
	return ((struct world *)ctx)->done;
}

/* With `faults` in a hundred chances of one at each step of a few milliseconds. */
static int run(struct world *w, struct client_op *op, uint32_t faults)
{
	uint64_t end_ns = sim_now_ns(w->sim) + 600000 * MS;

	w->done = false;
	op->user = w;
	op->done = op_done;
	client_start(w->client, op);
	while (!sim_run(w->sim, is_done, w, sim_now_ns(w->sim) + 100000 + pick(w, 3 * MS))) {
		ck_assert_msg(sim_now_ns(w->sim) < end_ns, "seed %llu: an operation does not end",
			(unsigned long long)w->seed);
		if (pick(w, 100) < faults)
			fault(w);
	}
	return op->err.code;
}

static void put(struct world *w, struct file *f, uint32_t faults)
{
	uint64_t version = ++f->next, size = size_of(f, version), at = 0;
	uint8_t *data = mem_alloc(size + 1);
	struct client_op op = {.kind = CLIENT_OPEN, .path = f->path, .flags = CR_WRITE | CR_ATOMIC, .mode = 0644};
	struct client_file *file;
	int code;

	for (uint64_t i = 0; i < size; i++)
		data[i] = byte_of(f, version, i);
	w->puts++;
	code = run(w, &op, faults);
	file = op.ret_file;
	if (code == 0) {
		bool copy = pick(w, 2);

		while (code == 0 && copy && at < size) {
			uint64_t n = 1 + pick(w, 700000);

			n = n < size - at ? n : size - at;
			op = (struct client_op){.kind = CLIENT_WRITE,
				.file = file,
				.flags = CLIENT_WRITE_COPY,
				.buf = data + at,
				.len = n,
				.offset = at};
			code = run(w, &op, faults);
			at += n;
		}
		if (!copy && size > 0) {
			/* In place: done when committed, so a sync goes with it. */
			struct client_op sync = {.kind = CLIENT_FSYNC, .file = file, .user = w, .done = op_done};

			op = (struct client_op){.kind = CLIENT_WRITE,
				.file = file,
				.buf = data,
				.len = size,
				.user = w,
				.done = op_done};
			client_start(w->client, &op);
			code = run(w, &sync, faults);
			pass_ms(w, 1);
		}
		op = (struct client_op){.kind = CLIENT_CLOSE, .file = file};
		if (run(w, &op, faults) < 0 && code == 0)
			code = op.err.code;
	}
	if (code == 0) {
		f->acked = version;
		f->maybe = 0;
	} else {
		w->puts_failed++;
		f->maybe = version;
	}
	mem_free(data);
}

/* must: an error is a failure of the store. */
static void get(struct world *w, struct file *f, uint32_t faults, bool must)
{
	uint64_t offset = pick(w, 3) ? 0 : pick(w, MOST_BYTES), len = pick(w, 3) ? MOST_BYTES : 1 + pick(w, 300000);
	uint8_t *data = mem_alloc(MOST_BYTES);
	struct client_op op = {.kind = CLIENT_OPEN, .path = f->path, .flags = CR_READ};
	struct client_file *file;
	uint64_t count = 0;
	int code = run(w, &op, faults);

	w->gets++;
	file = op.ret_file;
	if (code == 0) {
		struct client_op close = {.kind = CLIENT_CLOSE, .file = file};

		op = (struct client_op){.kind = CLIENT_READ, .file = file, .buf = data, .len = len, .offset = offset};
		code = run(w, &op, faults);
		count = op.count;
		ck_assert_int_eq(run(w, &close, 0), 0);
	}
	if (code == ERR_NOENT && op.kind == CLIENT_OPEN)
		ck_assert_msg(!f->acked, "seed %llu: %s is gone", (unsigned long long)w->seed, f->path);
	else if (code < 0 && must)
		ck_abort_msg("seed %llu: %s", (unsigned long long)w->seed, op.err.text);
	else if (code < 0)
		w->gets_failed++;
	else
		ck_assert_msg(is_version(f, f->acked, data, offset, count, len) ||
				is_version(f, f->maybe, data, offset, count, len),
			"seed %llu: %s at %llu: other bytes", (unsigned long long)w->seed, f->path,
			(unsigned long long)offset);
	mem_free(data);
}

/* Flips a bit of one chunk, reads the file, flips it back. */
static void flip(struct world *w, struct file *f)
{
	struct client_op op = {.kind = CLIENT_INSPECT, .path = f->path};

	if (!f->acked || f->maybe || run(w, &op, 0) < 0 || op.count == 0) {
		mem_free(op.chunks);
		return;
	}
	for (int n = 0; n < 2; n++) {
		const struct cr_chunk_info *c = &op.chunks[pick(w, op.count)];
		int server = atoi(c->server_name + strlen("chunkd-")) - 1;
		bool trailer = pick(w, 4) == 0;
		uint64_t at = trailer ? c->trailer_offset + pick(w, 100) : c->segment_offset + pick(w, c->chunk_bytes);
		uint8_t bit = (uint8_t)pick(w, 8);

		if (c->state != CR_CHUNK_OK || !w->up[server])
			continue;
		ck_assert_int_eq(sim_flip_bit(w->chunkd_io[server], c->segment, at, bit), 0);
		get(w, f, 0, down_count(w) == 0);
		ck_assert_int_eq(sim_flip_bit(w->chunkd_io[server], c->segment, at, bit), 0);
		w->flips++;
	}
	mem_free(op.chunks);
}

static void closed(void *ctx)
{
	((struct world *)ctx)->done = true;
}

static void stop_all(struct world *w)
{
	w->done = false;
	client_close(w->client, closed, w);
	ck_assert(sim_run(w->sim, is_done, w, sim_now_ns(w->sim) + 60000 * MS));
	for (int i = 0; i < SERVERS; i++) {
		w->done = false;
		chunkd_stop(w->chunkd[i], closed, w);
		ck_assert(sim_run(w->sim, is_done, w, sim_now_ns(w->sim) + 60000 * MS));
	}
	w->done = false;
	metad_stop(w->metad, closed, w);
	ck_assert(sim_run(w->sim, is_done, w, sim_now_ns(w->sim) + 60000 * MS));
}

static uint64_t life(uint64_t seed, bool loud)
{
	static struct world world;
	struct world *w = &world;
	uint64_t hash;

	world_open(w, seed);
	for (int step = 0; step < STEPS; step++) {
		struct file *f = &w->files[pick(w, FILES)];
		uint32_t faults = step % 3 ? (uint32_t)pick(w, 50) : 0;

		switch (pick(w, 8)) {
		case 0:
		case 1:
		case 2:
			put(w, f, faults);
			break;
		case 3:
			all_up(w);
			break;
		case 4:
			flip(w, f);
			break;
		default:
			get(w, f, faults, false);
		}
	}
	all_up(w);
	for (int i = 0; i < FILES; i++)
		get(w, &w->files[i], 0, true);
	stop_all(w);
	hash = sim_event_hash(w->sim);
	if (loud)
		printf("seed %llu: %u puts (%u failed), %u gets (%u failed), %u crashes of chunkd, %u of metad, %u flips, %llu events, %llu s\n",
			(unsigned long long)seed, w->puts, w->puts_failed, w->gets, w->gets_failed, w->crashes,
			w->metad_crashes, w->flips, (unsigned long long)sim_event_count(w->sim),
			(unsigned long long)(sim_now_ns(w->sim) / (1000 * MS)));
	fflush(stdout);
	sim_free(w->sim);
	return hash;
}

static uint64_t from_env(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

START_TEST(test_random_lives)
{
	uint64_t first = from_env("CRATON_SIM_SEED", 1),
		 runs = from_env("CRATON_SIM_RUNS", getenv("CRATON_SIM_SEED") ? 1 : 6);

	for (uint64_t seed = first; seed < first + runs; seed++)
		life(seed, true);
}
END_TEST

START_TEST(test_same_seed_same_events)
{
	uint64_t seed = from_env("CRATON_SIM_SEED", 77);

	ck_assert_uint_eq(life(seed, false), life(seed, false));
	ck_assert_uint_ne(life(seed, false), life(seed + 1, false));
}
END_TEST

UNIT_MAIN("store in the simulator", test_random_lives, test_same_seed_same_events)
