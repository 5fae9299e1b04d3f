/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
	bool parents;
};

static const struct opt opts[] = {
	{.name = "parents", .letter = 'p', .type = OPT_FLAG, .offset = offsetof(struct values, parents),
	 .help = "make missing parents too; an existing directory is no error"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int make_one(struct cli *cli, const char *path)
{
	const struct values *v = cli->values;
	int r = v->parents ? cr_mkdir_parents(cli->store, path, cli_dir_mode()) : cr_mkdir(cli->store, path, cli_dir_mode());

	if (r == -ENOENT)
		return cli_fail(cli, "%s; give -p to make missing parents too", cr_error());
	return r < 0 ? cli_fail_store(cli, r) : CLI_OK;
}

static int run(struct cli *cli)
{
	int exit_code = cli_connect(cli);

	return exit_code == CLI_OK ? cli_each_word(cli, make_one) : exit_code;
}

const struct cli_command cmd_mkdir = {
	.name = "mkdir",
	.args = "PATH...",
	.summary = "make directories",
	.details = "Examples:\n"
	           "  craton mkdir /data\n"
	           "  craton mkdir -p /runs/gpt/checkpoints\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.silent = true,
	.run = run,
};
