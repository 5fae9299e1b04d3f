/* SPDX-License-Identifier: Apache-2.0 */
/* A group of three replicas through all that may befall it. */
#include "tests/lib/replica_group.h"

/* The example of use: three found a group, one leads, what it takes is applied by all. */
START_TEST(test_replicates)
{
	struct group *g = group_new(1, 1 << 20);

	elected(g);
	for (int i = 0; i < 100; i++)
		submit(leader(g));
	run_for(g, 200 * ms_ns);
	settle(g);
	ck_assert_uint_eq(g->fate_counts[ACKNOWLEDGED], 100);
	group_free(g);
}
END_TEST

START_TEST(test_follower_refuses)
{
	struct group *g = group_new(2, 1 << 20);
	struct node *l = elected(g);

	submit(&g->nodes[l->id % g->count]);
	run_for(g, 10 * ms_ns);
	ck_assert_uint_eq(g->fate_counts[REFUSED], 1);
	group_free(g);
}
END_TEST

/* Power fails while the first entry is on its way: it is founded again, once. */
START_TEST(test_founding_again)
{
	for (uint64_t at = 0; at < 60; at++) {
		struct group *g = group_new(100 + at, 1 << 20);

		run_for(g, at * ms_ns / 20);
		for (uint32_t i = 0; i < g->count; i++)
			node_crash(&g->nodes[i]);
		settle(g);
		ck_assert_uint_eq(g->agreed[1].term, 1);
		group_free(g);
	}
}
END_TEST

/* All lose power at once, unsynced data goes or is torn; what was acknowledged is there. */
START_TEST(test_power_failure)
{
	struct group *g = group_new(3, 1 << 20);

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 20; i++)
			submit(elected(g));
		run_for(g, rng_below(&g->rng, 4 * ms_ns));
		for (uint32_t i = 0; i < g->count; i++)
			node_crash(&g->nodes[i]);
		settle(g);
	}
	ck_assert_uint_gt(g->fate_counts[ACKNOWLEDGED], 50);
	group_free(g);
}
END_TEST

/* What the table has durably leaves the log; all lose power again and again, and nothing that went is missed. */
START_TEST(test_log_is_trimmed)
{
	struct group *g = group_new(9, 32 << 10);

	g->keep_bytes = 0;
	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	for (int round = 0; round < 6; round++) {
		settle(g);
		submit_many(g, 500);
		for (int i = 0; i < 8; i++)
			submit(elected(g));
		run_for(g, rng_below(&g->rng, 30 * ms_ns));
		for (uint32_t i = 0; i < g->count; i++)
			node_crash(&g->nodes[i]);
	}
	settle(g);
	for (uint32_t i = 0; i < g->count; i++) {
		const struct wal_index *index = wal_index(replica_log(g->nodes[i].r));

		ck_assert_uint_gt(index->base_index, 2000);
		ck_assert_uint_eq(replica_core(g->nodes[i].r)->base_index, index->base_index);
		ck_assert_uint_eq(replica_core(g->nodes[i].r)->config.index, 1); /* the log has it no more */
	}
	group_free(g);
}
END_TEST

/* One that was away too long gets the table, and then goes on with the log; a restart finds both. */
START_TEST(test_snapshot_for_laggard)
{
	struct group *g = trimming_group(20, 0);
	struct node *away = leave_behind(g);

	settle(g);
	ck_assert_uint_ge(installed(away), 1);
	submit_many(g, 20);
	settle(g);
	node_crash(away);
	settle(g);
	for (int i = 0; i < 3; i++) { /* from one directory to the other, and back */
		away = leave_behind(g);
		settle(g);
	}
	ck_assert_uint_gt(wal_meta(replica_log(away->r))->base_index, 0);
	group_free(g);
}
END_TEST

static void stopped_at_sync(void *ctx)
{
	node_crash(ctx);
}

