/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/repair_set.h"

/* The lowest `count` bits of `bits`; data chunks come first, which need no decoding among themselves. */
static uint16_t lowest(uint16_t bits, uint8_t count)
{
	uint16_t out = 0;

	for (uint8_t i = 0; i < 16 && count; i++)
		if (bits & 1u << i) {
			out |= (uint16_t)(1u << i);
			count--;
		}
	return count ? 0 : out;
}

uint16_t repair_set_next(struct repair_sets *s)
{
	uint16_t others = s->available & (uint16_t)~s->first;

	s->now = 0;
	if (!s->first) {
		s->now = lowest(s->available, s->needed);
		return s->now;
	}
	/* A member of the first set that has turned out bad since is out of all sets: the rest of it was never wrong. */
	if ((s->first & s->available) != s->first) {
		s->first = 0;
		return repair_set_next(s);
	}
	for (; s->spare < 16; s->spare++, s->tried = 0)
		while (others & 1u << s->spare && s->tried < 16) {
			uint16_t bit = (uint16_t)(1u << s->tried++);

			if (!(s->first & bit))
				continue;
			s->now = (uint16_t)((s->first & ~bit) | 1u << s->spare);
			return s->now;
		}
	return 0;
}

void repair_set_bad(struct repair_sets *s, uint8_t index)
{
	s->available &= (uint16_t) ~(1u << index);
}

void repair_set_mismatch(struct repair_sets *s)
{
	if (!s->first) {
		s->first = s->now;
		s->spare = s->tried = 0;
	}
}

uint16_t repair_set_liars(const struct repair_sets *s)
{
	uint16_t useless = s->available & (uint16_t)~s->first & (uint16_t)((1u << s->spare) - 1);

	return s->first ? (uint16_t)((s->first & ~s->now) | useless) : 0;
}
