/* SPDX-License-Identifier: Apache-2.0 */
/*
 * background: runs the plans on metad's loop, one bounded step of each a turn. A plan with a command under way waits for
 * its result; all rest while the table's memory is half full: what users ask for comes first. A command that finds no
 * room in the batches is forgotten, the plan names it again after its rest.
 *
 * Two timers: `rest` looks at all plans every PLAN_REST_MS, `soon` at once when one of them has more to do.
 */
#include "metad/core.h"

#include "common/base/check.h"

enum { PRESSURE_REST = 50 };

static const uint64_t MS_NS = 1000 * 1000;

static void on_soon(struct io_op *op);

static bool at_work(const struct metad *md)
{
	return md->ready && !md->stopping && !md->failed;
}

static void look_soon(struct metad *md)
{
	struct background *b = &md->background;

	if (io_pending(&b->soon) || !at_work(md))
		return;
	io_prep_timer(&b->soon, io_now_ns(md->io), on_soon);
	io_submit(md->io, &b->soon);
}

static void on_command(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct background_job *job = arg;

	CHECK(job->busy);
	job->busy = false;
	job->plan->done(job->plan, status, res);
	look_soon(md);
}

/* True: there is more to look at now. */
static bool job_step(struct metad *md, struct background_job *job)
{
	struct plan_facts facts = {.state = &md->state, .now_ms = metad__now_ms(md)};
	enum plan_next next = job->plan->step(job->plan, &facts, &md->cmd);

	if (next == PLAN_COMMAND) {
		job->busy = true;
		if (!metad__submit(md, on_command, job)) {
			job->busy = false;
			job->plan->done(job->plan, ERR_OVERLOADED, NULL);
		}
	}
	return next == PLAN_GO_ON;
}

static void look(struct metad *md)
{
	struct background *b = &md->background;
	struct err err = {0};
	bool more = false;

	if (!at_work(md) || kv_pressure(md->state.kv) >= PRESSURE_REST)
		return;
	for (uint32_t i = 0; i < b->job_count && !md->failed; i++) {
		if (b->jobs[i].busy)
			continue;
		more = job_step(md, &b->jobs[i]) || more;
		if (state_failure(&md->state, &err))
			metad__fatal(md, err.code, err.text);
	}
	if (more)
		look_soon(md);
}

static void on_soon(struct io_op *op)
{
	struct metad *md = CONTAINER_OF(op, struct metad, background.soon);

	look(md);
	metad__maybe_stopped(md);
}

static void on_rest(struct io_op *op)
{
	struct metad *md = CONTAINER_OF(op, struct metad, background.rest);

	if (md->stopping || op->result) {
		metad__maybe_stopped(md);
		return;
	}
	look(md);
	metad__background_start(md);
}

void metad__background_start(struct metad *md)
{
	struct background *b = &md->background;

	io_prep_timer(&b->rest, io_now_ns(md->io) + PLAN_REST_MS * MS_NS, on_rest);
	io_submit(md->io, &b->rest);
}

void metad__background_add(struct metad *md, struct plan *plan)
{
	struct background *b = &md->background;

	CHECK(b->job_count < METAD_PLANS);
	b->jobs[b->job_count++].plan = plan;
}

void metad__background_stop(struct metad *md)
{
	if (io_pending(&md->background.rest))
		io_cancel(md->io, &md->background.rest);
	if (io_pending(&md->background.soon))
		io_cancel(md->io, &md->background.soon);
}

bool metad__background_idle(const struct metad *md)
{
	return !io_pending(&md->background.rest) && !io_pending(&md->background.soon);
}
