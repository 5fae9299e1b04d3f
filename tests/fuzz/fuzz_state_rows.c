/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoders of metad's rows on arbitrary bytes: the first byte is the table's id, the rest a value. What decodes must encode to the bytes
 * it came from; a row of an older version to one that does.
 */
#include "common/base/check.h"
#include "metad/state/keys.h"
#include "metad/state/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 0: not decoded. */
static size_t again(uint8_t table, struct slice value, uint8_t out[STATE_ROW_BYTES])
{
	union {
		struct state_meta meta;
		struct state_inode inode;
		struct state_dirent dirent;
		struct state_extent extent;
		struct state_block block;
		struct state_disk disk;
		struct state_server server;
		struct state_gc gc;
		struct state_drop drop;
		struct state_range range;
		struct state_restore restore;
		struct state_maintenance maintenance;
		struct state_intent intent;
		uint64_t value;
		uint32_t number;
		uint16_t indices;
	} u;

	switch (table) {
	case STATE_TABLE_META:
		return state_meta_decode(value, &u.meta) ? 0 : state_meta_encode(&u.meta, out);
	case STATE_TABLE_INODE:
		return state_inode_decode(value, 1, &u.inode) ? 0 : state_inode_encode(&u.inode, out);
	case STATE_TABLE_DIRENT:
		return state_dirent_decode(value, &u.dirent) ? 0 : state_dirent_encode(&u.dirent, out);
	case STATE_TABLE_EXTENT:
		return state_extent_decode(value, 1ull << 40, &u.extent) ? 0 : state_extent_encode(&u.extent, out);
	case STATE_TABLE_BLOCK:
		return state_block_decode(value, 1, &u.block) ? 0 : state_block_encode(&u.block, out);
	case STATE_TABLE_DISK_BLOCK:
		return state_disk_block_decode(value, &u.indices) ? 0 : state_disk_block_encode(u.indices, out);
	case STATE_TABLE_DISK:
		return state_disk_decode(value, 1, &u.disk) ? 0 : state_disk_encode(&u.disk, out);
	case STATE_TABLE_DISK_UUID:
		return state_number_decode(value, &u.number) ? 0 : state_number_encode(u.number, out);
	case STATE_TABLE_SERVER:
		return state_server_decode(value, 1, &u.server) ? 0 : state_server_encode(&u.server, out);
	case STATE_TABLE_GC:
	case STATE_TABLE_GC_BLOCK:
		return state_gc_decode(value, &u.gc) ? 0 : state_gc_encode(&u.gc, out);
	case STATE_TABLE_DROP:
		return state_drop_decode(value, &u.drop) ? 0 : state_drop_encode(&u.drop, out);
	case STATE_TABLE_ORPHAN:
		return state_orphan_decode(value, &u.value) ? 0 : state_orphan_encode(u.value, out);
	case STATE_TABLE_RANGE:
		return state_range_decode(value, &u.range) ? 0 : state_range_encode(&u.range, out);
	case STATE_TABLE_CONFIG:
		return state_config_decode(value, &u.value) ? 0 : state_config_encode(u.value, out);
	case STATE_TABLE_MAINTENANCE:
		return state_maintenance_decode(value, &u.maintenance) ? 0 : state_maintenance_encode(&u.maintenance, out);
	case STATE_TABLE_RESTORE:
		return state_restore_decode(value, &u.restore) ? 0 : state_restore_encode(&u.restore, out);
	case STATE_TABLE_INTENT:
		return state_intent_decode(value, 1, 2, &u.intent) ? 0 : state_intent_encode(&u.intent, out);
	default:
		return 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t row[STATE_ROW_BYTES], out[STATE_ROW_BYTES];
	size_t len;

	if (size < 2)
		return 0;
	len = again(data[0], slice_of(data + 1, size - 1), out);
	if (len && out[0] != data[1]) {
		memcpy(row, out, len);
		CHECK(again(data[0], slice_of(row, len), out) == len && memcmp(out, row, len) == 0);
		return 0;
	}
	CHECK(len == 0 || (len == size - 1 && memcmp(out, data + 1, len) == 0));
	return 0;
}
