/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format: what lies on a disk outside logs and tables: the superblock and the trailer behind each chunk. Pure. docs/FORMATS.md has the
 * bytes. Decoders take any bytes: they answer with an error, never with more than the input holds.
 */
#ifndef CHUNKD_FORMAT_H
#define CHUNKD_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/base/limits.h"
#include "common/base/slice.h"
#include "common/code/hmac.h"

enum {
	FORMAT_GRAIN_BYTES = 4096, /* of extents and trailers: what O_DIRECT asks for */
	FORMAT_SUPERBLOCK_BYTES = 4096,
	FORMAT_SECRET_BYTES = 32,
	FORMAT_MAC_BYTES = 16,
	FORMAT_VERSION = 1,
	FORMAT_TRAILER_HEAD_BYTES = 96,
	FORMAT_CLASS_SSD = 1, /* storage class; 2 hdd and 3 ram are reserved */
};

/* Segment sizes of one disk: room for one chunk of the middle size class .. 16 GiB (offsets fit 32 bits of grains with room). */
#define FORMAT_SEGMENT_BYTES_MIN ((uint64_t)8 << 20)
#define FORMAT_SEGMENT_BYTES_MAX ((uint64_t)17 << 30)

struct format_superblock {
	struct uuid cluster, disk_uuid;
	uint32_t disk; /* 0: never registered */
	uint32_t storage_class;
	uint64_t generation;
	uint8_t secret[FORMAT_SECRET_BYTES]; /* HMAC key of this disk's trailers */
	uint64_t segment_bytes;              /* of a segment file */
	uint64_t features_compat;            /* unknown bits are ignored */
	uint64_t features;                   /* unknown bits: ERR_VERSION */
	int64_t created_ns;                  /* wall clock, for people */
};

void format_superblock_encode(const struct format_superblock *sb, uint8_t ret_bytes[FORMAT_SUPERBLOCK_BYTES]);
/* ERR_FORMAT (no superblock), ERR_CORRUPT, ERR_VERSION. */
int format_superblock_decode(struct slice bytes, struct format_superblock *ret_sb, struct err *err);

/*
 * A chunk's trailer. Lists are packed little-endian masked unit CRCs (stripe.h): `list` is the chunk's own; `data_lists` those of the
 * block's data chunks 0 .. k'-1, one behind the other, in trailers of parity chunks, else empty.
 */
struct format_trailer {
	struct copy_id copy;
	uint8_t policy;  /* ec.h */
	uint64_t length; /* of the chunk */
	uint64_t block_length;
	uint32_t cell_bytes;
	uint32_t chunk_crc; /* plain */
	uint32_t disk;
	uint32_t segment;
	uint64_t offset;   /* of the chunk in its segment */
	uint64_t sequence; /* of seals on this disk */
	struct slice list, data_lists;
};

/*
 * Whether lengths, index, policy and the lists' sizes agree: the one rule for what a client may seal and what a decoder believes.
 * ERR_INVAL.
 */
int format_trailer_check(const struct format_trailer *t);
/* Bytes of the trailer with these lists: a multiple of FORMAT_GRAIN_BYTES. */
size_t format_trailer_bytes(size_t list_bytes, size_t data_lists_bytes);
/* The most that the trailer of a chunk of at most `announced` bytes can take. 0: unknown policy, or an index beyond it. */
size_t format_trailer_bound(uint8_t policy, uint8_t index, uint64_t announced);
/* `t` passed format_trailer_check; `out` holds format_trailer_bytes; `key` is the superblock's secret. */
void format_trailer_encode(const struct format_trailer *t, const struct hmac_key *key, uint8_t *out);
/* Slices point into `bytes`, which may be longer than the trailer. ERR_TRAILER_CORRUPT. */
int format_trailer_decode(struct slice bytes, const struct hmac_key *key, struct format_trailer *ret_trailer);
/*
 * A scan's first look at a grain: the size of the trailer that it would be the head of, if its figures lead to where it lies (byte `at`
 * of `segment`); else 0. Says nothing about damage.
 */
size_t format_trailer_peek(const uint8_t grain[FORMAT_GRAIN_BYTES], uint32_t segment, uint64_t at);
/* Data chunk `index`'s part of data_lists; empty if there is none. */
struct slice format_trailer_data_list(const struct format_trailer *t, uint8_t index);

static inline uint64_t format_round(uint64_t bytes)
{
	return (bytes + FORMAT_GRAIN_BYTES - 1) / FORMAT_GRAIN_BYTES * FORMAT_GRAIN_BYTES;
}

#endif
