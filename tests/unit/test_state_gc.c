/* SPDX-License-Identifier: Apache-2.0 */
/* gc: files without a name come apart in bounded steps; copies leave by drop rows; orphans only below the floor. */
#include "metad/plan/gc.h"
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

enum { BLOCK_BYTES = 16 * STATE_BED_MIB };

static int run_gc_alone(struct state_bed *b, uint8_t table, uint64_t from, uint64_t before_ms)
{
	b->cmd.type = STATE_CMD_GC;
	b->cmd.gc = (struct state_cmd_gc){.table = table, .from = from, .before_ms = before_ms};
	return state_bed_run(b);
}

static int run_gc(struct state_bed *b, uint8_t table, uint64_t from, uint64_t before_ms)
{
	bed_release(b);
	return run_gc_alone(b, table, from, before_ms);
}

static int run_copies(struct state_bed *b, uint16_t type, uint32_t disk, uint64_t generation, struct state_copy copy)
{
	b->cmd.type = type;
	b->cmd.copies.disk = disk;
	b->cmd.copies.generation = generation;
	b->cmd.copies.count = 1;
	b->cmd.copies.copies[0] = copy;
	return state_bed_run(b);
}

/* Returns the first of the block ids. */
static uint64_t begin(struct state_bed *b, uint32_t disks, uint64_t ids)
{
	state_bed_open(b);
	bed_disks(b, disks, 1);
	return bed_reserve(b, ids);
}

/* Each of the disks 1 to 6 has dropped its copy of the block. */
static void drop_all(struct state_bed *b, uint64_t block)
{
	for (uint32_t disk = 1; disk <= 6; disk++)
		ck_assert_int_eq(run_copies(b, STATE_CMD_DROPPED, disk, 1,
					 (struct state_copy){.block = block, .index = (uint8_t)(disk - 1)}),
			0);
}

/* A file of `blocks` whole blocks, from block id `first` on. */
static uint64_t make_file(struct state_bed *b, const char *path, uint64_t first, uint32_t blocks)
{
	uint64_t inode, epoch;

	ck_assert_int_eq(bed_create(b, path, 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	for (uint32_t at = 0; at < blocks;) {
		uint32_t n = blocks - at < 20 ? blocks - at : 20;

		bed_commit(b, inode, epoch, at + n == blocks, (uint64_t)blocks * BLOCK_BYTES);
		for (uint32_t i = 0; i < n; i++, at++)
			bed_block(b, first + at, (uint64_t)at * BLOCK_BYTES, BLOCK_BYTES);
		ck_assert_int_eq(state_bed_run(b), 0);
	}
	return inode;
}

/* All ids given so far are closed. */
static void pass_floor(struct state_bed *b)
{
	b->time_ms += STATE_FLOOR_DELAY_MS;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
}

static uint32_t drops_of(struct state_bed *b, uint32_t disk)
{
	struct state_copy from = {0};
	struct state_drop_list list;
	uint32_t n = 0;

	for (int code = state_drop_begin(&b->s, disk, &from, &list); !code; code = state_drop_next(&b->s, &list))
		n++;
	state_drop_end(&list);
	return n;
}

static uint64_t rows_of(struct state_bed *b, enum state_table table)
{
	struct state_key key;
	struct kv_scan scan;
	uint64_t n = 0;

	state_key_table(&key, table);
	for (kv_seek(b->kv, &scan, state_key_slice(&key)); kv_scan_valid(&scan) && scan.key.data[0] == table;
		kv_scan_next(&scan))
		n++;
	kv_scan_end(&scan);
	return n;
}

START_TEST(removed_file_leaves_by_drop_rows)
{
	const uint64_t chunk = 4 * STATE_BED_MIB;
	struct state_bed b;
	uint64_t first, inode;

	first = begin(&b, 6, 100);
	inode = make_file(&b, "f", first, 3);
	b.time_ms = 5000;
	ck_assert_int_eq(bed_remove(&b, "f", false), 0);
	ck_assert_uint_eq(b.s.meta.pending_bytes, 3 * 6 * chunk);
	state_bed_settle(b.kv);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_DISK_BLOCK), 18);

	/* younger than asked for: it stays, and can be read */
	ck_assert_int_eq(run_gc(&b, STATE_TABLE_GC, 0, 4999), 0);
	ck_assert_int_eq(state_inode_get(&b.s, inode, &b.inode), 0);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_BLOCK), 3);

	b.time_ms = 9000;
	ck_assert_int_eq(run_gc(&b, STATE_TABLE_GC, 0, 5000), 0);
	ck_assert_int_eq(state_inode_get(&b.s, inode, &b.inode), ERR_NOENT);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_BLOCK), 0);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_EXTENT), 0);
	ck_assert_uint_eq(bed_reverse_all(&b), 0);
	state_bed_settle(b.kv);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_DISK_BLOCK), 0);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_GC), 0);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_DROP), 18);
	ck_assert_uint_eq(b.s.meta.pending_bytes, 3 * 6 * chunk);

	for (uint32_t disk = 1; disk <= 6; disk++) {
		ck_assert_uint_eq(drops_of(&b, disk), 3);
		for (uint32_t i = 0; i < 3; i++) {
			struct state_copy copy = {.block = first + i, .index = (uint8_t)(disk - 1)}, other = copy;
			struct state_drop drop;

			ck_assert_int_eq(state_drop_get(&b.s, disk, &copy, &drop), 0);
			ck_assert_uint_eq(drop.time_ms, 9000);
			ck_assert_uint_eq(drop.bytes, chunk);
			/* of another incarnation, or by a disk in another generation: nothing is gone */
			other.incarnation = 1;
			ck_assert_int_eq(run_copies(&b, STATE_CMD_DROPPED, disk, 1, other), 0);
			ck_assert_int_eq(run_copies(&b, STATE_CMD_DROPPED, disk, 2, copy), ERR_GENERATION);
			ck_assert_int_eq(state_drop_get(&b.s, disk, &copy, &drop), 0);
			ck_assert_int_eq(run_copies(&b, STATE_CMD_DROPPED, disk, 1, copy), 0);
			ck_assert_uint_eq(b.res.count, 1);
			ck_assert_int_eq(run_copies(&b, STATE_CMD_DROPPED, disk, 1, copy), 0);
			ck_assert_uint_eq(b.res.count, 0);
		}
	}
	ck_assert_uint_eq(b.s.meta.pending_bytes, 0);
	state_bed_close(&b);
}
END_TEST

