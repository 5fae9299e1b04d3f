/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica_group: replicas on simulated disks, in virtual time, with letters that are lost, late, doubled and out of order, and power failures.
 * Always: nothing says more than is durable; all apply the same; what was acknowledged is there, what was canceled never is.
 */
#ifndef TESTS_LIB_REPLICA_GROUP_H
#define TESTS_LIB_REPLICA_GROUP_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/io/io_sim.h"
#include "common/kv/kv_backend.h"
#include "metad/replica/replica.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

enum { NODES = 5, FOUNDERS = 3, INDICES = 1 << 16, STAMPS = 1 << 16, PADDING = 6000, GROWTH_BYTES = 64 << 10 };
static const uint64_t ms_ns = 1000000;
static const struct raft_config members = {
	.index = 1, .count = FOUNDERS, .members = {{.id = 1, .voter = true}, {.id = 2, .voter = true}, {.id = 3, .voter = true}}, .last_id = FOUNDERS};

struct node {
	struct group *g;
	uint64_t id;
	struct io *host;
	struct replica *r;
	bool up;
	int stopped;
	uint64_t applied;
	uint64_t installed; /* by those that crashed since */
	bool gone;             /* not a member any more */
	uint64_t acknowledged_before; /* it was elected */
	struct replica_role role; /* as it was told */
	uint64_t begins_at; /* the log, when it was opened */
};

struct agreed {
	uint64_t term, stamp; /* 0: no commands */
};

enum fate { OPEN, ACKNOWLEDGED, REFUSED, CANCELED, UNKNOWN };

struct group {
	struct sim *sim;
	struct rng rng;
	struct node nodes[NODES];
	uint32_t count;
	bool cut[NODES][NODES]; /* from, to */
	uint32_t loss, twice;   /* of 1000 letters */
	uint64_t mail_ns;       /* that a letter takes; 0: mostly some ms */
	uint32_t cache_bytes;
	uint64_t keep_bytes, rate;
	struct agreed agreed[INDICES];
	uint64_t agreed_last, acknowledged_last;
	uint64_t stamps;
	enum fate fates[STAMPS];
	bool applied[STAMPS];
	uint64_t fate_counts[5];
	uint64_t reads, cuts, crashes;
	bool closed;
	void (*tamper)(struct group *g, struct replica_part *part); /* NULL, or with what is on its way */
	void (*lie)(struct group *g, struct raft_message *m);       /* likewise */
	void (*adjust)(struct node *n, struct replica_options *o);  /* NULL, or before an open */
	uint64_t tampered;
	struct io *slow; /* a tamper's */
	bool loses_asks; /* for parts of snapshots */
	uint32_t rows; /* that apply of an entry is said to write; 0: nothing is said */
	uint64_t read_counts[3]; /* served, refused, stopped */
};

enum letter_kind { MESSAGE, ASK, PART };
struct letter {
	struct io_op timer;
	enum letter_kind kind;
	uint64_t from;
	struct node *to;
	struct raft_message message;
	struct replica_ask ask;
	struct replica_part part;
	uint8_t *data; /* of the part */
	uint32_t count;
	struct replica_body bodies[];
};

static inline void deliver(struct io_op *op)
{
	struct letter *l = CONTAINER_OF(op, struct letter, timer);

	if (l->to->r && l->kind == MESSAGE)
		replica_receive(l->to->r, &l->message, l->bodies, l->count);
	else if (l->to->r && l->kind == ASK)
		replica_receive_ask(l->to->r, l->from, &l->ask);
	else if (l->to->r)
		replica_receive_part(l->to->r, l->from, &l->part);
	mem_free(l->data);
	for (uint32_t i = 0; i < l->count; i++)
		mem_free((void *)l->bodies[i].data.data);
	mem_free(l);
}

