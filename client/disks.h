/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disks: where the disks of the store are, as replies of metad told, one peer per chunk server, and which of them are to be avoided:
 *
 *  - A server that failed is a suspect until it answers a probe of our own (sent after a while that doubles with each failure in a row)
 *    or a request that was sent to it all the same. So users' requests wait for a dead server once, not again and again.
 *  - A slow disk (pace.h), as found here or, for a while, by another client; a small share of the requests goes to it all the same.
 *  - A disk that had no room for a chunk, for DISKS_NO_ROOM_NS, by new blocks only, whose chunks are as long as that one or longer: metad hears of
 *    it with its next heartbeats. It is as good as any other to read from, and its server has done nothing wrong.
 */
#ifndef CLIENT_DISKS_H
#define CLIENT_DISKS_H

#include <stdbool.h>
#include <stdint.h>
#include "client/pace.h"
#include "common/base/map.h"
#include "common/io/io.h"
#include "common/rpc/rpc.h"
#include "proto/chunkd.pb-c.h"
#include "proto/metad.pb-c.h"

#define DISKS_NO_ROOM_NS (3ull * 1000 * 1000 * 1000) /* more than two heartbeats */

struct disks_server {
	uint32_t id;
	uint32_t failures;         /* in a row */
	bool suspect;
	uint64_t suspect_ns;       /* since when */
	uint64_t checked_ns;       /* when it was last asked whether it is there, for its silence; 0: never */
	struct disks *disks;
	struct io_op timer;        /* until the next probe */
	struct rpc_call probe;
	Craton__StatRequest probe_request;
	struct io_addr addr;
	struct rpc_peer *peer;     /* NULL until first used */
	char name[64];
};

struct disks_disk {
	uint32_t id, domain;
	bool up;                   /* as metad said */
	struct disks_server *server;
	struct pace pace;
	uint64_t no_room_until_ns, no_room_bytes; /* the shortest that was refused */
};

struct disks {
	struct io *io;
	struct map disks, servers;
	struct rpc_identity self;
	const struct rpc_transform *transform;
	uint64_t changed_ns;       /* when a server or disk was last found to be avoided, or not any more */
	uint64_t slowed, probed;   /* disks found slow; requests sent to such all the same */
	uint64_t checked;          /* silent servers asked whether they are there */
	uint32_t closing;          /* peers being closed, timers and probes that run */
	bool closed_asked;
	uint32_t ignore_servers;   /* see craton.h */
	void (*closed)(void *ctx);
	void *ctx;
};

void disks_init(struct disks *d, struct io *io, const struct rpc_identity *self, const struct rpc_transform *transform);
/* Closes all peers (their calls fail), then `closed` (at once, inside, if there are none). */
void disks_close(struct disks *d, void (*closed)(void *ctx), void *ctx);
void disks_fini(struct disks *d);

/* Malformed entries are skipped. At most LIMIT_DISKS are kept. */
void disks_learn(struct disks *d, Craton__Disk *const *list, size_t count);
const struct disks_disk *disks_get(const struct disks *d, uint32_t disk); /* NULL if never heard of */
/* NULL if the disk is unknown. */
struct rpc_peer *disks_peer(struct disks *d, uint32_t disk);
const char *disks_server_name(const struct disks *d, uint32_t disk);      /* "?" if unknown */
uint32_t disks_domain(const struct disks *d, uint32_t disk);

/* A request to this disk failed or succeeded. */
void disks_failed(struct disks *d, uint32_t disk);
/* Likewise, if disks_is_failure(status): one that ran out of time so soon after it was sent that this says little has its server asked instead. */
void disks_request_failed(struct disks *d, uint32_t disk, int status, uint64_t waited_ns);
void disks_succeeded(struct disks *d, uint32_t disk);
/* It has not answered for a while: asks it, once a second at most, whether it is there; if not, it failed. */
void disks_check(struct disks *d, uint32_t disk);
/* Unknown, a suspect, or slow. */
bool disks_avoided(const struct disks *d, uint32_t disk);
bool disks_suspect(const struct disks *d, uint32_t disk);
uint64_t disks_suspect_ns(const struct disks *d, uint32_t disk); /* for how long it has been one; 0: it is none */
bool disks_ignored(const struct disks *d, uint32_t disk);
/* A request to this disk took so long, or, if that is slow, has been waiting for so long; see pace_note. */
void disks_note(struct disks *d, uint32_t disk, uint64_t took_ns, uint64_t median_ns);
/* It is avoided for slowness alone, and this request shall go to it all the same, for us to see how it is now. */
bool disks_probe(struct disks *d, uint32_t disk);
/* A chunk of this length found no room on it; and lately one as short as this did not. */
void disks_had_no_room(struct disks *d, uint32_t disk, uint64_t chunk_bytes);
bool disks_without_room(const struct disks *d, uint32_t disk, uint64_t chunk_bytes);
/* Ids of the disks that new blocks with such chunks are to avoid now: avoided, or without room; at most cap. */
size_t disks_avoid_list(const struct disks *d, uint64_t chunk_bytes, uint32_t *out, size_t cap);
/* Those that were found slow here, for metad to tell the others; at most cap. */
size_t disks_slow_list(const struct disks *d, uint32_t *out, size_t cap);
/* True for results that speak against the server, not against the request. */
bool disks_is_failure(int status);

#endif
