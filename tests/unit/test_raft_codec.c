/* SPDX-License-Identifier: Apache-2.0 */
/* Letters between replicas: what is packed is unpacked as it was; what is not of this cluster, or makes no sense, is refused. */
#include "metad/raft_codec.h"

#include <string.h>
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "tests/lib/unit.h"

static const struct uuid cluster = {{1, 2, 3}}, another = {{3, 2, 1}};
static const uint8_t secret[32] = {7};
static const struct raft_config config = {.index = 12, .count = 2, .members = {{.id = 1, .voter = true}, {.id = 4, .voter = false}}, .last_id = 5};

struct bed {
	struct raft_codec codec;
	struct codec_arena arena;
	struct raft_letter in, out;
	uint8_t *bytes, mac[HMAC_BYTES];
	size_t len;
	Craton__RaftRequest request;
};

static struct bed *bed_new(void)
{
	struct bed *b = MEM_NEW(struct bed);

	raft_codec_init(&b->codec, &cluster, secret);
	codec_arena_init(&b->arena, LIMIT_FRAME_BODY_BYTES);
	b->in.kind = RAFT_LETTER_MESSAGE;
	b->in.from = b->in.message.from = 4;
	b->in.to = b->in.message.to = 1;
	b->in.message.term = 9;
	return b;
}

static void bed_free(struct bed *b)
{
	codec_arena_fini(&b->arena);
	mem_free(b->bytes);
	mem_free(b);
}

static void sign(struct bed *b)
{
	raft_codec_sign(&b->codec, b->request.from, b->request.to, &b->in.stamp, slice_of(b->bytes, b->len), b->mac);
}

static void pack(struct bed *b)
{
	mem_free(b->bytes);
	b->bytes = NULL;
	ck_assert_int_eq(raft_codec_pack(&b->in, &b->bytes, &b->len), 0);
	craton__raft_request__init(&b->request);
	b->request.version = b->in.stamp.number ? RAFT_CODEC_STAMPED : RAFT_CODEC_VERSION;
	b->request.life = (ProtobufCBinaryData){.len = b->in.stamp.number ? RAFT_LIFE_BYTES : 0, .data = b->in.stamp.life};
	b->request.number = b->in.stamp.number;
	b->request.cluster = (ProtobufCBinaryData){.len = 16, .data = b->codec.cluster.bytes};
	b->request.from = b->in.from;
	b->request.to = b->in.to;
	b->request.letter = (ProtobufCBinaryData){.len = b->len, .data = b->bytes};
	b->request.mac = (ProtobufCBinaryData){.len = sizeof(b->mac), .data = b->mac};
	sign(b);
}

static int unpack(struct bed *b)
{
	codec_arena_clear(&b->arena);
	return raft_codec_unpack(&b->codec, &b->request, &b->arena, &b->out);
}

static void check_same(struct bed *b)
{
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_int_eq(b->out.kind, b->in.kind);
	ck_assert_uint_eq(b->out.from, 4);
	ck_assert_uint_eq(b->out.to, 1);
	ck_assert_mem_eq(&b->out.message, &b->in.message, sizeof(b->in.message));
	ck_assert_uint_eq(b->out.count, b->in.count);
	for (uint32_t i = 0; i < b->in.count; i++) {
		ck_assert_uint_eq(b->out.bodies[i].term, b->in.bodies[i].term);
		ck_assert_int_eq(slice_compare(b->out.bodies[i].data, b->in.bodies[i].data), 0);
	}
}

static void set_append(struct bed *b)
{
	struct raft_message *m = &b->in.message;

	m->type = RAFT_APPEND;
	m->append.prev_index = 9;
	m->append.prev_term = 3;
	m->append.commit = 8;
	m->append.last = 12;
	m->append.run_count = 2;
	m->append.runs[0] = (struct raft_run){10, 3};
	m->append.runs[1] = (struct raft_run){12, 9};
	m->append.has_config = true;
	m->append.config = config;
	b->in.count = 3;
	b->in.bodies[0] = (struct replica_body){3, slice_of("ab", 2)};
	b->in.bodies[1] = (struct replica_body){3, slice_of("c", 1)};
	b->in.bodies[2] = (struct replica_body){9, slice_of("defg", 4)};
}

