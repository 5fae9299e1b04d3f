/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/repeats.h"

uint64_t repeats_key(uint64_t key, struct slice part)
{
	key = key ? key : 14695981039346656037u; /* FNV-1a: a log line at stake, no more */
	for (size_t i = 0; i < part.len; i++)
		key = (key ^ part.data[i]) * 1099511628211u;
	return key ? key : 1;
}

bool repeats_say(struct repeats *r, uint64_t whose, uint64_t key, uint64_t now_ms, uint64_t *ret_count)
{
	struct repeat *at = &r->all[0];

	for (int i = 0; i < REPEATS && at->key != key; i++)
		if (r->all[i].key == key || r->all[i].heard_ms < at->heard_ms)
			at = &r->all[i];
	if (at->key != key)
		*at = (struct repeat){.key = key, .whose = whose};
	at->heard_ms = now_ms + 1; /* a free place was heard at 0 */
	at->count++;
	if (at->next_ms && now_ms < at->next_ms)
		return false;
	*ret_count = at->count;
	at->count = 0;
	at->next_ms = now_ms + REPEATS_AGAIN_MS;
	return true;
}

void repeats_forget(struct repeats *r, uint64_t whose)
{
	for (int i = 0; i < REPEATS; i++)
		if (r->all[i].key && r->all[i].whose == whose)
			r->all[i] = (struct repeat){0};
}
