/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of metad's table: the first byte is the table's id, as in every key. What is understood makes the same key again. */
#include <string.h>
#include "common/base/check.h"
#include "common/base/cursor.h"
#include "metad/state/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct state_key *k, struct slice key)
{
	CHECK(k->len == key.len && memcmp(k->bytes, key.data, key.len) == 0);
}

/* The number that a scan of one directory, inode or disk expects behind the table's id. */
static uint64_t parent_of(struct slice key, bool wide)
{
	struct rcursor r;

	rcursor_init(&r, key.data, key.len);
	rcursor_u8(&r);
	return wide ? rcursor_u64_be(&r) : rcursor_u32_be(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice key = slice_of(data, size), name;
	enum state_table table;
	struct state_copy copy;
	struct state_key k;
	uint64_t a, b, wide = parent_of(key, true);
	uint32_t number, narrow = (uint32_t)parent_of(key, false);
	uint8_t index;

	if (size == 0 || size > LIMIT_KEY_BYTES)
		return 0;
	table = data[0];
	if (state_key_parse_id(key, table, &a)) {
		state_key_id(&k, table, a);
		same(&k, key);
	}
	if (state_key_parse_number(key, table, &number)) {
		state_key_number(&k, table, number);
		same(&k, key);
	}
	if (state_key_parse_pair(key, table, &a, &b)) {
		state_key_pair(&k, table, a, b);
		same(&k, key);
	}
	if (state_key_parse_dirent(key, wide, &name)) {
		state_key_dirent(&k, wide, name);
		same(&k, key);
	}
	if (state_key_parse_xattr(key, wide, &name)) {
		state_key_xattr(&k, wide, name);
		same(&k, key);
	}
	if (state_key_parse_extent(key, wide, &a)) {
		state_key_extent(&k, wide, a);
		same(&k, key);
	}
	if (state_key_parse_intent(key, &a, &index)) {
		state_key_intent(&k, a, index);
		same(&k, key);
	}
	if (state_key_parse_disk_block(key, narrow, &a)) {
		state_key_disk_block(&k, narrow, a);
		same(&k, key);
	}
	if (state_key_parse_drop(key, narrow, &copy)) {
		state_key_drop(&k, narrow, &copy);
		same(&k, key);
	}
	return 0;
}
