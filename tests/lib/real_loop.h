/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real_loop: a real event loop and a directory of its own for a unit test. The test says how many things it expects,
 * starts them, and waits; each callback reports one. The deadline is Check's.
 */
#ifndef TESTS_LIB_REAL_LOOP_H
#define TESTS_LIB_REAL_LOOP_H

#include "common/base/err.h"
#include "common/io/io.h"
#include "tests/lib/assert.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct real_loop {
	struct io *io;
	char dir[64];
	bool buffered; /* the directory's file system has no O_DIRECT */
	uint32_t expected;
	int code; /* the last one reported by real_loop_closed */
};

static inline int real_loop_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void real_loop_init(struct real_loop *l)
{
	struct err err;
	char path[96];
	int fd;

	memset(l, 0, sizeof(*l));
	snprintf(l->dir, sizeof(l->dir), "unit-XXXXXX"); /* in the build tree: /tmp may lack O_DIRECT */
	ck_assert_ptr_nonnull(mkdtemp(l->dir));
	ck_assert_int_eq(io_new(IO_BACKEND_AUTO, &l->io, &err), 0);
	snprintf(path, sizeof(path), "%s/direct", l->dir);
	l->buffered = io_open(l->io, path, IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_DIRECT, 0600, &fd) != 0;
	if (!l->buffered)
		io_close(l->io, fd);
	(void)io_unlink(l->io, path);
}

static inline void real_loop_fini(struct real_loop *l)
{
	io_free(l->io);
	ck_assert_int_eq(nftw(l->dir, real_loop_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static inline void real_loop_got(struct real_loop *l)
{
	ck_assert_uint_gt(l->expected, 0);
	if (--l->expected == 0)
		io_stop(l->io);
}

static inline void real_loop_wait(struct real_loop *l)
{
	while (l->expected > 0)
		ck_assert_int_eq(io_run(l->io), 0);
}

/* For xxx_close and xxx_flush: void (*)(void *ctx, int code). */
static inline void real_loop_closed(void *ctx, int code)
{
	struct real_loop *l = ctx;

	l->code = code;
	real_loop_got(l);
}

#endif
