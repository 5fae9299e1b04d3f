/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica: one member of a replicated group: it drives a raft core (metad/raft/raft.h) over the log of a replica
 * (common/kv/wal_replica.h) and a table (table.h), sends by a transport that it is given, and gives entries that are committed and durable
 * here to apply.
 *
 *     submit, message, tick, log --queue--> [ one event --raft_step--> one update: meta | cut | append | messages | apply ] --> next
 *
 * Invariants:
 *  1. One update at a time. While its term and vote are on their way to the disk nothing of it leaves, no event is stepped and no log
 *     call is made; so whenever the core is stepped, core and log are of one epoch.
 *  2. What the core is told of as persisted is what the log calls durable at that moment, of the log as it is after the last cut.
 *  3. An entry is in memory until it is durable; afterwards at most cache_bytes of the newest are, the others are read back.
 *  4. Entries are applied once, in order, never above min(commit, persisted).
 *  5. From the end of the turn on in which log or table failed nothing is sent, stepped or applied; what was submitted fails, on_stop is called
 *     once.
 *  6. The log is trimmed below what a crash leaves of the table (kv_trim_index), and the newest keep_bytes of it stay all the same, for members
 *     that lag.
 *
 *  7. A member that needs what was trimmed gets the table instead (offer.c, fetch.c): one member at a time, in parts, at a limited rate.
 *     What it needs of the log behind that stays until it has come near (keep.c). Log and table change together: by the log's slots (table.h).
 *  8. A log that hangs (stall.h) holds up this replica only: if it leads it hands over, and it stands for no election. That it leads no longer
 *     it says at once, also while the new term is on its way to such a disk.
 *
 * One thread: that of the loop. No callback comes from inside replica_open, _start (but on_config), _submit or _receive.
 */
#ifndef METAD_REPLICA_REPLICA_H
#define METAD_REPLICA_REPLICA_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/slice.h"
#include "common/io/io.h"
#include "common/kv/wal_replica.h"
#include "metad/raft/raft.h"
#include "metad/replica/body.h"
#include "metad/replica/part.h"
#include "metad/replica/table.h"

enum {
	REPLICA_BODIES_MAX = 256,   /* entries of one message */
	REPLICA_SUBMITS_MAX = 1024, /* not answered yet */
	REPLICA_READS_MAX = 1024,   /* likewise */
	REPLICA_MESSAGES_MAX =
		256, /* received, not stepped yet; what comes beyond is dropped, as the network may do too */
	REPLICA_MESSAGES_BYTES_MAX = 64 << 20, /* of the bodies of these: likewise */
	REPLICA_MESSAGE_BYTES_MAX = 764 << 10, /* greatest raft.message_bytes: with it a letter is as long as it may be (raft_codec.h) */
};
_Static_assert((int)REPLICA_MESSAGES_BYTES_MAX >= (int)REPLICA_BODIES_MAX * (int)LIMIT_LOG_ENTRY_BYTES, "any message fits");

/* An entry as it travels: data is what the log holds (body.h). */
struct replica_body {
	uint64_t term;
	struct slice data;
};

/* What the layer above must know of the group. */
struct replica_role {
	enum raft_role role;
	uint64_t term, leader; /* leader: 0: not known */
	/* It leads, and has applied all that earlier leaders acknowledged: rows say now what new commands are to be checked against. */
	bool ready;
};

