/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backing store of the simulator: all rows in memory, and a file on the (simulated) disk that shows after a crash
 * what LMDB with MDB_NOMETASYNC could show: the last commit or the one before it.
 *
 * The file "kv-mem": two header slots in the first two 4 KiB blocks, then one record a commit.
 *   slot:   magic, CRC, generation, applied index, end of the records
 *   record: magic, CRC, length, then rows: kind, key length, value length, key, value
 * A commit appends its record, syncs the file (which also makes the slot of the commit before durable), and writes the
 * slot generation % 2 without a sync. At open the newest intact slot tells which records are there. Where both slots
 * are bad, or a record below the end is, the file is damaged: ERR_CORRUPT.
 *
 * The file is rewritten whole when it has grown to several times its rows: new file, sync, rename, sync of the
 * directory.
 *
 * Where rows are derived (kv.h), a commit makes a table of its own, with them in it, which `renew` takes over.
 *
 * Threads: `commit` only reads the rows in memory, `renew` changes them; kv.c never runs the two at once.
 */
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/kv/kv_backend.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	SLOT_MAGIC = 0x534d564b,   /* "KVMS" */
	RECORD_MAGIC = 0x524d564b, /* "KVMR" */
	SLOT_BYTES = 4 + 4 + 8 + 8 + 8,
	RECORD_HEADER_BYTES = 4 + 4 + 8,
	ROW_HEADER_BYTES = 1 + 2 + 4,
	BLOCK_BYTES = 4096,
	RECORDS_AT = 2 * BLOCK_BYTES,
	REWRITE_FLOOR_BYTES = 1 << 20,
	REWRITE_FACTOR = 4,
	FILE_MAX_BYTES = 1 << 30, /* a simulation that needs more is wrong */
	PATH_BYTES = 4096 + 32,
};

struct slot {
	uint64_t generation, applied, end;
};

struct mem_cursor {
	struct list link;
	struct memtable_pos pos;
	struct memtable_row row; /* where it stands */
};

struct store {
	struct io *io;
	char *dir;
	int fd;
	struct slot slot; /* of the last commit */
	uint64_t shown_applied; /* of the rows: a commit is in them after its renewal */
	struct memtable *rows;
	struct kv_derived_rows *derived; /* NULL: nothing is derived */
	struct memtable
		*committed;  /* what the last commit wrote, its derived rows included; NULL: nothing is derived */
	struct list cursors; /* mem_cursor, of this renewal */
	struct kv_backend_stats stats;
	uint64_t spare_bytes; /* of the options */
};

static void store_path(const struct store *s, const char *suffix, char path[PATH_BYTES])
{
	int n = snprintf(path, PATH_BYTES, "%s/kv-mem%s", s->dir, suffix);

	CHECK(n > 0 && n < PATH_BYTES);
}

/* ---- the file ---- */

static void slot_encode(const struct slot *slot, uint8_t out[SLOT_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out, SLOT_BYTES);
	wcursor_u32(&w, SLOT_MAGIC);
	wcursor_u32(&w, 0);
	wcursor_u64(&w, slot->generation);
	wcursor_u64(&w, slot->applied);
	wcursor_u64(&w, slot->end);
	wcursor_init(&w, out + 4, 4);
	wcursor_u32(&w, crc32c(out + 8, SLOT_BYTES - 8));
}

static bool slot_decode(const uint8_t *data, struct slot *ret_slot)
{
	struct rcursor r;
	uint32_t magic, crc;

	rcursor_init(&r, data, SLOT_BYTES);
	magic = rcursor_u32(&r);
	crc = rcursor_u32(&r);
	ret_slot->generation = rcursor_u64(&r);
	ret_slot->applied = rcursor_u64(&r);
	ret_slot->end = rcursor_u64(&r);
	return magic == SLOT_MAGIC && crc == crc32c(data + 8, SLOT_BYTES - 8);
}

static int slot_write(struct store *s, int fd, const struct slot *slot)
{
	uint8_t data[SLOT_BYTES];
	int64_t n;

	slot_encode(slot, data);
	n = io_pwrite(s->io, fd, data, sizeof(data), slot->generation % 2 * BLOCK_BYTES);
	return n < 0 ? (int)n : 0;
}

static void record_begin(struct buf *b)
{
	buf_init(b, FILE_MAX_BYTES);
	buf_extend(b, RECORD_HEADER_BYTES);
}

