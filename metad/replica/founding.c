/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/replica/founding.h"

#include <inttypes.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "metad/replica/table.h"

enum { NOTE_MAGIC = 0x46535243 /* "CRSF" */, NOTE_VERSION = 1, SLOT = 0 };

uint64_t founding_last_id(uint32_t restores)
{
	return restores ? (uint64_t)restores * FOUNDING_NUMBERS : FOUNDING_REPLICA;
}

/* ---- what it is made of ---- */

void founding_put_row(const struct founding *f, struct memtable *rows)
{
	struct raft_config config = {.index = f->index, .count = 1, .last_id = f->last_id};
	uint8_t bytes[TABLE_GROUP_BYTES_MAX];

	config.members[0] = (struct raft_member){.id = f->replica, .voter = true};
	memtable_put(rows, table_group_key(), slice_of(bytes, table_group_encode(&config, bytes)));
}

static int ignore_entry(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	(void)ctx, (void)index, (void)data, (void)err;
	return 0;
}

int founding_open_log(struct io *io, const struct founding *f, void (*on_fatal)(void *ctx, int code, const char *text), void *ctx,
	struct wal **ret_wal, struct err *err)
{
	struct wal_replica replica = {.replica = f->replica, .base_index = f->index, .base_term = FOUNDING_TERM};
	char *path = mem_printf("%s/log", f->dir);
	const struct wal_options options = {.dir = path,
		.segment_bytes = f->log_segment_bytes,
		.buffered = f->buffered,
		.replica = &replica,
		.on_fatal = on_fatal,
		.ctx = ctx};
	int rc;

	memcpy(replica.cluster, f->cluster.bytes, WAL_ID_BYTES);
	rc = wal_open(io, &options, 1, ignore_entry, NULL, ret_wal, err);
	if (!rc && wal_index_last(wal_index(*ret_wal)) != f->index) {
		rc = err_set(err, ERR_CORRUPT, "%s: goes on behind entry %" PRIu64 ", with which a group was to be founded", path, f->index);
		wal_abandon(*ret_wal);
	}
	mem_free(path);
	return rc;
}

/* ---- the decision ---- */

static char *note_path(const char *dir)
{
	return mem_printf("%s/founding", dir);
}

void founding_encode(const struct founding *f, uint8_t out[FOUNDING_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out, FOUNDING_BYTES);
	wcursor_u32(&w, NOTE_MAGIC);
	wcursor_u32(&w, NOTE_VERSION);
	wcursor_bytes(&w, f->cluster.bytes, sizeof(f->cluster.bytes));
	wcursor_u64(&w, f->replica);
	wcursor_u64(&w, f->index);
	wcursor_u64(&w, f->last_id);
	wcursor_u32(&w, crc32c(out, w.len));
	CHECK(!w.failed && w.len == FOUNDING_BYTES);
}

int founding_decide(struct io *io, const struct founding *f, struct err *err)
{
	char *path = note_path(f->dir);
	uint8_t bytes[FOUNDING_BYTES];
	int rc;

	founding_encode(f, bytes);
	rc = io_write_file(io, path, bytes, sizeof(bytes), 0600);
	if (rc)
		err_set(err, rc, "%s: cannot write: %s", path, err_text(rc));
	mem_free(path);
	return rc;
}

int founding_decode(const char *path, struct slice data, struct founding *ret_founding, struct err *err)
{
	struct founding f = {0};
	uint32_t magic, version, crc;
	struct rcursor r;
	struct slice cluster;

	rcursor_init(&r, data.data, data.len);
	magic = rcursor_u32(&r);
	version = rcursor_u32(&r);
	cluster = rcursor_slice(&r, sizeof(f.cluster.bytes));
	f.replica = rcursor_u64(&r);
	f.index = rcursor_u64(&r);
	f.last_id = rcursor_u64(&r);
	crc = rcursor_u32(&r);
	if (!r.failed && magic == NOTE_MAGIC && version != NOTE_VERSION)
		return err_set(err, ERR_VERSION, "%s: has version %" PRIu32 ", this program knows %d", path, version, NOTE_VERSION);
	if (!rcursor_done(&r) || magic != NOTE_MAGIC || crc != crc32c(data.data, FOUNDING_BYTES - 4))
		return err_set(err, ERR_CORRUPT, "%s: is damaged", path);
	memcpy(f.cluster.bytes, cluster.data, sizeof(f.cluster.bytes));
	*ret_founding = f;
	return 0;
}