START_TEST(steps_are_bounded)
{
	struct state_bed b;
	uint64_t first, large, from = 0, before, steps = 0;

	first = begin(&b, 6, 1000);
	large = make_file(&b, "large", first, 300);
	for (uint32_t i = 0; i < 50; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		make_file(&b, name, first + 300 + i, 1);
		ck_assert_int_eq(bed_remove(&b, name, false), 0);
	}
	ck_assert_int_eq(bed_remove(&b, "large", false), 0);
	before = b.s.meta.pending_bytes;
	do {
		uint64_t blocks = rows_of(&b, STATE_TABLE_BLOCK);

		ck_assert_int_eq(run_gc(&b, STATE_TABLE_GC, from, b.time_ms), 0);
		/* a block of 6 chunks counts as 15 rows with its extent, reverse index and drop rows */
		ck_assert_uint_le((blocks - rows_of(&b, STATE_TABLE_BLOCK)) * 14, STATE_COMMAND_ROWS);
		ck_assert_uint_eq(b.s.meta.pending_bytes, before);
		from = b.res.next;
		/* what is left of it can be told from a file that lacks nothing */
		if (state_inode_get(&b.s, large, &b.inode) == 0 && steps > 0)
			ck_assert(b.inode.flags & STATE_INODE_GOING);
		ck_assert_uint_lt(++steps, 20);
	} while (rows_of(&b, STATE_TABLE_GC));
	ck_assert_uint_ge(steps, 5);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_BLOCK), 0);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_DROP), 350 * 6);
	state_bed_close(&b);
}
END_TEST

