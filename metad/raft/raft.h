/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raft: the core of the replicated log (Ongaro, Ousterhout 2014; Ongaro's thesis 2014 for pre-vote, learners, single-server changes,
 * ReadIndex and leadership transfer). One event in, one update out: no I/O, no clock, no allocation, nothing global. A core is flat:
 * copying the struct copies the replica. Not thread-safe: one core, one thread at a time.
 *
 *                     timeout               quorum grants          quorum votes
 *     RAFT_FOLLOWER ----------> RAFT_PRE_CANDIDATE -----> RAFT_CANDIDATE -----> RAFT_LEADER
 *          ^------------- higher term, leader seen, no quorum heard for election_ms ----|
 *
 * Membership changes by one member at a time: with the rule that an entry of the leader's own term is committed first, it is as safe as
 * joint consensus (Ongaro, raft-dev 2015-07-10), and one uncommitted configuration is all that a log can hold, so that a cut needs to
 * remember one older one. All growth and shrinkage of 1, 3 or 5 replicas is a sequence of such steps.
 *
 * What the driver owes. Bodies, disk and network are its own; the core knows terms and indexes. What is marked CHECK stops the process if
 * it is not kept, as there is no going on; tests/raft/driver.c is a driver in 300 lines that keeps all of it.
 *
 * 1. Start. Before raft_init everything that was read of the log is durable: who was killed finds in the page cache what a loss of power
 *    takes away again, and raft_init counts all of it as persisted. So: read, cut the torn tail, sync, then raft_init. boot.commit is the
 *    greatest commit index that is known for certain: what is applied, or what the log's frames say (a frame may carry min(core->commit,
 *    the entry before it) of the moment that it is written; a meta slot may carry what was noted before the update that it is written
 *    for, as far as it was durable then, but not what that update commits, for it is durable before the log is cut or replaced, and
 *    would call committed what an old tail has there). Less is safe and costs time only. A process has one core; after raft_init
 *    nothing that an earlier one began (a sync, a fill, a fetch) is reported to it.
 * 2. An update is worked off in this order, all of it before the next event that may change what it speaks of:
 *      a. update.meta           write term and vote, sync; before anything else of this update leaves this process
 *      b. update.install        switch to the snapshot that RAFT_SNAPSHOT_READY spoke of, durably and at once; the log before it is gone
 *      c. update.truncate_from  cut the log; update.append: append entries to it
 *      d. update.messages       fill those that ask for it, send. They may leave before the sync of c: what must wait for it does so
 *                               inside the core
 *      e. update.commit         hand entries up to min(commit, persisted) to apply; never more, never twice, in order
 *      f. reads_lost, read_done, fetch, snapshot_wanted
 * 3. Sync. Whenever core->persisted < core->last_index and no sync runs, start one. It covers the log as it is then: note core->last_index
 *    and core->epoch when it starts, and give both with RAFT_PERSISTED when it returned 0. A cut raises the epoch, and what was noted
 *    before it then says nothing (CHECK: an epoch or index that the core never had). After it, look again: the end of one sync is
 *    often the time for the next, also if the event changed nothing. If it did not return 0 the process ends.
 * 4. Messages that come in. Not stepped unless raft_message_check says 0 (CHECK) and the sender is who it says. A RAFT_APPEND comes with
 *    bodies: event.count is how many; the core refuses one whose bodies are not last - prev_index. That the last body is a configuration
 *    exactly if has_config says so, and equal to append.config, and that no other is, the driver checks, and that a body's frame says
 *    the term that the message's runs say. If raft_asks says so, the log is looked up first (event.differs; CHECK).
 * 5. Messages to be filled (append.fill): raft_fill, send, then RAFT_SENT once for each, also for one that did not leave: until then that
 *    member gets no other. It may take its time, if bodies must be read from disk; raft_fill says then whether the message still stands.
 *    RAFT_SENT is a step like any other: its update has messages of its own, so an array that is still being worked off must not be
 *    given to it. If a message is lost after RAFT_SENT, nothing need be said: heartbeats find out.
 * 6. Reads. A token that RAFT_READ gave is answered when a read_done >= it came, once read_index is applied; all that are not done when
 *    reads_lost comes fail. Neither comes twice.
 * 7. Snapshots. snapshot_wanted and fetch come again with each heartbeat until the matter is settled: who has one on the way says the same
 *    again or nothing. RAFT_SNAPSHOT_TAKEN of an index below core->base_index is refused (ERR_STALE: take a new one), for the log goes
 *    on behind the base. RAFT_SNAPSHOT_READY only for what is durable and verified; if its code is not 0, throw it away.
 * 8. Compaction. RAFT_COMPACTED after entries went, never above what is applied durably, nor above what an unfinished snapshot stream's
 *    follower will need next; event.term is that of the entry (CHECK). Or it goes first: then messages to be filled may ask for what is
 *    gone, and raft_fill says false to them.
 * 9. Ids. A replica whose disk was lost or is corrupt comes back under a new id only; so do all of a group that is founded anew: letters of
 *    the one before would pass for theirs.
 *
 * Messages come from outside: what breaks the protocol in a way that only the state shows is refused, counted in core->refused, and
 * changes nothing.
 */
