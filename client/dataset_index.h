/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_index: what the files of dataset.h share: the layout of index.bin (docs/FORMATS.md), its decoder, error lines. */
#ifndef CLIENT_DATASET_INDEX_H
#define CLIENT_DATASET_INDEX_H

#include "client/dataset.h"

#define DATASET_MAGIC "CRDATSET"
enum {
	DATASET_VERSION = 1,
	DATASET_HEAD_BYTES = 40,
	DATASET_SHARD_ROW_BYTES = 8 + CR_DATASET_ID_BYTES,
};

/* Returns `code`. */
int dataset__fail(char error[CR_DATASET_ERROR_BYTES], int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int dataset__sha256(const void *data, size_t len, uint8_t out[CR_DATASET_ID_BYTES]);
/* -EINVAL: not an index, or of another version; -EBADMSG: damaged. */
int dataset__parse(const uint8_t *data, size_t len, struct cr_dataset_info *ret_info);

#endif
