/* SPDX-License-Identifier: Apache-2.0 */
/* craton-raft-explore: all that can happen to three replicas of the real Raft core within bounds; see explore.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/raft/explore.h"

static int usage(FILE *out)
{
	fprintf(out,
		"usage: craton-raft-explore [--terms N] [--submits N] [--crashes N] [--changes N] [--transfers N] [--reads N]\n"
		"                           [--compactions N] [--learner] [--snapshots] [--split N] [--memory MIB] [--seconds N]\n"
		"Explores every state of three replicas with at most so many elections (2), entries submitted (1), crashes of each (1),\n"
		"changes of members, transfers, reads, compactions (0); --learner: the third is a learner at first; --split: at most so many\n"
		"entries in a message. The last line is what was seen, in JSON. Exit 0: all of it, and every law holds; 1: one does not, and\n"
		"how it came to that is printed; 3: incomplete, for the memory (1024) or the time given was used up.\n");
	return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
	struct explore_limits limits = {
		.terms = 2, .submits = 1, .crashes = 1, .split = 4, .memory_bytes = UINT64_C(1) << 30};
	struct explore_counts counts;
	uint64_t mib = 1024;
	char why[512];
	bool whole, ok;

	for (int i = 1; i < argc; i++) {
		struct {
			const char *name;
			uint32_t *to;
		} numbers[] = {{"--terms", &limits.terms}, {"--submits", &limits.submits},
			{"--crashes", &limits.crashes}, {"--changes", &limits.changes},
			{"--transfers", &limits.transfers}, {"--reads", &limits.reads},
			{"--compactions", &limits.compactions}, {"--split", &limits.split}};
		bool known = false;

		if (strcmp(argv[i], "--help") == 0)
			return usage(stdout);
		for (size_t j = 0; j < sizeof(numbers) / sizeof(numbers[0]) && !known && i + 1 < argc; j++) {
			if (strcmp(argv[i], numbers[j].name) == 0) {
				*numbers[j].to = (uint32_t)strtoul(argv[++i], NULL, 10);
				known = true;
			}
		}
		if (known)
			continue;
		if (strcmp(argv[i], "--learner") == 0)
			limits.learner = true;
		else if (strcmp(argv[i], "--snapshots") == 0)
			limits.snapshots = true;
		else if (strcmp(argv[i], "--memory") == 0 && i + 1 < argc)
			mib = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
			limits.seconds = strtoull(argv[++i], NULL, 10);
		else
			return usage(stderr);
	}
	if (mib == 0 || limits.terms > 5 || limits.split > 4 || limits.submits > 3 ||
		limits.terms + limits.submits + limits.changes > 5 || limits.crashes > 100 || limits.reads > 100 ||
		limits.transfers > 100 || limits.compactions > 100)
		return usage(stderr);
	limits.memory_bytes = mib << 20;
	ok = explore(&limits, &counts, &whole, why);
	if (!ok)
		printf("broken: %s\n", why);
	else if (!whole)
		printf("incomplete: %s; nothing is shown of what was not reached\n", why);
	printf("{\"complete\": %s, \"broken\": %s, \"states\": %" PRIu64 ", \"steps\": %" PRIu64
	       ", \"deepest\": %" PRIu64 ", \"deliveries\": %" PRIu64 ", \"syncs\": %" PRIu64 ", \"crashes\": %" PRIu64
	       ", \"torn\": %" PRIu64 ", \"elections\": %" PRIu64 ", \"commits\": %" PRIu64 ", \"cuts\": %" PRIu64
	       ", \"rollbacks\": %" PRIu64 ", \"changes\": %" PRIu64 ", \"transfers\": %" PRIu64 ", \"reads\": %" PRIu64
	       ", \"snapshots\": %" PRIu64 ", \"asked\": %" PRIu64 "}\n",
		ok && whole ? "true" : "false", ok ? "false" : "true", counts.states, counts.steps, counts.deepest,
		counts.deliveries, counts.syncs, counts.crashes, counts.torn, counts.elections, counts.commits,
		counts.cuts, counts.rollbacks, counts.changes, counts.transfers, counts.reads, counts.snapshots,
		counts.asked);
	return ok ? whole ? 0 : 3 : 1;
}
