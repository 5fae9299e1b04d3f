/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: figures for Prometheus, written as its text format (version 0.0.4) when asked for. Daemons keep plain numbers and
 * histograms where the work is done; one function of each part writes them, metric by metric, from a table of names:
 *
 *     static const struct metric served = {"craton_things_served_total", METRIC_COUNTER, "Things served."};
 *     metrics_begin(&m, &served);
 *     metrics_value(&m, metrics_label(&l, "kind", "small"), 7);
 *
 * Names: craton_PART_WHAT, base units (seconds, bytes), counters end in _total. The values of a metric stand together, after its
 * metrics_begin, which comes once in an answer.
 */
#ifndef COMMON_BASE_METRICS_H
#define COMMON_BASE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric {
	const char *name;
	enum metric_type type;
	const char *help; /* one sentence */
};

struct metrics {
	struct buf *out;
	const struct metric *metric;
};

/* A metric that is one uint64_t of a struct. Tables of them end with one without a name. */
struct metric_field {
	struct metric metric;
	size_t offset;
};
#define METRIC_FIELD(name_, type_, struct_type, field, help_)                                                  \
	{                                                                                                      \
		{(name_), (type_), (help_)},                                                                   \
			offsetof(struct_type, field) / (sizeof(((struct_type *)0)->field) == sizeof(uint64_t)) \
	}

enum { METRICS_LABELS_BYTES = 1024 };

/* Labels of one value, added one by one; those that find no room are left out whole. */
struct metrics_labels {
	size_t len;
	char text[METRICS_LABELS_BYTES];
};

/* Durations, in buckets that double from 65 us to 8.6 s; what is beyond counts in the last. */
enum { METRICS_BUCKETS = 18, METRICS_BUCKET_SHIFT = 16 };
struct metrics_histogram {
	uint64_t counts[METRICS_BUCKETS + 1], sum_ns;
};

void metrics_init(struct metrics *m, struct buf *out);
void metrics_begin(struct metrics *m, const struct metric *metric);
/* `labels` NULL: none. */
void metrics_value(struct metrics *m, const struct metrics_labels *labels, uint64_t value);
void metrics_seconds(struct metrics *m, const struct metrics_labels *labels, uint64_t ns);
void metrics_histogram(struct metrics *m, const struct metrics_labels *labels, const struct metrics_histogram *h);
/* Begins the metric and writes its one value. */
void metrics_one(struct metrics *m, const struct metric *metric, uint64_t value);
/* The same with each of the table, out of the struct at `values`. */
void metrics_fields(struct metrics *m, const struct metric_field *fields, const void *values);

void metrics_observe(struct metrics_histogram *h, uint64_t ns);

void metrics_labels_init(struct metrics_labels *l);
const struct metrics_labels *metrics_label(struct metrics_labels *l, const char *name, const char *value);
const struct metrics_labels *metrics_label_u64(struct metrics_labels *l, const char *name, uint64_t value);

#endif
