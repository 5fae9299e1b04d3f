/* SPDX-License-Identifier: Apache-2.0 */
/* One replica of a world: its core, its disk, and the driver that works the updates off. */
#include <string.h>
#include "common/base/check.h"
#include "common/base/err.h"
#include "tests/raft/world_private.h"

const char *world__role_name(enum raft_role role)
{
	static const char *const names[] = {"follower", "pre-candidate", "candidate", "leader"};

	return names[role];
}

/* Whenever one is due (raft.h, 3). */
void world__sync_begin(struct world *w, struct world_node *n)
{
	if (n->sync_busy || !n->up || n->core.persisted == n->core.last_index)
		return;
	world__log_copy(&n->syncing, &n->log);
	n->sync_busy = true;
	n->sync_epoch = n->core.epoch;
	n->sync_last = n->core.last_index;
	n->sync_at_ms = w->now_ms + w->ways->takes_ms(w, 300, true);
}

void world__sync_end(struct world *w, struct world_node *n)
{
	struct raft_event event = {.type = RAFT_PERSISTED, .index = n->sync_last, .epoch = n->sync_epoch};

	n->sync_busy = false;
	world__log_copy(&n->disk, &n->syncing);
	if (!w->ways->report_later || !w->ways->report_later(w, n, &event))
		world__step(w, n, &event, NULL);
	world__sync_begin(w, n);
}

static uint64_t equal_up_to(const struct world_log *one, const struct world_log *other)
{
	uint64_t same = one->base_index;
	const struct world_entry *a, *b;

	while ((a = world__log_at(one, same + 1)) && (b = world__log_at(other, same + 1)) && a->term == b->term)
		same++;
	return same;
}

void world__crash(struct world *w, struct world_node *n)
{
	TRACE(w, "node %u crashes", world__id(w, n));
	w->counts.crashes++;
	n->up = n->sync_busy = n->fetch_busy = n->stalled = false;
	n->dies_at_ms = 0;
#ifndef WORLD_SMALL
	n->fill_count = n->report_count = 0;
	n->offer_at_ms = n->lies = 0;
	n->hasty = false;
	n->shrinks_by = n->quiet_ms = 0;
#endif
	/* Of what was written and not synced any part may be there, in order; a cut that was not synced may not have been. */
	if (world__log_last(&n->log) >= n->disk.base_index) {
		uint64_t last = world__log_last(&n->log), same = equal_up_to(&n->disk, &n->log);

		if (last > same && w->ways->choose(w, 2)) {
			world__log_cut(&n->disk, same + 1);
			last = same + w->ways->choose(w, last - same + 1);
			for (uint64_t i = same + 1; i <= last; i++)
				world__log_push(&n->disk, world__log_at(&n->log, i));
			w->counts.torn++;
		}
		/* Frames may carry what was known as committed when they were written, and it is known from those that are there. */
		same = equal_up_to(&n->disk, &n->log);
		if (n->core.commit > n->disk.base_index && same > n->disk.base_index && w->ways->choose(w, 2))
			n->disk_commit = n->log_commit < same ? n->log_commit : same;
	}
	for (uint32_t i = 0; i < WORLD_READS; i++)
		if (w->reads[i].open && w->reads[i].node == world__id(w, n))
			w->reads[i].open = false;
}