static inline void mail(struct group *g, struct letter *l, struct node *to)
{
	uint64_t late = rng_chance(&g->rng, 1, 20) ? rng_below(&g->rng, 300 * ms_ns) : rng_below(&g->rng, 3 * ms_ns);

	l->to = to;
	io_prep_timer(&l->timer, sim_now_ns(g->sim) + (g->mail_ns ? g->mail_ns : late), deliver);
	io_submit(to->host, &l->timer);
}

static inline void post(struct group *g, const struct raft_message *m, const struct replica_body *bodies, uint32_t count)
{
	struct letter *l = mem_zalloc(sizeof(*l) + count * sizeof(l->bodies[0]));

	l->message = *m;
	l->count = count;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *copy = mem_alloc(bodies[i].data.len);

		memcpy(copy, bodies[i].data.data, bodies[i].data.len);
		l->bodies[i] = (struct replica_body){bodies[i].term, slice_of(copy, bodies[i].data.len)};
	}
	mail(g, l, &g->nodes[m->to - 1]);
}

/* What leaves a replica is true of its disk. */
static inline void check_durable(const struct node *n, const struct raft_message *m)
{
	const struct wal_meta *meta = wal_meta(replica_log(n->r));
	bool pre = m->type == RAFT_PRE_VOTE || (m->type == RAFT_VOTED && m->voted.pre);

	ck_assert_msg(pre || m->term <= meta->term,
		"replica %" PRIu64 " speaks in term %" PRIu64 ", durable is %" PRIu64, n->id, m->term, meta->term);
	if (m->type == RAFT_VOTED && m->voted.granted && !pre)
		ck_assert_uint_eq(meta->vote, m->to);
	if (m->type == RAFT_APPENDED && !m->appended.reject)
		ck_assert_uint_le(m->appended.index, wal_durable_index(replica_log(n->r)));
}

/* What the network makes of a letter: nothing, one, two. */
static inline uint32_t copies_of(const struct node *n, uint64_t to)
{
	struct group *g = n->g;

	if (!g->nodes[to - 1].up || g->cut[n->id - 1][to - 1] || rng_chance(&g->rng, g->loss, 1000))
		return 0;
	return rng_chance(&g->rng, g->twice, 1000) ? 2 : 1;
}

static inline void on_send(void *ctx, const struct raft_message *m, const struct replica_body *bodies, uint32_t count)
{
	struct node *n = ctx;
	struct group *g = n->g;

	ck_assert_int_eq(n->stopped, 0);
	ck_assert_uint_eq(m->from, n->id);
	check_durable(n, m);
	for (uint32_t copies = copies_of(n, m->to); copies > 0; copies--) {
		struct raft_message copy = *m;

		if (g->lie)
			g->lie(g, &copy);
		post(g, &copy, bodies, count);
	}
}

static inline void on_ask(void *ctx, uint64_t to, const struct replica_ask *ask)
{
	struct node *n = ctx;

	for (uint32_t copies = n->g->loses_asks ? 0 : copies_of(n, to); copies > 0; copies--) {
		struct letter *l = MEM_NEW(struct letter);

		l->kind = ASK;
		l->from = n->id;
		l->ask = *ask;
		mail(n->g, l, &n->g->nodes[to - 1]);
	}
}

static inline void on_part(void *ctx, uint64_t to, const struct replica_part *part)
{
	struct node *n = ctx;

	ck_assert_uint_le(part->data.len, BACKUP_SECTION_BYTES);
	for (uint32_t copies = copies_of(n, to); copies > 0; copies--) {
		struct letter *l = MEM_NEW(struct letter);

		l->kind = PART;
		l->from = n->id;
		l->part = *part;
		l->data = mem_alloc(part->data.len + 1);
		if (part->data.len)
			memcpy(l->data, part->data.data, part->data.len);
		l->part.data = slice_of(l->data, part->data.len);
		if (n->g->tamper)
			n->g->tamper(n->g, &l->part);
		mail(n->g, l, &n->g->nodes[to - 1]);
	}
}

