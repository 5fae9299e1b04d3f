/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a replica, rule by rule: what each call promises, and what is made of damage that is done on purpose. */
#include "common/base/crc32c.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/replica_bed.h"

static struct replica_bed bed;
static const char segment_1[] = "/log/log-0000000000000001", meta_path[] = "/log/meta";

static void begin(void)
{
	bed_init(&bed, 7);
	bed_open(&bed);
	bed_save(&bed, 1, 1);
	bed_settle(&bed);
}

static void appends(int count, uint64_t term, size_t padding)
{
	for (int i = 0; i < count; i++) {
		bed_append(&bed, term, padding);
		bed_settle(&bed); /* a frame each */
	}
}

static void idle(void)
{
	bed_settle(&bed);
	bed_run_for(&bed, 1000000000); /* the mark is written */
}

static void expect_refused(int code, const char *text)
{
	ck_assert_int_eq(bed_try_open(&bed), code);
	ck_assert_msg(strstr(bed.err.text, text) != NULL, "%s", bed.err.text);
}

/* Files as they lie on the disk. */
static void get(const char *path, void *buf, size_t len, uint64_t offset)
{
	ck_assert_int_eq(sim_read_raw(bed.host, path, buf, len, offset), (int64_t)len);
}

static void put(const char *path, const void *buf, size_t len, uint64_t offset)
{
	int fd;

	ck_assert_int_eq(io_open(bed.host, path, IO_OPEN_WRITE, 0, &fd), 0);
	ck_assert_int_eq(io_pwrite(bed.host, fd, buf, len, offset), (int64_t)len);
	ck_assert_int_eq(io_fdatasync(bed.host, fd), 0);
	io_close(bed.host, fd);
}

/* The nth frame of segment 1 from 0, or with UINT32_MAX the last; its place. Frames here are one block long. */
static uint64_t find_frame(uint32_t n, struct wal_frame *ret_frame)
{
	static uint8_t block[WAL_FRAME_ALIGN];
	struct wal_frame f;
	uint64_t at = 0, found = 0;
	size_t bytes;

	for (uint32_t i = 0; i <= n && at < BED_SEGMENT_BYTES; i++, at += bytes) {
		get(segment_1, block, sizeof(block), at);
		if (wal_frame_peek(block, &f, &bytes))
			break;
		*ret_frame = f;
		found = at;
	}
	return found;
}

/* A frame without entries behind the last one, as the log itself would write it but for what `change` is. */
static uint64_t forge(struct wal_frame change)
{
	static uint8_t out[WAL_FRAME_ALIGN];
	struct wal_frame last, f = change;
	uint64_t at = find_frame(UINT32_MAX, &last);

	f.number = last.number + 1;
	f.mark = last.number - 1;
	f.prev_crc = last.crc;
	f.segment = last.segment;
	f.segment_bytes = last.segment_bytes;
	memcpy(f.log_id, last.log_id, WAL_ID_BYTES);
	memcpy(f.nonce, last.nonce, WAL_ID_BYTES);
	wal_frame_encode(out, 0, &f);
	put(segment_1, out, sizeof(out), at + WAL_FRAME_ALIGN);
	return at + WAL_FRAME_ALIGN;
}

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

/* The frame of a cut goes bad: nothing behind it is read as log, and if it was marked, that is corruption and is said. */
START_TEST(test_damaged_cut)
{
	for (int marked = 0; marked < 2; marked++) {
		uint64_t at = 0;
		struct wal_frame f;

		begin();
		appends(4, 1, 10);
		bed_cut(&bed, 3);
		bed_append(&bed, 1, 10);
		if (marked)
			idle();
		else
			bed_settle(&bed);
		bed_crash(&bed);
		for (uint32_t n = 0; at == 0; n++) {
			uint64_t here = find_frame(n, &f);

			if (f.type == WAL_FRAME_CUT)
				at = here;
		}
		ck_assert_int_eq(sim_flip_bit(bed.host, segment_1, at + 90, 1), 0);
		if (marked) {
			expect_refused(ERR_CORRUPT, "damaged at index 5 ");
		} else {
			bed.done_count = 4; /* the disk lied; the test knows */
			bed_open(&bed);
			ck_assert_uint_eq(bed.now.last, 4);
		}
		bed_fini(&bed);
	}
}
END_TEST

