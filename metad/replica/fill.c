/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What needs the bodies of entries: messages that ask for them, and apply. From memory, or read back from the log.
 *
 * Who is far behind gets entries at a limited rate: it would take all that its disk and processor give to catch up, and what it is sent costs the leader
 * a part of its own; both may have to serve others meanwhile. An entry costs its receiver some times what a row of a snapshot does, byte by byte: it is
 * logged, decided and applied by itself. However fast the log grows, it gets twice as much; and all at once where the
 * log may be trimmed behind its back, nothing can be committed without it, or it is to lead.
 */
#include "metad/replica/replica_private.h"

#include <inttypes.h>
#include <stdio.h>
#include "common/base/check.h"
#include "common/base/sometimes.h"

static void read_done(struct wal_read *read, int code)
{
	struct reader *reader = CONTAINER_OF(read, struct reader, read);

	reader->busy = false;
	reader->code = code;
	if (reader->r->stopped || reader->r->closing) {
		wal_read_end(read);
		return;
	}
	reader->ready = true;
	replica__kick(reader->r);
}

int replica__read(struct replica *r, struct reader *reader, uint64_t from, uint64_t to, uint32_t max_bytes)
{
	int rc;

	CHECK(!reader->busy && !reader->ready);
	reader->r = r;
	reader->held = false;
	reader->read = (struct wal_read){.from = from, .to = to, .max_bytes = max_bytes, .done = read_done};
	rc = wal_read(r->wal, &reader->read);
	reader->busy = rc == 0;
	return rc;
}

/*
 * All bodies were looked at when they came, or when the log was opened. What is read back comes from the disk again, under a CRC that says that it
 * is whole, not that it is ours.
 */
static bool is_known(struct replica *r, uint64_t index, struct slice data)
{
	struct raft_config config;
	enum body_kind kind;
	char text[128];

	if (body_decode(data, index, &kind, &config) == 0)
		return true;
	snprintf(text, sizeof(text), "entry %" PRIu64 ", read back from the log, is of no kind that is known here", index);
	replica__stop(r, ERR_CORRUPT, text);
	return false;
}

/* ---- messages ---- */

enum {
	CATCH_UP_SHARE = 4,  /* of the rate at which a snapshot is given away */
	FAR_BYTES = 1 << 20, /* who lacks less than that gets it at once */
};

struct filling {
	struct replica_body bodies[REPLICA_BODIES_MAX];
	uint32_t count;
	bool has_config; /* the last one: a message ends there */
	struct raft_config config;
};

/* False: it does not belong to it any more. */
static bool take(struct filling *f, uint64_t index, uint64_t term, struct slice data)
{
	enum body_kind kind;

	if (f->count == REPLICA_BODIES_MAX || f->has_config)
		return false;
	CHECK(body_decode(data, index, &kind, &f->config) == 0); /* was looked at when it came, or was read back */
	f->has_config = kind == BODY_CONFIG;
	f->bodies[f->count++] = (struct replica_body){term, data};
	return true;
}

static void take_cached(struct replica *r, const struct raft_message *m, struct filling *f)
{
	uint64_t bytes = 0, index = m->append.prev_index + 1;
	const struct entry *e;

	while (index <= r->core.last_index && (e = cache_at(&r->cache, index))) {
		bytes += e->append.data.len;
		if ((f->count && bytes > m->append.room_bytes) || !take(f, index, e->append.term, e->append.data))
			return;
		index++;
	}
}

static void take_read(struct replica *r, struct reader *reader, struct filling *f)
{
	uint64_t index, term;
	struct slice data;

	while (wal_read_next(&reader->read, &index, &term, &data))
		if (!is_known(r, index, data) || !take(f, index, term, data))
			return;
}

static uint32_t runs_of(const struct replica *r, uint64_t first, uint64_t last, struct raft_run *runs)
{
	uint32_t count = 0;

	for (uint64_t i = first; i <= last; i++) {
		uint64_t term = replica__term_at(r, i);

		if (term && (count == 0 || runs[count - 1].term != term))
			runs[count++] = (struct raft_run){i, term};
	}
	return count;
}

