/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc: how bytes leave the store. Every step is a committed row; nothing is ever dropped for its age or because some
 * chunk server says so.
 *
 *     what nobody can reach --> gc row (a file), gc_cut row (a file's end), gc_block row (a block): docs/FORMATS.md
 *     gc row --STATE_CMD_GC--> extents go, refcounts fall; a block at zero loses its row and gets a drop row per copy
 *     copy that no row names --STATE_CMD_ORPHANS--> drop row
 *     drop row --after the grace: order to the chunk server; its record durable--> STATE_CMD_DROPPED --> gone
 *     drop row of a disk that was taken out and does not come back --STATE_CMD_FORGET_DROPS--> gone
 *
 * Invariants:
 *  1. A copy has a drop row only if no block's row names it. A block whose row went never comes back: refcount reaches
 *     zero once, ids are not reused, and a block_gone row says that it went until the floor has passed its id.
 *  2. An orphan becomes a drop row only below the floor: above it a commit may still be on its way. A row names its
 *     copies by disk, index and incarnation, also those that it has only been promised (not present): such a copy may
 *     be the last of a damaged block, and leaves when the row names another one in its place.
 *  3. meta.pending_bytes is the sum of raw_bytes of all gc and gc_block rows (and of files on their way there) and of
 *     bytes of all drop rows.
 *
 * A command walks the rows of one gc table in the order of their ids and stops where the next block would not fit.
 */
#include "metad/state/state.h"

#include "common/base/check.h"
#include "common/base/sometimes.h"
#include "metad/state/attrs.h"

enum {
	BLOCK_ROWS = 6 +
		2 * LIMIT_WIDTH, /* gc row, extent, block, that it is gone, an intent and its drop row; two of each chunk */
	CUT_ROWS = 3,            /* of one extent: its own, the block's, a gc_block row */
	FILE_ROWS = 5,           /* inode, its gc row, its tail, a row of another kind, meta */
	ROWS_MAX = STATE_COMMAND_ROWS - BLOCK_ROWS - FILE_ROWS,
};

_Static_assert(ROWS_MAX > LIMIT_CUT_EXTENTS * CUT_ROWS + 1, "one block always fits, and a step of a truncation");
_Static_assert(STATE_COPIES <= STATE_COMMAND_ROWS - FILE_ROWS, "a row for each copy");
_Static_assert(STATE_COPIES * 2 + 1 <= STATE_COMMAND_ROWS, "missing copies: a block and a file for each");
_Static_assert(STATE_FORGET_DROPS + 1 <= STATE_COMMAND_ROWS, "drop rows of a disk that is gone");

/* ---- rows of the gc tables ---- */

static int gc_row(struct state *s, enum state_table table, struct kv_scan *scan, uint64_t *ret_id, struct state_gc *ret_gc)
{
	int code;

	if (!kv_scan_valid(scan) || !state_key_parse_id(scan->key, table, ret_id))
		return ERR_NOENT;
	code = state_gc_decode(scan->value, ret_gc);
	if (code)
		state__fault(s, "row %llu of table %d cannot be decoded", (unsigned long long)*ret_id, table);
	return code;
}

static void gc_seek(struct state *s, enum state_table table, uint64_t id, struct kv_scan *ret_scan)
{
	struct state_key key;

	state_key_id(&key, table, id);
	kv_seek_within(s->kv, ret_scan, state_key_slice(&key), STATE_PREFIX_TABLE);
}

/* The first row of the table at or behind *id. ERR_NOENT: none. */
static int gc_next(struct state *s, enum state_table table, uint64_t *id, struct state_gc *ret_gc)
{
	struct kv_scan scan;
	int code;

	gc_seek(s, table, *id, &scan);
	code = gc_row(s, table, &scan, id, ret_gc);
	kv_scan_end(&scan);
	return code;
}

static void gc_put(struct state *s, enum state_table table, uint64_t id, const struct state_gc *gc)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_id(&key, table, id);
	state__put(s, &key, value, state_gc_encode(gc, value));
}

static void gc_del(struct state *s, enum state_table table, uint64_t id, uint64_t *rows)
{
	struct state_key key;

	state_key_id(&key, table, id);
	state__del(s, &key);
	*rows += 1;
}

