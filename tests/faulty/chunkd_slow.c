/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk server with slow disks: CRATON_FAULT=slow-disk=N holds the end of each of its file operations back by N times its own median.
 * Linked with --wrap=io_new around the real program, for tools/prove: the program that is installed knows no such variable.
 */
#include <stdlib.h>
#include "common/io/io.h"

int __real_io_new(enum io_backend backend, struct io **ret_io, struct err *err);
int __wrap_io_new(enum io_backend backend, struct io **ret_io, struct err *err);

int __wrap_io_new(enum io_backend backend, struct io **ret_io, struct err *err)
{
	struct io *io;
	int rc = __real_io_new(backend, &io, err);

	if (rc)
		return rc;
	rc = io_slow_down(io, getenv("CRATON_FAULT"), err);
	if (rc)
		io_free(io);
	else
		*ret_io = io;
	return rc;
}
