/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core: what the files of metad share. One struct metad on one loop; nothing here is called from anywhere else than
 * metad/.
 *
 *   request --handler--> command --batch--> ledger (durable) --state_apply--> result --handler--> reply
 *                \--> read: straight from the table
 *
 * In a group what is answered from rows waits until the leader knows that it leads still (lead.c); then what rows say is what was acknowledged.
 *
 * Beside the replicated state stands what only the leader knows and may forget (struct fleet: who was heard when, free
 * space; the id range in use; the last count of blocks). Nothing of it decides about safety.
 */
#ifndef METAD_CORE_H
#define METAD_CORE_H

#include "common/base/rng.h"
#include "common/code/backup.h"
#include "common/code/place.h"
#include "common/code/token.h"
#include "common/io/io_way.h"
#include "common/rpc/metrics_http.h"
#include "common/rpc/rpc.h"
#include "metad/ledger.h"
#include "metad/metad.h"
#include "metad/plan/gc.h"
#include "metad/repeats.h"
#include "metad/state/state.h"
#include "proto/metad.pb-c.h"

enum {
	METAD_TICK_MS = 10 * 1000, /* state time is in the log at least this often: what a crash may take back of it */
	METAD_TOKEN_ROLL_MS = 24 * 3600 * 1000,
	METAD_TOKEN_SETTLE_MS = 30 * 1000, /* a new key is used only when every chunkd had this long to hear of it */
	METAD_BATCHES = 64,                /* open, held and in flight: 16 MiB of entries; beyond it: ERR_OVERLOADED */
	METAD_BATCHES_IN_FLIGHT = 2, /* as many as the log writes at once: what comes meanwhile shares the next one */
	METAD_BATCH_WORTH = 16, /* commands of a batch that a group has beside another one in flight, at least */
	METAD_ENTRY_ROWS = 8192, /* that the commands of one entry may write: the table in memory keeps room for them */
	METAD_RANGE_BLOCKS = 16384,  /* block ids reserved at once */
	METAD_RANGE_MARGIN_MS = 5 * 1000, /* a range is replaced this long before it must not be used any more */
	METAD_AVOID_DISKS = 256,          /* of one request; also of those that it calls slow */
	METAD_SLOW_MS = 10 * 1000,        /* how long a client's word that a disk is slow is passed on */
	METAD_SLOW_SHARE = 4,             /* at most 1/4 of all disks are called slow: beyond that it is the client */
	METAD_SCAN_ROWS = 2000,           /* blocks counted in one turn: about a millisecond */
	METAD_BACKUP_IDLE_MS = 30 * 1000,  /* a backup that nobody asks for ends, and with it what it keeps from being reused */
	METAD_SCAN_REFRESH_MS = 15 * 1000, /* for /metrics: a million blocks take half a second */
	METAD_CHECK_SESSIONS_MS = 1000,
	METAD_COUNT_ROWS = 4096, /* for those who ask how much is waiting */
	METAD_NAMED_MS = 15 * 1000, /* who has a file open has named it by then: clients do so every 10 s */
	METAD_PLANS = 8,
	/*
	 * Kept for deletes, and so that commits are seldom small for want of room: what one may take at most, derived rows too, is counted before
	 * an entry is admitted (kv_admits).
	 */
	METAD_ENTRY_GROWTH_BYTES = LIMIT_LOG_ENTRY_BYTES + METAD_ENTRY_ROWS * STATE_ROW_MEMORY_BYTES, /* of the table's memory, by one entry */
	METAD_ROOM_BYTES = 2 * LIMIT_MEMTABLE_BYTES + (64 << 20),
	METAD_KIN_CONNS = 32, /* of the other metads of a group: two of each, and as many that are going */
};

struct metad;

/*
 * The command was applied: `res` is its result. Or it was not and never will be acknowledged: res NULL, `status` says
 * why. Exactly once, never from inside metad__submit.
 */
typedef void metad_result_fn(struct metad *md, void *arg, int status, const struct state_result *res);

