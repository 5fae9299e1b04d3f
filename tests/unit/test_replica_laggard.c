/* SPDX-License-Identifier: Apache-2.0 */
/* A replica that is far behind the others, and those who bring it up. */
#include "tests/lib/replica_group.h"

/* One that was away gets from the log what is not in memory any more. */
START_TEST(test_laggard_fed_from_log)
{
	struct group *g = group_new(4, 32 << 10);
	struct node *l = elected(g), *away = &g->nodes[l->id % g->count];

	isolate(g, away, true);
	for (int i = 0; i < 500; i++)
		submit(l);
	run_for(g, 1000 * ms_ns);
	ck_assert_uint_eq(g->fate_counts[ACKNOWLEDGED], 500);
	ck_assert_uint_lt(away->applied, 10);
	settle(g);
	for (uint32_t i = 0; i < g->count; i++)
		g->reads += replica_counts(g->nodes[i].r)->fills_read;
	ck_assert_uint_gt(g->reads, 10);
	group_free(g);
}
END_TEST

/* The frames of a log with entries of a kind that is not known, as if they had been written so. */
static void forge_kinds(struct node *n)
{
	static uint8_t bytes[WAL_FRAME_MAX_BYTES];
	char path[64];

	for (uint32_t s = 1; s < 100; s++) {
		struct wal_frame f;
		size_t len, pos = 0;
		struct slice entry;
		int fd;

		snprintf(path, sizeof(path), "/r/log/log-%016x", s);
		if (io_open(n->host, path, IO_OPEN_WRITE, 0, &fd))
			continue;
		for (uint64_t at = 0; sim_read_raw(n->host, path, bytes, WAL_FRAME_ALIGN, at) == WAL_FRAME_ALIGN &&
			wal_frame_peek(bytes, &f, &len) == 0; at += len, pos = 0) {
			ck_assert_int_eq(sim_read_raw(n->host, path, bytes, len, at), (int64_t)len);
			if (wal_frame_decode(bytes, len, &f) || f.type != WAL_FRAME_ENTRIES)
				continue;
			while (wal_frame_next(&f, &pos, &entry))
				*(uint8_t *)(uintptr_t)entry.data = 99;
			wal_frame_encode(bytes, f.body.len, &f);
			ck_assert_int_eq(io_pwrite(n->host, fd, bytes, len, at), (int64_t)len);
		}
		io_close(n->host, fd);
	}
}

/* Nor is it sent: who reads that stops, and the others go on. */
START_TEST(test_unknown_entry_is_not_sent)
{
	struct group *g = group_new(4, 32 << 10);
	struct node *l = elected(g), *away = &g->nodes[l->id % g->count];

	isolate(g, away, true);
	for (int i = 0; i < 500; i++)
		submit(l);
	run_for(g, 1000 * ms_ns);
	forge_kinds(l);
	isolate(g, away, false);
	run_for(g, 1000 * ms_ns);
	ck_assert_int_eq(l->stopped, ERR_CORRUPT);
	l->stopped = 0;
	node_crash(l);
	l->gone = true; /* its log is not opened any more */
	submit(elected(g));
	settle(g);
	group_free(g);
}
END_TEST

START_TEST(test_unknown_entry_is_not_applied)
{
	struct group *g = group_new(5, 32 << 10);
	struct node *n = &g->nodes[elected(g)->id % g->count];

	submit_many(g, 300);
	for (int i = 0; i < 100; i++)
		submit(elected(g));
	run_for(g, 30 * ms_ns);
	node_crash(n); /* its table lags behind its log */
	node_restart(n);
	ck_assert_uint_lt(n->applied, replica_core(n->r)->last_index);
	forge_kinds(n);
	run_for(g, 1000 * ms_ns);
	ck_assert_int_eq(n->stopped, ERR_CORRUPT);
	n->stopped = 0;
	node_crash(n);
	n->gone = true;
	settle(g);
	group_free(g);
}
END_TEST

