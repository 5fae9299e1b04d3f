/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/bench_small.h"

#include <stdio.h>
#include <string.h>
#include "client/cli/bench.h"
#include "client/cli/bench_load.h"
#include "client/client.h"
#include "client/config.h"
#include "client/disks.h"
#include "client/session.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/code/ec.h"
#include "common/code/stripe.h"
#include "common/rpc/methods.h"

enum { TOP_BYTES = 48, PATH_BYTES = 96, FILES_PER_DIR = 1000, COPIES = 3, UNITS_MAX = BENCH_SMALL_BYTES_MAX / LIMIT_UNIT_BYTES, STOCK = LIMIT_ALLOCATE_BLOCKS };

#define TIMEOUT_NS (30ull * 1000 * 1000 * 1000)

struct bench_run {
	struct cli *cli;
	struct io *io;
	struct config config;
	struct rng rng;
	const struct bench_small_options *options;
	uint8_t *data;          /* of every file or object */
	char top[TOP_BYTES];
	struct load_result result;
	bool leaving;           /* a failed run's traces go: what is not there needs not */
	struct client *client;  /* files */
	/* objects */
	struct session session;
	struct disks disks;
	uint64_t inode, epoch;
	uint32_t unit_crcs[UNITS_MAX], chunk_crc;
};

static double daemons_cpu_s(const void *arg)
{
	return bench_daemons_look(((const struct bench_run *)arg)->config.path).cpu_s;
}

static void stop(void *ctx)
{
	io_stop(((struct bench_run *)ctx)->io);
}

static int run_load(struct bench_run *b, bool (*start)(struct load_slot *slot), uint64_t count, size_t slot_bytes, bool stops,
                    struct load_result *ret_result, struct err *err)
{
	uint32_t slots = (uint32_t)b->options->in_flight;
	void *slot = mem_array(slots, slot_bytes);
	struct load load = {.io = b->io, .count = count, .start = start, .ctx = b, .stops = stops, .server_cpu_s = daemons_cpu_s, .server = b};
	int code = load_run(&load, slot, slot_bytes, slots, ret_result);

	if (code)
		*err = load.err;
	mem_free(slot);
	return code;
}

/* ---- files ---- */

struct file_slot {
	struct load_slot load; /* first */
	struct client_op open, write, close;
	char path[PATH_BYTES];
};

static struct bench_run *run_of(const struct load_slot *slot)
{
	return slot->load->ctx;
}

static void file_path(const struct bench_run *b, uint64_t number, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "/%s/%06llu/%09llu", b->top, (unsigned long long)(number / FILES_PER_DIR), (unsigned long long)number);
}

static void closed(struct client_op *op)
{
	struct file_slot *s = op->user;
	const struct err *err = s->write.err.code ? &s->write.err : &op->err;

	load_done(&s->load, err->code, err->text, 1);
}

static void written(struct client_op *op)
{
	(void)op; /* the close comes after it */
}

static void opened(struct client_op *op)
{
	struct file_slot *s = op->user;
	struct bench_run *b = run_of(&s->load);

	if (op->err.code) {
		load_done(&s->load, op->err.code, op->err.text, 0);
		return;
	}
	s->write = (struct client_op){.kind = CLIENT_WRITE, .done = written, .file = op->ret_file, .buf = b->data, .len = b->options->bytes};
	s->close = (struct client_op){.kind = CLIENT_CLOSE, .done = closed, .file = op->ret_file, .user = s};
	client_start(b->client, &s->write);
	client_start(b->client, &s->close);
}

static bool start_file(struct load_slot *slot)
{
	struct file_slot *s = CONTAINER_OF(slot, struct file_slot, load);
	struct bench_run *b = run_of(slot);

	file_path(b, slot->number, s->path);
	s->open = (struct client_op){
		.kind = CLIENT_OPEN, .done = opened, .path = s->path, .flags = CR_WRITE | CR_ATOMIC, .mode = 0644, .user = s};
	client_start(b->client, &s->open);
	return true;
}

