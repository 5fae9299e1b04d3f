/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that lives while metad ends its session, as it was cut off for longer than a session may be silent: it is told so, what is under way
 * ends with an outcome that is unknown, what was acknowledged is there, its leases and open files are gone, and what it asks for then is done in
 * another session.
 */
#include <string.h>
#include "client/client_priv.h"
#include "metad/core.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"
#include "tests/sim/cluster.h"

enum { FILE_BYTES = 200 << 10, LIVING = 0, OTHER = 1 };
#define SILENCE_NS ((LIMIT_SESSION_MS + 10000) * CLUSTER_MS)

static struct cluster *c;
static uint8_t data[FILE_BYTES], back[FILE_BYTES];

static struct client *client_of(unsigned client)
{
	return c->nodes[c->first_client + client].client;
}

static void op_done(struct client_op *op)
{
	*(bool *)op->user = true;
}

static bool is_true(void *ctx)
{
	return *(bool *)ctx;
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static bool all_registered(void *ctx)
{
	return cluster_all_registered(ctx);
}

static void pass(uint64_t ns)
{
	sim_run(c->sim, never, NULL, sim_now_ns(c->sim) + ns);
	ck_assert_msg(!c->failed, "%s", c->text);
}

static void begin(unsigned client, struct client_op *op, bool *done)
{
	*done = false;
	op->done = op_done;
	op->user = done;
	client_start(client_of(client), op);
}

static int ended(struct client_op *op)
{
	ck_assert(sim_run(c->sim, is_true, op->user, sim_now_ns(c->sim) + 100 * CLUSTER_S));
	return op->err.code;
}

static int run(unsigned client, struct client_op *op)
{
	bool done;

	begin(client, op, &done);
	return ended(op);
}

#define RUN(client, ...) run(client, &(struct client_op){__VA_ARGS__})

static struct client_file *opened(unsigned client, const char *path, uint32_t flags)
{
	struct client_op op = {.kind = CLIENT_OPEN, .path = path, .flags = flags, .mode = 0644};

	ck_assert_msg(run(client, &op) == 0, "%s", op.err.text);
	return op.ret_file;
}

static int append(unsigned client, struct client_file *f, uint64_t offset)
{
	return RUN(client, .kind = CLIENT_WRITE, .flags = CLIENT_WRITE_COPY, .file = f, .buf = data, .len = FILE_BYTES, .offset = offset);
}

static void put(unsigned client, const char *path)
{
	struct client_file *f = opened(client, path, CR_WRITE);

	ck_assert_int_eq(append(client, f, 0), 0);
	ck_assert_int_eq(RUN(client, .kind = CLIENT_CLOSE, .file = f), 0);
}

/* How many bytes the file has; the first FILE_BYTES of them are as they were written. */
static uint64_t length(unsigned client, const char *path)
{
	struct client_op op = {.kind = CLIENT_OPEN, .path = path, .flags = CR_READ};
	uint64_t size;

	ck_assert_msg(run(client, &op) == 0, "%s", op.err.text);
	size = op.attr.size;
	op = (struct client_op){.kind = CLIENT_READ, .file = op.ret_file, .buf = back, .len = FILE_BYTES};
	ck_assert_msg(run(client, &op) == 0, "%s", op.err.text);
	ck_assert_uint_eq(op.count, FILE_BYTES);
	ck_assert_mem_eq(back, data, FILE_BYTES);
	ck_assert_int_eq(RUN(client, .kind = CLIENT_CLOSE, .file = op.file), 0);
	return size;
}

static void cut(bool off)
{
	for (unsigned i = 0; i < cluster_metads(c); i++)
		(off ? sim_cut : sim_heal)(c->nodes[c->first_client + LIVING].io, c->nodes[cluster_metad_node(c, i)].io);
}

static uint64_t session(void)
{
	return client_of(LIVING)->session.id;
}

static void setup(unsigned metads)
{
	struct cluster_options o = {.seed = 5, .metads = metads, .chunkds = 6, .clients = 2, .strict = true};

	for (unsigned i = 0; i < o.chunkds; i++)
		o.disks[i] = 1;
	c = cluster_new(&o);
	cluster_start_all(c);
	ck_assert(sim_run(c->sim, all_registered, c, 60 * CLUSTER_S));
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31 + i / 251);
	ck_assert_int_eq(RUN(LIVING, .kind = CLIENT_MKDIR, .path = "/before", .mode = 0755), 0);
	ck_assert_uint_ne(session(), 0);
}

