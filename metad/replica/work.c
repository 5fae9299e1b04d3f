/* SPDX-License-Identifier: Apache-2.0 */
/* The pump: one event after the other, each update worked off in the order that raft.h asks for. */
#include "metad/replica/replica_private.h"

#include "common/base/check.h"
#include "common/base/mem.h"

enum { SUBMITS_A_STEP = 64 };

uint64_t replica__term_at(const struct replica *r, uint64_t index)
{
	uint64_t term = raft_term_at(&r->core, index);
	const struct entry *e = cache_at(&r->cache, index);

	if (term)
		return term;
	return e ? e->append.term : wal_index_term(wal_index(r->wal), index);
}

void replica__inbound_free(struct inbound *inbound)
{
	for (uint32_t i = 0; i < inbound->count; i++)
		mem_free(inbound->entries[i]);
	mem_free(inbound);
}

/* ---- an update ---- */

static void written(struct wal_append *append, int code)
{
	(void)code; /* what is durable the log says, and on_fatal if it failed */
	entry_written(CONTAINER_OF(append, struct entry, append));
}

uint64_t replica__append(struct replica *r, struct entry *entry)
{
	entry->append.done = written;
	entry->writing = true;
	wal_submit(r->wal, &entry->append);
	cache_push(&r->cache, entry);
	return entry->append.index;
}

/* In the order of their indexes: a leader that was deposed and leads again may give an index twice. */
static void note_taken(struct replica *r, struct replica_submit *s)
{
	struct list *at = &r->taken;

	while (at->prev != &r->taken && LIST_ENTRY(at->prev, struct replica_submit, link)->index > s->index)
		at = at->prev;
	list_insert_before(at, &s->link);
}

static struct replica_submit *take_submit(struct replica *r, uint64_t index)
{
	struct replica_submit *s = LIST_ENTRY(list_pop_front(&r->submits), struct replica_submit, link);

	s->index = index;
	s->term = r->update.append.term;
	note_taken(r, s);
	return s;
}

static struct entry *next_entry(struct replica *r, uint64_t index)
{
	static const uint8_t noop = BODY_NOOP, commands = BODY_COMMANDS;
	const struct raft_update *u = &r->update;
	uint8_t config[BODY_CONFIG_BYTES_MAX];
	struct entry **from;
	struct entry *e;

	switch (u->append.kind) {
	case RAFT_APPEND_SUBMITTED:
		return entry_new(u->append.term, &commands, 1, take_submit(r, index)->data);
	case RAFT_APPEND_NOOP:
		return entry_new(u->append.term, &noop, 1, slice_of(NULL, 0));
	case RAFT_APPEND_CONFIG:
		take_submit(r, index);
		return entry_new(
			u->append.term, config, body_encode_config(&r->core.config, config), slice_of(NULL, 0));
	case RAFT_APPEND_RECEIVED:
		from = &r->inbound->entries[index - r->inbound->message.append.prev_index - 1];
		e = *from;
		*from = NULL;
		return e;
	case RAFT_APPEND_NONE:
		break;
	}
	CHECK_UNREACHABLE();
}

void replica__tell_config(struct replica *r)
{
	if (!r->options.on_config || body_configs_equal(&r->told, &r->core.config))
		return;
	r->told = r->core.config;
	r->options.on_config(r->options.ctx, &r->told);
}

void replica__finish(struct replica *r)
{
	const struct raft_update *u = &r->update;

	replica__tell_config(r);
	if (u->truncate_from) {
		wal_cut(r->wal, u->truncate_from);
		cache_cut(&r->cache, u->truncate_from);
		r->log_epoch = r->core.epoch;
	}
	if (u->append.kind)
		for (uint64_t i = u->append.first; i <= u->append.last; i++)
			CHECK(replica__append(r, next_entry(r, i)) == i);
	if (u->read_done)
		replica__ask_answered(r);
	for (uint32_t i = 0; i < u->message_count; i++) {
		if (r->messages[i].type == RAFT_APPEND && r->messages[i].append.fill)
			replica__fill_want(r, &r->messages[i]);
		else if (r->messages[i].type != RAFT_READ_PROBE || !replica__ask_later(r, &r->messages[i]))
			r->options.send(r->options.ctx, &r->messages[i], NULL, 0);
	}
	r->ask.is_new = false;
	wal_note_commit(r->wal, u->commit);
	if (u->install)
		r->log_epoch = r->core.epoch;
	if (u->fetch)
		replica__fetch_want(r, &r->inbound->message);
	if (u->snapshot_wanted)
		replica__offer_want(r, u->snapshot_wanted);
	replica__reads_update(r);
	if (r->inbound)
		replica__inbound_free(r->inbound);
	r->inbound = NULL;
	replica__role_update(r); /* who is told may close */
}

