/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder: notes what a process does to the files of one directory: made to be loaded before libc (LD_PRELOAD), for
 * tools/prove power-loss, which makes of it what a loss of power at any moment may have left.
 *
 * Environment: CRATON_RECORD_DIR, the directory, absolute and without links; CRATON_RECORD_TRACE, the file that gets the records; and
 * CRATON_RECORD_COUNT, a file of 8 bytes: how many records there are. Who reads that counter behind an answer of the process
 * knows that all which the answer promises is in the records before. CRATON_RECORD_DELAY_US: a sync, or a write that is one, begins up to so
 * much later, so that an answer that does not wait for it is there first. Records of a process that is started again follow those of the last one.
 *
 * Each call makes two records: it begins (from now on the disk may have it), and it has ended (a sync that begins later makes it
 * durable). A record is a struct record and its bytes. What is written by other ways than these calls (mappings, io_uring) is not seen: who reads
 * the records compares what they make with what is there in the end.
 */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum record_kind {
	REC_END,
	REC_WRITE,
	REC_SIZE,
	REC_ALLOCATE,
	REC_SYNC,
	REC_CREATE,
	REC_MKDIR,
	REC_RENAME,
	REC_UNLINK,
	REC_START
};
enum {
	REC_FAILED = 1,  /* of an end */
	REC_DURABLE = 2, /* of a write: it is durable when it ends */
	FDS = 4096
};

struct record {
	uint64_t number; /* from 1 */
	uint32_t kind, flags;
	uint64_t begun;          /* of an end: the number of what has ended */
	uint64_t inode;          /* of an end: that of the file or directory which was made */
	uint64_t offset, length; /* REC_SIZE: the new size is `offset`; of a write's end: `length` was taken */
	uint64_t bytes; /* behind this: what is written, or a path and a 0; of a rename, then the new one and a 0 */
};

static char root[4096];
static size_t root_len;
static int trace_fd = -1;
static uint64_t delay_us;
static _Atomic uint64_t *count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int recorded[FDS]; /* 0: not of the directory; else its flags at open, and 1 << 30 */

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void die(const char *what)
{
	fprintf(stderr, "recorder: %s: %m\n", what);
	abort();
}

static bool is_ours(const char *path)
{
	return trace_fd >= 0 && !strncmp(path, root, root_len) && (path[root_len] == '/' || !path[root_len]);
}

static bool is_fd_ours(int fd)
{
	return trace_fd >= 0 && fd >= 0 && fd < FDS && recorded[fd];
}

/* One record, and its bytes. Returns its number. */
static uint64_t put(struct record r, const struct iovec *iov, int iovs)
{
	struct iovec all[IOV_MAX + 1] = {{&r, sizeof(r)}};
	size_t total = sizeof(r);

	if (iovs + 1 > (int)(sizeof(all) / sizeof(all[0])))
		die("too many pieces in one write");
	for (int i = 0; i < iovs; i++) {
		all[i + 1] = iov[i];
		r.bytes += iov[i].iov_len;
		total += iov[i].iov_len;
	}
	pthread_mutex_lock(&lock);
	r.number = atomic_load(count) + 1;
	if (REAL(writev)(trace_fd, all, iovs + 1) != (ssize_t)total)
		die("cannot write the trace");
	atomic_store(count, r.number);
	pthread_mutex_unlock(&lock);
	return r.number;
}

__attribute__((constructor)) static void begin(void)
{
	const char *dir = getenv("CRATON_RECORD_DIR"), *trace = getenv("CRATON_RECORD_TRACE"),
		   *counter = getenv("CRATON_RECORD_COUNT"), *delay = getenv("CRATON_RECORD_DELAY_US");
	int fd;

	if (!dir || !trace || !counter)
		return;
	root_len = strlen(dir);
	if (root_len >= sizeof(root))
		die("CRATON_RECORD_DIR is too long");
	memcpy(root, dir, root_len + 1);
	trace_fd = REAL(open)(trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	fd = REAL(open)(counter, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (trace_fd < 0 || fd < 0 || REAL(ftruncate)(fd, sizeof(*count)))
		die("cannot open its files");
	count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (count == MAP_FAILED)
		die("cannot map the counter");
	delay_us = delay ? strtoull(delay, NULL, 10) : 0;
	put((struct record){.kind = REC_START}, NULL, 0);
}

static uint64_t inode_of_fd(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		die("fstat");
	return st.st_ino;
}

static uint64_t inode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) ? 0 : st.st_ino;
}

