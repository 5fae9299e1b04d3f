/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/process.h"
#include "client/config.h"
#include "common/base/mem.h"

enum { TOOL_ARGS_MAX = 30, TOOL_LINE_BYTES = 4096 };

char *tool_config(const struct cli *cli)
{
	struct config *config = MEM_NEW(struct config);
	struct err err = {0};
	char *path = NULL;
	struct io *io;
	int r = io_new(IO_BACKEND_EPOLL, &io, &err);

	if (r == 0) {
		r = config_load(io, cli->config, config, &err);
		io_free(io);
	}
	if (r < 0)
		cli_fail(cli, "%s", err.text);
	else
		path = mem_strdup(config->path);
	mem_free(config);
	return path;
}

/* In the child. Both outputs go to the pipe: a success is one line, a failure is one line. */
static void become(const char *path, const char *const *args, int out)
{
	char *argv[TOOL_ARGS_MAX + 2] = {(char *)path};

	for (int i = 0; args[i] && i < TOOL_ARGS_MAX; i++)
		argv[i + 1] = (char *)args[i];
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	execv(path, argv);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", path, strerror(errno));
	_exit(CLI_FAILED);
}

/* All that fits; the rest is read and dropped, so that the program does not wait for us. */
static void read_all(int fd, char *text, size_t bytes)
{
	char spare[512];
	size_t len = 0;
	ssize_t n;

	for (;;) {
		bool full = len == bytes - 1;

		n = read(fd, full ? spare : text + len, full ? sizeof(spare) : bytes - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += full ? 0 : (size_t)n;
	}
	while (len > 0 && text[len - 1] == '\n')
		len--;
	text[len] = '\0';
}

static int say(const struct cli *cli, const char *program, int exit_code, const char *text)
{
	size_t len = strlen(program);
	struct buf out;
	struct json j;

	if (!strncmp(text, program, len) && !strncmp(text + len, ": ", 2))
		text += len + 2;
	if (exit_code != CLI_OK) {
		cli_fail(cli, "%s", *text ? text : "the program failed without a word");
		return exit_code;
	}
	if (!cli->json) {
		printf("%s\n", text);
		return CLI_OK;
	}
	cli_json_begin(&out, &j);
	json_str(&j, "text", text);
	cli_json_end(&out, &j);
	return CLI_OK;
}

int tool_run(const struct cli *cli, const char *program, const char *const *args)
{
	char text[TOOL_LINE_BYTES], *path = process_program(program);
	int pipe_fds[2], status = 0;
	pid_t pid;

	if (!path)
		return cli_fail(cli, "%s is neither beside craton nor in PATH; install it with: make install", program);
	if (pipe(pipe_fds) < 0) {
		mem_free(path);
		return cli_fail(cli, "cannot make a pipe: %s", strerror(errno));
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(pipe_fds[0]);
		become(path, args, pipe_fds[1]);
	}
	close(pipe_fds[1]);
	mem_free(path);
	if (pid < 0) {
		close(pipe_fds[0]);
		return cli_fail(cli, "cannot start %s: %s", program, strerror(errno));
	}
	read_all(pipe_fds[0], text, sizeof(text));
	close(pipe_fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		return cli_fail(cli, "%s was killed by signal %d", program, WTERMSIG(status));
	return say(cli, program, WEXITSTATUS(status), text);
}