static inline void on_table(void *ctx, struct kv *kv)
{
	struct node *n = ctx;

	if (!kv)
		return;
	ck_assert_ptr_eq(kv, replica_kv(n->r));
	ck_assert_uint_gt(replica_applied(n->r), n->applied);
	n->applied = replica_applied(n->r);
	ck_assert_uint_le(n->applied, n->g->agreed_last);
}

static inline void check_quorum(const struct group *g, const struct raft_config *config, uint64_t index, uint64_t term)
{
	uint32_t count = 0, voters = 0;

	for (uint32_t i = 0; i < config->count; i++) {
		const struct node *n = &g->nodes[config->members[i].id - 1];
		const struct wal *wal = n->up ? replica_log(n->r) : NULL;

		if (!config->members[i].voter)
			continue;
		voters++;
		count += !wal || wal_index(wal)->base_index >= index ||
			(wal_durable_index(wal) >= index && wal_index_term(wal_index(wal), index) == term);
	}
	ck_assert_uint_ge(count, voters / 2 + 1);
}

/* What an entry makes of the table: a row of its own, one of 256, and one that all entries go into. */
struct rows {
	uint64_t index, stamp;
	uint32_t chain;
};
static const uint8_t chain_key[] = {2};

static inline struct rows chain_of(struct kv *kv)
{
	struct rows rows = {0, 0, 0};
	struct slice value;

	if (kv_get(kv, slice_of(chain_key, 1), &value) == 0)
		memcpy(&rows, value.data, sizeof(rows));
	return rows;
}

static inline void put_rows(struct kv *kv, uint64_t index, uint64_t stamp, struct slice data)
{
	struct rows rows = chain_of(kv);
	uint8_t key[] = {1, (uint8_t)stamp};

	ck_assert_uint_eq(rows.index + 1, index);
	rows.index = index;
	rows.stamp = stamp;
	rows.chain = crc32c_extend(rows.chain, &index, sizeof(index));
	rows.chain = crc32c_extend(rows.chain, data.data, data.len);
	kv_put(kv, slice_of(chain_key, 1), slice_of(&rows, sizeof(rows)));
	if (stamp)
		kv_put(kv, slice_of(key, 2), data);
}

/* What has left the log is in the table, whatever a crash does. */
static inline void check_trimmed(const struct node *n)
{
	uint64_t begins_at = wal_index(replica_log(n->r))->base_index;

	if (begins_at != n->begins_at && begins_at != wal_meta(replica_log(n->r))->base_index)
		ck_assert_uint_le(begins_at, kv_trim_index(replica_kv(n->r)));
}

static inline int on_apply(void *ctx, struct kv *kv, uint64_t index, uint64_t term, enum body_kind kind, struct slice data,
	struct err *err)
{
	struct node *n = ctx;
	struct group *g = n->g;
	uint64_t stamp = 0;

	ck_assert_int_eq(n->stopped, 0);
	ck_assert_uint_eq(index, n->applied + 1);
	check_trimmed(n);
	ck_assert_uint_le(index, wal_durable_index(replica_log(n->r)));
	ck_assert(!g->rows || kv_admits(kv, GROWTH_BYTES, g->rows));
	if (replica_core(n->r)->config.index <= index || replica_core(n->r)->config.count == FOUNDERS)
		check_quorum(g, &replica_core(n->r)->config, index, term);
	(void)err;
	n->applied = index;
	if (kind == BODY_COMMANDS)
		memcpy(&stamp, data.data, sizeof(stamp));
	ck_assert(g->fates[stamp] != CANCELED && g->fates[stamp] != REFUSED);
	if (index > g->agreed_last) {
		ck_assert(stamp == 0 || !g->applied[stamp]);
		g->applied[stamp] = stamp > 0;
		g->agreed[++g->agreed_last] = (struct agreed){term, stamp};
	}
	ck_assert_uint_eq(g->agreed[index].term, term);
	ck_assert_uint_eq(g->agreed[index].stamp, stamp);
	put_rows(kv, index, stamp, data);
	return 0;
}

