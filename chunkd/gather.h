/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather: durable writes of small chunks, many with one call. What is added in one turn of the loop leaves at its end, as a round: writes
 * that lie behind one another in a segment go as one, each such write is durable by itself (IO_DSYNC). One round is in the kernel at a
 * time; what is added meanwhile waits and makes the next one larger.
 *
 * Chunks take the first free place, so those that arrive together mostly lie together: at 64 writers that is one write where there
 * were 30.
 */
#ifndef CHUNKD_GATHER_H
#define CHUNKD_GATHER_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/sched.h"
#include "common/base/list.h"

enum { GATHER_WRITE_IOVS = 2 }; /* of one added write */

struct segments;

/* The caller's, until `done`. */
struct gather_write {
	uint32_t segment;
	uint64_t offset; /* in the segment; it and the lengths are multiples of what O_DIRECT asks for */
	struct iovec iov[GATHER_WRITE_IOVS];
	int iov_count;
	void (*done)(struct gather_write *w, int code); /* durable, or not known to be; never from inside gather_add */
	struct list link;                               /* private */
};

struct gather {
	struct io *io;
	struct sched *sched;
	struct segments *segments;
	struct list queue;  /* by place */
	uint32_t runs_left; /* of the round; 0: it is over */
	struct list free;   /* runs, for reuse */
	struct io_turn_hook hook;
};

void gather_init(struct gather *g, struct io *io, struct sched *sched, struct segments *segments);
/* Everything added is done. */
void gather_fini(struct gather *g);
void gather_add(struct gather *g, struct gather_write *w);

#endif
