/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys: where each kind of row lies in the ordered table. One byte of table id, then big-endian numbers, so that the
 * order of the bytes is the order of the ids. docs/FORMATS.md, "Metadata rows and log entries", has the same list.
 * Table ids are never reused.
 */
#ifndef METAD_STATE_KEYS_H
#define METAD_STATE_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/ids.h"
#include "common/base/limits.h"
#include "common/base/slice.h"

enum state_table {
	STATE_TABLE_META = 0x01,   /* one row: counters, clocks, token keys */
	STATE_TABLE_INODE = 0x02,  /* inode */
	STATE_TABLE_DIRENT = 0x03, /* directory, name */
	STATE_TABLE_EXTENT =
		0x04, /* inode, offset behind the extent's last byte: the first key > (inode, x) covers or follows x */
	STATE_TABLE_BLOCK = 0x05,       /* block */
	STATE_TABLE_DISK_BLOCK = 0x06,  /* disk, block: the reverse index */
	STATE_TABLE_DISK = 0x07,        /* disk */
	STATE_TABLE_DISK_UUID = 0x08,   /* uuid */
	STATE_TABLE_SERVER = 0x09,      /* server */
	STATE_TABLE_SERVER_UUID = 0x0a, /* uuid */
	STATE_TABLE_DOMAIN = 0x0b,      /* domain */
	STATE_TABLE_DOMAIN_NAME = 0x0c, /* name */
	STATE_TABLE_GC = 0x0d,          /* inode that nobody can reach any more: all its extents go, then its row */
	STATE_TABLE_RANGE = 0x0e,       /* first block id of a range that the floor has not passed */
	STATE_TABLE_DROP = 0x18,        /* disk, block, index, incarnation: a copy that is to be dropped */

	/* 0x20 - 0x2f: sessions, what they hold, and what is left over (docs/FORMATS.md, "Garbage") */
	STATE_TABLE_GC_CUT = 0x20,     /* inode that lives on: its extents behind an offset go */
	STATE_TABLE_GC_BLOCK = 0x21,   /* block whose reference count has come to 0 */
	STATE_TABLE_ORPHAN = 0x22,     /* state time, inode: it has lost its last name, and may be open somewhere */
	STATE_TABLE_SESSION = 0x23,    /* session */
	STATE_TABLE_LEASE = 0x24,      /* session, inode: what the session has open for writing */
	STATE_TABLE_XATTR = 0x25,      /* inode, name of the attribute */
	STATE_TABLE_TAIL = 0x26,       /* inode: the bytes of a file's tail, or a symbolic link's target */
	STATE_TABLE_BLOCK_GONE = 0x27, /* block whose row went while the floor was below it */

	/* 0x30 - 0x3f: settings, repair */
	STATE_TABLE_CONFIG = 0x30,      /* name of a setting that is not at its default */
	STATE_TABLE_MAINTENANCE = 0x50, /* server that is expected to be away */
	STATE_TABLE_RESTORE = 0x51,     /* one row, if the state ever came from a backup */
	STATE_TABLE_INTENT = 0x31,      /* block, index: a rebuild or move under way */
};

/* What the keys of one table share, or of those of one id or number (disk) in it: kv_seek_within. */
enum { STATE_PREFIX_TABLE = 1, STATE_PREFIX_NUMBER = 1 + 4, STATE_PREFIX_ID = 1 + 8 };

/* A chunk as it lies on some disk. */
struct state_copy {
	uint64_t block;
	uint32_t incarnation;
	uint8_t index;
};

struct state_key {
	size_t len;
	uint8_t bytes[LIMIT_KEY_BYTES];
};

static inline struct slice state_key_slice(const struct state_key *k)
{
	return slice_of(k->bytes, k->len);
}

void state_key_table(struct state_key *k, enum state_table table); /* the table's first possible key; META's only key */
void state_key_id(struct state_key *k, enum state_table table, uint64_t id);         /* INODE, BLOCK, GC, RANGE ... */
void state_key_number(struct state_key *k, enum state_table table, uint32_t number); /* DISK, SERVER, DOMAIN */
void state_key_uuid(struct state_key *k, enum state_table table, const struct uuid *uuid);
void state_key_dirent(struct state_key *k, uint64_t dir, struct slice name);
void state_key_extent(struct state_key *k, uint64_t inode, uint64_t end);
void state_key_disk_block(struct state_key *k, uint32_t disk, uint64_t block);
void state_key_drop(struct state_key *k, uint32_t disk, const struct state_copy *copy);
void state_key_pair(struct state_key *k, enum state_table table, uint64_t a, uint64_t b); /* ORPHAN, LEASE */
void state_key_xattr(struct state_key *k, uint64_t inode, struct slice name);
void state_key_domain_name(struct state_key *k, struct slice name);
void state_key_config(struct state_key *k, struct slice name);
void state_key_intent(struct state_key *k, uint64_t block, uint8_t index);

/* The parts of a key found by a scan; false if it belongs to another table (or another directory, inode). */
bool state_key_parse_id(struct slice key, enum state_table table, uint64_t *ret_id);
bool state_key_parse_number(struct slice key, enum state_table table, uint32_t *ret_number);
bool state_key_parse_dirent(struct slice key, uint64_t dir, struct slice *ret_name);
bool state_key_parse_pair(struct slice key, enum state_table table, uint64_t *ret_a, uint64_t *ret_b);
bool state_key_parse_xattr(struct slice key, uint64_t inode, struct slice *ret_name);
bool state_key_parse_extent(struct slice key, uint64_t inode, uint64_t *ret_end);
bool state_key_parse_intent(struct slice key, uint64_t *ret_block, uint8_t *ret_index);
bool state_key_parse_disk_block(struct slice key, uint32_t disk, uint64_t *ret_block);
bool state_key_parse_drop(struct slice key, uint32_t disk, struct state_copy *ret_copy);

#endif
