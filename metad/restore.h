/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore: an empty directory becomes that of a metad, from a backup, offline. Nothing is written before the whole backup was read and
 * found good and of the right cluster. A file `restoring` lies in the directory while it is half made; metad refuses to start there.
 */
#ifndef METAD_RESTORE_H
#define METAD_RESTORE_H

#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/io/io.h"
#include "common/kv/kv.h"

/*
 * A cluster's numbers last for STATE_RESTORES restores, and each one that a backup does not know of uses one up. So many of them are believed at
 * once; a greater number is more likely a slip, which could not be undone.
 */
enum { RESTORE_PLAUSIBLE = 16 };

struct restore_options {
	const char *dir;  /* exists, and holds no metadata */
	const char *file; /* the backup */
	struct uuid cluster;
	uint32_t restores; /* that the disks have seen, if more than the backup knows of */
	bool force;        /* also if that is more than RESTORE_PLAUSIBLE more */
	uint64_t replica; /* 0: of a store with one metad; FOUNDING_REPLICA: the first of a group that is founded anew (metad/replica/founding.h) */
	const struct kv_backend *backend;
	uint64_t log_segment_bytes;                          /* 0: 64 MiB */
	void (*done)(void *ctx, int code, const char *text); /* text: what was done, or what went wrong; never from inside */
	void *ctx;
};

/* Reads and writes rows synchronously, then makes the log as the loop runs, then calls `done`. */
void restore_start(struct io *io, const struct restore_options *options);

/* ERR_INCOMPLETE: the directory was left half made by a restore. */
int restore_check_dir(struct io *io, const char *dir, struct err *err);

#endif
