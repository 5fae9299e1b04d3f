/* SPDX-License-Identifier: Apache-2.0 */
/*
 * force: a replica whose group has lost its majority for good becomes the only member, offline. What that may lose is reported first
 * (metad/force_plan.h), and nothing is changed unless the word of that very report is given.
 *
 *   open log and table, as a start does --> decide, report --> confirmed? --> term (and the vote for itself) durable
 *     --> one write: the command RESTORED, then the configuration of this one alone --> durable: that is a majority of it, so both are committed
 *     --> commit index durable --> told
 *
 * It does what a leader of that term would, elected by the new configuration. A crash before the write leaves the group as it was, in a greater
 * term; one after it the forced one, which commits that itself when it is started. Since it starts with a commit index that covers the new
 * configuration it never hears those that were dropped (metad/raft/member.c, 5), whatever their term.
 */
#ifndef METAD_FORCE_H
#define METAD_FORCE_H

#include "common/io/io.h"
#include "common/kv/kv.h"
#include "metad/force_plan.h"

struct force_options {
	const char *dir;
	struct uuid cluster;
	uint64_t id;
	const struct rpc_addrs *founders; /* where they listen, for the report; count 0: not known */
	const char *confirm;              /* the word of the report; NULL: none was given */
	uint32_t restores;                /* that the disks have seen, if more than the state here knows of; metad/restore.h */
	bool restores_forced;             /* also if that is more than RESTORE_PLAUSIBLE more */
	const struct kv_backend *backend;
	uint64_t log_segment_bytes;
	/* What is known and what may be lost, before anything is changed; not if it is refused. From inside force_start. */
	void (*report)(void *ctx, const char *text);
	/* text: what was done, or what went wrong. ERR_INVAL: the word is missing, or of another report. Never from inside. */
	void (*done)(void *ctx, int code, const char *text);
	void *ctx;
};

/* Options are the caller's until `done`. Reads synchronously, then writes as the loop runs. */
void force_start(struct io *io, const struct force_options *options);

#endif
