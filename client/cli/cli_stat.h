/* SPDX-License-Identifier: Apache-2.0 */
/* cli_stat: how `stat` and `ls` show attributes. */
#ifndef CLIENT_CLI_CLI_STAT_H
#define CLIENT_CLI_CLI_STAT_H

#include "client/craton.h"
#include "common/base/json.h"

const char *cli_stat_type(const struct cr_stat *st); /* "file", "directory" */
void cli_stat_json(struct json *j, const struct cr_stat *st); /* members of an open object */

#endif
