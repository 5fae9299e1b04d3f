/* SPDX-License-Identifier: Apache-2.0 */
/* Links, attributes, lengths and tails of files. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

static struct state_bed bed, *const b = &bed;
static uint64_t inode, epoch;

static void create(const char *path)
{
	ck_assert_int_eq(bed_create(b, path, 0), 0);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
}

static uint32_t nlink_of(const char *path)
{
	ck_assert_int_gt(bed_lookup(b, path), 0);
	return b->inode.nlink;
}

static int link_to(const char *from, const char *to)
{
	b->cmd.type = STATE_CMD_LINK;
	b->cmd.link = (struct state_cmd_link){
		.from = state_bed_path(from), .to = state_bed_path(to), .now_ns = ++b->now_ns};
	return state_bed_run(b);
}

static int symlink_to(const char *target, const char *path)
{
	b->cmd.type = STATE_CMD_SYMLINK;
	b->cmd.symlink = (struct state_cmd_symlink){
		.at = state_bed_path(path), .target = slice_of(target, strlen(target)), .now_ns = ++b->now_ns};
	return state_bed_run(b);
}

/* In place of state_bed_close, where rows were changed by no entry: there is nothing to compare. */
static void abandon(void)
{
	state_close(&b->s);
	kv_abandon(b->kv);
	for (size_t i = 0; i < b->log_count; i++)
		mem_free((void *)(uintptr_t)b->log[i].data);
	sim_free(b->sim);
}

START_TEST(test_link)
{
	state_bed_open(b);
	create("a");
	ck_assert_int_eq(bed_mkdir(b, "d", false), 0);
	ck_assert_int_eq(link_to("a", "d/b"), 0);
	ck_assert_uint_eq(b->res.attr.nlink, 2);
	ck_assert_int_eq(bed_lookup(b, "d/b"), (int64_t)inode);
	ck_assert_int_eq(link_to("a", "d/b"), ERR_EXIST);
	ck_assert_int_eq(link_to("a", ""), ERR_EXIST);
	ck_assert_int_eq(link_to("d", "e"), ERR_PERM);
	ck_assert_int_eq(link_to("x", "e"), ERR_NOENT);
	ck_assert_int_eq(link_to("a", "x/e"), ERR_NOENT);
	ck_assert_int_eq(link_to("a", "a/e"), ERR_NOTDIR);
	ck_assert_uint_eq(b->s.meta.file_count, 1);

	ck_assert_int_eq(bed_remove(b, "a", false), 0);
	ck_assert_uint_eq(nlink_of("d/b"), 1);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_ORPHAN), 0);
	ck_assert_int_eq(bed_create(b, "c", 0), 0);
	ck_assert_int_eq(link_to("d/b", "a"), 0);
	ck_assert_int_eq(bed_rename(b, "c", "a", false), 0); /* over one of two names */
	ck_assert_uint_eq(nlink_of("d/b"), 1);
	ck_assert_int_eq(bed_create(b, "d/b", 0), 0); /* over the last one */
	ck_assert(bed_is_orphan(b, inode));
	ck_assert_int_eq(link_to("d/b", "z"), 0);
	ck_assert_int_eq(bed_rename(b, "z", "d/b", false), 0); /* the same file: nothing happens */
	ck_assert_uint_eq(nlink_of("z"), 2);
	ck_assert_uint_eq(b->s.meta.file_count, 2);
	/* what has no name any more gets none */
	b->cmd.type = STATE_CMD_LINK;
	b->cmd.link = (struct state_cmd_link){.from = {.parent = inode}, .to = state_bed_path("back")};
	ck_assert_int_eq(state_bed_run(b), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

START_TEST(test_symlink)
{
	static char longest[LIMIT_PATH_BYTES];
	struct slice target;

	state_bed_open(b);
	ck_assert_int_eq(symlink_to("../x y", "l"), 0);
	ck_assert_int_gt(bed_lookup(b, "l"), 0);
	ck_assert_int_eq(b->inode.type, STATE_TYPE_SYMLINK);
	ck_assert_uint_eq(b->inode.size, 6);
	ck_assert_int_eq(state_tail_get(&b->s, &b->inode, &target), 0);
	ck_assert_uint_eq(target.len, 6);
	ck_assert_mem_eq(target.data, "../x y", 6);
	ck_assert_int_eq(symlink_to("a", "l"), ERR_EXIST);
	ck_assert_int_eq(symlink_to("", "m"), ERR_NOENT);
	memset(longest, 'a', LIMIT_PATH_BYTES - 1);
	ck_assert_int_eq(symlink_to(longest, "m"), 0);
	ck_assert_int_eq(bed_mkdir(b, "l/sub", false), ERR_NOTDIR); /* nothing is followed */
	ck_assert_int_eq(bed_create(b, "l", 0), ERR_LOOP);
	ck_assert_int_eq(bed_rename(b, "l", "k", false), 0);
	ck_assert_uint_eq(b->s.meta.file_count, 2);
	ck_assert_int_eq(bed_remove(b, "k", false), 0);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC), 1); /* it cannot be open */
	ck_assert_int_eq(bed_create(b, "m", BED_HIDDEN), 0); /* published, a file takes a link's place */
	bed_commit(b, b->res.attr.inode, b->res.epoch, true, 0);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->s.meta.file_count, 1);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC), 2);
	state_bed_close(b);
}
END_TEST

