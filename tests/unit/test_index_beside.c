/* SPDX-License-Identifier: Apache-2.0 */
/* Records of chunks that are written at the same time: when their rows appear, and what a start does with those that may not be there. */
#include "chunkd/index.h"

#include <string.h>
#include "chunkd/verify.h"
#include "common/kv/journal.h"
#include "common/kv/kv_backend.h"
#include "tests/lib/disk_bed.h"
#include "tests/lib/no_leaks.h"

enum { CHANGES = 8, LONG_BYTES = INDEX_BESIDE_BYTES + 1 };

static struct {
	struct sim *sim;
	struct io *host;
	struct index *index;
	struct index_change changes[CHANGES];
	int ended[CHANGES], codes[CHANGES];
	uint64_t asked[CHANGES]; /* blocks, by the start */
	uint32_t asked_count, loaded;
	int verdict;
	bool closed, full, full_now, buffered;
} w;

static int each_row(void *ctx, const struct index_row *row, struct err *err)
{
	(void)ctx;
	(void)row;
	(void)err;
	w.loaded++;
	return 0;
}

static int all_rows(void *ctx, struct err *err)
{
	(void)ctx;
	(void)err;
	return 0;
}

static int verify(void *ctx, const struct index_row *row, struct err *err)
{
	(void)ctx;
	ck_assert_uint_lt(w.asked_count, CHANGES);
	w.asked[w.asked_count++] = row->copy.block;
	return w.verdict < 0 ? err_set(err, w.verdict, "as told") : w.verdict;
}

static void fatal(void *ctx, int code, const char *text)
{
	(void)ctx;
	ck_abort_msg("the index failed: %d, %s", code, text);
}

static void stats_of(void *store, struct kv_backend_stats *ret_stats)
{
	kv_mem.stats(store, ret_stats);
	ret_stats->full |= w.full;
}

static bool has_room(void *store)
{
	return kv_mem.has_room(store) && !w.full_now;
}

/* As a backing store does: what a commit found stands until the next one. */
static int renew(void *store, const struct memtable *table, struct err *err)
{
	w.full = w.full_now;
	return kv_mem.renew(store, table, err);
}

static int try_open(struct err *err)
{
	static struct kv_backend backend;
	struct index_options o = {.dir = "/index", .backend = &backend, .log_segment_bytes = MIB, .buffered = w.buffered, .each = each_row, .loaded = all_rows, .verify = verify, .on_fatal = fatal};

	backend = kv_mem;
	backend.stats = stats_of;
	backend.renew = renew;
	backend.has_room = has_room;
	w.asked_count = w.loaded = 0;
	return index_open(w.host, &o, &w.index, err);
}

static void open_index(void)
{
	struct err err = {0};

	ck_assert_msg(try_open(&err) == 0, "%s", err.text);
}

static void begin_with(uint64_t seed, bool buffered)
{
	memset(&w, 0, sizeof(w));
	w.buffered = buffered;
	w.sim = sim_new(&(struct sim_options){.seed = seed});
	w.host = sim_host_add(w.sim, "chunkd-1", DISK_MIB * MIB);
	ck_assert_int_eq(io_mkdir(w.host, "/index", 0700), 0);
	ck_assert_int_eq(io_sync_dir(w.host, "/"), 0);
	sim_set_loss(w.host, SIM_LOSS_ALL);
	open_index();
}

static void begin(uint64_t seed)
{
	begin_with(seed, false);
}

static void crash(void)
{
	sim_host_crash(w.host);
	sim_host_restart(w.host);
	open_index();
}

static void run(void)
{
	sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + SECOND_NS / 10);
}

static void change_done(struct index_change *c, int code)
{
	w.ended[c - w.changes]++;
	w.codes[c - w.changes] = code;
}

/* Change i is of block i. */
static struct index_change *change(int i, uint32_t length)
{
	struct index_change *c = &w.changes[i];

	*c = (struct index_change){.row = {.copy = {(uint64_t)i, 0, 0}, .policy = 1, .extent = {0, (uint32_t)i * 32, 2}, .length = length, .cell_bytes = 64 << 10, .sequence = index_next_sequence(w.index)},
		.done = change_done};
	c->row.extent.grains = (uint32_t)(format_round(length) / FORMAT_GRAIN_BYTES) + 1;
	w.ended[i] = 0;
	return c;
}

