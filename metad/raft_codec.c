/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/raft_codec.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/rpc/auth.h"

enum { TYPE_ASK = 32, TYPE_PART = 33, TYPE_INVITATION = 34, TYPE_KNOCK = 35, TYPE_FOUNDER = 36 };

static const uint8_t nowhere[RAFT_PLACE_BYTES];

void raft_codec_init(struct raft_codec *codec, const struct uuid *cluster, const uint8_t secret[32])
{
	uint8_t key[HMAC_KEY_BYTES];

	codec->cluster = *cluster;
	CHECK(auth_derive(secret, "raft", slice_of(cluster->bytes, sizeof(cluster->bytes)), key) == 0);
	hmac_key_init(&codec->key, key);
}

void raft_codec_sign(const struct raft_codec *codec, uint64_t from, uint64_t to, const struct raft_stamp *stamp, struct slice letter,
	uint8_t ret_mac[HMAC_BYTES])
{
	struct hmac h = {codec->key.inner, codec->key.outer};
	uint8_t head[4 + 16 + 8 + 8 + RAFT_LIFE_BYTES + 8];
	struct wcursor w;

	wcursor_init(&w, head, sizeof(head));
	wcursor_u32(&w, stamp->number ? RAFT_CODEC_STAMPED : RAFT_CODEC_VERSION);
	wcursor_bytes(&w, codec->cluster.bytes, sizeof(codec->cluster.bytes));
	wcursor_u64(&w, from);
	wcursor_u64(&w, to);
	if (stamp->number) {
		wcursor_bytes(&w, stamp->life, RAFT_LIFE_BYTES);
		wcursor_u64(&w, stamp->number);
	}
	CHECK(!w.failed);
	hmac_update(&h, head, w.len);
	hmac_update(&h, letter.data, letter.len);
	hmac_fini(&h, ret_mac);
}

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
	return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)data};
}

static bool is_mac(const ProtobufCBinaryData *said, const uint8_t mac[HMAC_BYTES])
{
	uint8_t differs = 0;

	for (size_t i = 0; said->len == HMAC_BYTES && i < HMAC_BYTES; i++)
		differs |= mac[i] ^ said->data[i];
	return said->len == HMAC_BYTES && !differs;
}

void raft_codec_sign_wanted(const struct raft_codec *codec, const Craton__RaftRequest *request, const struct raft_stamp *wanted,
	uint8_t ret_mac[HMAC_BYTES])
{
	struct hmac h = {codec->key.inner, codec->key.outer};
	uint8_t answer[6 + 16 + 8 + 8 + HMAC_BYTES + RAFT_LIFE_BYTES + 8];
	struct wcursor w;

	CHECK(request->mac.len == HMAC_BYTES);
	wcursor_init(&w, answer, sizeof(answer));
	wcursor_bytes(&w, "wanted", 6);
	wcursor_bytes(&w, codec->cluster.bytes, sizeof(codec->cluster.bytes));
	wcursor_u64(&w, request->to);
	wcursor_u64(&w, request->from);
	wcursor_bytes(&w, request->mac.data, HMAC_BYTES);
	wcursor_bytes(&w, wanted->life, RAFT_LIFE_BYTES);
	wcursor_u64(&w, wanted->number);
	CHECK(!w.failed);
	hmac_update(&h, answer, w.len);
	hmac_fini(&h, ret_mac);
}

bool raft_codec_unpack_wanted(const struct raft_codec *codec, const Craton__RaftRequest *request, const Craton__RaftReply *reply,
	struct raft_stamp *ret_wanted)
{
	struct raft_stamp wanted = {.number = reply ? reply->taken : 0};
	uint8_t mac[HMAC_BYTES];

	if (!reply || reply->nonce.len != RAFT_LIFE_BYTES)
		return false;
	memcpy(wanted.life, reply->nonce.data, RAFT_LIFE_BYTES);
	raft_codec_sign_wanted(codec, request, &wanted, mac);
	if (!is_mac(&reply->mac, mac))
		return false;
	*ret_wanted = wanted;
	return true;
}

