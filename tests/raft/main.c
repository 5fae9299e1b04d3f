/* SPDX-License-Identifier: Apache-2.0 */
/* craton-raft-histories: random histories of Raft groups on the real core, one a seed; see world.h for what is checked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/raft/world.h"

static int usage(FILE *out)
{
	fprintf(out,
		"usage: craton-raft-histories [--seed FIRST] [--count N] [--trace]\n"
		"Runs N histories (1000), one for each seed from FIRST (1) on. Exit 1 at the first whose checks fail; --trace shows what\n"
		"happened in it.\n");
	return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	uint64_t first = 1, count = 1000;
	bool trace = false;
	struct world_counts counts = {0};
	char fault[512];

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return usage(stdout);
		if (strcmp(argv[i], "--trace") == 0)
			trace = true;
		else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
			first = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc)
			count = strtoull(argv[++i], NULL, 10);
		else
			return usage(stderr);
	}
	for (uint64_t seed = first; seed < first + count; seed++) {
		if (world_history(seed, trace, &counts, fault))
			continue;
		printf("seed %" PRIu64 ": %s\n", seed, fault);
		return 1;
	}
	printf("{\"histories\": %" PRIu64 ", \"steps\": %" PRIu64 ", \"elections\": %" PRIu64
	       ", \"committed\": %" PRIu64 ", \"crashes\": %" PRIu64 ", \"torn\": %" PRIu64 ", \"cuts\": %" PRIu64
	       ", \"rollbacks\": %" PRIu64 ", \"snapshots\": %" PRIu64 ", \"changes\": %" PRIu64
	       ", \"transfers\": %" PRIu64 ", \"reads\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"repeated\": %" PRIu64
	       ", \"partitions\": %" PRIu64 ", \"stalls\": %" PRIu64 ", \"jumps\": %" PRIu64 ", \"asked\": %" PRIu64
	       ", \"late_fills\": %" PRIu64 ", \"void_fills\": %" PRIu64 ", \"late_reports\": %" PRIu64
	       ", \"late_offers\": %" PRIu64 ", \"lies_bodies\": %" PRIu64 ", \"lies_config\": %" PRIu64 ", \"lies_entry\": %" PRIu64 ", \"lies_leader\": %" PRIu64
	       ", \"lies_snapshot\": %" PRIu64 ", \"lies_term\": %" PRIu64 ", \"held_up\": %" PRIu64 ", \"moves\": %" PRIu64 ", \"shrinks\": %" PRIu64
	       ", \"forced\": %" PRIu64 ", \"refused\": %" PRIu64 "}\n",
		count, counts.steps, counts.elections, counts.committed, counts.crashes, counts.torn, counts.cuts,
		counts.rollbacks, counts.snapshots, counts.changes, counts.transfers, counts.reads, counts.lost,
		counts.repeated, counts.partitions, counts.stalls, counts.jumps, counts.asked, counts.late_fills,
		counts.void_fills, counts.late_reports, counts.late_offers, counts.lies_bodies,
		counts.lies_config, counts.lies_entry, counts.lies_leader, counts.lies_snapshot, counts.lies_term, counts.held_up, counts.moves, counts.shrinks, counts.forced,
		counts.refused);
	return 0;
}
