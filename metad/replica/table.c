/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/replica/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "metad/replica/body.h"

enum { MARK_MAGIC = 0x4d535243 /* "CRSM" */, MARK_VERSION = 1 };

struct table {
	struct io *io;
	struct kv *kv;
	uint32_t slot;
	uint64_t applied;
	struct raft_config config;
	void (*closed)(void *ctx, int code);
	void *closed_ctx;
};

/* ---- directories and their files ---- */

void table_path(const char *dir, uint32_t slot, const char *name, char path[TABLE_PATH_BYTES])
{
	int n = snprintf(path, TABLE_PATH_BYTES, "%s/table-%" PRIu32 "%s%s", dir, slot, *name ? "/" : "", name);

	CHECK(n > 0 && n < TABLE_PATH_BYTES);
}

void table_mark_encode(uint64_t snapshot, uint8_t out[TABLE_MARK_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out, TABLE_MARK_BYTES);
	wcursor_u32(&w, MARK_MAGIC);
	wcursor_u32(&w, MARK_VERSION);
	wcursor_u64(&w, snapshot);
	wcursor_u32(&w, crc32c(out, w.len));
	CHECK(!w.failed && w.len == TABLE_MARK_BYTES);
}

int table_mark(struct io *io, const char *dir, uint32_t slot, uint64_t snapshot, struct err *err)
{
	char path[TABLE_PATH_BYTES];
	uint8_t bytes[TABLE_MARK_BYTES];
	int rc;

	table_mark_encode(snapshot, bytes);
	table_path(dir, slot, "snapshot", path);
	rc = io_write_file(io, path, bytes, sizeof(bytes), 0600);
	return rc ? err_set(err, rc, "%s: cannot write: %s", path, err_text(rc)) : 0;
}

int table_mark_decode(const char *path, struct slice data, uint64_t *ret_snapshot, struct err *err)
{
	uint32_t magic, version, crc;
	uint64_t snapshot;
	struct rcursor r;

	rcursor_init(&r, data.data, data.len);
	magic = rcursor_u32(&r);
	version = rcursor_u32(&r);
	snapshot = rcursor_u64(&r);
	crc = rcursor_u32(&r);
	if (!rcursor_done(&r) || magic != MARK_MAGIC || crc != crc32c(data.data, TABLE_MARK_BYTES - 4))
		return err_set(err, ERR_CORRUPT, "%s: is damaged", path);
	if (version != MARK_VERSION)
		return err_set(err, ERR_VERSION, "%s: has version %" PRIu32 ", this program knows %d", path, version, MARK_VERSION);
	*ret_snapshot = snapshot;
	return 0;
}

/* 0: there is none. */
static int mark_read(struct io *io, const char *dir, uint32_t slot, uint64_t *ret_snapshot, struct err *err)
{
	char path[TABLE_PATH_BYTES], *bytes;
	size_t len;
	int rc;

	*ret_snapshot = 0;
	table_path(dir, slot, "snapshot", path);
	rc = io_read_file(io, path, TABLE_MARK_BYTES, &bytes, &len);
	if (rc == ERR_NOENT)
		return 0;
	if (rc)
		return err_set(err, rc == ERR_FBIG ? ERR_CORRUPT : rc, "%s: cannot read: %s", path, err_text(rc));
	rc = table_mark_decode(path, slice_of(bytes, len), ret_snapshot, err);
	mem_free(bytes);
	return rc;
}

struct clearing {
	struct io *io;
	const char *dir;
};

static int remove_file(void *ctx, const char *name)
{
	const struct clearing *c = ctx;
	char path[TABLE_PATH_BYTES + 256];
	int n = snprintf(path, sizeof(path), "%s/%s", c->dir, name);

	CHECK(n > 0 && (size_t)n < sizeof(path));
	return io_unlink(c->io, path);
}

int table_remove_files(struct io *io, const char *path, struct err *err)
{
	struct clearing c = {io, path};
	int rc = io_list_dir(io, path, remove_file, &c);

	return rc ? err_set(err, rc, "%s: cannot empty: %s", path, err_text(rc)) : 0;
}

int table_clear(struct io *io, const char *dir, uint32_t slot, struct err *err)
{
	char path[TABLE_PATH_BYTES], mark[TABLE_PATH_BYTES];
	int rc;

	table_path(dir, slot, "", path);
	table_path(dir, slot, "snapshot", mark);
	/* Not synced: a mark counts only if it names the base of the log, and who writes another one syncs the directory behind it. */
	rc = io_unlink(io, mark);
	if (rc && rc != ERR_NOENT)
		return err_set(err, rc, "%s: cannot remove: %s", mark, err_text(rc));
	return table_remove_files(io, path, err);
}

static int make_dirs(struct io *io, const char *dir, struct err *err)
{
	char path[TABLE_PATH_BYTES];
	int rc = 0;

	for (uint32_t slot = 0; slot < TABLE_COUNT && !rc; slot++) {
		table_path(dir, slot, "", path);
		rc = io_mkdir(io, path, 0700);
		rc = rc == ERR_EXIST ? 0 : rc;
	}
	if (!rc)
		rc = io_sync_dir(io, dir);
	return rc ? err_set(err, rc, "%s: cannot make the tables' directories: %s", dir, err_text(rc)) : 0;
}

