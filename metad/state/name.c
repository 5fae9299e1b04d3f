/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name: the commands on names. A directory's row counts its entries (size) and, as POSIX wants, 2 + its subdirectories
 * (nlink), and knows its parent; so a rename can see whether a directory would become its own ancestor. A file's row
 * does not know its name.
 *
 * Losing a name is where data begin to go: the inode stays, marked with why, beside a gc row that a later command
 * walks; nothing of its blocks is touched here, however large the file is.
 */
#include "metad/state/state.h"

#include "common/base/check.h"

void state__dir_touch(struct state_inode *dir, int entries, int subdirs, int64_t now_ns)
{
	dir->size = (uint64_t)((int64_t)dir->size + entries);
	dir->nlink = (uint32_t)((int64_t)dir->nlink + subdirs);
	dir->mtime_ns = dir->ctime_ns = now_ns;
}

/* What may be open somewhere is kept until nobody holds it (RELEASE); what nobody can have open goes at once. */
static void put_garbage(struct state *s, const struct state_inode *file)
{
	struct state_gc gc = {.raw_bytes = file->raw_bytes, .time_ms = s->meta.time_ms};
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	if (file->type == STATE_TYPE_SYMLINK || file->flags & STATE_INODE_HIDDEN) {
		state_key_id(&key, STATE_TABLE_GC, file->id);
		state__put(s, &key, value, state_gc_encode(&gc, value));
	} else {
		state_key_pair(&key, STATE_TABLE_ORPHAN, gc.time_ms, file->id);
		state__put(s, &key, value, state_orphan_encode(gc.raw_bytes, value));
	}
	s->meta.pending_bytes += gc.raw_bytes;
}

void state__file_drop(struct state *s, struct state_inode *file, uint8_t why, int64_t now_ns)
{
	if (!(file->flags & STATE_INODE_HIDDEN)) {
		s->meta.file_count--;
		s->meta.file_bytes -= file->stored_bytes;
	}
	if (file->lease)
		state__lease_drop(s, file);
	put_garbage(s, file);
	file->flags |= why;
	file->nlink = 0;
	file->ctime_ns = now_ns;
	state__inode_put(s, file);
	s->meta_dirty = true;
	s->blocks_version++;
}

void state__name_lost(struct state *s, struct state_inode *file, uint8_t why, int64_t now_ns)
{
	if (file->nlink <= 1) {
		state__file_drop(s, file, why, now_ns);
		return;
	}
	file->nlink--;
	file->ctime_ns = now_ns;
	state__inode_put(s, file);
}

/* What may be open may have been unlinked long ago: the rows keep the time at which the name went. */
void state__release(struct state *s, const struct state_cmd_release *cmd, struct state_result *res)
{
	for (uint32_t i = 0; i < cmd->count; i++) {
		struct state_gc gc = {.time_ms = cmd->orphans[i].time_ms};
		uint8_t bytes[STATE_ROW_BYTES];
		struct state_key key;
		struct slice value;

		state_key_pair(&key, STATE_TABLE_ORPHAN, gc.time_ms, cmd->orphans[i].inode);
		if (state__get(s, &key, &value))
			continue;
		if (state_orphan_decode(value, &gc.raw_bytes)) {
			state__fault(s, "the row of orphan %llu cannot be decoded",
				(unsigned long long)cmd->orphans[i].inode);
			return;
		}
		state__del(s, &key);
		state_key_id(&key, STATE_TABLE_GC, cmd->orphans[i].inode);
		state__put(s, &key, bytes, state_gc_encode(&gc, bytes));
	}
	res->status = 0;
}

static void make_dir(struct state *s, struct state_inode *dir, struct slice name, const struct state_cmd_mkdir *cmd,
	struct state_inode *ret_child)
{
	*ret_child = (struct state_inode){
		.id = s->meta.next_inode++,
		.type = STATE_TYPE_DIR,
		.mode = cmd->mode & 07777,
		.uid = cmd->uid,
		.gid = cmd->gid,
		.nlink = 2,
		.mtime_ns = cmd->now_ns,
		.ctime_ns = cmd->now_ns,
		.parent = dir->id,
	};
	state__inode_put(s, ret_child);
	state__dirent_put(s, dir->id, name, ret_child->id, STATE_TYPE_DIR);
	state__dir_touch(dir, 1, 1, cmd->now_ns);
	state__inode_put(s, dir);
	s->meta.dir_count++;
	s->meta_dirty = true;
}

/* Where mkdir -p has to start making: the deepest directory that exists, and how much of the path lies below it. */
static int mkdir_find(
	struct state *s, const struct state_cmd_mkdir *cmd, struct state_inode *dir, struct slice *ret_rest)
{
	struct slice rest = cmd->at.path;
	int code = state_inode_get(s, cmd->at.parent, dir);