static int set(const char *path, const char *name, const void *value, size_t len, uint8_t flags)
{
	b->cmd.type = STATE_CMD_XATTR_SET;
	b->cmd.xattr = (struct state_cmd_xattr){.at = state_bed_path(path),
		.name = slice_of(name, strlen(name)),
		.value = slice_of(value, len),
		.flags = flags,
		.now_ns = ++b->now_ns};
	return state_bed_run(b);
}

static int unset(const char *path, const char *name)
{
	b->cmd.type = STATE_CMD_XATTR_REMOVE;
	b->cmd.xattr = (struct state_cmd_xattr){
		.at = state_bed_path(path), .name = slice_of(name, strlen(name)), .now_ns = ++b->now_ns};
	return state_bed_run(b);
}

static int64_t value_len(uint64_t of, const char *name)
{
	struct slice value;
	int code = state_xattr_get(&b->s, of, slice_of(name, strlen(name)), &value);

	return code ? code : (int64_t)value.len;
}

START_TEST(test_xattr)
{
	static uint8_t big[LIMIT_XATTR_BYTES];
	char name[16];
	uint64_t dir;

	state_bed_open(b);
	create("f");
	ck_assert_int_eq(set("f", "user.a", "12345", 5, 0), 0);
	ck_assert_int_eq(set("f", "user.b", "", 0, STATE_XATTR_CREATE), 0);
	ck_assert_int_eq(value_len(inode, "user.a"), 5);
	ck_assert_int_eq(value_len(inode, "user.b"), 0);
	ck_assert_int_eq(value_len(inode, "user.c"), ERR_NODATA);
	ck_assert_int_eq(set("f", "user.a", "1", 1, STATE_XATTR_CREATE), ERR_EXIST);
	ck_assert_int_eq(set("f", "user.c", "1", 1, STATE_XATTR_REPLACE), ERR_NODATA);
	ck_assert_int_eq(set("f", "", "1", 1, 0), ERR_INVAL);
	ck_assert_int_eq(set("f", "user.a", "1", 1, STATE_XATTR_REPLACE), 0);
	bed_lookup(b, "f");
	ck_assert_uint_eq(b->inode.xattr_count, 2);
	ck_assert_uint_eq(b->inode.xattr_bytes, 13);
	ck_assert_int_eq(unset("f", "user.b"), 0);
	ck_assert_int_eq(unset("f", "user.b"), ERR_NODATA);
	ck_assert_int_eq(set("f", "x", big, sizeof(big) - 8, 0), 0);
	ck_assert_int_eq(set("f", "y", "", 0, 0), ERR_NOSPC);
	ck_assert_int_eq(set("f", "x", big, 0, 0), 0);
	for (int i = 2; i < LIMIT_XATTRS; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		ck_assert_int_eq(set("f", name, "v", 1, 0), 0);
	}
	ck_assert_int_eq(set("f", "one.more", "v", 1, 0), ERR_NOSPC);

	ck_assert_int_eq(bed_mkdir(b, "d", false), 0);
	dir = b->res.attr.inode;
	ck_assert_int_eq(set("d", "user.a", "v", 1, 0), 0);
	ck_assert_int_eq(value_len(dir, "user.a"), 1);
	ck_assert_int_eq(bed_remove(b, "d", true), 0);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_XATTR), LIMIT_XATTRS); /* the directory's went with it */
	state_bed_close(b);
}
END_TEST

