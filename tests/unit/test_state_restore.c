// SPDX-License-Identifier: Apache-2.0
/* restore and maintenance: what a state that comes from a backup must not do again; servers that are away on purpose. */
#include <time.h>
#include "common/base/check.h"
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;

/* `seen`: restores that the disks know of. */
static int restored_after(uint32_t seen)
{
	b->cmd.type = STATE_CMD_RESTORED;
	memset(b->cmd.restored.salt, 7, STATE_SALT_BYTES);
	b->cmd.restored.seen = seen;
	return state_bed_run(b);
}

static void restored(void)
{
	ck_assert_int_eq(restored_after(0), 0);
}

/* What is derived is read again, as at a start. */
static void reopen(void)
{
	state_close(&b->s);
	ck_assert_int_eq(state_open(&b->s, b->kv), 0);
}

static int again(uint8_t uuid, uint32_t number, uint64_t generation)
{
	struct state_cmd_register *r = &b->cmd.register_;

	b->cmd.type = STATE_CMD_REGISTER;
	memset(r, 0, sizeof(*r));
	r->uuid.bytes[0] = uuid;
	r->name = slice_of(&"abcdefghijkl"[uuid], 1);
	r->address = slice_of("127.0.0.1:1", 11);
	r->domain = r->name;
	r->disk_count = 1;
	r->disks[0].uuid.bytes[0] = (uint8_t)(100 + uuid);
	r->disks[0].disk = number;
	r->disks[0].generation = generation;
	r->disks[0].capacity_bytes = 1ull << 40;
	r->disks[0].path = slice_of("/d", 2);
	return state_bed_run(b);
}

/* The disks of bed_disks hear of the restore. */
static void all_again(uint32_t disks)
{
	for (uint32_t i = 1; i <= disks; i++)
		ck_assert_int_eq(again((uint8_t)i, i, 1), 0);
}

/* As bed_block, with receipts of the generations that the disks have now. */
static void block_of_now(uint64_t block)
{
	struct state_commit_block *cb = bed_block(b, block, 0, STATE_BED_MIB);

	for (uint8_t i = 0; i < cb->receipt_count; i++)
		cb->receipts[i].generation = state_disk_at(&b->s, cb->receipts[i].disk)->generation;
}

START_TEST(test_ids_go_on_far_beyond)
{
	struct state_meta before;
	uint64_t first;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	before = b->s.meta;
	ck_assert_uint_eq(state_restore_incarnation(&b->s), 0);
	restored();
	for (int i = 0; i < 2; i++, reopen()) {
		ck_assert_uint_ge(b->s.meta.next_block, before.next_block + STATE_RESTORE_JUMP);
		ck_assert_uint_ge(b->s.meta.next_inode, before.next_inode + STATE_RESTORE_JUMP);
		ck_assert_uint_ge(b->s.meta.next_session, before.next_session + STATE_RESTORE_JUMP);
		ck_assert_uint_eq(b->s.meta.floor, before.floor);
		ck_assert(state_restore_closed(&b->s, first));
		ck_assert(state_restore_closed(&b->s, before.next_block + 5)); /* given by the metad that was lost */
		ck_assert(!state_restore_closed(&b->s, b->s.meta.next_block));
		ck_assert_uint_eq(state_restore_incarnation(&b->s), 1u << 24);
		ck_assert_uint_eq(b->s.meta.token_keys[0].id, before.token_keys[0].id + 1);
		ck_assert(state_restore_keys_old(&b->s));
	}
	b->time_ms += 30000;
	b->cmd.type = STATE_CMD_TOKEN_ROLL;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(!state_restore_keys_old(&b->s));
	state_bed_close(b);
}
END_TEST

static void pass_ms(uint64_t ms)
{
	b->time_ms += ms;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
}

static void open_write(const char *path)
{
	b->cmd.type = STATE_CMD_OPEN_WRITE;
	b->cmd.create = (struct state_cmd_create){.at = state_bed_path(path), .mode = 0644, .now_ns = ++b->now_ns};
	ck_assert_int_eq(state_bed_run(b), 0);
}

