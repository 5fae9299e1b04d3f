/* SPDX-License-Identifier: Apache-2.0 */
/* local_priv: what the files of a local store share. */
#ifndef CLIENT_CLI_LOCAL_PRIV_H
#define CLIENT_CLI_LOCAL_PRIV_H

#include "client/cli/local.h"

enum local_start_as {
	LOCAL_AS_IT_IS,
	LOCAL_FOUNDS, /* a metad: its group */
	LOCAL_JOINS,  /* a metad: waits to be added to the group, unless it is a member */
};

/* Of several that make a store or start its daemons at once the others wait; not for ever: who holds it may be stopped. Until close(*ret_fd). */
int local__lock(const char *dir, uint64_t timeout_ms, int *ret_fd, struct err *err);
/* How many of what there are, and their ports: before they are changed, under the lock, as others may have changed them. */
int local__look_again(struct local *local, struct err *err);
/* DIR/local.conf. */
int local__save(const struct local *local, struct err *err);
/* Both, craton.conf with the ports in `local`; interrupted, the next start of a daemon does it again. */
int local__name_metads(struct local *local, struct err *err);
/* The folders of the daemons from `first` on, before `end`. */
int local__make_dirs(const struct local *local, uint64_t first, uint64_t end, struct err *err);
bool local__is_group(const struct local *local);
/* Under the lock: unless it runs. */
int local__launch(struct local *local, const char *name, enum local_start_as as, bool *ret_ran, struct err *err);
int local__wait_ready(const struct local *local, const char *name, struct err *err);

#endif
