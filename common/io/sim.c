// SPDX-License-Identifier: Apache-2.0
/*
 * sim: virtual time. Everything that will happen is an event in one heap; equal times keep the order in which they
 * were made.
 *
 * A host works in turns like a real loop: what completes while it is busy is delivered together in its next turn, so
 * that group commit and batching happen here as they do in life. A turn takes a little virtual time. Work that blocks
 * (offload) runs inline and costs the virtual time of its disk calls.
 *
 * Invariants: (1) `done`, posts and hooks run only inside a host's turn; (2) an operation in flight is in exactly one
 * list: the host's ops (an event will come), ready or batch, or a queue of a connection or listener; so a crash finds
 * all of them; (3) each completed operation is one event of the log.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/mem.h"
#include "common/io/io_real.h"
#include "common/io/sim_impl.h"

enum {
	SIM_TURN_NS = 400, /* a turn, and each completion in it */
	SIM_COMPLETION_NS = 100,
	SIM_TURN_JITTER_NS = 600,
	SIM_OFFLOAD_MIN_NS = 2000, /* handing work to another thread and back */
	SIM_OFFLOAD_MAX_NS = 20000,
};

/* ---- events ---- */

void sim__schedule(struct sim *sim, struct sim_event *event, uint64_t at_ns)
{
	io_heap_insert(&sim->events, &event->node, at_ns > sim->now_ns ? at_ns : sim->now_ns);
}

void sim__unschedule(struct sim *sim, struct sim_event *event)
{
	if (event->node.idx)
		io_heap_remove(&sim->events, &event->node);
}

static void sim_mix(struct sim *sim, uint64_t value)
{
	uint64_t h = (sim->event_hash ^ value) * 0x9e3779b97f4a7c15u;

	sim->event_hash = h ^ (h >> 29);
}

static void sim_mix_text(struct sim *sim, const char *text)
{
	sim_mix(sim, crc32c(text, strlen(text)));
}

static void sim_tell(struct sim *sim, const struct sim_host *host, const char *text)
{
	char line[1280];

	snprintf(line, sizeof(line), "%llu.%09llu %s %s", (unsigned long long)(sim->now_ns / 1000000000u),
		(unsigned long long)(sim->now_ns % 1000000000u), host ? host->name : "-", text);
	sim->options.transcript(sim->options.ctx, line);
}

void sim__log(struct sim *sim, const struct sim_host *host, const char *what, int64_t a, int64_t result, uint32_t crc)
{
	char text[256];

	sim->event_count++;
	sim_mix_text(sim, what);
	sim_mix(sim, sim->now_ns);
	sim_mix(sim, (uint64_t)a << 16 ^ (host ? host->number : 0));
	sim_mix(sim, (uint64_t)result);
	sim_mix(sim, crc);
	if (!sim->options.transcript)
		return;
	snprintf(text, sizeof(text), "%s %lld result=%s%lld crc=%08x", what, (long long)a,
		result < 0 ? err_name((int)result) : "", (long long)result, crc);
	sim_tell(sim, host, text);
}

void sim_note(struct sim *sim, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	sim->event_count++;
	sim_mix(sim, sim->now_ns);
	sim_mix_text(sim, text);
	if (sim->options.transcript)
		sim_tell(sim, NULL, text);
}

/* ---- turns ---- */

static void sim_want_turn(struct sim_host *host)
{
	if (!host->turn.node.idx)
		sim__schedule(host->sim, &host->turn, host->busy_until_ns);
}

void sim__ready(struct sim_host *host, struct io_op *op, int64_t result)
{
	CHECK((op->state & IO_STATE_SUBMITTED) && !(op->state & IO_STATE_READY));
	list_remove(&op->link);
	op->state |= IO_STATE_READY;
	op->result = result;
	list_push_back(&host->ready, &op->link);
	sim_want_turn(host);
}

static const char *sim_kind_name(uint8_t kind)
{
	static const char *const names[] = {
		[IO_READ] = "read",
		[IO_WRITE] = "write",
		[IO_SYNC] = "sync",
		[IO_ACCEPT] = "accept",
		[IO_CONNECT] = "connect",
		[IO_SEND] = "send",
		[IO_RECV] = "recv",
		[IO_TIMER] = "timer",
		[IO_OFFLOAD] = "offload",
	};

	return names[kind];
}

static void sim_complete(struct sim_host *host, struct io_op *op)
{
	sim__log(host->sim, host, sim_kind_name(op->kind), op->fd, op->result, sim_op_of(op)->crc);
	io__complete(op, op->result);
}

