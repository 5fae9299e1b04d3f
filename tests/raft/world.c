/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/raft/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/mem.h"

enum { HEARTBEAT_MS = 20, ELECTION_MS = 100, TICK_MS = 5, BODY_BYTES = 100, WELL_MS = 5000 };

static void fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct world *w, const char *format, ...)
{
	va_list args;

	if (w->fault[0])
		return;
	va_start(args, format);
	vsnprintf(w->fault, sizeof(w->fault), format, args);
	va_end(args);
}

#define TRACE(w, ...)                                         \
	do {                                                  \
		if ((w)->trace) {                             \
			printf("%6" PRIu64 " ", (w)->now_ms); \
			printf(__VA_ARGS__);                  \
			putchar('\n');                        \
		}                                             \
	} while (0)

static uint32_t id_of(const struct world *w, const struct world_node *n)
{
	return (uint32_t)(n - w->nodes) + 1;
}

/* ---- logs ---- */

static uint64_t log_last(const struct world_log *log)
{
	return log->base_index + log->count;
}

static const struct world_entry *log_at(const struct world_log *log, uint64_t index)
{
	return index > log->base_index && index <= log_last(log) ? &log->entries[index - log->base_index - 1] : NULL;
}

static void log_push(struct world_log *log, const struct world_entry *entry)
{
	if (log->count == log->cap) {
		log->cap = log->cap ? 2 * log->cap : 64;
		log->entries = mem_realloc(log->entries, log->cap * sizeof(*log->entries));
	}
	log->entries[log->count++] = *entry;
}

static void log_copy(struct world_log *to, const struct world_log *from)
{
	struct world_entry *entries = to->entries;
	uint32_t cap = to->cap;

	if (cap < from->count) {
		cap = from->cap;
		entries = mem_realloc(entries, cap * sizeof(*entries));
	}
	if (from->count)
		memcpy(entries, from->entries, from->count * sizeof(*entries));
	*to = *from;
	to->entries = entries;
	to->cap = cap;
}

static void log_cut(struct world_log *log, uint64_t from)
{
	if (from <= log_last(log))
		log->count = (uint32_t)(from - log->base_index - 1);
}

static uint64_t mix(uint64_t hash, const struct world_entry *e)
{
	hash = (hash ^ e->value ^ (e->term << 40) ^ e->config) * 0x9e3779b97f4a7c15u;
	return hash ^ (hash >> 29);
}

static void log_compact(struct world_log *log, uint64_t index)
{
	uint32_t gone;

	if (index <= log->base_index)
		return;
	CHECK(index <= log_last(log));
	gone = (uint32_t)(index - log->base_index);
	for (uint32_t i = 0; i < gone; i++) {
		log->base_hash = mix(log->base_hash, &log->entries[i]);
		if (log->entries[i].config)
			log->base_config = log->entries[i].config;
	}
	log->base_term = log->entries[gone - 1].term;
	log->base_index = index;
	log->count -= gone;
	memmove(log->entries, log->entries + gone, log->count * sizeof(*log->entries));
}

/* ---- checks ---- */

static bool config_equal(const struct raft_config *a, const struct raft_config *b)
{
	if (a->index != b->index || a->count != b->count)
		return false;
	for (uint32_t i = 0; i < a->count; i++)
		if (a->members[i].id != b->members[i].id || a->members[i].voter != b->members[i].voter)
			return false;
	return true;
}

static uint32_t latest_config(const struct world_log *log, uint32_t *ret_before)
{
	uint32_t latest = log->base_config, before = log->base_config;

	for (uint32_t i = 0; i < log->count; i++) {
		if (log->entries[i].config) {
			before = latest;
			latest = log->entries[i].config;
		}
	}
	*ret_before = before;
	return latest;
}

/* Leader completeness: who was elected has all that was ever committed. */
static void check_has_committed(struct world *w, struct world_node *n)
{
	for (uint64_t i = n->log.base_index + 1; i <= w->committed_count; i++) {
		const struct world_entry *e = log_at(&n->log, i), *c = &w->committed[i - 1];

		if (e && e->term == c->term && e->value == c->value)
			continue;
		fail(w, "node %u leads term %" PRIu64 " without %" PRIu64 ", which is committed", id_of(w, n),
			n->core.term, i);
		return;
	}
}

