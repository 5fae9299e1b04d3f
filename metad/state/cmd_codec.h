/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_codec: what the files with codecs of commands share. Private to cmd.c and cmd_session.c. */
#ifndef METAD_STATE_CMD_CODEC_H
#define METAD_STATE_CMD_CODEC_H

#include "common/base/check.h"
#include "metad/state/cmd.h"

static inline void put_bytes(struct wcursor *w, struct slice s)
{
	CHECK(s.len <= UINT16_MAX);
	wcursor_u16(w, (uint16_t)s.len);
	wcursor_bytes(w, s.data, s.len);
}

static inline struct slice get_bytes(struct rcursor *r, size_t max)
{
	size_t len = rcursor_u16(r);

	if (len > max)
		r->failed = true;
	return rcursor_slice(r, len);
}

static inline bool get_bool(struct rcursor *r)
{
	uint8_t v = rcursor_u8(r);

	if (v > 1)
		r->failed = true;
	return v;
}

static inline void put_uuid(struct wcursor *w, const struct uuid *u)
{
	wcursor_bytes(w, u->bytes, sizeof(u->bytes));
}

static inline void get_uuid(struct rcursor *r, struct uuid *u)
{
	rcursor_copy(r, u->bytes, sizeof(u->bytes));
}

static inline void put_path(struct wcursor *w, const struct state_path *p)
{
	wcursor_u64(w, p->parent);
	put_bytes(w, p->path);
}

static inline void get_path(struct rcursor *r, struct state_path *p)
{
	p->parent = rcursor_u64(r);
	p->path = get_bytes(r, LIMIT_PATH_BYTES);
}

static inline void put_policy(struct wcursor *w, const struct state_policy *p)
{
	wcursor_u8(w, p->id);
	wcursor_u32(w, p->cell_bytes);
	wcursor_u64(w, p->chunk_bytes);
}

static inline void get_policy(struct rcursor *r, struct state_policy *p)
{
	p->id = rcursor_u8(r);
	p->cell_bytes = rcursor_u32(r);
	p->chunk_bytes = rcursor_u64(r);
}

void state__put_session_open(struct wcursor *w, const struct state_cmd *c);
void state__get_session_open(struct rcursor *r, struct state_cmd *c);
void state__put_session_end(struct wcursor *w, const struct state_cmd *c);
void state__get_session_end(struct rcursor *r, struct state_cmd *c);
void state__put_release(struct wcursor *w, const struct state_cmd *c);
void state__get_release(struct rcursor *r, struct state_cmd *c);
void state__put_link(struct wcursor *w, const struct state_cmd *c);
void state__get_link(struct rcursor *r, struct state_cmd *c);
void state__put_symlink(struct wcursor *w, const struct state_cmd *c);
void state__get_symlink(struct rcursor *r, struct state_cmd *c);
void state__put_xattr(struct wcursor *w, const struct state_cmd *c);
void state__get_xattr(struct rcursor *r, struct state_cmd *c);
void state__put_truncate(struct wcursor *w, const struct state_cmd *c);
void state__get_truncate(struct rcursor *r, struct state_cmd *c);

#endif
