/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
#include "client/cli/ports.h"
#include "client/craton.h"

enum { WAIT_S = 60 };

static _Noreturn void __attribute__((format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static const char *program(const char *name, char path[512])
{
	const char *dir = getenv("builddir");

	snprintf(path, 512, "%s/%s", dir ? dir : ".", name);
	return path;
}

static pid_t spawn(const char *log, char *const argv[])
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fd < 0 || getppid() != parent)
			_exit(126);
		dup2(fd, 1);
		dup2(fd, 2);
		execv(argv[0], argv);
		dprintf(2, "exec %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	return pid;
}

static void write_file(const char *path, mode_t mode, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0)
		die("%s: %s", path, strerror(errno));
}

static void tick(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

static void show_end(const char *log)
{
	char text[4096];
	int fd = open(log, O_RDONLY);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text), size > (off_t)sizeof(text) ? size - (off_t)sizeof(text) : 0);

	fprintf(stderr, "the end of %s:\n%.*s\n", log, (int)(n > 0 ? n : 0), text);
	if (fd >= 0)
		close(fd);
}

static void wait_for_file(const char *path, const char *log, pid_t pid, char *text, size_t bytes)
{
	for (time_t end = time(NULL) + WAIT_S; time(NULL) < end; tick()) {
		FILE *f = fopen(path, "r");
		int status;

		if (f && fgets(text, (int)bytes, f) && strchr(text, '\n')) {
			*strchr(text, '\n') = '\0';
			fclose(f);
			return;
		}
		if (f)
			fclose(f);
		if (waitpid(pid, &status, WNOHANG) == pid) {
			show_end(log);
			die("a daemon ended at its start: status %#x", status);
		}
	}
	show_end(log);
	die("%s did not appear", path);
}

static unsigned free_port(void)
{
	struct err err = {0};
	uint16_t port;

	if (ports_choose(&port, 1, &err) < 0)
		die("%s", err.text);
	return port;
}

void store_start_metad(struct store *s)
{
	char exe[512], dir[320], log[340], address[360], text[64], conf[512], listen[80];
	FILE *f;

	snprintf(dir, sizeof(dir), "%s/metad-1", s->dir);
	snprintf(log, sizeof(log), "%s.log", dir);
	snprintf(address, sizeof(address), "%s/address", dir);
	/* Again under the address that the others know. */
	f = fopen(address, "r");
	if (!f)
		snprintf(listen, sizeof(listen), "127.0.0.1:%u", free_port());
	if (f && fscanf(f, "%63s", listen) != 1)
		die("%s is empty", address);
	if (f)
		fclose(f);
	unlink(address);
	char *argv[] = {(char *)program("craton-metad", exe), "--dir", dir, "--listen", listen, "-c", s->conf, NULL};

	s->metad = spawn(log, argv);
	wait_for_file(address, log, s->metad, text, sizeof(text));
	snprintf(conf, sizeof(conf), "metad = %s\n", text);
	f = fopen(s->conf, "r");
	if (f) {
		char old[1024];
		size_t n = fread(old, 1, sizeof(old) - 1, f);

		old[n] = '\0';
		fclose(f);
		if (strstr(old, "metad = "))
			return;
	}
	f = fopen(s->conf, "a");
	if (!f || fputs(conf, f) < 0 || fclose(f) != 0)
		die("%s: %s", s->conf, strerror(errno));
}

void store_start_chunkd(struct store *s, int i)
{
	char exe[512], dir[320], disk[330], log[340], address[340], name[32];

	snprintf(name, sizeof(name), "chunkd-%d", i + 1);
	snprintf(dir, sizeof(dir), "%s/%s", s->dir, name);
	snprintf(disk, sizeof(disk), "%s/disk-1", dir);
	snprintf(log, sizeof(log), "%s.log", dir);
	mkdir(dir, 0755);
	mkdir(disk, 0755);
	snprintf(address, sizeof(address), "%s/address", dir);
	unlink(address);
	char *argv[] = {(char *)program("craton-chunkd", exe), "--dir", dir, "--disk", disk, "--name", name,
		"--capacity", (char *)s->capacity, "-c", s->conf, NULL};

	s->chunkd[i] = spawn(log, argv);
}