#ifndef METAD_RAFT_RAFT_H
#define METAD_RAFT_RAFT_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/rng.h"

/* Tests build the core with less, so that small worlds are small, and meet the bounds. */
#ifndef RAFT_BOUND_MEMBERS
#define RAFT_BOUND_MEMBERS 9
#endif
#ifndef RAFT_BOUND_RUNS
#define RAFT_BOUND_RUNS 1024
#endif
#ifndef RAFT_BOUND_MESSAGE_RUNS
#define RAFT_BOUND_MESSAGE_RUNS 8
#endif
#ifndef RAFT_BOUND_INFLIGHT
#define RAFT_BOUND_INFLIGHT 32
#endif

enum {
	RAFT_MEMBERS_MAX = RAFT_BOUND_MEMBERS, /* voters and learners */
	RAFT_RUNS_MAX =
		RAFT_BOUND_RUNS, /* of terms in a log that the core remembers: the driver is asked for older ones */
	RAFT_MESSAGE_RUNS_MAX = RAFT_BOUND_MESSAGE_RUNS, /* of terms in one message */
	RAFT_INFLIGHT_MAX = RAFT_BOUND_INFLIGHT, /* messages with entries to one member that are not acknowledged */
	RAFT_MESSAGES_MAX = 3 * RAFT_MEMBERS_MAX,
	RAFT_DESCRIPTOR_BYTES = 48,
	RAFT_PLACE_BYTES = 20,
};
/* Beyond these a message is malformed: a term or index there would leave no room to go on. */
#define RAFT_TERM_MAX (UINT64_C(1) << 48)
#define RAFT_INDEX_MAX (UINT64_C(1) << 60)

/* Members that so many numbers have been given since are strangers for good: they were dropped by force (metad/force.h), which leaves that many out. */
enum { RAFT_NUMBERS_APART = 64 };

struct raft_member {
	uint64_t id; /* 1.. ; rising, never used again, also not for the same host with a new disk */
	bool voter;  /* else a learner: gets the log, is not counted */
	uint8_t place[RAFT_PLACE_BYTES]; /* where it is, in the driver's words; zeros: not said. The core carries it */
};

struct raft_config {
	uint64_t index; /* of its entry */
	uint32_t count;
	struct raft_member members[RAFT_MEMBERS_MAX]; /* by id, ascending */
	uint64_t last_id; /* the greatest that a member ever had: what is not above it is not given again */
};

/* Entries from `first` to before the next run have this term. */
struct raft_run {
	uint64_t first, term;
};

