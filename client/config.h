/* SPDX-License-Identifier: Apache-2.0 */
/* config: craton.conf, as far as clients need it. Names that only daemons know are skipped: one file serves all. */
#ifndef CLIENT_CONFIG_H
#define CLIENT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/ids.h"
#include "common/io/io.h"
#include "common/rpc/replicas.h"

struct config {
	char path[4096];                 /* the file that was read */
	struct uuid cluster;             /* zero: any */
	struct rpc_addrs metads;
	bool plaintext;                  /* connections beyond loopback without encryption are wanted */
	char secret_file[4096];          /* "" if not set */
	const struct rpc_transform *transform;
	uint64_t timeout_ms;
	uint32_t tail_bytes;             /* see client.h */
};

/*
 * Reads `path`, or if it is NULL the first that exists of $CRATON_CONF, ~/.config/craton/craton.conf and /etc/craton/craton.conf.
 * Not found, malformed, an address beyond loopback without `plaintext = yes`: an error with the
 * file and the remedy.
 */
int config_load(struct io *io, const char *path, struct config *ret_config, struct err *err);

#endif