static void record_row(struct buf *b, const struct memtable_row *row)
{
	struct wcursor w;

	wcursor_init(&w, buf_extend(b, ROW_HEADER_BYTES), ROW_HEADER_BYTES);
	wcursor_u8(&w, row->tombstone);
	wcursor_u16(&w, (uint16_t)row->key.len);
	wcursor_u32(&w, (uint32_t)row->value.len);
	buf_append(b, row->key.data, row->key.len);
	buf_append(b, row->value.data, row->value.len);
}

static void record_end(struct buf *b)
{
	struct wcursor w;

	CHECK(!b->failed);
	wcursor_init(&w, b->data, RECORD_HEADER_BYTES);
	wcursor_u32(&w, RECORD_MAGIC);
	wcursor_u32(&w, 0);
	wcursor_u64(&w, b->len - RECORD_HEADER_BYTES);
	wcursor_init(&w, b->data + 4, 4);
	wcursor_u32(&w, crc32c(b->data + 8, b->len - 8));
}

/* One record's rows, in `rows`. False if it is not intact. */
static bool record_load(struct rcursor *r, struct memtable *rows)
{
	const uint8_t *start = r->data + r->pos;
	uint32_t magic = rcursor_u32(r), crc = rcursor_u32(r), value_len;
	uint64_t len = rcursor_u64(r);
	struct slice body, key, value;
	struct rcursor b;
	uint16_t key_len;
	uint8_t kind;

	if (r->failed || magic != RECORD_MAGIC || len > rcursor_left(r))
		return false;
	body = rcursor_slice(r, len);
	if (crc != crc32c(start + 8, RECORD_HEADER_BYTES - 8 + body.len))
		return false;
	rcursor_init(&b, body.data, body.len);
	while (rcursor_left(&b) > 0) {
		kind = rcursor_u8(&b);
		key_len = rcursor_u16(&b);
		value_len = rcursor_u32(&b);
		key = rcursor_slice(&b, key_len);
		value = rcursor_slice(&b, value_len);
		if (b.failed || kind > 1 || key.len == 0 || key.len > LIMIT_KEY_BYTES || value.len > LIMIT_VALUE_BYTES)
			return false;
		if (kind == 1)
			memtable_del(rows, key);
		else
			memtable_put(rows, key, value);
	}
	return true;
}

static int load(struct store *s, const char *path, struct err *err)
{
	struct slot slots[2];
	bool intact[2];
	struct rcursor r;
	char *text;
	size_t len;
	int rc;

	rc = io_read_file(s->io, path, FILE_MAX_BYTES, &text, &len);
	if (rc)
		return err_set(err, rc, "%s: cannot read: %s", path, err_text(rc));
	for (int i = 0; i < 2; i++)
		intact[i] = len >= RECORDS_AT && slot_decode((uint8_t *)text + i * BLOCK_BYTES, &slots[i]) &&
			slots[i].end >= RECORDS_AT && slots[i].end <= len;
	if (!intact[0] && !intact[1]) {
		rc = err_set(err, ERR_CORRUPT, "%s: neither header is intact", path);
		goto out;
	}
	s->slot = !intact[1] || (intact[0] && slots[0].generation > slots[1].generation) ? slots[0] : slots[1];
	rcursor_init(&r, text, s->slot.end);
	(void)rcursor_slice(&r, RECORDS_AT);
	while (rcursor_left(&r) > 0) {
		uint64_t at = r.pos;

		if (!record_load(&r, s->rows)) {
			rc = err_set(err, ERR_CORRUPT, "%s: the record at offset %" PRIu64 " is damaged", path, at);
			goto out;
		}
	}
out:
	mem_free(text);
	return rc;
}

/* A file with this one record, durable under its name or not there. Both slots are written, so that the older is never
 * a stranger's. */
