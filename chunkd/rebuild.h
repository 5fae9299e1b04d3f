/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild: the index of a disk made anew from the trailers of its chunks, offline. What it finds is what lies there, dropped chunks
 * that nothing has overwritten included: metad decides which copies count.
 */
#ifndef CHUNKD_REBUILD_H
#define CHUNKD_REBUILD_H

#include "chunkd/alloc.h"
#include "chunkd/index.h"
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

/* A name in the directory of a disk that only a rebuild makes. */
bool rebuild_leaves(const char *name);

/*
 * Which of the rows that were found the index gets: of each copy the one of the highest sequence, unless one of a higher one lies over it. length 0: of what is not whole; its
 * place is kept from older ones all the same, if nothing newer has any of it. They stand first in `rows` then; returns how many. alloc: has the segments, and nothing taken. Pure.
 */
size_t rebuild_choose(struct index_row *rows, size_t count, struct alloc *alloc);

#endif
