/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xattr: extended attributes, a row each: (inode, name) -> value. The inode's row counts them and their bytes: at most
 * LIMIT_XATTRS and LIMIT_XATTR_BYTES, so that all of them fit one reply and go in one command.
 */
#include "metad/state/state.h"

int state_xattr_get(struct state *s, uint64_t inode, struct slice name, struct slice *ret_value)
{
	struct state_key key;
	struct slice value;

	if (name.len == 0 || name.len > LIMIT_XATTR_NAME_BYTES)
		return ERR_INVAL;
	state_key_xattr(&key, inode, name);
	if (state__get(s, &key, &value))
		return ERR_NODATA;
	if (value.len == 0 || value.data[0] != 1) {
		state__fault(s, "an attribute of inode %llu cannot be decoded", (unsigned long long)inode);
		return ERR_CORRUPT;
	}
	*ret_value = slice_of(value.data + 1, value.len - 1);
	return 0;
}

void state_xattr_list(struct state *s, uint64_t inode, void (*each)(void *ctx, struct slice name), void *ctx)
{
	struct state_key key;
	struct kv_scan scan;
	struct slice name;

	state_key_xattr(&key, inode, (struct slice){0});
	for (kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_ID); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (!state_key_parse_xattr(scan.key, inode, &name))
			break;
		each(ctx, name);
	}
	kv_scan_end(&scan);
}

/* A scan does not outlive a delete: it begins anew for each. */
void state__xattrs_drop(struct state *s, uint64_t inode)
{
	struct state_key from, key;
	struct kv_scan scan;
	struct slice name;
	bool any;

	state_key_xattr(&from, inode, (struct slice){0});
	for (int i = 0; i < LIMIT_XATTRS; i++) {
		kv_seek_within(s->kv, &scan, state_key_slice(&from), STATE_PREFIX_ID);
		any = kv_scan_valid(&scan) && state_key_parse_xattr(scan.key, inode, &name);
		if (any)
			state_key_xattr(&key, inode, name);
		kv_scan_end(&scan);
		if (!any)
			return;
		state__del(s, &key);
	}
}

static int find(struct state *s, const struct state_cmd_xattr *cmd, struct state_inode *inode,
	struct state_result *res, struct slice *ret_old)
{
	int code = state_lookup(s, &cmd->at, inode, &res->parent);

	*ret_old = (struct slice){0};
	if (!code && cmd->name.len && memchr(cmd->name.data, 0, cmd->name.len))
		code = ERR_INVAL;
	return code ? code : state_xattr_get(s, inode->id, cmd->name, ret_old);
}

static void changed(struct state *s, struct state_inode *inode, int count, int64_t bytes, int64_t now_ns)
{
	inode->xattr_count = (uint16_t)(inode->xattr_count + count);
	inode->xattr_bytes = (uint32_t)((int64_t)inode->xattr_bytes + bytes);
	inode->ctime_ns = now_ns;
	state__inode_put(s, inode);
}

void state__xattr_set(struct state *s, const struct state_cmd_xattr *cmd, struct state_result *res)
{
	struct state_inode *inode = &s->inodes[0];
	struct state_key key;
	struct slice old;
	int code = find(s, cmd, inode, res, &old);
	bool is_new = code == ERR_NODATA;
	int64_t bytes = (int64_t)cmd->value.len - (int64_t)old.len + (is_new ? (int64_t)cmd->name.len : 0);

	if (is_new)
		code = cmd->flags & STATE_XATTR_REPLACE ? ERR_NODATA : inode->xattr_count >= LIMIT_XATTRS ? ERR_NOSPC : 0;
	else if (!code && cmd->flags & STATE_XATTR_CREATE)
		code = ERR_EXIST;
	if (!code && (int64_t)inode->xattr_bytes + bytes > LIMIT_XATTR_BYTES)
		code = ERR_NOSPC;
	res->status = code;
	if (code)
		return;
	state_key_xattr(&key, inode->id, cmd->name);
	s->tail_row[0] = 1;
	memcpy(s->tail_row + 1, cmd->value.data, cmd->value.len);
	state__put(s, &key, s->tail_row, cmd->value.len + 1);
	changed(s, inode, is_new, bytes, cmd->now_ns);
	state_inode_attr(inode, &res->attr);
}

void state__xattr_remove(struct state *s, const struct state_cmd_xattr *cmd, struct state_result *res)
{
	struct state_inode *inode = &s->inodes[0];
	struct state_key key;
	struct slice old;

	res->status = find(s, cmd, inode, res, &old);
	if (res->status)
		return;
	state_key_xattr(&key, inode->id, cmd->name);
	changed(s, inode, -1, -(int64_t)(old.len + cmd->name.len), cmd->now_ns);
	state__del(s, &key);
	state_inode_attr(inode, &res->attr);
}
