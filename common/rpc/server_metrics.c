/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/server_metrics.h"

static const struct metric_field of_server[] = {
	METRIC_FIELD("craton_rpc_connections", METRIC_GAUGE, struct rpc_stats, conns_open, "Connections that are open."),
	METRIC_FIELD("craton_rpc_connections_accepted_total", METRIC_COUNTER, struct rpc_stats, conns_accepted,
		"Connections accepted."),
	METRIC_FIELD("craton_rpc_connections_refused_total", METRIC_COUNTER, struct rpc_stats, conns_refused,
		"Connections refused: too many, another cluster, another version."),
	METRIC_FIELD("craton_rpc_connections_overloaded_total", METRIC_COUNTER, struct rpc_stats, conns_overloaded,
		"Connections broken because long requests under way took too much memory."),
	METRIC_FIELD("craton_rpc_connections_malformed_total", METRIC_COUNTER, struct rpc_stats, malformed,
		"Connections broken because of what came over them."),
	METRIC_FIELD("craton_rpc_requests_total", METRIC_COUNTER, struct rpc_stats, requests, "Requests received."),
	METRIC_FIELD("craton_rpc_responses_total", METRIC_COUNTER, struct rpc_stats, responses, "Response frames sent."),
	METRIC_FIELD("craton_rpc_received_bytes_total", METRIC_COUNTER, struct rpc_stats, bytes_in, "Bytes received."),
	METRIC_FIELD("craton_rpc_sent_bytes_total", METRIC_COUNTER, struct rpc_stats, bytes_out, "Bytes sent."),
	METRIC_FIELD("craton_rpc_queued_bytes", METRIC_GAUGE, struct rpc_stats, queued_bytes,
		"Answers not sent yet, payloads apart."),
	{{0}, 0},
};

void server_metrics_write(struct metrics *m, const struct rpc_stats *stats, const struct rpc_handler *handlers,
	const struct method_stats *methods)
{
	static const struct metric seconds = {"craton_rpc_request_seconds", METRIC_HISTOGRAM,
		"Time from the arrival of a request's head to its answer being queued."};
	static const struct metric errors = {
		"craton_rpc_request_errors_total", METRIC_COUNTER, "Requests that were answered with an error."};
	struct metrics_labels l;

	metrics_fields(m, of_server, stats);
	metrics_begin(m, &seconds);
	for (size_t i = 0; handlers[i].method; i++) {
		metrics_labels_init(&l);
		metrics_histogram(m, metrics_label(&l, "method", handlers[i].method->name), &methods[i].seconds);
	}
	metrics_begin(m, &errors);
	for (size_t i = 0; handlers[i].method; i++) {
		metrics_labels_init(&l);
		metrics_value(m, metrics_label(&l, "method", handlers[i].method->name), methods[i].errors);
	}
}