/* ---- lengths ---- */

static int truncate_to(const char *path, uint64_t size)
{
	b->cmd.type = STATE_CMD_TRUNCATE;
	b->cmd.truncate =
		(struct state_cmd_truncate){.at = state_bed_path(path), .size = size, .now_ns = ++b->now_ns};
	return state_bed_run(b);
}

static int open_append(const char *path)
{
	int code;

	b->cmd.type = STATE_CMD_OPEN_WRITE;
	b->cmd.create = (struct state_cmd_create){.at = state_bed_path(path), .now_ns = ++b->now_ns};
	code = state_bed_run(b);
	inode = b->res.attr.inode;
	epoch = b->res.epoch;
	return code;
}

static int commit_at(uint64_t block, uint64_t offset, uint64_t length, bool complete)
{
	bed_commit(b, inode, epoch, complete, offset + length);
	bed_block(b, block, offset, length);
	return state_bed_run(b);
}

static int commit_tail(uint64_t offset, const void *data, size_t len, bool complete)
{
	bed_commit(b, inode, epoch, complete, offset + len);
	b->cmd.type = STATE_CMD_COMMIT_TAIL;
	b->cmd.commit.tail_offset = offset;
	b->cmd.commit.tail = slice_of(data, len);
	return state_bed_run(b);
}

/* All that the file's row says of its bytes, against the rows. */
static void check_file(const char *path, uint64_t size)
{
	uint64_t stored = 0, pos = 0;
	struct state_extent e;
	struct slice tail;

	ck_assert_int_gt(bed_lookup(b, path), 0);
	while (state_extent_get(&b->s, b->inode.id, pos, &e) == 0) {
		ck_assert_int_eq(state_block_get(&b->s, e.block, &b->block), 0);
		ck_assert_uint_gt(b->block.refcount, 0);
		ck_assert_uint_le(e.block_offset + e.length, b->block.length);
		stored += e.length;
		pos = e.offset + e.length;
		ck_assert_uint_le(pos, b->inode.end_bytes);
	}
	if (b->inode.tail_bytes) {
		ck_assert_int_eq(state_tail_get(&b->s, &b->inode, &tail), 0);
		stored += tail.len;
	} else {
		ck_assert(!bed_has_row(b, STATE_TABLE_TAIL, b->inode.id));
	}
	ck_assert_uint_eq(b->inode.size, size);
	ck_assert_uint_eq(b->inode.stored_bytes, stored);
	ck_assert_uint_eq(b->inode.end_bytes, size);
	ck_assert_uint_eq(b->inode.hole_bytes, size - stored);
	ck_assert_uint_eq(b->s.meta.file_bytes, stored);
}

enum { MIB = STATE_BED_MIB };

START_TEST(test_truncate)
{
	uint64_t first, pending;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	create("f");
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(commit_at(first + i, i * MIB, MIB, i == 2), 0);
	check_file("f", 3 * MIB);
	ck_assert_int_eq(truncate_to("f", 2 * MIB + 5), 0);
	check_file("f", 2 * MIB + 5);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC_BLOCK), 0);
	ck_assert_int_eq(truncate_to("f", MIB), 0);
	check_file("f", MIB);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC_BLOCK), 2);
	ck_assert_int_eq(state_block_get(&b->s, first + 1, &b->block), 0); /* until the row is walked */
	ck_assert_uint_eq(b->block.refcount, 0);
	pending = b->s.meta.pending_bytes;
	ck_assert_uint_eq(pending, 2 * state_block_raw_bytes(&b->block));
	bed_lookup(b, "f");
	ck_assert_uint_eq(b->inode.raw_bytes, pending / 2);

	ck_assert_int_eq(truncate_to("f", 10 * MIB), 0); /* a hole, and what comes behind it */
	check_file("f", 10 * MIB);
	ck_assert_int_eq(open_append("f"), 0);
	ck_assert_uint_eq(b->res.attr.size, 10 * MIB);
	ck_assert_int_eq(commit_at(first + 4, 5 * MIB, MIB, false), ERR_EXIST);
	ck_assert_int_eq(commit_at(first + 4, 10 * MIB, MIB, true), 0);
	check_file("f", 11 * MIB);
	ck_assert_int_eq(truncate_to("f", 4 * MIB), 0); /* in the hole */
	check_file("f", 4 * MIB);
	ck_assert_int_eq(truncate_to("f", 0), 0);
	check_file("f", 0);
	ck_assert_uint_eq(b->inode.raw_bytes, 0);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC_BLOCK), 4);

	ck_assert_int_eq(truncate_to("", 1), ERR_ISDIR);
	ck_assert_int_eq(truncate_to("x", 1), ERR_NOENT);
	ck_assert_int_eq(symlink_to("f", "l"), 0);
	ck_assert_int_eq(truncate_to("l", 1), ERR_LOOP);
	ck_assert_int_eq(truncate_to("f", UINT64_MAX), ERR_FBIG);
	state_bed_close(b);
}
END_TEST

