/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/cli_stat.h"
#include "common/base/mem.h"

struct values {
	struct cli_common common;
	bool recursive, brief;
	bool printed; /* something, for an earlier word */
};

static const struct opt opts[] = {
	{.name = "recursive", .letter = 'r', .type = OPT_FLAG, .offset = offsetof(struct values, recursive), .help = "list directories below too"},
	{.name = "names", .letter = '1', .type = OPT_FLAG, .offset = offsetof(struct values, brief), .help = "print names only"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static void print_entry(const struct cli *cli, const char *path, const struct cr_stat *st)
{
	const struct values *v = cli->values;
	char mode[10], mtime[32], *name;
	struct buf out;
	struct json j;

	if (cli->json) {
		cli_json_begin(&out, &j);
		json_name(&j, "name", path);
		cli_stat_json(&j, st);
		cli_json_end(&out, &j);
		return;
	}
	name = cli_printable(path);
	if (v->brief) {
		printf("%s\n", name);
	} else {
		cli_format_mode(st->mode, mode);
		cli_format_time(st->mtime_ns, mtime);
		printf("%c%s %5u:%-5u %14llu %s %s%s%s\n", st->type == CR_TYPE_DIR ? 'd' : st->type == CR_TYPE_SYMLINK ? 'l' : '-', mode, st->uid, st->gid,
		       (unsigned long long)st->size, mtime, name, st->type == CR_TYPE_DIR ? "/" : "",
		       st->type == CR_TYPE_FILE && !st->complete ? " (not complete)" : "");
	}
	mem_free(name);
}

/* `shown` is what stands before names: "" for the directory asked for. What cannot be listed is named, and the rest listed all the same. */
static int list(struct cli *cli, const char *path, const char *shown)
{
	const struct values *v = cli->values;
	struct cr_dirent *entry = MEM_NEW(struct cr_dirent);
	struct cr_dir *dir;
	int exit_code = CLI_OK;
	int r = cr_opendir(cli->store, path, &dir);

	if (r == 0) {
		while (!cli->away && (r = cr_readdir(dir, entry)) == 1) {
			char *name = mem_printf("%s%s", shown, entry->name);

			print_entry(cli, name, &entry->stat);
			if (v->recursive && entry->stat.type == CR_TYPE_DIR) {
				char *below = mem_printf("%s/%s", strcmp(path, "/") ? path : "", entry->name);
				char *prefix = mem_printf("%s/", name);

				if (list(cli, below, prefix) != CLI_OK)
					exit_code = CLI_FAILED;
				mem_free(below);
				mem_free(prefix);
			}
			mem_free(name);
		}
		cr_closedir(dir);
	}
	mem_free(entry);
	return r < 0 ? cli_fail_store(cli, r) : exit_code;
}

/* Of several directories each is named before its entries: in a line of its own, with --json as part of the names. */
static int list_one(struct cli *cli, const char *path)
{
	struct values *v = cli->values;
	struct cr_stat st;
	char *shown = NULL;
	int exit_code, r = cr_stat(cli->store, path, &st);

	if (r < 0)
		return cli_fail_store(cli, r);
	if (st.type != CR_TYPE_DIR) {
		print_entry(cli, path, &st);
		v->printed = true;
		return CLI_OK;
	}
	if (cli->word_count > 1 && cli->json) {
		shown = mem_printf("%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/");
	} else if (cli->word_count > 1) {
		char *name = cli_printable(path);

		printf("%s%s:\n", v->printed ? "\n" : "", name);
		mem_free(name);
	}
	v->printed = true;
	exit_code = list(cli, path, shown ? shown : "");
	mem_free(shown);
	return exit_code;
}

static int run(struct cli *cli)
{
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	return cli->word_count ? cli_each_word(cli, list_one) : list_one(cli, "/");
}

const struct cli_command cmd_ls = {
	.name = "ls",
	.args = "[PATH...]",
	.summary = "list directories",
	.details = "What cannot be listed is named, and the rest listed all the same; the exit status is then 1.\n"
	           "JSON: one object an entry: name (with several PATHs with that of its directory), type, size, mode, uid, gid, nlink,\n"
	           "mtime_ns, ctime_ns, inode, complete; name_base64 where the name is not UTF-8. As text, what cannot be shown in a name is\n"
	           "shown as \\xHH, and so may be a name that has these letters: programs take --json.\n\n"
	           "Examples:\n"
	           "  craton ls /data\n"
	           "  craton ls -1 /data /runs\n"
	           "  craton ls -r --json /runs\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 0,
	.max_words = CLI_WORDS,
	.run = run,
};
