/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger: the entries that make metad's state, in their order, and the table that they make: of one log (common/kv/journal.h), or of
 * a group's (metad/replica/replica.h). What stands above it submits entries, and is told what was applied; it need not know which of the two it has.
 *
 *     ledger_open -> ledger_start -> on_role {leads} -> ledger_submit: durable, of a majority too --apply--> done(0)
 *
 * Who does not lead takes no entries, and whose rows say nothing about what others have acknowledged meanwhile: they are for apply alone.
 * Also a leader's rows are only good for an answer when ledger_confirm has said so: it may have been deposed and not know it yet. One log is its own
 * group: it always leads, and needs no confirmation.
 *
 * One thread: that of the loop. Nothing is called back from inside ledger_submit and ledger_confirm.
 */
#ifndef METAD_LEDGER_H
#define METAD_LEDGER_H

#include "common/kv/journal.h"
#include "common/rpc/auth.h"
#include "common/rpc/rpc.h"
#include "metad/digests.h"
#include "metad/metad.h"
#include "metad/raft_codec.h"
#include "metad/replica/replica.h"
#include "metad/replica/stall.h"

enum { LEDGER_ENTRY_BYTES = LIMIT_LOG_ENTRY_BYTES - 1 }; /* a group's has its kind in front */

struct ledger;
struct raft_links;
struct raft_links_counts;

struct ledger_entry {
	struct slice data; /* 1 .. LEDGER_ENTRY_BYTES; the caller's until done */
	uint32_t rows;     /* that its apply may write, derived ones counted */
	/*
	 * 0: durable and applied. ERR_NOT_LEADER: it never will be. ERR_STOPPED: it may still be, by who leads next. Else, of one log, that or
	 * the table failed, and what is in the log comes to life at the next start.
	 */
	void (*done)(struct ledger_entry *entry, int code);
	/* private */
	struct ledger *ledger;
	struct list link;
	struct journal_entry journal;
	struct replica_submit submit;
};

struct ledger_role {
	bool leads;      /* and has applied all that was ever acknowledged */
	uint64_t leader; /* replica; 0: not known */
	uint64_t term;
};

enum ledger_wait {
	LEDGER_WAIT_ANSWER, /* it has not answered, or not for a while */
	LEDGER_WAIT_ACCEPT, /* it has, and does not say yet that it has accepted the roll */
	LEDGER_WAIT_DIFFER, /* FOUNDERS_DIFFER */
	LEDGER_WAIT_UNSAID, /* FOUNDERS_UNSAID */
	LEDGER_WAIT_DISK,   /* for its own */
};

struct ledger_options {
	const char *dir;
	const struct kv_backend *backend;
	uint64_t segment_bytes;
	uint64_t keep_bytes; /* as metad_options.log_keep_bytes */
	bool buffered;
	struct uuid cluster;
	const struct metad_group *group; /* id 0: one log */
	/* Of a group: who is heard and spoken to. */
	struct rpc_identity self;
	struct io_addr listen;
	const uint8_t *secret; /* AUTH_SECRET_BYTES; borrowed for the call */
	uint16_t supports;     /* the greatest cluster version that this build supports */
	const struct rpc_transform *transform;
	/* entry: NULL if it was not submitted here, or nobody waits for it any more. A failure ends the ledger. */
	int (*apply)(void *ctx, struct kv *kv, struct slice data, struct ledger_entry *entry, struct err *err);
	/* Of a group: of all changes of rows up to the last entry that was applied; false: there is none yet. */
	bool (*digest)(void *ctx, uint32_t *ret_digest);
	/* Of a group: the cluster version of the rows; 0: there are none. */
	uint16_t (*version)(void *ctx);
	/* Of a group: rows that apply of this may write at most, derived ones counted. */
	uint64_t (*rows)(void *ctx, struct slice data);
	/* Told before entries of one that leads no longer are done. From inside ledger_start, if there is one log. */
	void (*on_role)(void *ctx, const struct ledger_role *role);
	/* All rows are replaced. NULL: there are none just now; scans and snapshots have ended when this returns. */
	void (*on_table)(void *ctx, struct kv *kv);
	void (*on_fatal)(void *ctx, int code, const char *text);
	/* NULL, or: a founder has waited for a while, now for this one; status: of the last question to it. */
	void (*on_wait)(void *ctx, uint64_t id, enum ledger_wait why, int status);
	/* NULL, or: what ends nothing, and should be known. */
	void (*on_warn)(void *ctx, const char *event, const char *text);
	void *ctx;
};

