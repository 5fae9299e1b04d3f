/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wal_replica: what the log of a replica adds to wal.h: terms, the vote, cutting off a suffix, beginning anew behind a
 * snapshot, reading back. Shaped for a driver of raft.h, which works an update off with these calls, in this order:
 *
 *     update.meta              wal_save: nothing of the update leaves before it is done
 *     update.install           wal_restart: likewise
 *     update.truncate_from     wal_cut
 *     update.append            wal_submit for each entry; done(0), or on_durable once a frame, is RAFT_PERSISTED
 *     update.messages          entries not cached any more: wal_read; terms for raft_fill and raft_asks: wal_index
 *     update.commit            wal_note_commit; after applying wal_trim; the index's base is RAFT_COMPACTED
 *
 * Promises:
 *  1. Order. What was called first takes effect first, on disk too: after a crash the log is as after some prefix of the
 *     calls, and no shorter a prefix than any call that was reported done.
 *  2. done(0) of an append means: this entry is durable, and still of the log. Entries that a cut or a restart took get
 *     ERR_CANCELED, also if they had been written, so that nothing is ever acknowledged for an older state of the log.
 *  3. A cut is a frame of its own (WAL_FRAME_CUT), with a fresh nonce, durable before anything behind it is acknowledged;
 *     nothing is overwritten, so that no frame from before it can be read as log again.
 *  4. The log is one of slots and segments together: the slots say where it begins (the only manifest), and whoever finds
 *     them contradict each other, or what they say is durable gone, gets ERR_CORRUPT, and nothing is changed.
 *
 *  5. One process: the slots are locked from the open on (ERR_BUSY); who finds them locked has changed nothing.
 *
 * As in wal.h: one thread; no callback from inside a call; after the first failure everything fails.
 */
#ifndef COMMON_KV_WAL_REPLICA_H
#define COMMON_KV_WAL_REPLICA_H

#include "common/kv/wal.h"
#include "common/kv/wal_index.h"
#include "common/kv/wal_meta.h"

/* wal_options.replica. Who opens must be who founded (ERR_WRONG_CLUSTER). */
struct wal_replica {
	uint8_t cluster[WAL_ID_BYTES];
	uint64_t replica; /* 1.. */
	uint64_t base_index,
		base_term; /* of a log that does not exist yet: what lies before its first entry; 0, 0: nothing */
	/* NULL, or called when entries up to `index` have become durable, after their `done`: once for each write. */
	void (*on_durable)(void *ctx, uint64_t index);
};

/* As durable now. */
const struct wal_meta *wal_meta(const struct wal *wal);
/* The greatest index that is known as committed, from slots, frames or wal_note_commit. */
uint64_t wal_commit(const struct wal *wal);
/* Terms and frames of the entries, durable or not. */
const struct wal_index *wal_index(const struct wal *wal);
/* Of segments, from the frame of this entry to the end of the log; all, if the entry is gone; 0: there is none such yet. */
uint64_t wal_bytes_from(const struct wal *wal, uint64_t entry);

/* Term and vote. One at a time; appends submitted later are written after it. */
struct wal_save {
	uint64_t term, vote; /* term: not less than before */
	void (*done)(struct wal_save *save, int code);
};
void wal_save(struct wal *wal, struct wal_save *save);

/* Entries >= from leave; the next one submitted gets this index. Above what is committed. */
void wal_cut(struct wal *wal, uint64_t from);

/*
 * A snapshot of entries 1..index is durable: the log begins anew behind it, in one atomic step; all entries leave.
 * Above what is committed. Entries may be submitted at once, and are written after it. On a full disk it waits for a segment as
 * entries do.
 */
struct wal_restart {
	uint64_t index, term;
	void (*done)(struct wal_restart *restart, int code);
};
void wal_restart(struct wal *wal, struct wal_restart *restart);

/* Entries up to `index` are committed. Goes with the next frames and slots, as far as they are durable here. */
void wal_note_commit(struct wal *wal, uint64_t index);

/* Entries from `from` on stay, however far wal_trim goes: for a snapshot on its way to a follower, and what follows that. A restart takes them. */
struct wal_hold {
	uint64_t from; /* the next trim finds it raised, if it is */
	struct list link; /* private */
};
/* ERR_NOENT: some of them are gone already; then nothing is held. */
int wal_hold(struct wal *wal, struct wal_hold *hold, uint64_t from);
void wal_release(struct wal *wal, struct wal_hold *hold);

enum {
	WAL_READ_EXTENTS = 64,    /* frames of one read */
	WAL_READ_BYTES = 1 << 20, /* of the disk, for one read */
};
_Static_assert((int)WAL_READ_BYTES >= (int)WAL_FRAME_MAX_BYTES, "any frame fits a read");

/*
 * Durable entries from..to, as many as max_bytes of bodies hold and one read of the disk brings, one at least. A frame
 * that is not as it was written is the end of the log (on_fatal), as is a failure of the disk.
 */
struct wal_read {
	uint64_t from, to;
	uint32_t max_bytes;
	void (*done)(struct wal_read *read, int code); /* ERR_NOENT: they left meanwhile */
	/* private */
	struct io_op op;
	struct iovec iov;
	struct wal *wal;
	struct wal_segment *segment;
	uint8_t *buf;
	struct wal_extent extents[WAL_READ_EXTENTS];
	struct wal_frame frames[WAL_READ_EXTENTS];
	uint32_t extent_count, extent_at, entry_at;
	size_t pos;
	uint64_t next, limit; /* to be given out */
	uint64_t given_bytes;
	struct list link;
};
/* ERR_NOENT: `from` is not in the log; ERR_AGAIN: it is not durable yet. Then `done` is not called. */
int wal_read(struct wal *wal, struct wal_read *read);
/* The next entry; false behind the last. Valid until wal_read_end. */
bool wal_read_next(struct wal_read *read, uint64_t *ret_index, uint64_t *ret_term, struct slice *ret_data);
/* After done, whatever it said. */
void wal_read_end(struct wal_read *read);

#endif
