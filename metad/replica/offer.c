/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot for a member that needs what the log has no more: the rows of the table as they are after one entry, while the table goes on,
 * read as `craton meta backup` reads them, and sent as it sends them.
 *
 *     wanted --flush--> rows after entry Y --RAFT_SNAPSHOT_TAKEN--> part, part, ... as they are asked for --> the member says that it has Y
 *
 * One at a time, for one member, and for as long as this leadership lasts: open rows make the table's file grow. They close when the last was
 * read; the offer stays, with its last part, until the member has installed it, and what of the log it needs then is kept (keep.c). Both have an end: an
 * offer that nobody asks for ends after PART_IDLE_MS, and one that is asked for too slowly (part.h) does, too, and one of rows that somebody doubts. The
 * core then asks for another one.
 */
#include "metad/replica/replica_private.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

static const uint64_t ms_ns = 1000000;

void replica__offer_close(struct replica *r)
{
	struct offer *o = &r->offer;

	if (o->state != OFFER_OPEN)
		return;
	if (o->rows)
		kv_snapshot_close(o->rows);
	mem_free(o->out);
	io_cancel(r->io, &o->timer);
	o->rows = NULL;
	o->out = NULL;
	o->state = OFFER_NONE;
	o->asked = o->advance = o->tell = o->pending = o->unwanted = false;
}

const struct raft_peer *replica__peer(const struct replica *r, uint64_t id)
{
	for (uint32_t i = 0; i < r->core.config.count; i++)
		if (r->core.peers[i].id == id)
			return &r->core.peers[i];
	return NULL;
}

static bool leads_still(const struct replica *r)
{
	return r->core.role == RAFT_LEADER && r->core.term == r->offer.term;
}

/* Its rows made way for others: the member is refused what is left of them, and gets another snapshot. */
static bool has_made_way(const struct offer *o)
{
	struct err err;

	return o->rows && kv_snapshot_check(o->rows, &err);
}

static bool is_withheld(const struct replica *r)
{
	return r->options.withholds && r->options.withholds(r->options.ctx);
}

static bool is_over(const struct replica *r)
{
	const struct offer *o = &r->offer;
	const struct raft_peer *peer = replica__peer(r, o->message.to);
	uint64_t now = io_now_ns(r->io);

	if (o->unwanted || is_withheld(r) || has_made_way(o) || !leads_still(r) || !peer || peer->state != RAFT_SENDING_SNAPSHOT)
		return true;
	return now - o->asked_ns > PART_IDLE_MS * ms_ns || part_pace_is_over(&o->pace, now);
}

/* ---- begin ---- */

/* The group's row is the first one. */
static int read_group(struct offer *o, struct err *err)
{
	int rc = kv_snapshot_next(o->rows, &o->key, &o->value, err);

	if (rc == ERR_NOENT || (!rc && (slice_compare(o->key, table_group_key()) != 0 ||
					       table_group_decode(o->value, &o->message.snapshot.config) != 0)))
		rc = err_set(err, ERR_CORRUPT, "the table does not say who is in the group");
	o->pending = true;
	return rc;
}

static void write_header(struct replica *r, uint64_t applied)
{
	struct backup_header header = {.applied_index = applied, .created_ns = io_wall_ns(r->io)};
	struct offer *o = &r->offer;

	memcpy(header.cluster.bytes, r->options.cluster, sizeof(header.cluster.bytes));
	snprintf(header.software, sizeof(header.software), "craton");
	o->out = mem_alloc(BACKUP_SECTION_BYTES);
	backup_writer_init(&o->writer, &header, o->out);
	part_digest_init(&o->digest);
}

static void open_rows(struct replica *r)
{
	struct offer *o = &r->offer;
	struct err err = {0};
	uint64_t applied;
	int rc;

	o->state = OFFER_NONE;
	if (!leads_still(r))
		return;
	rc = kv_snapshot_open(table_kv(r->table), &o->rows, &applied, &err);
	if (rc) {
		replica__stop(r, rc, err.text);
		return;
	}
	/* The log may have gone on, and away from what was flushed: the next one will do. */
	if (replica__keep_begin(r, o->message.to, applied + 1)) {
		kv_snapshot_close(o->rows);
		o->rows = NULL;
		return;
	}
	o->state = OFFER_OPEN;
	write_header(r, applied);
	rc = read_group(o, &err);
	if (rc) {
		replica__stop(r, rc, err.text);
		replica__offer_close(r);
		return;
	}
	o->message.type = RAFT_SNAPSHOT;
	o->message.snapshot.index = applied;
	o->message.snapshot.term = replica__term_at(r, applied);
	do
		io_random(r->io, &o->part.snapshot, sizeof(o->part.snapshot));
	while (o->part.snapshot == 0);
	part_descriptor_encode(o->part.snapshot, o->message.snapshot.descriptor);
	o->part.number = 0;
	o->part.code = 0;
	o->part.end = false;
	o->part.data = slice_of(o->out, o->writer.len);
	o->asked_ns = io_now_ns(r->io);
	part_pace_init(&o->pace, r->options.snapshot_bytes_per_s, o->asked_ns);
	o->tell = true;
	r->counts.snapshots_offered++;
	replica__kick(r);
}

static void flushed(void *ctx, int code)
{
	struct replica *r = ctx;

	if (code || r->stopped || r->closing)
		r->offer.state = OFFER_NONE; /* on_fatal has told, or will */
	else
		open_rows(r);
}

