/* SPDX-License-Identifier: Apache-2.0 */
/* disk_format: an empty directory becomes a disk. Nothing is written before it is clear that nothing is there. */
#include <stdio.h>
#include <string.h>
#include "chunkd/disk.h"
#include "chunkd/rebuild.h"
#include "chunkd/segment.h"
#include "common/base/check.h"

enum { PATH_ROOM = 4096 + 64, NAME_ROOM = 256 + 16 };

struct look {
	char stranger[NAME_ROOM]; /* one of the files that are not ours */
	char left[NAME_ROOM];     /* what a disk that was used has: a part that is not empty, or what a rebuilt index leaves (rebuild.h) */
	const char *part;         /* whose names note_in_part is told */
	struct disk_found *found;
};

/* An attempt that a crash cut short leaves empty directories. */
static int note(void *ctx, const char *name)
{
	static const char *const ours[] = {"lost+found", "segments", "index", "superblock.tmp"};
	struct look *look = ctx;

	if (!strcmp(name, "superblock"))
		look->found->superblock = true;
	else if (!strcmp(name, "lock"))
		look->found->lock = true;
	else if (rebuild_leaves(name))
		snprintf(look->left, sizeof(look->left), "%s", name);
	else {
		for (size_t i = 0; i < ARRAY_COUNT(ours); i++)
			if (!strcmp(name, ours[i]))
				return 0;
		snprintf(look->stranger, sizeof(look->stranger), "%s", name);
	}
	return 0;
}

static int note_in_part(void *ctx, const char *name)
{
	struct look *look = ctx;

	if (!segment_has_name(name) && strcmp(name, "log") && strcmp(name, "kv"))
		snprintf(look->stranger, sizeof(look->stranger), "%s/%.255s", look->part, name);
	else if (!look->left[0])
		snprintf(look->left, sizeof(look->left), "%s", look->part);
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

static int look_into_parts(struct io *io, const char *dir, struct look *look, struct err *err)
{
	static const char *const parts[] = {"segments", "index"};
	char path[PATH_ROOM];

	for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
		int rc;

		look->part = parts[i];
		snprintf(path, sizeof(path), "%s/%s", dir, parts[i]);
		rc = io_list_dir(io, path, note_in_part, look);
		if (rc == ERR_NOTDIR)
			snprintf(look->stranger, sizeof(look->stranger), "%s", parts[i]);
		else if (rc < 0 && rc != ERR_NOENT)
			return err_set(err, rc, "cannot read the directory %s: %s", path, err_text(rc));
	}
	return 0;
}

static int judge(const struct disk_options *o, const struct look *look, struct err *err)
{
	if (look->left[0] && look->stranger[0])
		return err_set(err, ERR_CORRUPT,
			"%s has %s, as a disk that has lost its superblock, and %s, which is none of Craton's: restore DIR/superblock if it is that disk; else name an empty directory",
			o->dir, look->left, look->stranger);
	if (look->left[0])
		return err_set(err, ERR_CORRUPT,
			"%s is a disk that has lost its superblock: it has %s. Restore DIR/superblock, or empty the directory to give its data up",
			o->dir, look->left);
	if (look->stranger[0] && o->no_format)
		return err_set(err, ERR_NOTEMPTY, "%s is no disk of Craton, it holds %s: is it mounted?", o->dir, look->stranger);
	if (look->stranger[0])
		return err_set(err, ERR_NOTEMPTY, "%s is no disk of Craton, and not empty, it holds %s: name an empty directory, and for what the server keeps of its own (--dir) another one", o->dir, look->stranger);
	if (o->no_format)
		return err_set(err, ERR_NOENT, "%s is no disk of Craton: is it mounted? A new one is made by: craton disk format %s", o->dir, o->dir);
	return 0;
}

int disk__look(struct io *io, const struct disk_options *o, struct disk_found *ret_found, struct err *err)
{
	struct look look = {.found = ret_found};
	int rc;

	*ret_found = (struct disk_found){0};
	rc = io_list_dir(io, o->dir, note, &look);
	if (rc < 0)
		return err_set(err, rc, "cannot read the directory %s: %s", o->dir,
			rc == ERR_NOENT ? "there is none: make it, or mount the disk there" : err_text(rc));
	if (ret_found->superblock)
		return 0;
	rc = look_into_parts(io, o->dir, &look, err);
	if (rc == 0)
		rc = judge(o, &look, err);
	/* One that was made since we looked has filled its parts. */
	if (rc < 0)
		(void)io_list_dir(io, o->dir, note, &look);
	return rc;
}

int disk_format(struct io *io, const struct disk_options *o, struct format_superblock *ret_sb, struct err *err)
{
	struct disk_options make = *o;
	struct disk_found found;
	int rc = disk__look(io, o, &found, err);

	if (found.superblock || (rc == ERR_CORRUPT && found.lock))
		return refuse_disk(io, o, err);
	make.no_format = false;
	return rc < 0 ? rc : disk__superblock(io, &make, ret_sb, err);
}
