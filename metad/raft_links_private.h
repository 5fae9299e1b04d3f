/* SPDX-License-Identifier: Apache-2.0 */
/* raft_links_private: what raft_links.c (letters) and raft_links_ask.c (questions that are answered) share. */
#ifndef METAD_RAFT_LINKS_PRIVATE_H
#define METAD_RAFT_LINKS_PRIVATE_H

#include "metad/raft_links.h"

enum link_lane { LANE_MESSAGES, LANE_SNAPSHOTS, LANES };
enum { HELD_LETTERS_MAX = 16 };
#define LINK_KNOCK UINT64_MAX /* no member's number */

/* To one member. */
struct link {
	struct raft_links *links;
	uint64_t id; /* 0: it is being closed */
	uint64_t heard_ns;
	struct io_addr addr;
	struct io_addr said; /* by its letters; family 0: nothing */
	struct raft_links_own own; /* likewise, by the last ones; zeros: none has come */
	bool stranger; /* no member, as far as is known here: it said itself where it is */
	struct raft_stamps_other stamps;
	struct {
		struct rpc_peer *peer;
		uint32_t letters;
		uint64_t bytes;
	} lanes[LANES];
	uint32_t open; /* peers that are not closed */
};

struct raft_links {
	struct io *io;
	struct raft_links_options options;
	struct raft_codec codec;
	struct replica *replica;
	uint8_t place[RAFT_PLACE_BYTES]; /* of this one */
	struct raft_stamps stamps; /* likewise; its life is the nonce that invitations must have */
	struct digests_mark digest; /* likewise; index 0: letters say nothing of it */
	enum raft_room room;        /* likewise */
	struct link *members[LINKS_MAX];
	struct codec_arena arena;
	struct raft_letter letter; /* the one that came */
	struct raft_links_counts counts;
	struct {
		struct rpc_req *letters[HELD_LETTERS_MAX];
		uint32_t count;
		size_t bytes;
		struct io_op timer;
	} held; /* taken, and not said yet that they are */
	void (*closed)(void *ctx);
	void *closed_ctx;
	struct io_post post;
};

/* A letter on its way. */
struct outgoing {
	struct rpc_call call;
	struct link *link;
	enum link_lane lane;
	Craton__RaftRequest request;
	struct raft_stamp stamp;
	uint8_t mac[HMAC_BYTES];
	uint8_t *bytes;
	/* Of a question: what is made of its answer; NULL: it is none. */
	void (*answered)(struct outgoing *out, int status, const Craton__RaftReply *reply);
	raft_links_invited_fn *invited; /* whom to tell: one of these */
	raft_links_founder_fn *founder;
	void *ctx;
	uint8_t challenge[RAFT_NONCE_BYTES];
	bool again; /* with the nonce, or the stamp, that was wanted */
};

/* Where a member's link is, or one that is free (id 0). NULL: none. */
struct link **raft_links__place_of(struct raft_links *links, uint64_t id);
/* The caller's, with what this replica says of itself. */
struct raft_letter *raft_links__letter_new(const struct raft_links *links, enum raft_letter_kind kind, uint64_t to);
/* NULL: it is lost. */
struct outgoing *raft_links__send(struct raft_links *links, enum link_lane lane, const struct raft_letter *letter);
/* Of the letter that came. */
void raft_links__handle_question(struct raft_links *links, struct rpc_req *req);

#endif
