/* SPDX-License-Identifier: Apache-2.0 */
/* Three replicas on a real loop, with the store that daemons have: a snapshot of LMDB's rows, derived ones among them, to one that was away. */
#include <inttypes.h>
#include "common/base/mem.h"
#include "metad/replica/replica.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"

enum { NODES = 3, ROWS = 2000, ENTRY_BYTES = 1500, SUBMITS = 100 };
static const uint64_t ms_ns = 1000000;
static const struct raft_config members = {
	.index = 1, .count = NODES, .members = {{.id = 1, .voter = true}, {.id = 2, .voter = true}, {.id = 3, .voter = true}}, .last_id = NODES};

struct node {
	struct bed *b;
	uint64_t id;
	char dir[96];
	struct replica *r;
	uint64_t installed;
	uint8_t digest[PART_DIGEST_BYTES];
};

struct bed {
	struct real_loop loop;
	struct node nodes[NODES];
	struct node *away; /* NULL: all are there */
	struct io_op timer;
	bool (*until)(struct bed *b);
	struct job {
		struct replica_submit submit;
		struct bed *b;
		uint8_t data[ENTRY_BYTES];
	} jobs[SUBMITS];
	uint32_t open;
	uint64_t stamps;
};

/* ---- the network: all that is not cut comes ---- */

struct letter {
	struct io_post post;
	struct node *to;
	uint64_t from;
	enum { MESSAGE, ASK, PART } kind;
	struct raft_message message;
	struct replica_ask ask;
	struct replica_part part;
	uint8_t *data;
	uint32_t count;
	struct replica_body bodies[];
};

static void deliver(struct io_post *post)
{
	struct letter *l = CONTAINER_OF(post, struct letter, post);

	if (l->to->r && l->kind == MESSAGE)
		replica_receive(l->to->r, &l->message, l->bodies, l->count);
	else if (l->to->r && l->kind == ASK)
		replica_receive_ask(l->to->r, l->from, &l->ask);
	else if (l->to->r)
		replica_receive_part(l->to->r, l->from, &l->part);
	mem_free(l->data);
	mem_free(l);
}

static struct letter *letter_new(struct node *n, uint64_t to, int kind, uint32_t count, size_t bytes)
{
	struct letter *l = mem_zalloc(sizeof(*l) + count * sizeof(l->bodies[0]));

	l->to = &n->b->nodes[to - 1];
	l->from = n->id;
	l->kind = kind;
	l->count = count;
	l->data = mem_alloc(bytes + 1);
	l->post.run = deliver;
	return l;
}

static bool is_cut(const struct node *n, uint64_t to)
{
	return n->b->away && (n == n->b->away || to == n->b->away->id);
}

static void on_send(void *ctx, const struct raft_message *m, const struct replica_body *bodies, uint32_t count)
{
	struct node *n = ctx;
	struct letter *l;
	size_t bytes = 0;

	if (is_cut(n, m->to))
		return;
	for (uint32_t i = 0; i < count; i++)
		bytes += bodies[i].data.len;
	l = letter_new(n, m->to, MESSAGE, count, bytes);
	l->message = *m;
	bytes = 0;
	for (uint32_t i = 0; i < count; i++) {
		memcpy(l->data + bytes, bodies[i].data.data, bodies[i].data.len);
		l->bodies[i] = (struct replica_body){bodies[i].term, slice_of(l->data + bytes, bodies[i].data.len)};
		bytes += bodies[i].data.len;
	}
	io_post(n->b->loop.io, &l->post);
}

static void on_ask(void *ctx, uint64_t to, const struct replica_ask *ask)
{
	struct node *n = ctx;
	struct letter *l;

	if (is_cut(n, to))
		return;
	l = letter_new(n, to, ASK, 0, 0);
	l->ask = *ask;
	io_post(n->b->loop.io, &l->post);
}

static void on_part(void *ctx, uint64_t to, const struct replica_part *part)
{
	struct node *n = ctx;
	struct letter *l;

	if (is_cut(n, to))
		return;
	l = letter_new(n, to, PART, 0, part->data.len);
	l->part = *part;
	if (part->data.len)
		memcpy(l->data, part->data.data, part->data.len);
	l->part.data = slice_of(l->data, part->data.len);
	io_post(n->b->loop.io, &l->post);
}