void replica__offer_want(struct replica *r, uint64_t wanted)
{
	struct offer *o = &r->offer;

	for (uint32_t i = 0; i < r->core.config.count; i++) {
		uint64_t peer = r->core.peers[i].id;

		if (!(wanted >> i & 1))
			continue;
		if (o->state == OFFER_OPEN && o->message.to == peer && leads_still(r))
			o->tell = true;
		/* Nobody who is not there: the core asks again. */
		if (o->state != OFFER_NONE || table_applied(r->table) == 0 || !r->core.peers[i].active || is_withheld(r))
			continue;
		o->state = OFFER_FLUSHING;
		o->term = r->core.term;
		o->message.to = peer;
		kv_flush(table_kv(r->table), flushed, r);
	}
}

/* ---- parts ---- */

void replica_receive_ask(struct replica *r, uint64_t from, const struct replica_ask *ask)
{
	struct offer *o = &r->offer;
	bool is_this;

	if (!r->started || r->stopped || r->closing)
		return;
	replica__kick(r);
	is_this = o->state == OFFER_OPEN && from == o->message.to && ask->snapshot == o->part.snapshot;
	if (ask->number == PART_NOT_WANTED) {
		o->unwanted = o->unwanted || is_this;
		return;
	}
	if (is_this && ask->number == PART_NONE_YET) {
		o->asked_ns = io_now_ns(r->io);
		return;
	}
	if (!is_this || ask->number < o->part.number || ask->number > o->part.number + 1) {
		o->refused_peer = from;
		o->refused = *ask;
		return;
	}
	replica__keep_taken(r, from);
	/* Whoever asks for the next one has this one. */
	o->advance = ask->number == o->part.number + 1;
	o->asked = true;
	o->asked_ns = io_now_ns(r->io);
	part_pace_asked(&o->pace, o->advance, o->asked_ns);
}

/* What fits a part, from the row on that did not fit the one before. ERR_NOENT: no more rows. */
static int fill_part(struct offer *o, struct err *err)
{
	int rc = 0;

	for (;;) {
		if (!o->pending) {
			rc = kv_snapshot_next(o->rows, &o->key, &o->value, err);
			if (rc)
				return rc;
			o->pending = true;
		}
		if (o->writer.len + o->key.len + o->value.len > part_pace_part_bytes(&o->pace) && o->writer.rows)
			return 0;
		if (!backup_writer_row(&o->writer, o->key, o->value))
			return 0;
		part_digest_row(&o->digest, o->key, o->value);
		o->pending = false;
	}
}

static int next_part(struct offer *o, struct err *err)
{
	int rc;

	backup_writer_next(&o->writer);
	rc = o->rows ? fill_part(o, err) : ERR_NOENT;
	if (rc && rc != ERR_NOENT)
		return rc;
	if (rc == ERR_NOENT && o->rows) {
		kv_snapshot_close(o->rows);
		o->rows = NULL;
	}
	if (o->writer.rows) {
		backup_writer_seal(&o->writer);
	} else {
		backup_writer_end(&o->writer);
		part_digest_fini(&o->digest, o->part.digest);
		o->part.end = true;
	}
	o->part.number++;
	o->part.data = slice_of(o->out, o->writer.len);
	return 0;
}

static void rows_are_near(void *ctx)
{
	replica__kick(ctx);
}

/* Else it goes when they are. */
static bool can_make_part(struct replica *r)
{
	struct offer *o = &r->offer;

	return !o->advance || !o->rows || kv_snapshot_near(o->rows, part_pace_part_bytes(&o->pace), rows_are_near, r);
}

static void send_part(struct replica *r)
{
	struct offer *o = &r->offer;
	struct err err = {0};
	int rc = o->advance && o->part.end ? ERR_STALE : 0;

	if (!can_make_part(r))
		return;
	o->asked = false;
	if (!rc && o->advance)
		rc = next_part(o, &err);
	o->advance = false;
	if (rc == ERR_STALE)
		return; /* there is nothing behind the end */
	if (rc) {
		replica__stop(r, rc, err.text);
		return;
	}
	part_pace_sent(&o->pace, o->part.data.len, io_now_ns(r->io));
	r->counts.parts_sent++;
	r->options.part(r->options.ctx, o->message.to, &o->part);
}

static void part_is_due(struct io_op *op)
{
	replica__kick(CONTAINER_OF(op, struct replica, offer.timer));
}

/* One that was asked for goes when its time has come, not when somebody looks. */
static void mind_part(struct replica *r)
{
	struct offer *o = &r->offer;

	if (!o->asked)
		return;
	if (io_now_ns(r->io) >= o->pace.next_ns) {
		send_part(r);
	} else if (!io_pending(&o->timer)) {
		io_prep_timer(&o->timer, o->pace.next_ns, part_is_due);
		io_submit(r->io, &o->timer);
	}
}

static void refuse(struct replica *r)
{
	const struct replica_part part = {.snapshot = r->offer.refused.snapshot, .number = r->offer.refused.number, .code = ERR_STALE};
	uint64_t peer = r->offer.refused_peer;

	r->offer.refused_peer = 0;
	r->options.part(r->options.ctx, peer, &part);
}

static void tell(struct replica *r)
{
	struct offer *o = &r->offer;
	struct raft_event event = {.type = RAFT_SNAPSHOT_TAKEN, .peer = o->message.to, .message = &o->message};

	o->tell = false;
	replica__step(r, &event);
	if (r->update.code)
		replica__offer_close(r); /* the log does not go on behind it: the core asks for another one */
}

bool replica__offer_work(struct replica *r)
{
	struct offer *o = &r->offer;

	if (o->refused_peer)
		refuse(r);
	if (o->state != OFFER_OPEN)
		return false;
	if (is_over(r)) {
		replica__offer_close(r);
		return false;
	}
	mind_part(r);
	if (!o->tell || r->stopped)
		return false;
	tell(r);
	return true;
}