void world__start(struct world *w, struct world_node *n)
{
	struct raft_options options = {.id = world__id(w, n),
		.heartbeat_ms = HEARTBEAT_MS,
		.election_ms = ELECTION_MS,
		.message_bytes = BODY_BYTES * WORLD_BODIES,
		.inflight_bytes = BODY_BYTES * WINDOW_BODIES,
		.seed = rng_u64(&w->rng)};
	struct raft_run runs[RAFT_RUNS_MAX];
	struct raft_boot boot = {.term = n->disk_term,
		.vote = n->disk_vote,
		.base_index = n->disk.base_index,
		.base_term = n->disk.base_term,
		.last_index = world__log_last(&n->disk),
		.runs = runs,
		.commit = n->disk_commit > n->disk.base_index ? n->disk_commit : n->disk.base_index};
	uint32_t before, latest = world__log_config(&n->disk, &before);
	uint64_t term = boot.base_term;

	TRACE(w, "node %u starts: term %" PRIu64 ", last %" PRIu64, world__id(w, n), n->disk_term,
		world__log_last(&n->disk));
	world__log_copy(&n->log, &n->disk);
	for (uint32_t i = 0; i < n->log.count; i++) {
		if (n->log.entries[i].term == term && i > 0)
			continue;
		term = n->log.entries[i].term;
		if (boot.run_count == RAFT_RUNS_MAX)
			memmove(runs, runs + 1, --boot.run_count * sizeof(runs[0]));
		runs[boot.run_count++] = (struct raft_run){n->log.base_index + 1 + i, term};
	}
#ifndef WORLD_SMALL
	boot.commit = n->forced > boot.commit ? n->forced : boot.commit;
#endif
	boot.config = w->configs[latest];
	boot.config_before = w->configs[before];
	CHECK(raft_init(&n->core, &options, &boot, n->clock_ms) == 0);
	n->up = true;
	n->applied = n->log.base_index;
	n->hash = n->log.base_hash;
	n->applied_config = n->log.base_config;
	n->disk_commit = 0;
	n->log_commit = n->core.commit;
	world__check_start(w, n);
	if (!w->fault[0])
		world__apply(w, n);
}

static const struct raft_peer *peer_of(const struct raft_core *core, uint64_t id)
{
	for (uint32_t i = 0; i < core->config.count; i++)
		if (core->peers[i].id == id)
			return &core->peers[i];
	return NULL;
}

static uint32_t runs_of(
	const struct world_log *log, uint64_t first, uint64_t last, struct raft_run runs[WORLD_BODIES + 1])
{
	uint32_t count = 0;

	for (uint64_t i = first; i <= last; i++) {
		const struct world_entry *e = world__log_at(log, i);

		if (e && (count == 0 || runs[count - 1].term != e->term))
			runs[count++] = (struct raft_run){i, e->term};
	}
	return count;
}

void world__fill(struct world *w, struct world_node *n, const struct raft_message *wanted)
{
	struct raft_message m = *wanted;
	struct world_entry bodies[WORLD_BODIES] = {{.term = 0}};
	struct raft_event sent = {.type = RAFT_SENT, .peer = m.to, .term = m.term};
	struct raft_run runs[WORLD_BODIES + 1];
	uint64_t prev = m.append.prev_index, last = prev;

	if (m.append.room_bytes) {
		uint64_t room = m.append.room_bytes / BODY_BYTES + 1;

		last = prev + 1;
		while (world__log_at(&n->log, last) && world__log_at(&n->log, last + 1) &&
			!world__log_at(&n->log, last)->config && last - prev + 1 <= room && last - prev < WORLD_BODIES)
			last++;
		last = prev + 1 + w->ways->fill(w, peer_of(&n->core, m.to), last - prev);
	}
	if (!raft_fill(&n->core, &m, last, runs, runs_of(&n->log, prev, last, runs))) {
		w->counts.void_fills++;
	} else {
		last = m.append.last;
		for (uint64_t i = prev + 1; i <= last; i++)
			bodies[i - prev - 1] = *world__log_at(&n->log, i);
		if (last > prev && world__log_at(&n->log, last)->config) {
			m.append.has_config = true;
			m.append.config = w->configs[world__log_at(&n->log, last)->config];
		}
		world__check_message(w, n, &m);
		w->ways->post(w, &m, bodies);
		sent.index = last > prev ? last : 0;
		sent.bytes = (uint32_t)(last - prev) * BODY_BYTES;
	}
	world__step(w, n, &sent, NULL);
}