static bool is_there(int i)
{
	struct copy_id copy = {(uint64_t)i, 0, 0}, listed;
	struct index_row row;
	bool there = index_get(w.index, &copy, &row) == 0;

	ck_assert_int_eq(index_list(w.index, &copy, &listed, 1) == 1 && listed.block == (uint64_t)i, there);
	return there;
}

static void end(void)
{
	sim_free(w.sim);
}

START_TEST(test_row_appears_when_record_and_chunk_are_durable)
{
	struct index_change *c;

	begin(1);
	c = change(1, 100);
	index_put_beside(w.index, c);
	index_put_beside(w.index, change(2, 100));
	run();
	ck_assert(!is_there(1) && !is_there(2) && !w.ended[1]);
	index_written(w.index, c, 0);
	ck_assert(is_there(1) && w.ended[1] == 1 && w.codes[1] == 0);
	ck_assert(!is_there(2) && !w.ended[2]);
	index_written(w.index, &w.changes[2], 0);
	ck_assert(is_there(2) && w.ended[2] == 1);

	c = change(3, 100);
	index_put_beside(w.index, c);
	index_written(w.index, c, 0);
	ck_assert(!is_there(3) && !w.ended[3]);
	run();
	ck_assert(is_there(3) && w.ended[3] == 1 && w.codes[3] == 0);

	c = change(4, 100);
	index_put_beside(w.index, c);
	index_written(w.index, c, ERR_IO);
	ck_assert(!w.ended[4]);
	run();
	ck_assert(w.ended[4] == 1 && w.codes[4] == ERR_IO);
	ck_assert(!is_there(4) && is_there(3));
	end();
}
END_TEST

/* What a start asks for is what was being written when the last record was made, and no more. */
START_TEST(test_start_asks_for_what_is_not_settled)
{
	begin(2);
	for (int i = 1; i <= 3; i++)
		index_put_beside(w.index, change(i, 100));
	index_written(w.index, &w.changes[2], 0);
	run();
	index_written(w.index, &w.changes[1], 0);
	run();
	w.verdict = 1;
	crash(); /* no record says yet that the first two are there */
	ck_assert_uint_eq(w.asked_count, 3);
	ck_assert_uint_eq(w.loaded, 3);
	ck_assert(is_there(1) && is_there(2) && is_there(3));

	index_put(w.index, change(4, LONG_BYTES));
	run();
	crash();
	ck_assert_uint_eq(w.asked_count, 0);

	index_put_beside(w.index, change(5, 100));
	index_put(w.index, change(6, LONG_BYTES)); /* behind the first, and so long that it was synced before */
	run();
	crash();
	ck_assert_uint_eq(w.asked_count, 1);
	ck_assert_uint_eq(w.asked[0], 5);
	end();
}
END_TEST

START_TEST(test_row_without_chunk_goes)
{
	begin(3);
	for (int i = 1; i <= 2; i++) {
		index_put_beside(w.index, change(i, 100));
		index_written(w.index, &w.changes[i], 0);
	}
	run();
	index_put_beside(w.index, change(3, 100));
	run();
	for (int i = 0; i < 2; i++) { /* its row stays until a record says that it goes, and is asked for again */
		crash();
		ck_assert_uint_eq(w.asked_count, 1);
		ck_assert_uint_eq(w.asked[0], 3);
		ck_assert_uint_eq(w.loaded, 2);
		ck_assert(is_there(1) && is_there(2) && !is_there(3));
	}
	run();
	ck_assert_uint_eq(index_count(w.index), 2);
	ck_assert(index_idle(w.index) && !is_there(3));
	crash();
	ck_assert_uint_eq(w.asked_count, 0);
	ck_assert_uint_eq(w.loaded, 2);
	/* The copy may come again. */
	index_put_beside(w.index, change(3, 200));
	index_written(w.index, &w.changes[3], 0);
	run();
	ck_assert(is_there(3) && w.ended[3] == 1);
	end();
}
END_TEST

