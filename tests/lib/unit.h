/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit: the frame of a unit test program. Write tests with START_TEST/END_TEST of Check and end the file with
 *     UNIT_MAIN("crc32c", test_known_answer, test_combine)
 * Each test runs in a process of its own (CK_FORK=no turns that off, for gdb) and fails after UNIT_TIMEOUT_S.
 */
#ifndef TESTS_LIB_UNIT_H
#define TESTS_LIB_UNIT_H

#include "tests/lib/assert.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { UNIT_TIMEOUT_S = 300 };

/*
 * 1, or what $CRATON_TEST_STEP says: loops over seeds and moments of a crash take one in so many, and count on as many less. tools/check says so to tests that
 * run with a sanitizer, five times as slow: memory is used wrongly at every moment alike.
 */
static inline uint32_t unit_step(void)
{
	const char *said = getenv("CRATON_TEST_STEP");
	unsigned long step = said ? strtoul(said, NULL, 10) : 1;

	return step > 0 && step < 1000 ? (uint32_t)step : 1;
}

/* For bytes that a format fixes: a test has them by docs/FORMATS.md, not by the code that writes them. Valid until the next call. */
static inline const char *unit_hex(const void *bytes, size_t len)
{
	static char text[1024];

	ck_assert_uint_lt(2 * len, sizeof(text));
	text[0] = '\0';
	for (size_t i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
	return text;
}

static inline int unit_run(const char *name, const TTest *const *tests, size_t count)
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(tcase, UNIT_TIMEOUT_S);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(tcase, tests[i]);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed || count == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

#define UNIT_MAIN(name, ...)                                                                   \
	int main(void)                                                                         \
	{                                                                                      \
		const TTest *const unit_tests[] = {__VA_ARGS__};                               \
		return unit_run(name, unit_tests, sizeof(unit_tests) / sizeof(unit_tests[0])); \
	}

#endif
