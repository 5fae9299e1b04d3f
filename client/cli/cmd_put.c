/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/transfer.h"
#include "common/base/mem.h"

struct values {
	struct cli_common common;
	bool recursive, parents, exclusive;
};

static const struct opt opts[] = {
	{.name = "recursive", .letter = 'r', .type = OPT_FLAG, .offset = offsetof(struct values, recursive), .help = "copy directories with all they hold"},
	{.name = "parents", .letter = 'p', .type = OPT_FLAG, .offset = offsetof(struct values, parents), .help = "make missing parents of the destination"},
	{.name = "exclusive", .letter = 'x', .type = OPT_FLAG, .offset = offsetof(struct values, exclusive), .help = "fail if the destination file exists"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

enum { LINKS_MAX = 40 }; /* as in Linux */

/*
 * What lies at the end of the symbolic links that `path` leads to; `path` itself if it is none. Relative targets count from where the link
 * lies, absolute ones from the root of the store. *ret_type: CR_TYPE_*; 0: nothing lies there. NULL: it was said what is wrong. mem_free() it.
 */
static char *follow(struct cli *cli, const char *path, int *ret_type)
{
	char *at = mem_strdup(path), *next;

	*ret_type = 0;
	for (int links = 0; links <= LINKS_MAX; links++) {
		char target[CR_PATH_MAX] = "";
		struct cr_stat st;
		size_t n = strlen(at);
		int r;

		while (n > 1 && at[n - 1] == '/') /* "link/" is not the link, but what it leads to */
			at[--n] = '\0';
		r = cr_stat(cli->store, at, &st);
		if (r < 0 && links == 0 && !cli_is_away(r))
			return at; /* or it cannot be seen: that shows when it is written */
		if (r < 0 && !cli_is_away(r)) {
			cli_fail(cli, "%s is a symbolic link that leads nowhere: %s", path, cr_error());
			mem_free(at);
			return NULL;
		}
		if (r == 0 && st.type != CR_TYPE_SYMLINK) {
			*ret_type = st.type;
			return at;
		}
		if (r == 0)
			r = (int)cr_readlink(cli->store, at, target, sizeof(target) - 1);
		if (r < 0) {
			cli_fail_store(cli, r);
			mem_free(at);
			return NULL;
		}
		while (n > 0 && at[n - 1] != '/')
			n--;
		next = *target == '/' ? mem_strdup(target) : mem_printf("%.*s%s", (int)n, at, target);
		mem_free(at);
		at = next;
	}
	cli_fail(cli, "%s is a symbolic link that leads to another one, and so on, more than %d times", path, LINKS_MAX);
	mem_free(at);
	return NULL;
}

/* `followed`: there is no symbolic link under that name. */
static int put_file(struct cli *cli, const char *local, const char *path, bool followed, struct transfer_totals *totals)
{
	const struct values *v = cli->values;
	struct progress p;
	struct stat st;
	char *end = NULL;
	int fd = strcmp(local, "-") ? open(local, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	int exit_code, type;

	if (fd < 0)
		return cli_fail(cli, "cannot open %s: %s", local, strerror(errno));
	if (!followed && !v->exclusive) {
		end = follow(cli, path, &type);
		if (!end) {
			close(fd);
			return CLI_FAILED;
		}
		path = end;
	}
	if (fstat(fd, &st) < 0)
		st = (struct stat){.st_mode = 0644};
	progress_start(&p, local, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0, cli->json);
	exit_code = transfer_in(cli, fd, local, path, S_ISREG(st.st_mode) ? st.st_mode & 0777 : 0644, v->exclusive, &p);
	progress_end(&p);
	close(fd);
	mem_free(end);
	if (exit_code == CLI_OK) {
		totals->files++;
		totals->bytes += p.done;
	}
	return exit_code;
}

/* The directories that lead to where we are: a link back to one of them would be followed for ever. */
struct above {
	const struct above *up;
	dev_t dev;
	ino_t ino;
};

static bool leads_back(const struct above *up, const struct stat *st)
{
	for (; up; up = up->up)
		if (up->dev == st->st_dev && up->ino == st->st_ino)
			return true;
	return false;
}

static void put_tree(
	struct cli *cli, const char *local, const char *path, bool followed, const struct above *up, struct transfer_totals *totals);

/* What cannot be read is named, and the rest is copied all the same. */
static int put_entries(
	struct cli *cli, const char *local, const char *path, bool followed, const struct above *here, struct transfer_totals *totals)
{
	int exit_code = CLI_OK;
	DIR *dir = opendir(local);

	if (!dir)
		return cli_fail(cli, "cannot read %s: %s", local, strerror(errno));
	while (!cli_gives_up(cli)) {
		const struct dirent *e = (errno = 0, readdir(dir));
		char *from, *to;

		if (!e && errno)
			exit_code = cli_fail(cli, "cannot read %s: %s", local, strerror(errno));
		if (!e)
			break;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		from = mem_printf("%s/%s", local, e->d_name);
		to = mem_printf("%s/%s", strcmp(path, "/") ? path : "", e->d_name);
		put_tree(cli, from, to, followed, here, totals);
		mem_free(from);
		mem_free(to);
	}
	closedir(dir);
	return exit_code;
}

/* A directory's own failure only: those below it count for themselves. */
static int put_any(
	struct cli *cli, const char *local, const char *path, bool followed, const struct above *up, struct transfer_totals *totals)
{
	const struct values *v = cli->values;
	struct above here = {.up = up};
	struct stat st;
	int r;

	if (!strcmp(local, "-"))
		return put_file(cli, local, path, followed, totals);
	if (stat(local, &st) < 0)
		return cli_fail(cli, "cannot open %s: %s", local, strerror(errno));
	/* A pipe that is named is meant; one that lies in a tree may have no writer, ever. */
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && (up || !S_ISFIFO(st.st_mode)))
		return cli_fail(cli, "%s is neither a file nor a directory", local);
	if (!S_ISDIR(st.st_mode))
		return put_file(cli, local, path, followed, totals);
	if (!v->recursive)
		return cli_fail(cli, "%s is a directory; give -r to copy it with all it holds", local);
	if (leads_back(up, &st))
		return cli_fail(cli, "%s is a link back to a directory above it; remove it", local);
	here.dev = st.st_dev;
	here.ino = st.st_ino;
	followed = true; /* what we make is empty */
	r = cr_mkdir(cli->store, path, st.st_mode & 0777);
	if (r < 0) {
		struct cr_stat there;

		if (r != -EEXIST)
			return cli_fail_store(cli, r);
		r = cr_stat(cli->store, path, &there);
		if (r < 0)
			return cli_fail_store(cli, r);
		if (there.type != CR_TYPE_DIR)
			return cli_fail(cli, "%s is a directory, and %s is none", local, path);
		followed = false;
	}
	return put_entries(cli, local, path, followed, &here, totals);
}

static void put_tree(
	struct cli *cli, const char *local, const char *path, bool followed, const struct above *up, struct transfer_totals *totals)
{
	totals->failed += put_any(cli, local, path, followed, up, totals) != CLI_OK;
}

static int make_parents(struct cli *cli, const char *dest, bool dest_is_dir)
{
	char *dir = mem_strdup(dest), *slash = strrchr(dir, '/');
	int r = 0;

	if (!dest_is_dir && slash)
		*slash = '\0';
	if (*dir)
		r = cr_mkdir_parents(cli->store, dir, cli_dir_mode());
	mem_free(dir);
	return r < 0 ? cli_fail_store(cli, r) : CLI_OK;
}

/* CLI_USAGE if that cannot be meant; what fails is counted. */
static int put_one(struct cli *cli, const char *local, const char *dest, bool into, struct transfer_totals *totals)
{
	const char *slash;
	char *trimmed = mem_strdup(local), *path;
	size_t n = strlen(trimmed);

	while (n > 1 && trimmed[n - 1] == '/')
		trimmed[--n] = '\0';
	slash = strrchr(trimmed, '/');
	if (into && !strcmp(local, "-")) {
		mem_free(trimmed);
		return cli_usage(cli, "standard input needs a file name as destination, and %s is a directory", dest);
	}
	path = into ? mem_printf("%s/%s", strcmp(dest, "/") ? dest : "", slash ? slash + 1 : trimmed) : mem_strdup(dest);
	put_tree(cli, trimmed, path, !into, NULL, totals);
	mem_free(path);
	mem_free(trimmed);
	return CLI_OK;
}

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	const char *dest = cli->words[cli->word_count - 1];
	char *end = NULL;
	bool many = cli->word_count > 2, slash = dest[strlen(dest) ? strlen(dest) - 1 : 0] == '/';
	struct transfer_totals totals = {.several = v->recursive || many};
	int type, exit_code = cli_connect(cli);
	bool into;

	if (exit_code == CLI_OK && v->parents)
		exit_code = make_parents(cli, dest, many || slash);
	if (exit_code != CLI_OK)
		return exit_code;
	end = follow(cli, dest, &type);
	if (!end)
		return CLI_FAILED;
	into = type == CR_TYPE_DIR;
	if (into || !v->exclusive)
		dest = end;
	if ((many || slash) && type && !into) {
		exit_code = cli_fail(cli, "the destination %s is not a directory: name one, or a single source and no / behind the name", dest);
	} else if ((many || slash) && !into) {
		char *quoted = cli_quoted(dest);

		exit_code = cli_fail(cli, "the destination %s is not a directory; make it with: craton mkdir -p %s", dest, quoted);
		mem_free(quoted);
	}
	for (int i = 0; i < cli->word_count - 1 && exit_code == CLI_OK && !cli_gives_up(cli); i++)
		exit_code = put_one(cli, cli->words[i], dest, into, &totals);
	mem_free(end);
	return exit_code == CLI_OK ? transfer_end(cli, &totals) : exit_code;
}

const struct cli_command cmd_put = {
	.name = "put",
	.args = "SOURCE... DEST",
	.summary = "copy local files into the store",
	.details = "SOURCE - is standard input. A file appears under its name when all of it is stored, coded and synced; an older file of\n"
	           "that name is replaced in the same instant. If DEST is a directory, sources are copied into it. Symbolic links are\n"
	           "followed: what a local one leads to is stored, and what one of the store leads to is replaced, as with cp.\n"
	           "What cannot be copied is named, and the rest is copied all the same; the exit status is then 1. If the store does not\n"
	           "answer, or is full, the rest is not tried.\n"
	           "JSON: files, bytes, failed, stopped (the rest was not tried).\n\n"
	           "Examples:\n"
	           "  craton put model.bin /models/model.bin\n"
	           "  craton put -r -p ./dataset /data/\n"
	           "  tar c run | craton put - /archive/run.tar\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = CLI_WORDS,
	.run = run,
};
