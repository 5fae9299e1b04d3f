/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "client/dataset_index.h"

static const char local_prefix[] = "file:";

struct cr_dataset_file {
	struct cr_file *file; /* in the store, or */
	int fd;               /* here */
};

int dataset__file_open(
	struct cr_store *store, const char *path, struct cr_dataset_file **ret_file, char error[CR_DATASET_ERROR_BYTES])
{
	struct cr_dataset_file *f = calloc(1, sizeof(*f));
	int rc = 0;

	if (!f)
		return dataset__fail(error, -ENOMEM, "%.300s: out of memory", path);
	if (strncmp(path, local_prefix, strlen(local_prefix))) {
		rc = cr_open(store, path, CR_READ, 0, &f->file);
		if (rc && rc != -ENOENT)
			dataset__fail(error, rc, "%.200s: %.200s", path, cr_error());
	} else {
		f->fd = open(path + strlen(local_prefix), O_RDONLY | O_CLOEXEC);
		rc = f->fd < 0 ? -errno : 0;
		if (rc && rc != -ENOENT)
			dataset__fail(error, rc, "%.300s: %s", path, strerror(-rc));
	}
	if (rc)
		free(f);
	else
		*ret_file = f;
	return rc;
}

void dataset__file_close(struct cr_dataset_file *f)
{
	if (!f)
		return;
	if (f->file)
		cr_close(f->file);
	else
		close(f->fd);
	free(f);
}

int dataset__file_size(struct cr_dataset_file *f, uint64_t *ret_bytes, char error[CR_DATASET_ERROR_BYTES])
{
	struct cr_stat st;
	struct stat local;
	int rc = f->file ? cr_fstat(f->file, &st) : fstat(f->fd, &local) < 0 ? -errno : 0;

	if (rc)
		return dataset__fail(error, rc, "cannot tell the size: %.200s", f->file ? cr_error() : strerror(-rc));
	*ret_bytes = f->file ? st.size : (uint64_t)local.st_size;
	return 0;
}

static ssize_t read_local(int fd, uint8_t *buf, size_t len, uint64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t dataset__file_read(
	struct cr_dataset_file *f, void *buf, size_t len, uint64_t offset, char error[CR_DATASET_ERROR_BYTES])
{
	ssize_t n = f->file ? cr_pread(f->file, buf, len, offset) : read_local(f->fd, buf, len, offset);

	if (n < 0)
		dataset__fail(error, (int)n, "byte %llu: %.300s", (unsigned long long)offset,
			f->file ? cr_error() : strerror((int)-n));
	return n;
}

void cr_dataset_file_read_async(struct cr_dataset_file *f, void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	if (f->file) {
		cr_pread_async(f->file, buf, len, offset, op);
		return;
	}
	op->result = read_local(f->fd, buf, len, offset);
	snprintf(op->error, sizeof(op->error), "%s", op->result < 0 ? strerror((int)-op->result) : "");
	op->done(op);
}
