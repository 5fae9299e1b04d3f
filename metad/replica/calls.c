/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that see all that was acknowledged, leadership that is handed over, and what the layer above is told of the role. */
#include "metad/replica/replica_private.h"

#include "common/base/check.h"
#include "common/base/sometimes.h"

/* ---- reads ---- */

int replica_read(struct replica *r, struct replica_read *read)
{
	if (r->stopped || r->closing)
		return ERR_STOPPED;
	if (r->read_count == REPLICA_READS_MAX)
		return ERR_OVERLOADED;
	r->read_count++;
	list_push_back(&r->reads, &read->link);
	replica__kick(r);
	return 0;
}

static struct replica_read *first_of(struct list *reads)
{
	return list_empty(reads) ? NULL : LIST_ENTRY(reads->next, struct replica_read, link);
}

static void end_first(struct replica *r, struct list *reads, int code)
{
	struct replica_read *read = LIST_ENTRY(list_pop_front(reads), struct replica_read, link);

	r->read_count--;
	read->done(read, code);
}

/* All that wait go with one question; the answer may be in the same update. */
void replica__reads_update(struct replica *r)
{
	const struct raft_update *u = &r->update;
	struct replica_read *read;

	while (u->read_token && !list_empty(&r->reads)) {
		read = LIST_ENTRY(list_pop_front(&r->reads), struct replica_read, link);
		read->token = u->read_token;
		list_push_back(&r->reads_open, &read->link);
	}
	while (u->read_done && (read = first_of(&r->reads_open)) && read->token <= u->read_done) {
		list_remove(&read->link);
		read->token = u->read_index;
		list_push_back(&r->reads_ready, &read->link);
	}
	r->reads_lost |= u->reads_lost;
}

/* Who is refused may ask again at once: that is for the next turn. */
static void step_reads(struct replica *r)
{
	struct raft_event event = {.type = RAFT_READ};
	uint32_t count = 0;

	LIST_FOREACH(it, &r->reads) {
		count++;
		if (LIST_ENTRY(it, struct replica_read, link)->asks_all)
			r->ask.all_seq = r->core.read_seq + 1; /* of the next question */
	}
	replica__step(r, &event);
	if (!r->update.code)
		return;
	for (; count > 0 && !list_empty(&r->reads); count--)
		end_first(r, &r->reads, r->update.code);
	replica__kick(r);
}

/* ---- hand-over ---- */

int replica_transfer(struct replica *r, uint64_t to, void (*done)(void *ctx, int code), void *ctx)
{
	CHECK(to > 0);
	if (r->stopped || r->closing)
		return ERR_STOPPED;
	if (r->transfer.to)
		return ERR_BUSY;
	r->transfer.to = to;
	r->transfer.begun = false;
	r->transfer.done = done;
	r->transfer.ctx = ctx;
	replica__kick(r);
	return 0;
}

bool replica_transfer_await(struct replica *r, void (*over)(void *ctx), void *ctx)
{
	if (!r->transfer.to)
		return false;
	CHECK(!r->transfer.over);
	r->transfer.over = over;
	r->transfer.over_ctx = ctx;
	return true;
}

static void transfer_end(struct replica *r, int code)
{
	void (*over)(void *ctx) = r->transfer.over;

	r->transfer.to = 0;
	r->transfer.over = NULL;
	r->transfer.done(r->transfer.ctx, code);
	if (over)
		over(r->transfer.over_ctx);
}

static bool transfer_work(struct replica *r)
{
	struct raft_event event = {.type = RAFT_TRANSFER, .peer = r->transfer.to};

	if (!r->transfer.to)
		return false;
	if (!r->transfer.begun) {
		r->transfer.begun = true;
		replica__step(r, &event);
		if (r->update.code && !r->closing && !r->stopped)
			transfer_end(r, r->update.code);
		return true;
	}
	if (r->core.role != RAFT_LEADER)
		transfer_end(r, 0);
	else if (!r->core.transfer_to)
		transfer_end(r, ERR_TIMEDOUT);
	else
		return false;
	return true;
}

/* It leads on, or does not: the next tick sees. */
static void yielded(void *ctx, int code)
{
	(void)ctx, (void)code;
}

void replica__yield(struct replica *r)
{
	uint64_t to;

	if (!replica_hangs(r) || r->core.role != RAFT_LEADER || r->transfer.to)
		return;
	to = stall_successor(&r->core, r->core.persisted, 0);
	if (!to)
		return;
	SOMETIMES(replica_yields);
	(void)replica_transfer(r, to, yielded, r); /* stopped, or closing */
}

/* ---- reports ---- */

static void report(struct replica *r)
{
	const struct replica_role role = {r->core.role, r->core.term, r->core.leader, r->ready};

	r->options.on_role(r->options.ctx, &role);
}

void replica__role_update(struct replica *r)
{
	const struct raft_update *u = &r->update;

	if (u->append.kind == RAFT_APPEND_NOOP)
		r->first_index = u->append.first;
	if (!u->role_changed)
		return;
	r->ready = false;
	if (r->core.role != RAFT_LEADER)
		r->first_index = 0;
	report(r);
}

void replica__role_lost(struct replica *r)
{
	if (!r->first_index || r->core.role == RAFT_LEADER)
		return;
	r->ready = false;
	r->first_index = 0;
	report(r);
	if (r->transfer.to && r->transfer.begun)
		transfer_end(r, 0);
}

/* Behind the first entry of its own term is all that earlier leaders may have acknowledged. */
static bool ready_work(struct replica *r)
{
	if (r->ready || !r->first_index || table_applied(r->table) < r->first_index)
		return false;
	r->ready = true;
	report(r);
	return true;
}

/* ---- both ---- */

bool replica__calls_work(struct replica *r)
{
	struct replica_read *read;

	if (r->reads_lost && !list_empty(&r->reads_open)) {
		end_first(r, &r->reads_open, ERR_NOT_LEADER);
		return true;
	}
	r->reads_lost = false;
	if ((read = first_of(&r->reads_ready)) && read->token <= table_applied(r->table)) {
		end_first(r, &r->reads_ready, 0);
		return true;
	}
	if (!list_empty(&r->reads)) {
		step_reads(r);
		return true;
	}
	return ready_work(r) || transfer_work(r);
}

void replica__calls_fail(struct replica *r, int code)
{
	struct list *const lists[] = {&r->reads, &r->reads_open, &r->reads_ready};

	for (size_t i = 0; i < ARRAY_COUNT(lists); i++)
		while (!list_empty(lists[i]))
			end_first(r, lists[i], code);
	if (r->transfer.to)
		transfer_end(r, code);
}