/* A write that failed: whatever is recorded later, the next start looks. */
START_TEST(test_failed_write_is_never_settled)
{
	begin(5);
	index_put_beside(w.index, change(1, 100));
	index_put_beside(w.index, change(2, 100));
	index_written(w.index, &w.changes[2], ERR_IO);
	index_written(w.index, &w.changes[1], 0);
	run();
	ck_assert(w.ended[2] == 1 && w.codes[2] == ERR_IO);
	index_put(w.index, change(3, LONG_BYTES));
	run();
	ck_assert_int_eq(w.ended[3], 1);
	crash();
	ck_assert_uint_eq(w.asked_count, 1);
	ck_assert_uint_eq(w.asked[0], 2);
	end();
}
END_TEST

/* A failure of the disk may have been told to another write for it: what was not settled by then, durably, is looked at. */
START_TEST(test_doubt)
{
	begin(14);
	for (int i = 1; i <= 2; i++) {
		index_put_beside(w.index, change(i, 100));
		run();
		index_written(w.index, &w.changes[i], 0);
	}
	index_doubt(w.index);
	index_put_beside(w.index, change(3, 100)); /* its record does not settle 2 */
	run();
	index_written(w.index, &w.changes[3], 0);
	sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + 5 * SECOND_NS);
	w.verdict = 1;
	crash();
	ck_assert_uint_eq(w.asked_count, 2);
	ck_assert_uint_eq(w.asked[0], 2);
	ck_assert_uint_eq(w.asked[1], 3);
	ck_assert_uint_eq(w.loaded, 3);
	end();
}
END_TEST

/* Also while a record is on its way that was made before. Past the page cache each write is told of its own failure. */
START_TEST(test_doubt_behind_a_record)
{
	for (int buffered = 0; buffered < 2; buffered++) {
		begin_with(15, buffered);
		for (int i = 1; i <= 4; i++) {
			index_put_beside(w.index, change(i, 100));
			if (i < 4)
				run();
			else
				sim_run(w.sim, never, NULL, sim_now_ns(w.sim)); /* to the end of the turn */
			index_written(w.index, &w.changes[i], 0);
		}
		ck_assert(!index_idle(w.index));
		index_doubt(w.index);
		run();
		ck_assert(index_idle(w.index));
		w.verdict = 1;
		crash();
		ck_assert_uint_eq(w.asked_count, buffered ? 2 : 1);
		ck_assert_uint_eq(w.asked[0], buffered ? 3 : 4);
		ck_assert_uint_eq(w.loaded, 4);
		/* With the last of them nothing is left open there, either. */
		index_put_beside(w.index, change(5, 100));
		run();
		index_written(w.index, &w.changes[5], 0);
		sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + 5 * SECOND_NS);
		crash();
		ck_assert_uint_eq(w.asked_count, 0);
		end();
	}
}
END_TEST

/* Rows go in the order of their seals, which is not that of their keys. */
START_TEST(test_rows_that_go_are_hidden_meanwhile)
{
	begin(8);
	for (int i = 3; i > 0; i--)
		index_put_beside(w.index, change(i, 100));
	run();
	crash();
	ck_assert_uint_eq(w.asked_count, 3);
	ck_assert(!is_there(1) && !is_there(2) && !is_there(3));
	end();
}
END_TEST

/* Of an index made anew: sequences that others gave. */
START_TEST(test_rows_of_an_index_made_anew_are_settled)
{
	begin(9);
	for (int i = 1; i <= 3; i++) {
		change(i, 100)->row.sequence = (uint64_t)i << 40;
		index_put(w.index, &w.changes[i]);
	}
	run();
	crash();
	ck_assert_uint_eq(w.asked_count, 0);
	ck_assert_uint_eq(w.loaded, 3);
	end();
}
END_TEST

/* ---- builds that know records of version 1 only ---- */

