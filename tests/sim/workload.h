/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload: a few workers on the clients' hosts, each with a directory of its own, doing one job after the other, chosen by the
 * seed: atomic puts of 0 .. 1 MiB (new names, overwrites, given up half-way), files written in the open, reads whole and in ranges, of
 * other workers' files too, renames, unlinks, directories, listings, and things that must be refused. Each result is told to the
 * checker. A job is some operations of a client.
 */
#ifndef TESTS_SIM_WORKLOAD_H
#define TESTS_SIM_WORKLOAD_H

#include "tests/sim/checker.h"

enum { WORKLOAD_WORKERS = 6, WORKLOAD_FILE_BYTES = 1 << 20 };

struct workload;

struct workload_options {
	uint64_t seed;
	bool strict;       /* whatever happens, no operation may fail */
	uint64_t pause_ns; /* longest rest of a worker between two operations */
	/* A change was acknowledged this instant. */
	void (*acknowledged)(void *ctx);
	/* No job is to begin any more. */
	bool (*enough)(void *ctx);
	void *ctx;
};

struct workload *workload_new(struct cluster *cluster, struct checker *checker, const struct workload_options *options);
void workload_free(struct workload *w);
/* The client of that node runs; from now on and after each of its restarts. */
void workload_client_started(struct workload *w, unsigned node);
/* Its host has crashed: what was under way has an unknown outcome. */
void workload_client_crashed(struct workload *w, unsigned node);
/* Until then, jobs are rare. */
void workload_lull(struct workload *w, uint64_t until_ns);
bool workload_done(const struct workload *w);
/* Jobs that ended. */
uint32_t workload_count(const struct workload *w);
/* When the job that takes longest so far began; UINT64_MAX if none is under way. Its name for reports. */
uint64_t workload_oldest_ns(const struct workload *w, const char **ret_what);

/* What a client operation is called in notes. */
const char *workload_op_name(enum client_op_kind kind);
/* The store says what a name is not: never excused by faults. */
bool workload_is_verdict(int code);
/* The store says that nothing is there: also where the path leads through what has become a file. */
bool workload_is_gone(int code);

#endif
