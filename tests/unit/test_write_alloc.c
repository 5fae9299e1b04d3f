/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks for a file that is written, by a metad that answers what this test wants. */
#include <stdio.h>
#include <string.h>
#include "client/client.h"
#include "client/client_priv.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/ec.h"
#include "common/code/token.h"
#include "common/io/io_sim.h"
#include "common/rpc/methods.h"
#include "proto/metad.pb-c.h"
#include "tests/lib/unit.h"

#define SECOND_NS 1000000000ull
#define MIB ((uint64_t)1 << 20)

static const struct uuid cluster = {{1, 2, 3}};

static struct {
	struct sim *sim;
	struct io *metad_io, *client_io, *chunkd_io, *silent_io;
	struct rpc_server *server;
	struct client *client;
	uint32_t allocates; /* requests for blocks alone */
	size_t avoided;     /* disks that the last of them wants to avoid */
	bool avoiding;      /* no block is asked for with a file: what is avoided is named in a request of its own */
	int allocate_status;
	/* The disks of data chunk 0 and of both parity chunks, if blocks are given: these refuse for want of room, the others do not answer. */
	bool full[3];
	uint32_t spares;
	bool spares_full;
	struct rpc_server *chunkd;
	struct io_addr chunkd_addr, dead_addr;
	Craton__DfReply df;
	bool done;
} bed, *const b = &bed;

static void session_opened(void *ctx, struct rpc_req *req)
{
	Craton__SessionOpenReply reply = CRATON__SESSION_OPEN_REPLY__INIT;

	(void)ctx;
	reply.session = 1;
	reply.secret = 2;
	reply.timeout_ms = 60000;
	rpc_reply(req, &(struct rpc_reply){.msg = &reply.base});
}

static void yes(void *ctx, struct rpc_req *req)
{
	(void)ctx;
	rpc_reply_status(req, 0);
}

/* With a block that has no targets. */
static void created(void *ctx, struct rpc_req *req)
{
	Craton__CreateReply reply = CRATON__CREATE_REPLY__INIT;
	Craton__AllocateReply allocated = CRATON__ALLOCATE_REPLY__INIT;
	Craton__Allocation block = CRATON__ALLOCATION__INIT, *blocks[] = {&block};
	Craton__Policy policy = CRATON__POLICY__INIT;
	Craton__Attr attr = CRATON__ATTR__INIT;

	(void)ctx;
	ck_assert(((const Craton__CreateRequest *)req->msg)->allocate != b->avoiding);
	attr.inode = 7;
	attr.type = CR_TYPE_FILE;
	policy.policy = EC_POLICY_DEFAULT;
	policy.cell_bytes = MIB;
	policy.chunk_bytes = 4 * MIB;
	block.block = 9;
	allocated.blocks = blocks;
	allocated.n_blocks = 1;
	reply.attr = &attr;
	reply.policy = &policy;
	reply.epoch = 1;
	reply.allocated = b->avoiding ? NULL : &allocated;
	rpc_reply(req, &(struct rpc_reply){.msg = &reply.base});
}

static void allocated(void *ctx, struct rpc_req *req)
{
	static uint8_t token[TOKEN_BYTES];
	char alive[IO_ADDR_TEXT_BYTES], dead[IO_ADDR_TEXT_BYTES], name[] = "chunkd";
	Craton__AllocateReply reply = CRATON__ALLOCATE_REPLY__INIT;
	Craton__Allocation block = CRATON__ALLOCATION__INIT, *blocks[] = {&block};
	Craton__Target target[8], *targets[8];
	Craton__Disk disk[8], *disks[8];

	(void)ctx;
	b->allocates++;
	b->avoided = ((const Craton__AllocateRequest *)req->msg)->n_avoid_disks;
	if (b->allocate_status) {
		rpc_reply_status(req, b->allocate_status);
		return;
	}
	io_addr_format(&b->chunkd_addr, alive);
	io_addr_format(&b->dead_addr, dead);
	for (uint32_t i = 0; i < 6 + b->spares; i++) {
		bool full = i >= 6 ? b->spares_full : b->full[i < 4 ? 0 : i - 3];

		craton__target__init(target + i);
		craton__disk__init(disk + i);
		targets[i] = &target[i];
		disks[i] = &disk[i];
		target[i].index = i;
		target[i].disk = disk[i].disk = disk[i].domain = i + 1;
		target[i].token = (ProtobufCBinaryData){.data = token, .len = sizeof(token)};
		disk[i].server = full ? 1 : 2;
		disk[i].address = full ? alive : dead;
		disk[i].server_name = name;
		disk[i].up = true;
	}
	block.block = 10 + b->allocates;
	block.targets = targets;
	block.n_targets = 6;
	block.spares = targets + 6;
	block.n_spares = b->spares;
	reply.blocks = blocks;
	reply.n_blocks = 1;
	reply.disks = disks;
	reply.n_disks = 6 + b->spares;
	rpc_reply(req, &(struct rpc_reply){.msg = &reply.base});
}

