/* SPDX-License-Identifier: Apache-2.0 */
/* The superblock's decoder on any bytes, as they are and with a CRC that fits. What it takes must encode to the same fields. */
#include <string.h>
#include "chunkd/format.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_decode(const uint8_t *data, size_t size)
{
	uint8_t bytes[FORMAT_SUPERBLOCK_BYTES];
	struct format_superblock sb, again;
	struct err err = {0};
	int rc = format_superblock_decode(slice_of(data, size), &sb, &err);

	CHECK(rc == 0 || (rc == err.code && err.text[0]));
	if (rc < 0)
		return;
	CHECK(sb.segment_bytes >= FORMAT_SEGMENT_BYTES_MIN && sb.segment_bytes <= FORMAT_SEGMENT_BYTES_MAX);
	format_superblock_encode(&sb, bytes);
	CHECK(format_superblock_decode(slice_of(bytes, sizeof(bytes)), &again, &err) == 0);
	CHECK(memcmp(&sb, &again, sizeof(sb)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t copy[FORMAT_SUPERBLOCK_BYTES];
	uint32_t crc;

	try_decode(data, size);
	if (size < 8)
		return 0;
	memset(copy, 0, sizeof(copy));
	memcpy(copy, data, size < sizeof(copy) ? size : sizeof(copy));
	crc = crc32c(copy, sizeof(copy) - 4);
	memcpy(copy + sizeof(copy) - 4, &crc, sizeof(crc));
	try_decode(copy, sizeof(copy));
	return 0;
}
