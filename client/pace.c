/* SPDX-License-Identifier: Apache-2.0 */
/* pace: see the header. What one client sees decides for itself at once; what others say only until it has seen for itself. */
#include "client/pace.h"

uint64_t pace_race_end(struct pace_race *r, uint64_t took_ns)
{
	uint64_t peers_ns = pace_race_peers(r);
	uint8_t at = r->ended;

	if (peers_ns == 0 && r->entered > 2 && (!r->ended || took_ns <= r->took_ns[r->ended - 1] * PACE_FACTOR))
		peers_ns = took_ns;
	if (r->ended == r->entered || r->ended == LIMIT_WIDTH)
		return peers_ns;
	/* They end in about this order already. */
	for (; at > 0 && r->took_ns[at - 1] > took_ns; at--)
		r->took_ns[at] = r->took_ns[at - 1];
	r->took_ns[at] = took_ns;
	r->ended++;
	return peers_ns;
}

uint64_t pace_race_median(const struct pace_race *r)
{
	uint8_t middle = r->entered ? (uint8_t)((r->entered - 1) / 2) : 0;

	/* Of one alone there is no median: it has no peers. */
	return r->entered > 1 && r->ended > middle ? r->took_ns[middle] : 0;
}

uint64_t pace_race_peers(const struct pace_race *r)
{
	uint8_t middle = r->entered > 1 ? (uint8_t)((r->entered - 2) / 2) : 0;

	return r->entered > 1 && r->ended > middle ? r->took_ns[middle] : 0;
}

bool pace_is_slow(uint64_t took_ns, uint64_t median_ns)
{
	return median_ns && took_ns > PACE_NOISE_NS && took_ns > median_ns * PACE_FACTOR;
}

void pace_note(struct pace *p, uint64_t took_ns, uint64_t median_ns)
{
	if (took_ns > PACE_NOISE_NS && median_ns == 0)
		return;
	if (pace_is_slow(took_ns, median_ns)) {
		p->well_in_row = 0;
		p->slow_in_row += p->slow_in_row < UINT16_MAX;
		p->slow_sum_ns += took_ns;
		if (p->slow_in_row >= PACE_REQUESTS || (p->slow_in_row >= PACE_LEAST && p->slow_sum_ns >= PACE_LONG_NS))
			p->slow = true;
		return;
	}
	p->slow_in_row = 0;
	p->slow_sum_ns = 0;
	p->well_in_row += p->well_in_row < UINT16_MAX;
	if (p->well_in_row >= PACE_WELL) {
		p->slow = false;
		p->hint_until_ns = 0;
	}
}

bool pace_avoided(const struct pace *p, uint64_t now_ns)
{
	return p->slow || p->hint_until_ns > now_ns;
}

bool pace_probe(struct pace *p, uint64_t now_ns)
{
	if (++p->spared < PACE_PROBE_EVERY && now_ns - p->probed_ns < PACE_PROBE_NS)
		return false;
	p->spared = 0;
	p->probed_ns = now_ns;
	return true;
}
