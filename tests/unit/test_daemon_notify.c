// SPDX-License-Identifier: Apache-2.0
/* daemon_notify: what the service manager hears, on a socket of ours. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "common/base/check.h"
#include "common/daemon/daemon_notify.h"
#include "tests/lib/unit.h"

/* A service manager's socket under `text`, and NOTIFY_SOCKET. */
static int listen_at(const char *text)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = 30};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	size_t len = strlen(text);

	memcpy(addr.sun_path, text, len);
	if (text[0] == '@')
		addr.sun_path[0] = 0;
	else
		len++;
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", text, 1), 0);
	return fd;
}

static void expect(int fd, const char *text)
{
	char got[256] = "";

	ck_assert_int_gt(recv(fd, got, sizeof(got) - 1, 0), 0);
	ck_assert_str_eq(got, text);
}

START_TEST(test_says_it)
{
	char name[64];
	int fd;

	unsetenv("NOTIFY_SOCKET");
	ck_assert_int_eq(daemon_notify("READY=1"), 0); /* nobody to tell */
	snprintf(name, sizeof(name), "@craton-test-%d", (int)getpid());
	fd = listen_at(name);
	ck_assert_int_eq(daemon_notify("READY=1\nSTATUS=serving"), 0);
	expect(fd, "READY=1\nSTATUS=serving");
	close(fd);
	snprintf(name, sizeof(name), "/tmp/craton-test-%d", (int)getpid());
	fd = listen_at(name);
	ck_assert_int_eq(daemon_notify("STOPPING=1"), 0);
	expect(fd, "STOPPING=1");
	close(fd);
	unlink(name);
	ck_assert_int_lt(daemon_notify("READY=1"), 0); /* gone */
	setenv("NOTIFY_SOCKET", "neither path nor abstract", 1);
	ck_assert_int_eq(daemon_notify("READY=1"), ERR_INVAL);
}
END_TEST

struct beat {
	struct daemon_watchdog watchdog;
	struct io_op timer;
	struct io *io;
};

static void on_time(struct io_op *op)
{
	io_stop(CONTAINER_OF(op, struct beat, timer)->io);
}

START_TEST(test_watchdog)
{
	static struct beat b;
	struct err err;
	char name[64];
	int fd;

	ck_assert_int_eq(io_new(IO_BACKEND_AUTO, &b.io, &err), 0);
	snprintf(name, sizeof(name), "@craton-watchdog-%d", (int)getpid());
	fd = listen_at(name);
	unsetenv("WATCHDOG_USEC");
	ck_assert_int_eq(daemon_watchdog_start(&b.watchdog, b.io), 0);
	ck_assert(!io_pending(&b.watchdog.timer));
	setenv("WATCHDOG_USEC", "20 ms", 1);
	ck_assert_int_eq(daemon_watchdog_start(&b.watchdog, b.io), ERR_INVAL);
	setenv("WATCHDOG_USEC", "20000", 1);
	setenv("WATCHDOG_PID", "1", 1); /* another process is meant */
	ck_assert_int_eq(daemon_watchdog_start(&b.watchdog, b.io), 0);
	ck_assert(!io_pending(&b.watchdog.timer));
	unsetenv("WATCHDOG_PID");
	ck_assert_int_eq(daemon_watchdog_start(&b.watchdog, b.io), 0);
	for (int i = 0; i < 3; i++) {
		io_prep_timer(&b.timer, io_clock_ns(b.io) + b.watchdog.every_ns * 2, on_time);
		io_submit(b.io, &b.timer);
		ck_assert_int_eq(io_run(b.io), 0);
		expect(fd, "WATCHDOG=1");
	}
	close(fd);
	/* the watchdog's timer is pending for ever: the loop ends with the process */
}
END_TEST

UNIT_MAIN("daemon_notify", test_says_it, test_watchdog)
