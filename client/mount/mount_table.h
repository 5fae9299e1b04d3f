/* SPDX-License-Identifier: Apache-2.0 */
/* mount_table: what is mounted where, from /proc/self/mountinfo; nothing here touches the mount point, which may be dead. */
#ifndef CLIENT_MOUNT_MOUNT_TABLE_H
#define CLIENT_MOUNT_MOUNT_TABLE_H

#include <stdbool.h>

#define MOUNT_FSTYPE "fuse.craton"

struct mount_entry {
	char fstype[64];
	char device[32]; /* "0:52", as in /sys/class/bdi */
};

/* The absolute path of where something may be mounted, also if its process is dead; NULL, with errno. The caller frees it. */
char *mount_table_path(const char *given);
/* The topmost mount at `path` (absolute, as realpath gives it) in the text of a mountinfo file. */
bool mount_table_parse(const char *text, const char *path, struct mount_entry *ret_entry);
/* The same in that of this process. */
bool mount_table_find(const char *path, struct mount_entry *ret_entry);
/* 0 or a negative errno; -EIO: fusermount3, which unmounts for those who are not root, has said why. `lazy`: even if it is in use. */
int mount_table_unmount(const char *path, bool lazy);

#endif
