/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raft_links: letters between the replicas of a group, over common/rpc: what a replica sends goes to the address of its member, what comes is
 * checked and given to the replica.
 *
 * A letter may be lost, like any of a network: nothing is sent twice here, but for one that is refused for its stamp (raft_stamps.h) and leaves again,
 * once, with the one that is wanted; so what somebody recorded is refused, and what begins a conversation is not lost. One that finds LINK_LETTERS_MAX or LINK_BYTES_MAX on their
 * way to the same member is dropped and counted, as is one that is not taken within LINK_DEADLINE_MS. Snapshots travel over a connection of
 * their own, so that no heartbeat waits behind them. That letters were taken is said for some of them together, or a moment later.
 *
 * Builds of before STATE_CLUSTER_STAMPS know no stamps. Theirs are taken without, until the rows say that there is no such build in the group any more.
 *
 * Where a member is, the log says, and its own letters, under their signature: what they say last counts, as long as they come. Who is heard by nobody
 * knocks at the places that the configuration names (raft_links_knock), whose order says nothing: who is there takes a letter only under his own number.
 *
 * One thread: that of the loop. Nothing is called back from inside raft_links_send, _ask and _part.
 */
#ifndef METAD_RAFT_LINKS_H
#define METAD_RAFT_LINKS_H

#include "common/rpc/rpc.h"
#include "metad/raft_codec.h"

enum {
	LINK_LETTERS_MAX = 128, /* on their way to one member, of each kind of connection */
	LINK_BYTES_MAX = 4 << 20,
	LINK_DEADLINE_MS = 3000,
	LINKS_MAX = 2 * RAFT_MEMBERS_MAX + 2, /* members whose address is known, a knock, and those that are being closed */
	LINK_HEARD_MS = 3000, /* so long what a member's letters said counts: where it is, more than what the log says; what its build supports */
};

struct raft_links_options {
	struct rpc_identity self; /* of a metad; its cluster is the letters' */
	uint64_t id;              /* of the replica here */
	const uint8_t *secret;    /* of the cluster, AUTH_SECRET_BYTES; borrowed for the call */
	const struct rpc_transform *transform;
	struct io_addr own; /* where this replica is, as its configuration says; family 0: as the log says */
	uint16_t supports;  /* the greatest cluster version that this build supports */
	/* A member that leads invites this replica, which nobody is attached to yet: 0, or why it does not come. Not `now`: would it? */
	int (*invited)(void *ctx, bool now);
	/* NULL, or a founder asks: what this replica says of the founding; left as it is: it does not know yet. */
	void (*founder)(void *ctx, struct founders_said *ret_said);
	/* NULL, or a letter came that says the digest of its sender's rows. */
	void (*said)(void *ctx, uint64_t from, const struct digests_mark *digest);
	/* NULL, or the cluster version of the rows here; 0: there are none. */
	uint16_t (*version)(void *ctx);
	void *ctx;
};

struct raft_links_counts {
	uint64_t sent, lost;    /* lost: no address, too many, or not taken in time */
	uint64_t refused;       /* sent, and refused by who got them */
	uint64_t received;      /* given to the replica */
	uint64_t wrong_version, wrong_cluster, wrong_signature, malformed, not_here; /* not given to it */
	/*
	 * Likewise, for their stamps. unstamped: had none; an honest sender stamps it then. replayed: taken before, of another life, or overtaken: few,
	 * by honest members, when one has started or connections break; many: somebody sends what was recorded.
	 */
	uint64_t unstamped, replayed;
};

struct raft_links;
struct raft_links *raft_links_new(struct io *io, const struct raft_links_options *options);
/* All that is on its way ends, and requests that are held are answered; then `closed`, not from inside. */
void raft_links_close(struct raft_links *links, void (*closed)(void *ctx), void *ctx);

/* Who gets what comes. NULL: nobody, it is dropped. */
void raft_links_attach(struct raft_links *links, struct replica *replica);
/* Where a member is; NULL: nowhere any more. ERR_OVERFLOW: too many. */
int raft_links_member(struct raft_links *links, uint64_t id, const struct io_addr *addr);
/*
 * The members are these, and no others, wherever they were; `id` 0 and families 0 are left out, as is this replica, whose own place its letters
 * say from now on. Who writes without belonging to them is answered at the place that his letters say, as long as there is room.
 */
struct raft_links_place {
	uint64_t id;
	struct io_addr addr;
};
void raft_links_set(struct raft_links *links, const struct raft_links_place *places, uint32_t count);
/*
 * Asks who is to become member `id` for its nonce, and with that, whether it would: an invitation that was recorded lets in nobody who has started since.
 * `done` once, not from inside: 0: and it supports this cluster version at most; ERR_NOENT: another replica, or none, is there; ERR_EXIST:
 * it has a log already; ERR_ACCES: the answer is not of who has the secret; else as of a call. ERR_OVERFLOW: not now, and `done` does not come.
 */
typedef void raft_links_invited_fn(void *ctx, int status, uint16_t supports);
int raft_links_invite(struct raft_links *links, const struct raft_links_place *place, raft_links_invited_fn *done, void *ctx);

/*
 * Asks a member, whose address is known, what it says of the founding. `done` once, not from inside: 0; ERR_PROTO: its build does not know the question;
 * ERR_ACCES: the answer is not of who has the secret; else as of a call. ERR_OVERFLOW: not now, and `done` does not come.
 */
typedef void raft_links_founder_fn(void *ctx, uint64_t id, int status, const struct founders_said *said);
int raft_links_ask_founder(struct raft_links *links, uint64_t id, raft_links_founder_fn *done, void *ctx);

/* Says to each of these, at a place where one of them may be, where this replica is. What came of the last knock is not waited for. NULL: no more of it. */
void raft_links_knock(struct raft_links *links, const struct io_addr *addr, const uint64_t *ids, uint32_t count);
/* Where the member says itself that it is; false: it has said nothing. */
bool raft_links_said(const struct raft_links *links, uint64_t id, struct io_addr *ret_addr);

/* What the member's last letters said of itself. */
struct raft_links_own {
	uint16_t supports; /* the greatest cluster version of its build */
	uint64_t term;     /* 0: not said yet */
	uint64_t applied;  /* likewise */
	enum raft_room room;
};
/* Zeros: none has come of late. */
struct raft_links_own raft_links_own(const struct raft_links *links, uint64_t id);
/* What letters say from now on of the rows here; index and missed 0: nothing. */
void raft_links_say(struct raft_links *links, const struct digests_mark *digest);
void raft_links_say_room(struct raft_links *links, enum raft_room room);
/* When the last letter of the member came (of io_now_ns); 0: none has. */
uint64_t raft_links_heard_ns(const struct raft_links *links, uint64_t id);

/* For replica_options. */
void raft_links_send(
	struct raft_links *links, const struct raft_message *message, const struct replica_body *bodies, uint32_t count);
void raft_links_ask(struct raft_links *links, uint64_t to, const struct replica_ask *ask);
void raft_links_part(struct raft_links *links, uint64_t to, const struct replica_part *part);

/* The handler of rpc_metad_raft: answers at once, but that a message was taken 20 ms later at most. */
void raft_links_handle(struct raft_links *links, struct rpc_req *req);

const struct raft_links_counts *raft_links_counts(const struct raft_links *links);

#endif