/* ---- drop rows ---- */

int state_drop_get(struct state *s, uint32_t disk, const struct state_copy *copy, struct state_drop *ret_drop)
{
	struct state_key key;
	struct slice value;

	state_key_drop(&key, disk, copy);
	if (state__get(s, &key, &value))
		return ERR_NOENT;
	if (state_drop_decode(value, ret_drop)) {
		state__fault(s, "a drop row of disk %u cannot be decoded", disk);
		return ERR_CORRUPT;
	}
	return 0;
}

int state_drop_begin(struct state *s, uint32_t disk, const struct state_copy *from, struct state_drop_list *ret_list)
{
	struct state_key key;

	state_key_drop(&key, disk, from);
	ret_list->disk = disk;
	ret_list->started = false;
	kv_seek_within(s->kv, &ret_list->scan, state_key_slice(&key), STATE_PREFIX_NUMBER);
	return state_drop_next(s, ret_list);
}

int state_drop_next(struct state *s, struct state_drop_list *list)
{
	if (list->started)
		kv_scan_next(&list->scan);
	list->started = true;
	if (!kv_scan_valid(&list->scan) || !state_key_parse_drop(list->scan.key, list->disk, &list->copy))
		return ERR_NOENT;
	if (state_drop_decode(list->scan.value, &list->drop)) {
		state__fault(s, "a drop row of disk %u cannot be decoded", list->disk);
		return ERR_CORRUPT;
	}
	return 0;
}

void state_drop_end(struct state_drop_list *list)
{
	kv_scan_end(&list->scan);
}

void state__drop_put(struct state *s, uint32_t disk, const struct state_copy *copy, uint64_t bytes)
{
	struct state_drop drop = {.bytes = bytes, .time_ms = s->meta.time_ms};
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;

	state_key_drop(&key, disk, copy);
	state__put(s, &key, value, state_drop_encode(&drop, value));
	s->meta.pending_bytes += bytes;
	s->meta_dirty = true;
}

/* ---- blocks ---- */

/*
 * Every new block asks, and is newer than most that go: what one look has found to be free of such rows is remembered, until one is
 * put there.
 */
bool state__block_gone(struct state *s, uint64_t id)
{
	uint64_t next = id;
	struct state_gc gc;
	int code;

	if (id >= s->gone_gap.from && id < s->gone_gap.to)
		return false;
	code = gc_next(s, STATE_TABLE_BLOCK_GONE, &next, &gc);
	if (code == 0 && next == id)
		return true;
	if (code == 0 || code == ERR_NOENT)
		s->gone_gap = (struct state_gap){.from = id, .to = code ? UINT64_MAX : next};
	return false;
}

static void gone_put(struct state *s, uint64_t id)
{
	struct state_gc gc = {.time_ms = s->meta.time_ms};

	if (id >= s->gone_gap.from && id < s->gone_gap.to)
		s->gone_gap.to = id;
	gc_put(s, STATE_TABLE_BLOCK_GONE, id, &gc);
}

static void block_del(struct state *s, const struct state_block *row, uint64_t *rows)
{
	struct state_key key;

	state__intents_drop(s, row->id);
	*rows += 2;
	if (row->id >= s->meta.floor) {
		gone_put(s, row->id);
		*rows += 1;
	}
	state_key_id(&key, STATE_TABLE_BLOCK, row->id);
	state__del(s, &key);
	for (uint8_t i = 0; i < row->width; i++) {
		const struct state_chunk *c = &row->chunks[i];
		struct state_copy copy = {.block = row->id, .index = i, .incarnation = c->incarnation};

		if (!c->present)
			continue;
		state__drop_put(s, c->disk, &copy, state_chunk_bytes(row, i));
		*rows += 2; /* and one of the reverse index, which follows */
	}
	s->blocks_version++;
}

