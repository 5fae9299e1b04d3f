/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "common/base/units.h"

struct values {
	struct cli_common common;
};

static const struct opt opts[] = {CLI_COMMON_OPTS(struct values), {0}};

static void print_json(const struct cr_gc *gc)
{
	struct buf out;
	struct json j;

	cli_json_begin(&out, &j);
	json_u64(&j, "pending_bytes", gc->pending_bytes);
	json_u64(&j, "files_waiting", gc->files_waiting);
	json_u64(&j, "copies_waiting", gc->copies_waiting);
	json_bool(&j, "more_waiting", gc->more_waiting);
	json_u64(&j, "grace_ms", gc->grace_ms);
	json_u64(&j, "floor", gc->floor);
	json_u64(&j, "next_block", gc->next_block);
	json_u64(&j, "floor_in_ms", gc->floor_in_ms);
	json_u64(&j, "copies_dropped", gc->copies_dropped);
	json_u64(&j, "orphans_found", gc->orphans_found);
	json_u64(&j, "missing_found", gc->missing_found);
	json_u64(&j, "inventories", gc->inventories);
	json_u64(&j, "inventories_refused", gc->inventories_refused);
	cli_json_end(&out, &j);
}

static void print_text(const struct cr_gc *gc)
{
	const char *more = gc->more_waiting ? " or more" : "";
	char pending[UNITS_TEXT_BYTES];

	printf("pending      %s of deleted data\n", units_format_bytes(gc->pending_bytes, pending));
	printf("waiting      %llu files%s to be taken apart, %llu chunks%s to be dropped (%llu s after their last name)\n",
	       (unsigned long long)gc->files_waiting, more, (unsigned long long)gc->copies_waiting, more,
	       (unsigned long long)(gc->grace_ms / 1000));
	printf("done         %llu chunks dropped since metad started\n", (unsigned long long)gc->copies_dropped);
	printf("inventories  %llu, found %llu orphans and %llu missing chunks; %llu refused\n", (unsigned long long)gc->inventories,
	       (unsigned long long)gc->orphans_found, (unsigned long long)gc->missing_found, (unsigned long long)gc->inventories_refused);
	if (gc->floor < gc->next_block)
		printf("floor        orphans of %llu block ids in use lately cannot be told yet; the next ones in %llu s\n",
		       (unsigned long long)(gc->next_block - gc->floor), (unsigned long long)(gc->floor_in_ms / 1000));
}

static int run(struct cli *cli)
{
	bool start = !strcmp(cli->words[0], "start");
	struct cr_gc gc;
	int exit_code;

	if (!start && strcmp(cli->words[0], "status"))
		return cli_usage(cli, "'%s' is neither status nor start", cli->words[0]);
	exit_code = cli_connect(cli);
	if (exit_code != CLI_OK)
		return exit_code;
	if (cr_gc(cli->store, start, &gc) < 0)
		return cli_fail(cli, "%s", cr_error());
	if (cli->json)
		print_json(&gc);
	else
		print_text(&gc);
	return CLI_OK;
}

const struct cli_command cmd_gc = {
	.name = "gc",
	.args = "status | start",
	.summary = "show what was deleted and is not reclaimed yet, or hurry it up",
	.details = "Garbage is collected all the time. A file stays readable for 60 s after its last name went, for those who have it open;\n"
	           "its chunks are dropped `gc.grace` (2m; craton config) after that. start spares what was deleted so far most of the 60 s, but not while\n"
	           "a client is there that may have it open and has not said since what it has (each does so every 10 s; of mounts and others that\n"
	           "only read it is not known which one did), and asks all chunk servers for an inventory, which finds chunks that no file names (of crashed writers): those whose block ids the floor has passed,\n"
	           "36 min after they were given out. It does not wait: look at status.\n"
	           "JSON: pending_bytes (raw), files_waiting, copies_waiting, more_waiting (there are more than these), grace_ms, floor,\n"
	           "next_block, floor_in_ms; since metad started: copies_dropped, orphans_found, missing_found, inventories,\n"
	           "inventories_refused.\n\n"
	           "Examples:\n"
	           "  craton gc status\n"
	           "  craton gc start --json\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
