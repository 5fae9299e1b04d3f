/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: chunks are placed one after the other, each on a disk of the domain that holds the fewest chunks of this block
 * so far; among such disks on one that holds the fewest; among those by chance, weighted by free space. That one rule
 * gives distinct domains where there are enough, the flattest crowding where there are not, and spares in unused
 * domains first. A domain that holds m is full: when only full ones are left, there is no placement, which happens
 * exactly if (number of domains) * m < k + m.
 *
 * Disks to be avoided are left out; only when the rest cannot hold the block they are let in too: crowding is healed
 * later, a chunk that a failing disk swallows has to be sent twice.
 *
 * Cost: (k + 2m) passes over the disks, each looking at the at most k + 2m choices made before. With many disks that is
 * too much for each block of a request; then disks are drawn by chance first, which nearly always hits one in an unused
 * domain, and which, where it hits, chooses with the same chances as a pass.
 */
#include "common/code/place.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/err.h"

enum {
	PLACE_CHOICES = LIMIT_WIDTH + LIMIT_M,
	PLACE_NONE = -1,
	PLACE_MANY = 64,  /* disks: from here on a pass costs more than some draws */
	PLACE_ROOM_STEPS = 256, /* of 2^50 bytes less than one is left to be said, at any policy */
	PLACE_DRAWS = 64, /* misses in a row: most disks are full, of used domains, or far below the largest one's weight */
};

/* What was chosen so far: indices into the candidates. */
struct place_state {
	const struct place_disk *disks;
	size_t count;
	size_t chosen[PLACE_CHOICES];
	struct place_spot spots[PLACE_CHOICES]; /* of those */
	size_t chosen_count;
	bool use_avoided;
	uint64_t most_weight; /* of any disk */
};

static bool place_able(const struct place_state *s, const struct place_disk *d)
{
	return d->free_bytes > 0 && (s->use_avoided || !d->avoid);
}

/* Smaller is better: chunks in the domain, then chunks on the disk. */
static uint32_t place_rank(const struct place_state *s, const struct place_disk *d)
{
	uint32_t in_domain = 0, on_disk = 0;

	for (size_t i = 0; i < s->chosen_count; i++) {
		const struct place_spot *c = &s->spots[i];

		in_domain += c->domain == d->domain;
		on_disk += c->disk == d->disk;
	}
	return in_domain << 8 | on_disk;
}

/* Free space in MiB, so that the sum of any number of disks fits; never 0. */
static uint64_t place_weight(const struct place_disk *d)
{
	return (d->free_bytes >> 20) + 1;
}

static void place_weigh(struct place_state *s)
{
	s->most_weight = 1;
	for (size_t i = 0; i < s->count; i++)
		if (place_weight(&s->disks[i]) > s->most_weight)
			s->most_weight = place_weight(&s->disks[i]);
}

/*
 * A disk in an unused domain: any disk, taken with a chance of its weight in the greatest one. PLACE_NONE: not found,
 * which does not say that there is none.
 */
static int64_t place_draw(const struct place_state *s, struct rng *rng)
{
	for (int n = 0; n < PLACE_DRAWS; n++) {
		size_t i = (size_t)rng_below(rng, s->count);
		const struct place_disk *d = &s->disks[i];

		if (place_able(s, d) && place_rank(s, d) == 0 && rng_below(rng, s->most_weight) < place_weight(d))
			return (int64_t)i;
	}
	return PLACE_NONE;
}

/* Index of the next disk, or PLACE_NONE if every domain holds m. */
static int64_t place_pick(const struct place_state *s, uint8_t m, struct rng *rng)
{
	int64_t pick = s->count >= PLACE_MANY ? place_draw(s, rng) : PLACE_NONE;
	uint32_t best = UINT32_MAX;
	uint64_t total = 0;

	if (pick != PLACE_NONE)
		return pick;
	for (size_t i = 0; i < s->count; i++) {
		const struct place_disk *d = &s->disks[i];
		uint32_t rank;

		if (!place_able(s, d))
			continue;
		rank = place_rank(s, d);
		if (rank >> 8 >= m || rank > best)
			continue;
		if (rank < best) {
			best = rank;
			total = 0;
		}
		/* Reservoir sampling: each candidate of the best rank ends up picked with its share of the weight. */
		total += place_weight(d);
		if (rng_below(rng, total) < place_weight(d))
			pick = (int64_t)i;
	}
	return pick;
}

static bool place_fill(struct place_state *s, size_t want, uint8_t m, struct rng *rng)
{
	while (s->chosen_count < want) {
		int64_t pick = place_pick(s, m, rng);

		if (pick == PLACE_NONE)
			return false;
		s->spots[s->chosen_count] = (struct place_spot){s->disks[pick].disk, s->disks[pick].domain};
		s->chosen[s->chosen_count++] = (size_t)pick;
	}
	return true;
}

