/* SPDX-License-Identifier: Apache-2.0 */
/* marks: what SOMETIMES marks of this program there are, in order of their names, and how often each was passed. */
#ifndef TESTS_SIM_MARKS_H
#define TESTS_SIM_MARKS_H

#include <stddef.h>
#include <stdint.h>

enum { MARKS_MAX = 256 };

size_t marks_count(void);
const char *marks_name(size_t i);
uint64_t marks_hits(size_t i);

#endif
