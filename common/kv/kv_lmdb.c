/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backing store of real daemons: LMDB, one environment in DIR/data.mdb.
 *
 * Two named tables: "rows" (the users' keys; value: CRC32C over key and value, then the value) and "state" (key
 * "applied": CRC32C, format version, applied index), so no user key can meet ours and keys may have all of LMDB's 511
 * bytes.
 *
 * Durability: MDB_NOMETASYNC: a commit syncs its pages, then writes its meta page unsynced; the next commit's sync
 * makes that one durable. So a crash shows the last commit or the one before it. Never MDB_NOSYNC. A commit with `sync`
 * syncs the meta page too. What a commit syncs goes to the disk piece by piece (kv_lmdb_flush.h).
 *
 * Threads: one reader transaction, owned by the loop (MDB_NOTLS) and renewed after each commit; a write transaction
 * begins and ends within one call of `commit`, on whichever thread that runs (one committed by another thread than
 * began it hangs the next).
 *
 * Derived rows are made of the old and the new row while the transaction has both.
 *
 * The file is made under another name and renamed when its first commit is durable, so a crash during creation leaves
 * nothing half done. Its room is reserved ahead (kv_lmdb_room.h), off the reply path.
 */
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/io/io.h"
#include "common/kv/kv_backend.h"
#include "common/kv/kv_lmdb_flush.h"
#include "common/kv/kv_lmdb_room.h"
#include "common/kv/kv_lmdb_whole.h"
#include "common/kv/kv_row.h"
#include <endian.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif

enum {
	PATH_BYTES = 4096 + 32,
	MODE = 0600,
	AHEAD_STEP_BYTES = 4096, /* the least that a page has */
	AHEAD_VALUES = 8,        /* on their way at once */
	CACHE_ROWS = 4096, /* 200 KiB */
	PIECE_ROWS = 64,  /* of a commit, some 0.1 ms: then it rests, */
	REST_NS = 50000,  /* by the kernel's slack twice as long */
	CALM_ROWS = 4096, /* if it has no more than these, and nobody waits for it: of more, others may wait for its end */
	OWN_BYTES = 1 << 20, /* that a commit may take for LMDB's own tables, lists of free pages among them, and to become deeper */
};

#ifdef UNDER_TSAN
static const uint64_t map_bytes_default = 16ull << 30; /* TSan's own maps leave little room */
#else
static const uint64_t map_bytes_default = 1ull << 40;
#endif
static const uint64_t map_bytes_least = 1ull << 30;
static const unsigned env_flags = MDB_NOSUBDIR | MDB_NOMETASYNC | MDB_NOTLS | MDB_NORDAHEAD;
static const char state_key[] = "applied";

struct lmdb_cursor {
	struct list link;
	MDB_cursor *cursor;
	MDB_val key, value; /* where it stands */
};

/* A row that was read and checked since the last renew, where it lies in LMDB's map. */
struct cached_row {
	uint64_t renewal;
	struct slice key, value;
};

struct store {
	struct io *io;
	char *path;
	MDB_env *env;
	MDB_dbi rows, state;
	MDB_txn *reader;
	struct list cursors; /* lmdb_cursor, of the reader transaction */
	MDB_cursor *getter;  /* of the reader transaction, too: a get near the last one finds its page at once */
	uint64_t renewal;    /* of the reader transaction; from 1 */
	struct cached_row *cache; /* by the key's CRC: rows that all requests touch (directories) cost no descent */
	int fd;              /* to reserve blocks with */
	struct lmdb_room room;
	struct kv_derived_rows *derived;                /* NULL: nothing is derived */
	struct kv_backend_stats stats, committed_stats; /* the second by the worker */
};

/* ---- small things ---- */

static int code_of(int rc)
{
	if (rc > 0)
		return err_from_errno(rc);
	switch (rc) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return ERR_NOENT;
	case MDB_MAP_FULL:
		return ERR_NOSPC;
	case MDB_PAGE_NOTFOUND:
	case MDB_CORRUPTED:
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
		return ERR_CORRUPT;
	default:
		return ERR_IO;
	}
}

