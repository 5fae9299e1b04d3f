/* SPDX-License-Identifier: Apache-2.0 */
/* status_json: replies about the whole store as JSON. Pure. */
#ifndef CLIENT_STATUS_JSON_H
#define CLIENT_STATUS_JSON_H

#include "proto/metad.pb-c.h"

/* mem_alloc'ed; NULL if a part that must be there is missing or it would be longer than 16 MiB. */
char *status_json(const Craton__StatusReply *reply);
/* {settings: [...]}, the fields of docs/cli.md. */
char *config_json(const Craton__ConfigReply *reply);

#endif