START_TEST(test_messages)
{
	struct bed *b = bed_new();
	struct raft_message *m = &b->in.message, empty = *m;

	set_append(b);
	check_same(b);
	*m = empty;
	b->in.count = 0;
	for (int type = RAFT_PRE_VOTE; type <= RAFT_VOTE; type++) {
		m->type = (enum raft_message_type)type;
		m->vote.last_index = 77;
		m->vote.last_term = 8;
		m->vote.forced = true;
		check_same(b);
	}
	*m = empty;
	m->type = RAFT_VOTED;
	m->voted.granted = m->voted.pre = true;
	check_same(b);
	*m = empty;
	m->type = RAFT_APPENDED;
	m->appended.reject = true;
	m->appended.index = 5;
	m->appended.seen = 6;
	m->appended.hint_index = 3;
	m->appended.hint_term = 2;
	check_same(b);
	*m = empty;
	m->type = RAFT_SNAPSHOT;
	m->snapshot.index = 12;
	m->snapshot.term = 9;
	m->snapshot.config = config;
	part_descriptor_encode(UINT64_MAX - 3, m->snapshot.descriptor);
	check_same(b);
	*m = empty;
	for (int type = RAFT_READ_PROBE; type <= RAFT_READ_ACK; type++) {
		m->type = (enum raft_message_type)type;
		m->read.seq = 1234567;
		check_same(b);
	}
	*m = empty;
	m->type = RAFT_TIMEOUT_NOW;
	check_same(b);
	bed_free(b);
}
END_TEST

START_TEST(test_snapshot_letters)
{
	struct bed *b = bed_new();

	b->in.kind = RAFT_LETTER_ASK;
	b->in.ask = (struct replica_ask){11, PART_NOT_WANTED};
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_int_eq(b->out.kind, RAFT_LETTER_ASK);
	ck_assert_uint_eq(b->out.ask.snapshot, 11);
	ck_assert_uint_eq(b->out.ask.number, PART_NOT_WANTED);
	b->in.kind = RAFT_LETTER_PART;
	b->in.part = (struct replica_part){.snapshot = 11, .number = 3, .end = true, .digest = {1, 2}, .data = slice_of("xyz", 3)};
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_int_eq(b->out.kind, RAFT_LETTER_PART);
	ck_assert_uint_eq(b->out.part.number, 3);
	ck_assert(b->out.part.end && b->out.part.code == 0);
	ck_assert_mem_eq(b->out.part.digest, b->in.part.digest, PART_DIGEST_BYTES);
	ck_assert_int_eq(slice_compare(b->out.part.data, b->in.part.data), 0);
	b->in.part = (struct replica_part){.snapshot = 11, .code = ERR_STALE};
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_int_eq(b->out.part.code, ERR_STALE);
	bed_free(b);
}
END_TEST

/* A letter that says nothing of its sender's rows, a mark of them, and that there is none. */
START_TEST(test_what_rows_are)
{
	const struct digests_mark marks[] = {{0}, {.index = 512, .crc = 77, .settled = true, .since = 300}, {.since = 300, .missed = 256}};
	struct bed *b = bed_new();

	b->in.kind = RAFT_LETTER_KNOCK;
	for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
		b->in.digest = marks[i];
		pack(b);
		ck_assert_int_eq(unpack(b), 0);
		ck_assert_uint_eq(b->out.digest.index, marks[i].index);
		ck_assert_uint_eq(b->out.digest.crc, marks[i].crc);
		ck_assert_int_eq(b->out.digest.settled, marks[i].settled);
		ck_assert_uint_eq(b->out.digest.since, marks[i].since);
		ck_assert_uint_eq(b->out.digest.missed, marks[i].missed);
	}
	bed_free(b);
}
END_TEST

/* What a letter says of its sender's build, table and file system; a room that is none of those known is no letter. */
START_TEST(test_what_senders_are)
{
	struct bed *b = bed_new();

	b->in.kind = RAFT_LETTER_KNOCK;
	for (int room = RAFT_ROOM_UNSAID; room <= RAFT_ROOM_SOME + 1; room++) {
		b->in.room = (enum raft_room)room;
		b->in.applied = room ? UINT64_MAX - 7 : 0;
		b->in.supports = room ? 8 : 0;
		pack(b);
		ck_assert_int_eq(unpack(b), room > RAFT_ROOM_SOME ? ERR_PROTO : 0);
		if (room > RAFT_ROOM_SOME)
			break;
		ck_assert_int_eq(b->out.room, room);
		ck_assert_uint_eq(b->out.applied, b->in.applied);
		ck_assert_uint_eq(b->out.supports, b->in.supports);
	}
	bed_free(b);
}
END_TEST

