/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_main: the frame of a daemon's main(): one server on a real loop, from the command line to the exit code. It
 * says "ready" and writes DIR/address (and DIR/metrics) once the server serves; SIGTERM and SIGINT stop it cleanly, within a deadline. A
 * service manager hears READY, STOPPING and the watchdog (daemon_notify.h).
 *
 * Exit codes: 0 stopped by a signal, 1 failed, or not stopped in time, 2 wrong usage (ERR_INVAL). A failure to start, and a stop that took
 * too long, is one line on stderr that names cause and next step; a failure while serving is a line of the log. (What the kernel was given for a
 * disk that hangs keeps the process from vanishing until the disk answers, though it has ended.)
 *
 * A program embeds struct daemon in a struct of its own and finds that again with CONTAINER_OF.
 */
#ifndef COMMON_DAEMON_DAEMON_MAIN_H
#define COMMON_DAEMON_DAEMON_MAIN_H

#include "common/base/log.h"
#include "common/daemon/daemon_notify.h"
#include "common/daemon/daemon_options.h"
#include "common/io/io.h"

struct daemon;

struct daemon_program {
	/* Reads all options; with --help or --version it looks at nothing else. ERR_INVAL: wrong usage. */
	int (*parse)(struct daemon *d, int argc, char **argv, struct err *err);
	void (*fini)(struct daemon *d);                /* also after a parse that failed */
	int (*run)(struct daemon *d, struct err *err); /* daemon_main_serve, or what an option asks for instead */
	/* For daemon_main_serve: the server, with daemon_main_fatal and d for its on_fatal and ctx. */
	int (*start)(struct daemon *d, struct err *err);
	struct io_addr (*address)(struct daemon *d);
	struct io_addr (*metrics)(struct daemon *d); /* of /metrics; family 0: none */
	void (*stop)(struct daemon *d, void (*stopped)(void *ctx), void *ctx);
	/* NULL, or: of a stop whose time is over, what it waits for, in a few words. */
	void (*waits_for)(struct daemon *d, char *text, size_t text_bytes);
};

struct daemon {
	/* set by the program */
	const struct daemon_program *program;
	struct daemon_options *options; /* options->usage is set */
	char ready[64];                 /* start may set it: what the line "ready" says besides; begins with a space */
	/* for the program */
	struct io *io;
	struct log log; /* from start on */
	uint32_t max_conns; /* likewise: as many as leave half of the process's descriptors to files */
	int exit_code;
	/* private */
	struct io_op deadline;
	struct daemon_watchdog watchdog;
	bool stopped;
};

/* All of main(). */
int daemon_main(struct daemon *d, int argc, char **argv);
/* Starts the server, serves until a signal or a failure, stops it. */
int daemon_main_serve(struct daemon *d, struct err *err);
/* on_fatal of a server, ctx being its struct daemon: stops with exit code 1. It logs nothing. */
void daemon_main_fatal(void *ctx, int code, const char *text);

#endif
