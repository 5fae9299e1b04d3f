/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder of log frames on arbitrary bytes, as they are and once more with a CRC that fits, so that what lies
 * behind the check is reached too. A frame that decodes must be walkable and must encode to the bytes it came from.
 */
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "common/kv/wal_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_decode(const uint8_t *data, size_t size)
{
	struct wal_frame f, again;
	size_t pos = 0, peeked;
	uint64_t entries = 0, bytes = 0;
	struct slice entry;
	uint8_t *out;

	if (size >= WAL_FRAME_ALIGN && wal_frame_peek(data, &f, &peeked) == 0)
		CHECK(peeked <= WAL_FRAME_MAX_BYTES && peeked % WAL_FRAME_ALIGN == 0);
	if (wal_frame_decode(data, size, &f))
		return;
	out = mem_alloc(WAL_FRAME_MAX_BYTES);
	while (wal_frame_next(&f, &pos, &entry)) {
		CHECK(entry.data >= data && entry.len <= LIMIT_LOG_ENTRY_BYTES &&
			entry.data + entry.len <= data + size);
		bytes = wal_frame_put(f.version, out, bytes, entry);
		entries++;
	}
	CHECK(entries == f.entry_count && bytes == f.body.len);
	again = f;
	wal_frame_encode(out, bytes, &again);
	CHECK(again.crc == f.crc && memcmp(out, data, wal_frame_header_bytes(f.version) + f.body.len) == 0);
	mem_free(out);
}

/* The CRC of the header's own idea of its length. */
static void mend_crc(uint8_t *data, size_t size)
{
	struct rcursor r;
	struct wcursor w;
	uint32_t body;
	size_t header;

	rcursor_init(&r, data, size);
	(void)rcursor_slice(&r, 8);
	header = wal_frame_header_bytes((uint8_t)rcursor_u16(&r));
	(void)rcursor_u16(&r);
	body = rcursor_u32(&r);
	if (r.failed || size < header || body > size - header)
		return;
	wcursor_init(&w, data + 4, 4);
	wcursor_u32(&w, crc32c(data + 8, header - 8 + body));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = mem_alloc(size);

	try_decode(data, size);
	memcpy(copy, data, size);
	mend_crc(copy, size);
	try_decode(copy, size);
	mem_free(copy);
	return 0;
}
