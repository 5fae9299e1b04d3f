/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One inode being written, over a library whose calls end when the test says so. What libfuse and the library are asked for is noted in
 * one line, so that a test reads as the order of things.
 */
#include "client/mount/mount_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "tests/lib/unit.h"

/* ---- the library ---- */

enum { MANY = 16 };
static struct cr_op *calls[MANY]; /* that have not ended, in their order */
static int call_count;
static char said[512];
static int handle_a, handle_b;
#define FILE_A ((struct cr_file *)(void *)&handle_a)
#define FILE_B ((struct cr_file *)(void *)&handle_b)
static struct cr_file *opened = FILE_A; /* what the next open gives */
static struct cr_file **ret_opened;
static uint64_t opened_size; /* and how long it is */

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	size_t len = strlen(said);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said + len, sizeof(said) - len, fmt, ap);
	va_end(ap);
}

static void call(struct cr_op *op, const char *name)
{
	ck_assert_int_lt(call_count, MANY);
	calls[call_count++] = op;
	say("%s ", name);
}

static const char *name_of(struct cr_file *file)
{
	return file == FILE_A ? "a" : file == FILE_B ? "b" : "?";
}

void cr_open_async(struct cr_store *store, uint64_t inode, uint32_t flags, struct cr_file **ret_file,
	struct cr_stat *ret_stat, struct cr_op *op)
{
	(void)store;
	(void)inode;
	(void)flags;
	ret_stat->size = opened_size;
	ret_opened = ret_file;
	call(op, "open");
}

void cr_close_async(struct cr_file *file, struct cr_op *op)
{
	say("close-%s ", name_of(file));
	ck_assert_int_lt(call_count, MANY);
	calls[call_count++] = op;
}

void cr_fsync_async(struct cr_file *file, struct cr_op *op)
{
	(void)file;
	call(op, "fsync");
}

void cr_pwrite_copy_async(struct cr_file *file, const void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	(void)file;
	(void)buf;
	(void)len;
	(void)offset;
	call(op, "write");
}

void cr_truncate_async(struct cr_store *store, uint64_t inode, uint64_t size, struct cr_op *op)
{
	(void)store;
	(void)inode;
	(void)size;
	call(op, "truncate");
}

void cr_unlink_async(struct cr_store *store, uint64_t dir, const char *name, struct cr_op *op)
{
	(void)store;
	say("unlink-%llu-%s ", (unsigned long long)dir, name);
	ck_assert_int_lt(call_count, MANY);
	calls[call_count++] = op;
}

int cr_fsync(struct cr_file *file)
{
	say("fsync-%s ", name_of(file));
	return 0;
}

void cr_abort(struct cr_file *file)
{
	(void)file;
}

const char *cr_error(void)
{
	return "";
}

/* The oldest call that has not ended ends so. */
static void end(int result)
{
	struct cr_op *op = calls[0];

	ck_assert_int_gt(call_count, 0);
	memmove(calls, calls + 1, sizeof(*calls) * (size_t)--call_count);
	if (ret_opened && result == 0)
		*ret_opened = opened;
	ret_opened = NULL;
	op->result = result;
	op->done(op);
}

/* ---- libfuse ---- */

int fuse_reply_err(fuse_req_t req, int err)
{
	(void)req;
	if (err)
		say("=%s ", strerrorname_np(err));
	else
		say("=ok ");
	return 0;
}

int fuse_reply_write(fuse_req_t req, size_t count)
{
	(void)req;
	say("=%zu ", count);
	return 0;
}

int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
	(void)req;
	(void)buf;
	(void)size;
	return 0;
}

/* ---- a mount without a kernel ---- */

static struct mount *new_mount(void)
{
	static struct mount m; /* each test is a process of its own, and leaves what it has open */

	pthread_mutex_init(&m.lock, NULL);
	pthread_cond_init(&m.freed, NULL);
	list_init(&m.writers);
	return &m;
}

static struct mount_req *request(struct mount *m, uint64_t inode)
{
	static int waiting;
	struct mount_req *r = mount__req_new(m, (fuse_req_t)(void *)&waiting, NULL);

	r->inode = inode;
	r->writer = mount__writer_get(m, inode);
	return r;
}

static void write_bytes(struct mount *m, size_t len, uint64_t offset)
{
	struct mount_req *r = request(m, 7);

	r->len = len;
	r->offset = offset;
	mount__writer_write(r);
}

static void done(struct mount_req *r)
{
	mount__req_error(r, 0);
}

