/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeats: what is to be logged once though it happens again and again: when it is new, and then once in REPEATS_AGAIN_MS with how often it was.
 * What was not heard for REPEATS_QUIET_MS is over: it is forgotten when its place is needed. When all places are taken by what goes on, what is new
 * has none: all of that is counted together, and said likewise. So what is said is bounded, however many there are. Pure.
 */
#ifndef METAD_REPEATS_H
#define METAD_REPEATS_H

#include <stdint.h>
#include "common/base/slice.h"

enum {
	REPEATS = 256,
	REPEATS_AGAIN_MS = 10 * 60 * 1000,
	REPEATS_QUIET_MS = 2 * 60 * 1000, /* several times what a chunk server waits that was refused */
};

struct repeat {
	uint64_t key, whose; /* key 0: none */
	uint64_t heard_ms, next_ms; /* when it is said again; 0: it was not said yet */
	uint64_t count;
};

struct repeats {
	struct repeat all[REPEATS], others;
};

enum repeats_news { REPEATS_NO_NEWS, REPEATS_NEWS, REPEATS_NEWS_OF_OTHERS };

/* Never 0. Of what makes it the same: begin with 0, go on with what was returned. */
uint64_t repeats_key(uint64_t key, struct slice part);
/*
 * Is it to be said? NEWS: it was heard *ret_count times (1: it is new) since it was said last. NEWS_OF_OTHERS: so often was heard what has no place
 * of its own. `now_ms` never goes back.
 */
enum repeats_news repeats_say(struct repeats *r, uint64_t whose, uint64_t key, uint64_t now_ms, uint64_t *ret_count);
/* All is well with him: whatever comes next is new. */
void repeats_forget(struct repeats *r, uint64_t whose);

#endif
