/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/repair: which chunk is made anew next, and where; which disks are taken out; when all of that has to wait.
 *
 * One walk over the rows of all blocks finds what is wanted, blocks with the least margin first; it begins when the fleet or
 * some block has changed, or when a chunk becomes due. Then one intent after the other, at most one for each target disk.
 *
 *     server silent for server.dead_after, disk failed --TAKE_OUT (one domain per interval)--> its chunks are lost
 *     disk that confirms damage again and again (disk.damage_limit within a day) --DISK_FAILED--> as if it had failed
 *     walk: lost, damaged, missing (its writer is gone, or repair.missing_after behind the commit), crowded --> queue --> INTENT --> a
 *           chunk server
 *
 * The queue holds the worst of all that can be begun: what finds no target, has failed a moment ago or belongs to a file that
 * nobody can reach any more takes no place from others. A file that is open somewhere is repaired, name or not.
 *
 * Many servers that fall silent, or come back without disks, within MASS_WINDOW_MS are a fault of something else, or of us: then nothing new is begun
 * for repair.mass_hold. Many are: more than one, and more than a tenth of those that were up; or a whole domain of two or more.
 * So of eight servers one is repaired at once, two wait.
 */
#ifndef METAD_PLAN_REPAIR_H
#define METAD_PLAN_REPAIR_H

#include "common/base/rng.h"
#include "common/code/place.h"
#include "metad/plan/plan.h"

enum {
	REPAIR_QUEUE = 1024, /* wanted chunks in memory, the worst of all that were seen; a new walk finds the others */
	REPAIR_PUT_OFF =
		8192, /* blocks that failed, and are tried again later: more than the queue, or they would keep others out of it */
	REPAIR_PUT_OFF_WAYS = 8, /* places that a block's note may have */
	REPAIR_ASKS = 64,        /* targets looked for in one step of the walk: each looks at all disks */
	REPAIR_MASS_WINDOW_MS = 60 * 1000,
	REPAIR_FAILED_DISKS = 6, /* that are known of a block: several may decode wrongly, or be ill */
	REPAIR_WALK_REST_MS =
		1000, /* between two walks, at least; and WALK_REST_FACTOR times as long as the last one took */
	REPAIR_WALK_REST_FACTOR = 20,
	REPAIR_RETRY_MS = 2 * 1000, /* doubled for each failure in a row, up to an hour */
	REPAIR_RETRY_MAX_MS = 3600 * 1000,
	REPAIR_RETRY_EARLY = 4, /* up to 1/4 earlier, by chance: what failed at once is not tried at once */
	REPAIR_INTENT_MS = 10 * 60 * 1000, /* an order that came to nothing by then is given up */
};

/* A chunk that is to be made anew. */
struct repair_need {
	uint64_t block;
	int8_t margin; /* of the block: -1: it can be read from a failed disk only */
	uint8_t index;
	uint8_t cause; /* enum state_cause */
};

/* What a block needs. */
struct repair_look {
	bool needs;      /* `need` is set: one chunk is wanted now, and can be made */
	bool helpless;   /* chunks are wanted, but too few others can be read */
	uint64_t due_ms; /* a chunk is wanted from then on; 0: none */
	struct repair_need need;
};
/*
 * `domains`: how many could take a chunk now; a crowded block is spread only if there is one that it does not use. `writer_gone`: nobody can
 * finish chunks that were late any more.
 */
void repair_assess(const struct state *s, const struct state_block *row, uint64_t now_ms, uint32_t domains,
	bool writer_gone, struct repair_look *ret_look);

/* State time until which nothing new is begun, as many servers or their disks went at once; 0: go on. */
uint64_t repair_hold(const struct state *s, uint64_t now_ms);

/* The leader's own knowledge of the fleet. */
struct repair_env {
	uint64_t (*silent_ms)(void *ctx, uint32_t server);
	uint64_t (*free_bytes)(void *ctx, const struct state_disk *disk, uint64_t chunk_bytes);
	uint32_t (*damaged)(void *ctx, uint32_t disk); /* copies that it has confirmed to be, within a day */
	void (*given_up)(void *ctx, uint32_t disk);    /* for that: it counts as failed now */
	void *ctx;
};

struct repair_put_off {
	uint64_t block; /* 0: none */
	uint64_t until_ms;
	uint32_t failures;
	uint32_t disks[REPAIR_FAILED_DISKS]; /* that it failed on, the latest first: another one takes it, if there is one, else the one that failed longest ago */
};

struct plan_repair {
	struct plan plan;
	struct repair_env env;
	struct rng *rng;
	struct place_disk *candidates; /* LIMIT_DISKS, the caller's */
	struct state_block row;
	struct state_inode inode;
	/* the walk */
	bool walking, walk_truncated; /* truncated: the queue held less than was wanted */
	uint64_t next_block, walk_began_ms, walk_next_ms, due_ms, walk_due_ms;
	uint64_t walk_fleet, walk_blocks; /* versions at its start */
	uint64_t walk_sessions;           /* that had ended by then */
	uint64_t oldest_ms;               /* of the sessions at its start, or that of its start: who wrote before is gone */
	bool unfinished;                  /* chunks of it wait for a writer */
	char text[128];                   /* why a disk is taken out */
	uint32_t giving_up;               /* the disk that the command under way gives up; 0: none */
	uint32_t domains;
	uint64_t counted, counted_helpless, counted_no_target;
	struct repair_need queue[REPAIR_QUEUE]; /* sorted, worst first, once a walk has ended */
	uint32_t queue_count, queue_at;
	uint32_t queue_least; /* of a full queue: the least urgent */
	uint32_t asked;       /* in this step of the walk */
	struct repair_put_off put_off[REPAIR_PUT_OFF / REPAIR_PUT_OFF_WAYS]
				     [REPAIR_PUT_OFF_WAYS]; /* by block, and in no order */
	/* for status */
	uint64_t wanted, helpless; /* blocks, of the last whole walk */
	uint64_t no_target;        /* of them found no disk to go to, in that walk or since */
	uint64_t held_until_ms;    /* state time; 0: not held */
	uint64_t out_waits_ms;     /* state time from which the next domain may be taken out; 0: none waits */
	uint64_t done_count, failed_count, done_bytes;
};

void plan_repair_init(
	struct plan_repair *p, const struct repair_env *env, struct rng *rng, struct place_disk *candidates);
/* Another one has led since: all is looked at anew, also if nothing has changed. What was counted stays. */
void plan_repair_forget(struct plan_repair *p);
/* A rebuild of this block on that disk has failed: later. */
void plan_repair_failed(struct plan_repair *p, uint64_t block, uint32_t disk, uint64_t now_ms);
/* It has succeeded. */
void plan_repair_done(struct plan_repair *p, uint64_t block, uint64_t bytes);

#endif
