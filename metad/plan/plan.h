/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: what all plans have in common. A plan is work that metad does without being asked: garbage, repair, later drain
 * and balance. It is pure: it looks at facts and names the next action, a replicated command; background.c runs it and
 * submits what it names through the batches that requests use. A plan may keep cursors and counters in its own struct,
 * all of it lost at a restart: what must not be lost is in rows.
 *
 *     step --PLAN_COMMAND--> logged, applied --> done --> step ...      at most one command of a plan is under way
 *       \--PLAN_GO_ON: more to look at, next turn
 *       \--PLAN_REST: nothing to do now; asked again PLAN_REST_MS later
 *
 * A step reads at most PLAN_STEP_ROWS rows: requests go on in between.
 */
#ifndef METAD_PLAN_PLAN_H
#define METAD_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include "metad/state/state.h"

enum { PLAN_REST_MS = 250, PLAN_STEP_ROWS = 1024 };

/* What a plan may know. It changes nothing of it. */
struct plan_facts {
	struct state *state; /* for reading; not const as reading notes damaged rows in it */
	uint64_t now_ms;     /* state time */
};

enum plan_next { PLAN_REST, PLAN_GO_ON, PLAN_COMMAND };

struct plan {
	const char *name; /* in the log */
	/* PLAN_COMMAND: *ret_cmd is set; slices in it stay valid until `done`. */
	enum plan_next (*step)(struct plan *plan, const struct plan_facts *facts, struct state_cmd *ret_cmd);
	/* The command was applied (`res`), or never will be (NULL): `status` says why. Decides nothing; `step` comes next. */
	void (*done)(struct plan *plan, int status, const struct state_result *res);
};

#endif