struct replica_options {
	struct raft_options raft; /* message_bytes: at most REPLICA_MESSAGE_BYTES_MAX */
	const char *dir; /* exists; gets the log and the tables (table.h) */
	uint64_t segment_bytes;
	bool buffered;
	uint8_t cluster[WAL_ID_BYTES];
	const struct raft_config *found; /* of a founder whose log is empty: the first entry; NULL: who joins */
	struct kv_options kv;            /* of the table; but dir, turn, on_fatal and ctx */
	uint64_t growth_bytes;           /* the most by which one entry's apply lets the table's memory grow */
	/*
	 * Rows that apply of this may write at most, those that follow from them (kv_derived) counted: it waits until they surely find room
	 * (kv_admits). Only of a table that minds its room (kv.room_bytes); else NULL.
	 */
	uint64_t (*rows)(void *ctx, enum body_kind kind, struct slice data);
	uint64_t keep_bytes;             /* of the log, at its end: stay when the table has them */
	uint32_t cache_bytes;            /* of bodies that are durable and kept all the same */
	/* At which a snapshot is given away; 0: 16 MiB; else PART_BYTES_PER_S_LEAST at least. Who is far behind gets entries at a quarter of it, or twice as fast as new ones come. */
	uint64_t snapshot_bytes_per_s;
	/* To message->to, with the bodies of prev_index + 1 .. last; borrowed for the call. May lose it. Never calls back. */
	void (*send)(void *ctx, const struct raft_message *message, const struct replica_body *bodies, uint32_t count);
	/*
	 * Entry `index`; data without the kind, empty if there are no commands. Deterministic: reads and writes rows of `kv`, whose keys do not
	 * begin with 0, and nothing else. The only way that they change. A failure ends the replica.
	 */
	int (*apply)(void *ctx, struct kv *kv, uint64_t index, uint64_t term, enum body_kind kind, struct slice data, struct err *err);
	/* To member `to`: its replica_receive_ask, _part. As `send`. */
	void (*ask)(void *ctx, uint64_t to, const struct replica_ask *ask);
	void (*part)(void *ctx, uint64_t to, const struct replica_part *part);
	/* NULL, or: the rows here may be wrong: no member gets a snapshot of them, nor the rest of one, for as long as this says so. */
	bool (*withholds)(void *ctx);
	/*
	 * A snapshot takes the place of all rows. NULL: the table closes; scans, values and snapshots of it have ended when this returns. Else
	 * the new one, as of replica_applied: what was derived from rows in memory is void.
	 */
	void (*on_table)(void *ctx, struct kv *kv);
	/*
	 * Role, term or leader changed, or it became ready. What is submitted while it does not lead is refused (ERR_NOT_LEADER); what was taken
	 * before stays open until its index is applied, unless it is withdrawn.
	 */
	void (*on_role)(void *ctx, const struct replica_role *role);
	/* NULL, or who belongs to the group has changed, as the log says it, committed or not: before the first letter that follows from it. */
	void (*on_config)(void *ctx, const struct raft_config *config);
	void (*on_stop)(void *ctx, int code, const char *text);
	void *ctx;
};

struct replica;
/*
 * Opens log and table; nothing is under way before replica_start. ERR_CORRUPT: the two do not belong to each other. ERR_INVAL: a log that is to be
 * founded has taken part in a group, or an option is out of its bounds.
 */
int replica_open(struct io *io, const struct replica_options *options, struct replica **ret_replica, struct err *err);
/* Its log has an entry of a leader: those of its founding are of term 1, which nobody leads in. */
bool replica_was_led(const struct replica *replica);
/* Of one that was not started: it neither founds a group nor has it ever said anything in one. */
bool replica_is_blank(const struct replica *r);
/* The layer above cannot go on: as if log or table had failed. */
void replica_fail(struct replica *r, int code, const char *text);
/* Takes part in the group: a founder writes its first entry. */
void replica_start(struct replica *r);
/* It is a founder whose first entry is not there. */
bool replica_founds(const struct replica *r);
/* Of such a one, instead of replica_start: it takes no part, as far as it is there, until replica_found, which writes that entry. */
void replica_wait(struct replica *r);
void replica_found(struct replica *r);
/* For a start that failed elsewhere: of one that was not started. Frees at once. */
void replica_abandon(struct replica *r);
/* Of one that was started. What was submitted fails with ERR_STOPPED; waits for log and table, frees. */
void replica_close(struct replica *r, void (*closed)(void *ctx, int code), void *ctx);