/* What is acknowledged is on the disk, and is what the leader has. */
static void check_acknowledged(struct world *w, struct world_node *n, const struct raft_message *m)
{
	const struct world_node *leader = &w->nodes[m->to - 1];
	const struct world_entry *mine, *theirs;

	if (m->appended.reject || m->appended.index <= n->log.base_index)
		return;
	mine = log_at(&n->disk, m->appended.index);
	theirs = log_at(&leader->log, m->appended.index);
	if (!mine)
		fail(w, "node %u acknowledges %" PRIu64 ", which is not on its disk", id_of(w, n), m->appended.index);
	else if (leader->up && leader->core.role == RAFT_LEADER && leader->core.term == n->core.term && theirs &&
		theirs->term != mine->term)
		fail(w, "node %u acknowledges %" PRIu64 " of term %" PRIu64 ", its leader's is of %" PRIu64,
			id_of(w, n), m->appended.index, mine->term, theirs->term);
}

static void check_leader(struct world *w, struct world_node *n)
{
	uint64_t term = n->core.term;

	if (n->core.role != RAFT_LEADER)
		return;
	if (term >= sizeof(w->leaders) / sizeof(w->leaders[0])) {
		fail(w, "term %" PRIu64 ": elections do not come to an end", term);
		return;
	}
	if (w->leaders[term] && w->leaders[term] != id_of(w, n))
		fail(w, "two leaders in term %" PRIu64 ": %" PRIu64 " and %u", term, w->leaders[term], id_of(w, n));
	if (!w->leaders[term]) {
		w->counts.elections++;
		check_has_committed(w, n);
	}
	w->leaders[term] = id_of(w, n);
}

/* As the core knows it, the log is the one that the driver keeps. */
static void check_core(struct world *w, struct world_node *n)
{
	uint32_t before, latest = latest_config(&n->log, &before);
	const struct raft_core *core = &n->core;

	if (core->last_index != log_last(&n->log))
		fail(w, "node %u: last %" PRIu64 " in the core, %" PRIu64 " in the log", id_of(w, n), core->last_index,
			log_last(&n->log));
	else if (raft_term_at(core, core->last_index) !=
		(n->log.count ? n->log.entries[n->log.count - 1].term : n->log.base_term))
		fail(w, "node %u: the core has another last term than the log", id_of(w, n));
	else if (!config_equal(&core->config, &w->configs[latest]))
		fail(w, "node %u: its configuration is of entry %" PRIu64 ", the latest of its log of %" PRIu64,
			id_of(w, n), core->config.index, w->configs[latest].index);
	else if (core->persisted > log_last(&n->disk) && !n->sync_busy)
		fail(w, "node %u: counts %" PRIu64 " as persisted, has %" PRIu64, id_of(w, n), core->persisted,
			log_last(&n->disk));
}

/* A commit is checked when it is first seen: a quorum of its configuration must have it on disk. */
static void check_commit(struct world *w, struct world_node *n)
{
	while (w->committed_count < n->core.commit) {
		uint64_t index = w->committed_count + 1;
		const struct world_entry *e = log_at(&n->log, index);
		uint32_t have = 0, voters = 0;

		if (!e) {
			fail(w, "node %u commits %" PRIu64 ", which nobody committed before and it does not have",
				id_of(w, n), index);
			return;
		}
		for (uint32_t i = 0; i < n->core.config.count; i++) {
			const struct world_node *m = &w->nodes[n->core.config.members[i].id - 1];
			const struct world_entry *d = log_at(&m->disk, index);

			if (!n->core.config.members[i].voter)
				continue;
			voters++;
			have += (d && d->term == e->term) || m->disk.base_index >= index;
		}
		if (have < voters / 2 + 1)
			fail(w, "node %u commits %" PRIu64 " of term %" PRIu64 ", durable on %u of %u voters",
				id_of(w, n), index, e->term, have, voters);
		if (w->committed_count == w->committed_cap) {
			w->committed_cap = w->committed_cap ? 2 * w->committed_cap : 256;
			w->committed = mem_realloc(w->committed, w->committed_cap * sizeof(*w->committed));
		}
		w->committed[w->committed_count++] = *e;
		w->counts.committed++;
	}
}

