/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/digests.h"

#include <string.h>
#include "common/base/check.h"

void digests_init(struct digests *d, uint64_t since, uint64_t applied)
{
	memset(d, 0, sizeof(*d));
	d->since = since;
	d->begins = applied;
}

static struct digests_mark *place_of(struct digests *d, uint64_t index)
{
	return &d->own[index / DIGEST_ENTRIES % DIGESTS_KEPT];
}

void digests_mark(struct digests *d, uint64_t index, uint32_t crc)
{
	CHECK(index > d->last && index % DIGEST_ENTRIES == 0);
	*place_of(d, index) = (struct digests_mark){.index = index, .crc = crc};
	d->last = index;
}

/* NULL: it is not applied yet, or was too long ago, or this replica had not begun. */
static const struct digests_mark *own_at(struct digests *d, uint64_t index)
{
	const struct digests_mark *own = place_of(d, index);

	return index && own->index == index ? own : NULL;
}

/* Of one that own_at has not. */
static bool is_missed(const struct digests *d, uint64_t index)
{
	return index && (index <= d->begins || index < d->last);
}

const struct digests_member *digests_member(const struct digests *d, uint64_t id)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (d->members[i].id == id)
			return &d->members[i];
	return NULL;
}

/* ---- what was said ---- */

static struct digests_member *member_of(struct digests *d, uint64_t id)
{
	struct digests_member *m = (struct digests_member *)(uintptr_t)digests_member(d, id);

	if (m)
		return m;
	m = (struct digests_member *)(uintptr_t)digests_member(d, 0);
	if (m)
		m->id = id;
	return m; /* NULL: more than there are members have written: they are forgotten with the next step */
}

/*
 * What was said before this replica came there is looked at again with each step. Who differed and has the same now has got the table of one that is
 * right meanwhile.
 */
static void compare(struct digests *d, struct digests_member *m)
{
	const struct digests_mark *own = own_at(d, m->said.index);

	if (!own)
		return;
	if (own->crc != m->said.crc) {
		m->differs = m->differs && m->differs < m->said.index ? m->differs : m->said.index;
		return;
	}
	m->agreed = m->said.index > m->agreed ? m->said.index : m->agreed;
	m->differs = m->said.index >= m->differs ? 0 : m->differs;
}

/* A follower answers one question, then takes the next: it may be long before it comes there. */
static void take_question(struct digests *d, uint64_t leader, const struct digests_mark *said)
{
	bool is_new = d->leader != leader || d->round.index <= d->last || is_missed(d, d->round.index);

	if (said->index == d->round.index && said->crc == d->round.crc && d->leader == leader)
		d->round.settled = said->settled;
	else if (is_new)
		d->round = *said;
	d->leader = leader;
}

/* What was known of a table that has made way for another's is void, a difference too. */
static void take_since(struct digests_member *m, uint64_t since)
{
	m->since = since;
	m->agreed = m->agreed < since ? 0 : m->agreed;
	m->differs = m->differs <= since && since ? 0 : m->differs;
	if (m->said.index <= since)
		m->said = (struct digests_mark){.index = 0};
}

void digests_hear(struct digests *d, uint64_t from, uint64_t leader, const struct digests_mark *said)
{
	struct digests_member *m = member_of(d, from);

	if (!m || said->index % DIGEST_ENTRIES)
		return;
	take_since(m, said->since);
	m->missed = said->missed;
	if (!said->index)
		return;
	m->said = *said;
	compare(d, m);
	if (from == leader)
		take_question(d, leader, said);
}

/* ---- what follows ---- */

static const struct raft_member *in(const struct raft_config *config, uint64_t id)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (config->members[i].id == id)
			return &config->members[i];
	return NULL;
}

/* Whoever is no member any more leaves its place. */
static void look_again(struct digests *d, const struct raft_config *config)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++) {
		struct digests_member *m = &d->members[i];

		if (m->id && !in(config, m->id))
			*m = (struct digests_member){.id = 0};
		else if (m->id)
			compare(d, m);
	}
}

static uint32_t majority(const struct raft_config *config)
{
	uint32_t voters = 0;

	for (uint32_t i = 0; i < config->count; i++)
		voters += config->members[i].voter;
	return voters / 2 + 1;
}

static bool votes(const struct raft_config *config, uint64_t id)
{
	const struct raft_member *member = in(config, id);

	return member && member->voter;
}

static bool agrees(const struct digests_member *m, uint64_t index)
{
	return m && m->agreed >= index && !m->differs;
}

/*
 * Voters that have the same as this one, which is one of them, after entry `index`, and are witnesses against a member that had it after `same`, at
 * least: it had the same as they, when their tables were their own already.
 */
