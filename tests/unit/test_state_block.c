/* SPDX-License-Identifier: Apache-2.0 */
/* Files and their blocks: create, fence, commit, publish, abort; every refusal of a commit. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;

enum { MIB = STATE_BED_MIB, BLOCK = 16 * STATE_BED_MIB };

static uint64_t inode, epoch, first;

static void open_file(const char *path, int flags)
{
	ck_assert_int_eq(bed_create(b, path, flags), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
}

static void begin(int flags)
{
	state_bed_open(b);
	bed_disks(b, STATE_BED_DISKS, 1);
	first = bed_reserve(b, 1000);
	open_file("f", flags);
}

static uint64_t size_of(const char *path)
{
	ck_assert_int_gt(bed_lookup(b, path), 0);
	return b->inode.size;
}

static bool has_row(enum state_table table, uint64_t id)
{
	struct state_key key;
	struct slice value;

	state_key_id(&key, table, id);
	return kv_get(b->kv, state_key_slice(&key), &value) == 0;
}

static bool reverse(uint32_t disk, uint64_t block)
{
	return bed_reverse(b, disk, block, block + 1) == 1;
}

/* One whole block at an offset. */
static int commit_one(uint64_t block, uint64_t offset, bool complete)
{
	bed_commit(b, inode, epoch, complete, offset + BLOCK);
	bed_block(b, block, offset, BLOCK);
	return state_bed_run(b);
}

START_TEST(test_example)
{
	struct state_extent extent;

	begin(0);
	ck_assert_int_eq(bed_lookup(b, "f"), (int64_t)inode);
	ck_assert_uint_eq(size_of("f"), 0);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	ck_assert_uint_eq(b->res.count, 1);
	ck_assert_uint_eq(b->res.blocks[0].block, first);
	ck_assert_uint_eq(b->res.blocks[0].not_counted, 0);
	ck_assert(!b->res.attr.complete);
	ck_assert_uint_eq(size_of("f"), BLOCK);

	bed_commit(b, inode, epoch, true, BLOCK + 5);
	bed_block(b, first + 7, BLOCK, 5); /* five bytes: one data chunk and the parity */
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(b->res.attr.complete);
	ck_assert_uint_eq(size_of("f"), BLOCK + 5);
	ck_assert_uint_eq(b->s.meta.file_bytes, BLOCK + 5);

	ck_assert_int_eq(state_extent_get(&b->s, inode, 0, &extent), 0);
	ck_assert_uint_eq(extent.block, first);
	ck_assert_int_eq(state_extent_get(&b->s, inode, BLOCK - 1, &extent), 0);
	ck_assert_uint_eq(extent.block, first);
	ck_assert_int_eq(state_extent_get(&b->s, inode, BLOCK, &extent), 0);
	ck_assert_uint_eq(extent.block, first + 7);
	ck_assert_uint_eq(extent.offset, BLOCK);
	ck_assert_uint_eq(extent.length, 5);
	ck_assert_int_eq(state_extent_get(&b->s, inode, BLOCK + 5, &extent), ERR_NOENT);

	ck_assert_int_eq(state_block_get(&b->s, first, &b->block), 0);
	ck_assert_uint_eq(b->block.width, 6);
	ck_assert(!b->block.crowded);
	for (uint32_t i = 0; i < 6; i++) {
		ck_assert(b->block.chunks[i].present);
		ck_assert_uint_eq(b->block.chunks[i].disk, i + 1);
		ck_assert_uint_eq(b->block.chunks[i].crc, first * 100 + i);
		ck_assert(reverse(i + 1, first));
	}
	ck_assert_int_eq(state_block_get(&b->s, first + 7, &b->block), 0);
	ck_assert(b->block.chunks[0].present && !b->block.chunks[1].present && b->block.chunks[5].present);
	ck_assert(!reverse(2, first + 7));
	/* what is done is done */
	ck_assert_int_eq(commit_one(first + 8, BLOCK + 5, false), ERR_STALE);
	state_bed_close(b);
}
END_TEST