/* One that is ready leads, and has applied all that was acknowledged before it was elected. */
static inline void on_role(void *ctx, const struct replica_role *role)
{
	struct node *n = ctx;

	ck_assert_int_eq(n->stopped, 0);
	ck_assert_uint_ge(role->term, n->role.term);
	if (role->ready) {
		ck_assert_int_eq(role->role, RAFT_LEADER);
		ck_assert(n->role.role == RAFT_LEADER && n->role.term == role->term && !n->role.ready);
		ck_assert_uint_ge(n->applied, n->acknowledged_before);
	} else if (role->role == RAFT_LEADER) {
		ck_assert_uint_eq(role->leader, n->id);
		n->acknowledged_before = n->g->acknowledged_last;
	}
	n->role = *role;
}

static inline void on_stop(void *ctx, int code, const char *text)
{
	struct node *n = ctx;

	ck_assert_int_eq(n->stopped, 0);
	ck_assert_uint_gt(strlen(text), 0);
	n->stopped = code;
}

static inline struct replica_options node_options(struct node *n)
{
	return (struct replica_options){
		.raft = {.id = n->id,
			.heartbeat_ms = 50,
			.election_ms = 250,
			.message_bytes = 64 << 10,
			.inflight_bytes = 256 << 10,
			.seed = rng_u64(&n->g->rng)},
		.dir = "/r",
		.segment_bytes = 1 << 20,
		.cluster = "of these tests",
		.found = n->id <= FOUNDERS ? &members : NULL,
		.kv = {.backend = &kv_mem, .freeze_ms = 20},
		.growth_bytes = GROWTH_BYTES,
		.keep_bytes = n->g->keep_bytes,
		.cache_bytes = n->g->cache_bytes,
		.snapshot_bytes_per_s = n->g->rate,
		.send = on_send,
		.ask = on_ask,
		.part = on_part,
		.on_table = on_table,
		.on_role = on_role,
		.apply = on_apply,
		.on_stop = on_stop,
		.ctx = n,
	};
}

/*
 * A store that is all but full: what the rows of an entry may take of it is much of what is left, and while a snapshot is open there is no room
 * for any.
 */
static inline void tight_stats(void *store, struct kv_backend_stats *ret_stats)
{
	kv_mem.stats(store, ret_stats);
	ret_stats->room = (struct kv_room){.left_bytes = 1 << 20,
		.again_bytes = 3 << 19,
		.page_bytes = 4096,
		.leaf_pages = 1000,
		.branch_pages = 10,
		.depth = 2,
		.own_bytes = 1 << 20};
}

static inline uint64_t rows_of(void *ctx, enum body_kind kind, struct slice data)
{
	ck_assert((kind == BODY_COMMANDS) == (data.len > 0));
	return ((struct node *)ctx)->g->rows;
}

static inline void make_tight(struct node *n, struct replica_options *o)
{
	static struct kv_backend tight;

	(void)n;
	tight = kv_mem;
	tight.stats = tight_stats;
	o->kv.backend = &tight;
	o->kv.room_bytes = 1;
	o->rows = rows_of;
}