static void name_done(struct client_op *op)
{
	struct file_slot *s = op->user;
	bool was_gone = run_of(&s->load)->leaving && op->err.code == ERR_NOENT;

	load_done(&s->load, was_gone ? 0 : op->err.code, op->err.text, 1);
}

static void start_name(struct file_slot *s, enum client_op_kind kind)
{
	s->open = (struct client_op){.kind = kind, .done = name_done, .path = s->path, .mode = 0755, .user = s};
	client_start(run_of(&s->load)->client, &s->open);
}

static void dir_path(struct file_slot *s)
{
	snprintf(s->path, sizeof(s->path), "/%s/%06llu", run_of(&s->load)->top, (unsigned long long)s->load.number);
}

static bool start_mkdir(struct load_slot *slot)
{
	struct file_slot *s = CONTAINER_OF(slot, struct file_slot, load);

	dir_path(s);
	start_name(s, CLIENT_MKDIR_PARENTS);
	return true;
}

static bool start_rmdir(struct load_slot *slot)
{
	struct file_slot *s = CONTAINER_OF(slot, struct file_slot, load);

	dir_path(s);
	start_name(s, CLIENT_RMDIR);
	return true;
}

static bool start_unlink(struct load_slot *slot)
{
	struct file_slot *s = CONTAINER_OF(slot, struct file_slot, load);

	file_path(run_of(slot), slot->number, s->path);
	start_name(s, CLIENT_UNLINK);
	return true;
}

static bool start_rmdir_top(struct load_slot *slot)
{
	struct file_slot *s = CONTAINER_OF(slot, struct file_slot, load);

	snprintf(s->path, sizeof(s->path), "/%s", run_of(slot)->top);
	start_name(s, CLIENT_RMDIR);
	return true;
}

static int remove_files(struct bench_run *b, uint64_t dirs, uint64_t count, struct err *err)
{
	struct load_result ignored;
	int code = run_load(b, start_unlink, count, sizeof(struct file_slot), false, &ignored, err);

	if (!code)
		code = run_load(b, start_rmdir, dirs, sizeof(struct file_slot), false, &ignored, err);
	return code ? code : run_load(b, start_rmdir_top, 1, sizeof(struct file_slot), false, &ignored, err);
}

static int files(struct bench_run *b, struct err *err)
{
	uint64_t dirs = (b->options->count + FILES_PER_DIR - 1) / FILES_PER_DIR;
	struct client_options co = {.metads = b->config.metads, .cluster = b->config.cluster, .name = "bench", .transform = b->config.transform,
	                            .tail_bytes = b->config.tail_bytes};
	struct load_result made = {0};
	struct err ignored;
	int code;

	b->client = client_new(b->io, &co);
	code = run_load(b, start_mkdir, dirs, sizeof(struct file_slot), true, &made, err);
	if (!code)
		code = run_load(b, start_file, b->options->count, sizeof(struct file_slot), true, &b->result, err);
	b->leaving = code != 0;
	if (!code && !b->options->keep)
		code = remove_files(b, made.begun, b->result.begun, err);
	else if (code && !cli_is_away(-err_to_errno(code)))
		remove_files(b, made.begun, b->result.begun, &ignored);
	client_close(b->client, stop, b);
	io_run(b->io);
	return code;
}

/* ---- objects ---- */

struct target {
	uint32_t disk, incarnation;
	uint8_t token[64]; /* TOKEN_BYTES */
};

struct stocked {
	uint64_t block;
	struct target targets[COPIES];
};

struct object_put {
	struct rpc_call call;
	struct object_slot *slot;
	Craton__PutRequest request;
	Craton__Copy copy;
	Craton__Seal seal;
	struct iovec iov;
	uint32_t unit_crcs[UNITS_MAX], list[UNITS_MAX];
};

struct object_slot {
	struct load_slot load; /* first */
	struct session_call allocate;
	Craton__AllocateRequest request;
	struct stocked stock[STOCK];
	uint32_t stocked;
	struct object_put puts[COPIES];
	uint32_t active;
	int code;
};

