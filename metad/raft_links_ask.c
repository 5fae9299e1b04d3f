/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions: letters that are answered. Neither side need have heard of the other: who answers signs the challenge of the question with what it says.
 */
#include "metad/raft_links_private.h"

#include <string.h>
#include "common/base/mem.h"
#include "metad/state/cmd.h"

/* NULL: not now. nonce: of an invitation; NULL: not known yet. */
static struct outgoing *ask(struct raft_links *links, uint64_t id, enum raft_letter_kind kind, const uint8_t *nonce, void *ctx)
{
	struct raft_letter *letter = raft_links__letter_new(links, kind, id);
	struct outgoing *out;

	io_random(links->io, letter->challenge, sizeof(letter->challenge));
	if (nonce)
		memcpy(letter->nonce, nonce, sizeof(letter->nonce));
	out = raft_links__send(links, LANE_MESSAGES, letter);
	if (out) {
		out->ctx = ctx;
		out->again = nonce != NULL;
		memcpy(out->challenge, letter->challenge, sizeof(out->challenge));
	}
	mem_free(letter);
	return out;
}

/* ---- invitations ---- */

static bool is_signed(const struct outgoing *out, int status, const Craton__RaftReply *reply)
{
	struct raft_links *links = out->link->links;
	struct raft_letter *letter;
	uint8_t mac[HMAC_BYTES], differs = 0;

	if (!reply || reply->nonce.len != RAFT_NONCE_BYTES || reply->mac.len != sizeof(mac) || reply->supports > UINT16_MAX)
		return false;
	letter = raft_links__letter_new(links, RAFT_LETTER_INVITATION, out->request.to);
	memcpy(letter->challenge, out->challenge, sizeof(letter->challenge));
	raft_codec_sign_answer(&links->codec, letter, status, reply->nonce.data, (uint16_t)reply->supports, mac);
	mem_free(letter);
	for (size_t i = 0; i < sizeof(mac); i++)
		differs |= mac[i] ^ reply->mac.data[i];
	return !differs;
}

static bool invite(struct raft_links *links, uint64_t id, const uint8_t *nonce, raft_links_invited_fn *done, void *ctx);

static void on_invitation_done(struct outgoing *out, int status, const Craton__RaftReply *reply)
{
	struct raft_links *links = out->link->links;

	if ((status == 0 || (status == ERR_AGAIN && reply)) && !is_signed(out, status, reply))
		status = ERR_ACCES;
	if (status == ERR_AGAIN && reply && !out->again && !links->closed && out->link->id &&
		invite(links, out->request.to, reply->nonce.data, out->invited, out->ctx))
		return;
	out->invited(out->ctx, status, status ? 0 : reply->supports ? (uint16_t)reply->supports : STATE_CLUSTER_UNSAID);
}

static bool invite(struct raft_links *links, uint64_t id, const uint8_t *nonce, raft_links_invited_fn *done, void *ctx)
{
	struct outgoing *out = ask(links, id, RAFT_LETTER_INVITATION, nonce, ctx);

	if (out) {
		out->answered = on_invitation_done;
		out->invited = done;
	}
	return out != NULL;
}

int raft_links_invite(struct raft_links *links, const struct raft_links_place *place, raft_links_invited_fn *done, void *ctx)
{
	struct link **at = raft_links__place_of(links, place->id);

	if (!(at && io_addr_equal(&(*at)->addr, &place->addr)) && raft_links_member(links, place->id, &place->addr) != 0)
		return ERR_OVERFLOW;
	(*raft_links__place_of(links, place->id))->stranger = true;
	return invite(links, place->id, NULL, done, ctx) ? 0 : ERR_OVERFLOW;
}

/* Who knows this start's nonce has asked for it since: the letter is no recorded one. */
static void handle_invitation(struct raft_links *links, struct rpc_req *req)
{
	Craton__RaftReply reply = CRATON__RAFT_REPLY__INIT;
	uint8_t *nonce = links->stamps.life;
	bool now = memcmp(links->letter.nonce, nonce, RAFT_NONCE_BYTES) == 0;
	int rc = links->options.invited ? links->options.invited(links->options.ctx, now) : ERR_EXIST;
	uint16_t supports = links->letter.supports ? links->options.supports : 0; /* who does not say it himself would not take the answer */
	uint8_t mac[HMAC_BYTES];

	if (rc) {
		rpc_reply_status(req, rc);
		return;
	}
	rc = now ? 0 : ERR_AGAIN;
	raft_codec_sign_answer(&links->codec, &links->letter, rc, nonce, supports, mac);
	reply.supports = supports;
	reply.nonce = (ProtobufCBinaryData){.len = RAFT_NONCE_BYTES, .data = nonce};
	reply.mac = (ProtobufCBinaryData){.len = sizeof(mac), .data = mac};
	rpc_reply(req, &(struct rpc_reply){.status = rc, .msg = &reply.base});
}

/* ---- founders ---- */

static void on_founder_said(struct outgoing *out, int status, const Craton__RaftReply *reply)
{
	struct founders_said said = {.heard = false};

	if (!status && !raft_codec_unpack_founder(&out->link->links->codec, out->request.from, out->request.to, out->challenge, reply, &said))
		status = ERR_ACCES;
	out->founder(out->ctx, out->request.to, status, &said);
}

int raft_links_ask_founder(struct raft_links *links, uint64_t id, raft_links_founder_fn *done, void *ctx)
{
	struct outgoing *out = ask(links, id, RAFT_LETTER_FOUNDER, NULL, ctx);

	if (!out)
		return ERR_OVERFLOW;
	out->answered = on_founder_said;
	out->founder = done;
	return 0;
}

static void handle_founder(struct raft_links *links, struct rpc_req *req)
{
	Craton__RaftReply reply = CRATON__RAFT_REPLY__INIT;
	struct founders_said said = {.heard = false};
	uint8_t mac[HMAC_BYTES];

	if (links->options.founder)
		links->options.founder(links->options.ctx, &said);
	if (!said.heard) {
		rpc_reply_status(req, ERR_NOENT);
		return;
	}
	raft_codec_pack_founder(&links->codec, &links->letter, &said, mac, &reply);
	rpc_reply(req, &(struct rpc_reply){.msg = &reply.base});
}

void raft_links__handle_question(struct raft_links *links, struct rpc_req *req)
{
	if (links->letter.kind == RAFT_LETTER_FOUNDER)
		handle_founder(links, req);
	else
		handle_invitation(links, req);
}