/* The first entry that is not what the message says (raft_asks). */
uint64_t world__look_up(struct world *w, const struct world_node *n, const struct raft_message *m)
{
	uint64_t first, last;

	if (!raft_asks(&n->core, m, &first, &last))
		return 0;
	w->counts.asked++;
	while (first <= last && world__log_at(&n->log, first)->term == raft_message_term(m, first))
		first++;
	return first;
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
			world__check_change(w, n, &w->configs[world__log_latest(&n->log)]);
			w->configs[w->config_count] = n->core.config;
			e.config = w->config_count++;
		}
		if (i != world__log_last(&n->log) + 1)
			world__fail(w, "node %u: appends %" PRIu64 " behind %" PRIu64, world__id(w, n), i,
				world__log_last(&n->log));
		world__log_push(&n->log, &e);
		world__check_appended(w, n, i);
	}
}

static void snapshot_take(struct world *w, struct world_node *n, uint64_t to)
{
	struct raft_message m = {.type = RAFT_SNAPSHOT};
	struct raft_event event = {.type = RAFT_SNAPSHOT_TAKEN, .peer = to, .message = &m};

	if (n->applied == 0 || n->applied < n->core.base_index)
		return; /* one that is of no use: the core asks again */
	m.snapshot.index = n->applied;
	m.snapshot.term = w->committed.entries[n->applied - 1].term; /* the core may have forgotten it */
	m.snapshot.config = w->configs[n->applied_config];
	memcpy(m.snapshot.descriptor, &n->hash, 8);
	memcpy(m.snapshot.descriptor + 8, &n->applied_config, 4);
	if (!w->ways->offer_later || !w->ways->offer_later(w, n, to, &m))
		world__step(w, n, &event, NULL);
}

static void snapshot_install(struct world_node *n, const struct raft_message *m)
{
	n->sync_busy = false; /* the switch waits for what was on its way */
	n->log.base_index = m->snapshot.index;
	n->log.base_term = m->snapshot.term;
	n->log.count = 0;
	memcpy(&n->log.base_hash, m->snapshot.descriptor, 8);
	memcpy(&n->log.base_config, m->snapshot.descriptor + 8, 4);
	world__log_copy(&n->disk, &n->log);
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
	n->fetch_at_ms = w->now_ms + 5 + w->ways->takes_ms(w, 600, false);
}

static void reads_done(struct world *w, struct world_node *n, const struct raft_update *u)
{
	for (uint32_t i = 0; i < WORLD_READS; i++) {
		if (!w->reads[i].open || w->reads[i].node != world__id(w, n))
			continue;
		if (u->reads_lost) {
			w->reads[i].open = false;
		} else if (n->core.role != RAFT_LEADER || n->core.term != w->reads[i].term) {
			world__fail(
				w, "node %u leads no longer, and a read that it took was not lost", world__id(w, n));
		} else if (u->read_done && w->reads[i].token <= u->read_done) {
			w->reads[i].open = false;
			w->counts.reads++;
			if (u->read_index < w->reads[i].floor)
				world__fail(w,
					"node %u answers a read at %" PRIu64 ", when it was asked %" PRIu64
					" was committed",
					world__id(w, n), u->read_index, w->reads[i].floor);
		}
	}
}

void world__step(
	struct world *w, struct world_node *n, const struct raft_event *event, const struct world_entry *bodies)
{
	struct raft_message messages[RAFT_MESSAGES_MAX];
	struct raft_update u;
	struct raft_event told = *event;
	uint64_t term = n->core.term, vote = n->core.vote, config = n->core.config.index, leader = n->core.leader;
	enum raft_role role = n->core.role;