static int lmdb_err(const struct store *s, struct err *err, int rc, const char *what)
{
	return err_set(err, code_of(rc), "%s: %s: %s", s->path, what, mdb_strerror(rc));
}

static MDB_val val_of(struct slice s)
{
	return (MDB_val){s.len, (void *)(uintptr_t)s.data};
}

static struct slice slice_of_val(MDB_val v)
{
	return slice_of(v.mv_data, v.mv_size);
}

/* The value of a stored row, checked. */
static int open_row(const struct store *s, struct slice key, MDB_val stored, struct slice *ret_value, struct err *err)
{
	return kv_row_decode(s->path, key, slice_of_val(stored), ret_value, err);
}

/* ---- open ---- */

static int state_put(struct store *s, MDB_txn *txn, uint64_t applied)
{
	uint8_t data[KV_STATE_BYTES];
	MDB_val key = {sizeof(state_key) - 1, (void *)(uintptr_t)state_key}, value = {sizeof(data), data};

	kv_state_encode(applied, data);
	return mdb_put(txn, s->state, &key, &value, 0);
}

static int state_get(struct store *s, MDB_txn *txn, uint64_t *ret_applied, struct err *err)
{
	MDB_val key = {sizeof(state_key) - 1, (void *)(uintptr_t)state_key}, value;
	int rc = mdb_get(txn, s->state, &key, &value);

	if (rc == MDB_NOTFOUND)
		return err_set(err, ERR_CORRUPT, "%s: has no applied index: not a table of ours", s->path);
	return rc ? lmdb_err(s, err, rc, "cannot read the applied index")
		  : kv_state_decode(s->path, slice_of_val(value), ret_applied, err);
}

/* LMDB's map takes address space only, but some limits (ulimit -v) leave less of it. */
static int env_open(const char *path, uint64_t map_bytes, MDB_env **ret_env)
{
	MDB_env *env = NULL;
	int rc;

	for (;; map_bytes /= 2) {
		rc = mdb_env_create(&env);
		if (rc)
			return rc;
		rc = lmdb_whole_watch(env);
		if (!rc)
			rc = mdb_env_set_maxdbs(env, 2);
		if (!rc)
			rc = mdb_env_set_mapsize(env, map_bytes);
		if (!rc)
			rc = mdb_env_open(env, path, env_flags, MODE);
		if (!rc) {
			*ret_env = env;
			return 0;
		}
		mdb_env_close(env);
		if (code_of(rc) != ERR_NOMEM || map_bytes / 2 < map_bytes_least)
			return rc;
	}
}

