/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_lmdb_room.h"

#include <inttypes.h>
#include <string.h>
#include "common/base/limits.h"

enum {
	AHEAD_MIN_BYTES = 16 << 20, /* reserved beyond what is used: at least so much, */
	AHEAD_MAX_BYTES =
		2 * LIMIT_MEMTABLE_BYTES, /* at most all that the memory tables may hold, twice (pages are copied) */
	AHEAD_FREEZES = 4, /* and between them, so many memory tables of freeze_bytes */
	AHEAD_STEP_BYTES = 64 << 20, /* beyond room_bytes */
	UNWRITTEN_TAIL_BYTES = 1 << 20,
	SHARED = 2, /* what is not reserved others may take, too: so much of it is counted on */
	QUOTA_LOOKS = 60, /* so many in vain before it is tried again */
	PLENTY = 8, /* beyond so many times room_bytes free pages are not counted: to read the lists of them takes time */
};

uint64_t lmdb_room_used(MDB_env *env)
{
	MDB_envinfo info;
	MDB_stat stat;

	mdb_env_info(env, &info);
	mdb_env_stat(env, &stat);
	return ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
}

/*
 * Pages that deletions have left for reuse: LMDB keeps lists of them, by the transaction that they are from, each a count and that many page
 * numbers. Those of the last one the next one leaves alone: a crash may come back to what was before it.
 */
static uint64_t free_bytes(MDB_env *env, uint64_t *ret_next_bytes)
{
	enum { FREE_DBI = 0 };
	MDB_val key, value;
	MDB_cursor *cursor;
	uint64_t pages = 0, next_pages = 0;
	size_t count, from;
	MDB_stat stat;
	MDB_txn *txn;

	*ret_next_bytes = 0;
	if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn))
		return 0;
	if (mdb_cursor_open(txn, FREE_DBI, &cursor) == 0) {
		while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0 && value.mv_size >= sizeof(count)) {
			memcpy(&count, value.mv_data, sizeof(count));
			pages += count;
			memcpy(&from, key.mv_data, sizeof(from));
			next_pages += from < mdb_txn_id(txn) ? count : 0;
		}
		mdb_cursor_close(cursor);
	}
	mdb_env_stat(env, &stat);
	mdb_txn_abort(txn);
	*ret_next_bytes = next_pages * stat.ms_psize;
	return pages * stat.ms_psize;
}

static uint64_t file_system_left(const struct lmdb_room *r)
{
	uint64_t total, left;

	return io_disk_space(r->io, r->path, &total, &left) == 0 ? left : 0;
}

/* What was refused before, though it was shown, others may have taken meanwhile: that was no quota. */
static bool file_system_has(struct lmdb_room *r, uint64_t bytes)
{
	bool has = file_system_left(r) >= bytes;

	r->quota = r->quota && has;
	return has;
}

/* Makes it `want` if it is less than `least`. */
static bool allocate_to(struct lmdb_room *r, uint64_t least, uint64_t want)
{
	int rc;

	if (r->cannot_allocate || r->allocated_bytes >= least)
		return true;
	if (!file_system_has(r, want - r->allocated_bytes + r->spare_bytes))
		return false;
	rc = io_allocate(r->io, r->fd, r->allocated_bytes, want - r->allocated_bytes);
	if (!rc)
		r->allocated_bytes = want;
	r->cannot_allocate = rc == ERR_OPNOTSUPP;
	r->quota = rc != 0 && !r->cannot_allocate;
	r->looks = 0;
	return rc == 0 || rc == ERR_OPNOTSUPP;
}

/* A full disk is not an error here: the commit that really needs the room will say it, and `full` keeps growth away long before. */
bool lmdb_room_reserve(struct lmdb_room *r)
{
	uint64_t used = lmdb_room_used(r->env), want = used + r->ahead_bytes, room, left;

	r->refused = !allocate_to(r, r->refused ? want : used + r->room_bytes, want);
	if (r->refused)
		(void)allocate_to(r, used + r->room_bytes, used + r->room_bytes);
	room = r->allocated_bytes > used ? r->allocated_bytes - used : 0;
	left = r->refused ? 0 : file_system_left(r);
	r->fresh_bytes = room + (left > r->spare_bytes ? (left - r->spare_bytes) / SHARED : 0);
	r->free_bytes = 0;
	if (r->cannot_allocate)
		return left < r->room_bytes + r->spare_bytes;
	if (r->fresh_bytes >= PLENTY * r->room_bytes)
		return false;
	return room + free_bytes(r->env, &r->free_bytes) < r->room_bytes;
}

bool lmdb_room_is_there(struct lmdb_room *r)
{
	uint64_t least = lmdb_room_used(r->env) + r->room_bytes;

	if (r->cannot_allocate)
		return file_system_has(r, r->room_bytes + r->spare_bytes);
	if (r->allocated_bytes >= least)
		return true;
	return file_system_has(r, least - r->allocated_bytes + r->spare_bytes) && (!r->quota || ++r->looks % QUOTA_LOOKS == 0);
}

static uint64_t ahead_bytes(const struct kv_options *options)
{
	uint64_t bytes = options->freeze_bytes * AHEAD_FREEZES;

	if (options->room_bytes)
		return options->room_bytes + AHEAD_STEP_BYTES;
	if (options->freeze_bytes == 0 || bytes > AHEAD_MAX_BYTES)
		return AHEAD_MAX_BYTES / 2;
	return bytes < AHEAD_MIN_BYTES ? AHEAD_MIN_BYTES : bytes;
}

int lmdb_room_init(struct lmdb_room *r, struct io *io, const char *path, int fd, MDB_env *env, const struct kv_options *options,
	struct err *err)
{
	uint64_t size, used = lmdb_room_used(env);
	int rc = io_size(io, fd, &size);

	if (rc)
		return err_set(err, rc, "%s: cannot tell its size: %s", path, err_text(rc));
	/* the very last pages of a transaction may have been freed again before they were ever written */
	if (size < used && used - size > UNWRITTEN_TAIL_BYTES)
		return err_set(err, ERR_CORRUPT,
			"%s: has %" PRIu64 " bytes, its meta page says %" PRIu64 ": the file was cut", path, size, used);
	/* If one of them was written, and cut, it reads as zeros, which is no page; where the file ends, to read it would be a signal. */
	if (size < used) {
		rc = io_truncate(io, fd, used);
		if (rc)
			return err_set(err, rc, "%s: cannot be made as long as its pages: %s", path, err_text(rc));
		size = used;
	}
	*r = (struct lmdb_room){
		.io = io,
		.path = path,
		.fd = fd,
		.env = env,
		.ahead_bytes = ahead_bytes(options),
		.allocated_bytes = size,
		.spare_bytes = options->spare_bytes,
	};
	r->room_bytes = options->room_bytes ? options->room_bytes : r->ahead_bytes / 2;
	return 0;
}
