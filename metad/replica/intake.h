/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intake: a table in the making, in the directory that does not count, out of the parts of a snapshot.
 *
 *     intake_new -> intake_part(0), (1), ... -> intake_check until done -> intake_finish -> intake_free
 *
 * 1. Before the first row is written the directory's mark is removed. After a crash it may be there again: it names a snapshot that is not this one, and counts
 *    only if the log begins with that.
 * 2. Only what was read back from the store, when all of it was durable, counts: it must have the digest that the leader has of it, the
 *    applied index, and the configuration.
 * 3. The mark is the last thing that is written. Whether the table counts is still for the log's slots to say (table.h).
 *
 * All calls but intake_new block, in bounded pieces: for a worker, one at a time; the object is the worker's until it returns. After an
 * error it is only freed.
 */
#ifndef METAD_REPLICA_INTAKE_H
#define METAD_REPLICA_INTAKE_H

#include "metad/replica/part.h"
#include "metad/replica/table.h"

struct intake;

struct intake_options {
	struct table_options table; /* dir and kv; lives as long as the intake */
	uint32_t slot;              /* the directory that does not count */
	struct uuid cluster;
	uint64_t index; /* of the snapshot */
	struct raft_config config; /* as of an entry up to `index`: raft_message_check says so of whatever comes */
};

struct intake *intake_new(struct io *io, const struct intake_options *options);
/* ERR_CORRUPT, ERR_FORMAT, ERR_VERSION, ERR_WRONG_CLUSTER: the part is not the one that comes next; or what the disk says. */
int intake_part(struct intake *in, uint64_t number, struct slice data, struct err *err);
/* The last part was taken, and said this digest. Some rows each call. ERR_CORRUPT: this is not what the leader read. */
int intake_check(struct intake *in, const uint8_t digest[PART_DIGEST_BYTES], bool *ret_done, struct err *err);
int intake_finish(struct intake *in, struct err *err);
void intake_free(struct intake *in);

#endif
