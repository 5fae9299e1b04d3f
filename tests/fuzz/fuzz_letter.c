/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Letters of one who has the secret, and may lie (metad/raft_codec.h): what is unpacked says the same when it is packed again, and no message
 * ends a core that gets it. Byte 0: bit 0 the core leads, bit 1 snapshots are fetched at once; then letters: sender (1), ms since the last
 * one (1), length (2), bytes of a RaftLetter.
 */
#include <string.h>
#include "common/base/check.h"
#include "common/base/cursor.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "metad/raft_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SELF = 1, LETTERS_MAX = 100, FILLED = 4 };

struct world {
	struct raft_codec codec;
	struct codec_arena arena;
	struct raft_letter letter, again;
	struct raft_core core;
	struct raft_message messages[RAFT_MESSAGES_MAX], fills[RAFT_MEMBERS_MAX];
	uint32_t fill_count;
	struct raft_update u;
	uint64_t now_ms;
	bool fetches;
};

/* ---- the least of a driver (metad/raft/raft.h says what it owes) ---- */

static void step(struct world *w, const struct raft_event *event)
{
	uint64_t term = w->core.term, commit = w->core.commit, base_term = w->core.base_term;

	raft_step(&w->core, w->now_ms, event, w->messages, &w->u);
	CHECK(w->core.term >= term && w->core.base_term >= base_term && w->core.commit >= commit && w->core.commit <= w->core.last_index);
	CHECK(w->core.persisted <= w->core.last_index && w->core.base_index <= w->core.commit);
	for (uint32_t i = 0; i < w->u.message_count; i++) {
		CHECK(w->messages[i].from == SELF);
		if (w->messages[i].type != RAFT_APPEND || !w->messages[i].append.fill) {
			CHECK(raft_message_check(&w->messages[i]) == 0);
			continue;
		}
		CHECK(w->fill_count < RAFT_MEMBERS_MAX);
		w->fills[w->fill_count++] = w->messages[i];
	}
}

/* Some entries of what was asked for leave. */
static void fill(struct world *w)
{
	struct raft_message m = w->fills[--w->fill_count];
	struct raft_event sent = {.type = RAFT_SENT, .peer = m.to, .term = m.term, .bytes = 100};
	struct raft_run runs[FILLED + 1];
	uint64_t prev = m.append.prev_index, last = prev + (m.append.room_bytes ? FILLED : 0);
	uint32_t count = 0;

	last = last < w->core.last_index ? last : w->core.last_index;
	for (uint64_t i = prev; i <= last; i++) {
		uint64_t term = raft_term_at(&w->core, i);

		if (term && (!count || runs[count - 1].term != term))
			runs[count++] = (struct raft_run){i, term};
	}
	if (last >= prev + (m.append.room_bytes > 0) && raft_fill(&w->core, &m, last, runs, count)) {
		CHECK(raft_message_check(&m) == 0);
		sent.index = m.append.last > prev ? m.append.last : 0;
	}
	step(w, &sent);
}

static void settle(struct world *w)
{
	struct raft_event persisted = {.type = RAFT_PERSISTED};

	while (w->fill_count || w->core.persisted < w->core.last_index) {
		if (w->fill_count) {
			fill(w);
			continue;
		}
		persisted.index = w->core.last_index;
		persisted.epoch = w->core.epoch;
		step(w, &persisted);
	}
}

static void receive(struct world *w, const struct raft_message *m, uint64_t bodies)
{
	struct raft_event event = {.type = RAFT_RECEIVE, .message = m, .count = bodies},
			  ready = {.type = RAFT_SNAPSHOT_READY, .message = m};
	uint64_t first, last;

	CHECK(!raft_asks(&w->core, m, &first, &last)); /* it remembers more terms than there are letters */
	step(w, &event);
	if (w->u.fetch && w->fetches)
		step(w, &ready);
	settle(w);
}

