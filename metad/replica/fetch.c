/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot that this replica needs, and the switch to it.
 *
 *     wanted --> ask --part--> taken (worker) --> ask for the next ... --last--> checked (worker) --> marked (worker) --> RAFT_SNAPSHOT_READY
 *       ^          \--not answered FETCH_ATTEMPTS times, refused, or not what the leader read--> given up; the leader offers another one
 *
 *     install: the log begins anew behind it (one write of its slots, which is also what makes the new table count) --> the old table is
 *     closed, the new one opened --> the update goes on
 *
 * Until the slots are written a crash leaves the old log and the old table, from then on the new ones. Nothing is stepped in between.
 */
#include "metad/replica/replica_private.h"

#include <inttypes.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"

enum { FETCH_ATTEMPTS = 8, FETCH_ASK_MS = 200, FETCH_ASK_MOST_MS = 2000, FETCH_WAIT_MS = 500, FETCH_WAIT_MOST_MS = 30000, FETCH_ALIVE_MS = PART_IDLE_MS / 6 };
static const uint64_t ms_ns = 1000000;

static void submit_work(struct replica *r, enum fetch_work work);

static void drop_intake(struct fetch *f)
{
	if (f->intake)
		intake_free(f->intake);
	mem_free(f->data);
	f->intake = NULL;
	f->data = NULL;
}

/* It may be lost: it is said again as often as that snapshot is offered again. */
static void say_unwanted(struct replica *r, uint64_t to)
{
	const struct replica_ask ask = {r->fetch.given_up, PART_NOT_WANTED};

	r->options.ask(r->options.ctx, to, &ask);
}

/* Parts are given out once, in order: who begins again begins with another snapshot. */
static void give_up(struct replica *r)
{
	struct fetch *f = &r->fetch;

	drop_intake(f);
	f->state = FETCH_NONE;
	f->given_up = f->snapshot;
	say_unwanted(r, f->message.from);
}

static void fail(struct replica *r)
{
	struct fetch *f = &r->fetch;

	f->not_before_ns = io_now_ns(r->io) + rng_backoff(&f->rng, FETCH_WAIT_MS, FETCH_WAIT_MOST_MS, f->failures++) * ms_ns;
	r->counts.snapshots_failed++;
	give_up(r);
}

static void ask(struct replica *r)
{
	struct fetch *f = &r->fetch;
	const struct replica_ask ask = {f->snapshot, f->number};

	f->ask_at_ns =
		io_now_ns(r->io) + rng_backoff(&f->rng, FETCH_ASK_MS, FETCH_ASK_MOST_MS, f->attempts++) * ms_ns;
	r->options.ask(r->options.ctx, f->message.from, &ask);
}

/* Writing a part, and more so reading all of them back, may take longer than a leader keeps up what nobody asks for. */
static void say_working(struct replica *r)
{
	struct fetch *f = &r->fetch;
	const struct replica_ask ask = {f->snapshot, PART_NONE_YET};

	f->ask_at_ns = io_now_ns(r->io) + FETCH_ALIVE_MS * ms_ns;
	r->options.ask(r->options.ctx, f->message.from, &ask);
}

static void ask_for(struct replica *r, uint64_t number)
{
	struct fetch *f = &r->fetch;

	f->state = FETCH_ASKING;
	f->number = number;
	f->attempts = 0;
	ask(r);
}

static void begin(struct replica *r, const struct raft_message *m)
{
	struct fetch *f = &r->fetch;
	struct intake_options options = {.table = {.dir = r->options.dir, .kv = r->options.kv},
		.slot = 1 - table_slot(r->table),
		.index = m->snapshot.index,
		.config = m->snapshot.config};

	memcpy(options.cluster.bytes, r->options.cluster, sizeof(options.cluster.bytes));
	f->message = *m;
	f->snapshot = part_descriptor_decode(m->snapshot.descriptor);
	f->intake = intake_new(r->io, &options);
	ask_for(r, 0);
}

void replica__fetch_want(struct replica *r, const struct raft_message *m)
{
	struct fetch *f = &r->fetch;
	uint64_t snapshot = part_descriptor_decode(m->snapshot.descriptor);

	if (snapshot == f->given_up) {
		say_unwanted(r, m->from);
		return;
	}
	/* Another one, and nobody answers for the one that was begun. */
	if (f->state == FETCH_ASKING && f->snapshot != snapshot && f->attempts > 2)
		give_up(r);
	if (f->state == FETCH_NONE && io_now_ns(r->io) >= f->not_before_ns)
		begin(r, m);
}

void replica_receive_part(struct replica *r, uint64_t from, const struct replica_part *part)
{
	struct fetch *f = &r->fetch;

	if (!r->started || r->stopped || r->closing || f->state != FETCH_ASKING || from != f->message.from ||
		part->snapshot != f->snapshot)
		return;
	if (part->number != f->number)
		return; /* an answer that came twice, or to an ask that came late */
	if (part->code) {
		f->refused = true;
		replica__kick(r);
		return;
	}
	if (part->data.len == 0 || part->data.len > BACKUP_SECTION_BYTES) {
		r->counts.malformed++;
		return;
	}
	f->data = mem_alloc(part->data.len);
	f->len = part->data.len;
	memcpy(f->data, part->data.data, part->data.len);
	f->end = part->end;
	memcpy(f->digest, part->digest, sizeof(f->digest));
	r->counts.parts_received++;
	f->ask_at_ns = io_now_ns(r->io) + FETCH_ALIVE_MS * ms_ns;
	submit_work(r, FETCH_TAKE);
}