	if (!n->up || w->fault[0])
		return;
	w->counts.steps++;
	if (event->type == RAFT_RECEIVE || event->type == RAFT_SNAPSHOT_READY)
		told.differs = world__look_up(w, n, event->message);
	if (event->type == RAFT_RECEIVE && event->message->type == RAFT_APPEND)
		told.count = event->message->append.last - event->message->append.prev_index - event->count;
	raft_step(&n->core, n->clock_ms, &told, messages, &u);
	world__check_meta(w, n, term, vote, u.meta);
	world__check_step(w, n, event, &u, role, leader, term);
	if (u.meta) {
		if (!w->well && rng_chance(&w->rng, 1, 400)) {
			world__crash(w, n);
			return;
		}
		n->disk_term = n->core.term;
		n->disk_vote = n->core.vote;
		if (!w->well && rng_chance(&w->rng, 1, 400)) {
			world__crash(w, n);
			return;
		}
	}
	if (u.install) {
		TRACE(w, "node %u installs the snapshot of %" PRIu64, world__id(w, n), event->message->snapshot.index);
		w->counts.snapshots++;
		snapshot_install(n, event->message);
	}
	if (u.truncate_from) {
		TRACE(w, "node %u cuts from %" PRIu64, world__id(w, n), u.truncate_from);
		w->counts.cuts++;
		w->counts.rollbacks += config >= u.truncate_from;
		world__log_cut(&n->log, u.truncate_from);
	}
	if (u.append.kind)
		append(w, n, &u, bodies, event->type == RAFT_RECEIVE ? event->message->append.prev_index : 0);
	n->log_commit = n->core.commit;
	if (n->core.role == RAFT_LEADER && u.role_changed && !w->well && rng_chance(&w->rng, w->brief, 100))
		n->dies_at_ms = w->now_ms + rng_below(&w->rng, 12);
	if (u.role_changed)
		TRACE(w, "node %u is %s in term %" PRIu64 ", leader %" PRIu64 ", last %" PRIu64 " commit %" PRIu64,
			world__id(w, n), world__role_name(n->core.role), n->core.term, n->core.leader, n->core.last_index,
			n->core.commit);
	world__check_leader(w, n, role != RAFT_LEADER);
	world__check_core(w, n);
	if (w->ways->watch)
		w->ways->watch(w, n, event, &u, role);
	world__sync_begin(w, n);
	world__check_commit(w, n);
	if (!w->fault[0])
		world__apply(w, n);
	if (u.fetch)
		fetch(w, n, event->message);
	if (event->type == RAFT_READ) {
		w->asked->token = u.read_token;
		w->asked->open = u.code == 0;
	}
	reads_done(w, n, &u);
	for (uint32_t i = 0; i < u.message_count; i++) {
		world__check_message(w, n, &messages[i]);
		if (messages[i].type != RAFT_APPEND || !messages[i].append.fill)
			w->ways->post(w, &messages[i], NULL);
		else if (!w->ways->fill_later || !w->ways->fill_later(w, n, &messages[i]))
			world__fill(w, n, &messages[i]);
	}
	for (uint32_t i = 0; u.snapshot_wanted && i < RAFT_MEMBERS_MAX; i++)
		if (u.snapshot_wanted >> i & 1)
			snapshot_take(w, n, n->core.peers[i].id);
}

/* On disk and everywhere: what is applied and goes. */
void world__compact(struct world *w, struct world_node *n, uint64_t index)
{
	struct raft_event event = {.type = RAFT_COMPACTED, .index = index};

	if (index > world__log_last(&n->disk) || (n->sync_busy && index > world__log_last(&n->syncing)) ||
		index > n->core.persisted)
		return;
	event.term = world__log_at(&n->log, index)->term;
	world__log_compact(&n->log, index);
	world__log_compact(&n->disk, index);
	if (n->sync_busy)
		world__log_compact(&n->syncing, index);
	world__step(w, n, &event, NULL);
}

void world__found(struct world *w, uint32_t count, bool learner, bool compacted)
{
	struct raft_config *config = &w->configs[1];
	struct world_entry first = {.term = 1, .config = 1};

	w->config_count = 2; /* 0: none */
	config->index = 1;
	config->count = count;
	config->last_id = count;
	for (uint32_t i = 0; i < count; i++)
		config->members[i] = (struct raft_member){.id = i + 1, .voter = !learner || i + 1 < count};
	w->node_count = count;
	if (compacted)
		world__log_push(&w->committed, &first);
	for (uint32_t i = 0; i < count; i++) {
		w->nodes[i].exists = true;
		w->nodes[i].disk_term = 1;
		world__log_push(&w->nodes[i].disk, &first);
		if (compacted)
			world__log_compact(&w->nodes[i].disk, 1);
		world__start(w, &w->nodes[i]);
	}
}
