/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raft_codec: letters between the replicas of a group, as bytes (proto/raft.proto). Pure.
 *
 * A letter is signed with a key that is made of the cluster's secret: whoever does not have it cannot speak for a replica. What keeps one that was
 * recorded from being taken again is its stamp (raft_stamps.h), which is signed with it.
 */
#ifndef METAD_RAFT_CODEC_H
#define METAD_RAFT_CODEC_H

#include "common/base/ids.h"
#include "common/code/hmac.h"
#include "common/rpc/codec.h"
#include "metad/digests.h"
#include "metad/founders.h"
#include "metad/raft_stamps.h"
#include "metad/replica/replica.h"
#include "proto/raft.pb-c.h"

enum {
	RAFT_CODEC_VERSION = 1,
	RAFT_CODEC_STAMPED = 2, /* likewise, of a letter with a stamp */
	RAFT_LETTER_BYTES_MAX = 768 << 10, /* of a RaftLetter */
	RAFT_LETTER_OWN_BYTES = 4 << 10,   /* beside bodies, or the part: their lengths, runs, a configuration, numbers */
};
_Static_assert((int)REPLICA_MESSAGE_BYTES_MAX + (int)RAFT_LETTER_OWN_BYTES <= (int)RAFT_LETTER_BYTES_MAX, "any message fits");
_Static_assert((int)LIMIT_LOG_ENTRY_BYTES + (int)RAFT_LETTER_OWN_BYTES <= (int)RAFT_LETTER_BYTES_MAX, "any entry fits");
_Static_assert((int)BACKUP_SECTION_BYTES + (int)RAFT_LETTER_OWN_BYTES <= (int)RAFT_LETTER_BYTES_MAX, "any part fits");
_Static_assert((int)REPLICA_BODIES_MAX * 4 + (int)RAFT_MESSAGE_RUNS_MAX * 24 + (int)RAFT_MEMBERS_MAX * (20 + (int)RAFT_PLACE_BYTES) + 256 <= (int)RAFT_LETTER_OWN_BYTES,
	"so do they");

enum { RAFT_NONCE_BYTES = RAFT_LIFE_BYTES }; /* a replica's nonce is its life */
enum raft_letter_kind { RAFT_LETTER_MESSAGE = 1, RAFT_LETTER_ASK, RAFT_LETTER_PART, RAFT_LETTER_INVITATION, RAFT_LETTER_KNOCK, RAFT_LETTER_FOUNDER };

/* For more rows, in the file system of a replica. */
enum raft_room { RAFT_ROOM_UNSAID, RAFT_ROOM_NONE, RAFT_ROOM_SOME };

struct raft_letter {
	enum raft_letter_kind kind;
	uint64_t from, to;
	struct raft_stamp stamp; /* on what came */
	uint8_t place[RAFT_PLACE_BYTES]; /* of the sender; zeros: it does not say */
	uint16_t supports; /* the greatest cluster version that the sender's build supports; 0: it does not say */
	uint64_t applied;  /* the last entry that the sender's rows have; 0: none, or it does not say */
	enum raft_room room;
	struct digests_mark digest; /* of the sender's rows; index and missed 0: it does not say */
	struct raft_message message; /* from and to are those of the letter */
	uint32_t count;              /* of a RAFT_APPEND */
	struct replica_body bodies[REPLICA_BODIES_MAX];
	struct replica_ask ask;
	struct replica_part part;
	uint8_t nonce[RAFT_NONCE_BYTES]; /* of an invitation; zeros: not known yet */
	uint8_t challenge[RAFT_NONCE_BYTES]; /* likewise, and of a question to a founder */
};

/* An address as a member's place; family 0: zeros. */
void raft_place_set(uint8_t place[RAFT_PLACE_BYTES], const struct io_addr *addr);
/* False: it does not say an address. */
bool raft_place_get(const uint8_t place[RAFT_PLACE_BYTES], struct io_addr *ret_addr);

struct raft_codec {
	struct uuid cluster;
	struct hmac_key key;
};

void raft_codec_init(struct raft_codec *codec, const struct uuid *cluster, const uint8_t secret[32]);

/* The RaftLetter: bytes are mem_alloc'ed, the caller's. ERR_MSGSIZE. */
int raft_codec_pack(const struct raft_letter *letter, uint8_t **ret_bytes, size_t *ret_len);
/* stamp: its number 0: none, as older builds sign. */
void raft_codec_sign(const struct raft_codec *codec, uint64_t from, uint64_t to, const struct raft_stamp *stamp, struct slice letter,
	uint8_t ret_mac[HMAC_BYTES]);

/* Of the answer to an invitation: 0, or ERR_AGAIN: with this nonce it would be. supports: of who answers; 0: not said. */
void raft_codec_sign_answer(const struct raft_codec *codec, const struct raft_letter *invitation, int status,
	const uint8_t nonce[RAFT_NONCE_BYTES], uint16_t supports, uint8_t ret_mac[HMAC_BYTES]);

/* The answer to a question to a founder. Its bytes lie in `said`, which stays; reply: initialised. */
void raft_codec_pack_founder(const struct raft_codec *codec, const struct raft_letter *question, const struct founders_said *said, uint8_t mac[HMAC_BYTES],
	Craton__RaftReply *reply);
/* False: it is no such answer, or not of who has the secret, or to another question. reply: may be NULL. */
bool raft_codec_unpack_founder(const struct raft_codec *codec, uint64_t from, uint64_t to, const uint8_t challenge[RAFT_NONCE_BYTES],
	const Craton__RaftReply *reply, struct founders_said *ret_said);

/* Of the answer to a letter that was refused for its stamp. */
void raft_codec_sign_wanted(const struct raft_codec *codec, const Craton__RaftRequest *request, const struct raft_stamp *wanted,
	uint8_t ret_mac[HMAC_BYTES]);
/* False: it is no such answer, or not of who has the secret, or to another letter. reply: may be NULL. */
bool raft_codec_unpack_wanted(const struct raft_codec *codec, const Craton__RaftRequest *request, const Craton__RaftReply *reply,
	struct raft_stamp *ret_wanted);

/*
 * What came. Bytes lie in the request and in the arena. ERR_VERSION, ERR_WRONG_CLUSTER, ERR_ACCES (the signature), ERR_PROTO (malformed; what a
 * message says is for raft_message_check and replica_receive), ERR_MSGSIZE.
 */
int raft_codec_unpack(const struct raft_codec *codec, const Craton__RaftRequest *request, struct codec_arena *arena,
	struct raft_letter *ret_letter);

#endif
