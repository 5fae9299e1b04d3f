/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: a whole store on this machine, in a folder: DIR/craton.conf and DIR/secret for its clients, DIR/local.conf with what `up` was
 * asked for, DIR/metads-founded once the metads have led, and one folder per daemon: metad-1 (of a group also metad-2, ...), chunkd-1, chunkd-2,
 * ... Other files in DIR are left alone.
 */
#ifndef CLIENT_CLI_LOCAL_H
#define CLIENT_CLI_LOCAL_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"
#include "common/base/limits.h"

struct local {
	char *dir;              /* absolute */
	uint64_t chunkd_count;
	uint64_t capacity_bytes;
	const char *policy;
	uint64_t metad_count;
	uint64_t metad_ports[LIMIT_METADS];
	uint64_t metad_joins; /* the last of the metads is to be added to the group, and may be a member already; 0: none is */
	bool metads_unnamed;  /* craton.conf may be of before: it does not name the metads with these ports */
	uint64_t timeout_ms; /* how long to wait for others at work in the folder, and, if it is more than a minute, for a daemon to serve; 0: a minute */
	void (*on_wait)(void *ctx, const char *name); /* called again and again while local_start waits for a daemon to serve; NULL: nobody is told */
	void *ctx;              /* of on_wait */
	void *arena;            /* private */
};

enum { LOCAL_NAME_BYTES = 32, LOCAL_CHUNKD_MAX = 64, LOCAL_END_TIMEOUT_MS = 60000 /* for a daemon to end */ };

/* Reads DIR/local.conf. ERR_NOENT if there is no store in DIR. */
int local_load(const char *dir, struct local *ret_local, struct err *err);
/* For who only looks at its daemons or ends them: where local.conf cannot be read (err->code, of one that was 0), they are those that have folders. */
int local_look(const char *dir, struct local *ret_local, struct err *err);
/* Makes the store's files if there is none, and the folders of new chunk servers, never what was lost; `wanted` as asked (chunkd_count 0 and the like: keep or default). ERR_TIMEDOUT: another one is at work. */
int local_create(const char *dir, const struct local *wanted, struct local *ret_local, struct err *err);
void local_fini(struct local *local);

/* Names in starting order: the metads first. */
uint64_t local_daemon_count(const struct local *local);
void local_daemon_name(const struct local *local, uint64_t index, char ret_name[LOCAL_NAME_BYTES]);
/* ERR_NOENT with the known names. */
int local_check_name(const struct local *local, const char *name, struct err *err);

/* Its group of metads has a leader, or its only metad serves: from now on a metad that finds nothing in its directory does not start. */
int local_founded(const struct local *local, struct err *err);
bool local_was_founded(const struct local *local);
/* ERR_NOENT, with what to do: it does not run, and what it had in its folder (a metad's metadata, a chunk server's disk) is lost. */
int local_check_files(const struct local *local, const char *name, struct err *err);
/* Of a metad that votes in a group, whether it runs or not: ERR_NOENT, with what to do, if its replica is not in its folder. */
int local_check_replica(const struct local *local, const char *name, struct err *err);
/* Starts a daemon that does not run, and that local_check_files() has nothing against, and waits until it serves; *ret_started: false if it ran already, or another `craton local` started it. */
int local_start(struct local *local, const char *name, bool *ret_started, struct err *err);
/* Likewise the one of metad_joins, whatever it has: of whom the group has said that it does not vote, or holds a replica. */
int local_start_joining(struct local *local, const char *name, bool *ret_started, struct err *err);
/*
 * More metads, one after the other, each recorded before anybody knows of it, so that `up` goes on with what was interrupted:
 *   local_join --metad_joins--> local_start_joining, it is added to the group --local_joined--> a metad like the others
 *
 * The only metad of a store becomes the first of a group before that, for which it is started anew. number: that the group gives to the next one; ERR_INVAL if
 * its folder would have another. If another `craton local` has begun it meanwhile: what that one recorded.
 */
int local_join(struct local *local, uint64_t number, struct err *err);
/* Also who was removed again. */
int local_joined(struct local *local, struct err *err);

#endif
