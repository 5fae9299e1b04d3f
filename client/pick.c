/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pick: see DESIGN of writing and reading in ARCHITECTURE.md.
 *
 * Writing. Wanted are all chunks. A chunk whose server fails goes to any spare that keeps at most m chunks in a domain, since a block
 * with all its chunks, two of them in one domain, bears more than one that lacks a chunk. A merely late one goes only to a spare in a
 * domain not used yet: otherwise waiting costs time, but moving would cost safety. Without such a spare the block goes on without
 * it, if all others are there; without several only long past due, and never below k' + ceil(m / 2). A chunk that was left is finished
 * after the commit; still only a small share of all chunks may be left. One on a disk that is known to be slow is nobody's surprise:
 * it is left at once.
 *
 * A block is exposed if it could be committed, but what is sealed could not be read without some one domain, which may have several
 * chunks of it. Then no late chunk is left, and one that has not moved for long goes to a used domain, too, if all others are there: a
 * block with all its chunks bears the loss of any domain, as none has more than m. A probe is left all the same.
 */
#include "client/pick.h"

#include <string.h>
#include "common/base/check.h"

uint64_t pick_median_ns(uint64_t *took_ns, size_t count)
{
	for (size_t i = 1; i < count; i++)
		for (size_t j = i; j > 0 && took_ns[j - 1] > took_ns[j]; j--) {
			uint64_t t = took_ns[j];

			took_ns[j] = took_ns[j - 1];
			took_ns[j - 1] = t;
		}
	return count ? took_ns[count / 2] : 0;
}

uint64_t pick_late_after_ns(uint64_t median_ns, uint64_t least_ns)
{
	if (median_ns == 0)
		return PICK_LATE_MIN_NS * PICK_LONG_FACTOR;
	return median_ns * PICK_LATE_FACTOR > least_ns ? median_ns * PICK_LATE_FACTOR : least_ns;
}

bool pick_may_hedge(uint64_t bytes, uint64_t bytes_hedged, uint64_t bytes_read)
{
	return bytes_hedged + bytes <= PICK_HEDGE_FREE_BYTES + bytes_read / 100 * PICK_HEDGE_PERCENT;
}

uint8_t pick_fewest(uint8_t k_data, uint8_t m)
{
	return (uint8_t)(k_data + (m + 1) / 2);
}

static bool counts(uint8_t state)
{
	return state == PICK_SENDING || state == PICK_SEALED || state == PICK_LEFT;
}

int pick_spare(const struct pick_block *b, uint8_t index, bool fresh_domain)
{
	int best = -1;
	uint32_t best_rank = UINT32_MAX;

	if (fresh_domain && b->spares_suspect)
		return -1;
	for (int s = 0; s < b->spare_count; s++) {
		uint32_t in_domain = 0, on_disk = 0, rank;

		for (uint8_t i = 0; i < b->chunk_count; i++) {
			if (i == index || !counts(b->state[i]))
				continue;
			in_domain += b->place[i].domain == b->spare[s].domain;
			on_disk += b->place[i].disk == b->spare[s].disk;
		}
		if (in_domain + 1 > b->m || (fresh_domain && in_domain > 0))
			continue;
		rank = in_domain * LIMIT_WIDTH + on_disk;
		if (rank < best_rank) {
			best_rank = rank;
			best = s;
		}
	}
	return best;
}

struct tally {
	uint8_t sealed, sending, left, left_probes;
	bool exposed;
	uint64_t late_after_ns;
};

static bool bears_loss_of_domain(const struct pick_block *b, uint8_t sealed)
{
	for (uint8_t i = 0; i < b->chunk_count; i++) {
		uint8_t in_domain = 0;

		for (uint8_t j = 0; j < b->chunk_count; j++)
			in_domain += b->state[j] == PICK_SEALED && b->place[j].domain == b->place[i].domain;
		if (sealed - in_domain < b->k_data)
			return false;
	}
	return true;
}

static struct tally count_up(const struct pick_block *b)
{
	struct tally t = {0};
	uint64_t took[LIMIT_WIDTH];

	for (uint8_t i = 0; i < b->chunk_count; i++) {
		if (b->state[i] == PICK_SEALED)
			took[t.sealed++] = b->age_ns[i];
		t.sending += b->state[i] == PICK_SENDING;
		t.left += b->state[i] == PICK_LEFT;
		t.left_probes += b->state[i] == PICK_LEFT && b->pace[i] == PICK_PACE_PROBE;
	}
	t.exposed = t.sealed >= pick_fewest(b->k_data, b->m) && !bears_loss_of_domain(b, t.sealed);
	t.late_after_ns = pick_late_after_ns(pick_median_ns(took, t.sealed), PICK_LATE_MIN_NS);
	return t;
}

static bool replace_failed(const struct pick_block *b, struct pick_result *r)
{
	for (uint8_t i = 0; i < b->chunk_count; i++) {
		int spare = b->state[i] == PICK_FAILED ? pick_spare(b, i, false) : -1;

		if (spare >= 0) {
			*r = (struct pick_result){.action = PICK_REPLACE, .index = i, .spare = (uint8_t)spare};
			return true;
		}
	}
	return false;
}

