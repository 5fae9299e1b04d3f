/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/bench_meta.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "client/cli/bench.h"
#include "client/cli/local.h"
#include "client/cli/process.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/rpc/methods.h"

enum { END_TIMEOUT_MS = 60000, FILES_PER_COMMIT = 20, PAGE_ENTRIES = 256 }; /* a page as libcraton asks for */

#define DEFAULT_TIMEOUT_NS (30ull * 1000 * 1000 * 1000)

ProtobufCBinaryData bench_meta_bytes(const char *text)
{
	return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

double bench_meta_cpu_s(const void *arg)
{
	const struct bench_meta *b = arg;
	double sum = 0;

	for (int i = 0; i < LIMIT_METADS; i++)
		sum += b->metads[i] ? process_cpu_s(b->metads[i]) : 0;
	return sum;
}

static uint64_t metad_peak_bytes(const struct bench_meta *b)
{
	uint64_t peak = 0;

	for (int i = 0; i < LIMIT_METADS; i++) {
		uint64_t bytes = b->metads[i] ? process_peak_bytes(b->metads[i]) : 0;

		if (bytes > peak)
			peak = bytes;
	}
	return peak;
}

static void look_for_metads(struct bench_meta *b, const char *dir)
{
	char name[LOCAL_NAME_BYTES];

	for (int i = 0; i < LIMIT_METADS; i++) {
		snprintf(name, sizeof(name), "metad-%d", i + 1);
		b->metads[i] = process_pid(dir, name);
	}
}

/* ---- one request ---- */

struct one_call {
	struct session_call call; /* first */
	struct bench_meta *b;
	int status;
	void (*take)(void *ctx, const ProtobufCMessage *msg);
	void *ctx;
};

static void one_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct one_call *one = (struct one_call *)(void *)call;

	one->status = status == 0 && !msg ? ERR_PROTO : status;
	if (one->status == 0 && one->take)
		one->take(one->ctx, msg);
	io_stop(one->b->io);
}

int bench_meta_call(struct bench_meta *b, const struct rpc_method *method, const ProtobufCMessage *request,
                    Craton__RequestId **id, void (*take)(void *ctx, const ProtobufCMessage *msg), void *ctx, struct err *err)
{
	struct one_call one = {
		.call = {.method = method, .request = request, .id = id, .done = one_done}, .b = b, .take = take, .ctx = ctx};
	int code;

	session_start(&b->sessions[0], &one.call);
	code = io_run(b->io);
	if (code < 0)
		return err_set(err, code, "the event loop ended: %s", err_text(code));
	return one.status ? session_explain(&b->sessions[0], err, one.status, method->name, NULL) : 0;
}

/* ---- the phases ---- */

struct meta_slot {
	struct load_slot load; /* first */
	struct session_call call;
	char path[BENCH_META_PATH_BYTES], after[CR_NAME_MAX + 1];
	union {
		ProtobufCMessage base;
		Craton__CreateRequest create;
		Craton__LookupRequest lookup;
		Craton__ReaddirRequest readdir;
		Craton__RemoveRequest remove;
	} request;
	uint64_t dir;          /* listing: which */
};

static struct bench_meta *bench_of(const struct meta_slot *s)
{
	return s->load.load->ctx;
}

static void slot_finish(struct meta_slot *s, int status, uint64_t units)
{
	struct err err = {0};

	if (status)
		session_explain(s->call.session, &err, status, s->call.method->name, s->path);
	load_done(&s->load, status, err.text, units);
}

static void slot_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct meta_slot *s = CONTAINER_OF(call, struct meta_slot, call);
	bool was_gone = status == ERR_NOENT && bench_of(s)->leaving;

	slot_finish(s, was_gone ? 0 : status == 0 && !msg ? ERR_PROTO : status, 1);
}

struct session *bench_meta_session(struct bench_meta *b, uint64_t number)
{
	return &b->sessions[number % b->clients];
}

