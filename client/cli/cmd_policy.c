/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <errno.h>
#include <string.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
};

static const struct opt opts[] = {CLI_COMMON_OPTS(struct values), {0}};

static int show(struct cli *cli, const char *path)
{
	char name[16];
	struct buf out;
	struct json j;

	if (cr_policy_get(cli->store, path, name, sizeof(name)) < 0)
		return cli_fail(cli, "%s", cr_error());
	if (!cli->json) {
		printf("%s\n", name);
		return CLI_OK;
	}
	cli_json_begin(&out, &j);
	json_name(&j, "path", path);
	json_str(&j, "policy", name);
	cli_json_end(&out, &j);
	return CLI_OK;
}

static int run(struct cli *cli)
{
	bool set = !strcmp(cli->words[0], "set"), inherit;
	int exit_code, r;

	if (!set && strcmp(cli->words[0], "get"))
		return cli_usage(cli, "'%s' is neither get nor set", cli->words[0]);
	if (cli->word_count != (set ? 3 : 2))
		return cli_usage(cli, set ? "set expects PATH and POLICY" : "get expects PATH");
	exit_code = cli_connect(cli);
	if (exit_code != CLI_OK)
		return exit_code;
	if (!set)
		return show(cli, cli->words[1]);
	inherit = !strcmp(cli->words[2], "inherit");
	r = cr_policy_set(cli->store, cli->words[1], inherit ? "" : cli->words[2]);
	if (r == -EINVAL && inherit)
		return cli_fail(cli, "%s has nobody to inherit from: name a policy", cli->words[1]);
	if (r < 0)
		return cli_fail(cli, "%s", cr_error());
	return cli_done(cli);
}

const struct cli_command cmd_policy = {
	.name = "policy",
	.args = "get PATH | set PATH POLICY",
	.summary = "show or set the coding of new files in a directory",
	.details = "POLICY is rs-4-2, rs-6-3, rs-8-3, rs-8-4, rs-10-4, rs-9-6 (data and parity chunks), rs-1-2 (three copies), or inherit.\n"
	           "It holds for files written from then on, in the directory and below it. Existing files keep theirs.\n"
	           "JSON of get: path, policy.\n\n"
	           "Examples:\n"
	           "  craton policy get /data\n"
	           "  craton policy set /data rs-8-3\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = 3,
	.run = run,
};
