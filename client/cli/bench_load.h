/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_load: many operations of one kind, so many at a time, on one loop; how long each took.
 *
 * The caller has an array of slots, each with a struct load_slot as its first member. load_run calls `start` for a slot with the number
 * of the operation to begin; its completion calls load_done, from which the next one is begun. Single-threaded.
 *
 * With a rate, operations become due at even times, whatever those before them do: one that finds no slot idle waits, and took its time from when
 * it was due. (Timed from when it was sent, a server that stands still would look fast: Tene, "coordinated omission".)
 */
#ifndef CLIENT_CLI_BENCH_LOAD_H
#define CLIENT_CLI_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "common/base/err.h"
#include "common/base/json.h"
#include "common/io/io.h"

struct load;

struct load_slot {
	struct load *load;
	uint64_t number;      /* of the operation, from 0 */
	uint64_t started_ns;  /* or due */
	struct io_op due;     /* private */
};

struct load_result {
	uint64_t count;       /* operations */
	uint64_t begun;       /* with those that failed */
	uint64_t units;       /* what they brought: entries of listings; else the operations themselves */
	double seconds;
	uint64_t p50_ns, p99_ns, max_ns;
	double server_cpu_s;  /* 0: not known */
	double client_cpu_s;
};

struct load {
	struct io *io;
	uint64_t count;                 /* operations to do; UINT64_MAX: until no slot has any more */
	uint64_t per_s;                 /* that become due; 0: as fast as slots come free. Then start never has nothing to do */
	bool (*start)(struct load_slot *slot); /* false: nothing is left to do for this slot (nothing was begun) */
	void *ctx;
	bool stops;                     /* an interrupt (bench_catch_signals) is its first failure, ERR_CANCELED */
	double (*server_cpu_s)(const void *server); /* NULL: not counted */
	const void *server;
	/* of the run */
	struct err err;                 /* the first failure; nothing is begun after it */
	uint64_t began_ns, next, units;
	uint32_t active;
	uint32_t *took_us_x16;          /* by operation done, in 1/16 us */
	uint64_t took_count, took_cap;
};

/* Runs the loop until all are done. 0, or load->err. */
int load_run(struct load *load, void *slots, size_t slot_bytes, uint32_t slot_count, struct load_result *ret_result);
/* The slot's operation has ended with `code` (and a line for people if it failed). Not from inside start. */
void load_done(struct load_slot *slot, int code, const char *text, uint64_t units);

void load_json(struct json *j, const char *name, const struct load_result *r);
void load_print(const char *name, const struct load_result *r);

#endif
