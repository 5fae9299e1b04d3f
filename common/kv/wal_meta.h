/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wal_meta: what a replica must know beside its entries, as bytes of one slot, without I/O (docs/FORMATS.md, "Meta
 * slots of a replicated log"). Two slots hold the same (wal_slots.c).
 */
#ifndef COMMON_KV_WAL_META_H
#define COMMON_KV_WAL_META_H

#include <stdbool.h>
#include <stdint.h>
#include "common/kv/wal_frame.h"

enum { WAL_META_BYTES = 4096, WAL_META_SLOTS = 2 };

struct wal_meta {
	uint64_t generation; /* 1.. : one more for each change */
	uint8_t cluster[WAL_ID_BYTES];
	uint64_t replica;
	uint64_t term, vote; /* vote: 0: none in this term */
	uint64_t commit;     /* entries up to here were durable, and known as committed */
	/* The log: begins behind this entry (of a snapshot, or 0), at the start of this segment or where trimming came to. */
	uint64_t base_index, base_term;
	uint64_t first_segment; /* 0: there is no log yet: nothing was ever acknowledged */
	uint8_t log_id[WAL_ID_BYTES];
};

void wal_meta_encode(const struct wal_meta *meta, uint8_t out[WAL_META_BYTES]);
/* ERR_FORMAT: no slot, or nonsense; ERR_VERSION: of a version that is not known here; ERR_CORRUPT: the CRC does not match. */
int wal_meta_decode(const uint8_t data[WAL_META_BYTES], struct wal_meta *ret_meta);

/* Which slot holds: the one that is intact (codes: 0) and newer; -1: neither is. */
int wal_meta_choose(const struct wal_meta metas[WAL_META_SLOTS], const int codes[WAL_META_SLOTS]);

#endif
