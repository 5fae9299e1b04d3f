/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of a replica on a simulated disk, under power failures at every event and every sync: appends, cuts, new terms, votes,
 * snapshots, reads and trims, again and again on the same disk, so that frames of older terms and cut-off tails lie everywhere.
 */
#include "tests/lib/no_leaks.h"
#include "tests/lib/replica_bed.h"

struct reader {
	struct wal_read read;
	struct replica_bed *bed;
};

static uint32_t reads_done, reads_gone;

static void on_read(struct wal_read *read, int code)
{
	struct reader *r = CONTAINER_OF(read, struct reader, read);
	struct replica_bed *bed = r->bed;
	uint64_t index, term, expected = read->from, bytes = 0;
	struct bed_body body;
	struct slice data;

	bed->in_flight--;
	if (code == ERR_NOENT)
		reads_gone++;
	else
		ck_assert_int_eq(code, bed->fatal);
	while (code == 0 && wal_read_next(read, &index, &term, &data)) {
		memcpy(&body, data.data, sizeof(body));
		ck_assert_uint_eq(index, expected++);
		ck_assert_uint_le(index, read->to);
		ck_assert_uint_le(index, bed->now.last); /* nothing that was cut off */
		ck_assert_uint_eq(term, bed->now.entries[index].term);
		ck_assert_uint_eq(body.stamp, bed->now.entries[index].stamp);
		bytes += data.len;
		ck_assert(bytes <= read->max_bytes || index == read->from);
	}
	ck_assert(code != 0 || expected > read->from);
	reads_done++;
	wal_read_end(read);
	mem_free(r);
}

static void start_read(struct replica_bed *bed)
{
	struct reader *r = MEM_NEW(struct reader);
	int rc;

	r->bed = bed;
	r->read.from = rng_between(&bed->rng, bed->now.base > 3 ? bed->now.base - 3 : 1, bed->now.last + 2);
	r->read.to = r->read.from + rng_below(&bed->rng, 60);
	r->read.max_bytes = (uint32_t)rng_below(&bed->rng, 200000);
	r->read.done = on_read;
	rc = wal_read(bed->wal, &r->read);
	if (rc == 0) {
		bed->in_flight++;
		return;
	}
	if (r->read.from > bed->now.last || r->read.from < wal_first_index(bed->wal))
		ck_assert_int_eq(rc, ERR_NOENT);
	else
		ck_assert_int_eq(rc, ERR_AGAIN);
	ck_assert(r->read.from > wal_durable_index(bed->wal) || r->read.from < wal_first_index(bed->wal));
	mem_free(r);
}

static void some_appends(struct replica_bed *bed)
{
	uint64_t last_term = bed->now.entries[bed->now.last].term;

	for (uint64_t n = rng_between(&bed->rng, 1, 8); n > 0; n--) {
		if (last_term < bed->asked_term && rng_chance(&bed->rng, 1, 3))
			last_term =
				rng_between(&bed->rng, last_term + 1, bed->asked_term); /* not durable yet, perhaps */
		if (last_term == 0)
			last_term = 1;
		bed_append(bed, last_term,
			rng_chance(&bed->rng, 1, 5) ? rng_below(&bed->rng, 50000) : rng_below(&bed->rng, 100));
	}
}

static void one_call(struct replica_bed *bed)
{
	uint64_t durable = wal_durable_index(bed->wal);

	switch (rng_below(&bed->rng, 14)) {
	case 0:
		if (!bed->saving && !bed->restarting) {
			bool same = bed->vote == 0 && rng_chance(&bed->rng, 1, 2);

			bed_save(bed, same ? bed->term : bed->term + 1, rng_below(&bed->rng, 4));
		}
		break;
	case 1:
	case 2:
	case 3:
		if (bed->now.last > bed->commit)
			bed_cut(bed, rng_between(&bed->rng, bed->commit + 1, bed->now.last));
		break;
	case 4:
		if (!bed->restarting && !bed->saving && rng_chance(&bed->rng, 1, 3))
			bed_restart(bed, bed->commit + rng_between(&bed->rng, 1, bed->now.last - bed->commit + 3),
				rng_between(
					&bed->rng, bed->now.entries[bed->now.base].term + !bed->now.base, bed->term));
		break;
	case 5:
	case 6:
		if (bed->now.last > bed->commit)
			bed_commit(bed, rng_between(&bed->rng, bed->commit + 1, bed->now.last));
		break;
	case 7:
		/* what is applied is committed and durable */
		bed_trim(bed, bed->commit < durable ? bed->commit : durable);
		break;
	case 8:
		start_read(bed);
		break;
	default:
		some_appends(bed);
	}
}

static void work(struct replica_bed *bed, int calls)
{
	if (bed->term == 0) {
		bed_save(bed, 1, 1);
		bed_settle(bed);
	}
	for (int i = 0; i < calls && !bed->dead && sim_host_is_up(bed->host); i++) {
		ck_assert_msg(bed->fatal == 0, "%s", bed->fatal_text);
		one_call(bed);
		if (rng_chance(&bed->rng, 1, 6))
			bed_settle(bed);
		else if (rng_chance(&bed->rng, 1, 2))
			bed_run_for(bed, rng_below(&bed->rng, 1500000));
	}
}

static struct replica_bed bed;

