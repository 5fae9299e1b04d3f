/* SPDX-License-Identifier: Apache-2.0 */
/* A commit of LMDB is given to the disk in pieces: this program's sync_file_range is the one that is called. */
#include "common/kv/kv_lmdb_flush.h"
#include "common/kv/kv_backend.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ASKED = -1, ENDED = -2 }; /* whether there are pieces at all; behind the last of them */

static _Atomic int64_t next_offset; /* where the next piece is to begin; -1: one was not behind the other; INT64_MAX: behind all */
static _Atomic int64_t greatest;    /* but the last one, which goes to the end of the file */
static _Atomic int pieces, fail_at, fail_errno; /* the piece that fails, from 1, or as above; 0: none */

static void let_fail(int at, int error)
{
	fail_at = at;
	fail_errno = error;
}

/* As if it were closed: no sync of it can succeed any more. */
static void spoil(int fd)
{
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[0], fd), fd);
	close(ends[0]);
	close(ends[1]);
}

int sync_file_range(int fd, off64_t offset, off64_t len, unsigned flags)
{
	int rc;

	if (flags == 0) {
		next_offset = greatest = 0;
		pieces = 0;
		errno = fail_errno;
		return fail_at == ASKED ? -1 : 0;
	}
	ck_assert_uint_eq(flags, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
	next_offset = offset != next_offset ? -1 : len ? offset + len : INT64_MAX;
	if (len > greatest)
		greatest = len;
	if (++pieces == fail_at) {
		errno = fail_errno;
		return -1;
	}
	rc = (int)syscall(SYS_sync_file_range, fd, offset, len, flags);
	if (fail_at == ENDED && len == 0)
		spoil(fd);
	return rc;
}

static int fatal_code;

static void note_fatal(void *ctx, int code, const char *why)
{
	struct real_loop *l = ctx;

	ck_assert_ptr_nonnull(strstr(why, l->dir));
	fatal_code = code;
}

static struct kv *open_kv(struct real_loop *l)
{
	const struct kv_options options = {.dir = l->dir, .backend = &kv_lmdb, .freeze_bytes = 64 << 20, .on_fatal = note_fatal, .ctx = l};
	struct err err;
	uint64_t applied;
	struct kv *kv;
	int rc;

	let_fail(0, 0);
	rc = kv_open(l->io, &options, &kv, &applied, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	return kv;
}

static void flush_some(struct real_loop *l, struct kv *kv, uint64_t applied, int rows, int want)
{
	static const char value[1000];
	char key[16];

	for (int i = 0; i < rows; i++) {
		snprintf(key, sizeof(key), "key%06d", i);
		kv_put(kv, slice_of(key, strlen(key)), slice_of(value, sizeof(value)));
	}
	kv_applied(kv, applied);
	next_offset = greatest = 0;
	pieces = 0;
	l->expected = 1;
	kv_flush(kv, real_loop_closed, l);
	real_loop_wait(l);
	ck_assert_int_eq(l->code, want);
}

/* More than enough for the most pieces, 5 MiB. */
static void flush_rows(struct real_loop *l, struct kv *kv, uint64_t applied, int want)
{
	flush_some(l, kv, applied, FLUSH_PIECES_MAX * FLUSH_PIECE_ROWS + 1000, want);
}

static void close_kv(struct real_loop *l, struct kv *kv, int want)
{
	l->expected = 1;
	kv_close(kv, real_loop_closed, l);
	real_loop_wait(l);
	ck_assert_int_eq(l->code, want);
	real_loop_fini(l);
}

START_TEST(test_whole_file_in_pieces)
{
	struct real_loop l;
	struct kv *kv;

	real_loop_init(&l);
	kv = open_kv(&l);
	for (uint64_t round = 1; round <= 2; round++) {
		flush_rows(&l, kv, round, 0);
		ck_assert_int_eq(next_offset, INT64_MAX);
		ck_assert_int_eq(greatest, FLUSH_PIECE_BYTES); /* whatever room there is behind what is used */
		ck_assert_int_ge(pieces, (5 << 20) / FLUSH_PIECE_BYTES);
		ck_assert_int_le(pieces, FLUSH_PIECES_MAX);
	}
	close_kv(&l, kv, 0);
}
END_TEST

/* Each piece is waited for: of a great file there are no more, but greater ones; of few rows few, or none. */
START_TEST(test_piece_bytes)
{
	const uint64_t piece = FLUSH_PIECE_BYTES, most = FLUSH_PIECES_MAX, rows = FLUSH_PIECES_MAX * FLUSH_PIECE_ROWS;

	ck_assert_uint_eq(lmdb_flush_piece_bytes(0, rows), 0);
	ck_assert_uint_eq(lmdb_flush_piece_bytes(piece, rows), 0);
	ck_assert_uint_eq(lmdb_flush_piece_bytes(piece + 1, rows), piece);
	ck_assert_uint_eq(lmdb_flush_piece_bytes(most * piece, rows), piece);
	ck_assert_uint_eq(lmdb_flush_piece_bytes(most * piece + 1, rows), 2 * piece);
	ck_assert_uint_eq(lmdb_flush_piece_bytes((uint64_t)1 << 40, UINT64_MAX), ((uint64_t)1 << 40) / most);
	ck_assert_uint_eq(lmdb_flush_piece_bytes((uint64_t)1 << 40, 2 * FLUSH_PIECE_ROWS - 1), 0);
	ck_assert_uint_eq(lmdb_flush_piece_bytes((uint64_t)1 << 40, 2 * FLUSH_PIECE_ROWS), (uint64_t)1 << 39);
}
END_TEST

/* A commit of few rows has few pages here and there. */
START_TEST(test_few_rows)
{
	struct real_loop l;
	struct kv *kv;

	real_loop_init(&l);
	kv = open_kv(&l);
	flush_some(&l, kv, 1, 2 * FLUSH_PIECE_ROWS - 1, 0);
	ck_assert_int_eq(pieces, 0);
	flush_some(&l, kv, 2, 100 * FLUSH_PIECE_ROWS, 0);
	ck_assert_int_gt(pieces, 1);
	flush_some(&l, kv, 3, 4 * FLUSH_PIECE_ROWS, 0);
	ck_assert_int_ge(pieces, 3);
	ck_assert_int_le(pieces, 5);
	ck_assert_int_eq(next_offset, INT64_MAX);
	close_kv(&l, kv, 0);
}
END_TEST

/* An error of what was written is told once: the sync behind the pieces would not know of it. It may have any name. */
START_TEST(test_piece_that_fails)
{
	static const int errors[] = {EIO, ENOSPC, EOPNOTSUPP, EINVAL, ENOSYS};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		int code = err_from_errno(errors[i]);
		struct real_loop l;
		struct kv *kv;

		real_loop_init(&l);
		kv = open_kv(&l);
		flush_rows(&l, kv, 1, 0);
		let_fail(3, errors[i]);
		flush_rows(&l, kv, 2, code);
		ck_assert_int_eq(fatal_code, code);
		ck_assert_int_eq(pieces, 3);
		close_kv(&l, kv, code);
	}
}
END_TEST

START_TEST(test_sync_behind_the_pieces)
{
	struct real_loop l;
	struct kv *kv;

	real_loop_init(&l);
	kv = open_kv(&l);
	flush_rows(&l, kv, 1, 0);
	let_fail(ENDED, 0);
	flush_rows(&l, kv, 2, err_from_errno(EINVAL));
	close_kv(&l, kv, err_from_errno(EINVAL));
}
END_TEST

START_TEST(test_no_pieces_to_be_had)
{
	struct real_loop l;
	struct kv *kv;

	real_loop_init(&l);
	kv = open_kv(&l);
	let_fail(ASKED, ENOSYS);
	flush_rows(&l, kv, 1, 0);
	ck_assert_int_eq(pieces, 0);
	close_kv(&l, kv, 0);
}
END_TEST

/* What others sync is none of LMDB's. */
START_TEST(test_other_files)
{
	char path[] = "unit-flush-XXXXXX";
	int fd = mkstemp(path);

	pieces = 0;
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(ftruncate(fd, 4 << 20), 0);
	ck_assert_int_eq(fdatasync(fd), 0);
	ck_assert_int_eq(pieces, 0);
	close(fd);
	ck_assert_int_eq(fdatasync(fd), -1);
	ck_assert_int_eq(errno, EBADF);
}
END_TEST

UNIT_MAIN("kv_lmdb_flush", test_whole_file_in_pieces, test_piece_bytes, test_few_rows, test_piece_that_fails, test_sync_behind_the_pieces, test_no_pieces_to_be_had,
	test_other_files)