static void saved(struct wal_save *save, int code)
{
	struct replica *r = CONTAINER_OF(save, struct replica, save);

	r->saving = false;
	if (code || r->stopped || r->closing)
		return; /* on_fatal has told, or will */
	replica__finish(r);
	replica__kick(r);
}

void replica__step(struct replica *r, const struct raft_event *event)
{
	CHECK(!r->saving && r->log_epoch == r->core.epoch);
	raft_step(&r->core, io_now_ns(r->io) / 1000000, event, r->messages, &r->update);
	if (r->update.install) {
		replica__install(r);
		return;
	}
	if (!r->update.meta) {
		replica__finish(r);
		return;
	}
	r->saving = true;
	r->save = (struct wal_save){.term = r->core.term, .vote = r->core.vote, .done = saved};
	wal_save(r->wal, &r->save);
	replica__role_lost(r); /* who is told may close */
}

/* ---- events ---- */

uint64_t replica__look_up(const struct replica *r, const struct raft_message *message)
{
	uint64_t first, last;

	if (!raft_asks(&r->core, message, &first, &last))
		return 0;
	while (first <= last && replica__term_at(r, first) == raft_message_term(message, first))
		first++;
	return first;
}

static void step_message(struct replica *r)
{
	struct inbound *in = LIST_ENTRY(list_pop_front(&r->received), struct inbound, link);
	struct raft_event event = {.type = RAFT_RECEIVE, .message = &in->message, .count = in->count};

	r->received_count--;
	r->received_bytes -= in->bytes;
	if (in->message.type == RAFT_APPEND || in->message.type == RAFT_SNAPSHOT)
		event.differs = replica__look_up(r, &in->message);
	r->inbound = in;
	replica__step(r, &event);
}

/* The commands up to the next change, or that. */
static void step_submits(struct replica *r)
{
	const struct replica_submit *first = LIST_ENTRY(r->submits.next, struct replica_submit, link);
	struct raft_event event = {.type = RAFT_SUBMIT, .change = first->change, .peer = first->member,
		.known = first->known, .known_count = first->known_count};

	LIST_FOREACH(it, &r->submits)
		if (LIST_ENTRY(it, struct replica_submit, link)->change || ++event.count == SUBMITS_A_STEP)
			break;
	if (first->change) {
		event.type = RAFT_CHANGE;
		event.count = 1;
	}
	replica__step(r, &event);
	/* Who is told may close. */
	for (uint64_t i = 0; r->update.code && i < event.count && !list_empty(&r->submits); i++) {
		struct replica_submit *s = LIST_ENTRY(list_pop_front(&r->submits), struct replica_submit, link);

		r->submit_count--;
		s->done(s, r->update.code);
	}
}

static bool step_persisted(struct replica *r)
{
	struct raft_event event = {.type = RAFT_PERSISTED, .index = wal_durable_index(r->wal), .epoch = r->log_epoch};

	if (event.index <= r->core.persisted)
		return false;
	replica__step(r, &event);
	cache_shrink(&r->cache, r->core.persisted, r->options.cache_bytes);
	return true;
}

/* Segments have left the log: the core is told what it begins behind now. */
static bool step_compacted(struct replica *r)
{
	const struct wal_index *index = wal_index(r->wal);
	struct raft_event event = {.type = RAFT_COMPACTED, .index = index->base_index, .term = index->base_term};

	if (event.index <= r->core.base_index)
		return false;
	replica__step(r, &event);
	return true;
}

/* What a crash leaves of the table, and who lags but a little, need no entry before this one. */
static void trim(struct replica *r)
{
	uint64_t durable = kv_trim_index(table_kv(r->table)), kept = wal_index_back(wal_index(r->wal), r->options.keep_bytes);

	replica__keep_look(r);
	wal_trim(r->wal, durable < kept ? durable : kept);
}

static void step_tick(struct replica *r)
{
	struct raft_event tick = {.type = RAFT_TICK};

	trim(r);
	/* Of any but a leader a tick makes a candidate: not with a log that could not take what it would lead with. */
	if (!replica_hangs(r) || r->core.role == RAFT_LEADER)
		replica__step(r, &tick);
	replica__yield(r);
}

static bool work_once(struct replica *r)
{
	/* First of all what is gone: who is to get it needs something else. */
	if (step_compacted(r) || replica__fill_work(r) || step_persisted(r) || replica__apply_work(r) ||
		replica__offer_work(r) || replica__fetch_work(r) || replica__calls_work(r))
		return true;
	if (!list_empty(&r->received)) {
		step_message(r);
	} else if (!list_empty(&r->submits)) {
		step_submits(r);
	} else if (r->tick) {
		r->tick = false;
		step_tick(r);
	} else {
		return false;
	}
	return true;
}

void replica__work(struct replica *r)
{
	while (r->started && !r->stopped && !r->closing && !r->saving && work_once(r))
		;
}
