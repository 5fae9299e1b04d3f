/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filler: the disks of all metads become full, but for a little less than they keep free for their logs, with nothing else in the way. What
 * is promised then is held without any excuse: what grows is refused, by the error that says why, and has not happened; what is there is
 * read; removing works; and with room again all goes on. What was acknowledged meanwhile the checker knows, as all else.
 *
 *     put two files -> (full) make directories until one is refused -> read one file, remove the other one and the directories
 *           -> (room) make one, until it is not refused -> put a file
 */
#ifndef TESTS_SIM_FILLER_H
#define TESTS_SIM_FILLER_H

#include "tests/sim/checker.h"

#define FILLER_LIMIT_NS (120 * CLUSTER_S)

enum { FILLER_DIRS_MAX = 400 };

struct filler {
	struct cluster *cluster;
	struct checker *checker;
	struct checker_entry *kept, *gone, *home, *later;
	struct checker_entry *dirs[FILLER_DIRS_MAX];
	unsigned made, removed;
	/* of what is under way */
	struct checker_entry *entry;
	struct content content;
	struct checker_look look;
	void (*then)(struct filler *f);
	struct client_op op;
	struct client_file *file;
	struct io_op pause;
	uint8_t *buf;
	bool done;
};

/* With all hosts up. */
void filler_begin(struct filler *f, struct cluster *cluster, struct checker *checker);
void filler_end(struct filler *f);

#endif
