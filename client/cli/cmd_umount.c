/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/mount/mount_table.h"

struct values {
	struct cli_common common;
	bool lazy;
};

static const struct opt opts[] = {
	{.name = "lazy", .letter = 'l', .type = OPT_FLAG, .offset = offsetof(struct values, lazy),
	 .help = "take it away now, even if it is in use; open files stay usable until they are closed"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int umount_path(const struct cli *cli, const char *path)
{
	const struct values *v = cli->values;
	struct mount_entry e;
	int code;

	if (!mount_table_find(path, &e))
		return cli_fail(cli, "nothing is mounted on %s", path);
	if (strcmp(e.fstype, MOUNT_FSTYPE))
		return cli_fail(cli, "what is mounted on %s is no store but %s: use umount", path, e.fstype);
	code = mount_table_unmount(path, v->lazy);
	if (code == -EBUSY)
		return cli_fail(cli, "%s is in use: close the files in it (`fuser -vm %s` shows who has some), or give --lazy", path, path);
	if (code == -EIO)
		return cli_fail(cli, "fusermount3 could not unmount %s", path);
	if (code < 0)
		return cli_fail(cli, "cannot unmount %s: %s", path, strerror(-code));
	return CLI_OK;
}

static int run(struct cli *cli)
{
	char *path = mount_table_path(cli->words[0]);
	int exit_code;

	if (!path)
		return cli_fail(cli, "%s: %s", cli->words[0], strerror(errno));
	exit_code = umount_path(cli, path);
	free(path);
	return exit_code;
}

const struct cli_command cmd_umount = {
	.name = "umount",
	.args = "MOUNTPOINT",
	.summary = "end a mount of the store, dead or alive",
	.details = "What was written to files that are closed is in the store already.\n\n"
	           "Examples:\n"
	           "  craton umount /mnt/craton\n"
	           "  craton umount --lazy /mnt/craton\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 1,
	.silent = true,
	.run = run,
};
