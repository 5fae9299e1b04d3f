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

static _Atomic int64_t next_offset; /* where the next piece is to begin; -1: one was not behind the other */
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
	struct stat st;
	int rc;

	if (flags == 0) {
		next_offset = 0;
		pieces = 0;
		errno = fail_errno;
		return fail_at == ASKED ? -1 : 0;
	}
	ck_assert_uint_eq(flags, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
	next_offset = offset == next_offset ? offset + len : -1;
	if (++pieces == fail_at) {
		errno = fail_errno;
		return -1;
	}
	ck_assert_int_eq(fstat(fd, &st), 0);
	rc = (int)syscall(SYS_sync_file_range, fd, offset, len, flags);
	if (fail_at == ENDED && offset + len >= st.st_size)
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
	next_offset = 0;
	pieces = 0;
	l->expected = 1;
	kv_flush(kv, real_loop_closed, l);
	real_loop_wait(l);
	ck_assert_int_eq(l->code, want);
}

/* More than enough for the most pieces, 20 MiB. */
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

static uint64_t file_bytes(const struct real_loop *l)
{
	struct stat st;
	char path[96];

	snprintf(path, sizeof(path), "%s/data.mdb", l->dir);
	ck_assert_int_eq(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

START_TEST(test_whole_file_in_pieces)
{
	struct real_loop l;
	struct kv *kv;

	real_loop_init(&l);
	kv = open_kv(&l);
	for (uint64_t round = 1; round <= 2; round++) {
		flush_rows(&l, kv, round, 0);
		ck_assert_uint_ge(file_bytes(&l), 16 << 20);
		ck_assert_int_ge(next_offset, 16 << 20);
		ck_assert_int_eq(next_offset, (int64_t)pieces * FLUSH_PIECE_BYTES);
	}
	close_kv(&l, kv, 0);
}
END_TEST

/* Each piece is waited for: of a great file there are no more, but greater ones. */
START_TEST(test_great_file)
{
	static const uint64_t sizes[] = {FLUSH_PIECES_MAX * (uint64_t)FLUSH_PIECE_BYTES, FLUSH_PIECES_MAX * (uint64_t)FLUSH_PIECE_BYTES + 1, (uint64_t)5 << 30};
	struct real_loop l;
	struct kv *kv;
	char path[96];

	real_loop_init(&l);
	kv = open_kv(&l);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(path, sizeof(path), "%s/data.mdb", l.dir);
		ck_assert_int_eq(truncate(path, (off_t)sizes[i]), 0);
		flush_rows(&l, kv, i + 1, 0);
		ck_assert_int_ge(next_offset, (int64_t)sizes[i]);
		ck_assert_int_gt(pieces, FLUSH_PIECES_MAX / 2);
		ck_assert_int_le(pieces, FLUSH_PIECES_MAX);
	}
	close_kv(&l, kv, 0);
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
	flush_some(&l, kv, 2, 10 * FLUSH_PIECE_ROWS, 0);
	ck_assert_int_ge(pieces, 8);
	ck_assert_int_le(pieces, 10);
	ck_assert_uint_ge((uint64_t)next_offset, file_bytes(&l));
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

UNIT_MAIN("kv_lmdb_flush", test_whole_file_in_pieces, test_great_file, test_few_rows, test_piece_that_fails, test_sync_behind_the_pieces, test_no_pieces_to_be_had,
	test_other_files)
