/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_lmdb_flush.h"

#include "common/base/check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static _Thread_local int committing_fd = -1;
static _Thread_local uint64_t committing_rows;

static off_t piece_bytes(off_t file_bytes, uint64_t rows)
{
	off_t pieces = (file_bytes + FLUSH_PIECE_BYTES - 1) / FLUSH_PIECE_BYTES,
	      most = rows < FLUSH_PIECES_MAX * FLUSH_PIECE_ROWS ? (off_t)(rows / FLUSH_PIECE_ROWS) : FLUSH_PIECES_MAX;

	return most ? (pieces + most - 1) / most * FLUSH_PIECE_BYTES : file_bytes;
}

/*
 * 0, or -1 and errno. Whatever error comes back from a piece is one of what was written, also one that sounds as if the call were not there: each is told once for a
 * descriptor, and the sync behind it would not tell it again. So whether the call is there is asked first, with nothing to do.
 */
static int flush_pieces(int fd)
{
	const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	struct stat st;
	off_t piece;

	if (fstat(fd, &st))
		return -1;
	piece = piece_bytes(st.st_size, committing_rows);
	if (piece >= st.st_size || sync_file_range(fd, 0, 0, 0))
		return 0;
	for (off_t offset = 0; offset < st.st_size; offset += piece)
		if (sync_file_range(fd, offset, piece, all))
			return -1;
	return 0;
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	int (*next)(int) = (__typeof__(&fdatasync))dlsym(RTLD_NEXT, "fdatasync");

	CHECK(next);
	if (fd >= 0 && fd == committing_fd && flush_pieces(fd))
		return -1;
	return next(fd);
}

int lmdb_flush_commit(MDB_txn *txn, uint64_t rows)
{
	int rc;

	CHECK(mdb_env_get_fd(mdb_txn_env(txn), &committing_fd) == 0);
	committing_rows = rows;
	rc = mdb_txn_commit(txn);
	committing_fd = -1;
	return rc;
}
