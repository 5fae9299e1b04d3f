/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataset_index: decodes index.bin (docs/FORMATS.md).
 *
 * Every number of the index is checked before it is used: the index is a file of the store, and whoever may write there may
 * have written anything. What holds after dataset__parse: the hash fits, shards and files are gapless and sum up to
 * total_bytes, and all names are short.
 */
#include "client/dataset_index.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

int dataset__sha256(const void *data, size_t len, uint8_t out[CR_DATASET_ID_BYTES])
{
	return EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL) == 1 ? 0 : -EIO;
}

static uint64_t dataset_get(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | p[bytes];
	return v;
}

/* Files: (bytes, name length, name), back to back until the hash. */
static int dataset_check_files(const uint8_t *p, size_t len, const struct cr_dataset_info *info)
{
	uint64_t sum = 0;
	size_t at = 0;

	for (uint32_t i = 0; i < info->file_count; i++) {
		uint64_t bytes, name;

		if (len - at < 10)
			return -EBADMSG;
		bytes = dataset_get(p + at, 8);
		name = dataset_get(p + at + 8, 2);
		at += 10;
		if (name == 0 || name >= CR_PATH_MAX || len - at < name || bytes > info->total_bytes - sum)
			return -EBADMSG;
		at += name;
		sum += bytes;
	}
	return at == len && sum == info->total_bytes ? 0 : -EBADMSG;
}

int dataset__parse(const uint8_t *p, size_t len, struct cr_dataset_info *ret_info)
{
	struct cr_dataset_info info = {0};
	uint8_t hash[CR_DATASET_ID_BYTES];
	size_t shards_end;
	uint64_t sum = 0;

	if (len < DATASET_HEAD_BYTES + CR_DATASET_ID_BYTES || memcmp(p, DATASET_MAGIC, 8))
		return -EINVAL;
	if (dataset_get(p + 8, 4) != DATASET_VERSION)
		return -EINVAL;
	len -= CR_DATASET_ID_BYTES;
	if (dataset__sha256(p, len, hash) || memcmp(hash, p + len, sizeof(hash)))
		return -EBADMSG;
	memcpy(info.id, hash, sizeof(info.id));
	info.total_bytes = dataset_get(p + 16, 8);
	info.shard_bytes = dataset_get(p + 24, 8);
	info.shard_count = (uint32_t)dataset_get(p + 32, 4);
	info.file_count = (uint32_t)dataset_get(p + 36, 4);
	shards_end = DATASET_HEAD_BYTES + (size_t)info.shard_count * DATASET_SHARD_ROW_BYTES;
	if (info.shard_count < 1 || info.shard_count > CR_DATASET_SHARDS_MAX ||
		info.file_count > CR_DATASET_FILES_MAX || info.shard_bytes < CR_DATASET_SHARD_BYTES_MIN ||
		info.shard_bytes > CR_DATASET_SHARD_BYTES_MAX || shards_end > len)
		return -EBADMSG;
	for (uint32_t i = 0; i < info.shard_count; i++) {
		uint64_t bytes = dataset_get(p + DATASET_HEAD_BYTES + (size_t)i * DATASET_SHARD_ROW_BYTES, 8);

		if (bytes == 0 || bytes > info.shard_bytes || (i + 1 < info.shard_count && bytes != info.shard_bytes))
			return -EBADMSG;
		sum += bytes;
	}
	if (sum != info.total_bytes || dataset_check_files(p + shards_end, len - shards_end, &info))
		return -EBADMSG;
	*ret_info = info;
	return 0;
}
