/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal: a wal and a kv made one: entries are logged, synced, then applied in order; restart replays. chunkd keeps
 * its index in one; metad its state until the Raft log takes the wal's place (the apply function stays the same).
 *
 * `apply` is deterministic: it reads and writes the kv and nothing else. It is called in log order, live (entry !=
 * NULL, right before entry->done) and at replay (entry == NULL).
 */
#ifndef COMMON_KV_JOURNAL_H
#define COMMON_KV_JOURNAL_H

#include <stdint.h>
#include "common/kv/kv.h"
#include "common/kv/wal.h"

struct journal;
struct journal_entry;

struct journal_options {
	const char *dir; /* exists; gets subdirectories log/ and kv/ */
	const struct kv_backend *backend;
	const struct kv_derived *derived; /* of kv_options */
	uint64_t segment_bytes;           /* of the log; 0: 64 MiB */
	uint64_t freeze_bytes, freeze_ms; /* see kv_options */
	uint64_t entry_growth_bytes;      /* the most by which one entry's apply lets the table's memory grow */
	uint64_t room_bytes;              /* of kv_options; the log's next two segments have their room beside it */
	bool buffered;
	/* A failure stops the journal: on_fatal (live) or a failed open (replay). Command refusals are results, not
	 * failures. */
	int (*apply)(void *ctx, struct kv *kv, uint64_t index, struct slice data, struct journal_entry *entry,
		struct err *err);
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;
};

int journal_open(struct io *io, const struct journal_options *options, struct journal **ret_journal, struct err *err);

/* For a start that failed elsewhere, before the loop runs: frees at once and commits nothing. */
void journal_abandon(struct journal *journal);
/* Likewise before the loop runs: the table holds all of the log durably, and does without it. */
int journal_settle(struct journal *journal, struct err *err);

struct journal_entry {
	struct wal_append append; /* append.data is set by the caller; the rest is private */
	uint32_t rows; /* that its apply may write, derived ones counted; counts where the table has room_bytes */
	struct journal *journal;                             /* private */
	void (*done)(struct journal_entry *entry, int code); /* 0: durable and applied; else never acknowledged */
};
/* An entry waits here while the table has no room for what it may bring (kv_admits): nothing is refused. Alone it never waits, and snapshots end for it. */
void journal_submit(struct journal *journal, struct journal_entry *entry);

struct kv *journal_kv(struct journal *journal);
uint64_t journal_applied_index(const struct journal *journal);
uint64_t journal_epoch(const struct journal *journal); /* see wal_epoch */
void journal_close(struct journal *journal, void (*closed)(void *ctx, int code), void *ctx);

#endif
