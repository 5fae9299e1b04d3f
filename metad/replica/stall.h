/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall: a log that hangs. A write that neither fails nor returns says nothing, and a leader whose log does that holds up the store for ever:
 * its heartbeats go on. So one that has waited for its log for STALL_ELECTIONS election timeouts, while others have more of it durable,
 * hands over to who has most; and nobody stands for election with such a log.
 *
 * Pure. Time in which we stood still ourselves does not count: what came back meanwhile has not been looked at yet.
 */
#ifndef METAD_REPLICA_STALL_H
#define METAD_REPLICA_STALL_H

#include <stdbool.h>
#include <stdint.h>
#include "metad/raft/raft.h"

enum { STALL_ELECTIONS = 6 };

struct stall {
	uint64_t generation, durable; /* of the log's slots, and its last entry: as they were at the last look */
	uint64_t looked_ms, waited_ms;
};
/* At each tick. waits: something is on its way to the disk. */
void stall_look(struct stall *stall, const struct raft_options *options, uint64_t now_ms, bool waits, uint64_t generation, uint64_t durable);
bool stall_hangs(const struct stall *stall, const struct raft_options *options);

/*
 * Of a leader: the voter that has most of its log durable, if that is more than `above`; one that was heard of lately, if there is such a one. Not
 * `but`. 0: none.
 */
uint64_t stall_successor(const struct raft_core *core, uint64_t above, uint64_t but);

#endif
