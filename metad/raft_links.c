/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/raft_links_private.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/rpc/methods.h"
#include "metad/state/cmd.h"

_Static_assert((int)RAFT_LETTER_BYTES_MAX + 1024 <= (int)LIMIT_FRAME_BODY_BYTES, "a letter fits a frame");

/* Of letters that were taken: so many are answered in one go, or after so long. Far from what a sender may have on its way, and waits. */
enum { HELD_BYTES_MAX = LINK_BYTES_MAX / 16, HELD_MS = 20 };
_Static_assert((int)HELD_LETTERS_MAX <= LINK_LETTERS_MAX / 8 && (int)HELD_MS <= LINK_DEADLINE_MS / 100, "a sender does not notice");
static const uint64_t ms_ns = 1000000;

struct raft_links *raft_links_new(struct io *io, const struct raft_links_options *options)
{
	struct raft_links *links = MEM_NEW(struct raft_links);
	uint8_t life[RAFT_LIFE_BYTES];

	CHECK(options->id > 0);
	links->io = io;
	links->options = *options;
	links->options.secret = NULL;
	raft_codec_init(&links->codec, &options->self.cluster, options->secret);
	raft_place_set(links->place, &options->own);
	io_random(io, life, sizeof(life));
	raft_stamps_init(&links->stamps, life);
	codec_arena_init(&links->arena, LIMIT_FRAME_BODY_BYTES);
	return links;
}

void raft_links_attach(struct raft_links *links, struct replica *replica)
{
	links->replica = replica;
}

const struct raft_links_counts *raft_links_counts(const struct raft_links *links)
{
	return &links->counts;
}

/* ---- members ---- */

struct link **raft_links__place_of(struct raft_links *links, uint64_t id)
{
	for (uint32_t i = 0; i < LINKS_MAX; i++)
		if (id ? links->members[i] && links->members[i]->id == id : !links->members[i])
			return &links->members[i];
	return NULL;
}

uint64_t raft_links_heard_ns(const struct raft_links *links, uint64_t id)
{
	for (uint32_t i = 0; i < LINKS_MAX; i++)
		if (links->members[i] && links->members[i]->id == id)
			return links->members[i]->heard_ns;
	return 0;
}

static bool is_heard(const struct raft_links *links, const struct link *link)
{
	return link->heard_ns && io_now_ns(links->io) - link->heard_ns < LINK_HEARD_MS * ms_ns;
}

struct raft_links_own raft_links_own(const struct raft_links *links, uint64_t id)
{
	for (uint32_t i = 0; i < LINKS_MAX; i++)
		if (links->members[i] && links->members[i]->id == id && is_heard(links, links->members[i]))
			return links->members[i]->own;
	return (struct raft_links_own){0};
}

void raft_links_say(struct raft_links *links, const struct digests_mark *digest)
{
	links->digest = *digest;
}

void raft_links_say_room(struct raft_links *links, enum raft_room room)
{
	links->room = room;
}

static bool says_itself(const struct raft_links *links, const struct link *link)
{
	return link->said.family && is_heard(links, link);
}

bool raft_links_said(const struct raft_links *links, uint64_t id, struct io_addr *ret_addr)
{
	for (uint32_t i = 0; i < LINKS_MAX; i++) {
		const struct link *link = links->members[i];

		if (link && link->id == id && says_itself(links, link)) {
			*ret_addr = link->said;
			return true;
		}
	}
	return false;
}

static void finish(struct io_post *post)
{
	struct raft_links *links = CONTAINER_OF(post, struct raft_links, post);
	void (*closed)(void *ctx) = links->closed;
	void *ctx = links->closed_ctx;

	codec_arena_fini(&links->arena);
	mem_free(links);
	closed(ctx);
}

static void close_if_empty(struct raft_links *links)
{
	if (io_pending(&links->held.timer))
		return;
	for (uint32_t i = 0; i < LINKS_MAX; i++)
		if (links->members[i])
			return;
	links->post.run = finish;
	io_post(links->io, &links->post);
}

static void peer_closed(void *ctx)
{
	struct link *link = ctx;
	struct raft_links *links = link->links;

	if (--link->open > 0)
		return;
	for (uint32_t i = 0; i < LINKS_MAX; i++)
		if (links->members[i] == link)
			links->members[i] = NULL;
	mem_free(link);
	if (links->closed)
		close_if_empty(links);
}

