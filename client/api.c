/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api: craton.h over the asynchronous core. A store has one loop and one thread that runs it; every call is posted to that loop, in
 * order. Blocking calls wait on a semaphore; asynchronous ones get their callback in the loop's thread. Here are the store and names by path;
 * api_file.c has open files, api_inode.c what goes by inode.
 *
 * Failure modes: a loop that ends by itself (its kernel interface broke) fails the calls that come after with ERR_STOPPED; those in
 * flight would wait for ever, so the process is told by an abort with a line.
 */
#include "client/api_priv.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "client/config.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/units.h"

#define CONNECT_TIMEOUT_MS 3000ull
#define LED_TIMEOUT_MS 2500ull /* in which a group that can elect a leader mostly has one */
#define GROUP_CONNECT_TIMEOUT_MS 10000ull /* one may have died just now: the others elect another leader within some seconds */

enum { DIR_PAGE_ENTRIES = 256 };

struct cr_dir {
	struct cr_store *store;
	char *path;
	struct cr_dirent *entries;
	uint64_t inode;
	uint64_t at, count;
	bool end;
	char after[CR_NAME_MAX + 1];
};

static __thread char error_text[ERR_TEXT_BYTES] = "no error";

const char *cr_error(void)
{
	return error_text;
}

const char *cr_version(void)
{
	return PACKAGE_VERSION;
}

static int fail(const struct err *err)
{
	snprintf(error_text, sizeof(error_text), "%s", err->text[0] ? err->text : err_text(err->code));
	return -err_to_errno(err->code);
}

int api__fail_text(int code, const char *text)
{
	snprintf(error_text, sizeof(error_text), "%s", text);
	return -err_to_errno(code);
}

/* ---- through the loop ---- */

static void call_start(struct io_post *post)
{
	struct api_call *c = CONTAINER_OF(post, struct api_call, post);

	if (c->handle && c->op.kind != CLIENT_OPEN) {
		/* The call has all that it needs of it. */
		list_remove(&c->handle->link);
		mem_free(c->handle);
		c->handle = NULL;
	}
	client_start(c->store->client, &c->op);
}

/* The call may end, and another thread may disconnect because of it, before io_post returns. */
static void call_post(struct cr_store *store, struct api_call *c)
{
	c->store = store;
	c->post.run = call_start;
	atomic_fetch_add_explicit(&store->posting, 1, memory_order_relaxed);
	io_post(store->io, &c->post);
	atomic_fetch_sub_explicit(&store->posting, 1, memory_order_release);
}

static void call_done(struct client_op *op)
{
	struct api_call *c = CONTAINER_OF(op, struct api_call, op);
	struct cr_op *async = c->async;

	if (c->handle && op->err.code == 0) {
		c->handle->file = op->ret_file;
		list_push_back(&c->store->handles, &c->handle->link);
	}
	if (c->take)
		c->take(c);
	if (c->sem) {
		sem_post(c->sem);
		return;
	}
	async->result = op->err.code ? -err_to_errno(op->err.code) : (int64_t)op->count;
	snprintf(async->error, sizeof(async->error), "%.*s", (int)sizeof(async->error) - 1,
		op->err.text[0] || !op->err.code ? op->err.text : err_text(op->err.code));
	mem_free(c);
	async->done(async);
}

int api__call_run(struct cr_store *store, struct api_call *c)
{
	sem_t sem;

	CHECK(sem_init(&sem, 0, 0) == 0);
	c->sem = &sem;
	c->op.done = call_done;
	call_post(store, c);
	while (sem_wait(&sem) != 0)
		CHECK(errno == EINTR);
	sem_destroy(&sem);
	return c->op.err.code ? fail(&c->op.err) : 0;
}

struct api_call *api__call_new(enum client_op_kind kind, const char *path)
{
	struct api_call *c = MEM_NEW(struct api_call);

	c->op.kind = kind;
	c->op.path = path;
	c->op.attr.uid = geteuid();
	c->op.attr.gid = getegid();
	return c;
}