/*
 * Does `dir` hold one log that becomes a group's by these options (group.found, of replica 1, which is the only one that they name)? Then it is opened as
 * one log first, looked at, and decided by ledger_decide_group; what is left to do ledger_open does, of a group.
 */
int ledger_converts(struct io *io, const struct ledger_options *options, bool *ret_converts, struct err *err);
/* Of one log that was not started; only ledger_abandon comes after it. restores: of the state. 0: it never is one log again. */
int ledger_decide_group(struct ledger *ledger, const char *dir, uint32_t restores, struct err *err);
/* Replays one log synchronously. ERR_INVAL: what is in `dir` is the other kind of ledger. */
int ledger_open(struct io *io, const struct ledger_options *options, struct ledger **ret_ledger, struct err *err);
void ledger_start(struct ledger *ledger);
/* Of one that was not started: frees at once. */
void ledger_abandon(struct ledger *ledger);
/*
 * Before a stop, of a group's leader: it takes no more entries and hands over, so that nobody has to notice first that it is gone. False: there
 * is nothing to hand over; else `done`, whatever came of it, within a few seconds.
 */
bool ledger_hand_over(struct ledger *ledger, void (*done)(void *ctx), void *ctx);
/* It is about to close: a group's entries wait no longer for the others. on_role says that it does not lead, and nothing else from here on. */
void ledger_resign(struct ledger *ledger);
/* Its entries are done. Who waits for a confirmation gets ERR_STOPPED. */
void ledger_close(struct ledger *ledger, void (*closed)(void *ctx, int code), void *ctx);

/* Of who leads. */
void ledger_submit(struct ledger *ledger, struct ledger_entry *entry);

struct ledger_confirm {
	/* 0: who asks leads still, and its rows have all that was acknowledged before. ERR_NOT_LEADER, ERR_AGAIN, ERR_STOPPED. */
	void (*done)(struct ledger_confirm *confirm, int code);
	struct replica_read read; /* private */
};
/* True: it is so (one log). False: `done` comes. One that waits costs an exchange with the others, for all that do together. */
bool ledger_confirm(struct ledger *ledger, struct ledger_confirm *confirm);

struct kv *ledger_kv(struct ledger *ledger); /* NULL between the calls of on_table */
uint64_t ledger_applied(const struct ledger *ledger);
/* There is no room for more rows: here, of one log; of a group's leader, in most file systems of those that vote. What removes rows goes on. */
bool ledger_is_full(const struct ledger *ledger);
/* Of a group, why this replica had best not lead: its log does not answer, or its rows take nothing of what is committed. */
enum ledger_ill { LEDGER_WELL, LEDGER_LOG_HANGS, LEDGER_ROWS_STAND };
enum ledger_ill ledger_ill(const struct ledger *ledger);
/* It belongs to no group yet, and waits to be added to one. */
bool ledger_waits(const struct ledger *ledger);
/* Of a group: what its letters and snapshots came to since the start; else NULL. */
const struct replica_counts *ledger_counts(const struct ledger *ledger);
const struct raft_links_counts *ledger_link_counts(const struct ledger *ledger);
uint64_t ledger_contradictions(const struct ledger *ledger); /* messages that break the protocol in a way that only the state shows */
uint64_t ledger_dropped(const struct ledger *ledger); /* messages of who was dropped from the group by force */
/* Where that replica listens; family 0: not known. */
struct io_addr ledger_member_addr(const struct ledger *ledger, uint64_t id);

/* ---- ledger_members.c: the group as this replica sees it ---- */

enum {
	LEDGER_SILENT_MS = 3000, /* a member that a leader has not heard for so long is down, for people; Raft itself is not asked */
	LEDGER_STANDS_MS = 30 * 1000, /* one that lacks entries and takes none for so long lags: likewise */
	LEDGER_FULL_MS = 10 * 1000, /* so long a leader leads at least before it hands over as its file system is full */
	LEDGER_ELECTION_MS = 500, /* one to two of them without a leader: an election */
};
enum ledger_member_state { LEDGER_MEMBER_UNKNOWN, LEDGER_MEMBER_UP, LEDGER_MEMBER_DOWN };

