/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk on another disk than before: intents, proofs, compare-and-set; disks that are taken out. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;
static uint64_t block;

/* One whole block of 16 MiB, chunk i on disk i + 1; `missing`: indices without a receipt. */
static void begin(uint32_t disks, uint32_t per_domain, uint32_t missing)
{
	struct state_commit_block *cb;

	state_bed_open(b);
	bed_disks(b, disks, per_domain);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	block = bed_reserve(b, 8);
	ck_assert_int_eq(bed_lookup(b, "f") > 0, 1);
	bed_commit(b, b->inode.id, 1, true, 16 * STATE_BED_MIB);
	cb = bed_block(b, block, 0, 16 * STATE_BED_MIB);
	for (uint8_t i = 0; i < 6; i++)
		if (missing & 1u << i)
			bed_drop_receipt(cb, i);
	ck_assert_int_eq(state_bed_run(b), 0);
}

static const struct state_block *row(void)
{
	ck_assert_int_eq(state_block_get(&b->s, block, &b->block), 0);
	return &b->block;
}

static int intent(uint8_t index, uint32_t disk, uint32_t version)
{
	b->cmd.type = STATE_CMD_INTENT;
	b->cmd.intent = (struct state_cmd_intent){
		.block = block, .index = index, .cause = STATE_CAUSE_LOST, .disk = disk, .version = version};
	return state_bed_run(b);
}

static int end(uint8_t index, uint32_t incarnation)
{
	b->cmd.type = STATE_CMD_INTENT_END;
	b->cmd.intent_end = (struct state_cmd_intent_end){.block = block, .index = index, .incarnation = incarnation};
	return state_bed_run(b);
}

/* A sealed copy of what the proof says, by default. */
static struct state_cmd_sealed *sealed(uint16_t type, uint8_t index, uint32_t disk, uint32_t incarnation)
{
	b->cmd.type = type;
	b->cmd.sealed = (struct state_cmd_sealed){
		.block = block,
		.version = row()->version,
		.crc = (uint32_t)(block * 100 + index),
		.receipt = {.index = index, .disk = disk, .incarnation = incarnation, .generation = 1},
	};
	return &b->cmd.sealed;
}

/* Does the reverse index lead from the disk to the block? */
static bool disk_has(uint32_t disk)
{
	return bed_reverse(b, disk, block, block + 1) == 1;
}

