/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/transfer.h"
#include "common/base/check.h"
#include "common/base/mem.h"

struct values {
	struct cli_common common;
	bool recursive, parents;
};

static const struct opt opts[] = {
	{.name = "recursive", .letter = 'r', .type = OPT_FLAG, .offset = offsetof(struct values, recursive), .help = "copy directories with all they hold, symbolic links as links"},
	{.name = "parents", .letter = 'p', .type = OPT_FLAG, .offset = offsetof(struct values, parents), .help = "make missing parents of the destination"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static const int interrupts[] = {SIGINT, SIGTERM, SIGHUP};

/* The temporary file of a get that is interrupted: the handler removes it. */
static const char *volatile temp_file;

static void on_interrupt(int number)
{
	const char *temp = temp_file;

	if (temp)
		unlink(temp);
	signal(number, SIG_DFL);
	raise(number);
}

static void catch_interrupts(void)
{
	struct sigaction old, action = {.sa_handler = on_interrupt};

	for (size_t i = 0; i < ARRAY_COUNT(interrupts); i++)
		if (sigaction(interrupts[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) /* nohup stays nohup */
			sigaction(interrupts[i], &action, NULL);
}

/* An interrupt comes before there is such a file, or when the handler knows of it. The library's threads take no signals. */
static int make_temp(char *temp)
{
	sigset_t held, before;
	int fd;

	sigemptyset(&held);
	for (size_t i = 0; i < ARRAY_COUNT(interrupts); i++)
		sigaddset(&held, interrupts[i]);
	pthread_sigmask(SIG_BLOCK, &held, &before);
	fd = mkstemp(temp);
	if (fd >= 0)
		temp_file = temp;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return fd;
}

/* Our output, if it is this file, whatever else it is called (/proc/PID/fd/1 of a shell): replaced, it would be lost with all that is in it. */
static int open_output(const char *local)
{
	struct stat there, output;

	if (stat(local, &there) < 0 || !S_ISREG(there.st_mode))
		return -1;
	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (fstat(fd, &output) == 0 && output.st_dev == there.st_dev && output.st_ino == there.st_ino)
			return fd;
	return -1;
}

/*
 * The descriptor of ours that a name such as /dev/stdout stands for; -1: of none. To open the name would be another one, which begins at
 * the start of the file and not where the descriptor stands.
 */
static int own_descriptor(const char *local)
{
	static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
	char *end;

	if (!strcmp(local, "/dev/stdin"))
		return STDIN_FILENO;
	if (!strcmp(local, "/dev/stdout"))
		return STDOUT_FILENO;
	if (!strcmp(local, "/dev/stderr"))
		return STDERR_FILENO;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		const char *number = local + strlen(folders[i]);
		unsigned long fd;

		if (strncmp(local, folders[i], strlen(folders[i])) || *number < '0' || *number > '9')
			continue;
		fd = strtoul(number, &end, 10);
		if (*end == '\0' && fd <= INT_MAX)
			return (int)fd;
	}
	return open_output(local);
}

/* Of what we were started with: what is open here besides, such as connections, is closed on exec, and no place for a file. */
static int open_inherited(int fd)
{
	int flags = fcntl(fd, F_GETFD);

	if (flags < 0)
		return -1;
	if (flags & FD_CLOEXEC) {
		errno = EBADF;
		return -1;
	}
	return fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* To what is no regular file (a device, a pipe): as it comes. To rename a file over /dev/null would be the end of it. `own`: a descriptor, or -1. */
static int get_into_special(struct cli *cli, const char *path, const char *local, int own, const struct cr_stat *st, struct transfer_totals *totals)
{
	struct progress p;
	int exit_code;
	int fd = own >= 0 ? open_inherited(own) : open(local, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return cli_fail(cli, "cannot open %s: %s", local, strerror(errno));
	progress_start(&p, path, st->size, cli->json);
	exit_code = transfer_out(cli, path, fd, local, &p);
	progress_end(&p);
	if (close(fd) < 0 && exit_code == CLI_OK)
		exit_code = cli_fail(cli, "cannot write %s: %s", local, strerror(errno));
	totals->files += exit_code == CLI_OK;
	totals->bytes += exit_code == CLI_OK ? p.done : 0;
	return exit_code;
}

/* Devices and pipes. */
static bool is_special(const char *local)
{
	struct stat there;

	return stat(local, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode);
}

/* Into a temporary file beside the destination, renamed when whole: a failed get leaves no half file. */
static int get_regular(struct cli *cli, const char *path, const char *local, const struct cr_stat *st, struct transfer_totals *totals)
{
	const char *slash = strrchr(local, '/');
	struct progress p;
	char *temp;
	int exit_code;
	int fd;

	/* A short name of its own: the file's may be as long as names can be. */
	temp = mem_printf("%.*s.craton-XXXXXX", slash ? (int)(slash + 1 - local) : 0, local);
	fd = make_temp(temp);
	if (fd < 0) {
		cli->full |= errno == ENOSPC || errno == EDQUOT;
		exit_code = cli_fail(cli, "cannot create a file beside %s: %s%s", local, strerror(errno),
		                     errno == ENOENT ? "; give -p to make missing directories" : "");
		mem_free(temp);
		return exit_code;
	}
	progress_start(&p, path, st->size, cli->json);
	exit_code = transfer_out(cli, path, fd, local, &p);
	progress_end(&p);
	if (exit_code == CLI_OK && fchmod(fd, st->mode & 0777) < 0)
		exit_code = cli_fail(cli, "cannot set the mode of %s: %s", local, strerror(errno));
	if (close(fd) < 0 && exit_code == CLI_OK)
		exit_code = cli_fail(cli, "cannot write %s: %s", local, strerror(errno));
	if (exit_code == CLI_OK && rename(temp, local) < 0)
		exit_code = cli_fail(cli, "cannot rename %s to %s: %s", temp, local, strerror(errno));
	if (exit_code != CLI_OK)
		unlink(temp);
	temp_file = NULL;
	totals->files += exit_code == CLI_OK;
	totals->bytes += exit_code == CLI_OK ? p.done : 0;
	mem_free(temp);
	return exit_code;
}

/* As a link to the same text. What was a file or a link here is replaced in one step. */
static int get_link(struct cli *cli, const char *path, const char *local, struct transfer_totals *totals)
{
	char target[CR_PATH_MAX] = "", *temp = mem_printf("%s.craton-link", local);
	int exit_code = CLI_OK, r = (int)cr_readlink(cli->store, path, target, sizeof(target) - 1);

	if (own_descriptor(local) >= 0)
		exit_code = cli_fail(cli, "%s is our own output, and is not replaced", local);
	else if (r < 0)
		exit_code = cli_fail_store(cli, r);
	else if ((unlink(temp) < 0 && errno != ENOENT) || symlink(target, temp) < 0 || rename(temp, local) < 0)
		exit_code = cli_fail(cli, "cannot make the symbolic link %s: %s", local, strerror(errno));
	if (exit_code != CLI_OK)
		unlink(temp);
	totals->files += exit_code == CLI_OK;
	mem_free(temp);
	return exit_code;
}

static bool is_link(const char *local)
{
	struct stat there;

	return lstat(local, &there) == 0 && S_ISLNK(there.st_mode);
}

static int get_file(struct cli *cli, const char *path, const char *local, const struct cr_stat *st, bool named, struct transfer_totals *totals)
{
	int exit_code, own = named || !is_link(local) ? own_descriptor(local) : -1;
	char *real;

	if (own >= 0 && !named)
		return cli_fail(cli, "%s is our own output, and is not replaced", local);
	if (own >= 0 || ((named || !is_link(local)) && is_special(local)))
		return get_into_special(cli, path, local, own, st, totals);
	/* Who has it open would go on with a file that nothing leads to any more. */
	if (named && !strncmp(local, "/proc/", 6))
		return cli_fail(cli, "%s is a file that another process has open: name the file, or give /dev/fd/N of one that is open here", local);
	/* A link that was named as destination stays: what it points to is replaced. */
	real = named ? realpath(local, NULL) : NULL;
	exit_code = get_regular(cli, path, real ? real : local, st, totals);
	free(real);
	return exit_code;
}

static void get_tree(struct cli *cli, const char *path, const char *local, const struct cr_stat *st, bool named, struct transfer_totals *totals);

/* What cannot be copied is named, and the rest is copied all the same. */
static int get_entries(struct cli *cli, const char *path, const char *local, struct transfer_totals *totals)
{
	struct cr_dirent *entry = MEM_NEW(struct cr_dirent);
	struct cr_dir *dir;
	int r = cr_opendir(cli->store, path, &dir);

	if (r == 0) {
		while (!cli_gives_up(cli) && (r = cr_readdir(dir, entry)) == 1) {
			char *from = mem_printf("%s/%s", strcmp(path, "/") ? path : "", entry->name);
			char *to = mem_printf("%s/%s", local, entry->name);

			get_tree(cli, from, to, &entry->stat, false, totals);
			mem_free(from);
			mem_free(to);
		}
		cr_closedir(dir);
	}
	mem_free(entry);
	return r < 0 ? cli_fail_store(cli, r) : CLI_OK;
}

/*
 * `named`: by the user. Below that, links that lie here already are not followed: an earlier get may have brought them from the store. A
 * directory's own failure only: those below it count for themselves.
 */
static int get_any(struct cli *cli, const char *path, const char *local, const struct cr_stat *st, bool named, struct transfer_totals *totals)
{
	const struct values *v = cli->values;
	struct stat there;

	if (st->type == CR_TYPE_SYMLINK && v->recursive)
		return get_link(cli, path, local, totals);
	if (st->type != CR_TYPE_DIR)
		return get_file(cli, path, local, st, named, totals);
	if (!v->recursive)
		return cli_fail(cli, "%s is a directory; give -r to copy it with all it holds", path);
	if (!named && is_link(local))
		return cli_fail(cli, "%s is a symbolic link, and a directory in the store: remove the link", local);
	if (mkdir(local, 0777) < 0 && errno != EEXIST)
		return cli_fail(cli, "cannot make %s: %s", local, strerror(errno));
	if (stat(local, &there) == 0 && !S_ISDIR(there.st_mode))
		return cli_fail(cli, "%s is a directory, and %s is none", path, local);
	return get_entries(cli, path, local, totals);
}

static void get_tree(struct cli *cli, const char *path, const char *local, const struct cr_stat *st, bool named, struct transfer_totals *totals)
{
	totals->failed += get_any(cli, path, local, st, named, totals) != CLI_OK;
}

static int make_local_parents(struct cli *cli, const char *local)
{
	char *path = mem_strdup(local);
	int exit_code = CLI_OK;

	for (char *s = strchr(path + 1, '/'); s && exit_code == CLI_OK; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			exit_code = cli_fail(cli, "cannot make %s: %s", path, strerror(errno));
		*s = '/';
	}
	mem_free(path);
	return exit_code;
}

static int get_to_output(struct cli *cli, const char *path, uint64_t size)
{
	struct progress p;
	int exit_code;

	progress_start(&p, path, size, true);
	exit_code = transfer_out(cli, path, STDOUT_FILENO, "standard output", &p);
	progress_end(&p);
	return exit_code;
}

static void get_one(struct cli *cli, const char *path, const char *dest, bool into, struct transfer_totals *totals)
{
	struct cr_stat st;
	char *local, *name;
	int r = cr_stat(cli->store, path, &st);

	if (r < 0) {
		totals->failed++;
		cli_fail_store(cli, r);
		return;
	}
	if (!strcmp(dest, "-")) {
		totals->failed += get_to_output(cli, path, st.size) != CLI_OK;
		return;
	}
	name = cli_last_name(path);
	local = into && *name ? mem_printf("%s/%s", dest, name) : mem_strdup(dest);
	get_tree(cli, path, local, &st, true, totals);
	mem_free(local);
	mem_free(name);
}

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	const char *dest = cli->words[cli->word_count - 1];
	struct transfer_totals totals = {.several = v->recursive || cli->word_count > 2};
	struct stat st;
	bool into;
	int exit_code;

	catch_interrupts();
	cli->json &= strcmp(dest, "-") != 0 && own_descriptor(dest) != STDOUT_FILENO; /* that is for the bytes then, whatever happens */
	exit_code = cli_connect(cli);
	if (exit_code == CLI_OK && v->parents && strcmp(dest, "-"))
		exit_code = make_local_parents(cli, dest);
	if (exit_code != CLI_OK)
		return exit_code;
	into = stat(dest, &st) == 0 && S_ISDIR(st.st_mode);
	if (cli->word_count > 2 && !strcmp(dest, "-"))
		return cli_usage(cli, "standard output takes one file: for several, `craton cat`");
	if (cli->word_count > 2 && stat(dest, &st) == 0 && !into)
		return cli_fail(cli, "the destination %s is not a directory: name one, or a single source", dest);
	if (cli->word_count > 2 && !into) {
		char *quoted = cli_quoted(dest);

		cli_fail(cli, "the destination %s is not a directory; make it with: mkdir -p %s", dest, quoted);
		mem_free(quoted);
		return CLI_FAILED;
	}
	for (int i = 0; i < cli->word_count - 1 && !cli_gives_up(cli); i++)
		get_one(cli, cli->words[i], dest, into, &totals);
	return transfer_end(cli, &totals);
}

const struct cli_command cmd_get = {
	.name = "get",
	.args = "PATH... DEST",
	.summary = "copy files of the store to local files",
	.details = "DEST - is standard output. A local file appears under its name when all of it was read and checked.\n"
	           "Devices, pipes and open files (/dev/stdout, /dev/fd/N) are written as the bytes come, where they stand.\n"
	           "Symbolic links are not followed: with -r they are copied as links, else naming one is an error.\n"
	           "What cannot be copied is named, and the rest is copied all the same; the exit status is then 1. If the store does not\n"
	           "answer, or there is no room left here, the rest is not tried.\n"
	           "JSON: files, bytes, failed, stopped (the rest was not tried); none where standard output has the bytes.\n\n"
	           "Examples:\n"
	           "  craton get /models/model.bin .\n"
	           "  craton get -r /runs/gpt ./gpt\n"
	           "  craton get /archive/run.tar - | tar x\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 2,
	.max_words = CLI_WORDS,
	.run = run,
};
