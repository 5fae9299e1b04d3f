/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staller: a writer who stands still between write and commit for longer than the floor waits. The first stripe of his file gets no
 * processor: its block is not sent, and those behind it lie sealed and wait for it, in the order of the file. When he goes on, the tokens of
 * the first one have expired, the ids of the others are below the floor, and their copies are garbage by then. Each must be written again under
 * another id; the checker knows the file from then on, as any other.
 */
#ifndef TESTS_SIM_STALLER_H
#define TESTS_SIM_STALLER_H

#include "tests/sim/checker.h"

/* The floor's delay, the period of inventories and the grace: no copy is left by then. */
#define STALLER_NS (50 * 60 * CLUSTER_S)
/* And what is to be done when it is over. */
#define STALLER_LIMIT_NS (STALLER_NS + 60 * CLUSTER_S)

struct staller {
	struct cluster *cluster;
	struct checker *checker;
	struct checker_entry *entry;
	struct content content;
	struct client_op op;
	struct client_file *file;
	uint8_t *buf;
	bool done;
};

/* With all hosts up and nothing under way on the first client's. Nothing of it may fail. */
void staller_begin(struct staller *s, struct cluster *cluster, struct checker *checker);
void staller_end(struct staller *s);

#endif
