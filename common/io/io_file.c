// SPDX-License-Identifier: Apache-2.0
/*
 * io_file: the synchronous calls on files, shared by the real back ends and called from any thread. Short transfers
 * and EINTR are continued here, nowhere else.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "common/base/mem.h"
#include "common/io/io_real.h"

int io_file_open(struct io *io, const char *path, uint32_t flags, uint32_t mode, int *ret_fd)
{
	int os_flags = O_CLOEXEC | (flags & IO_OPEN_WRITE ? O_RDWR : O_RDONLY);
	struct stat st;
	int fd;

	(void)io;
	if (flags & IO_OPEN_CREATE)
		os_flags |= O_CREAT;
	if (flags & IO_OPEN_EXCL)
		os_flags |= O_EXCL;
	if (flags & IO_OPEN_DIRECT)
		os_flags |= O_DIRECT;
	if (flags & IO_OPEN_TRUNCATE)
		os_flags |= O_TRUNC;
	if (flags & IO_OPEN_OWN)
		os_flags |= O_NOFOLLOW | O_NONBLOCK; /* a pipe of somebody else must not hold us here */
	do
		fd = open(path, os_flags, (mode_t)mode);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return io__err(flags & IO_OPEN_OWN && errno == ELOOP ? EPERM : errno);
	if (flags & IO_OPEN_OWN && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
		close(fd);
		return ERR_PERM;
	}
	*ret_fd = fd;
	return 0;
}

void io_file_close(struct io *io, int fd)
{
	(void)io;
	/* Linux has let go of the fd even where close reports an error; data that matter were synced before. */
	CHECK(close(fd) == 0 || errno != EBADF);
}

int io_file_size(struct io *io, int fd, uint64_t *ret_bytes)
{
	struct stat st;
	off_t end;

	(void)io;
	if (fstat(fd, &st))
		return io__err(errno);
	if (S_ISBLK(st.st_mode)) {
		end = lseek(fd, 0, SEEK_END);
		if (end < 0)
			return io__err(errno);
		*ret_bytes = (uint64_t)end;
		return 0;
	}
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

int io_file_allocate(struct io *io, int fd, uint64_t offset, uint64_t len)
{
	int rc;

	(void)io;
	do
		rc = fallocate(fd, 0, (off_t)offset, (off_t)len);
	while (rc && errno == EINTR);
	return rc ? io__err(errno) : 0;
}

int io_file_truncate(struct io *io, int fd, uint64_t bytes)
{
	int rc;

	(void)io;
	do
		rc = ftruncate(fd, (off_t)bytes);
	while (rc && errno == EINTR);
	return rc ? io__err(errno) : 0;
}

static int64_t io_file_readv(int fd, const struct iovec *iov, int iov_count, uint64_t offset)
{
	size_t total = io__iov_bytes(iov, iov_count), done = 0;
	struct iovec rest[IO_IOV_MAX];

	while (done < total) {
		int count = io__iov_rest(iov, iov_count, done, rest);
		ssize_t n = preadv(fd, rest, count, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		/* With O_DIRECT the try to read on behind an unaligned end is EINVAL: it is the end. */
		if (n < 0 && errno == EINVAL && done > 0)
			break;
		if (n < 0)
			return io__err(errno);
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int64_t)done;
}

static int64_t io_file_writev(int fd, const struct iovec *iov, int iov_count, uint64_t offset, int os_flags)
{
	size_t total = io__iov_bytes(iov, iov_count), done = 0;
	struct iovec rest[IO_IOV_MAX];

	while (done < total) {
		int count = io__iov_rest(iov, iov_count, done, rest);
		ssize_t n = pwritev2(fd, rest, count, (off_t)(offset + done), os_flags);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return io__err(errno);
		if (n == 0)
			return ERR_IO;
		done += (size_t)n;
	}
	return (int64_t)done;
}

int64_t io_file_pread(struct io *io, int fd, void *buf, size_t len, uint64_t offset)
{
	struct iovec iov = {buf, len};

	(void)io;
	return io_file_readv(fd, &iov, 1, offset);
}

int64_t io_file_pwrite(struct io *io, int fd, const void *buf, size_t len, uint64_t offset)
{
	struct iovec iov = {(void *)buf, len};

	(void)io;
	return io_file_writev(fd, &iov, 1, offset, 0);
}

int io_file_fdatasync(struct io *io, int fd)
{
	int rc;

	(void)io;
	do
		rc = fdatasync(fd);
	while (rc && errno == EINTR);
	return rc ? io__err(errno) : 0;
}

int64_t io_file_perform(const struct io_op *op)
{
	switch (op->kind) {
	case IO_READ:
		return io_file_readv(op->fd, op->rw.iov, op->rw.iov_count, op->rw.offset);
	case IO_WRITE:
		return io_file_writev(
			op->fd, op->rw.iov, op->rw.iov_count, op->rw.offset, op->flags & IO_DSYNC ? RWF_DSYNC : 0);
	case IO_SYNC:
		return io_file_fdatasync(NULL, op->fd);
	default:
		CHECK_UNREACHABLE();
	}
}

/* ---- names ---- */

int io_file_mkdir(struct io *io, const char *path, uint32_t mode)
{
	(void)io;
	return mkdir(path, (mode_t)mode) ? io__err(errno) : 0;
}

int io_file_rename(struct io *io, const char *from, const char *to)
{
	(void)io;
	return rename(from, to) ? io__err(errno) : 0;
}

int io_file_unlink(struct io *io, const char *path)
{
	(void)io;
	return unlink(path) ? io__err(errno) : 0;
}

int io_file_sync_dir(struct io *io, const char *path)
{
	int fd, rc;

	(void)io;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return io__err(errno);
	do
		rc = fsync(fd);
	while (rc && errno == EINTR);
	rc = rc ? io__err(errno) : 0;
	close(fd);
	return rc;
}

struct io_file_names {
	char **names;
	size_t count, cap;
};

static int io_file_read_names(DIR *dir, struct io_file_names *list)
{
	for (;;) {
		struct dirent *entry;

		errno = 0;
		entry = readdir(dir);
		if (!entry)
			return errno ? io__err(errno) : 0;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (list->count == list->cap) {
			list->cap = list->cap ? 2 * list->cap : 64;
			list->names = mem_realloc(list->names, list->cap * sizeof(*list->names));
		}
		list->names[list->count++] = mem_strdup(entry->d_name);
	}
}

static int io_file_compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int io_file_list_dir(struct io *io, const char *path, int (*each)(void *ctx, const char *name), void *ctx)
{
	struct io_file_names list = {0};
	DIR *dir = opendir(path);
	int rc;

	(void)io;
	if (!dir)
		return io__err(errno);
	rc = io_file_read_names(dir, &list);
	closedir(dir);
	if (list.count > 1)
		qsort(list.names, list.count, sizeof(*list.names), io_file_compare_names);
	for (size_t i = 0; i < list.count; i++) {
		if (!rc)
			rc = each(ctx, list.names[i]);
		mem_free(list.names[i]);
	}
	mem_free(list.names);
	return rc;
}

int io_file_lock(struct io *io, int fd)
{
	(void)io;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return errno == EWOULDBLOCK ? ERR_BUSY : io__err(errno);
}

int io_file_disk_space(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free)
{
	struct statvfs st;

	(void)io;
	if (statvfs(path, &st))
		return io__err(errno);
	*ret_total = (uint64_t)st.f_blocks * st.f_frsize;
	*ret_free = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}
