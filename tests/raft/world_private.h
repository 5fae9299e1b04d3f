/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a world share. */
#ifndef TESTS_RAFT_WORLD_PRIVATE_H
#define TESTS_RAFT_WORLD_PRIVATE_H

#include <inttypes.h>
#include <stdio.h>
#include "tests/raft/world.h"

enum { TICK_MS = 5, HEARTBEAT_MS = 20, ELECTION_MS = 100, BODY_BYTES = 100, WINDOW_BODIES = 20 };

#define TRACE(w, ...)                                         \
	do {                                                  \
		if ((w)->trace) {                             \
			printf("%6" PRIu64 " ", (w)->now_ms); \
			printf(__VA_ARGS__);                  \
			putchar('\n');                        \
		}                                             \
	} while (0)

#ifndef WORLD_SMALL
static inline uint32_t world__id(const struct world *w, const struct world_node *n)
{
	uint32_t at = (uint32_t)(n - w->nodes);

	return at + 1 + (at >= w->apart_from ? w->apart : 0);
}

/* Of an id that is given. */
static inline struct world_node *world__node(struct world *w, uint64_t id)
{
	return &w->nodes[id - 1 - (id > w->apart ? w->apart : 0)];
}

/* A force has left it behind: what it does is no law's. */
static inline bool world__is_dropped(const struct world_node *n)
{
	return n->dropped;
}
#else
static inline uint32_t world__id(const struct world *w, const struct world_node *n)
{
	return (uint32_t)(n - w->nodes) + 1;
}

static inline struct world_node *world__node(struct world *w, uint64_t id)
{
	return &w->nodes[id - 1];
}

static inline bool world__is_dropped(const struct world_node *n)
{
	(void)n;
	return false;
}
#endif

/* log.c */
const char *world__role_name(enum raft_role role);
uint64_t world__log_last(const struct world_log *log);
const struct world_entry *world__log_at(const struct world_log *log, uint64_t index); /* NULL: it is not there */
void world__log_push(struct world_log *log, const struct world_entry *entry);
void world__log_copy(struct world_log *to, const struct world_log *from);
void world__log_cut(struct world_log *log, uint64_t from);
void world__log_compact(struct world_log *log, uint64_t index);
void world__log_fini(struct world_log *log);
/* The number of the latest configuration, and of that before it. */
uint32_t world__log_config(const struct world_log *log, uint32_t *ret_before);
uint32_t world__log_latest(const struct world_log *log);
/* Of a state, when this entry is applied to it. */
uint64_t world__hash(uint64_t hash, const struct world_entry *e);

/* laws.c: what does not hold is in world.fault. */
void world__fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world__check_start(struct world *w, struct world_node *n);
void world__check_meta(struct world *w, struct world_node *n, uint64_t term_before, uint64_t vote_before, bool meta);
void world__check_leader(struct world *w, struct world_node *n, bool elected);
void world__check_appended(struct world *w, struct world_node *n, uint64_t index);
void world__check_core(struct world *w, struct world_node *n);
void world__check_commit(struct world *w, struct world_node *n);
void world__check_message(struct world *w, struct world_node *n, const struct raft_message *m);
/* A step that this event made: from this role, with this leader known. */
void world__check_step(struct world *w, struct world_node *n, const struct raft_event *event,
	const struct raft_update *u, enum raft_role before, uint64_t leader_before, uint64_t term_before);
bool world__may_stand(const struct world *w, const struct world_node *n);
void world__check_change(struct world *w, struct world_node *n, const struct raft_config *before);
void world__apply(struct world *w, struct world_node *n);

/* watch.c */
void world__watch(struct world *w, struct world_node *n, const struct raft_event *event, const struct raft_update *u, enum raft_role before);
/* history.c */
struct world_node *world__some_leader(struct world *w); /* NULL: there is none */
void world__client_reads(struct world *w, struct world_node *n);
/* operator.c: what it wants of any leader; of this one, whom it has been waiting for; of one whom many do not hear. */
void world__operator_acts(struct world *w);
void world__operator_waits(struct world *w, struct world_node *n);
void world__operator_shrinks(struct world *w);
void world__operator_forces(struct world *w);
void world__part_from_rest(struct world *w, const struct world_node *n, uint64_t with);
/* liar.c: a message of a broken peer, if there is one to whom it may come now. */
void world__lie(struct world *w);

/* driver.c: event.count of a RAFT_RECEIVE: so many bodies are missing. */
void world__step(
	struct world *w, struct world_node *n, const struct raft_event *event, const struct world_entry *bodies);
void world__start(struct world *w, struct world_node *n);
void world__crash(struct world *w, struct world_node *n);
void world__sync_end(struct world *w, struct world_node *n);
void world__sync_begin(struct world *w, struct world_node *n);
uint64_t world__look_up(struct world *w, const struct world_node *n, const struct raft_message *m);
void world__fill(struct world *w, struct world_node *n, const struct raft_message *wanted);
void world__compact(struct world *w, struct world_node *n, uint64_t index);
/* All of `count` are voters, or the last is a learner; the entry that founds them is in their logs, or applied and compacted. */
void world__found(struct world *w, uint32_t count, bool learner, bool compacted);

#endif
