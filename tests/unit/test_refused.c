// SPDX-License-Identifier: Apache-2.0
/* refused: counted by cause, said at most once a second. */
#include "common/base/refused.h"
#include <stdio.h>
#include <string.h>
#include "tests/lib/unit.h"

#define MS ((uint64_t)1000000)

START_TEST(test_lines)
{
	struct refused r = {0};
	uint64_t unlogged = 77;

	/* The first one is said, also at the clock's very beginning; the flood behind it is not. */
	ck_assert(refused_count(&r, REFUSED_TOKEN, 0, &unlogged));
	ck_assert_uint_eq(unlogged, 0);
	for (int i = 0; i < 1000; i++)
		ck_assert(!refused_count(&r, REFUSED_TOKEN, (REFUSED_LINE_MS - 1) * MS, &unlogged));
	/* Another cause has a line of its own; who writes none takes none. */
	ck_assert(!refused_count(&r, REFUSED_RECEIPT, 5 * MS, NULL));
	ck_assert(refused_count(&r, REFUSED_RECEIPT, 5 * MS, &unlogged));
	ck_assert(refused_count(&r, REFUSED_TOKEN, REFUSED_LINE_MS * MS, &unlogged));
	ck_assert_uint_eq(unlogged, 1000);
	ck_assert(!refused_count(&r, REFUSED_TOKEN, REFUSED_LINE_MS * MS, &unlogged));
	ck_assert(refused_count(&r, REFUSED_TOKEN, 2 * REFUSED_LINE_MS * MS, &unlogged));
	ck_assert_uint_eq(unlogged, 1);
	ck_assert_uint_eq(r.of[REFUSED_TOKEN].count, 1004);
	ck_assert_uint_eq(r.of[REFUSED_TOKEN].last_ns, 2 * REFUSED_LINE_MS * MS);
	ck_assert_uint_eq(r.of[REFUSED_RECEIPT].count, 2);
}
END_TEST

/* All causes are there from the beginning, each under a name of its own. */
START_TEST(test_metric)
{
	struct refused r = {0};
	struct metrics m;
	struct buf out;
	char line[128];

	refused_count(&r, REFUSED_NO_HELLO, 1, NULL);
	refused_count(&r, REFUSED_NO_HELLO, 1, NULL);
	buf_init(&out, 64 << 10);
	metrics_init(&m, &out);
	refused_write(&r, &m);
	buf_append(&out, "", 1);
	for (int i = 0; i < REFUSED_CAUSES; i++) {
		const char *at;

		snprintf(line, sizeof(line), "\ncraton_refused_total{cause=\"%s\"} %d\n",
			refused_name((enum refused_cause)i), i == REFUSED_NO_HELLO ? 2 : 0);
		at = strstr((char *)out.data, line);
		ck_assert_msg(at != NULL, "%s", line);
		ck_assert_ptr_null(strstr(at + 1, line));
	}
	buf_fini(&out);
}
END_TEST

UNIT_MAIN("refused", test_lines, test_metric)
