/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
	bool no_replace;
};

static const struct opt opts[] = {
	{.name = "no-replace", .letter = 'n', .type = OPT_FLAG, .offset = offsetof(struct values, no_replace),
	 .help = "fail if the destination exists"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	const char *from = cli->words[0], *to = cli->words[1], *base = strrchr(from, '/');
	char path[CR_PATH_MAX];
	struct cr_stat st;
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	if (base && base[1] && cr_stat(cli->store, to, &st) == 0 && st.type == CR_TYPE_DIR) { /* into a directory, as mv does */
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", to, base + 1) >= sizeof(path))
			return cli_fail(cli, "the destination path is longer than %d bytes", CR_PATH_MAX - 1);
		to = path;
	}
	if (cr_rename(cli->store, from, to, v->no_replace ? CR_RENAME_NOREPLACE : 0) < 0)
		return cli_fail(cli, "%s", cr_error());
	return CLI_OK;
}

const struct cli_command cmd_mv = {
	.name = "mv",
	.args = "FROM TO",
	.summary = "rename a file or directory, atomically",
	.details = "If TO is a directory, FROM is moved into it. An existing file TO is replaced in the same instant.\n\n"
	           "Examples:\n"
	           "  craton mv /runs/new /runs/final\n"
	           "  craton mv -n /data/a.bin /archive/\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = 2,
	.silent = true,
	.run = run,
};