START_TEST(test_invitations_and_knocks)
{
	struct bed *b = bed_new();
	uint8_t first[HMAC_BYTES], second[HMAC_BYTES];

	b->in.kind = RAFT_LETTER_INVITATION;
	memcpy(b->in.challenge, "challenge", 9);
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_int_eq(b->out.kind, RAFT_LETTER_INVITATION);
	ck_assert_mem_eq(b->out.challenge, b->in.challenge, RAFT_NONCE_BYTES);
	ck_assert_uint_eq(b->out.nonce[0], 0);
	memcpy(b->in.nonce, "nonce", 5);
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_mem_eq(b->out.nonce, b->in.nonce, RAFT_NONCE_BYTES);

	/* An answer is one to this invitation, and says yes or no. */
	raft_codec_sign_answer(&b->codec, &b->out, 0, b->in.nonce, 6, first);
	raft_codec_sign_answer(&b->codec, &b->out, ERR_AGAIN, b->in.nonce, 6, second);
	ck_assert_mem_ne(first, second, HMAC_BYTES);
	raft_codec_sign_answer(&b->codec, &b->in, 0, b->in.nonce, 6, second);
	ck_assert_mem_eq(first, second, HMAC_BYTES);
	raft_codec_sign_answer(&b->codec, &b->in, 0, b->in.nonce, 0, second); /* as an older build does */
	ck_assert_mem_ne(first, second, HMAC_BYTES);
	b->in.challenge[15] = 1;
	raft_codec_sign_answer(&b->codec, &b->in, 0, b->in.nonce, 6, second);
	ck_assert_mem_ne(first, second, HMAC_BYTES);

	b->in.kind = RAFT_LETTER_KNOCK;
	b->in.place[0] = 4;
	b->in.supports = UINT16_MAX;
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_uint_eq(b->out.supports, UINT16_MAX);
	ck_assert_int_eq(b->out.kind, RAFT_LETTER_KNOCK);
	ck_assert_mem_eq(b->out.place, b->in.place, RAFT_PLACE_BYTES);
	bed_free(b);
}
END_TEST

/* A stamp is under the signature, and so is its absence. */
START_TEST(test_stamps)
{
	struct bed *b = bed_new();
	uint8_t other[RAFT_LIFE_BYTES] = {9};

	b->in.kind = RAFT_LETTER_KNOCK;
	b->in.stamp = (struct raft_stamp){{1, 2, 3}, 77};
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_mem_eq(b->out.stamp.life, b->in.stamp.life, RAFT_LIFE_BYTES);
	ck_assert_uint_eq(b->out.stamp.number, 77);
	b->request.number++;
	ck_assert_int_eq(unpack(b), ERR_ACCES);
	pack(b);
	b->request.life.data = other;
	ck_assert_int_eq(unpack(b), ERR_ACCES);
	pack(b);
	b->request.life.len--;
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	pack(b);
	b->request.version = RAFT_CODEC_VERSION;
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	b->request.life.len = b->request.number = 0;
	ck_assert_int_eq(unpack(b), ERR_ACCES);
	b->in.stamp.number = 0;
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_uint_eq(b->out.stamp.number, 0);
	b->request.version = RAFT_CODEC_STAMPED;
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	bed_free(b);
}
END_TEST

/* What stamp is wanted says who has the secret, of this letter. */
START_TEST(test_wanted_stamps)
{
	const struct raft_stamp wanted = {{7, 8, 9}, 1234};
	struct bed *b = bed_new();
	uint8_t life[RAFT_LIFE_BYTES], mac[HMAC_BYTES];
	Craton__RaftReply reply = CRATON__RAFT_REPLY__INIT;
	struct raft_stamp said;

	b->in.kind = RAFT_LETTER_KNOCK;
	pack(b);
	raft_codec_sign_wanted(&b->codec, &b->request, &wanted, mac);
	memcpy(life, wanted.life, sizeof(life));
	ck_assert(!raft_codec_unpack_wanted(&b->codec, &b->request, NULL, &said));
	ck_assert(!raft_codec_unpack_wanted(&b->codec, &b->request, &reply, &said));
	reply.nonce = (ProtobufCBinaryData){.len = sizeof(life), .data = life};
	reply.mac = (ProtobufCBinaryData){.len = sizeof(mac), .data = mac};
	reply.taken = wanted.number;
	ck_assert(raft_codec_unpack_wanted(&b->codec, &b->request, &reply, &said));
	ck_assert_mem_eq(said.life, wanted.life, RAFT_LIFE_BYTES);
	ck_assert_uint_eq(said.number, wanted.number);
	reply.taken++;
	ck_assert(!raft_codec_unpack_wanted(&b->codec, &b->request, &reply, &said));
	reply.taken = wanted.number;
	life[3] ^= 1;
	ck_assert(!raft_codec_unpack_wanted(&b->codec, &b->request, &reply, &said));
	life[3] ^= 1;
	reply.mac.len--;
	ck_assert(!raft_codec_unpack_wanted(&b->codec, &b->request, &reply, &said));
	reply.mac.len++;
	b->in.supports = 1; /* another letter */
	pack(b);
	ck_assert(!raft_codec_unpack_wanted(&b->codec, &b->request, &reply, &said));
	bed_free(b);
}
END_TEST