static void apply(struct world *w, struct world_node *n)
{
	uint64_t to = n->core.commit < n->core.persisted ? n->core.commit : n->core.persisted;

	while (n->applied < to) {
		const struct world_entry *e = log_at(&n->log, n->applied + 1), *c = &w->committed[n->applied];

		if (!e || e->term != c->term || e->value != c->value) {
			fail(w,
				"node %u applies %" PRIu64 ": %" PRIu64 " of term %" PRIu64 ", committed was %" PRIu64
				" of term %" PRIu64,
				id_of(w, n), n->applied + 1, e ? e->value : 0, e ? e->term : 0, c->value, c->term);
			return;
		}
		n->hash = mix(n->hash, e);
		if (e->config)
			n->applied_config = e->config;
		n->applied++;
	}
}

/* ---- the driver ---- */

static void step(
	struct world *w, struct world_node *n, const struct raft_event *event, const struct world_entry *bodies);

static void sync_begin(struct world *w, struct world_node *n)
{
	if (n->sync_busy || !n->up || n->core.persisted == n->core.last_index)
		return;
	log_copy(&n->syncing, &n->log);
	n->sync_busy = true;
	n->sync_epoch = n->core.epoch;
	n->sync_last = n->core.last_index;
	n->sync_at_ms =
		w->now_ms + (rng_chance(&w->rng, w->slow, 100) ? rng_below(&w->rng, 300) : rng_below(&w->rng, 3));
}

static void sync_end(struct world *w, struct world_node *n)
{
	struct raft_event event = {.type = RAFT_PERSISTED, .index = n->sync_last, .epoch = n->sync_epoch};

	n->sync_busy = false;
	log_copy(&n->disk, &n->syncing);
	step(w, n, &event, NULL);
	sync_begin(w, n);
}

static void crash(struct world *w, struct world_node *n)
{
	TRACE(w, "node %u crashes", id_of(w, n));
	w->counts.crashes++;
	n->up = n->sync_busy = n->fetch_busy = n->stalled = false;
	n->dies_at_ms = 0;
	/* Of what was written and not synced any part may be there, in order; a cut that was not synced may not have been. */
	if (log_last(&n->log) >= n->disk.base_index && rng_chance(&w->rng, 1, 2)) {
		uint64_t last = log_last(&n->log), same = n->disk.base_index;
		const struct world_entry *a, *b;

		while ((a = log_at(&n->disk, same + 1)) && (b = log_at(&n->log, same + 1)) && a->term == b->term)
			same++;
		if (last > same) {
			log_cut(&n->disk, same + 1);
			last = same + rng_below(&w->rng, last - same + 1);
			for (uint64_t i = same + 1; i <= last; i++)
				log_push(&n->disk, log_at(&n->log, i));
			w->counts.torn++;
		}
	}
	for (uint32_t i = 0; i < WORLD_READS; i++)
		if (w->reads[i].open && w->reads[i].node == id_of(w, n))
			w->reads[i].open = false;
}

static void start(struct world *w, struct world_node *n)
{
	struct raft_options options = {.id = id_of(w, n),
		.heartbeat_ms = HEARTBEAT_MS,
		.election_ms = ELECTION_MS,
		.message_bytes = BODY_BYTES * WORLD_BODIES,
		.inflight_bytes = BODY_BYTES * 20,
		.seed = rng_u64(&w->rng)};
	static struct raft_run runs[4 * RAFT_RUNS_MAX];
	struct raft_boot boot = {.term = n->disk_term,
		.vote = n->disk_vote,
		.base_index = n->disk.base_index,
		.base_term = n->disk.base_term,
		.last_index = log_last(&n->disk),
		.runs = runs,
		.commit = n->disk.base_index};
	uint32_t before, latest = latest_config(&n->disk, &before);
	uint64_t term = boot.base_term;

	TRACE(w, "node %u starts: term %" PRIu64 ", last %" PRIu64, id_of(w, n), n->disk_term, log_last(&n->disk));
	log_copy(&n->log, &n->disk);
	for (uint32_t i = 0; i < n->log.count; i++) {
		if (n->log.entries[i].term != term || i == 0) {
			term = n->log.entries[i].term;
			CHECK(boot.run_count < 4 * RAFT_RUNS_MAX);
			runs[boot.run_count++] = (struct raft_run){n->log.base_index + 1 + i, term};
		}
	}
	boot.config = w->configs[latest];
	boot.config_before = w->configs[before];
	n->clock_ms = w->now_ms;
	CHECK(raft_init(&n->core, &options, &boot, n->clock_ms) == 0);
	n->up = true;
	n->applied = n->log.base_index;
	n->hash = n->log.base_hash;
	n->applied_config = n->log.base_config;
}

