/* SPDX-License-Identifier: Apache-2.0 */
/* store_files: what makes a store one: its configuration file and its secret, written whole and durably. */
#ifndef CLIENT_CLI_STORE_FILES_H
#define CLIENT_CLI_STORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "common/base/err.h"
#include "common/base/ids.h"

int store_random(void *out, size_t len, struct err *err);
/* The file of `fd`, `temp` so far, becomes `path`: on return its bytes and its name outlive a loss of power. */
int store_publish(int fd, const char *temp, const char *path, struct err *err);
/* Replaces the file, likewise; `mode` holds whatever the umask. */
int store_write_file(const char *path, const char *text, mode_t mode, struct err *err);
/* A new secret, mode 0600. */
int store_write_secret(const char *path, struct err *err);

struct store_conf {
	const char *made_by;     /* for the comment in its first line */
	const char *cluster;     /* uuid as text */
	const char *metad;       /* IP:PORT */
	const char *secret_file; /* relative to the file, or absolute */
	bool plaintext;
};
int store_write_conf(const char *path, const struct store_conf *conf, struct err *err);

#endif