uint64_t state__block_unref(struct state *s, uint64_t id, uint64_t *rows)
{
	struct state_block *row = &s->blocks[0];
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;
	uint64_t freed = 0;

	if (state_block_get(s, id, row)) {
		state__fault(s, "block %llu is named by an extent but has no row", (unsigned long long)id);
		return 0;
	}
	*rows += 1;
	if (row->refcount > 1) {
		row->refcount--;
		state_key_id(&key, STATE_TABLE_BLOCK, id);
		state__put(s, &key, value, state_block_encode(row, value));
		return 0;
	}
	for (uint8_t i = 0; i < row->width; i++)
		freed += row->chunks[i].present ? state_chunk_bytes(row, i) : 0;
	block_del(s, row, rows);
	return freed;
}

uint64_t state_chunk_bytes(const struct state_block *row, uint8_t index)
{
	struct stripe_geom g = state__geom(row);

	return stripe_chunk_len(&g, index);
}

/* Does the block's row name the copy? If so, the row is in *row. */
static bool row_names(struct state *s, uint32_t disk, const struct state_copy *copy, struct state_block *row)
{
	return state_block_get(s, copy->block, row) == 0 && copy->index < row->width &&
		row->chunks[copy->index].disk == disk && row->chunks[copy->index].incarnation == copy->incarnation;
}

bool state_copy_named(struct state *s, uint32_t disk, const struct state_copy *copy)
{
	const struct state_intent *intent = state_intent_of(s, copy->block);

	return (intent && intent->index == copy->index && intent->disk == disk &&
		       intent->incarnation == copy->incarnation) ||
		row_names(s, disk, copy, &s->blocks[0]);
}

/* ---- what is left over of files ---- */

bool state_gc_table(uint8_t table)
{
	return table == STATE_TABLE_GC || table == STATE_TABLE_GC_CUT || table == STATE_TABLE_GC_BLOCK ||
		table == STATE_TABLE_BLOCK_GONE;
}

/* Takes the inode's extents that begin at or behind `from`, while they fit. True: none are left. */
static bool take_extents(struct state *s, uint64_t inode, uint64_t from, uint64_t *rows, uint64_t *ret_freed)
{
	struct state_extent extent;
	struct state_key key;

	*ret_freed = 0;
	while (state_extent_get(s, inode, from, &extent) == 0) {
		uint64_t end = extent.offset + extent.length;

		if (*rows > ROWS_MAX)
			return false;
		if (extent.offset >= from) {
			state_key_extent(&key, inode, end);
			state__del(s, &key);
			*rows += 1;
			*ret_freed += state__block_unref(s, extent.block, rows);
		}
		if (s->fault.code)
			return false;
		from = end; /* not from the start again: the deleted ones are still in the way of a scan */
	}
	return true;
}

/* Deletes the rows of a table that belong to the inode, while they fit. True: none are left. */
static bool take_rows(struct state *s, enum state_table table, uint64_t inode, uint64_t *rows)
{
	while (*rows <= ROWS_MAX) {
		struct state_key prefix, key;
		struct kv_scan scan;

		state_key_id(&prefix, table, inode);
		kv_seek_within(s->kv, &scan, state_key_slice(&prefix), STATE_PREFIX_ID);
		key.len = 0;
		if (kv_scan_valid(&scan) && scan.key.len >= prefix.len &&
			memcmp(scan.key.data, prefix.bytes, prefix.len) == 0) {
			key.len = scan.key.len;
			memcpy(key.bytes, scan.key.data, key.len);
		}
		kv_scan_end(&scan);
		if (key.len == 0)
			return true;
		state__del(s, &key);
		*rows += 1;
	}
	return false;
}

/* Nothing is read from it any more: where its extents were there would be zeros, if it has holes. */
static void mark_going(struct state *s, uint64_t inode, uint64_t *rows)
{
	struct state_inode *file = &s->inodes[0];

	if (state_inode_get(s, inode, file) || file->flags & STATE_INODE_GOING)
		return;
	file->flags |= STATE_INODE_GOING;
	state__inode_put(s, file);
	*rows += 1;
}