/* ---- batch ---- */

struct batch_item {
	metad_result_fn *fn;
	void *arg;
};

struct batch {
	struct ledger_entry entry;
	struct metad *md;
	struct list link;
	struct wcursor w;
	uint8_t *data; /* LIMIT_LOG_ENTRY_BYTES */
	struct batch_item *items;
	uint32_t count, cap;
	uint32_t rows;     /* that its commands may write, at most */
	uint32_t answered; /* items whose fn was called */
	bool raises;       /* the cluster version */
	uint64_t submitted_ns;
};

struct batcher {
	struct list free, held; /* held: closed, waiting for their turn */
	struct batch *open;
	uint32_t count, in_flight;
	bool raising; /* one that raises is in flight */
	struct io_turn_hook hook;
	uint64_t entries, commands; /* applied, since the start */
	struct metrics_histogram seconds; /* of an entry, from its submission to its application */
};

/* ---- fleet: what the leader knows of servers and disks beside their rows ---- */

/* Damaged copies that a disk has confirmed, by half days of state time, so that none is forgotten because a day ends. */
struct fleet_damage {
	uint64_t half;  /* number of the last one with any */
	uint32_t count; /* in it */
	uint32_t before; /* in the one before it */
};

enum { FLEET_STUCK_BYTES = 96 };

struct fleet_disk {
	uint64_t registered_ns;   /* in this process; 0: before it */
	uint64_t beat_generation; /* of the last heartbeat; 0: none yet */
	uint64_t capacity_bytes, chunks;
	uint64_t free_bytes[LIMIT_ROOM_SIZES]; /* that chunks of each size may still use, whole; the first: all */
	uint64_t confirming;          /* generation for which a command is under way */
	bool failing;                 /* a command is under way */
	uint64_t slow_until_ms;       /* state time: clients found it slow; 0: never */
	struct fleet_damage damage;
	char stuck[FLEET_STUCK_BYTES]; /* what keeps it from taking more than fits now, as it said; "": nothing */
	bool given_up;                /* for that: its next registration begins the count anew */
	uint64_t drops_due_ms;        /* state time before which no drop row of the disk is due */
	uint64_t drops_next_ms;       /* least due time that the running pass over them has seen */
	uint64_t key_generation;      /* of receipt_key; 0: not derived yet */
	struct hmac_key receipt_key;
};

/* A disk that its server cannot serve, as it said in its last heartbeat. */
struct fleet_trouble {
	char path[STATE_TEXT_BYTES], error[STATE_TEXT_BYTES];
};

struct fleet_server {
	uint64_t heard_ns; /* 0: not since the start */
	uint64_t conn_id;  /* of the connection that it last spoke over, while that is open; else 0 */
	uint64_t beat_ms;  /* how often it was told to speak, when it was heard */
	bool downing;      /* a command is under way */
	struct fleet_trouble *troubles;
	uint32_t trouble_count; /* at most LIMIT_DISKS_PER_SERVER */
};

/* ---- block ids ---- */

struct id_range {
	uint64_t next, end;
	uint64_t until_ms; /* state time up to which ids may be given */
	bool asked;
	struct list waiting; /* requests that need ids */
};

/* ---- block counts ---- */

struct block_counts {
	uint64_t full, crowded, degraded, at_risk, lost;
	uint64_t unavailable; /* of the lost ones: those that come back when servers do */
	uint64_t by_margin[LIMIT_M + 1];
};

struct block_scan {
	struct block_counts done; /* of the last whole scan */
	bool valid;
	uint64_t done_fleet, done_blocks; /* versions that it saw at its start */
	bool running;
	uint32_t restarts;
	uint64_t began_ns;      /* the last one, or the one that runs */
	uint64_t fleet, blocks; /* versions at the start of the running one */
	uint64_t next;          /* block id to go on from */
	struct block_counts counts;
	struct state_inode inode; /* of the last block */
	struct state_block block;
	struct io_op timer;
	struct list waiting, next_waiting; /* requests served by the running scan, and by the one after it */
};

