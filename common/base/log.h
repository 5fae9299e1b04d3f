/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: one line a fact, `level event key=value ...`, at the edge of a daemon; libraries do not log. The sink is a function
 * with its context (stderr with a wall-clock stamp in daemons, the event log in the simulator), so there is no global.
 * A %s right after '=' is quoted if its text is empty or holds spaces, quotes, '=', backslashes or control bytes; control
 * bytes are written as \xNN everywhere. Lines longer than 1 KiB are cut.
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log {
	enum log_level min_level;
	void (*write)(void *ctx, enum log_level level, const char *line); /* line without newline */
	void *ctx;
	const char *name; /* "chunkd-3"; starts every line */
};

/* log_line(log, LOG_WARN, "disk-failed", "disk=%u error=%s", 3, err_name(code)) */
void log_line(const struct log *log, enum log_level level, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Writes to stderr: "2026-01-02T03:04:05.678Z WARN name event key=value". ctx unused.
 * Defined in common/io/log_stderr.c, for it reads the clock. */
void log_write_stderr(void *ctx, enum log_level level, const char *line);

#endif
