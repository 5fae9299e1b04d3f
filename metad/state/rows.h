/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows: what the values hold, as structs, and their encoding (docs/FORMATS.md). Every value starts with its own version
 * byte. Decoding returns ERR_CORRUPT for anything that this version would not have written; a caller stops the replica
 * then.
 */
#ifndef METAD_STATE_ROWS_H
#define METAD_STATE_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/ids.h"
#include "common/base/limits.h"
#include "common/base/slice.h"

enum {
	STATE_TEXT_BYTES = 256, /* names, addresses and paths of servers and disks; with NUL */
	STATE_TOKEN_KEYS = 2,
	STATE_SALT_BYTES = 16,
	STATE_ROW_BYTES = 1024, /* no value is longer */
	STATE_INCARNATIONS_ALLOCATED = 256, /* below: given by AllocateBlocks; from here on: by intents, in the block's row */
};

enum { STATE_TYPE_FILE = 1, STATE_TYPE_DIR = 2, STATE_TYPE_SYMLINK = 3 };

struct state_policy {
	uint8_t id; /* of ec.h; 0: none of its own */
	uint32_t cell_bytes;
	uint64_t chunk_bytes;
};

struct state_token_key {
	uint8_t id; /* 0: none */
	uint8_t salt[STATE_SALT_BYTES];
	uint64_t created_ms; /* state time */
};

struct state_meta {
	struct uuid cluster;
	uint16_t version; /* of the cluster: what its members agreed to speak */
	uint64_t time_ms; /* state time */
	uint64_t next_inode;
	uint64_t next_block; /* ids from here on were never reserved */
	uint64_t floor;      /* ids below it are closed */
	uint32_t next_disk, next_server, next_domain;
	uint64_t file_count, dir_count, file_bytes;          /* of what has a name (hidden files are not counted) */
	uint64_t pending_bytes;                              /* raw bytes of orphans and gc rows */
	uint64_t next_session;
	struct state_token_key token_keys[STATE_TOKEN_KEYS]; /* newest first */
	uint32_t digest; /* of all changes of rows since the cluster version that has it (state_digest) */
};

enum {
	STATE_INODE_COMPLETE = 1,  /* closed by its writer: never changed again */
	STATE_INODE_HIDDEN = 2,    /* no name until published under (parent, name) */
	STATE_INODE_EXCLUSIVE = 4, /* hidden: publishing must not replace anything */
	STATE_INODE_REMOVED = 8,   /* has lost its last name to an unlink; an orphan or gc row exists */
	STATE_INODE_REPLACED = 16, /* has lost its last name to another file; an orphan or gc row exists */
	STATE_INODE_CUT = 32,      /* a gc_cut row exists: takes no new bytes until that is walked */
	STATE_INODE_GOING = 64,    /* gc has begun to take its extents: it cannot be read any more */
	STATE_INODE_FLAGS = 127,
};

struct state_inode {
	uint64_t id;
	uint8_t type;
	uint8_t flags;
	uint8_t name_len; /* of a name to be published */
	uint32_t mode, uid, gid, nlink;
	uint64_t size; /* bytes; directories: entries */
	int64_t mtime_ns, ctime_ns;
	uint64_t parent;            /* directories, and hidden files; else 0 */
	uint64_t epoch;             /* files: what the writer must say */
	struct state_policy policy; /* files: theirs; directories: their own, or id 0 */
	uint64_t lease;             /* files: the session that has it open for writing, or 0 */
	uint64_t stored_bytes;      /* sum of extents, and of the tail */
	uint64_t hole_bytes;        /* that reads find zeros in: made by a truncation that grew the file */
	uint64_t end_bytes;         /* behind the last extent, tail or hole */
	uint64_t tail_offset;       /* files: where the bytes of the tail row belong */
	uint32_t tail_bytes;        /* 0: there is no such row; symbolic links: of the target */
	uint16_t xattr_count;
	uint32_t xattr_bytes;       /* names and values */
	uint64_t raw_bytes;         /* sum of the chunks that were committed */
	uint8_t name[LIMIT_NAME_BYTES];
};

struct state_dirent {
	uint64_t inode;
	uint8_t type;
};

struct state_extent {
	uint64_t offset, length; /* in the file */
	uint64_t block, block_offset;
};

struct state_chunk {
	uint32_t disk; /* 0: none known */
	uint32_t incarnation;
	uint32_t crc; /* of the whole chunk: the proof */
	bool present; /* sealed, and counted by the commit or added later */
	bool damaged; /* present, but its disk has confirmed that it is corrupt or gone */
};

struct state_block {
	uint64_t id;
	uint8_t policy;
	bool crowded;
	uint8_t width; /* k + m: entries of chunks */
	uint32_t cell_bytes;
	uint64_t length;
	uint32_t refcount;           /* extent rows that name it */
	uint32_t version;            /* counts changes of placement */
	uint64_t inode, file_offset; /* of the first extent that named it */
	uint32_t next_incarnation;   /* of the next intent; never reused */
	uint64_t time_ms;            /* state time of the commit */
	struct state_chunk chunks[LIMIT_WIDTH];
};

enum state_disk_state { STATE_DISK_UP = 1, STATE_DISK_DOWN = 2, STATE_DISK_DRAINING = 3, STATE_DISK_FAILED = 4 };

