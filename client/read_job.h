/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_job: what the parts of a job share (private to read_*.c; see read_job.c):
 *
 *   read_job.c       the plan: what to ask, what to rebuild, when it is over
 *   read_rows.c      rows of units: where each lies in the chunk, in the file, in memory
 *   read_fetch.c     units and checksum lists from chunk servers
 *   read_probe.c     fetches from slow disks, for their time alone
 *   read_rebuild.c   decoding, on a worker
 */
#ifndef CLIENT_READ_JOB_H
#define CLIENT_READ_JOB_H

#include "client/read.h"

enum { READ_ROW = LIMIT_UNIT_BYTES, READ_PAGE_UNITS = POOL_PAGE_BYTES / LIMIT_UNIT_BYTES };

struct read_lane {
	uint8_t state[READ_JOB_ROWS]; /* enum pick_unit */
	uint8_t **mem;                /* by row; NULL entries: none given yet */
	uint64_t bytes;               /* of the chunk */
	int error;                    /* last failure */
	bool avoided;
	bool alone;       /* as long as nobody gives its checksums it cannot be rebuilt, only waited for */
	bool list_asked;  /* its trailer gives, or gave, or did not give, the lists of others: once is enough */
	bool list_busy;   /* it was busy then */
};

struct read_fetch {
	struct list link;
	struct rpc_call call;
	struct read_job *job;
	uint8_t index;
	bool noted;                  /* its disk's pace */
	uint32_t first, count, next; /* rows of the job; next: received so far */
	uint64_t started_ns, heard_ns; /* heard: when the last bytes came, or the start */
	Craton__GetRequest request;
	Craton__Copy copy;
};

struct read_lists {
	struct list link;
	struct rpc_call call;
	struct read_job *job;
	uint8_t index; /* the parity chunk asked */
	bool late;     /* another one may be asked, too */
	uint64_t started_ns;
	Craton__ListsRequest request;
	Craton__Copy copy;
};

struct read_job {
	struct read_job_args args;
	struct io_turn_hook hook;
	struct io_op timer; /* until something is late */
	struct io_op hold;  /* until who was busy is asked again */
	uint32_t holds;     /* how often that was */
	uint64_t until_ns;  /* when it is over for a job that waits for who is busy */
	struct io_op decode;
	struct pool_wait pool_wait;
	uint32_t first_row, rows;       /* rows of the chunks */
	uint32_t needed[READ_JOB_ROWS]; /* bit sets of data chunks */
	struct read_lane lanes[LIMIT_WIDTH];
	struct list fetches;
	struct pace_race race;           /* of the fetches */
	struct list lists;               /* calls for them, in flight */
	uint32_t rebuild[READ_JOB_ROWS]; /* bit sets of chunks, once planned */
	uint32_t page_count, pages_cap, units_used;
	void **pages;
	bool urgent_held;
	bool decoding;
	bool stale;
	int decode_error;
	struct err err;
	bool ending;
};

static inline const struct stripe_geom *read_geom(const struct read_job *j)
{
	return &j->args.block->geom;
}

static inline uint8_t read_width(const struct read_job *j)
{
	return (uint8_t)(read_geom(j)->k + read_geom(j)->m);
}

/* The job's step runs at the end of the turn. */
static inline void read_job_kick(struct read_job *j)
{
	io_at_turn_end(j->args.client->io, &j->hook);
}

/* ---- read_rows.c: `row` counts from the job's first row ---- */

/* Real bytes of unit `row` of chunk `index`; 0 past its end. */
static inline uint32_t read_unit_len(const struct read_job *j, uint8_t index, uint32_t row)
{
	uint64_t at = (uint64_t)(j->first_row + row) * READ_ROW, len = j->lanes[index].bytes;

	return at >= len ? 0 : len - at < READ_ROW ? (uint32_t)(len - at) : READ_ROW;
}

/* The reader wants bytes of it. */
static inline bool read_unit_needed(const struct read_job *j, uint8_t index, uint32_t row)
{
	return j->needed[row] & 1u << index;
}

/* Here and right; what lies past the end of a chunk counts as zeros. */
static inline bool read_unit_good(const struct read_job *j, uint8_t index, uint32_t row)
{
	return j->lanes[index].state[row] == PICK_UNIT_GOOD || read_unit_len(j, index, row) == 0;
}

/* Offset in the block of unit `row` of data chunk `index`. */
uint64_t read_unit_offset(const struct read_job *j, uint8_t index, uint32_t row);
/* Finds rows and needed units, once. */
void read_rows_init(struct read_job *j);
/* The caller's memory, if all that may be written for this unit lies in it: as much as the row's longest unit. */
uint8_t *read_unit_direct(const struct read_job *j, uint8_t index, uint32_t row);
/* Its bytes match the list, which is known. */
bool read_unit_right(const struct read_job *j, uint8_t index, uint32_t row);
bool read_has_mem(const struct read_job *j, uint8_t index, uint32_t row);
/* After read_reserve_units, if it is not direct. */
void read_give_mem(struct read_job *j, uint8_t index, uint32_t row);
/* True: there is room for so many more units in scratch pages. False: it is being waited for. */
bool read_reserve_units(struct read_job *j, uint32_t units);
void read_give_pages_back(struct read_job *j);

/* ---- read_fetch.c ---- */

/* It has the chunk, and no memory, or no keys, just now: not broken. */
static inline bool read_is_busy(int status)
{
	return status == ERR_OVERLOADED || status == ERR_AGAIN || status == ERR_BUSY;
}

/* Asks chunk `index` for `count` rows from `first` on. */
void read_fetch_start(struct read_job *j, uint8_t index, uint32_t first, uint32_t count);
/* Asks a parity chunk for the lists of the data chunks, unless one has been asked that is not late. False if none is left to be asked. */
bool read_lists_start(struct read_job *j);
/* Of the client's last fetches; 0: none yet. */
uint64_t read_median_ns(const struct client *client);
/* Past this a fetch of the job is late: by what its peers took or, until half of them are there, by what the last fetches took. */
uint64_t read_late_after_ns(const struct read_job *j);
/* Of what is asked now: a call's time or, of a job that waits for who is busy, the job's own end. */
uint64_t read_deadline_ns(const struct read_job *j);
/* It is under way and late: that is known of its disk already. */
void read_fetch_note(struct read_fetch *f);
/* Reads from chunk `index` what the job would have asked of it, were its disk not avoided: to see how long that takes. */
void read_probe(const struct read_job *j, uint8_t index);

/* ---- read_rebuild.c ---- */

/* On a worker: all of job->rebuild; the job is kicked when it is done. No fetch is active meanwhile. */
void read_rebuild_start(struct read_job *j);

#endif
