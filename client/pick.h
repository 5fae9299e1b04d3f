/* SPDX-License-Identifier: Apache-2.0 */
/* pick: the decisions of the write and read paths. Pure: facts in, one decision out. */
#ifndef CLIENT_PICK_H
#define CLIENT_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/limits.h"

#define PICK_LATE_MIN_NS (100ull * 1000 * 1000)
#define PICK_HEDGE_MIN_NS (10ull * 1000 * 1000)
#define PICK_HEDGE_FREE_BYTES (8ull << 20) /* before the share of hedged bytes is looked at */
enum {
	PICK_LATE_FACTOR = 4,     /* late: past this many times the peers' median */
	PICK_LONG_FACTOR = 10,  /* past this many times the time after which it is late it is waited for no longer, if that is safe */
	PICK_LEFT_PERCENT = 5,  /* of all chunks of a client */
	PICK_HEDGE_PERCENT = 10,  /* of all bytes read */
};

/* In any order; changed. 0 if there are none. */
uint64_t pick_median_ns(uint64_t *took_ns, size_t count);
/* The time past which a request is late, at least least_ns, from what the others took; median 0: nothing to compare with yet. */
uint64_t pick_late_after_ns(uint64_t median_ns, uint64_t least_ns);
/* May so many more bytes be read only to be sooner? */
bool pick_may_hedge(uint64_t bytes, uint64_t bytes_hedged, uint64_t bytes_read);

/* ---- writing: what to do about a block all of whose bytes are on their way ---- */

enum pick_chunk_state {
	PICK_ABSENT,   /* the block is too short to have it */
	PICK_SENDING,
	PICK_SEALED,
	PICK_FAILED,   /* its server failed or refused, or its disk is avoided */
	PICK_LEFT,     /* not waited for any more; it may still come */
};

enum pick_pace {
	PICK_PACE_WELL,
	PICK_PACE_SLOW,  /* its disk was found slow meanwhile */
	PICK_PACE_PROBE, /* its disk is known to be slow, and got the chunk to see whether it still is */
};

struct pick_place {
	uint32_t disk, domain;
};

struct pick_block {
	uint8_t k_data, m;         /* k' */
	uint8_t chunk_count;       /* k + m */
	uint8_t spare_count;
	uint8_t state[LIMIT_WIDTH];
	struct pick_place place[LIMIT_WIDTH];
	struct pick_place spare[LIMIT_M]; /* usable ones only */
	bool spares_suspect;              /* their servers do not answer: for chunks that failed, not for late ones */
	uint64_t age_ns[LIMIT_WIDTH];     /* SENDING: since its last byte was given away; SEALED: how long that took */
	uint64_t still_ns[LIMIT_WIDTH];   /* SENDING: since something of it was acknowledged; at most age_ns */
	uint8_t pace[LIMIT_WIDTH];        /* enum pick_pace */
	uint64_t chunks_total, chunks_left; /* of the client; left for lateness alone */
};

enum pick_action {
	PICK_WAIT,       /* at most wait_ns, if nothing happens meanwhile */
	PICK_COMMIT,
	PICK_EXPOSED,    /* it may be committed, but the loss of one domain would make it unreadable: what was set aside is tried first */
	PICK_REPLACE,    /* send chunk `index` to spare[`spare`] */
	PICK_LEAVE,      /* go on without chunk `index`, which is late; it may be added after the commit */
	PICK_REALLOCATE, /* too few can be stored under this allocation: ask for another one and send everything again */
};

struct pick_result {
	enum pick_action action;
	uint8_t index, spare;
	uint64_t wait_ns;
};

/* Fewest receipts with which a block may be committed: k' + ceil(m / 2). */
uint8_t pick_fewest(uint8_t k_data, uint8_t m);
void pick_write(const struct pick_block *b, struct pick_result *ret_result);
/* A spare for chunk `index`, -1 if there is none. With `fresh_domain`, only in a domain that no other chunk uses. */
int pick_spare(const struct pick_block *b, uint8_t index, bool fresh_domain);

/* ---- reading ---- */

enum pick_unit {
	PICK_UNIT_NONE,    /* not asked for, could be */
	PICK_UNIT_PENDING,
	PICK_UNIT_GOOD,    /* here and right, or zeros past the chunk's end */
	PICK_UNIT_BAD,     /* cannot be had from this chunk */
	PICK_UNIT_LATE,    /* pending, but not to be waited for */
};

/*
 * One row of units (unit r of each chunk). `needed` is a bit set of data chunks. `avoid` is a bit set of chunks to be asked last. Sets
 * the chunks to ask in addition (*ret_ask) and those to be rebuilt once k are good (*ret_rebuild). False: fewer than k can be had.
 */
bool pick_row(uint8_t k, uint8_t m, const uint8_t unit[LIMIT_WIDTH], uint32_t needed, uint32_t avoid, uint32_t *ret_ask,
              uint32_t *ret_rebuild);

#endif
