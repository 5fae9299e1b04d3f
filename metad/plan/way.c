/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/plan/way.h"

#define SECOND_NS (1000ull * 1000 * 1000)

static bool log_is_slow(struct plan_way *way, const struct plan_way_sample *s)
{
	uint64_t mean_ns;

	if (!s->entries)
		return false;
	mean_ns = s->entries_ns / s->entries;
	way->least_ns += way->least_ns / PLAN_WAY_FORGET;
	if (!way->least_ns || mean_ns < way->least_ns)
		way->least_ns = mean_ns;
	return mean_ns >= PLAN_WAY_LOG_NS && mean_ns / PLAN_WAY_LOG_FACTOR >= way->least_ns;
}

bool plan_way_step(struct plan_way *way, uint64_t now_ns, const struct plan_way_sample *s)
{
	bool is_short = log_is_slow(way, s) | (s->waited_ns >= s->took_ns / PLAN_WAY_WAITED);

	way->has_work = s->took_ns && s->requests * SECOND_NS >= PLAN_WAY_REQUESTS * s->took_ns;
	if (!way->has_work)
		way->until_ns = 0;
	else if (is_short && now_ns >= way->until_ns)
		way->until_ns = now_ns + PLAN_WAY_ASK_NS;
	return now_ns < way->until_ns;
}
