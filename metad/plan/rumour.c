/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/plan/rumour.h"

#include <stddef.h>
#include "common/base/err.h"

struct rumour *rumour_find(struct rumours *r, uint64_t block, uint8_t index, uint32_t incarnation)
{
	for (size_t i = 0; i < RUMOURS; i++)
		if (r->all[i].block == block && r->all[i].index == index && r->all[i].incarnation == incarnation)
			return &r->all[i];
	return NULL;
}

bool rumour_add(struct rumours *r, const struct rumour *rumour, uint64_t now_ms)
{
	struct rumour *known = rumour_find(r, rumour->block, rumour->index, rumour->incarnation), *at = NULL;

	if (known) {
		if (rumour->status == ERR_CORRUPT)
			known->status = ERR_CORRUPT;
		return false;
	}
	for (size_t i = 0; i < RUMOURS; i++) {
		if (!r->all[i].block || now_ms >= r->all[i].time_ms + RUMOUR_LIFE_MS) {
			at = &r->all[i];
			break;
		}
		if (r->all[i].unread_ms && rumour->status != ERR_IO)
			at = &r->all[i]; /* a whole disk that is gone must not take all places */
	}
	if (!at)
		return false;
	*at = *rumour;
	at->time_ms = now_ms;
	at->unread_ms = 0;
	return true;
}

bool rumour_is_due(const struct rumour *r, uint64_t now_ms)
{
	return r->block && (!r->unread_ms || now_ms >= r->unread_ms + RUMOUR_UNREAD_MS);
}

static enum rumour_verdict judge(struct rumour *r, int status, bool others_suffice, uint64_t now_ms)
{
	switch (status) {
	case ERR_AGAIN:
	case ERR_OVERLOADED:
	case ERR_STOPPED:
		return RUMOUR_WAITS;
	case 0: /* what could not be read is read now: that is no contradiction */
		return r->status == ERR_CORRUPT ? RUMOUR_DISPUTED : RUMOUR_ENDS;
	case ERR_CORRUPT:
	case ERR_TRAILER_CORRUPT:
	case ERR_NOENT:
		return RUMOUR_DAMAGED;
	case ERR_IO:
		if (!others_suffice)
			return RUMOUR_ENDS; /* its disk may come back with the last that there is */
		if (!r->unread_ms)
			r->unread_ms = now_ms;
		return rumour_is_due(r, now_ms) ? RUMOUR_DAMAGED : RUMOUR_WAITS;
	default:
		return RUMOUR_ENDS; /* a disk that has failed is told by its own state, and what lies on it may be whole */
	}
}

enum rumour_verdict rumour_answer(struct rumour *r, int status, bool others_suffice, uint64_t now_ms)
{
	enum rumour_verdict verdict = judge(r, status, others_suffice, now_ms);

	if (verdict != RUMOUR_WAITS)
		*r = (struct rumour){0};
	return verdict;
}