/* However many there are: as long as a file's row says that it has a tail, it has one. */
START_TEST(tails_go_with_their_files)
{
	struct state_bed b;
	struct slice tail;
	uint64_t left = 250, step = 0;

	state_bed_open(&b);
	for (uint64_t i = 0; i < left; i++) {
		char name[16];
		uint64_t inode;

		snprintf(name, sizeof(name), "f%u", (unsigned)i);
		ck_assert_int_eq(bed_create(&b, name, 0), 0);
		inode = b.res.attr.inode;
		bed_commit(&b, inode, b.res.epoch, true, 3);
		b.cmd.type = STATE_CMD_COMMIT_TAIL;
		b.cmd.commit.tail_offset = 0;
		b.cmd.commit.tail = slice_of("abc", 3);
		ck_assert_int_eq(state_bed_run(&b), 0);
		ck_assert_int_eq(bed_remove(&b, name, false), 0);
	}
	for (uint64_t from = 0; left; from = b.res.next) {
		ck_assert_int_eq(run_gc(&b, STATE_TABLE_GC, from, b.time_ms), 0);
		left = rows_of(&b, STATE_TABLE_GC);
		ck_assert_uint_eq(rows_of(&b, STATE_TABLE_TAIL), left);
		for (uint64_t id = b.res.next; left && id < b.res.next + left; id++)
			if (state_inode_get(&b.s, id, &b.inode) == 0)
				ck_assert_int_eq(state_tail_get(&b.s, &b.inode, &tail), 0);
		ck_assert_uint_lt(++step, 10);
	}
	ck_assert_uint_gt(step, 1);
	state_bed_close(&b);
}
END_TEST

static void remove_files(struct state_bed *b, int count)
{
	char name[16];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(bed_create(b, name, 0), 0);
		ck_assert_int_eq(bed_remove(b, name, false), 0);
		if ((i + 1) % (STATE_RELEASE_MAX / 2) == 0 || i + 1 == count)
			bed_release(b);
	}
}

/*
 * What is looked for in a range that is empty is not looked for in what follows it, where all that went since the last commit is in the way: of some hundred
 * thousand files each would take longer than the one before, and metads stood still for seconds.
 */
START_TEST(many_files_are_linear)
{
	enum { FILES = 1000 };
	struct state_bed b;
	uint64_t passed = 0, before, from = 0;

	state_bed_open(&b);
	remove_files(&b, FILES);
	while (rows_of(&b, STATE_TABLE_GC)) {
		before = bed_passed_rows(&b);
		ck_assert_int_eq(run_gc_alone(&b, STATE_TABLE_GC, from, b.time_ms), 0);
		passed += bed_passed_rows(&b) - before;
		from = b.res.next;
	}
	ck_assert_uint_le(passed, FILES);
	state_bed_close(&b);
}
END_TEST

/* What the plan of garbage does at this time, to its end; the number of its commands. */
static uint32_t run_plan(struct state_bed *b)
{
	struct plan_facts facts = {.state = &b->s, .now_ms = b->time_ms};
	enum plan_next next = PLAN_GO_ON;
	struct plan_gc gc;
	uint32_t n = 0;

	plan_gc_init(&gc);
	while (next != PLAN_REST) {
		next = gc.plan.step(&gc.plan, &facts, &b->cmd);
		if (next != PLAN_COMMAND)
			continue;
		gc.plan.done(&gc.plan, state_bed_run(b), &b->res);
		ck_assert_uint_lt(++n, 100);
	}
	return n;
}

/* To its rest, while it names no command; returns how many steps that takes. */
static uint32_t rest_plan(struct state_bed *b, struct plan_gc *gc)
{
	struct plan_facts facts = {.state = &b->s, .now_ms = b->time_ms};
	uint32_t n = 1;

	for (enum plan_next next; (next = gc->plan.step(&gc->plan, &facts, &b->cmd)) != PLAN_REST; n++)
		ck_assert_int_eq(next, PLAN_GO_ON);
	return n;
}

