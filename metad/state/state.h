/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state: the replicated state machine of metad: commands in, rows changed, results out. Pure over kv.h: no clock, no
 * randomness, no I/O of its own; the same entries over the same table give the same table, in every replica and at
 * every replay.
 *
 * Rules that every command keeps:
 *  - it checks everything first and writes afterwards: a refused command has changed nothing;
 *  - it changes at most STATE_COMMAND_ROWS rows;
 *  - bad input is a result (an err code). A row that cannot be decoded, or that must be there and is not, is no
 *    result: it sets `fault` and the replica stops with that text.
 *
 * What a command reads often is kept decoded in memory beside the table: the meta row, sessions and directories (written
 * back once an entry), disks, servers and domains. These copies are derived: state_open reads them from the table, commands change both.
 */
#ifndef METAD_STATE_STATE_H
#define METAD_STATE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/code/stripe.h"
#include "common/base/map.h"
#include "common/kv/kv.h"
#include "metad/state/cmd.h"
#include "metad/state/config.h"
#include "metad/state/keys.h"
#include "metad/state/rows.h"

enum {
	STATE_COMMAND_ROWS = 1024,
	STATE_ENTRY_OWN_ROWS = 1, /* beside those of its commands: the meta row */
	STATE_FORGET_DROPS = 512, /* drop rows that one command forgets */
	STATE_DROPS_KEPT_MS = 24 * 3600 *
		1000, /* for a disk that was taken out: longer, and its copies are orphans if it comes back */
	STATE_ROW_MEMORY_BYTES =
		512, /* that a row takes in the table's memory, but for bytes that came with the command: the longest key and name */
	STATE_SERVERS = LIMIT_DISKS, /* ids are never reused: registrations of a cluster's life */
	STATE_FLOOR_DELAY_MS = 60 * 1000 + LIMIT_TOKEN_LIFE_MS + 5 * 60 * 1000, /* after a range's reservation */
	STATE_RANGE_ISSUE_MS = 60 * 1000,            /* a leader gives ids of a range only this long */
	STATE_TICK_RANGES = 256,                     /* that one tick may pass */
	STATE_WALK_MAX = 4096,                       /* directories between a directory and the root */
	STATE_MAINTENANCE_MAX_MS = 24 * 3600 * 1000, /* longer is no maintenance: the chunks want to be elsewhere */
	STATE_RESTORE_GENERATION_SHIFT = 32,         /* 4 billion registrations of a disk between two restores */
	STATE_RESTORE_INCARNATION_SHIFT = 24,        /* 16 million moves of a block */
	STATE_RESTORE_EPOCH_SHIFT = 32,              /* 4 billion writers of a file */
	STATE_RESTORES = 255,                        /* as many as incarnations have room for */
	STATE_INTENTS = 1024,         /* rebuilds and moves under way at once, kept in memory too: four times more than
					     a cluster of this version's size keeps busy */
	STATE_GC_READ_MS = 60 * 1000, /* a file without a name stays readable this long for who has it open */
};

/* Width 15: a block row, an extent row, 15 rows of the reverse index that follow from it; the inode, and what publishing touches. */
_Static_assert(
	LIMIT_COMMIT_BLOCKS *(2 + LIMIT_WIDTH) + 8 <= STATE_COMMAND_ROWS, "a commit stays within a command's rows");
_Static_assert(LIMIT_DISKS_PER_SERVER * 2 + 8 <= STATE_COMMAND_ROWS, "a registration stays within a command's rows");
_Static_assert(STATE_END_LEASES * 4 + 2 <= STATE_COMMAND_ROWS, "a session's end stays within a command's rows");
_Static_assert(STATE_RELEASE_MAX * 2 <= STATE_COMMAND_ROWS, "a release stays within a command's rows");
_Static_assert(LIMIT_CUT_EXTENTS * 4 + 8 <= STATE_COMMAND_ROWS, "a truncation stays within a command's rows");
_Static_assert(LIMIT_PATH_DEPTH * 3 <= STATE_COMMAND_ROWS, "mkdir -p stays within a command's rows");

