/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_way: a daemon asks the chunk servers of its host to make way with bulk writes (chunkd/way.h), in a word that all of them hear (io_word.h). Local to
 * one process, on its loop.
 *
 * It does when there is work for it that is not bulk, and it is short of what that needs: it waits for a processor, or its log takes far longer than it has
 * taken. Neither of them says what else keeps the host busy. So it asks for a while, then looks anew: where bulk was the cause, bulk goes
 * on until the daemon is short again; where something else is, bulk is asked for as long as there is work, in vain.
 */
#ifndef COMMON_IO_IO_WAY_H
#define COMMON_IO_IO_WAY_H

#include "common/base/log.h"
#include "common/io/io_word.h"

#define IO_WAY_BUSY_NS (100ull * 1000 * 1000)      /* a sample, and how often the word is said, while there is work or it is asked for */
#define IO_WAY_IDLE_NS (1000ull * 1000 * 1000)     /* a sample while there is not */
#define IO_WAY_ASK_NS (10ull * 1000 * 1000 * 1000) /* then it looks anew */
#define IO_WAY_LOG_NS (500ull * 1000)              /* an entry that takes less is never late */

enum {
	IO_WAY_REQUESTS = 1000, /* per s: fewer are no load */
	IO_WAY_WAITED = 5,      /* 1/5 of the time spent waiting for a processor is short of it */
	IO_WAY_LOG_FACTOR = 3,  /* times the least mean of a sample is short of the disk */
	IO_WAY_FORGET = 256,    /* the least rises by 1/256 with each sample: a disk may have become slower for good */
};

struct io_way_sample {
	uint64_t took_ns;
	uint64_t requests;   /* that came, but for bulk */
	uint64_t waited_ns;  /* of the loop's thread, for a processor; 0 where the system does not say */
	uint64_t entries;    /* of the log that became durable, */
	uint64_t entries_ns; /* and their time from submission on */
};

/* ---- the decision; pure ---- */

/* Zeroed at first. */
struct io_way_plan {
	uint64_t least_ns; /* mean time of an entry; 0: none yet */
	uint64_t until_ns; /* asked for until then */
	bool has_work;
};

/* Bulk is asked to make way, as things are after this sample. */
bool io_way_step(struct io_way_plan *plan, uint64_t now_ns, const struct io_way_sample *sample);

/* ---- samples of a daemon, and the word ---- */

struct io_way_options {
	const char *path; /* the word's, the caller's until io_way_fini; NULL: it is never asked */
	/* requests, entries and entries_ns since the start. */
	void (*count)(void *ctx, struct io_way_sample *sample);
	/* After io_way_stop: io_way_idle holds. */
	void (*stopped)(void *ctx);
	const struct log *log;
	void *ctx;
};

struct io_way {
	bool asks;         /* and could say so */
	uint64_t asked_ns; /* for so long since the start */
	/* private */
	struct io *io;
	struct io_way_options o;
	struct io_way_plan plan;
	struct io_word word;
	int waited_fd;               /* -1: the system does not say */
	struct io_way_sample counts; /* since the start, as of counted_ns */
	uint64_t counted_ns;
	int said_code; /* of the last try to */
	bool stopping;
	struct io_op timer;
};

void io_way_start(struct io_way *way, struct io *io, const struct io_way_options *options);
void io_way_stop(struct io_way *way);
/* Stopped, or it never began: nothing of it is under way. */
bool io_way_idle(const struct io_way *way);
void io_way_fini(struct io_way *way); /* harmless if it is zeroed */

#endif
