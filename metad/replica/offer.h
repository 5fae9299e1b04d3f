/* SPDX-License-Identifier: Apache-2.0 */
/* offer: the leader's side of a snapshot (offer.c). */
#ifndef METAD_REPLICA_OFFER_H
#define METAD_REPLICA_OFFER_H

#include "common/kv/wal_replica.h"
#include "metad/replica/part.h"
#include "metad/replica/table.h"

enum offer_state { OFFER_NONE, OFFER_FLUSHING, OFFER_OPEN };

struct offer {
	enum offer_state state;
	uint64_t term; /* the leadership that it is of */
	struct raft_message message;
	bool tell; /* the core is to be told of it (again) */
	struct kv_snapshot *rows; /* NULL: all of it was read */
	struct slice key, value;  /* the row that did not fit the part before */
	bool pending;
	struct backup_writer writer;
	struct part_digest digest;
	struct replica_part part; /* the current one, in `out` */
	uint8_t *out;
	bool unwanted;
	bool asked, advance; /* a part is to be sent; the one behind `part` */
	struct part_pace pace;
	struct io_op timer; /* until the next part may go */
	uint64_t asked_ns;
	uint64_t refused_peer; /* who asked for what there is not; 0: nobody */
	struct replica_ask refused;
};

#endif