/* Ids given in the time that a restore does not know: a hundred million a day for thirty years, and 255 times that fits 48 bits. */
#define STATE_RESTORE_JUMP ((uint64_t)1 << 40)

struct state_domain {
	uint32_t id;
	char name[STATE_TEXT_BYTES];
};

/* Block ids in [from, to): none of them has a row of some kind. */
struct state_gap {
	uint64_t from, to;
};

struct state {
	struct kv *kv;
	uint16_t supports; /* the greatest cluster version that is applied here */
	bool formatted; /* the meta row exists */
	bool meta_dirty;
	struct state_meta meta;
	struct err fault; /* sticky: the table is damaged */

	/* by id, 1 .. next - 1; NULL before the first */
	struct state_disk *disks;
	struct state_server *servers;
	struct state_domain *domains;
	uint32_t disk_cap, server_cap, domain_cap;
	uint64_t config[CONFIG_COUNT];
	struct state_restore restore; /* count 0: there is no row */
	struct state_intent *intents; /* STATE_INTENTS, in no order */
	uint32_t intent_count;
	struct map intent_of; /* block -> where it lies in `intents` */

	struct map sessions; /* id -> struct state_session */
	struct list sessions_dirty;
	uint8_t session_row[STATE_SESSION_ROW_BYTES]; /* scratch */
	uint8_t tail_row[1 + LIMIT_TAIL_BYTES];       /* scratch, of tails and attributes */

	struct state_gap gone_gap; /* of BLOCK_GONE rows: the one found last */
	struct state_dirs *dirs;
	struct state_attrs *attrs;

	/* count changes since the process started: caches of status and placement watch them */
	uint64_t fleet_version, blocks_version;
	uint64_t sessions_ended; /* since the process started: who waits for a writer's end looks again */

	uint64_t rows_changed; /* since the process started */

	struct state_cmd cmd;         /* the one being applied */
	struct state_inode inodes[4]; /* scratch of the commands: too big for a comfortable stack */
	struct state_block blocks[LIMIT_COMMIT_BLOCKS + 1];
};

struct state_attr {
	uint64_t inode;
	uint8_t type;
	bool complete;
	uint32_t mode, uid, gid, nlink;
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
};

struct state_block_result {
	uint64_t block;
	int status;
	uint16_t not_counted; /* bit by index */
};

struct state_disk_result {
	uint32_t disk;
	uint64_t generation;
	int status;
	const uint8_t *salt; /* STATE_SALT_BYTES, of the disk */
};

/* What a command has to say. Valid during the callback only. */
struct state_result {
	int status;
	struct state_attr attr;
	uint64_t parent; /* of attr, where a name led to it */
	uint64_t epoch;
	struct state_policy policy;
	bool policy_own;
	uint64_t first_block; /* RESERVE */
	uint64_t range_time_ms;
	uint64_t session; /* SESSION_OPEN */
	bool more;       /* SESSION_END: to be sent again */
	uint32_t server; /* REGISTER; MAINTENANCE: the one that is in the way */
	uint64_t until_ms; /* MAINTENANCE */
	uint32_t count;  /* of blocks, disks or copies */
	uint32_t incarnation; /* INTENT */
	uint64_t next;        /* GC, FORGET_DROPS: id to go on from */
	union {
		struct state_block_result blocks[LIMIT_COMMIT_BLOCKS];
		struct state_disk_result disks[LIMIT_DISKS_PER_SERVER];
	};
};

/* Reads the derived copies; an empty table is a state that is not formatted. Returns fault's code. */
int state_open(struct state *s, struct kv *kv);
/* As a build that supports no cluster version above this one. */
int state_open_as(struct state *s, struct kv *kv, uint16_t supports);
void state_close(struct state *s);

/*
 * Applies one entry. `result` (may be NULL: replay) is called for each command in order. Returns 0, or a failure of the
 * replica: ERR_VERSION, ERR_CORRUPT, with a text in `err`.
 */
