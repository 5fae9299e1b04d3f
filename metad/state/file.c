/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: the life of a file.
 *
 *     create visible --> named, incomplete --commit complete--> named, complete --unlink, replace--> orphan --> gc row
 *                                          <--open to append--
 *     create hidden  --> no name           --commit complete--> named, complete
 *                              \--abort, end of its session--> gc row
 *
 * A file that is replaced fences its writer by losing its name: that writer's commits get ERR_FENCED (replaced) or
 * ERR_STALE (removed). The epoch fences within one inode: whoever opens it to append takes its lease over and raises
 * the epoch, as abort, truncation and the end of the writer's session do; nothing that the writer before sent can be
 * committed after. The lease says whose end gives the file up (lease.c); only the epoch says who may write.
 */
#include "metad/state/state.h"

#include "common/base/check.h"

int state_writer_check(struct state *s, uint64_t inode, uint64_t epoch, struct state_inode *ret_inode)
{
	int code = state_inode_get(s, inode, ret_inode);

	if (code)
		return code == ERR_NOENT ? ERR_STALE : code;
	if (ret_inode->type != STATE_TYPE_FILE)
		return ERR_ISDIR;
	if (ret_inode->flags & STATE_INODE_REPLACED || ret_inode->epoch != epoch)
		return ERR_FENCED;
	if (epoch <= state_restore_epoch(s)) /* its writer may have been fenced in the time that is not known here */
		return ERR_FENCED;
	if (ret_inode->flags & (STATE_INODE_REMOVED | STATE_INODE_COMPLETE))
		return ERR_STALE;
	return 0;
}

/* What an existing entry of that name means for a new file. */
static int create_check(const struct state__spot *spot, bool exclusive)
{
	if (spot->name.len == 0)
		return spot->dir->type == STATE_TYPE_DIR ? ERR_ISDIR : ERR_EXIST;
	if (!spot->found)
		return 0;
	if (exclusive)
		return ERR_EXIST;
	return spot->dirent.type == STATE_TYPE_DIR ? ERR_ISDIR : 0;
}

static bool has_too_many(const struct state *s)
{
	const struct state_session *session = state_session_at(s, s->cmd.request.session);

	return session && session->lease_count >= LIMIT_SESSION_LEASES;
}

void state__create(struct state *s, const struct state_cmd_create *cmd, struct state_result *res)
{
	struct state_inode *dir = &s->inodes[0], *file = &s->inodes[1], *old = &s->inodes[2];
	struct state__spot spot = {.dir = dir};
	bool own, replaces;

	res->status = state__walk(s, &cmd->at, &spot);
	if (!res->status)
		res->status = create_check(&spot, cmd->exclusive);
	if (!res->status && !cmd->hidden && spot.found && spot.dirent.type == STATE_TYPE_SYMLINK)
		res->status = ERR_LOOP; /* links are for clients to follow */
	if (!res->status && has_too_many(s))
		res->status = ERR_MFILE;
	if (!res->status)
		res->status = state_policy_get(s, dir, &res->policy, &own);
	replaces = !res->status && spot.found && !cmd->hidden;
	if (replaces && state__named(s, &spot.dirent, old))
		return;
	if (res->status)
		return;

	*file = (struct state_inode){
		.id = s->meta.next_inode++,
		.type = STATE_TYPE_FILE,
		.mode = cmd->mode & 07777,
		.uid = cmd->uid,
		.gid = cmd->gid,
		.mtime_ns = cmd->now_ns,
		.ctime_ns = cmd->now_ns,
		.policy = res->policy,
	};
	state__epoch_raise(s, file);
	if (cmd->hidden) {
		file->flags = STATE_INODE_HIDDEN | (cmd->exclusive ? STATE_INODE_EXCLUSIVE : 0);
		file->parent = dir->id;
		file->name_len = (uint8_t)spot.name.len;
		memcpy(file->name, spot.name.data, spot.name.len);
	} else {
		file->nlink = 1;
		if (replaces)
			state__name_lost(s, old, STATE_INODE_REPLACED, cmd->now_ns);
		state__dirent_put(s, dir->id, spot.name, file->id, STATE_TYPE_FILE);
		state__dir_touch(dir, replaces ? 0 : 1, 0, cmd->now_ns);
		state__inode_put(s, dir);
		s->meta.file_count++;
	}
	state__lease_take(s, file);
	state__inode_put(s, file);
	s->meta_dirty = true;
	res->parent = dir->id;
	res->epoch = file->epoch;
	state_inode_attr(file, &res->attr);
}

