/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: the life of one store, from a seed:
 *
 *     start -> the workload, with faults -> all mended, everything late has passed -> everything read back
 *           -> (one in five) the disks of metads are full for a while
 *           -> power loss of all hosts (without faults: a clean stop) and restart -> everything read back
 *           -> (one in ten) a writer stands still until the floor has passed his blocks, everything is read back
 *           -> (one in eight) an hour passes: no garbage is left, everything is read back -> a clean stop of all
 */
#ifndef TESTS_SIM_RUN_H
#define TESTS_SIM_RUN_H

#include <stdio.h>
#include "tests/sim/faults.h"
#include "tests/sim/marks.h"

enum run_mode {
	RUN_NO_FAULTS, /* no operation may fail */
	RUN_ONE,       /* one chunk server at a time is away: no operation may fail */
	RUN_ALL,
	RUN_SYNCS, /* no faults but those that `synced` makes; in the end all hosts lose everything that is not durable */
};

struct run_options {
	uint64_t seed, ops;
	enum run_mode mode;
	unsigned metads; /* 0: one, that keeps one log; else a group of so many */
	uint64_t without; /* kinds of faults that are left out: bits by enum faults_kind */
	FILE *transcript; /* NULL or where what is done on purpose and what the daemons log goes */
	FILE *events;     /* NULL or where every event goes */
	FILE *history;    /* NULL or where the history of names goes; only groups have one */
	/* RUN_SYNCS: hears of each sync but those in looks, and may have its host stop there (sim_stop_at_sync). */
	void (*synced)(void *ctx, struct cluster *c, unsigned node, enum sim_sync kind, const char *path);
	void *ctx;
};

/* What is counted, by the name that reports give it. */
#define RUN_COUNTS(X)                                                          \
	X(operations)   /* of the clients, in the workload */                  \
	X(jobs)         /* that they make up */                                \
	X(acknowledged) /* changes */                                          \
	X(refused)                                                             \
	X(unknown) /* changes whose outcome no client ever learnt */           \
	X(reads)                                                               \
	X(reads_failed)                                                        \
	X(bytes_read)                                                          \
	X(names) /* in listings */                                             \
	X(files_verified)                                                      \
	X(bytes_verified)                                                      \
	X(chunks) /* looked at in the end, of files that were verified */      \
	X(damaged_chunks)                                                      \
	X(never_sealed)                                                        \
	X(replays) /* of metad's log that gave the rows that there were before */ \
	X(crashes)                                                             \
	X(stops)                                                               \
	X(name_ops) /* of the history of names, which only groups have */      \
	X(name_conflicts) /* of these: at once with another one on the name */ \
	X(name_unknown)                                                        \
	X(bits_flipped)                                                        \
	X(events)

enum run_count {
#define RUN_X(name) RUN_##name,
	RUN_COUNTS(RUN_X)
#undef RUN_X
		RUN_COUNT
};

struct run_result {
	bool ok;
	char text[256]; /* what was found */
	uint64_t seed, hash;
	uint64_t counts[RUN_COUNT];
	uint64_t faults[FAULTS_KINDS];
	double virtual_s, cpu_s;
	uint64_t marks[MARKS_MAX]; /* in the order of marks_name */
};

void run_seed(const struct run_options *options, struct run_result *ret_result);
/* For sim_stop_at_sync, with the number of the node: it crashes, and comes back at once. */
void run_stopped(void *ctx);
/* Likewise, and all other hosts but the clients' with it. */
void run_all_stopped(void *ctx);
/* The run at hand ends its workload after so many more operations, and looks at everything after the restart only. */
void run_only_more(uint64_t ops);
/* SIGPROF ends this process when it has taken so much time of a core: one that is stopped, or whose machine is, has not run on. */
void run_limit_cpu(unsigned seconds);
/* In a signal handler: what the run at hand did last. False: there is none. */
bool run_print_last(int fd);

#endif