/* Of what the table has, so much stays that one that was away a while is fed from the log. */
START_TEST(test_log_kept_for_laggards)
{
	struct group *g = group_new(11, 32 << 10);
	struct node *l, *away;

	g->keep_bytes = 3 << 20;
	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	settle(g);
	submit_many(g, 1500);
	l = elected(g);
	away = &g->nodes[l->id % g->count];
	ck_assert_uint_gt(wal_index(replica_log(l->r))->base_index, 0);
	isolate(g, away, true);
	submit_many(g, 400);
	ck_assert_uint_gt(l->applied, away->applied + 350);
	settle(g);
	ck_assert_uint_eq(replica_counts(away->r)->snapshots_installed, 0);
	group_free(g);
}
END_TEST

/* All have so many entries, and one lacks a thousand more, of some 3 KB. */
static struct node *far_behind_of(struct group *g, int all_have, uint64_t keep_bytes)
{
	struct node *away;

	g->keep_bytes = keep_bytes;
	g->rate = 1 << 20;
	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	settle(g);
	submit_many(g, all_have);
	away = &g->nodes[elected(g)->id % g->count];
	isolate(g, away, true);
	submit_many(g, 1000);
	isolate(g, away, false);
	return away;
}

static struct node *far_behind(struct group *g, int all_have)
{
	return far_behind_of(g, all_have, 64 << 20);
}

static uint64_t lacks(const struct group *g, const struct node *away)
{
	return g->agreed_last - away->applied;
}

/* At a quarter of a snapshot's rate, though others write now and then. */
START_TEST(test_laggard_does_not_take_all)
{
	struct group *g = group_new(24, 32 << 10);
	struct node *away = far_behind(g, 1600);

	for (int i = 0; i < 12; i++) {
		submit(elected(g));
		run_for(g, 250 * ms_ns);
	}
	ck_assert_uint_gt(lacks(g, away), 400);
	ck_assert_uint_lt(lacks(g, away), 950);
	run_for(g, 12000 * ms_ns);
	ck_assert_uint_eq(lacks(g, away), 0);
	settle(g);
	group_free(g);
}
END_TEST

/* Nor does one that has next to nothing, of a log that was never trimmed. */
START_TEST(test_newcomer_does_not_take_all)
{
	struct group *g = group_new(24, 32 << 10);
	struct node *away = far_behind(g, 1);

	run_for(g, 3000 * ms_ns);
	ck_assert_uint_eq(wal_index(replica_log(elected(g)->r))->base_index, 0);
	ck_assert_uint_gt(lacks(g, away), 600);
	run_for(g, 12000 * ms_ns);
	ck_assert_uint_eq(lacks(g, away), 0);
	settle(g);
	group_free(g);
}
END_TEST

/* But one that lacks most of what stays of the log does, until it lacks less: at that rate the rest might be gone before it has it. */
START_TEST(test_laggard_in_a_hurry)
{
	struct group *g = group_new(24, 32 << 10);
	struct node *away = far_behind_of(g, 1, 3100 << 10);
	const struct wal *log = replica_log(elected(g)->r);
	uint64_t lacked = wal_bytes_from(log, away->applied + 1);

	ck_assert_uint_eq(wal_index(log)->base_index, 0);
	ck_assert_uint_gt(lacked, g->keep_bytes / 8 * 7);
	ck_assert_uint_lt(lacked, g->keep_bytes);
	run_for(g, 1000 * ms_ns);
	ck_assert_uint_le(wal_bytes_from(log, away->applied + 1), g->keep_bytes / 4 * 3);
	ck_assert_uint_gt(lacks(g, away), 400);
	settle(g);
	ck_assert_uint_eq(replica_counts(away->r)->snapshots_installed, 0);
	group_free(g);
}
END_TEST

