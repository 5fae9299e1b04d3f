/* SPDX-License-Identifier: Apache-2.0 */
/* local_up: `craton local up`: all daemons of a store in a folder run, and what it has grown by is there. */
#ifndef CLIENT_CLI_LOCAL_UP_H
#define CLIENT_CLI_LOCAL_UP_H

#include "client/cli/cli.h"
#include "client/cli/local.h"

/* `wanted` as local_create() takes it. Returns the exit code. */
int local_up(struct cli *cli, const char *dir, struct local *wanted);

/* A line on stderr that fails nothing. */
void local_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Fields `dir` and `config`. */
void local_json_place(struct json *j, const struct local *local);

#endif
