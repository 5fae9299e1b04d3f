/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wal_private: what wal.c (append path), wal_recover.c (open), wal_segment.c (files and their pool), wal_make.c (new files), and of replicated logs
 * wal_replica.c, wal_slots.c and wal_read.c share.
 *
 * Segments by number: `live` (hold frames that may be needed; the last one is written to), `ready` (prewritten, number
 * = the last live one's + 1, + 2 ...). Trimmed ones wait in `obsolete`, still under their old name, until they are
 * renamed to be ready again or to be removed. Renames go oldest first, one at a time, each made durable before
 * the next: a crash never leaves a hole in the numbers of the live ones. Those in `gone` have a name that is no segment's,
 * and are cut to nothing step by step.
 */
#ifndef COMMON_KV_WAL_PRIVATE_H
#define COMMON_KV_WAL_PRIVATE_H

#include "common/kv/wal.h"
#include "common/kv/wal_frame.h"
#include "common/kv/wal_replica.h"

enum {
	WAL_SEGMENT_BYTES_MIN = 1 << 20,
	WAL_WRITES = 2,        /* in flight: one being synced, one on its way; more would only delay gathering */
	WAL_OBSOLETE_MAX = 2,  /* kept for reuse; more are removed */
	WAL_MARK_IDLE_MS = 20, /* a log without writes for so long appends a mark */
	WAL_SPACE_WAIT_MS = 30 * 1000, /* entries wait so long for space (a trim may give some), then it is fatal */
	WAL_SPACE_RETRY_MS = 200,
	WAL_MAKE_STEP_BYTES = 1 << 20, /* of a segment that is made: what the disk is given to do at once, at most, */
	WAL_MAKE_STEP_LEAST_BYTES = 256 << 10, /* and at least, but for the last one */
	WAL_STEP_BYTES = 4 << 20,      /* the same of one that is removed */
	WAL_STEP_PAUSE_MS = 100,       /* between two steps of a removal: those who write get the disk for most of the time */
	WAL_PATH_BYTES = 4096 + 32,
};

struct wal_segment {
	struct list link;
	uint64_t number;
	uint64_t last_index; /* the greatest of all entries in it and before it, cut ones too */
	uint64_t made_bytes; /* in the making: so many zeros are durable */
	uint32_t readers;    /* reads under way: until they end it is neither renamed nor removed */
	int fd;
};

/* One frame on its way to the disk. */
struct wal_write {
	struct io_op op;
	struct iovec iov;
	struct wal *wal;
	uint8_t *buf;        /* WAL_FRAME_MAX_BYTES */
	struct list appends; /* that are in this frame */
	struct wal_segment *segment;
	uint64_t number, mark;
	uint64_t last_index; /* durable with it: what is cut meanwhile is not */
	bool busy, written;
};

enum wal_job_kind { WAL_JOB_MAKE, WAL_JOB_RECYCLE, WAL_JOB_REMOVE, WAL_JOB_CUT };

/* Work on segment files, run on a worker. */
struct wal_job {
	struct io_op op;
	struct wal *wal;
	enum wal_job_kind kind;
	struct wal_segment *segment; /* the one worked on */
	uint64_t number;             /* the one that it becomes */
	uint32_t step_bytes;         /* of a making */
	bool removed;                /* of a cut: it was the last one */
	int result;
};

/* What a replicated log has beside a plain one's. */
struct wal_group {
	struct wal *wal;
	struct wal_replica replica;
	int meta_fd;
	struct wal_meta meta; /* as durable */
	int meta_slot;        /* the slot that surely holds it: the other one is written first */
	uint8_t *meta_buf;
	struct wal_index index;
	uint64_t commit;
	uint64_t last_term;            /* of entry built_index */
	bool cut_wanted;               /* entries above built_index are in frames: the next one says that they left */
	struct list retired, canceled; /* appends that are told of next: durable; cut off */
	struct wal_save *save;
	struct wal_restart *restart;
	struct io_op op; /* of save and restart: slots are written on a worker */
	bool op_running;
	int op_result;
	struct wal_meta op_meta;        /* to be written */
	struct wal_segment *op_segment; /* of a restart */
	size_t op_frame_bytes;
	struct list holds, reads;
};

struct wal {
	struct io *io;
	char *dir;
	uint64_t segment_bytes;
	uint32_t open_flags;
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;

	uint8_t version;         /* of its frames */
	struct wal_group *group; /* NULL: plain */
	uint8_t log_id[WAL_ID_BYTES];
	uint8_t nonce[WAL_ID_BYTES];
	uint64_t first_index; /* oldest entry still there */
	uint64_t next_index;  /* given to the next submitted entry */
	uint64_t durable_index;
	uint64_t trim_index;

	/* where the next frame goes, and what it continues */
	uint64_t next_number;
	uint64_t epoch; /* number of this open's first frame */
	uint32_t last_crc;
	uint64_t offset;
	uint64_t make_from; /* an offset: the next segment is made from there on */
	uint64_t built_index; /* entries <= it are in frames, and frames have none above it but those about to be cut */
	uint64_t durable_number, durable_segment;
	uint64_t last_entries_number; /* last frame that holds entries */
	uint64_t marked_number;       /* greatest mark carried by a durable frame */

	struct list live, ready, obsolete;
	struct list gone; /* to be removed; fd -1: not opened yet */
	struct wal_segment *making; /* between two steps; NULL: none begun, or a job has it */
	uint32_t obsolete_count;

	struct list queue; /* appends that wait for a frame */
	struct wal_write writes[WAL_WRITES];
	uint32_t first_write, busy_writes; /* a ring, oldest first */

	struct io_turn_hook hook;
	struct io_op timer; /* idle mark, and the retry for space */
	uint64_t last_write_ns;
	uint64_t blocked_since_ns; /* entries, or a restart, wait for a segment; 0: none do */
	bool space_retry;          /* the last try to make a segment found no space: the timer tries again */
	struct io_op pause; /* until the next step of a removal */
	struct wal_job job;
	bool job_running;

	int failed; /* the first error; nothing is written after it */
	bool fatal_told;
	char fatal_text[ERR_TEXT_BYTES];
	bool closing;
	void (*closed)(void *ctx, int code);
	void *closed_ctx;
};

/* wal.c */
void wal__fail(struct wal *wal, int code, const char *text);
void wal__kick(struct wal *wal); /* looks for work at the end of this turn */
/* A frame that continues the log, from `body_bytes` of body in buf; the log's state moves on behind it. */
size_t wal__build_frame(struct wal *wal, uint8_t *buf, enum wal_frame_type type, size_t body_bytes,
	uint32_t entry_count, uint64_t term, uint64_t segment, struct wal_frame *ret_frame);
/* The first frame of a log that goes on at wal->next_index, in its first segment. */
int wal__create_log(struct wal *wal, enum wal_frame_type type, struct err *err);
void wal__all_durable(struct wal *wal); /* every frame so far is */
int wal__start_epoch(struct wal *wal, struct err *err);

/* wal_replica.c: of replicated logs only, but for group_free */
void wal__group_init(struct wal *wal, const struct wal_replica *replica);
void wal__group_free(struct wal *wal);
int wal__group_open(struct wal *wal, uint64_t bytes, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err);
/* What was found, against the slots. */
int wal__group_check(struct wal *wal, struct err *err);
void wal__group_check_term(const struct wal *wal, uint64_t term); /* of an entry that is submitted */
void wal__group_work(struct wal *wal);                            /* tells of what was cut; starts what waits */
void wal__group_fail(struct wal *wal);
bool wal__group_holds_back(const struct wal *wal); /* nothing is written now */
bool wal__group_pending(const struct wal *wal);
uint64_t wal__group_trim_index(const struct wal *wal); /* wal->trim_index, or less */
void wal__group_trimmed(struct wal *wal);

/* wal_slots.c: synchronous */
/* ERR_VERSION: there are slots, so that no plain log may begin here. */
int wal__slots_refuse(struct wal *wal, struct err *err);
/* Reads, or makes, the slots into group->meta. Changes nothing that is there. */
int wal__slots_open(struct wal *wal, struct err *err);
/* Writes both, one after the other; `meta` has the next generation. group->meta stays as it is. */
int wal__slots_write(struct wal *wal, const struct wal_meta *meta);

/* wal_read.c */
void wal__reads_cut(struct wal *wal, uint64_t from);

/* wal_recover.c: all synchronous, at open */
int wal__recover(struct wal *wal, uint64_t from,
	int (*each)(void *ctx, uint64_t index, struct slice data, struct err *err), void *each_ctx, struct err *err);

/* wal_make.c */
void wal__make_from(struct wal *wal); /* where the log stands is where the next segment begins to be made: at an open, and in a new segment */
/* So much of the next segment is there when this one, in which that began at `from`, is full up to `offset`. */
uint64_t wal__make_due(uint64_t offset, uint64_t from, uint64_t segment_bytes);
/* Of the next step, where so much is made and so much is due: no more than the log is in need of, for its own writes wait for that. */
uint32_t wal__make_step_bytes(uint64_t made, uint64_t due);
bool wal__made(const struct wal *wal, const struct wal_segment *s); /* complete */
/*
 * Both block. A step of zeros more, of so many bytes at most, behind `first` if they are the first ones; and its name, to one that is complete. Durable, or
 * nothing is left, and the next step begins anew, as with s->fd -1.
 */
int wal__make_step(struct wal *wal, struct wal_segment *s, uint32_t step_bytes, const uint8_t *first, size_t first_bytes);
int wal__make_named(struct wal *wal, struct wal_segment *s, uint64_t number);
/* Blocks. The disk keeps what the next segment will take, if it has that: best effort, for who finds no room later waits for it. */
void wal__make_room(struct wal *wal);

/* wal_segment.c */
void wal__segment_path(const struct wal *wal, uint64_t number, char path[WAL_PATH_BYTES]);
struct wal_segment *wal__last_live(const struct wal *wal);
/*
 * Opens all there are, in order of number, into wal->live; *ret_bytes is the size that they share. None: an empty list. What removals that were
 * broken off have left is put into wal->gone.
 */
int wal__segments_open(struct wal *wal, uint64_t *ret_bytes, struct err *err);
void wal__segments_close(struct wal *wal);
/* A new log: its first segment with a first frame, complete under its name or not there at all. */
int wal__segment_first(struct wal *wal, const uint8_t *frame, size_t frame_bytes, struct err *err);
/* Those below `number` are not of the log any more. */
void wal__segments_discard(struct wal *wal, uint64_t number);
/*
 * The segment that a restart begins in, taken out of the pool (NULL: none is ready). No job runs, and none is started before
 * wal__segment_begun. `begin` blocks: on a worker.
 */
struct wal_segment *wal__segment_next(struct wal *wal);
int wal__segment_begin(struct wal *wal, struct wal_segment *segment, const uint8_t *frame, size_t frame_bytes);
void wal__segment_begun(struct wal *wal, struct wal_segment *segment); /* it alone is live now */
void wal__segment_free(struct wal *wal, struct wal_segment *segment);
/* The next ready segment, made on the spot if need be. */
int wal__segment_ready_now(struct wal *wal, struct err *err);
/* The ready segment becomes the one written to. False if there is none. */
bool wal__segment_advance(struct wal *wal);
/* Starts the job that is due, if any. */
void wal__segment_work(struct wal *wal);
/* Moves what is not needed any more to `obsolete`. */
void wal__segment_trim(struct wal *wal);

#endif
