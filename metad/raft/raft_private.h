/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of raft share. */
#ifndef METAD_RAFT_RAFT_PRIVATE_H
#define METAD_RAFT_RAFT_PRIVATE_H

#include "common/base/err.h"
#include "metad/raft/raft.h"

/* One step: the core and what comes out of it. */
struct raft_turn {
	struct raft_core *core;
	struct raft_update *update;
	uint64_t differs; /* as of the event */
};

/* terms.c: the runs of terms that the log consists of. */
uint64_t raft__last_term(const struct raft_core *core);
/* True: the term of this entry is remembered here, or there is none. */
bool raft__log_knows(const struct raft_core *core, uint64_t index);
/* Whether the entry of the log is that which the message speaks of. What is committed is the leader's, if nothing speaks against it. */
bool raft__log_has(const struct raft_turn *t, const struct raft_message *m, uint64_t index);
void raft__log_append(struct raft_core *core, uint64_t last, uint64_t term);
/* term_before: of the entry before `from`, which stays. */
void raft__log_cut(struct raft_core *core, uint64_t from, uint64_t term_before);
void raft__log_compact(struct raft_core *core, uint64_t index, uint64_t term);
/* The last entry at or before `index` whose term is not above `term`; or any before which no term is known. */
uint64_t raft__log_floor(const struct raft_core *core, uint64_t index, uint64_t term);

/* elect.c */
void raft__follow(struct raft_turn *t, uint64_t term, uint64_t leader);
void raft__campaign(struct raft_turn *t, bool pre, bool forced);
void raft__on_vote(struct raft_turn *t, const struct raft_message *m);
void raft__on_voted(struct raft_turn *t, const struct raft_message *m);
void raft__on_timeout_now(struct raft_turn *t, const struct raft_message *m);
void raft__elect_tick(struct raft_turn *t);
/* Of a leader that was removed: the group goes on without it as soon as that is committed. */
void raft__stand_down(struct raft_turn *t);
/* A leader was heard of lately: not the time for an election. */
bool raft__leader_is_fresh(const struct raft_core *core);
void raft__election_reset(struct raft_core *core);

/* replicate.c */
struct raft_message *raft__send(struct raft_turn *t, enum raft_message_type type, uint64_t to);
void raft__lead(struct raft_turn *t); /* became leader: the no-op */
void raft__lead_tick(struct raft_turn *t);
void raft__submit(struct raft_turn *t, uint64_t count);
void raft__append_own(struct raft_turn *t, enum raft_append_kind kind, uint64_t count);
void raft__on_append(struct raft_turn *t, const struct raft_message *m);
void raft__on_appended(struct raft_turn *t, const struct raft_message *m);
void raft__on_persisted(struct raft_turn *t, uint64_t index, uint64_t epoch);
void raft__acknowledge(struct raft_turn *t);
void raft__on_sent(struct raft_turn *t, const struct raft_event *e);
void raft__on_compacted(struct raft_turn *t, uint64_t index, uint64_t term);
void raft__commit_advance(struct raft_turn *t);

/* snapshot.c */
void raft__snapshot_begin(struct raft_turn *t, struct raft_peer *peer);
void raft__on_snapshot(struct raft_turn *t, const struct raft_message *m);
void raft__on_snapshot_taken(struct raft_turn *t, const struct raft_event *e);
void raft__on_snapshot_ready(struct raft_turn *t, const struct raft_message *m);

/* member.c */
bool raft__is_voter(const struct raft_config *config, uint64_t id);
bool raft__is_gone(const struct raft_core *core, uint64_t id); /* dropped by force, and that is committed: it is no member for good */
struct raft_peer *raft__peer(struct raft_core *core, uint64_t id); /* NULL: not a member; a core is its own peer */
bool raft__peer_is_voter(const struct raft_core *core, const struct raft_peer *peer);
uint32_t raft__quorum(const struct raft_core *core);
bool raft__config_is_sane(const struct raft_config *config);
void raft__config_adopt(struct raft_core *core, const struct raft_config *config);
bool raft__config_may_cut(const struct raft_core *core, uint64_t from);
void raft__config_cut(struct raft_core *core, uint64_t from);
void raft__change(struct raft_turn *t, const struct raft_event *event);
void raft__transfer(struct raft_turn *t, uint64_t id);
void raft__transfer_go(struct raft_turn *t, struct raft_peer *peer); /* when it has all */
/* An entry of the own term is committed: what older terms left is, too. */
bool raft__term_is_committed(const struct raft_core *core);

/* read.c */
void raft__read(struct raft_turn *t);
void raft__read_probe_again(struct raft_turn *t);
void raft__on_read_probe(struct raft_turn *t, const struct raft_message *m);
void raft__on_read_ack(struct raft_turn *t, const struct raft_message *m);
void raft__read_forget(struct raft_turn *t);

#endif
