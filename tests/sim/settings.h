/* SPDX-License-Identifier: Apache-2.0 */
/* settings: of the store (craton config), changed by a client one after the other. Times that are minutes and hours in life are seconds. */
#ifndef TESTS_SIM_SETTINGS_H
#define TESTS_SIM_SETTINGS_H

#include "tests/sim/cluster.h"

struct settings {
	struct cluster *cluster;
	struct client_op op;
	const char *const (*pairs)[2]; /* name, value; NULL: no more */
	bool done;
};

/* For the workload: servers die, and what is lost is made anew, while it runs. */
void settings_hasten(struct settings *s, struct cluster *cluster);
/* For waiting: heartbeats are rarer. */
void settings_slacken(struct settings *s, struct cluster *cluster);
bool settings_done(const struct settings *s);

#endif
