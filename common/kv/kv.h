/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv: the ordered table that metad and chunkd keep their state in: an ordered table in memory (active and frozen,
 * bounded) in front of a backing store (kv_lmdb; kv_mem in the simulator).
 *
 *   kv_put/kv_del ---> active --freeze (100 ms or 16 MiB)--> frozen --one transaction with its applied index--> backing
 *   kv_get/kv_seek look in active, then frozen, then the backing store.
 *
 * The table itself has no log: its owner logs first (journal.h; later the Raft log), applies in log order with
 * kv_put/kv_del, and then says kv_applied(index). After a crash the backing store holds exactly the state after some
 * applied index A that it returns, and the owner applies the log from A + 1 again. The log may be trimmed up to
 * kv_trim_index() only.
 *
 * One thread (the loop's) calls everything here. Commits run on IO_LANE_KV. Storage errors are never a command's
 * result: they reach `on_fatal`, after which the owner stops. Backing values carry a CRC32C; a mismatch is fatal with
 * the key in the text.
 */
#ifndef COMMON_KV_KV_H
#define COMMON_KV_KV_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/slice.h"
#include "common/io/io.h"

struct kv;
struct kv_backend; /* kv_backend.h; the two of them: */
extern const struct kv_backend kv_lmdb;
extern const struct kv_backend kv_mem;

/*
 * An index that the table keeps by itself. The rows whose keys begin with the byte `target` follow from those that begin with `source`, each
 * from one of them, and from nothing else: nobody puts or deletes them. A commit writes what its rows of `source` make of them, in its own
 * thread and transaction. So reads see them as of the last commit; what came since is found in the rows themselves (kv_seek_recent).
 */
enum {
	KV_DERIVED_ROWS = 32
}; /* that one row of `source` may put and delete; key and value of each: 64 bytes together */
struct kv_derived_rows;
struct kv_derived {
	uint8_t source, target;
	/*
	 * The row of this key goes from `was` to `is`; NULL: there is none. Pure, on any thread; a row is put or deleted once, or each time
	 * in the same way. An error fails the commit.
	 */
	int (*derive)(struct slice key, const struct slice *was, const struct slice *is, struct kv_derived_rows *rows,
		struct err *err);
};
void kv_derived_put(struct kv_derived_rows *rows, struct slice key, struct slice value);
void kv_derived_del(struct kv_derived_rows *rows, struct slice key); /* of an absent key: a no-op */

struct kv_options {
	const char *dir; /* exists; the backing store lies in it */
	const struct kv_backend *backend;
	const struct kv_derived *derived; /* lives as long as the kv; NULL: none */
	uint64_t freeze_bytes; /* 0: 16 MiB */
	uint64_t freeze_ms;    /* 0: 100 */
	uint64_t turn;         /* a member's number: its commits by time have a phase of their own, half to one and a half freeze_ms after a change; 0: freeze_ms after it */
	uint64_t map_bytes;    /* address space of LMDB; 0: 1 TiB (less where the address space is limited: TSan) */
	uint64_t room_bytes;   /* less than this left for rows: kv_is_full; 0: by freeze_bytes */
	uint64_t spare_bytes;  /* of the file system, which the table leaves to others (logs) when it reserves room ahead */
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;
};

int kv_open(
	struct io *io, const struct kv_options *options, struct kv **ret_kv, uint64_t *ret_applied, struct err *err);

/* Commits what is applied, then calls `closed` (not from inside); the kv is freed. After a failure nothing is
 * committed. */
void kv_close(struct kv *kv, void (*closed)(void *ctx, int code), void *ctx);

/* For a start that failed elsewhere, before the loop runs: frees at once and commits nothing. */
void kv_abandon(struct kv *kv);

/* Keys 1..LIMIT_KEY_BYTES, values 0..LIMIT_VALUE_BYTES; both are copied. */
void kv_put(struct kv *kv, struct slice key, struct slice value);
void kv_del(struct kv *kv, struct slice key); /* of an absent key: a no-op */
/* Everything put so far belongs to log indices <= index. Called after each applied entry. */
void kv_applied(struct kv *kv, uint64_t index);

/*
 * For replay at start, before the loop runs: commits what is applied on this thread, now, if the memory tables have
 * grown by freeze_bytes; so that the log may be longer than memory. Ends scans and values.
 */
int kv_settle(struct kv *kv, struct err *err);
/* Likewise, whatever there is, and durably: the backing store is then all that is needed. */
int kv_settle_all(struct kv *kv, struct err *err);

/*
 * 0, or the error that on_fatal was or is about to be told. Where it is not 0, results of scans since the last look are
 * not to be used: one may have ended early. Journal and driver look after each apply; a handler that answers a read from
 * kv looks before it answers.
 */
int kv_failure(const struct kv *kv, const char **ret_text);

/*
 * ERR_NOENT if absent; another error if the row cannot be read (which is fatal). A commit that failed takes nothing away:
 * what it was to write stays in memory, and reads go on. The value is valid until the next kv_put or kv_del, or until the hooks of this turn run. */
int kv_get(struct kv *kv, struct slice key, struct slice *ret_value);

enum { KV_PREFIX_MAX = 16 };

/*
 * A scan in key order over the merged tables. Key and value are valid until the next call on this scan, the next put or
 * del, or until the hooks of this turn run; to go on after a put, a del or a turn, end the scan and seek again behind
 * the last key.
 *
 *     struct kv_scan scan;
 *     for (kv_seek(kv, &scan, from); kv_scan_valid(&scan); kv_scan_next(&scan)) use(scan.key, scan.value);
 *     kv_scan_end(&scan);
 */
struct kv_scan {
	struct slice key, value;
	bool removed;  /* kv_seek_recent alone: a row that is not there any more */
	struct kv *kv; /* private from here */
	void *sources[3];
	uint64_t state[8];
	uint8_t prefix[KV_PREFIX_MAX];
	size_t prefix_bytes;
};
/* First key >= from; an empty slice: the first of all. */
void kv_seek(struct kv *kv, struct kv_scan *scan, struct slice from);
/*
 * The same, over keys alone that begin with the first `prefix_bytes` of `from` (<= KV_PREFIX_MAX). Wherever one range of keys is meant: a scan steps over rows
 * that were deleted since the last commit, one by one, until it comes upon one that is there, and without an end that may be any number of other ranges' rows.
 */
void kv_seek_within(struct kv *kv, struct kv_scan *scan, struct slice from, size_t prefix_bytes);
/* The same over those rows alone that were put, or removed, since the commit that reads see. A step is one row: it takes no longer for others. */
void kv_seek_recent(struct kv *kv, struct kv_scan *scan, struct slice from);
bool kv_scan_valid(const struct kv_scan *scan);
void kv_scan_next(struct kv_scan *scan);
void kv_scan_end(struct kv_scan *scan);

/* Applied index of the last-but-one durable commit: the log behind it is needed. */
uint64_t kv_trim_index(const struct kv *kv);
/* 0: memory tables empty .. 100: at their bound. */
uint32_t kv_pressure(const struct kv *kv);
/* The same, or how much is taken of what a running commit leaves them by now (see kv_admits), if that is more. Who can wait stands back in time by this. */
uint32_t kv_pressure_now(const struct kv *kv);
/*
 * May the tables grow now? `worst_bytes` (what may still come of entries on their way, and of one more) must fit below
 * LIMIT_MEMTABLE_BYTES, always. And while a commit runs, the room that it leaves is rationed over the time that it will
 * probably take: whoever fills it at once would stand still until the commit has ended.
 *
 * With room_bytes, what is in memory and `worst_rows` more (rows that they may write, derived ones counted) must also find room in the backing
 * store, whatever they are: the less there is left, the smaller commits become. If only a commit can help, it begins.
 */
bool kv_admits(struct kv *kv, uint64_t worst_bytes, uint64_t worst_rows);
/* Would a commit of so much alone take no more than half the room that there is? Without room_bytes: true. */
bool kv_fits(const struct kv *kv, uint64_t worst_bytes, uint64_t worst_rows);
/* All that was put is committed. */
bool kv_is_settled(const struct kv *kv);
/* Commits all that is applied now; `done` when it is durable. */
void kv_flush(struct kv *kv, void (*done)(void *ctx, int code), void *ctx);

/*
 * True: admit no growth, only what makes rows fewer (and, as bounded, what keeps the owner going). What is left is kept so
 * that this always passes. As of the last commit; it goes when rows were removed or the file system has room again: whoever asks has the file system looked at, once a second
 * at most, and a commit made of what there is when that has room.
 */
bool kv_is_full(struct kv *kv);

/*
 * All rows as they were after one applied index, while the table goes on changing: for a backup, over as many turns as it takes. What is
 * applied and not committed yet is not in it: flush first. An open snapshot makes the backing store grow, since nothing is overwritten
 * that it may read: end it in good time. Closed before kv_close.
 */
struct kv_snapshot;
int kv_snapshot_open(struct kv *kv, struct kv_snapshot **ret_snapshot, uint64_t *ret_applied, struct err *err);
/* ERR_NOENT behind the last; another error is a damaged row. Valid until the next call. */
int kv_snapshot_next(struct kv_snapshot *snapshot, struct slice *ret_key, struct slice *ret_value, struct err *err);
/*
 * Rows that were not used for long lie on the disk alone, and to come upon them there holds the loop up; another thread goes ahead of the reader. Are the
 * next `bytes` of rows, at most half a MiB, in memory? If not, `near` is called when they are; not after kv_snapshot_close. There is one who waits.
 */
bool kv_snapshot_near(struct kv_snapshot *snapshot, uint64_t bytes, void (*near)(void *ctx), void *ctx);
void kv_snapshot_close(struct kv_snapshot *snapshot);
/* What the open snapshots keep is needed for rows: they give ERR_NOSPC alone from here on, and the last row is gone. They are still to be closed. */
void kv_end_snapshots(struct kv *kv);
int kv_snapshot_check(const struct kv_snapshot *snapshot, struct err *err); /* ERR_NOSPC: that has happened */

struct kv_stats {
	uint64_t memory_bytes, commits, committed_rows, backing_bytes, backing_rows;
	uint64_t last_commit_ns, longest_commit_ns;
	uint64_t passed_rows; /* deleted ones that scans had to step over: they are in the way until the next commit */
	uint64_t room_bytes;        /* that the backing store has for commits; UINT64_MAX: no bound that matters */
	uint64_t commit_room_bytes; /* that what is not committed yet may take of it at most */
};
void kv_get_stats(struct kv *kv, struct kv_stats *ret_stats);

#endif