enum raft_message_type {
	RAFT_PRE_VOTE = 1,
	RAFT_VOTE,
	RAFT_VOTED, /* the answer to both */
	RAFT_APPEND,
	RAFT_APPENDED,
	RAFT_SNAPSHOT,
	RAFT_READ_PROBE,
	RAFT_READ_ACK,
	RAFT_TIMEOUT_NOW,
	RAFT_MESSAGE_TYPES,
};

struct raft_message {
	enum raft_message_type type;
	uint64_t from, to;
	uint64_t term; /* the sender's; of a pre-vote: that it would have */
	union {
		struct {
			uint64_t last_index, last_term;
			bool forced; /* the leader asked for it: do not wait for its silence */
		} vote;
		struct {
			bool granted, pre;
		} voted;
		struct {
			uint64_t prev_index, prev_term, commit;
			uint64_t last; /* entries prev_index + 1 .. last; the driver carries them */
			uint32_t run_count;
			struct raft_run runs[RAFT_MESSAGE_RUNS_MAX];
			bool fill; /* sender only: raft_fill wants to choose `last` */
			/* sender only: the bodies should not be longer, but one entry always goes; 0: none is wanted, only prev_term */
			uint32_t room_bytes;
			bool has_config; /* `last` is a configuration, and no other entry is */
			struct raft_config config;
		} append;
		struct {
			bool reject;
			uint64_t index; /* persisted as the leader has it; of a reject: prev_index that did not fit */
			uint64_t seen;  /* there as the leader has it, perhaps not persisted yet */
			uint64_t hint_index, hint_term; /* of a reject: the last entry that may fit */
		} appended;
		struct {
			uint64_t index, term;
			struct raft_config config;
			uint8_t descriptor
				[RAFT_DESCRIPTOR_BYTES]; /* the driver's: where to get it, its length and hash */
		} snapshot;
		struct {
			uint64_t seq;
		} read;
	};
};

enum raft_event_type {
	RAFT_TICK = 1,  /* time passed; every few ms, at heartbeat_ms / 2 at the latest */
	RAFT_RECEIVE,   /* message; count: of bodies that came with it; differs, if raft_asks */
	RAFT_SUBMIT,    /* count entries are to be appended; the leader's */
	RAFT_PERSISTED, /* entries up to `index` are durable in the log of `epoch` */
	/* A message that asked to be filled left: peer, index (its last entry; 0: it had none, or did not leave), bytes, term (the message's). */
	RAFT_SENT,
	RAFT_COMPACTED,      /* entries up to `index` (<= commit), which is of `term`, are no longer in the log */
	RAFT_SNAPSHOT_TAKEN, /* for `peer`: message; answers update.snapshot_wanted */
	RAFT_SNAPSHOT_READY, /* `message` was fetched, is durable and verified: shall it be installed? differs, if raft_asks */
	RAFT_CHANGE,         /* change, peer; the leader's */
	RAFT_TRANSFER, /* lead no longer: hand over to `peer` */
	RAFT_READ,     /* a read that must see all that was acknowledged before it */
	RAFT_CAMPAIGN, /* the election timeout has run out; for tests and operators */
};

enum raft_change {
	RAFT_ADD_LEARNER = 1,
	RAFT_PROMOTE, /* a learner to a voter */
	RAFT_REMOVE,
	RAFT_MOVE, /* a member is elsewhere: its place, of `known`, is said anew; nobody's vote changes */
};

struct raft_event {
	enum raft_event_type type;
	uint64_t peer, index, term, count, epoch, differs;
	uint32_t bytes;
	enum raft_change change;
	/* Of a RAFT_CHANGE: where members are, the new one too: taken for those of whom it is not said yet, and for who is moved. */
	const struct raft_member *known;
	uint32_t known_count;
	const struct raft_message
		*message; /* borrowed for the call; as also of SNAPSHOT_TAKEN and _READY, where it is a RAFT_SNAPSHOT */
};