/* ---- background: the plans of metad/plan ---- */

struct background_job {
	struct metad *md;
	struct plan *plan;
	bool busy;      /* a command of it is under way */
	bool heavy;     /* and of many rows */
	uint64_t asked; /* as `background.asked` was before that */
	struct io_op soon; /* its next step, if that does not wait for `rest` */
};

struct background {
	struct background_job jobs[METAD_PLANS];
	uint64_t asked; /* grows with what clients ask for, and is only compared */
	uint32_t job_count;
	struct io_op rest;
};

/* ---- garbage ---- */

struct metad_gc_scratch;

struct metad_gc {
	struct plan_gc plan;
	uint64_t round; /* of inventories: chunk servers take a new one when it changes */
	uint64_t dropped, orphans, missing, inventories; /* since the start; copies, requests */
	struct metad_gc_scratch *scratch;
};
struct metad_repair; /* handlers_repair.c */

/* ---- sessions: who was heard when, and what clients have open ---- */

struct sessions {
	struct map heard; /* session -> struct heard */
	struct map held;  /* inode that was unlinked -> state time until which a client has it open, as it said */
	struct map held_before; /* the same, said before held_from_ms: what is in neither is forgotten */
	uint64_t held_from_ms;
	uint64_t expired, lost;
	uint64_t checked_ns;
	struct {
		uint64_t ms, inode;    /* orphan at which it goes on */
		uint64_t first_ms;     /* that of the first one which stayed: none is left before that */
		bool has_first;        /* seen by this one; else it is of the one before */
		uint64_t due_ns;       /* the next one */
	} pass;                        /* over the orphans */
	uint64_t hurry_ms;            /* orphans that old wait only METAD_NAMED_MS, and for clients that have not said yet what they have open */
	uint64_t reader_ms;           /* when one without a session last said what it has open; 0: never */
	struct plan release;          /* lets go of unlinked files that nobody has open */
};

/* ---- the backup being made ---- */

struct metad_backup {
	struct kv_snapshot *snapshot; /* NULL: none */
	struct rpc_req *waiting;      /* for the flush before the snapshot */
	struct rpc_req *asker;        /* for rows that are not in memory yet */
	uint64_t id, offset, asked_ns, applied;
	struct backup_writer writer;
	uint8_t *out;
	struct slice key, value; /* pending: a row that did not fit the last section */
	bool pending;
};

/* ---- the whole table is read now and then ---- */

struct metad_table_check {
	struct kv_snapshot *snapshot; /* NULL: it rests */
	struct io_op timer;           /* not pending while rows come to memory */
	uint64_t due_ns;              /* when it is to begin; 0: never */
	uint64_t rows, bytes, begun_ns, begun_bytes;
};

/* ---- the group: what an operator asked for, one thing at a time ---- */

struct metad_members {
	struct rpc_req *req; /* NULL: nothing is under way, or nobody waits for it */
	bool busy;
	uint32_t action; /* that is under way, and what it was said to be done to */
	char word[80];
	uint64_t id; /* of who is added or removed */
	struct io_addr addr;
	struct { /* the last one here */
		uint64_t id;
		struct io_addr addr;
	} removed;
	struct ledger_change change;
	char texts[RAFT_MEMBERS_MAX][IO_ADDR_TEXT_BYTES], *addrs[RAFT_MEMBERS_MAX]; /* of metad__members_addrs */
};

/* A request that has to wait for something. */
struct waiting {
	struct list link;
	struct rpc_req *req;
};

struct metad {
	uint32_t magic;
	struct io *io;
	struct metad_options options; /* strings are ours */
	char *dir, *name, *way_path;
	struct ledger *ledger;
	struct state state;
	struct rpc_server *server;
	struct metrics_http *http; /* NULL: none */
	struct rng rng;
	struct repeats refusals; /* of servers and disks, that ask again */
	struct refused refused;  /* since the start */

