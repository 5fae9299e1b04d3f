/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_small: many small things at once on the configured store: whole files (create, write, commit, as an application does it), and
 * the chunk path alone (a block of plain copies, written and sealed on three disks; allocated but never committed).
 */
#ifndef CLIENT_CLI_BENCH_SMALL_H
#define CLIENT_CLI_BENCH_SMALL_H

#include "client/cli/cli.h"

enum { BENCH_SMALL_BYTES_MAX = 64 << 10, BENCH_SMALL_IN_FLIGHT_MAX = 1024 };

struct bench_small_options {
	uint64_t count;     /* files or objects */
	uint64_t bytes;     /* of each */
	uint64_t in_flight;
	bool keep;          /* files stay, unless one failed */
};

int bench_small(struct cli *cli, const struct bench_small_options *options);
int bench_objects(struct cli *cli, const struct bench_small_options *options);

#endif
