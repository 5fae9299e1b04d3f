/* SPDX-License-Identifier: Apache-2.0 */
/* keys: see the header. Lengths were bounded by the callers (names: LIMIT_NAME_BYTES), so that no key can overflow. */
#include "metad/state/keys.h"

#include "common/base/check.h"
#include "common/base/cursor.h"

static void key_begin(struct state_key *k, struct wcursor *w, enum state_table table)
{
	wcursor_init(w, k->bytes, sizeof(k->bytes));
	wcursor_u8(w, (uint8_t)table);
}

static void key_end(struct state_key *k, const struct wcursor *w)
{
	CHECK(!w->failed);
	k->len = w->len;
}

void state_key_table(struct state_key *k, enum state_table table)
{
	struct wcursor w;

	key_begin(k, &w, table);
	key_end(k, &w);
}

void state_key_id(struct state_key *k, enum state_table table, uint64_t id)
{
	struct wcursor w;

	key_begin(k, &w, table);
	wcursor_u64_be(&w, id);
	key_end(k, &w);
}

void state_key_number(struct state_key *k, enum state_table table, uint32_t number)
{
	struct wcursor w;

	key_begin(k, &w, table);
	wcursor_u32_be(&w, number);
	key_end(k, &w);
}

void state_key_uuid(struct state_key *k, enum state_table table, const struct uuid *uuid)
{
	struct wcursor w;

	key_begin(k, &w, table);
	wcursor_bytes(&w, uuid->bytes, sizeof(uuid->bytes));
	key_end(k, &w);
}

void state_key_dirent(struct state_key *k, uint64_t dir, struct slice name)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_DIRENT);
	wcursor_u64_be(&w, dir);
	wcursor_bytes(&w, name.data, name.len);
	key_end(k, &w);
}

void state_key_extent(struct state_key *k, uint64_t inode, uint64_t end)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_EXTENT);
	wcursor_u64_be(&w, inode);
	wcursor_u64_be(&w, end);
	key_end(k, &w);
}

void state_key_disk_block(struct state_key *k, uint32_t disk, uint64_t block)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_DISK_BLOCK);
	wcursor_u32_be(&w, disk);
	wcursor_u64_be(&w, block);
	key_end(k, &w);
}

void state_key_drop(struct state_key *k, uint32_t disk, const struct state_copy *copy)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_DROP);
	wcursor_u32_be(&w, disk);
	wcursor_u64_be(&w, copy->block);
	wcursor_u8(&w, copy->index);
	wcursor_u32_be(&w, copy->incarnation);
	key_end(k, &w);
}

void state_key_pair(struct state_key *k, enum state_table table, uint64_t a, uint64_t b)
{
	struct wcursor w;

	key_begin(k, &w, table);
	wcursor_u64_be(&w, a);
	wcursor_u64_be(&w, b);
	key_end(k, &w);
}

void state_key_xattr(struct state_key *k, uint64_t inode, struct slice name)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_XATTR);
	wcursor_u64_be(&w, inode);
	wcursor_bytes(&w, name.data, name.len);
	key_end(k, &w);
}

void state_key_domain_name(struct state_key *k, struct slice name)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_DOMAIN_NAME);
	wcursor_bytes(&w, name.data, name.len);
	key_end(k, &w);
}

void state_key_config(struct state_key *k, struct slice name)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_CONFIG);
	wcursor_bytes(&w, name.data, name.len);
	key_end(k, &w);
}

void state_key_intent(struct state_key *k, uint64_t block, uint8_t index)
{
	struct wcursor w;

	key_begin(k, &w, STATE_TABLE_INTENT);
	wcursor_u64_be(&w, block);
	wcursor_u8(&w, index);
	key_end(k, &w);
}

static bool parse_table(struct rcursor *r, struct slice key, enum state_table table)
{
	rcursor_init(r, key.data, key.len);
	return rcursor_u8(r) == (uint8_t)table;
}

bool state_key_parse_id(struct slice key, enum state_table table, uint64_t *ret_id)
{
	struct rcursor r;
	uint64_t id;

	if (!parse_table(&r, key, table))
		return false;
	id = rcursor_u64_be(&r);
	if (!rcursor_done(&r))
		return false;
	*ret_id = id;
	return true;
}

bool state_key_parse_number(struct slice key, enum state_table table, uint32_t *ret_number)
{
	struct rcursor r;
	uint32_t number;

	if (!parse_table(&r, key, table))
		return false;
	number = rcursor_u32_be(&r);
	if (!rcursor_done(&r))
		return false;
	*ret_number = number;
	return true;
}

bool state_key_parse_dirent(struct slice key, uint64_t dir, struct slice *ret_name)
{
	struct rcursor r;

	if (!parse_table(&r, key, STATE_TABLE_DIRENT) || rcursor_u64_be(&r) != dir || r.failed)
		return false;
	*ret_name = rcursor_slice(&r, rcursor_left(&r));
	return true;
}

bool state_key_parse_extent(struct slice key, uint64_t inode, uint64_t *ret_end)
{
	struct rcursor r;
	uint64_t end;

	if (!parse_table(&r, key, STATE_TABLE_EXTENT) || rcursor_u64_be(&r) != inode)
		return false;
	end = rcursor_u64_be(&r);
	if (!rcursor_done(&r))
		return false;
	*ret_end = end;
	return true;
}

bool state_key_parse_intent(struct slice key, uint64_t *ret_block, uint8_t *ret_index)
{
	struct rcursor r;
	uint64_t block;
	uint8_t index;

	if (!parse_table(&r, key, STATE_TABLE_INTENT))
		return false;
	block = rcursor_u64_be(&r);
	index = rcursor_u8(&r);
	if (!rcursor_done(&r))
		return false;
	*ret_block = block;
	*ret_index = index;
	return true;
}

bool state_key_parse_disk_block(struct slice key, uint32_t disk, uint64_t *ret_block)
{
	struct rcursor r;
	uint64_t block;

	if (!parse_table(&r, key, STATE_TABLE_DISK_BLOCK) || rcursor_u32_be(&r) != disk)
		return false;
	block = rcursor_u64_be(&r);
	if (!rcursor_done(&r))
		return false;
	*ret_block = block;
	return true;
}

bool state_key_parse_drop(struct slice key, uint32_t disk, struct state_copy *ret_copy)
{
	struct state_copy copy;
	struct rcursor r;

	if (!parse_table(&r, key, STATE_TABLE_DROP) || rcursor_u32_be(&r) != disk)
		return false;
	copy.block = rcursor_u64_be(&r);
	copy.index = rcursor_u8(&r);
	copy.incarnation = rcursor_u32_be(&r);
	if (!rcursor_done(&r))
		return false;
	*ret_copy = copy;
	return true;
}

bool state_key_parse_pair(struct slice key, enum state_table table, uint64_t *ret_a, uint64_t *ret_b)
{
	struct rcursor r;
	uint64_t a, b;

	if (!parse_table(&r, key, table))
		return false;
	a = rcursor_u64_be(&r);
	b = rcursor_u64_be(&r);
	if (!rcursor_done(&r))
		return false;
	*ret_a = a;
	*ret_b = b;
	return true;
}

bool state_key_parse_xattr(struct slice key, uint64_t inode, struct slice *ret_name)
{
	struct rcursor r;

	if (!parse_table(&r, key, STATE_TABLE_XATTR) || rcursor_u64_be(&r) != inode || r.failed)
		return false;
	*ret_name = rcursor_slice(&r, rcursor_left(&r));
	return true;
}
