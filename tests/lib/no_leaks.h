/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no_leaks: included once in a program whose hosts crash. A crash forgets what lived on the host, as a crash does: no leaks are looked for
 * where a sanitizer would.
 */
#ifndef TESTS_LIB_NO_LEAKS_H
#define TESTS_LIB_NO_LEAKS_H

const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

#endif