enum raft_append_kind {
	RAFT_APPEND_NONE = 0,
	RAFT_APPEND_SUBMITTED,
	RAFT_APPEND_NOOP,     /* first thing of a leader: what older terms left commits behind it */
	RAFT_APPEND_CONFIG,   /* of core->config */
	RAFT_APPEND_RECEIVED, /* from the message of this event */
};

struct raft_update {
	/* Of SUBMIT, CHANGE, TRANSFER, READ, SNAPSHOT_TAKEN, SNAPSHOT_READY: 0, or why not:
	 *   ERR_NOT_LEADER  see core->leader
	 *   ERR_AGAIN       leadership is being handed over, or no entry of the own term is committed yet, or, of a promotion, what the learner
	 *                   has is not known yet: soon
	 *   ERR_BUSY        the configuration before this one is not committed yet; of a removal: of the leader itself, which must hand over first
	 *   ERR_EXIST, ERR_NOENT, ERR_INVAL, ERR_OVERFLOW   the change makes no sense, or there are too many members
	 *   ERR_STALE       the snapshot is not newer than the log here; of one taken: the log does not go on behind it
	 *   ERR_PROTO       the snapshot is of an older term than what is committed here: no leader that works has it */
	int code;
	bool meta;              /* core->term or core->vote changed */
	bool install;           /* the snapshot of SNAPSHOT_READY takes the place of the log */
	uint64_t truncate_from; /* 0: nothing is cut */
	struct {
		enum raft_append_kind kind;
		uint64_t first, last, term; /* term: not of RAFT_APPEND_RECEIVED, whose message has the runs */
	} append;
	uint32_t message_count;
	struct raft_message *messages; /* RAFT_MESSAGES_MAX, the caller's */
	uint64_t commit;               /* as it is now */
	bool role_changed;             /* or the leader, or the term */
	bool fetch; /* follower: the snapshot of this event's message is wanted; again and again until it is there */
	uint64_t
		snapshot_wanted; /* leader: bit i: core->peers[i] needs a snapshot: RAFT_SNAPSHOT_TAKEN; again until it has one */
	uint64_t read_token; /* of RAFT_READ: it may be answered once a read_done >= this came */
	uint64_t read_done,
		read_index; /* reads with tokens <= read_done may be answered when read_index is applied; 0: none new */
	bool reads_lost;    /* tokens that are not done will never be: leadership is over */
};

enum raft_role { RAFT_FOLLOWER, RAFT_PRE_CANDIDATE, RAFT_CANDIDATE, RAFT_LEADER };

struct raft_options {
	uint64_t id;
	uint32_t heartbeat_ms; /* of a leader */
	uint32_t
		election_ms; /* a follower campaigns after 1 to 2 times this silence; a leader without a quorum steps down after it */
	uint32_t message_bytes;  /* of the bodies in one message */
	uint32_t inflight_bytes; /* of the bodies on the way to one member, or not durable there yet */
	uint64_t seed;           /* of the timeouts: different in each replica */
};

enum raft_peer_state {
	RAFT_PROBE,     /* where its log ends is not known: one message at a time */
	RAFT_REPLICATE, /* known: messages follow each other without waiting */
	RAFT_SENDING_SNAPSHOT,
};

struct raft_peer {
	uint64_t id;
	/* candidate */
	bool granted, refused;
	/* leader */
	enum raft_peer_state state;
	bool active;  /* heard of since the last look */
	bool filling; /* a message is with the driver */
	bool paused;  /* PROBE: a message is on the way */
	uint64_t match, next;
	uint64_t read_seq;
	uint32_t inflight_at, inflight_count, inflight_bytes;
	struct {
		uint64_t before, last; /* entries before + 1 .. last */
		uint32_t bytes;
	} inflight[RAFT_INFLIGHT_MAX];
};

