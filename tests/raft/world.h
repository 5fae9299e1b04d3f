/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world: a group of Raft replicas on the real core, with disks that sync late, a network that loses, repeats, delays and reorders, and
 * virtual time; all from one seed. After each step the world checks what Raft promises:
 *
 *   election safety     at most one leader a term; one vote a term and replica, for ever
 *   log matching        equal index and term: equal entries before it
 *   commit              one value per index, for ever; durable on a quorum of the configuration that committed it
 *   apply               in order, only what is committed and durable here; equal states after equal entries
 *   configuration       of a core is always the latest in its log, whatever was cut
 *   reads               see all that had been committed anywhere when they were asked for, and wait for nothing once a quorum has answered
 *   completeness        who is elected has all that is committed; what is acknowledged is on disk, and is the leader's
 *   liveness            when all is well again there is a leader, every member gets to the same state, reads and entries come to an end
 *   elections           are stood for by who may win, when it hears of no leader (of chance only)
 *   leaders             were voted for by a quorum, go when none is heard, or when they are no members any more; hand over to voters that have
 *                       all, promote whom they heard, give no id twice, and say where a member is that has moved
 *   bounds              a member gets no more than a window of what it has not made durable, but for what was taken for lost (of chance only)
 *   snapshots           go on where a log goes on, and take nothing away that the log has behind them
 *   lies                what contradicts what is committed, or itself, is refused, counted, and changes nothing (of chance only)
 *
 * The driver in here works an update off in the order that raft.h asks for; a crash may come between any two of its steps.
 *
 *     log.c       the log of a replica
 *     laws.c      what is checked, of any world
 *     driver.c    a replica: its core, its disk, and who works its updates off
 *     history.c   a world of chance: time, network, troubles, clients
 *     operator.c  members who come, move, go, and are dropped by force there
 *     watch.c     what takes time to see of a replica there
 *     liar.c      messages of a broken peer there
 *     explore.c   all small worlds: the same replicas and laws, whatever is left open decided in every way (explore.h)
 */
#ifndef TESTS_RAFT_WORLD_H
#define TESTS_RAFT_WORLD_H

#include "common/base/rng.h"
#include "metad/raft/raft.h"

/* A small world is flat: a copy of the struct is another world. */
#ifndef WORLD_SMALL
enum {
	WORLD_NODES = 48,
	WORLD_PACKETS = 512,
	WORLD_BODIES = 8,
	WORLD_READS = 32,
	WORLD_CONFIGS = 4096,
	WORLD_TERMS = 4096,
	WORLD_FILLS = RAFT_MEMBERS_MAX,
	WORLD_REPORTS = 8,
	WORLD_KEPT = 32
};
#else
enum {
	WORLD_NODES = 3,
	WORLD_PACKETS = 1,
	WORLD_BODIES = 4,
	WORLD_READS = 1,
	WORLD_CONFIGS = 8,
	WORLD_TERMS = 8,
	WORLD_ENTRIES = 6
};
#endif

struct world_entry {
	uint64_t term, value;  /* value 0: a no-op */
	uint32_t config;       /* in world.configs; 0: no configuration */
	uint32_t committed_in; /* term of who committed it; in world.committed only */
};

struct world_log {
	uint64_t base_index, base_term, base_hash; /* hash: of the state that base made */
	uint32_t base_config;
	uint32_t count;
#ifndef WORLD_SMALL
	uint32_t cap;
	struct world_entry *entries;
#else
	struct world_entry entries[WORLD_ENTRIES];
#endif
};

struct world_packet {
	uint64_t at_ms;
	struct raft_message message;
	struct world_entry bodies[WORLD_BODIES];
};

#ifndef WORLD_SMALL
struct world_fill {
	uint64_t at_ms;
	struct raft_message message;
};

struct world_report {
	uint64_t at_ms, index, epoch;
};

/* What a leader has sent to a member: entries behind `low`, up to `sent`, but for what it takes for lost. */
struct world_flow {
	bool begun;
	enum raft_peer_state state;
	uint64_t low, sent;
	uint64_t surprise; /* entries that the member has, or may have, and the leader does not count: they were in what it took for lost */
};

/* What is remembered of a leader, and of what it hears and sends. Bit i: nodes[i]. */
struct world_watch {
	uint64_t heard;                /* since a quorum was last */
	uint64_t met;                  /* the same, of this term */
	uint64_t silent_ms, ticked_ms; /* without a quorum, of the time that it saw pass */
	struct world_flow flows[WORLD_NODES];
};
#endif