static int write_whole(struct store *s, const struct buf *record, const struct slot *slot, int *ret_fd)
{
	const struct slot twin = {slot->generation - 1, slot->applied, slot->end};
	char from[PATH_BYTES], to[PATH_BYTES];
	int64_t n;
	int fd, rc;

	store_path(s, "-new", from);
	store_path(s, "", to);
	rc = io_open(s->io, from, IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE, 0600, &fd);
	if (rc)
		return rc;
	n = record->len ? io_pwrite(s->io, fd, record->data, record->len, RECORDS_AT)
			: io_pwrite(s->io, fd, "", 1, RECORDS_AT - 1);
	rc = n < 0 ? (int)n : slot_write(s, fd, slot);
	if (!rc)
		rc = slot_write(s, fd, &twin);
	if (!rc)
		rc = io_fdatasync(s->io, fd);
	if (!rc)
		rc = io_rename(s->io, from, to);
	if (!rc)
		rc = io_sync_dir(s->io, s->dir);
	if (rc)
		io_close(s->io, fd);
	else
		*ret_fd = fd;
	return rc;
}

/* ---- open and close ---- */

static void end_cursors(struct store *s)
{
	struct list *node;

	while ((node = list_pop_front(&s->cursors)))
		mem_free(LIST_ENTRY(node, struct mem_cursor, link));
}

static void mem_close(void *store)
{
	struct store *s = store;

	end_cursors(s);
	if (s->fd >= 0)
		io_close(s->io, s->fd);
	memtable_free(s->rows);
	memtable_free(s->committed);
	kv_derived_free(s->derived);
	mem_free(s->dir);
	mem_free(s);
}

static bool mem_has_room(void *store)
{
	const struct store *s = store;
	uint64_t total, left;

	return io_disk_space(s->io, s->dir, &total, &left) != 0 || left >= s->spare_bytes;
}

static void count(struct store *s)
{

	s->stats.bytes = s->slot.end;
	s->stats.room = (struct kv_room){.left_bytes = UINT64_MAX};
	s->stats.rows = memtable_rows(s->rows) - memtable_tombstones(s->rows);
	s->stats.full = s->spare_bytes && !mem_has_room(s);
}

static int mem_open(
	struct io *io, const struct kv_options *options, void **ret_store, uint64_t *ret_applied, struct err *err)
{
	struct store *s = MEM_NEW(struct store);
	struct buf empty = {0};
	char path[PATH_BYTES];
	int rc;

	s->io = io;
	s->dir = mem_strdup(options->dir);
	s->spare_bytes = options->spare_bytes;
	s->fd = -1;
	list_init(&s->cursors);
	s->rows = memtable_new();
	s->derived = kv_derived_new(options->derived);
	s->committed = s->derived ? memtable_new() : NULL;
	s->slot = (struct slot){.generation = 1, .applied = 0, .end = RECORDS_AT};
	store_path(s, "", path);
	rc = io_open(io, path, IO_OPEN_WRITE, 0, &s->fd);
	if (rc == ERR_NOENT) {
		rc = write_whole(s, &empty, &s->slot, &s->fd);
		if (rc)
			err_set(err, rc, "%s: cannot create: %s", path, err_text(rc));
	} else if (rc) {
		err_set(err, rc, "%s: cannot open: %s", path, err_text(rc));
	} else {
		rc = io_sync_dir(io, s->dir); /* its rename may be seen, and not durable yet */
		if (rc)
			err_set(err, rc, "%s: cannot sync: %s", s->dir, err_text(rc));
		else
			rc = load(s, path, err);
	}
	if (rc) {
		mem_close(s);
		return rc;
	}
	count(s);
	*ret_store = s;
	*ret_applied = s->shown_applied = s->slot.applied;
	return 0;
}

/* ---- commit ---- */

/* All rows as they are after `table`: the two merged, tombstones gone. */
static void merge_record(const struct store *s, const struct memtable *table, struct buf *b)
{
	struct memtable_pos old_pos, new_pos;
	struct memtable_row old_row, new_row;
	bool has_old, has_new;
	int c;

	record_begin(b);
	memtable_seek(s->rows, &old_pos, slice_of(NULL, 0));
	memtable_seek(table, &new_pos, slice_of(NULL, 0));
	for (;;) {
		has_old = memtable_at(&old_pos, &old_row);
		has_new = memtable_at(&new_pos, &new_row);
		if (!has_old && !has_new)
			break;
		c = !has_old ? 1 : !has_new ? -1 : slice_compare(old_row.key, new_row.key);
		if (c < 0 && !old_row.tombstone)
			record_row(b, &old_row);
		if (c >= 0 && !new_row.tombstone)
			record_row(b, &new_row);
		if (c <= 0)
			memtable_next(&old_pos);
		if (c >= 0)
			memtable_next(&new_pos);
	}
	record_end(b);
}