/* Intact frames that continue the log and contradict it: each is refused for one reason. */
START_TEST(test_contradictions)
{
	struct wal_frame frame = {.version = WAL_FRAME_TERMS, .type = WAL_FRAME_CUT, .commit = 2}, f;
	uint64_t at;

	for (int wrong = 0; wrong <= 5; wrong++) {
		begin();
		appends(3, 1, 10);
		bed_commit(&bed, 2);
		appends(1, 1, 10);
		bed_crash(&bed);
		frame.first_index = 3;
		frame.term = frame.prev_term = 1;
		frame.type = WAL_FRAME_CUT;
		switch (wrong) {
		case 1: /* of what is committed */
			frame.first_index = 2;
			frame.commit = 1;
			break;
		case 2:
			frame.term = frame.prev_term = 2; /* of no entry before it */
			break;
		case 3:
			frame.first_index = 6; /* of what is not there: does not continue the log */
			break;
		case 4:
			frame.type = WAL_FRAME_BASE; /* nothing continues into it */
			frame.first_index = 5;
			break;
		case 5:
			frame.type = WAL_FRAME_START; /* nothing is wrong */
			frame.first_index = 5;
			break;
		}
		at = forge(frame);
		frame.commit = 2;
		bed.calls[bed.call_count++] = (struct bed_call){BED_CUT, 3, {0, 0}};
		if (wrong == 0) {
			bed_open(&bed);
			ck_assert_uint_eq(bed.now.last, 2);
		} else if (wrong < 3) {
			expect_refused(ERR_CORRUPT, "contradicts itself");
		} else {
			bed_open(&bed);
			ck_assert_uint_eq(bed.now.last, 4);
			for (uint32_t n = 0; find_frame(n, &f) < at; n++)
				;
			/* what does not continue the log is written over by the new epoch */
			ck_assert(wrong == 5 ? f.number < wal_epoch(bed.wal) : f.number == wal_epoch(bed.wal));
		}
		bed_fini(&bed);
	}
}
END_TEST

/* One slot may rot, whichever it is, and nothing goes back; both, and the replica is out. */
START_TEST(test_slots)
{
	for (int slot = 0; slot < 2; slot++) {
		begin();
		bed_save(&bed, 5, 3);
		bed_settle(&bed);
		bed_crash(&bed);
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, (uint64_t)slot * WAL_META_BYTES + 60, 2), 0);
		bed_open(&bed);
		ck_assert_uint_eq(wal_meta(bed.wal)->term, 5);
		ck_assert_uint_eq(wal_meta(bed.wal)->vote, 3);
		bed_crash(&bed);
		/* the open has mended it */
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, (uint64_t)!slot * WAL_META_BYTES + 200, 2), 0);
		bed_open(&bed);
		bed_crash(&bed);
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, 60, 2), 0);
		ck_assert_int_eq(sim_flip_bit(bed.host, meta_path, WAL_META_BYTES + 60, 2), 0);
		expect_refused(ERR_CORRUPT, "both slots are damaged");
		bed_fini(&bed);
	}
}
END_TEST

static uint32_t slot_syncs;
static uint64_t generations[WAL_META_SLOTS];

static void on_slot_sync(struct replica_bed *b, const char *path)
{
	uint8_t both[WAL_META_SLOTS * WAL_META_BYTES];
	struct wal_meta meta;
	uint32_t changed = 0;

	(void)b;
	if (strcmp(path, meta_path) != 0)
		return;
	get(meta_path, both, sizeof(both), 0);
	for (int i = 0; i < WAL_META_SLOTS; i++) {
		ck_assert_int_eq(wal_meta_decode(both + i * WAL_META_BYTES, &meta), 0);
		changed += meta.generation != generations[i];
		generations[i] = meta.generation;
	}
	ck_assert_uint_le(changed, 1);
	slot_syncs += changed; /* an open also syncs what it finds */
}

