/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/way: when metad asks the chunk servers of its host to make way with bulk writes (chunkd/way.h). Pure; local to one process.
 *
 * It does when there is work for it, and it is short of what that needs: it waits for a processor, or the log takes far longer than it has taken.
 * Neither of them says what else keeps the host busy. So it asks for a while, then looks anew: where bulk was the cause, bulk goes
 * on until metad is short again; where something else is, bulk is asked for as long as there is work, in vain.
 */
#ifndef METAD_PLAN_WAY_H
#define METAD_PLAN_WAY_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_WAY_BUSY_NS (100ull * 1000 * 1000)      /* a sample, and how often the word is said, while there is work or it is asked for */
#define PLAN_WAY_IDLE_NS (1000ull * 1000 * 1000)     /* a sample while there is not */
#define PLAN_WAY_ASK_NS (10ull * 1000 * 1000 * 1000) /* then it looks anew */
#define PLAN_WAY_LOG_NS (500ull * 1000)              /* an entry that takes less is never late */

enum {
	PLAN_WAY_REQUESTS = 1000, /* per s: fewer are no load */
	PLAN_WAY_WAITED = 5,      /* 1/5 of the time spent waiting for a processor is short of it */
	PLAN_WAY_LOG_FACTOR = 3,  /* times the least mean of a sample is short of the disk */
	PLAN_WAY_FORGET = 256,    /* the least rises by 1/256 with each sample: a disk may have become slower for good */
};

struct plan_way_sample {
	uint64_t took_ns;
	uint64_t requests;   /* that came */
	uint64_t waited_ns;  /* of the loop's thread, for a processor; 0 where the system does not say */
	uint64_t entries;    /* of the log that were applied, */
	uint64_t entries_ns; /* and their time from submission on */
};

/* Zeroed at first. */
struct plan_way {
	uint64_t least_ns; /* mean time of an entry; 0: none yet */
	uint64_t until_ns; /* asked for until then */
	bool has_work;
};

/* Bulk is asked to make way, as things are after this sample. */
bool plan_way_step(struct plan_way *way, uint64_t now_ns, const struct plan_way_sample *sample);

#endif
