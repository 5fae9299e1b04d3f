/* SPDX-License-Identifier: Apache-2.0 */
/*
 * way: bulk writes make way for a metad, or for small chunks, of the same host that are short of processor or disk (common/io/io_way.h says when they ask). One for all
 * disks of a daemon; sched.h holds the writes back.
 */
#ifndef CHUNKD_WAY_H
#define CHUNKD_WAY_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/log.h"
#include "common/io/io_word.h"

#define WAY_LOOK_NS (20ull * 1000 * 1000)   /* the word is looked at so often while there is bulk to write */
#define WAY_HEARD_NS (500ull * 1000 * 1000) /* and heard so long: who asks repeats it every 100 ms */
#define WAY_HOLD_NS (500ull * 1000 * 1000)  /* no write is held back longer: after a second clients ask whether a server is there */

enum { WAY_BULK_BYTES = 64 << 10 }; /* writes of less are not bulk: small files are metadata's own kind of load */

struct way {
	struct io_word word;
	char *path; /* the word's */
	uint64_t bytes_per_s; /* what each disk writes of bulk while it makes way */
	uint64_t looked_ns;
	bool asked;
	uint64_t held_bytes, most_held_bytes; /* of all disks, in memory that puts share; beyond the most the oldest of each go on, but for its last */
};

/*
 * bytes_per_s 0, or path NULL: never asked. While the word cannot be opened it is not heard, which is logged once. memory_bytes: the daemon's for chunk
 * data, of which what is held takes no more than a quarter: the rest is for those who are not held.
 */
void way_init(struct way *way, struct io *io, const char *path, uint64_t bytes_per_s, uint64_t memory_bytes, const struct log *log);
void way_fini(struct way *way);
/* Disks shall hold bulk back. */
bool way_asked(struct way *way);

#endif