static inline void node_open(struct node *n)
{
	struct replica_options options = node_options(n);
	struct err err = {0};
	int rc;

	if (n->g->adjust)
		n->g->adjust(n, &options);
	rc = replica_open(n->host, &options, &n->r, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	replica_start(n->r);
	n->applied = replica_applied(n->r);
	n->begins_at = wal_index(replica_log(n->r))->base_index;
	n->role = (struct replica_role){.role = RAFT_FOLLOWER};
	n->up = true;
}

static inline void node_crash(struct node *n)
{
	struct group *g = n->g;

	g->crashes++;
	g->reads += replica_counts(n->r)->fills_read;
	n->installed += replica_counts(n->r)->snapshots_installed;
	sim_host_crash(n->host);
	n->up = false;
	n->r = NULL;
}

static inline void node_restart(struct node *n)
{
	sim_host_restart(n->host);
	node_open(n);
}

static inline struct node *node_add(struct group *g)
{
	struct node *n = &g->nodes[g->count++];
	char name[8];

	n->g = g;
	n->id = g->count;
	snprintf(name, sizeof(name), "r%u", g->count);
	n->host = sim_host_add(g->sim, name, 256 << 20);
	ck_assert_int_eq(io_mkdir(n->host, "/r", 0700), 0);
	ck_assert_int_eq(io_sync_dir(n->host, "/"), 0);
	node_open(n);
	return n;
}

static inline struct group *group_new(uint64_t seed, uint32_t cache_bytes)
{
	const struct sim_options options = {.seed = seed};
	struct group *g = MEM_NEW(struct group);

	rng_init(&g->rng, seed);
	g->sim = sim_new(&options);
	g->cache_bytes = cache_bytes;
	g->keep_bytes = 64 << 20;
	for (uint32_t i = 0; i < FOUNDERS; i++)
		node_add(g);
	return g;
}

static inline void group_free(struct group *g)
{
	sim_free(g->sim);
	mem_free(g);
}

static inline void run_for(struct group *g, uint64_t ns)
{
	sim_run(g->sim, NULL, NULL, sim_now_ns(g->sim) + ns);
}

static inline bool leads(const struct node *n)
{
	return n->up && replica_core(n->r) && replica_core(n->r)->role == RAFT_LEADER;
}

/* That of the newest term, if it can commit. */
static inline struct node *leader(struct group *g)
{
	struct node *best = NULL;

	for (uint32_t i = 0; i < g->count; i++)
		if (leads(&g->nodes[i]) && (!best || replica_core(best->r)->term < replica_core(g->nodes[i].r)->term))
			best = &g->nodes[i];
	return best;
}

static inline bool is_even(void *ctx)
{
	struct group *g = ctx;
	struct node *l = leader(g);

	for (uint32_t i = 0; i < g->count; i++)
		if (!g->nodes[i].gone && (!l || !g->nodes[i].up || g->nodes[i].applied != replica_core(l->r)->last_index))
			return false;
	return true;
}

/* All is well, for long enough: one log, applied by all, with all that was acknowledged. */
static inline void settle(struct group *g)
{
	g->loss = g->twice = 0;
	memset(g->cut, 0, sizeof(g->cut));
	for (uint32_t i = 0; i < g->count; i++)
		if (!g->nodes[i].up && !g->nodes[i].gone)
			node_restart(&g->nodes[i]);
	ck_assert_msg(sim_run(g->sim, is_even, g, sim_now_ns(g->sim) + 60000 * ms_ns), "they never came together");
	for (uint32_t i = 0; i < g->count; i++) {
		if (g->nodes[i].gone)
			continue;
		ck_assert_uint_eq(g->nodes[i].applied, g->agreed_last);
		ck_assert_uint_ge(g->nodes[i].applied, g->acknowledged_last);
		ck_assert_int_eq(g->nodes[i].stopped, 0);
		ck_assert_uint_eq(replica_counts(g->nodes[i].r)->malformed, 0);
		ck_assert_uint_eq(
			chain_of(replica_kv(g->nodes[i].r)).chain, chain_of(replica_kv(leader(g)->r)).chain);
	}
	for (uint64_t s = 1; s <= g->stamps; s++)
		ck_assert(g->fates[s] != ACKNOWLEDGED || g->applied[s]);
}

struct job {
	struct replica_submit submit;
	struct group *g;
	uint64_t stamp;
	uint64_t body[PADDING / 8];
};

static inline void job_done(struct replica_submit *s, int code)
{
	struct job *j = CONTAINER_OF(s, struct job, submit);
	struct group *g = j->g;
	enum fate fate = OPEN;

	ck_assert_int_eq(g->fates[j->stamp], OPEN);
	if (code == 0) {
		fate = ACKNOWLEDGED;
		ck_assert_uint_eq(g->agreed[s->index].stamp, j->stamp);
		ck_assert_uint_eq(g->agreed[s->index].term, s->term);
		if (g->acknowledged_last < s->index)
			g->acknowledged_last = s->index;
	} else if (code == ERR_CANCELED) {
		fate = CANCELED;
		ck_assert(!g->applied[j->stamp]);
	} else if (code == ERR_NOT_LEADER || code == ERR_AGAIN) {
		fate = REFUSED;
		ck_assert_uint_eq(s->index, 0);
	} else {
		ck_assert(code == ERR_IO || code == ERR_STOPPED || code == ERR_STALE);
		fate = UNKNOWN;
	}
	g->fates[j->stamp] = fate;
	g->fate_counts[fate]++;
	mem_free(j);
}

static inline void submit(struct node *n)
{
	struct job *j = MEM_NEW(struct job);

	ck_assert_uint_lt(n->g->stamps + 1, STAMPS);
	j->g = n->g;
	j->stamp = j->body[0] = ++n->g->stamps;
	j->submit.data = slice_of(j->body, rng_between(&n->g->rng, 8, PADDING));
	j->submit.done = job_done;
	ck_assert_int_eq(replica_submit(n->r, &j->submit), 0);
}

static inline bool has_leader(void *ctx)
{
	struct node *l = leader(ctx);

	return l && replica_core(l->r)->commit == replica_core(l->r)->last_index;
}

static inline struct node *elected(struct group *g)
{
	ck_assert(sim_run(g->sim, has_leader, g, sim_now_ns(g->sim) + 60000 * ms_ns));
	return leader(g);
}

static inline void isolate(struct group *g, const struct node *n, bool cut)
{
	for (uint32_t i = 0; i < g->count; i++)
		g->cut[i][n->id - 1] = g->cut[n->id - 1][i] = cut;
}

static inline void submit_many(struct group *g, int count)
{
	for (int i = 0; i < count; i++) {
		submit(elected(g));
		if (i % 64 == 63)
			run_for(g, 20 * ms_ns);
	}
	run_for(g, 1000 * ms_ns);
}

static inline uint64_t installed(const struct node *n)
{
	return n->installed + (n->up ? replica_counts(n->r)->snapshots_installed : 0);
}

static inline bool nobody_has_the_log_for(const struct group *g, const struct node *away)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (&g->nodes[i] != away && wal_index(replica_log(g->nodes[i].r))->base_index <= away->applied)
			return false;
	return true;
}