static void link_close(struct link *link)
{
	raft_stamps_part(&link->links->stamps, &link->stamps);
	link->id = 0;
	for (int i = 0; i < LANES; i++)
		rpc_peer_close(link->lanes[i].peer, peer_closed, link);
}

int raft_links_member(struct raft_links *links, uint64_t id, const struct io_addr *addr)
{
	struct link **at = raft_links__place_of(links, id), *link;

	CHECK(id > 0 && !links->closed);
	if (at)
		link_close(*at);
	if (!addr)
		return 0;
	at = raft_links__place_of(links, 0);
	if (!at)
		return ERR_OVERFLOW;
	link = MEM_NEW(struct link);
	link->links = links;
	link->id = id;
	link->addr = *addr;
	raft_stamps_meet(&links->stamps, &link->stamps);
	for (int i = 0; i < LANES; i++) {
		const struct rpc_peer_options options = {
			.addr = *addr, .self = links->options.self, .conns = 1, .transform = links->options.transform};

		link->lanes[i].peer = rpc_peer_new(links->io, &options);
		link->open++;
	}
	*at = link;
	return 0;
}

/* What is known of the member goes on with the new link. */
static void aim(struct raft_links *links, struct link *link, const struct io_addr *addr)
{
	struct link before = *link, **at;

	if (io_addr_equal(&link->addr, addr) || !raft_links__place_of(links, 0))
		return;
	CHECK(raft_links_member(links, before.id, addr) == 0);
	at = raft_links__place_of(links, before.id);
	(*at)->heard_ns = before.heard_ns;
	(*at)->said = before.said;
	(*at)->own = before.own;
	(*at)->stranger = before.stranger;
	(*at)->stamps = before.stamps;
}

static bool is_among(const struct raft_links_place *places, uint32_t count, uint64_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (places[i].id == id)
			return true;
	return false;
}

void raft_links_set(struct raft_links *links, const struct raft_links_place *places, uint32_t count)
{
	for (uint32_t i = 0; i < LINKS_MAX; i++) {
		struct link *link = links->members[i];

		if (link && link->id && link->id != LINK_KNOCK && !link->stranger && !is_among(places, count, link->id))
			link_close(link);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct link **at;

		if (places[i].id == 0 || places[i].addr.family == 0)
			continue;
		if (places[i].id == links->options.id) {
			if (!links->options.own.family)
				raft_place_set(links->place, &places[i].addr);
			continue;
		}
		at = raft_links__place_of(links, places[i].id);
		if (at && !says_itself(links, *at)) {
			(*at)->said = (struct io_addr){0}; /* long ago: the log knows better */
			aim(links, *at, &places[i].addr);
		} else if (!at)
			(void)raft_links_member(links, places[i].id, &places[i].addr); /* no room: it is known when letters come from it */
		at = raft_links__place_of(links, places[i].id);
		if (at)
			(*at)->stranger = false;
	}
}

static void make_room(struct raft_links *links)
{
	struct link *oldest = NULL;

	for (uint32_t i = 0; i < LINKS_MAX; i++) {
		struct link *link = links->members[i];

		if (link && link->id && link->stranger && (!oldest || link->heard_ns < oldest->heard_ns))
			oldest = link;
	}
	if (oldest)
		link_close(oldest);
}

/*
 * Who writes says where it is. One that is no member here may be one all the same: this replica does not know yet, or the other does not. A
 * member may have moved.
 */
static void meet(struct raft_links *links, const struct raft_letter *letter)
{
	struct link **at = raft_links__place_of(links, letter->from);
	struct io_addr addr;

	if (letter->from == LINK_KNOCK || !raft_place_get(letter->place, &addr))
		return;
	if (!at && raft_links_member(links, letter->from, &addr) != 0) {
		make_room(links);
		return;
	}
	if (!at)
		(*raft_links__place_of(links, letter->from))->stranger = true;
	else
		aim(links, *at, &addr);
	(*raft_links__place_of(links, letter->from))->said = addr;
}

/* ---- letters that were taken ---- */

static void answer_held(struct raft_links *links)
{
	for (uint32_t i = 0; i < links->held.count; i++)
		rpc_reply_status(links->held.letters[i], 0);
	links->held.count = 0;
	links->held.bytes = 0;
}

static void on_held_long(struct io_op *op)
{
	struct raft_links *links = CONTAINER_OF(op, struct raft_links, held.timer);

	answer_held(links);
	if (links->closed)
		close_if_empty(links);
}

