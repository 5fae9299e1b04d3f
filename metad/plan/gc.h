/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/gc: works off the gc tables, lowest id first, one bounded command at a time. A file that has just lost its name
 * is left alone for STATE_GC_READ_MS, for those who still read it; plan_gc_hurry does without this for all that lost
 * theirs up to now. A long table in which nothing is due is not looked through again until something may be, or some seconds later. What the commands leave, drop rows, is handed to the chunk servers by handlers_gc.c; those of a disk
 * that was taken out and does not come back are forgotten after STATE_DROPS_KEPT_MS.
 */
#ifndef METAD_PLAN_GC_H
#define METAD_PLAN_GC_H

#include "metad/plan/plan.h"

enum { PLAN_GC_TABLES = 4 };

/* One look through a table, and what it found. */
struct plan_gc_look {
	uint64_t began_ms, soonest_ms; /* the oldest row that was left: of that time */
	bool named;                    /* a command */
	uint64_t quiet_until_ms, quiet_floor; /* nothing is due before, while the floor is that */
};

struct plan_gc {
	struct plan plan;
	uint32_t at;       /* table */
	uint64_t from;     /* id in it */
	struct plan_gc_look looks[PLAN_GC_TABLES];
	uint64_t hurry_ms; /* what is no younger than this does not wait */
	uint32_t disk;     /* that is looked at next for drop rows to be forgotten */
	uint64_t drops_from;
	bool forgetting; /* the command under way is about those */
};

void plan_gc_init(struct plan_gc *gc);
void plan_gc_hurry(struct plan_gc *gc, uint64_t now_ms);

#endif
