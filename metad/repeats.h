/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeats: what is to be logged once though it happens again and again: when it is new, and then once in REPEATS_AGAIN_MS with how often it was.
 * Of more than REPEATS kinds the one that was quiet longest is forgotten, and is new when it comes again. Pure.
 */
#ifndef METAD_REPEATS_H
#define METAD_REPEATS_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/slice.h"

enum { REPEATS = 64, REPEATS_AGAIN_MS = 10 * 60 * 1000 };

struct repeat {
	uint64_t key, whose; /* key 0: none */
	uint64_t heard_ms, next_ms; /* when it is said again; 0: it was not said yet */
	uint64_t count;
};

struct repeats {
	struct repeat all[REPEATS];
};

/* Never 0. Of what makes it the same: begin with 0, go on with what was returned. */
uint64_t repeats_key(uint64_t key, struct slice part);
/* True: say it; it was heard *ret_count times (1: it is new) since it was said last. `now_ms` never goes back. */
bool repeats_say(struct repeats *r, uint64_t whose, uint64_t key, uint64_t now_ms, uint64_t *ret_count);
/* All is well with him: whatever comes next is new. */
void repeats_forget(struct repeats *r, uint64_t whose);

#endif