/* The log grows faster than that, and it comes nearer all the same. */
START_TEST(test_laggard_is_faster_than_the_log)
{
	struct group *g = group_new(25, 32 << 10);
	struct node *away = far_behind(g, 1600);

	for (int i = 0; i < 400 && lacks(g, away) > 300; i++) {
		for (int n = 0; n < 16; n++)
			submit(elected(g));
		run_for(g, 20 * ms_ns);
	}
	ck_assert_uint_le(lacks(g, away), 300);
	settle(g);
	group_free(g);
}
END_TEST

/* What the others are waiting for it gets as fast as it can take it. */
START_TEST(test_laggard_is_needed)
{
	struct group *g = group_new(26, 32 << 10);
	struct node *away = far_behind(g, 1600), *l = elected(g);

	for (uint32_t i = 0; i < g->count; i++)
		if (&g->nodes[i] != l && &g->nodes[i] != away)
			node_crash(&g->nodes[i]);
	submit(l);
	run_for(g, 3000 * ms_ns);
	ck_assert_uint_eq(lacks(g, away), 0);
	settle(g);
	group_free(g);
}
END_TEST

/* Also if the other one answers, and has all that is committed, and its disk hangs. */
START_TEST(test_laggard_is_needed_beside_a_hung_disk)
{
	struct group *g = group_new(33, 32 << 10);
	struct node *away = far_behind(g, 1600), *l = elected(g);
	uint64_t before = g->fate_counts[ACKNOWLEDGED];

	g->mail_ns = ms_ns; /* none is late, so that the one whose disk hangs is never taken for one that is not there */
	ck_assert_uint_gt(lacks(g, away), 900);
	for (uint32_t i = 0; i < g->count; i++)
		if (&g->nodes[i] != l && &g->nodes[i] != away)
			sim_disk_stall(g->nodes[i].host, 30000 * ms_ns);
	submit(l);
	run_for(g, 1000 * ms_ns);
	ck_assert_uint_eq(g->fate_counts[ACKNOWLEDGED], before + 1);
	ck_assert_uint_eq(lacks(g, away), 0);
	settle(g);
	group_free(g);
}
END_TEST

/* No change is taken until it has all: that cannot wait. */
START_TEST(test_hand_over_to_laggard)
{
	struct group *g = group_new(27, 32 << 10);
	struct node *away = far_behind(g, 1600), *l = elected(g);

	ck_assert_uint_gt(lacks(g, away), 900);
	ck_assert_int_eq(hand_over(g, l, away->id), 0);
	ck_assert_ptr_eq(elected(g), away);
	settle(g);
	group_free(g);
}
END_TEST

/*
 * The log grows by far more than it keeps while a snapshot is on its way: what comes behind that is there all the same, and one is enough, though it comes
 * nearer slowly.
 */
START_TEST(test_log_kept_behind_snapshot)
{
	struct group *g = trimming_group(28, 128 << 10);
	struct node *away, *l;
	uint64_t rounds = 0, rounds_behind = 0, at_install = 0;

	g->keep_bytes = 512 << 10;
	for (uint32_t i = 0; i < g->count; i++)
		node_crash(&g->nodes[i]);
	settle(g);
	away = leave_behind(g);
	l = elected(g);
	isolate(g, away, false);
	for (; rounds < 3000 && (at_install == 0 || lacks(g, away) > 30); rounds++) {
		for (int n = 0; n < 6; n++)
			submit(elected(g));
		run_for(g, 20 * ms_ns);
		if (at_install == 0 && replica_counts(away->r)->snapshots_installed)
			at_install = lacks(g, away);
		rounds_behind += at_install > 0;
		if (at_install) /* and no more than that: segments are of some 350 entries */
			ck_assert_uint_lt(g->agreed_last - wal_index(replica_log(l->r))->base_index, lacks(g, away) + 1000);
	}
	ck_assert_ptr_eq(elected(g), l);
	ck_assert_uint_gt(rounds_behind, at_install / 6 / 3); /* its pace is some twice that of the log, not more */
	ck_assert_uint_gt(at_install, 1000); /* of some 3 KB: more than the log keeps */
	ck_assert_uint_le(lacks(g, away), 30);
	ck_assert_uint_eq(replica_counts(away->r)->snapshots_installed, 1);
	settle(g);
	group_free(g);
}
END_TEST

