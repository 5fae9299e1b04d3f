// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/crew.h"

#include <string.h>
#include "common/base/check.h"
#include "tests/sim/workload.h"

enum { LULL_PAUSE_MS = 20000 };

/* ---- operations ---- */

void crew_clear(struct crew_worker *w)
{
	memset(&w->op, 0, sizeof(w->op));
}

void crew_start(struct crew_worker *w, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	w->op.kind = kind;
	w->op.file = w->handle;
	w->op.done = done;
	cluster_client_start(w->crew->cluster, w->node, &w->op);
}

struct crew_worker *crew_worker_of(struct client_op *op)
{
	return CONTAINER_OF(op, struct crew_worker, op);
}

void crew_pause(struct crew_worker *w, uint64_t most_ms, void (*done)(struct io_op *op))
{
	struct io *io = w->crew->cluster->nodes[w->node].io;

	io_prep_timer(&w->pause, io_now_ns(io) + rng_below(&w->rng, most_ms * CLUSTER_MS), done);
	io_submit(io, &w->pause);
}

void crew_fail(struct crew_worker *w, const char *path, const struct client_op *op)
{
	cluster_fail(w->crew->cluster, "%s of %s failed: %s: %s", workload_op_name(op->kind), path,
		err_name(op->err.code), op->err.text);
}

/* ---- jobs ---- */

static void act(struct crew_worker *w)
{
	struct crew *crew = w->crew;

	crew_clear(w);
	w->handle = NULL;
	w->active = true;
	crew->kind->act(w, crew->looking ? crew->look++ : SIZE_MAX);
}

static void rested(struct io_op *op)
{
	struct crew_worker *w = CONTAINER_OF(op, struct crew_worker, pause);

	if (!w->crew->stopped && !w->crew->cluster->failed)
		act(w);
}

static void rest(struct crew_worker *w)
{
	struct crew *crew = w->crew;

	if (crew->looking) {
		if (crew->look < crew->kind->things(crew) && !crew->cluster->failed)
			act(w);
	} else if (!crew->stopped) {
		crew_pause(w, sim_now_ns(crew->cluster->sim) < crew->lull_ns ? LULL_PAUSE_MS : crew->kind->pause_ms,
			rested);
	}
}

void crew_finish(struct crew_worker *w, const char *what, const char *path, int code)
{
	cluster_note(w->crew->cluster, "%c%u %s %s: %s", w->crew->kind->letter, w->number, what, path,
		code < 0 ? err_name(code) : "ok");
	w->active = false;
	w->crew->count++;
	rest(w);
}

/* ---- life ---- */

void crew_init(struct crew *crew, const struct crew_kind *kind, struct cluster *cluster, uint64_t seed, bool strict)
{
	crew->kind = kind;
	crew->cluster = cluster;
	crew->strict = strict;
	for (unsigned i = 0; i < CREW_WORKERS; i++) {
		struct crew_worker *w = crew->workers[i];

		w->crew = crew;
		w->number = i;
		w->node = cluster->first_client + i % cluster->options.clients;
		rng_init(&w->rng, seed * CREW_WORKERS + i + kind->salt);
	}
}

void crew_free(struct crew *crew)
{
	crew->kind->free(crew);
}

void crew_client_started(struct crew *crew, unsigned node)
{
	for (unsigned i = 0; i < CREW_WORKERS; i++)
		if (crew->workers[i]->node == node)
			rest(crew->workers[i]);
}

void crew_client_crashed(struct crew *crew, unsigned node)
{
	for (unsigned i = 0; i < CREW_WORKERS; i++)
		if (crew->workers[i]->node == node)
			crew->workers[i]->active = false;
}

void crew_lull(struct crew *crew, uint64_t until_ns)
{
	crew->lull_ns = until_ns;
}

void crew_stop(struct crew *crew)
{
	crew->stopped = true;
}

bool crew_idle(const struct crew *crew)
{
	for (unsigned i = 0; i < CREW_WORKERS; i++)
		if (crew->workers[i]->active)
			return false;
	return true;
}

void crew_look(struct crew *crew)
{
	CHECK(crew_idle(crew));
	crew->looking = true;
	crew->look = 0;
	act(crew->workers[0]);
}
