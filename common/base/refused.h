/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused: how often a daemon refused what came from the network, by cause: one table a daemon, counted where it is refused, shown by
 * /metrics (craton_refused_total) and by `craton status`. A cause that a daemon does not know stays 0. It also says when a line of the
 * log is due: of each cause at most one in REFUSED_LINE_MS, so that a flood of refusals does not become one of lines. Pure.
 */
#ifndef COMMON_BASE_REFUSED_H
#define COMMON_BASE_REFUSED_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/metrics.h"

enum refused_cause {
	/* connections */
	REFUSED_CONNECTIONS, /* more than a server has */
	REFUSED_ACCEPT,      /* the host has no descriptor, or no memory, for another one */
	REFUSED_STRANGER,    /* another cluster, another version */
	REFUSED_MALFORMED,
	REFUSED_OVERLOADED, /* long requests under way took too much memory */
	REFUSED_NO_HELLO,
	REFUSED_STALLED,
	REFUSED_IDLE, /* it made room for others */
	REFUSED_METHOD,
	/* GET /metrics */
	REFUSED_METRICS_CONNECTIONS,
	REFUSED_METRICS_SLOW,
	REFUSED_METRICS_REQUEST,
	/* what chunk servers say to metad */
	REFUSED_SECRET, /* not signed with the cluster's */
	REFUSED_REGISTRATION,
	REFUSED_INVENTORY,
	/* what clients say to metad; receipts also come with a heartbeat */
	REFUSED_SESSION_FORGED,
	REFUSED_SESSION_WINDOW,
	REFUSED_RECEIPT,
	REFUSED_BLOCK_CLOSED, /* a commit of a block that counts as given up, or has gone: its id is below the floor, or it was dropped */
	REFUSED_RECEIPT_OLD, /* of another generation of the disk, or of no disk: it counts for nothing */
	/* what clients, and metad with its orders, say to chunk servers */
	REFUSED_TOKEN,
	REFUSED_TOKEN_EXPIRED,
	REFUSED_TOKEN_OTHER, /* for another block, disk, incarnation, length or right */
	REFUSED_CAUSES,
};

enum { REFUSED_LINE_MS = 1000 };

/* All zeros: nothing was refused. */
struct refused {
	struct {
		uint64_t count, last_ns; /* last_ns: of the last one, if there was one */
		uint64_t line_ns, unlogged;
		bool has_line;
	} of[REFUSED_CAUSES];
};

/* As in the label `cause`. */
const char *refused_name(enum refused_cause cause);
/* True: a line is due, and *ret_unlogged were refused for that cause without one since the last. NULL: none will be written. */
bool refused_count(struct refused *r, enum refused_cause cause, uint64_t now_ns, uint64_t *ret_unlogged);
void refused_write(const struct refused *r, struct metrics *m);

#endif
