// SPDX-License-Identifier: Apache-2.0
/* metrics: the text that Prometheus reads. */
#include "common/base/metrics.h"
#include <stdio.h>
#include <string.h>
#include "tests/lib/unit.h"

static struct buf out;
static struct metrics m;

static void begin(void)
{
	buf_init(&out, 64 << 10);
	metrics_init(&m, &out);
}

START_TEST(test_values)
{
	static const struct metric served = {"craton_things_served_total", METRIC_COUNTER, "Things served."},
				   age = {"craton_age_seconds", METRIC_GAUGE, "Age."};
	struct metrics_labels l;

	begin();
	metrics_begin(&m, &served);
	metrics_labels_init(&l);
	metrics_value(&m, metrics_label(&l, "kind", "small"), 7);
	metrics_label_u64(&l, "disk", 3);
	metrics_value(&m, &l, UINT64_MAX);
	metrics_begin(&m, &age);
	metrics_seconds(&m, NULL, 1500000000);
	ck_assert_str_eq((char *)out.data,
		"# HELP craton_things_served_total Things served.\n"
		"# TYPE craton_things_served_total counter\n"
		"craton_things_served_total{kind=\"small\"} 7\n"
		"craton_things_served_total{kind=\"small\",disk=\"3\"} 18446744073709551615\n"
		"# HELP craton_age_seconds Age.\n"
		"# TYPE craton_age_seconds gauge\n"
		"craton_age_seconds 1.5\n");
	buf_fini(&out);
}
END_TEST

START_TEST(test_fields)
{
	struct things {
		uint32_t other;
		uint64_t served, kept;
	};
	static const struct metric_field of_things[] = {
		METRIC_FIELD("craton_things_kept", METRIC_GAUGE, struct things, kept, "Things kept."),
		METRIC_FIELD("craton_things_served_total", METRIC_COUNTER, struct things, served, "Things served."),
		{{0}, 0},
	};

	begin();
	metrics_fields(&m, of_things, &(struct things){.other = 1, .served = UINT64_MAX, .kept = 3});
	ck_assert_str_eq((char *)out.data,
		"# HELP craton_things_kept Things kept.\n"
		"# TYPE craton_things_kept gauge\n"
		"craton_things_kept 3\n"
		"# HELP craton_things_served_total Things served.\n"
		"# TYPE craton_things_served_total counter\n"
		"craton_things_served_total 18446744073709551615\n");
	buf_fini(&out);
}
END_TEST

/* Buckets hold all that is at most their bound; the last one counts everything. */
START_TEST(test_histogram)
{
	static const struct metric seconds = {"craton_x_seconds", METRIC_HISTOGRAM, "X."};
	struct metrics_histogram h = {0};
	struct metrics_labels l;

	begin();
	metrics_observe(&h, 0);
	metrics_observe(&h, 1 << 16); /* the bound itself */
	metrics_observe(&h, (1 << 16) + 1);
	metrics_observe(&h, 3600ull * 1000000000);
	metrics_begin(&m, &seconds);
	metrics_labels_init(&l);
	metrics_histogram(&m, metrics_label(&l, "method", "a"), &h);
	ck_assert_ptr_nonnull(strstr((char *)out.data, "craton_x_seconds_bucket{method=\"a\",le=\"6.5536e-05\"} 2\n"));
	ck_assert_ptr_nonnull(strstr((char *)out.data, "craton_x_seconds_bucket{method=\"a\",le=\"0.000131072\"} 3\n"));
	ck_assert_ptr_nonnull(strstr((char *)out.data, "craton_x_seconds_bucket{method=\"a\",le=\"8.58993459\"} 3\n"));
	ck_assert_ptr_nonnull(strstr((char *)out.data, "craton_x_seconds_bucket{method=\"a\",le=\"+Inf\"} 4\n"));
	ck_assert_ptr_nonnull(strstr((char *)out.data, "craton_x_seconds_sum{method=\"a\"} 3600.00013\n"));
	ck_assert_ptr_nonnull(strstr((char *)out.data, "craton_x_seconds_count{method=\"a\"} 4\n"));
	buf_fini(&out);
}
END_TEST

START_TEST(test_labels)
{
	char large[2 * METRICS_LABELS_BYTES];
	struct metrics_labels l;

	metrics_labels_init(&l);
	ck_assert_str_eq(metrics_label(&l, "path", "a \"b\" \\ c\nd")->text, "path=\"a \\\"b\\\" \\\\ c\\nd\"");
	memset(large, 'x', sizeof(large) - 1);
	large[sizeof(large) - 1] = 0;
	metrics_label(&l, "large", large); /* finds no room: left out whole */
	ck_assert_str_eq(l.text, "path=\"a \\\"b\\\" \\\\ c\\nd\"");
	for (size_t i = 0; i < METRICS_LABELS_BYTES; i++) { /* at every length: whole, or not at all */
		large[i] = 0;
		metrics_labels_init(&l);
		metrics_label(&l, "n", large);
		ck_assert_uint_eq(l.len, strlen(l.text));
		ck_assert(l.len == 0 || l.text[l.len - 1] == '"');
		ck_assert(i > METRICS_LABELS_BYTES - 16 || l.len == i + 4);
		large[i] = '"';
		large[i] = 'x';
	}
}
END_TEST

UNIT_MAIN("metrics", test_values, test_fields, test_histogram, test_labels)