static struct world_packet *packet_new(struct world *w)
{
	if (w->packet_count == WORLD_PACKETS) { /* a network drops */
		w->packets[rng_below(&w->rng, WORLD_PACKETS)] = w->packets[WORLD_PACKETS - 1];
		w->packet_count--;
	}
	return &w->packets[w->packet_count++];
}

static void post(struct world *w, const struct raft_message *m, const struct world_entry *bodies)
{
	uint32_t copies = 1 + rng_chance(&w->rng, w->repeat, 100);

	w->counts.repeated += copies - 1;
	if (w->cut[m->from - 1][m->to - 1] || rng_chance(&w->rng, w->loss, 100)) {
		w->counts.lost++;
		return;
	}
	while (copies--) {
		struct world_packet *p = packet_new(w);

		p->at_ms = w->now_ms + 1 + rng_below(&w->rng, 3) +
			(rng_chance(&w->rng, w->loss, 100) ? rng_below(&w->rng, 200) : 0);
		p->message = *m;
		if (bodies)
			memcpy(p->bodies, bodies, sizeof(p->bodies));
	}
}

static void fill_and_post(struct world *w, struct world_node *n, const struct raft_message *wanted)
{
	struct raft_message m = *wanted;
	struct world_entry bodies[WORLD_BODIES] = {{0, 0, 0}};
	struct raft_event sent = {.type = RAFT_SENT, .peer = m.to, .term = m.term};
	uint64_t first = m.append.prev_index + 1, last = first;
	uint64_t room = 1 + rng_below(&w->rng, m.append.room_bytes / BODY_BYTES + 1);

	while (log_at(&n->log, last) && log_at(&n->log, last + 1) && !log_at(&n->log, last)->config &&
		last - first + 2 <= room && last - first + 1 < WORLD_BODIES)
		last++;
	if (raft_fill(&n->core, &m, last)) {
		last = m.append.last;
		for (uint64_t i = first; i <= last; i++)
			bodies[i - first] = *log_at(&n->log, i);
		if (log_at(&n->log, last)->config) {
			m.append.has_config = true;
			m.append.config = w->configs[log_at(&n->log, last)->config];
		}
		post(w, &m, bodies);
		sent.index = last;
		sent.bytes = (uint32_t)(last - first + 1) * BODY_BYTES;
	}
	step(w, n, &sent, NULL);
}

static void append(struct world *w, struct world_node *n, const struct raft_update *u, const struct world_entry *bodies,
	uint64_t prev)
{
	for (uint64_t i = u->append.first; i <= u->append.last; i++) {
		struct world_entry e = {.term = u->append.term};

		if (u->append.kind == RAFT_APPEND_RECEIVED) {
			e = bodies[i - prev - 1];
		} else if (u->append.kind == RAFT_APPEND_SUBMITTED) {
			e.value = ++w->next_value;
		} else if (u->append.kind == RAFT_APPEND_CONFIG) {
			CHECK(w->config_count < WORLD_CONFIGS);
			w->configs[w->config_count] = n->core.config;
			e.config = w->config_count++;
		}
		if (i != log_last(&n->log) + 1)
			fail(w, "node %u: appends %" PRIu64 " behind %" PRIu64, id_of(w, n), i, log_last(&n->log));
		log_push(&n->log, &e);
	}
}

static void snapshot_take(struct world *w, struct world_node *n, uint64_t to)
{
	struct raft_message m = {.type = RAFT_SNAPSHOT};
	struct raft_event event = {.type = RAFT_SNAPSHOT_TAKEN, .peer = to, .message = &m};

	if (n->applied == 0 || n->applied < n->core.base_index)
		return; /* one that is of no use: the core asks again */
	m.snapshot.index = n->applied;
	m.snapshot.term = w->committed[n->applied - 1].term; /* the core may have forgotten it */
	m.snapshot.config = w->configs[n->applied_config];
	memcpy(m.snapshot.descriptor, &n->hash, 8);
	memcpy(m.snapshot.descriptor + 8, &n->applied_config, 4);
	step(w, n, &event, NULL);
}