static int place_nothing(void *ctx, struct rpc_req *req)
{
	(void)ctx;
	(void)req;
	return ERR_NO_EXTENT;
}

static void never(void *ctx, struct rpc_req *req)
{
	(void)ctx;
	(void)req;
	ck_abort();
}

/* Of a metad of now, or of one before the fields that say what can be written. */
static void df_told(void *ctx, struct rpc_req *req)
{
	(void)ctx;
	rpc_reply(req, &(struct rpc_reply){.msg = &b->df.base});
}

static const struct rpc_handler chunkd_handlers[] = {
	{.method = &rpc_chunkd_put, .handle = yes, .place = place_nothing, .abandoned = never},
	{.method = &rpc_chunkd_drop_upload, .handle = yes},
	{0},
};

static const struct rpc_handler handlers[] = {
	{.method = &rpc_metad_session_open, .handle = session_opened},
	{.method = &rpc_metad_session_close, .handle = yes},
	{.method = &rpc_metad_create, .handle = created},
	{.method = &rpc_metad_abort, .handle = yes},
	{.method = &rpc_metad_allocate, .handle = allocated},
	{.method = &rpc_metad_df, .handle = df_told},
	{0},
};

static bool is_done(void *ctx)
{
	(void)ctx;
	return b->done;
}

static void wait_done(void)
{
	ck_assert(sim_run(b->sim, is_done, NULL, sim_now_ns(b->sim) + 100 * SECOND_NS));
	b->done = false;
}

static void set_done(void *ctx)
{
	(void)ctx;
	b->done = true;
}

static void op_done(struct client_op *op)
{
	(void)op;
	b->done = true;
}

static int run_op(struct client_op *op)
{
	op->done = op_done;
	client_start(b->client, op);
	wait_done();
	return op->err.code;
}

static void bed_open(void)
{
	struct rpc_server_options so = {
		.self = {.cluster = cluster, .role = RPC_ROLE_METAD, .name = "metad"}, .handlers = handlers};
	struct client_options co = {.cluster = cluster};
	struct err err = {0};

	memset(b, 0, sizeof(*b));
	b->sim = sim_new(&(struct sim_options){.seed = 1});
	b->metad_io = sim_host_add(b->sim, "metad", 64 * MIB);
	b->client_io = sim_host_add(b->sim, "client", 64 * MIB);
	so.listen = sim_host_addr(b->metad_io, 7000);
	co.metads = (struct rpc_addrs){.count = 1, .addrs = {so.listen}};
	ck_assert_msg(rpc_server_open(b->metad_io, &so, &b->server, &err) == 0, "%s", err.text);
	b->client = client_new(b->client_io, &co);
	so = (struct rpc_server_options){
		.self = {.cluster = cluster, .role = RPC_ROLE_CHUNKD, .name = "chunkd"}, .handlers = chunkd_handlers};
	b->chunkd_io = sim_host_add(b->sim, "chunkd", 64 * MIB);
	so.listen = b->chunkd_addr = sim_host_addr(b->chunkd_io, 7000);
	b->dead_addr = sim_host_addr(b->chunkd_io, 7001);
	b->silent_io = sim_host_add(b->sim, "silent", 64 * MIB);
	sim_cut(b->client_io, b->silent_io);
	ck_assert_msg(rpc_server_open(b->chunkd_io, &so, &b->chunkd, &err) == 0, "%s", err.text);
}

static void bed_close(void)
{
	client_close(b->client, set_done, NULL);
	wait_done();
	rpc_server_close(b->server, set_done, NULL);
	wait_done();
	rpc_server_close(b->chunkd, set_done, NULL);
	wait_done();
	sim_free(b->sim);
}

/* A first block that cannot be written to does no harm: the file is there, and blocks are asked for. What the answer to that is, is said. */
START_TEST(test_first_block_is_malformed)
{
	static uint8_t data[1000];
	struct client_op op = {.kind = CLIENT_OPEN, .path = "/f", .flags = CR_WRITE, .mode = 0644};
	struct client_file *file;

	bed_open();
	b->allocate_status = ERR_NO_PLACEMENT;
	ck_assert_int_eq(run_op(&op), 0);
	file = op.ret_file;
	op = (struct client_op){
		.kind = CLIENT_WRITE, .file = file, .buf = data, .len = sizeof(data), .flags = CLIENT_WRITE_COPY};
	if (run_op(&op) == 0) { /* it may be heard of at once */
		op = (struct client_op){.kind = CLIENT_FSYNC, .file = file};
		run_op(&op);
	}
	ck_assert_int_eq(op.err.code, ERR_NO_PLACEMENT);
	ck_assert_ptr_nonnull(strstr(op.err.text, "no room for a block"));
	ck_assert_uint_eq(b->allocates, 1);
	op = (struct client_op){.kind = CLIENT_ABORT, .file = file};
	ck_assert_int_eq(run_op(&op), 0);
	bed_close();
}
END_TEST

