/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/process.h"
#include "client/cli/store_status.h"

struct values {
	struct cli_common common;
	bool watch;
	uint64_t interval_ms;
};

static const struct opt opts[] = {
	{.name = "watch", .letter = 'w', .type = OPT_FLAG, .offset = offsetof(struct values, watch), .help = "show it again and again until interrupted"},
	{.name = "interval", .type = OPT_MS, .offset = offsetof(struct values, interval_ms), .default_ = "2s", .min = 100, .max = 3600000, .arg = "TIME",
	 .help = "time between two looks with --watch"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int show_once(struct cli *cli, bool clear)
{
	struct store_status status;
	int exit_code;
	int r = store_status_fetch(cli->store, &status);

	if (r < 0)
		return cli_fail(cli, "%s", r == -EPROTO ? "the answer of metad cannot be read; use a client of its version" : cr_error());
	if (cli->json) {
		printf("%s\n", status.json);
	} else {
		if (clear)
			printf("\033[H\033[2J");
		store_status_print(&status, stdout);
	}
	fflush(stdout);
	exit_code = status.exit_code;
	store_status_fini(&status);
	return exit_code;
}

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	exit_code = show_once(cli, v->watch && isatty(STDOUT_FILENO));
	while (v->watch && !ferror(stdout)) {
		process_sleep_ms(v->interval_ms);
		exit_code = show_once(cli, isatty(STDOUT_FILENO));
	}
	return exit_code;
}

const struct cli_command cmd_status = {
	.name = "status",
	.args = "",
	.summary = "show the health of the store",
	.details = "Exit code: 0 health ok, 3 warn, 4 error, 1 if the store does not answer.\n"
	           "JSON: health (ok|warn|error), reasons [code, severity, text], blocks {full, crowded, degraded, at_risk, lost, by_margin},\n"
	           "servers [server, name, address, domain, state, silent_ms, disks, version], disks [disk, server, path, state, generation,\n"
	           "capacity_bytes, free_bytes, chunks, error], df {total_bytes, free_bytes, available_bytes, pending_bytes, file_count, dir_count,\n"
	           "file_bytes}, repair {enabled, wanted, helpless, no_target, active, done, failed, bytes, hold_ms, out_wait_ms, reports,\n"
	           "damaged}, sessions {open, expired, lost, forged, out_of_window, orphans}, refused [cause, count, ago_ms], settings [name, type,\n"
	           "unit, min, max, default, value, text, default_text, help] (those not at their default), cluster, version, default_policy,\n"
	           "state_time_ms, applied_index, floor. docs/cli.md says what they mean.\n\n"
	           "Examples:\n"
	           "  craton status\n"
	           "  craton status --watch\n"
	           "  craton status --json | jq .blocks\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 0,
	.max_words = 0,
	.run = run,
};