/* After how long chunk i is left, if nothing happens until then; UINT64_MAX: never. */
static uint64_t leave_after_ns(const struct pick_block *b, const struct tally *t, uint8_t i)
{
	bool all_others = t->sealed + 1 >= b->k_data + b->m;

	if (t->sealed < pick_fewest(b->k_data, b->m))
		return UINT64_MAX;
	if (t->exposed && b->pace[i] != PICK_PACE_PROBE)
		return UINT64_MAX;
	if (b->pace[i] != PICK_PACE_WELL && all_others)
		return 0;
	if ((b->chunks_left + 1) * 100 > b->chunks_total * PICK_LEFT_PERCENT)
		return UINT64_MAX;
	return all_others ? t->late_after_ns : t->late_after_ns * PICK_LONG_FACTOR;
}

/* After how long chunk i goes to a spare; UINT64_MAX: there is none for it. */
static uint64_t replace_after_ns(const struct pick_block *b, const struct tally *t, uint8_t i, int *ret_spare)
{
	bool all_others = t->sealed + t->sending + t->left == b->k_data + b->m;
	uint64_t moved_ns = b->age_ns[i] - b->still_ns[i];

	*ret_spare = t->sealed > 0 && b->pace[i] != PICK_PACE_PROBE ? pick_spare(b, i, true) : -1;
	if (*ret_spare >= 0)
		return b->pace[i] == PICK_PACE_SLOW ? 0 : t->late_after_ns;
	if (!t->exposed || !all_others || b->pace[i] == PICK_PACE_PROBE || b->spares_suspect)
		return UINT64_MAX;
	*ret_spare = pick_spare(b, i, false);
	return *ret_spare < 0 ? UINT64_MAX : moved_ns + t->late_after_ns * PICK_LONG_FACTOR;
}

/* Something to do about a late chunk, or how long to wait until there is. */
static void about_late(const struct pick_block *b, const struct tally *t, struct pick_result *r)
{
	*r = (struct pick_result){.action = PICK_WAIT, .wait_ns = t->late_after_ns * PICK_LONG_FACTOR};
	for (uint8_t i = 0; i < b->chunk_count; i++) {
		uint64_t age = b->age_ns[i], replace_ns, leave_ns, due;
		int spare;

		if (b->state[i] != PICK_SENDING)
			continue;
		replace_ns = replace_after_ns(b, t, i, &spare);
		leave_ns = leave_after_ns(b, t, i);
		if (age >= replace_ns) {
			*r = (struct pick_result){.action = PICK_REPLACE, .index = i, .spare = (uint8_t)spare};
			return;
		}
		if (age >= leave_ns && spare < 0) {
			*r = (struct pick_result){.action = PICK_LEAVE, .index = i};
			return;
		}
		due = spare >= 0 ? replace_ns : leave_ns;
		if (due - age < r->wait_ns)
			r->wait_ns = due - age;
	}
}

void pick_write(const struct pick_block *b, struct pick_result *ret_result)
{
	struct tally t = count_up(b);
	uint8_t fewest = pick_fewest(b->k_data, b->m);

	*ret_result = (struct pick_result){.action = PICK_COMMIT};
	if (t.sealed == b->k_data + b->m)
		return;
	if (replace_failed(b, ret_result))
		return;
	if (t.sealed + t.sending + t.left < fewest)
		ret_result->action = PICK_REALLOCATE;
	else if (t.sending > 0)
		about_late(b, &t, ret_result);
	else if (t.sealed < fewest || (t.exposed && t.left > t.left_probes)) /* another one failed since: what was left is needed after all */
		*ret_result = (struct pick_result){.action = PICK_WAIT, .wait_ns = t.late_after_ns};
	else if (t.exposed)
		ret_result->action = PICK_EXPOSED;
}

bool pick_row(uint8_t k, uint8_t m, const uint8_t unit[LIMIT_WIDTH], uint32_t needed, uint32_t avoid, uint32_t *ret_ask,
	uint32_t *ret_rebuild)
{
	uint32_t ask = 0, rebuild = 0, have = 0;
	uint8_t width = (uint8_t)(k + m);

	for (uint8_t i = 0; i < width; i++) {
		bool wanted = needed & 1u << i;

		if (wanted &&
			(unit[i] == PICK_UNIT_BAD || unit[i] == PICK_UNIT_LATE ||
				(unit[i] == PICK_UNIT_NONE && avoid & 1u << i)))
			rebuild |= 1u << i;
		else if (wanted && unit[i] == PICK_UNIT_NONE)
			ask |= 1u << i;
		have += unit[i] == PICK_UNIT_GOOD || unit[i] == PICK_UNIT_PENDING || ask & 1u << i;
	}
	/* Data chunks come first in order, then parity; those to be avoided only when the others do not suffice. */
	for (int pass = 0; rebuild && pass < 2; pass++)
		for (uint8_t i = 0; i < width && have < k; i++) {
			bool avoided = avoid & 1u << i;

			if (unit[i] != PICK_UNIT_NONE || ask & 1u << i || avoided != (pass == 1))
				continue;
			ask |= 1u << i;
			rebuild &= ~(1u << i);
			have++;
		}
	/* Late ones may still come: better than nothing. */
	if (rebuild && have < k) {
		for (uint8_t i = 0; i < width; i++) {
			have += unit[i] == PICK_UNIT_LATE;
			if (unit[i] == PICK_UNIT_LATE)
				rebuild &= ~(1u << i);
		}
		if (have < k)
			return false;
	}
	*ret_ask = ask;
	*ret_rebuild = rebuild;
	return true;
}
