/* SPDX-License-Identifier: Apache-2.0 */
/* options: the command line and configuration file of craton-chunkd. */
#ifndef CHUNKD_OPTIONS_H
#define CHUNKD_OPTIONS_H

#include "chunkd/chunkd.h"
#include "common/daemon/daemon_options.h"

struct chunkd_program_options {
	struct daemon_options common;
	bool rebuild_index, format, no_format;
	const char *domain, *advertise;
	struct opt_list disks;
	uint64_t capacity, segment, log_segment, memory, beside_metad;
	/* derived */
	struct chunkd_options server; /* without log and callbacks */
};

extern const struct daemon_usage chunkd_usage;

/*
 * Reads argv, the configuration file and the secret file; common.usage is set. ERR_INVAL: wrong usage; other codes:
 * a file that cannot be read. With --help or --version nothing else is checked, with --rebuild-index only --disk, with
 * --format only --disk and the cluster.
 */
int chunkd_options_parse(struct io *io, struct chunkd_program_options *o, int argc, char **argv, struct err *err);
void chunkd_options_fini(struct chunkd_program_options *o);

#endif