/* A change of a good one-block commit, and what it must give; nothing may have changed then. */
typedef void spoil_fn(struct state_commit_block *block);

static void refused(spoil_fn *spoil, int code)
{
	struct state_commit_block *block;
	uint64_t before;

	bed_commit(b, inode, epoch, false, 0);
	bed_block(b, first + 100, BLOCK, BLOCK); /* a good one beside it: all or none */
	block = bed_block(b, first, 0, BLOCK);
	spoil(block);
	before = state_bed_digest(b->kv);
	ck_assert_int_eq(state_bed_run(b), code);
	ck_assert_uint_eq(b->res.count, 2);
	ck_assert_int_eq(b->res.blocks[0].status, 0);
	ck_assert_int_eq(b->res.blocks[1].status, code);
	ck_assert_uint_eq(state_bed_digest(b->kv), before);
}

static void no_id(struct state_commit_block *x)
{
	x->block = 0;
}
static void never_reserved(struct state_commit_block *x)
{
	x->block = b->s.meta.next_block;
}
static void other_shard(struct state_commit_block *x)
{
	x->block = id_make(1, x->block);
}
static void same_id_twice(struct state_commit_block *x)
{
	x->block = first + 100;
}
static void other_policy(struct state_commit_block *x)
{
	x->policy = 2;
	x->width = 9;
}
static void cell_zero(struct state_commit_block *x)
{
	x->cell_bytes = 0;
}
static void cell_odd(struct state_commit_block *x)
{
	x->cell_bytes = MIB - 1;
}
static void cell_large(struct state_commit_block *x)
{
	x->cell_bytes = 2 * MIB;
}
static void no_length(struct state_commit_block *x)
{
	x->length = 0;
}
static void too_long(struct state_commit_block *x)
{
	x->length = 4ull * LIMIT_CHUNK_BYTES + 1;
}
static void past_the_end(struct state_commit_block *x)
{
	x->file_offset = UINT64_MAX - 5;
}
static void overlapping(struct state_commit_block *x)
{
	x->file_offset = 2 * BLOCK - 1;
}
static void proof_of_nothing(struct state_commit_block *x)
{
	x->length = 5;
	bed_drop_receipt(x, 1);
	bed_drop_receipt(x, 2);
	bed_drop_receipt(x, 3);
}
static void receipt_of_nothing(struct state_commit_block *x)
{
	x->length = 5;
	x->crcs[1] = x->crcs[2] = x->crcs[3] = 0;
}
static void index_beyond(struct state_commit_block *x)
{
	x->receipts[0].index = 6;
}
static void three_in_a_domain(struct state_commit_block *x)
{
	x->receipts[1].disk = x->receipts[2].disk = 1;
}
static void two_missing(struct state_commit_block *x)
{
	bed_drop_receipt(x, 0);
	bed_drop_receipt(x, 5);
}
static void two_old_generations(struct state_commit_block *x)
{
	x->receipts[3].generation = 0;
	x->receipts[4].generation = 2;
}
static void two_unknown_disks(struct state_commit_block *x)
{
	x->receipts[3].disk = 0;
	x->receipts[4].disk = 4000000000u;
}
static void two_wild_incarnations(struct state_commit_block *x)
{
	x->receipts[0].incarnation = 256;
	x->receipts[1].incarnation = UINT32_MAX;
}