/* Read by everyone, written by raft_step only. */
struct raft_core {
	struct raft_options options;
	struct rng rng;
	/* durable */
	uint64_t term, vote;
	/* the log: base is the entry before its first; the runs are of known_index + 1 .. last_index (terms.c) */
	uint64_t base_index, base_term, known_index, last_index, persisted;
	uint64_t epoch; /* counts cuts: a sync that was started before one says nothing */
	uint32_t run_count;
	struct raft_run runs[RAFT_RUNS_MAX];
	struct raft_config config, config_before; /* the latest in the log, and the one that a cut brings back */
	/* volatile */
	enum raft_role role;
	uint64_t leader; /* 0: not known */
	uint64_t commit;
	uint64_t verified; /* follower: up to here the log is known to be the leader's; what is committed always is */
	uint64_t now_ms, heard_ms, election_at_ms, heartbeat_at_ms, quorum_at_ms;
	uint64_t transfer_to, transfer_until_ms;
	uint64_t read_seq, read_index, read_confirmed;
	bool read_open, read_next;                /* a probe is out; another is to follow it */
	struct raft_peer peers[RAFT_MEMBERS_MAX]; /* as config.members */
	uint64_t refused, gone;                   /* messages that break the protocol; of who was dropped by force */
};

/*
 * What a replica finds on its disk. A group is founded by giving each of its replicas the same first entry, of term 1: the configuration.
 * Who joins later starts with nothing, and gets that entry like any other.
 */
struct raft_boot {
	uint64_t term, vote;
	uint64_t base_index, base_term, last_index; /* all of it durable */
	const struct raft_run
		*runs; /* of the log's entries, up to last_index; the last RAFT_RUNS_MAX of them are enough */
	uint32_t run_count;
	/* The latest configuration of state and log, and the one before it (count 0: there is none). */
	struct raft_config config, config_before;
	uint64_t commit; /* that is known for certain, at most last_index; see 1. above */
};

/* ERR_CORRUPT: what was found contradicts itself; ERR_INVAL: the options do. */
int raft_init(
	struct raft_core *core, const struct raft_options *options, const struct raft_boot *boot, uint64_t now_ms);

/* `now_ms` never goes back. `messages` has room for RAFT_MESSAGES_MAX. */
void raft_step(struct raft_core *core, uint64_t now_ms, const struct raft_event *event, struct raft_message *messages,
	struct raft_update *ret_update);

/*
 * A RAFT_APPEND with append.fill: the driver has bodies up to `last` for it, and says which terms its log has from prev_index (if that is
 * not the base, whose term the core knows) to `last`. Sets prev_term, last and runs; at least one entry goes (none, if room_bytes is 0:
 * then `last` is prev_index), and perhaps fewer than offered: as many as there is room for runs. The driver sets has_config and config
 * if the last is one, and ends a message behind a configuration. False: this message is void, as the log has changed; nothing else
 * was looked at then. CHECK: a body is there, and the terms are those that the core knows.
 */
bool raft_fill(const struct raft_core *core, struct raft_message *message, uint64_t last, const struct raft_run *runs,
	uint32_t run_count);

/*
 * Of a message that is to be stepped (a RAFT_APPEND or RAFT_SNAPSHOT, received or ready). True: the core does not remember all terms that
 * it must compare. The driver looks up in its log, from *ret_first on, the first entry up to *ret_last whose term is not that of
 * raft_message_term, and steps the message with this in event.differs; *ret_last + 1, if all are equal. Seldom: the log parted from that
 * of the leader more than RAFT_RUNS_MAX terms ago, or a message came very late.
 */
bool raft_asks(
	const struct raft_core *core, const struct raft_message *message, uint64_t *ret_first, uint64_t *ret_last);

/* Term of the entry, as the message says it: of prev_index .. last of a RAFT_APPEND, of that of a RAFT_SNAPSHOT. */
uint64_t raft_message_term(const struct raft_message *message, uint64_t index);

/* 0, or ERR_PROTO: the message cannot come from a replica that works. Bodies and sender are for the driver to check. */
int raft_message_check(const struct raft_message *message);

/* Term of an entry, 0 if it is not known here (forgotten, or not there). */
uint64_t raft_term_at(const struct raft_core *core, uint64_t index);

#endif