/* One slot is durable before the other is touched: no loss of power can damage both, however a disk tears what it writes. */
START_TEST(test_slots_one_by_one)
{
	begin();
	generations[0] = generations[1] = wal_meta(bed.wal)->generation;
	bed.synced = on_slot_sync;
	bed_save(&bed, 2, 3);
	bed_settle(&bed);
	ck_assert_uint_eq(slot_syncs, 2);
	bed_restart(&bed, 5, 2);
	bed_settle(&bed);
	ck_assert_uint_eq(slot_syncs, 4);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(slot_syncs, 6);
	bed_fini(&bed);
}
END_TEST

static void stopped(void *ctx)
{
	sim_host_crash(((struct replica_bed *)ctx)->host);
}

static void try_open(void *ctx)
{
	ck_assert_int_eq(bed_try_open(ctx), 0);
}

static bool is_down(void *ctx)
{
	(void)ctx;
	return !sim_host_is_up(bed.host);
}

static uint8_t found_slots[WAL_META_SLOTS * WAL_META_BYTES];

static void on_first_slot_sync(struct replica_bed *b, const char *path)
{
	uint8_t both[sizeof(found_slots)];

	if (strcmp(path, meta_path) != 0)
		return;
	get(meta_path, both, sizeof(both), 0);
	ck_assert_mem_eq(both, found_slots, sizeof(both));
	b->synced = NULL;
	slot_syncs++;
}

/*
 * Killed between the write of a slot and its sync: the next open makes durable what it found before it writes over the other one, or both could be
 * torn when the power fails then.
 */