/* ---- the state: rows, and one that follows from each of them ---- */

static int derive(struct slice key, const struct slice *was, const struct slice *is, struct kv_derived_rows *rows, struct err *err)
{
	uint8_t derived[5] = {9};

	(void)err;
	(void)was;
	memcpy(derived + 1, key.data + 1, 4);
	if (is)
		kv_derived_put(rows, slice_of(derived, 5), slice_of(is->data, 8));
	else
		kv_derived_del(rows, slice_of(derived, 5));
	return 0;
}
static const struct kv_derived derived = {.source = 1, .target = 9, .derive = derive};

static int on_apply(
	void *ctx, struct kv *kv, uint64_t index, uint64_t term, enum body_kind kind, struct slice data, struct err *err)
{
	uint8_t key[5] = {1, (uint8_t)(index % ROWS >> 8), (uint8_t)(index % ROWS), 0, 0};

	(void)ctx, (void)term, (void)err;
	if (kind == BODY_COMMANDS && index % 7 == 0)
		kv_del(kv, slice_of(key, 5));
	else if (kind == BODY_COMMANDS)
		kv_put(kv, slice_of(key, 5), data);
	return 0;
}

static void on_table(void *ctx, struct kv *kv)
{
	struct node *n = ctx;

	n->installed += kv != NULL;
}

static void on_role(void *ctx, const struct replica_role *role)
{
	(void)ctx, (void)role;
}

static void on_stop(void *ctx, int code, const char *text)
{
	ck_abort_msg("replica %" PRIu64 " stopped: %d %s", ((struct node *)ctx)->id, code, text);
}

static void node_open(struct node *n)
{
	const struct replica_options options = {
		.raft = {.id = n->id,
			.heartbeat_ms = 40,
			.election_ms = 800,
			.message_bytes = 256 << 10,
			.inflight_bytes = 1 << 20,
			.seed = n->id},
		.dir = n->dir,
		.segment_bytes = 1 << 20,
		.buffered = n->b->loop.buffered,
		.cluster = "of these tests",
		.found = &members,
		.kv = {.backend = &kv_lmdb, .derived = &derived, .map_bytes = 1 << 30, .freeze_ms = 20, .freeze_bytes = 1 << 20},
		.growth_bytes = 64 << 10,
		.cache_bytes = 64 << 10,
		.send = on_send,
		.ask = on_ask,
		.part = on_part,
		.apply = on_apply,
		.on_table = on_table,
		.on_role = on_role,
		.on_stop = on_stop,
		.ctx = n,
	};
	struct err err = {0};
	int rc = replica_open(n->b->loop.io, &options, &n->r, &err);

	ck_assert_msg(rc == 0, "%s", err.text);
	replica_start(n->r);
}

/* ---- running ---- */

static void look(struct io_op *op)
{
	struct bed *b = CONTAINER_OF(op, struct bed, timer);

	if (b->until(b)) {
		io_stop(b->loop.io);
		return;
	}
	io_prep_timer(op, io_now_ns(b->loop.io) + 5 * ms_ns, look);
	io_submit(b->loop.io, op);
}

static void wait_for(struct bed *b, bool (*until)(struct bed *b))
{
	b->until = until;
	io_prep_timer(&b->timer, 0, look);
	io_submit(b->loop.io, &b->timer);
	ck_assert_int_eq(io_run(b->loop.io), 0);
}

static struct node *leader(struct bed *b)
{
	for (uint32_t i = 0; i < NODES; i++) {
		const struct raft_core *core = b->nodes[i].r ? replica_core(b->nodes[i].r) : NULL;

		if (core && core->role == RAFT_LEADER && core->commit == core->last_index && &b->nodes[i] != b->away)
			return &b->nodes[i];
	}
	return NULL;
}

static bool has_leader(struct bed *b)
{
	return leader(b) != NULL;
}

static bool all_answered(struct bed *b)
{
	return b->open == 0;
}

static void answered(struct replica_submit *s, int code)
{
	(void)code; /* an election may come between: what counts is that all come to the same */
	CONTAINER_OF(s, struct job, submit)->b->open--;
}

