/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
	uint64_t size;
};

static const struct opt opts[] = {
	{.name = "size", .letter = 's', .arg = "SIZE", .type = OPT_BYTES, .offset = offsetof(struct values, size), .default_ = "0",
	 .max = 1ull << 62, .help = "the new length"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	for (int i = 0; i < cli->word_count; i++)
		if (cr_truncate(cli->store, cli->words[i], v->size) < 0)
			return cli_fail(cli, "%s", cr_error());
	return CLI_OK;
}

const struct cli_command cmd_truncate = {
	.name = "truncate",
	.args = "PATH...",
	.summary = "make files shorter, or longer with zeros",
	.details = "Whoever is writing one of the files loses it. The space comes back in the background (`craton gc status`).\n\n"
	           "Examples:\n"
	           "  craton truncate /logs/train.log\n"
	           "  craton truncate --size 1G /data/sparse.bin\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.silent = true,
	.run = run,
};
