/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wal_frame: the bytes of one frame of the log, encoded and decoded without I/O (docs/FORMATS.md, "Log segments").
 *
 * A frame holds the entries that were gathered into one write, or none (a mark, or the start of an epoch). Everything
 * the decoder reads is bounded and checked: a decoded frame can be walked with wal_frame_next without further errors.
 */
#ifndef COMMON_KV_WAL_FRAME_H
#define COMMON_KV_WAL_FRAME_H

#include "common/base/limits.h"
#include "common/base/slice.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WAL_FRAME_ALIGN = 4096, /* frames start and end on it: the grain of O_DIRECT and of torn writes */
	WAL_FRAME_HEADER_BYTES = 96,
	WAL_FRAME_ENTRY_HEADER_BYTES = 4,
	WAL_FRAME_MAX_BYTES = 512 << 10, /* one write: twice the greatest entry, so that big ones are gathered too */
	WAL_FRAME_BODY_MAX_BYTES = WAL_FRAME_MAX_BYTES - WAL_FRAME_HEADER_BYTES,
	WAL_ID_BYTES = 16,
};
_Static_assert(WAL_FRAME_ENTRY_HEADER_BYTES + LIMIT_LOG_ENTRY_BYTES <= WAL_FRAME_BODY_MAX_BYTES, "every entry fits");

enum wal_frame_type {
	WAL_FRAME_ENTRIES = 1,
	WAL_FRAME_MARK = 2,  /* no entries: carries the mark of a log that went idle */
	WAL_FRAME_START = 3, /* no entries: begins an epoch; the nonce is new from here on */
};

struct wal_frame {
	uint8_t type;
	uint32_t crc;         /* of this frame; set by encode and decode */
	uint32_t prev_crc;    /* of the frame before it; 0 in the first frame of a log */
	uint64_t number;      /* of this frame: 1, 2, 3 ... over the life of the log */
	uint64_t mark;        /* every frame up to this number was durable when this one was built */
	uint64_t first_index; /* of its first entry; without entries, the index that the next entry gets */
	uint32_t entry_count;
	uint64_t segment; /* number of the segment that it was written to */
	uint64_t segment_bytes;
	uint8_t log_id[WAL_ID_BYTES];
	uint8_t nonce[WAL_ID_BYTES];
	struct slice body; /* entries, each behind its 32-bit length */
};

/* Bytes on disk of a frame with this body, padding included. */
static inline size_t wal_frame_bytes(size_t body_bytes)
{
	return (WAL_FRAME_HEADER_BYTES + body_bytes + WAL_FRAME_ALIGN - 1) / WAL_FRAME_ALIGN * WAL_FRAME_ALIGN;
}

/* Adds an entry to the frame being built in `out` (WAL_FRAME_MAX_BYTES), whose body has `body_bytes`; returns the new
 * body_bytes. */
size_t wal_frame_put(uint8_t *out, size_t body_bytes, struct slice entry);
/* Finishes a frame whose `body_bytes` of body are in place: header, CRC, zero padding. Returns the bytes to write; sets
 * crc. */
size_t wal_frame_encode(uint8_t *out, size_t body_bytes, struct wal_frame *frame);

/*
 * Looks at one block (WAL_FRAME_ALIGN bytes): does it look like the start of a frame? ERR_FORMAT if not; else the bytes
 * of the whole frame and, unverified yet, its number, mark and log id.
 */
int wal_frame_peek(const void *block, struct wal_frame *ret_frame, size_t *ret_bytes);
/* ERR_FORMAT: not a frame, or cut short. ERR_CORRUPT: the CRC does not match. The body points into `data`. */
int wal_frame_decode(const void *data, size_t len, struct wal_frame *ret_frame);
/* Walks the entries: *pos starts at 0; false behind the last. */
bool wal_frame_next(const struct wal_frame *frame, size_t *pos, struct slice *ret_entry);

#endif