/*
 * Nobody waits to hear that a letter was taken; it only makes room for further ones. Each answer would wake the sender once more for each entry of
 * the log, so that they go together.
 */
static void answer_later(struct raft_links *links, struct rpc_req *req)
{
	links->held.bytes += ((const Craton__RaftRequest *)req->msg)->letter.len;
	links->held.letters[links->held.count++] = req;
	rpc_req_forget_msg(req);
	if (links->held.count == HELD_LETTERS_MAX || links->held.bytes >= HELD_BYTES_MAX) {
		answer_held(links);
	} else if (!io_pending(&links->held.timer)) {
		io_prep_timer(&links->held.timer, io_now_ns(links->io) + HELD_MS * ms_ns, on_held_long);
		io_submit(links->io, &links->held.timer);
	}
}

void raft_links_close(struct raft_links *links, void (*closed)(void *ctx), void *ctx)
{
	links->replica = NULL;
	links->closed = closed;
	links->closed_ctx = ctx;
	io_cancel(links->io, &links->held.timer); /* it answers what is held */
	for (uint32_t i = 0; i < LINKS_MAX; i++)
		if (links->members[i] && links->members[i]->id)
			link_close(links->members[i]);
	close_if_empty(links);
}

/* ---- out ---- */

/* life: of who it is for; NULL: that is not known, or asks for no stamp. */
static void seal(struct outgoing *out, const uint8_t *life)
{
	struct raft_links *links = out->link->links;

	out->stamp = life ? raft_stamps_next(&links->stamps, life) : (struct raft_stamp){.number = 0};
	out->request.version = life ? RAFT_CODEC_STAMPED : RAFT_CODEC_VERSION;
	out->request.life = (ProtobufCBinaryData){.len = life ? sizeof(out->stamp.life) : 0, .data = out->stamp.life};
	out->request.number = out->stamp.number;
	raft_codec_sign(&links->codec, out->request.from, out->request.to, &out->stamp, slice_of(out->bytes, out->request.letter.len), out->mac);
}

/* What came of a letter says how the next ones are to be stamped. True: this one is on its way again, as is wanted. */
static bool stamped_anew(struct outgoing *out, int status, const Craton__RaftReply *reply)
{
	struct raft_links *links = out->link->links;
	struct link **to = raft_links__place_of(links, out->request.to);
	struct raft_stamp wanted;

	if (status == ERR_VERSION && to)
		(*to)->stamps.lives = false; /* an older build is there now */
	if (status != ERR_AGAIN || !raft_codec_unpack_wanted(&links->codec, &out->request, reply, &wanted))
		return false;
	raft_stamps_told(&links->stamps, to ? &(*to)->stamps : NULL, &wanted);
	if (out->again || links->closed || !out->link->id)
		return false;
	out->again = true;
	seal(out, wanted.life);
	rpc_call_start(out->link->lanes[out->lane].peer, &out->call);
	return true;
}

static void call_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct outgoing *out = CONTAINER_OF(call, struct outgoing, call);
	struct raft_links *links = out->link->links;

	(void)payload_len;
	if (!out->answered && stamped_anew(out, status, (const Craton__RaftReply *)msg))
		return;
	out->link->lanes[out->lane].letters--;
	out->link->lanes[out->lane].bytes -= out->request.letter.len;
	/* An answer came if it has a message, or is no failure of the way. */
	if (status == ERR_VERSION || status == ERR_WRONG_CLUSTER || status == ERR_ACCES || status == ERR_PROTO || (status && msg))
		links->counts.refused++;
	else if (status)
		links->counts.lost++;
	if (out->answered)
		out->answered(out, status, (const Craton__RaftReply *)msg);
	mem_free(out->bytes);
	mem_free(out);
}

/* It has no stamp: whoever asks may not know one yet, and the answer is signed with what the question says. */
static bool is_question(enum raft_letter_kind kind)
{
	return kind == RAFT_LETTER_INVITATION || kind == RAFT_LETTER_FOUNDER;
}

/* NULL: it is lost. */
static struct outgoing *send_over(struct raft_links *links, struct link **at, enum link_lane lane, const struct raft_letter *letter)
{
	struct link **to = raft_links__place_of(links, letter->to);
	struct outgoing *out;
	uint8_t *bytes;
	size_t len;

