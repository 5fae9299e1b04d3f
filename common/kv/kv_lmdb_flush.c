/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_lmdb_flush.h"

#include "common/base/check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

static _Thread_local int committing_fd = -1;
static _Thread_local uint64_t committing_used_bytes, committing_piece_bytes;

uint64_t lmdb_flush_piece_bytes(uint64_t used_bytes, uint64_t rows)
{
	uint64_t pieces = (used_bytes + FLUSH_PIECE_BYTES - 1) / FLUSH_PIECE_BYTES,
		 most = rows < FLUSH_PIECES_MAX * FLUSH_PIECE_ROWS ? rows / FLUSH_PIECE_ROWS : FLUSH_PIECES_MAX;

	return pieces > 1 && most > 1 ? (pieces + most - 1) / most * FLUSH_PIECE_BYTES : 0;
}

/*
 * 0, or -1 and errno. Whatever error comes back from a piece is one of what was written, also one that sounds as if the call were not there: each is told once for a
 * descriptor, and the sync behind it would not tell it again. So whether the call is there is asked first, with nothing to do.
 */
static int flush_pieces(int fd)
{
	const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	uint64_t offset;

	if (committing_piece_bytes == 0 || sync_file_range(fd, 0, 0, 0))
		return 0;
	for (offset = 0; offset < committing_used_bytes; offset += committing_piece_bytes)
		if (sync_file_range(fd, (off_t)offset, (off_t)committing_piece_bytes, all))
			return -1;
	return sync_file_range(fd, (off_t)offset, 0, all); /* to its end: what it grew by, and room that was reserved */
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	int (*next)(int) = (__typeof__(&fdatasync))dlsym(RTLD_NEXT, "fdatasync");

	CHECK(next);
	if (fd >= 0 && fd == committing_fd && flush_pieces(fd))
		return -1;
	return next(fd);
}

int lmdb_flush_commit(MDB_txn *txn, uint64_t rows, uint64_t used_bytes)
{
	int rc;

	CHECK(mdb_env_get_fd(mdb_txn_env(txn), &committing_fd) == 0);
	committing_used_bytes = used_bytes;
	committing_piece_bytes = lmdb_flush_piece_bytes(used_bytes, rows);
	rc = mdb_txn_commit(txn);
	committing_fd = -1;
	return rc;
}
