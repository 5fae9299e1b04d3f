/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair: makes chunks anew on this server's disks, by order of metad (heartbeat replies), one chunk at a time for each of a
 * few jobs. An order names the copy to make, where the block's other chunks lie, and the proof of each: the job pulls any k
 * of them cell by cell, believes only what leads up to the proofs, decodes, and seals only what equals the proof of the
 * chunk. What came of it is said in heartbeats until metad has heard it. Orders come again with each heartbeat; a copy that
 * is sealed already is answered with its receipt, so that repetitions cost nothing.
 *
 * An order may also be to read a copy again (check): does it still lead up to the proof?
 */
#ifndef CHUNKD_REPAIR_H
#define CHUNKD_REPAIR_H

#include <stdbool.h>
#include <stddef.h>
#include "proto/metad.pb-c.h"

struct chunkd;
struct repairs;

struct repairs *repairs_new(struct chunkd *ch);
/* Ends all jobs; then `closed`. The disks are still open. */
void repairs_close(struct repairs *repairs, void (*closed)(void *ctx), void *ctx);

/* Orders of a heartbeat's reply. Those that are known, or find no free job, are ignored: they come again. */
void repairs_take(struct repairs *repairs, Craton__RepairOrder *const *orders, size_t count);
/* Results for a heartbeat that is about to be sent; valid until the next call. */
size_t repairs_results(struct repairs *repairs, Craton__RepairResult ***ret_results);
/* That heartbeat was answered. */
void repairs_reported(struct repairs *repairs);
/* Jobs are under way, or were a moment ago: heartbeats come more often. */
bool repairs_busy(const struct repairs *repairs);

#endif