/* Thousands of files that wait to be garbage are not looked through four times a second, and leave when they are due. */
START_TEST(what_is_not_due_is_not_looked_at)
{
	enum { FILES = 2500, TABLES_STEPS = PLAN_GC_TABLES, LOOK_STEPS = FILES / STATE_COMMAND_ROWS };
	struct state_bed b;
	struct plan_gc gc;

	state_bed_open(&b);
	b.time_ms = 1000 * 1000;
	remove_files(&b, FILES);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_GC), FILES);
	plan_gc_init(&gc);
	ck_assert_uint_eq(rest_plan(&b, &gc), TABLES_STEPS + LOOK_STEPS);
	for (int i = 0; i < 19; i++) {
		b.time_ms += PLAN_REST_MS;
		ck_assert_uint_eq(rest_plan(&b, &gc), TABLES_STEPS);
	}
	b.time_ms += PLAN_REST_MS;
	ck_assert_uint_eq(rest_plan(&b, &gc), TABLES_STEPS + LOOK_STEPS); /* some may have come that lost their names long ago */
	plan_gc_hurry(&gc, b.time_ms);
	ck_assert_int_eq(gc.plan.step(&gc.plan, &(struct plan_facts){.state = &b.s, .now_ms = b.time_ms}, &b.cmd), PLAN_COMMAND);
	plan_gc_init(&gc);
	b.time_ms = 1000 * 1000 + STATE_GC_READ_MS - 1;
	ck_assert_uint_eq(rest_plan(&b, &gc), TABLES_STEPS + LOOK_STEPS);
	b.time_ms++; /* it knows when the first one is due */
	ck_assert_int_eq(gc.plan.step(&gc.plan, &(struct plan_facts){.state = &b.s, .now_ms = b.time_ms}, &b.cmd), PLAN_COMMAND);
	state_bed_close(&b);
}
END_TEST

/* A look at a short table costs nothing: what comes is found with the next one, also if it is old then. */
START_TEST(what_is_released_late_goes_at_once)
{
	struct state_bed b;
	struct plan_gc gc;

	state_bed_open(&b);
	b.time_ms = 1000 * 1000;
	ck_assert_int_eq(bed_create(&b, "f", 0), 0);
	ck_assert_int_eq(bed_remove(&b, "f", false), 0);
	b.time_ms += STATE_GC_READ_MS;
	plan_gc_init(&gc);
	ck_assert_uint_eq(rest_plan(&b, &gc), PLAN_GC_TABLES);
	bed_release(&b);
	b.time_ms += PLAN_REST_MS;
	ck_assert_int_eq(gc.plan.step(&gc.plan, &(struct plan_facts){.state = &b.s, .now_ms = b.time_ms}, &b.cmd), PLAN_COMMAND);
	state_bed_close(&b);
}
END_TEST

START_TEST(a_block_never_comes_back)
{
	struct state_bed b;
	uint64_t first, inode;

	first = begin(&b, 6, 100);
	make_file(&b, "f", first, 1);
	ck_assert_int_eq(bed_remove(&b, "f", false), 0);
	ck_assert_int_eq(run_gc(&b, STATE_TABLE_GC, 0, b.time_ms), 0);
	ck_assert_int_eq(bed_create(&b, "g", 0), 0);
	inode = b.res.attr.inode;
	bed_commit(&b, inode, b.res.epoch, true, BLOCK_BYTES);
	bed_block(&b, first, 0, BLOCK_BYTES);
	ck_assert_int_eq(state_bed_run(&b), ERR_BLOCK_CLOSED);
	ck_assert_int_eq(b.res.blocks[0].status, ERR_BLOCK_CLOSED);
	/* nor when the drop rows are worked off: the receipts are good, the copies are not there */
	drop_all(&b, first);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_DROP), 0);
	for (int i = 0; i < 3; i++) {
		bed_commit(&b, inode, 1, true, BLOCK_BYTES);
		bed_block(&b, first, 0, BLOCK_BYTES);
		ck_assert_int_eq(state_bed_run(&b), ERR_BLOCK_CLOSED);
		run_plan(&b);
		ck_assert_uint_eq(rows_of(&b, STATE_TABLE_BLOCK_GONE), i < 2);
		if (i == 1)
			pass_floor(&b); /* which says it from here on */
		if (i == 1)
			run_plan(&b);
		state_close(&b.s);
		ck_assert_int_eq(state_open(&b.s, b.kv), 0);
	}
	/* its neighbour has nothing to do with it */
	bed_reserve(&b, 100);
	bed_commit(&b, inode, 1, true, BLOCK_BYTES);
	bed_block(&b, first + 101, 0, BLOCK_BYTES);
	ck_assert_int_eq(state_bed_run(&b), 0);
	state_bed_close(&b);
}
END_TEST

