/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics_http: GET /metrics and nothing else, over HTTP/1.1, one request a connection: enough for Prometheus and for curl.
 *
 *   accepted --head read, parsed--> answer being sent --sent--> closed          (all within METRICS_HTTP_MS of accepting)
 *
 * Whoever asks is not authenticated; the figures name disks and paths, no data. Bounds: METRICS_HTTP_CONNS at a time, further ones are
 * closed at once; a head of METRICS_HTTP_HEAD_BYTES; an answer of METRICS_HTTP_ANSWER_BYTES. What is refused is counted, and logged. Everything
 * runs on the loop's thread.
 */
#ifndef COMMON_RPC_METRICS_HTTP_H
#define COMMON_RPC_METRICS_HTTP_H

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/refused.h"
#include "common/base/slice.h"
#include "common/io/io.h"

enum {
	METRICS_HTTP_CONNS = 8,               /* a scraper or two, and a person */
	METRICS_HTTP_HEAD_BYTES = 8 << 10,    /* Prometheus sends some 300 bytes; what proxies add fits */
	METRICS_HTTP_ANSWER_BYTES = 4 << 20,  /* 64 disks and 40 methods make some 200 KiB */
	METRICS_HTTP_MS = 10 * 1000,          /* Prometheus gives up after 10 s by default */
};

struct metrics_http;

struct metrics_http_options {
	struct io_addr listen;
	const struct log *log; /* or NULL */
	struct refused *refused; /* or NULL */
	void (*write)(void *ctx, struct metrics *m); /* all metrics; called once for each answer */
	void *ctx;
};

int metrics_http_open(
	struct io *io, const struct metrics_http_options *options, struct metrics_http **ret_http, struct err *err);
struct io_addr metrics_http_addr(const struct metrics_http *http);
/* Breaks connections, then `closed`, not from inside. */
void metrics_http_close(struct metrics_http *http, void (*closed)(void *ctx), void *ctx);

/*
 * What a head deserves: 0 if it is not whole yet, 200, or the status of the refusal: 400 malformed, 404 another path, 405 another method,
 * 431 too long, 505 another version.
 */
int metrics_http_judge(struct slice head);

#endif