START_TEST(test_every_refusal_changes_nothing)
{
	begin(0);
	refused(no_id, ERR_INVAL);
	refused(never_reserved, ERR_INVAL);
	refused(other_shard, ERR_INVAL);
	refused(same_id_twice, ERR_INVAL);
	refused(other_policy, ERR_INVAL);
	refused(cell_zero, ERR_INVAL);
	refused(cell_odd, ERR_INVAL);
	refused(cell_large, ERR_INVAL);
	refused(no_length, ERR_INVAL);
	refused(too_long, ERR_INVAL);
	refused(past_the_end, ERR_FBIG);
	refused(overlapping, ERR_INVAL);
	refused(proof_of_nothing, ERR_INVAL);
	refused(receipt_of_nothing, ERR_INVAL);
	refused(index_beyond, ERR_INVAL);
	refused(three_in_a_domain, ERR_NO_PLACEMENT);
	refused(two_missing, ERR_TOO_FEW_CHUNKS);
	refused(two_old_generations, ERR_TOO_FEW_CHUNKS);
	ck_assert_uint_eq(b->res.blocks[1].not_counted, 1 << 3 | 1 << 4);
	refused(two_unknown_disks, ERR_TOO_FEW_CHUNKS);
	refused(two_wild_incarnations, ERR_TOO_FEW_CHUNKS);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	bed_commit(b, inode, epoch, false, 0);
	bed_block(b, first + 1, BLOCK - 1, BLOCK); /* over bytes that are there */
	ck_assert_int_eq(state_bed_run(b), ERR_EXIST);
	state_bed_close(b);
}
END_TEST

START_TEST(test_one_missing_is_enough)
{
	struct state_commit_block *x;

	begin(0);
	bed_commit(b, inode, epoch, false, 0);
	x = bed_block(b, first, 0, BLOCK);
	x->receipts[2].generation = 9;
	x->intended[2] = 8;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.blocks[0].not_counted, 1 << 2);
	ck_assert_int_eq(state_block_get(&b->s, first, &b->block), 0);
	ck_assert(!b->block.chunks[2].present);
	ck_assert_uint_eq(b->block.chunks[2].disk, 8); /* where it was meant to be */
	ck_assert(!reverse(8, first));
	/* k' = 1 of rs-4-2 needs two of its three chunks */
	bed_commit(b, inode, epoch, false, 0);
	x = bed_block(b, first + 1, BLOCK, 1);
	bed_drop_receipt(x, 0);
	ck_assert_int_eq(state_bed_run(b), 0);
	bed_commit(b, inode, epoch, false, 0);
	x = bed_block(b, first + 2, BLOCK + 1, 1);
	bed_drop_receipt(x, 0);
	bed_drop_receipt(x, 4);
	ck_assert_int_eq(state_bed_run(b), ERR_TOO_FEW_CHUNKS);
	state_bed_close(b);
}
END_TEST

START_TEST(test_crowded_is_marked)
{
	struct state_commit_block *x;

	begin(0);
	bed_commit(b, inode, epoch, false, 0);
	x = bed_block(b, first, 0, BLOCK);
	x->receipts[5].disk = 1; /* two chunks on one disk */
	x->receipts[5].incarnation = 1;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(state_block_get(&b->s, first, &b->block), 0);
	ck_assert(b->block.crowded);
	ck_assert(reverse(1, first));
	state_bed_close(b);

	state_bed_open(b); /* two disks in one rack */
	bed_disks(b, 6, 2);
	first = bed_reserve(b, 10);
	open_file("f", 0);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	ck_assert_int_eq(state_block_get(&b->s, first, &b->block), 0);
	ck_assert(b->block.crowded);
	state_bed_close(b);

	state_bed_open(b); /* three in one rack: more than m */
	bed_disks(b, 6, 3);
	first = bed_reserve(b, 10);
	open_file("f", 0);
	ck_assert_int_eq(commit_one(first, 0, false), ERR_NO_PLACEMENT);
	state_bed_close(b);
}
END_TEST

START_TEST(test_only_disks_that_count)
{
	begin(0);
	b->cmd.type = STATE_CMD_SERVER_DOWN;
	b->cmd.server_down.server = 3;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	ck_assert_uint_eq(b->res.blocks[0].not_counted, 1 << 2);
	b->cmd.type = STATE_CMD_DISK_FAILED;
	b->cmd.disk_failed = (struct state_cmd_disk_failed){.disk = 1, .generation = 1, .error = slice_of("EIO", 3)};
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(commit_one(first + 1, BLOCK, false), ERR_TOO_FEW_CHUNKS);
	ck_assert_uint_eq(b->res.blocks[0].not_counted, 1 << 2 | 1 << 0);
	state_bed_close(b);
}
END_TEST

