/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a replica: what a crash leaves of entries and cuts, and who is told what. */
#include "tests/lib/replica_log.h"

START_TEST(test_terms_and_commit)
{
	struct wal_run *runs;
	uint32_t count;

	begin();
	appends(2, 1, 10);
	bed_save(&bed, 4, 0);
	bed_append(&bed, 1, 10);
	bed_append(&bed, 3, 10); /* these two never share a frame */
	bed_append(&bed, 3, 10);
	bed_append(&bed, 4, 10);
	bed_settle(&bed);
	bed_commit(&bed, 4);
	appends(1, 4, 10); /* its frame tells */
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 7);
	ck_assert_uint_eq(wal_commit(bed.wal), 4);
	runs = wal_index_runs(wal_index(bed.wal), &count);
	ck_assert_uint_eq(count, 3);
	ck_assert(runs[0].first == 1 && runs[0].term == 1);
	ck_assert(runs[1].first == 4 && runs[1].term == 3);
	ck_assert(runs[2].first == 6 && runs[2].term == 4);
	mem_free(runs);
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* What is known as committed elsewhere and not durable here is not said to be. */
START_TEST(test_commit_is_durable)
{
	begin();
	appends(1, 1, 10);
	bed_append(&bed, 1, 10);
	bed_commit(&bed, 2);
	bed_append(&bed, 1, 10);
	bed_run_for(&bed, 1000); /* on their way */
	sim_set_loss(bed.host, SIM_LOSS_ALL);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 1);
	ck_assert_uint_le(wal_commit(bed.wal), 1);
	bed_append(&bed, 1, 10);
	bed_commit(&bed, 2);
	bed_settle(&bed);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 2);
	bed_fini(&bed);
}
END_TEST

/* Entries that wait, that are on their way, and that are durable: who is told what, and what is durable then. */
START_TEST(test_cut)
{
	begin();
	appends(3, 1, 10);
	bed_append(&bed, 1, 10);
	bed_run_for(&bed, 1000);
	bed_append(&bed, 1, 10);
	bed_run_for(&bed, 1000); /* two writes on their way */
	bed_append(&bed, 1, 10); /* waits */
	bed_cut(&bed, 6);
	bed_cut(&bed, 3);
	ck_assert_uint_eq(wal_durable_index(bed.wal), 2);
	bed_append(&bed, 1, 10);
	bed_cut(&bed, 3);
	bed_append(&bed, 1, 10);
	bed_append(&bed, 1, 10);
	bed_settle(&bed);
	ck_assert_uint_eq(bed.canceled, 4); /* those three, and the one of the second turn */
	ck_assert_uint_eq(bed.acknowledged, 3 + 2);
	ck_assert_uint_eq(wal_durable_index(bed.wal), 4);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 4);
	bed_fini(&bed);
}
END_TEST

/* The segment in which a log now begins holds entries that were cut off, back to before it: what the cut says is where it begins. */
START_TEST(test_cut_below_what_is_left)
{
	int fd;

	begin();
	appends(5, 1, 200000); /* the first segment */
	appends(3, 1, 200000); /* 6, 7, 8 in the second */
	bed_save(&bed, 2, 0);
	bed_settle(&bed);
	bed_cut(&bed, 4);
	appends(10, 2, 200000); /* 4 .. 13, from there on */
	bed_commit(&bed, 13);
	bed_trim(&bed, 7); /* the first may go; the second had an 8 */
	ck_assert_uint_eq(wal_first_index(bed.wal), 4);
	appends(6, 2, 200000);
	idle();
	ck_assert_int_eq(io_open(bed.host, segment_1, 0, 0, &fd), ERR_NOENT); /* used again */
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(wal_first_index(bed.wal), 4);
	ck_assert_uint_eq(wal_index(bed.wal)->base_term, 1);
	ck_assert_uint_eq(bed.found_from, 4);
	ck_assert_uint_eq(bed.now.last, 19);
	bed_fini(&bed);
}
END_TEST

