/* SPDX-License-Identifier: Apache-2.0 */
/* sim_world: a world on a simulated host. */
#ifndef TESTS_LIB_SIM_WORLD_H
#define TESTS_LIB_SIM_WORLD_H

#include "tests/lib/io_world.h"

static inline struct world sim_world(uint64_t seed)
{
	struct sim_options options = {.seed = seed};
	struct world w = {.sim = sim_new(&options)};

	w.io = sim_host_add(w.sim, "host-1", 16 << 20);
	w.addr = sim_host_addr(w.io, 0);
	return w;
}

static inline void run_for(struct world *w, uint64_t ns)
{
	sim_run(w->sim, NULL, NULL, sim_now_ns(w->sim) + ns);
}

static inline int open_file(struct io *io, const char *path, uint32_t flags)
{
	int fd;

	ck_assert_int_eq(io_open(io, path, flags, 0644, &fd), 0);
	return fd;
}

static inline void start_write(
	struct world *w, struct world_op *o, int fd, const void *data, size_t len, uint64_t offset, uint16_t flags)
{
	o->iov[0] = (struct iovec){(void *)data, len};
	io_prep_write(&o->op, fd, o->iov, 1, offset, flags, world_done);
	world_submit(w, o);
}

static inline void start_sync(struct world *w, struct world_op *o, int fd)
{
	io_prep_sync(&o->op, fd, world_done);
	world_submit(w, o);
}

#endif