static int apply_old(void *ctx, struct kv *kv, uint64_t at, struct slice data, struct journal_entry *entry, struct err *err)
{
	static const uint8_t sequence_key = 's';
	uint8_t key[INDEX_KEY_BYTES], value[INDEX_VALUE_BYTES];
	struct slice was;
	struct index_row row = w.changes[1].row;

	(void)ctx;
	(void)at;
	(void)data;
	(void)entry;
	(void)err;
	ck_assert_int_eq(kv_get(kv, slice_of(&sequence_key, 1), &was), 0);
	for (int i = 4; i <= 6; i++) {
		uint64_t sequence = row.sequence + 1000 + (uint64_t)i;

		row.copy.block = (uint64_t)i;
		row.sequence = sequence;
		index_key_encode(&row.copy, key);
		index_value_encode(&row, value);
		kv_put(kv, slice_of(key, sizeof(key)), slice_of(value, sizeof(value)));
		kv_put(kv, slice_of(&sequence_key, 1), slice_of(&sequence, sizeof(sequence)));
	}
	return 0;
}

static void old_done(struct journal_entry *entry, int code)
{
	(void)entry;
	ck_assert_int_eq(code, 0);
	w.closed = true;
}

static void journal_closed(void *ctx, int code)
{
	(void)ctx;
	ck_assert_int_eq(code, 0);
	w.closed = true;
}

static void index_closed(void *ctx)
{
	(void)ctx;
	w.closed = true;
}

static bool has_closed(void *ctx)
{
	(void)ctx;
	return w.closed;
}

static void wait_closed(void)
{
	ck_assert(sim_run(w.sim, has_closed, NULL, sim_now_ns(w.sim) + SECOND_NS));
	w.closed = false;
}

/* It went on with an index of ours that was closed cleanly: what it put is not to be looked at, what was unsettled is. */
START_TEST(test_rows_of_an_older_build_are_settled)
{
	struct journal_options o = {.dir = "/index", .backend = &kv_mem, .segment_bytes = MIB, .entry_growth_bytes = MIB, .apply = apply_old, .on_fatal = fatal};
	struct journal_entry entry = {.append = {.data = slice_of("old", 3)}, .done = old_done};
	struct journal *journal;
	struct err err = {0};

	begin(10);
	index_put_beside(w.index, change(1, 100));
	index_written(w.index, &w.changes[1], ERR_IO);
	run();
	index_close(w.index, index_closed, NULL);
	wait_closed();
	ck_assert_int_eq(journal_open(w.host, &o, &journal, &err), 0);
	journal_submit(journal, &entry);
	wait_closed();
	journal_close(journal, journal_closed, NULL);
	wait_closed();
	w.verdict = 1;
	open_index();
	ck_assert_uint_eq(w.asked_count, 1);
	ck_assert_uint_eq(w.asked[0], 1);
	ck_assert_uint_eq(w.loaded, 4);
	end();
}
END_TEST

static int apply_nothing(void *ctx, struct kv *kv, uint64_t at, struct slice data, struct journal_entry *entry, struct err *err)
{
	(void)ctx;
	(void)kv;
	(void)at;
	(void)data;
	(void)entry;
	(void)err;
	return 0;
}

/* One that an older build left behind in a crash. */
START_TEST(test_log_of_an_older_build_is_taken)
{
	struct journal_options o = {.dir = "/index", .backend = &kv_mem, .segment_bytes = MIB, .entry_growth_bytes = MIB, .apply = apply_nothing, .on_fatal = fatal};
	uint8_t record[6 + 1 + INDEX_KEY_BYTES + INDEX_VALUE_BYTES] = {1, 0, 1, 0, 0, 0, 1}; /* version 1, one change: put */
	struct journal_entry entry = {.append = {.data = slice_of(record, sizeof(record))}, .done = old_done};
	struct journal *journal;
	struct err err = {0};

	begin(12);
	change(5, 100);
	index_key_encode(&w.changes[5].row.copy, record + 7);
	index_value_encode(&w.changes[5].row, record + 7 + INDEX_KEY_BYTES);
	index_close(w.index, index_closed, NULL);
	wait_closed();
	ck_assert_int_eq(journal_open(w.host, &o, &journal, &err), 0);
	journal_submit(journal, &entry);
	wait_closed();
	crash();
	ck_assert_uint_eq(w.loaded, 1);
	ck_assert_uint_eq(w.asked_count, 0);
	ck_assert(is_there(5));
	end();
}
END_TEST