static uint32_t count_agreed(const struct digests *d, const struct raft_config *config, uint64_t id, uint64_t index, uint64_t same)
{
	uint32_t count = votes(config, id) && d->since <= same;

	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		count += agrees(&d->members[i], index) && d->members[i].since <= same && votes(config, d->members[i].id);
	return count;
}

/* Whoever votes has the same, or enough others have who are witnesses against it, whatever it will say. */
static bool is_settled(const struct digests *d, const struct raft_config *config, uint64_t id)
{
	uint64_t index = d->round.index;

	for (uint32_t i = 0; i < config->count; i++) {
		const struct raft_member *voter = &config->members[i];
		const struct digests_member *m = digests_member(d, voter->id);

		if (!voter->voter || voter->id == id || agrees(m, index))
			continue;
		if (count_agreed(d, config, id, index, m ? m->agreed : 0) < majority(config))
			return false;
	}
	return index != 0;
}

/* Voters that said this, and are witnesses against the replica here. */
static uint32_t count_as(const struct digests *d, const struct raft_config *config, const struct digests_mark *said)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++) {
		const struct digests_member *m = &d->members[i];

		count += m->said.index == said->index && m->said.crc == said->crc && m->since <= m->agreed && votes(config, m->id);
	}
	return count;
}

static bool all_agree(const struct digests *d, const struct raft_config *config, uint64_t id)
{
	for (uint32_t i = 0; i < config->count; i++) {
		const struct digests_member *m = digests_member(d, config->members[i].id);

		if (config->members[i].id != id && (!m || (m->agreed < d->round.index && m->missed < d->round.index)))
			return false;
	}
	return true;
}

bool digests_doubts(const struct digests *d, const struct raft_config *config)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (d->members[i].differs > d->agreed && votes(config, d->members[i].id))
			return true;
	return false;
}

bool digests_owes(const struct digests *d, uint64_t id)
{
	const struct digests_member *m = digests_member(d, id);

	return d->round.index && (!m || (!m->agreed && !m->missed));
}

/* There is a doubt, and who may decide it has not come to this mark yet. */
static bool awaits(const struct digests *d, const struct raft_config *config)
{
	if (!digests_doubts(d, config))
		return false;
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++) {
		const struct digests_member *m = &d->members[i];

		if (m->said.index < d->round.index && m->missed < d->round.index && votes(config, m->id))
			return true;
	}
	return false;
}

/* The next round begins when all have answered this one, or not for long; but what others have said must be compared with what is still to come. */
static void lead(struct digests *d, const struct raft_config *config, uint64_t id, uint64_t term, uint64_t now_ms)
{
	bool is_new = d->leader != id || d->term != term;
	bool is_over = d->last > d->round.index && (all_agree(d, config, id) || (now_ms >= d->until_ms && !awaits(d, config)));

	if (d->last && (is_new || is_over)) {
		d->round = *own_at(d, d->last);
		d->until_ms = now_ms + DIGESTS_ROUND_MS;
	} else if (is_new) {
		d->round = (struct digests_mark){.index = 0};
	}
	d->leader = id;
	d->term = term;
	d->round.settled = is_settled(d, config, id); /* anew each time: who votes may have changed */
}

/* Most of the others have one and the same, and here it is another one. */
static uint64_t outvoted(struct digests *d, const struct raft_config *config)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++) {
		const struct digests_member *m = &d->members[i];
		const struct digests_mark *own = own_at(d, m->said.index);

		if (own && own->crc != m->said.crc && count_as(d, config, &m->said) >= majority(config))
			return m->differs;
	}
	return 0;
}

enum digests_verdict digests_step(struct digests *d, const struct raft_config *config, uint64_t id, uint64_t leader, uint64_t term,
	uint64_t now_ms, struct digests_mark *ret_say, uint64_t *ret_at)
{
	const struct digests_mark *own;
	uint64_t at;

	look_again(d, config);
	*ret_say = (struct digests_mark){.index = 0};
	if (leader == id)
		lead(d, config, id, term, now_ms);
	ret_say->since = d->since;
	own = own_at(d, d->round.index);
	if (!own) {
		ret_say->missed = is_missed(d, d->round.index) ? d->round.index : 0;
		return DIGESTS_FINE;
	}
	ret_say->index = own->index;
	ret_say->crc = own->crc;
	ret_say->settled = leader == id && d->round.settled;
	at = outvoted(d, config);
	if (!at && d->round.settled && own->crc != d->round.crc)
		at = own->index;
	if (at) {
		*ret_at = at;
		return DIGESTS_DIFFER;
	}
	if (d->round.settled && own->index > d->agreed)
		d->agreed = own->index;
	if (d->round.settled && own->index >= d->since)
		d->since = 0;
	return DIGESTS_FINE;
}
