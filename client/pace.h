/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace: is a disk slow, compared with its peers? Pure: what requests took in, a judgement out.
 *
 * Only work that was given to several disks at the same time is compared (a *race*: the cells of a stripe, the seals of a block, the
 * fetches of a read): whatever slows all of them down, a busy client or a busy network, is nobody's fault. A disk is slow when its
 * requests took more than PACE_FACTOR times the median of the others in their races, for PACE_REQUESTS in a row or for PACE_LONG_NS in sum. It is then
 * avoided; one request in PACE_PROBE_EVERY goes to it all the same, and PACE_WELL of these in a row that were not slow bring it back.
 */
#ifndef CLIENT_PACE_H
#define CLIENT_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/limits.h"

#define PACE_LONG_NS (100ull * 1000 * 1000)
#define PACE_NOISE_NS (2ull * 1000 * 1000)        /* whoever answers sooner is not slow, however fast the others are */
#define PACE_PROBE_NS (1000ull * 1000 * 1000)     /* a client with few requests probes this often */
#define PACE_HINT_NS (10ull * 1000 * 1000 * 1000) /* how long another client's word counts; metad keeps it as long */
enum {
	PACE_FACTOR = 4,
	PACE_REQUESTS = 16,
	PACE_LEAST = 2,         /* in a row, however long: once is no row */
	PACE_PROBE_EVERY = 100, /* 1 % */
	PACE_WELL = 3,
};

struct pace_race {
	uint64_t took_ns[LIMIT_WIDTH]; /* of those that have ended, ascending */
	uint8_t entered, ended;
};
/*
 * One has ended. Returns what it is compared with: its pace_race_peers, or its own time if it came before those are known among more than two, as whoever is in the
 * quicker half is not slow; unless it took far longer than those before it, as others entered late. More than have entered are ignored.
 */
uint64_t pace_race_end(struct pace_race *r, uint64_t took_ns);
/* The median of all that entered, once half of them have ended; 0: not known yet. */
uint64_t pace_race_median(const struct pace_race *r);
/*
 * What one that has not ended in it is compared with: the (lower) median of all others. 0: not known yet, or it has none. Of two that are late the quicker one
 * would be the median of all, and the measure of both.
 */
uint64_t pace_race_peers(const struct pace_race *r);

struct pace {
	uint16_t slow_in_row, well_in_row;
	uint64_t slow_sum_ns;   /* of those in a row */
	bool slow;
	uint16_t spared;        /* requests that it was spared since the last probe */
	uint64_t probed_ns;     /* when that was */
	uint64_t hint_until_ns; /* another client found it slow */
};

/* Also of a request that is waiting still, which may speak against a disk by this, and never for it. */
bool pace_is_slow(uint64_t took_ns, uint64_t median_ns);
/* A request took took_ns; median_ns: what it is compared with. Without that (0) it tells something only if it is no slower than noise. */
void pace_note(struct pace *p, uint64_t took_ns, uint64_t median_ns);
/* Slow, by what was seen here or by another's word. */
bool pace_avoided(const struct pace *p, uint64_t now_ns);
/* It is avoided and would be spared a request: true if this one shall be made all the same. */
bool pace_probe(struct pace *p, uint64_t now_ns);

#endif