START_TEST(test_ids_of_the_unknown_time_are_closed)
{
	uint64_t inode, epoch, first;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	restored();
	open_write("f");
	epoch = b->res.epoch;
	for (uint64_t block = first; block < first + 2; block++) {
		bed_commit(b, inode, epoch, false, STATE_BED_MIB);
		bed_block(b, block + (block > first ? 1000 : 0), 0, STATE_BED_MIB);
		ck_assert_int_eq(state_bed_run(b), ERR_BLOCK_CLOSED);
	}
	first = bed_reserve(b, 100);
	bed_commit(b, inode, epoch, true, STATE_BED_MIB);
	block_of_now(first); /* on disks that do not know of the restore */
	ck_assert_int_eq(state_bed_run(b), ERR_TOO_FEW_CHUNKS);
	all_again(6);
	bed_commit(b, inode, epoch, true, STATE_BED_MIB);
	block_of_now(first);
	ck_assert_int_eq(state_bed_run(b), 0);
	state_bed_close(b);
}
END_TEST

static uint32_t orphan(uint64_t block)
{
	b->cmd.type = STATE_CMD_ORPHANS;
	b->cmd.copies.disk = 1;
	b->cmd.copies.generation = state_disk_at(&b->s, 1)->generation;
	b->cmd.copies.count = 1;
	b->cmd.copies.copies[0] = (struct state_copy){.block = block, .index = 2};
	ck_assert_int_eq(state_bed_run(b), 0);
	return b->res.count;
}

/* The lost metad may have given the next epochs away, and fenced the writer that the backup knows. */
START_TEST(test_epochs_of_the_unknown_time_are_fenced)
{
	uint64_t inode, epoch, first, new_epoch;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	restored();
	all_again(6);
	first = bed_reserve(b, 100);
	bed_commit(b, inode, epoch, false, STATE_BED_MIB);
	bed_block(b, first, 0, STATE_BED_MIB);
	ck_assert_int_eq(state_bed_run(b), ERR_FENCED);
	b->cmd.type = STATE_CMD_ABORT;
	b->cmd.abort = (struct state_cmd_abort){.inode = inode, .epoch = epoch};
	ck_assert_int_eq(state_bed_run(b), ERR_FENCED);
	open_write("f");
	new_epoch = b->res.epoch;
	ck_assert_uint_gt(new_epoch, epoch + UINT32_MAX);
	for (uint64_t given = epoch; given < epoch + 3; given++) {
		bed_commit(b, inode, given, false, STATE_BED_MIB);
		bed_block(b, first, 0, STATE_BED_MIB);
		ck_assert_int_eq(state_bed_run(b), ERR_FENCED);
	}
	bed_commit(b, inode, new_epoch, false, STATE_BED_MIB);
	block_of_now(first);
	ck_assert_int_eq(state_bed_run(b), 0);
	open_write("f");
	ck_assert_uint_eq(b->res.epoch, new_epoch + 1);
	ck_assert_int_eq(bed_create(b, "g", 0), 0);
	ck_assert_uint_gt(b->res.epoch, (uint64_t)UINT32_MAX);
	state_bed_close(b);
}
END_TEST

static uint64_t sessions_end(uint64_t session, int code)
{
	ck_assert_int_eq(bed_end_session(b, session), code);
	return bed_rows(b, STATE_TABLE_SESSION);
}

START_TEST(test_sessions_of_the_backup_are_lost)
{
	uint64_t week = config_settings[CONFIG_RESTORE_HOLD].default_, session, hidden;

	state_bed_open(b);
	session = bed_session(b);
	bed_as(b, session, 1, 1);
	ck_assert_int_eq(bed_create(b, "hidden", BED_HIDDEN), 0);
	hidden = b->res.attr.inode;
	bed_as(b, 0, 0, 0);
	restored();
	for (int i = 0; i < 2; i++, reopen()) {
		for (uint64_t seq = 1; seq < 3; seq++) {
			bed_as(b, session, seq, 1);
			ck_assert_int_eq(bed_mkdir(b, "d", false), ERR_SESSION_LOST);
			bed_as(b, 0, 0, 0);
		}
		ck_assert_ptr_null(state_session_at(&b->s, session));
		ck_assert_uint_eq(state_session_count(&b->s), 0);
		ck_assert_uint_eq(sessions_end(session, ERR_BUSY), 1); /* a newer backup may have the file complete */
	}
	ck_assert_uint_gt(bed_session(b), session);
	ck_assert_uint_eq(state_session_count(&b->s), 1);
	pass_ms(week + 1);
	ck_assert_uint_eq(sessions_end(session, 0), 1);
	ck_assert(bed_has_row(b, STATE_TABLE_GC, hidden));
	state_bed_close(b);
}
END_TEST

