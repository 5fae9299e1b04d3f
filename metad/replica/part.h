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

/* Numbers that are none of a part. PART_NONE_YET: what came is being worked on; do not give the snapshot away. */
#define PART_NOT_WANTED UINT64_MAX
#define PART_NONE_YET (UINT64_MAX - 1)

struct replica_ask {
	uint64_t snapshot; /* as the descriptor says it */
	uint64_t number;   /* PART_NOT_WANTED: no part of it is wanted any more: offer another one; PART_NONE_YET */
};

struct replica_part {
	uint64_t snapshot, number;
	int code; /* 0, or ERR_STALE: this part, and so what is behind it, is not to be had any more */
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

/*
 * How fast parts go: so many bytes a second, whoever asks and however often somebody looks. Who was late may go faster for a while to make up
 * for PART_CREDIT_MS of it; not for more, so that a stream that stood still does not come in one burst.
 *
 * A stream has an end: it may take PART_SLOWNESS times as long as its bytes would at its rate, or at PART_BYTES_PER_S if that is less, and
 * PART_IDLE_MS: a high rate says what may be sent, not what the other one must take.
 */
enum { PART_IDLE_MS = 30000, PART_SLOWNESS = 4, PART_BYTES_PER_S = 16 << 20, PART_BYTES_PER_S_LEAST = 64 << 10, PART_CREDIT_MS = 50 };
struct part_pace {
	uint64_t bytes_per_s, begun_ns, bytes;
	uint64_t turn_ns; /* the least from a part to the ask for the next one; 0: not known */
	uint64_t sent_ns; /* of the last part, the first time: it may go again before its answer can be there; 0: none */
	bool again;       /* it was asked for once more */
	uint64_t next_ns; /* not before this time leaves the next part */
};
/* bytes_per_s 0: PART_BYTES_PER_S; else PART_BYTES_PER_S_LEAST at least. */
void part_pace_init(struct part_pace *p, uint64_t bytes_per_s, uint64_t now_ns);
void part_pace_sent(struct part_pace *p, size_t bytes, uint64_t now_ns);
/* The other one asks: for the part behind the last one that was sent, or for that again. */
void part_pace_asked(struct part_pace *p, bool next, uint64_t now_ns);
bool part_pace_is_over(const struct part_pace *p, uint64_t now_ns);
/*
 * So long a part should be at most: while it is made, sent and taken, clients of both sides wait. Longer where so short ones would have to be
 * asked for too often, or half of the rate could not be had, as the next one is asked for only a turn later; shorter where one would be asked
 * for again while it waits for its time.
 */
size_t part_pace_part_bytes(const struct part_pace *p);

/* The descriptor of a snapshot (raft_message.snapshot.descriptor): its number, which no other has; zeros. */
void part_descriptor_encode(uint64_t snapshot, uint8_t out[RAFT_DESCRIPTOR_BYTES]);
uint64_t part_descriptor_decode(const uint8_t descriptor[RAFT_DESCRIPTOR_BYTES]);

#endif
