/* SPDX-License-Identifier: Apache-2.0 */
/* kv_private: the table of kv.c, which says what holds of it, and what kv_scan.c reads of it. */
#ifndef COMMON_KV_KV_PRIVATE_H
#define COMMON_KV_KV_PRIVATE_H

#include "common/kv/kv_snapshot.h"

struct kv_waiter {
	struct list link;
	uint64_t index;
	void (*done)(void *ctx, int code);
	void *ctx;
};

struct kv {
	struct io *io;
	const struct kv_backend *backend;
	const struct kv_derived *derived;
	void *store;
	uint64_t freeze_bytes, freeze_ns, turn;
	bool minds_room; /* by its options */
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;

	struct memtable *active, *frozen; /* frozen is empty unless a commit runs */
	uint64_t active_sources, frozen_sources; /* puts of rows that others are derived from */
	uint64_t applied;                 /* by the owner */
	uint64_t frozen_applied;          /* of the newest commit, running or done */
	uint64_t committed_applied;       /* of the newest commit done in this life; 0: none */
	uint64_t trim_index;
	bool half_applied;   /* puts since the last kv_applied */
	uint64_t generation; /* moves when values and scans end */
	uint64_t renewals;   /* moves when the backing store's cursors end */

	struct io_op commit_op;
	bool commit_running, commit_ended, commit_sync;
	int commit_code;
	uint64_t commit_start_ns, commit_end_ns;
	uint64_t freeze_ns_at; /* when the running commit was started */
	uint64_t bytes_per_ms; /* that commits write: a moving average */
	struct err commit_err;

	struct io_op timer;
	bool freeze_due;
	bool look_due; /* whether it is still full */
	bool commit_looks, commit_void; /* the running commit is for that; there is no room: nothing was written */
	uint64_t looked_ns; /* last */
	struct io_turn_hook hook;
	struct list waiters; /* kv_waiter, for a durable commit of their index */

	int failed;
	bool unreadable; /* the backing store failed a read or a renew */
	bool fatal_told;
	char fatal_text[ERR_TEXT_BYTES];
	struct kv_snapshots snapshots;
	bool closing;
	void (*closed)(void *ctx, int code);
	void *closed_ctx;
	struct kv_stats stats;
};

/*
 * Until the commit that is due by time, in ns. Tables that grow alike, as the members' of a group do, would all commit at once, and each change would wait for
 * the slowest of them or, where they share processors or a disk, for all. So each has a phase of its own in the common period, by the wall clock. Half of the
 * period to one and a half, whatever that clock does. Turns that follow each other are far apart (Knuth, The Art of Computer Programming 3, 6.4, theorem S); of
 * others two may come close: those of turns 8 apart by an 18th of the period, of turns 13 apart by a 29th.
 */
uint64_t kv__turn_wait_ns(uint64_t turn, int64_t wall_ns, uint64_t period_ns);

/* The backing store cannot be read: only what is in memory is known any more. */
void kv__read_failed(struct kv *kv, int code, const char *text);

#endif
