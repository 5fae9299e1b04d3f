/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd: the replicated commands, as structs and as bytes of a log entry (docs/FORMATS.md).
 *
 * An entry is a header (entry version, cluster version, state time, number of commands) and that many commands, each a
 * type, flags, a length and a body; a client's change also says which session it is from and its number there
 * (session.h). A command says all that apply needs and nothing else: times and random bytes were chosen
 * by the leader, receipts were verified by it. Numbers of commands are never reused. A type, version or body that this
 * binary does not know is ERR_VERSION or ERR_CORRUPT: the replica stops rather than guess.
 *
 * Slices in a decoded command point into the entry.
 */
#ifndef METAD_STATE_CMD_H
#define METAD_STATE_CMD_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/cursor.h"
#include "metad/state/keys.h"
#include "metad/state/rows.h"
#include "metad/state/session.h"

enum state_cmd_type {
	STATE_CMD_FORMAT = 1, /* the first of a log: makes the root */
	STATE_CMD_TICK = 2,   /* time went on: the floor may pass ranges */
	STATE_CMD_MKDIR = 3,
	STATE_CMD_REMOVE = 4,
	STATE_CMD_RENAME = 5,
	STATE_CMD_SETATTR = 6,
	STATE_CMD_POLICY = 7,
	STATE_CMD_CREATE = 8,
	STATE_CMD_COMMIT = 9,
	STATE_CMD_ABORT = 10,
	STATE_CMD_RESERVE = 11, /* a range of block ids */
	STATE_CMD_REGISTER = 12,
	STATE_CMD_SERVER_DOWN = 13, /* a server fell silent or said goodbye; it comes back by registering */
	STATE_CMD_DISK_FAILED = 14,
	STATE_CMD_CONFIRM = 15, /* a disk has shown that it knows its generation */
	STATE_CMD_TOKEN_ROLL = 16,
	STATE_CMD_RAISE = 17,        /* the cluster version: apply follows the rules of the new one from here on */
	STATE_CMD_MAINTENANCE = 100, /* a server may be away for a while */
	STATE_CMD_RESTORED = 101,    /* the first entry after the rows of a backup, or of a group that was forced (metad/force.h) */
	STATE_CMD_CONFIG_SET = 64,
	STATE_CMD_INTENT = 65,       /* begin of a rebuild or move */
	STATE_CMD_INTENT_END = 66,   /* it is given up */
	STATE_CMD_LOCATION = 67,     /* its copy becomes the block's chunk */
	STATE_CMD_DAMAGED = 69,      /* a disk has confirmed that a copy is corrupt */
	STATE_CMD_TAKE_OUT = 70,     /* the chunks of a disk are to be rebuilt elsewhere */
	STATE_CMD_GC = 48,           /* a step over files without a name */
	STATE_CMD_DROPPED = 49,      /* a chunk server has dropped copies, durably */
	STATE_CMD_ORPHANS = 50,      /* copies on a disk that no row names */
	STATE_CMD_MISSING = 51,      /* copies that rows name and the disk has not */
	STATE_CMD_FORGET_DROPS = 52, /* drop rows of a disk that does not come back */

	/* 32 - 63: sessions, and what came to files with them */
	STATE_CMD_SESSION_OPEN = 32,
	STATE_CMD_SESSION_END = 33, /* its client said goodbye, or fell silent */
	STATE_CMD_RELEASE = 34,     /* orphans that nobody has open: to be collected */
	STATE_CMD_OPEN_WRITE = 35,  /* as create; a file that exists stays, its lease is taken over */
	STATE_CMD_COMMIT_TAIL = 36, /* a commit that brings bytes itself */
	STATE_CMD_LINK = 37,
	STATE_CMD_SYMLINK = 38,
	STATE_CMD_XATTR_SET = 39,
	STATE_CMD_XATTR_REMOVE = 40,
	STATE_CMD_TRUNCATE = 41,
};

/*
 * The cluster version: by which rules entries are applied. It is in the meta row and rises by RAISE only; apply looks at the row and
 * never at what this binary could do. A rule, a command or a setting that is changed, or new, gets the next number and holds only
 * in a state that has been raised to it: a log written by an older build gives the same rows as it gave there. tests/golden/state-N.bin
 * is a log of version N with the rows that it gives.
 *
 *  1: not gated: several builds, with different rules; none of them can be known from the log. Its rows are taken, its entries are not.
 *  2: the first that is.
 *  3: the setting disk.damage_limit.
 *  4: the meta row has a version that builds from before 2, which do not look at the cluster version, refuse.
 *  5: a registration says which disks have failed, and a disk that its server has come back without may be taken out.
 *  6: such a disk keeps the time when that was first so, however often its server comes back.
 *  7: the meta row has the digest of all changes since (state_digest): what is written in which order is part of the rules from here on.
 *  8: no other rules: all members of the group stamp their letters (metad/raft_stamps.h), and none is taken without a stamp.
 */