static void slot_send(struct meta_slot *s, const struct rpc_method *method, Craton__RequestId **id,
                      void (*done)(struct session_call *call, int status, const ProtobufCMessage *msg))
{
	s->call = (struct session_call){.method = method, .request = &s->request.base, .id = id, .done = done};
	session_start(bench_meta_session(bench_of(s), s->load.number), &s->call);
}

static void dir_path(const struct bench_meta *b, uint64_t client, char path[BENCH_META_PATH_BYTES])
{
	snprintf(path, BENCH_META_PATH_BYTES, "%s/c%04llu", b->top, (unsigned long long)client);
}

/* File i lies in the directory of client i modulo the clients. */
static ProtobufCBinaryData file_path(struct meta_slot *s, uint64_t i)
{
	const struct bench_meta *b = bench_of(s);

	snprintf(s->path, sizeof(s->path), "%s/c%04llu/f%09llu", b->top, (unsigned long long)(i % b->clients), (unsigned long long)i);
	return bench_meta_bytes(s->path);
}

static bool start_create(struct load_slot *slot)
{
	struct meta_slot *s = CONTAINER_OF(slot, struct meta_slot, load);
	Craton__CreateRequest *r = &s->request.create;

	craton__create_request__init(r);
	r->parent = INODE_ROOT;
	r->path = file_path(s, slot->number);
	r->mode = 0644;
	r->exclusive = true;
	r->now_ns = io_wall_ns(slot->load->io);
	slot_send(s, &rpc_metad_create, &r->id, slot_done);
	return true;
}

static bool start_stat(struct load_slot *slot)
{
	struct meta_slot *s = CONTAINER_OF(slot, struct meta_slot, load);
	struct bench_meta *b = bench_of(s);
	Craton__LookupRequest *r = &s->request.lookup;

	craton__lookup_request__init(r);
	r->parent = INODE_ROOT;
	r->path = file_path(s, rng_below(&b->rng, b->files));
	slot_send(s, &rpc_metad_lookup, NULL, slot_done);
	return true;
}

static bool start_remove(struct load_slot *slot)
{
	struct meta_slot *s = CONTAINER_OF(slot, struct meta_slot, load);
	struct bench_meta *b = bench_of(s);
	Craton__RemoveRequest *r = &s->request.remove;

	craton__remove_request__init(r);
	r->parent = INODE_ROOT;
	r->path = file_path(s, slot->number);
	r->now_ns = io_wall_ns(b->io);
	slot_send(s, &rpc_metad_remove, &r->id, slot_done);
	return true;
}

static void list_page(struct meta_slot *s);

/* A page; the slot goes on with the same directory until its end. */
static void list_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct meta_slot *s = CONTAINER_OF(call, struct meta_slot, call);
	const Craton__ReaddirReply *reply = (const Craton__ReaddirReply *)msg;
	const Craton__Dirent *last;

	if (status == 0 && !msg)
		status = ERR_PROTO;
	s->after[0] = '\0';
	if (status == 0 && !reply->end && reply->n_entries > 0) {
		last = reply->entries[reply->n_entries - 1];
		snprintf(s->after, sizeof(s->after), "%.*s", (int)last->name.len, (const char *)last->name.data);
	}
	slot_finish(s, status, status ? 0 : reply->n_entries);
}

static void list_page(struct meta_slot *s)
{
	struct bench_meta *b = bench_of(s);
	Craton__ReaddirRequest *r = &s->request.readdir;

	dir_path(b, s->dir, s->path);
	craton__readdir_request__init(r);
	r->inode = b->dirs[s->dir];
	r->after = bench_meta_bytes(s->after);
	r->max_entries = PAGE_ENTRIES;
	slot_send(s, &rpc_metad_readdir, NULL, list_done);
}