/* Power fails at each sync from the first part to the end of the switch: log and table are the old ones or the new ones, never one of each. */
START_TEST(test_snapshot_crashes)
{
	static const enum sim_loss losses[] = {SIM_LOSS_ANY, SIM_LOSS_ALL, SIM_LOSS_TORN};
	struct group *g = trimming_group(21, 0);

	for (uint32_t n = 1, passed = 0; passed < 3; n++) {
		struct node *away = leave_behind(g);
		uint64_t before = g->crashes, base = wal_meta(replica_log(away->r))->base_index;

		ck_assert_uint_lt(n, 300);
		sim_set_loss(away->host, losses[n % ARRAY_COUNT(losses)]);
		sim_stop_at_sync(away->host, n, stopped_at_sync, away);
		isolate(g, away, false);
		run_for(g, 2000 * ms_ns);
		sim_stop_at_sync(away->host, 0, NULL, NULL);
		passed += g->crashes == before;
		settle(g);
		ck_assert_uint_gt(wal_meta(replica_log(away->r))->base_index, base);
	}
	group_free(g);
}
END_TEST

static bool has_parts(void *ctx)
{
	struct group *g = ctx;

	for (uint32_t i = 0; i < g->count; i++)
		if (g->nodes[i].up && replica_counts(g->nodes[i].r)->parts_sent > 1)
			return true;
	return false;
}

/* Its leader dies in the middle of it: another one offers its own. */
START_TEST(test_snapshot_of_dead_leader)
{
	struct group *g = trimming_group(22, 100 << 10);
	struct node *away = leave_behind(g), *l;

	isolate(g, away, false);
	ck_assert(sim_run(g->sim, has_parts, g, sim_now_ns(g->sim) + 60000 * ms_ns));
	l = elected(g);
	isolate(g, l, true);
	run_for(g, 3000 * ms_ns);
	ck_assert_ptr_ne(elected(g), l);
	ck_assert(away != l);
	settle(g);
	ck_assert_uint_ge(installed(away), 1);
	group_free(g);
}
END_TEST

/* So many bytes a second, whatever the network could take. */
START_TEST(test_snapshot_rate)
{
	struct group *g = trimming_group(23, 256 << 10);
	struct node *away = leave_behind(g);
	uint64_t begun = sim_now_ns(g->sim);

	settle(g);
	ck_assert_uint_ge(installed(away), 1);
	/* 256 rows of some 3 KB */
	ck_assert_uint_gt(sim_now_ns(g->sim) - begun, 2000 * ms_ns);
	group_free(g);
}
END_TEST

static void flip_three_bits(struct group *g, struct replica_part *part)
{
	if (g->tampered < 3)
		flip_a_bit(g, part);
}

static void lie_about_digest(struct group *g, struct replica_part *part)
{
	if (part->end && g->tampered++ < 3)
		part->digest[rng_below(&g->rng, sizeof(part->digest))] ^= 1;
}

/* What is not what the leader read is not installed; it is fetched again, later. */
START_TEST(test_snapshot_not_believed)
{
	void (*const tampers[])(struct group *g, struct replica_part *part) = {flip_three_bits, lie_about_digest};

	for (size_t i = 0; i < ARRAY_COUNT(tampers); i++) {
		struct group *g = trimming_group(24 + i, 0);
		struct node *away = leave_behind(g);

		g->tamper = tampers[i];
		settle(g);
		ck_assert_uint_ge(g->tampered, 3);
		ck_assert_uint_ge(replica_counts(away->r)->snapshots_failed, 1);
		ck_assert_uint_ge(installed(away), 1);
		group_free(g);
	}
}
END_TEST

/* Who is not there is offered nothing: rows that are open, and a log that is held, cost something. */
START_TEST(test_snapshot_for_nobody)
{
	struct group *g = trimming_group(27, 0);
	struct node *away = leave_behind(g);
	uint64_t offered = 0;

	run_for(g, 120000 * ms_ns);
	for (uint32_t i = 0; i < g->count; i++)
		if (&g->nodes[i] != away)
			offered += replica_counts(g->nodes[i].r)->snapshots_offered;
	ck_assert_uint_le(offered, 2);
	settle(g);
	group_free(g);
}
END_TEST