START_TEST(test_refused)
{
	struct bed *b = bed_new();
	uint8_t big[BACKUP_SECTION_BYTES + 1] = {0};

	set_append(b);
	pack(b);
	b->request.version = RAFT_CODEC_STAMPED + 1;
	ck_assert_int_eq(unpack(b), ERR_VERSION);
	pack(b);
	b->request.cluster.data = (uint8_t *)(uintptr_t)another.bytes;
	ck_assert_int_eq(unpack(b), ERR_WRONG_CLUSTER);
	pack(b);
	b->request.cluster.len = 0;
	ck_assert_int_eq(unpack(b), ERR_WRONG_CLUSTER);
	pack(b);
	b->request.from = 3; /* another one's letter */
	ck_assert_int_eq(unpack(b), ERR_ACCES);
	pack(b);
	b->mac[31] ^= 1;
	ck_assert_int_eq(unpack(b), ERR_ACCES);
	pack(b);
	b->request.mac.len = 0;
	ck_assert_int_eq(unpack(b), ERR_ACCES);
	for (size_t i = 0; i < b->len; i++) {
		pack(b);
		b->bytes[i] ^= 0x10;
		ck_assert_int_eq(unpack(b), ERR_ACCES);
	}
	pack(b);
	b->request.to = b->request.from;
	sign(b);
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	b->in.message.append.last = 13; /* more than there are bodies */
	pack(b);
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	b->in.message.append.has_config = false;
	pack(b);
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	set_append(b);
	b->in.message.append.runs[1].term = 2; /* falling */
	pack(b);
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	set_append(b);
	b->in.message.type = RAFT_MESSAGE_TYPES; /* none */
	pack(b);
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	b->in.kind = RAFT_LETTER_PART;
	b->in.part = (struct replica_part){.snapshot = 1, .data = slice_of(big, sizeof(big))};
	pack(b);
	ck_assert_int_eq(unpack(b), ERR_PROTO);
	bed_free(b);
}
END_TEST

/* As many bodies, terms and members as there may be, and as many bytes: it fits. */
START_TEST(test_greatest_letter)
{
	struct bed *b = bed_new();
	struct raft_message *m = &b->in.message;
	uint8_t *bytes = mem_zalloc(REPLICA_MESSAGE_BYTES_MAX);

	m->type = RAFT_APPEND;
	m->term = RAFT_TERM_MAX - 1;
	m->append.prev_index = m->append.commit = RAFT_INDEX_MAX - 1 - REPLICA_BODIES_MAX;
	m->append.prev_term = m->term - RAFT_MESSAGE_RUNS_MAX;
	m->append.last = RAFT_INDEX_MAX - 1;
	m->append.run_count = RAFT_MESSAGE_RUNS_MAX;
	for (uint32_t i = 0; i < RAFT_MESSAGE_RUNS_MAX; i++)
		m->append.runs[i] = (struct raft_run){m->append.prev_index + 1 + i, m->append.prev_term + 1 + i};
	m->append.has_config = true;
	m->append.config = (struct raft_config){.index = m->append.last, .count = RAFT_MEMBERS_MAX, .last_id = UINT64_MAX};
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		m->append.config.members[i] = (struct raft_member){.id = UINT64_MAX - RAFT_MEMBERS_MAX + i, .voter = true};
	b->in.count = REPLICA_BODIES_MAX;
	for (uint32_t i = 0; i < REPLICA_BODIES_MAX; i++)
		b->in.bodies[i] = (struct replica_body){raft_message_term(m, m->append.prev_index + 1 + i),
			slice_of(bytes, REPLICA_MESSAGE_BYTES_MAX / REPLICA_BODIES_MAX)};
	check_same(b);
	for (uint32_t i = 0; i < REPLICA_BODIES_MAX; i++)
		b->in.bodies[i].data = slice_of(bytes, REPLICA_MESSAGE_BYTES_MAX / REPLICA_BODIES_MAX + RAFT_LETTER_OWN_BYTES / REPLICA_BODIES_MAX);
	mem_free(b->bytes);
	b->bytes = NULL;
	ck_assert_int_eq(raft_codec_pack(&b->in, &b->bytes, &b->len), ERR_MSGSIZE);
	/* Nor is one taken that somebody else has made longer. */
	b->len = RAFT_LETTER_BYTES_MAX + 1;
	b->bytes = mem_zalloc(b->len);
	b->request.letter = (ProtobufCBinaryData){b->len, b->bytes};
	sign(b);
	ck_assert_int_eq(unpack(b), ERR_MSGSIZE);
	mem_free(bytes);
	bed_free(b);
}
END_TEST

