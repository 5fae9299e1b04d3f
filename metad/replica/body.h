/* SPDX-License-Identifier: Apache-2.0 */
/* body: what an entry of a replica's log holds: its kind, and what belongs to that (docs/FORMATS.md, "Bodies of a replicated log"). */
#ifndef METAD_REPLICA_BODY_H
#define METAD_REPLICA_BODY_H

#include <stdint.h>
#include "common/base/slice.h"
#include "metad/raft/raft.h"

/* A configuration is written as BODY_CONFIG_PLACES if it says of any member where it is; whoever decodes it gets BODY_CONFIG. */
enum body_kind { BODY_NOOP = 1, BODY_CONFIG, BODY_COMMANDS, BODY_CONFIG_PLACES };

enum { BODY_CONFIG_BYTES_MAX = 10 + (9 + RAFT_PLACE_BYTES) * RAFT_MEMBERS_MAX };

uint32_t body_encode_config(const struct raft_config *config, uint8_t out[BODY_CONFIG_BYTES_MAX]);

bool body_configs_equal(const struct raft_config *a, const struct raft_config *b);

/* Of entry `index`. ret_config: of a BODY_CONFIG only. ERR_FORMAT. */
int body_decode(struct slice data, uint64_t index, enum body_kind *ret_kind, struct raft_config *ret_config);

#endif
