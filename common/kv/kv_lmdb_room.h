/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_lmdb_room: the room of an LMDB file on its file system. Blocks are reserved ahead in steps, so that a commit neither allocates nor changes
 * the file's size in most cases, and so that a full disk is met while there is still room to write deletes.
 *
 * Not locked: the opening thread first, then that of the commits.
 */
#ifndef COMMON_KV_KV_LMDB_ROOM_H
#define COMMON_KV_KV_LMDB_ROOM_H

#include <lmdb.h>
#include "common/kv/kv.h"

struct lmdb_room {
	struct io *io;
	const char *path;
	int fd;
	MDB_env *env;
	uint64_t ahead_bytes, allocated_bytes;
	uint64_t room_bytes, spare_bytes; /* of the options */
	bool cannot_allocate;             /* the file system has no fallocate */
	bool refused;                     /* it did not give the last time what was wanted */
	bool quota;                       /* though it showed that it was there */
	uint32_t looks;                   /* since then, by lmdb_room_is_there */
	/* What commits may take, as of the last lmdb_room_reserve: pages that were never used, and those that are free again. */
	uint64_t fresh_bytes, free_bytes;
};

/*
 * Of the file `fd` at `path`, which `env` maps; all of them stay the caller's. One that is shorter than its meta page says would be a SIGBUS when
 * it is read: ERR_CORRUPT.
 */
int lmdb_room_init(struct lmdb_room *r, struct io *io, const char *path, int fd, MDB_env *env, const struct kv_options *options,
	struct err *err);
/* Bytes of the file that hold something, or have held it. */
uint64_t lmdb_room_used(MDB_env *env);
/* Reserves blocks beyond what is used, and tells whether less than the options want is left. Sets fresh_bytes, free_bytes. */
bool lmdb_room_reserve(struct lmdb_room *r);
/* It would find as much as the options want. Reserves nothing: where room is shown that it was refused (a quota) it says so once in a while, to be tried. */
bool lmdb_room_is_there(struct lmdb_room *r);

#endif
