// SPDX-License-Identifier: Apache-2.0
/* marks: the linker's section of marks, sorted once. */
#include "tests/sim/marks.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/sometimes.h"

extern struct sometimes *__start_craton_sometimes[], *__stop_craton_sometimes[];

static struct sometimes *sorted[MARKS_MAX];
static size_t count;

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct sometimes *const *)a)->name, (*(struct sometimes *const *)b)->name);
}

static void sort(void)
{
	size_t n = (size_t)(__stop_craton_sometimes - __start_craton_sometimes);

	if (count)
		return;
	CHECK(n > 0 && n <= MARKS_MAX);
	memcpy(sorted, __start_craton_sometimes, n * sizeof(sorted[0]));
	qsort(sorted, n, sizeof(sorted[0]), by_name);
	for (size_t i = 1; i < n; i++)
		CHECK(strcmp(sorted[i - 1]->name, sorted[i]->name) != 0);
	count = n;
}

size_t marks_count(void)
{
	sort();
	return count;
}

const char *marks_name(size_t i)
{
	sort();
	return sorted[i]->name;
}

uint64_t marks_hits(size_t i)
{
	sort();
	return sorted[i]->hits;
}
