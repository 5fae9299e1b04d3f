/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_lmdb_flush: a commit of LMDB goes to the disk a piece at a time.
 *
 * LMDB makes a commit durable by one fdatasync, of as much as the commit has changed: some ten MiB. A disk without FUA makes a write of the log durable by a flush,
 * which waits for all that the disk was given before. So while a commit is given to it at once, writes of the log take as long as the commit. LMDB has no hook for
 * its sync; but it calls fdatasync as any library does, by name, and the program's own comes before libc's. Used by kv_lmdb alone.
 */
#ifndef COMMON_KV_KV_LMDB_FLUSH_H
#define COMMON_KV_KV_LMDB_FLUSH_H

#include <lmdb.h>
#include <stdint.h>

enum {
	FLUSH_PIECE_BYTES = 128 << 10, /* of the file, of which as a rule few pages have changed; */
	/* Each piece is waited for, and pages that lie far apart are to be written side by side. So there are no more than */
	FLUSH_PIECES_MAX = 256,
	FLUSH_PIECE_ROWS = 16, /* one for so many rows that have changed, each of which may lie in a page of its own */
};

/* Of the part of the file that has pages in use; 0: it is written all at once. */
uint64_t lmdb_flush_piece_bytes(uint64_t used_bytes, uint64_t rows);

/*
 * mdb_txn_commit, of a transaction that has changed so many rows, and uses so much of the file, by about. What fdatasync does for LMDB meanwhile, on this thread: it
 * writes the file's changed pages piece by piece, waiting for each, and syncs then. A piece that fails is a sync that fails. Where the system cannot write pieces, or
 * there would be one, the sync does it all.
 */
int lmdb_flush_commit(MDB_txn *txn, uint64_t rows, uint64_t used_bytes);

#endif
