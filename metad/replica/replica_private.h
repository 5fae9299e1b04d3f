/* SPDX-License-Identifier: Apache-2.0 */
#ifndef METAD_REPLICA_REPLICA_PRIVATE_H
#define METAD_REPLICA_REPLICA_PRIVATE_H

#include "metad/replica/cache.h"
#include "metad/replica/fetch.h"
#include "metad/replica/offer.h"
#include "metad/replica/replica.h"
#include "metad/replica/stall.h"

/* A message that came: its bodies are entries already, so that what is appended is not copied again. */
struct inbound {
	struct list link;
	struct raft_message message;
	uint32_t count;
	uint64_t bytes; /* of the bodies */
	struct entry *entries[]; /* NULL: went to the log */
};

struct reader {
	struct wal_read read;
	struct replica *r;
	bool busy, ready; /* on its way; ended, and the pump is to look at it */
	int code;
	bool held; /* of apply: this entry was given out, and waits for room */
	uint64_t index, term;
	struct slice data;
};

/* A message that is to be filled, for one member: at most one of a term, and that of an earlier one is void. */
struct fill {
	struct raft_message message;
	bool wanted;
	struct reader reader;
	struct { /* what it was given last, up to where the log's growth is made up for, and when there may be more for who is far behind */
		uint32_t count, bytes;
		uint64_t log_end, next_ns;
	} given;
	uint64_t not_needed_ns; /* when others sufficed to commit, and did, or had nothing to */
	uint64_t commit;        /* at the last look */
	struct io_op due;       /* a timer, of who is far behind */
};

/* What a member that gets a snapshot needs of the log behind that. */
struct keep {
	uint64_t peer; /* 0: none */
	uint64_t term; /* the leadership that it is of */
	uint64_t lacked; /* bytes of the log, when it was seen to have the snapshot, and some; 0: it was not yet */
	uint64_t offered; /* from where it is held for the last snapshot that it was offered */
	bool taken, took; /* a part of that was asked for; of any of them */
	uint64_t match, moved_ns; /* how far it is; when it was last offered something, or came on */
	struct wal_hold hold;
};

struct replica {
	struct io *io;
	struct replica_options options;
	struct raft_config found;
	struct wal_replica wal_replica;
	char *log_dir;
	struct wal *wal;
	struct table *table; /* NULL: one is closed, another not open yet */
	struct cache cache;
	struct raft_core core;
	bool begun;   /* replica_start was called */
	bool started; /* the core is there, and is stepped */
	int stopped;  /* 0, or why */
	bool closing;

	/* The update that is being worked off, of this event. */
	struct raft_message messages[RAFT_MESSAGES_MAX];
	struct raft_update update;
	struct inbound *inbound; /* NULL: it was no message */
	struct wal_save save;
	struct wal_restart restart;
	bool saving; /* term and vote, or a snapshot takes the place of log and table */
	uint64_t log_epoch; /* the cuts that the log was told of: core.epoch, but between step and cut */

	/* What is to be stepped. */
	struct list received, submits; /* struct inbound, struct replica_submit */
	uint32_t received_count, submit_count;
	uint64_t received_bytes; /* of bodies */
	bool tick;
	struct stall stall;
	struct fill fills[RAFT_MEMBERS_MAX];
	struct keep keeps[RAFT_MEMBERS_MAX];

	struct {
		uint64_t term, seq; /* of the last question */
		uint64_t all_seq; /* of one that goes to all voters */
		bool is_new; /* in this update */
		uint64_t asked_ns;
		struct raft_message later[RAFT_MEMBERS_MAX]; /* to those that were not asked yet */
		uint32_t count;
		struct io_op timer;
		uint64_t sufficed[RAFT_MEMBERS_MAX]; /* ids of those that had answered when the last one was */
		uint32_t sufficed_count;
	} ask;
	struct list reads, reads_open, reads_ready; /* struct replica_read: to be asked; asked; confirmed, to be answered when applied */
	uint32_t read_count;
	bool reads_lost; /* those that are open */
	struct {
		uint64_t to; /* 0: none */
		bool begun;
		void (*done)(void *ctx, int code);
		void *ctx;
		void (*over)(void *ctx); /* NULL: nobody waits */
		void *over_ctx;
	} transfer;
	uint64_t first_index; /* of its term, as a leader; 0: it does not lead */
	bool ready;
	struct list taken; /* struct replica_submit, by index: to be answered when it is applied */
	struct reader apply_reader;
	struct offer offer;
	struct fetch fetch;
	struct io_op timer;
	struct io_turn_hook hook;
	struct replica_counts counts;
	/* while booting and closing */
	struct raft_config config, config_before;
	struct raft_config told; /* on_config */
	bool wal_closed, table_closed, table_closing;
	int close_code;
	void (*closed)(void *ctx, int code);
	void *closed_ctx;
};

