/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults: a schedule of what goes wrong, from the seed. At most as many chunk servers are away at a time (crashed, stopped, or with a
 * disk in trouble) as no block is lost by, bits are flipped in at most as many chunks of a block as it can lose for good, and everything
 * is mended in the end; within these bounds anything may come together. Some faults wait for the very moment in which a client hears
 * that a change is done, some crashes for a sync: what is not durable then is lost, torn or kept.
 */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

#include "tests/sim/checker.h"

/* X(name, weight) */
#define FAULTS_LIST(X)                                                                                        \
	X(CRASH_CHUNKD, 8) /* power loss of one host: what was not synced is lost or torn */                  \
	X(SYNC_CHUNKD, 6)  /* the same at one of its next syncs */                                            \
	X(STOP_CHUNKD, 5)  /* a clean stop */                                                                 \
	X(DROP_CHUNKD, 6)  /* power loss while copies are being dropped and others written, on a slow disk */ \
	X(DEAD_CHUNKD, 2)  /* power loss, and away until it counts as dead and its chunks are made anew */    \
	X(DISK_ERROR, 4)   /* one read, write or sync of a chunk server fails; restarted later */             \
	X(DISK_GONE, 3)    /* one of its disks fails everything, and may be there again; restarted later */   \
	X(DISK_FULL, 3)    /* no room on its file system, for a while or for longer; restarted later */        \
	X(CRASH_METAD, 4)                                                                                     \
	X(SYNC_METAD, 4)                                                                                      \
	X(STOP_METAD, 4)                                                                                      \
	X(METAD_DISK_ERROR, 2)                                                                                \
	X(METAD_DISK_FULL, 3) /* little or no room on its file system for a while */                          \
	X(CRASH_CLIENT, 3)                                                                                    \
	X(BLACKOUT, 2) /* all hosts but the clients' lose power at once */                                    \
	X(SLOW_DISK, 5)                                                                                       \
	X(STALL_DISK, 5) /* a disk does nothing for a while */                                                \
	X(CUT, 6)        /* no bytes between two hosts for a while */                                         \
	X(CUT_ONE_WAY, 4) /* nor from one to another, which is heard itself */                                \
	X(PARTITION, 2)  /* nor between two halves of all */                                                  \
	X(PAUSE, 4)      /* a host stands still for a while; its disk and the network go on */                \
	X(RESET, 8)      /* the connections between two hosts break */                                        \
	X(DELAY, 6)      /* a host's messages take long, and overtake each other */                           \
	X(WALL_JUMP, 4)  /* a wall clock is set, by up to ten years */                                        \
	X(FLIP_BITS, 12)                                                                                      \
	X(START_ERROR, 0) /* a read, write or sync fails while a daemon starts, which then gives up */        \
	X(START_CRASH, 0) /* a daemon's host loses power at a sync while it starts */                         \
	X(START_ROTTEN,                                                                                       \
		0) /* a bit of its log or table was flipped at rest: the start refuses and names the file, or it is harmless */

enum faults_kind {
#define FAULTS_X(name, weight) FAULTS_##name,
	FAULTS_LIST(FAULTS_X)
#undef FAULTS_X
		FAULTS_KINDS
};

struct faults;

enum faults_mode {
	FAULTS_ALL,
	FAULTS_ONE, /* one chunk server at a time is away, slow or cut off: everything must go on as if nothing were */
};

struct faults_hooks {
	void (*client_crashed)(void *ctx, unsigned node);
	void (*client_started)(void *ctx, unsigned node);
	void *ctx;
};

/* `without`: kinds that are left out, a bit each. */
struct faults *faults_new(struct cluster *cluster, struct checker *checker, uint64_t seed, enum faults_mode mode,
	uint64_t without, const struct faults_hooks *hooks);
void faults_free(struct faults *f);

/* When faults_step is to be called next, unless faults_wants_now. */
uint64_t faults_next_ns(const struct faults *f);
/* Between two events of the simulation. */
bool faults_wants_now(const struct faults *f);
void faults_step(struct faults *f);
/* A client heard that a change is done. */
void faults_acknowledged(struct faults *f);

/* No new ones; what is broken is mended (nodes that are stopping are waited for: call it until it says true). */
bool faults_mend(struct faults *f);
/* Until then, faults are rare. */
void faults_lull(struct faults *f, uint64_t until_ns);
/* Every host loses power, now. */
void faults_blackout(struct faults *f);

const char *faults_name(enum faults_kind kind);
uint64_t faults_count(const struct faults *f, enum faults_kind kind);
uint64_t faults_flipped(const struct faults *f); /* bits */

/* What was done to a chunk: nothing, bits of its trailer only (some of which nothing depends on), or bits of its data. */
enum faults_damage { FAULTS_SOUND, FAULTS_TRAILER, FAULTS_DATA };
enum faults_damage faults_damage_of(const struct faults *f, uint64_t block, uint8_t index);

#endif