/* Commands that are to become one entry; or a change of the group, which becomes one. */
struct replica_submit {
	struct slice data;    /* 1 .. LIMIT_LOG_ENTRY_BYTES - 1; the caller's until done. Of a change: empty */
	enum raft_change change; /* 0: commands */
	uint64_t member;         /* whom the change is about */
	const struct raft_member *known; /* of a change: as raft_event.known; the caller's until done */
	uint32_t known_count;
	uint64_t index, term; /* set when it was taken; 0 before */
	/*
	 * 0: committed and applied here. ERR_CANCELED: another entry has its place, it will never be applied. ERR_NOT_LEADER, ERR_AGAIN: not
	 * taken; of a change also what else raft_update.code says. ERR_STALE: this replica leads no longer and has a snapshot in place of its log, which does not say whether it was applied. Else
	 * log or table failed or was closed: if index is set, whether it will be applied is not known.
	 */
	void (*done)(struct replica_submit *submit, int code);
	struct list link; /* private */
};
/* 0, or ERR_OVERLOADED, ERR_STOPPED: then done is not called. There is no deadline: a leader that nobody hears does not answer. */
int replica_submit(struct replica *r, struct replica_submit *submit);
/* One that is not done: done will not be called. If its index is set, whether it will be applied is not known. */
void replica_withdraw(struct replica *r, struct replica_submit *submit);

/* A read of rows that must see all that was acknowledged, by any leader, before it was asked for. */
struct replica_read {
	/* 0: the rows are such, during this call. ERR_NOT_LEADER, ERR_AGAIN: ask the leader, or again. ERR_STOPPED. */
	void (*done)(struct replica_read *read, int code);
	bool asks_all; /* the question goes to all voters, not only to as many as suffice: raft_peer.read_seq will say who answers */
	uint64_t token; /* private; of the core, then the index that must be applied */
	struct list link;
};
/* 0, or ERR_OVERLOADED, ERR_STOPPED: then done is not called. A leader that nobody hears answers when it steps down. */
int replica_read(struct replica *r, struct replica_read *read);

/*
 * Hand leadership over to a voter. `done` once: 0: this replica leads no longer (on_role says who does); ERR_TIMEDOUT: it leads on; else as
 * raft_update.code, or ERR_STOPPED. One at a time: ERR_BUSY.
 */
int replica_transfer(struct replica *r, uint64_t to, void (*done)(void *ctx, int code), void *ctx);
/* To be told when the hand-over that is under way has ended, after its `done`; one may wait. False: there is none. */
bool replica_transfer_await(struct replica *r, void (*over)(void *ctx), void *ctx);

/* A message that came, of a sender who is who it says; copied. What is malformed is dropped and counted. */
void replica_receive(
	struct replica *r, const struct raft_message *message, const struct replica_body *bodies, uint32_t count);

/* What came of a snapshot, of a sender who is who it says; copied. What does not belong to one that is under way is dropped. */
void replica_receive_ask(struct replica *r, uint64_t from, const struct replica_ask *ask);
void replica_receive_part(struct replica *r, uint64_t from, const struct replica_part *part);

struct replica_counts {
	uint64_t malformed, dropped;              /* messages */
	uint64_t fills_cached, fills_read;        /* messages with bodies from memory, and from the log */
	uint64_t snapshots_offered, parts_sent;   /* leader */
	uint64_t snapshots_installed, snapshots_failed, parts_received; /* follower */
};
const struct replica_counts *replica_counts(const struct replica *r);
/* NULL until the first entry of a founder is durable. */
const struct raft_core *replica_core(const struct replica *r);
const struct wal *replica_log(const struct replica *r);
/* Its log does not answer (stall.h): it does not stand for election, and hands over if it leads. */
bool replica_hangs(const struct replica *r);
/* As of replica_applied; NULL between the calls of on_table. */
struct kv *replica_kv(struct replica *r);
uint64_t replica_applied(const struct replica *r);

#endif
