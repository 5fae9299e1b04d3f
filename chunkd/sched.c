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

void sched_io_done(struct io_op *io)
{
	struct sched_op *op = CONTAINER_OF(io, struct sched_op, io);
	struct sched *s = op->sched;

	s->running--;
	for (int i = 0; i < SCHED_CLASSES && s->waiting && s->running < SCHED_DEPTH; i++) {
		struct list *n = list_pop_front(&s->queues[i]);

		if (!n)
			continue;
		s->waiting--;
		s->running++;
		io_submit(s->io, &LIST_ENTRY(n, struct sched_op, link)->io);
	}
	op->done(op);
}

void sched_submit(struct sched *s, enum sched_class class, struct sched_op *op)
{
	CHECK(class < SCHED_CLASSES);
	op->sched = s;
	CHECK(op->io.done == sched_io_done);
	if (s->running < SCHED_DEPTH) {
		s->running++;
		io_submit(s->io, &op->io);
		return;
	}
	s->waiting++;
	list_push_back(&s->queues[class], &op->link);
}

bool sched_has_room(const struct sched *s)
{
	return s->waiting < SCHED_QUEUE;
}

uint32_t sched_depth(const struct sched *s)
{
	return s->running + s->waiting;
}
