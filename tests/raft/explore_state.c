/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/raft/explore_state.h"

#include <string.h>
#include "common/base/check.h"

/* A field that is added must be added to the hash, or be argued away (explore.h, 6). */
_Static_assert(sizeof(struct raft_peer) == 208 && sizeof(struct raft_core) == 1152, "see plain() and named()"); /* no place is ever said there, and `gone` only counts */

/* ---- hashing ---- */

static uint64_t mum(uint64_t a, uint64_t b)
{
	unsigned __int128 r = (unsigned __int128)a * b;

	return (uint64_t)r ^ (uint64_t)(r >> 64);
}

/* `len` is a multiple of 16. */
static state_hash hash_of(const uint8_t *buf, uint32_t len, uint64_t seed)
{
	uint64_t a = seed ^ 0xa0761d6478bd642fu, b = seed ^ 0xe7037ed1a0b428dbu, x, y;

	for (uint32_t i = 0; i < len; i += 16) {
		memcpy(&x, buf + i, 8);
		memcpy(&y, buf + i + 8, 8);
		a = mum(x ^ a ^ 0x8ebc6af09c88c6e3u, y ^ 0x589965cc75374cc3u) + i;
		b = mum(x ^ 0x1d8e4e27c47d124fu, y ^ b ^ 0xeb44accab455d165u) ^ a;
	}
	return (state_hash)mum(a ^ 0x9e3779b97f4a7c15u, b) << 64 | mum(b ^ 0xc2b2ae3d27d4eb4fu, a + len);
}

/* The six ways to name three replicas; [0] is never asked for a name. */
static const uint8_t namings[STATE_NAMINGS][4] = {
	{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 3, 2, 1}};

struct bytes {
	uint8_t at[320];
	uint32_t len;
};

static void put(struct bytes *b, uint64_t value)
{
	CHECK(value < 256);
	b->at[b->len++] = (uint8_t)value;
}

static state_hash hash_bytes(struct bytes *b, uint64_t seed)
{
	CHECK(b->len + 16 <= sizeof(b->at));
	while (b->len % 16)
		b->at[b->len++] = 0xff;
	return hash_of(b->at, b->len, seed);
}

static void put_config(struct bytes *b, const struct raft_config *config, const uint8_t *names)
{
	uint32_t members = 0, voters = 0;

	for (uint32_t i = 0; i < config->count; i++) {
		members |= 1u << names[config->members[i].id];
		voters |= (uint32_t)config->members[i].voter << names[config->members[i].id];
	}
	put(b, config->index);
	put(b, members << 4 | voters);
	put(b, config->last_id);
}

static uint8_t entry_pack(const struct world_entry *e)
{
	CHECK(e->term < 8 && e->config < 8 && e->value < 4);
	return (uint8_t)(e->term << 5 | e->config << 2 | e->value);
}

/* ---- letters ---- */

void state_letter_unpack(const union state_letter *l, struct raft_message *m)
{
	memset(m, 0, sizeof(*m));
	m->type = l->type;
	m->from = l->from;
	m->to = l->to;
	m->term = l->term;
	if (m->type == RAFT_VOTE) {
		m->vote.last_index = l->last_index;
		m->vote.last_term = l->last_term;
		m->vote.forced = l->forced;
	} else if (m->type == RAFT_VOTED) {
		m->voted.granted = true;
	} else if (m->type == RAFT_READ_PROBE || m->type == RAFT_READ_ACK) {
		m->read.seq = l->seq;
	}
}

static state_hash letter_hash(const union state_letter *l, const uint8_t *names)
{
	union {
		union state_letter letter;
		uint8_t bytes[16];
	} named = {.letter = *l};

	named.letter.from = names[l->from];
	named.letter.to = names[l->to];
	return hash_of(named.bytes, sizeof(named.bytes), 1);
}

/* What its receiver would ignore now, and will for ever (explore.h, 3). */
static bool is_void(const struct world_node *n, const union state_letter *l)
{
	const struct raft_core *core = &n->core;

	if (l->term != core->term)
		return l->term < core->term;
	switch (l->type) {
	case RAFT_VOTED:
		return core->role != RAFT_CANDIDATE;
	case RAFT_READ_ACK:
		return core->role != RAFT_LEADER;
	default:
		return false;
	}
}

