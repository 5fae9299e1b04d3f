/* SPDX-License-Identifier: Apache-2.0 */
/* store_status: cr_status_json read back (by jansson) for people and for `local up`, which waits for servers. */
#ifndef CLIENT_CLI_STORE_STATUS_H
#define CLIENT_CLI_STORE_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "client/craton.h"

enum { STATUS_EXIT_OK = 0, STATUS_EXIT_WARN = 3, STATUS_EXIT_ERROR = 4 };

struct store_status {
	char *json;          /* one object */
	int exit_code;       /* STATUS_EXIT_* by health */
	uint64_t servers_up, servers;
};

/* Negative errno with cr_error(), or -EPROTO if the answer cannot be read. */
int store_status_fetch(struct cr_store *store, struct store_status *ret_status);
void store_status_fini(struct store_status *status);
/* Whether a chunk server that registered with that address is up. */
bool store_status_is_up(const struct store_status *status, const char *address);
/* A line for each reason of severity error; mem_free() it. */
char *store_status_errors(const struct store_status *status);
void store_status_print(const struct store_status *status, FILE *f);
/* The same for cr_config_json. */
void store_settings_print(const char *json, bool value_only, FILE *f);

#endif