/* All begin with a log that is trimmed as soon as the table has it, and `away` needs what is gone. */
static inline struct node *leave_behind(struct group *g)
{
	struct node *l = elected(g), *away = &g->nodes[l->id % g->count];

	isolate(g, away, true);
	/* What was on its way to it as it went may be held for it a while. */
	for (int i = 0; i < 20 && !nobody_has_the_log_for(g, away); i++) {
		submit_many(g, 350);
		run_for(g, 3000 * ms_ns);
	}
	ck_assert(nobody_has_the_log_for(g, away));
	return away;
}

/* A tamper: no part but the header comes as it was sent. */
static inline void flip_a_bit(struct group *g, struct replica_part *part)
{
	if (part->code == 0 && part->number > 0) {
		((uint8_t *)(uintptr_t)part->data.data)[rng_below(&g->rng, part->data.len)] ^= 1;
		g->tampered++;
	}
}

static inline struct group *trimming_group(uint64_t seed, uint64_t rate)
{
	struct group *g = group_new(seed, 32 << 10);

	g->keep_bytes = 0;
	g->rate = rate;
	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	settle(g);
	return g;
}

struct handing {
	bool done;
	int code;
};

static inline void handed(void *ctx, int code)
{
	struct handing *h = ctx;

	ck_assert(!h->done);
	h->done = true;
	h->code = code;
}

static inline bool is_handed(void *ctx)
{
	return ((struct handing *)ctx)->done;
}