/* A file that nobody can reach. True: it is gone, its tail together with the row that tells of it. */
static bool walk_file(struct state *s, uint64_t inode, struct state_gc *gc, uint64_t *rows)
{
	uint64_t freed;
	bool whole = take_extents(s, inode, 0, rows, &freed) && take_rows(s, STATE_TABLE_XATTR, inode, rows);

	if (whole || freed > gc->raw_bytes)
		freed = gc->raw_bytes; /* chunks that were found missing since then were counted, too */
	gc->raw_bytes -= freed;
	s->meta.pending_bytes -= freed;
	if (whole) {
		gc_del(s, STATE_TABLE_GC, inode, rows);
		gc_del(s, STATE_TABLE_TAIL, inode, rows);
		gc_del(s, STATE_TABLE_INODE, inode, rows);
		state__attr_forget(s, inode);
	} else {
		mark_going(s, inode, rows);
		gc_put(s, STATE_TABLE_GC, inode, gc);
	}
	return whole;
}

/* A file that was cut off at an offset: as the truncation began. If it has lost its name since, all of it goes anyway. */
static bool walk_cut(struct state *s, uint64_t inode, const struct state_gc *gc, uint64_t *rows)
{
	struct state_inode *file = &s->inodes[0];

	if (state_inode_get(s, inode, file) || !file->nlink) {
		gc_del(s, STATE_TABLE_GC_CUT, inode, rows);
		return true;
	}
	if (*rows + LIMIT_CUT_EXTENTS * CUT_ROWS > ROWS_MAX)
		return false;
	*rows += LIMIT_CUT_EXTENTS * CUT_ROWS;
	return state__cut_step(s, file, gc->raw_bytes);
}

static bool walk_block(struct state *s, uint64_t block, const struct state_gc *gc, uint64_t *rows)
{
	struct state_block *row = &s->blocks[0];

	s->meta.pending_bytes -= gc->raw_bytes;
	if (state_block_get(s, block, row) == 0 && row->refcount == 0) {
		block_del(s, row, rows);
		*rows += 1;
	}
	gc_del(s, STATE_TABLE_GC_BLOCK, block, rows);
	return true;
}

int state_gc_find(struct state *s, uint8_t table, uint64_t from, uint64_t before_ms, uint64_t *ret_id, uint64_t *soonest_ms)
{
	struct state_gc gc = {.time_ms = UINT64_MAX};
	struct kv_scan scan;
	int code = 0;

	*ret_id = from;
	gc_seek(s, table, from, &scan);
	for (int i = 0; i < STATE_COMMAND_ROWS; i++) {
		if (i > 0)
			kv_scan_next(&scan);
		code = gc_row(s, table, &scan, ret_id, &gc);
		if (table == STATE_TABLE_BLOCK_GONE && code == 0 && *ret_id >= s->meta.floor)
			code = ERR_NOENT; /* still needed */
		if (code || gc.time_ms <= before_ms)
			break;
		if (gc.time_ms < *soonest_ms)
			*soonest_ms = gc.time_ms;
	}
	kv_scan_end(&scan);
	if (code || gc.time_ms <= before_ms)
		return code;
	++*ret_id;
	return ERR_AGAIN;
}

void state__gc(struct state *s, const struct state_cmd_gc *cmd, struct state_result *res)
{
	uint64_t rows = 0, id = cmd->from;
	struct state_gc gc;
	bool whole = true;

	if (!state_gc_table(cmd->table)) {
		res->status = ERR_INVAL;
		return;
	}
	s->meta_dirty = true;
	while (whole && rows <= ROWS_MAX && gc_next(s, cmd->table, &id, &gc) == 0) {
		rows++; /* one that is passed by costs, too */
		if (cmd->table == STATE_TABLE_BLOCK_GONE && id >= s->meta.floor)
			break;
		if (gc.time_ms > cmd->before_ms)
			;
		else if (cmd->table == STATE_TABLE_BLOCK_GONE)
			gc_del(s, cmd->table, id, &rows);
		else if (cmd->table == STATE_TABLE_GC)
			whole = walk_file(s, id, &gc, &rows);
		else if (cmd->table == STATE_TABLE_GC_CUT)
			whole = walk_cut(s, id, &gc, &rows);
		else
			whole = walk_block(s, id, &gc, &rows);
		id += whole;
	}
	res->next = id;
}

/* ---- copies ---- */