static int rebuild(uint64_t block)
{
	ck_assert_int_eq(state_block_get(&b->s, block, &b->block), 0);
	b->cmd.type = STATE_CMD_INTENT;
	b->cmd.intent = (struct state_cmd_intent){
		.block = block, .index = 0, .cause = STATE_CAUSE_LOST, .disk = 7, .version = b->block.version};
	return state_bed_run(b);
}

/* It may have been published since, and the old copy dropped: then its copy is the only one. */
START_TEST(test_intents_of_the_backup_drop_nothing)
{
	uint64_t inode, block;
	uint32_t incarnation[2];

	state_bed_open(b);
	bed_disks(b, 8, 1);
	block = bed_reserve(b, 100);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	inode = b->res.attr.inode;
	bed_commit(b, inode, b->res.epoch, true, STATE_BED_MIB);
	bed_block(b, block, 0, STATE_BED_MIB);
	ck_assert_int_eq(state_bed_run(b), 0);
	for (int i = 0; i < 2; i++) {
		if (i == 1) {
			ck_assert_int_eq(rebuild(block), ERR_NO_PLACEMENT); /* the disk does not know of the restore */
			all_again(8);
		}
		ck_assert_int_eq(rebuild(block), 0);
		incarnation[i] = b->res.incarnation;
		if (i == 0)
			restored();
		ck_assert(state_intent_lost(&b->s, state_intent_of(&b->s, block)) == (i == 0));
		b->cmd.type = STATE_CMD_INTENT_END;
		b->cmd.intent_end = (struct state_cmd_intent_end){.block = block, .incarnation = incarnation[i]};
		ck_assert_int_eq(state_bed_run(b), 0);
		ck_assert_ptr_null(state_intent_of(&b->s, block));
		ck_assert_uint_eq(bed_rows(b, STATE_TABLE_DROP), (uint64_t)i);
	}
	state_bed_close(b);
}
END_TEST

START_TEST(test_copies_are_kept_for_a_while)
{
	uint64_t week = config_settings[CONFIG_RESTORE_HOLD].default_, block;

	state_bed_open(b);
	bed_disks(b, 1, 1);
	block = bed_reserve(b, 100);
	pass_ms(STATE_FLOOR_DELAY_MS);
	ck_assert_uint_gt(b->s.meta.floor, block);
	ck_assert_uint_eq(state_restore_hold_ms(&b->s), 0);
	restored();
	bed_reserve(b, 100);
	pass_ms(STATE_FLOOR_DELAY_MS);
	ck_assert_uint_gt(b->s.meta.floor, STATE_RESTORE_JUMP); /* all of the unknown time lies below it */
	ck_assert_uint_eq(orphan(block), 0);
	ck_assert_uint_eq(orphan(block + 1000000), 0);
	pass_ms(week - STATE_FLOOR_DELAY_MS - 1000);
	ck_assert_uint_eq(orphan(block), 0);
	pass_ms(2000);
	ck_assert_uint_eq(state_restore_hold_ms(&b->s), 0);
	ck_assert_uint_eq(orphan(block), 1);
	ck_assert(state_restore_closed(&b->s, block + 1000000)); /* that stays */
	state_bed_close(b);
}
END_TEST

START_TEST(test_disks_of_the_unknown_time)
{
	state_bed_open(b);
	ck_assert_int_eq(again(1, 0, 0), 0);
	ck_assert_int_eq(again(1, 1, 5), ERR_GENERATION); /* from the future: there is none */
	ck_assert_int_eq(again(2, 9, 5), ERR_WRONG_CLUSTER);
	restored();
	ck_assert_int_eq(again(1, 1, 5), 0); /* given since */
	ck_assert_uint_eq(b->res.disks[0].generation, (1ull << 32) + 1);
	ck_assert_int_eq(again(2, 9, 5), 0); /* registered since, as another number */
	ck_assert_uint_eq(b->res.disks[0].disk, 2);
	ck_assert_uint_gt(b->res.disks[0].generation, 5);
	ck_assert_int_eq(again(2, 9, 5), 0); /* it did not get the answer */
	/* from here on as ever */
	b->cmd.type = STATE_CMD_CONFIRM;
	b->cmd.confirm = (struct state_cmd_confirm){.disk = 1, .generation = (1ull << 32) + 1};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(again(1, 1, 5), ERR_GENERATION);
	ck_assert_int_eq(again(1, 1, (1ull << 32) + 2), ERR_GENERATION);
	ck_assert_int_eq(again(1, 1, (1ull << 32) + 1), 0);
	/* and again */
	restored();
	ck_assert_int_eq(again(1, 1, (1ull << 32) + 90), 0);
	ck_assert_uint_eq(b->res.disks[0].generation, (2ull << 32) + 1);
	state_bed_close(b);
}
END_TEST