int api__run_and_free(struct cr_store *store, struct api_call *c)
{
	int code = api__call_run(store, c);

	mem_free(c);
	return code;
}

void api__call_async(struct cr_store *store, struct api_call *c, struct cr_op *op)
{
	c->async = op;
	c->op.done = call_done;
	call_post(store, c);
}

/* ---- store ---- */

static void *loop_thread(void *arg)
{
	struct cr_store *store = arg;
	int code = io_run(store->io);

	if (code < 0) {
		fprintf(stderr, "libcraton: the event loop ended: %s\n", err_text(code));
		abort();
	}
	return NULL;
}

static void stop_loop(void *ctx)
{
	struct cr_store *store = ctx;

	store->client = NULL;
	io_stop(store->io);
}

static void close_client(struct io_post *post)
{
	struct cr_store *store = CONTAINER_OF(post, struct cr_store, close_post);

	client_close(store->client, stop_loop, store);
}

/* The application's signals are the application's. */
static int start_thread(struct cr_store *store)
{
	sigset_t all, old;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	code = pthread_create(&store->thread, NULL, loop_thread, store);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return code ? err_from_errno(code) : 0;
}

/* Who asked for a time to wait gets it. Else what cannot be reached is said to be so soon: there is somebody who may start it. */
static int say_hello(struct cr_store *store, const struct cr_options *options, const struct config *config)
{
	struct api_call *c = api__call_new(CLIENT_STAT, "/");
	uint64_t most_ms = config->metads.count > 1 ? GROUP_CONNECT_TIMEOUT_MS : CONNECT_TIMEOUT_MS,
		 wait_ms = options && options->timeout_ms ? options->timeout_ms
			: config->timeout_ms < most_ms    ? config->timeout_ms
							  : most_ms;
	char addrs[RPC_ADDRS_TEXT_BYTES], text[UNITS_TEXT_BYTES];
	int code;

	c->op.timeout_ns = wait_ms * 1000000;
	code = api__call_run(store, c);
	switch (c->op.err.code) {
	case ERR_TIMEDOUT:
	case ERR_CONNREFUSED:
	case ERR_CONNRESET:
	case ERR_HOSTUNREACH:
	case ERR_PIPE:
	case ERR_STOPPED:
		rpc_addrs_format(&config->metads, addrs);
		err_set(&c->op.err, c->op.err.code,
			"metad at %s does not answer (%s, after %s): start the store (`craton local up DIR`, or craton-metad on its host), or give "
			"its address in %.150s",
			addrs, err_text(c->op.err.code), units_format_ns(c->op.timeout_ns, text), config->path);
		code = fail(&c->op.err);
		break;
	default:
		break;
	}
	mem_free(c);
	return code;
}

int cr_connect(const struct cr_options *options, struct cr_store **ret_store)
{
	struct cr_store *store = MEM_NEW(struct cr_store);
	struct config *config = MEM_NEW(struct config);
	struct client_options co = {0};
	struct err err = {0};
	char name[64];
	int code = io_new(IO_BACKEND_AUTO, &store->io, &err);

	list_init(&store->handles);
	if (code < 0)
		goto fail_io;
	code = config_load(store->io, options ? options->config : NULL, config, &err);
	if (code < 0)
		goto fail_config;
	snprintf(name, sizeof(name), "client-%ld", (long)getpid());
	co.metads = config->metads;
	co.cluster = config->cluster;
	co.name = name;
	store->timeout_ns = (options && options->timeout_ms ? options->timeout_ms : config->timeout_ms) * 1000000;
	co.timeout_ns = store->timeout_ns;
	co.buffer_bytes = options ? options->buffer_bytes : 0;
	co.ignore_servers = options ? options->ignore_servers : 0;
	co.transform = config->transform;
	co.tail_bytes = config->tail_bytes;
	store->client = client_new(store->io, &co);
	code = start_thread(store);
	if (code < 0) {
		err_set(&err, code, "cannot start a thread: %s", err_text(code));
		goto fail_thread;
	}
	code = options && options->no_hello ? 0 : say_hello(store, options, config);
	mem_free(config);
	if (code < 0) {
		/* cr_error() stays that of the failed call. */
		cr_disconnect(store);
		return code;
	}
	*ret_store = store;
	return 0;

fail_thread:
	close_client(&store->close_post);
	io_run(store->io); /* until the client is closed */
fail_config:
	io_free(store->io);
fail_io:
	mem_free(config);
	mem_free(store);
	return fail(&err);
}

