/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "common/base/check.h"

#define NS_PER_S 1e9

static const char *const type_names[] = {"counter", "gauge", "histogram"};

void metrics_init(struct metrics *m, struct buf *out)
{
	*m = (struct metrics){.out = out};
}

void metrics_begin(struct metrics *m, const struct metric *metric)
{
	m->metric = metric;
	buf_printf(m->out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
		type_names[metric->type]);
}

static void name_and_labels(struct metrics *m, const char *suffix, const struct metrics_labels *l, const char *more)
{
	bool labels = l && l->len;

	buf_printf(m->out, "%s%s", m->metric->name, suffix);
	if (labels || *more)
		buf_printf(m->out, "{%s%s%s}", labels ? l->text : "", labels && *more ? "," : "", more);
}

void metrics_value(struct metrics *m, const struct metrics_labels *labels, uint64_t value)
{
	CHECK(m->metric->type != METRIC_HISTOGRAM);
	name_and_labels(m, "", labels, "");
	buf_printf(m->out, " %" PRIu64 "\n", value);
}

void metrics_seconds(struct metrics *m, const struct metrics_labels *labels, uint64_t ns)
{
	CHECK(m->metric->type != METRIC_HISTOGRAM);
	name_and_labels(m, "", labels, "");
	buf_printf(m->out, " %.9g\n", (double)ns / NS_PER_S);
}

void metrics_one(struct metrics *m, const struct metric *metric, uint64_t value)
{
	metrics_begin(m, metric);
	metrics_value(m, NULL, value);
}

void metrics_fields(struct metrics *m, const struct metric_field *fields, const void *values)
{
	for (; fields->metric.name; fields++)
		metrics_one(m, &fields->metric, *(const uint64_t *)((const char *)values + fields->offset));
}

void metrics_histogram(struct metrics *m, const struct metrics_labels *labels, const struct metrics_histogram *h)
{
	uint64_t count = 0;
	char le[48];

	CHECK(m->metric->type == METRIC_HISTOGRAM);
	for (int i = 0; i <= METRICS_BUCKETS; i++) {
		count += h->counts[i];
		if (i < METRICS_BUCKETS)
			snprintf(le, sizeof(le), "le=\"%.9g\"",
				(double)((uint64_t)1 << (METRICS_BUCKET_SHIFT + i)) / NS_PER_S);
		else
			snprintf(le, sizeof(le), "le=\"+Inf\"");
		name_and_labels(m, "_bucket", labels, le);
		buf_printf(m->out, " %" PRIu64 "\n", count);
	}
	name_and_labels(m, "_sum", labels, "");
	buf_printf(m->out, " %.9g\n", (double)h->sum_ns / NS_PER_S);
	name_and_labels(m, "_count", labels, "");
	buf_printf(m->out, " %" PRIu64 "\n", count);
}

/* Bucket i holds what is at most 2^(SHIFT + i) ns and more than half of that. */
void metrics_observe(struct metrics_histogram *h, uint64_t ns)
{
	int i = 0;

	while (i < METRICS_BUCKETS && ns > (uint64_t)1 << (METRICS_BUCKET_SHIFT + i))
		i++;
	h->counts[i]++;
	h->sum_ns += ns;
}

/* ---- labels ---- */

void metrics_labels_init(struct metrics_labels *l)
{
	l->len = 0;
	l->text[0] = 0;
}

const struct metrics_labels *metrics_label(struct metrics_labels *l, const char *name, const char *value)
{
	size_t at = l->len;
	int n = snprintf(l->text + at, METRICS_LABELS_BYTES - at, "%s%s=\"", at ? "," : "", name);

	if (n < 0 || (size_t)n >= METRICS_LABELS_BYTES - at)
		goto cut;
	at += (size_t)n;
	for (; *value; value++) {
		if (at + 4 > METRICS_LABELS_BYTES)
			goto cut;
		if (*value == '\\' || *value == '"' || *value == '\n')
			l->text[at++] = '\\';
		l->text[at++] = *value == '\n' ? 'n' : *value;
	}
	if (at + 2 > METRICS_LABELS_BYTES)
		goto cut;
	l->text[at++] = '"';
	l->text[at] = 0;
	l->len = at;
	return l;
cut:
	l->text[l->len] = 0;
	return l;
}

const struct metrics_labels *metrics_label_u64(struct metrics_labels *l, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return metrics_label(l, name, text);
}
