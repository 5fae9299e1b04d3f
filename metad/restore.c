/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   read all of the backup, checking --> `restoring` --> rows into the table, in commits that all carry the backup's applied index
 *     --> a log that begins behind that index, with one entry: RESTORED (state/restore.c says what it changes) --> `restoring` goes
 *
 * The next start opens the table and applies that entry, as after any crash. Of a group the table has the group's row, too, and so holds one entry more,
 * the configuration of this replica alone: RESTORED is durable on all of it, so whoever leads next, it alone, applies it.
 */
#include "metad/restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/code/backup.h"
#include "common/kv/kv_backend.h"
#include "common/kv/wal.h"
#include "metad/replica/body.h"
#include "metad/replica/founding.h"
#include "metad/replica/table.h"
#include "metad/state/state.h"

enum { PATH_ROOM = 4096 + 64, COMMIT_BYTES = 16 << 20, ENTRY_BYTES = 256 };

struct restore {
	struct io *io;
	struct restore_options o;
	char *dir;
	int fd;
	uint64_t offset; /* in the backup */
	uint8_t *buf;    /* BACKUP_SECTION_BYTES */
	struct backup_check check;
	struct state_meta meta; /* of the backup, as is this: */
	struct state_restore restored;
	struct founding founding; /* of a group */
	uint64_t applied;         /* that the table holds */
	void *store; /* of the backend */
	struct memtable *table;
	struct wal *wal;
	struct wal_append append;
	uint8_t entry[ENTRY_BYTES];
	struct err err;
	struct io_post post;
	int code;
};

static void make_path(const struct restore *r, const char *name, char path[PATH_ROOM])
{
	snprintf(path, PATH_ROOM, "%s/%s", r->dir, name);
}

static void finish(struct restore *r)
{
	struct restore_options o = r->o;
	char text[ERR_TEXT_BYTES];
	int code = r->code;

	if (code < 0)
		snprintf(text, sizeof(text), "%s", r->err.text);
	else if (o.replica)
		snprintf(text, sizeof(text),
			"restored %" PRIu64 " rows as of index %" PRIu64 " into %.200s, which is replica %" PRIu64
			" of a new group: start it as that, then give it company; the next metad has number %" PRIu64 " (`--join`, `craton meta add`)",
			r->check.rows, r->check.header.applied_index, r->dir, o.replica, r->founding.last_id + 1);
	else
		snprintf(text, sizeof(text), "restored %" PRIu64 " rows as of index %" PRIu64 " into %.400s", r->check.rows,
			r->check.header.applied_index, r->dir);
	if (r->fd >= 0)
		io_close(r->io, r->fd);
	memtable_free(r->table);
	mem_free(r->buf);
	mem_free(r->dir);
	mem_free(r);
	o.done(o.ctx, code, text);
}

/* ---- reading ---- */

static int read_part(struct restore *r, size_t at, size_t len)
{
	int64_t n = io_pread(r->io, r->fd, r->buf + at, len, r->offset + at);

	if (n < 0)
		return err_set(&r->err, (int)n, "cannot read %s: %s", r->o.file, err_text((int)n));
	if ((size_t)n < len)
		return err_set(&r->err, ERR_CORRUPT, "%s ends too early, at byte %" PRIu64 ": it was cut", r->o.file,
			r->offset + at + (uint64_t)n);
	return 0;
}

/* From the first byte to the last. The file is read anew each time: what was checked once may have changed. */
static int read_backup(struct restore *r, int (*each)(void *ctx, struct slice key, struct slice value))
{
	uint8_t beyond;
	size_t bytes;
	int rc;

	r->offset = 0;
	rc = read_part(r, 0, BACKUP_HEADER_BYTES);
	if (rc == 0)
		rc = backup_check_header(&r->check, slice_of(r->buf, BACKUP_HEADER_BYTES), &r->err);
	r->offset = BACKUP_HEADER_BYTES;
	while (rc == 0 && !r->check.ended) {
		rc = read_part(r, 0, BACKUP_SECTION_HEAD_BYTES);
		if (rc == 0 && backup_section_size(r->buf, &bytes) < 0)
			rc = err_set(&r->err, ERR_CORRUPT, "%s is damaged at byte %" PRIu64, r->o.file, r->offset);
		if (rc == 0)
			rc = read_part(r, BACKUP_SECTION_HEAD_BYTES, bytes - BACKUP_SECTION_HEAD_BYTES);
		if (rc == 0)
			rc = backup_check_section(&r->check, slice_of(r->buf, bytes), each, r, &r->err);
		r->offset += bytes;
	}
	if (rc == 0 && io_pread(r->io, r->fd, &beyond, 1, r->offset) != 0)
		rc = err_set(&r->err, ERR_CORRUPT, "%s goes on behind its end", r->o.file);
	return rc;
}