static void snapshot_install(struct world_node *n, const struct raft_message *m)
{
	n->sync_busy = false; /* the switch waits for what was on its way */
	n->log.base_index = m->snapshot.index;
	n->log.base_term = m->snapshot.term;
	n->log.count = 0;
	memcpy(&n->log.base_hash, m->snapshot.descriptor, 8);
	memcpy(&n->log.base_config, m->snapshot.descriptor + 8, 4);
	log_copy(&n->disk, &n->log);
	n->applied = n->log.base_index;
	n->hash = n->log.base_hash;
	n->applied_config = n->log.base_config;
}

static void fetch(struct world *w, struct world_node *n, const struct raft_message *m)
{
	if (n->fetch_busy)
		return;
	n->fetch_busy = true;
	n->fetch = *m;
	n->fetch_at_ms = w->now_ms + 5 + rng_below(&w->rng, 600);
}

static void reads_done(struct world *w, struct world_node *n, const struct raft_update *u)
{
	for (uint32_t i = 0; i < WORLD_READS; i++) {
		if (!w->reads[i].open || w->reads[i].node != id_of(w, n))
			continue;
		if (n->core.role != RAFT_LEADER || n->core.term != w->reads[i].term) {
			w->reads[i].open = false;
		} else if (u->read_done && w->reads[i].token <= u->read_done) {
			w->reads[i].open = false;
			w->counts.reads++;
			if (u->read_index < w->reads[i].floor)
				fail(w,
					"node %u answers a read at %" PRIu64 ", when it was asked %" PRIu64
					" was committed",
					id_of(w, n), u->read_index, w->reads[i].floor);
		}
	}
}

static void step(
	struct world *w, struct world_node *n, const struct raft_event *event, const struct world_entry *bodies)
{
	struct raft_message messages[RAFT_MESSAGES_MAX];
	struct raft_update u;
	uint64_t term = n->core.term, vote = n->core.vote, config = n->core.config.index;

	if (!n->up || w->fault[0])
		return;
	w->counts.steps++;
	raft_step(&n->core, n->clock_ms, event, messages, &u);
	if ((n->core.term != term || n->core.vote != vote) && !u.meta)
		fail(w, "node %u: term or vote changed, and nothing is to be written", id_of(w, n));
	if (n->core.term < term || (n->core.term == term && vote && n->core.vote != vote))
		fail(w, "node %u: term or vote went back", id_of(w, n));
	if (u.meta) {
		if (!w->well && rng_chance(&w->rng, 1, 400)) {
			crash(w, n);
			return;
		}
		n->disk_term = n->core.term;
		n->disk_vote = n->core.vote;
		if (!w->well && rng_chance(&w->rng, 1, 400)) {
			crash(w, n);
			return;
		}
	}
	if (u.install) {
		TRACE(w, "node %u installs the snapshot of %" PRIu64, id_of(w, n), event->message->snapshot.index);
		w->counts.snapshots++;
		snapshot_install(n, event->message);
	}
	if (u.truncate_from) {
		TRACE(w, "node %u cuts from %" PRIu64, id_of(w, n), u.truncate_from);
		w->counts.cuts++;
		w->counts.rollbacks += config >= u.truncate_from;
		log_cut(&n->log, u.truncate_from);
	}
	if (u.append.kind)
		append(w, n, &u, bodies, event->type == RAFT_RECEIVE ? event->message->append.prev_index : 0);
	if (n->core.role == RAFT_LEADER && u.role_changed && !w->well && rng_chance(&w->rng, w->brief, 100))
		n->dies_at_ms = w->now_ms + rng_below(&w->rng, 12);
	if (u.role_changed)
		TRACE(w, "node %u is %s in term %" PRIu64 ", leader %" PRIu64 ", last %" PRIu64 " commit %" PRIu64,
			id_of(w, n), raft_role_name(n->core.role), n->core.term, n->core.leader, n->core.last_index,
			n->core.commit);
	check_leader(w, n);
	check_core(w, n);
	sync_begin(w, n);
	check_commit(w, n);
	if (!w->fault[0])
		apply(w, n);
	if (u.fetch)
		fetch(w, n, event->message);
	if (event->type == RAFT_READ) {
		w->asked->token = u.read_token;
		w->asked->open = u.code == 0;
	}
	reads_done(w, n, &u);
	for (uint32_t i = 0; i < u.message_count; i++) {
		if (raft_message_check(&messages[i]) != 0 &&
			!(messages[i].type == RAFT_APPEND && messages[i].append.fill)) {
			fail(w, "node %u: sends a malformed message of type %d", id_of(w, n), (int)messages[i].type);
			return;
		}
		if (messages[i].type == RAFT_APPENDED)
			check_acknowledged(w, n, &messages[i]);
		if (messages[i].type == RAFT_APPEND && messages[i].append.fill)
			fill_and_post(w, n, &messages[i]);
		else
			post(w, &messages[i], NULL);
	}
	for (uint32_t i = 0; u.snapshot_wanted && i < RAFT_MEMBERS_MAX; i++)
		if (u.snapshot_wanted >> i & 1)
			snapshot_take(w, n, n->core.peers[i].id);
}

