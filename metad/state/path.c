/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path: from (directory, "a/b/c") to rows. Paths come from clients: a handler checks their form before anything is
 * logged; the walk checks what it needs to stay inside its bounds, whatever an entry holds.
 */
#include "metad/state/state.h"

#include "common/base/check.h"
#include "metad/state/attrs.h"
#include "metad/state/dirs.h"

/* The component at the front of *rest, which moves behind it and its '/'. */
static struct slice next_component(struct slice *rest)
{
	const uint8_t *slash = rest->len ? memchr(rest->data, '/', rest->len) : NULL;
	struct slice name = {.data = rest->data, .len = slash ? (size_t)(slash - rest->data) : rest->len};
	size_t used = slash ? name.len + 1 : name.len;

	rest->data += used;
	rest->len -= used;
	return name;
}

static int check_component(struct slice name)
{
	if (name.len == 0 || memchr(name.data, 0, name.len))
		return ERR_INVAL;
	if (name.len > LIMIT_NAME_BYTES)
		return ERR_NAMETOOLONG;
	if (name.data[0] == '.' && (name.len == 1 || (name.len == 2 && name.data[1] == '.')))
		return ERR_INVAL;
	return 0;
}

int state_path_check(struct slice path)
{
	int components = 0, code = 0;

	if (path.len >= LIMIT_PATH_BYTES)
		return ERR_NAMETOOLONG;
	if (path.len && path.data[path.len - 1] == '/')
		return ERR_INVAL;
	while (path.len && !code) {
		code = check_component(next_component(&path));
		if (++components > LIMIT_PATH_DEPTH)
			code = ERR_NAMETOOLONG;
	}
	return code;
}

int state_inode_get(struct state *s, uint64_t id, struct state_inode *ret_inode)
{
	struct state_key key;
	struct slice value;

	if (id == 0)
		return ERR_NOENT; /* of no inode; and of the empty slots in memory */
	if (state__dir_get(s, id, ret_inode))
		return 0;
	state_key_id(&key, STATE_TABLE_INODE, id);
	if (state__get(s, &key, &value))
		return ERR_NOENT;
	if (state_inode_decode(value, id, ret_inode)) {
		state__fault(s, "the row of inode %llu cannot be decoded", (unsigned long long)id);
		return ERR_CORRUPT;
	}
	if (ret_inode->type == STATE_TYPE_DIR)
		state__dir_keep(s, ret_inode);
	else
		state__attr_keep(s, ret_inode);
	return 0;
}

void state__inode_put(struct state *s, const struct state_inode *inode)
{
	CHECK(inode->id != 0);
	if (inode->type != STATE_TYPE_DIR || !state__dir_put(s, inode))
		state__inode_write(s, inode);
}

void state__inode_write(struct state *s, const struct state_inode *inode)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_id(&key, STATE_TABLE_INODE, inode->id);
	state__put(s, &key, value, state_inode_encode(inode, value));
	state__attr_keep(s, inode);
}

void state_inode_attr(const struct state_inode *i, struct state_attr *ret_attr)
{
	*ret_attr = (struct state_attr){
		.inode = i->id,
		.type = i->type,
		.complete = i->type == STATE_TYPE_DIR || (i->flags & STATE_INODE_COMPLETE),
		.mode = i->mode,
		.uid = i->uid,
		.gid = i->gid,
		.nlink = i->nlink,
		.size = i->size,
		.mtime_ns = i->mtime_ns,
		.ctime_ns = i->ctime_ns,
	};
}

int state_attr_get(struct state *s, uint64_t id, struct state_attr *ret_attr)
{
	struct state_inode *row = &s->inodes[0];
	int code;

	if (id && state__attr_get(s, id, ret_attr))
		return 0;
	code = state_inode_get(s, id, row);
	if (!code)
		state_inode_attr(row, ret_attr);
	return code;
}

int state__dirent_get(struct state *s, uint64_t dir, struct slice name, struct state_dirent *ret_dirent)
{
	struct state_key key;
	struct slice value;

	ret_dirent->inode = state__step_get(s, dir, name);
	ret_dirent->type = STATE_TYPE_DIR;
	if (ret_dirent->inode)
		return 0;
	state_key_dirent(&key, dir, name);
	if (state__get(s, &key, &value))
		return ERR_NOENT;
	if (state_dirent_decode(value, ret_dirent)) {
		state__fault(s, "an entry of directory %llu cannot be decoded", (unsigned long long)dir);
		return ERR_CORRUPT;
	}
	if (ret_dirent->type == STATE_TYPE_DIR)
		state__step_keep(s, dir, name, ret_dirent->inode);
	return 0;
}

void state__dirent_put(struct state *s, uint64_t dir, struct slice name, uint64_t inode, uint8_t type)
{
	struct state_dirent row = {.inode = inode, .type = type};
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state__step_forget(s, dir, name);
	state_key_dirent(&key, dir, name);
	state__put(s, &key, value, state_dirent_encode(&row, value));
}