static uint64_t load_be(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

/*
 * LMDB's own order, by eight bytes at once: a search compares two dozen keys, and calling memcmp for each of them takes longer than comparing
 * them.
 */
static int compare_keys(const MDB_val *a, const MDB_val *b)
{
	const uint8_t *p = a->mv_data, *q = b->mv_data;
	size_t len = a->mv_size < b->mv_size ? a->mv_size : b->mv_size, at = 0;
	uint64_t x, y;

	while (len - at >= sizeof(x)) {
		x = load_be(p + at);
		y = load_be(q + at);
		if (x != y)
			return x < y ? -1 : 1;
		at += sizeof(x);
		if (at < len && len - at < sizeof(x))
			at = len - sizeof(x); /* the last ones, with some that were equal */
	}
	for (; at < len; at++)
		if (p[at] != q[at])
			return p[at] < q[at] ? -1 : 1;
	return a->mv_size < b->mv_size ? -1 : a->mv_size > b->mv_size;
}

static int open_tables(struct store *s, MDB_txn *txn, unsigned flags)
{
	int rc = mdb_dbi_open(txn, "rows", flags, &s->rows);

	if (!rc)
		rc = mdb_set_compare(txn, s->rows, compare_keys);
	return rc ? rc : mdb_dbi_open(txn, "state", flags, &s->state);
}

static void remove_leftovers(struct store *s, const char *path)
{
	char lock[PATH_BYTES + 8];

	snprintf(lock, sizeof(lock), "%s-lock", path);
	(void)io_unlink(s->io, path); /* what is not there need not go; what cannot go is met again by its creation */
	(void)io_unlink(s->io, lock);
}

/* The file with its tables and applied index 0, durable before it gets its name. */
static int create(struct store *s, const char *dir, uint64_t map_bytes, struct err *err)
{
	char path[PATH_BYTES];
	MDB_env *env;
	MDB_txn *txn;
	int rc;

	snprintf(path, sizeof(path), "%s/data.mdb-new", dir);
	remove_leftovers(s, path);
	rc = env_open(path, map_bytes, &env);
	if (rc)
		return lmdb_err(s, err, rc, "cannot create");
	rc = mdb_txn_begin(env, NULL, 0, &txn);
	if (!rc) {
		rc = open_tables(s, txn, MDB_CREATE);
		if (!rc)
			rc = state_put(s, txn, 0);
		if (!rc)
			rc = mdb_txn_commit(txn);
		else
			mdb_txn_abort(txn);
	}
	if (!rc)
		rc = mdb_env_sync(env, 1);
	mdb_env_close(env);
	if (rc) {
		remove_leftovers(s, path);
		return lmdb_err(s, err, rc, "cannot create");
	}
	rc = io_rename(s->io, path, s->path);
	if (!rc)
		rc = io_sync_dir(s->io, dir);
	remove_leftovers(s, path);
	return rc ? err_set(err, rc, "%s: cannot create: %s", s->path, err_text(rc)) : 0;
}

/* What a commit left, for the loop to take over at the renew. */
static void count(struct store *s, MDB_txn *txn)
{
	MDB_stat stat;

	s->committed_stats.bytes = lmdb_room_used(s->env);
	if (mdb_stat(txn, s->rows, &stat))
		return;
	s->committed_stats.rows = stat.ms_entries;
	s->committed_stats.room = (struct kv_room){
		.page_bytes = stat.ms_psize,
		.leaf_pages = stat.ms_leaf_pages,
		.branch_pages = stat.ms_branch_pages,
		.depth = stat.ms_depth,
		.own_bytes = OWN_BYTES,
	};
}

/* Reserves room for the next commits, and says what there is. */
static void reserve(struct store *s)
{
	s->committed_stats.full = lmdb_room_reserve(&s->room);
	s->committed_stats.room.left_bytes = s->room.fresh_bytes;
	s->committed_stats.room.again_bytes = s->room.free_bytes;
}

static void lmdb_close(void *store)
{
	struct store *s = store;
	struct list *node;

	while ((node = list_pop_front(&s->cursors))) {
		mdb_cursor_close(LIST_ENTRY(node, struct lmdb_cursor, link)->cursor);
		mem_free(LIST_ENTRY(node, struct lmdb_cursor, link));
	}
	if (s->getter)
		mdb_cursor_close(s->getter);
	if (s->reader)
		mdb_txn_abort(s->reader);
	if (s->env)
		mdb_env_close(s->env);
	if (s->fd >= 0)
		io_close(s->io, s->fd);
	kv_derived_free(s->derived);
	mem_free(s->cache);
	mem_free(s->path);
	mem_free(s);
}

/* The environment is there: tables, reader, what it holds. */
static int attach(struct store *s, uint64_t *ret_applied, struct err *err)
{
	int dead, rc;

	rc = mdb_reader_check(s->env, &dead);
	if (rc)
		return lmdb_err(s, err, rc, "cannot clear the readers of dead processes");
	rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &s->reader);
	if (rc)
		return lmdb_err(s, err, rc, "cannot read");
	rc = open_tables(s, s->reader, 0);
	if (rc == MDB_NOTFOUND)
		return err_set(err, ERR_CORRUPT, "%s: has no tables: not ours, or emptied", s->path);
	if (rc)
		return lmdb_err(s, err, rc, "cannot open the tables");
	/* a table opened in a transaction belongs to all only when that one has ended */
	rc = mdb_txn_commit(s->reader);
	s->reader = NULL;
	if (!rc)
		rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &s->reader);
	if (rc)
		return lmdb_err(s, err, rc, "cannot read");
	rc = mdb_cursor_open(s->reader, s->rows, &s->getter);
	if (rc)
		return lmdb_err(s, err, rc, "cannot read");
	rc = state_get(s, s->reader, ret_applied, err);
	if (rc)
		return rc;
	count(s, s->reader);
	s->stats = s->committed_stats;
	return 0;
}

