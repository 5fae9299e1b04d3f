/* SPDX-License-Identifier: Apache-2.0 */
/*
 * points: crash points. One store lives on without faults, and at each sync of a daemon that is chosen a copy of it (a process) goes
 * another way: there the power of that daemon's host fails before the sync takes effect, and everything that was not durable is lost,
 * or torn; or the daemon is killed, and all that it wrote is still seen. It starts again by itself, the work goes on, power fails
 * everywhere, nothing stays but what is durable, and everything acknowledged must be there.
 *
 * Of a group of metads these are the syncs of the replica that leads, of one that follows, and of one more that joins them when the log does not
 * reach back to its beginning any more, so by a snapshot; the others go on without it, and all have the same rows in the end. One way more: all hosts lose power at that moment, so that nothing rests on what others still know.
 */
#ifndef TESTS_SIM_POINTS_H
#define TESTS_SIM_POINTS_H

#include <stdbool.h>
#include <stdint.h>

struct points_options {
	uint64_t seed, ops;
	unsigned metads;      /* 0: one, that keeps one log; else a group of so many */
	bool all;             /* each sync; else the first of each kind and a sample of the others */
	uint64_t part, parts; /* of those that are chosen, one in so many: those whose number leaves `part` */
	bool json;            /* the counts as a last line */
};

/* The exit status: 0: each copy lost nothing. */
int points_run(const struct points_options *options);

#endif
