/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_session: the codecs of commands 32 and up, as cmd.c has those below. */
#include "metad/state/cmd_codec.h"

void state__put_session_open(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->session_open.secret);
	put_bytes(w, c->session_open.name);
}

void state__get_session_open(struct rcursor *r, struct state_cmd *c)
{
	c->session_open.secret = rcursor_u64(r);
	c->session_open.name = get_bytes(r, STATE_SESSION_NAME_BYTES - 1);
	if (c->session_open.name.len && memchr(c->session_open.name.data, 0, c->session_open.name.len))
		r->failed = true;
}

void state__put_session_end(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u64(w, c->session_end.session);
}

void state__get_session_end(struct rcursor *r, struct state_cmd *c)
{
	c->session_end.session = rcursor_u64(r);
}

void state__put_release(struct wcursor *w, const struct state_cmd *c)
{
	wcursor_u16(w, (uint16_t)c->release.count);
	for (uint32_t i = 0; i < c->release.count; i++) {
		wcursor_u64(w, c->release.orphans[i].time_ms);
		wcursor_u64(w, c->release.orphans[i].inode);
	}
}

void state__get_release(struct rcursor *r, struct state_cmd *c)
{
	c->release.count = rcursor_u16(r);
	if (c->release.count > STATE_RELEASE_MAX)
		r->failed = true;
	for (uint32_t i = 0; i < c->release.count && !r->failed; i++) {
		c->release.orphans[i].time_ms = rcursor_u64(r);
		c->release.orphans[i].inode = rcursor_u64(r);
	}
}

void state__put_link(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->link.from);
	put_path(w, &c->link.to);
	wcursor_u64(w, (uint64_t)c->link.now_ns);
}

void state__get_link(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->link.from);
	get_path(r, &c->link.to);
	c->link.now_ns = (int64_t)rcursor_u64(r);
}

void state__put_symlink(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->symlink.at);
	put_bytes(w, c->symlink.target);
	wcursor_u32(w, c->symlink.uid);
	wcursor_u32(w, c->symlink.gid);
	wcursor_u64(w, (uint64_t)c->symlink.now_ns);
}

void state__get_symlink(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->symlink.at);
	c->symlink.target = get_bytes(r, LIMIT_PATH_BYTES - 1);
	c->symlink.uid = rcursor_u32(r);
	c->symlink.gid = rcursor_u32(r);
	c->symlink.now_ns = (int64_t)rcursor_u64(r);
}

void state__put_xattr(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->xattr.at);
	put_bytes(w, c->xattr.name);
	put_bytes(w, c->xattr.value);
	wcursor_u8(w, c->xattr.flags);
	wcursor_u64(w, (uint64_t)c->xattr.now_ns);
}

void state__get_xattr(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->xattr.at);
	c->xattr.name = get_bytes(r, LIMIT_XATTR_NAME_BYTES);
	c->xattr.value = get_bytes(r, LIMIT_XATTR_BYTES);
	c->xattr.flags = rcursor_u8(r);
	c->xattr.now_ns = (int64_t)rcursor_u64(r);
}

void state__put_truncate(struct wcursor *w, const struct state_cmd *c)
{
	put_path(w, &c->truncate.at);
	wcursor_u64(w, c->truncate.size);
	wcursor_u64(w, (uint64_t)c->truncate.now_ns);
}

void state__get_truncate(struct rcursor *r, struct state_cmd *c)
{
	get_path(r, &c->truncate.at);
	c->truncate.size = rcursor_u64(r);
	c->truncate.now_ns = (int64_t)rcursor_u64(r);
}