	struct ledger_role role;
	bool ready; /* it leads, and the store is formatted: requests are served */
	bool stopping;
	int failed;              /* the ledger or a row: nothing is served any more */
	struct list gate, asked; /* requests that wait to be served; those for which the group is being asked who leads */
	bool asking;
	struct ledger_confirm confirm;
	struct rpc_req *admitted; /* is being given to its handler */
	struct rpc_req *unasked;  /* a change that is being handled before the group was asked */

	uint64_t base_ms, base_ns; /* state time was base_ms when the loop's clock was base_ns */
	uint64_t tick_ms;          /* of the last tick command */
	uint64_t logged_ms;        /* state time of the last entry that was submitted */
	uint64_t started_ns;
	uint64_t silence_checked_ns;
	struct io_op timer;
	bool rolling; /* a token roll is under way */
	bool beginning; /* what makes it ready is under way */
	uint64_t differing[RAFT_MEMBERS_MAX]; /* members whose rows are others, when it was last looked at; then zeros */
	uint16_t raising_to; /* the cluster version: likewise, in a group; 0: none */
	enum ledger_ill ill; /* as it was when it was last looked at */

	struct batcher batcher;
	struct background background;
	struct metad_gc gc;
	struct io_way way;
	struct metad_repair *repair;
	struct state_cmd cmd; /* being built */

	struct fleet_disk *disks; /* by id, LIMIT_DISKS + 1 */
	struct fleet_server *servers;
	struct id_range range;
	struct sessions sessions;
	struct token_key token_key; /* cache: id 0 is none */

	struct place_disk *candidates; /* scratch, LIMIT_DISKS */
	uint32_t *disk_mark, mark;     /* scratch: which disks a reply names already */
	struct metad_scratch *scratch; /* parts of replies */
	struct block_scan scan;
	struct metad_backup backup;
	struct metad_table_check table_check;
	struct metad_members members;

	void (*stopped)(void *ctx);
	void *stopped_ctx;
	bool server_closed, closing;
};

struct metad *metad__of(void *ctx);
extern const struct rpc_handler metad__handlers[];

/* core.c */
/* Counts a request that is refused, and logs it where a line is due. */
void metad__count_refused(struct metad *md, const struct rpc_req *req, enum refused_cause cause);
/*
 * The metadata have no room for growth: the request was refused. Whatever makes rows fewer is not asked, and a change (`id`; NULL: it is
 * none) that was done before this one was sent again gets its answer.
 */
bool metad__refuse_growth(struct metad *md, struct rpc_req *req, const Craton__RequestId *id);
void metad__fatal(struct metad *md, int code, const char *text);
void metad__wait(struct list *list, struct rpc_req *req);
struct rpc_req *metad__unwait(struct list *list); /* NULL: none left */
void metad__maybe_stopped(struct metad *md);
uint64_t metad__now_ms(const struct metad *md);
void metad__drive_timer(struct metad *md);
/* What the ledger holds must be this cluster's. */
int metad__check_state(struct metad *md, struct err *err);

/* convert.c */
/* Of a directory for which ledger_converts says so: it is a group's when this returns 0, and only then. Then the ledger is opened as that. */
int metad__convert(struct metad *md, const struct ledger_options *options, struct err *err);

/* lead.c */
/* True: the request was taken (kept until it may be served, or refused, as another leads or nothing is served any more). */
bool metad__gate(struct metad *md, struct rpc_req *req);
/*
 * Likewise for a change, which goes through the log: that its entry is committed says as well who leads. Only a refusal that rests on rows must not
 * be told before the group was asked.
 */