static void put_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct object_slot *s = CONTAINER_OF(call, struct object_put, call)->slot;
	const Craton__PutReply *reply = (const Craton__PutReply *)msg;
	char text[ERR_TEXT_BYTES];

	(void)payload_len;
	if (status == 0 && (!reply || reply->mac.len == 0))
		status = ERR_PROTO;
	if (status && !s->code)
		s->code = status;
	if (--s->active)
		return;
	snprintf(text, sizeof(text), "put of a chunk: %s", err_text(s->code));
	load_done(&s->load, s->code, text, 1);
}

static void put_start(struct object_slot *s, const struct stocked *from, uint8_t index)
{
	struct bench_run *b = run_of(&s->load);
	const struct target *t = &from->targets[index];
	struct object_put *p = &s->puts[index];
	uint32_t units = stripe_unit_count(b->options->bytes);
	struct rpc_peer *peer = disks_peer(&b->disks, t->disk);

	CHECK(peer); /* its disk came with the allocation */
	p->slot = s;
	craton__put_request__init(&p->request);
	craton__copy__init(&p->copy);
	craton__seal__init(&p->seal);
	p->copy.block = from->block;
	p->copy.index = index;
	p->copy.incarnation = t->incarnation;
	p->copy.disk = t->disk;
	memcpy(p->unit_crcs, b->unit_crcs, units * sizeof(uint32_t));
	stripe_mask_units(from->block, index, 0, units, p->unit_crcs);
	p->seal.length = p->seal.block_length = b->options->bytes;
	p->seal.chunk_crc = b->chunk_crc;
	p->seal.cell_bytes = LIMIT_CELL_BYTES;
	if (index > 0) { /* parity: with the list of the one data chunk */
		memcpy(p->list, b->unit_crcs, units * sizeof(uint32_t));
		stripe_mask_units(from->block, 0, 0, units, p->list);
		p->seal.data_lists = (ProtobufCBinaryData){units * sizeof(uint32_t), (uint8_t *)p->list};
	}
	p->request.token = (ProtobufCBinaryData){sizeof(t->token), (uint8_t *)(uintptr_t)t->token};
	p->request.copy = &p->copy;
	p->request.unit_crcs = (ProtobufCBinaryData){units * sizeof(uint32_t), (uint8_t *)p->unit_crcs};
	p->request.announced_bytes = b->options->bytes;
	p->request.seal = &p->seal;
	p->iov = (struct iovec){b->data, b->options->bytes};
	p->call = (struct rpc_call){.method = &rpc_chunkd_put, .request = &p->request.base, .payload = &p->iov, .payload_count = 1,
	                            .deadline_ns = io_now_ns(b->io) + TIMEOUT_NS, .done = put_done};
	rpc_call_start(peer, &p->call);
}

static void put_object(struct object_slot *s)
{
	const struct stocked *from = &s->stock[--s->stocked];

	s->code = 0;
	s->active = COPIES;
	for (uint8_t i = 0; i < COPIES; i++)
		put_start(s, from, i);
}

static int take_stock(struct object_slot *s, const Craton__AllocateReply *reply)
{
	if (reply->n_blocks == 0 || reply->n_blocks > STOCK)
		return ERR_PROTO;
	for (size_t i = 0; i < reply->n_blocks; i++) {
		const Craton__Allocation *a = reply->blocks[i];

		if (a->n_targets != COPIES)
			return ERR_PROTO;
		s->stock[i].block = a->block;
		for (int n = 0; n < COPIES; n++) {
			struct target *t = &s->stock[i].targets[n];

			if (a->targets[n]->token.len != sizeof(t->token))
				return ERR_PROTO;
			t->disk = a->targets[n]->disk;
			t->incarnation = a->targets[n]->incarnation;
			memcpy(t->token, a->targets[n]->token.data, sizeof(t->token));
		}
	}
	s->stocked = (uint32_t)reply->n_blocks;
	return 0;
}

