/* SPDX-License-Identifier: Apache-2.0 */
/* tool: commands whose work is done by a daemon's program, offline: it is run, and what it says is what the command says. */
#ifndef CLIENT_CLI_TOOL_H
#define CLIENT_CLI_TOOL_H

#include "client/cli/cli.h"

/* The configuration file that this command uses, absolute where it was found by itself; mem_free it. NULL: said why. */
char *tool_config(const struct cli *cli);

/*
 * Runs `program` (beside craton, or in PATH) with `args` (NULL ends them) and waits. Its line on stdout is printed, or {"text": ...} with
 * --json; its complaint becomes ours. Returns our exit code: the program's.
 */
int tool_run(const struct cli *cli, const char *program, const char *const *args);

#endif
