/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round is all that waited when it began, cut into runs: a run is one write of neighbours. Invariant: a write is in the queue or in
 * exactly one run, and its `done` comes after the run's own completion, with that result.
 */
#include "chunkd/gather.h"

#include "chunkd/segment.h"
#include "common/base/check.h"
#include "common/base/mem.h"

struct run {
	struct sched_op op;
	struct gather *gather;
	struct list writes;
	int iov_count;
	struct iovec iov[IO_IOV_MAX];
	struct list link; /* gather->free */
};

static void start_round(struct io_turn_hook *hook);

void gather_init(struct gather *g, struct io *io, struct sched *sched, struct segments *segments)
{
	*g = (struct gather){.io = io, .sched = sched, .segments = segments};
	list_init(&g->queue);
	list_init(&g->free);
	io_turn_hook_init(&g->hook, start_round);
}

void gather_fini(struct gather *g)
{
	CHECK(list_empty(&g->queue) && g->runs_left == 0);
	io_turn_hook_remove(g->io, &g->hook);
	while (!list_empty(&g->free))
		mem_free(LIST_ENTRY(list_pop_front(&g->free), struct run, link));
}

static uint64_t write_bytes(const struct gather_write *w)
{
	uint64_t bytes = 0;

	for (int i = 0; i < w->iov_count; i++)
		bytes += w->iov[i].iov_len;
	return bytes;
}

static bool lies_before(const struct gather_write *a, const struct gather_write *b)
{
	return a->segment != b->segment ? a->segment < b->segment : a->offset < b->offset;
}

/* Mostly at the end: extents are given out from front to back. */
void gather_add(struct gather *g, struct gather_write *w)
{
	struct list *at = g->queue.prev;

	CHECK(w->iov_count >= 1 && w->iov_count <= GATHER_WRITE_IOVS);
	while (at != &g->queue && lies_before(w, LIST_ENTRY(at, struct gather_write, link)))
		at = at->prev;
	list_insert_before(at->next, &w->link);
	sched_gathering(g->sched, 1);
	io_at_turn_end(g->io, &g->hook);
}

static void run_done(struct sched_op *op)
{
	struct run *r = CONTAINER_OF(op, struct run, op);
	struct gather *g = r->gather;
	int code = r->op.io.result < 0 ? (int)r->op.io.result : 0;
	struct list now;

	list_init(&now);
	while (!list_empty(&r->writes))
		list_push_back(&now, list_pop_front(&r->writes));
	CHECK(g->runs_left > 0);
	g->runs_left--;
	list_push_front(&g->free, &r->link);
	if (!list_empty(&g->queue))
		io_at_turn_end(g->io, &g->hook);
	/* The last `done` may be the end of all that this belongs to. */
	while (!list_empty(&now)) {
		struct gather_write *w = LIST_ENTRY(list_pop_front(&now), struct gather_write, link);

		w->done(w, code);
	}
}

/* The front of the queue, and what lies directly behind it. */
static void start_run(struct gather *g)
{
	const struct gather_write *first = LIST_ENTRY(g->queue.next, struct gather_write, link);
	struct run *r =
		list_empty(&g->free) ? MEM_NEW(struct run) : LIST_ENTRY(list_pop_front(&g->free), struct run, link);
	uint64_t end = first->offset;

	r->gather = g;
	r->iov_count = 0;
	list_init(&r->writes);
	while (!list_empty(&g->queue)) {
		struct gather_write *w = LIST_ENTRY(g->queue.next, struct gather_write, link);

		if (w->segment != first->segment || w->offset != end || r->iov_count + w->iov_count > IO_IOV_MAX)
			break;
		for (int i = 0; i < w->iov_count; i++)
			r->iov[r->iov_count++] = w->iov[i];
		end += write_bytes(w);
		list_remove(&w->link);
		list_push_back(&r->writes, &w->link);
		sched_gathering(g->sched, -1);
	}
	g->runs_left++;
	io_prep_write(&r->op.io, segments_fd(g->segments, first->segment), r->iov, r->iov_count, first->offset,
		IO_DSYNC, sched_io_done);
	r->op.done = run_done;
	sched_submit(g->sched, SCHED_FOREGROUND, &r->op);
}

static void start_round(struct io_turn_hook *hook)
{
	struct gather *g = CONTAINER_OF(hook, struct gather, hook);

	if (g->runs_left)
		return;
	while (!list_empty(&g->queue))
		start_run(g);
}