static bool stands(const struct replica *r, const struct raft_message *m)
{
	return r->core.role == RAFT_LEADER && r->core.term == m->term;
}

/* ---- the pace of who is far behind ---- */

static uint64_t catch_up_rate(const struct replica *r)
{
	uint64_t rate = r->options.snapshot_bytes_per_s ? r->options.snapshot_bytes_per_s : PART_BYTES_PER_S;

	return rate / CATCH_UP_SHARE;
}

/* By what its last entries were like. What is not committed is not counted: others may wait for that. */
static bool is_far_behind(const struct replica *r, const struct fill *fill)
{
	uint64_t prev = fill->message.append.prev_index, entries = r->core.commit > prev ? r->core.commit - prev : 0;

	return fill->given.count && entries > fill->given.count && entries * fill->given.bytes / fill->given.count > FAR_BYTES;
}

/*
 * The log may be trimmed behind its back: then it would need a snapshot. What it lacks lies well within what stays of the log, and does not
 * grow, as the log grows no faster than it gets entries.
 */
static bool has_time(const struct replica *r, const struct fill *fill)
{
	return replica__keeps(r, fill->message.to) ||
		wal_bytes_from(r->wal, fill->message.append.prev_index + 1) <= r->options.keep_bytes / 4 * 3;
}

/* Of what it gets, so much makes up for the log's growth; of a single entry that entry. */
static uint32_t half(uint32_t count)
{
	return (count + 1) / 2;
}

static void note_given(struct replica *r, struct fill *fill, uint32_t count, uint32_t bytes)
{
	uint64_t grown;

	if (!count)
		return;
	grown = fill->given.count && is_far_behind(r, fill) ? r->core.last_index - fill->given.log_end : 0;
	if (grown > REPLICA_BODIES_MAX)
		grown = REPLICA_BODIES_MAX;
	fill->given.count = count;
	fill->given.bytes = bytes;
	fill->given.log_end = r->core.last_index - (grown > half(count) ? grown - half(count) : 0);
	fill->given.next_ns = io_now_ns(r->io) + bytes * 1000000000ull / catch_up_rate(r);
}

/*
 * The others that are there do not suffice to commit without it, or do not commit, as one whose disk hangs: it answers, and has all that is committed.
 * Each of them is looked at anew once in a while, and has said nothing then for a moment.
 */
static bool is_needed(const struct replica *r, struct fill *fill)
{
	const struct raft_core *core = &r->core;
	uint64_t to = fill->message.to, now = io_now_ns(r->io);
	uint32_t voters = 0, level = 0;
	bool votes = false;

	for (uint32_t i = 0; i < core->config.count; i++) {
		const struct raft_peer *peer = &core->peers[i];

		if (!core->config.members[i].voter)
			continue;
		voters++;
		votes |= peer->id == to;
		if (peer->id != to)
			level += peer->id == core->options.id || (peer->active && peer->match >= core->commit);
	}
	if (level >= voters / 2 + 1 && (core->commit == core->last_index || core->commit != fill->commit))
		fill->not_needed_ns = now;
	fill->commit = core->commit;
	return core->transfer_to == to || (votes && now - fill->not_needed_ns > 2000000ull * r->options.raft.heartbeat_ms);
}

static void fill_is_due(struct io_op *op)
{
	replica__kick(CONTAINER_OF(op, struct fill, due)->reader.r);
}

static bool must_wait(struct replica *r, struct fill *fill)
{
	const struct raft_message *m = &fill->message;

	if (!m->append.room_bytes || !stands(r, m) || !is_far_behind(r, fill) || !has_time(r, fill) || is_needed(r, fill) ||
		io_now_ns(r->io) >= fill->given.next_ns || r->core.last_index - fill->given.log_end >= half(fill->given.count))
		return false;
	SOMETIMES(replica_catch_up_waits);
	if (!io_pending(&fill->due)) {
		io_prep_timer(&fill->due, fill->given.next_ns, fill_is_due);
		io_submit(r->io, &fill->due);
	}
	return true;
}