static bool disk_speaks(const struct state *s, uint32_t disk, uint64_t generation, struct state_result *res)
{
	const struct state_disk *row = state_disk_at(s, disk);

	if (!row || row->generation != generation)
		res->status = row ? ERR_GENERATION : ERR_NOENT;
	return res->status == 0;
}

/* The chunk server has made durable that it has these copies no more. */
void state__dropped(struct state *s, const struct state_cmd_copies *cmd, struct state_result *res)
{
	struct state_drop drop;
	struct state_key key;

	if (!disk_speaks(s, cmd->disk, cmd->generation, res))
		return;
	for (uint32_t i = 0; i < cmd->count; i++) {
		if (state_drop_get(s, cmd->disk, &cmd->copies[i], &drop))
			continue;
		state_key_drop(&key, cmd->disk, &cmd->copies[i]);
		state__del(s, &key);
		s->meta.pending_bytes -= drop.bytes;
		s->meta_dirty = true;
		res->count++;
	}
}

bool state_drops_forgotten(const struct state *s, const struct state_disk *disk)
{
	return disk->out && s->meta.time_ms >= disk->out_ms + STATE_DROPS_KEPT_MS;
}

/*
 * Rows that nobody will ever work off. If the disk comes back all the same, its inventory shows their copies as orphans: below the floor
 * nothing can have come to want them meanwhile.
 */
void state__forget_drops(struct state *s, const struct state_cmd_forget_drops *cmd, struct state_result *res)
{
	const struct state_disk *disk = state_disk_at(s, cmd->disk);
	struct state_copy at = {.block = cmd->from};
	struct state_drop_list list;
	struct state_key key;
	int code = 0;

	if (!disk || !state_drops_forgotten(s, disk)) {
		res->status = disk ? ERR_STALE : ERR_NOENT;
		return;
	}
	for (int i = 0; i < STATE_FORGET_DROPS && !code; i++) {
		code = state_drop_begin(s, cmd->disk, &at, &list);
		state_drop_end(&list);
		if (code || list.copy.block >= s->meta.floor)
			break;
		at = list.copy;
		state_key_drop(&key, cmd->disk, &at);
		state__del(s, &key);
		s->meta.pending_bytes -= list.drop.bytes;
		s->meta_dirty = true;
		res->count++;
	}
	res->next = at.block;
}

/* Copies that lie on the disk and that, as the leader saw it, no row names. The rows of now decide. */
void state__orphans(struct state *s, const struct state_cmd_copies *cmd, struct state_result *res)
{
	struct state_drop drop;

	if (!disk_speaks(s, cmd->disk, cmd->generation, res) || state_restore_hold_ms(s))
		return;
	for (uint32_t i = 0; i < cmd->count; i++) {
		const struct state_copy *copy = &cmd->copies[i];

		if (copy->block >= s->meta.floor)
			continue; /* a commit or AddChunk may be on its way */
		if (state_copy_named(s, cmd->disk, copy))
			continue;
		if (state_drop_get(s, cmd->disk, copy, &drop) != ERR_NOENT)
			continue;
		SOMETIMES(state_orphan_dropped);
		state__drop_put(s, cmd->disk, copy, 0);
		res->count++;
	}
}

/* Two rows. */
static void chunk_gone(struct state *s, struct state_block *row, uint8_t index)
{
	row->chunks[index].present = row->chunks[index].damaged = false;
	row->version++;
	state__block_put(s, row);
	state__raw_bytes_count(s, row, index, false);
}

/* Copies that rows name and that the disk has not. They stop counting; the row still names where they were to be. */
void state__missing(struct state *s, const struct state_cmd_copies *cmd, struct state_result *res)
{
	if (!disk_speaks(s, cmd->disk, cmd->generation, res))
		return;
	for (uint32_t i = 0; i < cmd->count; i++) {
		const struct state_copy *copy = &cmd->copies[i];
		struct state_block *row = &s->blocks[0];

		if (copy->block >= s->meta.floor)
			continue; /* no inventory speaks of them: its disk may have been listed before they came */
		/* not the copies that only an intent names: they are not there yet */
		if (!row_names(s, cmd->disk, copy, row) || !row->chunks[copy->index].present)
			continue;
		chunk_gone(s, row, copy->index);
		res->count++;
	}
}