/* The directory that the slot is in the middle of, or the next one: pages are operations, directories are taken in order. */
static bool start_list(struct load_slot *slot)
{
	struct meta_slot *s = CONTAINER_OF(slot, struct meta_slot, load);
	struct bench_meta *b = bench_of(s);

	if (!s->after[0]) {
		if (b->dirs_listed == b->clients)
			return false;
		s->dir = b->dirs_listed++;
	}
	list_page(s);
	return true;
}

static int run_phase(struct bench_meta *b, bool (*start)(struct load_slot *slot), uint64_t count, struct load_result *ret_result, struct err *err)
{
	uint32_t slots = (uint32_t)(b->clients * b->in_flight);
	struct meta_slot *slot = mem_array(slots, sizeof(*slot));
	struct load load = {.io = b->io, .count = count, .start = start, .ctx = b, .stops = !b->leaving && start != start_remove, .server_cpu_s = bench_meta_cpu_s, .server = b};
	int code;

	if (start == start_create || start == start_stat)
		load.per_s = b->per_s;
	code = load_run(&load, slot, sizeof(*slot), slots, ret_result);

	if (code)
		*err = load.err;
	mem_free(slot);
	return code;
}

/* ---- before and after ---- */

static void take_inode(void *ctx, const ProtobufCMessage *msg)
{
	const Craton__AttrReply *reply = (const Craton__AttrReply *)msg;

	*(uint64_t *)ctx = reply->attr ? reply->attr->inode : 0;
}

static int make_dir(struct bench_meta *b, const char *path, uint64_t *ret_inode, struct err *err)
{
	Craton__MkdirRequest mkdir = CRATON__MKDIR_REQUEST__INIT;

	mkdir.parent = INODE_ROOT;
	mkdir.path = bench_meta_bytes(path);
	mkdir.mode = 0755;
	mkdir.now_ns = io_wall_ns(b->io);
	return bench_meta_call(b, &rpc_metad_mkdir, &mkdir.base, &mkdir.id, take_inode, ret_inode, err);
}

static int make_dirs(struct bench_meta *b, struct err *err)
{
	char path[BENCH_META_PATH_BYTES];
	uint64_t top;
	int code = make_dir(b, b->top, &top, err);

	for (; b->dirs_made < b->clients && !code; b->dirs_made += !code) {
		dir_path(b, b->dirs_made, path);
		code = bench_stopped() ? err_set(err, ERR_CANCELED, "interrupted") : make_dir(b, path, &b->dirs[b->dirs_made], err);
	}
	return code;
}

static int remove_all(struct bench_meta *b, uint64_t files, struct err *err)
{
	Craton__RemoveRequest top = CRATON__REMOVE_REQUEST__INIT;
	struct load_result ignored;
	int code = run_phase(b, start_remove, files, &ignored, err);

	top.parent = INODE_ROOT;
	top.directory = true;
	top.now_ns = io_wall_ns(b->io);
	for (uint64_t i = 0; i < b->dirs_made && !code; i++) {
		char path[BENCH_META_PATH_BYTES];

		dir_path(b, i, path);
		top.path = bench_meta_bytes(path);
		code = bench_meta_call(b, &rpc_metad_remove, &top.base, &top.id, NULL, NULL, err);
	}
	top.path = bench_meta_bytes(b->top);
	return code ? code : bench_meta_call(b, &rpc_metad_remove, &top.base, &top.id, NULL, NULL, err);
}

static int measure(struct bench_meta *b, struct bench_meta_results *r, struct err *err)
{
	struct err ignored;
	int code = make_dirs(b, err);

	if (!code)
		code = run_phase(b, start_create, b->files, &r->create, err);
	if (!code)
		code = run_phase(b, start_stat, b->files, &r->stat, err);
	if (!code)
		code = run_phase(b, start_list, UINT64_MAX, &r->list, err);
	if (!code && r->list.units != b->files)
		code = err_set(err, ERR_PROTO, "the listings brought %llu entries, %llu were created", (unsigned long long)r->list.units,
		               (unsigned long long)b->files);
	if (!code && b->own) {
		code = bench_commit(b, &r->allocate, &r->commit, err);
		r->has_commit = true;
	}
	b->leaving = code != 0;
	if (!code && !b->own)
		code = remove_all(b, r->create.begun, err);
	else if (code && !b->own && !cli_is_away(-err_to_errno(code)))
		remove_all(b, r->create.begun, &ignored);
	return code;
}