/* ---- the group's row ---- */

struct slice table_group_key(void)
{
	static const uint8_t key[1] = {0};

	return slice_of(key, sizeof(key));
}

int table_group_decode(struct slice value, struct raft_config *ret_config)
{
	struct rcursor r;
	enum body_kind kind;
	uint64_t index;

	rcursor_init(&r, value.data, value.len);
	index = rcursor_u64(&r);
	if (r.failed || index == 0 || body_decode(slice_of(value.data + 8, value.len - 8), index, &kind, ret_config) != 0 ||
		kind != BODY_CONFIG)
		return ERR_CORRUPT;
	return 0;
}

uint32_t table_group_encode(const struct raft_config *config, uint8_t out[TABLE_GROUP_BYTES_MAX])
{
	struct wcursor w;

	wcursor_init(&w, out, 8);
	wcursor_u64(&w, config->index);
	return 8 + body_encode_config(config, out + 8);
}

void table_applied_entry(struct table *table, uint64_t index, const struct raft_config *config)
{
	CHECK(index == table->applied + 1);
	if (config) {
		uint8_t bytes[TABLE_GROUP_BYTES_MAX];

		CHECK(config->index == index);
		table->config = *config;
		kv_put(table->kv, table_group_key(), slice_of(bytes, table_group_encode(config, bytes)));
	}
	table->applied = index;
	kv_applied(table->kv, index);
}

/* ---- open and close ---- */

static int read_config(struct table *table, struct err *err)
{
	struct slice value;
	int rc = kv_get(table->kv, table_group_key(), &value);

	if (rc == ERR_NOENT && table->applied == 0)
		return 0;
	if (!rc)
		rc = table_group_decode(value, &table->config);
	if (!rc && table->config.index > table->applied)
		rc = ERR_CORRUPT;
	return rc ? err_set(err, rc, "the table does not say who is in the group: %s", err_text(rc)) : 0;
}

/* Which directory holds what came out of this snapshot. A mark that cannot be read matters if no other one says it. */
static int find_slot(struct io *io, const char *dir, uint64_t base, uint32_t *ret_slot, struct err *err)
{
	uint64_t snapshot;
	int bad = 0;

	*ret_slot = 0;
	if (base == 0)
		return 0;
	for (; *ret_slot < TABLE_COUNT; ++*ret_slot) {
		int rc = mark_read(io, dir, *ret_slot, &snapshot, bad ? NULL : err);

		if (rc == 0 && snapshot == base)
			return 0;
		bad = bad ? bad : rc;
	}
	if (bad)
		return bad;
	return err_set(err, ERR_CORRUPT,
		"%s: the log begins behind the snapshot of entry %" PRIu64 ", whose table is missing; nothing was changed", dir, base);
}

int table_open(struct io *io, const struct table_options *options, uint64_t base, struct table **ret_table, struct err *err)
{
	struct kv_options kv_options = options->kv;
	struct table *table;
	char path[TABLE_PATH_BYTES];
	uint32_t slot;
	int rc;

	rc = make_dirs(io, options->dir, err);
	if (!rc)
		rc = find_slot(io, options->dir, base, &slot, err);
	if (!rc)
		rc = table_clear(io, options->dir, 1 - slot, err);
	if (rc)
		return rc;
	table = MEM_NEW(struct table);
	table->io = io;
	table->slot = slot;
	table_path(options->dir, slot, "", path);
	kv_options.dir = path;
	kv_options.on_fatal = options->on_fatal;
	kv_options.ctx = options->ctx;
	rc = kv_open(io, &kv_options, &table->kv, &table->applied, err);
	if (rc) {
		mem_free(table);
		return rc;
	}
	rc = read_config(table, err);
	if (!rc && table->applied < base)
		rc = err_set(err, ERR_CORRUPT, "%s: holds entries up to %" PRIu64 ", and the log begins behind %" PRIu64, path,
			table->applied, base);
	if (rc) {
		table_abandon(table);
		return rc;
	}
	*ret_table = table;
	return 0;
}

static void on_closed(void *ctx, int code)
{
	struct table *table = ctx;
	void (*closed)(void *ctx, int code) = table->closed;
	void *closed_ctx = table->closed_ctx;

	mem_free(table);
	closed(closed_ctx, code);
}

void table_close(struct table *table, void (*closed)(void *ctx, int code), void *ctx)
{
	table->closed = closed;
	table->closed_ctx = ctx;
	kv_close(table->kv, on_closed, table);
}

void table_abandon(struct table *table)
{
	kv_abandon(table->kv);
	mem_free(table);
}

struct kv *table_kv(struct table *table)
{
	return table->kv;
}

uint64_t table_applied(const struct table *table)
{
	return table->applied;
}

const struct raft_config *table_config(const struct table *table)
{
	return &table->config;
}

uint32_t table_slot(const struct table *table)
{
	return table->slot;
}
