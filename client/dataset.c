/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataset: see dataset.h. This file opens and reads datasets; dataset_index.c decodes their index, dataset_pack.c writes them.
 * Shards are opened when they are first needed and stay open.
 */
#include "client/dataset.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/dataset_file.h"
#include "client/dataset_index.h"

struct cr_dataset {
	struct cr_store *store;
	char path[CR_PATH_MAX];
	struct cr_dataset_info info;
	struct cr_dataset_file **shards; /* opened when first needed */
};

int dataset__fail(char error[CR_DATASET_ERROR_BYTES], int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, CR_DATASET_ERROR_BYTES, fmt, ap);
	va_end(ap);
	return code;
}

static int dataset_read_index(struct cr_store *store, const char *path, uint8_t **ret_data, size_t *ret_len,
	char error[CR_DATASET_ERROR_BYTES])
{
	char name[CR_PATH_MAX + 16];
	struct cr_dataset_file *file;
	uint8_t *data = NULL;
	uint64_t size;
	ssize_t n;
	int rc;

	snprintf(name, sizeof(name), "%s/index.bin", path);
	rc = dataset__file_open(store, name, &file, error);
	if (rc == -ENOENT)
		return dataset__fail(error, rc, "%.300s: no dataset there; `craton dataset pack` makes one", path);
	if (rc)
		return rc;
	rc = dataset__file_size(file, &size, error);
	if (rc)
		goto out;
	if (size > CR_DATASET_INDEX_BYTES_MAX) {
		rc = dataset__fail(error, -EINVAL, "%.300s: too long for a dataset's index", name);
		goto out;
	}
	data = malloc(size ? size : 1);
	if (!data) {
		rc = dataset__fail(error, -ENOMEM, "%.300s: no memory for the index", name);
		goto out;
	}
	n = dataset__file_read(file, data, size, 0, error);
	if (n != (ssize_t)size) {
		rc = n < 0 ? (int)n : dataset__fail(error, -EBADMSG, "%.200s: is cut short", name);
		goto out;
	}
	*ret_data = data;
	*ret_len = size;
	data = NULL;
out:
	free(data);
	dataset__file_close(file);
	return rc;
}

int cr_dataset_open(
	struct cr_store *store, const char *path, struct cr_dataset **ret_dataset, char error[CR_DATASET_ERROR_BYTES])
{
	struct cr_dataset *d;
	uint8_t *index;
	size_t len;
	int rc;

	if (strlen(path) >= CR_PATH_MAX)
		return dataset__fail(error, -ENAMETOOLONG, "%.100s...: the path is too long", path);
	rc = dataset_read_index(store, path, &index, &len, error);
	if (rc)
		return rc;
	d = calloc(1, sizeof(*d));
	rc = d ? dataset__parse(index, len, &d->info) : -ENOMEM;
	free(index);
	if (rc == 0) {
		d->shards = calloc(d->info.shard_count, sizeof(*d->shards));
		rc = d->shards ? 0 : -ENOMEM;
	}
	if (rc) {
		free(d);
		if (rc == -EINVAL)
			return dataset__fail(error, rc, "%.300s/index.bin: not an index that this version reads", path);
		return dataset__fail(error, rc, "%.300s/index.bin: %s", path,
			rc == -ENOMEM ? "out of memory" : "damaged; pack the dataset again");
	}
	d->store = store;
	snprintf(d->path, sizeof(d->path), "%s", path);
	*ret_dataset = d;
	return 0;
}

void cr_dataset_close(struct cr_dataset *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; i < d->info.shard_count; i++)
		dataset__file_close(d->shards[i]);
	free(d->shards);
	free(d);
}

const struct cr_dataset_info *cr_dataset_info(const struct cr_dataset *d)
{
	return &d->info;
}

int cr_dataset_locate(struct cr_dataset *d, uint64_t offset, struct cr_dataset_file **ret_file, uint64_t *ret_offset,
	uint64_t *ret_bytes, char error[CR_DATASET_ERROR_BYTES])
{
	uint64_t shard = offset / d->info.shard_bytes, in = offset % d->info.shard_bytes, left;

	if (offset >= d->info.total_bytes)
		return dataset__fail(
			error, -EINVAL, "%.300s: offset %llu is past the end", d->path, (unsigned long long)offset);
	if (!d->shards[shard]) {
		char name[CR_PATH_MAX + 32];
		int rc;

		snprintf(name, sizeof(name), "%s/data-%05u.bin", d->path, (unsigned)shard);
		rc = dataset__file_open(d->store, name, &d->shards[shard], error);
		if (rc == -ENOENT)
			return dataset__fail(error, rc, "%.300s: this shard of the dataset is missing", name);
		if (rc)
			return rc;
	}
	left = d->info.total_bytes - offset;
	*ret_file = d->shards[shard];
	*ret_offset = in;
	*ret_bytes = left < d->info.shard_bytes - in ? left : d->info.shard_bytes - in;
	return 0;
}

int cr_dataset_read(struct cr_dataset *d, void *buf, size_t len, uint64_t offset, char error[CR_DATASET_ERROR_BYTES])
{
	uint8_t *to = buf;

	while (len) {
		struct cr_dataset_file *file;
		char cause[CR_DATASET_ERROR_BYTES];
		uint64_t at, n;
		ssize_t got;
		int rc = cr_dataset_locate(d, offset, &file, &at, &n, error);

		if (rc)
			return rc;
		n = n < len ? n : len;
		got = dataset__file_read(file, to, n, at, cause);
		if (got < 0)
			return dataset__fail(error, (int)got, "%.160s: %.300s", d->path, cause);
		if ((uint64_t)got != n)
			return dataset__fail(
				error, -EBADMSG, "%.300s: a shard is shorter than the index says", d->path);
		to += n;
		offset += n;
		len -= n;
	}
	return 0;
}