void cr_disconnect(struct cr_store *store)
{
	if (!store)
		return;
	store->close_post.run = close_client;
	io_post(store->io, &store->close_post);
	pthread_join(store->thread, NULL);
	while (atomic_load_explicit(&store->posting, memory_order_acquire) != 0)
		sched_yield(); /* they are at most a system call away */
	io_free(store->io);
	LIST_FOREACH_SAFE(it, &store->handles)
		mem_free(LIST_ENTRY(it, struct cr_file, link));
	mem_free(store);
}

/* ---- names ---- */

int cr_stat(struct cr_store *store, const char *path, struct cr_stat *ret_stat)
{
	struct api_call *c = api__call_new(CLIENT_STAT, path);
	int code = api__call_run(store, c);

	if (code == 0)
		*ret_stat = c->op.attr;
	mem_free(c);
	return code;
}

int cr_mkdir(struct cr_store *store, const char *path, uint32_t mode)
{
	struct api_call *c = api__call_new(CLIENT_MKDIR, path);

	c->op.mode = mode;
	return api__run_and_free(store, c);
}

int cr_mkdir_parents(struct cr_store *store, const char *path, uint32_t mode)
{
	struct api_call *c = api__call_new(CLIENT_MKDIR_PARENTS, path);

	c->op.mode = mode;
	return api__run_and_free(store, c);
}

int cr_rmdir(struct cr_store *store, const char *path)
{
	return api__run_and_free(store, api__call_new(CLIENT_RMDIR, path));
}

int cr_unlink(struct cr_store *store, const char *path)
{
	return api__run_and_free(store, api__call_new(CLIENT_UNLINK, path));
}

int cr_rename(struct cr_store *store, const char *from, const char *to, uint32_t flags)
{
	struct api_call *c = api__call_new(CLIENT_RENAME, from);

	c->op.path2 = to;
	c->op.flags = flags;
	return api__run_and_free(store, c);
}

int cr_setattr(struct cr_store *store, const char *path, uint32_t mask, const struct cr_stat *values)
{
	struct api_call *c = api__call_new(CLIENT_SETATTR, path);

	c->op.mask = mask;
	c->op.attr = *values;
	return api__run_and_free(store, c);
}

int cr_link(struct cr_store *store, const char *from, const char *to)
{
	struct api_call *c = api__call_new(CLIENT_LINK, from);

	c->op.path2 = to;
	return api__run_and_free(store, c);
}

int cr_symlink(struct cr_store *store, const char *target, const char *path)
{
	struct api_call *c = api__call_new(CLIENT_SYMLINK, path);

	c->op.path2 = target;
	c->op.attr.uid = (uint32_t)geteuid();
	c->op.attr.gid = (uint32_t)getegid();
	return api__run_and_free(store, c);
}

/* One that answers with bytes, or, where there is no room for any, with their number. */
static ssize_t bytes_call(struct cr_store *store, struct api_call *c, void *buf, size_t size)
{
	ssize_t result;

	c->op.buf = buf;
	c->op.len = size;
	result = api__call_run(store, c);
	if (result == 0)
		result = (ssize_t)c->op.count;
	mem_free(c);
	return result;
}

ssize_t cr_readlink(struct cr_store *store, const char *path, char *buf, size_t size)
{
	return bytes_call(store, api__call_new(CLIENT_READLINK, path), buf, size);
}

int cr_truncate(struct cr_store *store, const char *path, uint64_t size)
{
	struct api_call *c = api__call_new(CLIENT_TRUNCATE, path);

	c->op.offset = size;
	return api__run_and_free(store, c);
}