void replica__fill_close(struct replica *r)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++) {
		replica__end_reader(&r->fills[i].reader);
		io_cancel(r->io, &r->fills[i].due);
	}
}

bool replica__fill_is_quiet(const struct replica *r)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (io_pending(&r->fills[i].due))
			return false;
	return true;
}

/* ---- sending ---- */

/* Sends what was gathered, if the message still stands; the core is told in any case. */
static void send_filled(struct replica *r, struct fill *fill, struct filling *f)
{
	struct raft_message m = fill->message;
	struct raft_event sent = {.type = RAFT_SENT, .peer = m.to, .term = m.term};
	struct raft_run runs[REPLICA_BODIES_MAX + 1];
	uint64_t prev = m.append.prev_index, last = prev + f->count;

	if (stands(r, &m) && (f->count > 0 || m.append.room_bytes == 0) &&
		raft_fill(&r->core, &m, last, runs, runs_of(r, prev, last, runs))) {
		uint32_t count = (uint32_t)(m.append.last - prev);

		if (count == f->count && f->has_config) {
			m.append.has_config = true;
			m.append.config = f->config;
		}
		r->options.send(r->options.ctx, &m, f->bodies, count);
		for (uint32_t i = 0; i < count; i++)
			sent.bytes += (uint32_t)f->bodies[i].data.len;
		sent.index = count ? m.append.last : 0;
		note_given(r, fill, count, sent.bytes);
	}
	replica__step(r, &sent);
}

void replica__fill_want(struct replica *r, const struct raft_message *message)
{
	struct fill *at = NULL;

	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX && (!at || at->message.to != message->to); i++) {
		struct fill *f = &r->fills[i];
		bool idle = !f->wanted && !f->reader.busy && !f->reader.ready;

		if (f->message.to == message->to || (idle && !at))
			at = f;
	}
	CHECK(at);
	if (at->message.to != message->to)
		at->given.count = 0;
	at->message = *message;
	at->reader.r = r;
	at->wanted = true;
}

/* An entry that has left the log meanwhile leaves the message empty: the core looks again what this member needs. */
static void fill_from_cache(struct replica *r, struct fill *fill)
{
	struct filling f;

	f.count = 0;
	f.has_config = false;
	fill->wanted = false;
	if (fill->message.append.room_bytes)
		take_cached(r, &fill->message, &f);
	r->counts.fills_cached += f.count > 0;
	send_filled(r, fill, &f);
}

static void fill_from_read(struct replica *r, struct fill *fill)
{
	struct filling f;

	f.count = 0;
	f.has_config = false;
	fill->wanted = fill->reader.ready = false;
	/* A message of a later leadership may have taken the place of that which the read was for. */
	if (fill->reader.code == 0 && fill->reader.read.from == fill->message.append.prev_index + 1)
		take_read(r, &fill->reader, &f);
	r->counts.fills_read += f.count > 0;
	if (f.count > 0)
		SOMETIMES(replica_fed_from_log);
	if (!r->stopped)
		send_filled(r, fill, &f);
	wal_read_end(&fill->reader.read);
}

bool replica__fill_work(struct replica *r)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++) {
		struct fill *fill = &r->fills[i];
		const struct raft_message *m = &fill->message;
		uint64_t first = m->append.prev_index + 1;

		if (fill->reader.ready) {
			fill_from_read(r, fill);
			return true;
		}
		if (!fill->wanted || fill->reader.busy || must_wait(r, fill))
			continue;
		if (m->append.room_bytes && stands(r, m) && !cache_at(&r->cache, first)) {
			/* What cannot be read now is tried with the next tick; what is gone never can. */
			if (replica__read(r, &fill->reader, first, first + REPLICA_BODIES_MAX - 1,
				    m->append.room_bytes) != ERR_NOENT)
				continue;
		}
		fill_from_cache(r, fill);
		return true;
	}
	return false;
}

/* ---- apply ---- */