typedef void state_result_fn(
	void *ctx, uint32_t number, const struct state_cmd *cmd, const struct state_result *result);
int state_apply(struct state *s, struct slice entry, state_result_fn *result, void *ctx, struct err *err);

/* The most rows of STATE_ROW_MEMORY_BYTES that the command may change, but for the meta row and that of its session. */
uint32_t state_cmd_rows(const struct state_cmd *cmd);
/* The most rows of the reverse index that follow from them (reverse.c) and that state_cmd_rows does not count. */
uint32_t state_cmd_derived_rows(const struct state_cmd *cmd);
/* As how many of them the row of its session counts, which grows by the replies that its client still waits for. */
uint32_t state_session_rows(const struct state *s, const struct state_request *request);
/*
 * Of every change of a row that entries have made since the cluster version that has it, in order: replicas that have applied the same entries have the
 * same. It is a part of the rows: it goes on over restarts, and with snapshots. False: the cluster version has none.
 */
bool state_digest(const struct state *s, uint32_t *ret_digest);
/* The most rows that apply of this entry writes, all of these together. What is malformed is for apply to say. */
uint64_t state_entry_rows(struct state *s, struct slice bytes);

/*
 * 0, or why nothing that was read since may be believed: the table failed, or a row was damaged. Whoever answers a read
 * looks first.
 */
int state_failure(struct state *s, struct err *err);

/* ---- reads; results are err codes; after any of them state_failure may tell of more ---- */

/* ERR_INVAL, ERR_NAMETOOLONG: what no path may look like. Needs no state. */
int state_path_check(struct slice path);
int state_lookup(struct state *s, const struct state_path *at, struct state_inode *ret_inode, uint64_t *ret_parent);
int state_inode_get(struct state *s, uint64_t id, struct state_inode *ret_inode); /* ERR_NOENT */
void state_inode_attr(const struct state_inode *inode, struct state_attr *ret_attr);
/* As state_lookup and state_inode_get, for who wants to know no more than attributes. */
int state_lookup_attr(struct state *s, const struct state_path *at, struct state_attr *ret_attr, uint64_t *ret_parent);
int state_attr_get(struct state *s, uint64_t id, struct state_attr *ret_attr);
/* Own policy of a file or directory, or the one of its nearest parent that has one. */
int state_policy_get(struct state *s, const struct state_inode *inode, struct state_policy *ret_policy, bool *ret_own);
/* The first entry behind `after` (empty: the first of all). ERR_NOENT: no more. */
struct state_listing {
	struct kv_scan scan;
	uint64_t dir;
	struct slice name;
	struct state_dirent dirent;
};
int state_list_begin(struct state *s, uint64_t dir, struct slice after, struct state_listing *ret_listing);
int state_list_next(struct state *s, struct state_listing *listing);
void state_list_end(struct state_listing *listing);
/* The first extent that covers or follows `offset`. ERR_NOENT: none. */
int state_extent_get(struct state *s, uint64_t inode, uint64_t offset, struct state_extent *ret_extent);
int state_block_get(struct state *s, uint64_t id, struct state_block *ret_block); /* ERR_NOENT */
/* The file's bytes [tail_offset, tail_offset + tail_bytes), or a link's target, as long as kv_get's. ERR_NOENT: none. */
int state_tail_get(struct state *s, const struct state_inode *inode, struct slice *ret_bytes);
/* ERR_NOENT: the inode has no attribute of that name. The value is valid as kv_get's. */
int state_xattr_get(struct state *s, uint64_t inode, struct slice name, struct slice *ret_value);
/* Calls `each` with every attribute's name; they are valid during the call. */
void state_xattr_list(struct state *s, uint64_t inode, void (*each)(void *ctx, struct slice name), void *ctx);
uint64_t state_block_raw_bytes(const struct state_block *block); /* of its chunks that are present */
/* May this epoch still write? 0, ERR_STALE, ERR_FENCED, ERR_ISDIR. *ret_inode is set whenever the inode exists. */
int state_writer_check(struct state *s, uint64_t inode, uint64_t epoch, struct state_inode *ret_inode);
/* State time at which the floor may next rise; 0: no id is above it. */
uint64_t state_floor_due_ms(struct state *s);
/* Bytes of a chunk as it lies on a disk, trailer apart; 0: it does not exist. */
uint64_t state_chunk_bytes(const struct state_block *row, uint8_t index);

