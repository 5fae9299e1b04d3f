/* SPDX-License-Identifier: Apache-2.0 */
/* progress: one line on a terminal that is redrawn: done, total, rate, ETA. Silent where stderr is no terminal. */
#ifndef CLIENT_CLI_PROGRESS_H
#define CLIENT_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *label;
	uint64_t done, total;      /* bytes; total 0: unknown */
	uint64_t start_ns, drawn_ns;
	bool on;
};

void progress_start(struct progress *p, const char *label, uint64_t total, bool quiet);
void progress_add(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p); /* clears the line */

#endif
