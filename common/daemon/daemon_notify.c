/* SPDX-License-Identifier: Apache-2.0 */
/* daemon_notify: see the header. Sending does not wait: a service manager that does not read loses the message, not we the time. */
#include "common/daemon/daemon_notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "common/base/check.h"

enum { WATCHDOG_MIN_US = 1000 };

/* A path, or '@' and a name in the abstract name space. */
static int socket_address(const char *text, struct sockaddr_un *ret_addr, socklen_t *ret_len)
{
	size_t len = strlen(text);

	memset(ret_addr, 0, sizeof(*ret_addr));
	if ((text[0] != '/' && text[0] != '@') || len < 2 || len >= sizeof(ret_addr->sun_path))
		return ERR_INVAL;
	ret_addr->sun_family = AF_UNIX;
	memcpy(ret_addr->sun_path, text, len);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (text[0] == '/'));
	if (text[0] == '@')
		ret_addr->sun_path[0] = 0;
	return 0;
}

int daemon_notify(const char *state)
{
	const char *text = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr;
	socklen_t len;
	int fd, rc;

	if (!text || !*text)
		return 0;
	rc = socket_address(text, &addr, &len);
	if (rc < 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_from_errno(errno);
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&addr, len) < 0)
		rc = err_from_errno(errno);
	close(fd);
	return rc;
}

static void speak(struct io_op *op)
{
	struct daemon_watchdog *w = CONTAINER_OF(op, struct daemon_watchdog, timer);

	(void)daemon_notify("WATCHDOG=1"); /* one that is lost is followed by another in time */
	io_prep_timer(&w->timer, io_now_ns(w->io) + w->every_ns, speak);
	io_submit(w->io, &w->timer);
}

int daemon_watchdog_start(struct daemon_watchdog *w, struct io *io)
{
	const char *text = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	unsigned long long us;
	char *end;

	if (!text || !*text || (pid && *pid && strtol(pid, NULL, 10) != getpid()))
		return 0;
	us = strtoull(text, &end, 10);
	if (*end || us < WATCHDOG_MIN_US || us > UINT64_MAX / 1000)
		return ERR_INVAL;
	w->io = io;
	w->every_ns = us * 1000 / 2;
	io_prep_timer(&w->timer, io_clock_ns(io), speak);
	io_submit(io, &w->timer);
	return 0;
}