/* Whoever was writing would go on at an end that is not there any more. */
START_TEST(test_truncate_fences)
{
	uint64_t first;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	create("f");
	ck_assert_int_eq(commit_at(first, 0, MIB, false), 0);
	ck_assert_int_eq(truncate_to("f", 0), 0);
	ck_assert_int_eq(commit_at(first + 1, MIB, MIB, true), ERR_FENCED);
	check_file("f", 0);
	state_bed_close(b);
}
END_TEST

/* More extents than a command may change: a row stays, and is walked. */
START_TEST(test_truncate_in_steps)
{
	enum { BLOCKS = LIMIT_CUT_EXTENTS * 2 + 10, UNIT = 16 << 10 };
	struct state_inode *file = &b->inode;
	uint64_t first, changed, extents = BLOCKS, passed;
	bool done;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, BLOCKS + 10);
	create("f");
	for (uint64_t i = 0; i < BLOCKS; i++)
		ck_assert_int_eq(commit_at(first + i, i * UNIT, UNIT, i == BLOCKS - 1), 0);
	ck_assert_int_eq(truncate_to("f", UNIT / 2), 0);
	ck_assert_int_gt(bed_lookup(b, "f"), 0);
	ck_assert_uint_eq(file->size, UNIT / 2);
	ck_assert(file->flags & STATE_INODE_CUT);
	ck_assert(bed_has_row(b, STATE_TABLE_GC_CUT, inode));
	ck_assert_int_eq(truncate_to("f", 7), ERR_AGAIN);
	ck_assert_int_eq(open_append("f"), 0);
	ck_assert_int_eq(commit_at(first + BLOCKS, UNIT / 2, UNIT, false), ERR_AGAIN);
	do { /* as the walk of garbage does it, in commands of its own */
		changed = bed_rows(b, STATE_TABLE_EXTENT);
		ck_assert_uint_le(extents - changed, LIMIT_CUT_EXTENTS);
		extents = changed;
		ck_assert_int_eq(state_inode_get(&b->s, inode, file), 0);
		passed = bed_passed_rows(b);
		done = state__cut_step(&b->s, file, UNIT / 2);
		ck_assert_uint_le(bed_passed_rows(b) - passed, BLOCKS); /* once over what went before, not for each extent */
	} while (!done);
	check_file("f", UNIT / 2);
	ck_assert(!(file->flags & STATE_INODE_CUT));
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC_CUT), 0);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_GC_BLOCK), BLOCKS - 1);
	ck_assert_int_eq(commit_at(first + BLOCKS, UNIT / 2, UNIT, true), 0);
	check_file("f", UNIT / 2 + UNIT);
	abandon();
}
END_TEST

