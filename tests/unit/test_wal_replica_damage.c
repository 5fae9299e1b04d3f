/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a replica: what is made of damage, and of what a newer build wrote. */
#include "common/base/crc32c.h"
#include "tests/lib/replica_log.h"

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

UNIT_MAIN("wal_replica_damage", test_damaged_cut, test_contradictions, test_newer_formats, test_newer_in_looks_only,
	test_newer_proves_damage, test_committed_entry_lost, test_slots_of_another_time)
