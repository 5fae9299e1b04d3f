/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_notify: tells the service manager how the daemon fares, by systemd's protocol (sd_notify(3)): datagrams of
 * `NAME=value` lines to the socket that NOTIFY_SOCKET names. Without NOTIFY_SOCKET all of it does nothing.
 *
 * The watchdog is a timer on the daemon's loop: a loop that stands still is silent, and the service manager, which gave the
 * time in WATCHDOG_USEC, kills and restarts the daemon. It speaks twice in that time.
 */
#ifndef COMMON_DAEMON_DAEMON_NOTIFY_H
#define COMMON_DAEMON_DAEMON_NOTIFY_H

#include <stdint.h>
#include "common/io/io.h"

/* One datagram. 0, also if nobody listens; else why it could not be sent, which harms nothing but the service manager's view. */
int daemon_notify(const char *state);

struct daemon_watchdog {
	struct io *io;
	struct io_op timer;
	uint64_t every_ns; /* 0: none wanted */
};

/* ERR_INVAL: WATCHDOG_USEC is no number; there is no watchdog then. Runs until the process ends. */
int daemon_watchdog_start(struct daemon_watchdog *watchdog, struct io *io);

#endif