/* With nothing under way it is the renewal that finds out; then nothing fails. */
static void at_rest(unsigned metads)
{
	uint64_t first;

	setup(metads);
	first = session();
	cut(true);
	pass(SILENCE_NS);
	cut(false);
	pass(2 * SESSION_RENEW_NS);
	ck_assert_uint_ne(session(), first);
	ck_assert_int_eq(RUN(LIVING, .kind = CLIENT_MKDIR, .path = "/after", .mode = 0755), 0);
	put(LIVING, "/file");
	ck_assert_uint_eq(length(OTHER, "/file"), FILE_BYTES);
	ck_assert_uint_ne(session(), 0);
}

START_TEST(test_at_rest) { at_rest(0); }
END_TEST

START_TEST(test_at_rest_in_a_group) { at_rest(3); }
END_TEST

/* Several calls wait for metad when it is heard again: none of them is done, each says that it is unknown, and the next one is. */
START_TEST(test_calls_under_way)
{
	static char paths[4][8];
	struct client_op ops[4];
	bool done[4];
	uint64_t first;

	setup(0);
	first = session();
	cut(true);
	pass(SILENCE_NS);
	for (int i = 0; i < 4; i++) {
		snprintf(paths[i], sizeof(paths[i]), "/lost%d", i);
		ops[i] = (struct client_op){.kind = CLIENT_MKDIR, .path = paths[i], .mode = 0755};
		begin(LIVING, &ops[i], &done[i]);
	}
	pass(5 * CLUSTER_S);
	cut(false);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(ended(&ops[i]), ERR_SESSION_LOST);
		ck_assert_ptr_nonnull(strstr(ops[i].err.text, "has ended this client's session"));
	}
	ck_assert_uint_ne(session(), first);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(RUN(OTHER, .kind = CLIENT_STAT, .path = paths[i]), ERR_NOENT);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(RUN(LIVING, .kind = CLIENT_MKDIR, .path = paths[i], .mode = 0755), 0);
}
END_TEST

/* A writer loses its lease with its session: another one may write at once, and what the first one had acknowledged is there, and no more. */
START_TEST(test_a_writer)
{
	struct client_file *f, *g;
	struct client_op op;
	bool done;

	setup(0);
	f = opened(LIVING, "/file", CR_WRITE);
	ck_assert_int_eq(append(LIVING, f, 0), 0);
	ck_assert_int_eq(RUN(LIVING, .kind = CLIENT_FSYNC, .file = f), 0);
	cut(true);
	pass(SILENCE_NS);
	ck_assert_int_eq(append(LIVING, f, FILE_BYTES), 0); /* into its memory, and to chunk servers */
	op = (struct client_op){.kind = CLIENT_FSYNC, .file = f};
	begin(LIVING, &op, &done);
	pass(CLUSTER_S);
	g = opened(OTHER, "/file", CR_WRITE | CR_APPEND);
	ck_assert_int_eq(append(OTHER, g, FILE_BYTES), 0);
	ck_assert_int_eq(RUN(OTHER, .kind = CLIENT_CLOSE, .file = g), 0);
	cut(false);
	ck_assert_int_lt(ended(&op), 0);
	ck_assert_int_lt(RUN(LIVING, .kind = CLIENT_CLOSE, .file = f), 0);
	ck_assert_uint_eq(length(OTHER, "/file"), 2 * FILE_BYTES);
	put(LIVING, "/another");
	ck_assert_uint_eq(length(OTHER, "/another"), FILE_BYTES);
}
END_TEST

/* A file that was removed is kept for those who have it open, and no longer than their sessions: a reader is told, and never given other bytes. */
START_TEST(test_a_reader)
{
	struct client_file *f;
	struct client_op op;

	setup(0);
	put(OTHER, "/file");
	f = opened(LIVING, "/file", CR_READ);
	pass(2 * SESSION_RENEW_NS);
	ck_assert_int_eq(RUN(OTHER, .kind = CLIENT_UNLINK, .path = "/file"), 0);
	pass(30 * CLUSTER_S);
	op = (struct client_op){.kind = CLIENT_READ, .file = f, .buf = back, .len = FILE_BYTES};
	ck_assert_int_eq(run(LIVING, &op), 0);
	ck_assert_uint_eq(op.count, FILE_BYTES);
	cut(true);
	pass(600 * CLUSTER_S);
	put(OTHER, "/in-its-place");
	cut(false);
	pass(2 * SESSION_RENEW_NS);
	memset(back, 0, sizeof(back));
	op = (struct client_op){.kind = CLIENT_READ, .file = f, .buf = back, .len = FILE_BYTES};
	ck_assert_int_lt(run(LIVING, &op), 0);
	(void)RUN(LIVING, .kind = CLIENT_CLOSE, .file = f);
	ck_assert_uint_eq(length(LIVING, "/in-its-place"), FILE_BYTES);
}
END_TEST

UNIT_MAIN("session", test_at_rest, test_at_rest_in_a_group, test_calls_under_way, test_a_writer, test_a_reader)
