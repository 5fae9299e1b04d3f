/* SPDX-License-Identifier: Apache-2.0 */
/* chunkd: the chunk daemon as an object on a loop: main.c runs one on a real loop, the simulator several on hosts of its own. */
#ifndef CHUNKD_CHUNKD_H
#define CHUNKD_CHUNKD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/io/io.h"
#include "common/kv/kv.h"
#include "common/rpc/replicas.h"

struct chunkd;

struct chunkd_options {
	const char *state_dir;        /* exists; the server's uuid lies there */
	const char *name;             /* "chunkd-1" */
	const char *domain;           /* failure domain; NULL or "": the name */
	const char *const *disk_dirs; /* each exists: one disk; formatted at the first start */
	size_t disk_count;            /* 1 .. LIMIT_DISKS_PER_SERVER */
	uint64_t capacity_bytes;      /* greatest sum of segments per disk; 0: what the file system has, less 5 % */
	uint64_t segment_bytes;       /* 0: 1 GiB, or 64 MiB where capacity is below 32 GiB; fixed at format */
	bool no_format;               /* an empty disk_dir is not formatted: it cannot be opened */
	struct io_addr listen;
	struct io_addr advertise; /* family 0: the bound address */
	uint32_t max_conns;       /* of clients and servers; 0: LIMIT_SERVER_CONNS */
	struct io_addr metrics;   /* for GET /metrics; family 0: none */
	struct rpc_addrs metads;
	struct uuid cluster;
	uint8_t secret[32];
	const struct kv_backend *backend;
	uint64_t log_segment_bytes; /* 0: 16 MiB */
	uint64_t memory_bytes;      /* for buffers of data in flight; 0: 192 MiB */
	const char *way_path;       /* the word by which bulk of this host is asked to make way; NULL: none */
	uint64_t way_bytes_per_s;   /* what each disk writes of bulk then; 0: it never makes way, nor asks for it */
	const struct rpc_transform *transform;
	const struct log *log;
	void (*on_fatal)(void *ctx, int code, const char *text);
	void *ctx;
};

/*
 * Options are copied, strings too. Opens the disks synchronously; registers with metad, again and again until it answers. A disk that
 * cannot be opened is left out and reported to metad; only if none can is that an error. ERR_INVAL: a disk is named twice; nothing was
 * opened then.
 */
int chunkd_start(struct io *io, const struct chunkd_options *options, struct chunkd **ret_chunkd, struct err *err);
struct io_addr chunkd_addr(const struct chunkd *chunkd);
struct io_addr chunkd_metrics_addr(const struct chunkd *chunkd); /* family 0: none */
bool chunkd_is_registered(const struct chunkd *chunkd);
size_t chunkd_disk_count(const struct chunkd *chunkd); /* those that it serves */
/*
 * Says goodbye to metad, ends uploads, syncs, frees; then `stopped`. Waits for a disk that hangs, as long as it does: give it a deadline, and
 * end the process then. What was not acknowledged by then never is.
 */
void chunkd_stop(struct chunkd *chunkd, void (*stopped)(void *ctx), void *ctx);
/* Of a stop that has not ended: why not, in a few words; "" if that is no disk. */
void chunkd_waits_for(const struct chunkd *chunkd, char *text, size_t text_bytes);

#endif