static void end_process(pid_t *pid, int signal)
{
	int status;

	if (*pid <= 0)
		return;
	kill(*pid, signal);
	for (time_t end = time(NULL) + WAIT_S; time(NULL) < end; tick())
		if (waitpid(*pid, &status, WNOHANG) == *pid) {
			*pid = 0;
			if (signal != SIGKILL && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
				die("a daemon did not stop cleanly: status %#x", status);
			return;
		}
	kill(*pid, SIGKILL);
	die("a daemon did not end within %d s", WAIT_S);
}

void store_kill_chunkd(struct store *s, int i, int signal)
{
	end_process(&s->chunkd[i], signal);
}

void store_kill_metad(struct store *s, int signal)
{
	end_process(&s->metad, signal);
}

static int count_of(const char *json, const char *what)
{
	int n = 0;
	const char *end = strstr(json, "\"disks\":[{");

	for (const char *p = strstr(json, "\"servers\""); p && (p = strstr(p, what)) && (!end || p < end); p++)
		n++;
	return n;
}

/* metad knows every running server under the address that it has now. */
static int addresses_known(const struct store *s, const char *json)
{
	for (int i = 0; i < s->chunkd_count; i++) {
		char path[340], text[80] = "", quoted[90];
		FILE *f;

		if (s->chunkd[i] <= 0)
			continue;
		snprintf(path, sizeof(path), "%s/chunkd-%d/address", s->dir, i + 1);
		f = fopen(path, "r");
		if (!f || fscanf(f, "%79s", text) != 1)
			text[0] = '\0';
		if (f)
			fclose(f);
		snprintf(quoted, sizeof(quoted), "\"%s\"", text);
		if (!text[0] || !strstr(json, quoted))
			return 0;
	}
	return 1;
}

void store_wait_up(struct store *s, int servers)
{
	struct cr_options options = {.config = s->conf};
	struct cr_store *store;
	int up = -1;

	if (cr_connect(&options, &store) < 0)
		die("connect: %s", cr_error());
	for (time_t end = time(NULL) + WAIT_S; time(NULL) < end; tick()) {
		char *json;

		if (cr_status_json(store, &json) < 0)
			continue;
		up = addresses_known(s, json) ? count_of(json, "\"state\":\"up\"") : -1;
		free(json);
		if (up == servers) {
			cr_disconnect(store);
			return;
		}
	}
	die("%d servers are up instead of %d", up, servers);
}

static int must_bear_two(const struct cr_chunk_info *c, void *user)
{
	(void)user;
	return c->crowded || c->margin < 2;
}

int store_bears_two(struct cr_store *store, const char *path)
{
	int r = cr_inspect(store, path, 0, must_bear_two, NULL);

	if (r < 0)
		die("inspect %s: %s", path, cr_error());
	return r == 0;
}

void store_up(struct store *s, int chunkd_count, const char *capacity)
{
	char path[320], text[400];

	*s = (struct store){.chunkd_count = chunkd_count, .capacity = capacity ? capacity : "2G"};
	snprintf(s->dir, sizeof(s->dir), "%s/craton-e2e-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(s->dir))
		die("mkdtemp: %s", strerror(errno));
	snprintf(s->conf, sizeof(s->conf), "%s/craton.conf", s->dir);
	snprintf(path, sizeof(path), "%s/secret", s->dir);
	write_file(path, 0600, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
	snprintf(text, sizeof(text), "cluster = 6f1c9a52-4d1e-4b7a-9a51-0c7de6c5a001\nsecret-file = secret\n");
	write_file(s->conf, 0644, text);
	snprintf(path, sizeof(path), "%s/metad-1", s->dir);
	mkdir(path, 0755);
	store_start_metad(s);
	for (int i = 0; i < chunkd_count; i++)
		store_start_chunkd(s, i);
	store_wait_up(s, chunkd_count);
}

void store_down(struct store *s)
{
	char command[320];

	for (int i = 0; i < s->chunkd_count; i++)
		store_kill_chunkd(s, i, SIGTERM);
	store_kill_metad(s, SIGTERM);
	if (getenv("KEEP_STORE")) {
		fprintf(stderr, "store kept in %s\n", s->dir);
		return;
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", s->dir);
	if (system(command) != 0)
		die("%s failed", command);
}
