/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/units.h"

enum { POLL_MS = 10, LOG_TAIL_BYTES = 4096 };

uint64_t process_clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void process_sleep_ms(uint64_t ms)
{
	struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

/* The fields of /proc/PID/stat behind the command name, which may hold anything. */
static bool read_stat(pid_t pid, char *state, unsigned long long *ret_start, unsigned long long *ret_ticks)
{
	unsigned long long user, sys, start;
	char path[64], text[1024], *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	end = strrchr(text, ')');
	if (!end || sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu", state, &user, &sys,
	                   &start) != 4)
		return false;
	*ret_start = start;
	*ret_ticks = user + sys;
	return true;
}

pid_t process_pid(const char *dir, const char *name)
{
	char *path = mem_printf("%s/%s/pid", dir, name);
	FILE *f = fopen(path, "re");
	unsigned long long start, now_start, ticks;
	char state;
	int pid;
	bool ok;

	mem_free(path);
	if (!f)
		return 0;
	ok = fscanf(f, "%d %llu", &pid, &start) == 2 && pid > 0;
	fclose(f);
	if (!ok || !read_stat(pid, &state, &now_start, &ticks) || now_start != start || state == 'Z' || state == 'X')
		return 0;
	return pid;
}

/* Without giving up the block that the file has: on a disk without a byte left it would not get it back. */
static int write_over(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	ssize_t len = (ssize_t)strlen(text);
	bool ok = fd >= 0 && pwrite(fd, text, (size_t)len, 0) == len && ftruncate(fd, len) == 0;
	int code = ok ? ERR_OK : err_from_errno(errno);

	if (fd >= 0)
		close(fd);
	return code;
}

static int write_pid(const char *dir, const char *name, pid_t pid, struct err *err)
{
	char *path = mem_printf("%s/%s/pid", dir, name), text[64];
	unsigned long long start = 0, ticks;
	char state;
	int r;

	if (!read_stat(pid, &state, &start, &ticks))
		start = 0;
	snprintf(text, sizeof(text), "%d %llu\n", (int)pid, start);
	r = write_over(path, text);
	if (r < 0)
		err_set(err, r, "cannot write %s: %s", path, err_text(r));
	mem_free(path);
	return r;
}

/* What the last one said: the next one says it again when it serves. */
static int forget_address(const char *dir, const char *name, struct err *err)
{
	char *path = mem_printf("%s/%s/address", dir, name);
	int r = access(path, F_OK) == 0 ? write_over(path, "\n") : errno == ENOENT ? ERR_OK : err_from_errno(errno);

	if (r == ERR_NOSPC) /* of a file system that writes over nothing: removing gives room there */
		r = unlink(path) == 0 ? ERR_OK : err_from_errno(errno);
	if (r < 0)
		err_set(err, r, "cannot write %s: %s", path, err_text(r));
	mem_free(path);
	return r;
}

static _Noreturn void become(const char *log, char *const argv[])
{
	int null = open("/dev/null", O_RDONLY);
	int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);

	setsid();
	if (null < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0)
		_exit(126);
	for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
		close(fd);
	execv(argv[0], argv);
	fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int process_start(const char *dir, const char *name, char *const argv[], struct err *err)
{
	char *log;
	int r = forget_address(dir, name, err);
	pid_t pid;

	if (r < 0)
		return r;
	log = mem_printf("%s/%s/daemon.log", dir, name);
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		r = err_set(err, err_from_errno(errno), "cannot start %s: %s", name, strerror(errno));
	else if (pid == 0)
		become(log, argv);
	else
		r = write_pid(dir, name, pid, err);
	mem_free(log);
	return r;
}

void process_address(const char *dir, const char *name, char *ret_text, size_t bytes)
{
	char *path = mem_printf("%s/%s/address", dir, name);
	FILE *f = fopen(path, "re");

	*ret_text = '\0';
	if (f && fgets(ret_text, (int)bytes, f))
		ret_text[strcspn(ret_text, "\n")] = '\0';
	if (f)
		fclose(f);
	mem_free(path);
}

/* The last line of a log, into err. */
static int last_words(const char *dir, const char *name, struct err *err)
{
	char *path = mem_printf("%s/%s/daemon.log", dir, name), text[LOG_TAIL_BYTES + 1], *line = text;
	FILE *f = fopen(path, "re");
	size_t n = 0;

	if (f) {
		if (fseek(f, -LOG_TAIL_BYTES, SEEK_END) < 0)
			rewind(f);
		n = fread(text, 1, LOG_TAIL_BYTES, f);
		fclose(f);
	}
	while (n && (text[n - 1] == '\n' || text[n - 1] == '\0'))
		n--;
	text[n] = '\0';
	if (strrchr(text, '\n'))
		line = strrchr(text, '\n') + 1;
	err_set(err, ERR_STOPPED, "%s ended at once: %s (log: %s)", name, *line ? line : "it said nothing", path);
	mem_free(path);
	return ERR_STOPPED;
}

int process_wait_ready(
	const char *dir, const char *name, uint64_t timeout_ms, void (*on_wait)(void *ctx, const char *name), void *ctx, struct err *err)
{
	uint64_t deadline = process_clock_ms() + timeout_ms;
	char address[128];

	for (;;) {
		process_address(dir, name, address, sizeof(address));
		if (*address)
			return ERR_OK;
		while (waitpid(-1, NULL, WNOHANG) > 0) /* reap, so that an early end is seen */
			;
		if (!process_pid(dir, name))
			return last_words(dir, name, err);
		if (process_clock_ms() > deadline)
			return err_set(err, ERR_TIMEDOUT, "%s did not start within %llu s; its log is %s/%s/daemon.log", name,
			               (unsigned long long)timeout_ms / 1000, dir, name);
		if (on_wait)
			on_wait(ctx, name);
		process_sleep_ms(POLL_MS);
	}
}

int process_end(const char *dir, const char *name, int signal, uint64_t timeout_ms, struct err *err)
{
	uint64_t deadline = process_clock_ms() + timeout_ms;
	pid_t pid = process_pid(dir, name);
	char limit[UNITS_TEXT_BYTES];

	if (!pid)
		return err_set(err, ERR_NOENT, "%s does not run", name);
	if (kill(pid, signal) < 0)
		return err_set(err, err_from_errno(errno), "cannot signal %s (pid %d): %s", name, (int)pid, strerror(errno));
	while (process_pid(dir, name)) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (process_clock_ms() > deadline)
			return err_set(err, ERR_TIMEDOUT, "%s (pid %d) did not end within %s", name, (int)pid, units_format_ms(timeout_ms, limit));
		process_sleep_ms(POLL_MS);
	}
	return ERR_OK;
}

double process_cpu_s(pid_t pid)
{
	unsigned long long start, ticks;
	char state;

	return read_stat(pid, &state, &start, &ticks) ? (double)ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

uint64_t process_peak_bytes(pid_t pid)
{
	unsigned long long kib = 0;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

char *process_program(const char *name)
{
	char self[4096], *slash, *path, *dirs, *save = NULL;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		path = mem_printf("%.*s/%s", (int)(slash - self), self, name);
		if (access(path, X_OK) == 0)
			return path;
		mem_free(path);
	}
	dirs = mem_strdup(getenv("PATH") ? getenv("PATH") : "/usr/local/bin:/usr/bin");
	for (char *dir = strtok_r(dirs, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		path = mem_printf("%s/%s", dir, name);
		if (access(path, X_OK) == 0) {
			mem_free(dirs);
			return path;
		}
		mem_free(path);
	}
	mem_free(dirs);
	return NULL;
}