static void answer(struct replica *r, uint64_t index, uint64_t term)
{
	while (!list_empty(&r->taken)) {
		struct replica_submit *s = LIST_ENTRY(r->taken.next, struct replica_submit, link);

		/* Behind an applied entry of a later term none of an earlier one can ever be committed. */
		if (s->index > index && s->term >= term)
			return;
		list_remove(&s->link);
		r->submit_count--;
		s->done(s, s->index == index && s->term == term ? 0 : ERR_CANCELED);
	}
}

/* An entry's body was looked at when it came, or was read back. ret_commands: what apply gets of it. */
static enum body_kind open_body(uint64_t index, struct slice data, struct raft_config *ret_config, struct slice *ret_commands)
{
	enum body_kind kind;

	CHECK(body_decode(data, index, &kind, ret_config) == 0);
	*ret_commands = kind == BODY_COMMANDS ? slice_of(data.data + 1, data.len - 1) : slice_of(NULL, 0);
	return kind;
}

/*
 * False: it waits until a commit of the table has made room. One that finds none although it is alone is tried; a snapshot that is given away
 * makes way first, for the pages that it keeps count as room only without it.
 */
static bool has_room(const struct replica *r, uint64_t index, struct slice data)
{
	struct kv *kv = table_kv(r->table);
	struct raft_config config;
	struct slice commands;
	enum body_kind kind = open_body(index, data, &config, &commands);
	uint64_t rows = r->options.rows ? r->options.rows(r->options.ctx, kind, commands) : 0;

	rows += kind == BODY_CONFIG; /* the group's */
	if (kv_admits(kv, r->options.growth_bytes, rows))
		return true;
	if (!kv_is_settled(kv))
		return false;
	kv_end_snapshots(kv);
	return true;
}

static void apply_one(struct replica *r, uint64_t index, uint64_t term, struct slice data)
{
	struct kv *kv = table_kv(r->table);
	struct raft_config config;
	struct slice commands;
	enum body_kind kind = open_body(index, data, &config, &commands);
	const char *text;
	struct err err = {0};
	int rc;

	rc = r->options.apply(r->options.ctx, kv, index, term, kind, commands, &err);
	/* A row that could not be read may have gone into what was written. */
	if (!rc && (rc = kv_failure(kv, &text)))
		err_set(&err, rc, "%s", text);
	if (rc) {
		replica__stop(r, rc, err.text);
		return;
	}
	table_applied_entry(r->table, index, kind == BODY_CONFIG ? &config : NULL);
	answer(r, index, term);
}

/* False: what is left of it waits. */
static bool apply_read(struct replica *r)
{
	struct reader *reader = &r->apply_reader;

	while (reader->code == 0) {
		if (!reader->held)
			reader->held = wal_read_next(&reader->read, &reader->index, &reader->term, &reader->data);
		if (!reader->held)
			break;
		if (!is_known(r, reader->index, reader->data))
			return true;
		if (!has_room(r, reader->index, reader->data))
			return false;
		reader->held = false;
		apply_one(r, reader->index, reader->term, reader->data);
		/* Who was told of its end may have closed: then the reader has ended. */
		if (r->closing || r->stopped)
			return true;
	}
	reader->ready = false;
	wal_read_end(&reader->read);
	return true;
}

bool replica__apply_work(struct replica *r)
{
	uint64_t to = r->core.commit < r->core.persisted ? r->core.commit : r->core.persisted;
	const struct entry *e;
	uint64_t next = table_applied(r->table) + 1;
	int code;

	if (r->apply_reader.ready)
		return apply_read(r);
	if (next > to || r->apply_reader.busy)
		return false;
	e = cache_at(&r->cache, next);
	if (e) {
		if (!has_room(r, e->append.index, e->append.data))
			return false;
		apply_one(r, e->append.index, e->append.term, e->append.data);
		return true;
	}
	/* It is durable and committed, so it is there, and stays. A log that failed says so itself, at the end of the turn. */
	code = replica__read(r, &r->apply_reader, next, to, WAL_READ_BYTES);
	if (code == ERR_NOENT || code == ERR_AGAIN)
		replica__stop(r, ERR_CORRUPT, "a committed entry is not in the log");
	return false;
}
