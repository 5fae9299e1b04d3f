/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_world: one test body for all back ends of io. IO_TEST(name) { ... } defines name_uring, name_epoll and name_sim;
 * the body gets a `struct world *w` with a loop, an empty directory and an address to listen on. IO_TESTS(name) names
 * them for UNIT_MAIN.
 */
#ifndef TESTS_LIB_IO_WORLD_H
#define TESTS_LIB_IO_WORLD_H

#include "tests/lib/assert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/mem.h"
#include "common/io/io.h"
#include "common/io/io_sim.h"

struct world {
	struct io *io;
	struct sim *sim; /* NULL: a real back end */
	struct io_addr addr;
	char dir[64];
};

/* An operation of a test: how often and with what it was done. */
struct world_op {
	struct io_op op;
	struct world *w;
	int done_count;
	uint64_t done_at; /* order of completions in the world */
	struct iovec iov[4];
};

static uint64_t world_done_seq;

static inline void world_done(struct io_op *op)
{
	struct world_op *o = CONTAINER_OF(op, struct world_op, op);

	ck_assert(!io_pending(op));
	o->done_count++;
	o->done_at = ++world_done_seq;
	if (!o->w->sim)
		io_stop(o->w->io);
}

static inline void world_open(struct world *w, const char *backend)
{
	struct err err = {0};
	int rc;

	*w = (struct world){0};
	if (!strcmp(backend, "sim")) {
		struct sim_options options = {.seed = 7};

		w->sim = sim_new(&options);
		w->io = sim_host_add(w->sim, "host-1", 64 << 20);
		w->addr = sim_host_addr(w->io, 0);
		snprintf(w->dir, sizeof(w->dir), "/data");
		ck_assert_int_eq(io_mkdir(w->io, w->dir, 0755), 0);
		return;
	}
	rc = io_new(!strcmp(backend, "uring") ? IO_BACKEND_URING : IO_BACKEND_EPOLL, &w->io, &err);
	if (rc) {
		ck_assert_str_eq(backend, "uring");
		printf("SKIP: %s\n", err.text);
		return;
	}
	ck_assert_int_eq(io_addr_parse("127.0.0.1:0", &w->addr), 0);
	snprintf(w->dir, sizeof(w->dir), "./test_io_XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(w->dir));
}

static inline int world_remove(void *ctx, const char *name)
{
	struct world *w = ctx;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", w->dir, name);
	return io_unlink(w->io, path);
}

static inline void world_close(struct world *w)
{
	if (w->sim) {
		sim_free(w->sim);
		return;
	}
	ck_assert_int_eq(io_list_dir(w->io, w->dir, world_remove, w), 0);
	ck_assert_int_eq(rmdir(w->dir), 0);
	io_free(w->io);
}

static inline void world_with(const char *backend, void (*body)(struct world *w))
{
	struct world w;

	world_open(&w, backend);
	if (!w.io)
		return;
	body(&w);
	world_close(&w);
}

#define IO_TEST(name)                              \
	static void name(struct world *w);         \
	START_TEST(name##_uring)                   \
		{                                  \
			world_with("uring", name); \
		}                                  \
	END_TEST                                   \
	START_TEST(name##_epoll)                   \
		{                                  \
			world_with("epoll", name); \
		}                                  \
	END_TEST                                   \
	START_TEST(name##_sim)                     \
		{                                  \
			world_with("sim", name);   \
		}                                  \
	END_TEST                                   \
	static void name(struct world *w)

#define IO_TESTS(name) name##_uring, name##_epoll, name##_sim

static inline bool world_all_done(void *ctx)
{
	struct world_op **ops = ctx;

	for (int i = 0; ops[i]; i++)
		if (!ops[i]->done_count)
			return false;
	return true;
}

/* Runs the loop until every operation of the NULL-terminated list was done. Check's own timeout is the deadline. */
static inline void world_wait_list(struct world *w, struct world_op **ops)
{
	if (w->sim) {
		ck_assert(sim_run(w->sim, world_all_done, ops, sim_now_ns(w->sim) + 600000000000u));
		return;
	}
	while (!world_all_done(ops))
		ck_assert_int_eq(io_run(w->io), 0);
}

#define WORLD_WAIT(w, ...) world_wait_list(w, (struct world_op *[]){__VA_ARGS__, NULL})

static inline void world_submit(struct world *w, struct world_op *o)
{
	o->w = w;
	o->done_count = 0;
	io_submit(w->io, &o->op);
}

static inline void world_timer(struct world *w, struct world_op *o, uint64_t in_ns)
{
	io_prep_timer(&o->op, io_clock_ns(w->io) + in_ns, world_done);
	world_submit(w, o);
}

static inline void world_send(struct world *w, struct world_op *o, int fd, const void *data, size_t len)
{
	o->iov[0] = (struct iovec){(void *)data, len};
	io_prep_send(&o->op, fd, o->iov, 1, world_done);
	world_submit(w, o);
}

static inline void world_recv(struct world *w, struct world_op *o, int fd, void *data, size_t len, uint16_t flags)
{
	o->iov[0] = (struct iovec){data, len};
	io_prep_recv(&o->op, fd, o->iov, 1, flags, world_done);
	world_submit(w, o);
}

/* Two ends of one connection, to a listener. */
static inline void world_connect_to(
	struct world *w, int listener, const struct io_addr *bound, int *ret_client, int *ret_server)
{
	struct world_op accept = {0}, connect = {0};

	io_prep_accept(&accept.op, listener, world_done);
	world_submit(w, &accept);
	io_prep_connect(&connect.op, bound, world_done);
	world_submit(w, &connect);
	WORLD_WAIT(w, &accept, &connect);
	ck_assert_int_ge(accept.op.result, 0);
	ck_assert_int_ge(connect.op.result, 0);
	ck_assert_uint_eq(accept.op.accept.peer.family, 4);
	*ret_client = (int)connect.op.result;
	*ret_server = (int)accept.op.result;
}

/* Two ends of one connection. */
static inline void world_connect(struct world *w, int *ret_client, int *ret_server)
{
	struct io_addr bound;
	struct err err = {0};
	int listener;

	ck_assert_int_eq(io_listen(w->io, &w->addr, &listener, &bound, &err), 0);
	ck_assert_uint_ne(bound.port, 0);
	world_connect_to(w, listener, &bound, ret_client, ret_server);
	io_close(w->io, listener);
}

#endif
