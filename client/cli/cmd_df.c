/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/cli/cli.h"
#include "common/base/units.h"

struct values {
	struct cli_common common;
};

static const struct opt opts[] = {CLI_COMMON_OPTS(struct values), {0}};

static void print_json(const struct cr_df *df)
{
	struct buf out;
	struct json j;

	cli_json_begin(&out, &j);
	json_u64(&j, "total_bytes", df->total_bytes);
	json_u64(&j, "free_bytes", df->free_bytes);
	if (df->available_bytes != CR_DF_UNKNOWN)
		json_u64(&j, "available_bytes", df->available_bytes);
	json_u64(&j, "pending_bytes", df->pending_bytes);
	json_u64(&j, "files", df->file_count);
	json_u64(&j, "directories", df->dir_count);
	json_u64(&j, "file_bytes", df->file_bytes);
	cli_json_end(&out, &j);
}

static int run(struct cli *cli)
{
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES], d[UNITS_TEXT_BYTES], e[UNITS_TEXT_BYTES];
	struct cr_df df;
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	if (cr_df(cli->store, &df) < 0)
		return cli_fail(cli, "%s", cr_error());
	if (cli->json) {
		print_json(&df);
		return CLI_OK;
	}
	printf("raw space    %s, free %s\npending      %s of deleted data, not reclaimed yet\nuser data    %s in %llu files, %llu directories\n",
	       units_format_bytes(df.total_bytes, a), units_format_bytes(df.free_bytes, b), units_format_bytes(df.pending_bytes, c),
	       units_format_bytes(df.file_bytes, d), (unsigned long long)df.file_count, (unsigned long long)df.dir_count);
	if (df.available_bytes != CR_DF_UNKNOWN)
		printf("room for     %s more of user data\n", units_format_bytes(df.available_bytes, e));
	return CLI_OK;
}

const struct cli_command cmd_df = {
	.name = "df",
	.args = "",
	.summary = "show the space of the store",
	.details = "Room is what can be written yet under the root's policy. There is more free space than that takes: of each disk some is kept for\n"
	           "repair (`disk.full`; craton config). The space of removed files comes back after `gc.grace`.\n"
	           "JSON: total_bytes, free_bytes (raw, over all disks), available_bytes (user data that can be written yet; absent if\n"
	           "an older metad does not say), pending_bytes (raw, deleted but not reclaimed), files, directories, file_bytes (user data).\n\nExample:\n  craton df\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 0,
	.max_words = 0,
	.run = run,
};