	while (!code && rest.len) {
		const uint8_t *slash = memchr(rest.data, '/', rest.len);
		size_t len = slash ? (size_t)(slash - rest.data) : rest.len;
		struct state_dirent dirent;

		if (dir->type != STATE_TYPE_DIR)
			return ERR_NOTDIR;
		code = state__dirent_get(s, dir->id, slice_of(rest.data, len), &dirent);
		if (code == ERR_NOENT) {
			code = 0;
			break;
		}
		if (!code)
			code = state__named(s, &dirent, dir);
		rest = slice_of(rest.data + len + (slash != NULL), rest.len - len - (slash != NULL));
	}
	*ret_rest = rest;
	return code;
}

static void mkdir_parents(struct state *s, const struct state_cmd_mkdir *cmd, struct state_result *res)
{
	struct state_inode *dir = &s->inodes[0], *child = &s->inodes[1], *tmp;
	struct slice rest;

	res->status = mkdir_find(s, cmd, dir, &rest);
	if (!res->status && dir->type != STATE_TYPE_DIR)
		res->status = rest.len ? ERR_NOTDIR : ERR_EXIST;
	if (res->status)
		return;
	res->parent = dir->parent;
	while (rest.len) {
		const uint8_t *slash = memchr(rest.data, '/', rest.len);
		size_t len = slash ? (size_t)(slash - rest.data) : rest.len;

		make_dir(s, dir, slice_of(rest.data, len), cmd, child);
		res->parent = dir->id;
		tmp = dir;
		dir = child;
		child = tmp;
		rest = slice_of(rest.data + len + (slash != NULL), rest.len - len - (slash != NULL));
	}
	state_inode_attr(dir, &res->attr);
}

void state__mkdir(struct state *s, const struct state_cmd_mkdir *cmd, struct state_result *res)
{
	struct state_inode *dir = &s->inodes[0], *child = &s->inodes[1];
	struct state__spot spot = {.dir = dir};

	res->status = state_path_check(cmd->at.path);
	if (res->status)
		return;
	if (cmd->parents) {
		mkdir_parents(s, cmd, res);
		return;
	}
	res->status = state__walk(s, &cmd->at, &spot);
	if (!res->status && (spot.found || spot.name.len == 0))
		res->status = ERR_EXIST;
	if (res->status)
		return;
	make_dir(s, dir, spot.name, cmd, child);
	res->parent = dir->id;
	state_inode_attr(child, &res->attr);
}

static int remove_check(
	const struct state_cmd_remove *cmd, const struct state__spot *spot, const struct state_inode *child)
{
	if (!cmd->directory)
		return spot->dirent.type == STATE_TYPE_DIR ? ERR_ISDIR : 0;
	if (spot->dirent.type != STATE_TYPE_DIR)
		return ERR_NOTDIR;
	return child->size ? ERR_NOTEMPTY : 0;
}

/* An empty directory goes at once: nothing else names it. */
static void drop_dir(struct state *s, const struct state_inode *dir)
{
	state__inode_forget(s, dir);
	s->meta.dir_count--;
	s->meta_dirty = true;
}

void state__remove(struct state *s, const struct state_cmd_remove *cmd, struct state_result *res)
{
	struct state_inode *dir = &s->inodes[0], *child = &s->inodes[1];
	struct state__spot spot = {.dir = dir};

	res->status = state__walk(s, &cmd->at, &spot);
	if (!res->status && spot.name.len == 0)
		res->status = ERR_BUSY;
	if (!res->status && !spot.found)
		res->status = ERR_NOENT;
	if (!res->status)
		res->status = state__named(s, &spot.dirent, child);
	if (!res->status)
		res->status = remove_check(cmd, &spot, child);
	if (res->status)
		return;
	state__dirent_del(s, dir->id, spot.name);
	if (cmd->directory)
		drop_dir(s, child);
	else
		state__name_lost(s, child, STATE_INODE_REMOVED, cmd->now_ns);
	state__dir_touch(dir, -1, cmd->directory ? -1 : 0, cmd->now_ns);
	state__inode_put(s, dir);
	res->parent = dir->id;
	state_inode_attr(child, &res->attr);
}

/* Would `dir` (where the child is to go) lie below the child? Walks up to the root. */
static int rename_loop_check(
	struct state *s, const struct state_inode *dir, uint64_t child, struct state_inode *scratch)
{
	*scratch = *dir;
	for (int i = 0; i < STATE_WALK_MAX; i++) {
		if (scratch->id == child)
			return ERR_INVAL;
		if (scratch->id == INODE_ROOT)
			return 0;
		if (state_inode_get(s, scratch->parent, scratch)) {
			state__fault(s, "directory %llu does not lead to the root", (unsigned long long)dir->id);
			return ERR_CORRUPT;
		}
	}
	return ERR_LOOP;
}