/* It has just got its snapshot, and is cut off, while the log behind that is kept for it. */
static void lost_behind_snapshot(struct group *g, struct node **ret_away, struct node **ret_leader)
{
	struct node *away = leave_behind(g), *l = elected(g);

	isolate(g, away, false);
	while (!replica_counts(away->r)->snapshots_installed) {
		for (int i = 0; i < 6; i++)
			submit(elected(g));
		run_for(g, 20 * ms_ns);
	}
	isolate(g, away, true);
	ck_assert_uint_gt(lacks(g, away), 100);
	run_for(g, 1000 * ms_ns);
	*ret_away = away;
	*ret_leader = l;
}

static bool has_log_for(const struct node *n, const struct node *away)
{
	return wal_index(replica_log(n->r))->base_index <= away->applied;
}

/* That has an end: who falls behind is one for another snapshot. */
START_TEST(test_log_kept_while_it_comes_nearer)
{
	struct group *g = trimming_group(29, 512 << 10);
	struct node *away, *l;

	lost_behind_snapshot(g, &away, &l);
	submit_many(g, 300);
	ck_assert(has_log_for(l, away));
	for (int i = 0; i < 2; i++)
		submit_many(g, 1500);
	ck_assert(!has_log_for(l, away));
	ck_assert_ptr_eq(elected(g), l);
	settle(g);
	ck_assert_uint_eq(replica_counts(away->r)->snapshots_installed, 2);
	group_free(g);
}
END_TEST

/* Also if nothing is written any more, as in a store that is full. */
START_TEST(test_log_not_kept_for_the_dead)
{
	struct group *g = trimming_group(30, 512 << 10);
	struct node *away, *l;

	lost_behind_snapshot(g, &away, &l);
	submit_many(g, 500);
	ck_assert(has_log_for(l, away));
	run_for(g, 2 * PART_IDLE_MS * ms_ns);
	ck_assert_ptr_eq(elected(g), l);
	ck_assert(!has_log_for(l, away));
	settle(g);
	group_free(g);
}
END_TEST

/* Entries that the leader has in its log at most, while so many more are written, in so many seconds. */
static uint64_t kept_most(struct group *g, const struct node *l, int seconds, uint32_t entries)
{
	uint64_t most = 0;

	for (int i = 0; i < seconds; i++) {
		uint64_t kept;

		submit_many(g, entries / (uint32_t)seconds);
		run_for(g, 1000 * ms_ns);
		kept = g->agreed_last - wal_index(replica_log(l->r))->base_index;
		most = kept > most ? kept : most;
	}
	ck_assert_ptr_eq(elected(g), l);
	return most;
}

/* Nor, from its first snapshot on, for one that is there and never has one: what it gets behind the last one that it was offered is enough. */
START_TEST(test_log_not_kept_for_who_fails)
{
	struct group *g = trimming_group(35, 512 << 10);
	struct node *away = leave_behind(g), *l = elected(g);

	g->tamper = flip_a_bit;
	isolate(g, away, false);
	ck_assert_uint_lt(kept_most(g, l, 60, 12000), 6000);
	ck_assert_uint_eq(replica_counts(away->r)->snapshots_installed, 0);
	ck_assert_uint_gt(replica_counts(away->r)->snapshots_failed, 3);
	ck_assert_uint_gt(g->tampered, 3);
	g->tamper = NULL;
	settle(g);
	ck_assert_uint_ge(replica_counts(away->r)->snapshots_installed, 1);
	group_free(g);
}
END_TEST

