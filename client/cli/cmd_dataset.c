/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/progress.h"
#include "client/dataset.h"
#include "common/base/units.h"

struct values {
	struct cli_common common;
	uint64_t shard_bytes;
};

static const struct opt opts[] = {
	{.name = "shard-size", .type = OPT_BYTES, .offset = offsetof(struct values, shard_bytes), .default_ = "256M",
	 .min = CR_DATASET_SHARD_BYTES_MIN, .max = CR_DATASET_SHARD_BYTES_MAX, .arg = "SIZE", .of = "pack", .help = "bytes of one shard file"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int show_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
	struct progress *p = user;

	p->total = total_bytes;
	progress_add(p, done_bytes - p->done);
	return 0;
}

static void print_info(const struct cli *cli, const char *dest, const struct cr_dataset_info *info)
{
	char id[2 * CR_DATASET_ID_BYTES + 1], bytes[UNITS_TEXT_BYTES];
	struct buf out;
	struct json j;

	for (int i = 0; i < CR_DATASET_ID_BYTES; i++)
		snprintf(id + 2 * i, 3, "%02x", info->id[i]);
	if (!cli->json) {
		printf("%s: %s of %u files in %u shards, id %s\n", dest, units_format_bytes(info->total_bytes, bytes), info->file_count,
		       info->shard_count, id);
		return;
	}
	cli_json_begin(&out, &j);
	json_name(&j, "path", dest);
	json_u64(&j, "bytes", info->total_bytes);
	json_u64(&j, "files", info->file_count);
	json_u64(&j, "shards", info->shard_count);
	json_u64(&j, "shard_bytes", info->shard_bytes);
	json_str(&j, "id", id);
	cli_json_end(&out, &j);
}

static int pack(struct cli *cli)
{
	const struct values *v = cli->values;
	const char *dest = cli->words[cli->word_count - 1];
	char error[CR_DATASET_ERROR_BYTES];
	struct cr_dataset_info info;
	struct progress p;
	struct cr_dataset_pack_options options = {.shard_bytes = v->shard_bytes, .progress = show_progress, .user = &p};
	int exit_code = cli_connect(cli), r;

	if (exit_code != CLI_OK)
		return exit_code;
	progress_start(&p, dest, 0, cli->json);
	r = cr_dataset_pack(cli->store, cli->words + 1, (size_t)cli->word_count - 2, dest, &options, &info, error);
	progress_end(&p);
	if (r < 0)
		return cli_fail(cli, "%s", error);
	print_info(cli, dest, &info);
	return CLI_OK;
}

static int show(struct cli *cli)
{
	char error[CR_DATASET_ERROR_BYTES];
	struct cr_dataset *d;
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	if (cr_dataset_open(cli->store, cli->words[1], &d, error) < 0)
		return cli_fail(cli, "%s", error);
	print_info(cli, cli->words[1], cr_dataset_info(d));
	cr_dataset_close(d);
	return CLI_OK;
}

static int run(struct cli *cli)
{
	if (!strcmp(cli->words[0], "pack"))
		return cli->word_count < 3 ? cli_usage(cli, "pack expects SOURCE... DEST") : pack(cli);
	if (!strcmp(cli->words[0], "info"))
		return cli->word_count != 2 ? cli_usage(cli, "info expects PATH") : show(cli);
	return cli_usage(cli, "there is no action '%s'; there are pack and info", cli->words[0]);
}

const struct cli_command cmd_dataset = {
	.name = "dataset",
	.args = "pack SOURCE... DEST | info PATH",
	.summary = "pack files into a dataset that craton-train streams",
	.details = "pack writes the local files, and all files below local directories, into the new directory DEST of the store, which\n"
	           "appears whole or not at all. info shows what a dataset holds.\n"
	           "JSON: path, bytes, files, shards, shard_bytes, id.\n\n"
	           "Examples:\n"
	           "  craton dataset pack corpus.txt /data/corpus\n"
	           "  craton dataset info /data/corpus\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = CLI_WORDS,
	.run = run,
};