int cr_setxattr(
	struct cr_store *store, const char *path, const char *name, const void *value, size_t size, uint32_t flags)
{
	struct api_call *c = api__call_new(CLIENT_XATTR_SET, path);

	c->op.path2 = name;
	c->op.buf = (void *)(uintptr_t)value;
	c->op.len = size;
	c->op.flags = flags;
	return api__run_and_free(store, c);
}

ssize_t cr_getxattr(struct cr_store *store, const char *path, const char *name, void *value, size_t size)
{
	struct api_call *c = api__call_new(CLIENT_XATTR_GET, path);

	c->op.path2 = name;
	return bytes_call(store, c, value, size);
}

ssize_t cr_listxattr(struct cr_store *store, const char *path, char *list, size_t size)
{
	return bytes_call(store, api__call_new(CLIENT_XATTR_LIST, path), list, size);
}

int cr_removexattr(struct cr_store *store, const char *path, const char *name)
{
	struct api_call *c = api__call_new(CLIENT_XATTR_REMOVE, path);

	c->op.path2 = name;
	return api__run_and_free(store, c);
}

int cr_opendir(struct cr_store *store, const char *path, struct cr_dir **ret_dir)
{
	struct cr_stat st;
	struct cr_dir *dir;
	int code = cr_stat(store, path, &st);

	if (code < 0)
		return code;
	if (st.type != CR_TYPE_DIR)
		return api__fail_text(ERR_NOTDIR, "not a directory");
	dir = MEM_NEW(struct cr_dir);
	dir->store = store;
	dir->inode = st.inode;
	dir->path = mem_strdup(path);
	dir->entries = mem_array(DIR_PAGE_ENTRIES, sizeof(dir->entries[0]));
	*ret_dir = dir;
	return 0;
}

static int next_page(struct cr_dir *dir)
{
	struct api_call *c = api__call_new(CLIENT_READDIR, dir->path);
	int code;

	memcpy(c->op.after, dir->after, sizeof(c->op.after));
	c->op.inode = dir->inode;
	c->op.entries = dir->entries;
	c->op.entry_cap = DIR_PAGE_ENTRIES;
	code = api__call_run(dir->store, c);
	if (code == 0) {
		dir->at = 0;
		dir->count = c->op.count;
		dir->end = c->op.end || c->op.count == 0;
		if (dir->count)
			memcpy(dir->after, dir->entries[dir->count - 1].name, sizeof(dir->after));
	}
	mem_free(c);
	return code;
}

int cr_readdir(struct cr_dir *dir, struct cr_dirent *ret_entry)
{
	if (dir->at == dir->count && !dir->end) {
		int code = next_page(dir);

		if (code < 0)
			return code;
	}
	if (dir->at == dir->count)
		return 0;
	*ret_entry = dir->entries[dir->at++];
	return 1;
}

void cr_closedir(struct cr_dir *dir)
{
	if (!dir)
		return;
	mem_free(dir->path);
	mem_free(dir->entries);
	mem_free(dir);
}

/* ---- policies, the whole store ---- */

int cr_policy_get(struct cr_store *store, const char *path, char *ret_name, size_t name_bytes)
{
	struct api_call *c = api__call_new(CLIENT_POLICY_GET, path);
	int code = api__call_run(store, c);

	if (code == 0)
		snprintf(ret_name, name_bytes, "%s", c->op.policy);
	mem_free(c);
	return code;
}

int cr_policy_set(struct cr_store *store, const char *path, const char *name)
{
	struct api_call *c;

	if (strlen(name) >= sizeof(c->op.policy))
		return api__fail_text(ERR_INVAL, "unknown policy");
	c = api__call_new(CLIENT_POLICY_SET, path);
	snprintf(c->op.policy, sizeof(c->op.policy), "%s", name);
	return api__run_and_free(store, c);
}

int cr_df(struct cr_store *store, struct cr_df *ret_df)
{
	struct api_call *c = api__call_new(CLIENT_DF, NULL);
	int code = api__call_run(store, c);

	if (code == 0)
		*ret_df = c->op.df;
	mem_free(c);
	return code;
}

