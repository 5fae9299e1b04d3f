/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mount: by default a process of its own serves the mount: this one waits until it has said on a pipe how it went, and passes that on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/mount/mount.h"

struct values {
	struct cli_common common;
	bool foreground, allow_other;
	const char *options;
};

static const struct opt opts[] = {
	{.name = "foreground", .letter = 'f', .type = OPT_FLAG, .offset = offsetof(struct values, foreground), .help = "stay, and serve from this process"},
	{.name = "allow-other", .type = OPT_FLAG, .offset = offsetof(struct values, allow_other), .help = "let other users in; permission bits are enforced"},
	{.name = "options", .letter = 'o', .type = OPT_STRING, .offset = offsetof(struct values, options), .arg = "LIST",
	 .help = "mount options: ro, nosuid, nodev, noexec, noatime, sync, dirsync"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

#ifdef HAVE_FUSE
/* It holds nothing of where it was started: no terminal, and no directory, whose file system could not be unmounted. */
static int become_quiet(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || chdir("/") < 0)
		return -1;
	return fd > 2 ? close(fd) : 0;
}

/* The mount is there: the waiting parent may go. */
static int report_ready(void *context)
{
	int *pipe_fd = context, failed = become_quiet();

	failed |= write(*pipe_fd, "", 1) != 1;
	close(*pipe_fd);
	*pipe_fd = -1;
	return failed;
}

/* The child. */
static void serve(struct mount_options *options, int pipe_fd)
{
	char error[512];
	int code;

	options->ready = report_ready;
	options->context = &pipe_fd;
	if (setsid() < 0) { /* it is no leader of a group: fork has just made it */
	}
	code = mount_run(options, error, sizeof(error));
	if (code < 0 && pipe_fd >= 0 && write(pipe_fd, error, strlen(error)) < 0)
		_exit(CLI_USAGE); /* the parent is gone, and nobody can be told */
	if (code < 0)
		syslog(LOG_ERR, "%s: %s", options->mountpoint, error);
	_exit(code < 0 ? CLI_FAILED : CLI_OK);
}

/* The parent: one byte 0 for success, or the line that says why not. */
static int wait_for_child(const struct cli *cli, int pipe_fd, pid_t pid)
{
	char text[512];
	size_t len = 0;
	ssize_t n;

	while (len < sizeof(text) - 1 && ((n = read(pipe_fd, text + len, sizeof(text) - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
		len += n > 0 ? (size_t)n : 0;
	text[len] = '\0';
	if (len == 1 && text[0] == '\0')
		return CLI_OK;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return cli_fail(cli, "%s", len ? text : "the serving process has died: see the system log");
}

static int run_in_background(struct cli *cli, struct mount_options *options)
{
	int fds[2], exit_code;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return cli_fail(cli, "cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return cli_fail(cli, "cannot start a process: %s", strerror(errno));
	}
	if (pid == 0) {
		close(fds[0]);
		serve(options, fds[1]);
	}
	close(fds[1]);
	exit_code = wait_for_child(cli, fds[0], pid);
	close(fds[0]);
	return exit_code;
}

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	struct mount_options options = {
		.config = cli->config,
		.timeout_ms = (uint32_t)cli->timeout_ms,
		.mountpoint = cli->words[0],
		.options = v->options,
		.allow_other = v->allow_other,
	};
	char error[512];

	if (mount_check_options(v->options, error, sizeof(error)) < 0)
		return cli_usage(cli, "%s", error);
	openlog("craton mount", LOG_PID | (v->foreground ? LOG_PERROR : 0), LOG_DAEMON);
	if (!v->foreground)
		return run_in_background(cli, &options);
	return mount_run(&options, error, sizeof(error)) < 0 ? cli_fail(cli, "%s", error) : CLI_OK;
}
#else
static int run(struct cli *cli)
{
	return cli_fail(cli, "this build has no FUSE: install libfuse3-dev (tools/install-deps does) and build again");
}
#endif

const struct cli_command cmd_mount = {
	.name = "mount",
	.args = "MOUNTPOINT",
	.summary = "show the store as a file system",
	.details = "MOUNTPOINT is an empty directory. The serving process runs in the background until `craton umount`, SIGTERM or SIGINT;\n"
	           "what goes wrong with nobody to tell is in the system log. If it was killed with -9, `craton umount` (or `fusermount3 -u`)\n"
	           "clears the mount point.\n\n"
	           "Who opens a file sees all that was written before it was closed, on any host; names and attributes may be a second old.\n"
	           "Files are written from start to end; a write elsewhere fails with EOPNOTSUPP. docs/mount.md says what else there is.\n\n"
	           "Examples:\n"
	           "  craton mount /mnt/craton\n"
	           "  craton mount --allow-other -o ro,noatime /mnt/craton\n"
	           "  craton mount -f /mnt/craton\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 1,
	.silent = true,
	.run = run,
};