START_TEST(test_verify_that_fails_ends_the_start)
{
	struct err err = {0};

	begin(6);
	index_put_beside(w.index, change(1, 100));
	run();
	sim_host_crash(w.host);
	sim_host_restart(w.host);
	w.verdict = ERR_IO;
	ck_assert_int_eq(try_open(&err), ERR_IO);
	ck_assert_str_eq(err.text, "as told");
	end();
}
END_TEST

/* The last chunks of all: whom nothing follows is settled in a while, and by a stop. */
START_TEST(test_last_chunks_are_settled)
{
	begin(11);
	for (int stops = 0; stops < 2; stops++) {
		int i = 1 + stops;

		index_put_beside(w.index, change(i, 100));
		run();
		index_written(w.index, &w.changes[i], 0);
		ck_assert_int_eq(w.ended[i], 1);
		if (stops) {
			index_close(w.index, index_closed, NULL);
			wait_closed();
			open_index();
		} else {
			sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + 3 * SECOND_NS / 2);
			crash();
		}
		ck_assert_uint_eq(w.asked_count, 0);
		ck_assert_uint_eq(w.loaded, (uint32_t)i);
	}
	/* What a start has looked at it does not look at again. */
	index_put_beside(w.index, change(3, 100));
	run();
	index_written(w.index, &w.changes[3], 0);
	w.verdict = 1;
	crash();
	ck_assert_uint_eq(w.asked_count, 1);
	sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + 5 * SECOND_NS);
	ck_assert_uint_eq(index_stats(w.index).records, 1); /* and no more */
	crash();
	ck_assert_uint_eq(w.asked_count, 0);
	/* While chunks come, now and then, their own records do. */
	for (int i = 0; i < 8; i++) {
		index_put_beside(w.index, change(4, 100));
		run();
		index_written(w.index, &w.changes[4], 0);
		sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + 7 * SECOND_NS / 10);
	}
	ck_assert_uint_eq(index_stats(w.index).records, 8);
	end();
}
END_TEST

/* Where there is no room for a record of their own, they wait for it. */
START_TEST(test_last_chunks_are_settled_when_there_is_room)
{
	begin(12);
	index_put_beside(w.index, change(1, 100));
	run();
	w.full = w.full_now = true;
	index_written(w.index, &w.changes[1], 0);
	ck_assert_int_eq(w.ended[1], 1);
	sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + 5 * SECOND_NS);
	ck_assert_uint_eq(index_stats(w.index).records, 1);
	ck_assert(index_is_full(w.index));
	w.full_now = false;
	sim_run(w.sim, never, NULL, sim_now_ns(w.sim) + 3 * SECOND_NS);
	ck_assert(!index_is_full(w.index));
	ck_assert_uint_eq(index_stats(w.index).records, 2);
	crash();
	ck_assert_uint_eq(w.asked_count, 0);
	ck_assert_uint_eq(w.loaded, 1);
	end();
}
END_TEST

/* A stop right behind the start: what goes is recorded first. */
START_TEST(test_closed_while_rows_go)
{
	begin(7);
	index_put_beside(w.index, change(1, 100));
	run();
	crash();
	ck_assert_uint_eq(w.asked_count, 1);
	index_close(w.index, index_closed, NULL);
	wait_closed();
	open_index();
	ck_assert_uint_eq(w.asked_count, 0);
	ck_assert_uint_eq(w.loaded, 0);
	end();
}
END_TEST

UNIT_MAIN("index_beside", test_doubt, test_doubt_behind_a_record, test_rows_that_go_are_hidden_meanwhile,
	test_rows_of_an_index_made_anew_are_settled, test_rows_of_an_older_build_are_settled, test_log_of_an_older_build_is_taken,
	test_last_chunks_are_settled, test_last_chunks_are_settled_when_there_is_room, test_row_appears_when_record_and_chunk_are_durable,
	test_start_asks_for_what_is_not_settled, test_row_without_chunk_goes, test_failed_write_is_never_settled,
	test_verify_that_fails_ends_the_start, test_closed_while_rows_go)