static void expect(const char *want)
{
	ck_assert_str_eq(said, want);
	said[0] = '\0';
}

/* A file is opened by its first write, and again after it was closed. */
START_TEST(test_write_flush_write)
{
	struct mount *m = new_mount();
	struct mount_writer *w = mount__writer_make(m, 7, NULL, 0);

	write_bytes(m, 5, 0);
	expect("open ");
	end(0);
	expect("write ");
	end(5);
	expect("=5 ");
	mount__writer_flush(request(m, 7), done);
	end(0);
	expect("close-a =ok ");
	opened_size = 5;
	write_bytes(m, 5, 5);
	expect("open ");
	opened = FILE_B;
	end(0);
	ck_assert(w->file == FILE_B);
	expect("write ");
}
END_TEST

/* A write that fails because the file cannot be opened again fails its fsync and its close, too: a program may have looked at those only. */
START_TEST(test_open_again_fails)
{
	struct mount *m = new_mount();

	mount__writer_make(m, 7, NULL, 0);
	write_bytes(m, 5, 0);
	end(-ETIMEDOUT);
	expect("open =ETIMEDOUT ");
	mount__writer_sync(request(m, 7), done);
	expect("=ETIMEDOUT ");
	mount__writer_flush(request(m, 7), done);
	expect("=ETIMEDOUT ");
	write_bytes(m, 5, 0);
	expect("=ETIMEDOUT ");
}
END_TEST

/* The same for a write behind a hole, which is made by a truncation; one that was asked for as such has said all there is to say. */
START_TEST(test_hole_fails)
{
	struct mount *m = new_mount();

	mount__writer_make(m, 7, NULL, 0);
	mount__writer_cut(request(m, 7), 100, done);
	end(-ENOSPC);
	expect("truncate =ENOSPC ");
	mount__writer_flush(request(m, 7), done);
	expect("=ok ");
	write_bytes(m, 5, 4096);
	end(0);
	end(0);
	end(-ENOSPC);
	expect("open close-a truncate =ENOSPC ");
	mount__writer_flush(request(m, 7), done);
	expect("=ENOSPC ");
}
END_TEST

/* What was accepted and is lost is no part of the file's length any more. */
START_TEST(test_lost_bytes_do_not_count)
{
	struct mount *m = new_mount();
	struct mount_writer *w = mount__writer_make(m, 7, NULL, 0);
	struct cr_stat stat = {.inode = 7};
	struct stat attr;

	mount__attr(m, &stat, &attr);
	write_bytes(m, 5, 0);
	end(0);
	end(5);
	ck_assert(mount__writer_dirty(w));
	ck_assert(mount__told_beyond(m, 7, 3));
	mount__writer_sync(request(m, 7), done);
	end(-EIO);
	expect("open write =5 fsync =EIO ");
	ck_assert(!mount__writer_dirty(w));
	ck_assert(!mount__told_beyond(m, 7, 0));
	mount__writer_flush(request(m, 7), done);
	expect("=EIO ");
}
END_TEST

/* Somebody has found the new name and writes before the answer to the create is here: the created file is given up for theirs. */
START_TEST(test_created_and_found)
{
	struct mount *m = new_mount();
	struct mount_writer *w = mount__writer_make(m, 7, NULL, 0);

	opened = FILE_B;
	write_bytes(m, 5, 0);
	end(0);
	ck_assert(mount__writer_make(m, 7, FILE_A, 0) == w);
	ck_assert(w->file == FILE_B);
	expect("open write close-a ");
	end(5);
	end(-ESTALE);
	expect("=5 ");
	ck_assert_int_eq(w->error, 0);
}
END_TEST

/* A file that was removed while it was written lies under another name until the last handle goes, or the mount. */
START_TEST(test_removed)
{
	struct mount *m = new_mount();
	struct mount_writer *w = mount__writer_make(m, 7, FILE_A, 0);

	w->hidden_dir = 3;
	mount__writer_get(m, 7);
	mount__writer_put(m, w);
	expect("");
	mount__writer_put(m, w);
	expect("close-a unlink-3-.craton-removed-7 ");
	end(-ESTALE);
	end(0);
	ck_assert(list_empty(&m->writers));
	ck_assert_uint_eq(m->requests, 0);
}
END_TEST

UNIT_MAIN("mount_writer", test_write_flush_write, test_open_again_fails, test_hole_fails, test_lost_bytes_do_not_count,
	test_created_and_found, test_removed)