START_TEST(test_tail)
{
	static uint8_t data[LIMIT_TAIL_BYTES + 1];
	struct slice tail;
	uint64_t first;

	state_bed_open(b);
	bed_disks(b, 6, 1);
	first = bed_reserve(b, 100);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	create("f");
	ck_assert_int_eq(commit_tail(5, data, 10, false), ERR_INVAL); /* a gap */
	ck_assert_int_eq(commit_tail(0, data, 4096, false), 0);
	check_file("f", 4096);
	ck_assert_int_eq(commit_tail(0, data, 4096, false), 0);    /* again */
	ck_assert_int_eq(commit_tail(0, data, 100, false), ERR_EXIST); /* it never gets shorter */
	ck_assert_int_eq(commit_tail(4096, data, 10, false), ERR_EXIST);
	ck_assert_int_eq(commit_tail(0, data, LIMIT_TAIL_BYTES, true), 0);
	check_file("f", LIMIT_TAIL_BYTES);
	ck_assert_int_eq(commit_tail(0, data, LIMIT_TAIL_BYTES, true), 0); /* a complete file answers repetitions only */
	ck_assert_int_eq(commit_tail(0, data + 1, LIMIT_TAIL_BYTES, true), ERR_STALE);
	ck_assert_int_eq(state_tail_get(&b->s, &b->inode, &tail), 0);
	ck_assert_mem_eq(tail.data, data, LIMIT_TAIL_BYTES);

	/* a block takes the tail's place if it has no fewer bytes */
	ck_assert_int_eq(open_append("f"), 0);
	ck_assert_int_eq(commit_at(first, 0, 100, false), ERR_EXIST);
	ck_assert_int_eq(commit_at(first, 4096, MIB, false), ERR_EXIST);
	ck_assert_int_eq(commit_at(first, 0, MIB, false), 0);
	check_file("f", MIB);
	ck_assert_int_eq(commit_tail(MIB, data, 5, true), 0);
	check_file("f", MIB + 5);
	ck_assert_int_eq(truncate_to("f", MIB + 2), 0);
	check_file("f", MIB + 2);
	ck_assert_int_eq(state_tail_get(&b->s, &b->inode, &tail), 0);
	ck_assert_uint_eq(tail.len, 2);
	ck_assert_int_eq(truncate_to("f", MIB + 9), 0); /* the tail stays where it is; nothing more can be put into it */
	ck_assert_int_eq(open_append("f"), 0);
	ck_assert_int_eq(commit_tail(MIB, data, 20, false), ERR_EXIST);
	ck_assert_int_eq(commit_at(first + 1, MIB, MIB, false), ERR_EXIST); /* the hole is written: as zeros */
	ck_assert_int_eq(commit_at(first + 1, MIB + 9, MIB, true), 0);
	check_file("f", 2 * MIB + 9);
	ck_assert_int_eq(truncate_to("f", MIB), 0);
	check_file("f", MIB);

	/* blocks and a tail behind them at once */
	create("g");
	bed_commit(b, inode, epoch, true, MIB + 7);
	bed_block(b, first + 3, 0, MIB);
	b->cmd.type = STATE_CMD_COMMIT_TAIL;
	b->cmd.commit.tail_offset = MIB;
	b->cmd.commit.tail = slice_of(data, 7);
	ck_assert_int_eq(state_bed_run(b), 0);
	ck_assert_uint_eq(b->res.attr.size, MIB + 7);

	/* the tail becomes the beginning of a block, and what does not fill the next one is a new tail; twice is once */
	ck_assert_int_eq(open_append("g"), 0);
	for (int i = 0; i < 2; i++) {
		bed_commit(b, inode, epoch, false, 0);
		bed_block(b, first + 4, MIB, MIB);
		b->cmd.type = STATE_CMD_COMMIT_TAIL;
		b->cmd.commit.tail_offset = 2 * MIB;
		b->cmd.commit.tail = slice_of(data, 9);
		ck_assert_int_eq(state_bed_run(b), 0);
		ck_assert_uint_eq(b->res.attr.size, 2 * MIB + 9);
		ck_assert_uint_eq(b->s.meta.file_bytes, MIB + 2 * MIB + 9);
	}
	state_bed_close(b);
}
END_TEST

START_TEST(test_forget)
{
	state_bed_open(b);
	create("f");
	ck_assert_int_eq(commit_tail(0, "abc", 3, true), 0);
	ck_assert_int_eq(set("f", "user.a", "v", 1, 0), 0);
	ck_assert_int_gt(bed_lookup(b, "f"), 0);
	state__inode_forget(&b->s, &b->inode);
	ck_assert_uint_eq(bed_rows(b, STATE_TABLE_TAIL) + bed_rows(b, STATE_TABLE_XATTR), 0);
	ck_assert(!bed_has_row(b, STATE_TABLE_INODE, inode));
	abandon();
}
END_TEST

UNIT_MAIN("state_link", test_link, test_symlink, test_xattr, test_truncate, test_truncate_fences, test_truncate_in_steps,
	test_tail, test_forget)