void raft_codec_sign_answer(const struct raft_codec *codec, const struct raft_letter *invitation, int status,
	const uint8_t nonce[RAFT_NONCE_BYTES], uint16_t supports, uint8_t ret_mac[HMAC_BYTES])
{
	struct hmac h = {codec->key.inner, codec->key.outer};
	uint8_t answer[6 + 16 + 8 + 8 + 1 + 2 * RAFT_NONCE_BYTES + 2];
	struct wcursor w;

	wcursor_init(&w, answer, sizeof(answer));
	wcursor_bytes(&w, "answer", 6);
	wcursor_bytes(&w, codec->cluster.bytes, sizeof(codec->cluster.bytes));
	wcursor_u64(&w, invitation->to);
	wcursor_u64(&w, invitation->from);
	wcursor_u8(&w, status == 0);
	wcursor_bytes(&w, invitation->challenge, RAFT_NONCE_BYTES);
	wcursor_bytes(&w, nonce, RAFT_NONCE_BYTES);
	if (supports) /* older builds sign without it */
		wcursor_u16(&w, supports);
	CHECK(!w.failed);
	hmac_update(&h, answer, w.len);
	hmac_fini(&h, ret_mac);
}

_Static_assert((int)FOUNDERS_NONCE_BYTES == (int)RAFT_NONCE_BYTES, "a reply has one kind of nonce");

static void sign_founder(const struct raft_codec *codec, uint64_t from, uint64_t to, const uint8_t challenge[RAFT_NONCE_BYTES],
	const struct founders_said *said, uint8_t ret_mac[HMAC_BYTES])
{
	struct hmac h = {codec->key.inner, codec->key.outer};
	uint8_t answer[7 + 16 + 8 + 8 + RAFT_NONCE_BYTES + 1 + FOUNDERS_NONCE_BYTES + 4 + LIMIT_METADS * FOUNDERS_NONCE_BYTES];
	struct wcursor w;

	wcursor_init(&w, answer, sizeof(answer));
	wcursor_bytes(&w, "founder", 7);
	wcursor_bytes(&w, codec->cluster.bytes, sizeof(codec->cluster.bytes));
	wcursor_u64(&w, to);
	wcursor_u64(&w, from);
	wcursor_bytes(&w, challenge, RAFT_NONCE_BYTES);
	wcursor_u8(&w, said->member);
	wcursor_bytes(&w, said->nonce, FOUNDERS_NONCE_BYTES);
	wcursor_u32(&w, said->roll.count);
	wcursor_bytes(&w, said->roll.nonces, said->roll.count * sizeof(said->roll.nonces[0]));
	CHECK(!w.failed);
	hmac_update(&h, answer, w.len);
	hmac_fini(&h, ret_mac);
}

void raft_codec_pack_founder(const struct raft_codec *codec, const struct raft_letter *question, const struct founders_said *said, uint8_t mac[HMAC_BYTES],
	Craton__RaftReply *reply)
{
	sign_founder(codec, question->from, question->to, question->challenge, said, mac);
	reply->nonce = bytes_of(said->nonce, FOUNDERS_NONCE_BYTES);
	reply->mac = bytes_of(mac, HMAC_BYTES);
	reply->member = said->member;
	reply->roll = bytes_of(said->roll.nonces, said->roll.count * sizeof(said->roll.nonces[0]));
}

bool raft_codec_unpack_founder(const struct raft_codec *codec, uint64_t from, uint64_t to, const uint8_t challenge[RAFT_NONCE_BYTES],
	const Craton__RaftReply *reply, struct founders_said *ret_said)
{
	struct founders_said said = {.heard = true};
	uint8_t mac[HMAC_BYTES];

	if (!reply || reply->nonce.len != FOUNDERS_NONCE_BYTES || reply->roll.len % FOUNDERS_NONCE_BYTES || reply->roll.len > sizeof(said.roll.nonces))
		return false;
	said.member = reply->member;
	memcpy(said.nonce, reply->nonce.data, FOUNDERS_NONCE_BYTES);
	said.roll.count = (uint32_t)(reply->roll.len / FOUNDERS_NONCE_BYTES);
	if (said.roll.count)
		memcpy(said.roll.nonces, reply->roll.data, reply->roll.len);
	sign_founder(codec, from, to, challenge, &said, mac);
	if (!is_mac(&reply->mac, mac))
		return false;
	*ret_said = said;
	return true;
}

/* ---- places (docs/FORMATS.md, "Bodies of a replicated log") ---- */

void raft_place_set(uint8_t place[RAFT_PLACE_BYTES], const struct io_addr *addr)
{
	memset(place, 0, RAFT_PLACE_BYTES);
	if (!addr->family)
		return;
	place[0] = addr->family;
	place[2] = (uint8_t)addr->port;
	place[3] = (uint8_t)(addr->port >> 8);
	memcpy(place + 4, addr->ip, addr->family == 4 ? 4 : sizeof(addr->ip));
}

