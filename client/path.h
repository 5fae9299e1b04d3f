/* SPDX-License-Identifier: Apache-2.0 */
/* path: absolute paths as users write them -> what metad wants: no leading, doubled or trailing '/', no "." and "..". Pure. */
#ifndef CLIENT_PATH_H
#define CLIENT_PATH_H

#include <stdbool.h>
#include "client/craton.h"
#include "common/base/err.h"

/*
 * "/a//b/./c/../d/" -> "a/b/d", "/" -> "". ".." above the root stays at the root, as in POSIX; resolution is textual. ERR_INVAL (not
 * absolute), ERR_NAMETOOLONG.
 */
int path_resolve(const char *path, char ret_path[CR_PATH_MAX], struct err *err);

/* True: only a directory can be meant, as the path ends in "/" or "/.". */
bool path_wants_dir(const char *path);

/* One name in a directory, or "" for the directory itself; ERR_INVAL ("." and "..", or with a '/'), ERR_NAMETOOLONG. */
int path_check_name(const char *name, struct err *err);

#endif
