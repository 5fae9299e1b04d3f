/* SPDX-License-Identifier: Apache-2.0 */
/* options: the command line and configuration file of craton-metad. */
#ifndef METAD_OPTIONS_H
#define METAD_OPTIONS_H

#include "common/daemon/daemon_options.h"
#include "metad/metad.h"

struct metad_program_options {
	struct daemon_options common;
	const char *policy, *restore, *confirm;
	uint64_t cell_bytes, chunk_bytes, log_segment, restores, replica;
	bool force, found, join, force_config;
	/* derived */
	struct metad_options server; /* without log and callbacks */
};

extern const struct daemon_usage metad_usage;

/*
 * Reads argv, the configuration file and the secret file; common.usage is set. ERR_INVAL: wrong usage; other codes:
 * a file that cannot be read. With --help or --version nothing else is looked at.
 */
int metad_options_parse(struct io *io, struct metad_program_options *o, int argc, char **argv, struct err *err);
void metad_options_fini(struct metad_program_options *o);

#endif