static void put_end(uint64_t begun, int64_t result, uint64_t inode)
{
	const struct record r = {
		.kind = REC_END,
		.flags = result < 0 ? REC_FAILED : 0,
		.begun = begun,
		.inode = inode,
		.length = result < 0 ? 0 : (uint64_t)result,
	};
	int saved = errno;

	put(r, NULL, 0);
	errno = saved;
}

static uint64_t put_path(enum record_kind kind, const char *path, const char *to)
{
	struct iovec iov[] = {{(void *)path, strlen(path) + 1}, {(void *)to, to ? strlen(to) + 1 : 0}};

	return put((struct record){.kind = kind}, iov, to ? 2 : 1);
}

/* ---- names ---- */

static int open_noted(const char *path, int flags, mode_t mode)
{
	__typeof__(&open) real = REAL(open);
	uint64_t begun = 0;
	bool is_new;
	int fd;

	if (!is_ours(path))
		return real(path, flags, mode);
	is_new = flags & O_CREAT && inode_of(path) == 0;
	if (is_new)
		begun = put_path(REC_CREATE, path, NULL);
	else if (flags & O_TRUNC)
		begun = put((struct record){.kind = REC_SIZE, .inode = inode_of(path)}, NULL, 0);
	fd = real(path, flags, mode);
	if (begun)
		put_end(begun, fd, fd < 0 ? 0 : inode_of_fd(fd));
	if (fd >= FDS)
		die("too many open files");
	if (fd >= 0)
		recorded[fd] = (flags & (O_SYNC | O_DSYNC)) | 1 << 30;
	return fd;
}

#define OPEN(name)                                                               \
	int name(const char *path, int flags, ...)                               \
	{                                                                        \
		va_list ap;                                                      \
		mode_t mode;                                                     \
		va_start(ap, flags);                                             \
		mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0; \
		va_end(ap);                                                      \
		return open_noted(path, flags, mode);                            \
	}
OPEN(open)
OPEN(open64)

/* These are not known here. */
int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (is_ours(path) || is_fd_ours(dir))
		die("openat");
	return REAL(openat)(dir, path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
	if (is_ours(path))
		die("creat");
	return REAL(creat)(path, mode);
}

int close(int fd)
{
	if (fd >= 0 && fd < FDS)
		recorded[fd] = 0;
	return REAL(close)(fd);
}

int mkdir(const char *path, mode_t mode)
{
	uint64_t begun;
	int rc;

	if (!is_ours(path))
		return REAL(mkdir)(path, mode);
	begun = put_path(REC_MKDIR, path, NULL);
	rc = REAL(mkdir)(path, mode);
	put_end(begun, rc, inode_of(path));
	return rc;
}

int rename(const char *from, const char *to)
{
	uint64_t begun;
	int rc;

	if (!is_ours(from) && !is_ours(to))
		return REAL(rename)(from, to);
	begun = put_path(REC_RENAME, from, to);
	rc = REAL(rename)(from, to);
	put_end(begun, rc, 0);
	return rc;
}

int unlink(const char *path)
{
	uint64_t begun;
	int rc;

	if (!is_ours(path))
		return REAL(unlink)(path);
	begun = put_path(REC_UNLINK, path, NULL);
	rc = REAL(unlink)(path);
	put_end(begun, rc, 0);
	return rc;
}

/* ---- bytes ---- */

/* Not the same for all, and the same each time. */
static void wait_a_while(uint64_t number)
{
	if (delay_us)
		usleep((useconds_t)(number * 2654435761u % delay_us));
}

static uint64_t put_sync(int fd)
{
	uint64_t number = put((struct record){.kind = REC_SYNC, .inode = inode_of_fd(fd)}, NULL, 0);

	wait_a_while(number);
	return number;
}

