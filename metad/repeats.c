/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/repeats.h"

uint64_t repeats_key(uint64_t key, struct slice part)
{
	key = key ? key : 14695981039346656037u; /* FNV-1a: a log line at stake, no more */
	for (size_t i = 0; i < part.len; i++)
		key = (key ^ part.data[i]) * 1099511628211u;
	return key ? key : 1;
}

/* Its place, or a new one; NULL: there is none. */
static struct repeat *place_of(struct repeats *r, uint64_t whose, uint64_t key, uint64_t now_ms)
{
	struct repeat *quietest = &r->all[0];

	for (int i = 0; i < REPEATS; i++) {
		if (r->all[i].key == key)
			return &r->all[i];
		if (r->all[i].heard_ms < quietest->heard_ms)
			quietest = &r->all[i];
	}
	if (quietest->key && now_ms - quietest->heard_ms < REPEATS_QUIET_MS)
		return NULL;
	*quietest = (struct repeat){.key = key, .whose = whose};
	return quietest;
}

enum repeats_news repeats_say(struct repeats *r, uint64_t whose, uint64_t key, uint64_t now_ms, uint64_t *ret_count)
{
	struct repeat *at = place_of(r, whose, key, ++now_ms); /* a free place was heard at 0 */
	enum repeats_news news = at ? REPEATS_NEWS : REPEATS_NEWS_OF_OTHERS;

	if (!at)
		at = &r->others;
	at->heard_ms = now_ms;
	at->count++;
	if (at->next_ms && now_ms < at->next_ms)
		return REPEATS_NO_NEWS;
	*ret_count = at->count;
	at->count = 0;
	at->next_ms = now_ms + REPEATS_AGAIN_MS;
	return news;
}

void repeats_forget(struct repeats *r, uint64_t whose)
{
	for (int i = 0; i < REPEATS; i++)
		if (r->all[i].key && r->all[i].whose == whose)
			r->all[i] = (struct repeat){0};
}