START_TEST(test_slot_written_and_not_synced)
{
	begin();
	slot_syncs = 0;
	sim_set_loss(bed.host, SIM_LOSS_NONE);
	sim_stop_at_sync(bed.host, 1, stopped, &bed);
	bed_save(&bed, 2, 3);
	ck_assert(sim_run(bed.sim, is_down, NULL, UINT64_MAX));
	bed_crash(&bed);
	get(meta_path, found_slots, sizeof(found_slots), 0);
	ck_assert_mem_ne(found_slots, found_slots + WAL_META_BYTES, WAL_META_BYTES);
	bed.synced = on_first_slot_sync;
	bed_open(&bed);
	ck_assert_uint_eq(slot_syncs, 1);
	ck_assert_uint_eq(wal_meta(bed.wal)->term, 2);
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

START_TEST(test_whose_log)
{
	struct wal_replica replica = {.cluster = "of these tests", .replica = 4};
	uint8_t both[WAL_META_SLOTS * WAL_META_BYTES];

	begin();
	appends(2, 1, 10);
	bed_crash(&bed);
	ck_assert_int_eq(bed_open_as(&bed, &replica), ERR_WRONG_CLUSTER);
	ck_assert_ptr_nonnull(strstr(bed.err.text, "replica 3 of this cluster"));
	replica.replica = 3;
	replica.cluster[0]++;
	ck_assert_int_eq(bed_open_as(&bed, &replica), ERR_WRONG_CLUSTER);
	ck_assert_int_eq(bed_open_as(&bed, NULL), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(bed.err.text, "a group of replicas"));
	get(meta_path, both, sizeof(both), 0);
	ck_assert_int_eq(io_unlink(bed.host, meta_path), 0);
	expect_refused(ERR_CORRUPT, "no slots");
	ck_assert_int_eq(io_write_file(bed.host, meta_path, both, WAL_META_BYTES, 0600), 0);
	expect_refused(ERR_CORRUPT, "4096 bytes");
	ck_assert_int_eq(io_write_file(bed.host, meta_path, both, sizeof(both), 0600), 0);
	bed_open(&bed);
	bed_fini(&bed);
}
END_TEST

/* A plain log is not taken for that of a replica, nor made where one was being founded. */
START_TEST(test_plain_log)
{
	static const uint64_t slots_made = 2; /* syncs: of the slots' bytes and of their name */

	bed_init(&bed, 7);
	sim_stop_at_sync(bed.host, slots_made + 1, stopped, &bed);
	ck_assert(!sim_try(bed.sim, try_open, &bed));
	bed_crash(&bed);
	ck_assert_int_eq(bed_open_as(&bed, NULL), ERR_VERSION);
	ck_assert_ptr_nonnull(strstr(bed.err.text, "/log/meta: the log is one of a group of replicas"));
	ck_assert_int_eq(io_unlink(bed.host, meta_path), 0);
	ck_assert_int_eq(bed_open_as(&bed, NULL), 0);
	wal_abandon(bed.wal);
	expect_refused(ERR_CORRUPT, "not one of a group");
	ck_assert_int_eq(bed_open_as(&bed, NULL), 0);
	bed_fini(&bed);
}
END_TEST

/* One entry, and behind it what a newer build could have written, one byte of it flipped before its CRC is made, or after. */
static void begin_with_newer(size_t flip_before, size_t flip_after)
{
	uint8_t newer[WAL_FRAME_TERMS_HEADER_BYTES];
	struct wal_frame last;
	uint64_t at;
	uint32_t crc;

	begin();
	appends(1, 1, 10);
	bed_crash(&bed);
	forge((struct wal_frame){
		.version = WAL_FRAME_TERMS, .type = WAL_FRAME_MARK, .first_index = 2, .term = 1, .prev_term = 1});
	at = find_frame(UINT32_MAX, &last);
	get(segment_1, newer, sizeof(newer), at);
	newer[8] = 3;
	newer[flip_before] ^= flip_before != 0;
	crc = crc32c(newer + 8, sizeof(newer) - 8);
	memcpy(newer + 4, &crc, sizeof(crc));
	newer[flip_after] ^= flip_after != 0;
	put(segment_1, newer, sizeof(newer), at);
}

/* A format that is not known here is refused, and not cut off like a torn tail. */
START_TEST(test_newer_formats)
{
	uint8_t slots[2][WAL_META_BYTES];
	uint32_t crc;

	begin_with_newer(0, 0);
	expect_refused(ERR_VERSION, "index 2 is in a format");
	bed_fini(&bed);
	begin();
	bed_crash(&bed);
	get(meta_path, slots, sizeof(slots), 0);
	slots[1][8] = 2;
	crc = crc32c(slots[1] + 8, WAL_META_BYTES - 8);
	memcpy(slots[1] + 4, &crc, sizeof(crc));
	put(meta_path, slots[1], WAL_META_BYTES, WAL_META_BYTES);
	expect_refused(ERR_VERSION, "slot 1 is in a format");
	bed_fini(&bed);
}
END_TEST

/* Damage, and bytes that somebody had stored as an entry once, only look so. */
START_TEST(test_newer_in_looks_only)
{
	static const struct {
		size_t before, after;
	} flips[] = {{0, 100}, {16, 0}, {64, 0}}; /* CRC, number, log id */

	for (size_t i = 0; i < ARRAY_COUNT(flips); i++) {
		begin_with_newer(flips[i].before, flips[i].after);
		bed_open(&bed);
		bed_fini(&bed);
	}
}
END_TEST

/* What a newer build wrote proves as well as anything that a frame before it was durable. */
START_TEST(test_newer_proves_damage)
{
	uint8_t newer[WAL_FRAME_TERMS_HEADER_BYTES];
	struct wal_frame last;
	uint64_t at, number, mark;
	uint32_t crc;

	begin();
	appends(1, 1, 10);
	bed_crash(&bed);
	forge((struct wal_frame){
		.version = WAL_FRAME_TERMS, .type = WAL_FRAME_MARK, .first_index = 2, .term = 1, .prev_term = 1});
	at = find_frame(UINT32_MAX, &last);
	get(segment_1, newer, sizeof(newer), at);
	newer[8] = 3;
	crc = crc32c(newer + 8, sizeof(newer) - 8);
	memcpy(newer + 4, &crc, sizeof(crc));
	newer[100] ^= 1; /* the first one rots */
	put(segment_1, newer, sizeof(newer), at);
	newer[100] ^= 1;
	memcpy(&number, newer + 16, 8);
	mark = number++;
	memcpy(newer + 16, &number, 8);
	memcpy(newer + 24, &mark, 8); /* the next one says that it was durable */
	crc = crc32c(newer + 8, sizeof(newer) - 8);
	memcpy(newer + 4, &crc, sizeof(crc));
	put(segment_1, newer, sizeof(newer), at + WAL_FRAME_ALIGN);
	expect_refused(ERR_CORRUPT, "damaged");
	bed_fini(&bed);
}
END_TEST

/* The end of the log is gone, and no mark in it is left to tell: the slots know what was committed. */
START_TEST(test_committed_entry_lost)
{
	static const uint8_t zeros[4 * WAL_FRAME_ALIGN];

	begin();
	appends(5, 1, 10);
	bed_commit(&bed, 4);
	bed_save(&bed, 2, 1);
	bed_settle(&bed);
	bed_crash(&bed);
	put(segment_1, zeros, sizeof(zeros), 3 * WAL_FRAME_ALIGN); /* base, 1, 2, then 3 .. 5 and a mark */
	expect_refused(ERR_CORRUPT, "damaged at index 3:");
	bed_fini(&bed);
}
END_TEST

/* Slots of an earlier time, with the log as it is now: a vote may have been forgotten. */
START_TEST(test_slots_of_another_time)
{
	uint8_t old[WAL_META_SLOTS * WAL_META_BYTES];

	begin();
	get(meta_path, old, sizeof(old), 0);
	bed_save(&bed, 2, 1);
	appends(2, 2, 10);
	bed_crash(&bed);
	put(meta_path, old, sizeof(old), 0);
	expect_refused(ERR_CORRUPT, "contradicts itself, or its slots, at index 1");
	bed_fini(&bed);
}
END_TEST

static int count_segment(void *ctx, const char *name)
{
	*(int *)ctx += strncmp(name, "log-", 4) == 0;
	return 0;
}

START_TEST(test_restart)
{
	char path[64];
	int count = 0;

	begin();
	appends(12, 1, 200000); /* three segments */
	bed_append(&bed, 1, 10);
	bed_run_for(&bed, 1000);
	bed_append(&bed, 1, 10);
	bed_restart(&bed, 100, 1);
	bed_append(&bed, 1, 10);
	bed_append(&bed, 1, 10);
	bed_settle(&bed);
	ck_assert_uint_eq(bed.canceled, 2);
	ck_assert_uint_eq(bed.acknowledged, 14);
	ck_assert_uint_eq(wal_durable_index(bed.wal), 102);
	ck_assert_uint_eq(wal_commit(bed.wal), 100);
	idle();
	ck_assert_int_eq(io_list_dir(bed.host, bed_dir, count_segment, &count), 0);
	ck_assert_int_le(count, 4); /* the others are used again or removed */
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(wal_first_index(bed.wal), 101);
	ck_assert_uint_eq(bed.now.last, 102);
	snprintf(path, sizeof(path), "/log/log-%016" PRIx64, wal_meta(bed.wal)->first_segment);
	bed_crash(&bed);
	ck_assert_int_eq(sim_flip_bit(bed.host, path, 30, 1), 0);
	expect_refused(ERR_CORRUPT, "first frame is damaged");
	for (uint64_t n = wal_meta(bed.wal)->first_segment; n < 20; n++) {
		snprintf(path, sizeof(path), "/log/log-%016" PRIx64, n);
		(void)io_unlink(bed.host, path);
	}
	expect_refused(ERR_CORRUPT, "is missing");
	bed_fini(&bed);
}
END_TEST

/* Without space a restart waits for some, as entries do: what was trimmed gives it, or somebody else; but not for ever. */
START_TEST(test_restart_on_full_disk)
{
	begin();
	appends(12, 1, 200000); /* two in the third segment: none is ready */
	sim_disk_full(bed.host, true);
	bed_restart(&bed, 100, 1);
	bed_append(&bed, 1, 10);
	bed_run_for(&bed, 20000000000);
	ck_assert(bed.restarting);
	ck_assert_int_eq(bed.fatal, 0);
	sim_disk_full(bed.host, false);
	bed_settle(&bed);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 101);
	/* the old segments are used again */
	sim_disk_full(bed.host, true);
	bed_restart(&bed, 200, 1);
	bed_run_for(&bed, 100000000);
	ck_assert(!bed.restarting);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 200);
	bed_fini(&bed);

	begin();
	appends(12, 1, 200000);
	sim_disk_full(bed.host, true);
	bed_restart(&bed, 100, 1);
	bed_run_for(&bed, 60000000000);
	ck_assert_int_eq(bed.fatal, ERR_NOSPC);
	ck_assert(!bed.restarting);
	bed_close(&bed);
	sim_disk_full(bed.host, false);
	bed_crash(&bed);
	bed_open(&bed);
	ck_assert_uint_eq(bed.now.last, 12);
	bed_fini(&bed);
}
END_TEST

