/* SPDX-License-Identifier: Apache-2.0 */
/* trailers: reading a chunk's trailer, and a bounded cache of the unit-CRC lists that readers ask for most. */
#ifndef CHUNKD_TRAILERS_H
#define CHUNKD_TRAILERS_H

#include "chunkd/bufpool.h"
#include "chunkd/format.h"
#include "chunkd/index.h"
#include "chunkd/sched.h"

struct disk;

struct trailer_read {
	void (*done)(struct trailer_read *read, int code); /* never from inside trailer_read_start */
	struct format_trailer trailer;                     /* on success, until trailer_read_end */
	/* private */
	struct disk *disk;
	struct index_row row;
	struct sched_op op;
	struct iovec iov;
	struct bufpool_buf buf;
	struct bufpool_wait wait;
};
/* Pins the row's extent until trailer_read_end. ERR_TRAILER_CORRUPT: it is damaged, or speaks of another chunk. */
void trailer_read_start(struct disk *disk, const struct index_row *row, struct trailer_read *read);
/* After `done`. */
void trailer_read_end(struct trailer_read *read);

/* It is of the very chunk and place that the row says. */
bool trailer_is_of_row(const struct format_trailer *trailer, const struct index_row *row);

struct trailer_cache;
enum { TRAILER_CACHE_BYTES = 16 << 20 }; /* lists of 16 GiB of chunks, for each disk */

struct trailer_cache *trailer_cache_new(void);
void trailer_cache_free(struct trailer_cache *cache);
/* The chunk's own list; valid until the next put or forget. An empty slice: not there. */
struct slice trailer_cache_get(struct trailer_cache *cache, const struct copy_id *copy);
void trailer_cache_put(struct trailer_cache *cache, const struct copy_id *copy, struct slice list);
void trailer_cache_forget(struct trailer_cache *cache, const struct copy_id *copy);

#endif
