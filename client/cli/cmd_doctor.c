/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor: is this machine fit to run Craton? Each check is one line: ok, warn or error, and what to do. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/io/io.h"

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_ERROR };
enum { TEXT_BYTES = 512, KERNEL_MAJOR = 5, KERNEL_MINOR = 10, MEMLOCK_BYTES = 64 << 20, FILES_MIN = 1024 };

struct values {
	struct cli_common common;
	const char *dir, *listen;
};

static const struct opt opts[] = {
	{.name = "dir", .type = OPT_STRING, .offset = offsetof(struct values, dir), .default_ = ".", .arg = "DIR", .help = "directory where a disk would lie"},
	{.name = "listen", .type = OPT_STRING, .offset = offsetof(struct values, listen), .default_ = "127.0.0.1:0", .arg = "HOST:PORT",
	 .help = "address where a daemon would listen"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static enum level check_kernel(const struct values *v, char *text)
{
	unsigned major = 0, minor = 0;
	struct utsname u;

	(void)v;
	uname(&u);
	sscanf(u.release, "%u.%u", &major, &minor);
	snprintf(text, TEXT_BYTES, "Linux %s", u.release);
	if (major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR))
		return LEVEL_OK;
	snprintf(text, TEXT_BYTES, "Linux %s is older than %d.%d; use a newer kernel", u.release, KERNEL_MAJOR, KERNEL_MINOR);
	return LEVEL_ERROR;
}

static enum level check_uring(const struct values *v, char *text)
{
	struct err err = {0};
	struct io *io;

	(void)v;
	if (io_new(IO_BACKEND_URING, &io, &err) == ERR_OK) {
		io_free(io);
		snprintf(text, TEXT_BYTES, "io_uring works");
		return LEVEL_OK;
	}
	snprintf(text, TEXT_BYTES, "io_uring is not to be had (%.300s); epoll is used, some percent slower", err.text);
	return LEVEL_WARN;
}

static enum level check_memlock(const struct values *v, char *text)
{
	struct rlimit lim;

	(void)v;
	if (getrlimit(RLIMIT_MEMLOCK, &lim) < 0) {
		snprintf(text, TEXT_BYTES, "cannot read the limit of locked memory: %s", strerror(errno));
		return LEVEL_WARN;
	}
	if (lim.rlim_cur >= MEMLOCK_BYTES || geteuid() == 0) {
		snprintf(text, TEXT_BYTES, "locked memory is enough for registered buffers");
		return LEVEL_OK;
	}
	snprintf(text, TEXT_BYTES, "only %llu KiB of locked memory: buffers are not registered; raise it with: ulimit -l 65536",
	         (unsigned long long)lim.rlim_cur / 1024);
	return LEVEL_WARN;
}

static enum level check_files(const struct values *v, char *text)
{
	struct rlimit lim = {0};

	(void)v;
	getrlimit(RLIMIT_NOFILE, &lim);
	snprintf(text, TEXT_BYTES, "%llu open files allowed", (unsigned long long)lim.rlim_cur);
	if (lim.rlim_cur >= FILES_MIN)
		return LEVEL_OK;
	snprintf(text, TEXT_BYTES, "only %llu open files allowed; raise it with: ulimit -n 65536", (unsigned long long)lim.rlim_cur);
	return LEVEL_WARN;
}

static enum level check_direct(const struct values *v, char *text)
{
	char *path = mem_printf("%s/.craton-doctor-%d", v->dir, (int)getpid());
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
	enum level level = LEVEL_OK;

	if (fd >= 0) {
		snprintf(text, TEXT_BYTES, "O_DIRECT works in %.300s", v->dir);
	} else if (errno == EINVAL) {
		snprintf(text, TEXT_BYTES, "the file system of %.300s has no O_DIRECT: chunkd works through the page cache, slower", v->dir);
		level = LEVEL_WARN;
	} else {
		snprintf(text, TEXT_BYTES, "cannot write in %.300s: %s; give a directory with --dir", v->dir, strerror(errno));
		level = LEVEL_ERROR;
	}
	if (fd >= 0)
		close(fd);
	unlink(path);
	mem_free(path);
	return level;
}

static enum level check_port(const struct values *v, char *text)
{
	struct io_addr addr, bound;
	struct err err = {0};
	struct io *io;
	int fd, r;

	if (io_addr_parse(v->listen, &addr) < 0) {
		snprintf(text, TEXT_BYTES, "'%.200s' is no HOST:PORT; give one with --listen", v->listen);
		return LEVEL_ERROR;
	}
	if (io_new(IO_BACKEND_AUTO, &io, &err) < 0) {
		snprintf(text, TEXT_BYTES, "%.500s", err.text);
		return LEVEL_ERROR;
	}
	r = io_listen(io, &addr, &fd, &bound, &err);
	if (r == ERR_OK) {
		io_close(io, fd);
		snprintf(text, TEXT_BYTES, "a daemon can listen on %.200s", v->listen);
	} else {
		snprintf(text, TEXT_BYTES, "%.500s", err.text);
	}
	io_free(io);
	return r == ERR_OK ? LEVEL_OK : LEVEL_ERROR;
}

static enum level check_clock(const struct values *v, char *text)
{
	struct timex t = {0};
	int state = adjtimex(&t);

	(void)v;
	if (state >= 0 && state != TIME_ERROR && !(t.status & STA_UNSYNC)) {
		snprintf(text, TEXT_BYTES, "the clock is synchronised");
		return LEVEL_OK;
	}
	snprintf(text, TEXT_BYTES, "the clock is not known to be synchronised: times of files may be wrong (nothing else depends on it)");
	return LEVEL_WARN;
}

static const struct {
	const char *name;
	enum level (*check)(const struct values *v, char *text);
} checks[] = {
	{"kernel", check_kernel}, {"io_uring", check_uring}, {"memlock", check_memlock}, {"files", check_files},
	{"direct", check_direct}, {"port", check_port},      {"clock", check_clock},
};

static int run(struct cli *cli)
{
	static const char *const levels[] = {"ok", "warn", "error"};
	enum level worst = LEVEL_OK;
	struct buf out;
	struct json j;

	buf_init(&out, 64 << 10);
	json_init(&j, &out);
	json_object(&j, NULL);
	json_array(&j, "checks");
	for (size_t i = 0; i < ARRAY_COUNT(checks); i++) {
		char text[TEXT_BYTES] = "";
		enum level level = checks[i].check(cli->values, text);

		worst = level > worst ? level : worst;
		if (!cli->json)
			printf("%-5s %-9s %s\n", levels[level], checks[i].name, text);
		json_object(&j, NULL);
		json_str(&j, "check", checks[i].name);
		json_str(&j, "level", levels[level]);
		json_str(&j, "text", text);
		json_end_object(&j);
	}
	json_end_array(&j);
	json_str(&j, "worst", levels[worst]);
	json_end_object(&j);
	if (cli->json)
		cli_print_json(&out);
	buf_fini(&out);
	return worst == LEVEL_ERROR ? CLI_FAILED : CLI_OK;
}

const struct cli_command cmd_doctor = {
	.name = "doctor",
	.args = "",
	.summary = "check whether this machine is fit to run Craton",
	.details = "Looks at the kernel, io_uring, locked memory, open files, O_DIRECT, the port and the clock. Exit code 1 if any is an error.\n"
	           "JSON: checks [check, level, text], worst.\n\n"
	           "Examples:\n"
	           "  craton doctor\n"
	           "  craton doctor --dir /mnt/ssd0 --listen 10.1.2.3:7000\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 0,
	.max_words = 0,
	.run = run,
};