/* What the snapshot has, the old log may give away only when there is a new one: it is what a crash before finds. */
START_TEST(test_trim_before_restart_is_done)
{
	for (uint64_t n = 1; n <= 30; n++) {
		begin();
		appends(12, 1, 200000);
		sim_disk_full(bed.host, true);
		bed_restart(&bed, 100, 1);
		bed_trim(&bed, 100);
		bed.dies_at_event = sim_event_count(bed.sim) + n;
		bed_run_for(&bed, 100000000);
		sim_disk_full(bed.host, false);
		bed_crash(&bed);
		bed_open(&bed);
		ck_assert_uint_ge(wal_commit(bed.wal), wal_index(bed.wal)->base_index);
		bed_fini(&bed);
	}
}
END_TEST

/* Held entries stay however far the log is trimmed, and go when they are released. */
START_TEST(test_hold)
{
	struct wal_hold holds[2];

	begin();
	appends(12, 1, 200000);
	ck_assert_uint_eq(wal_durable_index(bed.wal), 12);
	bed_commit(&bed, 12);
	ck_assert_int_eq(wal_hold(bed.wal, &holds[0], 8), 0);
	ck_assert_int_eq(wal_hold(bed.wal, &holds[1], 2), 0);
	bed_trim(&bed, 12);
	ck_assert_uint_le(wal_first_index(bed.wal), 2);
	wal_release(bed.wal, &holds[1]);
	ck_assert_uint_gt(wal_first_index(bed.wal), 2);
	ck_assert_uint_le(wal_first_index(bed.wal), 8);
	ck_assert_int_eq(wal_hold(bed.wal, &holds[1], 2), ERR_NOENT);
	wal_release(bed.wal, &holds[0]);
	ck_assert_uint_gt(wal_first_index(bed.wal), 8);
	bed_crash(&bed);
	bed_open(&bed); /* segments that wait to be used again are there again */
	ck_assert_uint_eq(wal_index_term(wal_index(bed.wal), wal_first_index(bed.wal)), 1);
	bed_fini(&bed);
}
END_TEST