void state__dirent_del(struct state *s, uint64_t dir, struct slice name)
{
	struct state_key key;

	state__step_forget(s, dir, name);
	state_key_dirent(&key, dir, name);
	state__del(s, &key);
}

/* Where an entry leads there is an inode of its type; `code` says how it was looked for. */
static int named_check(struct state *s, const struct state_dirent *dirent, int code, uint8_t type)
{
	if (code == ERR_NOENT || (!code && type != dirent->type)) {
		state__fault(s, "inode %llu has an entry but no row of that type", (unsigned long long)dirent->inode);
		return ERR_CORRUPT;
	}
	return code;
}

int state__named(struct state *s, const struct state_dirent *dirent, struct state_inode *ret_inode)
{
	int code = state_inode_get(s, dirent->inode, ret_inode);

	return named_check(s, dirent, code, ret_inode->type);
}

int state__walk(struct state *s, const struct state_path *at, struct state__spot *spot)
{
	struct slice rest = at->path, name;
	int code = state_inode_get(s, at->parent, spot->dir);

	spot->found = false;
	spot->name = (struct slice){0};
	if (code || rest.len == 0)
		return code;
	if (rest.data[rest.len - 1] == '/')
		return ERR_INVAL;
	for (int depth = 0; depth < LIMIT_PATH_DEPTH; depth++) {
		name = next_component(&rest);
		code = check_component(name);
		if (code)
			return code;
		if (spot->dir->type != STATE_TYPE_DIR)
			return ERR_NOTDIR;
		code = state__dirent_get(s, spot->dir->id, name, &spot->dirent);
		if (code == ERR_CORRUPT)
			return code;
		if (rest.len == 0) {
			spot->name = name;
			spot->found = code == 0;
			return 0;
		}
		if (code)
			return code;
		code = state__named(s, &spot->dirent, spot->dir);
		if (code)
			return code;
	}
	return ERR_NAMETOOLONG;
}

int state_lookup(struct state *s, const struct state_path *at, struct state_inode *ret_inode, uint64_t *ret_parent)
{
	struct state__spot spot = {.dir = ret_inode};
	int code = state__walk(s, at, &spot);

	if (code)
		return code;
	if (spot.name.len == 0) {
		*ret_parent = ret_inode->parent;
		return 0;
	}
	if (!spot.found)
		return ERR_NOENT;
	*ret_parent = ret_inode->id;
	return state__named(s, &spot.dirent, ret_inode);
}

int state_lookup_attr(struct state *s, const struct state_path *at, struct state_attr *ret_attr, uint64_t *ret_parent)
{
	struct state_inode *dir = &s->inodes[0];
	struct state__spot spot = {.dir = dir};
	int code = state__walk(s, at, &spot);

	if (code)
		return code;
	if (spot.name.len == 0) {
		*ret_parent = dir->parent;
		state_inode_attr(dir, ret_attr);
		return 0;
	}
	if (!spot.found)
		return ERR_NOENT;
	*ret_parent = dir->id;
	code = state_attr_get(s, spot.dirent.inode, ret_attr);
	return named_check(s, &spot.dirent, code, ret_attr->type);
}

int state_policy_get(struct state *s, const struct state_inode *inode, struct state_policy *ret_policy, bool *ret_own)
{
	struct state_inode dir = *inode;

	*ret_own = dir.policy.id != 0;
	for (int i = 0; i < STATE_WALK_MAX; i++) {
		if (dir.policy.id) {
			*ret_policy = dir.policy;
			return 0;
		}
		if (dir.id == INODE_ROOT || state_inode_get(s, dir.parent, &dir)) {
			state__fault(
				s, "inode %llu has no policy on its way to the root", (unsigned long long)inode->id);
			return ERR_CORRUPT;
		}
	}
	return ERR_LOOP;
}

static int listing_take(struct state *s, struct state_listing *l)
{
	if (!kv_scan_valid(&l->scan) || !state_key_parse_dirent(l->scan.key, l->dir, &l->name))
		return ERR_NOENT;
	if (state_dirent_decode(l->scan.value, &l->dirent)) {
		state__fault(s, "an entry of directory %llu cannot be decoded", (unsigned long long)l->dir);
		return ERR_CORRUPT;
	}
	return 0;
}

int state_list_begin(struct state *s, uint64_t dir, struct slice after, struct state_listing *ret_listing)
{
	struct state_key key;
	int code;

	ret_listing->dir = dir;
	state_key_dirent(&key, dir, after);
	kv_seek_within(s->kv, &ret_listing->scan, state_key_slice(&key), STATE_PREFIX_ID);
	code = listing_take(s, ret_listing);
	if (!code && after.len && slice_compare(ret_listing->name, after) == 0)
		code = state_list_next(s, ret_listing);
	return code;
}

int state_list_next(struct state *s, struct state_listing *listing)
{
	kv_scan_next(&listing->scan);
	return listing_take(s, listing);
}

void state_list_end(struct state_listing *listing)
{
	kv_scan_end(&listing->scan);
}