START_TEST(test_below_the_floor)
{
	begin(0);
	ck_assert_uint_eq(b->s.meta.floor, first);
	b->time_ms += STATE_FLOOR_DELAY_MS - 1;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->s.meta.floor, first);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	b->time_ms += 1;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->s.meta.floor, first + 1000);
	ck_assert_int_eq(commit_one(first + 1, BLOCK, false), ERR_BLOCK_CLOSED);
	ck_assert_int_eq(commit_one(first, 0, false), 0); /* it was in time: the same answer again */
	/* ranges are passed in order, each by its own time */
	first = bed_reserve(b, 5);
	b->time_ms += STATE_FLOOR_DELAY_MS / 2;
	bed_reserve(b, 5);
	b->time_ms += STATE_FLOOR_DELAY_MS / 2 + 1;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->s.meta.floor, first + 5);
	/* and never by a time that goes back */
	b->time_ms = 0;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_ge(b->s.meta.time_ms, STATE_FLOOR_DELAY_MS);
	state_bed_close(b);
}
END_TEST

START_TEST(test_sent_again)
{
	struct state_commit_block *x;
	uint64_t before;

	begin(0);
	bed_commit(b, inode, epoch, false, 0);
	x = bed_block(b, first, 0, BLOCK);
	bed_drop_receipt(x, 3);
	ck_assert_int_eq(state_bed_run(b), 0);
	b->cmd.commit.now_ns = b->now_ns;
	before = b->s.meta.file_bytes;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->s.meta.file_bytes, before);
	/* other bytes under the same id: never */
	b->cmd.commit.blocks[0].crcs[4]++;
	ck_assert_int_eq(state_bed_run(b), ERR_EXIST);
	/* with the receipt that was missing: the block becomes whole */
	bed_commit(b, inode, epoch, true, BLOCK);
	bed_block(b, first, 0, BLOCK);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_int_eq(state_block_get(&b->s, first, &b->block), 0);
	ck_assert(b->block.chunks[3].present);
	ck_assert_uint_eq(b->block.version, 2);
	ck_assert(reverse(4, first));
	/* complete now: the same again is right, anything else is not */
	before = state_bed_rows(b->kv, false);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(b->res.attr.complete);
	ck_assert_uint_eq(state_bed_rows(b->kv, false), before);
	b->cmd.commit.size++;
	ck_assert_int_eq(state_bed_run(b), ERR_INCOMPLETE);
	ck_assert_int_eq(commit_one(first + 1, BLOCK, false), ERR_STALE);
	ck_assert_uint_eq(state_bed_rows(b->kv, false), before);
	/* even when the name is gone the answer to a repetition is the truth */
	ck_assert_int_eq(bed_remove(b, "f", false), 0);
	bed_commit(b, inode, epoch, true, BLOCK);
	bed_block(b, first, 0, BLOCK);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->s.meta.pending_bytes, 6ull * 4 * MIB);
	state_bed_close(b);
}
END_TEST

/* A late chunk is taken until the floor passes its block: below, nobody knows whether a copy without a row still lies there. */
START_TEST(test_late_chunks_and_the_floor)
{
	begin(0);
	bed_commit(b, inode, epoch, true, BLOCK);
	bed_drop_receipt(bed_block(b, first, 0, BLOCK), 3);
	ck_assert_int_eq(state_bed_run(b), 0);
	b->time_ms += STATE_FLOOR_DELAY_MS;
	b->cmd.type = STATE_CMD_TICK;
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_gt(b->s.meta.floor, first);
	bed_commit(b, inode, epoch, true, BLOCK);
	bed_block(b, first, 0, BLOCK);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.blocks[0].not_counted, 1 << 3);
	ck_assert_int_eq(state_block_get(&b->s, first, &b->block), 0);
	ck_assert(!b->block.chunks[3].present);
	ck_assert(!reverse(4, first));
	state_bed_close(b);
}
END_TEST