/* ---- the world goes on ---- */

static void deliver(struct world *w)
{
	for (uint32_t i = 0; i < w->packet_count && !w->fault[0];) {
		struct world_packet p = w->packets[i];
		struct raft_event event = {.type = RAFT_RECEIVE, .message = &p.message};

		if (p.at_ms > w->now_ms || w->nodes[p.message.to - 1].stalled) {
			i++;
			continue;
		}
		w->packets[i] = w->packets[--w->packet_count];
		if (!w->cut[p.message.from - 1][p.message.to - 1])
			step(w, &w->nodes[p.message.to - 1], &event, p.bodies);
	}
}

static void run_node(struct world *w, struct world_node *n)
{
	struct raft_event tick = {.type = RAFT_TICK}, ready = {.type = RAFT_SNAPSHOT_READY, .message = &n->fetch};

	if (!n->up || n->stalled)
		return;
	if (n->dies_at_ms && w->now_ms >= n->dies_at_ms && !w->well) {
		crash(w, n);
		return;
	}
	n->clock_ms = w->now_ms;
	if (n->sync_busy && w->now_ms >= n->sync_at_ms)
		sync_end(w, n);
	if (n->up && n->fetch_busy && w->now_ms >= n->fetch_at_ms) {
		n->fetch_busy = false;
		step(w, n, &ready, NULL);
	}
	if ((w->now_ms + id_of(w, n)) % TICK_MS == 0)
		step(w, n, &tick, NULL);
}

static void advance(struct world *w)
{
	w->now_ms++;
	deliver(w);
	for (uint32_t i = 0; i < w->node_count; i++)
		run_node(w, &w->nodes[i]);
}

static struct world_node *some_leader(struct world *w)
{
	uint32_t from = (uint32_t)rng_below(&w->rng, w->node_count);

	for (uint32_t i = 0; i < w->node_count; i++) {
		struct world_node *n = &w->nodes[(from + i) % w->node_count];

		if (n->up && !n->stalled && n->core.role == RAFT_LEADER)
			return n;
	}
	return NULL;
}

static void client_submits(struct world *w)
{
	struct world_node *n = some_leader(w);
	struct raft_event event = {.type = RAFT_SUBMIT, .count = 1 + rng_below(&w->rng, 3)};

	if (n && n->core.last_index < n->core.commit + 60)
		step(w, n, &event, NULL);
}

static void client_reads(struct world *w)
{
	struct world_node *n = some_leader(w);
	struct raft_event event = {.type = RAFT_READ};
	uint32_t i = 0;

	while (i < WORLD_READS && w->reads[i].open)
		i++;
	if (!n || i == WORLD_READS)
		return;
	w->asked = &w->reads[i];
	w->asked->node = id_of(w, n);
	w->asked->floor = w->committed_count;
	w->asked->term = n->core.term;
	step(w, n, &event, NULL);
}

static void operator_acts(struct world *w)
{
	struct world_node *n = some_leader(w);
	struct raft_event event = {.type = RAFT_CHANGE};
	const struct raft_member *m;

	if (!n || n->core.config.count == 0 || w->config_count > WORLD_CONFIGS - 2)
		return;
	m = &n->core.config.members[rng_below(&w->rng, n->core.config.count)];
	event.peer = m->id;
	switch (rng_below(&w->rng, 4)) {
	case 0:
		if (w->node_count == WORLD_NODES || n->core.config.count >= w->members)
			return;
		event.change = RAFT_ADD_LEARNER;
		event.peer = w->node_count + 1;
		w->nodes[w->node_count].exists = true;
		break;
	case 1:
		event.change = RAFT_PROMOTE;
		break;
	case 2:
		if (n->core.config.count <= 2)
			return;
		event.change = RAFT_REMOVE;
		break;
	default:
		event.type = RAFT_TRANSFER;
		w->counts.transfers++;
	}
	w->counts.changes += event.type == RAFT_CHANGE;
	if (event.peer > w->node_count) {
		start(w, &w->nodes[w->node_count]);
		w->node_count++;
	}
	TRACE(w, "operator at node %u: %d of %" PRIu64, id_of(w, n), event.type == RAFT_CHANGE ? (int)event.change : 0,
		event.peer);
	step(w, n, &event, NULL);
}