/* A leader that nobody heard gets a snapshot in place of its log: what it had taken is answered, and not as if it were known. */
START_TEST(test_snapshot_ends_submits)
{
	struct group *g = trimming_group(26, 0);
	struct node *old = elected(g);
	uint64_t stamp;

	isolate(g, old, true);
	for (int i = 0; i < 10; i++)
		submit(old);
	stamp = g->stamps;
	run_for(g, 3000 * ms_ns);
	ck_assert_ptr_ne(elected(g), old);
	while (!nobody_has_the_log_for(g, old))
		submit_many(g, 350);
	settle(g);
	ck_assert_uint_ge(installed(old), 1);
	for (uint64_t s = stamp - 9; s <= stamp; s++)
		ck_assert_int_eq(g->fates[s], UNKNOWN);
	group_free(g);
}
END_TEST

/* A leader that nobody hears takes ten entries, which never commit, and then another one leads. */
static struct node *deposed(struct group *g)
{
	struct node *old = elected(g);

	isolate(g, old, true);
	for (int i = 0; i < 10; i++)
		submit(old);
	run_for(g, 100 * ms_ns);
	ck_assert_uint_gt(wal_durable_index(replica_log(old->r)), g->agreed_last + 9);
	run_for(g, 3000 * ms_ns);
	ck_assert_ptr_ne(elected(g), old);
	return old;
}

/* Its log is cut, and who gave them is told. */
START_TEST(test_deposed_leader_is_cut)
{
	struct group *g = group_new(5, 1 << 20);
	struct node *old = deposed(g);

	for (int i = 0; i < 30; i++)
		submit(leader(g));
	run_for(g, 200 * ms_ns);
	ck_assert_uint_eq(g->fate_counts[ACKNOWLEDGED], 30);
	settle(g);
	ck_assert_uint_eq(g->fate_counts[CANCELED], 10);
	ck_assert_uint_gt(replica_core(old->r)->epoch, 0);
	node_crash(old);
	settle(g);
	group_free(g);
}
END_TEST

/* Nothing is written under the new leader: what the old one took is answered all the same. */
START_TEST(test_deposed_leader_answers)
{
	struct group *g = group_new(7, 1 << 20);
	struct node *old = deposed(g);

	isolate(g, old, false);
	run_for(g, 3000 * ms_ns);
	ck_assert_uint_eq(g->fate_counts[CANCELED], 10);
	settle(g);
	group_free(g);
}
END_TEST

/* A log that fails ends its replica; the others go on. */
START_TEST(test_log_failure_stops)
{
	struct group *g = group_new(6, 1 << 20);
	struct node *l = elected(g);

	sim_fault_after(l->host, SIM_FAULT_WRITE, 1, ERR_IO);
	submit(l);
	run_for(g, 3000 * ms_ns);
	ck_assert_int_eq(l->stopped, ERR_IO);
	l->stopped = 0;
	node_crash(l);
	submit(elected(g));
	run_for(g, 100 * ms_ns);
	ck_assert_uint_eq(g->fate_counts[ACKNOWLEDGED], 1);
	settle(g);
	group_free(g);
}
END_TEST