static int lmdb_open(
	struct io *io, const struct kv_options *options, void **ret_store, uint64_t *ret_applied, struct err *err)
{
	uint64_t map_bytes = options->map_bytes ? options->map_bytes : map_bytes_default;
	struct store *s = MEM_NEW(struct store);
	int rc;

	s->io = io;
	s->path = mem_printf("%s/data.mdb", options->dir);
	s->fd = -1;
	s->cache = mem_array(CACHE_ROWS, sizeof(*s->cache));
	s->renewal = 1;
	s->derived = kv_derived_new(options->derived);
	list_init(&s->cursors);
	rc = io_open(io, s->path, IO_OPEN_WRITE, 0, &s->fd);
	if (rc == ERR_NOENT) {
		rc = create(s, options->dir, map_bytes, err);
		if (rc)
			goto fail;
		rc = io_open(io, s->path, IO_OPEN_WRITE, 0, &s->fd);
	} else if (!rc) {
		rc = io_sync_dir(io, options->dir); /* its rename may be seen, and not durable yet */
	}
	if (rc) {
		err_set(err, rc, "%s: cannot open: %s", s->path, err_text(rc));
		goto fail;
	}
	rc = io_lock(io, s->fd);
	if (rc) {
		err_set(err, rc, "%s: cannot lock: %s", s->path,
			rc == ERR_BUSY ? "another process uses it" : err_text(rc));
		goto fail;
	}
	rc = env_open(s->path, map_bytes, &s->env);
	if (rc) {
		rc = lmdb_err(s, err, rc, "cannot open");
		goto fail;
	}
	rc = lmdb_room_init(&s->room, io, s->path, s->fd, s->env, options, err);
	if (!rc)
		rc = attach(s, ret_applied, err);
	if (rc)
		goto fail;
	reserve(s);
	s->stats = s->committed_stats;
	*ret_store = s;
	return 0;
fail:
	lmdb_close(s);
	return rc;
}

/* ---- commit ---- */

static int write_row(MDB_cursor *cursor, const struct memtable_row *row)
{
	MDB_val key = val_of(row->key), value = {KV_ROW_CRC_BYTES + row->value.len, NULL};
	int rc;

	if (row->tombstone) {
		rc = mdb_cursor_get(cursor, &key, &value, MDB_SET);
		if (rc == MDB_NOTFOUND)
			return 0;
		return rc ? rc : mdb_cursor_del(cursor, 0);
	}
	rc = mdb_cursor_put(cursor, &key, &value, MDB_RESERVE);
	if (rc)
		return rc;
	kv_row_encode(row->key, row->value, value.mv_data);
	return 0;
}

/* The derived rows gathered so far. */
static int write_derived(struct store *s, MDB_cursor *cursor)
{
	const struct memtable_row *row;
	int rc = 0;

	while (!rc && (row = kv_derived_next(s->derived)))
		rc = write_row(cursor, row);
	return rc;
}

/* Before the row is written: what was there under its key? */
static int derive_row(struct store *s, MDB_cursor *cursor, const struct memtable_row *row, struct err *err)
{
	MDB_val key = val_of(row->key), stored;
	struct slice was;
	int rc = mdb_cursor_get(cursor, &key, &stored, MDB_SET);

	if (rc && rc != MDB_NOTFOUND)
		return lmdb_err(s, err, rc, "cannot read");
	if (rc == MDB_NOTFOUND)
		return kv_derive(s->derived, row, NULL, err);
	rc = open_row(s, row->key, stored, &was, err);
	return rc ? rc : kv_derive(s->derived, row, &was, err);
}

