/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataset_file: one file of a dataset, to be read: in the store, or, where the path begins with "file:", a file of this host (such as one
 * inside a mount of a store). Errors as of dataset.h.
 */
#ifndef CLIENT_DATASET_FILE_H
#define CLIENT_DATASET_FILE_H

#include "client/dataset.h"

/* -ENOENT without a line: the caller knows better what is missing. */
int dataset__file_open(struct cr_store *store, const char *path, struct cr_dataset_file **ret_file,
	char error[CR_DATASET_ERROR_BYTES]);
void dataset__file_close(struct cr_dataset_file *f); /* NULL is allowed */
int dataset__file_size(struct cr_dataset_file *f, uint64_t *ret_bytes, char error[CR_DATASET_ERROR_BYTES]);
/* Blocking; fewer bytes only at the end of the file. */
ssize_t dataset__file_read(
	struct cr_dataset_file *f, void *buf, size_t len, uint64_t offset, char error[CR_DATASET_ERROR_BYTES]);

#endif
