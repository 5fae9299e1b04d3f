/* SPDX-License-Identifier: Apache-2.0 */
/* daemon_main: see daemon_main.h. */
#include "common/daemon/daemon_main.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

enum { PATH_ROOM = 4096 + 64, STOP_MS = 20 * 1000 };

void daemon_main_fatal(void *ctx, int code, const char *text)
{
	struct daemon *d = ctx;

	(void)code, (void)text;
	d->exit_code = 1;
	io_stop(d->io);
}

static void on_stopped(void *ctx)
{
	struct daemon *d = ctx;

	d->stopped = true;
	io_stop(d->io);
}

static void on_deadline(struct io_op *op)
{
	io_stop(CONTAINER_OF(op, struct daemon, deadline)->io);
}

/* A descriptor a connection and a segment: the soft limit of most systems is for interactive programs. */
static void share_descriptors(struct daemon *d)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit); /* else opening or accepting one says so */
	}
	d->max_conns = LIMIT_SERVER_CONNS;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < d->max_conns)
		d->max_conns = limit.rlim_cur > 2 ? (uint32_t)limit.rlim_cur / 2 : 1;
}

static void notify(struct daemon *d, const char *state)
{
	int rc = daemon_notify(state);

	if (rc < 0)
		log_line(&d->log, LOG_WARN, "not-notified", "error=%s text=\"the service manager does not hear us\"",
			err_name(rc));
}

/*
 * On a disk without a byte left, a file that is there can still say something else of the same few bytes: its block is its own. Not atomic, which
 * is why it is not done otherwise; nothing rests on this file after a crash.
 */
static int overwrite(struct daemon *d, const char *path, const char *line)
{
	int fd, rc = io_open(d->io, path, IO_OPEN_WRITE, 0644, &fd);

	if (rc < 0)
		return rc;
	rc = (int)io_pwrite(d->io, fd, line, strlen(line), 0);
	io_close(d->io, fd);
	return rc < 0 ? rc : 0;
}

static int write_address(struct daemon *d, const char *name, const struct io_addr *addr, struct err *err)
{
	char path[PATH_ROOM], text[IO_ADDR_TEXT_BYTES], line[IO_ADDR_TEXT_BYTES + 1];
	int rc;

	snprintf(path, sizeof(path), "%s/%s", d->options->dir, name);
	snprintf(line, sizeof(line), "%s\n", io_addr_format(addr, text));
	rc = io_write_file(d->io, path, line, strlen(line), 0644);
	if (rc == ERR_NOSPC && overwrite(d, path, line) == 0)
		rc = 0;
	return rc < 0 ? err_set(err, rc, "cannot write %s: %s", path, err_text(rc)) : 0;
}

static int announce(struct daemon *d, struct err *err)
{
	struct io_addr addr = d->program->address(d), metrics = d->program->metrics(d);
	char state[IO_ADDR_TEXT_BYTES + 64], text[IO_ADDR_TEXT_BYTES];
	int rc = write_address(d, "address", &addr, err);

	if (rc == 0 && metrics.family)
		rc = write_address(d, "metrics", &metrics, err);
	if (rc < 0)
		return rc;
	io_addr_format(&addr, text);
	log_line(&d->log, LOG_INFO, "ready", "address=%s io=%s%s", text, io_backend_name(d->io), d->ready);
	if (io_is_slowed(d->io))
		log_line(&d->log, LOG_WARN, "slowed", "text=\"the disks are slowed down for an experiment\"");
	snprintf(state, sizeof(state), "READY=1\nSTATUS=serving on %s", text);
	notify(d, state);
	rc = daemon_watchdog_start(&d->watchdog, d->io);
	if (rc < 0)
		log_line(&d->log, LOG_WARN, "no-watchdog", "error=%s text=\"WATCHDOG_USEC is not a number\"",
			err_name(rc));
	return 0;
}

static int stop(struct daemon *d, struct err *err)
{
	char waits_for[PATH_ROOM] = "";
	int rc = 0;

	log_line(&d->log, LOG_INFO, "stopping", "exit=%d", d->exit_code);
	notify(d, "STOPPING=1\nSTATUS=stopping");
	d->program->stop(d, on_stopped, d);
	io_prep_timer(&d->deadline, io_clock_ns(d->io) + STOP_MS * 1000000ull, on_deadline);
	io_submit(d->io, &d->deadline);
	if (!d->stopped)
		rc = io_run(d->io);
	if (!d->stopped && d->program->waits_for)
		d->program->waits_for(d, waits_for, sizeof(waits_for));
	if (rc < 0 || !d->stopped)
		return err_set(err, rc < 0 ? rc : ERR_TIMEDOUT,
			"not everything could be stopped in %d s%s%.300s; the next start recovers", STOP_MS / 1000,
			waits_for[0] ? ": " : "", waits_for);
	log_line(&d->log, LOG_INFO, "stopped", "exit=%d", d->exit_code);
	return 0;
}

int daemon_main_serve(struct daemon *d, struct err *err)
{
	int rc;

	d->log = (struct log){.min_level = LOG_INFO, .write = log_write_stderr, .name = d->options->name};
	share_descriptors(d);
	rc = io_stop_on_signals(d->io);
	if (rc < 0)
		return err_set(err, rc, "cannot handle signals: %s", err_text(rc));
	rc = d->program->start(d, err);
	if (rc == ERR_STOPPED)
		return 0; /* told to stop while it waited for its port: that is no failure */
	if (rc < 0)
		return rc;
	rc = announce(d, err);
	if (rc < 0)
		return rc;
	rc = io_run(d->io);
	if (rc < 0)
		return err_set(err, rc, "the event loop failed: %s", err_text(rc));
	return stop(d, err);
}

static int run(struct daemon *d, struct err *err)
{
	if (d->options->help) {
		char *text = daemon_options_help(d->options->usage);

		fputs(text, stdout);
		mem_free(text);
		return 0;
	}
	if (d->options->version) {
		printf("%s %s\n", d->options->usage->program, PACKAGE_VERSION);
		return 0;
	}
	return d->program->run(d, err);
}

int daemon_main(struct daemon *d, int argc, char **argv)
{
	struct err err = {0};
	int rc = io_new(IO_BACKEND_AUTO, &d->io, &err);

	if (rc == 0) {
		rc = d->program->parse(d, argc, argv, &err);
		if (rc == 0)
			rc = run(d, &err);
		d->program->fini(d);
	}
	if (rc < 0) {
		fprintf(stderr, "%s: %s\n", d->options->usage->program, err.text);
		d->exit_code = rc == ERR_INVAL ? 2 : 1;
	}
	/* The loop is not freed: after a failure operations may be in flight, and the process ends here. */
	return d->exit_code;
}
