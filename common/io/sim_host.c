// SPDX-License-Identifier: Apache-2.0
/*
 * sim_host: a machine: its descriptors, clocks and memory, its boot and its crash, and the table of calls that its daemons see.
 */
#include <string.h>
#include "common/base/mem.h"
#include "common/io/io_real.h"
#include "common/io/sim_impl.h"

static const int64_t SIM_WALL_START_NS = 1767225600ll * 1000000000ll; /* 2026-01-01 */

/* ---- descriptors: the lowest free number, as POSIX has it, so that stale ones are soon found out ---- */

enum { SIM_FD_FIRST = 3 };

int sim__fd_new(struct sim_host *host, enum sim_fd_kind kind, void *object)
{
	size_t fd = SIM_FD_FIRST;

	while (fd < host->fd_cap && host->fds[fd].kind != SIM_FD_NONE)
		fd++;
	if (fd >= host->fd_cap) {
		size_t cap = host->fd_cap ? 2 * host->fd_cap : 64;

		host->fds = mem_realloc(host->fds, cap * sizeof(*host->fds));
		memset(host->fds + host->fd_cap, 0, (cap - host->fd_cap) * sizeof(*host->fds));
		host->fd_cap = cap;
	}
	host->fds[fd] = (struct sim_fd){kind, object};
	return (int)fd;
}

void *sim__fd_get(struct sim_host *host, int fd, enum sim_fd_kind kind)
{
	if (fd < 0 || (size_t)fd >= host->fd_cap || host->fds[fd].kind != kind)
		return NULL;
	return host->fds[fd].object;
}

void sim__fd_drop(struct sim_host *host, int fd)
{
	host->fds[fd] = (struct sim_fd){0};
}

static void sim_close(struct io *io, int fd)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_fd entry;

	CHECK((size_t)fd < host->fd_cap && host->fds[fd].kind != SIM_FD_NONE);
	entry = host->fds[fd];
	sim__fd_drop(host, fd);
	if (entry.kind == SIM_FD_FILE)
		sim__name_close(host, entry.object);
	else
		sim__net_close(host, entry.kind, entry.object);
}

/* ---- clocks, entropy, buffers ---- */

static uint64_t sim_turn_now_ns(struct io *io)
{
	/* Time stands still within a turn; and who calls from between turns (a test's program) means now. */
	return sim_host_of(io)->sim->now_ns;
}

static uint64_t sim_clock_ns(struct io *io)
{
	return sim_host_of(io)->sim->now_ns;
}

static int64_t sim_wall_ns(struct io *io)
{
	struct sim_host *host = sim_host_of(io);

	return SIM_WALL_START_NS + (int64_t)host->sim->now_ns + host->wall_offset_ns;
}

static void sim_entropy(struct io *io, void *out, size_t len)
{
	rng_bytes(&sim_host_of(io)->entropy, out, len);
}

/* One that a host has given back, or lost in a crash, serves again, as it was left: nothing may depend on what is in it. */
static void *sim_buffer_alloc(struct io *io, size_t bytes)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_buffer *b;

	LIST_FOREACH(n, &host->sim->buffers) {
		b = LIST_ENTRY(n, struct sim_buffer, link);
		if (b->bytes != bytes)
			continue;
		list_remove(&b->link);
		list_push_back(&host->buffers, &b->link);
		return b->data;
	}
	b = MEM_NEW(struct sim_buffer);
	b->bytes = bytes;
	b->data = io__pages_alloc(bytes, false);
	list_push_back(&host->buffers, &b->link);
	return b->data;
}

static void sim_buffer_drop(struct sim *sim, struct sim_buffer *b)
{
	list_remove(&b->link);
	list_push_front(&sim->buffers, &b->link);
}

void sim__buffers_free(struct sim *sim)
{
	struct list *n;

	while ((n = list_pop_front(&sim->buffers))) {
		struct sim_buffer *b = LIST_ENTRY(n, struct sim_buffer, link);

		io__pages_free(b->data, b->bytes);
		mem_free(b);
	}
}

static void sim_buffer_free(struct io *io, void *buf, size_t bytes)
{
	LIST_FOREACH(n, &sim_host_of(io)->buffers) {
		struct sim_buffer *b = LIST_ENTRY(n, struct sim_buffer, link);

		if (b->data == buf) {
			CHECK(b->bytes == bytes);
			sim_buffer_drop(sim_host_of(io)->sim, b);
			return;
		}
	}
	CHECK_UNREACHABLE();
}

/* ---- a host ---- */

static int sim_host_run(struct io *io)
{
	(void)io;
	return ERR_OPNOTSUPP; /* sim_run runs all hosts */
}

static void sim_host_stop(struct io *io)
{
	(void)io; /* a process that wants to end has nothing to return from here; its host goes on until a crash */
}

static void sim_host_free(struct io *io)
{
	(void)io; /* hosts end with sim_free */
}

