/* SPDX-License-Identifier: Apache-2.0 */
/* A class is served when those before it are empty. An I/O leaves its place before its completion is told, so that a completion that
 * submits the next finds room. */
#include "chunkd/sched.h"

#include "common/base/check.h"

void sched_init(struct sched *s, struct io *io)
{
	*s = (struct sched){.io = io};
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
	op->done(op);
}

void sched_submit(struct sched *s, enum sched_class class, struct sched_op *op)
{
	CHECK(class < SCHED_CLASSES);
	op->sched = s;
	CHECK(op->io.done == sched_io_done);
	op->bytes = io_op_bytes(&op->io);
	if (!s->waiting && has_place(s, op)) {
		give_to_kernel(s, op);
		return;
	}
	s->waiting++;
	list_push_back(&s->queues[class], &op->link);
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