static void begin(struct world *w, bool leads)
{
	static const struct raft_run runs[] = {{1, 1}, {3, 2}};
	static const struct raft_options options = {
		.id = SELF, .heartbeat_ms = 50, .election_ms = 250, .message_bytes = 1000, .inflight_bytes = 4000, .seed = 1};
	const struct raft_boot boot = {.term = 3, .last_index = 6, .runs = runs, .run_count = 2, .commit = 2,
		.config = {.index = 1, .count = 3, .members = {{.id = 1, .voter = true}, {.id = 2, .voter = true}, {.id = 3, .voter = true}}, .last_id = 3}};
	struct raft_event campaign = {.type = RAFT_CAMPAIGN}, submit = {.type = RAFT_SUBMIT, .count = 3};
	struct raft_message voted = {.type = RAFT_VOTED, .from = 2, .to = SELF, .term = 4, .voted = {.granted = true, .pre = true}};

	CHECK(raft_init(&w->core, &options, &boot, 0) == 0);
	if (!leads)
		return;
	step(w, &campaign);
	receive(w, &voted, 0);
	voted.voted.pre = false;
	receive(w, &voted, 0);
	CHECK(w->core.role == RAFT_LEADER);
	step(w, &submit);
	settle(w);
}

/* ---- letters ---- */

static int unpack(struct world *w, uint64_t from, struct slice bytes, struct raft_letter *ret_letter)
{
	static const struct raft_stamp none;
	Craton__RaftRequest request = CRATON__RAFT_REQUEST__INIT;
	uint8_t mac[HMAC_BYTES];

	raft_codec_sign(&w->codec, from, SELF, &none, bytes, mac);
	request.version = RAFT_CODEC_VERSION;
	request.cluster = (ProtobufCBinaryData){.len = 16, .data = w->codec.cluster.bytes};
	request.from = from;
	request.to = SELF;
	request.letter = (ProtobufCBinaryData){.len = bytes.len, .data = (uint8_t *)(uintptr_t)bytes.data};
	request.mac = (ProtobufCBinaryData){.len = sizeof(mac), .data = mac};
	return raft_codec_unpack(&w->codec, &request, &w->arena, ret_letter);
}

static void check_again(struct world *w)
{
	const struct raft_letter *a = &w->letter, *b = &w->again;
	uint8_t *bytes;
	size_t len;

	CHECK(raft_codec_pack(a, &bytes, &len) == 0);
	CHECK(unpack(w, a->from, slice_of(bytes, len), &w->again) == 0);
	CHECK(a->kind == b->kind && memcmp(&a->message, &b->message, sizeof(a->message)) == 0 && a->count == b->count);
	for (uint32_t i = 0; i < a->count; i++)
		CHECK(a->bodies[i].term == b->bodies[i].term && slice_compare(a->bodies[i].data, b->bodies[i].data) == 0);
	CHECK(a->ask.snapshot == b->ask.snapshot && a->ask.number == b->ask.number);
	CHECK(a->part.snapshot == b->part.snapshot && a->part.number == b->part.number && a->part.code == b->part.code);
	CHECK(a->part.end == b->part.end && memcmp(a->part.digest, b->part.digest, sizeof(a->part.digest)) == 0);
	CHECK(a->part.code || slice_compare(a->part.data, b->part.data) == 0);
	CHECK(memcmp(a->nonce, b->nonce, sizeof(a->nonce)) == 0 && memcmp(a->challenge, b->challenge, sizeof(a->challenge)) == 0);
	mem_free(bytes);
}

static void take(struct world *w, uint64_t from, struct slice bytes)
{
	codec_arena_clear(&w->arena);
	if (unpack(w, from, bytes, &w->letter))
		return;
	check_again(w);
	if (w->letter.kind == RAFT_LETTER_MESSAGE)
		receive(w, &w->letter.message, w->letter.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct uuid cluster = {{1}};
	static const uint8_t secret[32] = {2};
	const struct raft_event tick = {.type = RAFT_TICK};
	struct world *w = MEM_NEW(struct world);
	struct rcursor r;
	uint8_t how;

	raft_codec_init(&w->codec, &cluster, secret);
	codec_arena_init(&w->arena, LIMIT_FRAME_BODY_BYTES);
	rcursor_init(&r, data, size);
	how = rcursor_u8(&r);
	w->fetches = how & 2;
	begin(w, how & 1);
	for (int i = 0; i < LETTERS_MAX && rcursor_left(&r) > 0; i++) {
		uint64_t from = 2 + rcursor_u8(&r) % 3, ms = rcursor_u8(&r);
		uint16_t len = rcursor_u16(&r);

		w->now_ms += ms;
		step(w, &tick);
		settle(w);
		take(w, from, rcursor_slice(&r, len < rcursor_left(&r) ? len : rcursor_left(&r)));
	}
	codec_arena_fini(&w->arena);
	mem_free(w);
	return 0;
}