bool raft_place_get(const uint8_t place[RAFT_PLACE_BYTES], struct io_addr *ret_addr)
{
	if (place[0] != 4 && place[0] != 6)
		return false;
	*ret_addr = (struct io_addr){.family = place[0], .port = (uint16_t)(place[2] | place[3] << 8)};
	memcpy(ret_addr->ip, place + 4, place[0] == 4 ? 4 : sizeof(ret_addr->ip));
	return true;
}

/* ---- pack ---- */

/* A letter's messages, all of which may be there. */
struct packing {
	Craton__RaftLetter letter;
	Craton__RaftVote vote;
	Craton__RaftVoted voted;
	Craton__RaftAppend append;
	Craton__RaftAppended appended;
	Craton__RaftSnapshot snapshot;
	Craton__RaftAsk ask;
	Craton__RaftPart part;
	Craton__RaftDigest digest;
	Craton__RaftConfig config;
	Craton__RaftMember members[RAFT_MEMBERS_MAX], *member_list[RAFT_MEMBERS_MAX];
	Craton__RaftRun runs[RAFT_MESSAGE_RUNS_MAX], *run_list[RAFT_MESSAGE_RUNS_MAX];
	ProtobufCBinaryData bodies[REPLICA_BODIES_MAX];
};

static ProtobufCBinaryData place_of(const uint8_t place[RAFT_PLACE_BYTES])
{
	return bytes_of(place, memcmp(place, nowhere, RAFT_PLACE_BYTES) ? RAFT_PLACE_BYTES : 0);
}

static Craton__RaftConfig *pack_config(struct packing *p, const struct raft_config *config)
{
	craton__raft_config__init(&p->config);
	p->config.index = config->index;
	p->config.last_id = config->last_id;
	for (uint32_t i = 0; i < config->count; i++) {
		craton__raft_member__init(&p->members[i]);
		p->members[i].id = config->members[i].id;
		p->members[i].voter = config->members[i].voter;
		p->members[i].place = place_of(config->members[i].place);
		p->member_list[i] = &p->members[i];
	}
	p->config.n_members = config->count;
	p->config.members = p->member_list;
	return &p->config;
}

static void pack_append(struct packing *p, const struct raft_letter *l)
{
	const struct raft_message *m = &l->message;

	craton__raft_append__init(&p->append);
	p->letter.append = &p->append;
	p->append.prev_index = m->append.prev_index;
	p->append.prev_term = m->append.prev_term;
	p->append.commit = m->append.commit;
	p->append.last = m->append.last;
	for (uint32_t i = 0; i < m->append.run_count; i++) {
		craton__raft_run__init(&p->runs[i]);
		p->runs[i].first = m->append.runs[i].first;
		p->runs[i].term = m->append.runs[i].term;
		p->run_list[i] = &p->runs[i];
	}
	p->append.n_runs = m->append.run_count;
	p->append.runs = p->run_list;
	if (m->append.has_config)
		p->append.config = pack_config(p, &m->append.config);
	for (uint32_t i = 0; i < l->count; i++)
		p->bodies[i] = bytes_of(l->bodies[i].data.data, l->bodies[i].data.len);
	p->append.n_bodies = l->count;
	p->append.bodies = p->bodies;
}

static void pack_message(struct packing *p, const struct raft_letter *l)
{
	const struct raft_message *m = &l->message;

	p->letter.type = m->type;
	p->letter.term = m->term;
	switch (m->type) {
	case RAFT_PRE_VOTE:
	case RAFT_VOTE:
		craton__raft_vote__init(&p->vote);
		p->vote.last_index = m->vote.last_index;
		p->vote.last_term = m->vote.last_term;
		p->vote.forced = m->vote.forced;
		p->letter.vote = &p->vote;
		break;
	case RAFT_VOTED:
		craton__raft_voted__init(&p->voted);
		p->voted.granted = m->voted.granted;
		p->voted.pre = m->voted.pre;
		p->letter.voted = &p->voted;
		break;
	case RAFT_APPEND:
		pack_append(p, l);
		break;
	case RAFT_APPENDED:
		craton__raft_appended__init(&p->appended);
		p->appended.reject = m->appended.reject;
		p->appended.index = m->appended.index;
		p->appended.seen = m->appended.seen;
		p->appended.hint_index = m->appended.hint_index;
		p->appended.hint_term = m->appended.hint_term;
		p->letter.appended = &p->appended;
		break;
	case RAFT_SNAPSHOT:
		craton__raft_snapshot__init(&p->snapshot);
		p->snapshot.index = m->snapshot.index;
		p->snapshot.term = m->snapshot.term;
		p->snapshot.config = pack_config(p, &m->snapshot.config);
		p->snapshot.descriptor = bytes_of(m->snapshot.descriptor, RAFT_DESCRIPTOR_BYTES);
		p->letter.snapshot = &p->snapshot;
		break;
	case RAFT_READ_PROBE:
	case RAFT_READ_ACK:
		p->letter.seq = m->read.seq;
		break;
	case RAFT_TIMEOUT_NOW:
	case RAFT_MESSAGE_TYPES:
		break;
	}
}