static void compact(struct world *w, struct world_node *n)
{
	struct raft_event event = {.type = RAFT_COMPACTED};
	uint64_t keep = rng_below(&w->rng, 8);

	if (!n->up || n->applied < n->log.base_index + keep + 1)
		return;
	event.index = n->applied - keep;
	if (event.index > log_last(&n->disk) || (n->sync_busy && event.index > log_last(&n->syncing)))
		return;
	log_compact(&n->log, event.index);
	log_compact(&n->disk, event.index);
	if (n->sync_busy)
		log_compact(&n->syncing, event.index);
	step(w, n, &event, NULL);
}

static void trouble(struct world *w)
{
	struct world_node *leader = some_leader(w);
	struct world_node *n =
		leader && rng_chance(&w->rng, 1, 3) ? leader : &w->nodes[rng_below(&w->rng, w->node_count)];
	uint32_t other = (uint32_t)rng_below(&w->rng, w->node_count);
	uint64_t sides;

	switch (rng_below(&w->rng, 10)) {
	case 0:
	case 1:
		if (n->up)
			crash(w, n);
		break;
	case 2:
	case 3:
	case 4:
		if (!n->up)
			start(w, n);
		break;
	case 5:
		if (n->up && !n->stalled)
			w->counts.stalls++;
		n->stalled = n->up && !n->stalled;
		break;
	case 6: /* one direction */
		w->cut[n - w->nodes][other] = (int)other != n - w->nodes;
		break;
	case 7: /* two halves */
		w->counts.partitions++;
		sides = rng_u64(&w->rng);
		for (uint32_t i = 0; i < w->node_count; i++)
			for (uint32_t j = 0; j < w->node_count; j++)
				w->cut[i][j] = (sides >> i & 1) != (sides >> j & 1);
		break;
	case 8:
		memset(w->cut, 0, sizeof(w->cut));
		break;
	default:
		compact(w, n);
	}
}

static void heal(struct world *w)
{
	memset(w->cut, 0, sizeof(w->cut));
	w->loss = w->repeat = w->slow = 0;
	w->well = true;
	for (uint32_t i = 0; i < w->node_count; i++) {
		w->nodes[i].stalled = false;
		if (!w->nodes[i].up)
			start(w, &w->nodes[i]);
	}
}

/* A leader, all members at its state. */
static bool agrees(struct world *w)
{
	struct world_node *leader = some_leader(w);

	if (!leader || leader->core.commit != leader->core.last_index || leader->applied != leader->core.commit)
		return false;
	for (uint32_t i = 0; i < leader->core.config.count; i++) {
		struct world_node *n = &w->nodes[leader->core.config.members[i].id - 1];

		if (n->core.leader != id_of(w, leader) || n->applied != leader->applied)
			return false;
		if (n->hash != leader->hash)
			fail(w, "nodes %u and %u applied the same and are not in the same state", id_of(w, n),
				id_of(w, leader));
	}
	return leader->applied == w->committed_count;
}

/* With all well again: the group agrees, and goes on to serve; among replicas that work nobody broke the protocol. */
static void check_serves(struct world *w)
{
	uint64_t reads;

	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && !agrees(w); i++)
		advance(w);
	if (!agrees(w))
		fail(w, "all is well for 5 s, and there is no leader whom all follow to the end of its log");
	memset(w->reads, 0, sizeof(w->reads));
	reads = w->counts.reads;
	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && w->counts.reads == reads; i++) {
		if (i % 100 == 0)
			client_reads(w);
		advance(w);
	}
	if (w->counts.reads == reads)
		fail(w, "all is well, and a read comes to no end");
	client_submits(w);
	for (uint32_t i = 0; i < WELL_MS && !w->fault[0] && !agrees(w); i++)
		advance(w);
	if (!agrees(w))
		fail(w, "all is well, and an entry comes to no end");
	for (uint32_t i = 0; i < w->node_count; i++)
		if (w->nodes[i].core.refused)
			fail(w, "node %u refused %" PRIu64 " messages of its peers", i + 1, w->nodes[i].core.refused);
}