static void report(const struct bench_meta *b, const struct bench_meta_results *r)
{
	struct buf out;
	struct json j;

	if (!b->cli->json) {
		printf("%llu files, %llu clients with %llu in flight each, %llu connections\n", (unsigned long long)b->files,
		       (unsigned long long)b->clients, (unsigned long long)b->in_flight, (unsigned long long)b->connections);
		if (b->own) {
			printf("echo     %10.0f /s  CPU us each: server %6.2f: a bare echo of 128 bytes, here and now\n", b->floor.echo_per_s,
			       b->floor.echo_server_cpu_us);
			load_print("log", &b->floor.log);
		}
		load_print("create", &r->create);
		load_print("stat", &r->stat);
		load_print("list", &r->list);
		if (r->has_commit) {
			load_print("allocate", &r->allocate);
			load_print("commit", &r->commit);
		}
		return;
	}
	cli_json_begin(&out, &j);
	json_u64(&j, "files", b->files);
	json_u64(&j, "clients", b->clients);
	json_u64(&j, "inflight", b->in_flight);
	json_u64(&j, "connections", b->connections);
	json_u64(&j, "rate", b->per_s);
	json_u64(&j, "metad_peak_bytes", metad_peak_bytes(b));
	if (b->own) {
		json_f64(&j, "floor_echo_per_s", b->floor.echo_per_s);
		json_f64(&j, "floor_echo_server_cpu_us", b->floor.echo_server_cpu_us);
		load_json(&j, "floor_log", &b->floor.log);
	}
	load_json(&j, "create", &r->create);
	load_json(&j, "stat", &r->stat);
	load_json(&j, "list", &r->list);
	if (r->has_commit) {
		load_json(&j, "allocate", &r->allocate);
		load_json(&j, "commit", &r->commit);
	}
	cli_json_end(&out, &j);
}

static void peer_closed(void *ctx)
{
	io_stop(((struct bench_meta *)ctx)->io);
}

static void open_sessions(struct bench_meta *b, struct rpc_replicas *metads)
{
	b->sessions = mem_array(b->clients, sizeof(*b->sessions));
	for (uint64_t i = 0; i < b->clients; i++) {
		b->sessions[i] = (struct session){.io = b->io,
			.rng = &b->rng,
			.metads = metads,
			.name = "bench",
			.timeout_ns = b->cli->timeout_ms ? b->cli->timeout_ms * 1000000 : DEFAULT_TIMEOUT_NS,
			.idle = peer_closed,
			.ctx = b};
		session_init(&b->sessions[i]);
	}
}

static void close_sessions(struct bench_meta *b)
{
	for (uint64_t i = 0; i < b->clients; i++) {
		while (!session_close(&b->sessions[i]))
			io_run(b->io);
		session_fini(&b->sessions[i]);
	}
	rpc_replicas_close(b->sessions[0].metads, peer_closed, b);
	io_run(b->io);
	mem_free(b->sessions);
}

/* With io, config and metad known. */
static int run(struct bench_meta *b, struct err *err)
{
	struct rpc_peer_options peer = {.conns = (uint32_t)b->connections, .transform = b->config.transform,
	                                .self = {.cluster = b->config.cluster, .role = RPC_ROLE_CLIENT, .name = "bench"}};
	struct bench_meta_results results = {0};
	uint64_t seed;
	int code;

	io_random(b->io, &seed, sizeof(seed));
	rng_init(&b->rng, seed);
	snprintf(b->top, sizeof(b->top), ".bench-meta-%016llx", (unsigned long long)seed);
	open_sessions(b, rpc_replicas_new(b->io, &b->config.metads, &peer));
	b->dirs = mem_array(b->clients, sizeof(*b->dirs));
	code = measure(b, &results, err);
	close_sessions(b);
	mem_free(b->dirs);
	if (!code)
		report(b, &results);
	return code;
}

