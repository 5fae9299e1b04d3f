/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sometimes: marks of rare branches. SOMETIMES(name) says that a test of everything must come by here at least once: a soak of the
 * simulator counts how often each mark was passed and fails if one never was, for then that branch has shown nothing. In a daemon a mark
 * costs one addition; nobody reads it there. Any thread.
 *
 * Names are unique, of small letters, digits and _, and begin with their module's.
 */
#ifndef COMMON_BASE_SOMETIMES_H
#define COMMON_BASE_SOMETIMES_H

#include <stdint.h>

struct sometimes {
	const char *name;
	uint64_t hits;
};

/* The linker gathers pointers to all marks of a program in one section, those never passed among them. */
#define SOMETIMES(mark)                                                                                          \
	do {                                                                                                     \
		static struct sometimes sometimes_mark = {#mark, 0};                                             \
		static struct sometimes *sometimes_entry __attribute__((section("craton_sometimes"), used)) =    \
			&sometimes_mark;                                                                         \
		(void)sometimes_entry;                                                                           \
		__atomic_fetch_add(&sometimes_mark.hits, 1, __ATOMIC_RELAXED);                                   \
	} while (0)

#endif
