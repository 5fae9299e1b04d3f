/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids: the identities of things. Inode and block ids are 64 bits: 16 bits of shard number, 48 bits counted up from 1; never
 * reused. Disks and servers are 32-bit numbers given by metad, never reused. Clusters, servers and disks also carry a UUID,
 * by which they are recognised before they have a number.
 */
#ifndef COMMON_BASE_IDS_H
#define COMMON_BASE_IDS_H

#include <stdbool.h>
#include <stdint.h>

struct uuid {
	uint8_t bytes[16];
};

enum { UUID_TEXT_BYTES = 37 }; /* with NUL */

void uuid_format(const struct uuid *u, char ret_text[UUID_TEXT_BYTES]); /* 8-4-4-4-12 lower-case hex */
int uuid_parse(const char *text, struct uuid *ret_uuid);               /* ERR_INVAL */
bool uuid_equal(const struct uuid *a, const struct uuid *b);
bool uuid_is_zero(const struct uuid *u);

static inline uint64_t id_make(uint16_t shard, uint64_t number) { return (uint64_t)shard << 48 | (number & 0xffffffffffffull); }
static inline uint16_t id_shard(uint64_t id) { return (uint16_t)(id >> 48); }
static inline uint64_t id_number(uint64_t id) { return id & 0xffffffffffffull; }

enum { INODE_ROOT = 1 }; /* shard 0 */

/* One chunk as it lies on one disk. */
struct copy_id {
	uint64_t block;
	uint32_t incarnation;
	uint8_t index;
};

#endif
