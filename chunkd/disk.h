/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk: one chunk store: a directory with a superblock, segments, an index. What is above (put, get, trailers) works on one of these;
 * nothing here knows the network.
 *
 *   DIR/lock         held while the disk is open
 *   DIR/superblock   identity and secret; the last thing that formatting writes
 *   DIR/segments/    chunk data
 *   DIR/index/       the journal of the chunk index
 *
 * A disk fails at the first error of a write, a sync or its index, and stays failed until it is opened again: nothing is acknowledged
 * any more, since what was written before may be lost without a further word; reads go on, every byte of them is proven elsewhere.
 */
#ifndef CHUNKD_DISK_H
#define CHUNKD_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/bufpool.h"
#include "chunkd/format.h"
#include "chunkd/index.h"
#include "chunkd/sched.h"
#include "chunkd/segment.h"
#include "chunkd/verify.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/code/hmac.h"

struct puts;
struct trailer_cache;

struct disk_options {
	const char *dir; /* exists */
	struct uuid cluster;
	uint64_t capacity_bytes; /* 0: what the file system has, less 5 % */
	uint64_t segment_bytes;  /* room for data in a segment; 0: see chunkd.h; of a disk that is not formatted yet */
	const struct kv_backend *backend;
	uint64_t log_segment_bytes; /* 0: 16 MiB */
	bool no_format;             /* an empty directory is an error: a disk that was not mounted looks like that */
	struct bufpool *pool;
	struct way *way; /* NULL: bulk never makes way */
	const struct log *log;
};

struct disk {
	struct io *io;
	char *dir;
	const struct log *log;
	struct bufpool *pool;
	struct format_superblock sb;
	struct hmac_key trailer_key;
	struct segments *segments;
	struct index *index;
	struct sched sched;
	struct puts *puts;
	struct trailer_cache *trailers;
	bool buffered; /* no O_DIRECT here */
	int failed;    /* 0 or what failed it */
	char failed_text[128];
	/* The layer above: the disk may be used, its receipts are made with this key. */
	bool registered;
	struct hmac_key receipt_key;
	/* private */
	int lock_fd;
	struct {
		struct alloc_extent *extents;
		size_t count, cap;
	} load;          /* while the index is opened */
	struct verify verify; /* likewise */
	struct map pins; /* extents being read */
	uint32_t drops;  /* whose records are on their way */
	struct {
		struct io_op op;
		uint8_t bytes[FORMAT_SUPERBLOCK_BYTES];
		struct format_superblock sb;
		int code, last_code;
		void (*done)(void *ctx, int code);
		void *ctx;
		bool busy;
	} identity;
	void (*closed)(void *ctx);
	void *closed_ctx;
};

/*
 * Makes a disk of an empty directory (but for lost+found) and says which. Synchronous. What is there already is refused: a disk of this
 * cluster or another one, an old index or segments, other files. Of the options dir, cluster, capacity_bytes, segment_bytes and log count.
 */
int disk_format(struct io *io, const struct disk_options *options, struct format_superblock *ret_sb, struct err *err);
struct disk_found {
	bool superblock, lock;
};
/*
 * Inside the module. 0: it has a superblock, or holds nothing and may become a disk. ERR_NOTEMPTY: files of others. ERR_CORRUPT: what a disk was used
 * for. ERR_NOENT: options.no_format, and it is none. If `ret_found` has a lock all the same, another one may be making a disk of it, but where it is ERR_NOTEMPTY: who holds the
 * lock looks again.
 */
int disk__look(struct io *io, const struct disk_options *options, struct disk_found *ret_found, struct err *err);
/* Inside the module: the superblock of a disk that nobody serves; formats as disk_open does, too. */
int disk__superblock(
	struct io *io, const struct disk_options *options, struct format_superblock *ret_sb, struct err *err);
/* Synchronous; formats an empty directory unless no_format. `err` has one line with cause and next step. */
int disk_open(struct io *io, const struct disk_options *options, struct disk **ret_disk, struct err *err);
/* Ends uploads; waits for seals, drops and a superblock under way. No read is under way. */
void disk_close(struct disk *disk, void (*closed)(void *ctx), void *ctx);

void disk_fail(struct disk *disk, int code, const char *what);

/* Makes number and generation durable in the superblock, then `done`. One at a time. */
void disk_set_identity(
	struct disk *disk, uint32_t number, uint64_t generation, void (*done)(void *ctx, int code), void *ctx);
/* Whoever asked for the write that is under way goes away: `done` does not come any more. */
void disk_forget_identity(struct disk *disk);

/* The extent of a row that is being read; it is not given away before disk_unpin, whatever is dropped. */
void disk_pin(struct disk *disk, const struct index_row *row);
void disk_unpin(struct disk *disk, const struct index_row *row);

/* Drops a sealed chunk: change->row.copy and `done` are set by the caller. ERR_NOENT at once if there is none, and
 * none is on its way out of the index; ERR_BUSY if another drop of it is under way. */
struct disk_drop {
	struct index_change change; /* private */
	struct disk *disk;
	void (*done)(struct disk_drop *drop, int code);
	void *user; /* the caller's */
};
int disk_drop(struct disk *disk, const struct copy_id *copy, struct disk_drop *drop);

#endif
