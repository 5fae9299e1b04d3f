/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part: how a snapshot travels: the follower asks for one part after the other, by number, and again for one that does not come; part 0 is
 * the header of a backup, the others are its sections (common/code/backup.h: each carries a CRC that covers all before it). The last one
 * says the digest of all rows, as the leader read them.
 */
#ifndef METAD_REPLICA_PART_H
#define METAD_REPLICA_PART_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/slice.h"
#include "common/code/backup.h"
#include "common/code/hmac.h" /* SHA-256 */
#include "metad/raft/raft.h"

enum { PART_DIGEST_BYTES = SHA256_DIGEST_LENGTH };

#define PART_NOT_WANTED UINT64_MAX

struct replica_ask {
	uint64_t snapshot; /* as the descriptor says it */
	uint64_t number;   /* PART_NOT_WANTED: no part of it is wanted any more: offer another one */
};

struct replica_part {
	uint64_t snapshot, number;
	int code; /* 0, or ERR_STALE: this snapshot is not to be had any more */
	bool end;
	uint8_t digest[PART_DIGEST_BYTES]; /* of the last one */
	struct slice data;                 /* at most BACKUP_SECTION_BYTES */
};

/* Of rows in the order of their keys; independent of how they are stored. */
struct part_digest {
	SHA256_CTX sha;
	uint64_t rows;
};

void part_digest_init(struct part_digest *d);
void part_digest_row(struct part_digest *d, struct slice key, struct slice value);
void part_digest_fini(struct part_digest *d, uint8_t ret_digest[PART_DIGEST_BYTES]);

/* The descriptor of a snapshot (raft_message.snapshot.descriptor): its number, which no other has; zeros. */
void part_descriptor_encode(uint64_t snapshot, uint8_t out[RAFT_DESCRIPTOR_BYTES]);
uint64_t part_descriptor_decode(const uint8_t descriptor[RAFT_DESCRIPTOR_BYTES]);

#endif