void state__open_write(struct state *s, const struct state_cmd_create *cmd, struct state_result *res)
{
	struct state_inode *file = &s->inodes[1];
	struct state__spot spot = {.dir = &s->inodes[0]};

	res->status = state__walk(s, &cmd->at, &spot);
	if (!res->status && spot.name.len == 0) /* the inode itself was named */
		*file = *spot.dir;
	else if (!res->status && !spot.found) {
		state__create(s, cmd, res);
		return;
	} else if (!res->status) {
		res->status = state__named(s, &spot.dirent, file);
	}
	if (!res->status && file->type != STATE_TYPE_FILE)
		res->status = file->type == STATE_TYPE_DIR ? ERR_ISDIR : ERR_LOOP;
	if (!res->status && (cmd->exclusive || cmd->hidden))
		res->status = ERR_EXIST;
	if (!res->status && file->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED | STATE_INODE_HIDDEN))
		res->status = ERR_STALE;
	if (!res->status && has_too_many(s))
		res->status = ERR_MFILE;
	if (res->status)
		return;
	state__lease_take(s, file);
	state__epoch_raise(s, file);
	file->flags &= (uint8_t)~STATE_INODE_COMPLETE;
	state__inode_put(s, file);
	res->parent = spot.name.len ? spot.dir->id : 0;
	res->epoch = file->epoch;
	res->policy = file->policy;
	state_inode_attr(file, &res->attr);
}

int state__publish_check(struct state *s, const struct state_inode *file, struct state_inode *ret_dir,
	struct state_dirent *ret_old, bool *ret_replaces)
{
	int code = state_inode_get(s, file->parent, ret_dir);

	*ret_replaces = false;
	if (code)
		return code; /* ERR_NOENT: the directory was removed meanwhile */
	code = state__dirent_get(s, ret_dir->id, slice_of(file->name, file->name_len), ret_old);
	if (code)
		return code == ERR_NOENT ? 0 : code;
	if (file->flags & STATE_INODE_EXCLUSIVE)
		return ERR_EXIST;
	*ret_replaces = true;
	return ret_old->type == STATE_TYPE_DIR ? ERR_ISDIR : 0;
}

void state__publish(struct state *s, struct state_inode *file, struct state_inode *dir, const struct state_dirent *old,
	bool replaces, int64_t now_ns)
{
	struct slice name = slice_of(file->name, file->name_len);

	if (replaces) {
		struct state_inode *row = &s->inodes[3];

		if (state__named(s, old, row))
			return;
		state__name_lost(s, row, STATE_INODE_REPLACED, now_ns);
	}
	state__dirent_put(s, dir->id, name, file->id, STATE_TYPE_FILE);
	state__dir_touch(dir, replaces ? 0 : 1, 0, now_ns);
	state__inode_put(s, dir);
	file->flags &= (uint8_t) ~(STATE_INODE_HIDDEN | STATE_INODE_EXCLUSIVE);
	file->parent = 0;
	file->name_len = 0;
	file->nlink = 1;
	s->meta.file_count++;
	s->meta.file_bytes += file->stored_bytes;
	s->meta_dirty = true;
}

/* A writer gives up: what has no name goes, what has one stays, incomplete for ever. Asked again: the same answer. */
void state__abort(struct state *s, const struct state_cmd_abort *cmd, struct state_result *res)
{
	struct state_inode *file = &s->inodes[0];
	int code = state_inode_get(s, cmd->inode, file);

	if (code == ERR_NOENT)
		code = ERR_STALE;
	if (!code && file->type != STATE_TYPE_FILE)
		code = ERR_ISDIR;
	if (!code && (cmd->epoch <= state_restore_epoch(s) || (file->epoch != cmd->epoch && file->epoch != cmd->epoch + 1)))
		code = ERR_FENCED;
	if (!code && file->epoch == cmd->epoch && file->flags & STATE_INODE_COMPLETE)
		code = ERR_STALE;
	/* What has its gc row, be it from an abort before, must not get a second one, whatever epoch is named. */
	if (!code && file->epoch == cmd->epoch && file->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED))
		code = file->flags & STATE_INODE_REPLACED ? ERR_FENCED : ERR_STALE;
	res->status = code;
	if (code)
		return;
	if (file->epoch == cmd->epoch) {
		state__epoch_raise(s, file);
		if (file->flags & STATE_INODE_HIDDEN) {
			state__file_drop(s, file, STATE_INODE_REMOVED, file->ctime_ns);
		} else {
			state__lease_drop(s, file);
			state__inode_put(s, file);
		}
	}
	state_inode_attr(file, &res->attr);
}