static int rename_check(struct state *s, const struct state_cmd_rename *cmd, const struct state__spot *from,
	const struct state__spot *to, struct state_inode *old)
{
	int code;

	if (from->name.len == 0 || to->name.len == 0)
		return ERR_BUSY;
	if (!from->found)
		return ERR_NOENT;
	if (to->dir->type != STATE_TYPE_DIR)
		return ERR_NOTDIR;
	if (to->found && cmd->noreplace)
		return ERR_EXIST;
	if (to->found && to->dirent.inode == from->dirent.inode)
		return 0;
	if (from->dirent.type == STATE_TYPE_DIR) {
		code = rename_loop_check(s, to->dir, from->dirent.inode, old);
		if (code)
			return code;
	}
	if (!to->found)
		return 0;
	if ((to->dirent.type == STATE_TYPE_DIR) != (from->dirent.type == STATE_TYPE_DIR))
		return to->dirent.type == STATE_TYPE_DIR ? ERR_ISDIR : ERR_NOTDIR;
	code = state__named(s, &to->dirent, old);
	if (code)
		return code;
	return to->dirent.type == STATE_TYPE_DIR && old->size ? ERR_NOTEMPTY : 0;
}

void state__rename(struct state *s, const struct state_cmd_rename *cmd, struct state_result *res)
{
	struct state_inode *from_dir = &s->inodes[0], *to_dir = &s->inodes[1], *old = &s->inodes[2],
			   *child = &s->inodes[3];
	struct state__spot from = {.dir = from_dir}, to = {.dir = to_dir};
	bool is_dir;

	res->status = state__walk(s, &cmd->from, &from);
	if (!res->status)
		res->status = state__walk(s, &cmd->to, &to);
	if (!res->status)
		res->status = rename_check(s, cmd, &from, &to, old);
	if (!res->status)
		res->status = state__named(s, &from.dirent, child);
	if (res->status)
		return;
	res->parent = to_dir->id;
	state_inode_attr(child, &res->attr);
	if (to.found && to.dirent.inode == child->id)
		return; /* the same entry: POSIX wants success and no change */

	is_dir = child->type == STATE_TYPE_DIR;
	if (from_dir->id == to_dir->id)
		to_dir = from_dir; /* one row, changed once */
	state__dirent_del(s, from_dir->id, from.name);
	state__dir_touch(from_dir, -1, is_dir ? -1 : 0, cmd->now_ns);
	if (to.found && is_dir)
		drop_dir(s, old);
	else if (to.found)
		state__name_lost(s, old, STATE_INODE_REPLACED, cmd->now_ns);
	state__dirent_put(s, to_dir->id, to.name, child->id, child->type);
	state__dir_touch(to_dir, to.found ? 0 : 1, is_dir && !to.found ? 1 : 0, cmd->now_ns);
	if (is_dir)
		child->parent = to_dir->id;
	child->ctime_ns = cmd->now_ns;
	state__inode_put(s, child);
	state__inode_put(s, from_dir);
	if (to_dir != from_dir)
		state__inode_put(s, to_dir);
	state_inode_attr(child, &res->attr);
}

void state__setattr(struct state *s, const struct state_cmd_setattr *cmd, struct state_result *res)
{
	struct state_inode *inode = &s->inodes[0];

	res->status = state_lookup(s, &cmd->at, inode, &res->parent);
	if (res->status)
		return;
	if (cmd->mask & STATE_SET_MODE)
		inode->mode = cmd->mode & 07777;
	if (cmd->mask & STATE_SET_UID)
		inode->uid = cmd->uid;
	if (cmd->mask & STATE_SET_GID)
		inode->gid = cmd->gid;
	if (cmd->mask & STATE_SET_MTIME)
		inode->mtime_ns = cmd->mtime_ns;
	inode->ctime_ns = cmd->now_ns;
	state__inode_put(s, inode);
	state_inode_attr(inode, &res->attr);
}

void state__policy(struct state *s, const struct state_cmd_policy *cmd, struct state_result *res)
{
	struct state_inode *dir = &s->inodes[0];

	res->status = state_lookup(s, &cmd->at, dir, &res->parent);
	if (!res->status && dir->type != STATE_TYPE_DIR)
		res->status = ERR_NOTDIR;
	if (!res->status && (cmd->policy.id ? !state_policy_valid(&cmd->policy) : dir->id == INODE_ROOT))
		res->status = ERR_INVAL;
	if (res->status)
		return;
	dir->policy = cmd->policy.id ? cmd->policy : (struct state_policy){0};
	state__inode_put(s, dir);
	res->status = state_policy_get(s, dir, &res->policy, &res->policy_own);
}
