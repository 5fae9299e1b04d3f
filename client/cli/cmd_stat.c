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
	json_name(&j, "path", path);
	cli_stat_json(&j, st);
	if (st->type == CR_TYPE_SYMLINK)
		json_name(&j, "target", target);
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

static int show_one(struct cli *cli, const char *path)
{
	char target[CR_PATH_MAX] = "";
	struct cr_stat st;
	ssize_t r = cr_stat(cli->store, path, &st);

	if (r == 0 && st.type == CR_TYPE_SYMLINK)
		r = cr_readlink(cli->store, path, target, sizeof(target) - 1);
	if (r < 0)
		return cli_fail_store(cli, (int)r);
	(cli->json ? print_json : print_text)(path, &st, target);
	return CLI_OK;
}

static int run(struct cli *cli)
{
	int exit_code = cli_connect(cli);

	return exit_code == CLI_OK ? cli_each_word(cli, show_one) : exit_code;
}

const struct cli_command cmd_stat = {
	.name = "stat",
	.args = "PATH...",
	.summary = "show type, size, mode and times of files",
	.details = "JSON: one object a path: path, type, size, mode, uid, gid, nlink, mtime_ns, ctime_ns, inode, complete, target;\n"
	           "path_base64, target_base64 where they are not UTF-8. What is not there is named, and the others are shown.\n\n"
	           "Examples:\n"
	           "  craton stat /data/corpus.bin\n"
	           "  craton stat --json /data/corpus.bin\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = CLI_WORDS,
	.run = run,
};