static void letter_add(struct state *s, const union state_letter *l)
{
	if (is_void(&s->world.nodes[l->to - 1], l))
		return;
	for (uint32_t i = 0; i < s->letter_count; i++)
		if (s->letters[i].word == l->word)
			return;
	CHECK(s->letter_count < STATE_LETTERS);
	s->letters[s->letter_count++] = *l;
}

void state_post(struct state *s, const struct raft_message *m)
{
	union state_letter l = {.word = 0};

	CHECK(m->term < WORLD_TERMS);
	l.type = (uint8_t)m->type;
	l.from = (uint8_t)m->from;
	l.to = (uint8_t)m->to;
	l.term = (uint8_t)m->term;
	switch (m->type) {
	case RAFT_VOTE:
		l.last_index = (uint8_t)m->vote.last_index;
		l.last_term = (uint8_t)m->vote.last_term;
		l.forced = m->vote.forced;
		break;
	case RAFT_VOTED:
		if (!m->voted.granted || m->voted.pre)
			return;
		break;
	case RAFT_READ_PROBE:
	case RAFT_READ_ACK:
		CHECK(m->read.seq < 256);
		l.seq = (uint8_t)m->read.seq;
		break;
	case RAFT_TIMEOUT_NOW:
		break;
	case RAFT_APPENDED:
		if (!m->appended.reject && m->appended.index > s->acked[m->term][m->from - 1])
			s->acked[m->term][m->from - 1] = (uint8_t)m->appended.index;
		return;
	case RAFT_APPEND:
	case RAFT_SNAPSHOT:
	case RAFT_PRE_VOTE:
	case RAFT_MESSAGE_TYPES:
		return;
	}
	letter_add(s, &l);
}

void state_snapshot(const struct world *w, uint64_t index, struct raft_message *m)
{
	uint64_t hash = 0;
	uint32_t config = 0;

	for (uint64_t i = 0; i < index; i++) {
		hash = world__hash(hash, &w->committed.entries[i]);
		if (w->committed.entries[i].config)
			config = w->committed.entries[i].config;
	}
	m->type = RAFT_SNAPSHOT;
	m->snapshot.index = index;
	m->snapshot.term = w->committed.entries[index - 1].term;
	m->snapshot.config = w->configs[config];
	memcpy(m->snapshot.descriptor, &hash, 8);
	memcpy(m->snapshot.descriptor + 8, &config, 4);
}

static void letters_sweep(struct state *s, uint32_t to)
{
	for (uint32_t i = 0; i < s->letter_count;) {
		if (s->letters[i].to != to || !is_void(&s->world.nodes[to - 1], &s->letters[i])) {
			i++;
			continue;
		}
		s->letters[i] = s->letters[--s->letter_count];
	}
}

static bool offer_is_void(const struct state *s, uint64_t term)
{
	for (uint32_t i = 0; i < WORLD_NODES; i++)
		if (i + 1 != s->world.leaders[term] && s->world.nodes[i].core.term <= term)
			return false;
	return true;
}

void state_settle(struct state *s, uint32_t node)
{
	const struct world_node *n = &s->world.nodes[node];

	letters_sweep(s, node + 1);
	if (n->core.role == RAFT_LEADER) {
		struct state_offer *offer = &s->offers[n->core.term];

		offer->open = true;
		offer->commit = n->core.commit;
		offer->applied = n->applied;
		world__log_copy(&offer->log, &n->log);
	}
	for (uint64_t term = 1; term < WORLD_TERMS; term++) {
		const struct world_node *leader =
			s->world.leaders[term] ? &s->world.nodes[s->world.leaders[term] - 1] : NULL;

		if (s->offers[term].open && offer_is_void(s, term))
			memset(&s->offers[term], 0, sizeof(s->offers[term]));
		if (!leader || leader->core.role != RAFT_LEADER || leader->core.term != term) {
			memset(s->acked[term], 0, sizeof(s->acked[term]));
			continue;
		}
		for (uint32_t i = 0; i < leader->core.config.count; i++)
			if (s->acked[term][leader->core.peers[i].id - 1] <= leader->core.peers[i].match)
				s->acked[term][leader->core.peers[i].id - 1] = 0;
	}
}

