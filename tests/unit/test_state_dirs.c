/* SPDX-License-Identifier: Apache-2.0 */
/* Directories kept in memory: nobody can tell, whatever happens to them and however many share a slot. */
#include "tests/lib/state_bed.h"
#include "tests/lib/unit.h"

enum { SLOTS = 1024, DIRS = SLOTS + 50 };
static struct state_bed bed, *const b = &bed;

/* Entries of the directory as its row in the table has it. */
static uint64_t size_in_table(uint64_t inode)
{
	struct state_key key;
	struct slice value;

	state_key_id(&key, STATE_TABLE_INODE, inode);
	ck_assert_int_eq(kv_get(b->kv, state_key_slice(&key), &value), 0);
	ck_assert_int_eq(state_inode_decode(value, inode, &b->inode), 0);
	return b->inode.size;
}

static uint64_t make(const char *path)
{
	ck_assert_int_eq(bed_mkdir(b, path, false), 0);
	return b->res.attr.inode;
}

START_TEST(test_rows_are_written)
{
	uint64_t a, c;

	state_bed_open(b);
	a = make("a");
	ck_assert_int_eq(bed_create(b, "a/f", 0), 0);
	ck_assert_uint_eq(size_in_table(a), 1);
	ck_assert_uint_eq(size_in_table(INODE_ROOT), 1);
	c = make("c");
	ck_assert_int_eq(bed_rename(b, "a/f", "c/f", false), 0);
	ck_assert_uint_eq(size_in_table(a), 0);
	ck_assert_uint_eq(size_in_table(c), 1);
	state_bed_close(b);
}
END_TEST

/* Two directories of one slot, changed by one command: one is kept, the other goes straight to the table. */
START_TEST(test_a_slot_of_two)
{
	uint64_t inodes[DIRS];
	char path[16], to[16];

	state_bed_open(b);
	for (int i = 0; i < DIRS; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		inodes[i] = make(path);
	}
	for (int i = 0; i < DIRS - SLOTS; i++) {
		ck_assert_uint_eq(inodes[i] + SLOTS, inodes[i + SLOTS]);
		snprintf(path, sizeof(path), "d%d/f", i);
		snprintf(to, sizeof(to), "d%d/f", i + SLOTS);
		ck_assert_int_eq(bed_create(b, path, 0), 0);
		ck_assert_int_eq(bed_rename(b, path, to, true), 0);
		ck_assert_uint_eq(size_in_table(inodes[i]), 0);
		ck_assert_uint_eq(size_in_table(inodes[i + SLOTS]), 1);
		ck_assert_int_eq(bed_rename(b, to, path, true), 0);
		ck_assert_uint_eq(size_in_table(inodes[i]), 1);
		ck_assert_uint_eq(size_in_table(inodes[i + SLOTS]), 0);
	}
	state_bed_close(b);
}
END_TEST

/* A name that led to a directory leads nowhere, or to another one, when that has gone. */
START_TEST(test_names_go)
{
	uint64_t first;

	state_bed_open(b);
	make("a");
	first = make("a/b");
	ck_assert_int_eq(bed_create(b, "a/b/f", 0), 0);
	ck_assert_int_eq(bed_rename(b, "a/b", "c", false), 0);
	ck_assert_int_eq(bed_lookup(b, "a/b/f"), ERR_NOENT);
	ck_assert_int_eq(bed_lookup(b, "a/b"), ERR_NOENT);
	ck_assert_int_eq(bed_lookup(b, "c"), (int64_t)first);
	ck_assert_uint_ne(make("a/b"), first);
	ck_assert_int_eq(bed_lookup(b, "a/b/f"), ERR_NOENT);
	ck_assert_int_eq(bed_remove(b, "a/b", true), 0);
	ck_assert_int_eq(bed_lookup(b, "a/b"), ERR_NOENT);
	ck_assert_int_eq(bed_create(b, "a/b", 0), 0); /* a file now */
	ck_assert_int_gt(bed_lookup(b, "a/b"), 0);
	ck_assert_int_eq(bed_lookup(b, "a/b/f"), ERR_NOTDIR);
	ck_assert_int_gt(bed_lookup(b, "c/f"), 0);
	state_bed_close(b);
}
END_TEST

/* The entry that removes a directory does not bring its row back. */
START_TEST(test_removed_rows_stay_away)
{
	uint64_t a;

	state_bed_open(b);
	a = make("a");
	ck_assert_int_eq(bed_create(b, "a/f", 0), 0);
	ck_assert_int_eq(bed_remove(b, "a/f", false), 0);
	ck_assert_int_eq(bed_remove(b, "a", true), 0);
	ck_assert(!bed_has_row(b, STATE_TABLE_INODE, a));
	ck_assert_int_eq(state_inode_get(&b->s, a, &b->inode), ERR_NOENT);
	ck_assert_uint_eq(size_in_table(INODE_ROOT), 0);
	state_bed_close(b);
}
END_TEST

/* Nothing has the number 0, but the empty slots. */
START_TEST(test_no_inode)
{
	state_bed_open(b);
	ck_assert_int_eq(state_inode_get(&b->s, 0, &b->inode), ERR_NOENT);
	for (int i = 0; i < DIRS; i++) { /* one of them lies in the slot of 0 */
		char path[16];

		snprintf(path, sizeof(path), "d%d", i);
		make(path);
	}
	ck_assert_int_eq(state_inode_get(&b->s, 0, &b->inode), ERR_NOENT);
	state_bed_close(b);
}
END_TEST

UNIT_MAIN("state_dirs", test_rows_are_written, test_a_slot_of_two, test_names_go, test_removed_rows_stay_away,
	test_no_inode)
