/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: the rows that the entries of a replica make: a kv (common/kv/kv.h) in one of two directories, the other of which takes the next
 * snapshot (intake.h).
 *
 *     DIR/log        the log; its slots say behind which snapshot it begins: wal_meta()->base_index, 0 for none
 *     DIR/table-0    a table; without a file `snapshot`: from the group's first entry on
 *     DIR/table-1    another one; `snapshot` (docs/FORMATS.md) says which snapshot it was made of, and that all of it is there
 *     DIR/founding   only while it is made of the directory of one metad (founding.h)
 *
 * Which of the two counts is said by the log's slots alone: the one that was made of the snapshot that the log begins behind. So one write
 * switches log and table together, and a crash leaves the old ones or the new ones.
 *
 * One row is the driver's own, TABLE_GROUP_KEY, the first of all: the configuration of the group as of the entries that are applied. It
 * is a row like any other, so it is in every snapshot, and equal in all replicas.
 *
 * One thread: that of the loop.
 */
#ifndef METAD_REPLICA_TABLE_H
#define METAD_REPLICA_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/slice.h"
#include "common/io/io.h"
#include "common/kv/kv.h"
#include "metad/raft/raft.h"
#include "metad/replica/body.h"

enum { TABLE_COUNT = 2, TABLE_PATH_BYTES = 4096 + 64, TABLE_GROUP_BYTES_MAX = 8 + BODY_CONFIG_BYTES_MAX, TABLE_MARK_BYTES = 20 };

struct table_options {
	const char *dir;      /* of the replica; exists */
	struct kv_options kv; /* but `dir`, on_fatal and ctx */
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;
};

struct table;

/*
 * The table that belongs to a log that begins behind `base` (wal_meta()->base_index); what the other directory holds goes. ERR_CORRUPT: there
 * is none, or it is behind the log.
 */
int table_open(struct io *io, const struct table_options *options, uint64_t base, struct table **ret_table, struct err *err);
/* Commits what is applied, frees. `closed` is not called from inside. Scans and snapshots have ended. */
void table_close(struct table *table, void (*closed)(void *ctx, int code), void *ctx);
/* For a start that failed elsewhere. */
void table_abandon(struct table *table);

struct kv *table_kv(struct table *table);
uint64_t table_applied(const struct table *table);
/* As of what is applied; count 0: no entry is. */
const struct raft_config *table_config(const struct table *table);
/* Which of the directories it is in. */
uint32_t table_slot(const struct table *table);

/* The rows of entry `index` were put; config: NULL, or it is a configuration. */
void table_applied_entry(struct table *table, uint64_t index, const struct raft_config *config);

/* The row of TABLE_GROUP_KEY. ERR_CORRUPT. */
struct slice table_group_key(void);
uint32_t table_group_encode(const struct raft_config *config, uint8_t out[TABLE_GROUP_BYTES_MAX]);
int table_group_decode(struct slice value, struct raft_config *ret_config);

/* What table_mark writes. `path`: for the error's text. ERR_CORRUPT, ERR_VERSION. */
void table_mark_encode(uint64_t snapshot, uint8_t out[TABLE_MARK_BYTES]);
int table_mark_decode(const char *path, struct slice data, uint64_t *ret_snapshot, struct err *err);

/* ---- directories and their files; blocking ---- */

void table_path(const char *dir, uint32_t slot, const char *name, char path[TABLE_PATH_BYTES]);
/* The snapshot that this table was made of: durable, and the last thing of it that is written. */
int table_mark(struct io *io, const char *dir, uint32_t slot, uint64_t snapshot, struct err *err);
/* All files of it go, its mark first. */
int table_clear(struct io *io, const char *dir, uint32_t slot, struct err *err);
/* Of any directory that has only files. */
int table_remove_files(struct io *io, const char *path, struct err *err);

#endif