/* Two late chunks of one block, each in a block of its own: neither may hide the other. */
START_TEST(test_known_block_twice)
{
	uint64_t before;

	begin(0);
	bed_commit(b, inode, epoch, false, 0);
	bed_drop_receipt(bed_block(b, first, 0, BLOCK), 3);
	ck_assert_int_eq(state_bed_run(b), 0);
	open_file("g", 0);
	bed_commit(b, inode, epoch, false, 0);
	bed_drop_receipt(bed_block(b, first + 1, 0, 1), 4);
	ck_assert_int_eq(state_bed_run(b), 0);
	before = state_bed_digest(b->kv);
	bed_commit(b, inode, epoch, false, 0);
	bed_block(b, first + 1, 0, 1);
	bed_block(b, first + 1, 0, 1);
	ck_assert_int_eq(state_bed_run(b), ERR_INVAL);
	ck_assert_int_eq(b->res.blocks[1].status, ERR_INVAL);
	ck_assert_uint_eq(state_bed_digest(b->kv), before);
	state_bed_close(b);
}
END_TEST

static void cut(const char *path, uint64_t size)
{
	b->cmd.type = STATE_CMD_TRUNCATE;
	b->cmd.truncate = (struct state_cmd_truncate){.at = state_bed_path(path), .size = size, .now_ns = ++b->now_ns};
	ck_assert_int_eq(state_bed_run(b), 0);
	b->cmd.type = STATE_CMD_OPEN_WRITE;
	b->cmd.create = (struct state_cmd_create){.at = state_bed_path(path), .mode = 0644, .now_ns = ++b->now_ns};
	ck_assert_int_eq(state_bed_run(b), 0);
	epoch = b->res.epoch;
}

/* It would be answered as put, and is not: all of it was cut off, or its end. */
START_TEST(test_cut_off_block_is_closed)
{
	uint64_t before;

	begin(0);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	ck_assert_int_eq(commit_one(first + 1, BLOCK, true), 0);
	for (uint64_t size = 2 * BLOCK - MIB; size > 0; size = size > BLOCK ? BLOCK : 0) {
		cut("f", size);
		before = state_bed_digest(b->kv);
		ck_assert_int_eq(commit_one(first + 1, BLOCK, false), ERR_BLOCK_CLOSED);
		ck_assert_int_eq(b->res.blocks[0].status, ERR_BLOCK_CLOSED);
		ck_assert_uint_eq(state_bed_digest(b->kv), before);
		ck_assert_int_eq(commit_one(first, 0, false), 0); /* what is there is there */
	}
	cut("f", 0);
	ck_assert_int_eq(commit_one(first, 0, false), ERR_BLOCK_CLOSED);
	ck_assert_int_eq(commit_one(first + 2, 0, true), 0);
	ck_assert_uint_eq(size_of("f"), BLOCK);
	state_bed_close(b);
}
END_TEST

/* Programs set the time of what they have written before they close it. */
START_TEST(test_completing_keeps_the_time)
{
	int64_t mtime_ns;

	begin(0);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	mtime_ns = b->res.attr.mtime_ns;
	bed_commit(b, inode, epoch, true, BLOCK);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(b->res.attr.complete);
	ck_assert_int_eq(b->res.attr.mtime_ns, mtime_ns);
	ck_assert_int_gt(b->res.attr.ctime_ns, mtime_ns);
}
END_TEST

