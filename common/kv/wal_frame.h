/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wal_frame: the bytes of one frame of the log, encoded and decoded without I/O (docs/FORMATS.md, "Log segments").
 *
 * A frame holds the entries that were gathered into one write, or none (a mark, or what begins a new nonce). Everything
 * the decoder reads is bounded and checked: a decoded frame can be walked with wal_frame_next without further errors.
 *
 * All frames of a log have one version: plain ones of a log of one replica, and those that carry terms and the commit
 * index of a replicated one (wal_replica.h). The entries of one frame have one term.
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
	WAL_FRAME_PLAIN_HEADER_BYTES = 96,
	WAL_FRAME_TERMS_HEADER_BYTES = 128,
	WAL_FRAME_ENTRY_HEADER_BYTES = 4,
	WAL_FRAME_MAX_BYTES = 512 << 10, /* one write: twice the greatest entry, so that big ones are gathered too */
	WAL_ID_BYTES = 16,
};
_Static_assert(
	WAL_FRAME_TERMS_HEADER_BYTES + WAL_FRAME_ENTRY_HEADER_BYTES + LIMIT_LOG_ENTRY_BYTES <= WAL_FRAME_MAX_BYTES,
	"every entry fits");

enum wal_frame_version {
	WAL_FRAME_PLAIN = 1,
	WAL_FRAME_TERMS = 2,
};

enum wal_frame_type {
	WAL_FRAME_ENTRIES = 1,
	WAL_FRAME_MARK = 2,  /* no entries: carries the mark of a log that went idle */
	WAL_FRAME_START = 3, /* no entries: begins an epoch; the nonce is new from here on */
	/* with terms only: */
	WAL_FRAME_CUT = 4,  /* no entries: those from first_index on are no longer of the log; the nonce is new */
	WAL_FRAME_BASE = 5, /* no entries: begins a log; nothing continues into it */
};

struct wal_frame {
	uint8_t version; /* enum wal_frame_version */
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
	/* with terms; else 0 */
	uint64_t term;      /* of its entries; without entries as prev_term */
	uint64_t prev_term; /* of entry first_index - 1 */
	uint64_t commit; /* every entry up to this index was durable here, and known as committed; below first_index */
	struct slice body; /* entries, each behind its 32-bit length */
};

static inline size_t wal_frame_header_bytes(uint8_t version)
{
	return version == WAL_FRAME_PLAIN ? WAL_FRAME_PLAIN_HEADER_BYTES : WAL_FRAME_TERMS_HEADER_BYTES;
}

static inline size_t wal_frame_body_max(uint8_t version)
{
	return WAL_FRAME_MAX_BYTES - wal_frame_header_bytes(version);
}

/* Bytes on disk of a frame with this body, padding included. */
static inline size_t wal_frame_bytes(uint8_t version, size_t body_bytes)
{
	size_t used = wal_frame_header_bytes(version) + body_bytes;

	return (used + WAL_FRAME_ALIGN - 1) / WAL_FRAME_ALIGN * WAL_FRAME_ALIGN;
}

/* Adds an entry to the frame being built in `out` (WAL_FRAME_MAX_BYTES), whose body has `body_bytes`; returns the new
 * body_bytes. */
size_t wal_frame_put(uint8_t version, uint8_t *out, size_t body_bytes, struct slice entry);
/* Finishes a frame whose `body_bytes` of body are in place: header, CRC, zero padding. Returns the bytes to write; sets
 * crc. */
size_t wal_frame_encode(uint8_t *out, size_t body_bytes, struct wal_frame *frame);

/*
 * Looks at one block (WAL_FRAME_ALIGN bytes): does it look like the start of a frame? ERR_FORMAT if not. The bytes of the
 * whole frame and, unverified yet, its number, mark and log id. ERR_VERSION, with the same: it could be one of a version that is
 * not known here; a flipped bit may say so, too, and wal_frame_decode knows.
 */
int wal_frame_peek(const void *block, struct wal_frame *ret_frame, size_t *ret_bytes);
/* As wal_frame_peek; also ERR_FORMAT: cut short, and ERR_CORRUPT: the CRC does not match. ERR_VERSION: the CRC does, so that a newer
 * build wrote it. The body points into `data`. */
int wal_frame_decode(const void *data, size_t len, struct wal_frame *ret_frame);
/* Walks the entries: *pos starts at 0; false behind the last. */
bool wal_frame_next(const struct wal_frame *frame, size_t *pos, struct slice *ret_entry);

#endif