bool metad__gate_change(struct metad *md, struct rpc_req *req);
/* Before such a refusal. True: the request waits until the group was asked, then its handler is called again. */
bool metad__ask_first(struct metad *md, struct rpc_req *req);
/* Of a state that is not formatted yet. */
uint16_t metad__first_version(const struct metad *md);
/* Of who leads a group: raises the cluster version when all members support more. */
void metad__check_version(struct metad *md);
/* It leads and is not ready, and nothing that makes it so is under way: tries again. */
void metad__begin_again(struct metad *md);
/* Of who leads a group: logs which members have other rows, once for each leadership. */
void metad__note_differs(struct metad *md);
/* For ledger_options. */
void metad__on_role(void *ctx, const struct ledger_role *role);
void metad__on_table(void *ctx, struct kv *kv);
/* Another leads: the request is to go there. */
void metad__refuse(struct metad *md, struct rpc_req *req);
/* Whoever waits to be served is told that it will not be. */
void metad__gate_fail(struct metad *md, int status);

/* members.c */
void metad__members(void *ctx, struct rpc_req *req);
/* Where all of the group listen, for replies; of one log: none. Valid until the next call. */
size_t metad__members_addrs(struct metad *md, char ***ret_addrs);
void metad__members_stop(struct metad *md);
/* "metad-3"; of a store of one metad its own name. */
enum { METAD_MEMBER_NAME_BYTES = 64 };
void metad__member_name(const struct metad *md, uint64_t id, char ret_name[METAD_MEMBER_NAME_BYTES]);

/* batch.c */
/* What was not given to the ledger yet fails, as it does not lead any more. */
void metad__batches_drop(struct metad *md);
void metad__batch_init(struct metad *md);
void metad__batch_fini(struct metad *md);
/* Takes md->cmd. False: too many are under way (fn is not called). */
bool metad__submit(struct metad *md, metad_result_fn *fn, void *arg);
/* The same for a client's change, once its session and number were found good; else it is answered here. req->msg is gone when fn is called. */
void metad__submit_change(struct metad *md, metad_result_fn *fn, struct rpc_req *req, const Craton__RequestId *id);
/* The same for a request that needs no session, which is answered with ERR_OVERLOADED if it cannot be taken. */
void metad__submit_req(struct metad *md, metad_result_fn *fn, struct rpc_req *req);
int metad__apply(void *ctx, struct kv *kv, struct slice data, struct ledger_entry *entry, struct err *err);
uint64_t metad__entry_rows(void *ctx, struct slice data);
bool metad__digest(void *ctx, uint32_t *ret_digest);
uint16_t metad__version(void *ctx);
bool metad__batches_idle(const struct metad *md);

/* background.c */
/* Before metad__background_start. The plan lives as long as metad. */
void metad__background_add(struct metad *md, struct plan *plan);
void metad__background_start(struct metad *md);
void metad__background_stop(struct metad *md);
bool metad__background_idle(const struct metad *md);

/* make_way.c */
/* After the server is open. */

/* handlers_repair.c */
void metad__repair_init(struct metad *md);
void metad__repair_forget(struct metad *md);
void metad__repair_fini(struct metad *md);
/* What a chunk server says came of its orders, in a heartbeat that was verified. */
void metad__repair_results(struct metad *md, const Craton__HeartbeatRequest *msg);
/* Orders for the disks of the server; free with metad__repair_orders_free when the reply was sent. */
struct repair_orders;
struct repair_orders *metad__repair_orders(
	struct metad *md, const Craton__HeartbeatRequest *msg, Craton__HeartbeatReply *reply);
void metad__repair_orders_free(struct repair_orders *orders);
void metad__report(void *ctx, struct rpc_req *req);
/* What status says of it: calls `add` for each reason. */
typedef void metad_reason_fn(void *ctx, const char *code, bool error, const char *text);
void metad__repair_status(struct metad *md, Craton__RepairStatus *ret_status, metad_reason_fn *add, void *ctx);

/* fleet.c */
const struct hmac_key *metad__receipt_key(struct metad *md, const struct state_disk *disk);
const struct token_key *metad__token_key(struct metad *md);
uint64_t metad__disk_capacity(const struct metad *md, const struct state_disk *disk);
uint64_t metad__disk_free(
	const struct metad *md, const struct state_disk *disk, uint64_t chunk_bytes); /* for chunks of this length; 0: all */
