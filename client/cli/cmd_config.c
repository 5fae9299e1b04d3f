/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/store_status.h"

struct values {
	struct cli_common common;
};

static const struct opt opts[] = {CLI_COMMON_OPTS(struct values), {0}};

static int run(struct cli *cli)
{
	static const struct {
		const char *name, *expects;
		int words;
	} verbs[] = {{"ls", "ls expects no further word", 1}, {"get", "get expects NAME", 2}, {"set", "set expects NAME and VALUE", 3}};
	const char *name = cli->word_count > 1 ? cli->words[1] : NULL, *value = cli->word_count > 2 ? cli->words[2] : NULL;
	size_t verb = 0;
	char *json;
	int exit_code;

	while (verb < 3 && strcmp(cli->words[0], verbs[verb].name))
		verb++;
	if (verb == 3)
		return cli_usage(cli, "'%s' is none of ls, get, set", cli->words[0]);
	if (cli->word_count != verbs[verb].words || (name && !*name) || (value && !*value))
		return cli_usage(cli, "%s", verbs[verb].expects);
	exit_code = cli_connect(cli);
	if (exit_code != CLI_OK)
		return exit_code;
	if (cr_config_json(cli->store, name, value, &json) < 0)
		return cli_fail(cli, "%s", cr_error());
	if (cli->json)
		printf("%s\n", json);
	else if (verb < 2)
		store_settings_print(json, verb == 1, stdout);
	free(json);
	return CLI_OK;
}

const struct cli_command cmd_config = {
	.name = "config",
	.args = "ls | get NAME | set NAME VALUE",
	.summary = "show or change settings of the store",
	.details = "Settings hold for the whole store and last. VALUE is yes or no, a time (500ms, 30s, 10m, 1h, 2d; a bare number is seconds),\n"
	           "a size (64K, 1G; a bare number is bytes), a number, or `default`.\n"
	           "JSON: settings [name, type, unit, min, max, default, value, text, default_text, help].\n\n"
	           "Examples:\n"
	           "  craton config ls\n"
	           "  craton config get server.dead_after\n"
	           "  craton config set server.dead_after 5m\n"
	           "  craton config set server.dead_after default\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 3,
	.run = run,
};
