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

static int remove_entries(struct cli *cli, const char *path)
{
	struct cr_dirent *entry = MEM_NEW(struct cr_dirent);
	struct cr_dir *dir;
	int exit_code = CLI_OK;
	int r = cr_opendir(cli->store, path, &dir);

	if (r == 0) {
		while (exit_code == CLI_OK && (r = cr_readdir(dir, entry)) == 1) {
			char *below = mem_printf("%s/%s", strcmp(path, "/") ? path : "", entry->name);

			exit_code = remove_tree(cli, below, &entry->stat);
			mem_free(below);
		}
		cr_closedir(dir);
	}
	if (r < 0)
		exit_code = cli_fail(cli, "%s", cr_error());
	mem_free(entry);
	return exit_code;
}

static int remove_tree(struct cli *cli, const char *path, const struct cr_stat *st)
{
	int exit_code = CLI_OK;
	int r;

	if (st->type == CR_TYPE_DIR)
		exit_code = remove_entries(cli, path);
	if (exit_code != CLI_OK)
		return exit_code;
	r = st->type == CR_TYPE_DIR ? cr_rmdir(cli->store, path) : cr_unlink(cli->store, path);
	return r < 0 ? cli_fail(cli, "%s", cr_error()) : CLI_OK;
}

static int remove_one(struct cli *cli, const char *path)
{
	const struct values *v = cli->values;
	struct cr_stat st;
	int r = cr_stat(cli->store, path, &st);

	if (r == -ENOENT && v->force)
		return CLI_OK;
	if (r < 0)
		return cli_fail(cli, "%s", cr_error());
	if (st.type == CR_TYPE_DIR && !v->recursive)
		return cli_fail(cli, "%s is a directory; give -r to remove it with all it holds", path);
	return remove_tree(cli, path, &st);
}

static int run(struct cli *cli)
{
	int exit_code = cli_connect(cli);

	for (int i = 0; i < cli->word_count && exit_code == CLI_OK; i++)
		exit_code = remove_one(cli, cli->words[i]);
	return exit_code;
}

const struct cli_command cmd_rm = {
	.name = "rm",
	.args = "PATH...",
	.summary = "remove files and directories",
	.details = "Examples:\n"
	           "  craton rm /data/old.bin\n"
	           "  craton rm -r /runs/failed\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.silent = true,
	.run = run,
};
