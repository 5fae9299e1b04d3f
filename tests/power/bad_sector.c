/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bad_sector: some bytes of one file cannot be read, as where a disk has a bad sector: made to be loaded before libc (LD_PRELOAD), for tests/e2e/bad_sector.py. What
 * the kernel says of one past the page cache is ENODATA.
 *
 * Environment: CRATON_BAD_FILE, the file, absolute and without links; CRATON_BAD_FROM and CRATON_BAD_TO, the first of its bytes and the one behind the last. What is read by other ways
 * than preadv (io_uring) is not touched.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

typedef ssize_t preadv_fn(int fd, const struct iovec *iov, int count, off64_t offset);

static bool is_the_file(int fd)
{
	const char *bad = getenv("CRATON_BAD_FILE");
	char link[64], path[PATH_MAX];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = bad ? readlink(link, path, sizeof(path)) : -1;
	return len > 0 && (size_t)len == strlen(bad) && memcmp(path, bad, (size_t)len) == 0;
}

static off64_t number(const char *name)
{
	const char *text = getenv(name);

	return text ? strtoll(text, NULL, 10) : 0;
}

static ssize_t read_at(const char *name, int fd, const struct iovec *iov, int count, off64_t offset)
{
	preadv_fn *real = (preadv_fn *)dlsym(RTLD_NEXT, name);
	off64_t end = offset;

	for (int i = 0; i < count; i++)
		end += (off64_t)iov[i].iov_len;
	if (offset < number("CRATON_BAD_TO") && end > number("CRATON_BAD_FROM") && is_the_file(fd)) {
		errno = ENODATA;
		return -1;
	}
	return real(fd, iov, count, offset);
}

/* Both names that libc has for it. */
ssize_t preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
	return read_at("preadv", fd, iov, count, offset);
}

ssize_t preadv64(int fd, const struct iovec *iov, int count, off64_t offset)
{
	return read_at("preadv64", fd, iov, count, offset);
}
