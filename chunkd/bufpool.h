/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bufpool: the aligned memory that chunk data passes through, of all disks of a daemon. Two sizes of slot (64 KiB and 1 MiB), reused
 * last in first out while they are still in the cache; memory grows in steps up to the bound and never shrinks. Puts and gets have
 * separate limits below the sum, so that neither starves the other.
 */
#ifndef CHUNKD_BUFPOOL_H
#define CHUNKD_BUFPOOL_H

#include <stddef.h>
#include <stdint.h>
#include "common/io/io.h"

struct bufpool;

enum bufpool_use { BUFPOOL_PUT, BUFPOOL_GET, BUFPOOL_USES };
enum { BUFPOOL_SMALL_BYTES = 64 << 10, BUFPOOL_LARGE_BYTES = 1 << 20 };

struct bufpool_buf {
	uint8_t *data;  /* NULL: none */
	uint32_t bytes; /* of the slot */
	uint8_t use;
};

/* Some are taken (and touched) at once, 16 MiB where max_bytes is ample, the rest on need. */
struct bufpool *bufpool_new(struct io *io, uint64_t max_bytes);
/* All buffers are back, nobody waits. */
void bufpool_free(struct bufpool *pool);

/* 1 .. 1 MiB. ERR_OVERLOADED when the use's share is spent. */
int bufpool_get(struct bufpool *pool, enum bufpool_use use, size_t bytes, struct bufpool_buf *ret_buf);
/* Sets data to NULL; a no-op if it is. */
void bufpool_put(struct bufpool *pool, struct bufpool_buf *buf);

/* After ERR_OVERLOADED: `run` once, at the end of a turn in which buffers of that use came back; then try again. First come first. */
struct bufpool_wait {
	void (*run)(struct bufpool_wait *wait);
	struct list link;
};
void bufpool_wait(struct bufpool *pool, enum bufpool_use use, struct bufpool_wait *wait);
/* Harmless if it does not wait. */
void bufpool_wait_cancel(struct bufpool_wait *wait);

uint64_t bufpool_held_bytes(const struct bufpool *pool, enum bufpool_use use);
uint64_t bufpool_free_bytes(const struct bufpool *pool, enum bufpool_use use); /* of its share */

#endif