/* What breaks the protocol, or does not fit its bodies, is dropped before it is stepped. */
START_TEST(test_malformed)
{
	struct group *g = group_new(8, 1 << 20);
	struct node *l = elected(g), *n = &g->nodes[l->id % g->count];
	const struct raft_core *core = replica_core(n->r);
	const struct replica_counts *counts = replica_counts(n->r);
	uint64_t last = core->last_index, term = core->term;
	struct raft_message m = {.type = RAFT_APPEND, .from = l->id, .to = n->id, .term = term};
	static const uint8_t commands[] = {BODY_COMMANDS, 1}, nonsense[] = {9, 9}, large[LIMIT_LOG_ENTRY_BYTES + 1] = {BODY_COMMANDS};
	static struct replica_body many[REPLICA_BODIES_MAX + 1];
	uint8_t config[BODY_CONFIG_BYTES_MAX];
	struct replica_body body = {term, slice_of(commands, 2)};
	uint32_t len = body_encode_config(&members, config);

	m.append.prev_index = last;
	m.append.prev_term = raft_term_at(core, last);
	m.append.last = last + 1;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){last + 1, term};
	replica_receive(n->r, &m, &body, 0); /* too few */
	ck_assert_uint_eq(counts->malformed, 1);
	body.term = term - 1; /* another than the message says */
	replica_receive(n->r, &m, &body, 1);
	ck_assert_uint_eq(counts->malformed, 2);
	body = (struct replica_body){term, slice_of(nonsense, 2)};
	replica_receive(n->r, &m, &body, 1);
	ck_assert_uint_eq(counts->malformed, 3);
	body.data = slice_of(config, len); /* a configuration that the message does not speak of */
	replica_receive(n->r, &m, &body, 1);
	ck_assert_uint_eq(counts->malformed, 4);
	m.append.has_config = true; /* and one that is not this */
	m.append.config = members;
	m.append.config.index = last + 1;
	m.append.config.members[2].voter = false;
	replica_receive(n->r, &m, &body, 1);
	ck_assert_uint_eq(counts->malformed, 5);
	m.to = l->id; /* not for this one */
	replica_receive(n->r, &m, &body, 1);
	ck_assert_uint_eq(counts->malformed, 6);
	m.to = n->id;
	m.append.has_config = false;
	body.data = slice_of(large, LIMIT_LOG_ENTRY_BYTES + 1); /* an entry that no log takes */
	replica_receive(n->r, &m, &body, 1);
	ck_assert_uint_eq(counts->malformed, 7);
	m.append.last = last + REPLICA_BODIES_MAX + 1; /* more entries than a message has */
	for (int i = 0; i <= REPLICA_BODIES_MAX; i++)
		many[i] = (struct replica_body){term, slice_of(commands, 2)};
	replica_receive(n->r, &m, many, REPLICA_BODIES_MAX + 1);
	ck_assert_uint_eq(counts->malformed, 8);
	run_for(g, 10 * ms_ns);
	ck_assert_uint_eq(core->last_index, last);
	group_free(g);
}
END_TEST

/* Of messages that wait no more is kept than fits, and when they are stepped there is room again. */
START_TEST(test_messages_that_wait)
{
	enum { COUNT = 8, BYTES = 200000 };
	static const uint8_t bytes[BYTES] = {BODY_COMMANDS};
	struct group *g = group_new(10, 1 << 20);
	struct node *l = elected(g), *n = &g->nodes[l->id % g->count];
	const struct raft_core *core = replica_core(n->r);
	struct raft_message m = {.type = RAFT_APPEND, .from = l->id, .to = n->id, .term = core->term};
	struct replica_body bodies[COUNT];
	uint64_t fitting = 0;

	m.append.prev_index = core->last_index;
	m.append.prev_term = raft_term_at(core, core->last_index);
	m.append.last = core->last_index + COUNT;
	m.append.run_count = 1;
	m.append.runs[0] = (struct raft_run){core->last_index + 1, core->term};
	for (int i = 0; i < COUNT; i++)
		bodies[i] = (struct replica_body){core->term, slice_of(bytes, BYTES)};
	for (; replica_counts(n->r)->dropped == 0; fitting++) {
		ck_assert_uint_lt(fitting, REPLICA_MESSAGES_MAX);
		replica_receive(n->r, &m, bodies, COUNT);
	}
	ck_assert_uint_eq(fitting - 1, REPLICA_MESSAGES_BYTES_MAX / (COUNT * BYTES));
	ck_assert_uint_eq(replica_counts(n->r)->malformed, 0);
	run_for(g, 10 * ms_ns);
	replica_receive(n->r, &m, bodies, COUNT);
	ck_assert_uint_eq(replica_counts(n->r)->dropped, 1);
	run_for(g, 10 * ms_ns);
	m.append.last = m.append.prev_index;
	m.append.run_count = 0;
	for (int i = 0; i < REPLICA_MESSAGES_MAX; i++)
		replica_receive(n->r, &m, NULL, 0);
	ck_assert_uint_eq(replica_counts(n->r)->dropped, 1);
	replica_receive(n->r, &m, NULL, 0);
	ck_assert_uint_eq(replica_counts(n->r)->dropped, 2);
	ck_assert_uint_eq(replica_counts(n->r)->malformed, 0);
	group_free(g);
}
END_TEST