START_TEST(test_no_file_with_a_gap_completes)
{
	begin(0);
	ck_assert_int_eq(commit_one(first, BLOCK, false), 0); /* the second block first */
	ck_assert_uint_eq(size_of("f"), 0);
	bed_commit(b, inode, epoch, true, 2 * BLOCK);
	ck_assert_int_eq(state_bed_run(b), ERR_INCOMPLETE);
	bed_commit(b, inode, epoch, true, 2 * BLOCK - 1);
	bed_block(b, first + 1, 0, BLOCK);
	ck_assert_int_eq(state_bed_run(b), ERR_INCOMPLETE);
	bed_commit(b, inode, epoch, true, 2 * BLOCK);
	bed_block(b, first + 1, 0, BLOCK);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(size_of("f"), 2 * BLOCK);
	open_file("empty", 0);
	bed_commit(b, inode, epoch, true, 0);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert(b->res.attr.complete);
	state_bed_close(b);
}
END_TEST

START_TEST(test_later_writer_fences)
{
	uint64_t old;

	begin(0);
	old = inode;
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	open_file("f", 0); /* another writer of the same name */
	ck_assert_uint_ne(inode, old);
	ck_assert_uint_eq(size_of("f"), 0);
	ck_assert(bed_is_orphan(b, old));
	ck_assert_uint_eq(b->s.meta.pending_bytes, 6ull * 4 * MIB);
	ck_assert_uint_eq(b->s.meta.file_bytes, 0);
	bed_commit(b, old, 1, true, 2 * BLOCK);
	bed_block(b, first + 1, BLOCK, BLOCK);
	ck_assert_int_eq(state_bed_run(b), ERR_FENCED);
	ck_assert_int_eq(commit_one(first + 2, 0, true), 0);
	/* a removed file, a wrong epoch, a directory, nothing at all */
	open_file("g", 0);
	ck_assert_int_eq(bed_remove(b, "g", false), 0);
	ck_assert_int_eq(commit_one(first + 3, 0, false), ERR_STALE);
	open_file("h", 0);
	epoch++;
	ck_assert_int_eq(commit_one(first + 3, 0, false), ERR_FENCED);
	inode = INODE_ROOT;
	ck_assert_int_eq(commit_one(first + 3, 0, false), ERR_ISDIR);
	inode = 1000000;
	ck_assert_int_eq(commit_one(first + 3, 0, false), ERR_STALE);
	ck_assert_int_eq(bed_create(b, "h", BED_EXCL), ERR_EXIST);
	ck_assert_int_eq(bed_create(b, "", 0), ERR_ISDIR);
	state_bed_close(b);
}
END_TEST

START_TEST(test_publish_is_atomic)
{
	uint64_t old, before;

	begin(0);
	old = inode;
	ck_assert_int_eq(commit_one(first, 0, true), 0);
	open_file("f", BED_HIDDEN);
	ck_assert_int_eq(bed_lookup(b, "f"), (int64_t)old);
	ck_assert_int_eq(commit_one(first + 1, 0, false), 0);
	ck_assert_int_eq(bed_lookup(b, "f"), (int64_t)old); /* durable, and not yet there */
	ck_assert_uint_eq(b->s.meta.file_bytes, BLOCK);
	/* a last commit that fails publishes nothing */
	bed_commit(b, inode, epoch, true, 2 * BLOCK);
	bed_drop_receipt(bed_block(b, first + 2, BLOCK, BLOCK), 0);
	bed_drop_receipt(&b->cmd.commit.blocks[0], 1);
	before = state_bed_digest(b->kv);
	ck_assert_int_eq(state_bed_run(b), ERR_TOO_FEW_CHUNKS);
	ck_assert_uint_eq(state_bed_digest(b->kv), before);
	ck_assert_int_eq(commit_one(first + 2, BLOCK, true), 0);
	ck_assert_int_eq(bed_lookup(b, "f"), (int64_t)inode);
	ck_assert_uint_eq(size_of("f"), 2 * BLOCK);
	ck_assert_uint_eq(size_of(""), 1);
	ck_assert(bed_is_orphan(b, old));
	ck_assert_uint_eq(b->s.meta.file_count, 1);
	ck_assert_uint_eq(b->s.meta.file_bytes, 2 * BLOCK);
	ck_assert_int_eq(commit_one(first + 2, BLOCK, true), 0); /* sent again */
	ck_assert_uint_eq(b->s.meta.file_count, 1);
	state_bed_close(b);
}
END_TEST

