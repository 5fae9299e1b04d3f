/* SPDX-License-Identifier: Apache-2.0 */
/* The table on a simulated disk whose syncs fail, and whose machine dies: what it says the log may lose is durable. */
#include "common/io/io_sim.h"
#include "common/kv/kv_backend.h"
#include "common/kv/kv_private.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"
#include <stdio.h>
#include <string.h>

static struct slice text(const char *s)
{
	return slice_of(s, strlen(s));
}

/* A row "s..." makes a row "t..." of the same value. */
static int derive(struct slice key, const struct slice *was, const struct slice *is, struct kv_derived_rows *rows,
	struct err *err)
{
	char other[32];

	(void)was, (void)err;
	memcpy(other, key.data, key.len);
	other[0] = 't';
	if (is)
		kv_derived_put(rows, slice_of(other, key.len), *is);
	else
		kv_derived_del(rows, slice_of(other, key.len));
	return 0;
}

static const struct kv_derived same = {.source = 's', .target = 't', .derive = derive};

static struct kv *open_sim_kv(struct io *host, uint64_t *ret_applied)
{
	const struct kv_options options = {.dir = "/kv", .backend = &kv_mem, .derived = &same, .freeze_bytes = 1};
	struct err err;
	struct kv *kv;
	int rc = kv_open(host, &options, &kv, ret_applied, &err);

	ck_assert_msg(rc == 0, "%s", err.text);
	return kv;
}

static void power_cut(struct io *host, enum sim_loss loss)
{
	sim_set_loss(host, loss);
	sim_host_crash(host);
	sim_host_restart(host);
}

static int settle_one(struct kv *kv, uint64_t index)
{
	struct err err;

	kv_put(kv, text("key"), text("value"));
	kv_applied(kv, index);
	return kv_settle(kv, &err);
}

/*
 * The sync of a commit fails, the process dies of it, and the commit before is still seen, but no later sync makes it durable. The log
 * behind it is needed until a commit of the next life is durable.
 */
START_TEST(test_trim_index_after_a_failed_sync)
{
	for (uint64_t commits = 1; commits <= 3; commits++) {
		struct sim *sim = sim_new(&(struct sim_options){.seed = commits});
		struct io *host = sim_host_add(sim, "host", 64 << 20);
		uint64_t applied, trim;
		struct kv *kv;

		ck_assert_int_eq(io_mkdir(host, "/kv", 0700), 0);
		ck_assert_int_eq(io_sync_dir(host, "/"), 0);
		kv = open_sim_kv(host, &applied);
		for (uint64_t index = 1; index <= 4; index++)
			ck_assert_int_eq(settle_one(kv, index), 0);
		sim_fault_after(host, SIM_FAULT_SYNC, 1, ERR_IO);
		ck_assert_int_eq(settle_one(kv, 5), ERR_IO);
		power_cut(host, SIM_LOSS_NONE);

		kv = open_sim_kv(host, &applied);
		ck_assert_uint_eq(applied, 4);
		for (uint64_t index = 5; index < 5 + commits; index++)
			ck_assert_int_eq(settle_one(kv, index), 0);
		trim = kv_trim_index(kv);
		power_cut(host, SIM_LOSS_ALL);

		kv = open_sim_kv(host, &applied);
		ck_assert_uint_ge(applied, trim);
		kv_abandon(kv);
		sim_free(sim);
	}
}
END_TEST

static void open_sim_run(void *ctx)
{
	uint64_t applied;

	(void)open_sim_kv(ctx, &applied);
}

