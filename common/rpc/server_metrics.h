/* SPDX-License-Identifier: Apache-2.0 */
/* server_metrics: what GET /metrics shows of a server of RPC. */
#ifndef COMMON_RPC_SERVER_METRICS_H
#define COMMON_RPC_SERVER_METRICS_H

#include "common/base/metrics.h"
#include "common/rpc/rpc.h"

/* Of one method: from the head's arrival to the last frame of the answer being queued. */
struct method_stats {
	struct metrics_histogram seconds;
	uint64_t errors;
};

/* `methods` as `handlers`, whose last one has no method. */
void server_metrics_write(struct metrics *m, const struct rpc_stats *stats, const struct rpc_handler *handlers,
	const struct method_stats *methods);

#endif