int founding_read(struct io *io, const char *dir, struct founding *ret_founding, struct err *err)
{
	char *path = note_path(dir), *bytes;
	size_t len;
	int rc = io_read_file(io, path, FOUNDING_BYTES, &bytes, &len);

	if (!rc) {
		rc = founding_decode(path, slice_of(bytes, len), ret_founding, err);
		mem_free(bytes);
	} else if (rc != ERR_NOENT) {
		rc = err_set(err, rc == ERR_FBIG ? ERR_CORRUPT : rc, "%s: cannot read: %s", path, err_text(rc));
	}
	mem_free(path);
	return rc;
}

/* ---- the rest ---- */

static int sync_dir(struct io *io, const char *path, struct err *err)
{
	int rc = io_sync_dir(io, path);

	return rc ? err_set(err, rc, "%s: cannot sync: %s", path, err_text(rc)) : 0;
}

/*
 * Again, if it was done: that may be seen and not durable. What has gone on since is not touched: it would be of a metad that was started beside
 * this, by mistake.
 */
static int seal_table(struct io *io, const struct founding *f, const char *path, struct err *err)
{
	const struct kv_options options = {.dir = path, .backend = f->backend};
	struct memtable *rows;
	uint64_t applied;
	struct slice row;
	void *store;
	int rc = f->backend->open(io, &options, &store, &applied, err);

	if (rc)
		return rc;
	if (applied + 1 == f->index || (applied == f->index && f->backend->get(store, table_group_key(), &row, err) == 0)) {
		rows = memtable_new();
		founding_put_row(f, rows);
		rc = f->backend->commit(store, rows, f->index, true, err);
		memtable_free(rows);
	} else {
		rc = err_set(err, ERR_CORRUPT, "%s: holds entries up to %" PRIu64 ", and a group was to be founded behind %" PRIu64 "; nothing was changed",
			path, applied, f->index - 1);
	}
	f->backend->close(store);
	return rc;
}

static int never(void *ctx, const char *name)
{
	(void)ctx, (void)name;
	return 0;
}

static int make_table(struct io *io, const struct founding *f, struct err *err)
{
	char *kv = mem_printf("%s/kv", f->dir), table[TABLE_PATH_BYTES];
	int rc = io_list_dir(io, kv, never, NULL);
	bool is_renamed = rc == ERR_NOENT;

	table_path(f->dir, SLOT, "", table);
	rc = rc && !is_renamed ? err_set(err, rc, "%s: cannot read: %s", kv, err_text(rc)) : seal_table(io, f, is_renamed ? table : kv, err);
	if (!rc && !is_renamed) {
		rc = io_rename(io, kv, table);
		rc = rc ? err_set(err, rc, "%s: cannot rename to %s: %s", kv, table, err_text(rc)) : sync_dir(io, f->dir, err);
	}
	if (!rc)
		rc = table_mark(io, f->dir, SLOT, f->index, err);
	mem_free(kv);
	return rc;
}

/* There are slots as soon as what was there before is gone for good. */
static int empty_log(struct io *io, const struct founding *f, struct err *err)
{
	char *path = mem_printf("%s/log", f->dir), *slots = mem_printf("%s/meta", path);
	int fd, rc = io_open(io, slots, 0, 0, &fd);

	if (!rc) {
		io_close(io, fd);
	} else if (rc != ERR_NOENT) {
		err_set(err, rc, "%s: cannot open: %s", slots, err_text(rc));
	} else {
		rc = table_remove_files(io, path, err);
		if (!rc)
			rc = sync_dir(io, path, err);
	}
	mem_free(path);
	mem_free(slots);
	return rc;
}

static void ignore_fatal(void *ctx, int code, const char *text)
{
	(void)ctx, (void)code, (void)text; /* nothing is submitted */
}

static int make_log(struct io *io, const struct founding *f, struct err *err)
{
	struct wal *wal;
	int rc = empty_log(io, f, err);

	if (!rc)
		rc = founding_open_log(io, f, ignore_fatal, NULL, &wal, err);
	if (!rc)
		wal_abandon(wal);
	return rc;
}

static int forget(struct io *io, const struct founding *f, struct err *err)
{
	char *path = note_path(f->dir);
	int rc = io_unlink(io, path);

	rc = rc ? err_set(err, rc, "%s: cannot remove: %s", path, err_text(rc)) : sync_dir(io, f->dir, err);
	mem_free(path);
	return rc;
}

int founding_finish(struct io *io, const struct founding *f, struct err *err)
{
	int rc = sync_dir(io, f->dir, err); /* the life that decided may have ended before that was durable */

	if (!rc)
		rc = make_table(io, f, err);
	if (!rc)
		rc = make_log(io, f, err);
	return rc ? rc : forget(io, f, err);
}