	if (links->closed || !at || (*at)->lanes[lane].letters >= LINK_LETTERS_MAX ||
		(*at)->lanes[lane].bytes >= LINK_BYTES_MAX || raft_codec_pack(letter, &bytes, &len) != 0) {
		links->counts.lost++;
		return NULL;
	}
	out = MEM_NEW(struct outgoing);
	out->link = *at;
	out->lane = lane;
	out->bytes = bytes;
	craton__raft_request__init(&out->request);
	out->request.cluster = (ProtobufCBinaryData){.len = sizeof(links->codec.cluster.bytes), .data = links->codec.cluster.bytes};
	out->request.from = letter->from;
	out->request.to = letter->to;
	out->request.letter = (ProtobufCBinaryData){.len = len, .data = bytes};
	out->request.mac = (ProtobufCBinaryData){.len = sizeof(out->mac), .data = out->mac};
	seal(out, to && (*to)->stamps.lives && !is_question(letter->kind) ? (*to)->stamps.life : NULL);
	out->call.method = &rpc_metad_raft;
	out->call.request = &out->request.base;
	out->call.deadline_ns = io_now_ns(links->io) + LINK_DEADLINE_MS * ms_ns;
	out->call.done = call_done;
	out->link->lanes[lane].letters++;
	out->link->lanes[lane].bytes += len;
	links->counts.sent++;
	rpc_call_start(out->link->lanes[lane].peer, &out->call);
	return out;
}

struct outgoing *raft_links__send(struct raft_links *links, enum link_lane lane, const struct raft_letter *letter)
{
	return send_over(links, raft_links__place_of(links, letter->to), lane, letter);
}

struct raft_letter *raft_links__letter_new(const struct raft_links *links, enum raft_letter_kind kind, uint64_t to)
{
	struct raft_letter *letter = MEM_NEW(struct raft_letter);

	letter->kind = kind;
	letter->from = links->options.id;
	letter->to = to;
	letter->supports = links->options.supports;
	letter->applied = links->replica ? replica_applied(links->replica) : 0;
	letter->room = links->room;
	letter->digest = links->digest;
	memcpy(letter->place, links->place, RAFT_PLACE_BYTES);
	return letter;
}

void raft_links_send(
	struct raft_links *links, const struct raft_message *message, const struct replica_body *bodies, uint32_t count)
{
	struct raft_letter *letter = raft_links__letter_new(links, RAFT_LETTER_MESSAGE, message->to);

	CHECK(message->from == links->options.id && count <= REPLICA_BODIES_MAX);
	letter->message = *message;
	letter->count = count;
	if (count)
		memcpy(letter->bodies, bodies, count * sizeof(bodies[0]));
	raft_links__send(links, LANE_MESSAGES, letter);
	mem_free(letter);
}

void raft_links_ask(struct raft_links *links, uint64_t to, const struct replica_ask *ask)
{
	struct raft_letter *letter = raft_links__letter_new(links, RAFT_LETTER_ASK, to);

	letter->ask = *ask;
	raft_links__send(links, LANE_SNAPSHOTS, letter);
	mem_free(letter);
}

void raft_links_part(struct raft_links *links, uint64_t to, const struct replica_part *part)
{
	struct raft_letter *letter = raft_links__letter_new(links, RAFT_LETTER_PART, to);

	letter->part = *part;
	raft_links__send(links, LANE_SNAPSHOTS, letter);
	mem_free(letter);
}

void raft_links_knock(struct raft_links *links, const struct io_addr *addr, const uint64_t *ids, uint32_t count)
{
	struct link **at = raft_links__place_of(links, LINK_KNOCK);

	if (at)
		link_close(*at);
	if (!addr || raft_links_member(links, LINK_KNOCK, addr) != 0)
		return;
	for (uint32_t i = 0; i < count; i++) {
		struct raft_letter *letter = raft_links__letter_new(links, RAFT_LETTER_KNOCK, ids[i]);

		send_over(links, raft_links__place_of(links, LINK_KNOCK), LANE_MESSAGES, letter);
		mem_free(letter);
	}
}

/* ---- in ---- */

static void count_refusal(struct raft_links *links, int code)
{
	switch (code) {
	case ERR_VERSION:
		links->counts.wrong_version++;
		break;
	case ERR_WRONG_CLUSTER:
		links->counts.wrong_cluster++;
		break;
	case ERR_ACCES:
		links->counts.wrong_signature++;
		break;
	case ERR_NOENT:
		links->counts.not_here++;
		break;
	case ERR_AGAIN:
		if (links->letter.stamp.number)
			links->counts.replayed++;
		else
			links->counts.unstamped++;
		break;
	default:
		links->counts.malformed++;
		break;
	}
}