/* The process is killed at each sync of its first start in turn: the table that is seen then is durable before the log behind it goes. */
START_TEST(test_killed_at_syncs_of_the_first_start)
{
	uint64_t nth = 0, applied, trim;
	bool is_open;

	do {
		struct sim *sim = sim_new(&(struct sim_options){.seed = 5});
		struct io *host = sim_host_add(sim, "host", 64 << 20);
		struct kv *kv;

		ck_assert_int_eq(io_mkdir(host, "/kv", 0700), 0);
		ck_assert_int_eq(io_sync_dir(host, "/"), 0);
		sim_set_loss(host, SIM_LOSS_NONE);
		sim_stop_at_sync(host, ++nth, NULL, NULL);
		is_open = sim_try(sim, open_sim_run, host);
		sim_stop_at_sync(host, 0, NULL, NULL);
		sim_host_crash(host);
		sim_host_restart(host);
		kv = open_sim_kv(host, &applied);
		ck_assert_int_eq(settle_one(kv, applied + 1), 0);
		trim = kv_trim_index(kv);
		ck_assert_uint_eq(trim, 1);
		power_cut(host, SIM_LOSS_ALL);
		kv = open_sim_kv(host, &applied);
		ck_assert_uint_ge(applied, trim);
		kv_abandon(kv);
		sim_free(sim);
	} while (!is_open);
	ck_assert_uint_gt(nth, 2);
}
END_TEST

/* ---- derived rows ---- */

enum { COMMITS = 6 };

static void some_commits(void *ctx)
{
	uint64_t applied;
	struct kv *kv = open_sim_kv(ctx, &applied);
	struct err err;

	for (uint64_t index = applied + 1; index <= COMMITS; index++) {
		const char value = (char)('0' + index);

		if (index > 1)
			kv_del(kv, text(index % 2 ? "s-even" : "s-odd"));
		kv_put(kv, text(index % 2 ? "s-odd" : "s-even"), slice_of(&value, 1));
		kv_applied(kv, index);
		ck_assert_int_eq(kv_settle(kv, &err), 0);
	}
	kv_abandon(kv);
}

/* Whatever a crash leaves, the derived rows are those of the rows that it left. */
static void check_derived(struct io *host)
{
	uint64_t applied;
	struct kv *kv = open_sim_kv(host, &applied);
	const char value = (char)('0' + applied);
	struct slice got;

	for (uint64_t odd = 0; odd < 2; odd++) {
		bool there = applied && applied % 2 == odd;

		ck_assert_int_eq(kv_get(kv, text(odd ? "t-odd" : "t-even"), &got), there ? 0 : ERR_NOENT);
		if (there)
			ck_assert_int_eq(slice_compare(got, slice_of(&value, 1)), 0);
	}
	kv_abandon(kv);
}

START_TEST(test_derived_rows_after_a_crash)
{
	static const enum sim_loss losses[] = {SIM_LOSS_NONE, SIM_LOSS_ALL, SIM_LOSS_ANY, SIM_LOSS_TORN};

	for (size_t l = 0; l < sizeof(losses) / sizeof(losses[0]); l++) {
		uint64_t nth = 0;
		bool whole;

		do {
			struct sim *sim = sim_new(&(struct sim_options){.seed = 9 + nth});
			struct io *host = sim_host_add(sim, "host", 64 << 20);

			ck_assert_int_eq(io_mkdir(host, "/kv", 0700), 0);
			ck_assert_int_eq(io_sync_dir(host, "/"), 0);
			sim_set_loss(host, losses[l]);
			sim_stop_at_sync(host, ++nth, NULL, NULL);
			whole = sim_try(sim, some_commits, host);
			sim_stop_at_sync(host, 0, NULL, NULL);
			sim_host_crash(host);
			sim_host_restart(host);
			check_derived(host);
			some_commits(host);
			check_derived(host);
			sim_free(sim);
		} while (!whole);
		ck_assert_uint_gt(nth, COMMITS);
	}
}
END_TEST

static uint64_t commits_of(struct kv *kv)
{
	struct kv_stats stats;

	kv_get_stats(kv, &stats);
	return stats.commits;
}