/* What it takes to know whether the numbers reach for one restore more. */
static int look_at_row(void *ctx, struct slice key, struct slice value)
{
	struct restore *r = ctx;
	int rc = 0;

	if (key.len == 1 && key.data[0] == STATE_TABLE_META)
		rc = state_meta_decode(value, &r->meta);
	else if (key.len == 1 && key.data[0] == STATE_TABLE_RESTORE)
		rc = state_restore_decode(value, &r->restored);
	return rc < 0 ? err_set(&r->err, rc, "a row of %s cannot be decoded: use a newer binary", r->o.file) : 0;
}

static int check_numbers(struct restore *r)
{
	if (r->meta.version > STATE_CLUSTER_VERSION)
		return err_set(&r->err, ERR_VERSION, "%s is of cluster version %u, this binary speaks %u: use a newer binary",
			r->o.file, r->meta.version, STATE_CLUSTER_VERSION);
	if (r->o.restores > r->restored.count + RESTORE_PLAUSIBLE && !r->o.force)
		return err_set(&r->err, ERR_RANGE,
			"%s is of a cluster that was restored %u times, and --restores %u says that its disks have seen %u more: that "
			"many are used up for good, of %d; compare it with what metad's log says, and add --force if it is meant",
			r->o.file, r->restored.count, r->o.restores, r->o.restores - r->restored.count, STATE_RESTORES);
	if (state_restore_possible(&r->meta, &r->restored, r->o.restores))
		return 0;
	return err_set(&r->err, ERR_RANGE,
		"a cluster is restored %d times at most: %s is of one that was restored %u times, its disks of %u",
		STATE_RESTORES, r->o.file, r->restored.count, r->o.restores);
}

static int check_cluster(struct restore *r)
{
	char ours[UUID_TEXT_BYTES], theirs[UUID_TEXT_BYTES];

	if (uuid_equal(&r->check.header.cluster, &r->o.cluster))
		return 0;
	uuid_format(&r->o.cluster, ours);
	uuid_format(&r->check.header.cluster, theirs);
	return err_set(&r->err, ERR_WRONG_CLUSTER,
		"%s is a backup of cluster %s, the configuration says %s: use the right one of both", r->o.file, theirs, ours);
}

/* ---- writing ---- */

static int count_name(void *ctx, const char *name)
{
	(void)name;
	++*(int *)ctx;
	return 0;
}

/* Other files (an address, a log of the daemon) may lie there; metadata may not. */
static int check_empty(struct restore *r)
{
	static const char *const parts[] = {"log", "kv", "table-0", "table-1"};
	static const char *const notes[] = {"founding", "differs"}; /* what they say is of the metadata that were here */
	char path[PATH_ROOM];
	int files = 0, fd, rc = restore_check_dir(r->io, r->dir, &r->err);

	for (size_t i = 0; i < ARRAY_COUNT(parts) && rc == 0; i++) {
		make_path(r, parts[i], path);
		rc = io_list_dir(r->io, path, count_name, &files);
		rc = rc == ERR_NOENT ? 0 : rc;
		if (rc < 0)
			err_set(&r->err, rc, "cannot read %s: %s", path, err_text(rc));
		else if (files)
			rc = err_set(&r->err, ERR_NOTEMPTY,
				"%s holds metadata already: move it away first; a restore never replaces anything", r->dir);
	}
	for (size_t i = 0; i < ARRAY_COUNT(notes) && rc == 0; i++) {
		make_path(r, notes[i], path);
		rc = io_open(r->io, path, 0, 0, &fd);
		if (rc == 0) {
			io_close(r->io, fd);
			rc = err_set(&r->err, ERR_NOTEMPTY, "%s is left of other metadata: move it away first, with the rest of its directory", path);
		} else {
			rc = rc == ERR_NOENT ? 0 : err_set(&r->err, rc, "cannot read %s: %s", path, err_text(rc));
		}
	}
	return rc;
}