/* Messages that no letter holds would be lost, each time. */
START_TEST(test_options_refused)
{
	struct group *g = group_new(12, 1 << 20);
	struct node *n = &g->nodes[0];
	struct replica_options options = node_options(n);
	struct replica *r;
	struct err err;

	options.dir = "/options";
	options.raft.message_bytes = REPLICA_MESSAGE_BYTES_MAX + 1;
	ck_assert_int_eq(replica_open(n->host, &options, &r, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "do not fit a letter"));
	options.raft.message_bytes = 1 << 16;
	options.snapshot_bytes_per_s = PART_BYTES_PER_S_LEAST - 1;
	ck_assert_int_eq(replica_open(n->host, &options, &r, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "would take too long"));
	group_free(g);
}
END_TEST

/* An entry is applied when its rows surely find room in the store, or alone; from memory, and read back from the log. */
START_TEST(test_rows_find_room)
{
	struct group *g = group_new(13, 4 << 10);

	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	g->adjust = make_tight;
	g->rows = 100;
	settle(g);
	submit_many(g, 300);
	isolate(g, &g->nodes[elected(g)->id % g->count], true);
	submit_many(g, 300);
	settle(g);
	group_free(g);
}
END_TEST

static void save_done(struct wal_save *save, int code)
{
	ck_assert_int_eq(code, 0);
	save->done = NULL;
}

static bool is_saved(void *ctx)
{
	return !((struct wal_save *)ctx)->done;
}

/* Who has voted in a group founds no other: its vote would be forgotten. */
START_TEST(test_founding_after_a_vote)
{
	struct group *g = group_new(11, 1 << 20);
	struct node *n = &g->nodes[0];
	const struct wal_replica replica = {.cluster = "of these tests", .replica = n->id};
	const struct wal_options options = {.dir = "/voted/log", .segment_bytes = 1 << 20, .replica = &replica};
	struct wal_save save = {.term = 2, .vote = 3, .done = save_done};
	struct replica_options founds = node_options(n);
	struct err err;
	struct wal *wal;

	founds.dir = "/voted";
	ck_assert_int_eq(io_mkdir(n->host, "/voted", 0700), 0);
	ck_assert_int_eq(io_mkdir(n->host, "/voted/log", 0700), 0);
	ck_assert_int_eq(wal_open(n->host, &options, 1, NULL, NULL, &wal, &err), 0);
	wal_save(wal, &save);
	ck_assert(sim_run(g->sim, is_saved, &save, UINT64_MAX));
	wal_abandon(wal);
	ck_assert_int_eq(replica_open(n->host, &founds, &n->r, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "up to term 2"));
	group_free(g);
}
END_TEST

START_TEST(test_close)
{
	struct group *g = group_new(7, 1 << 20);
	struct node *l = elected(g);

	submit(l);
	node_close(l);
	node_open(l);
	settle(g);
	group_free(g);
}
END_TEST

/* ---- members, hand-over, reads ---- */

/* A new member gets the table, as the log does not begin with the group; then the log; votes; and one of the old ones may go for good. */
START_TEST(test_members)
{
	struct group *g = trimming_group(40, 0);
	struct node *new, *old;
	const struct raft_config *config;

	while (wal_index(replica_log(elected(g)->r))->base_index == 0)
		submit_many(g, 350);
	new = node_add(g);
	change_surely(g, RAFT_ADD_LEARNER, new->id);
	ck_assert_int_eq(change(g, RAFT_ADD_LEARNER, new->id), ERR_EXIST);
	settle(g);
	ck_assert_uint_ge(installed(new), 1);
	change_surely(g, RAFT_PROMOTE, new->id);
	old = &g->nodes[elected(g)->id % FOUNDERS];
	change_surely(g, RAFT_REMOVE, old->id);
	node_crash(old);
	old->gone = true;
	submit_many(g, 50);
	for (uint32_t i = 0; i < g->count; i++)
		if (!g->nodes[i].gone)
			node_crash(&g->nodes[i]);
	settle(g);
	config = &replica_core(elected(g)->r)->config;
	ck_assert_uint_eq(config->count, FOUNDERS);
	ck_assert_uint_eq(config->last_id, new->id);
	isolate(g, elected(g), true); /* the new one's vote counts */
	run_for(g, 3000 * ms_ns);
	submit(elected(g));
	run_for(g, 500 * ms_ns);
	settle(g);
	ck_assert_int_eq(change(g, RAFT_ADD_LEARNER, old->id), ERR_EXIST); /* an id is given once */
	ck_assert_int_eq(change(g, RAFT_REMOVE, 77), ERR_NOENT);
	ck_assert_int_eq(change(g, RAFT_REMOVE, elected(g)->id), ERR_BUSY);
	group_free(g);
}
END_TEST

