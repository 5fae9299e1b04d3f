/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/path.h"
#include "common/base/mem.h"

struct values {
	struct cli_common common;
	bool no_replace;
};

static const struct opt opts[] = {
	{.name = "no-replace", .letter = 'n', .type = OPT_FLAG, .offset = offsetof(struct values, no_replace),
	 .help = "fail if the destination exists"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

/* Why it could not be, where the error's name alone says little. */
static int say_why(struct cli *cli, const char *from, const char *to, int r)
{
	char whence[CR_PATH_MAX], where[CR_PATH_MAX];
	struct err err = {0};
	size_t len;

	if ((r == -EINVAL || r == -EBUSY) && path_resolve(from, whence, &err) == 0 && path_resolve(to, where, &err) == 0) {
		len = strlen(whence);
		if (len == 0)
			return cli_fail(cli, "%s is the root, which is not moved", from);
		if (strncmp(whence, where, len) == 0 && where[len] == '/')
			return cli_fail(cli, "%s cannot be moved to %s, which is below it", from, to);
	}
	return cli_fail(cli, "%s", cr_error());
}

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	const char *from = cli->words[0], *to = cli->words[1];
	char *name, *into = NULL;
	struct cr_stat st, there;
	int exit_code = cli_connect(cli), r;

	if (exit_code != CLI_OK)
		return exit_code;
	if ((path_wants_dir(from) || path_wants_dir(to)) && cr_stat(cli->store, from, &st) < 0) /* "/file/" is nothing that is there */
		return cli_fail(cli, "%s", cr_error());
	name = cli_last_name(from);
	r = cr_stat(cli->store, to, &there);
	if (r == 0 && there.type == CR_TYPE_DIR && *name) /* into a directory, as mv does */
		to = into = mem_printf("%s/%s", to, name);
	if (!into && path_wants_dir(to) && st.type != CR_TYPE_DIR)
		exit_code = cli_fail(cli, "the destination %s is not a directory", to);
	else if ((r = cr_rename(cli->store, from, to, v->no_replace ? CR_RENAME_NOREPLACE : 0)) < 0)
		exit_code = say_why(cli, from, to, r);
	mem_free(into);
	mem_free(name);
	return exit_code;
}

const struct cli_command cmd_mv = {
	.name = "mv",
	.args = "FROM TO",
	.summary = "rename a file or directory, atomically",
	.details = "If TO is a directory, FROM is moved into it. An existing file TO is replaced in the same instant.\n\n"
	           "Examples:\n"
	           "  craton mv /runs/new /runs/final\n"
	           "  craton mv -n /data/a.bin /archive/\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = 2,
	.silent = true,
	.run = run,
};
