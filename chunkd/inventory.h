/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inventory: tells metad what lies on the disks, below the floor: after each registration of a disk, periodically, and
 * when metad wants one. Digests of ranges first; ranges that differ copy by copy; copies that
 * metad misses are looked up once more, now, before they are confirmed missing. It drops nothing: see drops.h.
 *
 *   DIGESTS --differing--> COPIES --missing--> MISSING --+
 *      ^  '--none--.          ^                          |
 *      '-----------'----------'--------------------------'
 */
#ifndef CHUNKD_INVENTORY_H
#define CHUNKD_INVENTORY_H

#include <stdint.h>

struct chunkd;
struct inventory;

enum {
	INVENTORY_PERIOD_MS = 10 * 60 * 1000, /* of ids that the floor has passed lately */
	INVENTORY_WHOLE_MS = 60 * 60 * 1000,  /* of all: metad looks at each block's row then */
	INVENTORY_RETRY_MS = 30 * 1000,
};

struct inventory *inventory_new(struct chunkd *ch);
/* Called with each heartbeat's reply. */
void inventory_beat(struct inventory *inventory, uint64_t floor, uint64_t round);
void inventory_close(struct inventory *inventory, void (*closed)(void *ctx), void *ctx);

#endif