/* Leadership goes to who was named, under load; or stays, if that one does not answer. */
START_TEST(test_hand_over)
{
	struct group *g = group_new(41, 1 << 20);
	struct node *from, *to;

	for (int i = 0; i < 5; i++) {
		from = elected(g);
		to = &g->nodes[from->id % g->count];
		for (int k = 0; k < 20; k++)
			submit(from);
		ck_assert_int_eq(hand_over(g, from, to->id), 0);
		ck_assert_ptr_eq(elected(g), to);
		ck_assert_int_eq(from->role.role, RAFT_FOLLOWER);
	}
	from = elected(g);
	ck_assert_int_eq(hand_over(g, from, from->id), ERR_EXIST);
	ck_assert_int_eq(hand_over(g, from, 77), ERR_NOENT);
	to = &g->nodes[from->id % g->count];
	ck_assert_int_eq(hand_over(g, to, from->id), ERR_NOT_LEADER);
	isolate(g, to, true);
	ck_assert_int_eq(hand_over(g, from, to->id), ERR_TIMEDOUT);
	ck_assert_ptr_eq(elected(g), from);
	settle(g);
	group_free(g);
}
END_TEST

/* Reads see what was acknowledged; who leads no longer, and does not know it, answers none of them. */
START_TEST(test_reads)
{
	struct group *g = group_new(42, 1 << 20);
	struct node *old, *l;

	for (int i = 0; i < 200; i++) {
		submit(elected(g));
		read_rows(elected(g));
		run_for(g, ms_ns);
	}
	run_for(g, 1000 * ms_ns);
	ck_assert_uint_eq(g->read_counts[0], 200);
	old = elected(g);
	sim_disk_slow(old->host, 20); /* what the others have is committed, and not applied here yet */
	for (int i = 0; i < 100; i++) {
		submit(old);
		read_rows(old);
		run_for(g, ms_ns);
	}
	sim_disk_slow(old->host, 1);
	run_for(g, 1000 * ms_ns);
	ck_assert_ptr_eq(elected(g), old);
	ck_assert_uint_eq(g->read_counts[0], 300);
	read_rows(&g->nodes[old->id % g->count]);
	run_for(g, 10 * ms_ns);
	ck_assert_uint_eq(g->read_counts[1], 1);
	isolate(g, old, true);
	for (int i = 0; i < 5000 && !(leader(g) != old && has_leader(g)); i++) {
		if (leads(old))
			read_rows(old);
		run_for(g, ms_ns);
	}
	l = elected(g);
	ck_assert_ptr_ne(l, old);
	ck_assert_uint_eq(g->read_counts[0], 300);
	submit(l);
	run_for(g, 300 * ms_ns);
	read_rows(l);
	run_for(g, 3000 * ms_ns);
	ck_assert_uint_eq(g->read_counts[0], 301);
	ck_assert_uint_gt(g->read_counts[1], 10); /* it stepped down, and all were told */
	read_rows(l);
	node_close(l);
	ck_assert_uint_eq(g->read_counts[2], 1);
	node_open(l);
	settle(g);
	group_free(g);
}
END_TEST