static const struct io_vtable sim_vtable = {
	.name = "sim",
	.simulated = true,
	.submit = sim__submit,
	.cancel = sim__cancel,
	.post = sim__post,
	.hook_added = sim__hook_added,
	.run = sim_host_run,
	.stop = sim_host_stop,
	.free = sim_host_free,
	.now_ns = sim_turn_now_ns,
	.clock_ns = sim_clock_ns,
	.wall_ns = sim_wall_ns,
	.random = sim_entropy,
	.listen = sim__net_listen,
	.close = sim_close,
	.shutdown = sim__net_shutdown,
	.open = sim__name_open,
	.size = sim__name_size,
	.allocate = sim__name_allocate,
	.truncate = sim__name_truncate,
	.pread = sim__name_pread,
	.pwrite = sim__name_pwrite,
	.fdatasync = sim__name_fdatasync,
	.mkdir = sim__name_mkdir,
	.rename = sim__name_rename,
	.unlink = sim__name_unlink,
	.sync_dir = sim__name_sync_dir,
	.list_dir = sim__name_list_dir,
	.lock = sim__name_lock,
	.disk_space = sim__name_disk_space,
	.buffer_alloc = sim_buffer_alloc,
	.buffer_free = sim_buffer_free,
};

static void sim_host_boot(struct sim_host *host)
{
	struct sim *sim = host->sim;

	io__init(&host->io, &sim_vtable);
	list_init(&host->ops);
	list_init(&host->ready);
	list_init(&host->batch);
	list_init(&host->listeners);
	host->post_first = NULL;
	host->post_end = &host->post_first;
	host->busy_until_ns = sim->now_ns;
	memset(host->workers, 0, sizeof(host->workers));
	host->work_stall_ns = 0;
	host->net_free_ns = 0;
	host->next_port = 32768;
	rng_init(&host->entropy,
		sim->options.seed ^ ((uint64_t)host->number << 32) ^ ((uint64_t)host->life << 48) ^ 0x5eed);
	host->is_up = true;
}

struct io *sim_host_add(struct sim *sim, const char *name, uint64_t disk_bytes)
{
	struct sim_host *host = MEM_NEW(struct sim_host);

	CHECK(sim->host_count < SIM_HOSTS_MAX);
	host->sim = sim;
	host->name = mem_strdup(name);
	host->number = sim->host_count + 1;
	host->turn.run = sim__turn;
	list_init(&host->buffers);
	sim__disk_init(&host->disk, disk_bytes);
	sim_host_boot(host);
	sim->hosts[sim->host_count++] = host;
	sim_note(sim, "host %u %s", host->number, name);
	return &host->io;
}

struct io_addr sim_host_addr(struct io *io, uint16_t port)
{
	return (struct io_addr){.family = 4, .port = port, .ip = {10, 0, 0, (uint8_t)sim_host_of(io)->number}};
}

void sim__drop_op(struct io_op *op)
{
	/* Idle again, though `done` never ran: whoever lives on after the crash may prepare it anew. */
	list_remove(&op->link);
	op->state = 0;
}

static void sim_drop_ops(struct sim_host *host, struct list *ops)
{
	struct list *n;

	while ((n = list_pop_front(ops))) {
		struct io_op *op = LIST_ENTRY(n, struct io_op, link);

		sim__unschedule(host->sim, &sim_op_of(op)->event);
		if (op->kind == IO_CONNECT)
			sim__net_crash_op(host, op);
		if (op->kind == IO_WRITE && !(op->state & IO_STATE_READY))
			sim__disk_crash_op(host, op);
		sim__drop_op(op);
	}
}

static void sim_host_drop_memory(struct sim_host *host)
{
	struct list *n;

	while ((n = list_pop_front(&host->buffers)))
		sim_buffer_drop(host->sim, LIST_ENTRY(n, struct sim_buffer, link));
	mem_free(host->fds);
	host->fds = NULL;
	host->fd_cap = 0;
}

void sim__host_drop_fds(struct sim_host *host)
{
	for (size_t fd = 0; fd < host->fd_cap; fd++) {
		if (host->fds[fd].kind == SIM_FD_FILE)
			sim__file_free(host->fds[fd].object);
		else if (host->fds[fd].kind != SIM_FD_NONE)
			sim__net_free_fd(host->fds[fd].kind, host->fds[fd].object);
	}
}

void sim__host_free(struct sim_host *host)
{
	sim_host_drop_memory(host);
	sim__disk_fini(&host->disk);
	mem_free(host->name);
	mem_free(host);
}

void sim_host_crash(struct io *io)
{
	struct sim_host *host = sim_host_of(io);

	if (!host->is_up)
		return;
	sim_note(host->sim, "crash %s", host->name);
	host->is_up = false;
	host->life++;
	sim__unschedule(host->sim, &host->turn);
	sim_drop_ops(host, &host->ops);
	sim_drop_ops(host, &host->ready);
	sim_drop_ops(host, &host->batch);
	for (size_t fd = 0; fd < host->fd_cap; fd++) {
		struct sim_fd entry = host->fds[fd];

		host->fds[fd] = (struct sim_fd){0};
		if (entry.kind == SIM_FD_LISTENER || entry.kind == SIM_FD_END)
			sim__net_crash_fd(host, entry.kind, entry.object);
		else if (entry.kind == SIM_FD_FILE)
			sim__name_abandon(host, entry.object);
	}
	list_init(&host->io.hooks);
	sim__disk_crash(host);
	sim_host_drop_memory(host);
}

void sim_host_restart(struct io *io)
{
	struct sim_host *host = sim_host_of(io);

	CHECK(!host->is_up);
	sim_host_boot(host);
	sim_note(host->sim, "restart %s", host->name);
}

bool sim_host_is_up(const struct io *io)
{
	return CONTAINER_OF((struct io *)io, struct sim_host, io)->is_up;
}