static int write_table(struct store *s, MDB_cursor *cursor, const struct memtable *table, bool calm, struct err *err)
{
	struct memtable_pos pos;
	struct memtable_row row;
	uint64_t written = 0;
	int rc = 0;

	for (memtable_seek(table, &pos, slice_of(NULL, 0)); !rc && memtable_at(&pos, &row); memtable_next(&pos)) {
		if (calm && ++written % PIECE_ROWS == 0)
			io_worker_rest(REST_NS); /* others get a processor at once only from a thread that sleeps */
		if (kv_derives(s->derived, row.key)) {
			rc = derive_row(s, cursor, &row, err);
			if (rc)
				return rc;
		}
		rc = write_row(cursor, &row);
		if (!rc && s->derived && kv_derived_full(s->derived))
			rc = write_derived(s, cursor);
	}
	if (!rc && s->derived)
		rc = write_derived(s, cursor);
	return rc ? lmdb_err(s, err, rc, "cannot write") : 0;
}

static int write_all(struct store *s, MDB_txn *txn, const struct memtable *table, uint64_t applied, bool calm, struct err *err)
{
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(txn, s->rows, &cursor);

	if (rc)
		return lmdb_err(s, err, rc, "cannot write");
	rc = write_table(s, cursor, table, calm, err);
	mdb_cursor_close(cursor);
	if (rc)
		return rc;
	rc = state_put(s, txn, applied);
	return rc ? lmdb_err(s, err, rc, "cannot write") : 0;
}

static int lmdb_commit(void *store, const struct memtable *table, uint64_t applied, bool sync, struct err *err)
{
	struct store *s = store;
	MDB_txn *txn;
	int rc;

	rc = mdb_txn_begin(s->env, NULL, 0, &txn);
	if (rc)
		return lmdb_err(s, err, rc, "cannot begin a commit");
	rc = write_all(s, txn, table, applied, !sync && memtable_rows(table) <= CALM_ROWS, err);
	if (rc) {
		mdb_txn_abort(txn);
		return rc;
	}
	count(s, txn);
	rc = lmdb_flush_commit(txn, memtable_rows(table), lmdb_room_used(s->env) + memtable_bytes(table));
	if (!rc && sync)
		rc = mdb_env_sync(s->env, 1);
	if (rc)
		return lmdb_err(s, err, rc, "cannot commit");
	s->committed_stats.bytes = lmdb_room_used(s->env);
	reserve(s);
	return 0;
}

static void cursor_close(struct lmdb_cursor *c)
{
	list_remove(&c->link);
	mdb_cursor_close(c->cursor);
	mem_free(c);
}

static int lmdb_renew(void *store, const struct memtable *table, struct err *err)
{
	struct store *s = store;
	int rc;

	(void)table;
	while (!list_empty(&s->cursors))
		cursor_close(LIST_ENTRY(s->cursors.next, struct lmdb_cursor, link));
	mdb_txn_reset(s->reader);
	rc = mdb_txn_renew(s->reader);
	if (!rc)
		rc = mdb_cursor_renew(s->reader, s->getter);
	if (rc)
		return lmdb_err(s, err, rc, "cannot renew the reader");
	s->renewal++;
	s->stats = s->committed_stats;
	return 0;
}

/* ---- read ---- */

static int lmdb_get(void *store, struct slice key, struct slice *ret_value, struct err *err)
{
	struct store *s = store;
	struct cached_row *row = &s->cache[crc32c(key.data, key.len) % CACHE_ROWS];
	MDB_val k = val_of(key), v;
	int rc;

	if (row->renewal == s->renewal && slice_compare(row->key, key) == 0) {
		*ret_value = row->value;
		return 0;
	}
	rc = mdb_cursor_get(s->getter, &k, &v, MDB_SET_KEY);
	if (rc == MDB_NOTFOUND)
		return ERR_NOENT;
	if (rc)
		return lmdb_err(s, err, rc, "cannot read");
	rc = open_row(s, key, v, ret_value, err);
	if (!rc)
		*row = (struct cached_row){.renewal = s->renewal, .key = slice_of_val(k), .value = *ret_value};
	return rc;
}

