/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment: the segment files of one disk: where extents come from, and the syncs that uploads share.
 *
 * DISK/segments/NNNNNNNN-CLASS, all of one size. Files are made off the data path, whole (allocated, synced, then named), when a class
 * first needs one and from then on ahead of need; they are never truncated or removed.
 */
#ifndef CHUNKD_SEGMENT_H
#define CHUNKD_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/alloc.h"
#include "common/base/log.h"
#include "common/io/io.h"

struct segments;

enum { SEGMENT_NAME_BYTES = 32, SEGMENT_COUNT_MAX = 1 << 16 };

struct segments_options {
	const char *dir; /* the disk's; DIR/segments exists */
	uint64_t segment_bytes;
	uint64_t capacity_bytes; /* greatest sum of segment files */
	uint64_t reserve_bytes;  /* left free on the file system for logs and tables */
	bool buffered;           /* no O_DIRECT */
	const struct log *log;
	/* A failed sync: the disk is done for. Called before the waiting seals hear of it. */
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;
};

/* Synchronous. Every segment is free until segments_reserve. */
int segments_open(
	struct io *io, const struct segments_options *options, struct segments **ret_segments, struct err *err);
/* No I/O on any extent is in flight. Waits for a file being made; then frees and calls `closed`. */
void segments_close(struct segments *segments, void (*closed)(void *ctx), void *ctx);

/* At start: the index names this extent. ERR_EXIST, ERR_RANGE: it cannot be (see alloc.h). */
int segments_reserve(struct segments *segments, struct alloc_extent extent);

struct segment_wait {
	enum alloc_class class;
	uint32_t grains;
	struct alloc_extent extent;                        /* the result */
	void (*done)(struct segment_wait *wait, int code); /* only after ERR_AGAIN; never from inside segments_take */
	struct list link;
};
/*
 * Takes wait->grains. 0: at once. ERR_AGAIN: `done` follows when a new segment is there, or cannot be made. ERR_NO_EXTENT: no segment of any class has
 * room, and no further one can be made, or making them keeps failing. ERR_OVERLOADED: making one failed for the first time, a moment ago, not for want of space.
 */
int segments_take(struct segments *segments, struct segment_wait *wait);
void segments_wait_cancel(struct segment_wait *wait); /* harmless if it does not wait */
void segments_give(struct segments *segments, struct alloc_extent extent);

bool segments_has(const struct segments *segments, uint32_t segment);
int segments_fd(const struct segments *segments, uint32_t segment); /* one that is there */
/* "segments/00000003-medium"; "" for a number that is not there. */
void segments_name(const struct segments *segments, uint32_t segment, char ret_name[SEGMENT_NAME_BYTES]);

struct segment_sync_wait {
	void (*done)(struct segment_sync_wait *wait, int code);
	struct list link;
};
/* `done` follows an fdatasync of the segment's file that was submitted after this call; all that wait share one. */
void segments_sync(struct segments *segments, uint32_t segment, struct segment_sync_wait *wait);

/* The name of one, or of one that is being made, in which nothing lies yet. */
bool segment_has_name(const char *name);
/* NNNNNNNN-CLASS; false for any other name. */
bool segment_parse_name(const char *name, uint32_t *ret_number, enum alloc_class *ret_class);

/*
 * What chunks of LIMIT_ROOM_BYTES << size could still get, with their trailers: free extents that one fits in, of all classes, and segments not
 * made yet. Size 0: all that is free.
 */
uint64_t segments_free_bytes(const struct segments *segments, uint32_t size);
/* Asks the file system anew how much is left, for later calls of the above, and, if the disk `makes`, makes a segment where that kept failing. To be called now and then. */
void segments_refresh(struct segments *segments, bool makes);
/* 0, or the error that keeps segments from being made: again and again, and not for want of space. */
int segments_stuck(const struct segments *segments);
uint64_t segments_capacity_bytes(const struct segments *segments);
uint64_t segments_made_bytes(const struct segments *segments);

#endif