enum {
	STATE_ENTRY_VERSION = 1,
	STATE_CLUSTER_OLDEST = 2,  /* whose rules this binary has */
	STATE_CLUSTER_VERSION = 8, /* the greatest that it supports: to which it raises a cluster */
	STATE_CLUSTER_UNSAID = 6,  /* that all builds support that know groups; those whose letters do not say more are taken at that */
	STATE_CLUSTER_GATED = 4,    /* from which on builds refuse the meta row that do not look at the cluster version */
	STATE_CLUSTER_LEFT_OUT = 5, /* from which on state_disk_left_out may hold */
	STATE_CLUSTER_LEFT_ONCE = 6, /* from which on state_disk.left may be set */
	STATE_CLUSTER_DIGEST = 7, /* from which on there is state_meta.digest */
	STATE_CLUSTER_STAMPS = 8,
	STATE_ENTRY_HEADER_BYTES = 16,
	STATE_CMD_HEADER_BYTES = 8,
	STATE_COPIES = 256, /* of one command about copies */
	STATE_CMD_REQUEST = 1, /* flag: session (8), number (8), ahead (1) stand before the body */
};

/* Numbers of craton.h's CR_SET_*. */
enum { STATE_SET_MODE = 1, STATE_SET_UID = 2, STATE_SET_GID = 4, STATE_SET_MTIME = 8 };

struct state_path {
	uint64_t parent;
	struct slice path;
};

struct state_cmd_format {
	struct uuid cluster;
	struct state_policy policy;
	uint8_t salt[STATE_SALT_BYTES]; /* of the first token key */
	int64_t now_ns;
};

struct state_cmd_mkdir {
	struct state_path at;
	uint32_t mode, uid, gid;
	int64_t now_ns;
	bool parents;
};

struct state_cmd_remove {
	struct state_path at;
	int64_t now_ns;
	bool directory;
};

struct state_cmd_rename {
	struct state_path from, to;
	int64_t now_ns;
	bool noreplace;
};

struct state_cmd_setattr {
	struct state_path at;
	uint32_t mask, mode, uid, gid;
	int64_t mtime_ns, now_ns;
};

struct state_cmd_policy {
	struct state_path at;
	struct state_policy policy; /* id 0: back to inheriting */
};

struct state_cmd_create {
	struct state_path at;
	uint32_t mode, uid, gid;
	int64_t now_ns;
	bool exclusive, hidden;
};

struct state_receipt {
	uint8_t index;
	uint32_t disk, incarnation;
	uint64_t generation;
};

struct state_commit_block {
	uint64_t block;
	uint8_t policy;
	uint8_t width; /* of crcs and intended: k + m of the policy */
	uint8_t receipt_count;
	uint32_t cell_bytes;
	uint64_t length, file_offset;
	uint32_t crcs[LIMIT_WIDTH];
	uint32_t intended[LIMIT_WIDTH]; /* disk of a chunk without receipt, or 0 */
	struct state_receipt receipts[LIMIT_WIDTH];
};

struct state_cmd_commit {
	uint64_t inode, epoch;
	uint64_t size;
	int64_t now_ns;
	bool complete;
	uint64_t tail_offset;
	struct slice tail; /* COMMIT_TAIL only: the file's tail from now on, all of it */
	uint32_t block_count;
	struct state_commit_block blocks[LIMIT_COMMIT_BLOCKS];
};

struct state_cmd_abort {
	uint64_t inode, epoch;
};

struct state_cmd_reserve {
	uint64_t count;
};

struct state_register_disk {
	struct uuid uuid;
	uint32_t disk;       /* as the disk says; 0: never registered */
	uint64_t generation; /* as the disk says */
	uint64_t capacity_bytes;
	uint8_t storage_class;
	uint8_t salt[STATE_SALT_BYTES];
	struct slice path;
	bool failed; /* it takes part, and is not taken back */
};

struct state_cmd_register {
	struct uuid uuid; /* of the server */
	struct slice name, address, domain, version;
	uint32_t disk_count;
	struct state_register_disk disks[LIMIT_DISKS_PER_SERVER];
};

struct state_cmd_server_down {
	uint32_t server;
};

struct state_cmd_disk_failed {
	uint32_t disk;
	uint64_t generation;
	struct slice error;
};

struct state_cmd_confirm {
	uint32_t disk;
	uint64_t generation;
};

struct state_cmd_token_roll {
	uint8_t salt[STATE_SALT_BYTES];
};

struct state_cmd_raise {
	uint16_t version;
};

struct state_cmd_maintenance {
	uint32_t server;
	uint64_t for_ms; /* from now on; 0: no more */
};

struct state_cmd_restored {
	uint8_t salt[STATE_SALT_BYTES]; /* of the new token key */
	uint32_t seen;                  /* restores that the disks know of; 0: no more than the backup */
};

struct state_cmd_config_set {
	struct slice name;
	uint64_t value;
};