/*
 * It has shown that it knows its generation. Until then it takes no new chunks: what it does not serve has room for all of them, and what it
 * cannot write its superblock on would be asked in vain, again and again.
 */
bool metad__disk_reported(const struct metad *md, const struct state_disk *disk);
/* It is up, has registered a moment ago, and has not. */
bool metad__disk_reports_soon(const struct metad *md, const struct state_disk *disk);
/* Any is like that: placements may be better soon. */
bool metad__reports_soon(const struct metad *md);
/* What new data leave free on the disk, for repair. */
uint64_t metad__disk_reserve(const struct metad *md, const struct state_disk *disk);
/* Percent of the disk in use, rounded down. */
uint32_t metad__disk_used_percent(const struct metad *md, const struct state_disk *disk);
/* It has just spoken, over this connection, and is to be told how often to speak from now on. */
void metad__heard(struct metad *md, uint32_t server, uint64_t conn_id);
uint64_t metad__silent_ms(const struct metad *md, uint32_t server);
/* A client found these disks slow. A hint for the others; nothing here depends on it. */
void metad__note_slow(struct metad *md, const uint32_t *disks, size_t count);
bool metad__is_slow(const struct metad *md, uint32_t disk);
/* A copy on the disk was confirmed to be damaged. */
void metad__note_damaged(struct metad *md, uint32_t disk);
/* So many were in the last 12 to 24 hours, since it was given up last. */
uint32_t metad__damaged(const struct metad *md, uint32_t disk);
void metad__note_given_up(struct metad *md, uint32_t disk);
/* It is another generation: what was known of the last one goes, but for the damage that it has done. */
void metad__fleet_registered(struct metad *md, uint32_t disk);
void metad__check_silence(struct metad *md);
uint64_t metad__heartbeat_ms(const struct metad *md);
void metad__take_troubles(struct metad *md, uint32_t server, Craton__DiskTrouble *const *troubles, size_t count);
/* Why the server does not serve the disk at this path; NULL: it has not said so. */
const char *metad__trouble(const struct metad *md, uint32_t server, const char *path);
/* All that was known beside the rows goes. */
void metad__fleet_forget(struct metad *md);
void metad__fleet_fini(struct metad *md);
void metad__conn_closed(void *ctx, uint64_t conn_id);

/* session.c */
void metad__sessions_init(struct metad *md);
void metad__sessions_start(struct metad *md); /* once; adds a plan */
void metad__sessions_fini(struct metad *md);
void metad__sessions_forget(struct metad *md);
/* Ends sessions that fell silent. */
void metad__check_sessions(struct metad *md);
void metad__sessions_status(const struct metad *md, Craton__SessionStatus *ret_status);
/* False: the request was refused. */
bool metad__session_good(struct metad *md, struct rpc_req *req, const Craton__RequestId *id);
void metad__session_open(void *ctx, struct rpc_req *req);
void metad__session_renew(void *ctx, struct rpc_req *req);
void metad__session_close(void *ctx, struct rpc_req *req);

/* handlers_link.c */
void metad__link(void *ctx, struct rpc_req *req);
void metad__symlink(void *ctx, struct rpc_req *req);
void metad__readlink(void *ctx, struct rpc_req *req);
void metad__truncate(void *ctx, struct rpc_req *req);
void metad__xattr_set(void *ctx, struct rpc_req *req);
void metad__xattr_remove(void *ctx, struct rpc_req *req);
void metad__xattr_get(void *ctx, struct rpc_req *req);
/* handlers_name.c, shared: the result of a command that answers with attributes; the answer to a read. */
void metad__on_attr(struct metad *md, void *arg, int status, const struct state_result *res);
void metad__reply_read(struct metad *md, struct rpc_req *req, int status, const ProtobufCMessage *msg);
bool metad__path_good(struct rpc_req *req, const ProtobufCBinaryData *path); /* false: the request was refused */

/* allocate.c */
void metad__allocate(void *ctx, struct rpc_req *req);
/* The blocks that `msg` asks for; the reply points into scratch memory and to *policy. ERR_AGAIN: no ids just now. */
int metad__allocate_blocks(
	struct metad *md, const Craton__AllocateRequest *msg, Craton__AllocateReply *reply, Craton__Policy *policy);