START_TEST(orphans_only_below_the_floor_and_unnamed)
{
	struct state_bed b;
	uint64_t first;

	first = begin(&b, 7, 100);
	ck_assert_int_eq(bed_create(&b, "f", 0), 0);
	bed_commit(&b, b.res.attr.inode, b.res.epoch, true, BLOCK_BYTES);
	bed_drop_receipt(bed_block(&b, first, 0, BLOCK_BYTES), 5); /* promised to disk 6, not there */
	ck_assert_int_eq(state_bed_run(&b), 0);

	/* above the floor: anything may still be committed */
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 7, 1, (struct state_copy){.block = first + 1}), 0);
	ck_assert_uint_eq(b.res.count, 0);
	ck_assert_uint_eq(drops_of(&b, 7), 0);
	pass_floor(&b);

	/* named, there or promised */
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 1, 1, (struct state_copy){.block = first}), 0);
	ck_assert_uint_eq(b.res.count, 0);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 6, 1, (struct state_copy){.block = first, .index = 5}), 0);
	ck_assert_uint_eq(b.res.count, 0);
	/* another incarnation, another index, another disk, a block without a row */
	ck_assert_int_eq(
		run_copies(&b, STATE_CMD_ORPHANS, 1, 1, (struct state_copy){.block = first, .incarnation = 1}), 0);
	ck_assert_uint_eq(b.res.count, 1);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 1, 1, (struct state_copy){.block = first, .index = 2}), 0);
	ck_assert_uint_eq(b.res.count, 1);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 7, 1, (struct state_copy){.block = first}), 0);
	ck_assert_uint_eq(b.res.count, 1);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 7, 1, (struct state_copy){.block = first + 1}), 0);
	ck_assert_uint_eq(b.res.count, 1);
	/* once is enough; an older generation has no say */
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 7, 1, (struct state_copy){.block = first + 1}), 0);
	ck_assert_uint_eq(b.res.count, 0);
	ck_assert_int_eq(
		run_copies(&b, STATE_CMD_ORPHANS, 7, 2, (struct state_copy){.block = first + 2}), ERR_GENERATION);
	ck_assert_uint_eq(drops_of(&b, 1), 2);
	ck_assert_uint_eq(drops_of(&b, 7), 2);
	ck_assert_uint_eq(b.s.meta.pending_bytes, 0);
	state_bed_close(&b);
}
END_TEST

START_TEST(missing_copies_stop_counting)
{
	struct state_bed b;
	uint64_t first;

	first = begin(&b, 6, 100);
	make_file(&b, "f", first, 1);
	/* above the floor no inventory is believed: its disk may have been listed before the copy came */
	ck_assert_int_eq(run_copies(&b, STATE_CMD_MISSING, 3, 1, (struct state_copy){.block = first, .index = 2}), 0);
	ck_assert_uint_eq(b.res.count, 0);
	pass_floor(&b);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_MISSING, 3, 1, (struct state_copy){.block = first, .index = 2}), 0);
	ck_assert_uint_eq(b.res.count, 1);
	ck_assert_int_eq(state_block_get(&b.s, first, &b.block), 0);
	ck_assert(!b.block.chunks[2].present && b.block.chunks[1].present);
	ck_assert_uint_eq(b.block.version, 2);
	ck_assert_uint_eq(bed_reverse_all(&b), 5);
	ck_assert_uint_eq(bed_reverse(&b, 3, first, first + 1), 0);
	/* not named by this disk, or not there already: no change */
	ck_assert_int_eq(run_copies(&b, STATE_CMD_MISSING, 3, 1, (struct state_copy){.block = first, .index = 2}), 0);
	ck_assert_uint_eq(b.res.count, 0);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_MISSING, 3, 1, (struct state_copy){.block = first, .index = 1}), 0);
	ck_assert_uint_eq(b.res.count, 0);
	ck_assert_int_eq(
		run_copies(&b, STATE_CMD_MISSING, 2, 1, (struct state_copy){.block = first, .index = 1, .incarnation = 4}),
		0);
	ck_assert_uint_eq(b.res.count, 0);
	/* what its file had counted is pending until the file is gone, and not for ever */
	ck_assert_int_eq(bed_remove(&b, "f", false), 0);
	ck_assert_int_eq(run_gc(&b, STATE_TABLE_GC, 0, b.time_ms), 0);
	ck_assert_uint_eq(rows_of(&b, STATE_TABLE_DROP), 5);
	drop_all(&b, first);
	ck_assert_uint_eq(b.s.meta.pending_bytes, 0);
	state_bed_close(&b);
}
END_TEST

