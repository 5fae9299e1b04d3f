/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount: the store as a file system, by FUSE over craton.h.
 *
 * What it promises: close-to-open. What was written before a close (or fsync) that returned 0 is durable, and whoever opens the file
 * after that, on any host, reads it. Names and attributes that the kernel has cached are at most MOUNT_TIMEOUT_S old; a stale name is
 * found out when the file is opened. Files are written from start to end; other writes fail with EOPNOTSUPP.
 */
#ifndef CLIENT_MOUNT_MOUNT_H
#define CLIENT_MOUNT_MOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOUNT_TIMEOUT_S 1.0 /* of names and attributes in the kernel's caches */

struct mount_options {
	const char *config;        /* of the store; NULL: as cr_connect */
	uint32_t timeout_ms;       /* of one call to the store; 0: that of the configuration */
	const char *mountpoint;
	const char *options;       /* "ro,noatime", or NULL */
	bool allow_other;
	/* The file system is there: `context` is the caller's. A result other than 0 (it printed why) ends it at once. */
	int (*ready)(void *context);
	void *context;
};

/*
 * Mounts and serves until it is unmounted, or SIGTERM or SIGINT came: then the mount point is detached, open files have
 * LIMIT_MOUNT_LINGER_MS, and what was written is committed. 0; or -1 and one line in ret_error. Once a process.
 */
int mount_run(const struct mount_options *options, char *ret_error, size_t error_bytes);

/* 0, or -1 and one line: an option in "ro,noatime" that is not passed on. */
int mount_check_options(const char *options, char *ret_error, size_t error_bytes);

#endif