/* What was submitted may be withdrawn, taken or not; nobody is told of it then. */
START_TEST(test_withdraw)
{
	struct group *g = group_new(43, 1 << 20);
	struct changing c = {.g = g, .submit = {.data = slice_of(members.members, 8), .done = changed}};
	struct node *old = elected(g);

	ck_assert_int_eq(replica_submit(old->r, &c.submit), 0);
	replica_withdraw(old->r, &c.submit);
	isolate(g, old, true);
	ck_assert_int_eq(replica_submit(old->r, &c.submit), 0);
	run_for(g, 20 * ms_ns);
	ck_assert_uint_gt(c.submit.index, 0);
	replica_withdraw(old->r, &c.submit);
	run_for(g, 3000 * ms_ns);
	ck_assert_int_eq(old->role.role == RAFT_LEADER, 0);
	settle(g);
	ck_assert(!c.done);
	group_free(g);
}
END_TEST

static void fault(struct group *g)
{
	struct node *n = &g->nodes[rng_below(&g->rng, g->count)];

	switch (rng_below(&g->rng, 6)) {
	case 0:
	case 1:
		if (n->up)
			node_crash(n);
		break;
	case 2:
		isolate(g, n, true);
		break;
	case 3:
		g->cut[n->id - 1][rng_below(&g->rng, g->count)] = true;
		break;
	case 4:
		memset(g->cut, 0, sizeof(g->cut));
		break;
	case 5:
		if (leader(g))
			isolate(g, leader(g), true);
		break;
	}
}

static void handed_on(void *ctx, int code)
{
	(void)ctx;
	ck_assert(code == 0 || code == ERR_TIMEDOUT || code == ERR_NOT_LEADER || code == ERR_EXIST || code == ERR_AGAIN);
}

static void hand_on(struct node *n)
{
	int code = replica_transfer(n->r, rng_between(&n->g->rng, 1, n->g->count), handed_on, n);

	ck_assert(code == 0 || code == ERR_BUSY);
}

static void history(uint64_t seed)
{
	struct group *g = group_new(seed, 16 << 10);

	if (seed % 2)
		g->keep_bytes = rng_below(&g->rng, 3 << 20);
	for (int round = 0; round < 4; round++) {
		g->loss = (uint32_t)rng_below(&g->rng, 100);
		g->twice = (uint32_t)rng_below(&g->rng, 100);
		for (int step = 0; step < 60; step++) {
			struct node *n = &g->nodes[rng_below(&g->rng, g->count)];

			for (uint64_t i = rng_below(&g->rng, 8); leads(n) && i > 0; i--)
				submit(n);
			if (n->up && rng_chance(&g->rng, 1, 4))
				read_rows(n);
			if (leads(n) && rng_chance(&g->rng, 1, 30))
				hand_on(n);
			if (rng_chance(&g->rng, 1, 8))
				fault(g);
			if (rng_chance(&g->rng, 1, 4) && !n->up)
				node_restart(n);
			run_for(g, rng_below(&g->rng, 120 * ms_ns));
		}
		settle(g);
	}
	if (getenv("CRATON_TEST_VERBOSE"))
		printf("seed %" PRIu64 ": %" PRIu64 " entries, %" PRIu64 " acknowledged, %" PRIu64 " canceled, %" PRIu64
		       " crashes, %" PRIu64 " fills from the log\n",
			seed, g->agreed_last, g->fate_counts[ACKNOWLEDGED], g->fate_counts[CANCELED], g->crashes,
			g->reads);
	ck_assert_uint_gt(g->fate_counts[ACKNOWLEDGED], 0);
	group_free(g);
}

START_TEST(test_histories)
{
	const char *seeds = getenv("CRATON_TEST_SEEDS");
	uint64_t count = seeds ? strtoull(seeds, NULL, 10) : 10;

	for (uint64_t seed = 1; seed <= count; seed += unit_step())
		history(seed);
}
END_TEST

UNIT_MAIN("replica_sim", test_replicates, test_follower_refuses, test_founding_again, test_power_failure,
	test_log_is_trimmed, test_snapshot_for_laggard,
	test_snapshot_crashes, test_snapshot_of_dead_leader, test_snapshot_rate, test_snapshot_not_believed,
	test_snapshot_for_nobody, test_snapshot_ends_submits, test_deposed_leader_is_cut, test_deposed_leader_answers, test_log_failure_stops,
	test_malformed, test_messages_that_wait, test_options_refused, test_rows_find_room, test_founding_after_a_vote, test_close, test_members, test_hand_over, test_reads, test_withdraw,
	test_histories)
