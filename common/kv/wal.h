/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wal: a log on disk: prewritten segment files, chained frames, group sync, marks, trimming.
 *
 * Frames start on 4 KiB, hold the entries of one write, carry index, length, their predecessor's CRC and their own
 * (CRC32C), and the epoch's 128-bit nonce. Every open first appends a frame with a fresh nonce, synced before anything
 * behind it is acknowledged: nothing from an earlier use of a segment can ever be read as log. Each frame carries the
 * highest frame number known synced when it was built (the mark); a log going idle appends a mark frame. At open a bad
 * frame is corruption if an intact frame of this log behind it carries a mark at or above it: ERR_CORRUPT, with file,
 * offset and index in the text, and nothing is changed. Otherwise it is a torn tail and is cut with everything behind
 * it.
 *
 * Segments are files log-%016llx of `segment_bytes`, written with zeros once and then recycled; only these are
 * prewritten. Those that are not needed any more leave in steps, as log-gone-%016llx, so that the disk is never given
 * much to discard at once; what is left of them when the process ends goes after the next open. At most two writes are
 * in flight, each with IO_DSYNC; entries that wait are gathered into the next one.
 * After any write or sync error nothing more is acknowledged: every append fails, `on_fatal` is called once.
 *
 * The log of a replica (wal_replica.h) is the same with more in its frames, and slots beside its segments.
 *
 * Called from the loop's thread only. docs/FORMATS.md has the bytes.
 */
#ifndef COMMON_KV_WAL_H
#define COMMON_KV_WAL_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/slice.h"
#include "common/io/io.h"

struct wal;
struct wal_replica;

enum { WAL_SEGMENT_BYTES_DEFAULT = 64 << 20 };

struct wal_options {
	const char *dir;        /* exists */
	uint64_t segment_bytes; /* 0: 64 MiB; at least 1 MiB, multiple of 4 KiB; fixed at creation */
	uint64_t first_index;   /* of a log that does not exist yet; 0: 1 */
	bool buffered;          /* no O_DIRECT (the file system has none) */
	const struct wal_replica
		*replica; /* NULL: a plain log; neither is ever opened as the other. first_index: not used */
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;
};

/* Replays: calls `each` for every entry with index >= from, in order; its failure ends the open. Synchronous. */
int wal_open(struct io *io, const struct wal_options *options, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx,
	struct wal **ret_wal, struct err *err);

struct wal_append {
	struct slice data; /* caller's, until done; 1..LIMIT_LOG_ENTRY_BYTES */
	uint64_t term;     /* of a replicated log: 1.., never falling */
	uint64_t index;    /* set by wal_submit */
	void (*done)(struct wal_append *append,
		int code); /* durable (in index order) or failed; never from inside wal_submit */
	struct list link;  /* private */
};
void wal_submit(struct wal *wal, struct wal_append *append);

uint64_t wal_next_index(const struct wal *wal);
uint64_t wal_first_index(const struct wal *wal); /* oldest entry still there */
uint64_t wal_durable_index(const struct wal *wal);
/* Of this open: greater than that of each earlier one, and than their numbers of frames. */
uint64_t wal_epoch(const struct wal *wal);
/* Entries <= index are not needed any more: whole segments, oldest first, go back to the pool. */
void wal_trim(struct wal *wal, uint64_t index);
/* Waits for everything submitted, appends a mark, frees. `closed` is not called from inside. */
void wal_close(struct wal *wal, void (*closed)(void *ctx, int code), void *ctx);

/* For a start that failed elsewhere, before the loop runs and before any wal_submit: frees at once. */
void wal_abandon(struct wal *wal);

#endif
