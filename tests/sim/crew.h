/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew: the frame of a workload: some workers, in turn on the clients' hosts, each of which rests or is at one job, with one operation of
 * its client under way. What the jobs are, and what their outcomes tell, is the affair of those who have a crew: registers, appenders.
 *
 *     resting --(a random time)--> act() ... operations and pauses ... --crew_finish--> resting
 *     any --its client's host crashes--> nothing --it is started again--> resting
 *
 * All functions are called between two events of the simulation but those marked with *, which a worker calls in a turn of its client.
 */
#ifndef TESTS_SIM_CREW_H
#define TESTS_SIM_CREW_H

#include "tests/sim/cluster.h"

enum { CREW_WORKERS = 3 };

struct crew;

struct crew_worker {
	struct crew *crew;
	unsigned number, node;
	bool active; /* at a job */
	struct rng rng;
	struct io_op pause;
	struct client_op op;
	struct client_file *handle; /* that its operations are on; NULL: none */
};

struct crew_kind {
	char letter; /* in notes */
	uint64_t salt;
	uint64_t pause_ms; /* longest rest between two jobs */
	/* * Begins a job; where the crew is looking, a look at thing number `at`, else any. */
	void (*act)(struct crew_worker *w, size_t at);
	size_t (*things)(const struct crew *crew); /* that there are to be looked at */
	void (*free)(struct crew *crew);           /* what the owner has, and the memory that the crew is part of */
};

struct crew {
	const struct crew_kind *kind;
	struct cluster *cluster;
	bool strict;      /* no operation may fail */
	bool stopped;     /* no job begins any more */
	bool looking;     /* each thing is looked at, without any excuse */
	uint64_t lull_ns; /* until when jobs are rare */
	size_t look;
	uint64_t tick;  /* the order of what was heard */
	uint64_t count; /* jobs that ended */
	struct crew_worker *workers[CREW_WORKERS];
};

/* The workers' memory is the owner's, zeroed. */
void crew_init(struct crew *crew, const struct crew_kind *kind, struct cluster *cluster, uint64_t seed, bool strict);
void crew_free(struct crew *crew);
/* The client of that node runs; from now on and after each of its restarts. */
void crew_client_started(struct crew *crew, unsigned node);
void crew_client_crashed(struct crew *crew, unsigned node);
/* Until then, jobs are rare. */
void crew_lull(struct crew *crew, uint64_t until_ns);
/* No job begins any more. */
void crew_stop(struct crew *crew);
bool crew_idle(const struct crew *crew);
/* Each thing is looked at once more, without any excuse; then idle. */
void crew_look(struct crew *crew);

/* * An operation begins: on its handle, with what else was set in w->op since crew_clear. */
void crew_clear(struct crew_worker *w);
void crew_start(struct crew_worker *w, enum client_op_kind kind, void (*done)(struct client_op *op));
struct crew_worker *crew_worker_of(struct client_op *op);
/* * Nothing happens for a random time. */
void crew_pause(struct crew_worker *w, uint64_t most_ms, void (*done)(struct io_op *op));
/* * The operation failed, and nothing that the store may say excuses it: a defect. */
void crew_fail(struct crew_worker *w, const char *path, const struct client_op *op);
/* * The job has ended. */
void crew_finish(struct crew_worker *w, const char *what, const char *path, int code);

#endif