static void submit_all(struct bed *b)
{
	wait_for(b, has_leader);
	for (uint32_t i = 0; i < SUBMITS; i++) {
		struct job *j = &b->jobs[i];

		memset(j->data, (int)(i + b->stamps), ENTRY_BYTES);
		memcpy(j->data, &b->stamps, sizeof(b->stamps));
		b->stamps++;
		j->b = b;
		j->submit = (struct replica_submit){.data = slice_of(j->data, ENTRY_BYTES), .done = answered};
		b->open++;
		ck_assert_int_eq(replica_submit(leader(b)->r, &j->submit), 0);
	}
	wait_for(b, all_answered);
}

static bool is_trimmed(struct bed *b)
{
	for (uint32_t i = 0; i < NODES; i++)
		if (&b->nodes[i] != b->away && wal_index(replica_log(b->nodes[i].r))->base_index <= replica_applied(b->away->r))
			return false;
	return true;
}

static bool is_even(struct bed *b)
{
	struct node *l = leader(b);

	for (uint32_t i = 0; i < NODES; i++)
		if (!l || replica_applied(b->nodes[i].r) != replica_core(l->r)->last_index)
			return false;
	return true;
}

/* ---- what is in the stores ---- */

static void digest_node(struct node *n)
{
	struct kv_snapshot *rows;
	struct part_digest d;
	struct slice key, value;
	struct err err = {0};
	uint64_t applied;

	ck_assert_int_eq(kv_snapshot_open(replica_kv(n->r), &rows, &applied, &err), 0);
	ck_assert_uint_eq(applied, replica_applied(n->r));
	part_digest_init(&d);
	while (kv_snapshot_next(rows, &key, &value, &err) == 0)
		part_digest_row(&d, key, value);
	ck_assert_int_eq(err.code, 0);
	kv_snapshot_close(rows);
	ck_assert_uint_gt(d.rows, ROWS);
	part_digest_fini(&d, n->digest);
}

static void check_equal(struct bed *b)
{
	for (uint32_t i = 0; i < NODES; i++) {
		b->loop.expected = 1;
		kv_flush(replica_kv(b->nodes[i].r), real_loop_closed, &b->loop);
		real_loop_wait(&b->loop);
	}
	for (uint32_t i = 0; i < NODES; i++) {
		digest_node(&b->nodes[i]);
		ck_assert_mem_eq(b->nodes[i].digest, b->nodes[0].digest, PART_DIGEST_BYTES);
	}
}

static void close_all(struct bed *b)
{
	b->loop.expected = NODES;
	for (uint32_t i = 0; i < NODES; i++) {
		replica_close(b->nodes[i].r, real_loop_closed, &b->loop);
		b->nodes[i].r = NULL;
	}
	real_loop_wait(&b->loop);
}

START_TEST(test_snapshot_of_lmdb)
{
	struct bed *b = MEM_NEW(struct bed);
	struct node *away;

	real_loop_init(&b->loop);
	for (uint32_t i = 0; i < NODES; i++) {
		struct node *n = &b->nodes[i];

		n->b = b;
		n->id = i + 1;
		snprintf(n->dir, sizeof(n->dir), "%s/r%u", b->loop.dir, i + 1);
		ck_assert_int_eq(io_mkdir(b->loop.io, n->dir, 0700), 0);
		node_open(n);
	}
	submit_all(b);
	wait_for(b, is_even);
	b->away = &b->nodes[leader(b)->id % NODES];
	for (int i = 0; i < 30; i++)
		submit_all(b);
	wait_for(b, is_trimmed);
	away = b->away;
	b->away = NULL;
	wait_for(b, is_even);
	ck_assert_uint_ge(away->installed, 1);
	submit_all(b);
	wait_for(b, is_even);
	check_equal(b);
	close_all(b);
	for (uint32_t i = 0; i < NODES; i++)
		node_open(&b->nodes[i]);
	wait_for(b, is_even);
	check_equal(b);
	close_all(b);
	real_loop_fini(&b->loop);
	mem_free(b);
}
END_TEST

UNIT_MAIN("replica_real", test_snapshot_of_lmdb)