static void pack_ask(struct packing *p, const struct replica_ask *ask)
{
	craton__raft_ask__init(&p->ask);
	p->letter.type = TYPE_ASK;
	p->ask.snapshot = ask->snapshot;
	p->ask.number = ask->number;
	p->letter.ask = &p->ask;
}

static void pack_part(struct packing *p, const struct replica_part *part)
{
	craton__raft_part__init(&p->part);
	p->letter.type = TYPE_PART;
	p->part.snapshot = part->snapshot;
	p->part.number = part->number;
	p->part.gone = part->code != 0;
	p->part.end = part->end;
	p->part.digest = bytes_of(part->digest, part->end ? PART_DIGEST_BYTES : 0);
	p->part.data = bytes_of(part->data.data, part->code ? 0 : part->data.len);
	p->letter.part = &p->part;
}

static void pack_invitation(struct packing *p, const struct raft_letter *l)
{
	static const uint8_t unknown[RAFT_NONCE_BYTES];

	p->letter.type = TYPE_INVITATION;
	p->letter.nonce = bytes_of(l->nonce, memcmp(l->nonce, unknown, RAFT_NONCE_BYTES) ? RAFT_NONCE_BYTES : 0);
	p->letter.challenge = bytes_of(l->challenge, RAFT_NONCE_BYTES);
}

static void pack_question(struct packing *p, const struct raft_letter *l)
{
	p->letter.type = TYPE_FOUNDER;
	p->letter.challenge = bytes_of(l->challenge, RAFT_NONCE_BYTES);
}

static void pack_digest(struct packing *p, const struct digests_mark *digest)
{
	craton__raft_digest__init(&p->digest);
	p->digest.index = digest->index;
	p->digest.crc = digest->crc;
	p->digest.settled = digest->settled;
	p->digest.since = digest->since;
	p->digest.missed = digest->missed;
	p->letter.digest = &p->digest;
}

int raft_codec_pack(const struct raft_letter *letter, uint8_t **ret_bytes, size_t *ret_len)
{
	struct packing *p = MEM_NEW(struct packing);
	size_t len;
	int rc = 0;

	craton__raft_letter__init(&p->letter);
	p->letter.place = place_of(letter->place);
	p->letter.supports = letter->supports;
	p->letter.applied = letter->applied;
	p->letter.room = letter->room;
	if (letter->digest.index || letter->digest.missed)
		pack_digest(p, &letter->digest);
	if (letter->kind == RAFT_LETTER_MESSAGE)
		pack_message(p, letter);
	else if (letter->kind == RAFT_LETTER_ASK)
		pack_ask(p, &letter->ask);
	else if (letter->kind == RAFT_LETTER_INVITATION)
		pack_invitation(p, letter);
	else if (letter->kind == RAFT_LETTER_FOUNDER)
		pack_question(p, letter);
	else if (letter->kind == RAFT_LETTER_KNOCK)
		p->letter.type = TYPE_KNOCK;
	else
		pack_part(p, &letter->part);
	len = protobuf_c_message_get_packed_size(&p->letter.base);
	if (len > RAFT_LETTER_BYTES_MAX) {
		rc = ERR_MSGSIZE;
	} else {
		*ret_bytes = mem_alloc(len + CODEC_PACK_SPARE);
		*ret_len = codec_pack(&p->letter.base, *ret_bytes, len + CODEC_PACK_SPARE);
		CHECK(*ret_len == len);
	}
	mem_free(p);
	return rc;
}

/* ---- unpack ---- */

static int unpack_place(const ProtobufCBinaryData *from, uint8_t place[RAFT_PLACE_BYTES])
{
	if (from->len != 0 && from->len != RAFT_PLACE_BYTES)
		return ERR_PROTO;
	memset(place, 0, RAFT_PLACE_BYTES);
	if (from->len)
		memcpy(place, from->data, RAFT_PLACE_BYTES);
	return 0;
}

