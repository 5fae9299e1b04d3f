/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/tool.h"
#include "common/base/mem.h"

struct values {
	struct cli_common common;
	uint64_t capacity, segment;
};

static const struct opt opts[] = {
	{.name = "capacity", .type = OPT_BYTES, .offset = offsetof(struct values, capacity), .arg = "SIZE",
	 .of = "format", .help = "most space that will be taken, which decides the segment size; else what the file system has, less 5 %"},
	{.name = "segment", .type = OPT_BYTES, .offset = offsetof(struct values, segment), .arg = "SIZE",
	 .of = "format", .help = "segment size; else 1 GiB, on small disks 64 MiB"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	char capacity[32], segment[32], *config;
	int exit_code;

	if (strcmp(cli->words[0], "format"))
		return cli_usage(cli, "there is no action '%s'; there is format", cli->words[0]);
	if (cli->word_count != 2)
		return cli_usage(cli, "format expects PATH");
	config = tool_config(cli);
	if (!config)
		return CLI_FAILED;
	snprintf(capacity, sizeof(capacity), "%llu", (unsigned long long)v->capacity);
	snprintf(segment, sizeof(segment), "%llu", (unsigned long long)v->segment);
	exit_code = tool_run(cli, "craton-chunkd",
	                     (const char *const[]){"--format", "-c", config, "--disk", cli->words[1], "--capacity", capacity, "--segment", segment,
	                                           NULL});
	mem_free(config);
	return exit_code;
}

const struct cli_command cmd_disk = {
	.name = "disk",
	.args = "format PATH",
	.summary = "make a disk for a chunk server of this host",
	.details = "Makes a disk of the configuration's cluster of PATH, an empty directory (the mount point of a file system of its own). A disk\n"
	           "of this or another cluster and a directory with other files are refused; nothing is ever overwritten. Chunk servers that\n"
	           "run with --no-format serve only disks made so.\n"
	           "JSON: text.\n\n"
	           "Examples:\n"
	           "  craton disk format /srv/craton/disk1\n"
	           "  craton disk format -c conf/craton.conf ./disk --capacity 10G\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 2,
	.run = run,
};
