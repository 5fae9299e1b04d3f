/* SPDX-License-Identifier: Apache-2.0 */
/* ports: TCP ports of 127.0.0.1 for metads of a local store. */
#ifndef CLIENT_CLI_PORTS_H
#define CLIENT_CLI_PORTS_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"

/* ERR_ADDRINUSE if somebody uses the port now. */
int ports_try(uint16_t port);
/*
 * Fills ret_ports with ports that nobody uses, none of them twice, below the range from which outgoing connections take theirs: a metad must
 * find its own free after a restart. ERR_ADDRINUSE if none were found.
 */
int ports_choose(uint16_t *ret_ports, size_t count, struct err *err);

#endif
