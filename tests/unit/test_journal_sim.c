/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log, table and journal on simulated disks that fail and machines that crash. What must hold, whatever happens: every acknowledged
 * entry is there after the restart, entries are applied in one order without holes, and the table is what those entries make of it.
 */
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/io/io_sim.h"
#include "common/kv/journal.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"
#include <inttypes.h>
#include <stdio.h>

enum { SEGMENT_BYTES = 1 << 20, KEYS = 40, ENTRIES_MAX = 4096, DISK_BYTES = 64 << 20 };
static const uint64_t second_ns = 1000000000;
static const char dir[] = "/data";

/* What entry `index` says: key number, value. Large ones now and then, so that frames and segments fill. */
struct entry_body {
	uint64_t stamp; /* unique over all epochs: an index may be written anew after a crash */
	uint32_t key;
	uint32_t deletes;
	uint8_t padding[];
};

struct bed {
	struct sim *sim;
	struct io *host;
	struct journal *journal;
	struct rng rng;
	uint64_t submitted, acknowledged; /* indices */
	uint64_t stamp[ENTRIES_MAX];      /* by index: what was submitted last under it */
	uint64_t next_stamp;
	uint64_t freeze_bytes; /* of the next open; 0: some dozen entries */
	uint64_t replayed;     /* of this open */
	uint32_t in_flight;
	int fatal, closed_code;
	bool closed;
	struct err err;
};

struct put {
	struct journal_entry entry;
	struct bed *bed;
	struct entry_body body;
};

static struct slice key_of(const uint32_t *key)
{
	return slice_of(key, sizeof(*key));
}

/* The table: key -> stamp and index of the entry that wrote it last; and the last index under a key of its own. */
static int apply_entry(
	void *ctx, struct kv *kv, uint64_t index, struct slice data, struct journal_entry *entry, struct err *err)
{
	static const uint32_t last_key = UINT32_MAX;
	struct bed *bed = ctx;
	struct entry_body body;
	struct slice last;
	uint64_t value[2], before = 0;

	(void)err;
	ck_assert_uint_ge(data.len, sizeof(body));
	memcpy(&body, data.data, sizeof(body));
	if (kv_get(kv, key_of(&last_key), &last) == 0)
		memcpy(&before, last.data, sizeof(before));
	ck_assert_uint_eq(before + 1, index); /* in order, none twice, none left out */
	ck_assert_uint_eq(bed->stamp[index], body.stamp);
	if (!entry)
		bed->replayed = index;
	value[0] = body.stamp;
	value[1] = index;
	if (body.deletes)
		kv_del(kv, key_of(&body.key));
	else
		kv_put(kv, key_of(&body.key), slice_of(value, sizeof(value)));
	kv_put(kv, key_of(&last_key), slice_of(&index, sizeof(index)));
	return 0;
}

static void on_fatal(void *ctx, int code, const char *why)
{
	struct bed *bed = ctx;

	ck_assert_int_eq(bed->fatal, 0);
	ck_assert_int_ne(code, 0);
	ck_assert_int_gt((int)strlen(why), 0);
	bed->fatal = code;
}

static int try_open(struct bed *bed)
{
	const struct journal_options options = {
		.dir = dir,
		.backend = &kv_mem,
		.segment_bytes = SEGMENT_BYTES,
		.freeze_bytes = bed->freeze_bytes ? bed->freeze_bytes : 4096,
		.freeze_ms = 2,
		.entry_growth_bytes = 1 << 20,
		.apply = apply_entry,
		.on_fatal = on_fatal,
		.ctx = bed,
	};
	int rc = io_mkdir(bed->host, dir, 0700);

	if (!rc)
		rc = io_sync_dir(bed->host, "/");
	if (rc && rc != ERR_EXIST)
		return rc;
	bed->replayed = 0;
	bed->fatal = 0;
	bed->journal = NULL;
	return journal_open(bed->host, &options, &bed->journal, &bed->err);
}

/* What the entries up to the applied one, and no others, make of the table. */
static void check_table(struct bed *bed)
{
	uint64_t applied = journal_applied_index(bed->journal), value[2];
	struct kv *kv = journal_kv(bed->journal);
	struct slice got;

	ck_assert_uint_ge(applied, bed->acknowledged);
	ck_assert_uint_le(applied, bed->submitted);
	for (uint32_t key = 0; key < KEYS; key++) {
		if (kv_get(kv, key_of(&key), &got))
			continue;
		memcpy(value, got.data, sizeof(value));
		ck_assert_uint_le(value[1], applied);
		ck_assert_uint_eq(bed->stamp[value[1]], value[0]);
	}
}

static void open_journal(struct bed *bed)
{
	int rc = try_open(bed);

	ck_assert_msg(rc == 0, "%s", bed->err.text);
	check_table(bed);
	/* what was not there any more will be written anew */
	bed->submitted = bed->acknowledged = journal_applied_index(bed->journal);
}

