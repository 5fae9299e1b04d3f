/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: one client = its way to metad, or to each of a group, one peer per chunk server, one pool of buffers, its open files and the operations in flight.
 * client_close gives up what is open, waits until the last operation and the last background call have ended, then closes the peers.
 */
#include "client/client_priv.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_TIMEOUT_NS (30ull * 1000 * 1000 * 1000)
#define DEFAULT_BUFFER_BYTES (192ull << 20)
#define LEAST_BUFFER_BYTES (64ull << 20)

static void close_step(struct io_turn_hook *hook);

/* What metad must not drop even if it loses its name. */
static size_t list_open(void *ctx, uint64_t *inodes)
{
	struct client *c = ctx;
	size_t count = 0;

	LIST_FOREACH(it, &c->files) {
		struct client_file *file = LIST_ENTRY(it, struct client_file, link);

		if (file->read && count < LIMIT_OPEN_FILES)
			inodes[count++] = file->inode;
	}
	return count;
}

static void session_idle(void *ctx)
{
	client_check_closed(ctx);
}

struct client *client_new(struct io *io, const struct client_options *options)
{
	struct client *c = MEM_NEW(struct client);
	struct rpc_identity self = {.cluster = options->cluster, .role = RPC_ROLE_CLIENT};
	struct rpc_peer_options peer = {.conns = 1, .transform = options->transform};
	uint64_t seed, buffer_bytes = options->buffer_bytes ? options->buffer_bytes : DEFAULT_BUFFER_BYTES;

	snprintf(self.name, sizeof(self.name), "%s", options->name ? options->name : "client");
	peer.self = self;
	c->io = io;
	io_random(io, &seed, sizeof(seed));
	rng_init(&c->rng, seed);
	c->tail_bytes = options->tail_bytes < LIMIT_TAIL_BYTES ? options->tail_bytes : LIMIT_TAIL_BYTES;
	c->timeout_ns = options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT_NS;
	list_init(&c->files);
	disks_init(&c->disks, io, &self, options->transform);
	c->disks.ignore_servers = options->ignore_servers;
	pool_init(&c->pool, io, buffer_bytes > LEAST_BUFFER_BYTES ? buffer_bytes : LEAST_BUFFER_BYTES);
	io_turn_hook_init(&c->close_hook, close_step);
	snprintf(c->name, sizeof(c->name), "%s", self.name);
	c->session = (struct session){
		.io = io,
		.rng = &c->rng,
		.metads = rpc_replicas_new(io, &options->metads, &peer),
		.timeout_ns = c->timeout_ns,
		.name = c->name,
		.list_open = list_open,
		.idle = session_idle,
		.ctx = c,
	};
	session_init(&c->session);
	return c;
}

static void all_closed(struct client *c)
{
	void (*closed)(void *ctx) = c->closed;
	void *ctx = c->closed_ctx;

	if (!c->peer_closed || !c->disks_closed)
		return;
	session_fini(&c->session);
	disks_fini(&c->disks);
	pool_fini(&c->pool);
	io_turn_hook_remove(c->io, &c->close_hook);
	mem_free(c);
	closed(ctx);
}

static void session_peer_closed(void *ctx)
{
	struct client *c = ctx;

	c->peer_closed = true;
	all_closed(c);
}

static void disks_peers_closed(void *ctx)
{
	struct client *c = ctx;

	c->disks_closed = true;
	all_closed(c);
}

static void abandon_files(struct client *c)
{
	LIST_FOREACH_SAFE(it, &c->files) {
		struct client_file *file = LIST_ENTRY(it, struct client_file, link);

		if (file->write)
			write_abandon(file);
		else
			read_abandon(file);
	}
}

static void close_step(struct io_turn_hook *hook)
{
	struct client *c = CONTAINER_OF(hook, struct client, close_hook);
	struct rpc_replicas *metads = c->session.metads;

	abandon_files(c); /* also those that opens in flight have brought since */
	if (c->ops_active || c->background || !list_empty(&c->files) || !metads || !session_close(&c->session))
		return;
	c->session.metads = NULL;
	rpc_replicas_close(metads, session_peer_closed, c);
	disks_close(&c->disks, disks_peers_closed, c);
}

void client_check_closed(struct client *client)
{
	if (client->closing)
		io_at_turn_end(client->io, &client->close_hook);
}

void client_close(struct client *client, void (*closed)(void *ctx), void *ctx)
{
	CHECK(!client->closing);
	client->closing = true;
	client->closed = closed;
	client->closed_ctx = ctx;
	client_check_closed(client);
}

int client_attr(const Craton__Attr *in, struct cr_stat *ret_stat)
{
	if (!in)
		return ERR_PROTO;
	*ret_stat = (struct cr_stat){
		.inode = in->inode,
		.size = in->size,
		.mtime_ns = in->mtime_ns,
		.ctime_ns = in->ctime_ns,
		.mode = in->mode,
		.uid = in->uid,
		.gid = in->gid,
		.nlink = in->nlink,
		.type = (uint8_t)in->type,
		.complete = in->complete,
	};
	return 0;
}

void client_finish(struct client *client, struct client_op *op)
{
	CHECK(client->ops_active > 0);
	client->ops_active--;
	client_check_closed(client);
	op->done(op);
}

void client_file_free(struct client_file *file)
{
	file->client->file_count--;
	list_remove(&file->link);
	mem_free(file);
}

struct late_finish {
	struct io_turn_hook hook;
	struct client *client;
};
_Static_assert(sizeof(struct late_finish) <= sizeof(((struct client_op *)0)->priv), "fits the operation");

static void finish_at_turn_end(struct io_turn_hook *hook)
{
	struct late_finish *l = CONTAINER_OF(hook, struct late_finish, hook);

	client_finish(l->client, CONTAINER_OF((uint64_t *)(void *)l, struct client_op, priv[0]));
}

void client_finish_later(struct client *client, struct client_op *op)
{
	struct late_finish *l = (struct late_finish *)(void *)op->priv;

	l->client = client;
	l->hook = (struct io_turn_hook){0};
	io_turn_hook_init(&l->hook, finish_at_turn_end);
	io_at_turn_end(client->io, &l->hook);
}

static void file_start(struct client *client, struct client_op *op)
{
	struct client_file *file = op->file;

	if (op->kind == CLIENT_FSTAT) {
		/* A writer's size is what it has accepted so far. */
		op->attr = file->attr;
		client_finish_later(client, op);
	} else if (file->write) {
		write_start(file, op);
	} else {
		read_start(file, op);
	}
}

void client_start(struct client *client, struct client_op *op)
{
	client->ops_active++;
	op->err = (struct err){0};
	op->count = 0;
	op->end = false;
	op->ret_file = NULL;
	op->json = NULL;
	op->chunks = NULL;
	if (client->closing) {
		err_set(&op->err, ERR_STOPPED, "the connection to the store is being closed");
		client_finish_later(client, op);
		return;
	}
	switch (op->kind) {
	case CLIENT_READ:
	case CLIENT_WRITE:
	case CLIENT_FSYNC:
	case CLIENT_CLOSE:
	case CLIENT_ABORT:
	case CLIENT_FSTAT:
		file_start(client, op);
		break;
	case CLIENT_INSPECT:
		inspect_start(client, op);
		break;
	default:
		names_start(client, op);
	}
}