static int unpack_config(const Craton__RaftConfig *from, struct raft_config *ret_config)
{
	if (from->n_members > RAFT_MEMBERS_MAX)
		return ERR_PROTO;
	ret_config->index = from->index;
	ret_config->last_id = from->last_id;
	ret_config->count = (uint32_t)from->n_members;
	for (size_t i = 0; i < from->n_members; i++) {
		ret_config->members[i] = (struct raft_member){.id = from->members[i]->id, .voter = from->members[i]->voter};
		if (unpack_place(&from->members[i]->place, ret_config->members[i].place))
			return ERR_PROTO;
	}
	return 0;
}

static int unpack_append(const Craton__RaftAppend *a, struct raft_letter *l)
{
	struct raft_message *m = &l->message;

	if (a->n_runs > RAFT_MESSAGE_RUNS_MAX || a->n_bodies > REPLICA_BODIES_MAX || a->last < a->prev_index ||
		a->last - a->prev_index != a->n_bodies)
		return ERR_PROTO;
	m->append.prev_index = a->prev_index;
	m->append.prev_term = a->prev_term;
	m->append.commit = a->commit;
	m->append.last = a->last;
	m->append.run_count = (uint32_t)a->n_runs;
	for (size_t i = 0; i < a->n_runs; i++)
		m->append.runs[i] = (struct raft_run){a->runs[i]->first, a->runs[i]->term};
	m->append.has_config = a->config != NULL;
	if (a->config && unpack_config(a->config, &m->append.config))
		return ERR_PROTO;
	/* Whose terms are asked for must be such that they can be said. */
	if (raft_message_check(m))
		return ERR_PROTO;
	l->count = (uint32_t)a->n_bodies;
	for (uint32_t i = 0; i < l->count; i++)
		l->bodies[i] = (struct replica_body){
			raft_message_term(m, a->prev_index + 1 + i), slice_of(a->bodies[i].data, a->bodies[i].len)};
	return 0;
}

static int unpack_message(const Craton__RaftLetter *from, struct raft_letter *l)
{
	struct raft_message *m = &l->message;

	m->type = (enum raft_message_type)from->type;
	m->term = from->term;
	m->from = l->from;
	m->to = l->to;
	switch (m->type) {
	case RAFT_PRE_VOTE:
	case RAFT_VOTE:
		if (!from->vote)
			return ERR_PROTO;
		m->vote.last_index = from->vote->last_index;
		m->vote.last_term = from->vote->last_term;
		m->vote.forced = from->vote->forced;
		break;
	case RAFT_VOTED:
		if (!from->voted)
			return ERR_PROTO;
		m->voted.granted = from->voted->granted;
		m->voted.pre = from->voted->pre;
		break;
	case RAFT_APPEND:
		return from->append ? unpack_append(from->append, l) : ERR_PROTO;
	case RAFT_APPENDED:
		if (!from->appended)
			return ERR_PROTO;
		m->appended.reject = from->appended->reject;
		m->appended.index = from->appended->index;
		m->appended.seen = from->appended->seen;
		m->appended.hint_index = from->appended->hint_index;
		m->appended.hint_term = from->appended->hint_term;
		break;
	case RAFT_SNAPSHOT:
		if (!from->snapshot || !from->snapshot->config || from->snapshot->descriptor.len != RAFT_DESCRIPTOR_BYTES)
			return ERR_PROTO;
		m->snapshot.index = from->snapshot->index;
		m->snapshot.term = from->snapshot->term;
		memcpy(m->snapshot.descriptor, from->snapshot->descriptor.data, RAFT_DESCRIPTOR_BYTES);
		if (unpack_config(from->snapshot->config, &m->snapshot.config))
			return ERR_PROTO;
		break;
	case RAFT_READ_PROBE:
	case RAFT_READ_ACK:
		m->read.seq = from->seq;
		break;
	case RAFT_TIMEOUT_NOW:
		break;
	default:
		return ERR_PROTO;
	}
	return raft_message_check(m);
}

static int unpack_part(const Craton__RaftPart *from, struct replica_part *part)
{
	if (!from || from->data.len > BACKUP_SECTION_BYTES || from->digest.len != (from->end ? PART_DIGEST_BYTES : 0))
		return ERR_PROTO;
	part->snapshot = from->snapshot;
	part->number = from->number;
	part->code = from->gone ? ERR_STALE : 0;
	part->end = from->end;
	if (from->end)
		memcpy(part->digest, from->digest.data, PART_DIGEST_BYTES);
	part->data = slice_of(from->data.data, from->data.len);
	return 0;
}

