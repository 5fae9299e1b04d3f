/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder of a dataset's index on arbitrary bytes, as they are and once more with a hash that fits. */
#include "client/dataset_index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_parse(const uint8_t *data, size_t size)
{
	struct cr_dataset_info info;

	if (dataset__parse(data, size, &info))
		return;
	if (info.shard_count < 1 || info.shard_count > size || info.file_count > size ||
		(info.total_bytes - 1) / info.shard_bytes + 1 != info.shard_count)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	try_parse(data, size);
	if (copy && size >= CR_DATASET_ID_BYTES) {
		size_t body = size - CR_DATASET_ID_BYTES;

		memcpy(copy, data, size);
		if (dataset__sha256(copy, body, copy + body) == 0)
			try_parse(copy, size);
	}
	free(copy);
	return 0;
}