/* What a write of so many bytes ends with; *ret_text: what was said. */
static int write_bytes(size_t len, const char **ret_text)
{
	static uint8_t data[4 * MIB];
	static struct client_op op;
	struct client_file *file;
	int code;

	op = (struct client_op){.kind = CLIENT_OPEN, .path = "/f", .flags = CR_WRITE, .mode = 0644};
	ck_assert_int_eq(run_op(&op), 0);
	file = op.ret_file;
	op = (struct client_op){
		.kind = CLIENT_WRITE, .file = file, .buf = data, .len = len, .flags = CLIENT_WRITE_COPY};
	code = run_op(&op);
	if (code == 0) {
		op = (struct client_op){.kind = CLIENT_FSYNC, .file = file};
		code = run_op(&op);
	}
	*ret_text = op.err.text;
	return code;
}

static int write_some(const char **ret_text)
{
	return write_bytes(1000, ret_text);
}

/* A disk that had no room for a chunk is one for shorter ones, until it refuses such a one, too. */
START_TEST(test_no_room_for_long_chunks)
{
	static const struct {
		uint64_t refused, written;
		size_t avoided;
	} cases[] = {{4 * MIB, 4 * MIB, 1}, {4 * MIB, 1000, 0}, {1001, 1000, 0}, {1000, 1000, 1}, {4 * MIB, 1000, 1}};
	Craton__Disk disk = CRATON__DISK__INIT, *disks[] = {&disk};
	char address[IO_ADDR_TEXT_BYTES];
	const char *text;

	bed_open();
	b->allocate_status = ERR_NO_PLACEMENT;
	b->avoiding = true;
	disk.disk = disk.server = disk.domain = 3;
	disk.up = true;
	disk.address = address;
	io_addr_format(&b->chunkd_addr, address);
	disks_learn(&b->client->disks, disks, 1);
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		disks_had_no_room(&b->client->disks, 3, cases[i].refused);
		ck_assert_int_eq(write_bytes(cases[i].written, &text), ERR_NO_PLACEMENT);
		ck_assert_msg(b->avoided == cases[i].avoided, "case %zu", i);
	}
	bed_close();
}
END_TEST

/* A block of few bytes has three chunks and needs two: the store is full if room is what it fails for, whoever is down beside it. */
START_TEST(test_full_or_broken)
{
	static const struct {
		bool full[3];
		int code;
	} cases[] = {
		{{true, true, true}, ERR_NOSPC},
		{{true, true, false}, ERR_NOSPC},
		{{false, true, true}, ERR_NOSPC},
		{{true, false, false}, ERR_TOO_FEW_CHUNKS},
		{{false, false, true}, ERR_TOO_FEW_CHUNKS},
	};

	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		const char *text;

		bed_open();
		memcpy(b->full, cases[i].full, sizeof(b->full));
		ck_assert_msg(write_some(&text) == cases[i].code, "case %zu: %s", i, text);
		ck_assert(!strstr(text, "gc.grace") == (cases[i].code != ERR_NOSPC));
		bed_close();
	}
}
END_TEST

/* Those that are down do not answer, so that who is full was heard again meanwhile. What counts of a chunk is the last server it went to. */
START_TEST(test_full_or_broken_spares)
{
	static const struct {
		bool full[3];
		uint32_t spares;
		bool spares_full;
		int code;
	} cases[] = {
		{{true, true, true}, 1, false, ERR_NOSPC},
		{{true, true, false}, 1, true, ERR_NOSPC},
		{{true, true, false}, 2, false, ERR_TOO_FEW_CHUNKS},
	};

	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		const char *text;

		bed_open();
		memcpy(b->full, cases[i].full, sizeof(b->full));
		b->spares = cases[i].spares;
		b->spares_full = cases[i].spares_full;
		b->dead_addr = sim_host_addr(b->silent_io, 7000);
		ck_assert_msg(write_some(&text) == cases[i].code, "case %zu: %s", i, text);
		bed_close();
	}
}
END_TEST

/* One that is older does not say what can be written: that is not nothing. One in between says it, and not that it does. */
START_TEST(test_df_of_an_older_metad)
{
	static const struct {
		uint64_t available_bytes, shown;
		bool known;
	} cases[] = {{0, CR_DF_UNKNOWN, false}, {7, 7, false}, {0, 0, true}, {7, 7, true}};

	bed_open();
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct client_op op = {.kind = CLIENT_DF};

		craton__df_reply__init(&b->df);
		b->df.total_bytes = 100;
		b->df.available_bytes = cases[i].available_bytes;
		b->df.available_known = cases[i].known;
		ck_assert_msg(run_op(&op) == 0, "%s", op.err.text);
		ck_assert_uint_eq(op.df.total_bytes, 100);
		ck_assert_uint_eq(op.df.available_bytes, cases[i].shown);
	}
	bed_close();
}
END_TEST

UNIT_MAIN("write_alloc", test_no_room_for_long_chunks, test_df_of_an_older_metad, test_first_block_is_malformed, test_full_or_broken, test_full_or_broken_spares)