static void found(struct world *w)
{
	uint32_t count = 1 + 2 * (uint32_t)rng_below(&w->rng, 3);
	struct raft_config *config = &w->configs[1];
	struct world_entry first = {.term = 1, .config = 1};

	w->config_count = 2; /* 0: none */
	config->index = 1;
	config->count = count;
	for (uint32_t i = 0; i < count; i++)
		config->members[i] = (struct raft_member){.id = i + 1, .voter = true};
	w->node_count = count;
	for (uint32_t i = 0; i < count; i++) {
		w->nodes[i].exists = true;
		w->nodes[i].disk_term = 1;
		log_push(&w->nodes[i].disk, &first);
		start(w, &w->nodes[i]);
	}
}

static void add_counts(struct world_counts *to, const struct world *w)
{
	const uint64_t *from = (const uint64_t *)&w->counts;

	for (size_t i = 0; i < sizeof(*to) / sizeof(uint64_t); i++)
		((uint64_t *)to)[i] += from[i];
	for (uint32_t i = 0; i < w->node_count; i++)
		to->refused += w->nodes[i].core.refused;
}

bool world_history(uint64_t seed, bool trace, struct world_counts *counts, char fault[512])
{
	struct world *w = MEM_NEW(struct world);
	uint64_t length, change_every;
	uint32_t trouble_every;
	bool ok;

	rng_init(&w->rng, seed);
	w->trace = trace;
	w->now_ms = 1;
	found(w);
	w->loss = (uint32_t)rng_below(&w->rng, 3) * 5;
	w->repeat = (uint32_t)rng_below(&w->rng, 3) * 5;
	w->slow = (uint32_t)rng_below(&w->rng, 3) * 10;
	w->brief = (uint32_t)rng_below(&w->rng, 3) * 30;
	w->members = 3 + (uint32_t)rng_below(&w->rng, 4);
	trouble_every =
		(uint32_t)(rng_chance(&w->rng, 1, 2) ? rng_between(&w->rng, 4, 30) : rng_between(&w->rng, 30, 200));
	length = 15000 + rng_below(&w->rng, 15000);
	change_every = rng_chance(&w->rng, 1, 2) ? rng_between(&w->rng, 5, 40) : rng_between(&w->rng, 50, 350);
	for (uint64_t i = 0; i < length && !w->fault[0]; i++) {
		advance(w);
		if (rng_chance(&w->rng, 1, 8))
			client_submits(w);
		if (rng_chance(&w->rng, 1, 16))
			client_reads(w);
		if (rng_chance(&w->rng, 1, (uint32_t)change_every))
			operator_acts(w);
		if (rng_chance(&w->rng, 1, trouble_every))
			trouble(w);
	}
	heal(w);
	check_serves(w);
	for (uint32_t i = 0; i < w->node_count; i++) {
		const struct raft_core *core = &w->nodes[i].core;

		TRACE(w,
			"node %u %s: %s of term %" PRIu64 ", leader %" PRIu64 ", base %" PRIu64 " last %" PRIu64
			" persisted %" PRIu64 " commit %" PRIu64 " applied %" PRIu64 " refused %" PRIu64,
			i + 1, w->nodes[i].up ? "up" : "down", raft_role_name(core->role), core->term, core->leader,
			core->base_index, core->last_index, core->persisted, core->commit, w->nodes[i].applied,
			core->refused);
		for (uint32_t j = 0; core->role == RAFT_LEADER && j < core->config.count; j++)
			TRACE(w,
				"  member %" PRIu64 "%s: state %d match %" PRIu64 " next %" PRIu64
				" filling %d paused %d inflight %u",
				core->peers[j].id, core->config.members[j].voter ? "" : " learner",
				(int)core->peers[j].state, core->peers[j].match, core->peers[j].next,
				core->peers[j].filling, core->peers[j].paused, core->peers[j].inflight_count);
	}
	ok = w->fault[0] == 0;
	add_counts(counts, w);
	memcpy(fault, w->fault, sizeof(w->fault));
	for (uint32_t i = 0; i < WORLD_NODES; i++) {
		mem_free(w->nodes[i].disk.entries);
		mem_free(w->nodes[i].syncing.entries);
		mem_free(w->nodes[i].log.entries);
	}
	mem_free(w->committed);
	mem_free(w);
	return ok;
}