static void put_done(struct journal_entry *entry, int code)
{
	struct put *put = CONTAINER_OF(entry, struct put, entry);
	struct bed *bed = put->bed;

	if (code == 0) {
		ck_assert_int_eq(bed->fatal, 0);
		ck_assert_uint_eq(entry->append.index, bed->acknowledged + 1);
		bed->acknowledged = entry->append.index;
	}
	bed->in_flight--;
	mem_free(put);
}

static void put(struct bed *bed)
{
	size_t bytes = sizeof(struct entry_body) + (rng_chance(&bed->rng, 1, 8) ? rng_below(&bed->rng, 60000) : 0);
	struct put *p = mem_zalloc(sizeof(*p) + bytes);

	p->bed = bed;
	p->body.stamp = ++bed->next_stamp;
	p->body.key = (uint32_t)rng_below(&bed->rng, KEYS);
	p->body.deletes = rng_chance(&bed->rng, 1, 4);
	p->entry.append.data = slice_of(&p->body, bytes);
	p->entry.done = put_done;
	bed->in_flight++;
	ck_assert_uint_lt(++bed->submitted, ENTRIES_MAX);
	bed->stamp[bed->submitted] = p->body.stamp;
	journal_submit(bed->journal, &p->entry);
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static bool settled(void *ctx)
{
	return ((struct bed *)ctx)->in_flight == 0;
}

static bool is_closed(void *ctx)
{
	return ((struct bed *)ctx)->closed;
}

static void run_for(struct bed *bed, uint64_t ns)
{
	sim_run(bed->sim, never, bed, sim_now_ns(bed->sim) + ns);
}

static void on_closed(void *ctx, int code)
{
	struct bed *bed = ctx;

	bed->closed = true;
	bed->closed_code = code;
}

static void close_journal(struct bed *bed)
{
	bed->closed = false;
	journal_close(bed->journal, on_closed, bed);
	ck_assert(sim_run(bed->sim, is_closed, bed, sim_now_ns(bed->sim) + 60 * second_ns));
	ck_assert_uint_eq(bed->in_flight, 0);
}

static void bed_init(struct bed *bed, uint64_t seed)
{
	const struct sim_options options = {.seed = seed};

	memset(bed, 0, sizeof(*bed));
	rng_init(&bed->rng, seed);
	bed->sim = sim_new(&options);
	bed->host = sim_host_add(bed->sim, "host", DISK_BYTES);
}

static void bed_fini(struct bed *bed)
{
	sim_free(bed->sim);
}

/* Batches of entries, some gathered in a turn, some alone, with and without time for the table to commit in between. */
static void work(struct bed *bed, int batches)
{
	for (int i = 0; i < batches && !bed->fatal; i++) {
		for (uint64_t n = rng_between(&bed->rng, 1, 12); n > 0; n--)
			put(bed);
		if (rng_chance(&bed->rng, 1, 3))
			sim_run(bed->sim, settled, bed, sim_now_ns(bed->sim) + second_ns);
		else
			run_for(bed, rng_below(&bed->rng, 3000000));
	}
}

/* ---- tests ---- */

START_TEST(test_example)
{
	static struct bed bed;

	bed_init(&bed, 1);
	open_journal(&bed);
	work(&bed, 20);
	close_journal(&bed);
	ck_assert_int_eq(bed.closed_code, 0);
	ck_assert_uint_eq(bed.acknowledged, bed.submitted);
	open_journal(&bed);
	ck_assert_uint_eq(bed.replayed, 0);
	close_journal(&bed);
	bed_fini(&bed);
}
END_TEST

static void crash(struct bed *bed)
{
	sim_host_crash(bed->host);
	sim_host_restart(bed->host);
	bed->in_flight = 0;
}

/* Crashes at random moments, again and again on the same disk. */
START_TEST(test_crashes)
{
	static struct bed bed;
	uint64_t replays = 0, lost = 0;

	for (uint64_t seed = 1; seed <= 60; seed += unit_step()) {
		bed_init(&bed, seed);
		for (int life = 0; life < 5; life++) {
			open_journal(&bed);
			replays += bed.replayed > 0;
			work(&bed, (int)rng_between(&bed.rng, 1, 20));
			put(&bed);
			run_for(&bed, rng_below(&bed.rng, 400000)); /* in flight, or another behind it, or done */
			put(&bed);
			run_for(&bed, rng_below(&bed.rng, 400000));
			lost += bed.acknowledged < bed.submitted;
			crash(&bed);
		}
		open_journal(&bed);
		close_journal(&bed);
		ck_assert_int_eq(bed.closed_code, 0);
		bed_fini(&bed);
	}
	/* or the test tests nothing */
	ck_assert_uint_gt(replays, 60 / unit_step());
	ck_assert_uint_gt(lost, 100 / unit_step());
}
END_TEST

/* More than the segments hold, with crashes: trimmed segments are used again, and nothing in them is taken for log. */
START_TEST(test_crashes_and_recycling)
{
	static struct bed bed;

	for (uint64_t seed = 100; seed < 108; seed += unit_step()) {
		bed_init(&bed, seed);
		for (int life = 0; life < 4; life++) {
			open_journal(&bed);
			work(&bed, 60);
			crash(&bed);
		}
		open_journal(&bed);
		ck_assert_uint_gt(bed.acknowledged, 500);
		close_journal(&bed);
		bed_fini(&bed);
	}
}
END_TEST

/*
 * A sync fails, and the process dies of it, not the host: what it covered is still seen, and no later sync makes it durable. The next
 * life goes on from what it sees, trims the log, and then the power fails.
 */
START_TEST(test_killed_after_failed_sync)
{
	static struct bed bed;
	uint32_t hit = 0;

	for (uint64_t seed = 1; seed <= 60; seed += unit_step()) {
		bed_init(&bed, seed);
		open_journal(&bed);
		work(&bed, 30);
		sim_fault_after(bed.host, SIM_FAULT_SYNC, rng_between(&bed.rng, 1, 4), ERR_IO);
		work(&bed, 40);
		hit += bed.fatal != 0;
		sim_fault_after(bed.host, SIM_FAULT_SYNC, 0, 0);
		sim_set_loss(bed.host, SIM_LOSS_NONE);
		crash(&bed);
		open_journal(&bed);
		work(&bed, (int)rng_between(&bed.rng, 1, 3));
		sim_set_loss(bed.host, SIM_LOSS_ALL);
		crash(&bed);
		open_journal(&bed);
		close_journal(&bed);
		bed_fini(&bed);
	}
	ck_assert_uint_gt(hit, 30 / unit_step());
}
END_TEST

static void try_open_run(void *ctx)
{
	struct bed *bed = ctx;
	int rc = try_open(bed);

	ck_assert_msg(rc == 0, "%s", bed->err.text);
}

/*
 * The process dies with writes under way: what reached the disk is seen, and not durable. The next life replays it, and at each of the
 * syncs of its start in turn the power fails: nothing may have been made to rest on what is lost then.
 */
START_TEST(test_power_lost_at_syncs_of_a_start)
{
	static struct bed bed;
	uint32_t stopped = 0, replayed = 0;

	for (uint64_t seed = 1; seed <= 20; seed += unit_step()) {
		for (uint64_t nth = 1;; nth += nth < 10 ? 1 : 5) {
			bool is_open;

			bed_init(&bed, seed);
			open_journal(&bed);
			work(&bed, 6);
			for (int i = 0; i < 60; i++)
				put(&bed);
			run_for(&bed, 200000);
			sim_set_loss(bed.host, SIM_LOSS_NONE);
			crash(&bed);
			sim_set_loss(bed.host, SIM_LOSS_ALL);
			sim_stop_at_sync(bed.host, nth, NULL, NULL);
			bed.freeze_bytes = 1; /* each entry that is replayed is committed to the table */
			is_open = sim_try(bed.sim, try_open_run, &bed);
			sim_stop_at_sync(bed.host, 0, NULL, NULL);
			replayed += bed.replayed > 0;
			crash(&bed);
			open_journal(&bed);
			close_journal(&bed);
			bed_fini(&bed);
			if (is_open)
				break;
			stopped++;
			ck_assert_uint_lt(nth, 500);
		}
	}
	ck_assert_uint_gt(stopped, 80 / unit_step());
	ck_assert_uint_gt(replayed, 40 / unit_step());
}
END_TEST

/*
 * The nth write (or sync) of the disk fails, for n = 1, 2, 3 ... until none is left to fail: what was acknowledged is there, what
 * was not is told so, the owner hears of it once, and the next open works.
 */
static void faults(enum sim_fault what, uint32_t *ret_hit)
{
	static struct bed bed;
	uint32_t hit = 0;

	for (uint64_t n = 1;; n++) {
		bool failed;

		bed_init(&bed, n);
		rng_init(&bed.rng, 7); /* the same work each time */
		sim_fault_after(bed.host, what, n, ERR_IO);
		failed = try_open(&bed) != 0;
		if (!failed) {
			work(&bed, 12);
			close_journal(&bed);
			failed = bed.closed_code != 0;
			ck_assert_int_eq(bed.closed_code, bed.fatal);
		}
		sim_fault_after(bed.host, what, 0, 0);
		hit += failed;
		if (n % 2)
			crash(&bed);
		open_journal(&bed);
		work(&bed, 2);
		close_journal(&bed);
		ck_assert_int_eq(bed.closed_code, 0);
		bed_fini(&bed);
		if (!failed)
			break;
		ck_assert_uint_lt(n, 1000);
	}
	*ret_hit = hit;
}

START_TEST(test_write_faults)
{
	uint32_t hit;

	faults(SIM_FAULT_WRITE, &hit);
	ck_assert_uint_gt(hit, 10);
}
END_TEST

START_TEST(test_sync_faults)
{
	uint32_t hit;

	faults(SIM_FAULT_SYNC, &hit);
	ck_assert_uint_gt(hit, 5);
}
END_TEST

/* A read that fails at open is an error of the open, and harmless. */
START_TEST(test_read_faults)
{
	static struct bed bed;

	bed_init(&bed, 1);
	open_journal(&bed);
	work(&bed, 30);
	crash(&bed);
	for (uint64_t n = 1;; n++) {
		int rc;

		sim_fault_after(bed.host, SIM_FAULT_READ, n, ERR_IO);
		rc = try_open(&bed);
		sim_fault_after(bed.host, SIM_FAULT_READ, 0, 0);
		if (rc == 0) {
			ck_assert_uint_gt(n, 2);
			break;
		}
		ck_assert_int_eq(rc, ERR_IO);
		ck_assert_int_gt((int)strlen(bed.err.text), 0);
	}
	check_table(&bed);
	close_journal(&bed);
	bed_fini(&bed);
}
END_TEST

/* A bit of an acknowledged entry is flipped on the disk, also of the last: the open refuses and names the place. */
START_TEST(test_flipped_bit)
{
	static struct bed bed;

	bed_init(&bed, 1);
	open_journal(&bed);
	for (int i = 0; i < 5; i++) {
		put(&bed);
		ck_assert(sim_run(bed.sim, settled, &bed, sim_now_ns(bed.sim) + second_ns));
	}
	run_for(&bed, second_ns); /* idle: the mark is written */
	ck_assert_uint_eq(bed.acknowledged, 5);
	crash(&bed);
	for (uint64_t page = 2; page <= 10; page += 8) {
		char place[64];

		snprintf(place, sizeof(place), "log-0000000000000001: offset %" PRIu64 ":", page * 4096);
		ck_assert_int_eq(sim_flip_bit(bed.host, "/data/log/log-0000000000000001", page * 4096 + 50, 3), 0);
		ck_assert_int_eq(try_open(&bed), ERR_CORRUPT);
		ck_assert_msg(strstr(bed.err.text, place) != NULL, "%s", bed.err.text);
		ck_assert_int_eq(sim_flip_bit(bed.host, "/data/log/log-0000000000000001", page * 4096 + 50, 3), 0);
	}
	open_journal(&bed);
	ck_assert_uint_eq(bed.acknowledged, 5);
	close_journal(&bed);
	bed_fini(&bed);
}
END_TEST

/* The same seed, the same events: what the whole simulator rests on. */
START_TEST(test_determinism)
{
	static struct bed bed;
	uint64_t hash[2];

	for (int i = 0; i < 2; i++) {
		bed_init(&bed, 42);
		open_journal(&bed);
		work(&bed, 20);
		crash(&bed);
		open_journal(&bed);
		work(&bed, 20);
		close_journal(&bed);
		hash[i] = sim_event_hash(bed.sim);
		bed_fini(&bed);
	}
	ck_assert_uint_eq(hash[0], hash[1]);
}
END_TEST

/* The disk fills up: entries wait and then fail, nothing acknowledged is lost, and with room again the log goes on. */
START_TEST(test_full_disk)
{
	static struct bed bed;
	const struct sim_options options = {.seed = 3};

	memset(&bed, 0, sizeof(bed));
	rng_init(&bed.rng, 3);
	bed.sim = sim_new(&options);
	bed.host = sim_host_add(bed.sim, "host", SEGMENT_BYTES + SEGMENT_BYTES / 2);
	open_journal(&bed);
	work(&bed, 100);
	sim_run(bed.sim, settled, &bed, sim_now_ns(bed.sim) + 120 * second_ns);
	ck_assert_int_eq(bed.fatal, ERR_NOSPC);
	ck_assert_uint_eq(bed.in_flight, 0);
	ck_assert_uint_gt(bed.acknowledged, 20);
	close_journal(&bed);
	crash(&bed);
	open_journal(&bed);
	close_journal(&bed);
	bed_fini(&bed);
}
END_TEST

UNIT_MAIN("journal_sim", test_example, test_crashes, test_crashes_and_recycling, test_killed_after_failed_sync,
	test_power_lost_at_syncs_of_a_start, test_write_faults, test_sync_faults, test_read_faults, test_flipped_bit,
	test_determinism, test_full_disk)
