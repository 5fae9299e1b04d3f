/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: a whole store of real processes for end-to-end tests: one craton-metad and some craton-chunkd on loopback, in a temporary
 * directory that is removed at the end. The programs are those of the build tree ($builddir, or the current directory). Every wait
 * has a deadline; a failure ends the test with a line. Processes die with the test.
 */
#ifndef TESTS_LIB_STORE_H
#define TESTS_LIB_STORE_H

#include <stdint.h>
#include <sys/types.h>

enum { STORE_CHUNKD_MAX = 12 };

struct store {
	char dir[256];
	char conf[300];            /* DIR/craton.conf */
	pid_t metad, chunkd[STORE_CHUNKD_MAX];
	int chunkd_count;
	const char *capacity;      /* of each chunkd */
};

/* Waits until all servers are registered. capacity: of each ("512M"), NULL for ample. */
void store_up(struct store *s, int chunkd_count, const char *capacity);
void store_down(struct store *s);
void store_start_chunkd(struct store *s, int i);          /* i from 0 */
void store_kill_chunkd(struct store *s, int i, int signal); /* and waits for its end */
void store_start_metad(struct store *s);
void store_kill_metad(struct store *s, int signal);
/* Waits until `craton status` would count so many servers as up. */
void store_wait_up(struct store *s, int servers);

struct cr_store;
/*
 * Any two servers may go, and the file of six chunks a block is whole. On a loaded machine one may be late, or silent, for a moment, and its chunk is then
 * with another one or comes later: that is as it should be, but not what a test of lost servers is about, which writes such a file again.
 */
int store_bears_two(struct cr_store *store, const char *path);

#endif
