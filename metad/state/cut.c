/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut: a file becomes shorter or longer, and loses what it had.
 *
 * Shorter: extents behind the new end go, the one that covers it is shortened (its block stays whole), a block that no
 * extent names any more gets a gc_block row. More than LIMIT_CUT_EXTENTS of them are left to a gc_cut row, which is
 * walked in steps (state__cut_step); the size is the new one at once, and until the row is gone the file takes no new
 * bytes. Longer: a hole, which is only a number; reads find zeros in it.
 */
#include "common/base/check.h"
#include "metad/state/attrs.h"
#include "metad/state/dirs.h"
#include "metad/state/state.h"

enum { FILE_MAX_SHIFT = 62 };

int state_tail_get(struct state *s, const struct state_inode *inode, struct slice *ret_bytes)
{
	struct state_key key;
	struct slice value;

	if (!inode->tail_bytes)
		return ERR_NOENT;
	state_key_id(&key, STATE_TABLE_TAIL, inode->id);
	if (state__get(s, &key, &value) || value.len != inode->tail_bytes + 1u || value.data[0] != 1) {
		state__fault(s, "the tail of inode %llu is not what its row says", (unsigned long long)inode->id);
		return ERR_CORRUPT;
	}
	*ret_bytes = slice_of(value.data + 1, inode->tail_bytes);
	return 0;
}

void state__tail_put(struct state *s, const struct state_inode *inode, struct slice bytes)
{
	struct state_key key;

	CHECK(bytes.len <= LIMIT_TAIL_BYTES);
	state_key_id(&key, STATE_TABLE_TAIL, inode->id);
	if (bytes.len == 0) {
		state__del(s, &key);
		return;
	}
	s->tail_row[0] = 1;
	memmove(s->tail_row + 1, bytes.data, bytes.len);
	state__put(s, &key, s->tail_row, bytes.len + 1);
}

/* One extent fewer names the block. With the last one it is left to a row: a command that cuts changes few rows a block. */
static void leave_block(struct state *s, uint64_t block, struct state_inode *file)
{
	struct state_block *row = &s->blocks[LIMIT_COMMIT_BLOCKS];
	struct state_gc gc = {.time_ms = s->meta.time_ms};
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	if (state_block_get(s, block, row) || row->refcount == 0) {
		state__fault(s, "block %llu is named by an extent but has no row, or is counted wrong",
			(unsigned long long)block);
		return;
	}
	row->refcount--;
	state_key_id(&key, STATE_TABLE_BLOCK, block);
	state__put(s, &key, value, state_block_encode(row, value));
	s->blocks_version++;
	if (row->refcount)
		return;
	gc.raw_bytes = state_block_raw_bytes(row);
	state_key_id(&key, STATE_TABLE_GC_BLOCK, block);
	state__put(s, &key, value, state_gc_encode(&gc, value));
	file->raw_bytes -= gc.raw_bytes < file->raw_bytes ? gc.raw_bytes : file->raw_bytes;
	s->meta.pending_bytes += gc.raw_bytes;
	s->meta_dirty = true;
}

static void lose_bytes(struct state *s, struct state_inode *file, uint64_t bytes)
{
	file->stored_bytes -= bytes;
	if (!file->nlink)
		return; /* not counted: it has no name yet, or no more */
	s->meta.file_bytes -= bytes;
	s->meta_dirty = true;
}

bool state__cut(struct state *s, struct state_inode *file, uint64_t offset)
{
	uint64_t from = offset; /* not `offset` again and again: the deleted ones are still in the way of a scan */
	struct state_extent e;
	struct state_key key;

	for (int i = 0; i < LIMIT_CUT_EXTENTS; i++) {
		if (state_extent_get(s, file->id, from, &e))
			return true;
		from = e.offset + e.length;
		state_key_extent(&key, file->id, e.offset + e.length);
		state__del(s, &key);
		if (e.offset < offset) {
			uint8_t value[STATE_ROW_BYTES];

			lose_bytes(s, file, e.offset + e.length - offset);
			e.length = offset - e.offset;
			state_key_extent(&key, file->id, offset);
			state__put(s, &key, value, state_extent_encode(&e, value));
		} else {
			lose_bytes(s, file, e.length);
			leave_block(s, e.block, file);
		}
	}
	return state_extent_get(s, file->id, from, &e) != 0;
}

static void cut_tail(struct state *s, struct state_inode *file, uint64_t offset)
{
	uint32_t keep = offset > file->tail_offset ? (uint32_t)(offset - file->tail_offset) : 0;
	struct slice bytes;

	if (!file->tail_bytes || offset >= file->tail_offset + file->tail_bytes || state_tail_get(s, file, &bytes))
		return;
	lose_bytes(s, file, file->tail_bytes - keep);
	file->tail_bytes = keep;
	state__tail_put(s, file, slice_of(bytes.data, keep));
}

bool state__cut_step(struct state *s, struct state_inode *file, uint64_t offset)
{
	bool done = state__cut(s, file, offset);
	struct state_gc row = {.raw_bytes = offset, .time_ms = s->meta.time_ms}; /* in this table it is an offset */
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_id(&key, STATE_TABLE_GC_CUT, file->id);
	if (done) {
		file->end_bytes = file->size;
		file->hole_bytes = file->size - file->stored_bytes;
		if (file->flags & STATE_INODE_CUT)
			state__del(s, &key);
		file->flags &= (uint8_t)~STATE_INODE_CUT;
	} else if (!(file->flags & STATE_INODE_CUT)) {
		state__put(s, &key, value, state_gc_encode(&row, value));
		file->flags |= STATE_INODE_CUT;
	}
	state__inode_put(s, file);
	return done;
}

static int truncate_check(const struct state_inode *file, uint64_t size)
{
	if (file->type != STATE_TYPE_FILE)
		return file->type == STATE_TYPE_DIR ? ERR_ISDIR : ERR_LOOP;
	if (file->flags & (STATE_INODE_REMOVED | STATE_INODE_REPLACED | STATE_INODE_HIDDEN))
		return ERR_STALE;
	if (size > 1ull << FILE_MAX_SHIFT)
		return ERR_FBIG;
	return file->flags & STATE_INODE_CUT ? ERR_AGAIN : 0;
}

/* Whoever has the file open for writing is fenced: it would go on at an end that is not there any more. */
void state__truncate(struct state *s, const struct state_cmd_truncate *cmd, struct state_result *res)
{
	struct state_inode *file = &s->inodes[0];
	uint64_t kept;

	res->status = state_lookup(s, &cmd->at, file, &res->parent);
	if (!res->status)
		res->status = truncate_check(file, cmd->size);
	if (res->status)
		return;
	state__lease_drop(s, file);
	state__epoch_raise(s, file);
	kept = cmd->size < file->size ? cmd->size : file->size;
	cut_tail(s, file, kept);
	file->size = cmd->size;
	file->mtime_ns = file->ctime_ns = cmd->now_ns;
	state__cut_step(s, file, kept);
	state_inode_attr(file, &res->attr);
}

void state__inode_forget(struct state *s, const struct state_inode *inode)
{
	struct state_key key;

	if (inode->tail_bytes)
		state__tail_put(s, inode, (struct slice){0});
	if (inode->xattr_count)
		state__xattrs_drop(s, inode->id);
	if (inode->flags & STATE_INODE_CUT) {
		state_key_id(&key, STATE_TABLE_GC_CUT, inode->id);
		state__del(s, &key);
	}
	state__dir_forget(s, inode->id);
	state__attr_forget(s, inode->id);
	state_key_id(&key, STATE_TABLE_INODE, inode->id);
	state__del(s, &key);
}
