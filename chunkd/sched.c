/* SPDX-License-Identifier: Apache-2.0 */
/* A class is served when those before it are empty. An I/O leaves its place before its completion is told, so that a completion that
 * submits the next finds room. */
#include "chunkd/sched.h"

#include "common/base/check.h"

void sched_init(struct sched *s, struct io *io, struct way *way)
{
	*s = (struct sched){.io = io, .way = way};
	list_init(&s->held);
	for (int i = 0; i < SCHED_CLASSES; i++)
		list_init(&s->queues[i]);
}

static bool has_place(const struct sched *s, const struct sched_op *op)
{
	return s->running == 0 || (s->running < SCHED_DEPTH && s->running_bytes + op->bytes <= SCHED_BYTES);
}

static void give_to_kernel(struct sched *s, struct sched_op *op)
{
	s->running++;
	s->running_bytes += op->bytes;
	io_submit(s->io, &op->io);
}

static struct sched_op *first_waiting(struct sched *s)
{
	for (int i = 0; i < SCHED_CLASSES; i++)
		if (!list_empty(&s->queues[i]))
			return LIST_ENTRY(s->queues[i].next, struct sched_op, link);
	return NULL;
}

void sched_io_done(struct io_op *io)
{
	struct sched_op *op = CONTAINER_OF(io, struct sched_op, io);
	struct sched *s = op->sched;
	struct sched_op *next;

	s->running--;
	s->running_bytes -= op->bytes;
	while ((next = first_waiting(s)) && has_place(s, next)) {
		s->waiting--;
		list_remove(&next->link);
		give_to_kernel(s, next);
	}
	if (io->result == ERR_TIMEDOUT)
		io->result = ERR_IO; /* the disk's, which gave no answer: whoever asked over the network would take it for that */
	op->done(op);
}

/* Those that are not held. */
static void enqueue(struct sched *s, struct sched_op *op)
{
	if (!first_waiting(s) && has_place(s, op)) {
		give_to_kernel(s, op);
		return;
	}
	s->waiting++;
	list_push_back(&s->queues[op->class], &op->link);
}

/* ---- bulk that makes way ---- */

static void on_timer(struct io_op *timer);

static struct sched_op *first_held(const struct sched *s)
{
	return LIST_ENTRY(s->held.next, struct sched_op, link);
}

static void hold(struct sched *s, struct sched_op *op, uint64_t now_ns)
{
	op->latest_ns = now_ns + WAY_HOLD_NS;
	s->waiting++;
	s->held_bytes += op->bytes;
	s->way->held_bytes += op->bytes;
	list_push_back(&s->held, &op->link);
}

static bool holds_too_much(const struct sched *s)
{
	return s->way->held_bytes > s->way->most_held_bytes && s->held.next != s->held.prev;
}

/* Whether way is still asked for is looked at while they wait, too. */
static void wait_for_first(struct sched *s, uint64_t now_ns)
{
	uint64_t at_ns;

	if (io_pending(&s->timer))
		return;
	at_ns = s->held_until_ns < now_ns + WAY_LOOK_NS ? s->held_until_ns : now_ns + WAY_LOOK_NS;

	io_prep_timer(&s->timer, at_ns, on_timer);
	io_submit(s->io, &s->timer);
}

/*
 * The timer runs as long as any is held, and no longer: who waits for the last of them waits for it, too. So what goes on for want of memory is never
 * the last one. What a disk did not write while it might have is not made up for.
 */
static void release(struct sched *s, uint64_t now_ns)
{
	bool asked = io_pending(&s->timer) || way_asked(s->way); /* while it runs, it finds out: the last one stays for it */

	while (!list_empty(&s->held)) {
		struct sched_op *op = first_held(s);

		if (asked && s->held_until_ns > now_ns && op->latest_ns > now_ns && !holds_too_much(s)) {
			wait_for_first(s, now_ns);
			return;
		}
		s->waiting--;
		s->way->held_bytes -= op->bytes;
		list_remove(&op->link);
		s->held_until_ns = (s->held_until_ns > now_ns ? s->held_until_ns : now_ns) + op->bytes * 1000000000ull / s->way->bytes_per_s;
		if (s->held_until_ns > now_ns + WAY_HOLD_NS)
			s->held_until_ns = now_ns + WAY_HOLD_NS; /* nor is what was written too soon */
		enqueue(s, op);
	}
	if (!asked)
		s->held_until_ns = 0;
}

static void on_timer(struct io_op *timer)
{
	struct sched *s = CONTAINER_OF(timer, struct sched, timer);

	release(s, io_now_ns(s->io));
}

/* What is gathered and synced in one write is small files, however many. What repair makes anew is not to wait for anybody's convenience. */
static bool makes_way(struct sched *s, const struct sched_op *op)
{
	return !op->passes && op->io.kind == IO_WRITE && !(op->io.flags & IO_DSYNC) && op->bytes >= WAY_BULK_BYTES && s->way && (!list_empty(&s->held) || way_asked(s->way));
}

void sched_submit(struct sched *s, enum sched_class class, struct sched_op *op)
{
	CHECK(class < SCHED_CLASSES);
	op->sched = s;
	CHECK(op->io.done == sched_io_done);
	op->bytes = io_op_bytes(&op->io);
	op->class = class;
	if (!makes_way(s, op)) {
		enqueue(s, op);
		return;
	}
	hold(s, op, io_now_ns(s->io));
	if (!io_pending(&s->timer) || holds_too_much(s))
		release(s, io_now_ns(s->io));
}

void sched_gathering(struct sched *s, int32_t change)
{
	CHECK(change >= 0 || s->gathering >= (uint32_t)-change);
	s->gathering += (uint32_t)change;
}

bool sched_has_room(const struct sched *s)
{
	return s->waiting + s->gathering < SCHED_QUEUE;
}

uint32_t sched_depth(const struct sched *s)
{
	return s->running + s->waiting + s->gathering;
}