/* ---- reverse.c ---- */
/* For the table that a state lies in: without it, and over a table that was ever written without it, walks miss blocks. */
extern const struct kv_derived state_reverse;
/*
 * The blocks with ids in [from, to) that have chunks on the disk, by id, with their rows. Always to be ended; ends like a scan. It looks at
 * `most` blocks, which bounds its time: also at such as lie elsewhere, or nowhere any more, and are not committed to the table yet.
 */
struct state_reverse_walk {
	uint64_t next;   /* behind the last one: `to`, or the block to go on from */
	struct state *s; /* private from here */
	uint32_t looked, most;
	struct kv_scan committed, recent;
	uint32_t disk;
	uint64_t to;
};
void state_reverse_begin(
	struct state *s, uint32_t disk, uint64_t from, uint64_t to, uint32_t most, struct state_reverse_walk *ret_walk);
/* Likewise of those that the committed table names: nothing written in the last moments is looked at, on whatever disk it lies. */
void state_reverse_begin_committed(
	struct state *s, uint32_t disk, uint64_t from, uint64_t to, uint32_t most, struct state_reverse_walk *ret_walk);
bool state_reverse_next(struct state_reverse_walk *walk, struct state_block *ret_row);
void state_reverse_end(struct state_reverse_walk *walk);

/* ---- maintenance.c ---- */
bool state_in_maintenance(const struct state *s, uint32_t server);

/* ---- restore.c ---- */
/* May this id have been given in a time that is not known here? Nothing is committed or added under it. */
bool state_restore_closed(const struct state *s, uint64_t block);
/* State time for which copies that no row names are still kept: they are no garbage until then. 0: none. */
uint64_t state_restore_hold_ms(const struct state *s);
/* Is the older one of the token keys from before the restore? Once the newer one is known everywhere, it is to go. */
bool state_restore_keys_old(const struct state *s);
/* Disks may have been given generations up to here; greater ones are this restore's. */
uint64_t state_restore_generation(const struct state *s);
/* The same of incarnations of moves and rebuilds. */
uint32_t state_restore_incarnation(const struct state *s);
/* The same of epochs of writers: none up to here may commit. */
uint64_t state_restore_epoch(const struct state *s);
/* Do the numbers reach so far once more, when the disks have seen `seen` restores? If not, it cannot be restored. */
bool state_restore_possible(const struct state_meta *meta, const struct state_restore *row, uint32_t seen);
/* How many restores there are with the next one. */
uint32_t state_restore_next(const struct state_restore *row, uint32_t seen);
/* Was the session opened before the last restore? Its client is to begin anew. */
bool state_restore_lost(const struct state *s, uint64_t session);

bool state_policy_valid(const struct state_policy *policy);

/* The first id >= from with a row in that gc table no younger than before_ms. ERR_NOENT: none; ERR_AGAIN: not so far, go
 * on from *ret_id. *soonest_ms becomes the time of a row that was passed, if that is earlier. */
int state_gc_find(struct state *s, uint8_t table, uint64_t from, uint64_t before_ms, uint64_t *ret_id, uint64_t *soonest_ms);
bool state_gc_table(uint8_t table);
/* Does a block's row name this copy, be it there or only promised? A copy that none names is an orphan. */
bool state_copy_named(struct state *s, uint32_t disk, const struct state_copy *copy);
int state_drop_get(
	struct state *s, uint32_t disk, const struct state_copy *copy, struct state_drop *ret_drop); /* ERR_NOENT */