START_TEST(test_not_for_ever)
{
	state_bed_open(b);
	for (int i = 0; i < STATE_RESTORES; i++)
		restored();
	ck_assert_uint_eq(state_restore_incarnation(&b->s), 255u << 24);
	ck_assert_int_eq(restored_after(0), ERR_RANGE);
	state_bed_close(b);
	state_bed_open(b);
	ck_assert_int_eq(restored_after(255), ERR_RANGE);
	ck_assert_int_eq(restored_after(254), 0);
	ck_assert_int_eq(restored_after(0), ERR_RANGE);
	state_bed_close(b);
}
END_TEST

struct given {
	uint64_t block, inode, session, epoch;
};

/* A state of some time, restored: what it gives away then. */
static void from_backup(uint32_t blocks, uint32_t seen, struct given *ret_given)
{
	state_bed_open(b);
	ck_assert_int_eq(again(1, 0, 0), 0);
	bed_reserve(b, blocks);
	ck_assert_int_eq(restored_after(seen), 0);
	ret_given->block = bed_reserve(b, 10000);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	ret_given->inode = b->res.attr.inode;
	ret_given->epoch = b->res.epoch;
	ret_given->session = bed_session(b);
}

/* Of two backups neither knows that the other one was restored; a disk does. */
START_TEST(test_sibling_of_a_restore)
{
	uint64_t first_restore = (1ull << 32) + 1;
	struct given one, two;

	from_backup(100, 0, &one);
	ck_assert_int_eq(again(1, 1, 1), 0);
	ck_assert_uint_eq(b->res.disks[0].generation, first_restore);
	state_bed_close(b);
	from_backup(200, 0, &two); /* they would meet: no disk of then is taken in, known here or not */
	ck_assert_uint_lt(two.block, one.block + 10000);
	ck_assert_int_eq(again(1, 1, first_restore), ERR_GENERATION);
	ck_assert_int_eq(again(2, 9, first_restore), ERR_GENERATION);
	state_bed_close(b);
	from_backup(200, 1, &two);
	ck_assert_uint_ge(two.block, one.block + STATE_RESTORE_JUMP);
	ck_assert_uint_ge(two.inode, one.inode + STATE_RESTORE_JUMP);
	ck_assert_uint_ge(two.session, one.session + STATE_RESTORE_JUMP);
	ck_assert_uint_gt(two.epoch, one.epoch + UINT32_MAX);
	ck_assert_uint_eq(state_restore_incarnation(&b->s), 2u << 24);
	ck_assert(state_restore_closed(&b->s, one.block));
	ck_assert(state_restore_lost(&b->s, one.session));
	ck_assert(!state_restore_lost(&b->s, two.session));
	ck_assert_int_eq(again(1, 1, first_restore), 0);
	ck_assert_uint_eq(b->res.disks[0].generation, (2ull << 32) + 1);
	ck_assert_int_eq(again(2, 9, first_restore), 0);
	state_bed_close(b);
}
END_TEST

static int maintenance(uint32_t server, uint64_t for_ms)
{
	b->cmd.type = STATE_CMD_MAINTENANCE;
	b->cmd.maintenance = (struct state_cmd_maintenance){.server = server, .for_ms = for_ms};
	return state_bed_run(b);
}

static void down(uint32_t server)
{
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = server;
	ck_assert_int_eq(state_bed_run(b), 0);
}

START_TEST(test_maintenance)
{
	state_bed_open(b);
	bed_disks(b, 6, 2); /* three racks of two */
	ck_assert_int_eq(maintenance(7, 1000), ERR_NOENT);
	ck_assert_int_eq(maintenance(1, STATE_MAINTENANCE_MAX_MS + 1ull), ERR_RANGE);
	ck_assert_int_eq(maintenance(1, 60000), 0);
	ck_assert(state_in_maintenance(&b->s, 1));
	ck_assert(state_disk_counts(&b->s, 1)); /* it is there still */
	reopen();
	ck_assert(state_in_maintenance(&b->s, 1));
	ck_assert_int_eq(maintenance(2, 60000), 0); /* the same rack */
	ck_assert_int_eq(maintenance(3, 60000), ERR_BUSY);
	ck_assert_uint_eq(b->res.server, 1);
	ck_assert(!state_in_maintenance(&b->s, 3));
	ck_assert_int_eq(maintenance(1, 0), 0);
	ck_assert_int_eq(maintenance(3, 60000), ERR_BUSY);
	ck_assert_int_eq(maintenance(2, 0), 0);
	ck_assert_int_eq(maintenance(3, 60000), 0);
	/* its end comes by itself */
	b->time_ms += 61000;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(!state_in_maintenance(&b->s, 3));
	ck_assert_int_eq(maintenance(1, 60000), 0);
	/* a registration does not end it */
	ck_assert_int_eq(state_server_at(&b->s, 1)->up, true);
	state_bed_close(b);
}
END_TEST

