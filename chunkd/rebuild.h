/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild: the index of a disk made anew from the trailers of its chunks, offline. What it finds is what lies there, dropped chunks
 * that nothing has overwritten included: metad decides which copies count.
 */
#ifndef CHUNKD_REBUILD_H
#define CHUNKD_REBUILD_H

#include "common/base/err.h"
#include "common/io/io.h"
#include "common/kv/kv.h"

struct rebuild_options {
	const char *dir; /* of the disk */
	const struct kv_backend *backend;
	uint64_t log_segment_bytes;                          /* 0: 16 MiB */
	void (*done)(void *ctx, int code, const char *text); /* text: what was done, or what went wrong */
	void *ctx;
};

/*
 * Scans synchronously, then writes as the loop runs, then calls `done`. The old index stays beside the new one as index.old-N, and an
 * empty file rebuilt-SEQUENCE, which later rebuilds need: it must stay. A crash leaves the old index in place, or none: then run it again.
 */
void rebuild_start(struct io *io, const struct rebuild_options *options);

#endif