/* ---- the metad that is measured ---- */

static int remove_path(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int end_metads(const struct local *local, struct err *err)
{
	char name[LOCAL_NAME_BYTES];
	struct err one;
	int code = 0, r;

	for (uint64_t i = 0; i < local->metad_count; i++) {
		local_daemon_name(local, i, name);
		r = process_end(local->dir, name, SIGTERM, END_TIMEOUT_MS, &one);
		if (r < 0 && r != ERR_NOENT && !code) {
			*err = one;
			code = r;
		}
	}
	return code;
}

/* Starts them and measures; whatever runs afterwards is the caller's to end. */
static int start_and_run(struct bench_meta *b, struct local *local, struct err *err)
{
	char name[LOCAL_NAME_BYTES], *conf;
	bool started;
	int code = 0;

	for (uint64_t i = 0; i < local->metad_count && !code; i++) {
		local_daemon_name(local, i, name);
		code = local_start(local, name, &started, err);
	}
	if (code)
		return code;
	conf = mem_printf("%s/craton.conf", local->dir);
	code = config_load(b->io, conf, &b->config, err);
	mem_free(conf);
	look_for_metads(b, local->dir);
	if (!code)
		code = bench_meta_floor(b, local->dir, &b->floor, err);
	return code ? code : run(b, err);
}

/* A store without chunk servers in a folder of its own below `dir`; gone afterwards. */
static int run_own(struct bench_meta *b, const char *dir, struct err *err)
{
	char *folder = mem_printf("%s/craton-bench-XXXXXX", dir);
	struct local wanted = {.chunkd_count = 1, .metad_count = b->metad_count}, local;
	struct err ending;
	int code;

	if (!mkdtemp(folder)) {
		code = err_set(err, err_from_errno(errno), "cannot make a folder in %s: %s", dir, strerror(errno));
		mem_free(folder);
		return code;
	}
	code = local_create(folder, &wanted, &local, err);
	if (!code) {
		b->own = true;
		code = start_and_run(b, &local, err);
		if (end_metads(&local, &ending) < 0 && !code)
			*err = ending, code = ending.code;
		local_fini(&local);
	}
	if (nftw(folder, remove_path, 16, FTW_DEPTH | FTW_PHYS) && !code)
		code = err_set(err, err_from_errno(errno), "cannot remove %s: %s", folder, strerror(errno));
	mem_free(folder);
	return code;
}

/* The configured store; if its craton.conf lies in the folder of a local store, the CPU time of its metads is known. */
static int run_store(struct bench_meta *b, struct err *err)
{
	char *dir, *slash;
	int code = config_load(b->io, b->cli->config, &b->config, err);

	if (code)
		return code;
	dir = mem_strdup(b->config.path);
	slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	look_for_metads(b, slash ? dir : ".");
	mem_free(dir);
	return run(b, err);
}

int bench_meta(struct cli *cli, const char *dir, const struct bench_meta_options *options)
{
	struct bench_meta *b = MEM_NEW(struct bench_meta);
	struct err err = {0};
	int code;

	b->cli = cli;
	b->files = options->files;
	b->clients = options->clients;
	b->in_flight = options->in_flight;
	b->connections = options->connections;
	b->metad_count = options->metads;
	b->per_s = options->per_s;
	b->commits = (b->files + FILES_PER_COMMIT - 1) / FILES_PER_COMMIT;
	code = io_new(IO_BACKEND_AUTO, &b->io, &err);
	if (!code) {
		code = dir ? run_own(b, dir, &err) : run_store(b, &err);
		io_free(b->io);
	}
	mem_free(b);
	return code ? cli_fail(cli, "%s", err.text) : CLI_OK;
}