/* Is the disk gone for so long that the drop rows of block ids below the floor are not kept for it? */
bool state_drops_forgotten(const struct state *s, const struct state_disk *disk);
/* Drop rows of a disk, from a copy on. ERR_NOENT: no more. Always to be ended. */
struct state_drop_list {
	struct kv_scan scan;
	uint32_t disk;
	bool started;
	struct state_copy copy;
	struct state_drop drop;
};
int state_drop_begin(struct state *s, uint32_t disk, const struct state_copy *from, struct state_drop_list *ret_list);
int state_drop_next(struct state *s, struct state_drop_list *list);
void state_drop_end(struct state_drop_list *list);

/* NULL if there is none. */
const struct state_disk *state_disk_at(const struct state *s, uint32_t id);
const struct state_server *state_server_at(const struct state *s, uint32_t id);
const struct state_domain *state_domain_at(const struct state *s, uint32_t id);
const struct state_server *state_server_by_uuid(const struct state *s, const struct uuid *uuid);
/* Has the disk been given a generation that this state does not know of? Then the disk knows more than the state. */
bool state_disk_ahead(struct state *s, const struct uuid *uuid, uint64_t generation);
/* Is another server than the one of `uuid` up under this name? */
bool state_name_taken(const struct state *s, const struct uuid *uuid, struct slice name);
/* Its copies count in margins: up or draining, at a server that is up. */
bool state_disk_counts(const struct state *s, uint32_t disk);
/* Has it registered since the last restore? Before that it takes nothing new: it would not know which restore it is of. */
bool state_disk_knows(const struct state *s, const struct state_disk *disk);
/* Its server is up, or was, and did not name it when it registered last: TAKE_OUT may take it while the server is up, too. */
bool state_disk_left_out(const struct state *s, const struct state_disk *disk);
/* State time from which on its failure domain may lose a disk to TAKE_OUT. */
uint64_t state_take_out_at(const struct state *s, const struct state_disk *disk);
/* Of a block, by any of its indices (at most one is rebuilt or moved at a time); NULL if there is none. */
const struct state_intent *state_intent_of(const struct state *s, uint64_t block);
/* Is it from before the last restore? Its copy may have been published since: it is given up without a drop row. */
bool state_intent_lost(const struct state *s, const struct state_intent *intent);

/* ---- shared inside the module ---- */