START_TEST(test_maintenance_ends_with_a_restore)
{
	state_bed_open(b);
	bed_disks(b, 6, 2);
	ck_assert_int_eq(maintenance(1, 60000), 0);
	restored();
	for (int i = 0; i < 2; i++, reopen()) {
		ck_assert(!state_in_maintenance(&b->s, 1));
		ck_assert_int_eq(maintenance(3, 60000), 0); /* another rack */
		ck_assert(state_in_maintenance(&b->s, 3));
	}
	ck_assert(state_in_maintenance(&b->s, 3));
	ck_assert_int_eq(maintenance(3, 0), 0);
	state_bed_close(b);
}
END_TEST

/* A server that is down counts as away as long as it holds blocks. */
START_TEST(test_maintenance_beside_one_that_is_down)
{
	uint64_t inode, epoch, block;

	state_bed_open(b);
	bed_disks(b, 7, 1);
	block = bed_reserve(b, 100);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	bed_commit(b, inode, epoch, true, STATE_BED_MIB);
	bed_block(b, block, 0, STATE_BED_MIB);
	ck_assert_int_eq(state_bed_run(b), 0);
	down(7); /* holds nothing */
	ck_assert_int_eq(maintenance(1, 60000), 0);
	ck_assert_int_eq(maintenance(1, 0), 0);
	down(5); /* parity of the block */
	ck_assert_int_eq(maintenance(1, 60000), ERR_BUSY);
	ck_assert_uint_eq(b->res.server, 5);
	ck_assert_int_eq(maintenance(5, 60000), 0); /* itself: it is known why now */
	state_bed_close(b);
}
END_TEST

static uint64_t cpu_ns(void)
{
	struct timespec t;

	ck_assert_int_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The CPU time of one, beside so many servers that are down and hold nothing. */
static uint64_t maintenance_ns(uint32_t from, uint32_t to)
{
	uint64_t took;

	for (uint32_t id = from; id <= to; id++)
		down(id);
	took = cpu_ns();
	ck_assert_int_eq(maintenance(1, 60000), 0);
	took = cpu_ns() - took;
	ck_assert_int_eq(maintenance(1, 0), 0);
	return took;
}

/* The blocks that are not in the index yet are looked at once, however many servers are down. */
START_TEST(test_maintenance_beside_many_that_are_down)
{
	enum { BLOCKS = 2000, SERVERS = 120, OF_BLOCKS = 6 };
	uint64_t inode, epoch, block, one, all;

	state_bed_open(b);
	bed_disks(b, SERVERS, 1);
	block = bed_reserve(b, BLOCKS);
	ck_assert_int_eq(bed_create(b, "f", 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	for (uint64_t i = 0; i < BLOCKS; i++) {
		bed_commit(b, inode, epoch, false, 0);
		bed_block(b, block + i, i * STATE_BED_MIB, STATE_BED_MIB);
		ck_assert_int_eq(state_bed_run(b), 0);
	}
	one = maintenance_ns(OF_BLOCKS + 1, OF_BLOCKS + 1);
	all = maintenance_ns(OF_BLOCKS + 2, SERVERS);
	ck_assert_msg(all < 20 * one, "one took %lu ns, %d took %lu", one, SERVERS - OF_BLOCKS, all);
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_restore", test_ids_go_on_far_beyond, test_ids_of_the_unknown_time_are_closed,
	test_epochs_of_the_unknown_time_are_fenced, test_sessions_of_the_backup_are_lost,
	test_intents_of_the_backup_drop_nothing, test_copies_are_kept_for_a_while, test_disks_of_the_unknown_time,
	test_not_for_ever, test_sibling_of_a_restore, test_maintenance, test_maintenance_ends_with_a_restore,
	test_maintenance_beside_one_that_is_down, test_maintenance_beside_many_that_are_down)