START_TEST(test_publish_refused)
{
	begin(BED_HIDDEN | BED_EXCL);
	ck_assert_int_eq(bed_lookup(b, "f"), ERR_NOENT);
	ck_assert_int_eq(bed_mkdir(b, "f", false), 0); /* the name is taken meanwhile */
	ck_assert_int_eq(commit_one(first, 0, true), ERR_EXIST);
	open_file("x", BED_HIDDEN);
	ck_assert_int_eq(bed_mkdir(b, "x", false), 0);
	ck_assert_int_eq(commit_one(first, 0, true), ERR_ISDIR);
	ck_assert(!has_row(STATE_TABLE_BLOCK, first));
	ck_assert_int_eq(bed_mkdir(b, "d", false), 0);
	open_file("d/y", BED_HIDDEN);
	ck_assert_int_eq(bed_remove(b, "d", true), 0); /* the directory goes meanwhile */
	ck_assert_int_eq(commit_one(first, 0, true), ERR_NOENT);
	ck_assert(!has_row(STATE_TABLE_BLOCK, first));
	ck_assert_int_eq(bed_create(b, "f/z", BED_HIDDEN), 0);
	ck_assert_int_eq(bed_create(b, "f", BED_HIDDEN), ERR_ISDIR);
	state_bed_close(b);
}
END_TEST

static int abort_file(void)
{
	b->cmd.type = STATE_CMD_ABORT;
	b->cmd.abort = (struct state_cmd_abort){.inode = inode, .epoch = epoch};
	return state_bed_run(b);
}

START_TEST(test_abort)
{
	begin(BED_HIDDEN);
	ck_assert_int_eq(commit_one(first, 0, false), 0);
	ck_assert_int_eq(abort_file(), 0);
	ck_assert(has_row(STATE_TABLE_GC, inode));
	ck_assert_uint_eq(b->s.meta.pending_bytes, 6ull * 4 * MIB);
	ck_assert_int_eq(abort_file(), 0); /* again: nothing more happens */
	ck_assert_uint_eq(b->s.meta.pending_bytes, 6ull * 4 * MIB);
	ck_assert_int_eq(commit_one(first + 1, BLOCK, true), ERR_FENCED);
	ck_assert_int_eq(bed_lookup(b, "f"), ERR_NOENT);
	epoch++; /* the one that the abort left behind: still one gc row */
	ck_assert_int_eq(abort_file(), ERR_STALE);
	ck_assert_uint_eq(b->s.meta.pending_bytes, 6ull * 4 * MIB);

	open_file("g", 0); /* one with a name stays, incomplete */
	ck_assert_int_eq(commit_one(first + 2, 0, false), 0);
	epoch = 0; /* that of nobody: not the one before the first */
	ck_assert_int_eq(abort_file(), ERR_FENCED);
	epoch = b->s.inodes[0].epoch;
	ck_assert_int_eq(abort_file(), 0);
	ck_assert_uint_eq(size_of("g"), BLOCK);
	ck_assert(!has_row(STATE_TABLE_GC, inode));
	ck_assert_int_eq(commit_one(first + 3, BLOCK, true), ERR_FENCED);
	open_file("g", 0);
	ck_assert_int_eq(commit_one(first + 4, 0, true), 0);
	ck_assert_int_eq(abort_file(), ERR_STALE); /* too late */
	ck_assert_uint_eq(size_of("g"), BLOCK);
	state_bed_close(b);
}
END_TEST

