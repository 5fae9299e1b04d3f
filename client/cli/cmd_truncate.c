/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
	uint64_t size;
};

static const struct opt opts[] = {
	{.name = "size", .letter = 's', .arg = "SIZE", .type = OPT_BYTES, .offset = offsetof(struct values, size),
	 .max = 1ull << 62, .help = "the new length; must be given"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int cut_one(struct cli *cli, const char *path)
{
	const struct values *v = cli->values;
	int r = cr_truncate(cli->store, path, v->size);

	return r < 0 ? cli_fail_store(cli, r) : CLI_OK;
}

static int run(struct cli *cli)
{
	int exit_code;

	if (!opt_given(cli->options, "size"))
		return cli_usage(cli, "--size is missing: give the new length, 0 to empty the files");
	exit_code = cli_connect(cli);
	return exit_code == CLI_OK ? cli_each_word(cli, cut_one) : exit_code;
}

const struct cli_command cmd_truncate = {
	.name = "truncate",
	.args = "PATH...",
	.summary = "make files shorter, or longer with zeros",
	.details = "Whoever is writing one of the files loses it. The space comes back in the background (`craton gc status`).\n\n"
	           "Examples:\n"
	           "  craton truncate --size 0 /logs/train.log\n"
	           "  craton truncate --size 1G /data/sparse.bin\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.silent = true,
	.run = run,
};