START_TEST(test_a_move)
{
	begin(8, 1, 0);
	ck_assert_int_eq(intent(2, 7, row()->version), 0);
	ck_assert_uint_eq(b->res.incarnation, 256);
	ck_assert_uint_eq(row()->chunks[2].disk, 3); /* nothing has moved yet */
	ck_assert_ptr_nonnull(state_intent_of(&b->s, block));
	sealed(STATE_CMD_LOCATION, 2, 7, 256);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(row()->chunks[2].disk, 7);
	ck_assert_uint_eq(row()->chunks[2].incarnation, 256);
	ck_assert(row()->chunks[2].present && !row()->crowded);
	ck_assert_uint_eq(row()->version, 2);
	ck_assert_ptr_null(state_intent_of(&b->s, block));
	ck_assert(disk_has(7) && !disk_has(3));
	state_bed_settle(b->kv);
	ck_assert(disk_has(7) && !disk_has(3));
	/* said again: the intent is gone, nothing changes */
	sealed(STATE_CMD_LOCATION, 2, 7, 256);
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

START_TEST(test_only_what_equals_the_proof)
{
	begin(8, 1, 0);
	ck_assert_int_eq(intent(2, 7, row()->version), 0);
	sealed(STATE_CMD_LOCATION, 2, 7, 256)->crc ^= 1;
	ck_assert_int_eq(state_bed_run(b), ERR_CORRUPT);
	ck_assert_uint_eq(row()->chunks[2].disk, 3);
	/* the copy must be the intent's in all respects, its disk in the generation that the receipt says */
	sealed(STATE_CMD_LOCATION, 2, 8, 256);
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	sealed(STATE_CMD_LOCATION, 2, 7, 257);
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	sealed(STATE_CMD_LOCATION, 3, 7, 256);
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	sealed(STATE_CMD_LOCATION, 2, 7, 256)->receipt.generation = 2;
	ck_assert_int_eq(state_bed_run(b), ERR_GENERATION);
	ck_assert_uint_eq(row()->chunks[2].disk, 3);
	sealed(STATE_CMD_LOCATION, 2, 7, 256);
	ck_assert_int_eq(state_bed_run(b), 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_compare_and_set)
{
	begin(8, 1, 1u << 5);
	ck_assert_int_eq(intent(2, 7, row()->version + 1), ERR_STALE);
	ck_assert_int_eq(intent(2, 7, row()->version), 0);
	sealed(STATE_CMD_LOCATION, 2, 7, 256)->version--;
	ck_assert_int_eq(state_bed_run(b), ERR_STALE);
	/* the late chunk comes meanwhile: what was decided before does not count */
	ck_assert_int_gt(bed_lookup(b, "f"), 0);
	bed_commit(b, b->inode.id, 1, true, 16 * STATE_BED_MIB);
	bed_block(b, block, 0, 16 * STATE_BED_MIB);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(row()->version, 2);
	sealed(STATE_CMD_LOCATION, 2, 7, 256)->version = 1;
	ck_assert_int_eq(state_bed_run(b), ERR_STALE);
	sealed(STATE_CMD_LOCATION, 2, 7, 256);
	ck_assert_int_eq(state_bed_run(b), 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_an_incarnation_is_given_once)
{
	begin(8, 1, 0);
	ck_assert_int_eq(intent(2, 7, row()->version), 0);
	ck_assert_uint_eq(b->res.incarnation, 256);
	ck_assert_int_eq(intent(3, 8, row()->version), ERR_BUSY); /* one at a time for a block */
	ck_assert_int_eq(end(2, 257), ERR_NOENT);
	ck_assert_int_eq(end(2, 256), 0);
	ck_assert_int_eq(end(2, 256), ERR_NOENT);
	ck_assert_int_eq(intent(2, 7, row()->version), 0);
	ck_assert_uint_eq(b->res.incarnation, 257);
	/* the copy of the intent that was given up is sealed all the same: it is nothing */
	sealed(STATE_CMD_LOCATION, 2, 7, 256);
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	state_close(&b->s); /* a restart */
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
	ck_assert_ptr_nonnull(state_intent_of(&b->s, block));
	ck_assert_int_eq(end(2, 257), 0);
	ck_assert_int_eq(intent(4, 7, row()->version), 0);
	ck_assert_uint_eq(b->res.incarnation, 258);
	state_bed_close(b);
}
END_TEST

START_TEST(test_bad_intents)
{
	begin(8, 1, 0);
	ck_assert_int_eq(intent(6, 7, row()->version), ERR_INVAL);
	ck_assert_int_eq(intent(2, 9, row()->version), ERR_NO_PLACEMENT);
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = 8;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(intent(2, 8, row()->version), ERR_NO_PLACEMENT);
	block++;
	ck_assert_int_eq(intent(2, 7, 1), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

START_TEST(test_old_copies_are_garbage)
{
	struct state_copy copy = {.block = block, .index = 2};
	struct state_drop drop;

	begin(8, 1, 0);
	copy.block = block;
	ck_assert_int_eq(intent(2, 7, row()->version), 0);
	ck_assert_int_eq(state_drop_get(&b->s, 3, &copy, &drop), ERR_NOENT);
	sealed(STATE_CMD_LOCATION, 2, 7, 256);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(state_drop_get(&b->s, 3, &copy, &drop), 0);
	copy.incarnation = 256;
	ck_assert_int_eq(state_drop_get(&b->s, 7, &copy, &drop), ERR_NOENT);
	/* and the copy of one that was given up */
	ck_assert_int_eq(intent(2, 8, row()->version), 0);
	copy.incarnation = 257;
	ck_assert(state_copy_named(&b->s, 8, &copy));
	ck_assert_int_eq(end(2, 257), 0);
	ck_assert(!state_copy_named(&b->s, 8, &copy));
	ck_assert_int_eq(state_drop_get(&b->s, 8, &copy, &drop), 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_what_is_on_its_way_is_not_missing)
{
	begin(8, 1, 0);
	ck_assert_int_eq(intent(2, 7, row()->version), 0);
	b->time_ms += STATE_FLOOR_DELAY_MS;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
	b->cmd.type = STATE_CMD_MISSING;
	b->cmd.copies = (struct state_cmd_copies){.disk = 7, .generation = 1, .count = 1};
	b->cmd.copies.copies[0] = (struct state_copy){.block = block, .index = 2, .incarnation = 256};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.count, 0);
	ck_assert(row()->chunks[2].present);
	state_bed_close(b);
}
END_TEST

START_TEST(test_domains_are_checked)
{
	/* disks 1-2, 3-4, 5-6, 7-8: each domain of the block holds two already */
	begin(8, 2, 0);
	ck_assert(row()->crowded);
	ck_assert_int_eq(intent(0, 4, row()->version), 0);
	sealed(STATE_CMD_LOCATION, 0, 4, 256);
	ck_assert_int_eq(state_bed_run(b), ERR_NO_PLACEMENT);
	ck_assert_uint_eq(row()->chunks[0].disk, 1);
	ck_assert_int_eq(end(0, 256), 0);
	ck_assert_int_eq(intent(0, 7, row()->version), 0);
	sealed(STATE_CMD_LOCATION, 0, 7, 257);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(row()->crowded); /* the other two pairs */
	state_bed_close(b);
}
END_TEST

START_TEST(test_a_missing_chunk_below_the_floor)
{
	uint64_t raw;

	begin(8, 1, 1u << 4);
	ck_assert_int_gt(bed_lookup(b, "f"), 0);
	raw = b->inode.raw_bytes;
	b->time_ms += STATE_FLOOR_DELAY_MS + 1;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_gt(b->s.meta.floor, block);
	/* its writer cannot add it any more (block.c), an intent can */
	ck_assert_int_eq(intent(4, 7, row()->version), 0);
	sealed(STATE_CMD_LOCATION, 4, 7, 256);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(row()->chunks[4].present && disk_has(7));
	ck_assert_int_gt(bed_lookup(b, "f"), 0);
	ck_assert_uint_eq(b->inode.raw_bytes, raw + 4 * STATE_BED_MIB);
	state_bed_close(b);
}
END_TEST

START_TEST(test_damage_is_of_one_copy)
{
	begin(8, 1, 0);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = block, .index = 1, .disk = 2, .incarnation = 1};
	ck_assert_int_eq(state_bed_run(b), ERR_STALE);
	b->cmd.damaged.incarnation = 0;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(row()->chunks[1].damaged && row()->chunks[1].present); /* what is good of it may still be needed */
	ck_assert_int_eq(intent(1, 7, row()->version), 0);
	sealed(STATE_CMD_LOCATION, 1, 7, 256);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(!row()->chunks[1].damaged);
	b->cmd.type = STATE_CMD_DAMAGED;
	b->cmd.damaged = (struct state_cmd_damaged){.block = block, .index = 1, .disk = 2};
	ck_assert_int_eq(state_bed_run(b), ERR_STALE); /* of the old copy */
	state_bed_close(b);
}
END_TEST

static int take_out(uint32_t disk)
{
	b->cmd.type = STATE_CMD_TAKE_OUT;
	b->cmd.take_out.disk = disk;
	return state_bed_run(b);
}

static void down(uint32_t server)
{
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = server;
	ck_assert_int_eq(state_bed_run(b), 0);
}

START_TEST(test_one_domain_an_hour)
{
	begin(8, 2, 0);
	ck_assert_int_eq(take_out(1), ERR_STALE); /* it is up */
	ck_assert_int_eq(take_out(99), ERR_NOENT);
	down(1);
	down(2);
	down(3);
	ck_assert_int_eq(take_out(1), 0);
	ck_assert(state_disk_at(&b->s, 1)->out);
	ck_assert_int_eq(take_out(2), 0); /* of the same domain */
	ck_assert_int_eq(take_out(3), ERR_BUSY);
	b->time_ms += 3600 * 1000 - 1;
	ck_assert_int_eq(take_out(3), ERR_BUSY);
	/* coming back does not make room for another one */
	b->cmd.type = STATE_CMD_REGISTER;
	memset(&b->cmd.register_, 0, sizeof(b->cmd.register_));
	b->cmd.register_.uuid.bytes[0] = 1;
	b->cmd.register_.name = b->cmd.register_.address = slice_of("127.0.0.1:1", 11);
	b->cmd.register_.domain = slice_of("rack-0", 6);
	b->cmd.register_.disk_count = 1;
	b->cmd.register_.disks[0] = (struct state_register_disk){
		.uuid.bytes[0] = 101, .disk = 1, .generation = 1, .capacity_bytes = 1 << 30, .path = slice_of("/d", 2)};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(!state_disk_at(&b->s, 1)->out);
	ck_assert_int_eq(take_out(3), ERR_BUSY);
	b->time_ms++;
	ck_assert_int_eq(take_out(3), 0);
	state_bed_close(b);
}
END_TEST

/* Whatever ends before it, an intent is found by its block. */
START_TEST(test_found_by_block)
{
	enum { BLOCKS = 8 };
	uint64_t first;
	uint32_t inc[BLOCKS];

	begin(8, 1, 0);
	first = block;
	bed_lookup(b, "f");
	ck_assert_int_eq(bed_create(b, "g", 0), 0);
	bed_commit(b, b->res.attr.inode, 1, true, 7 * 16 * STATE_BED_MIB);
	for (uint64_t i = 1; i < BLOCKS; i++)
		bed_block(b, first + i, (i - 1) * 16 * STATE_BED_MIB, 16 * STATE_BED_MIB);
	ck_assert_int_eq(state_bed_run(b), 0);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		block = first + i;
		ck_assert_int_eq(intent((uint8_t)(i % 6), 7, row()->version), 0);
		inc[i] = b->res.incarnation;
	}
	for (uint32_t ended = 0; ended < BLOCKS; ended++) {
		block = first + ended * 3 % BLOCKS;
		ck_assert_int_eq(end((uint8_t)(ended * 3 % BLOCKS % 6), inc[ended * 3 % BLOCKS]), 0);
		ck_assert_uint_eq(b->s.intent_count, BLOCKS - 1 - ended);
		for (uint32_t i = 0; i < BLOCKS; i++) {
			const struct state_intent *found = state_intent_of(&b->s, first + i);
			bool gone = false;

			for (uint32_t j = 0; j <= ended; j++)
				gone |= j * 3 % BLOCKS == i;
			ck_assert((found == NULL) == gone);
			if (found)
				ck_assert_uint_eq(found->block, first + i);
		}
		if (ended == 2) { /* as at a start */
			state_close(&b->s);
			ck_assert_int_eq(state_open(&b->s, b->kv), 0);
		}
	}
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_intent", test_a_move, test_found_by_block, test_only_what_equals_the_proof, test_compare_and_set,
	test_an_incarnation_is_given_once, test_bad_intents, test_old_copies_are_garbage,
	test_what_is_on_its_way_is_not_missing, test_domains_are_checked, test_a_missing_chunk_below_the_floor,
	test_damage_is_of_one_copy, test_one_domain_an_hour)