START_TEST(test_largest_commit)
{
	struct state_commit_block *x;
	uint64_t rows = 0;
	struct kv_scan scan;

	state_bed_open(b);
	bed_disks(b, 15, 1);
	first = bed_reserve(b, 100);
	ck_assert_int_eq(bed_mkdir(b, "wide", false), 0);
	b->cmd.type = STATE_CMD_POLICY;
	b->cmd.policy = (struct state_cmd_policy){
		.at = state_bed_path("wide"), .policy = {.id = 6, .cell_bytes = 64 << 10, .chunk_bytes = MIB}};
	ck_assert_int_eq(state_bed_run(b), 0);
	open_file("wide/f", BED_HIDDEN);
	bed_commit(b, inode, epoch, true, LIMIT_COMMIT_BLOCKS * 9ull * MIB);
	for (uint32_t n = 0; n < LIMIT_COMMIT_BLOCKS; n++) {
		x = bed_block(b, first + n, n * 9ull * MIB, 9 * MIB);
		x->policy = 6;
		x->width = 15;
		x->cell_bytes = 64 << 10;
		x->receipt_count = 0;
		for (uint8_t i = 0; i < 15; i++)
			x->receipts[x->receipt_count++] =
				(struct state_receipt){.index = i, .disk = i + 1u, .generation = 1};
	}
	ck_assert_int_eq(state_bed_run(b), 0);
	for (kv_seek(b->kv, &scan, slice_of(NULL, 0)); kv_scan_valid(&scan); kv_scan_next(&scan))
		rows += scan.key.data[0] == STATE_TABLE_EXTENT || scan.key.data[0] == STATE_TABLE_BLOCK;
	kv_scan_end(&scan);
	ck_assert_uint_eq(rows, LIMIT_COMMIT_BLOCKS * 2);
	ck_assert_uint_eq(bed_reverse_all(b), LIMIT_COMMIT_BLOCKS * 15);
	state_bed_settle(b->kv);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_DISK_BLOCK), LIMIT_COMMIT_BLOCKS * 15);
	state_bed_close(b);
}
END_TEST

/* Who looks for the blocks of a disk stops in time, and goes on from there, though all that is not committed yet lies elsewhere. */
START_TEST(test_walks_take_their_time)
{
	enum { STEP = 10, NOWHERE = 99 };
	struct state_reverse_walk walk;
	uint64_t from = first;
	uint32_t steps = 0;

	begin(0);
	open_file("f", BED_HIDDEN);
	bed_commit(b, inode, epoch, true, LIMIT_COMMIT_BLOCKS * BLOCK);
	for (uint32_t n = 0; n < LIMIT_COMMIT_BLOCKS; n++)
		bed_block(b, first + n, n * BLOCK, BLOCK);
	ck_assert_int_eq(state_bed_run(b), 0);
	for (from = first; from < first + LIMIT_COMMIT_BLOCKS; steps++) {
		state_reverse_begin(&b->s, NOWHERE, from, first + LIMIT_COMMIT_BLOCKS, STEP, &walk);
		ck_assert(!state_reverse_next(&walk, &b->block));
		state_reverse_end(&walk);
		ck_assert_uint_gt(walk.next, from);
		ck_assert_uint_le(walk.next, from + STEP);
		from = walk.next;
	}
	ck_assert_uint_eq(steps, (LIMIT_COMMIT_BLOCKS + STEP - 1) / STEP);
	/* of those that lie there, too */
	state_reverse_begin(&b->s, 1, first, UINT64_MAX, STEP, &walk);
	for (uint32_t n = 0; n < STEP; n++)
		ck_assert(state_reverse_next(&walk, &b->block));
	ck_assert(!state_reverse_next(&walk, &b->block));
	ck_assert_uint_eq(walk.next, first + STEP);
	state_reverse_end(&walk);
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_block", test_example, test_every_refusal_changes_nothing, test_one_missing_is_enough,
	test_crowded_is_marked, test_only_disks_that_count, test_below_the_floor, test_sent_again,
	test_late_chunks_and_the_floor, test_known_block_twice, test_cut_off_block_is_closed, test_no_file_with_a_gap_completes, test_completing_keeps_the_time,
	test_later_writer_fences, test_publish_is_atomic, test_publish_refused, test_abort, test_largest_commit, test_walks_take_their_time)