struct ledger_member {
	uint64_t id;
	struct io_addr addr; /* family 0: not known */
	bool voter;
	enum ledger_member_state state; /* of others: as a leader sees it, else not known unless it was heard */
	uint64_t silent_ms; /* of others */
	uint64_t match;     /* that is durable there; 0: not known */
	uint64_t answered;  /* the last probe of a leader (raft_peer.read_seq) that it has answered; of itself: any. Not all are asked each time (replica_read.asks_all) */
	/* As it has said within LINK_HEARD_MS; 0: not known. */
	uint16_t supports;  /* the greatest cluster version that its build supports */
	uint64_t term, applied;
	enum raft_room room;
	/* Its rows are others than those here since some entry behind `same` and up to `differs`; 0: that is not known of it. */
	uint64_t same, differs;
	uint64_t stands_ms; /* as a leader sees it: for so long it has taken none of the committed entries that it lacks */
	bool owes; /* as a leader sees it: it has not said yet whether they are */
};

struct ledger_view {
	uint64_t id, leader, term, commit, last, applied; /* applied: here; leader: 0: not known */
	enum raft_role role;
	bool changes; /* the last change of the group is not committed yet */
	bool stands; /* rows here take nothing of what is committed, for as long as a log must not answer to hang (metad/replica/stall.h) */
	bool doubts; /* as a leader sees it: voters have other rows than it, and whose are right is not known (digests.h): nobody gets them */
	uint64_t next_id; /* of a member that is to come */
	uint32_t count;
	struct ledger_member members[RAFT_MEMBERS_MAX];
};
/* One log: of a group of one, whose id is 0. */
void ledger_view(const struct ledger *ledger, struct ledger_view *ret_view);
/* Of the view of a leader. 0, or whom it had best be handed over to: the voter that is up and has most. */
uint64_t ledger_successor(const struct ledger_view *view);
/*
 * Likewise, of a leader that had best not lead: 0, or who can take over at once and has applied more, if its rows stand; has room, if its file system is
 * full. A letter must have said it.
 */
uint64_t ledger_relief(const struct ledger_view *view);
/* Likewise: a majority is up and has room for more rows. Whose letters do not say it is taken to have it: an older build, or a new start. */
bool ledger_has_room(const struct ledger_view *view);
/* Likewise: the cluster version that all members support, learners too; 0: of some it is not known. */
uint16_t ledger_supported(const struct ledger_view *view);
/*
 * Likewise: 0, or a learner that is to vote now: it is up, and has all that the leader had, `before`, when it looked last; its rows were compared, and are
 * those of the leader, which are in no doubt. One with other rows stops, and a group of two that counted on it would have no majority.
 */
uint64_t ledger_promotes(const struct ledger_view *view, uint64_t before);
/*
 * Likewise: have most of those that would vote after this removal or promotion, and the one that is promoted, answered the probe `since` or a
 * later one, and have they in their logs what was committed when it left, `had`? One whose disk hangs answers, and has not. What changes
 * nobody's vote is always borne.
 */
bool ledger_bears(const struct ledger_view *view, enum raft_change what, uint64_t id, uint64_t since, uint64_t had);

/* Of who leads a group: asks who is to become member `id` whether it would; as raft_links_invite. */
int ledger_invite(struct ledger *ledger, uint64_t id, const struct io_addr *addr, void (*done)(void *ctx, int status, uint16_t supports), void *ctx);

struct ledger_change {
	/*
	 * 0: committed. As of replica_submit; ERR_STOPPED also: it leads no longer, and whether the group will change is not known. ERR_TIMEDOUT: it
	 * was not tried, as most of those that would vote then do not answer.
	 */
	void (*done)(struct ledger_change *change, int code);
	/* private */
	struct ledger *ledger;
	struct list link;
	struct replica_submit submit;
	bool asks; /* not submitted yet: who would vote then is asked first */
	uint64_t since, had, until_ns;
	struct raft_member known[RAFT_MEMBERS_MAX + 1];
};
/* Of who leads a group: ADD_LEARNER (addr: where it is) or REMOVE. Learners are promoted by who leads, as soon as they have caught up. */
void ledger_change(struct ledger *ledger, struct ledger_change *change, enum raft_change what, uint64_t id, const struct io_addr *addr);

/* Of who leads a group: as replica_transfer, to a voter. 0: `done` comes. */
int ledger_transfer(struct ledger *ledger, uint64_t to, void (*done)(void *ctx, int code), void *ctx);

/* The handler of rpc_metad_raft. */
void ledger_handle_raft(struct ledger *ledger, struct rpc_req *req);