/* A hold of entries that went with an installed snapshot holds nothing. */
START_TEST(test_hold_and_restart)
{
	struct wal_hold hold;

	begin();
	appends(2, 1, 10);
	ck_assert_int_eq(wal_hold(bed.wal, &hold, 2), 0);
	bed_restart(&bed, 20, 1);
	appends(12, 1, 200000);
	bed_commit(&bed, 32);
	bed_trim(&bed, 32);
	ck_assert_uint_gt(wal_first_index(bed.wal), 25);
	wal_release(bed.wal, &hold);
	bed_fini(&bed);
}
END_TEST

/* What is trimmed to is applied, and thus committed: more than that never goes. */
START_TEST(test_trim_is_bounded)
{
	begin();
	appends(12, 1, 200000);
	bed_commit(&bed, 3);
	bed_trim(&bed, 12);
	ck_assert_uint_le(wal_first_index(bed.wal), 4);
	bed_fini(&bed);
}
END_TEST

struct reader {
	struct wal_read read;
	uint64_t next, entries, bytes;
	int code;
	bool done;
	const char *expected_file;
};

static void on_read(struct wal_read *read, int code)
{
	struct reader *r = CONTAINER_OF(read, struct reader, read);
	uint64_t index, term;
	struct slice data;
	int fd;

	r->code = code;
	r->done = true;
	r->next = read->from;
	while (code == 0 && wal_read_next(read, &index, &term, &data)) {
		ck_assert_uint_eq(index, r->next++);
		ck_assert_uint_eq(term, bed.now.entries[index].term);
		ck_assert_mem_eq(data.data, &bed.now.entries[index].stamp, 8);
		r->entries++;
		r->bytes += data.len;
	}
	if (r->expected_file) {
		ck_assert_int_eq(io_open(bed.host, r->expected_file, 0, 0, &fd), 0);
		io_close(bed.host, fd);
	}
	wal_read_end(read);
}

