/* SPDX-License-Identifier: Apache-2.0 */
/*
 * background: runs the plans on metad's loop, one bounded step of each a turn. A plan with a command under way waits for
 * its result. While the table's memory is half full, or half of what a running commit leaves of it by now, what users ask for comes first: then plans have a step
 * every PLAN_REST_MS, and none while it is nearly full. Where clients asked for something while a command of many rows was under way, the plan's next one waits BESIDE_MS. A command that finds no room in the batches, or is refused, is forgotten; the plan names it again after its rest.
 *
 * Timers: `rest` looks at all plans every PLAN_REST_MS, `soon` of one of them when it has more to do.
 */
#include "metad/core.h"

#include "common/base/check.h"

enum {
	PRESSURE_REST = 50,
	PRESSURE_FULL = 90,
	BESIDE_MS = 10, /* a command of a thousand rows takes each metad a millisecond or two, and all that share its entry, or come behind it, wait for that */
	HEAVY_ROWS = STATE_COMMAND_ROWS / 4, /* an intent of a repair is one of two: it does not rest */
};

static const uint64_t MS_NS = 1000 * 1000;

static void on_soon(struct io_op *op);

static bool at_work(const struct metad *md)
{
	return md->ready && !md->stopping && !md->failed;
}

static void step_in(struct background_job *job, uint64_t rest_ns)
{
	struct metad *md = job->md;

	if (io_pending(&job->soon) || !at_work(md))
		return;
	io_prep_timer(&job->soon, io_now_ns(md->io) + rest_ns, on_soon);
	io_submit(md->io, &job->soon);
}

static void on_command(struct metad *md, void *arg, int status, const struct state_result *res)
{
	struct background_job *job = arg;

	CHECK(job->busy);
	job->busy = false;
	job->plan->done(job->plan, status, res);
	if (res)
		step_in(job, job->heavy && md->background.asked != job->asked ? BESIDE_MS * MS_NS : 0);
}

/* There is a table only while it is at work: a follower that gets a snapshot has none for a while. */
static void step(struct background_job *job, uint32_t (*pressure)(const struct kv *kv), uint32_t most_pressure)
{
	struct metad *md = job->md;
	struct plan_facts facts = {.state = &md->state, .now_ms = metad__now_ms(md)};
	enum plan_next next;
	struct err err = {0};

	if (job->busy || !at_work(md) || pressure(md->state.kv) >= most_pressure)
		return;
	next = job->plan->step(job->plan, &facts, &md->cmd);
	if (next == PLAN_COMMAND) {
		job->busy = true;
		job->asked = md->background.asked;
		job->heavy = state_cmd_rows(&md->cmd) >= HEAVY_ROWS;
		if (!metad__submit(md, on_command, job)) {
			job->busy = false;
			job->plan->done(job->plan, ERR_OVERLOADED, NULL);
		}
	}
	if (state_failure(&md->state, &err))
		metad__fatal(md, err.code, err.text);
	else if (next == PLAN_GO_ON)
		step_in(job, 0);
}

static void on_soon(struct io_op *op)
{
	struct background_job *job = CONTAINER_OF(op, struct background_job, soon);

	if (op->result == 0)
		step(job, kv_pressure_now, PRESSURE_REST);
	metad__maybe_stopped(job->md);
}

static void on_rest(struct io_op *op)
{
	struct metad *md = CONTAINER_OF(op, struct metad, background.rest);

	if (md->stopping || op->result) {
		metad__maybe_stopped(md);
		return;
	}
	for (uint32_t i = 0; i < md->background.job_count; i++)
		if (!io_pending(&md->background.jobs[i].soon))
			step(&md->background.jobs[i], kv_pressure, PRESSURE_FULL);
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
	b->jobs[b->job_count].md = md;
	b->jobs[b->job_count++].plan = plan;
}

void metad__background_stop(struct metad *md)
{
	io_cancel(md->io, &md->background.rest);
	for (uint32_t i = 0; i < md->background.job_count; i++)
		io_cancel(md->io, &md->background.jobs[i].soon);
}

bool metad__background_idle(const struct metad *md)
{
	for (uint32_t i = 0; i < md->background.job_count; i++)
		if (io_pending(&md->background.jobs[i].soon))
			return false;
	return !io_pending(&md->background.rest);
}
