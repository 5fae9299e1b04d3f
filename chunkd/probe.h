/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: is each disk still there? Every PROBE_MS, and soon after a read of it failed, a few bytes are written to its lock file and made
 * durable. A disk fails by its writes (disk.h), and one that nobody writes to would go unnoticed: its chunks would be found unreadable one
 * by one, by their readers, instead of being lost all at once. It fails when no such write was good for PROBE_GONE_MS since one went wrong, or
 * one does not end for so long: a path that is away for a moment takes nothing with it, for nothing else was written. One that does not end says
 * something of its disk only if that of another disk, begun later, does: what holds up all of them, or the only one, may be a pause of the
 * machine or of what lies below it, and a disk that failed serves again only after a restart. When none ends for PROBE_ALL_GONE_MS they
 * all fail. Time in which we stood still ourselves does not count.
 */
#ifndef CHUNKD_PROBE_H
#define CHUNKD_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include "chunkd/disk.h"

struct chunkd;
struct probes;

enum {
	PROBE_MS = 10 * 1000,
	PROBE_SOON_MS = 1000,      /* after a failed read */
	PROBE_GONE_MS = 30 * 1000, /* less than metad waits before it takes a copy that cannot be read for lost */
	PROBE_ALL_GONE_MS = 5 * 60 * 1000,
	PROBE_BYTES = 512,
};

/* Is the disk gone, whose write has not ended for so long? others_answer: one to another disk, begun later, ended. */
bool probe_says_gone(uint64_t waited_ms, bool others_answer);

/* For the disks that the server has open; they stay open until it is closed. */
struct probes *probes_new(struct chunkd *chunkd);
/* Something was wrong with a read. */
void probes_soon(struct probes *probes);
/* Frees. Once for each disk, when nothing is being written to it any more, perhaps from inside: quiet. */
void probes_close(struct probes *probes, void (*quiet)(void *ctx, struct disk *disk), void *ctx);
/* A write to it is under way. */
bool probes_writing(const struct probes *probes, const struct disk *disk);

#endif
