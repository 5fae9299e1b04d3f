/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reverse: the reverse index: which blocks have chunks on a disk. It follows from the rows of blocks alone, so no command writes it: the
 * table derives it when it commits (struct kv_derived). A command with eight blocks would write four times as many rows if it wrote it itself.
 *
 * What is committed may therefore name blocks that have left the disk, or gone, and does not name those that have come since. A walk looks
 * at both, the committed index and the recent rows of blocks, and at each block's row as it is now: what it finds is exact, and the same in
 * every replica, whatever has been committed where.
 */
#include "metad/state/state.h"

static bool chunks_on(const struct state_block *row, uint32_t disk, uint16_t *ret_indices)
{
	*ret_indices = 0;
	for (uint8_t i = 0; i < row->width; i++)
		if (row->chunks[i].present && row->chunks[i].disk == disk)
			*ret_indices |= (uint16_t)(1u << i);
	return *ret_indices;
}

/* ---- what the commit derives ---- */

/* A block that does not exist has chunks nowhere. */
static int decode(uint64_t id, const struct slice *value, struct state_block *ret_row, struct err *err)
{
	if (!value) {
		ret_row->width = 0;
		return 0;
	}
	return state_block_decode(*value, id, ret_row) == 0
		? 0
		: err_set(err, ERR_CORRUPT, "the row of block %llu cannot be decoded", (unsigned long long)id);
}

/* The disks of `from` of which `other` says something else: their rows become what `is` says. */
static void change_rows(const struct state_block *from, const struct state_block *other, const struct state_block *is,
	uint64_t id, struct kv_derived_rows *rows)
{
	uint8_t value[STATE_ROW_BYTES];
	struct state_key key;
	uint16_t here, there, now;

	for (uint8_t i = 0; i < from->width; i++) {
		uint32_t disk = from->chunks[i].disk;

		if (!from->chunks[i].present)
			continue;
		chunks_on(from, disk, &here);
		chunks_on(other, disk, &there);
		if (here == there)
			continue;
		state_key_disk_block(&key, disk, id);
		if (chunks_on(is, disk, &now))
			kv_derived_put(
				rows, state_key_slice(&key), slice_of(value, state_disk_block_encode(now, value)));
		else
			kv_derived_del(rows, state_key_slice(&key));
	}
}

static int derive(struct slice key, const struct slice *was_value, const struct slice *is_value,
	struct kv_derived_rows *rows, struct err *err)
{
	struct state_block was, is;
	uint64_t id;
	int code;

	if (!state_key_parse_id(key, STATE_TABLE_BLOCK, &id))
		return err_set(err, ERR_CORRUPT, "a key of the table of blocks is none");
	code = decode(id, was_value, &was, err);
	if (!code)
		code = decode(id, is_value, &is, err);
	if (code)
		return code;
	change_rows(&was, &is, &is, id, rows);
	change_rows(&is, &was, &is, id, rows);
	return 0;
}

_Static_assert(2 * LIMIT_WIDTH <= KV_DERIVED_ROWS, "a block that moves altogether");

const struct kv_derived state_reverse = {
	.source = STATE_TABLE_BLOCK,
	.target = STATE_TABLE_DISK_BLOCK,
	.derive = derive,
};

/* ---- walks ---- */

void state_reverse_begin_committed(
	struct state *s, uint32_t disk, uint64_t from, uint64_t to, uint32_t most, struct state_reverse_walk *ret_walk)
{
	struct state_key key;

	*ret_walk = (struct state_reverse_walk){.s = s, .disk = disk, .to = to, .next = to, .most = most};
	state_key_disk_block(&key, disk, from);
	kv_seek_within(s->kv, &ret_walk->committed, state_key_slice(&key), STATE_PREFIX_NUMBER);
}

void state_reverse_begin(
	struct state *s, uint32_t disk, uint64_t from, uint64_t to, uint32_t most, struct state_reverse_walk *ret_walk)
{
	struct state_key key;

	state_reverse_begin_committed(s, disk, from, to, most, ret_walk);
	state_key_id(&key, STATE_TABLE_BLOCK, from);
	kv_seek_recent(s->kv, &ret_walk->recent, state_key_slice(&key));
}

/* The next block id that either scan leads to; both step behind it. */
static bool next_candidate(struct state_reverse_walk *w, uint64_t *ret_id)
{
	uint64_t committed = UINT64_MAX, recent = UINT64_MAX, id;

	if (kv_scan_valid(&w->committed))
		(void)state_key_parse_disk_block(w->committed.key, w->disk, &committed);
	if (kv_scan_valid(&w->recent))
		(void)state_key_parse_id(w->recent.key, STATE_TABLE_BLOCK, &recent);
	id = committed < recent ? committed : recent;
	if (id >= w->to)
		return false;
	if (w->looked == w->most) {
		w->next = id;
		return false;
	}
	if (committed == id)
		kv_scan_next(&w->committed);
	if (recent == id)
		kv_scan_next(&w->recent);
	*ret_id = id;
	return true;
}

bool state_reverse_next(struct state_reverse_walk *w, struct state_block *ret_row)
{
	uint16_t indices;
	uint64_t id;

	while (next_candidate(w, &id)) {
		w->looked++;
		if (state_block_get(w->s, id, ret_row) == 0 && chunks_on(ret_row, w->disk, &indices))
			return true;
	}
	return false;
}

void state_reverse_end(struct state_reverse_walk *w)
{
	kv_scan_end(&w->committed);
	kv_scan_end(&w->recent);
}

/* ---- servers ---- */

static void mark_holders(struct state *s, const struct state_block *row, bool holds[STATE_SERVERS])
{
	for (uint8_t i = 0; i < row->width; i++) {
		const struct state_disk *disk = row->chunks[i].present ? state_disk_at(s, row->chunks[i].disk) : NULL;

		if (disk)
			holds[disk->server] = true;
	}
}

static bool holds_committed(struct state *s, uint32_t disk)
{
	struct state_reverse_walk w;
	bool holds;

	state_reverse_begin_committed(s, disk, 0, UINT64_MAX, UINT32_MAX, &w);
	holds = state_reverse_next(&w, &s->blocks[0]);
	state_reverse_end(&w);
	return holds;
}

static void look_at_recent(struct state *s, bool holds[STATE_SERVERS])
{
	struct state_block *row = &s->blocks[0];
	struct state_key key;
	struct kv_scan recent;
	uint64_t id;

	state_key_table(&key, STATE_TABLE_BLOCK);
	for (kv_seek_recent(s->kv, &recent, state_key_slice(&key));
		kv_scan_valid(&recent) && state_key_parse_id(recent.key, STATE_TABLE_BLOCK, &id); kv_scan_next(&recent))
		if (state_block_get(s, id, row) == 0)
			mark_holders(s, row, holds);
	kv_scan_end(&recent);
}

uint32_t state__first_holder(struct state *s, const bool asked[STATE_SERVERS])
{
	bool holds[STATE_SERVERS] = {false};

	for (uint32_t id = 1; id < s->disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(s, id);

		if (disk && asked[disk->server] && !holds[disk->server])
			holds[disk->server] = holds_committed(s, id);
	}
	look_at_recent(s, holds);
	for (uint32_t id = 1; id < s->server_cap; id++)
		if (asked[id] && holds[id])
			return id;
	return 0;
}