/* ---- replicas ---- */

static void plain_log(struct bytes *b, const struct world_log *log)
{
	put(b, log->base_index);
	put(b, log->base_term);
	put(b, log->count);
	for (uint32_t i = 0; i < log->count; i++)
		put(b,
			entry_pack(&log->entries[i]) |
				(log->entries[i].config ? 7u << 2 : 0)); /* which one: by its names */
}

/* All that names nobody. */
static void plain(struct bytes *b, const struct state *s, const struct world_node *n)
{
	const struct raft_core *core = &n->core;

	put(b, core->term);
	put(b, core->base_index);
	put(b, core->base_term);
	put(b, core->known_index);
	put(b, core->last_index);
	put(b, core->persisted);
	put(b, core->run_count);
	for (uint32_t i = 0; i < core->run_count; i++) {
		put(b, core->runs[i].first);
		put(b, core->runs[i].term);
	}
	put(b, core->role == RAFT_PRE_CANDIDATE ? RAFT_FOLLOWER : core->role); /* explore.h, 1 */
	put(b, core->commit);
	put(b, core->verified);
	put(b, core->read_seq);
	put(b, core->read_index);
	put(b, core->read_confirmed);
	put(b, (uint64_t)core->read_open | (uint64_t)core->read_next << 1);
	put(b, core->refused);
	put(b, n->disk_term);
	plain_log(b, &n->disk);
	plain_log(b, &n->log);
	put(b, n->sync_busy);
	if (n->sync_busy) {
		plain_log(b, &n->syncing);
		put(b, n->sync_epoch == core->epoch);
		put(b, n->sync_last);
	}
	put(b, n->applied);
	put(b, n->fetch_busy);
	if (n->fetch_busy) {
		put(b, n->fetch.term);
		put(b, n->fetch.snapshot.index);
		put(b, n->fetch.snapshot.term);
	}
	put(b, s->crashes[n - s->world.nodes]);
}

static void named_log(struct bytes *b, const struct world *w, const struct world_log *log, const uint8_t *names)
{
	if (log->base_index)
		put_config(b, &w->configs[log->base_config], names);
	for (uint32_t i = 0; i < log->count; i++)
		if (log->entries[i].config)
			put_config(b, &w->configs[log->entries[i].config], names);
}

/* The rest, by these names. */
static void named(struct bytes *b, const struct world *w, const struct world_node *n, const uint8_t *names)
{
	const struct raft_core *core = &n->core;
	uint32_t peers = b->len;

	put(b, names[world__id(w, n)]);
	put(b, names[core->vote]);
	put(b, names[core->leader]);
	put(b, names[core->transfer_to]);
	put(b, names[n->disk_vote]);
	put_config(b, &core->config, names);
	put_config(b, &core->config_before, names);
	named_log(b, w, &n->disk, names);
	named_log(b, w, &n->log, names);
	if (n->sync_busy)
		named_log(b, w, &n->syncing, names);
	put_config(b, &w->configs[n->applied_config], names);
	if (n->fetch_busy) {
		put(b, names[n->fetch.from]);
		put_config(b, &n->fetch.snapshot.config, names);
	}
	if (core->role != RAFT_LEADER && core->role != RAFT_CANDIDATE)
		return;
	peers = b->len;
	memset(b->at + peers, 0, 4 * WORLD_NODES);
	b->len += 4 * WORLD_NODES;
	for (uint32_t i = 0; i < core->config.count; i++) {
		const struct raft_peer *peer = &core->peers[i];
		uint8_t *at = b->at + peers + 4 * (names[peer->id] - 1u);

		if (core->role == RAFT_CANDIDATE) {
			at[0] = (uint8_t)(1 + peer->granted + 2 * peer->refused);
		} else if (peer->id != core->options.id) {
			at[0] = (uint8_t)(4 + (peer->state == RAFT_REPLICATE));
			at[1] = (uint8_t)peer->match;
			at[2] = (uint8_t)peer->read_seq;
		}
	}
}

