/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
	bool symbolic;
};

static const struct opt opts[] = {
	{.name = "symbolic", .letter = 's', .type = OPT_FLAG, .offset = offsetof(struct values, symbolic),
	 .help = "make a symbolic link, whatever TARGET is"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	const char *target = cli->words[0], *name = cli->words[1];
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	if ((v->symbolic ? cr_symlink(cli->store, target, name) : cr_link(cli->store, target, name)) < 0)
		return cli_fail(cli, "%s", cr_error());
	return CLI_OK;
}

const struct cli_command cmd_ln = {
	.name = "ln",
	.args = "TARGET NAME",
	.summary = "give a file another name, or make a symbolic link",
	.details = "Without -s, TARGET is a file of the store, which then has both names and goes with the last one.\n"
	           "With -s, NAME leads to the text TARGET. This program does not follow symbolic links; a mount does.\n\n"
	           "Examples:\n"
	           "  craton ln /runs/42/model.bin /best.bin\n"
	           "  craton ln -s runs/42 /latest\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = 2,
	.silent = true,
	.run = run,
};
