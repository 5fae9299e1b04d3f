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

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	int exit_code = cli_connect(cli);

	for (int i = 0; i < cli->word_count && exit_code == CLI_OK; i++) {
		int r = v->parents ? cr_mkdir_parents(cli->store, cli->words[i], 0777) : cr_mkdir(cli->store, cli->words[i], 0777);

		if (r < 0)
			exit_code = cli_fail(cli, "%s%s", cr_error(), r == -ENOENT ? "; give -p to make missing parents too" : "");
	}
	return exit_code;
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
