/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: the daemons of a local store as processes. Each has a folder DIR/NAME with `pid` ("PID STARTTIME\n": the start time of
 * /proc/PID/stat tells a reused pid from ours), `address` (written by the daemon when it serves) and `daemon.log`.
 */
#ifndef CLIENT_CLI_PROCESS_H
#define CLIENT_CLI_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "common/base/err.h"

/* 0 if it does not run. */
pid_t process_pid(const char *dir, const char *name);
/* Forks, detaches, appends both outputs to the log, writes the pid file. argv[0] is a program's path. */
int process_start(const char *dir, const char *name, char *const argv[], struct err *err);
/* Waits until DIR/NAME/address is there, and calls on_wait (NULL: nobody) meanwhile. A process that ends before: its last log line is the error. */
int process_wait_ready(
	const char *dir, const char *name, uint64_t timeout_ms, void (*on_wait)(void *ctx, const char *name), void *ctx, struct err *err);
/* Sends the signal and waits until the process is gone. ERR_NOENT if it does not run; ERR_TIMEDOUT: what to do next is the caller's to say. */
int process_end(const char *dir, const char *name, int signal, uint64_t timeout_ms, struct err *err);
/* The content of DIR/NAME/address, or "". */
void process_address(const char *dir, const char *name, char *ret_text, size_t bytes);
/* CPU seconds (user + system) of a process; 0 if it is gone. */
double process_cpu_s(pid_t pid);
/* Greatest resident memory (VmHWM) in bytes; 0 if unknown. */
uint64_t process_peak_bytes(pid_t pid);
/* Path of a sibling program: beside this one, else in PATH. mem_free() it. NULL if there is none. */
char *process_program(const char *name);
void process_sleep_ms(uint64_t ms);
uint64_t process_clock_ms(void);

#endif
