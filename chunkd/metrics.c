/* SPDX-License-Identifier: Apache-2.0 */
/* metrics: what GET /metrics of chunkd shows: each disk, and requests by method. */
#include "chunkd/daemon.h"

#include "common/base/check.h"

static const struct metrics_labels *label_disk(struct metrics_labels *l, const struct disk *d)
{
	metrics_labels_init(l);
	metrics_label_u64(l, "disk", d->sb.disk);
	return metrics_label(l, "path", d->dir);
}

static uint64_t capacity(const struct disk *d)
{
	return segments_capacity_bytes(d->segments);
}

static uint64_t chunks(const struct disk *d)
{
	return index_count(d->index);
}

static uint64_t failed(const struct disk *d)
{
	return d->failed != 0;
}

static uint64_t stuck(const struct disk *d)
{
	return segments_stuck(d->segments) != 0;
}

static uint64_t registered(const struct disk *d)
{
	return d->registered;
}

static uint64_t queue(const struct disk *d)
{
	return sched_depth(&d->sched);
}

static uint64_t held(const struct disk *d)
{
	return d->sched.held_bytes;
}

static const struct {
	struct metric metric;
	uint64_t (*value)(const struct disk *d);
} of_disks[] = {
	{{"craton_disk_capacity_bytes", METRIC_GAUGE, "Most that segments of this disk may take."}, capacity},
	{{"craton_disk_chunks", METRIC_GAUGE, "Sealed chunks on this disk."}, chunks},
	{{"craton_disk_failed", METRIC_GAUGE, "1: the disk has failed and takes nothing until restart."}, failed},
	{{"craton_disk_stuck", METRIC_GAUGE, "1: segments cannot be made, and not for want of room: it takes no more than fits into those there are."}, stuck},
	{{"craton_disk_registered", METRIC_GAUGE, "1: metad has given the disk a generation, which it holds."}, registered},
	{{"craton_disk_queue", METRIC_GAUGE, "Reads and writes of this disk under way or waiting."}, queue},
	{{"craton_disk_held_bytes_total", METRIC_COUNTER, "Bulk written later to make way for a metad or small chunks of this host."}, held},
};

static void write_disks(struct chunkd *ch, struct metrics *m)
{
	static const struct metric left = {
		"craton_disk_free_bytes", METRIC_GAUGE, "Space that chunks of this size may still use, whole; of 4 KiB: all that is free."};
	static const uint32_t sizes[] = {0, 4, 8, 10, 12, LIMIT_ROOM_SIZES - 1};
	struct metrics_labels l;

	for (size_t i = 0; i < ARRAY_COUNT(of_disks); i++) {
		metrics_begin(m, &of_disks[i].metric);
		for (size_t j = 0; j < ch->disk_count; j++)
			metrics_value(m, label_disk(&l, ch->disks[j]), of_disks[i].value(ch->disks[j]));
	}
	metrics_begin(m, &left);
	for (size_t j = 0; j < ch->disk_count; j++)
		for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
			label_disk(&l, ch->disks[j]);
			metrics_label_u64(&l, "chunk_bytes", (uint64_t)LIMIT_ROOM_BYTES << sizes[i]);
			metrics_value(m, &l, segments_free_bytes(ch->disks[j]->segments, sizes[i]));
		}
}

static void write_metrics(void *ctx, struct metrics *m)
{
	static const struct metric build = {"craton_build_info", METRIC_GAUGE, "What runs here; always 1."},
				   reg = {"craton_chunkd_registered", METRIC_GAUGE, "1: metad knows this server since its start."},
				   unusable = {"craton_chunkd_unusable_disks", METRIC_GAUGE,
					   "Disks that this server was told to serve and could not open."},
				   gets = {"craton_chunkd_reads", METRIC_GAUGE, "Reads of chunks under way."},
				   asks = {"craton_chunkd_asks_way", METRIC_GAUGE, "1: bulk writes of this host are asked to make way for small chunks."},
				   asked = {"craton_chunkd_asked_way_seconds_total", METRIC_COUNTER, "Time for which they were."};
	struct chunkd *ch = ctx;
	struct metrics_labels l;

	metrics_labels_init(&l);
	metrics_label(&l, "version", PACKAGE_VERSION);
	metrics_label(&l, "program", "craton-chunkd");
	metrics_begin(m, &build);
	metrics_value(m, metrics_label(&l, "name", ch->o.name), 1);
	refused_write(&ch->refused, m);
	if (ch->stopping)
		return;
	metrics_one(m, &reg, ch->registered);
	metrics_one(m, &unusable, ch->bad_count);
	metrics_one(m, &gets, ch->gets);
	metrics_one(m, &asks, ch->asks.asks);
	metrics_begin(m, &asked);
	metrics_seconds(m, NULL, ch->asks.asked_ns);
	write_disks(ch, m);
	rpc_server_write_metrics(ch->server, m);
}

int daemon_metrics_open(struct chunkd *ch, struct err *err)
{
	struct metrics_http_options o = {
		.listen = ch->o.metrics, .log = &ch->log, .refused = &ch->refused, .write = write_metrics, .ctx = ch};

	return o.listen.family ? metrics_http_open(ch->io, &o, &ch->http, err) : 0;
}

void daemon_metrics_close(struct chunkd *ch, void (*closed)(void *ctx))
{
	struct metrics_http *http = ch->http;

	ch->http = NULL;
	if (http)
		metrics_http_close(http, closed, ch);
	else
		closed(ch);
}

struct io_addr chunkd_metrics_addr(const struct chunkd *ch)
{
	return ch->http ? metrics_http_addr(ch->http) : (struct io_addr){0};
}
