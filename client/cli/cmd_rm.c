/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "client/cli/cli.h"
#include "common/base/mem.h"

struct values {
	struct cli_common common;
	bool recursive, force;
};

static const struct opt opts[] = {
	{.name = "recursive", .letter = 'r', .type = OPT_FLAG, .offset = offsetof(struct values, recursive), .help = "remove directories with all they hold"},
	{.name = "force", .letter = 'f', .type = OPT_FLAG, .offset = offsetof(struct values, force), .help = "no error for what does not exist"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int remove_tree(struct cli *cli, const char *path, const struct cr_stat *st);

/* What cannot be removed is left with the directories that lead to it; the rest goes. */
static int remove_entries(struct cli *cli, const char *path)
{
	struct cr_dirent *entry = MEM_NEW(struct cr_dirent);
	struct cr_dir *dir;
	int exit_code = CLI_OK;
	int r = cr_opendir(cli->store, path, &dir);

	if (r == 0) {
		while (!cli->away && (r = cr_readdir(dir, entry)) == 1) {
			char *below = mem_printf("%s/%s", path, entry->name);

			if (remove_tree(cli, below, &entry->stat) != CLI_OK)
				exit_code = CLI_FAILED;
			mem_free(below);
		}
		cr_closedir(dir);
	}
	if (r < 0)
		exit_code = cli_fail_store(cli, r);
	mem_free(entry);
	return exit_code;
}

static int remove_tree(struct cli *cli, const char *path, const struct cr_stat *st)
{
	int r;

	if (st->type == CR_TYPE_DIR && remove_entries(cli, path) != CLI_OK)
		return CLI_FAILED;
	r = st->type == CR_TYPE_DIR ? cr_rmdir(cli->store, path) : cr_unlink(cli->store, path);
	return r < 0 ? cli_fail_store(cli, r) : CLI_OK;
}

/* Its last name, but for slashes, is `.` or `..`: as rm(1), for what it means is easily mistaken. */
static bool ends_in_dots(const char *path)
{
	size_t end = strlen(path), at;

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (at = end; at > 0 && path[at - 1] != '/';)
		at--;
	return (end - at == 1 && path[at] == '.') || (end - at == 2 && path[at] == '.' && path[at + 1] == '.');
}

static int remove_one(struct cli *cli, const char *path)
{
	const struct values *v = cli->values;
	struct cr_stat st;
	int r = cr_stat(cli->store, path, &st);

	if (r == -ENOENT && v->force)
		return CLI_OK;
	if (r < 0)
		return cli_fail_store(cli, r);
	if (st.inode == CR_INODE_ROOT)
		return cli_fail(cli, "%s is the root, which stays: name what is to go, and give -r", path);
	if (ends_in_dots(path))
		return cli_fail(cli, "%s: . and .. are not removed: give the directory's own path", path);
	if (st.type == CR_TYPE_DIR && !v->recursive)
		return cli_fail(cli, "%s is a directory; give -r to remove it with all it holds", path);
	return remove_tree(cli, path, &st);
}

static int run(struct cli *cli)
{
	int exit_code = cli_connect(cli);

	return exit_code == CLI_OK ? cli_each_word(cli, remove_one) : exit_code;
}

const struct cli_command cmd_rm = {
	.name = "rm",
	.args = "PATH...",
	.summary = "remove files and directories",
	.details = "What cannot be removed is named, and the rest goes all the same; the exit status is then 1.\n\n"
	           "Examples:\n"
	           "  craton rm /data/old.bin\n"
	           "  craton rm -r /runs/failed\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.silent = true,
	.run = run,
};