/* False: the host crashed meanwhile. */
static bool sim_turn_deliver(struct sim_host *host, uint32_t *ret_count)
{
	struct io_post *post = host->post_first;
	uint32_t life = host->life, count = 0;
	struct list *n;

	host->post_first = NULL;
	host->post_end = &host->post_first;
	while ((n = list_pop_front(&host->ready)))
		list_push_back(&host->batch, n);
	while ((n = list_pop_front(&host->batch))) {
		sim_complete(host, LIST_ENTRY(n, struct io_op, link));
		if (host->life != life)
			return false;
		count++;
	}
	while (post) {
		struct io_post *next = post->next;

		sim__log(host->sim, host, "post", 0, 0, 0);
		post->run(post);
		if (host->life != life)
			return false;
		post = next;
		count++;
	}
	io__run_hooks(&host->io);
	*ret_count = count;
	return host->life == life;
}

void sim__turn(struct sim *sim, struct sim_event *event)
{
	struct sim_host *host = CONTAINER_OF(event, struct sim_host, turn);
	uint32_t count;

	host->cost_ns = 0;
	if (!sim_turn_deliver(host, &count))
		return;
	host->busy_until_ns = sim->now_ns + SIM_TURN_NS + (uint64_t)count * SIM_COMPLETION_NS + host->cost_ns +
		rng_below(&sim->rng, SIM_TURN_JITTER_NS);
	host->cost_ns = 0;
	/* What the turn itself made ready found the turn's event taken out of the heap and put it back, too early. */
	if (host->turn.node.idx)
		sim__unschedule(sim, &host->turn);
	if (!list_empty(&host->ready) || host->post_first || !list_empty(&host->io.hooks))
		sim_want_turn(host);
}

void sim__hook_added(struct io *io)
{
	sim_want_turn(sim_host_of(io));
}

void sim__post(struct io *io, struct io_post *post)
{
	struct sim_host *host = sim_host_of(io);

	post->next = NULL;
	*host->post_end = post;
	host->post_end = &post->next;
	sim_want_turn(host);
}

/* ---- operations ---- */

void sim__op_later(
	struct sim_host *host, struct io_op *op, uint64_t at_ns, void (*run)(struct sim *, struct sim_event *))
{
	sim_op_of(op)->event.run = run;
	list_remove(&op->link);
	list_push_back(&host->ops, &op->link);
	sim__schedule(host->sim, &sim_op_of(op)->event, at_ns);
}

static void sim_timer_due(struct sim *sim, struct sim_event *event)
{
	struct io_op *op = sim_op_of_event(event);

	(void)sim;
	sim__ready(sim_op_of(op)->host, op, 0);
}

static void sim_offload_done(struct sim *sim, struct sim_event *event)
{
	sim_timer_due(sim, event);
}

/* Of the lane: one that is free, or else the one that will be first. NULL: there are as many as are wanted. */
static uint64_t *sim_worker(struct sim_host *host, uint8_t lane)
{
	uint32_t count = io__lane_workers((enum io_lane)lane);
	uint64_t *first = count ? &host->workers[lane][0] : NULL;

	for (uint32_t i = 1; i < count && *first > host->sim->now_ns; i++)
		if (host->workers[lane][i] < *first)
			first = &host->workers[lane][i];
	return first;
}

static void sim_offload_run(struct sim *sim, struct sim_event *event)
{
	struct io_op *op = sim_op_of_event(event);
	struct sim_host *host = sim_op_of(op)->host;
	uint32_t life = host->life;
	uint64_t end_ns, *worker = sim_worker(host, op->offload.lane);

	if (worker && *worker > sim->now_ns) {
		sim__schedule(sim, event, *worker);
		return;
	}
	host->cost_ns = 0;
	sim_op_of(op)->stage = 1;
	op->offload.run(op);
	if (host->life != life)
		return;
	end_ns = sim->now_ns + host->cost_ns + rng_between(&sim->rng, SIM_OFFLOAD_MIN_NS, SIM_OFFLOAD_MAX_NS);
	host->cost_ns = 0;
	if (op->offload.lane == IO_LANE_CPU) {
		end_ns += host->work_stall_ns;
		host->work_stall_ns = 0;
	}
	if (worker)
		*worker = end_ns;
	sim__op_later(host, op, end_ns, sim_offload_done);
}

void sim__submit(struct io *io, struct io_op *op)
{
	struct sim_host *host = sim_host_of(io);
	struct sim *sim = host->sim;

	CHECK(host->is_up);
	memset(op->slot, 0, sizeof(op->slot));
	sim_op_of(op)->host = host;
	list_init(&op->link);
	if (op->kind == IO_TIMER)
		sim__op_later(host, op, op->timer.at_ns, sim_timer_due);
	else if (op->kind == IO_OFFLOAD)
		sim__op_later(host, op, sim->now_ns + SIM_OFFLOAD_MIN_NS, sim_offload_run);
	else if (!sim__net_submit(host, op))
		CHECK(sim__disk_submit(host, op));
}

