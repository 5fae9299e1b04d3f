/* SPDX-License-Identifier: Apache-2.0 */
/*
 * founding: the first replica of a group, made of rows that are there already: those of a store with one metad, or of a backup. Its table holds
 * all entries up to one, and the group's row, as if the entry behind them had been the configuration of this replica alone; its log begins
 * behind that, in term 1. So it looks like a replica that has just installed a snapshot (table.h), and nothing else need know of it.
 *
 * A directory of one metad becomes such a one where it lies: its table is renamed, not copied, and its log, all of which is in the table, goes.
 *
 *     one metad, started and all of it committed --founding_decide--> DIR/founding is durable: a group's from here on
 *        --founding_finish--> group's row into kv/ --> kv/ is called table-0/ --> mark --> log/ anew --> DIR/founding goes
 *
 * Before DIR/founding (docs/FORMATS.md) is there, nothing was changed that one metad minds; after it each step can be done again, whatever a crash left
 * of it, and every start that is the replica's does so first.
 *
 * Numbers: a store that was restored may have lost a group, whose members can come back with their old directories. So theirs must not be given again,
 * and each restore of a store has its own thousand (metad/raft/member.c, 5).
 */
#ifndef METAD_REPLICA_FOUNDING_H
#define METAD_REPLICA_FOUNDING_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/io/io.h"
#include "common/kv/kv_backend.h"
#include "common/kv/memtable.h"
#include "common/kv/wal_replica.h"

enum { FOUNDING_REPLICA = 1, FOUNDING_TERM = 1, FOUNDING_NUMBERS = 1000, FOUNDING_BYTES = 52 };

struct founding {
	struct uuid cluster;
	uint64_t replica;
	uint64_t index;   /* of the configuration: the table holds what came before it */
	uint64_t last_id; /* numbers of members go on behind it */
	/* where, and how */
	const char *dir;
	const struct kv_backend *backend;
	uint64_t log_segment_bytes;
	bool buffered;
};

/* Of a store that was restored so often. */
uint64_t founding_last_id(uint32_t restores);

/* ---- for who makes the table ---- */

/* The group's row; goes with the last commit of the table, as of `index`. */
void founding_put_row(const struct founding *f, struct memtable *rows);
/* The log that begins behind it; DIR/log exists. ERR_CORRUPT: it has gone on. */
int founding_open_log(struct io *io, const struct founding *f, void (*on_fatal)(void *ctx, int code, const char *text), void *ctx,
	struct wal **ret_wal, struct err *err);

/* ---- DIR/founding; pure ---- */

/* But where and how. */
void founding_encode(const struct founding *f, uint8_t out[FOUNDING_BYTES]);
/* `path`: for the error's text. ERR_CORRUPT, ERR_VERSION. */
int founding_decode(const char *path, struct slice data, struct founding *ret_founding, struct err *err);

/* ---- of a directory of one metad; blocking ---- */

/* All of its log is in its table, durably; f->index is the one behind that. */
int founding_decide(struct io *io, const struct founding *f, struct err *err);
/* What was decided. ERR_NOENT without a text: nothing; ERR_CORRUPT, ERR_VERSION. Where and how is the caller's to say. */
int founding_read(struct io *io, const char *dir, struct founding *ret_founding, struct err *err);
/* Does what is left of it. */
int founding_finish(struct io *io, const struct founding *f, struct err *err);

#endif
