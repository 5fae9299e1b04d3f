/* SPDX-License-Identifier: Apache-2.0 */
/* A state of explore: a small world and the letters in it; and its name: a hash that is equal for worlds that differ in the names of replicas. */
#ifndef TESTS_RAFT_EXPLORE_STATE_H
#define TESTS_RAFT_EXPLORE_STATE_H

#include "tests/raft/world_private.h"

#ifndef WORLD_SMALL
#error "explore is built with WORLD_SMALL and small bounds of raft"
#endif

enum { STATE_LETTERS = 48, STATE_NAMINGS = 6, LETTER_BYTES = 8 };

typedef unsigned __int128 state_hash;

/* A vote, a probe, or what answers them, flat and without holes. */
union state_letter {
	struct {
		uint8_t type, from, to, term;
		uint8_t last_index, last_term, forced; /* of a vote */
		uint8_t seq;                           /* of a read */
	};
	uint64_t word;
};
_Static_assert(sizeof(union state_letter) == LETTER_BYTES, "a letter has no holes");

/* What the leader of a term has ever been able to send: any part of this log, with any commit index up to this one. */
struct state_offer {
	bool open;
	uint64_t commit, applied;
	struct world_log log;
};

struct state {
	struct world world;
	uint8_t crashes[WORLD_NODES], changes, transfers, reads, compactions;
	uint32_t letter_count;
	union state_letter letters[STATE_LETTERS];
	struct state_offer offers[WORLD_TERMS];  /* by term */
	uint8_t acked[WORLD_TERMS][WORLD_NODES]; /* up to where, by the term's follower */
	/* Of what names nobody; and of the rest by naming, where it was asked for (a bit each). */
	state_hash plain_hash[WORLD_NODES], node_hash[WORLD_NODES][STATE_NAMINGS];
	uint8_t node_known[WORLD_NODES];
};

/* Keeps what was sent; a second time is as once. */
void state_post(struct state *s, const struct raft_message *m);
void state_letter_unpack(const union state_letter *letter, struct raft_message *ret_m);
/* After a step of the node: what it offers; and what will be ignored for ever is forgotten. */
void state_settle(struct state *s, uint32_t node);
/* What a snapshot of this index holds. */
void state_snapshot(const struct world *w, uint64_t index, struct raft_message *ret_m);

/* After the node has changed. */
void state_rehash_node(struct state *s, uint32_t node);
state_hash state_name(struct state *s, bool with_snapshots);

#endif