void state__fault(struct state *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void state__put(struct state *s, const struct state_key *key, const uint8_t *value, size_t len);
void state__del(struct state *s, const struct state_key *key);
int state__get(struct state *s, const struct state_key *key, struct slice *ret_value);
void state__inode_put(struct state *s, const struct state_inode *inode); /* of a directory: in the table when the entry ends */
void state__inode_write(struct state *s, const struct state_inode *inode);
void state__disk_put(struct state *s, const struct state_disk *disk);
void state__server_put(struct state *s, const struct state_server *server);
struct state_disk *state__disk_edit(struct state *s, uint32_t id);
void state__domain_put(struct state *s, const struct state_domain *domain);

/* A path resolved up to its last component. */
struct state__spot {
	struct state_inode *dir;    /* caller's memory */
	struct slice name;          /* empty: the path is "", dir is the thing itself (and may be a file) */
	struct state_dirent dirent; /* if found */
	bool found;
};
int state__walk(struct state *s, const struct state_path *at, struct state__spot *spot);
int state__dirent_get(struct state *s, uint64_t dir, struct slice name, struct state_dirent *ret_dirent);
void state__dirent_put(struct state *s, uint64_t dir, struct slice name, uint64_t inode, uint8_t type);
void state__dirent_del(struct state *s, uint64_t dir, struct slice name);
/* A file has lost its last name: nothing leads to it any more. Its lease, if any, goes with it. */
void state__file_drop(struct state *s, struct state_inode *file, uint8_t why, int64_t now_ns);
/* A file or link has lost one of its names, perhaps the last one. */
void state__name_lost(struct state *s, struct state_inode *file, uint8_t why, int64_t now_ns);
/* The inode behind a name that was found; a fault if it is not there. */
int state__named(struct state *s, const struct state_dirent *dirent, struct state_inode *ret_inode);
/* The command's session has the file open for writing from now on. The caller raises the epoch and puts the row. */
void state__lease_take(struct state *s, struct state_inode *file);
void state__lease_drop(struct state *s, struct state_inode *file); /* if there is one */
/* The next epoch of the file: whoever wrote to it before is fenced. The caller puts the row. */
void state__epoch_raise(const struct state *s, struct state_inode *file);
/* One of a session that ends: what has no name goes, the rest can be opened by others. 0, or the fault's code. */
int state__lease_give_up(struct state *s, struct state_session *session);
void state__xattrs_drop(struct state *s, uint64_t inode); /* all rows; LIMIT_XATTRS at most */
/* The tail row is what is given; no bytes: there is none. The caller keeps the inode's fields. */
void state__tail_put(struct state *s, const struct state_inode *inode, struct slice bytes);
/*
 * Takes extents that begin at or behind `offset` away from the file, and shortens the one that covers it, at most
 * LIMIT_CUT_EXTENTS in all. True: none is left there. The caller puts the file's row.
 */
bool state__cut(struct state *s, struct state_inode *file, uint64_t offset);
/* The same as a step of a truncation whose size the row has already: the gc_cut row comes, stays or goes with what is
 * left. Puts the file's row. True: done. */
bool state__cut_step(struct state *s, struct state_inode *file, uint64_t offset);
/* The last rows of an inode whose extents are gone. */
void state__inode_forget(struct state *s, const struct state_inode *inode);
/* One name of `dir` came (+1) or went (-1); the caller writes the row. */
void state__dir_touch(struct state_inode *dir, int entries, int subdirs, int64_t now_ns);

void state__format(struct state *s, const struct state_cmd_format *cmd, struct state_result *res);
void state__tick(struct state *s, struct state_result *res);
void state__mkdir(struct state *s, const struct state_cmd_mkdir *cmd, struct state_result *res);
void state__remove(struct state *s, const struct state_cmd_remove *cmd, struct state_result *res);
void state__rename(struct state *s, const struct state_cmd_rename *cmd, struct state_result *res);
void state__setattr(struct state *s, const struct state_cmd_setattr *cmd, struct state_result *res);
void state__policy(struct state *s, const struct state_cmd_policy *cmd, struct state_result *res);
void state__create(struct state *s, const struct state_cmd_create *cmd, struct state_result *res);
void state__commit(struct state *s, const struct state_cmd_commit *cmd, struct state_result *res);
void state__abort(struct state *s, const struct state_cmd_abort *cmd, struct state_result *res);
void state__reserve(struct state *s, const struct state_cmd_reserve *cmd, struct state_result *res);
void state__register(struct state *s, const struct state_cmd_register *cmd, struct state_result *res);
void state__server_down(struct state *s, const struct state_cmd_server_down *cmd, struct state_result *res);
void state__disk_failed(struct state *s, const struct state_cmd_disk_failed *cmd, struct state_result *res);
void state__confirm(struct state *s, const struct state_cmd_confirm *cmd, struct state_result *res);
void state__token_roll(struct state *s, const struct state_cmd_token_roll *cmd, struct state_result *res);
void state__block_put(struct state *s, const struct state_block *row);
/* The least of these servers any disk of which has a chunk; 0: none. Looks at all recent rows of blocks, once: not for each request. */
uint32_t state__first_holder(struct state *s, const bool asked[STATE_SERVERS]);
/* The most chunks of the block that one domain holds. */
uint32_t state__most_in_a_domain(const struct state *s, const struct state_block *row, bool *ret_crowded);
/* A chunk of the block came or went: its file's raw bytes count what is there. */
void state__raw_bytes_count(struct state *s, const struct state_block *row, uint8_t index, bool came);
struct stripe_geom state__geom(const struct state_block *row);

void state__intents_open(struct state *s);
/* The block's row is about to go. */
void state__intents_drop(struct state *s, uint64_t block);
void state__intent(struct state *s, const struct state_cmd_intent *cmd, struct state_result *res);
void state__intent_end(struct state *s, const struct state_cmd_intent_end *cmd, struct state_result *res);
void state__location(struct state *s, const struct state_cmd_sealed *cmd, struct state_result *res);
void state__damaged(struct state *s, const struct state_cmd_damaged *cmd, struct state_result *res);
void state__take_out(struct state *s, const struct state_cmd_take_out *cmd, struct state_result *res);
void state__config_open(struct state *s);
void state__token_keys_roll(struct state *s, const uint8_t salt[STATE_SALT_BYTES]);
void state__restore_open(struct state *s);
void state__maintenance_open(struct state *s);
/* The windows of the backup are over; their rows stay and count for nothing. */
void state__maintenance_restored(struct state *s);
void state__maintenance(struct state *s, const struct state_cmd_maintenance *cmd, struct state_result *res);
void state__raise(struct state *s, const struct state_cmd_raise *cmd, struct state_result *res);
void state__restored(struct state *s, const struct state_cmd_restored *cmd, struct state_result *res);
void state__config_set(struct state *s, const struct state_cmd_config_set *cmd, struct state_result *res);
void state__gc(struct state *s, const struct state_cmd_gc *cmd, struct state_result *res);
void state__dropped(struct state *s, const struct state_cmd_copies *cmd, struct state_result *res);
void state__orphans(struct state *s, const struct state_cmd_copies *cmd, struct state_result *res);
void state__missing(struct state *s, const struct state_cmd_copies *cmd, struct state_result *res);
void state__forget_drops(struct state *s, const struct state_cmd_forget_drops *cmd, struct state_result *res);

/* gc.c, for whoever takes extents or chunks away: */
/* One extent fewer names the block; the last one takes its row away and leaves drop rows. Returns the raw bytes that went
 * from the block to drop rows; adds the rows changed to *rows, at most 2 + 2 * LIMIT_WIDTH. Uses s->blocks[0]. */
uint64_t state__block_unref(struct state *s, uint64_t id, uint64_t *rows);
/* Has the block's row gone, so that nothing may come under its id again? Asked above the floor. */
bool state__block_gone(struct state *s, uint64_t id);
/* A copy that no row names any more; bytes as of state_chunk_bytes, 0: unknown. */
void state__drop_put(struct state *s, uint32_t disk, const struct state_copy *copy, uint64_t bytes);
void state__session_open(struct state *s, const struct state_cmd_session_open *cmd, struct state_result *res);
void state__session_end(struct state *s, const struct state_cmd_session_end *cmd, struct state_result *res);
void state__release(struct state *s, const struct state_cmd_release *cmd, struct state_result *res);
void state__open_write(struct state *s, const struct state_cmd_create *cmd, struct state_result *res);
void state__link(struct state *s, const struct state_cmd_link *cmd, struct state_result *res);
void state__symlink(struct state *s, const struct state_cmd_symlink *cmd, struct state_result *res);
void state__xattr_set(struct state *s, const struct state_cmd_xattr *cmd, struct state_result *res);
void state__xattr_remove(struct state *s, const struct state_cmd_xattr *cmd, struct state_result *res);
void state__truncate(struct state *s, const struct state_cmd_truncate *cmd, struct state_result *res);

/* For publishing: where a hidden file would go. ERR_NOENT, ERR_EXIST, ERR_ISDIR; checks only. */
int state__publish_check(struct state *s, const struct state_inode *file, struct state_inode *ret_dir,
	struct state_dirent *ret_old, bool *ret_replaces);
void state__publish(struct state *s, struct state_inode *file, struct state_inode *dir, const struct state_dirent *old,
	bool replaces, int64_t now_ns);

#endif
