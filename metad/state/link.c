/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: more than one name for a file, and names for other names. An inode's row counts its names; it goes with the
 * last. A symbolic link is an inode whose target lies where a file has its tail; nothing here follows one.
 */
#include "metad/state/state.h"

enum { LINKS_MAX = 65000 };

void state__link(struct state *s, const struct state_cmd_link *cmd, struct state_result *res)
{
	struct state_inode *file = &s->inodes[0], *dir = &s->inodes[1];
	struct state__spot spot = {.dir = dir};
	uint64_t parent;

	res->status = state_lookup(s, &cmd->from, file, &parent);
	if (!res->status && file->type == STATE_TYPE_DIR)
		res->status = ERR_PERM;
	if (!res->status && file->nlink == 0) /* hidden, or unlinked: it cannot come back */
		res->status = ERR_NOENT;
	if (!res->status && file->nlink >= LINKS_MAX)
		res->status = ERR_MLINK;
	if (!res->status)
		res->status = state__walk(s, &cmd->to, &spot);
	if (!res->status && dir->type != STATE_TYPE_DIR)
		res->status = spot.name.len ? ERR_NOTDIR : ERR_EXIST;
	if (!res->status && (spot.found || spot.name.len == 0))
		res->status = ERR_EXIST;
	if (res->status)
		return;
	file->nlink++;
	file->ctime_ns = cmd->now_ns;
	state__inode_put(s, file);
	state__dirent_put(s, dir->id, spot.name, file->id, file->type);
	state__dir_touch(dir, 1, 0, cmd->now_ns);
	state__inode_put(s, dir);
	res->parent = dir->id;
	state_inode_attr(file, &res->attr);
}

void state__symlink(struct state *s, const struct state_cmd_symlink *cmd, struct state_result *res)
{
	struct state_inode *dir = &s->inodes[0], *link = &s->inodes[1];
	struct state__spot spot = {.dir = dir};
	struct state_policy policy = {0};
	bool own;

	if (cmd->target.len == 0 || cmd->target.len >= LIMIT_PATH_BYTES || memchr(cmd->target.data, 0, cmd->target.len)) {
		res->status = cmd->target.len ? ERR_NAMETOOLONG : ERR_NOENT;
		return;
	}
	res->status = state__walk(s, &cmd->at, &spot);
	if (!res->status && (spot.found || spot.name.len == 0))
		res->status = ERR_EXIST;
	if (!res->status)
		res->status = state_policy_get(s, dir, &policy, &own);
	if (res->status)
		return;
	*link = (struct state_inode){
		.id = s->meta.next_inode++,
		.type = STATE_TYPE_SYMLINK,
		.flags = STATE_INODE_COMPLETE,
		.mode = 0777,
		.uid = cmd->uid,
		.gid = cmd->gid,
		.nlink = 1,
		.size = cmd->target.len,
		.mtime_ns = cmd->now_ns,
		.ctime_ns = cmd->now_ns,
		.epoch = 1,
		.policy = policy,
		.tail_bytes = (uint32_t)cmd->target.len,
	};
	state__inode_put(s, link);
	state__tail_put(s, link, cmd->target);
	state__dirent_put(s, dir->id, spot.name, link->id, STATE_TYPE_SYMLINK);
	state__dir_touch(dir, 1, 0, cmd->now_ns);
	state__inode_put(s, dir);
	s->meta.file_count++;
	s->meta_dirty = true;
	res->parent = dir->id;
	state_inode_attr(link, &res->attr);
}
