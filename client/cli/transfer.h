/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer: whole files between local file descriptors and the store. Both directions keep the library busy while the local side is read or
 * written. Failures are reported through cli_fail and give its exit code; a failed upload leaves nothing visible, a failed download no file.
 * After one the next file is tried, unless cli_gives_up: the store does not answer, or there is no more room where they are copied to. A failure
 * that came TRANSFER_SILENT_MS (or the time that --timeout gives) after the last bytes may be one of a store that does not answer, whatever it
 * is called, or of a block that is lost while others are whole: TRANSFER_SILENCES of them, nothing copied in between, are the former.
 */
#ifndef CLIENT_CLI_TRANSFER_H
#define CLIENT_CLI_TRANSFER_H

#include "client/cli/cli.h"
#include "client/cli/progress.h"

enum { TRANSFER_SILENT_MS = 5000, TRANSFER_SILENCES = 3 };

struct transfer_totals {
	uint64_t files, bytes, failed; /* failed: files, and directories that cannot be made or read; each has been named */
	bool several;                  /* more than one file may be meant */
};
/* What a command has to say at its end; its exit code. */
int transfer_end(const struct cli *cli, const struct transfer_totals *totals);

/* Reads fd to its end into a new file `path`, which appears when complete. `exclusive`: it must not exist. */
int transfer_in(struct cli *cli, int fd, const char *local_name, const char *path, uint32_t mode, bool exclusive, struct progress *p);
/* Writes all of `path` to fd. */
int transfer_out(struct cli *cli, const char *path, int fd, const char *local_name, struct progress *p);

#endif