int cr_gc(struct cr_store *store, int start, struct cr_gc *ret_gc)
{
	struct api_call *c = api__call_new(CLIENT_GC, NULL);
	int code;

	c->op.flags = start ? CLIENT_GC_START : 0;
	code = api__call_run(store, c);
	if (code == 0)
		*ret_gc = c->op.gc;
	mem_free(c);
	return code;
}

int cr_status_json(struct cr_store *store, char **ret_json)
{
	struct api_call *c = api__call_new(CLIENT_STATUS, NULL);
	int code = api__call_run(store, c);

	if (code == 0)
		*ret_json = c->op.json;
	mem_free(c);
	return code;
}

int cr_config_json(struct cr_store *store, const char *name, const char *value, char **ret_json)
{
	struct api_call *c = api__call_new(CLIENT_CONFIG, NULL);
	int code;

	c->op.setting = name;
	c->op.value = value;
	code = api__call_run(store, c);
	if (code == 0)
		*ret_json = c->op.json;
	mem_free(c);
	return code;
}

int cr_meta_backup(struct cr_store *store, int (*each)(const void *data, size_t len, void *user), void *user)
{
	uint64_t backup = 0, offset = 0;
	bool end = false;
	int code = 0;

	while (code == 0 && !end) {
		struct api_call *c = api__call_new(CLIENT_BACKUP, NULL);

		c->op.backup = backup;
		c->op.offset = offset;
		code = api__call_run(store, c);
		if (code == 0)
			code = each(c->op.buf, c->op.count, user);
		backup = c->op.backup;
		offset = c->op.offset;
		end = c->op.end;
		mem_free(c->op.buf);
		mem_free(c);
	}
	return code;
}

static struct api_call *members_call(uint32_t flags, const char *member, struct cr_members *ret_members)
{
	struct api_call *c = api__call_new(CLIENT_MEMBERS, NULL);

	c->op.flags = flags;
	c->op.setting = member;
	c->op.members = ret_members;
	return c;
}

/* Who knows of no leader may have been removed, or wait to be added, and not know better: its word counts if there is no other. Both take no longer than one. */
static int members_said(struct cr_store *store, struct cr_members *ret_members)
{
	uint64_t all_ns = store->timeout_ns, led_ns = LED_TIMEOUT_MS * 1000000 < all_ns / 2 ? LED_TIMEOUT_MS * 1000000 : all_ns / 2;
	struct api_call *c = members_call(CR_META_SAY | CLIENT_MEMBERS_LED, NULL, ret_members);

	c->op.timeout_ns = led_ns;
	if (api__run_and_free(store, c) == 0)
		return 0;
	c = members_call(CR_META_SAY, NULL, ret_members);
	c->op.timeout_ns = all_ns - led_ns;
	return api__run_and_free(store, c);
}

int cr_meta_members(struct cr_store *store, enum cr_meta_action action, const char *member, struct cr_members *ret_members)
{
	return action == CR_META_SAY ? members_said(store, ret_members) : api__run_and_free(store, members_call(action, member, ret_members));
}

int cr_server_maintenance(struct cr_store *store, const char *server, uint64_t for_ms)
{
	struct api_call *c = api__call_new(CLIENT_MAINTENANCE, NULL);

	c->op.setting = server;
	c->op.offset = for_ms;
	return api__run_and_free(store, c);
}

int cr_inspect(struct cr_store *store, const char *path, int verify,
	int (*each)(const struct cr_chunk_info *chunk, void *user), void *user)
{
	uint64_t offset = 0;
	bool end = false;
	int code = 0;

	while (code == 0 && !end) {
		struct api_call *c = api__call_new(CLIENT_INSPECT, path);

		c->op.verify = verify;
		c->op.offset = offset;
		code = api__call_run(store, c);
		for (uint64_t i = 0; code == 0 && i < c->op.count; i++)
			code = each(&c->op.chunks[i], user);
		offset = c->op.offset;
		end = c->op.end;
		mem_free(c->op.chunks);
		mem_free(c);
	}
	return code;
}
