/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drops: carries out metad's orders to drop copies. This is the only way in which a sealed copy leaves a disk: nothing
 * is dropped for its age, for what an inventory says, or because this server thinks so.
 *
 *   a heartbeat's reply names the disk --> ask: orders --> drop each, exactly that incarnation
 *        ^                                  ^                       |
 *        '--no more orders------------------'--ask again, with those whose records are durable (or that were never here)
 *
 * One exchange at a time for all disks of the server. What could not be dropped now (a disk that failed, a copy that is
 * being sealed) is not reported; metad names it again.
 */
#ifndef CHUNKD_DROPS_H
#define CHUNKD_DROPS_H

#include <stdbool.h>
#include <stdint.h>

struct chunkd;
struct drops;

struct drops *drops_new(struct chunkd *ch);
/* There may be orders for this disk. */
void drops_wanted(struct drops *drops, uint32_t disk);
/* Orders are being carried out: their records are not durable yet. */
bool drops_under_way(const struct drops *drops);
/* Ends the exchange. Does not wait for drops under way, whose disks do (disk_close); it is freed behind the last of them. */
void drops_close(struct drops *drops, void (*closed)(void *ctx), void *ctx);

#endif
