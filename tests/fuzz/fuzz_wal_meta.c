/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder of a replicated log's slots on arbitrary bytes, as they are and once more with a CRC that fits. What it takes must encode
 * to the bytes it came from.
 */
#include "common/kv/wal_meta.h"
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_decode(const uint8_t slot[WAL_META_BYTES])
{
	static uint8_t again[WAL_META_BYTES];
	struct wal_meta m;

	if (wal_meta_decode(slot, &m))
		return;
	CHECK(m.generation > 0 && m.replica > 0 && m.base_index <= m.commit && m.base_term <= m.term);
	wal_meta_encode(&m, again);
	CHECK(memcmp(again, slot, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t slot[WAL_META_BYTES];
	uint32_t crc;

	memset(slot, 0, sizeof(slot));
	if (size)
		memcpy(slot, data, size < sizeof(slot) ? size : sizeof(slot));
	try_decode(slot);
	crc = crc32c(slot + 8, sizeof(slot) - 8);
	memcpy(slot + 4, &crc, sizeof(crc));
	try_decode(slot);
	return 0;
}
