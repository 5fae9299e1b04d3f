/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_snapshot: the open snapshots of a kv. Rows that were not used for long lie on the disk alone, and to come upon them costs a read for each
 * page: so another thread goes some way ahead of who reads, and the loop finds them in memory. Private to kv.
 */
#ifndef COMMON_KV_KV_SNAPSHOT_H
#define COMMON_KV_KV_SNAPSHOT_H

#include "common/base/list.h"
#include "common/kv/kv_backend.h"

enum { KV_AHEAD_BYTES = 1 << 20 };

struct kv_snapshots {
	struct io *io;
	const struct kv_backend *backend;
	void *store;
	struct list all;  /* whose pages are kept */
	uint32_t ending;  /* of them: ended, but the other thread has not heard it yet */
	void (*ended)(void *ctx); /* the last such one has gone */
	void *ctx;
};

int kv__snapshot_open(struct kv_snapshots *all, struct kv_snapshot **ret_snapshot, uint64_t *ret_applied, struct err *err);
void kv__snapshots_end(struct kv_snapshots *all);

#endif