START_TEST(test_example)
{
	bed_init(&bed, 1);
	bed_open(&bed);
	bed_save(&bed, 1, 2);
	for (int i = 0; i < 5; i++)
		bed_append(&bed, 1, 10); /* written behind the vote, without waiting for it here */
	bed_settle(&bed);
	ck_assert_uint_eq(bed.acknowledged, 5);
	bed_save(&bed, 2, 3);
	bed_settle(&bed);
	bed_cut(&bed, 4);
	bed_append(&bed, 2, 10);
	bed_settle(&bed);
	ck_assert_uint_eq(bed.told_durable, 4);
	bed_close(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 4);
	ck_assert_uint_eq(wal_index_term(wal_index(bed.wal), 3), 1);
	ck_assert_uint_eq(wal_index_term(wal_index(bed.wal), 4), 2);
	ck_assert_uint_eq(wal_meta(bed.wal)->vote, 3);
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* Crashes at random moments, many lives of one disk, with more than its segments hold. */
START_TEST(test_crashes)
{
	uint32_t acknowledged = 0, canceled = 0;

	for (uint64_t seed = 1; seed <= 60; seed += unit_step()) {
		bed_init(&bed, seed);
		for (int life = 0; life < 8; life++) {
			bed_open(&bed);
			work(&bed, (int)rng_between(&bed.rng, 1, 60));
			acknowledged += bed.acknowledged;
			canceled += bed.canceled;
			bed.acknowledged = bed.canceled = 0;
			if (rng_chance(&bed.rng, 1, 5) && !bed.restarting)
				bed_close(&bed);
			bed_crash(&bed);
		}
		bed_open(&bed);
		bed_settle(&bed);
		bed_close(&bed);
		bed_fini(&bed);
	}
	/* or the test tests nothing */
	ck_assert_uint_gt(acknowledged, 5000 / unit_step());
	ck_assert_uint_gt(canceled, 1000 / unit_step());
	ck_assert_uint_gt(reads_done, 200 / unit_step());
	ck_assert_uint_gt(reads_gone, 3 / unit_step());
}
END_TEST

static const enum sim_loss losses[] = {SIM_LOSS_ALL, SIM_LOSS_TORN, SIM_LOSS_ANY, SIM_LOSS_NONE};

/*
 * A life of a log that is there already, or is not, and loses its power at the nth place that counts; whether it came to that. For all n, seeds and
 * the first `kinds` losses; two lives later the log must still be one that it was. Returns how often the power was lost.
 */
static uint32_t lose_power_everywhere(size_t kinds, uint64_t first_seed, bool (*live)(enum sim_loss loss, uint64_t seed, uint64_t n))
{
	uint32_t crashes = 0;
	bool died;

	for (size_t l = 0; l < kinds; l++) {
		for (uint64_t seed = first_seed; seed < first_seed + 8; seed += unit_step()) {
			for (uint64_t n = 1;; n++) {
				bed_init(&bed, seed);
				died = live(losses[l], seed, n);
				bed_crash(&bed);
				bed_open(&bed);
				work(&bed, 5);
				bed_crash(&bed);
				bed_open(&bed);
				bed_fini(&bed);
				if (!died)
					break;
				crashes++;
			}
		}
	}
	return crashes;
}

static bool live_for_events(enum sim_loss loss, uint64_t seed, uint64_t n)
{
	(void)seed;
	bed_open(&bed);
	work(&bed, 25);
	bed_crash(&bed);
	sim_set_loss(bed.host, loss);
	bed_open(&bed);
	bed.dies_at_event = sim_event_count(bed.sim) + n;
	work(&bed, 25);
	return bed.dead;
}

START_TEST(test_crash_at_every_event)
{
	ck_assert_uint_gt(lose_power_everywhere(ARRAY_COUNT(losses), 1, live_for_events), 500 / unit_step());
}
END_TEST

static void stopped(void *ctx)
{
	struct replica_bed *b = ctx;

	sim_host_crash(b->host);
	b->dead = true;
}

static void open_run(void *ctx)
{
	struct replica_bed *b = ctx;
	int rc = bed_try_open(b);

	ck_assert_msg(rc == 0, "%s", b->err.text);
}

/* Syncs of an open, of half the seeds the first one, or of what is behind it. */
static bool live_for_syncs(enum sim_loss loss, uint64_t seed, uint64_t n)
{
	bool died;

	if (seed % 2) {
		bed_open(&bed);
		work(&bed, 20);
		sim_set_loss(bed.host, SIM_LOSS_NONE);
		bed_crash(&bed);
	}
	sim_set_loss(bed.host, loss);
	sim_stop_at_sync(bed.host, n, stopped, &bed);
	if (sim_try(bed.sim, open_run, &bed)) {
		bed_check(&bed);
		work(&bed, 40);
		bed_run_for(&bed, 100000000);
	} else {
		bed.dead = true;
	}
	died = bed.dead;
	sim_stop_at_sync(bed.host, 0, NULL, NULL);
	return died;
}

START_TEST(test_crash_at_every_sync)
{
	/* a process that is killed at a sync has nothing more to lose */
	ck_assert_uint_gt(lose_power_everywhere(ARRAY_COUNT(losses) - 1, 11, live_for_syncs), 200 / unit_step());
}
END_TEST

UNIT_MAIN("wal_replica_sim", test_example, test_crashes, test_crash_at_every_event, test_crash_at_every_sync)