struct state_cmd_intent {
	uint64_t block;
	uint8_t index;
	uint8_t cause; /* enum state_cause */
	uint32_t disk; /* that shall hold it */
	uint32_t version; /* of the block's row, on which this was decided */
};

struct state_cmd_intent_end {
	uint64_t block;
	uint8_t index;
	uint32_t incarnation;
};

/* LOCATION: a sealed copy whose receipt the leader has verified; the receipt's CRC is compared with the proof. */
struct state_cmd_sealed {
	uint64_t block;
	uint32_t version; /* of the block's row, on which this was decided */
	uint32_t crc;
	struct state_receipt receipt;
};

struct state_cmd_damaged {
	uint64_t block;
	uint8_t index;
	uint32_t disk, incarnation;
};

struct state_cmd_take_out {
	uint32_t disk;
};

struct state_cmd_gc {
	uint8_t table;      /* STATE_TABLE_GC, _GC_CUT, _GC_BLOCK or _BLOCK_GONE */
	uint64_t from;      /* inode or block: rows at and behind it */
	uint64_t before_ms; /* whose state time is no later than this */
};

struct state_cmd_forget_drops {
	uint32_t disk;
	uint64_t from; /* block: rows at and behind it */
};

/* DROPPED, ORPHANS, MISSING */
struct state_cmd_copies {
	uint32_t disk;
	uint64_t generation; /* that the disk spoke in */
	uint32_t count;
	struct state_copy copies[STATE_COPIES];
};

struct state_cmd_session_open {
	uint64_t secret;
	struct slice name; /* of the client, for people */
};

struct state_cmd_session_end {
	uint64_t session;
};

enum { STATE_RELEASE_MAX = 256 };
struct state_cmd_release {
	uint32_t count;
	struct {
		uint64_t time_ms, inode;
	} orphans[STATE_RELEASE_MAX];
};

struct state_cmd_link {
	struct state_path from, to;
	int64_t now_ns;
};

struct state_cmd_symlink {
	struct state_path at;
	struct slice target;
	uint32_t uid, gid;
	int64_t now_ns;
};

/* Numbers of craton.h's CR_XATTR_*. */
enum { STATE_XATTR_CREATE = 1, STATE_XATTR_REPLACE = 2 };
struct state_cmd_xattr {
	struct state_path at;
	struct slice name, value;
	uint8_t flags;
	int64_t now_ns;
};

struct state_cmd_truncate {
	struct state_path at;
	uint64_t size;
	int64_t now_ns;
};

struct state_cmd {
	uint16_t type; /* enum state_cmd_type */
	struct state_request request;
	union {
		struct state_cmd_format format;
		struct state_cmd_mkdir mkdir;
		struct state_cmd_remove remove;
		struct state_cmd_rename rename;
		struct state_cmd_setattr setattr;
		struct state_cmd_policy policy;
		struct state_cmd_create create;
		struct state_cmd_commit commit;
		struct state_cmd_abort abort;
		struct state_cmd_reserve reserve;
		struct state_cmd_register register_;
		struct state_cmd_server_down server_down;
		struct state_cmd_disk_failed disk_failed;
		struct state_cmd_confirm confirm;
		struct state_cmd_token_roll token_roll;
		struct state_cmd_raise raise;
		struct state_cmd_maintenance maintenance;
		struct state_cmd_restored restored;
		struct state_cmd_config_set config_set;
		struct state_cmd_intent intent;
		struct state_cmd_intent_end intent_end;
		struct state_cmd_sealed sealed;
		struct state_cmd_damaged damaged;
		struct state_cmd_take_out take_out;
		struct state_cmd_gc gc;
		struct state_cmd_copies copies;
		struct state_cmd_forget_drops forget_drops;
		struct state_cmd_session_open session_open;
		struct state_cmd_session_end session_end;
		struct state_cmd_release release;
		struct state_cmd_link link;
		struct state_cmd_symlink symlink;
		struct state_cmd_xattr xattr;
		struct state_cmd_truncate truncate;
	};
};

struct state_entry {
	uint16_t cluster_version; /* of the state that it is applied to; of the first entry: of the new state */
	uint64_t time_ms;
	uint32_t count;
};

/* A header is written over the first STATE_ENTRY_HEADER_BYTES when the entry is closed. */
void state_entry_encode(const struct state_entry *entry, uint8_t out[STATE_ENTRY_HEADER_BYTES]);
int state_entry_decode(struct rcursor *r, struct state_entry *ret_entry); /* ERR_CORRUPT, ERR_VERSION */

/* Appends header and body; sets w->failed (and leaves garbage behind w->len as it was) if there is no room. */
void state_cmd_encode(const struct state_cmd *cmd, struct wcursor *w);
/* ERR_CORRUPT, ERR_VERSION. */
int state_cmd_decode(struct rcursor *r, struct state_cmd *ret_cmd);

#endif