static int move(struct store *s, MDB_cursor *cursor, MDB_cursor_op op, MDB_val *key, MDB_val *value, struct err *err)
{
	int rc = mdb_cursor_get(cursor, key, value, op);

	return rc == MDB_NOTFOUND ? ERR_NOENT : rc ? lmdb_err(s, err, rc, "cannot scan") : 0;
}

static void lmdb_seek_end(void *store, void *cursor)
{
	(void)store;
	if (cursor)
		cursor_close(cursor);
}

static int lmdb_seek(void *store, struct slice from, void **ret_cursor, struct slice *ret_key, struct err *err)
{
	struct store *s = store;
	struct lmdb_cursor at = {.key = val_of(from)}, *c;
	int rc;

	rc = mdb_cursor_open(s->reader, s->rows, &at.cursor);
	if (rc)
		return lmdb_err(s, err, rc, "cannot scan");
	rc = move(s, at.cursor, from.len ? MDB_SET_RANGE : MDB_FIRST, &at.key, &at.value, err);
	if (rc) {
		mdb_cursor_close(at.cursor);
		return rc;
	}
	c = MEM_NEW(struct lmdb_cursor);
	*c = at;
	list_push_back(&s->cursors, &c->link);
	*ret_cursor = c;
	*ret_key = slice_of_val(c->key);
	return 0;
}

static int lmdb_next(void *store, void *cursor, struct slice *ret_key, struct err *err)
{
	struct lmdb_cursor *c = cursor;
	int rc = move(store, c->cursor, MDB_NEXT, &c->key, &c->value, err);

	if (!rc)
		*ret_key = slice_of_val(c->key);
	return rc;
}

static int lmdb_value(void *store, void *cursor, struct slice *ret_value, struct err *err)
{
	const struct lmdb_cursor *c = cursor;

	return open_row(store, slice_of_val(c->key), c->value, ret_value, err);
}

/* ---- snapshots: a reader of their own ---- */

struct lmdb_snapshot {
	MDB_txn *txn, *ahead_txn; /* a transaction is one thread's at a time; the latter may be of a later commit */
	MDB_cursor *cursor, *ahead;
	bool begun, ahead_begun;
	uint64_t rows, given; /* that there are, as LMDB has counted them */
};

static void lmdb_snapshot_close(void *store, void *snapshot)
{
	struct lmdb_snapshot *snap = snapshot;

	(void)store;
	if (snap->cursor)
		mdb_cursor_close(snap->cursor);
	if (snap->ahead)
		mdb_cursor_close(snap->ahead);
	if (snap->ahead_txn)
		mdb_txn_abort(snap->ahead_txn);
	mdb_txn_abort(snap->txn);
	mem_free(snap);
}

/* The applied index comes from the same transaction as the rows: they cannot disagree. */
static int lmdb_snapshot_open(void *store, void **ret_snapshot, uint64_t *ret_applied, struct err *err)
{
	struct store *s = store;
	struct lmdb_snapshot *snap = MEM_NEW(struct lmdb_snapshot);
	MDB_stat stat = {0};
	int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &snap->txn);

	if (rc) {
		mem_free(snap);
		return lmdb_err(s, err, rc, "cannot begin a snapshot");
	}
	rc = mdb_cursor_open(snap->txn, s->rows, &snap->cursor);
	if (!rc)
		rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &snap->ahead_txn);
	if (!rc)
		rc = mdb_cursor_open(snap->ahead_txn, s->rows, &snap->ahead);
	if (!rc)
		rc = mdb_stat(snap->txn, s->rows, &stat);
	rc = rc ? lmdb_err(s, err, rc, "cannot scan") : state_get(s, snap->txn, ret_applied, err);
	snap->rows = stat.ms_entries;
	if (rc) {
		lmdb_snapshot_close(s, snap);
		return rc;
	}
	*ret_snapshot = snap;
	return 0;
}

