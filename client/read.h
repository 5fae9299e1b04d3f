/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read: shared by read.c (files: operations, layouts), read_ahead.c (sequential readers) and read_job.c (a piece of one block: fetch,
 * check, rebuild).
 */
#ifndef CLIENT_READ_H
#define CLIENT_READ_H

#include "client/client_priv.h"
#include "client/layout.h"
#include "client/pick.h"

enum {
	READ_JOB_ROWS = 256,        /* greatest piece of one block: 4 MiB of each chunk */
	READ_JOBS = 3,              /* of one operation at once: the next one's requests are there before the last one's answers end */
	READ_WINDOWS = 4,           /* layouts kept per file */
	READ_SEGMENT_PAGES = 4,     /* read ahead at once */
	READ_SLOW_DISKS = 64,       /* told to metad with one request */
	READ_DIRECT_CELL_BYTES = 512 << 10, /* smaller cells go through scratch memory: a frame would need too many pieces */
};

/* Where bytes of a read go: one piece of memory, or pages of the pool. */
struct read_dest {
	uint8_t *base;              /* NULL: pages */
	void *const *pages;
};
/* Memory of [at, at + len) if it is in one piece, else NULL. */
uint8_t *read_dest_at(const struct read_dest *d, uint64_t at, uint64_t len);
void read_dest_copy(const struct read_dest *d, uint64_t at, const void *from, uint64_t len);

/* ---- a piece of one block (read_job.c) ---- */

struct read_job;
struct read_job_args {
	struct client *client;
	const char *path;           /* for messages */
	struct layout *layout;      /* the job takes a reference */
	struct layout_block *block;
	uint64_t block_lo, block_hi;
	uint64_t file_offset;       /* of block_lo */
	struct read_dest dest;
	uint64_t dest_at;           /* of block_lo in dest */
	/* Once, never inside read_job_new. ERR_STALE: a server does not have what the layout names; fetch it again. */
	void (*done)(void *ctx, struct read_job *job, const struct err *err);
	void *ctx;
	bool fresh_layout;          /* ERR_STALE is not wanted: missing is missing */
};
struct read_job *read_job_new(const struct read_job_args *args); /* frees itself after done */
const struct read_job_args *read_job_args(const struct read_job *job);
/* How far a job that starts at block_lo may go. */
uint64_t read_job_limit(const struct stripe_geom *g, uint64_t block_lo);

/* ---- a file ---- */

struct read_range {
	uint64_t offset, end;
};

struct read_segment;

/* One read under way: of an operation, or of a segment. */
struct read_op {
	struct list link; /* stream->reads */
	struct read_stream *stream;
	struct read_dest dest;
	uint64_t offset, pos, end;
	struct read_range again[READ_JOBS]; /* to be run under a fresh layout */
	uint32_t again_count, jobs;
	uint64_t stale_ns;  /* layouts fetched before are not good enough */
	uint64_t looked_at; /* a layout asked for at this offset has come; UINT64_MAX: none since one was missed */
	struct err err;
	void (*done)(struct read_op *r);
	struct client_op *op; /* or */
	struct read_segment *segment;
};

struct read_layout;

struct read_stream {
	struct client *client;
	struct client_file *file;
	struct list reads, segments, copies;
	struct layout *windows[READ_WINDOWS];
	struct read_layout *fetch;
	struct io_turn_hook hook;
	uint64_t next_offset; /* where a sequential reader goes on */
	uint32_t streak;
	struct client_op *close_op;
	bool ending;
};

void read_kick(struct read_stream *s);                    /* the stream's step runs at the end of the turn */
void read_begin(struct read_op *r, struct read_stream *s, uint64_t offset, uint64_t len); /* then set dest and done */
/* An operation, or the rest of one whose first `done_bytes` are there. */
void read_direct(struct read_stream *s, struct client_op *op, uint64_t done_bytes);

/* read_ahead.c */
bool read_ahead_take(struct read_stream *s, struct client_op *op); /* false: not a sequential reader */
void read_ahead_serve(struct read_stream *s);
void read_ahead_drop(struct read_stream *s);

#endif