static inline int hand_over(struct group *g, struct node *from, uint64_t to)
{
	struct handing h = {false, 0};

	ck_assert_int_eq(replica_transfer(from->r, to, handed, &h), 0);
	ck_assert_int_eq(replica_transfer(from->r, to, handed, &h), ERR_BUSY);
	ck_assert(sim_run(g->sim, is_handed, &h, sim_now_ns(g->sim) + 60000 * ms_ns));
	return h.code;
}

struct changing {
	struct replica_submit submit;
	struct group *g;
	int code;
	bool done;
};

static inline void changed(struct replica_submit *s, int code)
{
	struct changing *c = CONTAINER_OF(s, struct changing, submit);

	c->code = code;
	c->done = true;
	if (code == 0 && c->g->acknowledged_last < s->index)
		c->g->acknowledged_last = s->index;
}

static inline bool is_changed(void *ctx)
{
	return ((struct changing *)ctx)->done;
}

static inline int change(struct group *g, enum raft_change change, uint64_t id)
{
	struct changing c = {.g = g, .submit = {.change = change, .member = id, .done = changed}};

	ck_assert_int_eq(replica_submit(elected(g)->r, &c.submit), 0);
	ck_assert(sim_run(g->sim, is_changed, &c, sim_now_ns(g->sim) + 60000 * ms_ns));
	return c.code;
}

/* As an operator does: soon is not now. */
static inline void change_surely(struct group *g, enum raft_change what, uint64_t id)
{
	int code = ERR_AGAIN;

	for (int i = 0; i < 100 && (code == ERR_AGAIN || code == ERR_BUSY || code == ERR_CANCELED || code == ERR_NOT_LEADER); i++) {
		code = change(g, what, id);
		if (code == ERR_EXIST || code == ERR_NOENT)
			code = 0; /* by an earlier try */
		if (code)
			run_for(g, 50 * ms_ns);
	}
	ck_assert_int_eq(code, 0);
}

/* ---- close ---- */

static inline void on_closed(void *ctx, int code)
{
	struct node *n = ctx;

	ck_assert_int_eq(code, 0);
	n->r = NULL;
	n->up = false;
	n->g->closed = true;
}

static inline bool is_closed(void *ctx)
{
	return ((struct group *)ctx)->closed;
}

/* In order; node_open may follow. */
static inline void node_close(struct node *n)
{
	struct group *g = n->g;

	g->closed = false;
	replica_close(n->r, on_closed, n);
	ck_assert(sim_run(g->sim, is_closed, g, sim_now_ns(g->sim) + 10000 * ms_ns));
}

/* ---- reads ---- */

struct reading {
	struct replica_read read;
	struct node *n;
	uint64_t floor; /* known as committed when it was asked */
	uint64_t *counts; /* of answers: served, refused, stopped */
};

static inline void read_done(struct replica_read *read, int code)
{
	struct reading *rd = CONTAINER_OF(read, struct reading, read);

	if (code == 0) {
		ck_assert_uint_ge(replica_applied(rd->n->r), rd->floor);
		ck_assert_uint_ge(chain_of(replica_kv(rd->n->r)).index, rd->floor);
	} else {
		ck_assert(code == ERR_NOT_LEADER || code == ERR_AGAIN || code == ERR_STOPPED);
	}
	rd->counts[code == 0 ? 0 : code == ERR_STOPPED ? 2 : 1]++;
	mem_free(rd);
}

static inline void read_rows_as(struct node *n, bool asks_all)
{
	struct reading *rd = MEM_NEW(struct reading);

	rd->n = n;
	rd->floor = leads(n) ? replica_core(n->r)->commit : 0;
	if (rd->floor < n->g->acknowledged_last)
		rd->floor = n->g->acknowledged_last;
	rd->counts = n->g->read_counts;
	rd->read.done = read_done;
	rd->read.asks_all = asks_all;
	ck_assert_int_eq(replica_read(n->r, &rd->read), 0);
}

static inline void read_rows(struct node *n)
{
	read_rows_as(n, false);
}

#endif
