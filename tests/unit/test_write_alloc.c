/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks for a file that is written, by a metad that answers what this test wants. */
#include <stdio.h>
#include <string.h>
#include "client/client.h"
#include "common/base/mem.h"
#include "common/code/ec.h"
#include "common/io/io_sim.h"
#include "common/rpc/methods.h"
#include "proto/metad.pb-c.h"
#include "tests/lib/unit.h"

#define SECOND_NS 1000000000ull
#define MIB ((uint64_t)1 << 20)

static const struct uuid cluster = {{1, 2, 3}};

static struct {
	struct sim *sim;
	struct io *metad_io, *client_io;
	struct rpc_server *server;
	struct client *client;
	uint32_t allocates; /* requests for blocks alone */
	int allocate_status;
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
	ck_assert(((const Craton__CreateRequest *)req->msg)->allocate);
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
	reply.allocated = &allocated;
	rpc_reply(req, &(struct rpc_reply){.msg = &reply.base});
}

static void allocated(void *ctx, struct rpc_req *req)
{
	(void)ctx;
	b->allocates++;
	rpc_reply_status(req, b->allocate_status);
}

static const struct rpc_handler handlers[] = {
	{.method = &rpc_metad_session_open, .handle = session_opened},
	{.method = &rpc_metad_session_close, .handle = yes},
	{.method = &rpc_metad_create, .handle = created},
	{.method = &rpc_metad_abort, .handle = yes},
	{.method = &rpc_metad_allocate, .handle = allocated},
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
	so.listen = co.metad = sim_host_addr(b->metad_io, 7000);
	ck_assert_msg(rpc_server_open(b->metad_io, &so, &b->server, &err) == 0, "%s", err.text);
	b->client = client_new(b->client_io, &co);
}

static void bed_close(void)
{
	client_close(b->client, set_done, NULL);
	wait_done();
	rpc_server_close(b->server, set_done, NULL);
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

UNIT_MAIN("write_alloc", test_first_block_is_malformed)
