/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf: the names that craton.conf may hold. One file serves all programs of a host, and each has a table of its own names; what is in
 * none of the tables is a mistake that every program refuses. tests/tools/test-docs compares this list, the tables and docs/DEPLOY.md.
 */
#ifndef COMMON_BASE_CONF_H
#define COMMON_BASE_CONF_H

/* Ends with NULL. */
extern const char *const conf_names[];

#endif
