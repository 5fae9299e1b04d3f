/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
	uint64_t for_ms;
};

static const struct opt opts[] = {
	{.name = "for", .type = OPT_MS, .offset = offsetof(struct values, for_ms), .default_ = "1h", .min = 1000, .max = 24 * 3600 * 1000, .arg = "TIME",
	 .of = "maintenance on", .help = "how long"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static void print_json(const char *server, uint64_t for_ms)
{
	struct buf out;
	struct json j;

	cli_json_begin(&out, &j);
	json_str(&j, "server", server);
	json_u64(&j, "for_ms", for_ms);
	cli_json_end(&out, &j);
}

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	const char *server = cli->word_count == 3 ? cli->words[2] : "";
	bool on = cli->word_count > 1 && !strcmp(cli->words[1], "on");
	int exit_code;

	if (strcmp(cli->words[0], "maintenance"))
		return cli_usage(cli, "there is no action '%s'; there is maintenance", cli->words[0]);
	if (!*server || (!on && strcmp(cli->words[1], "off")))
		return cli_usage(cli, "maintenance expects on or off, and NAME");
	exit_code = cli_connect(cli);
	if (exit_code != CLI_OK)
		return exit_code;
	if (cr_server_maintenance(cli->store, server, on ? v->for_ms : 0) < 0)
		return cli_fail(cli, "%s", cr_error());
	if (cli->json)
		print_json(server, on ? v->for_ms : 0);
	return CLI_OK;
}

const struct cli_command cmd_server = {
	.name = "server",
	.args = "maintenance on|off NAME",
	.summary = "say that a chunk server will be away for a while",
	.details = "NAME is that of `craton status`, or its number there. A server in maintenance gets no new chunks, and that it is silent is no\n"
	           "reason to rebuild what it holds, until the time is over (24 h at most). Only servers of one failure domain are away at a\n"
	           "time: while one of another domain is in maintenance, or down with blocks on its disks, a further one is refused.\n"
	           "JSON: server, for_ms.\n\n"
	           "Examples:\n"
	           "  craton server maintenance on chunkd-3\n"
	           "  craton server maintenance on chunkd-3 --for 20m\n"
	           "  craton server maintenance off chunkd-3\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = 3,
	.run = run,
};
