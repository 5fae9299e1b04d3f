/* SPDX-License-Identifier: Apache-2.0 */
#include "client/mount/mount_table.h"
#include "tests/lib/unit.h"

static const char table[] =
	"22 28 0:21 / /proc rw,relatime shared:12 - proc proc rw\n"
	"36 35 98:0 /mnt1 /mnt/two\\040words rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw\n"
	"40 28 0:39 / /mnt/store rw,nosuid,nodev - fuse.craton craton rw,user_id=0\n"
	"41 28 0:40 / /mnt/store rw,nosuid - tmpfs tmpfs rw\n"
	"42 41 0:41 / /mnt/store/deep rw - fuse.craton a\\011b rw\n"
	"43 28\n"
	"44 28 0:42 / /mnt/cut rw";

START_TEST(test_find)
{
	struct mount_entry e;

	ck_assert(mount_table_parse(table, "/mnt/store/deep", &e));
	ck_assert_str_eq(e.fstype, MOUNT_FSTYPE);
	ck_assert_str_eq(e.device, "0:41");
	ck_assert(mount_table_parse(table, "/mnt/two words", &e));
	ck_assert_str_eq(e.fstype, "ext3");
}
END_TEST

/* What lies on top counts. */
START_TEST(test_topmost)
{
	struct mount_entry e;

	ck_assert(mount_table_parse(table, "/mnt/store", &e));
	ck_assert_str_eq(e.fstype, "tmpfs");
	ck_assert_str_eq(e.device, "0:40");
}
END_TEST

START_TEST(test_not_there)
{
	struct mount_entry e;

	ck_assert(!mount_table_parse(table, "/mnt", &e));
	ck_assert(!mount_table_parse(table, "/mnt/two", &e));
	ck_assert(!mount_table_parse(table, "/mnt/cut", &e)); /* half a line */
	ck_assert(!mount_table_parse("", "/mnt", &e));
}
END_TEST

UNIT_MAIN("mount_table", test_find, test_topmost, test_not_there)