/* A chunk that was missing and is made anew counts once; one of a block that nobody names any more counts nowhere. */
START_TEST(raw_bytes_are_of_what_is_there)
{
	struct state_cmd_sealed sealed;
	struct state_bed b;
	uint64_t first, raw;

	first = begin(&b, 7, 100);
	make_file(&b, "f", first, 2);
	ck_assert_int_gt(bed_lookup(&b, "f"), 0);
	raw = b.inode.raw_bytes;
	pass_floor(&b);
	for (uint64_t block = first; block < first + 2; block++) {
		ck_assert_int_eq(
			run_copies(&b, STATE_CMD_MISSING, 3, 1, (struct state_copy){.block = block, .index = 2}), 0);
		ck_assert_int_gt(bed_lookup(&b, "f"), 0);
		ck_assert_uint_eq(b.inode.raw_bytes, raw - 4 * STATE_BED_MIB);
		b.cmd.type = STATE_CMD_INTENT;
		b.cmd.intent = (struct state_cmd_intent){
			.block = block, .index = 2, .cause = STATE_CAUSE_MISSING, .disk = 7, .version = 2};
		ck_assert_int_eq(state_bed_run(&b), 0);
		sealed = (struct state_cmd_sealed){.block = block,
			.version = 2,
			.crc = (uint32_t)(block * 100 + 2),
			.receipt = {.index = 2, .disk = 7, .incarnation = b.res.incarnation, .generation = 1}};
		if (block > first) { /* the file lets go of the block meanwhile */
			b.cmd.type = STATE_CMD_TRUNCATE;
			b.cmd.truncate = (struct state_cmd_truncate){.at = state_bed_path("f"), .size = BLOCK_BYTES};
			ck_assert_int_eq(state_bed_run(&b), 0);
			raw /= 2;
		}
		b.cmd.type = STATE_CMD_LOCATION;
		b.cmd.sealed = sealed;
		ck_assert_int_eq(state_bed_run(&b), 0);
		ck_assert_int_gt(bed_lookup(&b, "f"), 0);
		ck_assert_uint_eq(b.inode.raw_bytes, raw);
	}
	state_bed_close(&b);
}
END_TEST

/* ---- a disk that does not come back ---- */