struct world_node {
	bool exists, up, stalled;
	struct raft_core core;
	uint64_t disk_term, disk_vote; /* meta */
	uint64_t log_commit;           /* what is said of it in its log, which has it */
	uint64_t disk_commit;          /* what its log will say at the next start */
	struct world_log disk, syncing, log;
	bool sync_busy;
	uint64_t dies_at_ms; /* 0: not soon */
	uint64_t sync_at_ms, sync_epoch, sync_last;
	uint64_t applied, hash, clock_ms;
	uint32_t applied_config;
	bool fetch_busy;
	uint64_t fetch_at_ms;
	struct raft_message fetch;
#ifndef WORLD_SMALL
	uint32_t rate; /* of its clock, of 1000 */
	uint64_t clock_us;
	uint32_t fill_count, report_count;
	struct world_fill fills[WORLD_FILLS];       /* to be filled later */
	struct world_report reports[WORLD_REPORTS]; /* of syncs that ended */
	uint64_t offer_at_ms, offer_to; /* of a snapshot that takes long to be taken; 0: none is */
	struct raft_message offer;
	uint64_t lies; /* that it was told since it started */
	bool hasty;    /* the operator wants a member away as soon as this leads */
	uint64_t shrinks_at_ms, shrinks_by; /* the operator removes this member, which is cut off; 0: none */
	uint64_t place;                     /* how often it moved */
	uint64_t quiet_ms, election_at_ms;  /* that it follows nobody, and has voted for nobody; its timeout, when that was looked at */
	bool dropped;                       /* by force: it lives on, and nothing is promised of it */
	uint64_t forced;                    /* its log says that this much is committed, whatever else it says: a force has noted it */
	uint8_t voted[WORLD_TERMS];         /* by term: for nodes[i - 1]; 0: for nobody */
	struct world_watch watch;
#endif
};

struct world_read {
	uint32_t node;
	uint64_t token, floor, term; /* floor: what was committed anywhere when it was asked */
	bool open;
#ifndef WORLD_SMALL
	uint64_t heard;      /* bit i: nodes[i] has answered since */
	uint32_t idle_ticks; /* since they were a quorum */
#endif
};

/* What happened, so that a run of histories can say that it did. */
struct world_counts {
	uint64_t steps, elections, committed, crashes, torn, cuts, snapshots, changes, transfers, reads, lost, repeated,
		partitions, stalls, rollbacks, refused, asked, late_fills, late_reports, void_fills, jumps, late_offers, lies_bodies,
		lies_config, lies_entry, lies_leader, lies_snapshot, lies_term, held_up, moves, shrinks, forced;
};

struct world;

/* How what is left open is decided. */
struct world_ways {
	uint64_t (*choose)(struct world *w, uint64_t bound); /* 0 .. bound - 1 */
	/* How many entries of at most `bound` go to this peer in one message, less one. */
	uint64_t (*fill)(struct world *w, const struct raft_peer *peer, uint64_t bound);
	uint64_t (*takes_ms)(struct world *w, uint64_t most, bool often_short); /* a sync, a fetch */
	void (*post)(struct world *w, const struct raft_message *m, const struct world_entry *bodies);
	/* NULL: at once. False: at once this time; else it is filled, or reported, when its time has come. */
	bool (*fill_later)(struct world *w, struct world_node *n, const struct raft_message *m);
	bool (*report_later)(struct world *w, struct world_node *n, const struct raft_event *persisted);
	bool (*offer_later)(struct world *w, struct world_node *n, uint64_t to, const struct raft_message *snapshot);
	/* After a step, before anything of it leaves. NULL: nobody looks. */
	void (*watch)(struct world *w, struct world_node *n, const struct raft_event *event, const struct raft_update *u, enum raft_role before);
};

struct world {
	const struct world_ways *ways;
	struct rng rng;
	uint64_t now_ms, next_value;
	struct world_node nodes[WORLD_NODES];
	uint32_t node_count;
	struct world_packet packets[WORLD_PACKETS];
	uint32_t packet_count;
	bool cut[WORLD_NODES][WORLD_NODES]; /* from, to */
	uint32_t loss, repeat, slow;        /* per cent of messages; of syncs */
	uint32_t brief;                     /* per cent of leaders that die soon */
	uint32_t members;                   /* that the operator goes up to */
	uint64_t late_ms;                   /* of messages that come late */
	bool hasty;                         /* as soon as somebody leads, the network parts, and a member is removed */
#ifndef WORLD_SMALL
	bool forces;                                   /* the operator is to force the group on to one of its members, once */
	uint32_t apart_from;                           /* nodes[apart_from] and those behind it came after that; their ids are `apart` further */
	uint32_t apart;                                /* 0: there was none */
	uint64_t parts_from;                           /* bodies for this member are read late now, and disks are slow; 0: for none */
	struct raft_message kept[2][WORLD_KEPT];       /* answers that are held up: votes, others */
#endif
	struct raft_config configs[WORLD_CONFIGS];
	uint32_t config_count;
	/* what was seen, for the checks */
	struct world_log committed;    /* index 1 .. */
	uint64_t leaders[WORLD_TERMS]; /* by term */
	struct world_read reads[WORLD_READS], *asked;
	struct world_counts counts;
	bool trace, well; /* well: nothing breaks any more */
	char fault[512];  /* empty: all that was checked held */
};

/* One history; true: every check held, else world->fault says which did not. The counts are added to `counts`. */
bool world_history(uint64_t seed, bool trace, struct world_counts *counts, char fault[512]);

#endif