static void table_record(const struct memtable *table, struct buf *b)
{
	struct memtable_pos pos;
	struct memtable_row row;

	record_begin(b);
	for (memtable_seek(table, &pos, slice_of(NULL, 0)); memtable_at(&pos, &row); memtable_next(&pos))
		record_row(b, &row);
	record_end(b);
}

static int commit_append(struct store *s, const struct memtable *table, struct slot *next, bool sync)
{
	struct buf record;
	int64_t n;
	int rc;

	table_record(table, &record);
	n = io_pwrite(s->io, s->fd, record.data, record.len, s->slot.end);
	next->end = s->slot.end + record.len;
	buf_fini(&record);
	rc = n < 0 ? (int)n : io_fdatasync(s->io, s->fd);
	if (!rc)
		rc = slot_write(s, s->fd, next);
	if (!rc && sync)
		rc = io_fdatasync(s->io, s->fd);
	return rc;
}

static int commit_rewrite(struct store *s, const struct memtable *table, struct slot *next)
{
	struct buf record;
	int fd, rc;

	merge_record(s, table, &record);
	next->end = RECORDS_AT + record.len;
	rc = write_whole(s, &record, next, &fd);
	buf_fini(&record);
	if (rc)
		return rc;
	io_close(s->io, s->fd);
	s->fd = fd;
	return 0;
}

static void copy_row(struct memtable *to, const struct memtable_row *row)
{
	if (row->tombstone)
		memtable_del(to, row->key);
	else
		memtable_put(to, row->key, row->value);
}

static void copy_derived(struct store *s)
{
	const struct memtable_row *row;

	while ((row = kv_derived_next(s->derived)))
		copy_row(s->committed, row);
}

/* The table's rows and what they make of the derived ones, in s->committed. */
static int derive_all(struct store *s, const struct memtable *table, struct err *err)
{
	struct memtable_pos pos;
	struct memtable_row row;
	struct slice was;
	int rc = 0;

	memtable_clear(s->committed);
	for (memtable_seek(table, &pos, slice_of(NULL, 0)); !rc && memtable_at(&pos, &row); memtable_next(&pos)) {
		copy_row(s->committed, &row);
		if (kv_derives(s->derived, row.key))
			rc = kv_derive(s->derived, &row,
				memtable_get(s->rows, row.key, &was) == MEMTABLE_VALUE ? &was : NULL, err);
		if (kv_derived_full(s->derived))
			copy_derived(s);
	}
	copy_derived(s);
	return rc;
}

static int mem_commit(void *store, const struct memtable *table, uint64_t applied, bool sync, struct err *err)
{
	struct store *s = store;
	struct slot next = {s->slot.generation + 1, applied, 0};
	int rc;

	if (s->derived) {
		rc = derive_all(s, table, err);
		if (rc)
			return rc;
		table = s->committed;
	}
	if (s->slot.end > REWRITE_FLOOR_BYTES + REWRITE_FACTOR * memtable_row_bytes(s->rows))
		rc = commit_rewrite(s, table, &next);
	else
		rc = commit_append(s, table, &next, sync);
	if (rc)
		return err_set(
			err, rc, "%s/kv-mem: commit of index %" PRIu64 " failed: %s", s->dir, applied, err_text(rc));
	s->slot = next;
	return 0;
}

/* Without tombstones and what overwritten values left behind. */
static void compact_rows(struct store *s)
{
	struct memtable *fresh = memtable_new();
	struct memtable_pos pos;
	struct memtable_row row;

	for (memtable_seek(s->rows, &pos, slice_of(NULL, 0)); memtable_at(&pos, &row); memtable_next(&pos))
		if (!row.tombstone)
			memtable_put(fresh, row.key, row.value);
	memtable_free(s->rows);
	s->rows = fresh;
}

static int mem_renew(void *store, const struct memtable *table, struct err *err)
{
	struct store *s = store;
	struct memtable_pos pos;
	struct memtable_row row;

	(void)err;
	end_cursors(s);
	s->shown_applied = s->slot.applied;
	if (s->derived)
		table = s->committed;
	for (memtable_seek(table, &pos, slice_of(NULL, 0)); memtable_at(&pos, &row); memtable_next(&pos))
		copy_row(s->rows, &row);
	if (memtable_tombstones(s->rows) > memtable_rows(s->rows) / 2 ||
		memtable_bytes(s->rows) > REWRITE_FLOOR_BYTES + REWRITE_FACTOR * memtable_row_bytes(s->rows))
		compact_rows(s);
	count(s);
	return 0;
}

