/* SPDX-License-Identifier: Apache-2.0 */
/* disk_format: an empty directory becomes a disk. Nothing is written before it is clear that nothing is there. */
#include <stdio.h>
#include <string.h>
#include "chunkd/disk.h"
#include "common/base/check.h"

enum { PATH_ROOM = 4096 + 64, NAME_ROOM = 256 };

struct found {
	char stranger[NAME_ROOM]; /* one of the files that are not ours */
	char left[NAME_ROOM];     /* what a disk that was used has: a part that is not empty, or what a rebuilt index leaves (rebuild.h) */
	bool superblock;
	uint32_t files;
};

/* An attempt that a crash cut short leaves empty directories: `count` looks into them. */
static int note(void *ctx, const char *name)
{
	static const char *const ours[] = {"lock", "lost+found", "segments", "index", "superblock.tmp"};
	struct found *f = ctx;

	if (!strcmp(name, "superblock")) {
		f->superblock = true;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_COUNT(ours); i++)
		if (!strcmp(name, ours[i]))
			return 0;
	if (!strncmp(name, "rebuilt-", 8) || !strncmp(name, "index.", 6))
		snprintf(f->left, sizeof(f->left), "%s", name);
	else
		snprintf(f->stranger, sizeof(f->stranger), "%s", name);
	return 0;
}

static int count(void *ctx, const char *name)
{
	(void)name;
	((struct found *)ctx)->files++;
	return 0;
}

static int refuse_disk(struct io *io, const struct disk_options *o, struct err *err)
{
	struct disk_options look = *o;
	struct format_superblock sb;
	char uuid[UUID_TEXT_BYTES];
	int rc;

	look.no_format = true;
	rc = disk__superblock(io, &look, &sb, err);
	if (rc < 0)
		return rc; /* damaged, in use, or another cluster's: it says so */
	uuid_format(&sb.disk_uuid, uuid);
	return err_set(err, ERR_EXIST, "%s is a disk of this cluster already (%s%s): serve it with --disk %s", o->dir,
		uuid, sb.disk ? "" : ", never registered", o->dir);
}

static int look_into_parts(struct io *io, const char *dir, struct found *f, struct err *err)
{
	static const char *const parts[] = {"segments", "index"};
	char path[PATH_ROOM];

	for (size_t i = 0; i < ARRAY_COUNT(parts) && !f->files; i++) {
		int rc;

		snprintf(path, sizeof(path), "%s/%s", dir, parts[i]);
		rc = io_list_dir(io, path, count, f);
		if (rc < 0 && rc != ERR_NOENT)
			return err_set(err, rc, "cannot read the directory %s: %s", path, err_text(rc));
		if (f->files)
			snprintf(f->left, sizeof(f->left), "%s", parts[i]);
	}
	return 0;
}

int disk__check_unused(struct io *io, const char *dir, bool *ret_is_disk, struct err *err)
{
	struct found f = {0};
	int rc = io_list_dir(io, dir, note, &f);

	*ret_is_disk = f.superblock;
	if (rc < 0)
		return err_set(err, rc, "cannot read the directory %s: %s", dir,
			rc == ERR_NOENT ? "there is none: make it, or mount the disk there" : err_text(rc));
	if (f.superblock)
		return 0;
	rc = look_into_parts(io, dir, &f, err);
	if (rc)
		return rc;
	if (f.left[0])
		return err_set(err, ERR_CORRUPT,
			"%s is a disk that has lost its superblock: it has %s. Restore DIR/superblock, or empty the directory to give its data up",
			dir, f.left);
	if (f.stranger[0])
		return err_set(err, ERR_NOTEMPTY, "%s is no disk of Craton, and not empty, it holds %s: name an empty directory, and for what the server keeps of its own (--dir) another one", dir, f.stranger);
	return 0;
}

int disk_format(struct io *io, const struct disk_options *o, struct format_superblock *ret_sb, struct err *err)
{
	struct disk_options make = *o;
	bool is_disk;
	int rc = disk__check_unused(io, o->dir, &is_disk, err);

	if (rc == 0 && is_disk)
		return refuse_disk(io, o, err);
	make.no_format = false;
	return rc < 0 ? rc : disk__superblock(io, &make, ret_sb, err);
}