/* Before a vote one speaks of the term that would come. */
static bool says_term(const struct raft_letter *l)
{
	return l->kind == RAFT_LETTER_MESSAGE && l->message.type != RAFT_PRE_VOTE && !(l->message.type == RAFT_VOTED && l->message.voted.pre);
}

static void give(struct raft_links *links)
{
	const struct raft_letter *l = &links->letter;
	struct link **at;

	if (!links->replica)
		return;
	meet(links, l);
	links->counts.received++;
	at = raft_links__place_of(links, l->from);
	if (at) {
		(*at)->heard_ns = io_now_ns(links->io);
		(*at)->own.supports = l->supports ? l->supports : STATE_CLUSTER_UNSAID;
		(*at)->own.applied = l->applied;
		(*at)->own.room = l->room;
		if (says_term(l))
			(*at)->own.term = l->message.term;
	}
	if (l->kind == RAFT_LETTER_KNOCK)
		return; /* its place is what it says */
	if ((l->digest.index || l->digest.missed) && links->options.said)
		links->options.said(links->options.ctx, l->from, &l->digest);
	if (l->kind == RAFT_LETTER_MESSAGE)
		replica_receive(links->replica, &l->message, l->bodies, l->count);
	else if (l->kind == RAFT_LETTER_ASK)
		replica_receive_ask(links->replica, l->from, &l->ask);
	else
		replica_receive_part(links->replica, l->from, &l->part);
}

static enum raft_series series_of(enum raft_letter_kind kind)
{
	if (kind == RAFT_LETTER_KNOCK)
		return RAFT_SERIES_KNOCKS;
	return kind == RAFT_LETTER_MESSAGE ? RAFT_SERIES_MESSAGES : RAFT_SERIES_SNAPSHOTS;
}

/* 0; ERR_AGAIN: another stamp is wanted; ERR_VERSION: one of both builds knows no stamps, and may not be in a group with the other any more, or yet. */
static int take_stamp(struct raft_links *links)
{
	const struct raft_letter *l = &links->letter;
	struct link **at = raft_links__place_of(links, l->from);
	uint16_t version = links->options.version ? links->options.version(links->options.ctx) : 0;

	if (links->options.supports < STATE_CLUSTER_STAMPS)
		return l->stamp.number ? ERR_VERSION : 0;
	if (!l->stamp.number && l->supports < STATE_CLUSTER_STAMPS)
		return version < STATE_CLUSTER_STAMPS ? 0 : ERR_VERSION;
	return raft_stamps_take(&links->stamps, at ? &(*at)->stamps : NULL, series_of(l->kind), &l->stamp) ? 0 : ERR_AGAIN;
}

static void say_wanted(struct raft_links *links, struct rpc_req *req)
{
	const Craton__RaftRequest *request = (const Craton__RaftRequest *)req->msg;
	Craton__RaftReply reply = CRATON__RAFT_REPLY__INIT;
	struct link **at = raft_links__place_of(links, request->from);
	struct raft_stamp wanted = raft_stamps_wanted(&links->stamps, at ? &(*at)->stamps : NULL);
	uint8_t mac[HMAC_BYTES];

	raft_codec_sign_wanted(&links->codec, request, &wanted, mac);
	reply.nonce = (ProtobufCBinaryData){.len = sizeof(wanted.life), .data = wanted.life};
	reply.mac = (ProtobufCBinaryData){.len = sizeof(mac), .data = mac};
	reply.taken = wanted.number;
	rpc_reply(req, &(struct rpc_reply){.status = ERR_AGAIN, .msg = &reply.base});
}

void raft_links_handle(struct raft_links *links, struct rpc_req *req)
{
	int rc = raft_codec_unpack(
		&links->codec, (const Craton__RaftRequest *)req->msg, &links->arena, &links->letter);

	if (!rc && links->letter.to != links->options.id)
		rc = ERR_NOENT; /* the address is another's now */
	if (!rc && is_question(links->letter.kind)) {
		raft_links__handle_question(links, req);
		codec_arena_clear(&links->arena);
		return;
	}
	if (!rc)
		rc = take_stamp(links);
	if (rc)
		count_refusal(links, rc);
	else
		give(links);
	codec_arena_clear(&links->arena);
	if (rc == ERR_AGAIN)
		say_wanted(links, req);
	else if (!rc && links->letter.kind == RAFT_LETTER_MESSAGE && !links->closed)
		answer_later(links, req);
	else
		rpc_reply_status(req, rc);
}
