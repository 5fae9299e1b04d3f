/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/raft_stamps.h"

#include <string.h>

static uint64_t greater(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void raft_stamps_init(struct raft_stamps *s, const uint8_t life[RAFT_LIFE_BYTES])
{
	*s = (struct raft_stamps){.number = 0};
	memcpy(s->life, life, RAFT_LIFE_BYTES);
}

void raft_stamps_meet(const struct raft_stamps *s, struct raft_stamps_other *ret_other)
{
	*ret_other = (struct raft_stamps_other){.lives = false};
	for (int i = 0; i < RAFT_SERIES; i++)
		ret_other->taken[i] = s->floor;
}

static uint64_t greatest(const struct raft_stamps *s, const struct raft_stamps_other *other)
{
	uint64_t taken = s->floor;

	for (int i = 0; other && i < RAFT_SERIES; i++)
		taken = greater(taken, other->taken[i]);
	return taken;
}

void raft_stamps_part(struct raft_stamps *s, const struct raft_stamps_other *other)
{
	s->floor = greatest(s, other);
}

struct raft_stamp raft_stamps_next(struct raft_stamps *s, const uint8_t life[RAFT_LIFE_BYTES])
{
	struct raft_stamp stamp = {.number = ++s->number};

	memcpy(stamp.life, life, RAFT_LIFE_BYTES);
	return stamp;
}

void raft_stamps_told(struct raft_stamps *s, struct raft_stamps_other *other, const struct raft_stamp *wanted)
{
	s->number = greater(s->number, wanted->number);
	if (!other)
		return;
	memcpy(other->life, wanted->life, RAFT_LIFE_BYTES);
	other->lives = true;
}

bool raft_stamps_take(
	struct raft_stamps *s, struct raft_stamps_other *other, enum raft_series series, const struct raft_stamp *stamp)
{
	uint64_t *taken = other ? &other->taken[series] : &s->floor;

	if (memcmp(stamp->life, s->life, RAFT_LIFE_BYTES) != 0 || stamp->number <= *taken)
		return false;
	*taken = stamp->number;
	return true;
}

struct raft_stamp raft_stamps_wanted(const struct raft_stamps *s, const struct raft_stamps_other *other)
{
	struct raft_stamp wanted = {.number = greatest(s, other)};

	memcpy(wanted.life, s->life, RAFT_LIFE_BYTES);
	return wanted;
}
