/* SPDX-License-Identifier: Apache-2.0 */
/* terr: one line for people: what failed, on what, and what to do next; filled by the function that returns the code. */
#ifndef TRAINER_TERR_H
#define TRAINER_TERR_H

#include <stdarg.h>
#include <stdio.h>

enum { TERR_TEXT_BYTES = 640 };

struct terr {
	char text[TERR_TEXT_BYTES];
};

/* Returns `code`, so that a failure is one statement. */
__attribute__((format(printf, 3, 4))) static inline int terr_set(struct terr *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return code;
}

#endif