struct state_disk {
	uint32_t id; /* 0: no such disk */
	uint32_t server, domain;
	uint8_t state; /* enum state_disk_state */
	uint8_t storage_class;
	struct uuid uuid;
	uint64_t generation; /* of the last registration */
	uint64_t confirmed;  /* greatest generation that the disk itself has shown to know */
	uint64_t capacity_bytes;
	uint8_t salt[STATE_SALT_BYTES]; /* of the receipt key of this generation */
	char path[STATE_TEXT_BYTES];
	char error[STATE_TEXT_BYTES]; /* why it failed */
	uint64_t down_ms;             /* state time when it last stopped being up, or its server first came back without it */
	bool left;                    /* the latter */
	bool out;                     /* its chunks are rebuilt elsewhere */
	uint64_t out_ms;              /* state time when that was last decided */
};

struct state_server {
	uint32_t id;
	uint32_t domain;
	bool up;
	struct uuid uuid;
	char name[STATE_TEXT_BYTES], address[STATE_TEXT_BYTES], version[STATE_TEXT_BYTES];
	uint64_t maintenance_ms; /* state time until which it may be away; a row of its own */
};

struct state_gc {
	uint64_t raw_bytes;
	uint64_t time_ms; /* state time when the name went */
};

/* Why a chunk is made anew. Numbers of rows, never reused. */
enum state_cause { STATE_CAUSE_LOST = 1, STATE_CAUSE_MISSING = 2, STATE_CAUSE_DAMAGED = 3, STATE_CAUSE_SPREAD = 4 };

/* A rebuild or move under way: this copy will be the block's chunk, if it equals the proof. */
struct state_intent {
	uint64_t block;
	uint8_t index;
	uint8_t cause; /* enum state_cause */
	uint32_t disk, incarnation;
	uint64_t time_ms; /* state time of its begin */
};

struct state_drop {
	uint64_t bytes;   /* of the chunk; 0 for an orphan, whose length no row knew */
	uint64_t time_ms; /* state time when the last row that named it went */
};

struct state_range {
	uint64_t count;
	uint64_t time_ms; /* state time of the reservation */
};

struct state_restore {
	uint32_t count;                  /* of restores; 0: never, and no row */
	uint64_t first_block, end_block; /* ids that may have been given in a time that is not known here */
	uint64_t time_ms;                /* state time of the last restore */
};

struct state_maintenance {
	uint64_t until_ms; /* state time of its end */
	uint32_t restores; /* that had been made when it began: it ends with the next one */
};

/* GC_BLOCK and BLOCK_GONE rows are a struct state_gc, too. Encoders write at most STATE_ROW_BYTES and return the length. */
size_t state_restore_encode(const struct state_restore *row, uint8_t out[STATE_ROW_BYTES]);
int state_restore_decode(struct slice value, struct state_restore *ret_row);
size_t state_maintenance_encode(const struct state_maintenance *row, uint8_t out[STATE_ROW_BYTES]);
int state_maintenance_decode(struct slice value, struct state_maintenance *ret_row);
size_t state_meta_encode(const struct state_meta *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_inode_encode(const struct state_inode *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_dirent_encode(const struct state_dirent *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_extent_encode(const struct state_extent *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_block_encode(const struct state_block *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_disk_encode(const struct state_disk *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_server_encode(const struct state_server *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_gc_encode(const struct state_gc *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_drop_encode(const struct state_drop *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_orphan_encode(uint64_t raw_bytes, uint8_t out[STATE_ROW_BYTES]);
size_t state_range_encode(const struct state_range *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_disk_block_encode(uint16_t indices, uint8_t out[STATE_ROW_BYTES]); /* bit by chunk index */
size_t state_number_encode(uint32_t number, uint8_t out[STATE_ROW_BYTES]);      /* uuid -> id, name -> id */
size_t state_intent_encode(const struct state_intent *row, uint8_t out[STATE_ROW_BYTES]);
size_t state_config_encode(uint64_t value, uint8_t out[STATE_ROW_BYTES]);

/* 0 or ERR_CORRUPT. Fields that are in the key (ids; an extent's end) are set by the caller before or after. */
int state_meta_decode(struct slice value, struct state_meta *ret_row);
bool state_meta_is_newer(struct slice value); /* only a newer build can decode it */
int state_inode_decode(struct slice value, uint64_t id, struct state_inode *ret_row);
int state_dirent_decode(struct slice value, struct state_dirent *ret_row);
int state_extent_decode(struct slice value, uint64_t end, struct state_extent *ret_row);
int state_block_decode(struct slice value, uint64_t id, struct state_block *ret_row);
int state_disk_decode(struct slice value, uint32_t id, struct state_disk *ret_row);
int state_server_decode(struct slice value, uint32_t id, struct state_server *ret_row);
int state_gc_decode(struct slice value, struct state_gc *ret_row);
int state_drop_decode(struct slice value, struct state_drop *ret_row);
int state_orphan_decode(struct slice value, uint64_t *ret_raw_bytes);
int state_range_decode(struct slice value, struct state_range *ret_row);
int state_disk_block_decode(struct slice value, uint16_t *ret_indices);
int state_number_decode(struct slice value, uint32_t *ret_number);
int state_intent_decode(struct slice value, uint64_t block, uint8_t index, struct state_intent *ret_row);
int state_config_decode(struct slice value, uint64_t *ret_value);

#endif