static void allocated(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct object_slot *s = CONTAINER_OF(call, struct object_slot, allocate);
	struct bench_run *b = run_of(&s->load);
	const Craton__AllocateReply *reply = (const Craton__AllocateReply *)msg;
	struct err err = {0};

	if (status == 0 && !msg)
		status = ERR_PROTO;
	if (status == 0) {
		disks_learn(&b->disks, reply->disks, reply->n_disks);
		status = take_stock(s, reply);
	}
	if (status) {
		session_explain(&b->session, &err, status, "allocate", NULL);
		load_done(&s->load, status, err.text, 0);
		return;
	}
	put_object(s);
}

static bool start_object(struct load_slot *slot)
{
	struct object_slot *s = CONTAINER_OF(slot, struct object_slot, load);
	struct bench_run *b = run_of(slot);

	if (s->stocked) {
		put_object(s);
		return true;
	}
	craton__allocate_request__init(&s->request);
	s->request.inode = b->inode;
	s->request.epoch = b->epoch;
	s->request.count = STOCK;
	s->request.chunk_bytes = b->options->bytes;
	s->allocate = (struct session_call){.method = &rpc_metad_allocate, .request = &s->request.base, .done = allocated};
	session_start(&b->session, &s->allocate);
	return true;
}

struct one_call {
	struct session_call call; /* first */
	struct bench_run *b;
	int status;
};

static void one_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct one_call *one = (struct one_call *)(void *)call;
	const Craton__CreateReply *reply = (const Craton__CreateReply *)msg;

	one->status = status == 0 && !msg ? ERR_PROTO : status;
	if (one->status == 0 && call->method == &rpc_metad_create && reply->attr) {
		one->b->inode = reply->attr->inode;
		one->b->epoch = reply->epoch;
	}
	io_stop(one->b->io);
}

static int call(struct bench_run *b, const struct rpc_method *method, const ProtobufCMessage *request, Craton__RequestId **id, struct err *err)
{
	struct one_call one = {.call = {.method = method, .request = request, .id = id, .done = one_done}, .b = b};
	int code;

	session_start(&b->session, &one.call);
	code = io_run(b->io);
	if (code < 0)
		return err_set(err, code, "the event loop ended: %s", err_text(code));
	return one.status ? session_explain(&b->session, err, one.status, method->name, NULL) : 0;
}

