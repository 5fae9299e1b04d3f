/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/rumour: copies that somebody found wrong or could not read, until their own server has read them again. Pure; all of it is
 * lost at a restart: who reads again finds them again.
 *
 *     told --order to read it--> its server's answer:
 *         what the proof says             forgotten; in dispute if the reader had read something else
 *         something else, or nothing      DAMAGED
 *         cannot be read now              if others suffice to make it anew: asked again RUMOUR_UNREAD_MS later, then DAMAGED
 *         busy                            the order comes again
 *
 * A copy that cannot be read may lie on a disk that is gone for a while, which no write has noticed, and that comes back whole: marks made
 * at once would count good copies as lost, block by block.
 */
#ifndef METAD_PLAN_RUMOUR_H
#define METAD_PLAN_RUMOUR_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RUMOURS = 256,                   /* that wait for their server; further ones come again */
	RUMOUR_LIFE_MS = 10 * 60 * 1000, /* of one whose server does not answer */
	RUMOUR_UNREAD_MS = 60 * 1000,    /* longer than a disk is away that is reset, or whose path is changed */
};

struct rumour {
	uint64_t block; /* 0: none */
	uint32_t disk, incarnation;
	uint8_t index;
	int status;         /* the reader's */
	uint64_t time_ms;   /* state time, as all here */
	uint64_t unread_ms; /* since when its server cannot read it; 0: it has not said so */
};

struct rumours {
	struct rumour all[RUMOURS];
};

struct rumour *rumour_find(struct rumours *r, uint64_t block, uint8_t index, uint32_t incarnation);
/* True: it is new, and kept. One that is known is not told twice; only that somebody has read wrong bytes is news. */
bool rumour_add(struct rumours *r, const struct rumour *rumour, uint64_t now_ms);
/* Its server should be told to read it (again). */
bool rumour_is_due(const struct rumour *r, uint64_t now_ms);

enum rumour_verdict {
	RUMOUR_WAITS,    /* nothing is known yet */
	RUMOUR_ENDS,     /* nothing is wrong, or nothing can be said */
	RUMOUR_DISPUTED, /* its server finds nothing wrong with what a reader found wrong */
	RUMOUR_DAMAGED,
};
/* Its server has read the copy with this result. But for RUMOUR_WAITS the rumour is gone. */
enum rumour_verdict rumour_answer(struct rumour *r, int status, bool others_suffice, uint64_t now_ms);

#endif
