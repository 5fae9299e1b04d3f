/* SPDX-License-Identifier: Apache-2.0 */
/* check: one line that says which belief of ours was wrong, then a core dump: going on could damage data. */
#include "common/base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func)
{
	fprintf(stderr, "craton: check failed at %s:%d in %s(): %s\n", file, line, func, expr);
	abort();
}