static ProtobufCBinaryData bytes_of(const char *text)
{
	return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

/* A directory of plain copies with one file in it, which owns all the blocks and is given up in the end. */
static int make_owner(struct bench_run *b, struct err *err)
{
	Craton__MkdirRequest mkdir = CRATON__MKDIR_REQUEST__INIT;
	Craton__PolicyRequest set = CRATON__POLICY_REQUEST__INIT;
	Craton__CreateRequest create = CRATON__CREATE_REQUEST__INIT;
	Craton__Policy policy = CRATON__POLICY__INIT;
	char path[PATH_BYTES];
	int code;

	mkdir.parent = set.parent = create.parent = INODE_ROOT;
	mkdir.path = set.path = bytes_of(b->top);
	mkdir.mode = 0755;
	mkdir.now_ns = create.now_ns = io_wall_ns(b->io);
	policy.policy = ec_policy_by_name("rs-1-2")->id;
	set.set = true;
	set.policy = &policy;
	snprintf(path, sizeof(path), "%s/owner", b->top);
	create.path = bytes_of(path);
	create.mode = 0644;
	create.hidden = true;
	code = call(b, &rpc_metad_mkdir, &mkdir.base, &mkdir.id, err);
	if (!code)
		code = call(b, &rpc_metad_policy, &set.base, &set.id, err);
	return code ? code : call(b, &rpc_metad_create, &create.base, &create.id, err);
}

/* As much of it as was made. */
static int remove_owner(struct bench_run *b, struct err *err)
{
	Craton__AbortRequest abort = CRATON__ABORT_REQUEST__INIT;
	Craton__RemoveRequest remove = CRATON__REMOVE_REQUEST__INIT;
	int code = 0;

	abort.inode = b->inode;
	abort.epoch = b->epoch;
	if (b->inode)
		code = call(b, &rpc_metad_abort, &abort.base, &abort.id, err);
	remove.parent = INODE_ROOT;
	remove.path = bytes_of(b->top);
	remove.directory = true;
	remove.now_ns = io_wall_ns(b->io);
	return code ? code : call(b, &rpc_metad_remove, &remove.base, &remove.id, err);
}

static void sum_data(struct bench_run *b)
{
	uint32_t units = stripe_unit_count(b->options->bytes);

	for (uint32_t i = 0; i < units; i++) {
		uint64_t at = (uint64_t)i * LIMIT_UNIT_BYTES, left = b->options->bytes - at;

		b->unit_crcs[i] = crc32c(b->data + at, left < LIMIT_UNIT_BYTES ? left : LIMIT_UNIT_BYTES);
	}
	b->chunk_crc = crc32c(b->data, b->options->bytes);
}

static int objects(struct bench_run *b, struct err *err)
{
	struct rpc_identity self = {.cluster = b->config.cluster, .role = RPC_ROLE_CLIENT, .name = "bench"};
	struct rpc_peer_options peer = {.conns = 1, .transform = b->config.transform, .self = self};
	struct err ignored;
	int code;

	b->session = (struct session){.io = b->io, .rng = &b->rng, .metads = rpc_replicas_new(b->io, &b->config.metads, &peer), .name = "bench", .timeout_ns = TIMEOUT_NS,
	                              .idle = stop, .ctx = b};
	session_init(&b->session);
	disks_init(&b->disks, b->io, &self, b->config.transform);
	sum_data(b);
	code = make_owner(b, err);
	if (!code)
		code = run_load(b, start_object, b->options->count, sizeof(struct object_slot), true, &b->result, err);
	if (!code)
		code = remove_owner(b, err);
	else if (!cli_is_away(-err_to_errno(code)))
		remove_owner(b, &ignored);
	while (!session_close(&b->session))
		io_run(b->io);
	session_fini(&b->session);
	disks_close(&b->disks, stop, b);
	io_run(b->io);
	rpc_replicas_close(b->session.metads, stop, b);
	io_run(b->io);
	disks_fini(&b->disks);
	return code;
}

/* ---- both ---- */

static void report(const struct bench_run *b, const char *name)
{
	struct buf out;
	struct json j;

	if (!b->cli->json) {
		printf("%llu of %llu bytes, %llu in flight\n", (unsigned long long)b->options->count, (unsigned long long)b->options->bytes,
		       (unsigned long long)b->options->in_flight);
		load_print(name, &b->result);
		return;
	}
	cli_json_begin(&out, &j);
	json_u64(&j, "bytes", b->options->bytes);
	json_u64(&j, "inflight", b->options->in_flight);
	load_json(&j, name, &b->result);
	cli_json_end(&out, &j);
}

static int run(struct cli *cli, const struct bench_small_options *options, const char *name, int (*measure)(struct bench_run *b, struct err *err))
{
	struct bench_run *b = MEM_NEW(struct bench_run);
	struct err err = {0};
	uint64_t seed;
	int code;

	b->cli = cli;
	b->options = options;
	b->data = bench_random_memory(options->bytes);
	code = io_new(IO_BACKEND_AUTO, &b->io, &err);
	if (!code) {
		io_random(b->io, &seed, sizeof(seed));
		rng_init(&b->rng, seed);
		snprintf(b->top, sizeof(b->top), ".bench-small-%016llx", (unsigned long long)seed);
		code = config_load(b->io, cli->config, &b->config, &err);
		if (!code)
			code = measure(b, &err);
		io_free(b->io);
	}
	if (!code)
		report(b, name);
	mem_free(b->data);
	mem_free(b);
	return code ? cli_fail(cli, "%s", err.text) : CLI_OK;
}

int bench_small(struct cli *cli, const struct bench_small_options *options)
{
	return run(cli, options, "file", files);
}

int bench_objects(struct cli *cli, const struct bench_small_options *options)
{
	return run(cli, options, "object", objects);
}