/* Nor for one that is there and asks for none, as it still writes down that of another leader, to a disk that hangs. */
START_TEST(test_log_not_kept_for_who_never_asks)
{
	struct group *g = trimming_group(37, 512 << 10);
	struct node *away = leave_behind(g), *l = elected(g);

	g->loses_asks = true;
	isolate(g, away, false);
	ck_assert_uint_lt(kept_most(g, l, 200, 20000), 10000);
	ck_assert_uint_gt(replica_counts(l->r)->snapshots_offered, 3);
	g->loses_asks = false;
	settle(g);
	ck_assert_uint_ge(replica_counts(away->r)->snapshots_installed, 1);
	group_free(g);
}
END_TEST

static void stall_at_the_end(struct group *g, struct replica_part *part)
{
	if (part->end && g->tampered++ == 0)
		sim_disk_stall(g->slow, 150000 * ms_ns);
}

/* But what it has taken and still writes down is behind no other one that it is offered meanwhile and does not even look at. */
START_TEST(test_log_kept_for_who_installs_slowly)
{
	struct group *g = trimming_group(36, 512 << 10);
	struct node *away = leave_behind(g), *l = elected(g);

	g->slow = away->host;
	g->tamper = stall_at_the_end;
	isolate(g, away, false);
	for (int i = 0; i < 140; i++) {
		submit_many(g, 20);
		run_for(g, 1000 * ms_ns);
	}
	ck_assert_ptr_eq(elected(g), l);
	ck_assert_uint_eq(g->tampered, 1);
	ck_assert_uint_eq(replica_counts(away->r)->snapshots_installed, 0);
	for (int i = 0; i < 600 && lacks(g, away) > 0; i++)
		run_for(g, 1000 * ms_ns);
	settle(g);
	ck_assert_uint_eq(replica_counts(away->r)->snapshots_installed, 1);
	group_free(g);
}
END_TEST

/* Nor for who is a member no more. */
START_TEST(test_log_not_kept_for_the_removed)
{
	struct group *g = trimming_group(31, 512 << 10);
	struct node *away, *l;

	lost_behind_snapshot(g, &away, &l);
	submit_many(g, 500);
	ck_assert(has_log_for(l, away));
	change(g, RAFT_REMOVE, away->id);
	away->gone = true;
	run_for(g, 2000 * ms_ns);
	ck_assert_ptr_eq(elected(g), l);
	ck_assert(!has_log_for(l, away));
	settle(g);
	group_free(g);
}
END_TEST

/* A leader that is deposed keeps nothing, and may need a snapshot itself. */
START_TEST(test_log_not_kept_by_the_deposed)
{
	struct group *g = trimming_group(32, 512 << 10);
	struct node *away, *l;
	uint64_t applied;

	lost_behind_snapshot(g, &away, &l);
	submit_many(g, 500);
	ck_assert(has_log_for(l, away));
	applied = away->applied;
	isolate(g, away, false);
	isolate(g, l, true);
	run_for(g, 3000 * ms_ns);
	ck_assert_ptr_ne(elected(g), l);
	submit_many(g, 1000);
	settle(g);
	ck_assert_uint_gt(wal_index(replica_log(l->r))->base_index, applied);
	group_free(g);
}
END_TEST

UNIT_MAIN("replica_laggard", test_laggard_fed_from_log, test_unknown_entry_is_not_sent, test_unknown_entry_is_not_applied, test_log_kept_for_laggards, test_laggard_does_not_take_all, test_newcomer_does_not_take_all, test_laggard_in_a_hurry, test_laggard_is_faster_than_the_log,
	test_laggard_is_needed, test_laggard_is_needed_beside_a_hung_disk, test_hand_over_to_laggard, test_log_kept_behind_snapshot,
	test_log_kept_while_it_comes_nearer, test_log_not_kept_for_the_dead, test_log_not_kept_for_who_fails, test_log_not_kept_for_who_never_asks,
	test_log_kept_for_who_installs_slowly, test_log_not_kept_for_the_removed, test_log_not_kept_by_the_deposed)