/* Whatever comes from one who has the secret, nothing is believed that the core would stop at. */
START_TEST(test_nonsense)
{
	struct bed *b = bed_new();
	struct rng rng;
	uint32_t taken = 0;

	rng_init(&rng, 1);
	for (int i = 0; i < 50000; i++) {
		set_append(b);
		pack(b);
		for (uint64_t n = rng_between(&rng, 1, 4); n > 0; n--)
			b->bytes[rng_below(&rng, b->len)] = (uint8_t)rng_u64(&rng);
		b->len -= rng_chance(&rng, 1, 4) ? rng_below(&rng, b->len) : 0;
		b->request.letter.len = b->len;
		sign(b);
		if (unpack(b) != 0)
			continue;
		taken++;
		if (b->out.kind == RAFT_LETTER_MESSAGE)
			ck_assert_int_eq(raft_message_check(&b->out.message), 0);
	}
	ck_assert_uint_gt(taken, 100);
	bed_free(b);
}
END_TEST

static bool is_answer(const struct bed *b, const Craton__RaftReply *reply, struct founders_said *ret_said)
{
	return raft_codec_unpack_founder(&b->codec, b->in.from, b->in.to, b->in.challenge, reply, ret_said);
}

/* What a founder says is one to this question, signed, all of it. */
START_TEST(test_founders)
{
	struct bed *b = bed_new();
	struct founders_said said = {.heard = true, .member = true, .nonce = "nonce", .roll = {.count = 3}}, out;
	Craton__RaftReply reply = CRATON__RAFT_REPLY__INIT;
	uint8_t mac[HMAC_BYTES];

	b->in.kind = RAFT_LETTER_FOUNDER;
	memcpy(b->in.challenge, "challenge", 9);
	pack(b);
	ck_assert_int_eq(unpack(b), 0);
	ck_assert_int_eq(b->out.kind, RAFT_LETTER_FOUNDER);
	ck_assert_mem_eq(b->out.challenge, b->in.challenge, RAFT_NONCE_BYTES);

	memcpy(said.roll.nonces[1], "nonce", 5);
	for (int with_roll = 1; with_roll >= 0; with_roll--) {
		said.roll.count = with_roll ? 3 : 0;
		raft_codec_pack_founder(&b->codec, &b->out, &said, mac, &reply);
		ck_assert(is_answer(b, &reply, &out));
		ck_assert(out.heard && out.member && founders_roll_equal(&out.roll, &said.roll));
		ck_assert_mem_eq(out.nonce, said.nonce, sizeof(out.nonce));
		ck_assert(!is_answer(b, NULL, &out));
		reply.member = false;
		ck_assert(!is_answer(b, &reply, &out));
		reply.member = true;
		said.nonce[7] ^= 1;
		ck_assert(!is_answer(b, &reply, &out));
		said.nonce[7] ^= 1;
		reply.nonce.len--;
		ck_assert(!is_answer(b, &reply, &out));
		reply.nonce.len++;
		mac[3] ^= 1;
		ck_assert(!is_answer(b, &reply, &out));
		mac[3] ^= 1;
		b->in.challenge[15] ^= 1;
		ck_assert(!is_answer(b, &reply, &out));
		b->in.challenge[15] ^= 1;
		b->in.from++; /* of another one's question */
		ck_assert(!is_answer(b, &reply, &out));
		b->in.from--;
		ck_assert(is_answer(b, &reply, &out));
		if (!with_roll)
			continue;
		said.roll.nonces[2][0] ^= 1;
		ck_assert(!is_answer(b, &reply, &out));
		said.roll.nonces[2][0] ^= 1;
		reply.roll.len -= FOUNDERS_NONCE_BYTES;
		ck_assert(!is_answer(b, &reply, &out));
		reply.roll.len++;
		ck_assert(!is_answer(b, &reply, &out));
		reply.roll.len = (LIMIT_METADS + 1) * FOUNDERS_NONCE_BYTES;
		ck_assert(!is_answer(b, &reply, &out));
	}
	bed_free(b);
}
END_TEST

UNIT_MAIN("raft_codec", test_founders, test_what_senders_are, test_messages, test_snapshot_letters, test_what_rows_are, test_invitations_and_knocks, test_stamps, test_wanted_stamps, test_refused,
	test_greatest_letter, test_nonsense)