/* ---- the worker ---- */

static void run_work(struct io_op *op)
{
	struct fetch *f = CONTAINER_OF(op, struct fetch, op);

	switch (f->work) {
	case FETCH_TAKE:
		f->code = intake_part(f->intake, f->number, slice_of(f->data, f->len), &f->err);
		break;
	case FETCH_CHECK:
		f->code = intake_check(f->intake, f->digest, &f->checked, &f->err);
		break;
	case FETCH_FINISH:
		f->code = intake_finish(f->intake, &f->err);
		break;
	}
}

static void next_work(struct replica *r)
{
	struct fetch *f = &r->fetch;

	switch (f->work) {
	case FETCH_TAKE:
		mem_free(f->data);
		f->data = NULL;
		if (f->end)
			submit_work(r, FETCH_CHECK);
		else
			ask_for(r, f->number + 1);
		break;
	case FETCH_CHECK:
		submit_work(r, f->checked ? FETCH_FINISH : FETCH_CHECK);
		break;
	case FETCH_FINISH:
		f->state = FETCH_READY;
		replica__kick(r);
		break;
	}
}

static void work_done(struct io_op *op)
{
	struct fetch *f = CONTAINER_OF(op, struct fetch, op);
	struct replica *r = CONTAINER_OF(f, struct replica, fetch);
	int code = op->result < 0 ? (int)op->result : f->code;

	if (r->closing) {
		replica__kick(r);
		return;
	}
	if (r->stopped)
		return;
	if (code)
		fail(r);
	else
		next_work(r);
}

/* In the table's own lane: it does not get in the way of the log. */
static void submit_work(struct replica *r, enum fetch_work work)
{
	struct fetch *f = &r->fetch;

	f->state = FETCH_WORKING;
	f->work = work;
	io_prep_offload(&f->op, IO_LANE_KV, run_work, work_done);
	io_submit(r->io, &f->op);
}

bool replica__fetch_close(struct replica *r)
{
	if (io_pending(&r->fetch.op))
		return false;
	drop_intake(&r->fetch);
	r->fetch.state = FETCH_NONE;
	return true;
}

/* ---- install ---- */

bool replica__fetch_work(struct replica *r)
{
	struct fetch *f = &r->fetch;
	struct raft_event event = {.type = RAFT_SNAPSHOT_READY, .message = &f->message};

	if (f->refused && f->state == FETCH_ASKING)
		give_up(r);
	f->refused = false;
	if (f->state == FETCH_ASKING && io_now_ns(r->io) >= f->ask_at_ns) {
		if (f->attempts >= FETCH_ATTEMPTS)
			fail(r);
		else
			ask(r);
	}
	if (f->state == FETCH_WORKING && io_now_ns(r->io) >= f->ask_at_ns)
		say_working(r);
	if (f->state != FETCH_READY)
		return false;
	drop_intake(f);
	f->state = FETCH_NONE;
	f->failures = 0;
	event.differs = replica__look_up(r, &f->message);
	replica__step(r, &event);
	return true;
}

/* Whether what was taken up to there was committed, a snapshot does not say. */
static void end_taken(struct replica *r, uint64_t index)
{
	while (!list_empty(&r->taken)) {
		struct replica_submit *s = LIST_ENTRY(r->taken.next, struct replica_submit, link);

		if (s->index > index)
			return;
		list_remove(&s->link);
		r->submit_count--;
		s->done(s, ERR_STALE);
	}
}

static void open_new(struct replica *r)
{
	uint64_t index = r->fetch.message.snapshot.index;
	struct err err = {0};
	int rc = replica__open_table(r, &err);

	if (!rc && table_applied(r->table) != index)
		rc = err_set(&err, ERR_CORRUPT, "%s: the table of the snapshot of entry %" PRIu64 " holds entries up to %" PRIu64,
			r->options.dir, index, table_applied(r->table));
	if (rc) {
		replica__stop(r, rc, err.text);
		return;
	}
	r->saving = false;
	r->counts.snapshots_installed++;
	SOMETIMES(replica_snapshot_installed);
	r->options.on_table(r->options.ctx, table_kv(r->table));
	end_taken(r, index);
	if (!r->closing)
		replica__finish(r);
}

static void old_closed(void *ctx, int code)
{
	struct replica *r = ctx;

	r->table_closing = false;
	r->table_closed = r->closing;
	replica__kick(r);
	if (code)
		replica__stop(r, code, "the table that a snapshot replaces could not be closed");
	if (!r->closing && !r->stopped)
		open_new(r);
}

static void restarted(struct wal_restart *restart, int code)
{
	struct replica *r = CONTAINER_OF(restart, struct replica, restart);
	struct table *table = r->table;

	if (code || r->stopped || r->closing)
		return; /* on_fatal has told, or will */
	r->options.on_table(r->options.ctx, NULL);
	if (r->closing)
		return;
	r->table = NULL;
	r->table_closing = true;
	table_close(table, old_closed, r);
}

void replica__install(struct replica *r)
{
	const struct raft_message *m = &r->fetch.message;

	CHECK(!r->update.meta && !r->update.truncate_from && !r->update.append.kind);
	r->saving = true;
	replica__offer_close(r);
	replica__keep_close(r);
	cache_cut(&r->cache, 0);
	replica__end_reader(&r->apply_reader);
	r->restart = (struct wal_restart){.index = m->snapshot.index, .term = m->snapshot.term, .done = restarted};
	wal_restart(r->wal, &r->restart);
}