static int unpack_invitation(const Craton__RaftLetter *from, struct raft_letter *l)
{
	if ((from->nonce.len != 0 && from->nonce.len != RAFT_NONCE_BYTES) || from->challenge.len != RAFT_NONCE_BYTES)
		return ERR_PROTO;
	if (from->nonce.len)
		memcpy(l->nonce, from->nonce.data, RAFT_NONCE_BYTES);
	memcpy(l->challenge, from->challenge.data, RAFT_NONCE_BYTES);
	return 0;
}

static int unpack_letter(const Craton__RaftLetter *from, struct raft_letter *l)
{
	if (unpack_place(&from->place, l->place) || from->supports > UINT16_MAX || from->room > RAFT_ROOM_SOME)
		return ERR_PROTO;
	l->supports = (uint16_t)from->supports;
	l->applied = from->applied;
	l->room = (enum raft_room)from->room;
	if (from->digest)
		l->digest = (struct digests_mark){.index = from->digest->index,
			.crc = from->digest->crc,
			.settled = from->digest->settled,
			.since = from->digest->since,
			.missed = from->digest->missed};
	switch (from->type) {
	case TYPE_ASK:
		if (!from->ask)
			return ERR_PROTO;
		l->kind = RAFT_LETTER_ASK;
		l->ask = (struct replica_ask){from->ask->snapshot, from->ask->number};
		return 0;
	case TYPE_INVITATION:
		l->kind = RAFT_LETTER_INVITATION;
		return unpack_invitation(from, l);
	case TYPE_FOUNDER:
		l->kind = RAFT_LETTER_FOUNDER;
		if (from->challenge.len != RAFT_NONCE_BYTES)
			return ERR_PROTO;
		memcpy(l->challenge, from->challenge.data, RAFT_NONCE_BYTES);
		return 0;
	case TYPE_KNOCK:
		l->kind = RAFT_LETTER_KNOCK;
		return 0;
	case TYPE_PART:
		l->kind = RAFT_LETTER_PART;
		return unpack_part(from->part, &l->part);
	default:
		l->kind = RAFT_LETTER_MESSAGE;
		return unpack_message(from, l);
	}
}

static int unpack_stamp(const Craton__RaftRequest *from, struct raft_stamp *ret_stamp)
{
	bool stamped = from->version == RAFT_CODEC_STAMPED;

	*ret_stamp = (struct raft_stamp){.number = from->number};
	if (from->version != RAFT_CODEC_VERSION && !stamped)
		return ERR_VERSION;
	if ((from->number != 0) != stamped || from->life.len != (stamped ? RAFT_LIFE_BYTES : 0))
		return ERR_PROTO;
	if (stamped)
		memcpy(ret_stamp->life, from->life.data, RAFT_LIFE_BYTES);
	return 0;
}

int raft_codec_unpack(const struct raft_codec *codec, const Craton__RaftRequest *request, struct codec_arena *arena,
	struct raft_letter *ret_letter)
{
	const ProtobufCMessage *letter;
	struct raft_stamp stamp;
	uint8_t mac[HMAC_BYTES];
	int rc = unpack_stamp(request, &stamp);

	if (rc)
		return rc;
	if (request->cluster.len != sizeof(codec->cluster.bytes) ||
		memcmp(request->cluster.data, codec->cluster.bytes, sizeof(codec->cluster.bytes)) != 0)
		return ERR_WRONG_CLUSTER;
	if (request->letter.len > RAFT_LETTER_BYTES_MAX)
		return ERR_MSGSIZE;
	raft_codec_sign(codec, request->from, request->to, &stamp, slice_of(request->letter.data, request->letter.len), mac);
	if (!is_mac(&request->mac, mac))
		return ERR_ACCES;
	if (request->from == 0 || request->to == 0 || request->from == request->to)
		return ERR_PROTO;
	rc = codec_unpack(arena, &craton__raft_letter__descriptor, request->letter.data, request->letter.len, &letter);
	if (rc)
		return rc;
	memset(ret_letter, 0, sizeof(*ret_letter));
	ret_letter->from = request->from;
	ret_letter->to = request->to;
	ret_letter->stamp = stamp;
	return unpack_letter((const Craton__RaftLetter *)letter, ret_letter);
}