static bool read_is_done(void *ctx)
{
	return ((struct reader *)ctx)->done;
}

static int read_range(struct reader *r, uint64_t from, uint64_t to, uint32_t max_bytes)
{
	memset(r, 0, sizeof(*r));
	r->read.from = from;
	r->read.to = to;
	r->read.max_bytes = max_bytes;
	r->read.done = on_read;
	return wal_read(bed.wal, &r->read);
}

static void read_and_wait(struct reader *r, uint64_t from, uint64_t to, uint32_t max_bytes)
{
	ck_assert_int_eq(read_range(r, from, to, max_bytes), 0);
	ck_assert(sim_run(bed.sim, read_is_done, r, sim_now_ns(bed.sim) + 1000000000));
}

START_TEST(test_read)
{
	struct reader r;

	begin();
	for (int i = 0; i < 30; i++)
		bed_append(&bed, 1, 84); /* 100 bytes each; some share a frame */
	bed_settle(&bed);
	appends(3, 1, 100000);
	read_and_wait(&r, 1, 30, 1 << 20);
	ck_assert_uint_eq(r.entries, 30);
	read_and_wait(&r, 7, 9, 1 << 20);
	ck_assert_uint_eq(r.entries, 3);
	read_and_wait(&r, 7, 30, 450);
	ck_assert_uint_eq(r.entries, 4);
	read_and_wait(&r, 31, 33, 10); /* one goes, whatever its size */
	ck_assert_uint_eq(r.entries, 1);
	read_and_wait(&r, 31, 33, 250000);
	ck_assert_uint_eq(r.entries, 2);
	ck_assert_int_eq(read_range(&r, 34, 40, 100), ERR_NOENT);
	ck_assert_int_eq(read_range(&r, 0, 40, 100), ERR_NOENT);
	bed_append(&bed, 1, 10);
	ck_assert_int_eq(read_range(&r, 34, 40, 100), ERR_AGAIN);
	bed_settle(&bed);
	/* cut off while they are read */
	ck_assert_int_eq(read_range(&r, 20, 25, 10000), 0);
	bed_cut(&bed, 22);
	ck_assert(sim_run(bed.sim, read_is_done, &r, sim_now_ns(bed.sim) + 1000000000));
	ck_assert_uint_eq(r.entries, 2);
	ck_assert_int_eq(read_range(&r, 20, 25, 10000), 0);
	bed_cut(&bed, 20);
	ck_assert(sim_run(bed.sim, read_is_done, &r, sim_now_ns(bed.sim) + 1000000000));
	ck_assert_int_eq(r.code, ERR_NOENT);
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* A frame that rots while the log is open: whoever reads it ends the log, with the entry's index. */
START_TEST(test_read_of_damage)
{
	struct reader r;
	struct wal_frame f;
	uint64_t at;

	begin();
	appends(5, 1, 10);
	at = find_frame(3, &f);
	ck_assert_uint_eq(f.first_index, 3);
	ck_assert_int_eq(sim_flip_bit(bed.host, segment_1, at + 140, 1), 0);
	read_and_wait(&r, 2, 2, 100000);
	ck_assert_int_eq(r.code, 0);
	read_and_wait(&r, 2, 4, 100000);
	ck_assert_int_eq(r.code, ERR_CORRUPT);
	bed_run_for(&bed, 1000000);
	ck_assert_int_eq(bed.fatal, ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(bed.fatal_text, "index 3 "));
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* A segment that is read from is not used again before the read has ended. */
START_TEST(test_read_and_trim)
{
	struct reader r;

	begin();
	appends(6, 1, 200000); /* one in the second segment */
	bed_commit(&bed, 6);
	ck_assert_int_eq(read_range(&r, 1, 4, 1 << 20), 0);
	r.expected_file = segment_1;
	bed_trim(&bed, 6);
	ck_assert_uint_eq(wal_first_index(bed.wal), 6);
	bed_append(&bed, 1, 200000);
	bed_append(&bed, 1, 200000); /* past the half of it: another segment is wanted */
	ck_assert(sim_run(bed.sim, read_is_done, &r, sim_now_ns(bed.sim) + 1000000000));
	ck_assert_int_eq(r.code, 0);
	bed_settle(&bed);
	bed_close(&bed);
	bed_fini(&bed);
}
END_TEST

/* The nth write, sync or read of the disk fails, for all n: what was said stays true, and the next open works. */
START_TEST(test_faults)
{
	static const enum sim_fault faults[] = {SIM_FAULT_WRITE, SIM_FAULT_SYNC, SIM_FAULT_READ};
	uint32_t hit = 0;

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		for (uint64_t n = 1;; n++) {
			struct reader r = {.done = true};
			bool failed;

			bed_init(&bed, n);
			sim_fault_after(bed.host, faults[i], n, ERR_IO);
			failed = bed_try_open(&bed) != 0;
			if (!failed) {
				bed_check(&bed);
				bed_save(&bed, 1, 1);
				bed_settle(&bed);
			}
			if (!failed && !bed.fatal) {
				for (int k = 0; k < 3; k++)
					bed_append(&bed, 1, 100);
				bed_settle(&bed);
			}
			if (!failed && !bed.fatal)
				read_range(&r, 1, 3, 1000);
			if (!failed && !bed.fatal) {
				bed_cut(&bed, 2);
				bed_append(&bed, 1, 100);
				bed_settle(&bed);
			}
			if (!failed && !bed.fatal) {
				bed_restart(&bed, 9, 1);
				bed_append(&bed, 1, 100);
				bed_settle(&bed);
			}
			if (!failed) {
				bed_close(&bed);
				ck_assert(r.done);
				failed = bed.fatal != 0;
			}
			sim_fault_after(bed.host, faults[i], 0, 0);
			bed_crash(&bed);
			bed_open(&bed);
			bed_close(&bed);
			bed_fini(&bed);
			if (!failed)
				break;
			hit++;
		}
	}
	ck_assert_uint_gt(hit, 20);
}
END_TEST

UNIT_MAIN("wal_replica", test_terms_and_commit, test_commit_is_durable, test_cut, test_cut_below_what_is_left,
	test_cut_begins_a_nonce, test_cut_from_callback, test_damaged_cut, test_contradictions, test_slots,
	test_slots_one_by_one, test_slot_written_and_not_synced, test_term_before_its_entries, test_whose_log, test_plain_log, test_newer_formats,
	test_newer_in_looks_only, test_newer_proves_damage, test_committed_entry_lost, test_slots_of_another_time, test_restart, test_restart_on_full_disk,
	test_trim_before_restart_is_done, test_hold,
	test_hold_and_restart, test_trim_is_bounded, test_read, test_read_of_damage, test_read_and_trim, test_faults)