/* Domains that have an able disk, counted only as far as `enough`. */
static uint32_t place_count_domains(const struct place_state *s, uint32_t enough)
{
	uint32_t seen[LIMIT_WIDTH];
	uint32_t n = 0;

	CHECK(enough <= LIMIT_WIDTH);
	for (size_t i = 0; i < s->count && n < enough; i++) {
		bool known = false;

		if (!place_able(s, &s->disks[i]))
			continue;
		for (uint32_t j = 0; j < n && !known; j++)
			known = seen[j] == s->disks[i].domain;
		if (!known)
			seen[n++] = s->disks[i].domain;
	}
	return n;
}

/* The order in which disks were picked says something about their weight; the index of a chunk should not. */
static void place_shuffle(size_t *chosen, size_t count, struct rng *rng)
{
	for (size_t i = count; i > 1; i--) {
		size_t j = (size_t)rng_below(rng, i), tmp = chosen[i - 1];

		chosen[i - 1] = chosen[j];
		chosen[j] = tmp;
	}
}

int place_choose(const struct place_disk *disks, size_t count, uint8_t k, uint8_t m, struct rng *rng,
	struct place_result *ret_result)
{
	uint32_t width = (uint32_t)k + m, needed = (width + m - 1) / m;
	uint32_t domains[LIMIT_WIDTH], most;
	struct place_state s = {.disks = disks, .count = count};
	struct place_result r = {0};

	CHECK(k >= 1 && m >= 1 && m <= LIMIT_M && width <= LIMIT_WIDTH);
	place_weigh(&s);
	if (place_count_domains(&s, needed) < needed) {
		s.use_avoided = true;
		r.missing_domains = needed - place_count_domains(&s, needed);
		if (r.missing_domains) {
			*ret_result = r;
			return ERR_NO_PLACEMENT;
		}
	}
	CHECK(place_fill(&s, width, m, rng));
	place_shuffle(s.chosen, width, rng);
	for (uint32_t i = 0; i < width; i++) {
		r.disks[i] = disks[s.chosen[i]].disk;
		domains[i] = disks[s.chosen[i]].domain;
	}
	r.crowded = place_is_crowded(domains, width, &most);

	place_fill(&s, width + m, m, rng);
	r.spare_count = (uint8_t)(s.chosen_count - width);
	for (uint8_t i = 0; i < r.spare_count; i++)
		r.spares[i] = disks[s.chosen[width + i]].disk;
	*ret_result = r;
	return 0;
}

int place_next(const struct place_disk *disks, size_t count, const struct place_spot held[], size_t held_count,
	uint8_t m, struct rng *rng, uint32_t *ret_disk, uint32_t *ret_in_domain)
{
	struct place_state s = {.disks = disks, .count = count, .chosen_count = held_count};
	int64_t pick;

	CHECK(held_count <= LIMIT_WIDTH);
	memcpy(s.spots, held, held_count * sizeof(held[0]));
	place_weigh(&s);
	pick = place_pick(&s, m, rng);
	if (pick == PLACE_NONE)
		return ERR_NO_PLACEMENT;
	*ret_disk = disks[pick].disk;
	*ret_in_domain = place_rank(&s, &disks[pick]) >> 8;
	return 0;
}

bool place_is_crowded(const uint32_t domains[], size_t count, uint32_t *ret_max)
{
	uint32_t most = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t same = 0;

		for (size_t j = 0; j < count; j++)
			same += domains[j] == domains[i];
		if (same > most)
			most = same;
	}
	*ret_max = most;
	return most > 1;
}

/*
 * With blocks of `each` bytes a chunk in all, a domain gives m * each at most. From above: what they give for one `each` bounds the next one,
 * until nothing changes. Too few domains get nowhere: their share shrinks by a constant factor each time.
 */
uint64_t place_room(const uint64_t domain_bytes[], size_t count, uint8_t k, uint8_t m)
{
	uint32_t width = (uint32_t)k + m;
	uint64_t each = UINT64_MAX / width / LIMIT_DISKS / m, sum;
	uint32_t with_room = 0;

	for (size_t i = 0; i < count; i++)
		with_room += domain_bytes[i] > 0;
	if (with_room * m < width)
		return 0;
	for (int n = 0; n < PLACE_ROOM_STEPS; n++) {
		sum = 0;
		for (size_t i = 0; i < count; i++)
			sum += domain_bytes[i] < m * each ? domain_bytes[i] : m * each;
		if (sum / width >= each)
			break;
		each = sum / width;
	}
	return each * k;
}