static const char *table_name(const struct restore *r)
{
	return r->o.replica ? "table-0" : "kv";
}

static int make_dirs(struct restore *r)
{
	const char *const parts[] = {"log", table_name(r)};
	char path[PATH_ROOM];
	int rc;

	make_path(r, "restoring", path);
	rc = io_write_file(r->io, path, "", 0, 0600);
	for (size_t i = 0; i < ARRAY_COUNT(parts) && rc == 0; i++) {
		make_path(r, parts[i], path);
		rc = io_mkdir(r->io, path, 0700);
		rc = rc == ERR_EXIST ? 0 : rc;
	}
	if (rc == 0)
		rc = io_sync_dir(r->io, r->dir);
	return rc < 0 ? err_set(&r->err, rc, "cannot write in %s: %s", r->dir, err_text(rc)) : 0;
}

static int commit(struct restore *r, bool sync)
{
	int rc = r->o.backend->commit(r->store, r->table, r->applied, sync, &r->err);

	if (rc == 0)
		rc = r->o.backend->renew(r->store, r->table, &r->err);
	memtable_clear(r->table);
	return rc;
}

static int put_row(void *ctx, struct slice key, struct slice value)
{
	struct restore *r = ctx;

	memtable_put(r->table, key, value);
	return memtable_bytes(r->table) >= COMMIT_BYTES ? commit(r, false) : 0;
}

static void begin_group(struct restore *r)
{
	r->founding = (struct founding){.cluster = r->o.cluster,
		.replica = r->o.replica,
		.index = ++r->applied,
		.last_id = founding_last_id(state_restore_next(&r->restored, r->o.restores)),
		.dir = r->dir,
		.backend = r->o.backend,
		.log_segment_bytes = r->o.log_segment_bytes};
}

static int write_rows(struct restore *r)
{
	uint64_t applied;
	char path[PATH_ROOM];
	int rc;

	r->applied = r->check.header.applied_index;
	if (r->o.replica)
		begin_group(r);
	make_path(r, table_name(r), path);
	rc = r->o.backend->open(r->io, &(struct kv_options){.dir = path, .backend = r->o.backend}, &r->store, &applied, &r->err);
	if (rc < 0)
		return rc;
	rc = read_backup(r, put_row);
	if (rc == 0 && r->o.replica)
		founding_put_row(&r->founding, r->table);
	if (rc == 0)
		rc = commit(r, true);
	r->o.backend->close(r->store);
	return rc == 0 && r->o.replica ? table_mark(r->io, r->dir, 0, r->applied, &r->err) : rc;
}

/* ---- the log ---- */

static void on_post(struct io_post *post)
{
	finish(CONTAINER_OF(post, struct restore, post));
}

static void on_log_closed(void *ctx, int code)
{
	struct restore *r = ctx;
	char path[PATH_ROOM];

	if (r->code == 0 && code < 0)
		r->code = err_set(&r->err, code, "the log could not be written: %s", err_text(code));
	if (r->code == 0) {
		make_path(r, "restoring", path);
		r->code = io_unlink(r->io, path);
		if (r->code == 0)
			r->code = io_sync_dir(r->io, r->dir);
		if (r->code < 0)
			err_set(&r->err, r->code, "cannot remove %s: %s", path, err_text(r->code));
	}
	finish(r);
}

static void on_appended(struct wal_append *append, int code)
{
	struct restore *r = CONTAINER_OF(append, struct restore, append);

	if (code < 0)
		r->code = err_set(&r->err, code, "the log could not be written: %s", err_text(code));
	wal_close(r->wal, on_log_closed, r);
}

static void on_log_fatal(void *ctx, int code, const char *text)
{
	(void)ctx, (void)code, (void)text; /* the append hears of it */
}

static int no_entry(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	(void)ctx, (void)index, (void)data;
	return err_set(err, ERR_CORRUPT, "a new log has an entry");
}