void state_rehash_node(struct state *s, uint32_t node)
{
	struct bytes b = {.len = 0};

	plain(&b, s, &s->world.nodes[node]);
	s->plain_hash[node] = hash_bytes(&b, 2);
	s->node_known[node] = 0;
}

static state_hash node_hash(struct state *s, uint32_t node, uint32_t naming)
{
	struct bytes b = {.len = 16};

	if (s->node_known[node] >> naming & 1)
		return s->node_hash[node][naming];
	memcpy(b.at, &s->plain_hash[node], 16);
	named(&b, &s->world, &s->world.nodes[node], namings[naming]);
	s->node_known[node] |= 1u << naming;
	return s->node_hash[node][naming] = hash_bytes(&b, 3);
}

/* Of what may be read in future: nobody can be elected any more in a term that all have left. */
static state_hash past_hash(const struct state *s, const uint8_t *names, bool with_snapshots)
{
	const struct world *w = &s->world;
	struct bytes b = {.len = 0};
	uint64_t least = WORLD_TERMS;

	for (uint32_t i = 0; i < WORLD_NODES; i++)
		if (w->nodes[i].core.term < least)
			least = w->nodes[i].core.term;
	plain_log(&b, &w->committed);
	for (uint32_t i = 0; i < w->committed.count; i++)
		put(&b, w->committed.entries[i].committed_in < least ? 0 : w->committed.entries[i].committed_in);
	named_log(&b, w, &w->committed, names);
	for (uint32_t i = 0; i < WORLD_TERMS; i++)
		put(&b, i < least ? 0 : names[w->leaders[i]]);
	for (uint32_t i = 1; i < WORLD_TERMS; i++) {
		const struct state_offer *offer = &s->offers[i];
		uint32_t acked = b.len;

		put(&b, offer->open);
		if (offer->open) {
			put(&b, offer->commit);
			put(&b, with_snapshots ? offer->applied : 0);
			plain_log(&b, &offer->log);
			named_log(&b, w, &offer->log, names);
		}
		acked = b.len;
		b.len += WORLD_NODES;
		for (uint32_t j = 0; j < WORLD_NODES; j++)
			b.at[acked + names[j + 1] - 1] = s->acked[i][j];
	}
	put(&b, w->next_value);
	put(&b, s->changes);
	put(&b, s->transfers);
	put(&b, s->reads);
	put(&b, s->compactions);
	if (w->reads[0].open) {
		put(&b, names[w->reads[0].node]);
		put(&b, w->reads[0].token);
		put(&b, w->reads[0].floor);
		put(&b, w->reads[0].term);
	}
	return hash_bytes(&b, 4);
}

/* A naming goes by what names nobody; only of replicas that are the same in that, each may be the first. */
static bool is_in_order(const struct state *s, const uint8_t *names)
{
	state_hash by_name[WORLD_NODES];

	for (uint32_t i = 0; i < WORLD_NODES; i++)
		by_name[names[i + 1] - 1] = s->plain_hash[i];
	for (uint32_t i = 1; i < WORLD_NODES; i++)
		if (by_name[i - 1] > by_name[i])
			return false;
	return true;
}

state_hash state_name(struct state *s, bool with_snapshots)
{
	state_hash least = ~(state_hash)0;

	for (uint32_t p = 0; p < STATE_NAMINGS; p++) {
		state_hash h;

		if (!is_in_order(s, namings[p]))
			continue;
		h = past_hash(s, namings[p], with_snapshots);
		for (uint32_t i = 0; i < WORLD_NODES; i++)
			h += node_hash(s, i, p);
		for (uint32_t i = 0; i < s->letter_count; i++)
			h += letter_hash(&s->letters[i], namings[p]);
		if (h < least)
			least = h;
	}
	return hash_of((const uint8_t *)&least, sizeof(least), 5);
}
