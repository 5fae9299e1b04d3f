/* SPDX-License-Identifier: Apache-2.0 */
/* workload_priv: what the files of the workload share: a worker, and the jobs it does. */
#ifndef TESTS_SIM_WORKLOAD_PRIV_H
#define TESTS_SIM_WORKLOAD_PRIV_H

#include "tests/sim/workload.h"

enum { NAMES_MAX = 24, DIRS_MAX = 4, LIST_PAGE = 16, RANGES_MAX = 6 };

struct worker {
	struct workload *w;
	uint32_t number;
	unsigned node; /* of its client */
	uint32_t home; /* counts its directories: one that is in doubt for good is given up */
	struct rng rng;
	struct io_op pause;
	struct client_op op, op2;
	/* of the job */
	bool active;
	const char *what;
	uint64_t since_ns;
	struct checker_entry *entry, *other;
	struct content content;
	uint64_t at;
	uint32_t left;
	int expected; /* refusals */
	int code;     /* of the first failure */
	uint32_t pending;
	bool give_up;
	struct client_file *file;
	struct checker_look look;
	uint64_t since; /* tick */
	struct cr_dirent *page;
	uint8_t *buf;
	uint32_t next_name;
};

struct workload {
	struct cluster *cluster;
	struct checker *checker;
	struct workload_options o;
	uint32_t done;
	uint64_t lull_ns; /* until when jobs are rare */
	struct worker workers[WORKLOAD_WORKERS];
};

/* ---- workload.c ---- */
bool workload__chance(struct worker *k, uint32_t percent);
/* Starts op, whose fields are set; `done` finds the worker in op->user. */
void workload__start_op(
	struct worker *k, struct client_op *op, enum client_op_kind kind, void (*done)(struct client_op *op));
void workload__clear(struct client_op *op);
void workload__job_end(struct worker *k);
/* A failure that faults may excuse is kept; any other one is a defect. */
void workload__failed(struct worker *k, const struct client_op *op, bool may_be_verdict);
enum checker_outcome workload__outcome_of(const struct client_op *op);
/* Tells whoever waits for it, if op succeeded. */
void workload__acknowledged(struct worker *k, const struct client_op *op);
/* One of the entries for which `is` holds: of this worker's own, which nobody else changes, or of all. NULL: there is none. */
struct checker_entry *workload__pick(struct worker *k, bool (*is)(const struct checker_entry *e), bool any_owner);
uint32_t workload__count_own(struct worker *k, bool (*is)(const struct checker_entry *e));
/* A name at which certainly nothing is, in a directory that certainly is there: an old one or a new one. NULL: none. */
struct checker_entry *workload__free_name(struct worker *k);
uint64_t workload__some_size(struct worker *k);

/* ---- jobs: false: impossible now, nothing was done ---- */

/* workload_put.c */
bool workload__job_put(struct worker *k);
bool workload__job_put_given_up(struct worker *k);
bool workload__job_stream(struct worker *k);
/* Opens what op says and writes the job's content from `at` on, in the open. */
void workload__stream_open(struct worker *k);
/* workload_change.c */
bool workload__job_link(struct worker *k);
bool workload__job_truncate(struct worker *k);
bool workload__job_append(struct worker *k);
/* workload_get.c */
bool workload__job_get(struct worker *k);
bool workload__job_peek(struct worker *k);
bool workload__job_list(struct worker *k);
bool workload__job_stat(struct worker *k);
/* workload_name.c */
bool workload__job_unlink(struct worker *k);
bool workload__job_mkdir(struct worker *k);
/* The job of making a directory that was never there. */
void workload__make_dir(struct worker *k, const char *path);
bool workload__job_rmdir(struct worker *k);
bool workload__job_rename(struct worker *k);
bool workload__job_refused(struct worker *k);

#endif