/* ---- read ---- */

static int mem_get(void *store, struct slice key, struct slice *ret_value, struct err *err)
{
	struct store *s = store;

	(void)err;
	return memtable_get(s->rows, key, ret_value) == MEMTABLE_VALUE ? 0 : ERR_NOENT;
}

static int at_row(struct memtable_pos *pos, struct memtable_row *ret_row)
{
	for (; memtable_at(pos, ret_row); memtable_next(pos))
		if (!ret_row->tombstone)
			return 0;
	return ERR_NOENT;
}

static void mem_seek_end(void *store, void *cursor)
{
	struct mem_cursor *c = cursor;

	(void)store;
	if (!c)
		return;
	list_remove(&c->link);
	mem_free(c);
}

static int mem_seek(void *store, struct slice from, void **ret_cursor, struct slice *ret_key, struct err *err)
{
	struct store *s = store;
	struct mem_cursor at = {0}, *c;
	int rc;

	(void)err;
	memtable_seek(s->rows, &at.pos, from);
	rc = at_row(&at.pos, &at.row);
	if (rc)
		return rc;
	c = MEM_NEW(struct mem_cursor);
	*c = at;
	*ret_key = c->row.key;
	list_push_back(&s->cursors, &c->link);
	*ret_cursor = c;
	return 0;
}

static int mem_next(void *store, void *cursor, struct slice *ret_key, struct err *err)
{
	struct mem_cursor *c = cursor;

	(void)store;
	(void)err;
	memtable_next(&c->pos);
	if (at_row(&c->pos, &c->row))
		return ERR_NOENT;
	*ret_key = c->row.key;
	return 0;
}

static int mem_value(void *store, void *cursor, struct slice *ret_value, struct err *err)
{
	const struct mem_cursor *c = cursor;

	(void)store;
	(void)err;
	*ret_value = c->row.value;
	return 0;
}

/* ---- snapshots: a copy ---- */

struct mem_snapshot {
	struct memtable *rows;
	struct memtable_pos pos;
};

static int mem_snapshot_open(void *store, void **ret_snapshot, uint64_t *ret_applied, struct err *err)
{
	struct store *s = store;
	struct mem_snapshot *snap = MEM_NEW(struct mem_snapshot);
	struct memtable_pos pos;
	struct memtable_row row;

	(void)err;
	snap->rows = memtable_new();
	for (memtable_seek(s->rows, &pos, slice_of(NULL, 0)); memtable_at(&pos, &row); memtable_next(&pos))
		if (!row.tombstone)
			memtable_put(snap->rows, row.key, row.value);
	memtable_seek(snap->rows, &snap->pos, slice_of(NULL, 0));
	*ret_snapshot = snap;
	*ret_applied = s->shown_applied;
	return 0;
}

static int mem_snapshot_next(
	void *store, void *snapshot, struct slice *ret_key, struct slice *ret_value, struct err *err)
{
	struct mem_snapshot *snap = snapshot;
	struct memtable_row row;

	(void)store, (void)err;
	if (at_row(&snap->pos, &row))
		return ERR_NOENT;
	*ret_key = row.key;
	*ret_value = row.value;
	memtable_next(&snap->pos);
	return 0;
}

static void mem_snapshot_close(void *store, void *snapshot)
{
	struct mem_snapshot *snap = snapshot;

	(void)store;
	memtable_free(snap->rows);
	mem_free(snap);
}

static void mem_stats(void *store, struct kv_backend_stats *ret_stats)
{
	*ret_stats = ((struct store *)store)->stats;
}

const struct kv_backend kv_mem = {
	.name = "mem",
	.open = mem_open,
	.close = mem_close,
	.commit = mem_commit,
	.renew = mem_renew,
	.get = mem_get,
	.seek = mem_seek,
	.next = mem_next,
	.value = mem_value,
	.seek_end = mem_seek_end,
	.snapshot_open = mem_snapshot_open,
	.snapshot_next = mem_snapshot_next,
	.snapshot_close = mem_snapshot_close,
	.stats = mem_stats,
	.has_room = mem_has_room,
};
