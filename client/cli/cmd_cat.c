/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/transfer.h"

struct values {
	struct cli_common common;
};

static const struct opt opts[] = {CLI_COMMON_OPTS(struct values), {0}};

static int run(struct cli *cli)
{
	int exit_code;

	cli->json = false; /* standard output is for the bytes, whatever happens */
	exit_code = cli_connect(cli);
	for (int i = 0; i < cli->word_count && exit_code == CLI_OK; i++) {
		struct progress p;

		progress_start(&p, cli->words[i], 0, true);
		exit_code = transfer_out(cli, cli->words[i], STDOUT_FILENO, "standard output", &p);
		progress_end(&p);
	}
	return exit_code;
}

const struct cli_command cmd_cat = {
	.name = "cat",
	.args = "PATH...",
	.summary = "write files of the store to standard output",
	.details = "--json changes nothing: standard output is for the bytes.\n\nExample:\n  craton cat /runs/gpt/step-00000100/manifest.json\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.run = run,
};