/* Somebody else fills the file system, and gives it back: who asks whether it is full is told soon. As long as there is no room nothing is written. */
START_TEST(test_full_passes)
{
	const struct kv_options options = {.dir = "/kv", .backend = &kv_mem, .spare_bytes = 4 << 20};
	struct sim *sim = sim_new(&(struct sim_options){.seed = 1});
	struct io *host = sim_host_add(sim, "host", 64 << 20);
	uint64_t applied, commits;
	struct slice value;
	struct err err;
	struct kv *kv;

	ck_assert_int_eq(io_mkdir(host, "/kv", 0700), 0);
	ck_assert_int_eq(io_sync_dir(host, "/"), 0);
	ck_assert_int_eq(kv_open(host, &options, &kv, &applied, &err), 0);
	sim_disk_leave(host, 1 << 20);
	kv_put(kv, text("key"), text("value"));
	kv_applied(kv, 1);
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 1000000000);
	ck_assert(kv_is_full(kv));
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 3000000000);
	ck_assert(kv_is_full(kv));
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 100000000);
	commits = commits_of(kv);
	for (int i = 0; i < 100; i++) {
		ck_assert(kv_is_full(kv));
		sim_run(sim, NULL, NULL, sim_now_ns(sim) + 20000000);
	}
	ck_assert_uint_eq(commits_of(kv), commits);
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 2000000000);
	kv_put(kv, text("another"), text("value"));
	kv_applied(kv, 2);
	ck_assert(kv_is_full(kv));
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 500000000);
	ck_assert_uint_eq(commits_of(kv), ++commits);
	ck_assert_int_eq(kv_get(kv, text("another"), &value), 0);
	sim_disk_leave(host, UINT64_MAX);
	for (int i = 0; i < 100 && kv_is_full(kv); i++)
		sim_run(sim, NULL, NULL, sim_now_ns(sim) + 20000000);
	ck_assert(!kv_is_full(kv));
	ck_assert_uint_eq(commits_of(kv), commits + 1);
	commits = commits_of(kv);
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 5000000000);
	ck_assert(!kv_is_full(kv));
	ck_assert_uint_eq(commits_of(kv), commits);
	sim_free(sim);
}
END_TEST

#define MS_NS 1000000ull

enum { PERIOD_NS = 100000000, MEMBERS = 5 }; /* of six, two come closer than a seventh */

/* Whatever the clock says a commit comes in the phase of its turn, neither at once nor much later; and those of a group's members are far apart. */
START_TEST(test_phases)
{
	static const int64_t walls[] = {0, 1, PERIOD_NS / 3, PERIOD_NS - 1, 1700000000123456789, INT64_MAX - PERIOD_NS, -1, -PERIOD_NS / 2, INT64_MIN};
	uint64_t phases[MEMBERS];

	for (uint64_t m = 0; m < MEMBERS; m++) {
		phases[m] = kv__turn_wait_ns(m + 1, 0, PERIOD_NS) % PERIOD_NS;
		for (size_t i = 0; i < sizeof(walls) / sizeof(walls[0]); i++) {
			uint64_t wait = kv__turn_wait_ns(m + 1, walls[i], PERIOD_NS);

			ck_assert_uint_ge(wait, PERIOD_NS / 2);
			ck_assert_uint_lt(wait, PERIOD_NS / 2 * 3);
			if (walls[i] >= 0)
				ck_assert_uint_eq(((uint64_t)walls[i] + wait) % PERIOD_NS, phases[m]);
		}
		for (uint64_t n = 0; n < m; n++) {
			uint64_t apart = phases[m] > phases[n] ? phases[m] - phases[n] : phases[n] - phases[m];

			ck_assert_uint_gt(apart, PERIOD_NS / 7);
			ck_assert_uint_lt(apart, PERIOD_NS - PERIOD_NS / 7);
		}
	}
	ck_assert_uint_lt(kv__turn_wait_ns(7, 0, 3600ull * 1000 * MS_NS), 5400ull * 1000 * MS_NS);
	ck_assert_uint_eq(kv__turn_wait_ns(2, 0, MS_NS) % MS_NS * 100 / MS_NS, 23); /* of the shortest one, too */
}
END_TEST

