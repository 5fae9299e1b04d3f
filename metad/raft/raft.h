/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raft: the core of the replicated log (Ongaro, Ousterhout 2014; Ongaro's thesis 2014 for pre-vote, learners, single-server changes,
 * ReadIndex and leadership transfer). One event in, one update out: no I/O, no clock, no allocation, nothing global. A core is flat:
 * copying the struct copies the replica.
 *
 *     raft_step(core, now, event, update), then the driver works the update off, in this order:
 *
 *     1. update.meta          write term and vote, sync; before anything else of this update leaves this process
 *     2. update.install       switch to the snapshot that RAFT_SNAPSHOT_READY spoke of, durably; the log before it is gone
 *     3. update.truncate_from cut the log; update.append: append entries to it; start one sync if none runs
 *     4. update.messages      fill those that ask for it (raft_fill), send; then RAFT_SENT for each of those, also for one that did not leave
 *     5. update.commit        hand entries up to min(commit, persisted) to apply
 *
 * The core knows runs of terms, not entries: bodies are the driver's. Which entries are durable it learns from RAFT_PERSISTED only, after
 * their sync returned 0; a follower acknowledges only then, and a leader counts itself only then.
 *
 *                     timeout               quorum grants          quorum votes
 *     RAFT_FOLLOWER ----------> RAFT_PRE_CANDIDATE -----> RAFT_CANDIDATE -----> RAFT_LEADER
 *          ^------------- higher term, leader seen, no quorum heard for election_ms ----|
 *
 * Membership changes by one member at a time: with the rule that an entry of the leader's own term is committed first, it is as safe as
 * joint consensus (Ongaro, raft-dev 2015-07-10), and one uncommitted configuration is all that a log can hold, so that a cut needs to
 * remember one older one. All growth and shrinkage of 1, 3 or 5 replicas is a sequence of such steps.
 *
 * Messages come from outside: raft_message_check tells whether one may be stepped. What breaks the protocol in a way that only the
 * state shows is refused, counted in core->refused, and changes nothing.
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
		RAFT_BOUND_RUNS, /* of terms in a log: the oldest are forgotten, who needs them gets a snapshot */
	RAFT_MESSAGE_RUNS_MAX = RAFT_BOUND_MESSAGE_RUNS, /* of terms in one message */
	RAFT_INFLIGHT_MAX = RAFT_BOUND_INFLIGHT, /* messages with entries to one member that are not acknowledged */
	RAFT_MESSAGES_MAX = 3 * RAFT_MEMBERS_MAX,
	RAFT_DESCRIPTOR_BYTES = 48,
};
/* Beyond these a message is malformed: a term or index there would leave no room to go on. */
#define RAFT_TERM_MAX (UINT64_C(1) << 48)
#define RAFT_INDEX_MAX (UINT64_C(1) << 60)

struct raft_member {
	uint64_t id; /* 1.. ; rising, never used again, also not for the same host with a new disk */
	bool voter;  /* else a learner: gets the log, is not counted */
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
			uint32_t
				room_bytes; /* sender only: the bodies should not be longer, but one entry always goes */
			bool has_config;    /* `last` is a configuration, and no other entry is */
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
	RAFT_RECEIVE,   /* message */
	RAFT_SUBMIT,    /* count entries are to be appended; the leader's */
	RAFT_PERSISTED, /* entries up to `index` are durable in the log of `epoch` */
	RAFT_SENT, /* a message that asked to be filled left: peer, index (its last; 0: it did not), bytes, term (the message's) */
	RAFT_COMPACTED,      /* entries up to `index` (<= commit) are no longer in the log */
	RAFT_SNAPSHOT_TAKEN, /* for `peer`: snapshot; answers update.snapshot_wanted */
	RAFT_SNAPSHOT_READY, /* `snapshot` was fetched, is durable and verified: shall it be installed? */
	RAFT_CHANGE,         /* change, peer; the leader's */
	RAFT_TRANSFER,       /* lead no longer: hand over to `peer` */
	RAFT_READ,           /* a read that must see all that was acknowledged before it */
	RAFT_CAMPAIGN,       /* the election timeout has run out; for tests and operators */
};

enum raft_change {
	RAFT_ADD_LEARNER = 1,
	RAFT_PROMOTE, /* a learner to a voter */
	RAFT_REMOVE,
};

struct raft_event {
	enum raft_event_type type;
	uint64_t peer, index, term, count, epoch;
	uint32_t bytes;
	enum raft_change change;
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
	/* Of SUBMIT, CHANGE, TRANSFER, READ, SNAPSHOT_READY: 0, or why not:
	 *   ERR_NOT_LEADER  see core->leader
	 *   ERR_AGAIN       leadership is being handed over, or no entry of the own term is committed yet: soon
	 *   ERR_BUSY        the configuration before this one is not committed yet; of a removal: of the leader itself, which must hand over first
	 *                   of a promotion: what the learner has is not known yet, let alone nearly all
	 *   ERR_EXIST, ERR_NOENT, ERR_INVAL, ERR_OVERFLOW   the change makes no sense, or there are too many members
	 *   ERR_STALE       the snapshot is not newer than the log here */
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
		uint64_t last;
		uint32_t bytes;
	} inflight[RAFT_INFLIGHT_MAX];
};

/* Read by everyone, written by raft_step only. */
struct raft_core {
	struct raft_options options;
	struct rng rng;
	/* durable */
	uint64_t term, vote;
	/* the log: base is the entry before its first */
	uint64_t base_index, base_term, last_index, persisted;
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
	uint64_t refused;                         /* messages that break the protocol */
};

/*
 * What a replica finds on its disk. A group is founded by giving each of its replicas the same first entry, of term 1: the configuration.
 * Who joins later starts with nothing, and gets that entry like any other.
 */
struct raft_boot {
	uint64_t term, vote;
	uint64_t base_index, base_term, last_index; /* all of it durable */
	const struct raft_run
		*runs; /* of base_index + 1 .. last_index; of too many the last ones are kept: what goes is committed */
	uint32_t run_count;
	/* The latest configuration of state and log, and the one before it (count 0: there is none). */
	struct raft_config config, config_before;
	uint64_t commit; /* that is known: what is applied */
};

/* ERR_CORRUPT: what was found contradicts itself; ERR_INVAL: the options do. */
int raft_init(
	struct raft_core *core, const struct raft_options *options, const struct raft_boot *boot, uint64_t now_ms);

/* `now_ms` never goes back. `messages` has room for RAFT_MESSAGES_MAX. */
void raft_step(struct raft_core *core, uint64_t now_ms, const struct raft_event *event, struct raft_message *messages,
	struct raft_update *ret_update);

/*
 * A RAFT_APPEND with append.fill: the driver has bodies up to `last` for it. Sets last and runs; at least one entry goes, and
 * perhaps fewer than offered: as many as there is room for runs. The driver sets has_config and config if the last is one, and ends
 * a message behind a configuration. False: the log has changed and this message is void.
 */
bool raft_fill(const struct raft_core *core, struct raft_message *message, uint64_t last);

/* 0, or ERR_PROTO: the message cannot come from a replica that works. Bodies and sender are for the driver to check. */
int raft_message_check(const struct raft_message *message);

/* Term of an entry, 0 if it is not known (forgotten, or not there). */
uint64_t raft_term_at(const struct raft_core *core, uint64_t index);
const char *raft_role_name(enum raft_role role);

#endif
