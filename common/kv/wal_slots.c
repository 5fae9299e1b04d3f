/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two slots of a replicated log: one file, "meta", 4 KiB each.
 *
 * Both hold the same, except while a change is made: the first is written and synced, then the other one. So a crash at
 * any moment leaves the old or the new state in an intact slot, and either slot may rot without the state going back:
 * what was reported durable lies in both. Every open makes durable what it finds, of a process that was killed before it
 * could, and only then writes both anew, first the one that was not chosen: at no time are both on their way to the disk.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/kv/wal_private.h"

static void meta_path(const struct wal *wal, char path[WAL_PATH_BYTES])
{
	int n = snprintf(path, WAL_PATH_BYTES, "%s/meta", wal->dir);

	CHECK(n > 0 && n < WAL_PATH_BYTES);
}

int wal__slots_refuse(struct wal *wal, struct err *err)
{
	char path[WAL_PATH_BYTES];
	int fd, rc;

	meta_path(wal, path);
	rc = io_open(wal->io, path, 0, 0, &fd);
	if (rc == ERR_NOENT)
		return 0;
	if (rc)
		return err_set(err, rc, "%s: cannot open: %s", path, err_text(rc));
	io_close(wal->io, fd);
	return err_set(err, ERR_VERSION,
		"%s: the log is one of a group of replicas, whose founding was cut off; nothing was changed", path);
}

/* A log that does not exist yet: no segment, so that nothing in the directory counts. */
static int slots_create(struct wal *wal, const char *path, struct err *err)
{
	const struct wal_replica *replica = &wal->group->replica;
	struct wal_meta meta = {
		.generation = 1,
		.replica = replica->replica,
		.term = replica->base_term,
		.commit = replica->base_index,
		.base_index = replica->base_index,
		.base_term = replica->base_term,
	};
	int rc;

	if (!list_empty(&wal->live))
		return err_set(err, ERR_CORRUPT,
			"%s: there are segments but no slots beside them: they were lost, or the log is not one of a group"
			" of replicas; nothing was changed",
			path);
	memcpy(meta.cluster, replica->cluster, WAL_ID_BYTES);
	for (int i = 0; i < WAL_META_SLOTS; i++)
		wal_meta_encode(&meta, wal->group->meta_buf + i * WAL_META_BYTES);
	rc = io_write_file(wal->io, path, wal->group->meta_buf, WAL_META_SLOTS * WAL_META_BYTES, 0600);
	if (!rc)
		rc = io_open(wal->io, path, wal->open_flags, 0, &wal->group->meta_fd);
	return rc ? err_set(err, rc, "%s: cannot create: %s", path, err_text(rc)) : 0;
}

static int slots_read(struct wal *wal, const char *path, struct err *err)
{
	struct wal_group *g = wal->group;
	struct wal_meta metas[WAL_META_SLOTS];
	int codes[WAL_META_SLOTS];
	uint64_t bytes = 0;
	int64_t n = io_lock(wal->io, g->meta_fd); /* nobody else reads what is being written, or writes between */

	if (n < 0)
		return err_set(err, (int)n, "%s: cannot lock: %s", path, n == ERR_BUSY ? "another process uses it" : err_text((int)n));
	n = io_fdatasync(wal->io, g->meta_fd);
	if (n < 0)
		return err_set(err, (int)n, "%s: cannot sync: %s", path, err_text((int)n));
	n = io_size(wal->io, g->meta_fd, &bytes);
	if (n == 0 && bytes != WAL_META_SLOTS * WAL_META_BYTES)
		return err_set(err, ERR_CORRUPT, "%s: has %" PRIu64 " bytes, not %d: it was cut or is not ours", path,
			bytes, WAL_META_SLOTS * WAL_META_BYTES);
	if (n == 0)
		n = io_pread(wal->io, g->meta_fd, g->meta_buf, bytes, 0);
	if (n != (int64_t)bytes)
		return err_set(err, n < 0 ? (int)n : ERR_IO, "%s: cannot read: %s", path,
			n < 0 ? err_text((int)n) : "the file ends early");
	for (int i = 0; i < WAL_META_SLOTS; i++) {
		codes[i] = wal_meta_decode(g->meta_buf + i * WAL_META_BYTES, &metas[i]);
		if (codes[i] == ERR_VERSION)
			return err_set(err, ERR_VERSION,
				"%s: slot %d is in a format that is not known here: a newer build wrote it", path, i);
	}
	g->meta_slot = wal_meta_choose(metas, codes);
	if (g->meta_slot < 0)
		return err_set(err, ERR_CORRUPT,
			"%s: both slots are damaged: what this replica voted for and where its log begins is lost; nothing was"
			" changed, and it may come back only as a new member with a new id",
			path);
	g->meta = metas[g->meta_slot];
	return 0;
}

int wal__slots_open(struct wal *wal, struct err *err)
{
	struct wal_group *g = wal->group;
	char path[WAL_PATH_BYTES];
	int rc;

	meta_path(wal, path);
	rc = io_open(wal->io, path, wal->open_flags, 0, &g->meta_fd);
	if (rc) {
		g->meta_fd = -1;
		if (rc != ERR_NOENT)
			return err_set(err, rc, "%s: cannot open: %s", path, err_text(rc));
		rc = slots_create(wal, path, err);
		if (rc)
			return rc;
	}
	rc = slots_read(wal, path, err);
	if (rc)
		return rc;
	if (memcmp(g->meta.cluster, g->replica.cluster, WAL_ID_BYTES) != 0 || g->meta.replica != g->replica.replica)
		return err_set(err, ERR_WRONG_CLUSTER,
			"%s: belongs to replica %" PRIu64 " of %s, not to replica %" PRIu64 "; nothing was changed",
			path, g->meta.replica,
			memcmp(g->meta.cluster, g->replica.cluster, WAL_ID_BYTES) ? "another cluster" : "this cluster",
			g->replica.replica);
	return 0;
}

int wal__slots_write(struct wal *wal, const struct wal_meta *meta)
{
	struct wal_group *g = wal->group;
	int64_t n;
	int rc = 0;

	wal_meta_encode(meta, g->meta_buf);
	for (int i = 1; i <= WAL_META_SLOTS && !rc; i++) {
		uint64_t at = (uint64_t)((g->meta_slot + i) % WAL_META_SLOTS) * WAL_META_BYTES;

		n = io_pwrite(wal->io, g->meta_fd, g->meta_buf, WAL_META_BYTES, at);
		rc = n < 0 ? (int)n : io_fdatasync(wal->io, g->meta_fd);
	}
	return rc;
}