struct member {
	struct io *host;
	struct kv *kv;
	uint64_t commits, ns; /* that it has done, and when the last one was */
};

static void join(struct sim *sim, struct member *m, uint64_t turn)
{
	const struct kv_options options = {.dir = "/kv", .backend = &kv_mem, .turn = turn};
	char name[16];
	uint64_t applied;
	struct err err;

	snprintf(name, sizeof(name), "host-%u", (unsigned)turn);
	m->host = sim_host_add(sim, name, 64 << 20);
	ck_assert_int_eq(io_mkdir(m->host, "/kv", 0700), 0);
	ck_assert_int_eq(io_sync_dir(m->host, "/"), 0);
	ck_assert_int_eq(kv_open(m->host, &options, &m->kv, &applied, &err), 0);
}

/* Tables to which the same is done at the same times do not commit at the same times; each ten times a second. */
START_TEST(test_members_take_turns)
{
	struct sim *sim = sim_new(&(struct sim_options){.seed = 3});
	struct member members[3] = {{.host = NULL}};
	uint64_t begun, compared = 0;

	for (uint64_t m = 0; m < 3; m++)
		join(sim, &members[m], m + 1);
	begun = sim_now_ns(sim);
	for (uint64_t index = 1; index <= 2000; index++) {
		for (int m = 0; m < 3; m++) {
			kv_put(members[m].kv, text("key"), text("value"));
			kv_applied(members[m].kv, index);
		}
		sim_run(sim, NULL, NULL, begun + index * MS_NS);
		for (int m = 0; m < 3; m++) {
			if (commits_of(members[m].kv) == members[m].commits)
				continue;
			members[m].commits++;
			members[m].ns = sim_now_ns(sim);
			ck_assert_uint_eq(commits_of(members[m].kv), members[m].commits);
			for (int n = 0; n < 3; n++) {
				if (n == m || members[n].commits == 0)
					continue;
				ck_assert_uint_gt(members[m].ns - members[n].ns, PERIOD_NS / 7);
				compared++;
			}
		}
	}
	for (int m = 0; m < 3; m++) {
		ck_assert_uint_ge(members[m].commits, 18);
		ck_assert_uint_le(members[m].commits, 20);
	}
	ck_assert_uint_ge(compared, 100);
	sim_free(sim);
}
END_TEST

static void told(void *ctx, int code)
{
	*(bool *)ctx = code == 0;
}

/* A commit that somebody asked for was quicker than the timer: when that is up, nothing is due, and the next change waits for its own time. */
START_TEST(test_timer_that_came_to_nothing)
{
	struct sim *sim = sim_new(&(struct sim_options){.seed = 4});
	struct member m = {.host = NULL};
	bool flushed = false;
	uint64_t commits;

	join(sim, &m, 0);
	kv_put(m.kv, text("key"), text("value"));
	kv_applied(m.kv, 1);
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 5 * MS_NS);
	kv_flush(m.kv, told, &flushed);
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + 2 * PERIOD_NS);
	ck_assert(flushed);
	commits = commits_of(m.kv);
	kv_put(m.kv, text("key"), text("another"));
	kv_applied(m.kv, 2);
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + PERIOD_NS / 2);
	ck_assert_uint_eq(commits_of(m.kv), commits);
	sim_run(sim, NULL, NULL, sim_now_ns(sim) + PERIOD_NS);
	ck_assert_uint_eq(commits_of(m.kv), commits + 1);
	sim_free(sim);
}
END_TEST

UNIT_MAIN("kv_sim", test_phases, test_members_take_turns, test_timer_that_came_to_nothing, test_full_passes, test_derived_rows_after_a_crash, test_trim_index_after_a_failed_sync,
	test_killed_at_syncs_of_the_first_start)
