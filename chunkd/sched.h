/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched: the queue of one disk. So many data I/Os are in the kernel at once, the others wait here by traffic class; within a class first
 * come first. The classes behind foreground have their place in the interface: their shares come with the work that needs them.
 *
 * While way.h says so, bulk writes are held back before they join their queue, so that what is left is way->bytes_per_s; in their order, none
 * longer than WAY_HOLD_NS, and no more of them than way->most_held_bytes and one of each disk. Reads, small writes and those of repair pass them.
 */
#ifndef CHUNKD_SCHED_H
#define CHUNKD_SCHED_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/way.h"
#include "common/base/limits.h"
#include "common/io/io.h"

enum sched_class { SCHED_FOREGROUND, SCHED_REPAIR, SCHED_SCRUB, SCHED_BALANCE, SCHED_CLASSES };

enum {
	SCHED_DEPTH = 64, /* I/Os in the kernel at most */
	/*
	 * Their bytes at most. A disk shares its bandwidth among all that it was given: of 100 MiB everything comes late and at once, and it
	 * then stands idle while that is sent. Enough for the product of bandwidth and latency of the fastest SSD.
	 */
	SCHED_BYTES = 4 << 20,
	SCHED_QUEUE =
		4096, /* waiting: beyond it new requests are refused (memory is bounded by the buffers they hold) */
};

_Static_assert(SCHED_DEPTH + 16 <= LIMIT_DISK_IOS, "with its log, its probe and its syncs a disk that hangs leaves the others theirs");

struct sched {
	struct io *io;
	struct list queues[SCHED_CLASSES];
	uint32_t running, waiting; /* those that are held wait */
	uint64_t running_bytes;
	uint32_t gathering; /* small writes that wait for their round (gather.h): of the queue, but not in it yet */
	struct way *way;    /* NULL: bulk never makes way */
	struct list held;
	uint64_t held_until_ns; /* the first of them goes on then */
	uint64_t held_bytes;    /* of all that were held since the start */
	struct io_op timer;
};

struct sched_op {
	struct io_op io;                   /* a read or write, prepared with sched_io_done */
	void (*done)(struct sched_op *op); /* never from inside sched_submit; io.result holds */
	bool passes;                       /* a write that makes way for nobody */
	/* private */
	struct sched *sched;
	struct list link;
	uint64_t bytes, latest_ns;
	enum sched_class class;
};

void sched_init(struct sched *s, struct io *io, struct way *way);
void sched_io_done(struct io_op *io);
void sched_submit(struct sched *s, enum sched_class class, struct sched_op *op);
/* So many small writes began to wait elsewhere (or, below 0, are submitted now): they count like those that wait here. */
void sched_gathering(struct sched *s, int32_t change);
bool sched_has_room(const struct sched *s);
uint32_t sched_depth(const struct sched *s); /* running and waiting, here or elsewhere */

#endif