void sim__cancel(struct io *io, struct io_op *op)
{
	struct sim_host *host = sim_host_of(io);
	struct sim *sim = host->sim;

	if (op->kind == IO_TIMER ||
		(op->kind == IO_OFFLOAD && sim_op_of(op)->stage == 0 && rng_chance(&sim->rng, 1, 2))) {
		sim__unschedule(sim, &sim_op_of(op)->event);
		sim__ready(host, op, ERR_CANCELED);
	} else if (op->kind == IO_READ || op->kind == IO_WRITE || op->kind == IO_SYNC) {
		sim__disk_cancel(host, op);
	} else if (op->kind != IO_OFFLOAD) {
		sim__net_cancel(host, op);
	}
}

/* ---- the simulation ---- */

struct sim *sim_new(const struct sim_options *options)
{
	struct sim *sim = MEM_NEW(struct sim);
	struct sim_options *o = &sim->options;

	*o = *options;
	if (!o->net_latency_max_ns) {
		o->net_latency_min_ns = 20000;
		o->net_latency_max_ns = 200000;
	}
	if (!o->disk_latency_max_ns) {
		o->disk_latency_min_ns = 30000;
		o->disk_latency_max_ns = 500000;
	}
	if (!o->net_bytes_per_s)
		o->net_bytes_per_s = 5000000000u;
	if (!o->disk_bytes_per_s)
		o->disk_bytes_per_s = 2000000000u;
	CHECK(o->net_latency_min_ns <= o->net_latency_max_ns && o->disk_latency_min_ns <= o->disk_latency_max_ns);
	rng_init(&sim->rng, o->seed);
	rng_init(&sim->workload, o->seed ^ 0x574f524b4c4f4144u);
	io_heap_init(&sim->events);
	list_init(&sim->buffers);
	sim->now_ns = 1000000000; /* not 0: a zero time means "none" in many programs */
	sim_mix(sim, o->seed);
	return sim;
}

void sim_free(struct sim *sim)
{
	if (!sim)
		return;
	/* Operations still in flight are forgotten like their hosts; they may be gone already and are not touched. */
	for (uint32_t i = 0; i < sim->host_count; i++)
		sim__host_drop_fds(sim->hosts[i]);
	for (uint32_t i = 0; i < sim->host_count; i++)
		sim__host_free(sim->hosts[i]);
	sim__buffers_free(sim);
	io_heap_fini(&sim->events);
	mem_free(sim);
}

static bool sim_run_events(struct sim *sim, bool (*until)(void *ctx), void *ctx, uint64_t at_most_ns)
{
	struct io_heap_node *node;

	while (!until || !until(ctx)) {
		struct sim_event *event;

		node = io_heap_first(&sim->events);
		if (!node || node->key > at_most_ns) {
			/* Time passes also where nothing happens; but not to the end of all time. */
			if (sim->now_ns < at_most_ns && at_most_ns != UINT64_MAX)
				sim->now_ns = at_most_ns;
			return false;
		}
		io_heap_remove(&sim->events, node);
		CHECK(node->key >= sim->now_ns);
		sim->now_ns = node->key;
		event = CONTAINER_OF(node, struct sim_event, node);
		event->run(sim, event);
	}
	return true;
}

/* The host's own frames on the stack are gone; what it holds of the simulation goes with its crash. */
static void sim_tell_stopped(struct sim *sim)
{
	struct sim_host *host = sim->stopped;
	uint32_t life = host->life;

	sim->way_out = NULL;
	sim->stopped = NULL;
	host->disk.stop.stopped(host->disk.stop.ctx);
	CHECK(host->life != life);
}

bool sim_run(struct sim *sim, bool (*until)(void *ctx), void *ctx, uint64_t at_most_ns)
{
	jmp_buf way_out;

	for (;;) {
		if (setjmp(way_out) == 0) {
			bool held;

			sim->way_out = &way_out;
			held = sim_run_events(sim, until, ctx, at_most_ns);
			sim->way_out = NULL;
			return held;
		}
		sim_tell_stopped(sim);
	}
}

bool sim_try(struct sim *sim, void (*run)(void *ctx), void *ctx)
{
	jmp_buf way_out;

	if (setjmp(way_out) == 0) {
		sim->way_out = &way_out;
		run(ctx);
		sim->way_out = NULL;
		return true;
	}
	sim->way_out = NULL;
	sim->stopped = NULL;
	return false;
}

uint64_t sim_now_ns(const struct sim *sim)
{
	return sim->now_ns;
}

uint64_t sim_event_count(const struct sim *sim)
{
	return sim->event_count;
}

uint64_t sim_event_hash(const struct sim *sim)
{
	return sim->event_hash;
}

uint64_t sim_random(struct sim *sim)
{
	return rng_u64(&sim->workload);
}