/* A cut begins a nonce, which what is behind it has too, and its frame says from where on. */
START_TEST(test_cut_begins_a_nonce)
{
	struct wal_frame before, cut, behind;

	begin();
	appends(2, 1, 10); /* frames 0: base, 1 and 2 */
	bed_cut(&bed, 2);
	appends(1, 1, 10);
	find_frame(2, &before);
	find_frame(3, &cut);
	find_frame(4, &behind);
	ck_assert_int_eq(cut.type, WAL_FRAME_CUT);
	ck_assert_uint_eq(cut.first_index, 2);
	ck_assert_uint_eq(cut.prev_crc, before.crc);
	ck_assert_mem_ne(cut.nonce, before.nonce, WAL_ID_BYTES);
	ck_assert_mem_eq(cut.nonce, behind.nonce, WAL_ID_BYTES);
	bed_fini(&bed);
}
END_TEST

/* A cut from within the callback that tells of the first of several durable entries: the others are not told as such. */
static void cuts_when_done(struct wal_append *append, int code)
{
	struct bed_append *a = CONTAINER_OF(append, struct bed_append, append);

	ck_assert_int_eq(code, 0);
	append->done = bed_appended;
	a->bed->done_count = a->call + 1;
	bed_cut(a->bed, append->index + 1);
	bed_appended(append, code);
}

START_TEST(test_cut_from_callback)
{
	struct wal_append *first;

	begin();
	bed_append(&bed, 1, 10);
	first = LIST_ENTRY(bed.wal->queue.next, struct wal_append, link);
	first->done = cuts_when_done;
	bed_append(&bed, 1, 10);
	bed_append(&bed, 1, 10);
	bed_settle(&bed);
	ck_assert_uint_eq(bed.acknowledged, 1);
	ck_assert_uint_eq(bed.canceled, 2);
	bed_close(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 1);
	bed_fini(&bed);
}
END_TEST

static void on_slot_sync_nothing_flies(struct replica_bed *b, const char *path)
{
	if (strcmp(path, meta_path) == 0)
		ck_assert_uint_eq(b->wal->busy_writes, 0);
}

/* No entry is on its way to the disk before the term that it belongs to is there: or the log would contradict its slots. */
START_TEST(test_term_before_its_entries)
{
	begin();
	bed.synced = on_slot_sync_nothing_flies;
	bed_save(&bed, 2, 3);
	bed_append(&bed, 2, 10);
	bed_settle(&bed);
	ck_assert_uint_eq(bed.acknowledged, 1);
	bed_fini(&bed);
}
END_TEST

/* Entries that waited for room and were cut off wait for nothing: neither is a segment made for them, nor a close kept. */
START_TEST(test_cut_of_what_waits)
{
	begin();
	ck_assert_int_eq(io_unlink(bed.host, "/log/log-new"), 0); /* the room that was taken ahead */
	sim_disk_full(bed.host, true);
	appends(5, 1, 200000); /* the segment is full, and none is ready */
	bed_append(&bed, 1, 200000);
	bed_run_for(&bed, 1000000000);
	ck_assert_int_eq(bed.in_flight, 1);
	ck_assert_uint_gt(bed.wal->blocked_since_ns, 0);
	bed_cut(&bed, 6);
	bed_settle(&bed);
	ck_assert_uint_eq(bed.canceled, 1);
	ck_assert_uint_eq(bed.wal->blocked_since_ns, 0);
	bed_close(&bed);
	ck_assert_int_eq(bed.fatal, 0);
	sim_disk_full(bed.host, false);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 5);
	bed_fini(&bed);
}
END_TEST

UNIT_MAIN("wal_replica", test_terms_and_commit, test_commit_is_durable, test_cut, test_cut_below_what_is_left,
	test_cut_begins_a_nonce, test_cut_from_callback, test_term_before_its_entries, test_cut_of_what_waits)
