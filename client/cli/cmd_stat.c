/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/cli/cli_stat.h"
#include "common/base/mem.h"

struct values {
	struct cli_common common;
};

static const struct opt opts[] = {CLI_COMMON_OPTS(struct values), {0}};

static void print_json(const char *path, const struct cr_stat *st, const char *target)
{
	struct buf out;
	struct json j;

	cli_json_begin(&out, &j);
	json_str(&j, "path", path);
	cli_stat_json(&j, st);
	if (st->type == CR_TYPE_SYMLINK)
		json_str(&j, "target", target);
	cli_json_end(&out, &j);
}

static void print_text(const char *path, const struct cr_stat *st, const char *target)
{
	char mode[10], mtime[32], *name = cli_printable(path);

	cli_format_mode(st->mode, mode);
	cli_format_time(st->mtime_ns, mtime);
	printf("path   %s\ntype   %s%s\nsize   %llu\nmode   %s\nowner  %u:%u\nlinks  %u\nmtime  %s\ninode  %llu\n", name,
	       cli_stat_type(st), st->type == CR_TYPE_FILE && !st->complete ? " (not complete: still written, or its writer died)" : "",
	       (unsigned long long)st->size, mode, st->uid, st->gid, st->nlink, mtime, (unsigned long long)st->inode);
	mem_free(name);
	if (st->type == CR_TYPE_SYMLINK) {
		name = cli_printable(target);
		printf("target %s\n", name);
		mem_free(name);
	}
}

static int run(struct cli *cli)
{
	int exit_code = cli_connect(cli);

	for (int i = 0; i < cli->word_count && exit_code == CLI_OK; i++) {
		char target[CR_PATH_MAX] = "";
		struct cr_stat st;

		if (cr_stat(cli->store, cli->words[i], &st) < 0 ||
			(st.type == CR_TYPE_SYMLINK && cr_readlink(cli->store, cli->words[i], target, sizeof(target) - 1) < 0))
			exit_code = cli_fail(cli, "%s", cr_error());
		else if (cli->json)
			print_json(cli->words[i], &st, target);
		else
			print_text(cli->words[i], &st, target);
	}
	return exit_code;
}

const struct cli_command cmd_stat = {
	.name = "stat",
	.args = "PATH...",
	.summary = "show type, size, mode and times of files",
	.details = "JSON: one object a path: path, type, size, mode, uid, gid, nlink, mtime_ns, ctime_ns, inode, complete, target.\n\n"
	           "Examples:\n"
	           "  craton stat /data/corpus.bin\n"
	           "  craton stat --json /data/corpus.bin\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.run = run,
};