/*
 * Candidates for chunks of that size under md->candidates; how many distinct domains may take one is up to place.h. soon: with those that
 * report soon, as things are about to be.
 */
size_t metad__candidates(struct metad *md, uint64_t chunk_bytes, bool soon, const uint32_t *avoid, size_t avoid_count);
void metad__fail_waiting(struct list *list, int status);

/* status.c */
void metad__scan_init(struct metad *md);
void metad__scan_stop(struct metad *md);
void metad__scan_forget(struct metad *md);
bool metad__scan_idle(const struct metad *md);
/* `req` is handed to metad__status_answer when a scan that began no earlier than now is there. */
void metad__scan_wait(struct metad *md, struct rpc_req *req);
void metad__status_answer(struct metad *md, struct rpc_req *req); /* handlers_status.c */
/* Nobody waits: counts anew if the last count is no longer good and began METAD_SCAN_REFRESH_MS ago or more. */
void metad__scan_refresh(struct metad *md);
/* Of the whole store, raw; handlers_status.c */
void metad__fill_df(struct metad *md, Craton__DfReply *df);

/* backup.c */
void metad__backup_tick(struct metad *md);
void metad__backup_stop(struct metad *md); /* before the table is closed */

/* table_check.c */
void metad__table_check_start(struct metad *md);
void metad__table_check_forget(struct metad *md); /* before another table takes the place of this one: that is read soon */
void metad__table_check_stop(struct metad *md);   /* before the table is closed */
bool metad__table_check_idle(const struct metad *md);
/* Bytes of the table on the disk, when the snapshot was opened and now. */
bool metad__table_check_gives_way(uint64_t begun_bytes, uint64_t now_bytes);

/* metrics.c */
int metad__metrics_open(struct metad *md, struct err *err);
/* `closed` may be called from inside, if there is none. */
void metad__metrics_close(struct metad *md, void (*closed)(void *ctx));

/* handlers_config.c */
/* False: too many are under way. */
bool metad__config_set(struct metad *md, enum config_id id, uint64_t value, metad_result_fn *fn, void *arg);
/* Settings that are not at their default, or all of them; in the scratch memory. */
size_t metad__wire_settings(struct metad *md, bool all, Craton__Setting ***ret_settings);

/* wire.c: between messages and structs */
void metad__wire_attr(const struct state_attr *attr, Craton__Attr *ret_attr);
void metad__wire_policy(const struct state_policy *policy, Craton__Policy *ret_policy);
struct slice metad__slice(const ProtobufCBinaryData *data);
struct state_path metad__path(uint64_t parent, const ProtobufCBinaryData *path);
/* Begins a new list of disks in a reply, adds one to it (once each). */
void metad__wire_disks_begin(struct metad *md);
void metad__wire_disk(struct metad *md, uint32_t disk);

/* wire_listing.c: the next entry of a packed ReaddirReply goes to `at`, where there are WIRE_ENTRY_BYTES; the end, one entry's room. */
enum {
	WIRE_ENTRY_BYTES = LIMIT_NAME_BYTES + 96,
	WIRE_LISTING_BYTES = (LIMIT_READDIR_ENTRIES + 1) * WIRE_ENTRY_BYTES,
};
uint8_t *metad__wire_entry(uint8_t *at, struct slice name, const struct state_attr *attr);
uint8_t *metad__wire_end(uint8_t *at, bool end);

