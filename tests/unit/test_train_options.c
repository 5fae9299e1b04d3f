/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/train_options.h"

#include <string.h>
#include "tests/lib/unit.h"

static int parse(struct train_options *o, struct terr *e, const char *a, const char *b, const char *c, const char *d)
{
	char *argv[] = {"craton-train", (char *)a, (char *)b, (char *)c, (char *)d, NULL};
	int argc = 1;

	while (argc < 5 && argv[argc])
		argc++;
	return train_options_parse(o, argc, argv, e);
}

START_TEST(test_defaults_and_values)
{
	struct train_options o;
	struct terr e;

	ck_assert_int_eq(parse(&o, &e, "--data=/d", "--lr", "1e-3", "--json"), 0);
	ck_assert_str_eq(o.data, "/d");
	ck_assert_double_eq(o.lr, 1e-3);
	ck_assert(o.json);
	ck_assert_uint_eq(o.keep, 3);
	ck_assert_str_eq(o.resume, "auto");
	ck_assert(train_options_given(&o, &o.lr));
	ck_assert(!train_options_given(&o, &o.keep));
	ck_assert_str_eq(train_options_name(&o, &o.batch_size), "batch-size");
	ck_assert_int_eq(parse(&o, &e, "--help", NULL, NULL, NULL), 0);
	ck_assert_int_eq(parse(&o, &e, "-c", "file", "--data", "x"), 0);
	ck_assert_str_eq(o.config, "file");
}
END_TEST

START_TEST(test_refused_with_a_line)
{
	static const char *const bad[][4] = {
		{"--dta", "x"},
		{"--data"},
		{"--data", "x", "--lr", "fast"},
		{"--data", "x", "--layers", "0"},
		{"--data", "x", "--layers", "1.5"},
		{"--data", "x", "--json=1"},
		{"x"},
		{"--data", "x", "--data", "y"},
		{"--json"},
		{"--data", ""},
		{"--data", "x", "--seed", "-1"},
		{"--data", "x", "--lr", "nan"},
		{"--data", "x", "-"},
		{"--data", "x", "-x"},
		{"--data", "x", "--batch-size", "1e9"},
	};
	struct train_options o;
	struct terr e;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		e.text[0] = 0;
		ck_assert_msg(parse(&o, &e, bad[i][0], bad[i][1], bad[i][2], bad[i][3]) < 0, "%zu", i);
		ck_assert_int_gt((int)strlen(e.text), 5);
	}
}
END_TEST

UNIT_MAIN("train_options", test_defaults_and_values, test_refused_with_a_line)