static uint64_t put_write(int fd, const struct iovec *iov, int iovs, off64_t offset, int flags)
{
	bool durable = recorded[fd] & (O_SYNC | O_DSYNC) || flags & (RWF_DSYNC | RWF_SYNC);
	uint64_t number = put(
		(struct record){
			.kind = REC_WRITE,
			.flags = durable ? REC_DURABLE : 0,
			.inode = inode_of_fd(fd),
			.offset = (uint64_t)offset,
		},
		iov, iovs);

	if (durable)
		wait_a_while(number);
	return number;
}

/* The record first, then the call, then its end. */
#define NOTED(record, call)                    \
	({                                     \
		uint64_t begun_ = (record);    \
		__typeof__(call) rc_ = (call); \
		put_end(begun_, rc_, 0);       \
		rc_;                           \
	})

static off64_t position(int fd)
{
	return lseek64(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *buf, size_t len)
{
	struct iovec iov = {(void *)buf, len};

	if (!is_fd_ours(fd))
		return REAL(write)(fd, buf, len);
	return NOTED(put_write(fd, &iov, 1, position(fd), 0), REAL(write)(fd, buf, len));
}

ssize_t writev(int fd, const struct iovec *iov, int iovs)
{
	if (!is_fd_ours(fd))
		return REAL(writev)(fd, iov, iovs);
	return NOTED(put_write(fd, iov, iovs, position(fd), 0), REAL(writev)(fd, iov, iovs));
}

#define PWRITE(name)                                                                                   \
	ssize_t name(int fd, const void *buf, size_t len, off64_t offset)                              \
	{                                                                                              \
		struct iovec iov = {(void *)buf, len};                                                 \
		if (!is_fd_ours(fd))                                                                   \
			return REAL(pwrite64)(fd, buf, len, offset);                                   \
		return NOTED(put_write(fd, &iov, 1, offset, 0), REAL(pwrite64)(fd, buf, len, offset)); \
	}
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                                                      \
	ssize_t name(int fd, const struct iovec *iov, int iovs, off64_t offset)                            \
	{                                                                                                  \
		if (!is_fd_ours(fd))                                                                       \
			return REAL(pwritev64)(fd, iov, iovs, offset);                                     \
		return NOTED(put_write(fd, iov, iovs, offset, 0), REAL(pwritev64)(fd, iov, iovs, offset)); \
	}
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name)                                                                                             \
	ssize_t name(int fd, const struct iovec *iov, int iovs, off64_t offset, int flags)                         \
	{                                                                                                          \
		if (!is_fd_ours(fd))                                                                               \
			return REAL(pwritev64v2)(fd, iov, iovs, offset, flags);                                    \
		return NOTED(                                                                                      \
			put_write(fd, iov, iovs, offset, flags), REAL(pwritev64v2)(fd, iov, iovs, offset, flags)); \
	}
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

#define FTRUNCATE(name)                                                                                            \
	int name(int fd, off64_t size)                                                                             \
	{                                                                                                          \
		if (!is_fd_ours(fd))                                                                               \
			return REAL(ftruncate64)(fd, size);                                                        \
		return NOTED(                                                                                      \
			put((struct record){.kind = REC_SIZE, .inode = inode_of_fd(fd), .offset = (uint64_t)size}, \
				NULL, 0),                                                                          \
			REAL(ftruncate64)(fd, size));                                                              \
	}
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

#define FALLOCATE(name)                                                  \
	int name(int fd, int mode, off64_t offset, off64_t len)          \
	{                                                                \
		if (!is_fd_ours(fd))                                     \
			return REAL(fallocate64)(fd, mode, offset, len); \
		if (mode)                                                \
			die("this kind of fallocate is not known");      \
		return NOTED(put((struct record){.kind = REC_ALLOCATE,   \
					 .inode = inode_of_fd(fd),       \
					 .offset = (uint64_t)offset,     \
					 .length = (uint64_t)len},       \
				     NULL, 0),                           \
			REAL(fallocate64)(fd, mode, offset, len));       \
	}
FALLOCATE(fallocate)
FALLOCATE(fallocate64)

#define SYNC(name)                                          \
	int name(int fd)                                    \
	{                                                   \
		if (!is_fd_ours(fd))                        \
			return REAL(name)(fd);              \
		return NOTED(put_sync(fd), REAL(name)(fd)); \
	}
SYNC(fdatasync)
SYNC(fsync)