static bool is_buffered(struct restore *r)
{
	char path[PATH_ROOM];
	int fd, rc;

	make_path(r, "restoring", path);
	rc = io_open(r->io, path, IO_OPEN_WRITE | IO_OPEN_DIRECT, 0, &fd);
	if (rc == 0)
		io_close(r->io, fd);
	return rc == ERR_INVAL || rc == ERR_OPNOTSUPP;
}

static size_t make_entry(struct restore *r)
{
	struct state_entry header = {
		.cluster_version = r->meta.version, .time_ms = r->check.header.state_ms, .count = 2};
	struct state_cmd *cmd = MEM_NEW(struct state_cmd);
	struct wcursor w;

	r->entry[0] = BODY_COMMANDS; /* of a group */
	wcursor_init(&w, r->entry + 1, sizeof(r->entry) - 1);
	wcursor_zeros(&w, STATE_ENTRY_HEADER_BYTES);
	cmd->type = STATE_CMD_RAISE; /* the backup may be of an older build */
	cmd->raise.version = STATE_CLUSTER_VERSION;
	state_cmd_encode(cmd, &w);
	cmd->type = STATE_CMD_RESTORED;
	io_random(r->io, cmd->restored.salt, sizeof(cmd->restored.salt));
	cmd->restored.seen = r->o.restores;
	state_cmd_encode(cmd, &w);
	CHECK(!w.failed);
	state_entry_encode(&header, r->entry + 1);
	mem_free(cmd);
	return w.len;
}

static int open_log(struct restore *r)
{
	char path[PATH_ROOM];

	r->founding.buffered = is_buffered(r);
	if (r->o.replica)
		return founding_open_log(r->io, &r->founding, on_log_fatal, r, &r->wal, &r->err);
	make_path(r, "log", path);
	return wal_open(r->io,
		&(struct wal_options){.dir = path,
			.segment_bytes = r->o.log_segment_bytes,
			.first_index = r->applied + 1,
			.buffered = r->founding.buffered,
			.on_fatal = on_log_fatal,
			.ctx = r},
		r->applied + 1, no_entry, r, &r->wal, &r->err);
}

static int begin_log(struct restore *r)
{
	int rc = open_log(r);
	size_t len;

	if (rc < 0)
		return rc;
	len = make_entry(r);
	r->append.data = r->o.replica ? slice_of(r->entry, 1 + len) : slice_of(r->entry + 1, len);
	r->append.term = FOUNDING_TERM;
	r->append.done = on_appended;
	wal_submit(r->wal, &r->append);
	return 0;
}

void restore_start(struct io *io, const struct restore_options *options)
{
	struct restore *r = MEM_NEW(struct restore);

	r->io = io;
	r->o = *options;
	r->dir = mem_strdup(options->dir);
	r->buf = mem_alloc(BACKUP_SECTION_BYTES);
	r->table = memtable_new();
	r->code = io_open(io, options->file, 0, 0, &r->fd);
	if (r->code < 0) {
		r->fd = -1;
		err_set(&r->err, r->code, "cannot open the backup %s: %s", options->file, err_text(r->code));
	}
	if (r->code == 0)
		r->code = read_backup(r, look_at_row);
	if (r->code == 0)
		r->code = check_cluster(r);
	if (r->code == 0)
		r->code = check_numbers(r);
	if (r->code == 0)
		r->code = check_empty(r);
	if (r->code == 0)
		r->code = make_dirs(r);
	if (r->code == 0)
		r->code = write_rows(r);
	if (r->code == 0)
		r->code = begin_log(r);
	if (r->code < 0) {
		r->post.run = on_post;
		io_post(io, &r->post);
	}
}

int restore_check_dir(struct io *io, const char *dir, struct err *err)
{
	char path[PATH_ROOM];
	int fd, rc;

	snprintf(path, sizeof(path), "%s/restoring", dir);
	rc = io_open(io, path, 0, 0, &fd);
	if (rc == ERR_NOENT)
		return 0;
	if (rc < 0)
		return err_set(err, rc, "cannot look for %s: %s", path, err_text(rc));
	io_close(io, fd);
	return err_set(err, ERR_INCOMPLETE, "%s was left half made by a restore: empty it and restore again", dir);
}