/* Work is at hand: the pump runs at the end of this turn. */
void replica__kick(struct replica *r);
void replica__stop(struct replica *r, int code, const char *text);
/* Ends an update that waits for nothing: steps `event`, whose message, if any, is r->inbound. */
void replica__step(struct replica *r, const struct raft_event *event);
uint64_t replica__term_at(const struct replica *r, uint64_t index);
/* What raft_asks asks of this message: event.differs. */
uint64_t replica__look_up(const struct replica *r, const struct raft_message *message);
/* All of the update but term, vote and a snapshot, which are durable now. */
void replica__finish(struct replica *r);
int replica__open_table(struct replica *r, struct err *err);
void replica__tell_config(struct replica *r);
/* Appends to log and cache; returns the index. */
uint64_t replica__append(struct replica *r, struct entry *entry);

/* work.c: all that can be done now. */
void replica__work(struct replica *r);
void replica__inbound_free(struct inbound *inbound);

/* fill.c */
void replica__fill_want(struct replica *r, const struct raft_message *message);
/* False: there is nothing to do. */
bool replica__fill_work(struct replica *r);
void replica__fill_close(struct replica *r);
bool replica__fill_is_quiet(const struct replica *r); /* after that */
bool replica__apply_work(struct replica *r);
void replica__end_reader(struct reader *reader);

/* calls.c: reads, hand-over, reports. */
void replica__reads_update(struct replica *r);
void replica__role_update(struct replica *r);
/* It led and does not any more, as of an update whose term goes to the disk first. */
void replica__role_lost(struct replica *r);
/* At a tick: a leader whose log hangs hands over. */
void replica__yield(struct replica *r);
bool replica__calls_work(struct replica *r);
void replica__calls_fail(struct replica *r, int code);

/* ask.c */
void replica__ask_answered(struct replica *r); /* there is update.read_done; before messages of that update */
/* A probe of raft/read.c. False: it is to be sent now. */
bool replica__ask_later(struct replica *r, const struct raft_message *m);

/* offer.c: leader. wanted: update.snapshot_wanted. */
void replica__offer_want(struct replica *r, uint64_t wanted);
bool replica__offer_work(struct replica *r);
void replica__offer_close(struct replica *r);
/* NULL: no member. */
const struct raft_peer *replica__peer(const struct replica *r, uint64_t id);

/* keep.c: leader. From entry `from` on the log stays for this member, until it has installed a snapshot and come near; ERR_NOENT as wal_hold. */
int replica__keep_begin(struct replica *r, uint64_t peer, uint64_t from);
void replica__keep_taken(struct replica *r, uint64_t peer); /* it asked for a part of what it was offered last */
bool replica__keeps(const struct replica *r, uint64_t peer);
void replica__keep_look(struct replica *r); /* at a tick */
void replica__keep_close(struct replica *r);

/* fetch.c: follower; message: of the event whose update has `fetch`. */
void replica__fetch_want(struct replica *r, const struct raft_message *message);
bool replica__fetch_work(struct replica *r);
/* False: a worker still has it. */
bool replica__fetch_close(struct replica *r);
/* Works off update.install, then all the rest of the update. */
void replica__install(struct replica *r);

/* 0, or as wal_read. */
int replica__read(struct replica *r, struct reader *reader, uint64_t from, uint64_t to, uint32_t max_bytes);

#endif
