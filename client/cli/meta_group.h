/* SPDX-License-Identifier: Apache-2.0 */
/* meta_group: what `craton meta` does with a group of metads: says who is in it, and asks something of it. */
#ifndef CLIENT_CLI_META_GROUP_H
#define CLIENT_CLI_META_GROUP_H

#include "client/cli/cli.h"

/* NULL: no action of a group has this name. */
struct meta_group_action;
const struct meta_group_action *meta_group_find(const char *name);
/* cli->words: the action, and what it is done to. Returns the exit code. */
int meta_group_run(struct cli *cli, const struct meta_group_action *action);
/* Adds the metad that waits at `address`, and waits until it votes. Of a connected cli; returns the exit code. */
int meta_group_add(struct cli *cli, const char *address, struct cr_members *ret_members);

#endif