/* ---- shared by ledger.c and ledger_group.c ---- */

struct ledger {
	struct io *io;
	struct ledger_options options;
	char *dir;
	struct metad_group group;
	struct ledger_role role;
	struct journal *journal; /* one log */
	struct replica *replica; /* a group */
	struct raft_links *links;
	struct list entries;     /* of a group: submitted, not done */
	uint8_t secret[AUTH_SECRET_BYTES];
	struct list changes;     /* likewise, of the group itself */
	struct ledger_change promotion;
	struct replica_read ask; /* for those that ask first */
	struct digests digests;
	struct io_op look; /* a leader's, at those that catch up; at what all say of their rows */
	uint64_t look_last; /* last index, when it looked last */
	struct stall rows; /* of what is committed and not applied here */
	bool has_room, has_relief; /* of a leader's view, when it looked last */
	struct ledger_change move;
	/* By place in the configuration, as a leader: since when `match` has been what it is, or all that was committed. */
	struct {
		uint64_t id, match, since_ns;
	} stood[RAFT_MEMBERS_MAX];
	struct {
		struct founders founders;      /* what all have said */
		struct founders_said own, accepting; /* durable; to become it */
		bool waits;
		enum founders_step step; /* the last */
		uint32_t asked; /* bits of those whose answer is due */
		uint32_t hurries; /* so many times it asks again soon */
		int status[LIMIT_METADS]; /* of the last question to each */
		uint64_t who, say_ns; /* who is waited for, and when that is said */
		struct io_op timer, write;
		int write_code;
	} founding;
	struct io_addr own; /* where others find this replica; family 0: only the log says it */
	uint32_t knocks;
	bool promoting, moving, asking, waits, closing, links_closed, failed;
	bool resigned;
	uint64_t leads_since_ns; /* what was heard before it says nothing of who is silent */
	struct {
		uint32_t tries;
		uint64_t to;
		void (*done)(void *ctx);
		void *ctx;
	} handing;
	int close_code;
	void (*closed)(void *ctx, int code);
	void *closed_ctx;
};

int ledger__no_replica(const char *dir, struct err *err);
/* Of a replica that is open: does it have to ask others whether it may found its group? */
int ledger__founders_open(struct ledger *l, struct err *err);
void ledger__founders_said(void *ctx, struct founders_said *ret_said);
bool ledger__founders_wait(struct ledger *l); /* false: it need not */
void ledger__founders_close(struct ledger *l); /* ledger__group_quiet is called when the last of it has ended */
bool ledger__founders_quiet(const struct ledger *l);
int ledger__group_open(struct ledger *l, struct err *err);
void ledger__group_submit(struct ledger *l, struct ledger_entry *entry);
void ledger__group_close(struct ledger *l);
void ledger__group_start(struct ledger *l);
void ledger__group_abandon(struct ledger *l);
void ledger__group_resign(struct ledger *l);
bool ledger__group_hand_over(struct ledger *l);
void ledger__finish_close(struct ledger *l);
/* The table is another one: at the start, and after a snapshot. */
void ledger__digest_begin(struct ledger *l);
/* At a start: makes sure that what must be written when rows are found to be others can be, also on a full disk. */
void ledger__digest_room(struct ledger *l);
bool ledger__digest_doubts(const struct ledger *l);
void ledger__digest_applied(struct ledger *l, uint64_t index);
void ledger__digest_said(struct ledger *l, uint64_t from, const struct digests_mark *said);
void ledger__digest_look(struct ledger *l);
/* ERR_CORRUPT: the rows in `dir` are not those of the group, as was found before. */
int ledger__digest_check(struct ledger *l, struct err *err);
/* What says so (docs/FORMATS.md, `differs`). Pure. ERR_CORRUPT. */
enum { LEDGER_DIFFERS_BYTES = 28 };
void ledger__differs_encode(uint64_t same, uint64_t differs, uint8_t out[LEDGER_DIFFERS_BYTES]);
int ledger__differs_decode(struct slice bytes, uint64_t *ret_same, uint64_t *ret_differs);
void ledger__members_start(struct ledger *l);
void ledger__members_role(struct ledger *l);
bool ledger__rows_stand(const struct ledger *l);
void ledger__members_close(struct ledger *l); /* ledger__group_quiet is called when the last look has ended */
void ledger__group_quiet(struct ledger *l);

#endif
