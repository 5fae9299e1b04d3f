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
/* Called again and again while something is waited for, ten times a second. */
struct meta_group_waiting {
	void (*on_wait)(void *ctx, const char *name);
	void *ctx;
};
/* NULL: there is none. Borrowed from `members`. */
const struct cr_member *meta_group_member(const struct cr_members *members, const char *name);
/* Until this member answers and votes: it is no use before. `waiting` may be NULL. Of a connected cli; returns the exit code. */
int meta_group_wait(struct cli *cli, const char *name, const struct meta_group_waiting *waiting, struct cr_members *members);

#endif