static int lmdb_snapshot_next(
	void *store, void *snapshot, struct slice *ret_key, struct slice *ret_value, struct err *err)
{
	struct lmdb_snapshot *snap = snapshot;
	const struct store *s = store;
	MDB_val key, value;
	int rc = move(store, snap->cursor, snap->begun ? MDB_NEXT : MDB_FIRST, &key, &value, err);

	snap->begun = true;
	/* A damaged page may hide rows: others are not to be given what is left for all that there was. */
	if (rc == ERR_NOENT && snap->given != snap->rows)
		return err_set(err, ERR_CORRUPT, "%s: is damaged: of %" PRIu64 " rows %" PRIu64 " are found", s->path, snap->rows, snap->given);
	if (rc)
		return rc;
	snap->given++;
	*ret_key = slice_of_val(key);
	return open_row(store, *ret_key, value, ret_value, err);
}

/* A value of several pages comes from the disk with one read, and while others are on their way. */
static void ask_for(MDB_val v)
{
	uintptr_t from = (uintptr_t)v.mv_data & ~(uintptr_t)(AHEAD_STEP_BYTES - 1), to = (uintptr_t)v.mv_data + v.mv_size;

	if (to - from > AHEAD_STEP_BYTES)
		(void)madvise((void *)from, to - from, MADV_WILLNEED); /* a hint: each page is touched later */
}

static void touch(MDB_val v)
{
	for (size_t at = 0; at < v.mv_size; at += AHEAD_STEP_BYTES)
		(void)((const volatile uint8_t *)v.mv_data)[at];
	if (v.mv_size)
		(void)((const volatile uint8_t *)v.mv_data)[v.mv_size - 1];
}

static uint64_t lmdb_snapshot_ahead(void *store, void *snapshot, uint64_t bytes, const atomic_bool *stop)
{
	struct lmdb_snapshot *snap = snapshot;
	MDB_val k, v, values[AHEAD_VALUES] = {{0}};
	uint64_t looked = 0;
	size_t n = 0;

	(void)store;
	while (looked < bytes && !atomic_load_explicit(stop, memory_order_relaxed)) {
		if (mdb_cursor_get(snap->ahead, &k, &v, snap->ahead_begun ? MDB_NEXT : MDB_FIRST))
			break; /* the end; or an error, which who reads will see */
		if (v.mv_size > KV_ROW_CRC_BYTES + LIMIT_VALUE_BYTES)
			break; /* likewise */
		snap->ahead_begun = true;
		touch(values[n % AHEAD_VALUES]);
		values[n++ % AHEAD_VALUES] = v;
		ask_for(v);
		looked += k.mv_size + v.mv_size - KV_ROW_CRC_BYTES; /* a damaged row is shorter, and the reader's end */
	}
	for (size_t i = 0; i < AHEAD_VALUES; i++)
		touch(values[i]);
	return looked;
}

static void lmdb_stats(void *store, struct kv_backend_stats *ret_stats)
{
	*ret_stats = ((struct store *)store)->stats;
}

static bool lmdb_has_room(void *store)
{
	return lmdb_room_is_there(&((struct store *)store)->room);
}

const struct kv_backend kv_lmdb = {
	.name = "lmdb",
	.open = lmdb_open,
	.close = lmdb_close,
	.commit = lmdb_commit,
	.renew = lmdb_renew,
	.get = lmdb_get,
	.seek = lmdb_seek,
	.next = lmdb_next,
	.value = lmdb_value,
	.seek_end = lmdb_seek_end,
	.snapshot_open = lmdb_snapshot_open,
	.snapshot_next = lmdb_snapshot_next,
	.snapshot_close = lmdb_snapshot_close,
	.snapshot_ahead = lmdb_snapshot_ahead,
	.stats = lmdb_stats,
	.has_room = lmdb_has_room,
};