/* handlers, by file */
void metad__lookup(void *ctx, struct rpc_req *req);
void metad__readdir(void *ctx, struct rpc_req *req);
void metad__mkdir(void *ctx, struct rpc_req *req);
void metad__remove(void *ctx, struct rpc_req *req);
void metad__rename(void *ctx, struct rpc_req *req);
void metad__setattr(void *ctx, struct rpc_req *req);
void metad__policy(void *ctx, struct rpc_req *req);
void metad__create(void *ctx, struct rpc_req *req);
void metad__commit(void *ctx, struct rpc_req *req);
void metad__abort(void *ctx, struct rpc_req *req);
void metad__layout(void *ctx, struct rpc_req *req);
void metad__df(void *ctx, struct rpc_req *req);
void metad__status(void *ctx, struct rpc_req *req);
void metad__register(void *ctx, struct rpc_req *req);
void metad__heartbeat(void *ctx, struct rpc_req *req);
void metad__backup(void *ctx, struct rpc_req *req);
void metad__maintenance(void *ctx, struct rpc_req *req);
void metad__config(void *ctx, struct rpc_req *req);
void metad__drops(void *ctx, struct rpc_req *req);
void metad__inventory(void *ctx, struct rpc_req *req);
void metad__gc(void *ctx, struct rpc_req *req);

/* handlers_gc.c */
void metad__gc_init(struct metad *md);
void metad__gc_forget(struct metad *md);
void metad__gc_fini(struct metad *md);
bool metad__drops_due(const struct metad *md, uint32_t disk); /* there may be orders for it */
/* Rows of the table; at most METAD_COUNT_ROWS are counted. */
uint64_t metad__count_rows(const struct metad *md, enum state_table table);

/*
 * Memory for the repeated parts of one reply: a reply is serialised before rpc_reply returns, so all handlers share it.
 */
enum {
	SCRATCH_BLOCKS = LIMIT_LAYOUT_EXTENTS,
	SCRATCH_CHUNKS = SCRATCH_BLOCKS * LIMIT_WIDTH,
	SCRATCH_TARGETS = LIMIT_ALLOCATE_BLOCKS * (LIMIT_WIDTH + LIMIT_M),
};
_Static_assert((int)SCRATCH_BLOCKS >= (int)LIMIT_ALLOCATE_BLOCKS && (int)SCRATCH_BLOCKS >= (int)LIMIT_COMMIT_BLOCKS,
	"one size for all");

struct metad_scratch {
	Craton__Disk disk[LIMIT_DISKS], *disks[LIMIT_DISKS];
	uint32_t disk_count;
	Craton__Allocation allocation[LIMIT_ALLOCATE_BLOCKS], *allocations[LIMIT_ALLOCATE_BLOCKS];
	Craton__Target target[SCRATCH_TARGETS], *targets[SCRATCH_TARGETS];
	uint8_t tokens[SCRATCH_TARGETS][TOKEN_BYTES];
	Craton__Extent extent[SCRATCH_BLOCKS], *extents[SCRATCH_BLOCKS];
	Craton__Block block[SCRATCH_BLOCKS], *blocks[SCRATCH_BLOCKS];
	Craton__ChunkPlace chunk[SCRATCH_CHUNKS], *chunks[SCRATCH_CHUNKS];
	uint8_t read_tokens[SCRATCH_BLOCKS][TOKEN_BYTES];
	Craton__BlockResult result[LIMIT_COMMIT_BLOCKS], *results[LIMIT_COMMIT_BLOCKS];
	uint32_t not_counted[LIMIT_COMMIT_BLOCKS][LIMIT_WIDTH];
	uint8_t listing[WIRE_LISTING_BYTES];
	Craton__DiskRegistered registered[LIMIT_DISKS_PER_SERVER], *registereds[LIMIT_DISKS_PER_SERVER];
	Craton__TokenKey key[STATE_TOKEN_KEYS], *keys[STATE_TOKEN_KEYS];
	Craton__Setting setting[CONFIG_COUNT], *settings[CONFIG_COUNT];
	char setting_texts[CONFIG_COUNT][2][CONFIG_TEXT_BYTES];
	uint32_t drop_disks[LIMIT_DISKS_PER_SERVER];
	struct state_inode inode;
	struct state_block block_row;
	ProtobufCBinaryData attr_names[LIMIT_XATTRS];
	uint8_t attr_text[LIMIT_XATTR_BYTES];
};

#endif