START_TEST(drop_rows_of_a_lost_disk_do_not_stay)
{
	enum { LOST = STATE_FORGET_DROPS + 90 };
	struct state_bed b;
	uint64_t first, pending;

	first = begin(&b, 7, LOST);
	make_file(&b, "f", first, LOST);
	pass_floor(&b);
	first = bed_reserve(&b, 10);
	make_file(&b, "g", first, 1);
	ck_assert_int_eq(bed_remove(&b, "f", false), 0);
	ck_assert_int_eq(bed_remove(&b, "g", false), 0);
	bed_release(&b);
	b.time_ms += STATE_GC_READ_MS;
	run_plan(&b);
	ck_assert_uint_eq(drops_of(&b, 3), LOST + 1);
	pending = b.s.meta.pending_bytes;
	b.cmd.type = STATE_CMD_SERVER_DOWN;
	b.cmd.server_down.server = 3;
	ck_assert_int_eq(state_bed_run(&b), 0);
	b.cmd.type = STATE_CMD_TAKE_OUT;
	b.cmd.take_out.disk = 3;
	ck_assert_int_eq(state_bed_run(&b), 0);
	b.time_ms += STATE_DROPS_KEPT_MS - 1;
	ck_assert_uint_eq(run_plan(&b), 0); /* it may come back yet */
	b.cmd.type = STATE_CMD_FORGET_DROPS;
	b.cmd.forget_drops = (struct state_cmd_forget_drops){.disk = 3};
	ck_assert_int_eq(state_bed_run(&b), ERR_STALE);
	b.cmd.forget_drops.disk = 99;
	ck_assert_int_eq(state_bed_run(&b), ERR_NOENT);
	b.time_ms++;
	b.cmd.type = STATE_CMD_TOKEN_ROLL; /* any command: time goes on; a tick would move the floor */
	ck_assert_int_eq(state_bed_run(&b), 0);
	ck_assert_uint_eq(run_plan(&b), 2);
	ck_assert_uint_eq(drops_of(&b, 3), 1); /* above the floor a receipt could still count, if it came back */
	ck_assert_uint_eq(drops_of(&b, 4), LOST + 1);
	ck_assert_uint_eq(b.s.meta.pending_bytes, pending - LOST * 4ull * STATE_BED_MIB);
	pass_floor(&b);
	ck_assert_uint_eq(run_plan(&b), 2); /* and what says that the block is gone */
	ck_assert_uint_eq(drops_of(&b, 3), 0);
	/* it comes back: what lies on it is an orphan */
	b.cmd.type = STATE_CMD_REGISTER;
	memset(&b.cmd.register_, 0, sizeof(b.cmd.register_));
	b.cmd.register_.uuid.bytes[0] = 3;
	b.cmd.register_.name = b.cmd.register_.domain = slice_of("chunkd-3", 8);
	b.cmd.register_.address = slice_of("127.0.0.1:1", 11);
	b.cmd.register_.disk_count = 1;
	b.cmd.register_.disks[0] = (struct state_register_disk){.uuid.bytes[0] = 103,
		.disk = 3,
		.generation = 1,
		.capacity_bytes = 1ull << 40,
		.path = slice_of("/d", 2)};
	ck_assert_int_eq(state_bed_run(&b), 0);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_ORPHANS, 3, 2, (struct state_copy){.block = first, .index = 2}), 0);
	ck_assert_uint_eq(b.res.count, 1);
	b.time_ms += STATE_DROPS_KEPT_MS;
	ck_assert_uint_eq(run_plan(&b), 0);
	state_bed_close(&b);
}
END_TEST

START_TEST(no_other_table_is_walked)
{
	struct state_bed b;

	state_bed_open(&b);
	ck_assert_int_eq(run_gc(&b, STATE_TABLE_INODE, 0, UINT64_MAX), ERR_INVAL);
	ck_assert_int_eq(state_inode_get(&b.s, INODE_ROOT, &b.inode), 0);
	state_bed_close(&b);
}
END_TEST

/* A copy that is still to be made is not missing, and another block does not pay for it. */
START_TEST(copies_of_intents_are_not_missing)
{
	struct state_copy other, copy;
	struct state_bed b;
	uint64_t first;

	first = begin(&b, 7, 100);
	make_file(&b, "f", first, 2);
	pass_floor(&b);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_MISSING, 3, 1, (struct state_copy){.block = first, .index = 2}), 0);
	b.cmd.type = STATE_CMD_INTENT;
	b.cmd.intent = (struct state_cmd_intent){
		.block = first, .index = 2, .cause = STATE_CAUSE_MISSING, .disk = 7, .version = 2};
	ck_assert_int_eq(state_bed_run(&b), 0);
	copy = (struct state_copy){.block = first, .index = 2, .incarnation = b.res.incarnation};
	other = (struct state_copy){.block = first + 1, .index = 2, .incarnation = 9};
	ck_assert_int_eq(run_copies(&b, STATE_CMD_MISSING, 3, 1, other), 0);
	ck_assert_int_eq(run_copies(&b, STATE_CMD_MISSING, 7, 1, copy), 0);
	ck_assert_uint_eq(b.res.count, 0);
	ck_assert_int_eq(state_block_get(&b.s, first + 1, &b.block), 0);
	ck_assert(b.block.chunks[2].present);
	state_bed_close(&b);
}
END_TEST

UNIT_MAIN("state_gc", many_files_are_linear, what_is_not_due_is_not_looked_at, what_is_released_late_goes_at_once, removed_file_leaves_by_drop_rows, steps_are_bounded, tails_go_with_their_files,
	a_block_never_comes_back, orphans_only_below_the_floor_and_unnamed, missing_copies_stop_counting,
	copies_of_intents_are_not_missing, raw_bytes_are_of_what_is_there, drop_rows_of_a_lost_disk_do_not_stay,
	no_other_table_is_walked)
